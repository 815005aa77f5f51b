"""Errors of CSV files: the line that they are in, and a quote at the end that nothing closes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import pyarrow as pa

from metastore_assets.formats.csv_options import CsvOptions
from metastore_assets.formats.text_reader import OpenStream

_ROW = re.compile(r"Row #(\d+): ")
"""Where Arrow's messages tell the row, counted from 1, the header included, blank lines not."""


_TAIL_BYTES = 64


class Tail(io.RawIOBase):
    """A file's content, of which the last bytes that were read stay known."""

    def __init__(self, open_stream: OpenStream) -> None:
        super().__init__()
        self._open_stream = open_stream
        self._stream: pa.NativeFile | None = None
        self.bytes = b""

    def open(self) -> pa.NativeFile:
        """The content from its beginning."""
        self._stream = self._open_stream()
        return pa.PythonFile(self, mode="r")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        assert self._stream is not None
        data: bytes = self._stream.read(size if size >= 0 else None)
        self.bytes = (self.bytes + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        return data

    def close(self) -> None:
        # Itself it stays usable: a file is opened again to find the line of an error.
        if self._stream is not None:
            self._stream.close()


def check_closed(last: str | None, tail: Tail, options: CsvOptions) -> None:
    """Raise ArrowInvalid when the last value was quoted, as what is in it shows, and no quote is at the file's end.

    Arrow takes all that is left for the value then: rows would be missing. With an escape character nothing shows it.
    """
    if options.quote is None or options.escape is not None or not last:
        return
    if not any(char in last for char in ("\n", "\r", options.delimiter)):
        return
    if len(options.quote.encode(options.encoding)) > 1:
        return  # In UTF-16 and its like the last bytes alone cannot be read.
    # The first of the bytes may be the middle of a character.
    if not tail.bytes.decode(options.encoding, "replace").rstrip("\r\n\0").endswith(options.quote):
        raise pa.ArrowInvalid("a quote is opened that is not closed before the file ends; set options.quote")


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
