"""The schema of a table of plain files.

It comes from the footers of its files, or from every value of CSV and JSON files. The summary of a CSV or JSON file has
its row count, and shows which types its values fit. A hidden column is one whose values the configuration hides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.errors import FatalFileError, FragmentError, TableFormatError
from metastore_assets.formats.base import CONVERSION, TypeReason
from metastore_assets.formats.files.declared_types import DeclaredTypes, apply_declared_types
from metastore_assets.formats.files.listed_files import DataFile
from metastore_assets.formats.files.text_reader import TextReader
from metastore_assets.formats.files.union import union_fields
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.formats.readers.columns import check_distinct, check_types
from metastore_assets.formats.readers.parquet import open_parquet, validate_row_count
from metastore_assets.formats.readers.parquet_footer import ARROW_SCHEMA, is_misunderstood
from metastore_assets.formats.readers.reader import fragment_errors
from metastore_assets.formats.schema_casting import PARQUET_FIELD_ID, canonical_type
from metastore_assets.storage.compression import Stream, open_decompressed
from metastore_assets.storage.corrupt_input import UnsupportedError, with_redacted_message
from metastore_assets.storage.location import Location
from metastore_assets.tasks.isolation import TEXT_THREADS, IsolatedRunner
from metastore_assets.tasks.runner import TaskRunner, with_arguments

_ALWAYS_CACHED_BYTES = 256 << 10
_CACHED_FRACTION = 8
"""A summary is cached if it has at most _ALWAYS_CACHED_BYTES, or at most one eighth of the bytes of its file."""

TextTask = tuple[DataFile, TextReader]
"""A CSV or JSON file, and its reader."""
FileContent = Any
"""The summary of a CSV or JSON file, or the FragmentError of reading it."""


@dataclass(frozen=True, slots=True)
class FileDescription:
    """The row count, reader and column types of one data file, and whether the file can be read."""

    is_readable: bool
    row_count: int | None = None
    """Number of rows. None if the file could not be read, or if its footer has no row count."""
    reader: TextReader | None = None
    """The reader of a CSV or JSON file."""
    types: tuple[tuple[str, pa.DataType], ...] = ()
    """Types of the columns of a CSV or JSON file, by name: declared, or such that all values of the table fit."""
    fatal: str | None = None
    """The error message if reading the file crashed a process, else None. Such a file is not opened again."""

    @classmethod
    def unreadable(cls, error: FragmentError, **fields: Any) -> FileDescription:
        """Return the description of a file that could not be read."""
        return cls(False, fatal=str(error) if isinstance(error, FatalFileError) else None, **fields)


@dataclass(frozen=True)
class TableSchema:
    """The schema of a table of plain files, and the reasons for the types of its columns."""

    schema: pa.Schema
    """The columns of all files, then the partition columns."""
    type_reasons: list[TypeReason]
    """A reason for each type that a value or a file ruled out for a column."""

    @classmethod
    def of(
        cls, fields: Iterable[pa.Field], type_reasons: list[TypeReason], partition_types: Mapping[str, pa.DataType]
    ) -> TableSchema:
        """Return the schema of a table.

        Args:
            fields: the columns of all files. Those with the name of a partition column are left out.
            type_reasons: as in the field of this name.
            partition_types: types of the partition columns by name. These columns follow the others.
        """
        columns = [field for field in fields if field.name not in partition_types]
        return cls(pa.schema([*columns, *starmap(pa.field, partition_types.items())]), type_reasons)


def merge_schemas(
    location: Location,
    first_paths: Mapping[pa.Schema, str],
    declared_types: DeclaredTypes,
    partition_types: Mapping[str, pa.DataType],
) -> TableSchema:
    """Merge the schemas of Parquet, ORC or Avro files.

    Args:
        location: the folder of the table.
        first_paths: the path of the first file with each schema, ordered by path.
        declared_types: types that the configuration declares.
        partition_types: types of the partition columns by name.

    Raises:
        TableFormatError: the files have no common schema.
    """
    fields, reasons = union_fields(
        location.uri,
        [
            (
                location.full_path(path),
                [field.with_type(apply_declared_types(field.name, field.type, declared_types)) for field in schema],
            )
            for schema, path in first_paths.items()
        ],
    )
    return TableSchema.of([_mark_declared_types(field, declared_types) for field in fields], reasons, partition_types)


def _mark_declared_types(field: pa.Field, declared_types: DeclaredTypes) -> pa.Field:
    """Return a column whose metadata have its declared type, and those of its nested fields.

    A column without declared types is returned unchanged. The metadata key is CONVERSION, whose value identifies how
    stored values are converted to the table's types. The result of the conversion depends on the declared types: texts
    are parsed, and the double 0.1 is not the float 0.1.
    """
    types = [
        [path, str(type_)]
        for path, type_ in sorted(declared_types.items())
        if path == field.name or path.startswith(f"{field.name}.")
    ]
    if not types:
        return field
    return field.with_metadata({**(field.metadata or {}), CONVERSION: json.dumps(["declared types", *types])})


def check_any_readable(location: Location, error: FragmentError | None, *, is_readable: bool) -> None:
    """Raise TableFormatError if no file of a table can be read.

    Args:
        location: the folder of the table.
        error: the error of reading the first unreadable file; None if all files can be read.
        is_readable: whether at least one file can be read.
    """
    if not is_readable:
        assert error is not None, "a table has files"
        what = f"{location.uri} has no readable file"
        raise with_redacted_message(TableFormatError(f"{what}: {error}"), what, error) from error


@dataclass(frozen=True)
class TextSchemaReader:
    """A reader of all bytes of a table's CSV or JSON files.

    It infers the columns and their types.
    """

    location: Location
    """The folder of the table, or its only file."""
    cache: MetadataCache
    """Caches what was read from each file. Only files that are not cached are read."""
    runner: TaskRunner | None
    """Runs the tasks that read files. With None, child processes read them."""
    is_hidden: Callable[[str], bool] = lambda name: False
    """Returns whether the configuration hides the values of a column. Hidden values are not stored in the cache."""

    def read(
        self, tasks: Sequence[TextTask], partition_types: Mapping[str, pa.DataType]
    ) -> tuple[TableSchema, list[FileDescription], int]:
        """Return the schema of the table, a description of each file, and the number of bytes read.

        Only files that are not in the cache are read. The number is their total size.

        Args:
            tasks: all data files of the table, at least one, with their readers.
            partition_types: types of the partition columns by name.

        Raises:
            TableFormatError: no file can be read, or the files have no common schema.
        """
        contents, bytes_read = self._read_files(tasks)
        errors = [content for content in contents if isinstance(content, FragmentError)]
        check_any_readable(self.location, next(iter(errors), None), is_readable=len(errors) < len(contents))
        descriptions, fields, reasons = self._merge_summaries(tasks, contents, partition_types)
        return TableSchema.of(fields, reasons, partition_types), descriptions, bytes_read

    def _merge_summaries(
        self, tasks: Sequence[TextTask], contents: Sequence[FileContent], partition_columns: Collection[str]
    ) -> tuple[list[FileDescription], list[pa.Field], list[TypeReason]]:
        """Infer the columns of CSV or JSON files from their summaries, and decide how each file is read.

        Returns:
            A description of each file, the columns of all files, and the reasons why columns do not have other types.
        """
        readable = [index for index, content in enumerate(contents) if not isinstance(content, FragmentError)]
        inputs = [
            (self.location.full_path(tasks[index][0].stored.path), tasks[index][1], contents[index])
            for index in readable
        ]
        planned_files, fields, reasons = tasks[0][1].plan(self.location.uri, inputs)
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

    def _read_files(self, tasks: Sequence[TextTask]) -> tuple[list[FileContent], int]:
        """Return the summary or the error of each file, and the total size of files that were not cached."""
        keys = [cache_key("text", *file_identity(self.location, file), repr(reader)) for file, reader in tasks]
        contents = [self._cached(key, reader) for key, (_, reader) in zip(keys, tasks, strict=True)]
        missing_indices = [index for index, content in enumerate(contents) if content is None]
        sizes = [float(tasks[index][0].stored.size) for index in missing_indices]
        outcomes = (self.runner or IsolatedRunner(threads=TEXT_THREADS)).outcomes(
            with_arguments(partial(describe_file, self.location)),
            [tasks[index] for index in missing_indices],
            paths=[self.location.full_path(tasks[index][0].stored.path) for index in missing_indices],
            costs=sizes,
        )
        for index, outcome in zip(missing_indices, outcomes, strict=True):
            if isinstance(outcome, FragmentError):
                contents[index] = outcome
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                contents[index] = self._store(keys[index], *tasks[index], outcome)
        return contents, int(sum(sizes))

    def _cached(self, key: bytes, reader: TextReader) -> FileContent | None:
        """Return the cached summary of a file, after removing values of hidden columns; None if not cached.

        If values were removed, the new summary replaces the old one in the cache.
        """
        cached_summary = self.cache.get(key, partial(_decode_summary, reader, self.is_hidden))
        if cached_summary is None:
            return None
        summary, had_hidden_values = cached_summary
        if had_hidden_values:
            self.cache.put(key, reader.encode(summary))
        return summary

    def _store(self, key: bytes, file: DataFile, reader: TextReader, description: Any) -> FileContent:
        """Remove values of hidden columns from a summary, cache it unless it is large, and return it.

        Args:
            key: The key in the cache.
            file: The summarized file.
            reader: The reader of the file.
            description: The summary, a result of `describe_file`.
        """
        summary = reader.without_values(description, self.is_hidden)
        encoded_summary = reader.encode(summary)
        if len(encoded_summary) <= max(_ALWAYS_CACHED_BYTES, file.stored.size // _CACHED_FRACTION):
            self.cache.put(key, encoded_summary, shared=True)
        return summary


def open_text(location: Location, file: DataFile) -> Stream:
    """Open the decompressed content of a CSV or JSON file."""
    source = location.open_stored(file.stored)
    try:
        return open_decompressed(source, location.full_path(file.stored.path))
    except BaseException:
        source.close()
        raise


def file_identity(location: Location, file: DataFile) -> list[Any]:
    """Return JSON values that identify a file and its content.

    These are its location, path, size and kind, and its ETag or modification time.
    """
    return [location.uri, *file.stored, file.kind]


def _decode_summary(reader: TextReader, is_hidden: Callable[[str], bool], data: bytes) -> tuple[Any, bool]:
    """Parse the cached summary of a CSV or JSON file, and remove the values of hidden columns.

    Returns:
        The summary, and whether the cached bytes `data` contain values of hidden columns.
    """
    summary = reader.decode(data)
    redacted_summary = reader.without_values(summary, is_hidden)
    return redacted_summary, redacted_summary is not summary


def describe_file(location: Location, file: DataFile, reader: TextReader | None) -> Any:
    """Read the footer of a data file, or all of a CSV or JSON file, in this process.

    Returns:
        For a CSV or JSON file, the summary; for other files, the row count (None for Avro) and the serialized schema.

    Raises:
        FragmentError: the file cannot be read, or has changed since it was listed.
    """
    stored_file = file.stored
    with fragment_errors(location.full_path(stored_file.path)):
        if reader is not None:
            description: Any = reader.summarize(lambda: open_text(location, file))
        else:
            with location.open_listed(stored_file) as source:
                description = _FOOTER_READERS[file.kind](source)
        location.check(stored_file)
    return description


_SERIALIZED_SCHEMAS: dict[tuple[str, bytes | None], bytes] = {}
"""Serialized schemas by the Parquet schema (as text) and the Arrow schema in the footer of a file.

