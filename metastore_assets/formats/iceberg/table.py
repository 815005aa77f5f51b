"""Iceberg tables: their snapshots, fragments and changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError, TableFormatError, TableNotFoundError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.formats.base import (
    Fragment,
    HistoryChange,
    NoDiff,
    NoDiffError,
    Snapshot,
    SnapshotDiff,
    SnapshotMetadata,
    SnapshotReference,
    SnapshotStream,
    TableFormat,
    fragment_order,
)
from metastore_assets.formats.bounds import FragmentBounds, bounds_table, column_path
from metastore_assets.formats.iceberg.bounds import fragment_bounds
from metastore_assets.formats.iceberg.changes import plan_changes
from metastore_assets.formats.iceberg.fragment_planner import IcebergFragmentPlanner
from metastore_assets.formats.iceberg.locations import table_files
from metastore_assets.formats.iceberg.metadata import TableMetadata, read_metadata
from metastore_assets.formats.iceberg.metadata_files import METADATA, is_metadata_file, newest_metadata
from metastore_assets.formats.iceberg.planned_state import ManifestRecord, PlannedState
from metastore_assets.formats.iceberg.schema import arrow_schema, is_geospatial
from metastore_assets.formats.iceberg.snapshot_selection import IcebergState, history_change_since, resolve_state
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.formats.schema_casting import identity
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, metadata_errors, unreadable_error
from metastore_assets.storage.listing import StoredFile
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy, table_location


@dataclass(frozen=True)
class _LoadedTable:
    """A table's metadata, the folder where the table is now, and the state of the table to read."""

    location_policy: LocationPolicy
    """Decides which files the table may refer to."""
    folder: Location
    """The folder where the table is now. The metadata of a moved table records another one."""
    metadata: TableMetadata
    state: IcebergState
    """The newest state, or the one that the configuration selects."""


