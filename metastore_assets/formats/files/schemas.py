"""What planning reads of data files: footers and headers, of CSV and JSON files every value; and one schema for all."""

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
from metastore_assets.formats.files.declared_types import DeclaredTypes, with_declared
from metastore_assets.formats.files.listing import DataFile
from metastore_assets.formats.files.text_reader import TextReader
from metastore_assets.formats.files.union import plain_type, union_fields
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.formats.readers.parquet import checked_rows, open_parquet
from metastore_assets.formats.readers.reader import check_distinct, explained
from metastore_assets.formats.readers.type_limits import check_types
from metastore_assets.formats.schema_casting import PARQUET_FIELD_ID
from metastore_assets.storage.compression import Stream, open_decompressed
from metastore_assets.storage.corrupt_input import UnsupportedError, with_redacted_message
from metastore_assets.storage.location import Location
from metastore_assets.tasks.isolation import TEXT_THREADS, IsolatedRunner
from metastore_assets.tasks.runner import TaskRunner, with_arguments

_REMOTE_THREADS = 32
"""Footers read at a time from an object store: nearly all of it is waiting."""
_LOCAL_THREADS = 2
"""Footers read at a time from local disk: more threads would wait for each other."""
_SHARE = 256
"""Files that a thread is given at a time, where each takes next to no time."""


@dataclass(frozen=True)
class Described:
    """What planning knows of a file."""

    is_readable: bool
    row_count: int | None = None
    """None where the file could not be read, or does not tell without being read as a whole."""
    reader: TextReader | None = None
    """Of a CSV or JSON file."""
    types: tuple[tuple[str, pa.DataType], ...] = ()
    """Of a CSV or JSON file's columns: those of all files of the table."""
    fatal: str | None = None
    """That reading the file ended a process, and how: then it is not to be opened again."""
    schema: pa.Schema | None = None
    """Of other files, as they say it themselves."""

    @classmethod
    def unreadable(cls, error: FragmentError, **what: Any) -> Described:
        """Of a file that could not be read."""
        return cls(False, fatal=str(error) if isinstance(error, FatalFileError) else None, **what)


def table_schema(
    location: Location,
    files: Sequence[DataFile],
    reader_of: Callable[[DataFile], TextReader | None],
    partition_columns: Sequence[str],
    declared: DeclaredTypes,
    cache: MetadataCache,
    runner: TaskRunner | None,
    is_hidden: Callable[[str], bool] = lambda name: False,
) -> tuple[list[Described], list[pa.Field], list[TypeReason], int]:
    """What is known of each file, the columns of all, and why columns are of other types than some files alone say.

    The last item is the size in bytes of the text files that had to be read.

    Files that nothing is known of are read; text by `runner`, or else by a child process. What is learnt of text holds
    no value of hidden columns, given by name.

    Raises TableFormatError when no file can be read, or two cannot be of one table.
    """
    readers = [reader_of(file) for file in files]
    outcomes, bytes_read = _describe_all(location, files, readers, cache, runner, is_hidden)
    readable = [place for place, outcome in enumerate(outcomes) if not isinstance(outcome, FragmentError)]
    if not readable:
        what = f"{location.uri} has no readable file"
        raise with_redacted_message(TableFormatError(f"{what}: {outcomes[0]}"), what, outcomes[0]) from outcomes[0]
    if readers[0] is not None:
        return *_text_schema(location, files, readers, outcomes, readable, partition_columns), bytes_read
    # Files of one schema mostly have it as one object, and to compare schemas takes longer than to recall them.
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
                [field.with_type(with_declared(field.name, field.type, declared)) for field in schema],
            )
            for schema, place in schemas.items()
        ],
    )
    described = [
        Described.unreadable(found) if isinstance(found, FragmentError) else Described(True, found[0], schema=found[1])
        for found in outcomes
    ]
    return described, fields, reasons, bytes_read


def open_text(location: Location, file: DataFile) -> Stream:
    """The content of a CSV or JSON file from its beginning, decompressed."""
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
) -> tuple[list[Described], list[pa.Field], list[TypeReason]]:
    inputs = [(location.full_path(files[place].stored.path), readers[place], summaries[place]) for place in readable]
    first = readers[0]
    assert first is not None
    planned, fields, reasons = first.plan(location.uri, inputs)
    types = tuple((field.name, field.type) for field in fields)
    if files[0].kind == "csv":
        # Read as the texts that folders' names are: 01 stays 01.
        types = tuple((name, pa.string() if name in partition_columns else type_) for name, type_ in types)
    plans = dict(zip(readable, planned, strict=True))
    described = [
        Described(True, plans[place].row_count, plans[place].reader, types)
        if place in plans
        else Described.unreadable(summary, reader=readers[place], types=types)
        for place, summary in enumerate(summaries)
    ]
    return described, fields, reasons


def file_identity(location: Location, file: DataFile) -> list[Any]:
    """What tells the content of a file from any other."""
    return [location.uri, *file.stored, file.kind]


