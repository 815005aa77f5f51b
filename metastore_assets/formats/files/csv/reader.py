"""The reader of CSV files.

It infers types from every value, and then reads rows in the decided types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.base import TypeReason
from metastore_assets.formats.files.csv.blocks import RowBlock
from metastore_assets.formats.files.csv.header import HeaderDetector, detect_headers
from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.csv.quotes import Backslashes
from metastore_assets.formats.files.csv.summary import ColumnSummary, CsvSummary, Types, decode_summary, encode_summary
from metastore_assets.formats.files.csv.texts import (
    BLANK_LINE,
    OTHER_DELIMITERS,
    blank_lines_are_rows,
    blank_texts,
    check_blanks_before,
    read_text_batches,
    replace_null_texts,
)
from metastore_assets.formats.files.csv.types import preferred
from metastore_assets.formats.files.text_reader import OpenStream, PlannedFile
from metastore_assets.formats.files.text_values import first_mismatch, parse
from metastore_assets.formats.readers.columns import check_distinct
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import InvalidContentError
from metastore_assets.storage.limits import ROW_BYTES

_BLOCK = ROW_BYTES
_BLANK_ROWS = 1 << 16


@dataclass(frozen=True)
class CsvReader:
    """A reader of CSV files that share the same options."""

    options: CsvOptions
    declared: tuple[tuple[str, pa.DataType], ...] = ()
    """Column name and type of each type that the configuration declares."""

    def summarize(self, open_stream: OpenStream) -> CsvSummary:
        """Read a whole file, and return its row count and the types that its values fit.

        Raises ArrowInvalid if the file is malformed or does not fit the options.
        """
        header = self.options.header
        columns: tuple[ColumnSummary, ...] = ()
        first: tuple[RowBlock, pa.RecordBatch] | None = None
        backslashes: Backslashes | None = None
        rows = 0
        for block, batch in read_text_batches(open_stream, self.options, _BLOCK):
            if batch is None:
                return CsvSummary(0, (), blank_lines=block.blanks_before)
            start = 0
            if first is None:
                first = block, batch
                if header is False:
                    check_blanks_before(block, batch.num_columns, self.options)
                _check_delimiter(batch, self.options)
                # Whether the first row is a header is decided after the other rows are read.
                start = 0 if header is False else 1
                columns = tuple(map(ColumnSummary, _column_names(batch, self.options)))
                check_distinct([column.name for column in columns])
            columns = tuple(
                column.with_values(texts.slice(start), block, start, self.options)
                for column, texts in zip(columns, batch.columns, strict=True)
            )
            rows += batch.num_rows
            backslashes = block.backslashes.merge(backslashes) if block.backslashes else backslashes
        if first is None:
            return CsvSummary(0, _configured_columns(self.options))
        block, batch = first
        blanks = block.blanks_before if blank_lines_are_rows(batch.num_columns, self.options) else 0
        if header:
            return CsvSummary(rows - 1, columns, backslashes=backslashes)
        if header is False:
            columns = tuple(column.with_blank_lines(blanks, self.options) for column in columns)
            return CsvSummary(rows + blanks, columns, backslashes=backslashes)
        summary = CsvSummary(rows, columns, backslashes=backslashes, blank_lines=blanks)
        return self._with_first_row(summary, block, batch)

    def _with_first_row(self, summary: CsvSummary, block: RowBlock, batch: pa.RecordBatch) -> CsvSummary:
        """Add the first row of a file, and the blank lines before this row, to the file's summary.

        The result also records in `has_header` whether the first row is a header, or None if this is uncertain.

        Args:
            summary: the summary of the rows after the first one, except that its row count includes the first row.
            block: the first block of the file.
            batch: the rows of this block.
        """
        columns, blanks = summary.columns, summary.blank_lines
        detector = HeaderDetector(batch, [column.types for column in columns], summary.row_count - 1)
        first_row, has_header = detector.first_row, detector.is_header()
        if has_header is None and any(name in first_row.cells for name, _ in self.declared):
            has_header = True
        if not has_header:
            check_blanks_before(block, batch.num_columns, self.options)
        headed_columns = tuple(
            replace(column, name=name) for column, name in zip(columns, first_row.cells, strict=True)
        )
        if has_header:
            check_distinct(first_row.cells)
        columns = tuple(
            column.with_values(texts.slice(0, 1), block, 0, self.options).with_blank_lines(blanks, self.options)
            for column, texts in zip(columns, batch.columns, strict=True)
        )
        return replace(
            summary,
            row_count=summary.row_count + blanks,
            columns=columns,
            first_row=first_row,
            has_header=has_header,
            headed=headed_columns,
        )

    @staticmethod
    def encode(summary: CsvSummary) -> bytes:
        """Serialize a summary for the cache."""
        return encode_summary(summary)

    @staticmethod
    def decode(data: bytes) -> CsvSummary:
        """Parse a serialized summary.

        Raises ValueError, LookupError or TypeError for invalid bytes.
        """
        return decode_summary(data)

    @staticmethod
    def without_values(summary: CsvSummary, is_hidden: Callable[[str], bool]) -> CsvSummary:
        """Return a summary without values of hidden columns; see `TextReader.without_values`."""
        return summary.without_values(is_hidden)

    @staticmethod
    def plan(
        table: str, files: Sequence[tuple[str, CsvReader, CsvSummary]]
    ) -> tuple[list[PlannedFile], list[pa.Field], list[TypeReason]]:
        """Decide how each file is read, and which columns the table has; see `TextReader.plan`.

        Raises:
            TableFormatError: it is ambiguous which files have a header, what backslashes mean, or whether blank
                lines are rows.
        """
        _check_backslashes(table, files)
        configured_headers = [reader.options.header for _, reader, _ in files]
        detected_headers = detect_headers(
            table, [(path, summary.has_header, summary.first_row) for path, _, summary in files]
        )
        headers = [
            has_header if option is None else option
            for option, has_header in zip(configured_headers, detected_headers, strict=True)
        ]
        planned_files: list[PlannedFile] = []
        summaries: list[tuple[str, CsvSummary]] = []
        resolved_summaries = [summary.resolved(header) for (_, _, summary), header in zip(files, headers, strict=True)]
        names = {column.name for summary in resolved_summaries for column in summary.columns}
        for (path, reader, _), summary, header in zip(files, resolved_summaries, headers, strict=True):
            if summary.blank_lines and not summary.columns:
                has_headers = any(headers)
                columns = set() if has_headers else names or set(reader.options.columns or ["f0"])
                reader, summary = _plan_blank_lines(f"{table}: {path}", reader, summary.blank_lines, columns)
            summaries.append((path, summary))
            # A file without rows has no header.
            planned_files.append(
                PlannedFile(summary.row_count, replace(reader, options=replace(reader.options, header=bool(header))))
            )
        types, reasons = _merge_columns(summaries)
        declared_types = dict(files[0][1].declared) if files else {}
        fields = [pa.field(name, declared_types.get(name) or preferred(fits)) for name, fits in types.items()]
        return planned_files, fields, reasons

    def batches(
        self, open_stream: OpenStream, types: Mapping[str, pa.DataType]
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema and the rows of a file; see `TextReader.batches`."""
        blocks = read_text_batches(open_stream, self.options, _BLOCK)
        first = next(blocks, None)
        if first is None:
            return pa.schema([]), iter(())
        block, batch = first
        if batch is None:
            if self.options.header or not blank_lines_are_rows(1, self.options):
                return pa.schema([]), iter(())
            batch = pa.record_batch([blank_texts(0, self.options)], ["f0"])
        names = _column_names(batch, self.options)
        check_distinct(names)
        schema = pa.schema([pa.field(name, types[name]) for name in names if name in types])
        return schema, self._parse_batches(chain([(block, batch)], blocks), names, schema)

    def _parse_batches(
        self, blocks: Iterable[tuple[RowBlock, pa.RecordBatch | None]], names: Sequence[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, without its header, in the types of the schema.

        Args:
            blocks: the blocks of the file, each with its columns of texts, or with None for a file of blank lines.
            names: names of the columns in the file.
            schema: the columns to return.
        """
        start = int(bool(self.options.header))
        for block, batch in blocks:
            if not start and blank_lines_are_rows(len(names), self.options):
                for offset in range(0, block.blanks_before, _BLANK_ROWS):
                    lines = np.arange(min(_BLANK_ROWS, block.blanks_before - offset))
                    blanks = replace(block, first_line=1 + offset, rows=lines)
                    yield self._parse_batch([blank_texts(len(lines), self.options)], blanks, 0, names, schema)
            if batch is not None:
                texts = [column.slice(start) for column in batch.columns]
                yield self._parse_batch(texts, block, start, names, schema)
            start = 0

    def _parse_batch(
        self, columns: Sequence[pa.StringArray], block: RowBlock, first: int, names: Sequence[str], schema: pa.Schema
    ) -> pa.RecordBatch:
        """Parse rows of texts as the types of the schema.

        Args:
            columns: the texts of the rows, one array for each column of the file.
            block: the block from which the rows are. Messages have its line numbers.
            first: the index in `block.rows` of the first of the rows.
            names: names of the columns in the file.
            schema: the columns to return.
        """
        texts = {name: replace_null_texts(column, self.options) for name, column in zip(names, columns, strict=True)}
        parsed_columns = [_parse_column(texts[field.name], field, block, first, self.options) for field in schema]
        return pa.RecordBatch.from_arrays(parsed_columns, schema=schema)


def _merge_columns(summaries: Sequence[tuple[str, CsvSummary]]) -> tuple[dict[str, Types], list[TypeReason]]:
    """Return the types that all values of each column fit, and a reason for each type ruled out.

    The types are by column name, in the order of first occurrence. `summaries` has the path and the summary of each
    file.
    """
    types: dict[str, Types] = {}
    reasons: dict[tuple[str, pa.DataType], TypeReason] = {}
    for path, column in ((path, column) for path, summary in summaries for column in summary.columns):
        types[column.name] = types.get(column.name, column.types) & column.types
        for mismatch in column.ruled_out:
            value = "a value" if mismatch.text is None else f"{mismatch.text!r:.100}"
            reason = TypeReason(column.name, mismatch.type, f"{value} in {path}, line {mismatch.line}")
            reasons.setdefault((column.name, mismatch.type), reason)
    return types, list(reasons.values())


def _plan_blank_lines(
    file: str, reader: CsvReader, blank_lines: int, columns: Set[str]
) -> tuple[CsvReader, CsvSummary]:
    """Decide whether the lines of a file with only blank lines are rows.

    In a table of one column, a blank line may be a null.

    Args:
        file: table and path of the file, for messages.
        reader: the reader with the configured options.
        blank_lines: number of lines in the file.
        columns: names of the columns of the table; empty if its files have headers.

    Returns:
        The reader to use for the file, and the summary of the file. The reader skips blank lines if they are no rows.

    Raises:
        TableFormatError: `columns` has one name, and the option `skip_blank_lines` is not set.
    """
    if len(columns) != 1 or reader.options.skip_blank_lines:
        no_rows = CsvSummary(0, _configured_columns(reader.options))
        return replace(reader, options=replace(reader.options, skip_blank_lines=True)), no_rows
    if reader.options.skip_blank_lines is None:
        raise TableFormatError(f"{file}: {BLANK_LINE.format(line=1)}")
    column = ColumnSummary(next(iter(columns))).with_blank_lines(blank_lines, reader.options)
    return reader, CsvSummary(blank_lines, (column,))


def _parse_column(texts: pa.StringArray, field: pa.Field, block: RowBlock, first: int, options: CsvOptions) -> pa.Array:
    """Parse the texts of a column as values of its type.

    `first` is the index in `block.rows` of the row that has the first text. Raises ArrowInvalid, which names the line,
    if a text is no value of the type.
    """
    if pa.types.is_null(field.type):
        return pa.nulls(len(texts))
    if options.empty_is_null and not pa.types.is_string(field.type):
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    try:
        return parse(texts, field.type)
    except pa.ArrowInvalid:
        index = first_mismatch(texts, lambda part: _can_parse(part, field.type))
        raise pa.ArrowInvalid(
            f"line {block.line_of(first + index)}: {texts[index].as_py()!r:.100} in the column {field.name!r} is no "
            f"{field.type}; set schema.{field.name} to another type, such as string"
        ) from None


def _can_parse(texts: pa.StringArray, type_: pa.DataType) -> bool:
    try:
        parse(texts, type_)
    except pa.ArrowInvalid:
        return False
    return True


def _column_names(batch: pa.RecordBatch, options: CsvOptions) -> list[str]:
    """Return the names of the columns: from the options, from the header, or `f0`, `f1`, ….

    Raises ArrowInvalid if the options have more or fewer names than the file has columns.
    """
    if options.columns is None:
        return _first_row_texts(batch) if options.header else batch.schema.names
    if len(options.columns) != batch.num_columns:
        raise pa.ArrowInvalid(
            f"its rows have {batch.num_columns} columns, and options.columns has {len(options.columns)} names"
        )
    return list(options.columns)


def _configured_columns(options: CsvOptions) -> tuple[ColumnSummary, ...]:
    """Return the columns of a file without rows: those that the options name."""
    return tuple(map(ColumnSummary, options.columns or ()))


def _first_row_texts(batch: pa.RecordBatch) -> list[str]:
    """Return the texts of the first row.

    Nulls are empty texts.
    """
    return [column[0].as_py() or "" for column in batch.columns]


def _check_backslashes(table: str, files: Sequence[tuple[str, CsvReader, CsvSummary]]) -> None:
    """Raise TableFormatError if it is ambiguous whether backslashes are escapes.

    They are ambiguous if every backslash in the files of the table may be an escape, but may also stand for itself. The
    files are judged together.
    """
    with_backslashes = [(path, summary.backslashes) for path, _, summary in files if summary.backslashes]
    merged_backslashes: Backslashes | None = None
    for _, backslashes in with_backslashes:
        merged_backslashes = backslashes.merge(merged_backslashes)
    if merged_backslashes is not None and merged_backslashes.are_ambiguous:
        path, first = with_backslashes[0]
        raise TableFormatError(
            f"{table}: {path}, line {first.line}: all backslashes may be escapes; set options.escape to '\\' if a pair "
            "of them stands for one, as Spark writes it in quotes, or to '' if they stand for themselves"
        )


def _check_delimiter(batch: pa.RecordBatch, options: CsvOptions) -> None:
    """Raise ArrowInvalid if a file with one column seems to have another delimiter than the default one.

    That is so if another common delimiter occurs in every row of the batch, and equally often in each. A configured
    delimiter is not checked.

    Args:
        batch: the first rows of the file.
        options: how the file is written.
    """
    if options.has_delimiter or batch.num_columns > 1:
        return
    texts = batch.column(0)
    for delimiter, spelling in OTHER_DELIMITERS.items() if len(texts) > 1 or options.header is not False else ():
        counts = pc.min_max(pc.count_substring(texts, delimiter)).as_py()
        if delimiter != options.delimiter and counts["min"] == counts["max"] and counts["min"]:
            raise InvalidContentError(
                f"each of its first rows has {counts['min']} {spelling!r} and no {options.delimiter!r}, so it may be "
                f"the delimiter; set options.delimiter to {spelling!r}, or to {options.delimiter!r} if it is part of "
                "the values"
            )
