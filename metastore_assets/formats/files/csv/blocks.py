"""CSV files as blocks of complete rows in UTF-8, with their line numbers in the file."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.csv.quotes import (
    Backslashes,
    MalformedError,
    Quoting,
    count_breaks,
    find_backslashes,
    scan_quotes,
)
from metastore_assets.formats.files.text_reader import OpenStream
from metastore_assets.storage.compression import HEAD_BYTES, Stream, check_text
from metastore_assets.storage.corrupt_input import InvalidContentError

_LF, _CR = b"\n\r"
_BLANKS = b" \t"
_MIN_READ = 4096
"""The least size of a read. The first bytes show whether the file is text."""


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file with their line breaks."""

    data: bytes
    """The rows in UTF-8, as Arrow parses them."""
    first_line: int
    """Number of its first line in the file, from 1."""
    rows: npt.NDArray[np.int64]
    """For each row, the number of lines of the block before it."""
    rows_and_blanks: npt.NDArray[np.int64]
    """The same for rows and blank lines."""
    width: int
    """An upper bound of the number of columns in the first row."""
    blank: int | None
    """Line number of the first blank line; None without one."""
    blanks_before: int
    """Blank lines before the first block of the file; 0 for later blocks."""
    endings: frozenset[int]
    """Bytes that end rows: carriage returns, line feeds (also after a return)."""
    backslashes: Backslashes | None
    """What its backslashes may mean, if no option says it."""

    def line_of(self, row: int) -> int:
        """Return the line number at which a row begins. Rows are counted from 0, without blank lines."""
        return self.first_line + int(self.rows[row]) if row < len(self.rows) else self.first_line


def blocks(open_stream: OpenStream, options: CsvOptions, size: int) -> Iterator[Block]:
    """Yield the rows of a file in blocks. A file of blank lines is one block without rows; an empty file has no block.

    Args:
        open_stream: opens the file.
        options: how the file is written.
        size: size of a block, about, in bytes. A longer row is refused.

    Raises:
        ArrowInvalid: text is not in the encoding, quotes or escapes are ambiguous, or a row is too long. The
            message has the line.
    """
    with open_stream() as stream:
        source = _Utf8(stream, options.encoding)
        rest, line, is_start, blanks = b"", 1, True, 0
        while True:
            data = rest + source.read(size - len(rest))
            if is_start:
                # The meaning of leading blank lines depends on the number of columns.
                rest = data.lstrip(b"\r\n")
                is_start = not rest
                if is_start and not source.at_end:
                    rest = data[-1:].strip(b"\n")  # A line feed may follow the return.
                blanks += count_breaks(data[: len(data) - len(rest)])
                line = 1 + blanks
                if len(rest) < len(data) and not source.at_end:
                    continue
                data = rest
            is_open = source.at_end and bool(data) and data[-1] not in (_LF, _CR)
            data += b"\n" if is_open else b""
            if not data:
                if blanks:
                    none = np.empty(0, np.int64)
                    yield Block(b"", line, none, none, 0, None, blanks, frozenset(), None)
                return
            try:
                quoting = scan_quotes(data, options, source.at_end)
            except MalformedError as error:
                raise pa.ArrowInvalid(f"line {line + count_breaks(data[: error.offset])}: {error}") from None
            block, end = _block(data, line, quoting, options, source.at_end, is_open, blanks)
            if not end:
                _refuse_unfinished(data, line, quoting, source.at_end)
            yield block
            rest = data[end:]
            line += count_breaks(data[:end])
            blanks = 0
            if source.at_end and not rest:
                return


def _block(
    data: bytes, line: int, quoting: Quoting, options: CsvOptions, is_last: bool, is_open: bool, blanks: int
) -> tuple[Block, int]:
    """Return the complete rows at the beginning, and their size. `is_open`: the file lacks the last line break."""
    text = np.frombuffer(data, np.uint8)
    breaks = text == _LF
    lone = np.empty(0, np.int64)
    if _CR in data:
        returns = np.flatnonzero(text == _CR)
        following = text[np.minimum(returns + 1, len(text) - 1)]
        # The meaning of a return in the last byte depends on the next byte.
        lone = returns[(following != _LF) & ((returns < len(text) - 1) | is_last)]
        breaks[lone] = True
    ends = np.flatnonzero(breaks)
    lines = ends
    if len(quoting.quotes):
        ends = ends[~quoting.quoted(ends)]
    if quoting.escaped_breaks:
        ends = ends[~np.isin(ends, quoting.escaped_breaks)]
    if not len(ends):
        return Block(b"", line, ends, ends, 0, None, blanks, frozenset(), None), 0
    end = int(ends[-1]) + 1
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
    is_blank = (text[starts] == _LF) | (text[starts] == _CR)
    before = np.arange(len(ends)) if len(ends) == len(lines) else np.searchsorted(lines, starts)
    blank = line + int(before[is_blank][0]) if is_blank.any() else None
    endings = frozenset(np.flatnonzero(np.bincount(text[ends[: len(ends) - is_open]])).tolist())
    block_backslashes = None if options.has_escape else find_backslashes(data[:end], quoting, options, line)
    width = data.count(options.delimiter.encode(), 0, int(ends[0])) + 1
    rewritten = _rewritten(data[:end], quoting, options)
    return Block(rewritten, line, before[~is_blank], before, width, blank, blanks, endings, block_backslashes), end


