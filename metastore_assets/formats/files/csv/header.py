"""Whether the first row of a CSV file holds the names of its columns, where the file itself makes that certain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.files.csv.types import ALL, fitting, preferred
from metastore_assets.lazy import pc

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
_UNKNOWN_HEADER = (
    "its first row may be the names of the columns or values: nothing tells; set options.header to true or false"
)
_NAME_LIKE, _VALUE_LIKE, _UNLIKE, _SILENT = "name", "value", "neither", "silent"


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

    @classmethod
    def of(cls, batch: pa.RecordBatch, rest: Sequence[frozenset[pa.DataType]], other_rows: int) -> FirstRow:
        """From the first rows of a file as texts, and what types the values of all others fit."""
        columns = [pc.fill_null(column, "") for column in batch.columns]
        cells = tuple(column[0].as_py() for column in columns)
        others = [column.slice(1) for column in columns]
        return cls(
            cells,
            tuple(rest),
            tuple(bool(pc.any(pc.equal(column, cell)).as_py()) for column, cell in zip(others, cells, strict=True)),
            tuple(map(_has_names, others)),
            other_rows,
            any(pc.count_distinct(column).as_py() * 2 <= len(column) for column in others),
        )

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
        evidence = [self._compared(place) for place, types in enumerate(self.rest) if _is_typed(types)]
        told = {one for one in evidence if one != _SILENT}
        if not told:
            return self._looks_like_names()
        if told == {_NAME_LIKE}:
            return True
        return False if told == {_VALUE_LIKE} and not self._may_be_numbered() else None

    def _compared(self, place: int) -> str:
        """What the cell above a column of numbers, dates, times or booleans looks like."""
        cell, below = self.cells[place], preferred(self.rest[place])
        if self._is_null(place):
            return _SILENT
        types = _types_of(cell)
        if _is_typed(types):
            return _VALUE_LIKE if _are_alike(preferred(types), below) else _UNLIKE
        # `1,234` and `12/31` are no names.
        return _NAME_LIKE if any(map(str.isalpha, cell)) else _UNLIKE

    def _is_null(self, place: int) -> bool:
        return self.cells[place].strip().lower() in _NULLS

    def _may_be_numbered(self) -> bool:
        """Whether the cells may be names although they are numbers: years beside each other or a name; 0, 1, 2."""
        cells = [cell.strip() for cell in self.cells]
        years = [place for place, cell in enumerate(cells) if _YEAR.fullmatch(cell)]
        if years and any(map(is_usual_name, cells)):
            return True
        if any(b - a == 1 and abs(int(cells[b]) - int(cells[a])) == 1 for a, b in pairwise(years)):
            return True
        counted = cells if cells[0] else cells[1:]
        return len(cells) > 1 and counted == [str(number) for number in range(len(counted))]

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


def headers_of(table: str, files: Sequence[tuple[str, bool | None, FirstRow | None]]) -> list[bool | None]:
    """Whether each (path, whether it has a header as far as it tells itself, first row) has one.

    Files are known by others with the same first row. Raises TableFormatError when that does not make it certain.
    """
    sure = {first.cells for _, has_header, first in files if first and has_header}
    headers: list[bool | None] = []
    for path, has_header, first in files:
        if has_header is None and first is not None:
            if first.cells not in sure:
                raise TableFormatError(f"{table}: {path}: {_UNKNOWN_HEADER}")
            has_header = True
        headers.append(has_header)
    with_header, without = (
        [path for (path, _, _), header in zip(files, headers, strict=True) if header is wanted]
        for wanted in (True, False)
    )
    if with_header and without:
        raise TableFormatError(
            f"{table}: {with_header[0]} seems to have a header and {without[0]} seems to have none; "
            "set options.header to true or false"
        )
    _check_related(table, files, sure)
    return headers


def _check_related(
    table: str, files: Sequence[tuple[str, bool | None, FirstRow | None]], headers: set[tuple[str, ...]]
) -> None:
    """Raise TableFormatError for a file of texts only whose names no other file has: they may be values."""
    if len(headers) < 2:
        return
    for path, _, first in files:
        if first is None or first.has_types:
            continue
        others = {name for cells in headers - {first.cells} for name in cells}
        if others.isdisjoint(first.cells):
            raise TableFormatError(f"{table}: {path}: {_UNKNOWN_HEADER}")


def _has_names(texts: pa.StringArray) -> bool:
    usual = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(sorted(USUAL)))
    return bool(pc.any(pc.or_(usual, pc.match_substring_regex(texts, COMPOUND))).as_py())


def _are_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of both may be in one column: a fraction above integers, a time above dates."""
    kinds = (pa.types.is_boolean, pa.types.is_time)
    if any(kind(one) or kind(other) for kind in kinds):
        return one == other
    return pa.types.is_temporal(one) == pa.types.is_temporal(other)


def _types_of(cell: str) -> frozenset[pa.DataType]:
    return fitting(pa.array([cell or None], pa.string()), ALL)


def _is_typed(types: frozenset[pa.DataType]) -> bool:
    return types != ALL and preferred(types) != pa.string()
