"""Iceberg tables: the metadata file and manifests say which files are live; workers apply the deletes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import fastavro
import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError, MetastoreError, TableFormatError
from metastore_assets.formats.base import Snapshot, SnapshotReference
from metastore_assets.formats.bounds import FragmentBounds, bounds_table, column_path
from metastore_assets.formats.iceberg_bounds import fragment_bounds
from metastore_assets.formats.iceberg_locations import TableFiles, recorded_uri, table_files
from metastore_assets.formats.iceberg_metadata import (
    METADATA,
    State,
    TableMetadata,
    is_metadata_file,
    newest_metadata,
    read_metadata,
    resolve_state,
)
from metastore_assets.formats.iceberg_plan import Planner
from metastore_assets.formats.iceberg_schema import arrow_schema
from metastore_assets.formats.location import Location
from metastore_assets.formats.partition_filter import PartitionFilter
from metastore_assets.formats.relocation import Relocation


class IcebergFormat:
    """An Iceberg table by its folder, by a metadata file, or by its name in a catalog."""

    def __init__(self, table: TableConfig) -> None:
        self._table = table
        self._relocation = Relocation.of(table.relocate)
        self._filter = PartitionFilter.of(table.partitions)

    def snapshot_id(self) -> str:
        """The id of the snapshot that is meant; empty for a table that never had rows."""
        return self.current().id

    def current(self) -> SnapshotReference:
        """Snapshot and time, from a listing and the metadata file.

        The time is that of the last change of the table, of its schema as well; of an earlier state or another
        branch, that of its snapshot.
        """
        with self._explained():
            state = self._load()[2]
        return SnapshotReference(state.id, state.committed_at)

    def snapshot(self) -> Snapshot:
        """The state that is meant, from the metadata file, the manifest list, and all manifests."""
        with self._explained():
            folder, metadata, state = self._load()
            planner = Planner(self._files(folder, metadata, state), metadata, state, self._filter)
            fragments = [planned.fragment for planned in planner.fragments()]
            return Snapshot(
                format="iceberg",
                id=state.id,
                committed_at=state.committed_at,
                schema=arrow_schema(self._table.uri, state.schema),
                partition_columns=planner.partitions.columns(),
                fragments=tuple(sorted(fragments, key=lambda fragment: (fragment.partition_key, fragment.id))),
            )

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """What manifests say of a leaf column. They are read again: planning does not keep it, for it is most of them.

        Counts are exact without deletes; minimum and maximum are bounds. Below lists and maps nothing is known.
        """
        path = column_path(snapshot.schema, column)
        found: dict[str, FragmentBounds] = {}
        with self._explained():
            folder, metadata, state = self._load()
            if state.id != snapshot.id:
                # The table has gone on since.
                state = resolve_state(self._table.uri, metadata, snapshot.id or None)
            planner = Planner(self._files(folder, metadata, state), metadata, state, self._filter)
            for planned in planner.fragments(statistics=True) if snapshot.id else ():
                found[planned.fragment.id] = fragment_bounds(path, planned.entry, has_deletes=planned.has_deletes)
        return bounds_table(
            snapshot, column, (found.get(fragment.id, FragmentBounds()) for fragment in snapshot.fragments)
        )

    def _load(self) -> tuple[Location, TableMetadata, State]:
        """The table's folder, its metadata and the state that is meant."""
        location = self._location()
        if is_metadata_file(location.uri):
            metadata = read_metadata(location, "")
            folder = Location(self._folder_of(location, metadata), location.options)
        else:
            metadata = read_metadata(location, newest_metadata(location))
            folder = location
        return folder, metadata, resolve_state(self._table.uri, metadata, self._table.at)

    def _location(self) -> Location:
        """The table's folder, or a metadata file."""
        table = self._table
        if isinstance(table.catalog, str):
            raise ConfigError(f"table {table.name!r}: nothing is known of the catalog {table.catalog!r}")
        if table.catalog is None or table.identifier is None:
            return Location.of(table.uri, table.storage_options)
        from metastore_assets.formats.iceberg_catalog import locate_table

        recorded, options = locate_table(table.catalog, table.identifier)
        return Location.of(recorded_uri(self._relocation(recorded)), options | table.storage_options)

    def _folder_of(self, file: Location, metadata: TableMetadata) -> str:
        parent = file.uri.rpartition("/")[0]
        if parent.endswith(f"/{METADATA}"):
            return parent.removesuffix(f"/{METADATA}")
        # Metadata files may be kept elsewhere; then the recorded location is all there is.
        return Location.of(recorded_uri(self._relocation(metadata.location))).uri

    def _files(self, folder: Location, metadata: TableMetadata, state: State) -> TableFiles:
        return table_files(self._table.uri, folder, self._relocation, metadata, state.snapshot)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        uri = self._table.uri
        try:
            yield
        except MetastoreError:
            raise
        except FileNotFoundError as error:
            raise TableFormatError(
                f"{uri} lacks a file that its metadata name: {error}; if the table was moved, say with relocate where"
            ) from error
        except (OSError, EOFError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
            raise TableFormatError(f"{uri} cannot be read as an Iceberg table: {_told(error)}") from error
        except (pa.ArrowException, struct.error, zlib.error, fastavro.schema.SchemaParseException) as error:
            raise TableFormatError(f"{uri} cannot be read as an Iceberg table: {_told(error)}") from error


def _told(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
