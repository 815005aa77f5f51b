"""CSV files: reader options, types inferred from every value of a file, and a file's rows as Parquet."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from metastore_assets.errors import ConfigError
from metastore_assets.formats.reader import check_distinct

OpenStream = Callable[[], pa.NativeFile]
"""Opens a file's content, decompressed, from its beginning: it is read more than once."""

_OPTIONS = ("header", "delimiter", "quote", "encoding", "null_values")
_BLOCK = 16 << 20
"""Bytes parsed at a time; a row must fit."""
_TRUE = ["true", "True", "TRUE"]
_FALSE = ["false", "False", "FALSE"]
_WORDS = f"^({'|'.join(_TRUE + _FALSE)})$"
_TIME = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
_LONG_INTEGER = r"^[+-]?[0-9]{16,}$"

_CANDIDATES: tuple[pa.DataType, ...] = (
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("ns"),
    pa.timestamp("us", "UTC"),
    pa.time64("us"),
    pa.string(),
)
"""Types of a CSV column, the preferred first. A column gets the first one that every value of every file fits."""


_ROW = re.compile(r"Row #(\d+): ")
"""Where Arrow's messages tell the row, counted from 1, the header included, blank lines not."""


@dataclass(frozen=True)
class CsvOptions:
    """How the CSV files of a table are written."""

    header: bool = True
    """Whether the first row holds the names; else they are `f0`, `f1`, …"""
    delimiter: str = ","
    quote: str | None = '"'
    encoding: str = "utf8"
    null_values: tuple[str, ...] | None = None
    """Texts that mean null. When not given: the empty field, in every column but text, where it is the empty text."""

    @classmethod
    def of(cls, table: str, options: Mapping[str, Any], suffix: str) -> CsvOptions:
        """Options from a table's configuration. Raises ConfigError naming the key, the value and what is allowed."""
        for key in options:
            if key not in _OPTIONS:
                raise ConfigError(
                    f"table {table!r}: options.{key} is not an option of CSV files: {', '.join(_OPTIONS)}"
                )
        header = options.get("header", True)
        if not isinstance(header, bool):
            raise ConfigError(f"table {table!r}: options.header = {header!r}: true or false")
        delimiter = options.get("delimiter", "\t" if suffix == ".tsv" else ",")
        delimiter = "\t" if delimiter == r"\t" else delimiter
        quote = options.get("quote", '"') or None
        for key, value in (("delimiter", delimiter), ("quote", quote)):
            if value is not None and (not isinstance(value, str) or len(value) != 1 or not value.isascii()):
                raise ConfigError(f"table {table!r}: options.{key} = {value!r}: one ASCII character")
        null_values = options.get("null_values")
        if null_values is not None and not (
            isinstance(null_values, list | tuple) and all(isinstance(value, str) for value in null_values)
        ):
            raise ConfigError(f"table {table!r}: options.null_values = {null_values!r}: a list of texts")
        encoding = options.get("encoding", "utf8")
        try:
            codecs.lookup(encoding)
        except (LookupError, TypeError):
            raise ConfigError(f"table {table!r}: options.encoding = {encoding!r}: the name of an encoding") from None
        return cls(header, delimiter, quote, encoding, None if null_values is None else tuple(null_values))


@dataclass(frozen=True)
class CsvSummary:
    """What all rows of a file have in common."""

    row_count: int
    candidates: tuple[tuple[str, frozenset[pa.DataType]], ...]
    """Name of each column, in file order, and the types that all its values fit; all of them when it has none."""


def inferred_fields(summaries: Sequence[CsvSummary]) -> list[pa.Field]:
    """The columns of all files, in the order in which they first occur, each with a type that fits every value.

    A column without any value is of the null type.
    """
    remaining: dict[str, frozenset[pa.DataType]] = {}
    for summary in summaries:
        for name, candidates in summary.candidates:
            remaining[name] = remaining.get(name, candidates) & candidates
    return [pa.field(name, _first(candidates)) for name, candidates in remaining.items()]


def summarize(open_stream: OpenStream, options: CsvOptions) -> CsvSummary:
    """Read a whole file in blocks of text and find what types its values fit. Raises ArrowInvalid for a broken row."""
    names = _names(open_stream, options)
    candidates = [frozenset(_CANDIDATES)] * len(names)
    rows = 0
    for batch in _batches(open_stream, options, {name: pa.string() for name in names}):
        rows += batch.num_rows
        candidates = [_fitting(batch.column(index), remaining, options) for index, remaining in enumerate(candidates)]
    return CsvSummary(rows, tuple(zip(names, candidates, strict=True)))


