"""Quotes and escapes of CSV text: where a value is quoted, and what no reader could be sure of."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from metastore_assets.formats.files.csv.options import CsvOptions

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

_LF, _CR, _SPACE, _TAB, _BACKSLASH = b"\n\r \t\\"
_LITERAL_LETTER = ord("N")
"""`\\N` is a word for null; before other letters and digits an escape would make another character of them."""


class MalformedError(Exception):
    """What is wrong with the text at a place, and which option decides."""

    def __init__(self, place: int, message: str) -> None:
        super().__init__(message)
        self.place = place


@dataclass
class Quoting:
    """What quotes and escapes say of a block of whole and cut off rows."""

    quotes: Places
    """Where quoted parts begin and end by turns; one at the end may be open."""
    escaped: list[int] = field(default_factory=list)
    """Line breaks that end no row, outside of quotes."""
    literal: list[int] = field(default_factory=list)
    """Escapes that stand for themselves."""
    nothing: list[int] = field(default_factory=list)
    """Where blanks begin behind a closing quote that count for nothing."""
    doubled: int = 0
    """Quotes that are doubled inside of quotes."""

    def quoted(self, places: Places) -> npt.NDArray[np.bool_]:
        """Which of the places are inside of quotes."""
        inside: npt.NDArray[np.bool_] = np.searchsorted(self.quotes, places) % 2 == 1
        return inside


def quoting(data: bytes, options: CsvOptions, is_last: bool) -> Quoting:
    """Where the values of text, which begins with a row, are quoted.

    Raises MalformedError for a value that goes on behind its closing quote, and where it is not certain what an escape
    or a quote behind blanks means.
    """
    if options.quote is None and options.escape is None:
        return Quoting(np.empty(0, np.int64))
    if options.escape is None:
        block = np.frombuffer(data, np.uint8)
        places = np.flatnonzero(block == ord(options.quote or ""))
        if _is_strict(block, places, options):
            doubled = int(np.count_nonzero(places[1:-1:2] + 1 == places[2::2]))
            return Quoting(places, doubled=doubled)
    return _Walk(data, options, is_last).result()


@dataclass(frozen=True)
class Backslashes:
    """What backslashes in a text may mean where no option says it."""

    line: int
    """Of the first one."""
    in_pairs: bool | None
    """Whether those in quotes all come in pairs, of which each may stand for one, as Spark writes; None: none are."""
    may_escape: bool | None
    """Whether those outside of quotes do, or stand before what means something; None: none are."""

    @property
    def are_doubtful(self) -> bool:
        """Whether they may be escapes: those in quotes, or all."""
        return self.in_pairs is True or (self.may_escape is True and self.in_pairs is None)

    def and_of(self, other: Backslashes | None) -> Backslashes:
        """What is told by two texts that are written in one way."""
        if other is None:
            return self
        return Backslashes(self.line, _both(self.in_pairs, other.in_pairs), _both(self.may_escape, other.may_escape))


def backslashes(data: bytes, found: Quoting, options: CsvOptions, first_line: int) -> Backslashes | None:
    """What the backslashes of a text that begins with that line may mean; None when nothing is told of them."""
    if found.doubled:
        # Who writes a quote as two does not escape.
        return Backslashes(first_line, False, False)
    if b"\\" not in data:
        return None
    text = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(text == _BACKSLASH)
    starts = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    lengths = np.diff(starts, append=len(places))
    special = np.zeros(256, np.bool_)
    special[[ord(options.delimiter), _LF, _CR, ord(options.quote or "\n")]] = True
    following = special[text[np.minimum(places[starts] + lengths, len(text) - 1)]]
    is_quoted = found.quoted(places[starts])
    are_pairs = lengths % 2 == 0
    return Backslashes(
        first_line + count_breaks(data[: int(places[0])]),
        bool(are_pairs[is_quoted].all()) if is_quoted.any() else None,
        bool((are_pairs | following)[~is_quoted].all()) if not is_quoted.all() else None,
    )


def _both(one: bool | None, other: bool | None) -> bool | None:
    return one and other if one is not None and other is not None else one if other is None else other


def count_breaks(data: bytes) -> int:
    """How many lines end in a text."""
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _is_strict(block: Bytes, places: Places, options: CsvOptions) -> bool:
    """Whether every quote opens a value, closes it, or is doubled in one."""
    if not len(places):
        return True
    around = np.zeros(256, np.bool_)
    around[[ord(options.delimiter), _LF, _CR, ord(options.quote or "")]] = True
    opening, closing = places[0::2], places[1::2]
    before = opening[1:] if opening[0] == 0 else opening
    behind = closing[:-1] if len(closing) and closing[-1] == len(block) - 1 else closing
    return bool(around[block[before - 1]].all() and around[block[behind + 1]].all())


class _Walk:
    """Quotes and escapes one by one, where what one of them means depends on those before."""

    def __init__(self, data: bytes, options: CsvOptions, is_last: bool) -> None:
        self._data = data
        self._options = options
        self._is_last = is_last
        self._quote = -1 if options.quote is None else ord(options.quote)
        self._escape = -1 if options.escape is None else ord(options.escape)
        self._delimiter = ord(options.delimiter)
        self._ends = (self._delimiter, _LF, _CR)
        self._places: list[int] = []
        self._escaped = -1
        self._found = Quoting(np.empty(0, np.int64))

    def result(self) -> Quoting:
        block = np.frombuffer(self._data, np.uint8)
        events = np.flatnonzero((block == self._quote) | (block == self._escape)).tolist()
        # One that has been dealt with together with the one before is skipped.
        done = -1
        for place in events:
            if place > done:
                done = self._inside(place) if len(self._places) % 2 else self._outside(place)
        self._found.quotes = np.array(self._places, np.int64)
        return self._found

    def _at(self, place: int) -> int:
        """The byte at a place; none behind the end."""
        return self._data[place] if place < len(self._data) else -1

    def _inside(self, place: int) -> int:
        following = self._at(place + 1)
        if self._at(place) == self._escape:
            if following in (self._quote, self._escape, *self._ends):
                return place + 1
            self._found.literal.append(place)
            return place
        if following == self._quote:
            self._found.doubled += 1
            return place + 1
        if following not in self._ends and following != -1:
            following = self._behind_blanks(place)
        if following not in self._ends and (following != -1 or self._is_last):
            self._refuse_behind_quote(place)
        self._places.append(place)
        return place

    def _behind_blanks(self, place: int) -> int:
        """What follows a closing quote and blanks, where blanks there count for nothing; else what follows."""
        end = place + 1
        while self._at(end) in (_SPACE, _TAB) and self._at(end) != self._delimiter:
            end += 1
        following = self._at(end)
        if self._options.skip_initial_space is not True or (following not in self._ends and following != -1):
            return self._at(place + 1)
        self._found.nothing.append(place + 1)
        return following

    def _outside(self, place: int) -> int:
        if self._at(place) == self._escape:
            return self._escape_outside(place)
        start = place
        while start and self._at(start - 1) in (_SPACE, _TAB) and self._at(start - 1) != self._delimiter:
            start -= 1
        if start and (self._at(start - 1) not in self._ends or start - 1 == self._escaped):
            if self._at(place - 1) == _BACKSLASH and not self._options.has_escape:
                raise MalformedError(
                    place,
                    f"\\{self._options.quote} stands in a value without quotes; set options.escape to '\\' if the "
                    "backslash is no part of the value, else to ''",
                )
            return place  # Text, as in `5" pipe`.
        if start < place:
            if self._options.skip_initial_space is None:
                raise MalformedError(
                    start,
                    "there are blanks before a quote; set options.skip_initial_space to true if they are nothing, or "
                    "to false if blanks and quotes are part of the value",
                )
            if not self._options.skip_initial_space:
                return place
        self._places.append(place)
        return place

    def _escape_outside(self, place: int) -> int:
        following = self._at(place + 1)
        letter = chr(following) if 32 < following < 127 else ""
        if self._options.escape_unquoted is None and self._options.quote is not None:
            raise MalformedError(
                place,
                f"{self._options.escape}{letter} stands in a value without quotes; set options.escape_unquoted to true "
                "if an escape counts there (Python, pandas, MySQL) or to false if not (Spark)",
            )
        if following in (self._quote, self._escape, *self._ends) and self._options.escape_unquoted is not False:
            if following in (_LF, _CR):
                self._found.escaped.append(place + 1)
            self._escaped = place + 1
            return place + 1
        if letter.isalnum() and following != _LITERAL_LETTER and self._options.escape_unquoted is not False:
            raise MalformedError(
                place,
                f"{self._options.escape}{letter} may stand for another character, which is not read; set "
                "options.escape_unquoted to false if it stands for itself",
            )
        self._found.literal.append(place)
        return place

    def _refuse_behind_quote(self, place: int) -> None:
        quote = self._options.quote
        value = self._data[self._places[-1] : place + 1]
        hint = f"set options.quote to '' if {quote} is part of the values"
        if self._escape == -1 and bytes((_BACKSLASH, self._quote)) in value:
            hint = r"set options.escape to '\' if the quote is part of the value, as Spark writes it"
        elif self._at(place + 1) in (_SPACE, _TAB):
            hint = f"set options.skip_initial_space to true if blanks behind a quote are nothing; else {hint}"
        else:
            hint += ", or options.escape to what stands before a quote in a value"
        raise MalformedError(self._places[-1], f"a quoted value goes on behind its closing quote; {hint}")
