"""The schema of a table of plain files: from the footers of its files, or from every value of CSV and JSON files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.errors import FatalFileError, FragmentError, TableFormatError
from metastore_assets.formats.base import TypeReason
from metastore_assets.formats.files.declared_types import DeclaredTypes, apply_declared_types
from metastore_assets.formats.files.listing import DataFile
from metastore_assets.formats.files.text_reader import TextReader
from metastore_assets.formats.files.union import union_fields
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.formats.readers.columns import check_distinct, check_types
from metastore_assets.formats.readers.parquet import open_parquet, validate_row_count
from metastore_assets.formats.readers.reader import fragment_errors
from metastore_assets.formats.schema_casting import PARQUET_FIELD_ID, canonical_type
from metastore_assets.storage.compression import Stream, open_decompressed
from metastore_assets.storage.corrupt_input import UnsupportedError, with_redacted_message
from metastore_assets.storage.location import Location
from metastore_assets.tasks.isolation import TEXT_THREADS, IsolatedRunner
from metastore_assets.tasks.runner import TaskRunner, with_arguments

_REMOTE_THREADS = 32
"""Concurrent reads of footers in an object store, where nearly all of the time is waiting."""
_LOCAL_THREADS = 2
"""Concurrent reads of footers on local disk. More threads would wait for each other."""
_FILES_PER_TASK = 256
"""Number of local files that one task reads, because a footer takes less time than starting a task."""
_ALWAYS_CACHED_BYTES = 256 << 10
_CACHED_FRACTION = 8
"""A summary is cached if it has at most _ALWAYS_CACHED_BYTES, or at most one eighth of the bytes of its file."""

FileTask = tuple[DataFile, TextReader | None]
"""A data file, and its reader if it is a CSV or JSON file."""
FileContent = Any
"""Content of one file: a summary (CSV, JSON), row count and schema (other kinds), or the FragmentError of reading it.
"""


@dataclass(frozen=True, slots=True)
class FileDescription:
    """The facts that planning knows about one data file, or about several equal ones."""

    is_readable: bool
    row_count: int | None = None
    """Number of rows. None if the file could not be read, or if its footer has no row count."""
    reader: TextReader | None = None
    """The reader of a CSV or JSON file."""
    types: tuple[tuple[str, pa.DataType], ...] = ()
    """Types of the columns of a CSV or JSON file, by name: declared, or such that all values of the table fit."""
    fatal: str | None = None
    """The error message if reading the file crashed a process, else None. Such a file is not opened again."""
    schema: pa.Schema | None = None
    """The file's schema in canonical types; None for CSV and JSON files."""

    @classmethod
    def unreadable(cls, error: FragmentError, **fields: Any) -> FileDescription:
        """Return the description of a file that could not be read."""
        return cls(False, fatal=str(error) if isinstance(error, FatalFileError) else None, **fields)


@dataclass(frozen=True)
class TableSchema:
    """The schema of a table of plain files, with the descriptions of the files that it was derived from."""

    schema: pa.Schema
    """The columns of all files, then the partition columns."""
    descriptions: list[FileDescription]
    """The description of each file, in the order of the files."""
    type_reasons: list[TypeReason]
    """A reason for each type of a column that a value or a file ruled out."""
    bytes_read: int
    """Bytes of the CSV and JSON files that were read because no summary of them was cached."""


