"""Pending profiles: saved by an attempt that did not publish a version, and reused by the next one.

A fragment is a data file with its deletes, and its profile is its statistics. An attempt is one run that profiles
fragments. A pending file lists the profiles that an attempt saved. A pending file that is no longer needed is cleared:
an empty marker file is written beside it. Both are deleted after a grace period, because another attempt may have read
the pending file just before.

A purge (`metastore purge`) deletes all pending files without a grace period. It also publishes the newest version
again, without the profiles of removed fragments.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.store.entries import FRAGMENTS, decode_entries, encode_entries
from metastore_assets.store.objects import ObjectInfo, ObjectStore
from metastore_assets.store.parquet import MinimalParquet, ParquetOptions
from metastore_assets.store.version import FragmentEntry

FOLDER = "pending"
_CLEARED = ".cleared"
_OF = ".of-"
_SINCE = ".since-"
"""Part of a file name, before the number of the version that the last purge published."""


@dataclass(frozen=True)
class PendingFiles:
    """A listing of the pending files and of the markers of cleared files."""

    files: tuple[ObjectInfo, ...]
    """The pending files, oldest first."""
    markers: dict[str, ObjectInfo]
    """{path of a cleared file: its marker}. The file itself may be deleted already."""

    @classmethod
    def among(cls, infos: Iterable[ObjectInfo]) -> PendingFiles:
        """Return the pending files and markers among these objects."""
        infos = [info for info in infos if info.path.startswith(f"{FOLDER}/")]
        files = sorted((info for info in infos if info.path.endswith(".parquet")), key=lambda info: info.modified)
        markers = {info.path.removesuffix(_CLEARED): info for info in infos if info.path.endswith(_CLEARED)}
        return cls(tuple(files), markers)

    def current(self, attempt: str = "") -> list[str]:
        """Return the paths of the files that are not cleared, oldest first.

        `attempt` is the name of the attempt that saved the files. If it is empty, all attempts are meant.
        """
        return [
            info.path for info in self.files if info.path not in self.markers and _is_of_attempt(info.path, attempt)
        ]

    def all(self) -> list[str]:
        """Return the paths of all pending files, cleared ones included, and of all markers of cleared files."""
        return [info.path for info in (*self.files, *self.markers.values())]

    def cleared_before(self, time: datetime) -> list[str]:
        """Return the paths of pending files whose markers were written before a time.

        The pending files themselves may be deleted already.
        """
        return [path for path, mark in self.markers.items() if mark.modified < time]

    def paths_except(self, cleared_paths: Iterable[str]) -> list[str]:
        """Return the paths of all pending files, with or without a marker, except those in `cleared_paths`."""
        without = set(cleared_paths)
        return [info.path for info in self.files if info.path not in without]

    def marker_paths(self, paths: Iterable[str]) -> list[str]:
        """Return the paths of the markers of some cleared files, in the order of `paths`.

        Args:
            paths: The paths of the cleared files.

        Raises:
            KeyError: A file has no marker.
        """
        return [self.markers[path].path for path in paths]


def _is_of_attempt(path: str, name: str) -> bool:
    return not name or path.endswith(f"{_OF}{name}.parquet")


def was_saved_since_purge(path: str, purge_number: int) -> bool:
    """Return whether a pending file was saved after the last purge, so that its profiles exist.

    Args:
        path: Path of the pending file.
        purge_number: Number of the version that the last purge published; 0 before the first purge.
    """
    return (f"{_SINCE}{purge_number}." in path) if purge_number else _SINCE not in path


def list_pending_files(objects: ObjectStore) -> PendingFiles:
    """Return the pending files of a table."""
    return PendingFiles.among(objects.list(FOLDER))


def read_pending(objects: ObjectStore, path: str) -> list[FragmentEntry]:
    """Return the entries of a pending file; none if the file is missing or corrupt."""
    try:
        return decode_entries(FRAGMENTS, objects.read_parquet(path))
    except (ObjectNotFoundError, CorruptionError):
        return []
    except (KeyError, ValueError, TypeError, AttributeError, pa.ArrowException):
        return []  # Another release wrote the file with other columns, or a user put it there.


def save_pending(
    objects: ObjectStore, entries: Sequence[FragmentEntry], attempt: str = "", purge_number: int = 0
) -> str:
    """Write entries as a new pending file and return its path.

    Args:
        objects: The table's folder.
        entries: One entry per profiled fragment.
        attempt: Name of the attempt, or empty.
        purge_number: Number of the version that the last purge published, 0 before the first purge.
    """
    since = f"{_SINCE}{purge_number}" if purge_number else ""
    path = f"{FOLDER}/{uuid.uuid4().hex}{since}{attempt and _OF}{attempt}.parquet"
    table = encode_entries(FRAGMENTS, entries)
    with objects.parquet_writer(path, table.schema, ParquetOptions(minimal=MinimalParquet())) as output:
        output.write_table(table)
    return path


def clear_pending(objects: ObjectStore, paths: Iterable[str]) -> None:
    """Mark pending files as no longer needed: write an empty marker file beside each.

    No pending file is deleted here. `remove_cleared` deletes the marked files and their markers later.
    """
    for path in paths:
        objects.write(f"{path}{_CLEARED}", b"")


def remove_all(objects: ObjectStore) -> None:
    """Delete all pending files, then all markers of cleared files.

    In the other order, a cleared file would count as not cleared until it is deleted.
    """
    pending = list_pending_files(objects)
    objects.delete([info.path for info in pending.files])
    objects.delete([info.path for info in pending.markers.values()])


def remove_cleared(objects: ObjectStore, pending: PendingFiles, cleared_paths: Sequence[str]) -> None:
    """Delete cleared pending files and their markers."""
    if cleared_paths:
        objects.delete(cleared_paths)  # a marker must outlive its file, or the file would count again
        objects.delete(pending.marker_paths(cleared_paths))
