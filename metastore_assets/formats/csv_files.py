"""CSV files: types inferred from every value of a file, and a file's rows in those types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.csv_header import COMPOUND, USUAL, FirstRow
from metastore_assets.formats.csv_lines import Tail, check_closed, located
from metastore_assets.formats.csv_options import CsvOptions
from metastore_assets.formats.csv_types import ALL, FALSE, TRUE, fitting, preferred
from metastore_assets.formats.reader import check_distinct
from metastore_assets.formats.text_reader import OpenStream, PlannedFile

_BLOCK = 16 << 20
"""Bytes parsed at a time; a row must fit."""
_DELIMITERS = {";": ";", "\t": r"\t", "|": "|"}
"""What separates values in files that are no CSV by the letter, and how the configuration spells it."""

Types = frozenset[pa.DataType]


@dataclass(frozen=True)
class CsvSummary:
    """What all rows of a file have in common."""

    row_count: int
    columns: tuple[tuple[str, Types], ...]
    """Name of each column, in file order, and the types that all its values fit; all of them when it has none."""
    first_row: FirstRow | None = None
    """Where the options do not say whether it is a header: then it counts as values above."""
    has_header: bool | None = None
    """Whether the first row is a header; None when the file does not tell."""

    def resolved(self, has_header: bool | None) -> CsvSummary:
        """The summary of the same file when that is known."""
        if self.first_row is None or not has_header:
            return self
        return CsvSummary(self.row_count - 1, tuple(zip(self.first_row.cells, self.first_row.rest, strict=True)))


@dataclass(frozen=True)
class CsvReader:
    """Reads CSV files that are written in one way."""

    options: CsvOptions

    def summarize(self, open_stream: OpenStream) -> CsvSummary:
        """Read a whole file in blocks of text and find what types its values fit. ArrowInvalid for a broken row."""
        names = _names(open_stream, self.options)
        types = [ALL] * len(names)
        nulls = _null_values(self.options)
        rows = 0
        first = last = None
        tail = Tail(open_stream)
        for batch in _batches(tail.open, self.options, {name: pa.string() for name in names}):
            # What may be a header waits until it is known how the other rows are.
            others = batch.slice(1) if self.options.header is None and rows == 0 else batch
            types = [fitting(column, known, nulls) for column, known in zip(others.columns, types, strict=True)]
            if rows == 0:
                first = batch
                _check_delimiter(batch, self.options)
            rows += batch.num_rows
            last = batch.column(batch.num_columns - 1)[-1].as_py() if batch.num_rows else last
        check_closed(last, tail, self.options)
        if self.options.header is not None or first is None:
            return CsvSummary(rows, tuple(zip(names, types, strict=True)))
        first_row = _first_row(first, types, rows - 1)
        has_header = first_row.is_header
        if has_header:
            check_distinct(first_row.cells)
        heads = first.slice(0, 1).columns
        types = [fitting(column, known, nulls) for column, known in zip(heads, types, strict=True)]
        return CsvSummary(rows, tuple(zip(names, types, strict=True)), first_row, has_header)

    @staticmethod
    def plan(
        table: str, files: Sequence[tuple[str, CsvReader, CsvSummary]]
    ) -> tuple[list[PlannedFile], list[pa.Field]]:
        """How to read each (path, reader, summary), and the columns of all, in the order in which they first occur.

        A column has a type that fits every value; one without any value has the null type. Raises TableFormatError
        when it is not certain which files have a header.
        """
        given = [reader.options.header for _, reader, _ in files]
        found = _headers(table, [(path, summary) for path, _, summary in files])
        headers = [one if one is not None else other for one, other in zip(given, found, strict=True)]
        types: dict[str, Types] = {}
        planned = []
        for (_, reader, unresolved), header in zip(files, headers, strict=True):
            summary = unresolved.resolved(header)
            for name, fitting_types in summary.columns:
                types[name] = types.get(name, fitting_types) & fitting_types
            # A file without any row has no header either.
            planned.append(PlannedFile(summary.row_count, CsvReader(replace(reader.options, header=bool(header)))))
        return planned, [pa.field(name, preferred(fitting_types)) for name, fitting_types in types.items()]

    def batches(
        self, open_stream: OpenStream, types: Mapping[str, pa.DataType]
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows of a file, with those types by column name, block by block."""
        stored = {name: types[name] for name in _names(open_stream, self.options) if name in types}
        schema = pa.schema([pa.field(name, type_) for name, type_ in stored.items()])
        return schema, (batch.select(schema.names) for batch in _batches(open_stream, self.options, stored))


