"""Profiles of fragments that were finished by attempts that did not publish: the next attempt need not redo them.

A pending file is not removed when it is cleared but marked by an empty file beside it, so that `expire` can protect
what it names for a while longer: another attempt may have read it just before.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.store.entries import FRAGMENTS, entries_of, entries_table
from metastore_assets.store.manifest import FragmentEntry
from metastore_assets.store.objects import ObjectInfo, ObjectStore
from metastore_assets.store.parquet import MinimalParquet

FOLDER = "pending"
_CLEARED = ".cleared"
_OF = ".of-"
_SINCE = ".since-"
"""Before the number of the version that the last purge published."""


@dataclass(frozen=True)
class PendingFiles:
    """The pending files and the marks of those that are cleared, as listed."""

    files: tuple[ObjectInfo, ...]
    """Oldest first."""
    marks: dict[str, ObjectInfo]
    """By path of the file they mark; the file itself may be gone already."""

    @classmethod
    def of(cls, infos: Iterable[ObjectInfo]) -> PendingFiles:
        """Those among listed objects."""
        infos = [info for info in infos if info.path.startswith(f"{FOLDER}/")]
        files = sorted((info for info in infos if info.path.endswith(".parquet")), key=lambda info: info.modified)
        marks = {info.path.removesuffix(_CLEARED): info for info in infos if info.path.endswith(_CLEARED)}
        return cls(tuple(files), marks)

    def current(self, attempt: str = "") -> list[str]:
        """Paths of the files that are not cleared, oldest first; of one attempt, if one is named."""
        return [info.path for info in self.files if info.path not in self.marks and _attempt(info.path, attempt)]

    def all(self) -> list[str]:
        """Paths of all files and marks."""
        return [info.path for info in (*self.files, *self.marks.values())]

    def cleared_before(self, time: datetime) -> list[str]:
        """Paths of files, perhaps gone, that were cleared before a time."""
        return [path for path, mark in self.marks.items() if mark.modified < time]

    def paths_except(self, cleared: Iterable[str]) -> list[str]:
        """Paths of all files, cleared or not, but those given."""
        without = set(cleared)
        return [info.path for info in self.files if info.path not in without]

    def marks_of(self, paths: Iterable[str]) -> list[str]:
        """Paths of the marks of some files."""
        return [self.marks[path].path for path in paths]


def _attempt(path: str, name: str) -> bool:
    return not name or path.endswith(f"{_OF}{name}.parquet")


def is_since(path: str, purged: int) -> bool:
    """Return whether a file was written after the purge that published a version, and before the next one."""
    return (f"{_SINCE}{purged}." in path) if purged else _SINCE not in path


def list_pending(objects: ObjectStore) -> PendingFiles:
    """The pending files there are."""
    return PendingFiles.of(objects.list(FOLDER))


def read_pending(objects: ObjectStore, path: str) -> list[FragmentEntry]:
    """Return the entries of one pending file.

    They are empty if the file has been removed or is corrupt: then the work is only repeated.
    """
    try:
        return entries_of(FRAGMENTS, objects.read_parquet(path))
    except (ObjectNotFoundError, CorruptionError):
        return []


def save_pending(objects: ObjectStore, entries: Sequence[FragmentEntry], attempt: str = "", purged: int = 0) -> str:
    """Write the entries as one more pending file, of an attempt that has a name or not; returns its path.

    `purged` is the version that the last purge published, 0 before the first one.
    """
    since = f"{_SINCE}{purged}" if purged else ""
    path = f"{FOLDER}/{uuid.uuid4().hex}{since}{attempt and _OF}{attempt}.parquet"
    table = entries_table(FRAGMENTS, entries)
    with objects.parquet_writer(path, table.schema, minimal=MinimalParquet()) as output:
        output.write_table(table)
    return path


def clear_pending(objects: ObjectStore, paths: Iterable[str]) -> None:
    """Mark pending files as cleared."""
    for path in paths:
        objects.write(f"{path}{_CLEARED}", b"")


def remove_cleared(objects: ObjectStore, pending: PendingFiles, cleared: Sequence[str]) -> None:
    """Remove pending files that were cleared long ago, and their marks."""
    if cleared:
        objects.delete(cleared)  # a mark outlives its file, or the file would count again
        objects.delete(pending.marks_of(cleared))
