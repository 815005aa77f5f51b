"""Plain files in folders: Parquet, ORC, Avro, CSV and JSON lines, with or without partitions.

A fragment is the smallest unit of rows that a table format adds or removes. Here it is one data file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.digests import digest_json
from metastore_assets.errors import (
    ConfigError,
    FragmentError,
    LiteralError,
    SnapshotNotFoundError,
    TableFormatError,
    TableNotFoundError,
)
from metastore_assets.expressions.partition_filter import BoundPartitionFilter, PartitionFilter
from metastore_assets.expressions.partition_keys import encode_partition_key
from metastore_assets.formats.base import (
    Fragment,
    HistoryChange,
    Snapshot,
    SnapshotMetadata,
    SnapshotReference,
    SnapshotStream,
    SortedFragments,
    TableFormat,
    fragment_order,
)
from metastore_assets.formats.bounds import bounds_table
from metastore_assets.formats.files.csv.options import OPTIONS as CSV_OPTIONS
from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.file_listing import READABLE, TableFolder, partition_columns
from metastore_assets.formats.files.listed_files import TEXT_KINDS, DataFile, ListedDataFiles, ListedFiles
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
from metastore_assets.store.sorted_runs import SortedTuples
from metastore_assets.store.version import fragment_key

if TYPE_CHECKING:
    from metastore_assets.formats.files.declared_types import DeclaredTypes
    from metastore_assets.formats.files.schemas import FileDescription, TableSchema
    from metastore_assets.formats.files.text_reader import TextReader

# Modules that read files are imported where files are read, because sensors only list them.

_TEMPLATE = "template"
_KIND = "kind"
_FRAGMENT_ROWS = pa.schema(
    [
        *(("key", pa.string()), ("id", pa.string()), ("path", pa.string()), ("size", pa.int64())),
        *(("version", pa.string()), ("kind", pa.string()), ("suffix", pa.string())),
        *(("row_count", pa.int64()), ("schema", pa.int32()), ("fatal", pa.string())),
    ]
)
"""Columns of the fragments of Parquet, ORC and Avro files. `schema` is the number of a schema; null if the file cannot
be read. `fatal` is the error message if reading the file crashed a process."""
_SCHEMA = _FRAGMENT_ROWS.get_field_index("schema")


class FilesFormat(TableFormat):
    """A table of plain files.

    A snapshot is the result of one listing, because files have no commits.
    """

    def __init__(self, table: TableConfig, context: OpenContext) -> None:
        """Open the table, without listing it.

        Raises:
            ConfigError: an option is invalid, or does not exist for plain files.
        """
        self._table = table
        self._detectors = {**format_detectors(), **UNSUPPORTED_FORMATS, "Spark streaming": SINK}
        self._cache = context.cache
        self._runner = context.runner
        self._listing: _Listing | None = None
        """The listing of the last `snapshot_id()`. The next `snapshot()` or `stream()` uses it instead of another one,
        and removes it."""
        self._text_readers: dict[tuple[str, str], tuple[TextReader | None, str]] = {}
        """By kind and suffix of files: their reader (None if not CSV or JSON), and its text for fragment ids."""
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
        self._listing = self._list_data_files(refresh_cache=False)
        return self._listing.snapshot_id

    def current(self) -> SnapshotReference:
        """List the files, and return the snapshot id without a time.

        The next `snapshot()` uses this listing.
        """
        return SnapshotReference(self.snapshot_id(), None)

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        """Return None, because plain files have no history."""
        return None

    def snapshot(self) -> Snapshot:
        """Return the snapshot of a new listing, or of the listing that `snapshot_id()` has just made.

        A file that cannot be read becomes a fragment too. Raises TableFormatError if no file can be read.
        """
        return self._stream(self._take_listing()).read_all()

    def stream(self) -> SnapshotStream:
        """Return the same as `snapshot`, but as a stream.

        If there are CSV or JSON files, all fragments are in memory, because the types of columns depend on all values.
        """
        return self._stream(self._take_listing())

    def _stream(self, listing: _Listing) -> SnapshotStream:
        if any(kind in TEXT_KINDS for kind in listing.files.kinds):
            return SnapshotStream.of(self._text_snapshot(listing))
        return self._stream_footers(listing)

    def _take_listing(self) -> _Listing:
        """Return the listing that `snapshot_id()` has stored, and remove it.

        If none is stored, list the files.
        """
        listing, self._listing = self._listing, None
        if listing is None:
            return self._list_data_files(refresh_cache=True)
        with self._listing_errors():
            listing.overlapping_tables.check(refresh_cache=True)
        return listing

    def _text_snapshot(self, listing: _Listing) -> Snapshot:
        """Return the snapshot of a table of CSV or JSON files."""
        from metastore_assets.formats.files.declared_types import check_declared_columns
        from metastore_assets.formats.files.schemas import TextSchemaReader

        listed_files = list(listing.files)
        tasks = [(file, reader) for file, _ in listed_files if (reader := self._text_reader(file)) is not None]
        schema_reader = TextSchemaReader(self._location, self._cache, self._runner, self._is_hidden)
        schema, descriptions, bytes_read = schema_reader.read(tasks, self._partition_types(listing.columns))
        check_declared_columns(self._table.name, self._declared_types, schema.schema, listing.columns)
        make_fragment = self._fragment_factory(listing)
        fragments = [
            make_fragment(*listed_file, description)
            for listed_file, description in zip(listed_files, descriptions, strict=True)
        ]
        return Snapshot(
            **vars(self._snapshot_metadata(listing, schema, bytes_read)),
            fragments=tuple(sorted(fragments, key=fragment_order)),
        )

    def _stream_footers(self, listing: _Listing) -> SnapshotStream:
        """Return the snapshot of a table of Parquet, ORC or Avro files as a stream.

        The footers of all files are read first, for the schema. A file that cannot be read is a fragment with the
        error.

        Raises TableFormatError if no file can be read or the files have no common schema, and ConfigError for an
        invalid declared type.
        """
        from metastore_assets.formats.files.bounds import check_integers
        from metastore_assets.formats.files.declared_types import check_declared_columns
        from metastore_assets.formats.files.footers import FooterReader
        from metastore_assets.formats.files.schemas import FileDescription, check_any_readable, merge_schemas

        footers = FooterReader(self._location, self._cache)
        rows = SortedTuples(_FRAGMENT_ROWS)
        first_paths: dict[pa.Schema, str] = {}
        digests: dict[str, int] = {}
        """Numbers of the schemas by their digests, ordered by the path of the first file."""
        first_error: FragmentError | None = None
        for (file, id_), footer in footers.read(listing.files):
            stored_file = file.stored
            key = fragment_key(listing.partition_keys[file.partition], self._location.full_path(stored_file.path))
            if isinstance(footer, FragmentError):
                first_error = first_error or footer
                file_description = FileDescription.unreadable(footer)
                rows.add((key, id_, *stored_file, file.kind, file.suffix, None, None, file_description.fatal))
                continue
            row_count, digest = footer
            if digest not in digests:
                digests[digest] = len(digests)
                first_paths.setdefault(footers.schemas[digest], stored_file.path)
            rows.add((key, id_, *stored_file, file.kind, file.suffix, row_count, digests[digest], None))
        check_any_readable(self._location, first_error, is_readable=bool(digests))
        schema = merge_schemas(
            self._location, first_paths, self._declared_types, self._partition_types(listing.columns)
        )
        schemas = [footers.schemas[digest] for digest in digests]

        def readable_files() -> Iterator[tuple[DataFile, pa.Schema]]:
            for row in rows:
                if row[_SCHEMA] is not None:
                    yield listing.file_of(row), schemas[row[_SCHEMA]]

        check_integers(self._location, readable_files(), schema, self._cache)
        check_declared_columns(self._table.name, self._declared_types, schema.schema, listing.columns)
        make_fragment = self._fragment_factory(listing)

        def decode(row: tuple[Any, ...]) -> Fragment:
            *_, row_count, number, fatal = row
            return make_fragment(
                listing.file_of(row), row[1], FileDescription(number is not None, row_count, fatal=fatal)
            )

        sorted_fragments = SortedFragments(listing.files.count, lambda: ((row[0], row[1], row) for row in rows), decode)
        metadata = self._snapshot_metadata(listing, schema, 0)
        return SnapshotStream(metadata, map(decode, rows), sorted_fragments=sorted_fragments)

    def _partition_types(self, columns: Sequence[str]) -> dict[str, pa.DataType]:
        types = self._partitioning.types
        return {name: types.get(name, pa.string()) for name in columns}

    def _snapshot_metadata(self, listing: _Listing, schema: TableSchema, bytes_read: int) -> SnapshotMetadata:
        return SnapshotMetadata(
            format="files",
            id=listing.snapshot_id,
            committed_at=None,
            schema=schema.schema,
            partition_columns=listing.columns,
            type_reasons=tuple(schema.type_reasons),
            bytes_read=bytes_read,
        )

    def partition_columns(self) -> tuple[str, ...]:
        """List the files, and return the names of the partition columns."""
        return self._list_data_files(refresh_cache=False).columns

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return a column's bounds in each fragment: from partition values, or from Parquet and ORC footers."""
        from metastore_assets.formats.files.bounds import read_file_bounds

        return bounds_table(snapshot, column, read_file_bounds(snapshot, column))

    def _list(self) -> tuple[ListedFiles, OverlappingTables]:
        """List the files of the table, and signs of tables of other formats with the same files.

        Raises SnapshotNotFoundError if `at` is configured, because plain files have no earlier states.
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

        All folders are listed if no partition is excluded. They are also all listed if the filter has a column that the
        template or catalog lacks. `_bind` raises the error about such a column later.
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

    def _list_data_files(self, *, refresh_cache: bool) -> _Listing:
        """List the data files, and check that no other table overlaps and that all files are of one kind.

        Args:
            refresh_cache: whether to search folders above the table again; see `OverlappingTables.check`.

        Raises:
            TableNotFoundError: there are no data files in the selected partitions.
            TableFormatError: the table overlaps another one, or has files of several or of unsupported kinds.
        """
        location = self._location
        stored_files, overlapping_tables = self._list()
        files, ids = ListedDataFiles(), _ListDigest()
        with self._listing_errors():
            overlapping_tables.check(refresh_cache=refresh_cache)
            for file in self._folder.data_files(stored_files, self._bind):
                id_ = self._fragment_id(file)
                files.add(file, id_)
                ids.add(id_)
        kinds = files.kinds
        if not kinds:
            if location.is_local and not os.path.exists(location.uri):
                raise TableNotFoundError(f"{location.uri} holds no table: there is no such file or folder")
            selection = " in the selected partitions" if self._filter.excludes_partitions else ""
            raise TableNotFoundError(f"{location.uri} holds no table: there are no data files{selection}")
        if self._kind is not None and (other_kinds := kinds.keys() - {self._kind}):
            kind = min(other_kinds)
            path = location.full_path(kinds[kind])
            raise TableFormatError(f"{path} is a file of the kind {kind!r}, and options.kind says {self._kind!r}")
        if len(kinds) > 1:
            paths = " and ".join(map(location.full_path, kinds.values()))
            raise TableFormatError(f"{location.uri} mixes kinds of files: {paths}")
        if self._declared_types:
            # Declared types are part of the id, because they change the statistics of unchanged files.
            ids.add(repr(self._declared_items))
        columns = partition_columns(self._partitioning, files.partitions.values())
        return _Listing(
            files, overlapping_tables, ids.digest(), columns, _partition_keys(files.partitions.values(), columns)
        )

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
        quoted_column = "`" + column.replace("`", "``") + "`"
        return any(self._table.effective_policy(path).values == "hidden" for path in (column, quoted_column))

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

        These are its path, size and kind, its ETag or modification time, and the settings with which it is read.
        """
        stored_file = file.stored
        # The path has the partition values of Hive folders. Values by a template change when the template does.
        template_values = [key_items(file.partition)] if self._partitioning.types else []
        self._text_reader(file)
        reader = self._text_readers[file.kind, file.suffix][1]
        return digest_json(
            [stored_file.path, stored_file.size, stored_file.version, file.kind, reader, *template_values]
        )

    def _fragment_factory(self, listing: _Listing) -> Callable[[DataFile, str, FileDescription], Fragment]:
        """Return a function that creates a fragment from a file, its fragment id and its description.

        Fragments of files that are read in the same way share one object with the settings for reading (`FileReading`),
        to save memory.
        """
        from metastore_assets.formats.files.source import FileReading, FilesFragmentSource

        readings: dict[tuple[object, ...], FileReading] = {}

        def make_fragment(file: DataFile, id_: str, description: FileDescription) -> Fragment:
            how = description.reader, id(description.types), description.is_readable, description.fatal
            key = (file.kind, file.suffix, file.partition, *how)
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
            partition_key = listing.partition_keys[file.partition]
            return Fragment(id_, partition_key, path, file.stored.size, description.row_count, source)

        return make_fragment


