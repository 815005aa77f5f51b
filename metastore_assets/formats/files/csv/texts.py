"""Parsing of CSV files into columns of texts, in which quotes and escapes are resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.csv as pacsv

from metastore_assets.formats.files.csv.blocks import RowBlock, read_blocks
from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.text_reader import OpenStream
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import InvalidContentError
from metastore_assets.storage.limits import FIELDS

_ROW = re.compile(r"Row #(\d+): ")
"""Matches the row number in messages of Arrow. It counts from 1, without blank lines."""
OTHER_DELIMITERS = {";": ";", "\t": r"\t", "|": "|"}
"""Other common delimiters, each with its spelling in the configuration."""
_HINT_BYTES = 1 << 16
_HINT_LINES = 100
BLANK_LINE = (
    "line {line} is blank, which in a file of one column is a null to some and nothing to others; "
    "set options.skip_blank_lines to true or false"
)
_WRONG_WIDTH = re.compile(r"Expected \d+ columns, got \d+")
_BOTH_ENDINGS = frozenset(b"\r\n")


def read_text_batches(
    open_stream: OpenStream, options: CsvOptions, size: int
) -> Iterator[tuple[RowBlock, pa.RecordBatch | None]]:
    """Yield each block that has rows, with these rows as a batch of text columns.

    The first batch includes the header.

    For a file with only blank lines, the result is one block with None. For an empty file, nothing is yielded.

    Args:
        open_stream: opens the file.
        options: how the file is written.
        size: approximate size of a block in bytes.

    Raises:
        ArrowInvalid: a row is malformed, or it is ambiguous which lines are rows. If the row is known, the message
            has its line number.
    """
    names: list[str] = []
    endings: frozenset[int] = frozenset()
    for block in read_blocks(open_stream, options, size):
        is_first = not names
        if is_first and not len(block.rows):
            yield block, None
            return
        has_blank_rows = blank_lines_are_rows(len(names), options)
        if is_first:
            try:
                batch = _parse_block(block, names, options, has_blank_rows)
            except InvalidContentError as error:
                raise error.with_hint(_delimiter_hint(block, options)) from error
            names = batch.schema.names
            has_blank_rows = blank_lines_are_rows(len(names), options)
        if has_blank_rows:
            block = replace(block, rows=block.rows_and_blanks)
        if not len(block.rows):
            _check_lines(block, endings, len(names), options)
            continue
        if not is_first or (has_blank_rows and block.blank is not None):
            batch = _parse_block(block, names, options, has_blank_rows)
        endings |= block.endings
        _check_lines(block, endings, len(names), options)
        yield block, batch


def blank_lines_are_rows(columns: int, options: CsvOptions) -> bool:
    """Return True if blank lines are rows: there is one column, and `skip_blank_lines` is false."""
    return columns == 1 and options.skip_blank_lines is False


def blank_texts(count: int, options: CsvOptions) -> pa.StringArray:
    """Return `count` blank lines as a column: nulls or empty texts, depending on the options."""
    is_null = options.null_values is None and not options.empty_text
    return pa.nulls(count, pa.string()) if is_null else pa.array([""], pa.string()).take(pa.repeat(0, count))


def replace_null_texts(texts: pa.StringArray, options: CsvOptions) -> pa.StringArray:
    """Return the texts of a column, with null in place of the texts that mean null."""
    if not options.null_values:
        return texts
    is_null = pc.is_in(texts, value_set=pa.array(options.null_values, pa.string()))
    return pc.if_else(is_null, pa.scalar(None, pa.string()), texts)


def _parse_block(block: RowBlock, names: list[str], options: CsvOptions, has_blank_rows: bool) -> pa.RecordBatch:
    """Parse a block into columns of texts, named `names`, or `f0`, `f1`, … if `names` is empty.

    Blank lines are rows if `has_blank_rows`. Raises ArrowInvalid if the block cannot be parsed or has too many columns.
    If the line number in the file is known, the message has it.
    """
    if not names and block.width > FIELDS:
        _check_width(block, options)
    try:
        table = pacsv.read_csv(
            pa.BufferReader(block.data),
            # Arrow's messages have row numbers only if it parses with one thread.
            read_options=pacsv.ReadOptions(
                use_threads=False,
                block_size=len(block.data) + 1,
                column_names=names or None,
                autogenerate_column_names=not names,
            ),
            parse_options=pacsv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                escape_char=options.escape or False,
                newlines_in_values=options.quote is not None or options.escape is not None,
                ignore_empty_lines=not has_blank_rows,
            ),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names or [f"f{number}" for number in range(block.width)], pa.string()),
                null_values=[""] if options.null_values is None and not options.empty_text else [],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise _with_line(error, block) from error
    return table.combine_chunks().to_batches()[0]


def _delimiter_hint(block: RowBlock, options: CsvOptions) -> str:
    """Return the end of an error message, which suggests another delimiter.

    It is empty if none is likely.

    A delimiter is likely if it occurs equally often in each of the first lines. If the options already name a
    delimiter, none is suggested.
    """
    if options.has_delimiter:
        return ""
    head = block.data[:_HINT_BYTES]
    complete = head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]
    lines = [line for line in re.split(rb"[\r\n]+", complete)[:_HINT_LINES] if line]
    for delimiter, spelling in OTHER_DELIMITERS.items():
        counts = {line.count(delimiter.encode()) for line in lines}
        if delimiter != options.delimiter and len(counts) == 1 and counts != {0}:
            return (
                f"; the first lines have equally many {spelling!r}: set options.delimiter to {spelling!r} if it "
                "separates values"
            )
    return ""


def _check_width(block: RowBlock, options: CsvOptions) -> None:
    """Raise ArrowInvalid if the first row of a block has more columns than the limit `FIELDS`.

    Delimiters in quotes do not count.
    """
    quote = re.escape(options.quote.encode()) if options.quote else b""
    data = re.sub(quote + b"[^" + quote + b"]*" + quote, b"", block.data) if quote else block.data
    columns = re.split(b"[\r\n]", data, maxsplit=1)[0].count(options.delimiter.encode()) + 1
    if columns > FIELDS:
        raise InvalidContentError(f"line {block.first_line}: it has {columns:,} columns; at most {FIELDS:,} are read")


def check_blanks_before(block: RowBlock, columns: int, options: CsvOptions) -> None:
    """Raise ArrowInvalid if a file without a header begins with blank lines that may be rows.

    `block` is the first block of the file, and `columns` the number of columns.
    """
    if columns == 1 and block.blanks_before and options.skip_blank_lines is None:
        raise InvalidContentError(BLANK_LINE.format(line=1))


def _check_lines(block: RowBlock, endings: frozenset[int], columns: int, options: CsvOptions) -> None:
    """Raise ArrowInvalid if it is ambiguous which lines of a block are rows.

    `endings` has the bytes that end rows in this and earlier blocks; `columns` is the number of columns.
    """
    if columns == 1 and block.blank is not None and options.skip_blank_lines is None:
        raise InvalidContentError(BLANK_LINE.format(line=block.blank))
    if endings == _BOTH_ENDINGS:
        raise InvalidContentError(
            "some of its lines end in carriage returns, others in line feeds, and one of them may be part of values; "
            "write lines with one kind of end, and values with either in quotes"
        )


def _with_line(error: pa.ArrowInvalid, block: RowBlock) -> InvalidContentError:
    """Return Arrow's error with the line number in the file instead of the row number in the block."""
    message = str(error)
    hint = "; set options.encoding" if "UTF8" in message else ""
    row = _ROW.search(message)
    if row is None:
        return InvalidContentError(message + hint, "it cannot be parsed" + hint)
    line, text = f"line {block.line_of(int(row[1]) - 1)}", message[row.end() :]
    # The rest of the message is the row itself, whose values may be hidden.
    numbers = _WRONG_WIDTH.match(text)
    return InvalidContentError(f"{line}: {text}{hint}", f"{line}: {numbers[0]}" if numbers else line)
