"""The schema of a table of plain files, from footers, and from every value of CSV and JSON files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
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
from metastore_assets.formats.files.union import canonical_type, union_fields
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.formats.readers.columns import check_distinct, check_types
from metastore_assets.formats.readers.parquet import checked_rows, open_parquet
from metastore_assets.formats.readers.reader import fragment_errors
from metastore_assets.formats.schema_casting import PARQUET_FIELD_ID
from metastore_assets.storage.compression import Stream, open_decompressed
from metastore_assets.storage.corrupt_input import UnsupportedError, with_redacted_message
from metastore_assets.storage.location import Location
from metastore_assets.tasks.isolation import TEXT_THREADS, IsolatedRunner
from metastore_assets.tasks.runner import TaskRunner, with_arguments

_REMOTE_THREADS = 32
"""Concurrent reads of footers in an object store: nearly all of the time is waiting."""
_LOCAL_THREADS = 2
"""Concurrent reads of footers on local disk: more threads wait for each other."""
_SHARE = 256
"""Files in one task of a thread, because one file takes little time."""


@dataclass(frozen=True)
class FileDescription:
    """The result of reading one file for planning."""

    is_readable: bool
    row_count: int | None = None
    """None when the file could not be read, or has no row count outside of its rows."""
    reader: TextReader | None = None
    """The reader of a CSV or JSON file."""
    types: tuple[tuple[str, pa.DataType], ...] = ()
    """Types of the columns of a CSV or JSON file, over all files of the table."""
    fatal: str | None = None
    """Why reading the file ended a process. Such a file is not opened again."""
    schema: pa.Schema | None = None
    """The schema in other files."""

    @classmethod
    def unreadable(cls, error: FragmentError, **fields: Any) -> FileDescription:
        """Describe a file that could not be read."""
        return cls(False, fatal=str(error) if isinstance(error, FatalFileError) else None, **fields)


def table_schema(
    location: Location,
    files: Sequence[DataFile],
    reader_of: Callable[[DataFile], TextReader | None],
    partition_columns: Sequence[str],
    declared: DeclaredTypes,
    cache: MetadataCache,
    runner: TaskRunner | None,
    is_hidden: Callable[[str], bool] = lambda name: False,
) -> tuple[list[FileDescription], list[pa.Field], list[TypeReason], int]:
    """Return the descriptions of all files and the schema of the table. Files that are not cached are read.

    Args:
        location: the table's folder.
        files: its data files.
        reader_of: returns the reader of a CSV or JSON file, None for other kinds.
        partition_columns: names of the partition columns.
        declared: types that the configuration declares.
        cache: descriptions of files that were read before.
        runner: reads CSV and JSON files; None for a child process.
        is_hidden: whether values of a column are hidden. They are not stored in the cache.

    Returns:
        Descriptions in the order of the files; the columns of all files; why columns are not of narrower types; and the
        bytes of the CSV and JSON files that were read.

    Raises:
        TableFormatError: no file can be read, or the files have no common schema.
    """
    readers = [reader_of(file) for file in files]
    outcomes, bytes_read = _describe_all(location, files, readers, cache, runner, is_hidden)
    readable = [place for place, outcome in enumerate(outcomes) if not isinstance(outcome, FragmentError)]
    if not readable:
        what = f"{location.uri} has no readable file"
        raise with_redacted_message(TableFormatError(f"{what}: {outcomes[0]}"), what, outcomes[0]) from outcomes[0]
    if readers[0] is not None:
        return *_text_schema(location, files, readers, outcomes, readable, partition_columns), bytes_read
    # Equal schemas are mostly one object. Comparing identities first is faster than comparing schemas.
    objects: dict[int, int] = {}
    for place in readable:
        objects.setdefault(id(outcomes[place][1]), place)
    schemas: dict[pa.Schema, int] = {}
    for place in objects.values():
        schemas.setdefault(outcomes[place][1], place)
    fields, reasons = union_fields(
        location.uri,
        [
            (
                location.full_path(files[place].stored.path),
                [field.with_type(apply_declared_types(field.name, field.type, declared)) for field in schema],
            )
            for schema, place in schemas.items()
        ],
    )
    described = [
        FileDescription.unreadable(outcome)
        if isinstance(outcome, FragmentError)
        else FileDescription(True, outcome[0], schema=outcome[1])
        for outcome in outcomes
    ]
    return described, fields, reasons, bytes_read


def open_text(location: Location, file: DataFile) -> Stream:
    """Open the decompressed content of a CSV or JSON file."""
    source = location.open_stored(file.stored)
    try:
        return open_decompressed(source, location.full_path(file.stored.path))
    except BaseException:
        source.close()
        raise


def _text_schema(
    location: Location,
    files: Sequence[DataFile],
    readers: Sequence[TextReader | None],
    summaries: Sequence[Any],
    readable: Sequence[int],
    partition_columns: Sequence[str],
) -> tuple[list[FileDescription], list[pa.Field], list[TypeReason]]:
    inputs = [(location.full_path(files[place].stored.path), readers[place], summaries[place]) for place in readable]
    first = readers[0]
    assert first is not None
    planned, fields, reasons = first.plan(location.uri, inputs)
    types = tuple((field.name, field.type) for field in fields)
    if files[0].kind == "csv":
        # Partition values in folders are texts, so that a partition column in files is read as text: 01 stays 01.
        types = tuple((name, pa.string() if name in partition_columns else type_) for name, type_ in types)
    plans = dict(zip(readable, planned, strict=True))
    described = [
        FileDescription(True, plans[place].row_count, plans[place].reader, types)
        if place in plans
        else FileDescription.unreadable(summary, reader=readers[place], types=types)
        for place, summary in enumerate(summaries)
    ]
    return described, fields, reasons


def file_identity(location: Location, file: DataFile) -> list[Any]:
    """Return JSON values that identify the content of a file."""
    return [location.uri, *file.stored, file.kind]


def _describe_all(
    location: Location,
    files: Sequence[DataFile],
    readers: Sequence[TextReader | None],
    cache: MetadataCache,
    runner: TaskRunner | None,
    is_hidden: Callable[[str], bool],
) -> tuple[list[Any], int]:
    """Return a summary, (row count, schema) or FragmentError for each file, and the bytes of text that was read."""
    keys = [
        cache_key("file" if reader is None else "text", *file_identity(location, file), repr(reader))
        for file, reader in zip(files, readers, strict=True)
    ]
    result: list[Any] = [
        cache.get(
            key, partial(_decode_description, cache) if reader is None else partial(_decode_summary, reader, is_hidden)
        )
        for key, reader in zip(keys, readers, strict=True)
    ]
    for place, (reader, cached) in enumerate(zip(readers, result, strict=True)):
        if reader is not None and cached is not None:
            result[place], was_redacted = cached
            if not was_redacted:
                cache.put(keys[place], reader.encode(result[place]))
    new = [place for place, cached in enumerate(result) if cached is None]
    tasks = [(files[place], readers[place]) for place in new]
    paths = [location.full_path(files[place].stored.path) for place in new]
    if files[0].is_text:
        runner = runner or IsolatedRunner(threads=TEXT_THREADS)
    else:
        runner = IsolatedRunner(_LOCAL_THREADS, _SHARE) if location.is_local else IsolatedRunner(_REMOTE_THREADS)
    sizes = [float(files[place].stored.size) for place in new]
    outcomes = runner.outcomes(with_arguments(partial(describe_file, location)), tasks, paths=paths, costs=sizes)
    for place, outcome in zip(new, outcomes, strict=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, FragmentError):
            raise outcome
        reader = readers[place]
        if isinstance(outcome, FragmentError):
            result[place] = outcome
        elif reader is not None:
            result[place] = outcome = reader.without_values(outcome, is_hidden)
            if len(encoded := reader.encode(outcome)) <= max(
                _ALWAYS_CACHED_BYTES, files[place].stored.size // _CACHED_FRACTION
            ):
                cache.put(keys[place], encoded, shared=True)
        else:
            rows, schema = outcome
            result[place] = rows, _schema(schema)
            digest = hashlib.sha256(schema).hexdigest()[:32]
            cache.put(cache_key("schema", digest), schema, shared=True)
            cache.put(keys[place], json.dumps([rows, digest]).encode(), shared=True)
    return result, int(sum(sizes)) if files[0].is_text else 0


def _decode_summary(reader: TextReader, is_hidden: Callable[[str], bool], data: bytes) -> tuple[Any, bool]:
    """Return a summary without values of hidden columns, and whether it had none before.

    It has values if it was cached before the column was hidden, or by another table of this process.
    """
    summary = reader.decode(data)
    without_hidden = reader.without_values(summary, is_hidden)
    return without_hidden, without_hidden is summary


_ALWAYS_CACHED_BYTES = 256 << 10
_CACHED_FRACTION = 8
"""A summary is cached when it has at most this many bytes, or is at most this fraction of the file."""


def _decode_description(cache: MetadataCache, data: bytes) -> tuple[int | None, pa.Schema]:
    """Return the row count and the schema of a file. Schemas are cached separately, because files share them."""
    rows, digest = json.loads(data)
    schema = cache.get(cache_key("schema", digest), _schema)
    if schema is None:
        raise LookupError(digest)
    return rows, schema


@lru_cache(maxsize=4096)
def _schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def describe_file(location: Location, file: DataFile, reader: TextReader | None) -> Any:
    """Read a file in this process. Raises FragmentError.

    Returns:
        The summary of a CSV or JSON file; of other files the row count, and the serialized schema in canonical types.
    """
    stored = file.stored
    with fragment_errors(location.full_path(stored.path)):
        if reader is not None:
            description: Any = reader.summarize(lambda: open_text(location, file))
        else:
            with location.open_listed(stored) as source:
                description = _DESCRIBE[file.kind](source)
        location.check(stored)
    return description


_SCHEMAS: dict[tuple[str, bytes | None], bytes] = {}
"""Serialized schemas by the schema text of Parquet footers. Converting a schema costs more than reading a footer."""
_MAX_SCHEMAS = 4096
_ARROW_SCHEMA = b"ARROW:schema"
_DELETE_TYPE = "delete-type"
"""Key in the footers of Iceberg's delete files."""
_DELETE_POSITION = b"2147483545"
"""Field id of the position column in Iceberg's delete files. No other column has it."""