def _rewritten(data: bytes, quoting: Quoting, options: CsvOptions) -> bytes:
    """Rewrite the text for Arrow's parser, which takes every escape as one, and keeps all blanks."""
    if not quoting.literal_escapes and not options.skip_initial_space:
        return data
    text = np.frombuffer(data, np.uint8)
    repeats = np.ones(len(text), np.uint8)
    repeats[[offset for offset in quoting.literal_escapes if offset < len(text)]] = 2
    if options.skip_initial_space:
        blanks = (text == _BLANKS[0]) | (text == _BLANKS[1])
        blanks &= text != ord(options.delimiter)
        changes = np.flatnonzero(np.diff(blanks, prepend=False, append=False))
        starts, ends = changes[0::2], changes[1::2]
        before = text[starts - 1]
        initial = (starts == 0) | (before == ord(options.delimiter)) | (before == _LF) | (before == _CR)
        # The offset after a closing quote is outside of quotes.
        initial |= np.isin(starts, quoting.skipped_blanks)
        dropped = np.zeros(len(text) + 1, np.int8)
        initial &= ~quoting.quoted(starts)
        dropped[starts[initial]] = 1
        dropped[ends[initial]] = -1
        repeats[np.cumsum(dropped[:-1], dtype=np.int8) > 0] = 0
    return np.repeat(text, repeats).tobytes()


def _refuse_unfinished(data: bytes, line: int, quoting: Quoting, is_last: bool) -> None:
    if len(quoting.quotes) % 2:
        line += count_breaks(data[: int(quoting.quotes[-1])])
        end = "the file ends" if is_last else f"{len(data):,} bytes later, which is as long as a row may be"
        raise InvalidContentError(f"line {line}: a quote is opened that is not closed before {end}; set options.quote")
    if is_last:
        raise InvalidContentError(
            f"line {line}: the file ends with an escape; set options.escape_unquoted to false if it stands for itself"
        )
    raise InvalidContentError(f"line {line}: the row is longer than {len(data):,} bytes, the most that is read")


class _Utf8:
    """The text of a file in UTF-8, without a byte order mark."""

    def __init__(self, stream: Stream, encoding: str) -> None:
        self._stream = stream
        # Invalid UTF-8 is reported by the parser.
        self._is_utf8 = codecs.lookup(encoding).name == "utf-8"
        self._is_wide = b"\0" in "a".encode(encoding)
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._written = b""
        self._line = 1
        self._is_start = True
        self._at_end = False

    @property
    def at_end(self) -> bool:
        """Whether all bytes were read."""
        return self._at_end and not self._written

    def read(self, size: int) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        pieces = [self._written]
        length = len(self._written)
        while length <= size and not self._at_end:
            pieces.append(self._next(size - length + 1))
            length += len(pieces[-1])
        data = b"".join(pieces)
        self._written = data[size:]
        return data[:size]

    def _next(self, size: int) -> bytes:
        data: bytes = self._stream.read(max(size, _MIN_READ))
        self._at_end = not data
        if self._is_start:
            check_text(data[:HEAD_BYTES], "set options.encoding", self._is_wide)
        if not self._is_utf8:
            data = self._decoded(data)
        if self._is_start and data:
            self._is_start = False
            data = data.removeprefix(codecs.BOM_UTF8)
        return data

    def _decoded(self, data: bytes) -> bytes:
        try:
            text = self._decoder.decode(data, not data)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode(error.encoding, "replace")
            line = self._line + count_breaks(before.encode())
            raise pa.ArrowInvalid(f"line {line}: {error}; set options.encoding") from error
        written = text.encode()
        self._line += count_breaks(written)
        return written