def _describe_all(
    location: Location,
    files: Sequence[DataFile],
    readers: Sequence[TextReader | None],
    cache: MetadataCache,
    runner: TaskRunner | None,
    is_hidden: Callable[[str], bool],
) -> tuple[list[Any], int]:
    """What is known of each file, or the FragmentError that tells why nothing is. Only new files are read.

    The second item is the size in bytes of the text files that were read.
    """
    keys = [
        cache_key("file" if reader is None else "text", *file_identity(location, file), repr(reader))
        for file, reader in zip(files, readers, strict=True)
    ]
    result: list[Any] = [
        cache.get(key, partial(_typed, cache) if reader is None else partial(_quiet, reader, is_hidden))
        for key, reader in zip(keys, readers, strict=True)
    ]
    for place, (reader, known) in enumerate(zip(readers, result, strict=True)):
        if reader is not None and known is not None:
            result[place], was_quiet = known
            if not was_quiet:
                cache.put(keys[place], reader.encode(result[place]))
    new = [place for place, found in enumerate(result) if found is None]
    tasks = [(files[place], readers[place]) for place in new]
    paths = [location.full_path(files[place].stored.path) for place in new]
    if files[0].is_text:
        runner = runner or IsolatedRunner(threads=TEXT_THREADS)
    else:
        runner = IsolatedRunner(_LOCAL_THREADS, _SHARE) if location.is_local else IsolatedRunner(_REMOTE_THREADS)
    sizes = [float(files[place].stored.size) for place in new]
    outcomes = runner.outcomes(with_arguments(partial(describe, location)), tasks, paths=paths, costs=sizes)
    for place, outcome in zip(new, outcomes, strict=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, FragmentError):
            raise outcome
        reader = readers[place]
        if isinstance(outcome, FragmentError):
            result[place] = outcome
        elif reader is not None:
            result[place] = outcome = reader.without_values(outcome, is_hidden)
            if len(told := reader.encode(outcome)) <= max(_LEAST_KEPT, files[place].stored.size // _KEPT_PART):
                cache.put(keys[place], told, shared=True)
        else:
            rows, schema = outcome
            result[place] = rows, _schema(schema)
            digest = hashlib.sha256(schema).hexdigest()[:32]
            cache.put(cache_key("schema", digest), schema, shared=True)
            cache.put(keys[place], json.dumps([rows, digest]).encode(), shared=True)
    return result, int(sum(sizes)) if files[0].is_text else 0


def _quiet(reader: TextReader, is_hidden: Callable[[str], bool], data: bytes) -> tuple[Any, bool]:
    """Return a summary without values of hidden columns, and whether it had none before.

    It may have been learnt while the column was shown, or by others in this process who show it.
    """
    found = reader.decode(data)
    quiet = reader.without_values(found, is_hidden)
    return quiet, quiet is found


_LEAST_KEPT = 256 << 10
_KEPT_PART = 8
"""What is told of text is kept when it is no more than so many bytes, or than such a part of the file."""


def _typed(cache: MetadataCache, data: bytes) -> tuple[int | None, pa.Schema]:
    """The number of rows of a file, and its schema, which few others do not share."""
    rows, digest = json.loads(data)
    schema = cache.get(cache_key("schema", digest), _schema)
    if schema is None:
        raise LookupError(digest)
    return rows, schema


@lru_cache(maxsize=4096)
def _schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def describe(location: Location, file: DataFile, reader: TextReader | None) -> Any:
    """A text file's summary; of others the row count and the schema in plain types, as bytes. Raises
    FragmentError.

    Reads the file in the process that calls it.
    """
    stored = file.stored
    with explained(location.full_path(stored.path)):
        if reader is not None:
            found: Any = reader.summarize(lambda: open_text(location, file))
        else:
            with location.open_listed(stored) as source:
                found = _DESCRIBE[file.kind](source)
        location.check(stored)
    return found


_KNOWN: dict[tuple[str, bytes | None], bytes] = {}
"""Schemas in plain types by what Parquet footers say: a table has many files, few schemas, and these cost most."""
_MOST_KNOWN = 4096
_ARROW_SCHEMA = b"ARROW:schema"
_DELETE_TYPE = "delete-type"
"""What Iceberg's writers say in the footers of delete files only."""
_DELETE_POSITION = b"2147483545"
"""Of the column of positions in delete files; Iceberg gives this number to no other column."""


def _describe_parquet(source: pa.NativeFile) -> tuple[int, bytes]:
    metadata = _parquet_metadata(source)
    # All of the schema as text. Arrow's own comparison takes struct columns of any names for equal.
    text = repr(metadata.schema).partition("\n")[2]
    pairs = metadata.metadata or {}
    _check_no_deletes(_DELETE_TYPE.encode() in pairs)
    key = text, pairs.get(_ARROW_SCHEMA)
    plain = _KNOWN.get(key)
    if plain is None:
        plain = _plain_schema(open_parquet(source, metadata).schema_arrow)
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = plain
    return checked_rows(metadata), plain


def _parquet_metadata(source: pa.NativeFile) -> pq.FileMetaData:
    # Does what read_metadata does without what else an opened file is made ready for.
    reader = pq.ParquetReader()
    try:
        reader.open(source)
    except OSError:
        # There are odd footers that can be read all the same.
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
    """As bytes, for they are many and few are different: those are quickly sent, compared and known again."""
    check_types(fields)
    _check_no_deletes(any((field.metadata or {}).get(PARQUET_FIELD_ID) == _DELETE_POSITION for field in fields))
    schema = pa.schema([pa.field(field.name, plain_type(field.type)) for field in fields])
    check_distinct(schema.names)
    return bytes(schema.serialize().to_pybytes())