@dataclass(frozen=True)
class _Listing:
    """One listing of a table's data files."""

    files: ListedDataFiles
    overlapping_tables: OverlappingTables
    """The signs of overlapping tables, which have been checked."""
    snapshot_id: str
    columns: tuple[str, ...]
    """The partition columns."""
    partition_keys: Mapping[Items, str]
    """The partition key of each distinct partition."""

    def file_of(self, row: Sequence[Any]) -> DataFile:
        """Return the data file of a row of the table of fragments, whose columns are `_FRAGMENT_ROWS`."""
        _, _, path, size, version, kind, suffix, *_ = row
        return DataFile(StoredFile(path, size, version), kind, suffix, self.files.partition_of(path))


class _ListDigest:
    """A digest of a list of texts that are added one by one.

    It is the first half of SHA-256 of the list in JSON.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b"[")
        self._separator = ""

    def add(self, text: str) -> None:
        self._hash.update(f"{self._separator}{json.dumps(text)}".encode())
        self._separator = ", "

    def digest(self) -> str:
        self._hash.update(b"]")
        return self._hash.hexdigest()[:32]


def _partitioning(table: TableConfig, context: OpenContext) -> Partitioning:
    """Return the partitioning: by a catalog, by the configured template, or by `column=value` folders.

    Raises ConfigError if a table of a catalog also has a template.
    """
    template = table.options.get(_TEMPLATE)
    if context.partitions is None:
        return HivePartitioning() if template is None else TemplatePartitioning.of(table.name, template)
    if template is not None:
        raise ConfigError(
            f"table {table.name!r}: options.template = {template!r}: its catalog says which folders are partitions; "
            "remove the option"
        )
    return catalog_partitioning(table, context.partitions)


def _partition_keys(partitions: Iterable[Items], columns: tuple[str, ...]) -> dict[Items, str]:
    """Return the partition key of each distinct partition.

    If the folders of a partition lack a column, its key lacks the column, too.
    """
    keys = {}
    for partition in set(partitions):
        values = dict(key_items(partition))
        # The folders above a file may lack some partition columns. Their values are in the rows of the file, or null.
        keys[partition] = encode_partition_key([(name, values[name]) for name in columns if name in values])
    return keys
