"""The versions of one table. A version is published by one put-if-absent, so that readers see all of it or none of it.

    <root>/<table>/versions/<n>.json                     names everything the version consists of
    <root>/<table>/entries/<unique>.fragments.parquet    and .partitions, .nodes, .specs, .metadata_cache
    <root>/<table>/entries/<unique>.garbage.parquet      files of the previous version that this one does not use
    <root>/<table>/pending/<unique>.parquet              profiles finished by attempts that did not publish
    <root>/<table>/history/                              a Delta table that outlives the versions

The JSON is written last. A crash before that leaves unreferenced files, which `expire` deletes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError, VersionConflictError, VersionNotFoundError
from metastore_assets.startup import pc
from metastore_assets.store.documents import Documents
from metastore_assets.store.entries import (
    FILES,
    KINDS,
    METADATA_CACHE,
    StoredEntries,
    StoredMetadataCache,
    version_entries,
    write_entries,
)
from metastore_assets.store.expire import Expired, exclude, expire
from metastore_assets.store.garbage import GARBAGE_BATCH, drop_outdated, write_garbage_manifest
from metastore_assets.store.manifest import FragmentEntry, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.pending import FOLDER as PENDING
from metastore_assets.store.pending import (
    PendingFiles,
    clear_pending,
    is_since,
    list_pending,
    read_pending,
    remove_cleared,
    save_pending,
)
from metastore_assets.store.segments import SegmentFiles
from metastore_assets.store.version_document import encode_version, load_version, stored_entries

if TYPE_CHECKING:
    from metastore_assets.config import MetastoreConfig

HISTORY = "history"
"""The folder of a table's history, which manages its own files."""


class VersionStore:
    """The versions and pending profiles of one table under a root."""

    def __init__(self, store: ObjectStore, table: str) -> None:
        self._initialize(table, store.child(table))

    @classmethod
    def of_folder(cls, table: str, objects: ObjectStore) -> VersionStore:
        """Return the version store of a table, given the object store of its folder."""
        versions = cls.__new__(cls)
        versions._initialize(table, objects)
        return versions

    def _initialize(self, table: str, objects: ObjectStore) -> None:
        self.table = table
        self.objects = objects
        """The table's folder: what `ProfileFiles` paths are relative to."""
        self.documents = Documents(self.objects)
        self._pending_paths: set[str] = set()
        self._pending_profile_files: set[str] = set()
        self._pending_listing = PendingFiles((), {})
        self.last_purge: int | None = None
        """`purged()` when the newest version was read last; None before."""

    def numbers(self) -> list[int]:
        """Return the numbers of all versions, ascending. Lists all of them; `newest` does not."""
        return self.documents.numbers()

    def newest(self) -> int:
        """Return the number of the newest version, or 0 before the first, by a few requests."""
        return self.documents.newest()

    def latest(self) -> Version | None:
        """Return the newest version, or None before the first."""
        number = self.newest()
        latest = self.read(number) if number else None
        self.last_purge = latest.purged if latest is not None else 0
        return latest

    def purged(self) -> int:
        """Return the version that the last purge published, or 0 before the first purge.

        Profiles that were saved before that no longer exist. A corrupt newest version counts as published by a purge,
        because it is unknown.
        """
        try:
            self.latest()
        except CorruptionError:
            self.last_purge = self.newest()
        return self.last_purge or 0

    def read(self, number: int) -> Version:
        """Return one version. Raises VersionNotFoundError with the numbers of the existing ones."""
        try:
            return load_version(self.documents, number)
        except VersionNotFoundError:
            numbers = self.numbers()
            existing = f"its versions: {_format_ranges(numbers)}" if numbers else "run `refresh` to publish the first"
            raise VersionNotFoundError(f"table {self.table!r} has no version {number}; {existing}") from None

    def metadata_cache(self) -> Mapping[bytes, bytes]:
        """Return the metadata cache of the newest version; empty before the first, or if it is corrupt."""
        try:
            latest = self.latest()
        except CorruptionError:
            return {}
        return latest.metadata_cache if latest is not None else {}

    def publish(self, version: Version, base: Version | None = None) -> None:
        """Publish the version as the newest. Its number must follow the newest one.

        Only the differences of its entries from `base`, the version before as read from here, are written; without
        `base` all entries are.

        Raises:
            VersionConflictError: Another publisher was first: plan again from `latest()`.
            StoreError: The version may or may not have been published; `latest()` tells.
        """
        newest = self.newest()
        if version.number != newest + 1:
            raise self._conflict(version.number, newest)
        before = {} if base is None else {entries.kind: entries for entries in stored_entries(base)}
        if (
            base is not None
            and isinstance(base.metadata_cache, StoredMetadataCache)
            and not base.metadata_cache.is_readable
        ):
            del before[METADATA_CACHE]
        written = {
            kind.name: write_entries(self.objects, kind, version_entries(version, kind), before.get(kind))
            for kind in KINDS
        }
        entries = {kind: one.files for kind, one in written.items()}
        garbage_manifest = None
        if base is not None:
            dropped = [entry for one in written.values() for entry in one.dropped]
            garbage_manifest = write_garbage_manifest(self.objects, version, entries, base, dropped)
        try:
            self.documents.publish(version.number, encode_version(version, entries, garbage_manifest))
        except VersionConflictError:
            new_files = {path for files in entries.values() for path in files.paths()} | {garbage_manifest or ""}
            reused_files = {path for one in before.values() for path in one.files.paths()} | {""}
            self.objects.delete(sorted(new_files - reused_files))
            raise self._conflict(version.number, version.number) from None

    def discard(self, version: Version, base: Version | None) -> None:
        """Delete the value counts and indexes of a version that lost the race, except those shared with `base`.

        Its profiles stay, because the next attempt may need them.
        """
        self.objects.delete(sorted(set(version.auxiliary_files()) - set(base.auxiliary_files() if base else ())))

    def delete_unreferenced(self, paths: Iterable[str]) -> None:
        """Delete some files, except those that a version references. They were written before a purge that makes them
        useless.
        """
        candidates = pa.array(sorted(set(paths)), pa.string())
        self.objects.delete(_exclude_referenced(self.documents, candidates, self.numbers()).to_pylist())

    def drop_outdated(self, newest: int, keep: int, grace: timedelta) -> None:
        """Drop a few of the versions before the last `keep` up to `newest`, and files that only they reference.

        The work is bounded; the rest waits for the next call. A version stays while the version after it is younger
        than `grace`. Files of pending profiles that this object has read stay too, unless they were cleared before that
        time.
        """
        drop_outdated(self.documents, newest - keep, grace, self._pending_profile_files)
        cleared = self._pending_listing.cleared_before(datetime.now(UTC) - grace)[:GARBAGE_BATCH]
        remove_cleared(self.objects, self._pending_listing, cleared)

    def save_pending(self, entries: Sequence[FragmentEntry], attempt: str = "") -> None:
        """Save profiles of an attempt that may not publish, optionally under the attempt's name."""
        if entries:
            purged = self.purged() if self.last_purge is None else self.last_purge
            self._pending_paths.add(save_pending(self.objects, entries, attempt, purged))

    def pending(self, attempt: str = "") -> list[FragmentEntry]:
        """Return the profiles of `save_pending` that are not cleared; of several with the same id and profile spec, the
        newest.

        With an attempt's name, only its profiles are returned. Profiles saved before the last purge no longer exist.
        """
        entries: dict[tuple[str, str], FragmentEntry] = {}
        self._pending_listing = list_pending(self.objects)
        current = self._pending_listing.current(attempt)
        purged = self.purged() if current else 0
        for path in current:
            for entry in read_pending(self.objects, path) if is_since(path, purged) else ():
                entries[entry.id, entry.spec_id] = entry
                self._pending_profile_files.update(entry.files.paths())
            self._pending_paths.add(path)
        return list(entries.values())

    def clear_pending(self) -> None:
        """Clear the profiles that this object saved or read, because a version contains them or they are useless.

        Their files stay safe from `expire` for its grace period, because another attempt may have read them.
        """
        clear_pending(self.objects, sorted(self._pending_paths))
        self._pending_paths.clear()

    def expire(self, keep: int, grace: timedelta, now: datetime | None = None) -> Expired:
        """Delete all but the newest `keep` versions, and unreferenced files older than `grace`.

        The grace period must be longer than the longest refresh. Versions replaced within it stay too. Raises
        StoreError, and stops, if a retained version cannot be read.
        """
        if keep < 1:
            raise ValueError("keep must be at least 1: the newest version always stays")
        pending = list_pending(self.objects)
        cleared = pending.cleared_before((now or datetime.now(UTC)) - grace)

        def unreferenced(paths: pa.Array, numbers: Sequence[int]) -> pa.Array:
            for folder in (PENDING, HISTORY):
                paths = paths.filter(pc.invert(pc.starts_with(paths, f"{folder}/")))
            paths = _exclude_referenced(self.documents, paths, numbers)
            for path in pending.paths_except(cleared):
                with suppress(ObjectNotFoundError):  # cleared since it was listed
                    paths = _exclude_rows(paths, self.objects.read_parquet(path))
            return paths

        removed = expire(self.documents, lambda numbers: numbers[-keep:][0], unreferenced, grace, now)
        remove_cleared(self.objects, pending, cleared)
        return replace(removed, files=removed.files + len(cleared))

    def _conflict(self, number: int, newest: int) -> VersionConflictError:
        return VersionConflictError(
            f"version {number} of table {self.table!r} cannot be published: version {newest} exists; plan again"
        )


