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
from metastore_assets.formats.files.listing import READABLE, DataFile, TableFolder, partition_columns
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
    from metastore_assets.formats.files.source import FileReading
    from metastore_assets.formats.files.text_reader import TextReader

# Modules that read files are imported where files are read, because sensors only list them.

_TEMPLATE = "template"
_KIND = "kind"


class FilesFormat(TableFormat):
    """A table of plain files. A snapshot is the result of one listing, because files have no commits."""

    def __init__(self, table: TableConfig, context: OpenContext) -> None:
        """Open the table, without listing it.

        Raises:
            ConfigError: An option is invalid, or does not exist for plain files.
        """
        self._table = table
        self._detectors = {**format_detectors(), **UNSUPPORTED_FORMATS, "Spark streaming": SINK}
        self._cache = context.cache
        self._runner = context.runner
        self._listing: tuple[list[DataFile], OverlappingTables, list[str]] | None = None
        """The data files that `snapshot_id()` listed last, with the signs of overlapping tables and the fragment ids.
        The next `snapshot()` uses this listing instead of another one, and removes it."""
        self._text_readers: dict[tuple[str, str], tuple[TextReader | None, str]] = {}
        """Readers of CSV and JSON files, and their texts for digests, by kind and suffix of the files."""
        check_option_names(table, _TEMPLATE, _KIND, *CSV_OPTIONS)
        CsvOptions.of(table.name, table.options, "")  # Invalid CSV options are an error for files of any kind.
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
        self._folder = TableFolder(self._location, self._partitioning, self._cache, self._kind)
        self._filter = PartitionFilter.of(table.partitions)

    def snapshot_id(self) -> str:
        """List the files, and return a digest of their fragment ids."""
        self._listing = None
        listed = self._list()
        files = self._checked_files(listed, refresh_cache=False)
        ids = [self._fragment_id(file) for file in files]
        self._listing = files, listed[1], ids
        return self._snapshot_id(ids)

    def current(self) -> SnapshotReference:
        """List the files, and return the snapshot id without a time. The next `snapshot()` uses this listing."""
        return SnapshotReference(self.snapshot_id(), None)

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        """Return None, because plain files have no history."""
        return None

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the files in a listing.

        If `snapshot_id()` or `current()` was called since the last snapshot, the listing of that call is used.
        Otherwise the files are listed again.

        The method reads the footers of new files, and all bytes of new CSV and JSON files. A file that cannot be read
        becomes a fragment too. If no file can be read, TableFormatError is raised.
        """
        from metastore_assets.formats.files.bounds import check_integers
        from metastore_assets.formats.files.declared_types import check_declared_columns
        from metastore_assets.formats.files.schemas import SchemaReader

        if self._listing is None:
            files = self._checked_files(self._list(), refresh_cache=True)
            ids = [self._fragment_id(file) for file in files]
        else:
            (files, overlapping, ids), self._listing = self._listing, None
            with self._listing_errors():
                overlapping.check(refresh_cache=True)
        columns = partition_columns(self._partitioning, files)
        types = self._partitioning.types
        schema_reader = SchemaReader(
            self._location, self._text_reader, self._declared_types, self._cache, self._runner, self._is_hidden
        )
        table_schema = schema_reader.read(files, {name: types.get(name, pa.string()) for name in columns})
        check_integers(self._location, files, table_schema, self._cache)
        check_declared_columns(self._table.name, self._declared_types, table_schema.schema, columns)
        keys = _partition_keys(files, columns)
        readings: dict[tuple[object, ...], FileReading] = {}
        fragments = [
            self._fragment((id_, keys[file.partition]), file, description, readings)
            for id_, file, description in zip(ids, files, table_schema.descriptions, strict=True)
        ]
        return Snapshot(
            format="files",
            id=self._snapshot_id(ids),
            committed_at=None,
            schema=table_schema.schema,
            partition_columns=columns,
            fragments=tuple(sorted(fragments, key=lambda fragment: (fragment.partition_key, fragment.id))),
            type_reasons=tuple(table_schema.type_reasons),
            bytes_read=table_schema.bytes_read,
        )

    def partition_columns(self) -> tuple[str, ...]:
        """List the files, and return the names of the partition columns."""
        return partition_columns(self._partitioning, self._checked_files(self._list(), refresh_cache=False))

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return a column's bounds in each fragment: from partition values, or from Parquet and ORC footers."""
        from metastore_assets.formats.files.bounds import read_file_bounds

        return bounds_table(snapshot, column, read_file_bounds(snapshot, column))

    def _list(self) -> tuple[list[StoredFile], OverlappingTables]:
        """List the files of the table, and signs of overlapping tables.

        Raises SnapshotNotFoundError if `at` is configured.
        """
        location = self._location
        if self._table.at is not None:
            raise SnapshotNotFoundError(
                f"{location.uri} has no state {self._table.at!r}: plain files have no history; leave out `at`"
            )
        with self._listing_errors():
            policy = LocationPolicy.of(self._table, location)
            return self._folder.list_files(policy, self._listing_filter(), self._detectors)

    def _listing_filter(self) -> BoundPartitionFilter | None:
        """Return the filter that decides which folders are listed; None to list all folders.

        The partition columns may be unknown until the folders are listed.
        """
        if not self._filter.excludes_partitions:
            return None
        if self._partitioning.types:
            return (
                None
                if self._filter.unknown_columns(self._partitioning.types)
                else self._bind_filter(self._partitioning.types)
            )
        # A folder that lacks a column of the filter is listed, because folders below it may have the column.
        return self._bind_filter(dict.fromkeys(self._filter.columns, pa.string()))

    def _bind(self, columns: Sequence[str]) -> BoundPartitionFilter:
        """Return the partition filter for a table with these partition columns.

        Raises TableFormatError if the configuration filters by another column.
        """
        if unknown := self._filter.unknown_columns(columns):
            raise TableFormatError(
                f"{self._location.uri} has no partition column {unknown[0]!r}, by which it is filtered"
                + (close_names(unknown[0], columns, "; it has: {}") or "; it has none")
            )
        return self._bind_filter({name: self._partitioning.types.get(name, pa.string()) for name in columns})

    def _bind_filter(self, types: Mapping[str, pa.DataType]) -> BoundPartitionFilter:
        """Return the partition filter for columns of these types.

        Raises LiteralError if a value in the filter is not of its column's type.
        """
        try:
            return self._filter.bind(self._table.name, types)
        except LiteralError as error:
            if types.keys() <= self._partitioning.types.keys():
                raise
            raise LiteralError(
                f"{error}; values of folders are text, unless options.template says a type, as in "
                "`day={day:date}/n={n:int}`"
            ) from None

    def _checked_files(
        self, listed: tuple[list[StoredFile], OverlappingTables], *, refresh_cache: bool
    ) -> list[DataFile]:
        """Return the data files of a listing, after checks for overlapping tables and for files of several kinds.

        Args:
            listed: The result of `_list`.
            refresh_cache: Whether to search folders above the table again; see `OverlappingTables.check`.

        Raises:
            TableNotFoundError: There are no data files in the selected partitions.
            TableFormatError: The table overlaps another one, or has files of several or of unsupported kinds.
        """
        location = self._location
        stored_files, overlapping = listed
        with self._listing_errors():
            overlapping.check(refresh_cache=refresh_cache)
            files = self._folder.data_files(stored_files, self._bind)
        if not files:
            selection = " in the selected partitions" if self._filter.excludes_partitions else ""
            raise TableNotFoundError(f"{location.uri} holds no table: there are no data files{selection}")
        kinds = {file.kind: file for file in files}
        if self._kind is not None and (other_kinds := kinds.keys() - {self._kind}):
            kind = min(other_kinds)
            path = location.full_path(kinds[kind].stored.path)
            raise TableFormatError(f"{path} is a file of the kind {kind!r}, and options.kind says {self._kind!r}")
        if len(kinds) > 1:
            paths = " and ".join(location.full_path(file.stored.path) for file in kinds.values())
            raise TableFormatError(f"{location.uri} mixes kinds of files: {paths}")
        return files

    @contextmanager
    def _listing_errors(self) -> Iterator[None]:
        """Convert errors of listing to TableNotFoundError or TableFormatError."""
        uri = self._location.uri
        try:
            yield
        except FileNotFoundError as error:
            raise TableNotFoundError(f"{uri} holds no table: {error}") from error
        except OSError as error:
            raise TableFormatError(f"{uri} cannot be listed: {error}") from error

    def _is_hidden(self, column: str) -> bool:
        """Return whether the configuration hides the values of a top-level column.

        The configuration may name the column with or without backquotes.
        """
        quoted = "`" + column.replace("`", "``") + "`"
        return any(self._table.effective_policy(path).values == "hidden" for path in (column, quoted))

    def _text_reader(self, file: DataFile) -> TextReader | None:
        """Return the reader of a CSV or JSON file; None for other kinds."""
        key = file.kind, file.suffix
        if key not in self._text_readers:
            reader = self._new_text_reader(file)
            self._text_readers[key] = reader, repr(reader)
        return self._text_readers[key][0]

    def _new_text_reader(self, file: DataFile) -> TextReader | None:
        """Create the reader of a CSV or JSON file with the configured options; None for other kinds."""
        if file.kind == "csv":
            from metastore_assets.formats.files.csv.reader import CsvReader

            return CsvReader(CsvOptions.of(self._table.name, self._table.options, file.suffix), self._declared_items)
        if file.kind == "json":
            from metastore_assets.formats.files.json.reader import JsonReader

            return JsonReader(self._declared_items)
        return None

    def _fragment_id(self, file: DataFile) -> str:
        """Return a digest of everything that determines the rows of a file.

        These are its path, size, version and kind, and the settings with which it is read.
        """
        stored = file.stored
        # The path has the partition values of Hive folders. Values by a template change when the template does.
        template_values = [key_items(file.partition)] if self._partitioning.types else []
        self._text_reader(file)
        reader = self._text_readers[file.kind, file.suffix][1]
        return _digest([stored.path, stored.size, stored.version, file.kind, reader, *template_values])

    def _snapshot_id(self, fragments: Sequence[str]) -> str:
        # Declared types are part of the id, because they change the statistics of unchanged files.
        return _digest([*fragments, repr(self._declared_items)] if self._declared_types else fragments)

    def _fragment(
        self,
        names: tuple[str, str],
        file: DataFile,
        description: FileDescription,
        readings: dict[tuple[object, ...], FileReading],
    ) -> Fragment:
        """Return the fragment of a file.

        Args:
            names: The fragment's id and its partition key.
            file: The data file.
            description: What planning knows about the file.
            readings: The `FileReading` objects so far, by their content; a new one is added. Files that are read in
                the same way share one object, to save memory.
        """
        from metastore_assets.formats.files.source import FileReading, FilesFragmentSource

        how = description.reader, id(description.types), description.is_readable, description.fatal
        key = (file.kind, file.suffix, id(file.partition), *how)
        reading = readings.get(key)
        if reading is None:
            reading = readings[key] = FileReading(
                self._location,
                file.kind,
                file.suffix,
                file.partition,
                description.reader,
                description.types,
                description.is_readable,
                description.fatal,
            )
        path = self._location.full_path(file.stored.path)
        source = FilesFragmentSource(file.stored, reading)
        return Fragment(names[0], names[1], path, file.stored.size, description.row_count, source)


def _partitioning(table: TableConfig, context: OpenContext) -> Partitioning:
    """Return the partitioning: by a catalog, by the configured template, or by `column=value` folders."""
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
    """Return the partition key of each distinct partition.

    Columns that a partition's folders lack are left out.
    """
    keys = {}
    for partition in {file.partition for file in files}:
        values = dict(key_items(partition))
        # The folders above a file may lack some partition columns. Their values are in the rows of the file, or null.
        keys[partition] = encode_partition_key([(name, values[name]) for name in columns if name in values])
    return keys


def _digest(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
