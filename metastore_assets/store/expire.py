"""Removing what no kept version names. Safe beside readers and running publishers.

First old version documents go, then files that nothing names. What is younger than the grace is never touched: a
running publisher may be about to name it. So the grace must be longer than the longest refresh, and a reader of a
version that is being replaced has as long to finish.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import ObjectNotFoundError
from metastore_assets.store.document import decode_version, version_number, version_path
from metastore_assets.store.entries import FILES
from metastore_assets.store.memory import StoredMemory
from metastore_assets.store.objects import ObjectInfo, ObjectStore
from metastore_assets.store.pending import PendingFiles


@dataclass(frozen=True)
class Expired:
    """What was removed."""

    versions: int
    files: int
    """Files of all kinds but version documents."""
    bytes: int
    """Of those files."""


def expire(objects: ObjectStore, keep: int, grace: timedelta, now: datetime | None = None) -> Expired:
    """Remove all but the newest `keep` versions of a table, and files named by no kept version or pending profile.

    A version stays while the one after it is younger than `grace`; a file, while itself is. Raises StoreError, and
    removes nothing more, when a kept version cannot be read.
    """
    if keep < 1:
        raise ValueError("keep must be at least 1: the newest version always stays")
    before = (now or datetime.now(UTC)) - grace
    listed = objects.list()  # before the versions are read: what is published meanwhile only names more
    outdated = _outdated_versions(listed, keep, before)
    objects.delete([version_path(number) for number in outdated])
    pending = PendingFiles.of(listed)
    cleared = pending.cleared_before(before)
    ours = {*pending.all_paths(), *(info.path for info in listed if version_number(info.path) is not None)}
    old = {info.path: info for info in listed if info.modified < before and info.path not in ours}
    unnamed = _unnamed(objects, pa.array(list(old), pa.string()), set(outdated), pending.paths_but(cleared))
    removed = [old[path] for path in unnamed]
    objects.delete([info.path for info in removed])
    objects.delete(cleared)  # a mark outlives its file, or the file would count again
    objects.delete(pending.marks_of(cleared))
    files = objects.remove_unfinished(before) + len(removed) + len(cleared)
    return Expired(len(outdated), files, sum(info.size for info in removed))


def _outdated_versions(listed: list[ObjectInfo], keep: int, before: datetime) -> list[int]:
    published = {number: info.modified for info in listed if (number := version_number(info.path)) is not None}
    numbers = sorted(published)
    replaced = {number: published[following] for number, following in pairwise(numbers)}
    return [number for number in numbers[:-keep] if replaced[number] < before]


def _unnamed(objects: ObjectStore, paths: pa.Array, outdated: set[int], pending: list[str]) -> list[str]:
    """Those of the paths that no version there is now names, and none of the pending files."""
    for info in objects.list("versions"):
        number = version_number(info.path)
        if number is None or number in outdated:
            continue
        try:
            version = decode_version(objects.read(info.path), objects, info.path)
        except ObjectNotFoundError:
            continue  # removed by another expire
        memory = [version.memory.path] if isinstance(version.memory, StoredMemory) else []
        paths = _without(paths, pa.array([*version.files.paths(), *version.entry_files, *memory], pa.string()))
        for entries in version.entry_files:
            paths = _without_entries(objects, paths, entries)
    for path in pending:
        paths = _without_entries(objects, paths, path)
    return paths.to_pylist()


def _without_entries(objects: ObjectStore, paths: pa.Array, entries: str) -> pa.Array:
    if not len(paths):
        return paths
    try:
        file = objects.open_parquet(entries)
    except ObjectNotFoundError:
        return paths  # its version went, or it was cleared, since it was listed
    with file:
        wanted = [name for name in FILES if name in file.schema_arrow.names]
        table = file.read(columns=wanted)
    for column in table.columns:
        for chunk in column.chunks:
            paths = _without(paths, chunk.flatten() if pa.types.is_list(chunk.type) else chunk)
    return paths


def _without(paths: pa.Array, named: pa.Array) -> pa.Array:
    return paths.filter(pc.invert(pc.is_in(paths, value_set=named)))