def versions_of(config: MetastoreConfig, table: str) -> VersionStore:
    """Return the versions of a table in the configured root."""
    return VersionStore(ObjectStore(config.root, config.storage_options), table)


def _format_ranges(numbers: Sequence[int]) -> str:
    """Return `[1, 2, 3, 7]` as `1-3, 7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _exclude_referenced(documents: Documents, paths: pa.Array, numbers: Sequence[int]) -> pa.Array:
    """Return the paths that no listed version references. Raises StoreError if a version cannot be read."""
    scanned: set[SegmentFiles] = set()
    for number in numbers:
        try:
            version = load_version(documents, number)
        except VersionNotFoundError:
            continue  # removed by another expire
        paths = exclude(paths, pa.array([*version.files.paths(), *version.auxiliary_files()], pa.string()))
        for entries in stored_entries(version):
            paths = exclude(paths, pa.array(entries.files.paths(), pa.string()))
            if len(paths) and len(entries) and entries.kind.names_files and entries.files not in scanned:
                scanned.add(entries.files)
                paths = _exclude_entries(paths, entries)
    return paths


def _exclude_entries(paths: pa.Array, entries: StoredEntries[Any]) -> pa.Array:
    try:
        return _exclude_rows(paths, entries.read_rows(FILES))
    except ObjectNotFoundError:
        return paths  # its version was removed since it was listed


def _exclude_rows(paths: pa.Array, rows: pa.Table) -> pa.Array:
    """Return the paths that the file columns of some entries' rows do not contain."""
    for name in set(FILES) & set(rows.column_names):
        for chunk in rows.column(name).chunks:
            paths = exclude(paths, chunk.flatten() if pa.types.is_list(chunk.type) else chunk)
    return paths
