"""CSV files as blocks of complete rows in UTF-8, with line numbers for messages."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, replace

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
"""Minimum bytes of a read. The first read must suffice to recognise content that is no text."""


@dataclass(frozen=True)
class RowBlock:
    """Consecutive complete rows of a file, with their line numbers."""

    data: bytes
    """The rows in UTF-8, rewritten so that Arrow parses them as the options say."""
    first_line: int
    """Number of the block's first line in the file, from 1."""
    rows: npt.NDArray[np.int64]
    """For each row that is not blank, the number of lines before it in this block."""
    rows_and_blanks: npt.NDArray[np.int64]
    """For each row, blank lines included, the number of lines before it in this block."""
    width: int
    """Upper bound of the number of columns of the first row. Delimiters in quotes are counted too."""
    blank: int | None
    """Line number of the block's first blank line; None without blank lines."""
    blanks_before: int
    """In the first block of a file, the number of blank lines before it; else 0."""
    endings: frozenset[int]
    """Which bytes end rows: carriage returns, line feeds, or both. A pair of both counts as a line feed."""
    backslashes: Backslashes | None
    """The evidence of whether backslashes are escapes; None if the block has none, or if an option decides."""

    def line_of(self, row: int) -> int:
        """Return the number of the line of the file, from 1, at which a row of this block begins.

        Args:
            row: An index into `rows`, which omits blank lines. If `rows` has no such index, the result is the line at
                which the block begins.
        """
        return self.first_line + int(self.rows[row]) if row < len(self.rows) else self.first_line


def read_blocks(open_stream: OpenStream, options: CsvOptions, size: int) -> Iterator[RowBlock]:
    """Yield the rows of a file in blocks.

    Blank lines before the first row are in no block, but the first block records how many there are. A file with only
    blank lines results in one block without rows. An empty file results in no block.

    Args:
        open_stream: opens the file.
        options: how the file is written.
        size: approximate size of a block in bytes. A longer row is an error.

    Raises:
        ArrowInvalid: text is not in the encoding, quotes or escapes are ambiguous, or a row is too long. The message
            has the line number.
    """
    with open_stream() as stream:
        source = _Utf8Reader(stream, options.encoding)
        ignored_bytes = b"\r\n" + (_ignored_blanks(options) if options.skip_initial_space else b"")
        remainder, line, is_start, blanks = b"", 1, True, 0
        while True:
            data = remainder + source.read(size - len(remainder))
            if is_start:
                # Whether blank lines before the first row are rows depends on its number of columns.
                content = data.lstrip(ignored_bytes)
                breaks = data[: len(data) - len(content)].rstrip(_BLANKS)
                remainder = data[len(breaks) :]
                is_start = not content and (source.at_end or len(remainder) < size)
                if is_start and source.at_end:
                    blanks += bool(remainder)  # The last line has blanks and no line break.
                    remainder = b""
                elif is_start and not remainder and breaks.endswith(b"\r"):
                    # The line feed of this carriage return may be in the next read.
                    breaks, remainder = breaks[:-1], b"\r"
                blanks += count_breaks(breaks)
                line = 1 + blanks
                if len(remainder) < len(data) and not source.at_end:
                    continue
                data = remainder
            lacks_break = source.at_end and bool(data) and data[-1] not in (_LF, _CR)
            if lacks_break:
                # A line feed would become one line break with a carriage return before ignored blanks.
                data += b"\r" if data.rfind(b"\r") > data.rfind(b"\n") else b"\n"
            if not data:
                if blanks:
                    yield replace(_no_rows(line), blanks_before=blanks)
                return
            try:
                quoting = scan_quotes(data, options, source.at_end)
            except MalformedError as error:
                raise pa.ArrowInvalid(f"line {line + count_breaks(data[: error.offset])}: {error}") from None
            window = _Window(data, line, quoting, source.at_end)
            block, end = _complete_rows(window, options, lacks_break=lacks_break)
            if not end:
                _refuse_incomplete_row(window)
            yield replace(block, blanks_before=blanks)
            remainder = data[end:]
            line += count_breaks(data[:end])
            blanks = 0
            if source.at_end and not remainder:
                return