Files of a table share few schemas, and converting a schema takes longer than reading a footer."""
_MAX_SCHEMAS = 4096
_DELETE_TYPE = "delete-type"
"""Key that only Iceberg's delete files have in the metadata of their footers."""
_DELETE_POSITION = b"2147483545"
"""Field id that Iceberg reserves for the position column of its delete files."""


def _read_parquet_footer(source: pa.NativeFile) -> tuple[int, bytes]:
    """Return the row count and the serialized schema of a Parquet file.

    Raises UnsupportedError for Iceberg's delete files.
    """
    metadata = _read_parquet_metadata(source)
    if is_misunderstood(metadata.schema):
        metadata = open_parquet(source).metadata
    # The key is the schema as text, because Arrow's comparison ignores the names of struct columns.
    text = repr(metadata.schema).partition("\n")[2]
    key_values = metadata.metadata or {}
    _refuse_delete_file(_DELETE_TYPE.encode() in key_values)
    key = text, key_values.get(ARROW_SCHEMA)
    serialized_schema = _SERIALIZED_SCHEMAS.get(key)
    if serialized_schema is None:
        serialized_schema = _serialize_schema(open_parquet(source, metadata).schema_arrow)
        if len(_SERIALIZED_SCHEMAS) >= _MAX_SCHEMAS:
            _SERIALIZED_SCHEMAS.clear()
        _SERIALIZED_SCHEMAS[key] = serialized_schema
    return validate_row_count(metadata), serialized_schema


def _read_parquet_metadata(source: pa.NativeFile) -> pq.FileMetaData:
    """Return the footer of a Parquet file.

    A footer that Arrow refuses is read with `open_parquet` instead.
    """
    # `pq.read_metadata` does the same, and also prepares to read rows, which takes time.
    reader = pq.ParquetReader()
    try:
        reader.open(source)
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
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
    """Return the serialized Arrow schema of a file's columns, in the types in which readers return them.

    Raises:
        UnsupportedError: The file is a position delete file of an Iceberg table.
        ArrowInvalid: Two columns have the same name.
        LimitError: There are too many fields, or a type is nested too deeply or has too wide values.
    """
    check_types(fields)
    _refuse_delete_file(any((field.metadata or {}).get(PARQUET_FIELD_ID) == _DELETE_POSITION for field in fields))
    schema = pa.schema([pa.field(field.name, canonical_type(field.type)) for field in fields])
    check_distinct(schema.names)
    return bytes(schema.serialize().to_pybytes())
