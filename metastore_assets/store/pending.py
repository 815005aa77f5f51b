"""Profiles of fragments that were finished by attempts that did not publish: the next attempt need not redo them.

A pending file is not removed when it is cleared but marked by an empty file beside it, so that `expire` can protect
what it names for a while longer: another attempt may have read it just before.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from metastore_assets.errors import ObjectNotFoundError
from metastore_assets.store.entries import entries_of, entries_table
from metastore_assets.store.manifest import FragmentEntry
from metastore_assets.store.objects import ObjectInfo, ObjectStore

_CLEARED = ".cleared"


def save_pending(objects: ObjectStore, entries: Sequence[FragmentEntry]) -> None:
    """Write the entries as one more pending file."""
    objects.write_parquet(f"pending/{uuid.uuid4().hex}.parquet", entries_table(FragmentEntry, entries))


def clear_pending(objects: ObjectStore, paths: Iterable[str]) -> None:
    """Mark pending files as cleared."""
    for path in paths:
        objects.write(f"{path}{_CLEARED}", b"")


def pending_files(objects: ObjectStore) -> list[ObjectInfo]:
    """The pending files that are not cleared."""
    infos = objects.list("pending")
    cleared = {info.path.removesuffix(_CLEARED) for info in infos if info.path.endswith(_CLEARED)}
    return [info for info in infos if info.path.endswith(".parquet") and info.path not in cleared]


def read_pending(objects: ObjectStore, path: str) -> list[FragmentEntry]:
    """The entries of one pending file; none when it was removed meanwhile."""
    try:
        return entries_of(FragmentEntry, objects.read_parquet(path))
    except ObjectNotFoundError:
        return []
