"""Delta tables: deltalake says which files are live; the rows are then read from plain Parquet with physical names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats.base import Fragment, Snapshot, SnapshotReference
from metastore_assets.formats.bounds import FragmentBounds, bounds_table
from metastore_assets.formats.conform import Matcher, identity
from metastore_assets.formats.deletion_vectors import DeletionVector
from metastore_assets.formats.delta_log import LOG, commit_time, deletion_vectors, latest_version
from metastore_assets.formats.delta_schema import MappingMode, arrow_schema
from metastore_assets.formats.location import Location
from metastore_assets.formats.parquet import ParquetColumns
from metastore_assets.formats.partition_keys import encode_partition_key
from metastore_assets.formats.reader import FileFragmentReader, explained
from metastore_assets.formats.values import value_text

if TYPE_CHECKING:
    from deltalake import DeltaTable

_READER_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
}
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class DeltaFormat:
    """A Delta table at a location. Its snapshots are the versions of its log."""

    def __init__(self, table: TableConfig) -> None:
        self._location = Location.of(table.uri, table.storage_options)

    def snapshot_id(self) -> str:
        """The newest version, from one listing of the log."""
        with _explained(self._location):
            version = latest_version(self._location)
        if version is None:
            raise TableNotFoundError(f"{self._location.uri} holds no Delta table: there is no {LOG} with commits")
        return str(version)

    def current(self) -> SnapshotReference:
        """The newest version and the time in its commit file."""
        version = self.snapshot_id()
        with _explained(self._location):
            return SnapshotReference(version, commit_time(self._location, int(version)))

    def snapshot(self) -> Snapshot:
        """The newest version, from the log alone."""
        from deltalake import DeltaTable

        if unquote(self._location.uri) != self._location.uri:
            raise TableFormatError(
                f"{self._location.uri}: deltalake takes the percent sign in a location for an encoding, and would read "
                "another folder; rename it"
            )
        with _explained(self._location):
            table = DeltaTable(self._location.uri, storage_options=dict(self._location.options) or None)
            mode = _mapping_mode(self._location, table)
            features = _reader_features(self._location, table)
            schema = arrow_schema(self._location.uri, json.loads(table.schema().to_json()), mode)
            partition_columns = tuple(table.metadata().partition_columns)
            adds = _adds(table, partition_columns)
            _check_distinct(self._location, adds)
            vectors: dict[str, DeletionVector] = {}
            if "deletionVectors" in features:
                vectors = deletion_vectors(self._location, table.version(), [add.path for add in adds])
            committed_at = commit_time(self._location, table.version())
        fields = [schema.field(name) for name in partition_columns]
        fragments = [self._fragment(add, vectors.get(add.path), fields, mode) for add in adds]
        return Snapshot(
            format="delta",
            id=str(table.version()),
            committed_at=committed_at,
            schema=schema,
            partition_columns=partition_columns,
            fragments=tuple(sorted(fragments, key=lambda fragment: (fragment.partition_key, fragment.id))),
        )

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """What the log's statistics say: not read yet, so nothing."""
        return bounds_table(snapshot, column, [FragmentBounds()] * len(snapshot.fragments))

    def _fragment(
        self, add: _Add, vector: DeletionVector | None, fields: list[pa.Field], mode: MappingMode
    ) -> Fragment:
        values = [(identity(field), add.values[field.name].cast(field.type)) for field in fields]
        key = encode_partition_key(
            [(field.name, value_text(value)) for field, (_, value) in zip(fields, values, strict=True)]
        )
        location, path = _data_file(self._location, add.path)
        source = DeltaFragmentSource(location, path, self._location, vector, tuple(values), mode)
        rows = add.row_count
        if rows is not None and vector is not None:
            rows -= vector.cardinality
        return Fragment(_fragment_id(add, vector, values), key, location.full_path(path), add.size, rows, source)


