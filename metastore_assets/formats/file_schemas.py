"""What planning reads of data files: footers and headers, of CSV and JSON files every value; and one schema for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats.base import TypeReason
from metastore_assets.formats.compression import Stream, decompressed
from metastore_assets.formats.declared import Declared, with_declared
from metastore_assets.formats.listing import DataFile
from metastore_assets.formats.location import Location
from metastore_assets.formats.parquet import open_parquet
from metastore_assets.formats.reader import check_distinct, explained
from metastore_assets.formats.schema_union import plain_type, union_fields
from metastore_assets.formats.text_reader import TextReader

_REMOTE_THREADS = 32
"""Footers read at a time from an object store: nearly all of it is waiting."""
_LOCAL_THREADS = 2
"""Footers read at a time from local disk: more threads would wait for each other."""
_TEXT_THREADS = 4
"""CSV or JSON files read at a time: each holds some blocks of text."""
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


def table_schema(
    location: Location,
    files: Sequence[DataFile],
    reader_of: Callable[[DataFile], TextReader | None],
    partition_columns: Sequence[str],
    declared: Declared,
) -> tuple[list[Described], list[pa.Field], list[TypeReason]]:
    """What is known of each file, the columns of all, and why columns are of other types than some files alone say.

    Raises TableFormatError when no file can be read, or two cannot be of one table.
    """
    readers = [reader_of(file) for file in files]
    outcomes = _describe_all(location, files, readers)
    readable = [place for place, outcome in enumerate(outcomes) if not isinstance(outcome, FragmentError)]
    if not readable:
        raise TableFormatError(f"{location.uri} has no readable file: {outcomes[0]}") from outcomes[0]
    if readers[0] is not None:
        return _text_schema(location, files, readers, outcomes, readable, partition_columns)
    schemas: dict[pa.Schema, int] = {}
    for place in readable:
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
        Described(False) if isinstance(found, FragmentError) else Described(True, found[0]) for found in outcomes
    ]
    return described, fields, reasons


def open_text(location: Location, file: DataFile) -> Stream:
    """The content of a CSV or JSON file from its beginning, decompressed."""
    source = location.open_stored(file.stored)
    try:
        return decompressed(source, location.full_path(file.stored.path))
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
    described = [Described(False, None, reader, types) for reader in readers]
    for place, plan in zip(readable, planned, strict=True):
        described[place] = Described(True, plan.row_count, plan.reader, types)
    return described, fields, reasons


def _describe_all(location: Location, files: Sequence[DataFile], readers: Sequence[TextReader | None]) -> list[Any]:
    def outcome(pair: tuple[DataFile, TextReader | None]) -> Any:
        try:
            return describe(location, *pair)
        except FragmentError as error:
            return error

    pairs = list(zip(files, readers, strict=True))
    if readers[0] is not None:
        threads, share = _TEXT_THREADS, 1
    else:
        threads, share = (_LOCAL_THREADS, _SHARE) if location.is_local else (_REMOTE_THREADS, 1)
    shares = [pairs[start : start + share] for start in range(0, len(pairs), share)]
    with ThreadPoolExecutor(threads) as pool:
        return [found for own in pool.map(lambda own: list(map(outcome, own)), shares) for found in own]


@lru_cache(maxsize=200_000)
def describe(location: Location, file: DataFile, reader: TextReader | None) -> Any:
    """A text file's summary; of others the row count and the schema in plain types.

    Cached: equal arguments, same content.
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


_KNOWN: dict[tuple[str, bytes | None], pa.Schema] = {}
"""Schemas in plain types by what Parquet footers say: a table has many files, few schemas, and these cost most."""
_MOST_KNOWN = 4096
_ARROW_SCHEMA = b"ARROW:schema"


def _describe_parquet(source: pa.NativeFile) -> tuple[int, pa.Schema]:
    metadata = _parquet_metadata(source)
    # All of the schema as text. Arrow's own comparison takes struct columns of any names for equal.
    text = repr(metadata.schema).partition("\n")[2]
    key = text, (metadata.metadata or {}).get(_ARROW_SCHEMA)
    plain = _KNOWN.get(key)
    if plain is None:
        plain = _plain_schema(open_parquet(source, metadata).schema_arrow)
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = plain
    return metadata.num_rows, plain


def _parquet_metadata(source: pa.NativeFile) -> pq.FileMetaData:
    # Does what read_metadata does without what else an opened file is made ready for.
    reader = pq.ParquetReader()
    try:
        reader.open(source)
    except OSError:
        # There are odd footers that can be read all the same.
        return open_parquet(source).metadata
    return reader.metadata


def _describe_orc(source: pa.NativeFile) -> tuple[int, pa.Schema]:
    from metastore_assets.formats.orc import OrcColumns

    columns = OrcColumns(source)
    return columns.row_count, _plain_schema(columns.fields)


def _describe_avro(source: pa.NativeFile) -> tuple[int | None, pa.Schema]:
    from metastore_assets.formats.avro import avro_fields

    return None, _plain_schema(avro_fields(source))


_DESCRIBE: dict[str, Callable[[pa.NativeFile], tuple[int | None, pa.Schema]]] = {
    "parquet": _describe_parquet,
    "orc": _describe_orc,
    "avro": _describe_avro,
}


def _plain_schema(fields: Sequence[pa.Field]) -> pa.Schema:
    schema = pa.schema([pa.field(field.name, plain_type(field.type)) for field in fields])
    check_distinct(schema.names)
    return schema