def _describe_parquet(source: pa.NativeFile) -> tuple[int, bytes]:
    metadata = _parquet_metadata(source)
    # The key is the schema as text, because Arrow's comparison ignores the names of struct columns.
    text = repr(metadata.schema).partition("\n")[2]
    pairs = metadata.metadata or {}
    _check_no_deletes(_DELETE_TYPE.encode() in pairs)
    key = text, pairs.get(_ARROW_SCHEMA)
    plain = _SCHEMAS.get(key)
    if plain is None:
        plain = _plain_schema(open_parquet(source, metadata).schema_arrow)
        if len(_SCHEMAS) >= _MAX_SCHEMAS:
            _SCHEMAS.clear()
        _SCHEMAS[key] = plain
    return checked_rows(metadata), plain


def _parquet_metadata(source: pa.NativeFile) -> pq.FileMetaData:
    # This is what read_metadata does, without preparing reads of rows.
    reader = pq.ParquetReader()
    try:
        reader.open(source)
    except OSError:
        # Some unusual footers can be read only this way.
        return open_parquet(source).metadata
    return reader.metadata


def _describe_orc(source: pa.NativeFile) -> tuple[int, bytes]:
    from metastore_assets.formats.readers.orc import OrcColumns

    columns = OrcColumns(source)
    _check_no_deletes(_DELETE_TYPE in columns.tail.metadata_keys)
    return columns.row_count, _plain_schema(columns.fields)


def _describe_avro(source: pa.NativeFile) -> tuple[int | None, bytes]:
    from metastore_assets.formats.readers.avro import avro_fields

    return None, _plain_schema(avro_fields(source))


_DESCRIBE: dict[str, Callable[[pa.NativeFile], tuple[int | None, bytes]]] = {
    "parquet": _describe_parquet,
    "orc": _describe_orc,
    "avro": _describe_avro,
}


def _check_no_deletes(is_delete_file: bool) -> None:
    if is_delete_file:
        raise UnsupportedError("it is a delete file of an Iceberg table, whose rows are no data; name the table itself")


def _plain_schema(fields: Sequence[pa.Field]) -> bytes:
    """Serialize a schema in canonical types. Bytes are fast to send, compare and cache; few schemas differ."""
    check_types(fields)
    _check_no_deletes(any((field.metadata or {}).get(PARQUET_FIELD_ID) == _DELETE_POSITION for field in fields))
    schema = pa.schema([pa.field(field.name, canonical_type(field.type)) for field in fields])
    check_distinct(schema.names)
    return bytes(schema.serialize().to_pybytes())
