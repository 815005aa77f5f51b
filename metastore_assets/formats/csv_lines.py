"""Errors of CSV files with the line that they are in."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import pyarrow as pa

from metastore_assets.formats.csv_options import CsvOptions
from metastore_assets.formats.text_reader import OpenStream

_ROW = re.compile(r"Row #(\d+): ")
"""Where Arrow's messages tell the row, counted from 1, the header included, blank lines not."""


def located(error: pa.ArrowInvalid, open_stream: OpenStream, options: CsvOptions) -> pa.ArrowInvalid:
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