@dataclass(frozen=True)
class _Window:
    """The part of a file that is in memory.

    It begins at the start of a row, and may end within a row.
    """

    data: bytes
    first_line: int
    """Number of the first line in the file, from 1."""
    quoting: Quoting
    is_last: bool
    """Whether the part ends with the file."""


def _complete_rows(window: _Window, options: CsvOptions, *, lacks_break: bool) -> tuple[RowBlock, int]:
    """Return the complete rows at the beginning of a window.

    Args:
        window: the text.
        options: how the file is written.
        lacks_break: whether the file ends without a line break, so that one was added to the window.

    Returns:
        The rows, and their size in bytes. Without a complete row, the size is 0.
    """
    data, quoting, line = window.data, window.quoting, window.first_line
    text = np.frombuffer(data, np.uint8)
    breaks = text == _LF
    if _CR in data:
        returns = np.flatnonzero(text == _CR)
        next_bytes = text[np.minimum(returns + 1, len(text) - 1)]
        # The next byte decides whether a carriage return at the end is a line break of its own.
        breaks[returns[(next_bytes != _LF) & ((returns < len(text) - 1) | window.is_last)]] = True
    all_breaks = ends = np.flatnonzero(breaks)
    if len(quoting.quotes):
        ends = ends[~quoting.quoted(ends)]
    if quoting.escaped_breaks:
        ends = ends[~np.isin(ends, quoting.escaped_breaks)]
    if not len(ends):
        return _no_rows(line), 0
    end = int(ends[-1]) + 1
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
    first_bytes = text[starts]
    if options.skip_initial_space:
        contents = np.flatnonzero(~np.isin(text, np.frombuffer(_ignored_blanks(options), np.uint8)))
        first_bytes = text[contents[np.searchsorted(contents, starts)]]
    is_blank = (first_bytes == _LF) | (first_bytes == _CR)
    lines_before = np.arange(len(ends)) if len(ends) == len(all_breaks) else np.searchsorted(all_breaks, starts)
    blank = line + int(lines_before[is_blank][0]) if is_blank.any() else None
    endings = frozenset(np.flatnonzero(np.bincount(text[ends[: len(ends) - lacks_break]])).tolist())
    block_backslashes = None if options.has_escape else find_backslashes(data[:end], quoting, options, line)
    first_end = int(ends[np.argmin(is_blank)])
    width = data.count(options.delimiter.encode(), 0, first_end) + 1
    rewritten = _rewrite_for_arrow(data[:end], quoting, options)
    rows = lines_before[~is_blank]
    return RowBlock(rewritten, line, rows, lines_before, width, blank, 0, endings, block_backslashes), end


def _rewrite_for_arrow(data: bytes, quoting: Quoting, options: CsvOptions) -> bytes:
    """Rewrite rows so that Arrow parses them as the options say.

    Escape characters that are part of a value are doubled. With `skip_initial_space`, blanks at the beginning of values
    and after closing quotes are removed.
    """
    if not quoting.literal_escapes and not options.skip_initial_space:
        return data
    text = np.frombuffer(data, np.uint8)
    repeats = np.ones(len(text), np.uint8)
    repeats[[offset for offset in quoting.literal_escapes if offset < len(text)]] = 2
    if options.skip_initial_space:
        blanks = np.isin(text, np.frombuffer(_ignored_blanks(options), np.uint8))
        changes = np.flatnonzero(np.diff(blanks, prepend=False, append=False))
        starts, ends = changes[0::2], changes[1::2]
        before = text[starts - 1]
        initial = (starts == 0) | (before == ord(options.delimiter)) | (before == _LF) | (before == _CR)
        # `quoted` counts the offset after a closing quote as outside of quotes.
        initial |= np.isin(starts, quoting.skipped_blanks)
        drop_changes = np.zeros(len(text) + 1, np.int8)
        initial &= ~quoting.quoted(starts)
        # A delimiter or line break after an escape is part of the value, and so are blanks after it.
        initial &= ~np.isin(starts - 1, [*quoting.escaped_breaks, *quoting.escaped_delimiters])
        drop_changes[starts[initial]] = 1
        drop_changes[ends[initial]] = -1
        repeats[np.cumsum(drop_changes[:-1], dtype=np.int8) > 0] = 0
    return np.repeat(text, repeats).tobytes()


