"""Purge: immediate removal of old versions and their files, so that no deleted value stays stored.

The command `expire` retains young files for readers, and profiles of removed fragments for restores. A purge removes
both. It first publishes a version. A refresh that runs at the same time then fails to publish, and starts again.

A fragment is a data file with its deletes, and its profile is its statistics. A profile spec says which statistics a
profile has. An entry describes a fragment, a partition and the like in a version. A version is the published statistics
of a table at one snapshot. A value filter has short hashes of a column's values in one fragment.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.batching import batched
from metastore_assets.errors import StoreError, VersionConflictError, VersionNotFoundError
from metastore_assets.history import remove_values
from metastore_assets.pipeline.column_spec import parse_column_spec
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.indexes import IndexedColumns, update_indexes
from metastore_assets.pipeline.merging.compaction import COMPACT_ALL, SegmentEntries, compact_segments
from metastore_assets.store.backfills import FOLDER as BACKFILLS
from metastore_assets.store.entries import (
    FILE_COLUMNS,
    FRAGMENTS,
    NODES,
    PARTITIONS,
    Entry,
    EntryKind,
    StoredEntries,
    version_entries,
)
from metastore_assets.store.entry_changes import EntryChanges
from metastore_assets.store.expire import FILES, PATHS, add_files, delete_files, is_metastore_file
from metastore_assets.store.objects import ObjectInfo, ObjectStore
from metastore_assets.store.pending import FOLDER as PENDING
from metastore_assets.store.pending import PendingFiles, remove_all
from metastore_assets.store.sorted_runs import SortedRuns, subtract
from metastore_assets.store.staged_versions import StagedVersions
from metastore_assets.store.version import FragmentEntry, NodeEntry, PartitionEntry, Version
from metastore_assets.store.version_document import stored_entries
from metastore_assets.store.versions import HISTORY, VersionStore, profile_paths, version_file_paths
from metastore_assets.value_counts import read_value_counts, rewrite_value_counts, write_value_counts
from metastore_assets.values.columns import schema_columns

_ENTRIES_PER_LOT = 10_000
"""Maximum number of entries that are copied at once."""
_NOT_REACHED = (
    "the event logs of Dagster and of other schedulers",
    "reports and answers that were saved or sent",
    "exports to targets that the configuration no longer names",
    "copies, backups and earlier versions of objects that the store keeps",
)
"""Places outside the root that may contain values, and that a purge does not change."""


@dataclass(frozen=True)
class PurgeResult:
    """What a purge removed (numbers of versions, files and bytes), and places where values may remain."""

    versions: int
    """Number of removed versions."""
    files: int
    """Number of removed files, not counting version documents."""
    bytes: int
    """Total size in bytes of the removed files, not counting version documents."""
    published: int
    """Number of the version that the purge published: the newest one again, without profiles of removed fragments."""
    unfinished: int
    """Number of removed files that no version referenced, for example of a refresh that failed."""
    outdated: int
    """Number of profiles that still contain columns the table no longer has, until the table is read again."""
    not_reached: tuple[str, ...] = _NOT_REACHED
    """Places outside the root that may contain values."""


def purge(engine: Engine, versions: VersionStore, before: int) -> PurgeResult:
    """Remove all versions before a number, and every file that the remaining versions do not need.

    The newest version is published again, without profiles of removed fragments. Older versions that remain may lose
    fragment profiles, which only planning needs. Files that no version references are removed regardless of their age.
    Cached metadata and records of unfinished backfills are removed. The table's history retains its rows about removed
    versions, but without statistics that reveal values, such as minimums.

    Args:
        engine: The engine that copies profiles.
        versions: The versions of the table.
        before: Number of the first version that remains. If it is the newest version, only its copy remains.

    Raises:
        VersionNotFoundError: There is no version `before` or later.
        VersionConflictError: Other processes published during every attempt.
        StoreError: A version that remains cannot be read. By then, the newest version has been published again. Nothing
            has been removed, except saved profiles of interrupted refreshes.
    """
    objects, documents = versions.objects, versions.documents
    published_number, listing = _publish_without_removed(engine, versions, before)
    start_time, pending = listing.start_time, PendingFiles.among(listing.pending)
    if before == published_number - 1:
        before = published_number
    numbers: list[int] = []
    with (
        listing.files as files,
        SortedRuns(PATHS) as needed_paths,
        SortedRuns(PATHS) as referenced_paths,
        SortedRuns(FILES) as removable_files,
    ):
        # The profiles in pending files that are not current were published.
        current = set(pending.current())
        referenced_paths.add_keys(pa.array([path for path in pending.all() if path not in current], pa.string()))
        for number in chain.from_iterable(documents.batches()):
            numbers.append(number)
            try:
                version = versions.read(number)
                for paths in _lookup_paths(version):
                    referenced_paths.add_keys(paths)
                    if number >= before:
                        needed_paths.add_keys(paths)
                for paths in profile_paths(version):
                    referenced_paths.add_keys(paths)
                    if number >= published_number:
                        needed_paths.add_keys(paths)
            except StoreError:
                # A version that is removed now, or was removed meanwhile by another process, need not be readable.
                if number >= before and documents.exists(number):
                    raise
        for rows in subtract(files, needed_paths):
            removable_files.add(rows)
        unfinished_count = sum(map(len, subtract(removable_files, referenced_paths)))
        remove_values(versions, before)
        # Versions are removed before their files: a reader finds no version instead of a damaged one.
        outdated_numbers = [number for number in numbers if number < before]
        objects.delete([documents.path(number) for number in outdated_numbers])
        count, size = delete_files(objects, removable_files.stream())
    # Partition keys are values, too. Without its record an unfinished backfill starts again.
    objects.delete([info.path for info in objects.list(BACKFILLS)])
    unfinished_writes = objects.remove_unfinished(start_time)
    return PurgeResult(
        len(outdated_numbers),
        count + unfinished_writes,
        size,
        published_number,
        unfinished_count + unfinished_writes,
        versions.with_newest(_count_outdated_profiles),
    )


def _count_outdated_profiles(version: Version | None) -> int:
    """Return how many profiles of a version contain a column that the version's schema lacks.

    Profiles whose spec cannot be parsed are counted, too.
    """
    assert version is not None, "another purge removes only older versions than its own"
    field_ids = {column.field_id for column in schema_columns(version.schema)}
    outdated_specs = set()
    for id_, columns in version.specs.items():
        column_specs = [parse_column_spec(text) for text in columns.values()]
        if any(spec is None or not field_ids.issuperset(spec.values) for spec in column_specs):
            outdated_specs.add(id_)
    if not outdated_specs:
        return 0
    with SortedRuns(PATHS) as names:
        for entries in stored_entries(version):
            if entries.kind.references_files:
                for rows in entries.stream_rows([*FILE_COLUMNS, "section", "spec_id"]):
                    is_outdated = pc.is_in(rows["spec_id"], value_set=pa.array(sorted(outdated_specs), pa.string()))
                    # The name of a profile; see `ProfileFiles.name`. The root of a tree has none.
                    name = pc.if_else(
                        pc.equal(rows["statistics"].fill_null(""), ""), rows["section"], rows["statistics"]
                    )
                    name = name.filter(pc.and_(is_outdated, pc.not_equal(name, "")))
                    names.add_keys(name.combine_chunks())
        return sum(map(len, names.stream()))


@dataclass(frozen=True)
class _StoredFiles:
    """A listing of a table's stored files, without its history and the files that describe versions.

    Files that no Metastore writes are omitted.
    """

    start_time: datetime
    """Time at which the listing began."""
    files: SortedRuns
    """Path and size of each file."""
    pending: Sequence[ObjectInfo]
    """The pending files (saved profiles that no version has). They are also in `files`."""

    @classmethod
    def of(cls, versions: VersionStore) -> _StoredFiles:
        """List the files of a table."""
        start_time, files, pending = datetime.now(UTC), SortedRuns(FILES), list[ObjectInfo]()

        def listed() -> Iterator[ObjectInfo]:
            for info in versions.objects.scan():
                if info.path.startswith(f"{HISTORY}/") or not is_metastore_file(info.path):
                    continue
                if info.path.startswith(f"{PENDING}/"):
                    pending.append(info)
                yield info

        add_files(files, listed())
        return cls(start_time, files, pending)


def _publish_without_removed(engine: Engine, versions: VersionStore, before: int) -> tuple[int, _StoredFiles]:
    """Publish the newest version again, without profiles of removed fragments or any cached metadata.

    Its value counts are written to new files. Before the publication, saved profiles of interrupted refreshes are
    removed.

    Args:
        engine: The engine that copies profiles.
        versions: The versions of the table.
        before: Number of the first version that the purge keeps. This function removes no versions. It only checks that
            the newest version has this number or a larger one.

    Returns:
        (number of the published version, listing of the files that existed just before it was published). The caller
            closes `files` of the listing.

    Raises:
        VersionNotFoundError: There is no version `before` or later.
        VersionConflictError: Other processes published during every attempt.
    """

    def publish_copy(latest: Version | None) -> tuple[int, _StoredFiles]:
        if latest is None or not 1 <= before <= latest.number:
            newest = "none is published" if latest is None else f"the newest is {latest.number}"
            raise VersionNotFoundError(
                f"table {versions.table!r} has no version {before} or later that could stay: {newest}"
            )
        value_counts = write_value_counts(
            versions.objects,
            rewrite_value_counts(versions.objects, read_value_counts(versions.objects, latest.value_counts)),
        )
        copied_version, staged_version = _copy_entries(engine, versions, replace(latest, value_counts=value_counts))
        new = replace(
            copied_version,
            number=latest.number + 1,
            published_at=datetime.now(UTC),
            metadata_cache={},
            garbage_manifest=None,
            refresh_stats=None,
            purged=latest.number + 1,
        )
        listing = _StoredFiles.of(versions)
        # Saved profiles are removed first: later readers find none, and earlier readers cannot publish.
        remove_all(versions.objects)
        try:
            # The entries are not those of the previous version, whose files contain removed fragments.
            versions.publish(new, staged_version)
        except VersionConflictError:
            # Profiles are removed as well: they are unused, and may contain values that are deleted meanwhile.
            written_paths = (
                {path for entries in stored_entries(staged_version) for path in entries.files.paths()}
                if staged_version
                else ()
            )
            versions.objects.delete(sorted({*new.paths(), *written_paths} - set(latest.paths())))
            listing.files.close()
            raise
        return new.number, listing

    return versions.with_newest(publish_copy)


def _copy_entries(engine: Engine, versions: VersionStore, version: Version) -> tuple[Version, Version | None]:
    """Copy the used profiles of a version to new files if their files also have unused profiles.

    The indexes and value filters of the version are written again.

    Many entries are processed in lots, to save memory. Each lot is added to a staged version, which no reader sees.

    Returns:
        (version to publish, argument `base` of `VersionStore.publish`, which writes only entries that differ from it).
            Without lots, the version has its entries in memory, and `base` is None: all entries are written. With
            lots, both are the last staged version, which has the entries of all lots.
    """
    if len(version.fragments) + len(version.partitions) + len(version.nodes) <= _ENTRIES_PER_LOT:
        lot = _Lot(list(version.fragments), list(version.partitions), list(version.nodes))
        return _copy_lot(engine, versions.objects, version, None, lot)[0], None
    staged_versions = StagedVersions(versions, f"purge/{uuid.uuid4().hex}")
    base: Version | None = None
    try:
        for lot in _lots(version):
            copied_version, may_merge = _copy_lot(engine, versions.objects, version, base, lot)
            staged_versions.publish(copied_version, base, may_merge=may_merge)
            base = staged_versions.latest()
    finally:
        staged_versions.remove()
    assert base is not None, "a version has entries"
    base = replace(base, garbage_manifest=None)
    return base, base


@dataclass(frozen=True)
class _Lot:
    """A part of the entries of a version.

    A purge copies the profiles of one part after the other.

    Nodes are the stored intermediate results of merging profiles.
    """

    fragments: Sequence[FragmentEntry] = ()
    partitions: Sequence[PartitionEntry] = ()
    nodes: Sequence[NodeEntry] = ()


def _lots(version: Version) -> Iterator[_Lot]:
    """Yield the entries of a version in lots of bounded size: fragments, partitions, then nodes.

    Exception: if the version has only one partition, the first lot has both fragments and this partition.
    """
    fragments, partitions, nodes = _chunks(version.fragments), _chunks(version.partitions), _chunks(version.nodes)
    if len(version.partitions) == 1:
        # The table uses the files of its only partition. References to shared files are counted correctly only if both
        # references are added in one lot.
        yield _Lot(next(fragments), next(partitions))
    yield from (_Lot(fragments=chunk) for chunk in fragments)
    yield from (_Lot(partitions=chunk) for chunk in partitions)
    yield from (_Lot(nodes=chunk) for chunk in nodes)


def _chunks(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Yield the stored entries by ascending key, in chunks of bounded size."""
    assert isinstance(entries, StoredEntries), "the version was read from a store"
    entry_stream: Iterator[Entry] = entries.stream()
    return batched(entry_stream, _ENTRIES_PER_LOT)