class IcebergFormat(TableFormat):
    """An Iceberg table, located by its folder or by a metadata file.

    The requested snapshot or state is the one that the configuration's `at` selects; without `at`, the newest.
    """

    def __init__(self, table: TableConfig, cache: MetadataCache) -> None:
        self._cache = cache
        self._table = table
        self._filter = PartitionFilter.of(table.partitions)
        # Every commit to a table in a catalog has another metadata file, but their folder stays.
        folder = table.uri.rpartition("/")[0] if is_metadata_file(table.uri) else table.uri
        self._planned_key = cache_key("iceberg planned state", folder)
        self._current: tuple[Location, StoredFile, _LoadedTable | None] | None = None
        """The metadata file that `current()` has found, and its content if it was read. The next `changes()` uses it
        instead of another listing, and removes it."""

    def snapshot_id(self) -> str:
        """Return the id of the requested snapshot; empty for a table without snapshots."""
        return self.current().id

    def current(self) -> SnapshotReference:
        """Return the id and time of the requested state.

        If the configuration sets `at`, the time is that of the snapshot; otherwise that of the table's last change.
        """
        self._current = None
        with self._iceberg_errors():
            location, file = self._file()
            loaded_table = None
            # The result is cached, because a metadata file is immutable and may list thousands of snapshots.
            key = cache_key("iceberg state", location.uri, self._table.at, *file)
            reference = self._cache.get(key, _decode_reference)
            if reference is None:
                loaded_table = self._load(location, file)
                state = loaded_table.state
                reference = SnapshotReference(state.id, state.committed_at)
                self._cache.put(key, json.dumps([reference.id, state.committed_at.isoformat()]).encode())
        self._current = location, file, loaded_table
        return reference

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        """Return how the table changed between snapshots other than by ordinary commits.

        The result is "recreated", "rolled back" or "metadata changed". It is None if there were only ordinary commits,
        or if the kind of change is not known.
        """
        with self._iceberg_errors():
            loaded_table = self._load()
        planned_state, uuid = self._cache.get(self._planned_key, PlannedState.decode), loaded_table.metadata.uuid
        if planned_state is not None and planned_state.uuid and uuid and planned_state.uuid != uuid:
            return "recreated"
        return (
            history_change_since(loaded_table.metadata, loaded_table.state, previous)
            if loaded_table.state.id == current.id
            else None
        )

    def snapshot(self) -> Snapshot:
        """Return the requested snapshot, and cache the record of it that `changes` needs."""
        with self._iceberg_errors():
            planner = self._planner(self._load())
            fragments = [planned_fragment.fragment for planned_fragment in planner.fragments()]
            self._cache.put(self._planned_key, PlannedState.of(self._table, planner).encode())
            return Snapshot(
                **self._metadata_fields(planner),
                fragments=tuple(sorted(fragments, key=fragment_order)),
            )

    def stream(self) -> SnapshotStream:
        """Return the requested snapshot as a stream, which reads manifests in batches.

        If the spec id of a manifest is unknown, this call reads all manifests instead.
        """
        with self._iceberg_errors():
            planner = self._planner(self._load())
            manifests = planner.manifests(planner.state.snapshot)
            specs = {manifest.spec_id for manifest in manifests if manifest.spec_id is not None}
            if any(manifest.spec_id is None for manifest in manifests):
                # The specs of all files, which are part of the metadata, are known when all manifests are read.
                return SnapshotStream.of(self.snapshot())
            planner.specs_in_use |= specs
            metadata = SnapshotMetadata(**self._metadata_fields(planner))

        def fragments() -> Iterator[Fragment]:
            with self._iceberg_errors():
                yield from planner.stream(manifests)
                self._cache.put(self._planned_key, PlannedState.of(self._table, planner).encode())

        return SnapshotStream(metadata, fragments())

    def changes(self, since: SnapshotReference) -> SnapshotDiff | NoDiff:
        """Return the changes from the state `since` to the current one, or a NoDiff.

        The result is a NoDiff in these cases, among others:

        - The cache does not record `since` as the state that was read last, by `snapshot`, `stream` or `changes`.
        - The snapshot of `since` has expired.
        - Something other than files may have changed, such as the schema.

        If the result is a SnapshotDiff, the cache then records the current state instead.
        """
        with self._iceberg_errors():
            try:
                return self._changes(since)
            except NoDiffError as error:
                return NoDiff(str(error))

    def _changes(self, since: SnapshotReference) -> SnapshotDiff:
        """Return the changes; see `changes`.

        Raises NoDiffError if they cannot be determined.
        """
        (location, file, loaded_table), self._current = self._current or (None, None, None), None
        loaded_table = loaded_table or self._load(location, file)
        planned_state = self._cache.get(self._planned_key, PlannedState.decode)
        if planned_state is None or planned_state.reference != since:
            raise NoDiffError("no record of the last planned snapshot is cached")
        planner = self._planner(loaded_table)
        current = PlannedState.of(self._table, planner)
        planned_state.check_only_files_differ(current)
        if since.id and int(since.id) not in loaded_table.metadata.snapshots:
            raise NoDiffError(f"the snapshot {since.id} has expired")
        snapshot = loaded_table.metadata.snapshots[int(since.id)] if since.id else None
        changes = plan_changes(planner, snapshot, planned_state.manifests)
        current = replace(current, manifests=ManifestRecord.of(planner.state_manifests))
        self._cache.put(self._planned_key, current.encode())
        metadata = SnapshotMetadata(**self._metadata_fields(planner))
        return SnapshotDiff(since, metadata, changes.added, changes.removed, replaced=changes.replaced)

    def partition_columns(self) -> tuple[str, ...]:
        """Return the names of the fields of all partition specs, those of the default spec first.

        Fields with the transform `void` are left out.
        """
        with self._iceberg_errors():
            return self._planner(self._load()).partitions.columns()

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return the null counts and bounds of a leaf column from the manifests; see `fragment_bounds`."""
        path = column_path(snapshot.schema, column)
        bounds_by_id: dict[str, FragmentBounds] = {}
        with self._iceberg_errors():
            loaded_table = self._load()
            if loaded_table.state.id != snapshot.id:
                # The table has changed since.
                loaded_table = replace(
                    loaded_table, state=resolve_state(self._table.uri, loaded_table.metadata, snapshot.id or None)
                )
            has_points = any(is_geospatial(one, identity(path[-1])) for one in loaded_table.metadata.schemas.values())
            for planned_fragment in self._planner(loaded_table).fragments(with_statistics=True) if snapshot.id else ():
                bounds_by_id[planned_fragment.fragment.id] = fragment_bounds(
                    path, planned_fragment.entry, has_deletes=planned_fragment.has_deletes, is_geospatial=has_points
                )
        return bounds_table(
            snapshot, column, (bounds_by_id.get(fragment.id, FragmentBounds()) for fragment in snapshot.fragments)
        )

    def _file(self) -> tuple[Location, StoredFile]:
        """Return (the configured location, the table's current metadata file).

        If the configured location is a metadata file, this file is the current one. Otherwise, the location is the
        table's folder.

        Raises TableNotFoundError if there is no such file.
        """
        location = table_location(self._table)
        if not is_metadata_file(location.uri):
            return location, newest_metadata(location)
        try:
            return location, location.stat("")
        except FileNotFoundError as error:
            raise TableNotFoundError(f"{location.uri} does not exist") from error

    def _load(self, location: Location | None = None, file: StoredFile | None = None) -> _LoadedTable:
        """Read a metadata file, and return the table with the state that the configuration selects.

        `location` and `file` are the result of an earlier call of `_file`. Without them, `_file` is called.
        """
        if location is None or file is None:
            location, file = self._file()
        metadata = read_metadata(location, file.path)
        with metadata_errors(location.full_path(file.path)):
            if file.path:
                location_policy, folder = LocationPolicy.of(self._table, location), location
            else:
                location_policy, folder = self._from_metadata_file(location, metadata)
            state = resolve_state(self._table.uri, metadata, self._table.at)
        return _LoadedTable(location_policy, folder, metadata, state)

    def _from_metadata_file(self, file: Location, metadata: TableMetadata) -> tuple[LocationPolicy, Location]:
        """Return the location policy and the folder of the table that a metadata file describes.

        A location policy decides which locations in the metadata may be read.
        """
        parent = file.folder
        if parent.uri.endswith(f"/{METADATA}"):
            folder = parent.folder
            return LocationPolicy.of(self._table, folder), folder
        # Metadata files may be stored elsewhere. Then only the recorded location identifies the folder.
        location_policy = LocationPolicy.of(self._table, parent)
        location, path = location_policy.resolve(metadata.location)
        return location_policy, location.below(path)

    def _planner(self, loaded_table: _LoadedTable) -> IcebergFragmentPlanner:
        files = table_files(
            loaded_table.location_policy, loaded_table.folder, loaded_table.metadata, loaded_table.state.snapshot
        )
        return IcebergFragmentPlanner(files, loaded_table.metadata, loaded_table.state, self._filter)

    def _metadata_fields(self, planner: IcebergFragmentPlanner) -> dict[str, Any]:
        """Return the keyword arguments of SnapshotMetadata for the snapshot that the planner plans.

        Derived partition fields are those of the specs in the set `planner.specs_in_use`. Before the call, this set
        must have the specs of all manifests, which is not checked: the fields of a missing spec would be left out.
        """
        partitions, state = planner.partitions, planner.state
        return {
            "format": "iceberg",
            "id": state.id,
            "committed_at": state.committed_at,
            "schema": arrow_schema(self._table.uri, state.schema),
            "partition_columns": partitions.columns(),
            "buckets": partitions.buckets(),
            "partition_types": partitions.types(),
            "derived": partitions.derived(planner.specs_in_use),
        }

    @contextmanager
    def _iceberg_errors(self) -> Iterator[None]:
        """Convert errors of missing or corrupt files to TableFormatError."""
        uri = self._table.uri
        try:
            yield
        except MetastoreError:
            raise
        except FileNotFoundError as error:
            raise TableFormatError(
                f"{uri} lacks a file that its metadata name: {error}; if the table was moved, set `path_mapping`"
            ) from error
        except CORRUPTION_ERRORS as error:
            raise unreadable_error(f"{uri} cannot be read as an Iceberg table", error) from error


def _decode_reference(data: bytes) -> SnapshotReference:
    id_, committed_at = json.loads(data)
    return SnapshotReference(id_, datetime.fromisoformat(committed_at))