@dataclass(frozen=True)
class DeltaFragmentSource:
    """One data file and the deletion vector that applies to it."""

    location: Location
    path: str
    table: Location
    vector: DeletionVector | None
    partition_values: tuple[tuple[str, pa.Scalar], ...]
    """Identity and typed value of each partition column."""
    mode: MappingMode

    def open(self) -> FileFragmentReader:
        """Read the footer and the deletion vector. Raises FragmentError."""
        full_path = self.location.full_path(self.path)
        # Delta's names are unique whatever their case, and Spark matches them so.
        matcher = Matcher(by_id=self.mode == "id", ignore_case=True)
        with explained(full_path):
            columns = ParquetColumns(self.location.open(self.path))
            if self.mode == "id" and columns.fields and not any(map(matcher.identity, columns.fields)):
                raise pa.ArrowInvalid("its columns have no field ids, by which the table maps them")
        deleted = None
        if self.vector is not None:
            with explained(full_path, "its deletion vector"):
                deleted = self.vector.positions(self.table)
        return FileFragmentReader(
            columns,
            path=full_path,
            matcher=matcher,
            constants=dict(self.partition_values),
            deleted=deleted,
        )


@dataclass(frozen=True)
class _Add:
    path: str
    size: int
    modification_time: int
    row_count: int | None
    values: dict[str, pa.Scalar]


def _adds(table: DeltaTable, partition_columns: tuple[str, ...]) -> list[_Add]:
    actions = pa.table(table.get_add_actions())
    paths, sizes, times, counts = (
        actions[name].to_pylist() for name in ("path", "size_bytes", "modification_time", "num_records")
    )
    columns: dict[str, list[pa.Scalar]] = {}
    if partition_columns and actions.num_rows:
        partition = actions["partition"].combine_chunks()
        columns = {name: list(partition.field(name)) for name in partition_columns}
    return [
        _Add(path, size, time, count, {name: column[row] for name, column in columns.items()})
        for row, (path, size, time, count) in enumerate(zip(paths, sizes, times, counts, strict=True))
    ]


def _check_distinct(location: Location, adds: list[_Add]) -> None:
    if len({add.path for add in adds}) < len(adds):
        raise TableFormatError(f"{location.uri}: the log has the same data file twice, which no protocol allows")


def _fragment_id(add: _Add, vector: DeletionVector | None, values: list[tuple[str, pa.Scalar]]) -> str:
    # The modification time tells apart files of one name and size when a table was dropped and written again.
    parts = [
        add.path,
        add.size,
        add.modification_time,
        [(name, value_text(value)) for name, value in values],
        [vector.id, vector.cardinality] if vector else None,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _data_file(table: Location, path: str) -> tuple[Location, str]:
    """Where the file of an add action lies. Paths in the log are URIs: percent-encoded, relative or absolute."""
    if path.startswith("/") or _ABSOLUTE.match(path):
        return Location.of_encoded(path, dict(table.options)), ""
    return table, unquote(path)


def _mapping_mode(location: Location, table: DeltaTable) -> MappingMode:
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none").lower()
    if mode not in ("none", "name", "id"):
        raise TableFormatError(f"{location.uri} maps columns by {mode!r}, which has no reader")
    return cast(MappingMode, mode)


def _reader_features(location: Location, table: DeltaTable) -> set[str]:
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    unknown = sorted(features - _READER_FEATURES)
    if unknown or protocol.min_reader_version > 3:
        what = f"features {', '.join(unknown)}" if unknown else f"protocol version {protocol.min_reader_version}"
        raise TableFormatError(f"{location.uri} needs a reader of Delta's {what}, which there is not")
    return features


@contextmanager
def _explained(location: Location) -> Iterator[None]:
    from deltalake import exceptions

    try:
        yield
    except exceptions.TableNotFoundError as error:
        raise TableNotFoundError(f"{location.uri} holds no Delta table: {_first_line(error)}") from error
    except (exceptions.DeltaError, OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise TableFormatError(f"{location.uri} cannot be read as a Delta table: {_first_line(error)}") from error
    except BaseException as error:
        # A panic of deltalake's native code is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise TableFormatError(f"{location.uri}: deltalake failed to read its log: {error}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n", 1)[0]