def write_parquet(open_stream: OpenStream, options: CsvOptions, types: Mapping[str, pa.DataType], target: str) -> None:
    """Write a file's rows as Parquet, with the given types by column name, block by block."""
    stored = {name: types[name] for name in _names(open_stream, options) if name in types}
    schema = pa.schema([pa.field(name, type_) for name, type_ in stored.items()])
    with pq.ParquetWriter(target, schema, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
        for batch in _batches(open_stream, options, stored):
            writer.write_batch(batch.select(schema.names))


def _names(open_stream: OpenStream, options: CsvOptions) -> list[str]:
    """Names of the columns; none when the file is empty."""
    try:
        with open_stream() as stream:
            names: list[str] = _open(stream, options, {}).schema.names
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            return []
        raise _located(error, open_stream, options) from error
    check_distinct(names)
    return names


def _batches(
    open_stream: OpenStream, options: CsvOptions, types: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    if not types:
        return
    try:
        with open_stream() as stream:
            yield from _open(stream, options, types)
    except pa.ArrowInvalid as error:
        raise _located(error, open_stream, options) from error


def _open(stream: pa.NativeFile, options: CsvOptions, types: Mapping[str, pa.DataType]) -> pacsv.CSVStreamingReader:
    return pacsv.open_csv(
        stream,
        # One thread: then errors tell the row.
        read_options=pacsv.ReadOptions(
            use_threads=False,
            block_size=_BLOCK,
            autogenerate_column_names=not options.header,
            encoding=options.encoding,
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=options.delimiter, quote_char=options.quote or False, newlines_in_values=options.quote is not None
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=dict(types),
            null_values=list(_null_values(options)),
            strings_can_be_null=options.null_values is not None,
            true_values=_TRUE,
            false_values=_FALSE,
        ),
    )


def _null_values(options: CsvOptions) -> tuple[str, ...]:
    return ("",) if options.null_values is None else options.null_values


def _fitting(texts: pa.StringArray, candidates: frozenset[pa.DataType], options: CsvOptions) -> frozenset[pa.DataType]:
    """Those of the candidates that every text which is no null fits."""
    values = texts.filter(pc.invert(pc.is_in(texts, value_set=pa.array(_null_values(options), pa.string()))))
    if not len(values):
        return candidates
    values = pc.utf8_trim(values, " \t")
    return frozenset(type_ for type_ in candidates if _fits(values, type_))


def _fits(values: pa.StringArray, type_: pa.DataType) -> bool:
    if pa.types.is_string(type_):
        return True
    if pa.types.is_boolean(type_):
        return _all_match(values, _WORDS)
    if pa.types.is_time(type_):
        return _all_match(values, _TIME)
    if pa.types.is_integer(type_) and _any_match(values, "[xX]"):
        # Arrow takes 0x10 for 16; such texts are codes.
        return False
    if pa.types.is_floating(type_) and _any_match(values, _LONG_INTEGER):
        # Beyond 2^53 not every integer is a float: two different ones would become equal.
        return False
    try:
        pc.cast(values, type_)
    except pa.ArrowInvalid:
        return False
    return True


def _all_match(values: pa.StringArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())


def _any_match(values: pa.StringArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())


def _first(candidates: frozenset[pa.DataType]) -> pa.DataType:
    if len(candidates) == len(_CANDIDATES):
        return pa.null()
    return next(type_ for type_ in _CANDIDATES if type_ in candidates)


def _located(error: pa.ArrowInvalid, open_stream: OpenStream, options: CsvOptions) -> pa.ArrowInvalid:
    """The error with the line in the file instead of the number of the row."""
    message = str(error)
    hint = "; set options.encoding" if "UTF8" in message else ""
    row = _ROW.search(message)
    if row is None:
        return pa.ArrowInvalid(message + hint)
    with open_stream() as stream:
        lines = io.TextIOWrapper(io.BufferedReader(stream), options.encoding, errors="replace", newline=None)
        line = _line_of_row(lines, int(row[1]), options)
    return pa.ArrowInvalid(f"line {line}: {message[row.end() :]}{hint}")


def _line_of_row(lines: Iterable[str], row: int, options: CsvOptions) -> int:
    number = found = 0
    quoted = False
    for number, line in enumerate(lines, 1):
        if not quoted:
            if line == "\n":
                continue
            found += 1
            if found == row:
                return number
        if options.quote and options.quote in line:
            quoted = _ends_quoted(line, quoted, options.quote, options.delimiter)
    return number


def _ends_quoted(line: str, quoted: bool, quote: str, delimiter: str) -> bool:
    """Whether a quoted value goes on behind this line. Quotes count only where a value starts, and in such values."""
    starts = not quoted
    for char in line:
        if quoted:
            # A doubled quote ends the value and starts it again.
            quoted = char != quote
            starts = not quoted
        else:
            quoted = starts and char == quote
            starts = char == delimiter
    return quoted