def _ignored_blanks(options: CsvOptions) -> bytes:
    """Return the bytes that the option `skip_initial_space` ignores before values."""
    return _BLANKS.replace(options.delimiter.encode(), b"")


def _no_rows(line: int) -> RowBlock:
    no_lines = np.empty(0, np.int64)
    return RowBlock(b"", line, no_lines, no_lines, 0, None, 0, frozenset(), None)


def _refuse_incomplete_row(window: _Window) -> None:
    """Raise ArrowInvalid, because the window has no complete row.

    The message has the cause: a quote is not closed, the file ends with an escape, or the row is too long.
    """
    data, line, quoting, is_last = window.data, window.first_line, window.quoting, window.is_last
    if len(quoting.quotes) % 2:
        line += count_breaks(data[: int(quoting.quotes[-1])])
        end = "the file ends" if is_last else f"{len(data):,} bytes later, which is as long as a row may be"
        raise InvalidContentError(f"line {line}: a quote is opened that is not closed before {end}; set options.quote")
    if is_last:
        raise InvalidContentError(
            f"line {line}: the file ends with an escape; set options.escape_unquoted to false if it stands for itself"
        )
    raise InvalidContentError(f"line {line}: the row is longer than {len(data):,} bytes, the most that is read")


class _Utf8Reader:
    """A reader of a file's text in UTF-8, without a byte order mark."""

    def __init__(self, stream: Stream, encoding: str) -> None:
        self._stream = stream
        # UTF-8 is not decoded here. Arrow's parser reports invalid bytes.
        self._is_utf8 = codecs.lookup(encoding).name == "utf-8"
        self._is_wide = b"\0" in "a".encode(encoding)
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._pending = b""
        self._line = 1
        self._is_start = True
        self._at_end = False

    @property
    def at_end(self) -> bool:
        """Whether all bytes were read."""
        return self._at_end and not self._pending

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes; fewer only at the end of the file."""
        pieces = [self._pending]
        length = len(self._pending)
        while length <= size and not self._at_end:
            pieces.append(self._next(size - length + 1))
            length += len(pieces[-1])
        data = b"".join(pieces)
        self._pending = data[size:]
        return data[:size]

    def _next(self, size: int) -> bytes:
        """Read the next bytes of the stream, and return them in UTF-8 without a byte order mark.

        At most `size` bytes are read, or _MIN_READ if `size` is less.
        """
        data: bytes = self._stream.read(max(size, _MIN_READ))
        self._at_end = not data
        if self._is_start:
            check_text(data[:HEAD_BYTES], "set options.encoding", self._is_wide)
        if not self._is_utf8:
            data = self._decode(data)
        if self._is_start and data:
            self._is_start = False
            data = data.removeprefix(codecs.BOM_UTF8)
        return data

    def _decode(self, data: bytes) -> bytes:
        """Convert bytes in the file's encoding to UTF-8.

        Empty `data` marks the end of the file.

        Raises ArrowInvalid if the bytes are not in this encoding. The message has the number of the line.
        """
        try:
            text = self._decoder.decode(data, not data)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode(error.encoding, "replace")
            line = self._line + count_breaks(before.encode())
            raise pa.ArrowInvalid(f"line {line}: {error}; set options.encoding") from error
        utf8_text = text.encode()
        self._line += count_breaks(utf8_text)
        return utf8_text
