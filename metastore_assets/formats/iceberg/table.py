"""Iceberg tables: metadata files and manifests list the live files; workers apply the deletes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError, TableFormatError, TableNotFoundError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.formats.base import HistoryChange, Snapshot, SnapshotReference, TableFormat
from metastore_assets.formats.bounds import FragmentBounds, bounds_table, column_path
from metastore_assets.formats.iceberg.bounds import fragment_bounds
from metastore_assets.formats.iceberg.locations import TableFiles, table_files
from metastore_assets.formats.iceberg.metadata import TableMetadata, read_metadata
from metastore_assets.formats.iceberg.metadata_files import METADATA, is_metadata_file, newest_metadata
from metastore_assets.formats.iceberg.plan import Planner
from metastore_assets.formats.iceberg.schema import arrow_schema
from metastore_assets.formats.iceberg.states import State, history_change_since, resolve_state
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, metadata_errors, unreadable_error
from metastore_assets.storage.listing import StoredFile
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy, table_location


class IcebergFormat(TableFormat):
    """An Iceberg table, located by its folder or by a metadata file."""

    def __init__(self, table: TableConfig, cache: MetadataCache) -> None:
        self._cache = cache
        self._table = table
        self._filter = PartitionFilter.of(table.partitions)
        self._uuid_key = cache_key("iceberg table", table.uri)

    def snapshot_id(self) -> str:
        """Return the id of the requested snapshot; empty for a table that never had rows."""
        return self.current().id

    def current(self) -> SnapshotReference:
        """Return the snapshot's id and time, from a listing and the metadata file.

        The time is that of the last change of the table, schema changes included. For an earlier state or another
        branch it is the time of the snapshot.
        """
        with self._explained():
            location, file = self._file()
            # Cache the answer, because a metadata file may hold thousands of snapshots and is immutable.
            key = cache_key("iceberg state", location.uri, self._table.at, *file)
            reference = self._cache.get(key, _decoded)
            if reference is None:
                state = self._load(file)[3]
                reference = SnapshotReference(state.id, state.committed_at)
                self._cache.put(key, json.dumps([reference.id, state.committed_at.isoformat()]).encode())
        return reference

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        """Compare the table's UUID and the snapshot's ancestors, from the metadata file."""
        with self._explained():
            metadata, state = self._load()[2:]
        reference = self._cache.get(self._uuid_key, bytes.decode)
        if reference and metadata.uuid and reference != metadata.uuid:
            return "recreated"
        return history_change_since(metadata, state, previous) if state.id == current.id else None

    def snapshot(self) -> Snapshot:
        """Return the requested state, from the metadata file, the manifest list, and all new manifests."""
        with self._explained():
            location_policy, folder, metadata, state = self._load()
            planner = Planner(
                self._files(location_policy, folder, metadata, state), metadata, state, self._filter, self._cache
            )
            fragments = [planned.fragment for planned in planner.fragments()]
            self._cache.put(self._uuid_key, metadata.uuid.encode())
            return Snapshot(
                format="iceberg",
                id=state.id,
                committed_at=state.committed_at,
                schema=arrow_schema(self._table.uri, state.schema),
                partition_columns=planner.partitions.columns(),
                buckets=planner.partitions.buckets(),
                partition_types=planner.partitions.types(),
                derived=planner.partitions.derived(planner.specs_in_use),
                fragments=tuple(sorted(fragments, key=lambda fragment: (fragment.partition_key, fragment.id))),
            )

    def partition_columns(self) -> tuple[str, ...]:
        """Return the partition columns of the current snapshot."""
        return self.snapshot().partition_columns

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return the manifests' bounds of a leaf column. Manifests are read again, because the cache omits statistics.

        Counts are exact without deletes; minimum and maximum are bounds. Columns below lists and maps have none.
        """
        path = column_path(snapshot.schema, column)
        bounds_by_id: dict[str, FragmentBounds] = {}
        with self._explained():
            location_policy, folder, metadata, state = self._load()
            if state.id != snapshot.id:
                # The table has changed since.
                state = resolve_state(self._table.uri, metadata, snapshot.id or None)
            planner = Planner(
                self._files(location_policy, folder, metadata, state), metadata, state, self._filter, self._cache
            )
            for planned in planner.fragments(statistics=True) if snapshot.id else ():
                bounds_by_id[planned.fragment.id] = fragment_bounds(
                    path, planned.entry, has_deletes=planned.has_deletes
                )
        return bounds_table(
            snapshot, column, (bounds_by_id.get(fragment.id, FragmentBounds()) for fragment in snapshot.fragments)
        )

    def _file(self) -> tuple[Location, StoredFile]:
        """Return the table's location, and the metadata file at or below it. Raises OSError."""
        location = table_location(self._table)
        if not is_metadata_file(location.uri):
            return location, newest_metadata(location)
        try:
            return location, location.stat("")
        except FileNotFoundError as error:
            raise TableNotFoundError(f"{location.uri} does not exist") from error

    def _load(self, file: StoredFile | None = None) -> tuple[LocationPolicy, Location, TableMetadata, State]:
        """Return the location policy, the folder, the metadata and the requested state of the table."""
        location, file = (table_location(self._table), file) if file else self._file()
        path = file.path
        metadata = read_metadata(location, path)
        with metadata_errors(location.full_path(path)):
            location_policy, folder = (
                (LocationPolicy.of(self._table, location), location) if path else self._around(location, metadata)
            )
            return location_policy, folder, metadata, resolve_state(self._table.uri, metadata, self._table.at)

    def _around(self, file: Location, metadata: TableMetadata) -> tuple[LocationPolicy, Location]:
        """Return the location policy and the folder of a table that is located by a metadata file."""
        parent = file.folder
        if parent.uri.endswith(f"/{METADATA}"):
            folder = parent.folder
            return LocationPolicy.of(self._table, folder), folder
        # Metadata files may be stored elsewhere; then only the recorded location identifies the folder.
        location_policy = LocationPolicy.of(self._table, parent)
        location, path = location_policy.resolve(metadata.location)
        return location_policy, location.below(path)

    def _files(
        self, location_policy: LocationPolicy, folder: Location, metadata: TableMetadata, state: State
    ) -> TableFiles:
        return table_files(location_policy, folder, metadata, state.snapshot)

    @contextmanager
    def _explained(self) -> Iterator[None]:
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


def _decoded(data: bytes) -> SnapshotReference:
    id_, committed_at = json.loads(data)
    return SnapshotReference(id_, datetime.fromisoformat(committed_at))