_UNKNOWN_HEADER = (
    "its first row may be the names of the columns or values: nothing tells; set options.header to true or false"
)


def _headers(table: str, files: Sequence[tuple[str, CsvSummary]]) -> list[bool | None]:
    """Whether each file has a header, as far as files can tell of themselves and of files like them."""
    sure = {summary.first_row.cells for _, summary in files if summary.first_row and summary.has_header}
    headers: list[bool | None] = []
    for path, summary in files:
        header = summary.has_header
        if header is None and summary.first_row is not None:
            if summary.first_row.cells not in sure:
                raise TableFormatError(f"{table}: {path}: {_UNKNOWN_HEADER}")
            header = True
        headers.append(header)
    with_header, without = (
        [path for (path, _), header in zip(files, headers, strict=True) if header is wanted] for wanted in (True, False)
    )
    if with_header and without:
        raise TableFormatError(
            f"{table}: {with_header[0]} seems to have a header and {without[0]} seems to have none; "
            "set options.header to true or false"
        )
    _check_related(table, files, sure)
    return headers


def _check_related(table: str, files: Sequence[tuple[str, CsvSummary]], headers: set[tuple[str, ...]]) -> None:
    """Raise TableFormatError for a file of texts only whose names no other file has: they may be values."""
    if len(headers) < 2:
        return
    for path, summary in files:
        first = summary.first_row
        if first is None or first.has_types:
            continue
        others = {name for cells in headers - {first.cells} for name in cells}
        if others.isdisjoint(first.cells):
            raise TableFormatError(f"{table}: {path}: {_UNKNOWN_HEADER}")


def _first_row(batch: pa.RecordBatch, rest: list[Types], other_rows: int) -> FirstRow:
    cells = tuple(column[0].as_py() or "" for column in batch.columns)
    others = batch.slice(1)
    return FirstRow(
        cells,
        tuple(rest),
        tuple(bool(pc.any(pc.equal(column, cell)).as_py()) for column, cell in zip(others.columns, cells, strict=True)),
        tuple(map(_has_names, others.columns)),
        other_rows,
        any(pc.count_distinct(column).as_py() * 2 <= len(column) for column in others.columns),
    )


def _has_names(texts: pa.StringArray) -> bool:
    usual = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(sorted(USUAL)))
    return bool(pc.any(pc.or_(usual, pc.match_substring_regex(texts, COMPOUND))).as_py())


def _check_delimiter(batch: pa.RecordBatch, options: CsvOptions) -> None:
    """Raise ArrowInvalid for a file of one column that seems to be several with another delimiter between them."""
    if options.has_delimiter or batch.num_columns > 1:
        return
    header = [pa.array(batch.schema.names)] if options.header else []
    texts = pa.chunked_array([*header, batch.column(0)])
    for delimiter, spelled in _DELIMITERS.items() if len(texts) > 1 else ():
        counts = pc.min_max(pc.count_substring(texts, delimiter)).as_py()
        if delimiter != options.delimiter and counts["min"] == counts["max"] and counts["min"]:
            raise pa.ArrowInvalid(
                f"every row has {counts['min']} {spelled!r} and no {options.delimiter!r}; set options.delimiter"
            )


def _names(open_stream: OpenStream, options: CsvOptions) -> list[str]:
    """Names of the columns; none when the file is empty."""
    try:
        with open_stream() as stream:
            names: list[str] = _open(stream, options, {}).schema.names
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            return []
        raise located(error, open_stream, options) from error
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
        raise located(error, open_stream, options) from error


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
            delimiter=options.delimiter,
            quote_char=options.quote or False,
            escape_char=options.escape or False,
            newlines_in_values=options.quote is not None or options.escape is not None,
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=dict(types),
            null_values=list(_null_values(options)),
            strings_can_be_null=options.null_values is not None,
            true_values=TRUE,
            false_values=FALSE,
        ),
    )


def _null_values(options: CsvOptions) -> tuple[str, ...]:
    return ("",) if options.null_values is None else options.null_values