def _copy_lot(
    engine: Engine, objects: ObjectStore, version: Version, base: Version | None, lot: _Lot
) -> tuple[Version, bool]:
    """Copy profiles of a lot to new files, and write indexes and value filters.

    Only profiles whose file also has unused profiles are copied.

    Args:
        engine: The engine that copies and reads profiles.
        objects: The table's folder.
        version: The version whose entries are copied.
        base: The staged version, which has the entries of all earlier lots; None for the first lot.
        lot: The entries to process.

    Returns:
        (`version`, but with only the entries that are in `base` or in the lot; whether the stored, sorted files of
            entries may be merged when this result is staged).
    """
    columns = len(version.schema)
    compacted_entries = compact_segments(
        engine, objects, columns, SegmentEntries(lot.fragments, lot.nodes), COMPACT_ALL
    )
    fragments = _added(FRAGMENTS, base, compacted_entries.fragments)
    partitions = _added(PARTITIONS, base, lot.partitions)
    nodes = _added(NODES, base, compacted_entries.nodes)
    filtered_ids = version.value_filters.columns if version.value_filters else ()
    changes: tuple[EntryChanges[Any], ...] = (fragments, partitions, nodes)
    indexes = update_indexes(
        engine, objects, IndexedColumns(columns, filtered_ids), base, {each.kind.name: each for each in changes}
    )
    copied_version = replace(
        version,
        fragments=fragments,
        partitions=partitions,
        nodes=nodes,
        retired=(),
        metadata_cache={},
        index=indexes.fragments,
        value_filters=indexes.value_filters,
        partition_index=indexes.partitions,
        garbage_manifest=None,
    )
    return copied_version, not indexes.is_merged


def _added(kind: EntryKind[Entry], base: Version | None, entries: Sequence[Entry]) -> EntryChanges[Entry]:
    """Return the entries of `base` of one kind, plus `entries`.

    If `base` is None, return only `entries`.
    """
    base_entries = None if base is None else version_entries(base, kind)
    assert base_entries is None or isinstance(base_entries, StoredEntries), "the version was read from a store"
    return EntryChanges(kind, base_entries, {kind.key(entry): entry for entry in entries}, {})


def _lookup_paths(version: Version) -> Iterator[pa.Array]:
    """Yield the paths of the files that queries of a version read."""
    yield from version_file_paths(version)
    yield from profile_paths(version, [PARTITIONS])
