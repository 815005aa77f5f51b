"""Plain files in folders: Parquet, ORC, Avro, CSV and JSON lines, flat or nested, with or without partitions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import (
    ConfigError,
    LiteralError,
    SnapshotNotFoundError,
    TableFormatError,
    TableNotFoundError,
)
from metastore_assets.expressions.partition_filter import BoundPartitionFilter, PartitionFilter
from metastore_assets.expressions.partition_keys import encode_partition_key
from metastore_assets.formats.base import Fragment, HistoryChange, Snapshot, SnapshotReference, TableFormat
from metastore_assets.formats.bounds import bounds_table
from metastore_assets.formats.files.csv.options import OPTIONS as CSV_OPTIONS
from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.listing import READABLE, DataFile, data_files, list_files, partition_columns
from metastore_assets.formats.files.overlapping_tables import OverlappingTables
from metastore_assets.formats.files.partitioning import (
    HivePartitioning,
    Items,
    Partitioning,
    TemplatePartitioning,
    catalog_partitioning,
    key_items,
)
from metastore_assets.formats.files.streaming_sink import SINK
from metastore_assets.formats.files.unsupported_formats import UNSUPPORTED_FORMATS
from metastore_assets.formats.registration import OpenContext, check_option_names, format_detectors
from metastore_assets.messages import close_names
from metastore_assets.storage.listing import StoredFile
from metastore_assets.storage.location_policy import LocationPolicy, table_location

if TYPE_CHECKING:
    from metastore_assets.formats.files.declared_types import DeclaredTypes
    from metastore_assets.formats.files.schemas import FileDescription
    from metastore_assets.formats.files.text_reader import TextReader

# Modules that read files are imported where files are read, because sensors only list them.

_TEMPLATE = "template"
_KIND = "kind"


class FilesFormat(TableFormat):
    """Files in folders. A snapshot is what one listing shows, because no commit spans files."""

    def __init__(self, table: TableConfig, context: OpenContext) -> None:
        """Open the table. Raises ConfigError for options that plain files do not have, or that are invalid."""
        self._table = table
        self._detectors = {**format_detectors(), **UNSUPPORTED_FORMATS, "Spark streaming": SINK}
        self._cache = context.cache
        self._runner = context.runner
        self._listing: tuple[list[DataFile], OverlappingTables, list[str]] | None = None
        """The files of the last `snapshot_id()`, with their fragment ids. The next `snapshot()` uses them, so that both
        describe one listing and cost one."""
        check_option_names(table, _TEMPLATE, _KIND, *CSV_OPTIONS)
        CsvOptions.of(table.name, table.options, "")  # Invalid options are reported whatever kind the files are of.
        self._declared_types: DeclaredTypes = {}
        if table.declared:
            from metastore_assets.formats.files.declared_types import declared_types

            self._declared_types = declared_types(table)
        self._declared_items = tuple(sorted(self._declared_types.items()))
        self._location = table_location(table)
        self._partitioning = _partitioning(table, context)
        self._kind = table.options.get(_KIND)
        if self._kind not in (None, *READABLE):
            raise ConfigError(f"table {table.name!r}: options.kind = {self._kind!r}: one of {', '.join(READABLE)}")
        self._filter = PartitionFilter.of(table.partitions)

    def snapshot_id(self) -> str:
        """Return a digest of the fragment ids. It lists the files once."""
        self._listing = None
        listed = self._list()
        files = self._files(listed, refresh_cache=False)
        ids = [self._fragment_id(file) for file in files]
        self._listing = files, listed[1], ids
        return self._snapshot_id(ids)

    def current(self) -> SnapshotReference:
        """Return the digest without a time. The next `snapshot()` uses the same listing."""
        return SnapshotReference(self.snapshot_id(), None)

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        """Return None, because files have no history."""
        return None

    def snapshot(self) -> Snapshot:
        """Return the current files. It reads the footers of new files, and new CSV and JSON files completely.

        A file that cannot be read is a fragment too, if another file has the schema.
        """
        from metastore_assets.formats.files.bounds import check_integers
        from metastore_assets.formats.files.declared_types import check_declared_columns
        from metastore_assets.formats.files.schemas import table_schema

        if self._listing is None:
            files = self._files(self._list(), refresh_cache=True)
            ids = [self._fragment_id(file) for file in files]
        else:
            (files, overlapping, ids), self._listing = self._listing, None
            with self._listing_errors():
                overlapping.check(refresh_cache=True)
        columns = partition_columns(self._partitioning, files)
        described, fields, reasons, bytes_read = table_schema(
            self._location,
            files,
            self._reader,
            columns,
            self._declared_types,
            self._cache,
            self._runner,
            self._is_hidden,
        )
        types = self._partitioning.types
        schema = pa.schema(
            [field for field in fields if field.name not in columns]
            + [pa.field(name, types.get(name, pa.string())) for name in columns]
        )
        check_integers(self._location, files, described, schema, reasons, self._cache)
        check_declared_columns(self._table.name, self._declared_types, schema, columns)
        keys = _partition_keys(files, columns)
        fragments = [
            self._fragment(id_, file, description, keys[file.partition])
            for id_, file, description in zip(ids, files, described, strict=True)
        ]
        return Snapshot(
            format="files",
            id=self._snapshot_id(ids),
            committed_at=None,
            schema=schema,
            partition_columns=columns,
            fragments=tuple(sorted(fragments, key=lambda fragment: (fragment.partition_key, fragment.id))),
            type_reasons=tuple(reasons),
            bytes_read=bytes_read,
        )

    def partition_columns(self) -> tuple[str, ...]:
        """Return the partition columns. It lists the files once."""
        return partition_columns(self._partitioning, self._files(self._list(), refresh_cache=False))

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return bounds from folder names and from the footers of Parquet and ORC files, one read per fragment."""
        from metastore_assets.formats.files.bounds import file_bounds

        return bounds_table(snapshot, column, file_bounds(snapshot, column))

    def _list(self) -> tuple[list[StoredFile], OverlappingTables]:
        location = self._location
        if self._table.at is not None:
            raise SnapshotNotFoundError(
                f"{location.uri} has no state {self._table.at!r}: plain files have no history; leave out `at`"
            )
        with self._listing_errors():
            return list_files(
                location,
                LocationPolicy.of(self._table, location),
                self._partitioning,
                self._listing_filter(),
                self._detectors,
            )

    def _listing_filter(self) -> BoundPartitionFilter | None:
        """Return the folders to list, before the partition columns are known; None for all."""
        if not self._filter.excludes_partitions:
            return None
        if self._partitioning.types:
            return (
                None
                if self._filter.unknown_columns(self._partitioning.types)
                else self._bound(self._partitioning.types)
            )
        # Folders without the columns of the filter are listed, because the columns may follow further down.
        return self._bound(dict.fromkeys(self._filter.columns, pa.string()))

    def _bind(self, columns: Sequence[str]) -> BoundPartitionFilter:
        """Return the selected partitions. Raises TableFormatError for a filter by columns that do not exist."""
        if unknown := self._filter.unknown_columns(columns):
            raise TableFormatError(
                f"{self._location.uri} has no partition column {unknown[0]!r}, by which it is filtered"
                + (close_names(unknown[0], columns, "; it has: {}") or "; it has none")
            )
        return self._bound({name: self._partitioning.types.get(name, pa.string()) for name in columns})

    def _bound(self, types: Mapping[str, pa.DataType]) -> BoundPartitionFilter:
        try:
            return self._filter.bind(self._table.name, types)
        except LiteralError as error:
            if types.keys() <= self._partitioning.types.keys():
                raise
            raise LiteralError(
                f"{error}; values of folders are text, unless options.template says a type, as in "
                "`day={day:date}/n={n:int}`"
            ) from None

    def _files(self, listed: tuple[list[StoredFile], OverlappingTables], *, refresh_cache: bool) -> list[DataFile]:
        """Return the data files of a listing; see `OverlappingTables.check` for `refresh_cache`."""
        location = self._location
        stored_files, overlapping = listed
        with self._listing_errors():
            overlapping.check(refresh_cache=refresh_cache)
            files = data_files(location, stored_files, self._partitioning, self._bind, self._cache, self._kind)
        if not files:
            selection = " in the selected partitions" if self._filter.excludes_partitions else ""
            raise TableNotFoundError(f"{location.uri} holds no table: there are no data files{selection}")
        kinds = {file.kind: file for file in files}
        if self._kind is not None and (others := kinds.keys() - {self._kind}):
            kind = min(others)
            path = location.full_path(kinds[kind].stored.path)
            raise TableFormatError(f"{path} is a file of the kind {kind!r}, and options.kind says {self._kind!r}")
        if len(kinds) > 1:
            paths = " and ".join(location.full_path(file.stored.path) for file in kinds.values())
            raise TableFormatError(f"{location.uri} mixes kinds of files: {paths}")
        return files

    @contextmanager
    def _listing_errors(self) -> Iterator[None]:
        uri = self._location.uri
        try:
            yield
        except FileNotFoundError as error:
            raise TableNotFoundError(f"{uri} holds no table: {error}") from error
        except OSError as error:
            raise TableFormatError(f"{uri} cannot be listed: {error}") from error

    def _is_hidden(self, column: str) -> bool:
        """Return whether values of a column are hidden. A column with a dot in its name may have two paths."""
        quoted = "`" + column.replace("`", "``") + "`"
        return any(self._table.effective_policy(path).values == "hidden" for path in (column, quoted))

    def _reader(self, file: DataFile) -> TextReader | None:
        if file.kind == "csv":
            from metastore_assets.formats.files.csv.reader import CsvReader

            return CsvReader(CsvOptions.of(self._table.name, self._table.options, file.suffix), self._declared_items)
        if file.kind == "json":
            from metastore_assets.formats.files.json.reader import JsonReader

            return JsonReader(self._declared_items)
        return None

    def _fragment_id(self, file: DataFile) -> str:
        stored = file.stored
        # Names of Hive folders are in the path. With a template, the values depend on the template too.
        template_values = [key_items(file.partition)] if self._partitioning.types else []
        reader = [file.kind, repr(self._reader(file))]
        return _digest([stored.path, stored.size, stored.version, *reader, *template_values])

    def _snapshot_id(self, fragments: Sequence[str]) -> str:
        # The same rows have other statistics in other types.
        return _digest([*fragments, repr(self._declared_items)] if self._declared_types else fragments)

    def _fragment(self, id_: str, file: DataFile, description: FileDescription, key: str) -> Fragment:
        from metastore_assets.formats.files.source import FilesFragmentSource

        source = FilesFragmentSource(
            self._location, file, description.reader, description.types, description.is_readable, description.fatal
        )
        path = self._location.full_path(file.stored.path)
        return Fragment(id_, key, path, file.stored.size, description.row_count, source)


def _partitioning(table: TableConfig, context: OpenContext) -> Partitioning:
    template = table.options.get(_TEMPLATE)
    if context.partitions is None:
        return HivePartitioning() if template is None else TemplatePartitioning.of(table.name, template)
    if template is not None:
        raise ConfigError(
            f"table {table.name!r}: options.template = {template!r}: its catalog says which folders are partitions; "
            "remove the option"
        )
    return catalog_partitioning(table, context.partitions)


def _partition_keys(files: Sequence[DataFile], columns: tuple[str, ...]) -> dict[Items, str]:
    keys = {}
    for partition in {file.partition for file in files}:
        values = dict(key_items(partition))
        # A file above the deepest folders has no value of the deeper columns here: they are in its rows, or null.
        keys[partition] = encode_partition_key([(name, values[name]) for name in columns if name in values])
    return keys


def _digest(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