@dataclass(frozen=True)
class SchemaReader:
    """A reader that derives a table's schema from the footers of its files, or from the values of CSV or JSON files."""

    location: Location
    """The folder of the table, or its only file."""
    reader_of: Callable[[DataFile], TextReader | None]
    """Returns the reader of a CSV or JSON file, None for other kinds."""
    declared: DeclaredTypes
    """Types that the configuration declares."""
    cache: MetadataCache
    """Caches what was read from each file. Only files that are not cached are read."""
    runner: TaskRunner | None
    """Runs the tasks that read CSV and JSON files. With None, child processes read them."""
    is_hidden: Callable[[str], bool] = lambda name: False
    """Returns whether the configuration hides the values of a column. Hidden values are not stored in the cache."""

    def read(self, files: Sequence[DataFile], partition_types: Mapping[str, pa.DataType]) -> TableSchema:
        """Return the schema of the table.

        Args:
            files: All data files of the table, at least one.
            partition_types: Types of the partition columns by name.

        Raises:
            TableFormatError: No file can be read, or the files have no common schema.
        """
        tasks = [(file, self.reader_of(file)) for file in files]
        contents, bytes_read = self._read_files(tasks)
        if all(isinstance(content, FragmentError) for content in contents):
            what, error = f"{self.location.uri} has no readable file", contents[0]
            raise with_redacted_message(TableFormatError(f"{what}: {error}"), what, error) from error
        if tasks[0][1] is None:
            descriptions, fields, reasons = self._merge_schemas(files, contents)
        else:
            descriptions, fields, reasons = self._merge_summaries(tasks, contents, partition_types)
        schema = pa.schema(
            [field for field in fields if field.name not in partition_types]
            + [pa.field(name, type_) for name, type_ in partition_types.items()]
        )
        return TableSchema(schema, descriptions, reasons, bytes_read)

    def _merge_schemas(
        self, files: Sequence[DataFile], contents: Sequence[FileContent]
    ) -> tuple[list[FileDescription], list[pa.Field], list[TypeReason]]:
        """Merge the schemas of Parquet, ORC or Avro files.

        Returns:
            A description of each file, the columns of all files, and the reasons that `union_fields` returns.
        """
        # Equal schemas are mostly one object. Comparing identities first is faster than comparing schemas.
        first_uses: dict[int, int] = {}
        for index, content in enumerate(contents):
            if not isinstance(content, FragmentError):
                first_uses.setdefault(id(content[1]), index)
        schemas: dict[pa.Schema, int] = {}
        for index in first_uses.values():
            schemas.setdefault(contents[index][1], index)
        fields, reasons = union_fields(
            self.location.uri,
            [
                (
                    self.location.full_path(files[index].stored.path),
                    [field.with_type(apply_declared_types(field.name, field.type, self.declared)) for field in schema],
                )
                for schema, index in schemas.items()
            ],
        )
        by_content: dict[tuple[int | None, int], FileDescription] = {}
        descriptions = []
        for content in contents:
            if isinstance(content, FragmentError):
                descriptions.append(FileDescription.unreadable(content))
                continue
            row_count, schema = content
            key = row_count, id(schema)
            if key not in by_content:
                by_content[key] = FileDescription(True, row_count, schema=schema)
            descriptions.append(by_content[key])
        return descriptions, fields, reasons

    def _merge_summaries(
        self, tasks: Sequence[FileTask], contents: Sequence[FileContent], partition_columns: Collection[str]
    ) -> tuple[list[FileDescription], list[pa.Field], list[TypeReason]]:
        """Infer the columns of CSV or JSON files from their summaries, and decide how each file is read.

        Returns:
            A description of each file, the columns of all files, and a reason for each type that a value of a column
                ruled out.
        """
        first_reader = tasks[0][1]
        assert first_reader is not None
        readable = [index for index, content in enumerate(contents) if not isinstance(content, FragmentError)]
        inputs = [
            (self.location.full_path(tasks[index][0].stored.path), tasks[index][1], contents[index])
            for index in readable
        ]
        planned_files, fields, reasons = first_reader.plan(self.location.uri, inputs)
        types = tuple((field.name, field.type) for field in fields)
        if tasks[0][0].kind == "csv":
            # Partition values in folders are texts, so a partition column in files is read as text: 01 stays 01.
            types = tuple((name, pa.string() if name in partition_columns else type_) for name, type_ in types)
        plans = dict(zip(readable, planned_files, strict=True))
        descriptions = [
            FileDescription(True, plans[index].row_count, plans[index].reader, types)
            if index in plans
            else FileDescription.unreadable(contents[index], reader=reader, types=types)
            for index, (_, reader) in enumerate(tasks)
        ]
        return descriptions, fields, reasons

    def _read_files(self, tasks: Sequence[FileTask]) -> tuple[list[FileContent], int]:
        """Return the content of each file, and the size in bytes of the CSV and JSON files that were not cached."""
        keys = [
            cache_key("file" if reader is None else "text", *file_identity(self.location, file), repr(reader))
            for file, reader in tasks
        ]
        contents = [self._cached(key, reader) for key, (_, reader) in zip(keys, tasks, strict=True)]
        missing = [index for index, content in enumerate(contents) if content is None]
        sizes = [float(tasks[index][0].stored.size) for index in missing]
        is_text = tasks[0][0].is_text
        outcomes = self._runner(is_text).outcomes(
            with_arguments(partial(describe_file, self.location)),
            [tasks[index] for index in missing],
            paths=[self.location.full_path(tasks[index][0].stored.path) for index in missing],
            costs=sizes,
        )
        for index, outcome in zip(missing, outcomes, strict=True):
            if isinstance(outcome, FragmentError):
                contents[index] = outcome
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                contents[index] = self._store(keys[index], *tasks[index], outcome)
        return contents, int(sum(sizes)) if is_text else 0

    def _runner(self, is_text: bool) -> TaskRunner:
        """Return the runner of the tasks that read files.

        Reading CSV and JSON files needs another runner than footers.
        """
        if is_text:
            return self.runner or IsolatedRunner(threads=TEXT_THREADS)
        return (
            IsolatedRunner(_LOCAL_THREADS, _FILES_PER_TASK)
            if self.location.is_local
            else IsolatedRunner(_REMOTE_THREADS)
        )

    def _cached(self, key: bytes, reader: TextReader | None) -> FileContent | None:
        """Return the cached content of a file without hidden values; None if it is not cached.

        Values of columns that were hidden after the file was cached are also removed from the cache.
        """
        if reader is None:
            return self.cache.get(key, partial(_decode_description, self.cache))
        cached = self.cache.get(key, partial(_decode_summary, reader, self.is_hidden))
        if cached is None:
            return None
        summary, had_hidden_values = cached
        if had_hidden_values:
            self.cache.put(key, reader.encode(summary))
        return summary

    def _store(self, key: bytes, file: DataFile, reader: TextReader | None, description: Any) -> FileContent:
        """Cache a result of `describe_file` unless it is large. Return the decoded result."""
        if reader is not None:
            summary = reader.without_values(description, self.is_hidden)
            encoded = reader.encode(summary)
            if len(encoded) <= max(_ALWAYS_CACHED_BYTES, file.stored.size // _CACHED_FRACTION):
                self.cache.put(key, encoded, shared=True)
            return summary
        row_count, schema = description
        digest = hashlib.sha256(schema).hexdigest()[:32]
        self.cache.put(_schema_key(digest), schema, shared=True)
        self.cache.put(key, json.dumps([row_count, digest]).encode(), shared=True)
        return row_count, _parse_schema(schema)


def open_text(location: Location, file: DataFile) -> Stream:
    """Open the decompressed content of a CSV or JSON file."""
    source = location.open_stored(file.stored)
    try:
        return open_decompressed(source, location.full_path(file.stored.path))
    except BaseException:
        source.close()
        raise


def file_identity(location: Location, file: DataFile) -> list[Any]:
    """Return JSON values that identify the file and its content: location, path, size, version and kind."""
    return [location.uri, *file.stored, file.kind]


def _decode_summary(reader: TextReader, is_hidden: Callable[[str], bool], data: bytes) -> tuple[Any, bool]:
    """Parse a cached summary, and remove values of hidden columns.

    Returns:
        The summary without values of hidden columns; and whether the cached bytes contain such values. They do if the
        column was hidden after the file was cached, or if another table of this process, which does not hide the
        column, caches the same file.
    """
    summary = reader.decode(data)
    redacted = reader.without_values(summary, is_hidden)
    return redacted, redacted is not summary


def _decode_description(cache: MetadataCache, data: bytes) -> tuple[int | None, pa.Schema]:
    """Return the row count and the schema of a file from its cached bytes, which refer to a cached schema.

    Raises LookupError if the schema is not cached. Schemas are cached separately, because files share them.
    """
    row_count, digest = json.loads(data)
    schema = cache.get(_schema_key(digest), _parse_schema)
    if schema is None:
        raise LookupError(digest)
    return row_count, schema


@lru_cache(maxsize=4096)
def _schema_key(digest: str) -> bytes:
    return cache_key("schema", digest)


@lru_cache(maxsize=4096)
def _parse_schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def describe_file(location: Location, file: DataFile, reader: TextReader | None) -> Any:
    """Read the footer of a data file, or all of a CSV or JSON file, in this process.

    Returns:
        For a CSV or JSON file, the summary; for other files, the row count (None for Avro) and the serialized schema.

    Raises:
        FragmentError: The file cannot be read, or has changed since it was listed.
    """
    stored = file.stored
    with fragment_errors(location.full_path(stored.path)):
        if reader is not None:
            description: Any = reader.summarize(lambda: open_text(location, file))
        else:
            with location.open_listed(stored) as source:
                description = _FOOTER_READERS[file.kind](source)
        location.check(stored)
    return description


_SERIALIZED_SCHEMAS: dict[tuple[str, bytes | None], bytes] = {}
"""Serialized schemas by the Parquet schema (as text) and the Arrow schema in the footer of a file.

Files of a table share few schemas, and converting a schema takes longer than reading a footer."""
_MAX_SCHEMAS = 4096
_ARROW_SCHEMA = b"ARROW:schema"
_DELETE_TYPE = "delete-type"
"""Key that only Iceberg's delete files have in the metadata of their footers."""
_DELETE_POSITION = b"2147483545"
"""Field id that Iceberg reserves for the position column of its delete files."""


def _read_parquet_footer(source: pa.NativeFile) -> tuple[int, bytes]:
    """Return the row count and the serialized schema of a Parquet file.

    Raises UnsupportedError for Iceberg's delete files.
    """
    metadata = _read_parquet_metadata(source)
    # The key is the schema as text, because Arrow's comparison ignores the names of struct columns.
    text = repr(metadata.schema).partition("\n")[2]
    key_values = metadata.metadata or {}
    _refuse_delete_file(_DELETE_TYPE.encode() in key_values)
    key = text, key_values.get(_ARROW_SCHEMA)
    serialized = _SERIALIZED_SCHEMAS.get(key)
    if serialized is None:
        serialized = _serialize_schema(open_parquet(source, metadata).schema_arrow)
        if len(_SERIALIZED_SCHEMAS) >= _MAX_SCHEMAS:
            _SERIALIZED_SCHEMAS.clear()
        _SERIALIZED_SCHEMAS[key] = serialized
    return validate_row_count(metadata), serialized


def _read_parquet_metadata(source: pa.NativeFile) -> pq.FileMetaData:
    """Return the footer of a Parquet file. If Arrow refuses the footer, `open_parquet` reads it."""
    # `pq.read_metadata` does the same, and also prepares to read rows, which takes time.
    reader = pq.ParquetReader()
    try:
        reader.open(source)
    except OSError:
        # This also opens footers that only the lenient reader accepts.
        return open_parquet(source).metadata
    return reader.metadata


def _read_orc_footer(source: pa.NativeFile) -> tuple[int, bytes]:
    from metastore_assets.formats.readers.orc import OrcColumns

    columns = OrcColumns(source)
    _refuse_delete_file(_DELETE_TYPE in columns.tail.metadata_keys)
    return columns.row_count, _serialize_schema(columns.fields)


def _read_avro_header(source: pa.NativeFile) -> tuple[int | None, bytes]:
    from metastore_assets.formats.readers.avro import read_avro_fields

    return None, _serialize_schema(read_avro_fields(source))


_FOOTER_READERS: dict[str, Callable[[pa.NativeFile], tuple[int | None, bytes]]] = {
    "parquet": _read_parquet_footer,
    "orc": _read_orc_footer,
    "avro": _read_avro_header,
}


def _refuse_delete_file(is_delete_file: bool) -> None:
    if is_delete_file:
        raise UnsupportedError("it is a delete file of an Iceberg table, whose rows are no data; name the table itself")


def _serialize_schema(fields: Sequence[pa.Field]) -> bytes:
    """Serialize the schema of a file in canonical types. Raises UnsupportedError, ArrowInvalid or LimitError."""
    check_types(fields)
    _refuse_delete_file(any((field.metadata or {}).get(PARQUET_FIELD_ID) == _DELETE_POSITION for field in fields))
    schema = pa.schema([pa.field(field.name, canonical_type(field.type)) for field in fields])
    check_distinct(schema.names)
    return bytes(schema.serialize().to_pybytes())
