"""Whether the first row of a CSV file holds the names of its columns, where the file itself makes that certain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from metastore_assets.formats.csv_types import ALL, fitting, preferred

_NAME = re.compile(r"[^\W\d][\w .-]*")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
COMPOUND = r"^([a-z]+(_[a-z]+)+|[A-Z]+(_[A-Z]+)+|[a-z]+([A-Z][a-z]+)+)$"
_USUAL_WORDS = """
    id uid uuid key code name title label type kind class category group status state flag
    date time timestamp day month year hour created updated start end
    value amount price cost total count quantity qty number num no size weight score rank rate currency
    first last user customer account email mail phone address street city zip postal country region county
    lat lon latitude longitude url uri link path file text description comment note message
    source target version index col column field sex gender age language tag color colour unit
"""
USUAL = frozenset(_USUAL_WORDS.split())
_NULLS = frozenset(["", "na", "n/a", "#n/a", "nan", "null", "none", "nil", r"\n", "-", "--", "?", "."])
_YEAR = re.compile(r"(18|19|20)\d\d")
_ENOUGH_ROWS = 20


@dataclass(frozen=True)
class FirstRow:
    """The first row of a file, and how the other rows compare."""

    cells: tuple[str, ...]
    rest: tuple[frozenset[pa.DataType], ...]
    """Types that all other values of each column fit."""
    recurs: tuple[bool, ...]
    """Whether the cell occurs again in its column."""
    has_names: tuple[bool, ...]
    """Whether other values of the column are themselves what columns are often called."""
    other_rows: int
    repeats: bool
    """Whether, in some column, no more than half of the other rows' values are distinct."""

    @property
    def has_types(self) -> bool:
        """Whether any column has other values than texts."""
        return any(map(_is_typed, self.rest))

    @property
    def is_header(self) -> bool | None:
        """Whether it holds names; None when that cannot be told.

        What tells: columns of numbers, dates, times or booleans which the cell above does not fit (names), or does
        (values). Where all columns are texts only names that look like names do.
        """
        typed = [place for place, types in enumerate(self.rest) if _is_typed(types)]
        fits = [place for place in typed if self._fits(place)]
        differs = [place for place in typed if not self._fits(place) and not self._is_null(place)]
        if fits and differs:
            return None
        if differs:
            return True
        if fits:
            return None if self._names_years(fits) else False
        return self._looks_like_names()

    def _fits(self, place: int) -> bool:
        cell = self.cells[place]
        return not self._is_null(place) and bool(_types_of(cell) & {preferred(self.rest[place])})

    def _is_null(self, place: int) -> bool:
        return self.cells[place].strip().lower() in _NULLS

    def _names_years(self, places: Sequence[int]) -> bool:
        """Whether some neighbours are years in a row, which as names of columns are as common as numbers."""
        years = [(place, int(self.cells[place])) for place in places if _YEAR.fullmatch(self.cells[place].strip())]
        return any(b[0] - a[0] == 1 and abs(b[1] - a[1]) == 1 for a, b in pairwise(years))

    def _looks_like_names(self) -> bool | None:
        cells = [(place, cell.strip()) for place, cell in enumerate(self.cells)]
        if not cells[0][1] and pa.int64() in self.rest[0] and self.rest[0] != ALL:
            # The index that pandas writes has no name.
            cells = cells[1:]
        usual = [place for place, cell in cells if is_usual_name(cell)]
        if any(self.recurs[place] for place, cell in cells if cell):
            # Files that were put together keep their headers.
            return None if usual else False
        typed = [cell for _, cell in cells if cell and _is_typed(_types_of(cell))]
        if typed:
            return None if usual or any(map(_YEAR.fullmatch, typed)) else False
        names = [cell for _, cell in cells]
        if not self.other_rows or len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
            return None
        # Rows that repeat each other's values would repeat the first one's, too, were it one of them.
        is_usual = not all(self.has_names[place] for place in usual)
        return True if is_usual or (self.repeats and self.other_rows >= _ENOUGH_ROWS) else None


def is_usual_name(cell: str) -> bool:
    """Whether a text looks like the name of a column more than like a value: `unit_price`, `First name`, `city`."""
    return bool(re.match(COMPOUND, cell)) or not USUAL.isdisjoint(word.lower() for word in _WORD.findall(cell))


def _types_of(cell: str) -> frozenset[pa.DataType]:
    return fitting(pa.array([cell], pa.string()), ALL, [""])


def _is_typed(types: frozenset[pa.DataType]) -> bool:
    return types != ALL and preferred(types) != pa.string()
