"""Search for quotes and escapes in CSV text.

Text whose meaning is ambiguous is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from metastore_assets.formats.files.csv.options import CsvOptions

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_LF, _CR, _SPACE, _TAB, _BACKSLASH = b"\n\r \t\\"
_LITERAL_LETTER = ord("N")
r"""`\N` means null. An escape before another letter or digit may stand for another character, as in `\t`."""


class MalformedError(Exception):
    """An error in text that is malformed or ambiguous.

    The message names the option that resolves it.
    """

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass
class Quoting:
    """The positions of quotes and escapes in a text."""

    quotes: Offsets
    """Offsets of opening and closing quotes in turn. If their number is odd, the last one is not closed."""
    escaped_breaks: list[int] = field(default_factory=list)
    """Offsets of escaped line breaks outside of quotes. They are part of values."""
    escaped_delimiters: list[int] = field(default_factory=list)
    """Offsets of escaped delimiters outside of quotes. They are part of values."""
    literal_escapes: list[int] = field(default_factory=list)
    """Offsets of escape characters that escape nothing, so that they are part of a value."""
    skipped_blanks: list[int] = field(default_factory=list)
    """Offsets at which ignored blanks begin, each after a closing quote."""
    doubled: int = 0
    """Number of doubled quotes, each of which is one quote in a value."""

    def quoted(self, offsets: Offsets) -> npt.NDArray[np.bool_]:
        """Return for each offset whether it is inside of quotes."""
        inside: npt.NDArray[np.bool_] = np.searchsorted(self.quotes, offsets) % 2 == 1
        return inside


def scan_quotes(data: bytes, options: CsvOptions, is_last: bool) -> Quoting:
    """Find the quotes and escapes of a text that begins at the start of a row.

    Args:
        data: the text.
        options: how the file is written.
        is_last: whether the text ends with the file.

    Raises:
        MalformedError: a value continues after its closing quote, or the meaning of a quote or an escape is ambiguous.
    """
    if options.quote is None and options.escape is None:
        return Quoting(np.empty(0, np.int64))
    if options.escape is None:
        block = np.frombuffer(data, np.uint8)
        offsets = np.flatnonzero(block == ord(options.quote or ""))
        if _is_unambiguous(block, offsets, options):
            doubled_count = int(np.count_nonzero(offsets[1:-1:2] + 1 == offsets[2::2]))
            return Quoting(offsets, doubled=doubled_count)
    return _QuoteScanner(data, options, is_last).result()


@dataclass(frozen=True)
class Backslashes:
    """Evidence from a text on whether its backslashes are escapes or part of values."""

    line: int
    """Line number of the first backslash; if quotes are doubled, of the beginning of the text."""
    are_paired: bool | None
    """Whether all backslashes in quotes are in pairs, as Spark writes one backslash. None if there are none in quotes.
    """
    are_escapes: bool | None
    """Whether each backslash outside of quotes is in a pair, or precedes a quote, delimiter or line break. None if
    there are none outside."""

    @property
    def are_ambiguous(self) -> bool:
        """Whether the backslashes may be escapes, but may also stand for themselves.

        Backslashes in quotes decide, if there are any: the result is then `are_paired`. Otherwise, the result is True
        if `are_escapes` is true.
        """
        return self.are_paired is True or (self.are_escapes is True and self.are_paired is None)

    def merge(self, other: Backslashes | None) -> Backslashes:
        """Return the combined evidence from this text and from another text by the same writer.

        The line number in the result is that of this text.

        Args:
            other: the evidence from the other text; None without evidence.
        """
        if other is None:
            return self
        return Backslashes(
            self.line,
            _merge_flags(self.are_paired, other.are_paired),
            _merge_flags(self.are_escapes, other.are_escapes),
        )


def find_backslashes(data: bytes, quoting: Quoting, options: CsvOptions, first_line: int) -> Backslashes | None:
    """Return the evidence on whether the backslashes of a text are escapes; None without evidence.

    Args:
        data: the text.
        quoting: the quotes of the text. A doubled quote is evidence that backslashes are no escapes.
        options: how the file is written.
        first_line: line number of the text in its file.
    """
    if quoting.doubled:
        # Writers that double quotes do not use escapes.
        return Backslashes(first_line, False, False)
    if b"\\" not in data:
        return None
    text = np.frombuffer(data, np.uint8)
    offsets = np.flatnonzero(text == _BACKSLASH)
    run_starts = np.flatnonzero(np.diff(offsets, prepend=-2) != 1)
    run_lengths = np.diff(run_starts, append=len(offsets))
    is_special = np.zeros(256, np.bool_)
    is_special[[ord(options.delimiter), _LF, _CR, ord(options.quote or "\n")]] = True
    precedes_special = is_special[text[np.minimum(offsets[run_starts] + run_lengths, len(text) - 1)]]
    is_quoted = quoting.quoted(offsets[run_starts])
    are_pairs = run_lengths % 2 == 0
    return Backslashes(
        first_line + count_breaks(data[: int(offsets[0])]),
        bool(are_pairs[is_quoted].all()) if is_quoted.any() else None,
        bool((are_pairs | precedes_special)[~is_quoted].all()) if not is_quoted.all() else None,
    )


def _merge_flags(first: bool | None, second: bool | None) -> bool | None:
    """Return whether the flags that are not None are all true; None if both are None."""
    if first is None or second is None:
        return second if first is None else first
    return first and second


def count_breaks(data: bytes) -> int:
    """Return the number of line breaks in a text.

    A carriage return followed by a line feed is one line break.
    """
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _is_unambiguous(block: Bytes, offsets: Offsets, options: CsvOptions) -> bool:
    """Return whether each quote clearly opens a value, closes a value, or is doubled."""
    if not len(offsets):
        return True
    is_boundary = np.zeros(256, np.bool_)
    is_boundary[[ord(options.delimiter), _LF, _CR, ord(options.quote or "")]] = True
    openings, closings = offsets[0::2], offsets[1::2]
    checked_openings = openings[1:] if openings[0] == 0 else openings
    checked_closings = closings[:-1] if len(closings) and closings[-1] == len(block) - 1 else closings
    return bool(is_boundary[block[checked_openings - 1]].all() and is_boundary[block[checked_closings + 1]].all())


class _QuoteScanner:
    """A scanner that interprets quotes and escapes one by one.

    It is for texts in which the meaning of a quote depends on earlier quotes.
    """

    def __init__(self, data: bytes, options: CsvOptions, is_last: bool) -> None:
        self._data = data
        self._options = options
        self._is_last = is_last
        self._quote = -1 if options.quote is None else ord(options.quote)
        self._escape = -1 if options.escape is None else ord(options.escape)
        self._delimiter = ord(options.delimiter)
        self._ends = (self._delimiter, _LF, _CR)
        self._offsets: list[int] = []
        self._last_escaped = -1
        self._quoting = Quoting(np.empty(0, np.int64))

    def result(self) -> Quoting:
        """Scan the text, and return its quotes and escapes.

        Call it only once.
        """
        block = np.frombuffer(self._data, np.uint8)
        events = np.flatnonzero((block == self._quote) | (block == self._escape)).tolist()
        # A quote or escape may be consumed together with the one before it.
        last_consumed = -1
        for offset in events:
            if offset > last_consumed:
                last_consumed = self._scan_inside(offset) if len(self._offsets) % 2 else self._scan_outside(offset)
        self._quoting.quotes = np.array(self._offsets, np.int64)
        return self._quoting

    def _at(self, offset: int) -> int:
        """Return the byte at an offset; -1 after the end."""
        return self._data[offset] if offset < len(self._data) else -1

    def _scan_inside(self, offset: int) -> int:
        """Interpret a quote or escape inside of quotes, and return the offset of its last byte.

        Raises MalformedError if the value continues after its closing quote.
        """
        next_byte = self._at(offset + 1)
        if self._at(offset) == self._escape:
            if next_byte in (self._quote, self._escape, *self._ends):
                return offset + 1
            self._quoting.literal_escapes.append(offset)
            return offset
        if next_byte == self._quote:
            self._quoting.doubled += 1
            return offset + 1
        if next_byte not in self._ends and next_byte != -1:
            next_byte = self._byte_after_blanks(offset)
        if next_byte not in self._ends and (next_byte != -1 or self._is_last):
            self._refuse_text_after_quote(offset)
        self._offsets.append(offset)
        return offset

    def _byte_after_blanks(self, offset: int) -> int:
        """Return the first byte after a closing quote and after blanks that are skipped.

        The result is -1 at the end of the text. Blanks are skipped if `skip_initial_space` is true, and a delimiter, a
        line break or the end of the text follows them. The offset of the first skipped blank is then added to
        `self._quoting.skipped_blanks`.

        Args:
            offset: the offset of the closing quote.
        """
        end = offset + 1
        while self._at(end) in (_SPACE, _TAB) and self._at(end) != self._delimiter:
            end += 1
        next_byte = self._at(end)
        if self._options.skip_initial_space is not True or (next_byte not in self._ends and next_byte != -1):
            return self._at(offset + 1)
        self._quoting.skipped_blanks.append(offset + 1)
        return next_byte

    def _scan_outside(self, offset: int) -> int:
        """Interpret a quote or escape outside of quotes, and return the offset of its last byte.

        The offset of an opening quote is recorded. A quote inside of a value is part of the value, and is not recorded.

        Raises MalformedError for an ambiguous quote or escape.
        """
        if self._at(offset) == self._escape:
            return self._scan_escape(offset)
        start = offset
        while start and self._at(start - 1) in (_SPACE, _TAB) and self._at(start - 1) != self._delimiter:
            start -= 1
        if start and (self._at(start - 1) not in self._ends or start - 1 == self._last_escaped):
            if self._at(offset - 1) == _BACKSLASH and not self._options.has_escape:
                raise MalformedError(
                    offset,
                    f"\\{self._options.quote} stands in a value without quotes; set options.escape to '\\' if the "
                    "backslash is no part of the value, else to ''",
                )
            return offset  # The quote is part of a value, as in `5" pipe`.
        if start < offset:
            if self._options.skip_initial_space is None:
                raise MalformedError(
                    start,
                    "there are blanks before a quote; set options.skip_initial_space to true if they are nothing, or "
                    "to false if blanks and quotes are part of the value",
                )
            if not self._options.skip_initial_space:
                return offset
        self._offsets.append(offset)
        return offset

    def _scan_escape(self, offset: int) -> int:
        """Interpret the escape at an offset outside of quotes, and return the offset of its last byte.

        Raises MalformedError if the meaning of the escape is ambiguous.
        """
        next_byte = self._at(offset + 1)
        letter = chr(next_byte) if 32 < next_byte < 127 else ""
        if self._options.escape_unquoted is None and self._options.quote is not None:
            raise MalformedError(
                offset,
                f"{self._options.escape}{letter} stands in a value without quotes; set options.escape_unquoted to true "
                "if an escape counts there (Python, pandas, MySQL) or to false if not (Spark)",
            )
        if next_byte in (self._quote, self._escape, *self._ends) and self._options.escape_unquoted is not False:
            if next_byte in (_LF, _CR):
                self._quoting.escaped_breaks.append(offset + 1)
            elif next_byte == self._delimiter:
                self._quoting.escaped_delimiters.append(offset + 1)
            elif next_byte == self._escape:
                self._check_not_null(offset)
            self._last_escaped = offset + 1
            return offset + 1
        if letter.isalnum() and next_byte != _LITERAL_LETTER and self._options.escape_unquoted is not False:
            raise MalformedError(
                offset,
                f"{self._options.escape}{letter} may stand for another character, which is not read; set "
                "options.escape_unquoted to false if it stands for itself",
            )
        self._quoting.literal_escapes.append(offset)
        return offset

    def _check_not_null(self, offset: int) -> None:
        r"""Raise MalformedError if a whole value is written `\\N`, and `\N` is one of `options.null_values`.

        Such a value is the text `\N` and no null. Once its escape is resolved, both would look the same.

        This is for a backslash as the escape character. For `!`, the value is written `!!N`, and the null is `!N`.

        Args:
            offset: The position of the first of two escape characters. A value that has more than these two and `N` is
                accepted.
        """
        null = f"{self._options.escape}{chr(_LITERAL_LETTER)}"
        is_start = not offset or (self._at(offset - 1) in self._ends and offset - 1 != self._last_escaped)
        is_value = is_start and self._at(offset + 2) == _LITERAL_LETTER and self._at(offset + 3) in self._ends
        if is_value and null in (self._options.null_values or ()):
            raise MalformedError(
                offset,
                f"{self._options.escape}{null} is the text {null}, which is no null here, but options.null_values "
                f"takes {null} for null in all values; leave {null} out of it, or write the text in another way",
            )

    def _refuse_text_after_quote(self, offset: int) -> None:
        """Raise MalformedError for a value that continues after the closing quote at an offset."""
        quote = self._options.quote
        value = self._data[self._offsets[-1] : offset + 1]
        hint = f"set options.quote to '' if {quote} is part of the values"
        if self._escape == -1 and bytes((_BACKSLASH, self._quote)) in value:
            hint = r"set options.escape to '\' if the quote is part of the value, as Spark writes it"
        elif self._at(offset + 1) in (_SPACE, _TAB):
            hint = f"set options.skip_initial_space to true if blanks behind a quote are nothing; else {hint}"
        else:
            hint += ", or options.escape to what stands before a quote in a value"
        raise MalformedError(self._offsets[-1], f"a quoted value goes on behind its closing quote; {hint}")
