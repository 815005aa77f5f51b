"""A grid of column statistics that fits the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

from metastore_assets.cli.page import GAP, Column, Page, Styled
from metastore_assets.report import text
from metastore_assets.report.bars import sparkline
from metastore_assets.statistics.column import STATISTICS

SHAPE_BINS = 12
"""The maximum number of bins in the small pictures of distributions."""

Row = Mapping[str, Any]
"""The statistics of a column as `show --json` has them."""


@dataclass(frozen=True)
class _Room:
    """The limits that shorten cells to fit; None stands for no limit."""

    names: int | None = None
    values: int | None = None
    compact: bool = False
    """Whether nulls are only a share, types have no units, and numbers have six digits."""
    gap: int = GAP


@dataclass(frozen=True)
class _Field:
    column: Column
    cell: Callable[[Row, _Room], str]


def _name(row: Row, room: _Room) -> str:
    name = text.printable(row["column"])
    return name if room.names is None else text.cut_middle(name, room.names)


def _type(row: Row, room: _Room) -> str:
    name = text.type_name(row["type"])
    if room.compact and name.startswith(("time", "duration")):
        name = name.partition("[")[0]
    return name if room.names is None else text.cut(name, max(room.names, len("decimal(38,18)")))


def _nulls(row: Row, room: _Room) -> str:
    nulls = row["null_count"]
    if not nulls:
        return text.number(nulls)
    share = text.share(nulls, nulls + row["value_count"])
    return share if room.compact else f"{text.number(nulls)} {share:>6}"


def _distinct(row: Row, room: _Room) -> str:
    return text.estimate(text.number(row["distinct_count"]), row["distinct_count_guarantee"])


def _minimum(row: Row, room: _Room) -> str:
    return _value(row, row["minimum"], room, lambda shown: text.at_least(shown, row["minimum_exact"]))


def _maximum(row: Row, room: _Room) -> str:
    return _value(row, row["maximum"], room, lambda shown: text.at_most(shown, row["maximum_exact"]))


def _percentile(fraction: float) -> Callable[[Row, _Room], str]:
    def cell(row: Row, room: _Room) -> str:
        values = {entry["fraction"]: entry["value"] for entry in row["percentiles"] or ()}
        marked = partial(text.estimate, guarantee=row["percentiles_guarantee"])
        return _value(row, values.get(fraction), room, marked)

    return cell


def _value(row: Row, value: Any, room: _Room, marked: Callable[[str], str]) -> str:
    if value is None:
        return text.ABSENT
    if isinstance(value, float) and room.compact:
        return marked(text.number(value))
    shown = marked(text.typed_value(value, row["type"]))
    if room.values is None or text.cells(shown) <= room.values:
        return shown
    day, blank, _ = shown.partition(" ")
    if blank and row["type"].startswith("timestamp") and text.cells(day) < room.values:
        return f"{day}…"
    return text.cut(shown, room.values)


def _field(name: str, cell: Callable[[Row, _Room], str], style: str = "", right: bool = False) -> _Field:
    """Return a field with the label of a statistic as its heading."""
    return _Field(Column(STATISTICS[name].label, style=style, right=right), cell)


def _number(name: str) -> _Field:
    return _field(name, lambda row, room: text.number(row[name]), right=True)


_NANS = _number("nan_count")
_FIELDS = (
    _field("column", _name, style="bold"),
    _field("type", _type, style="cyan"),
    _field("null_count", _nulls, right=True),
    _NANS,
    _field("distinct_count", _distinct, right=True),
    _field("minimum", _minimum),
    _Field(Column("5 %"), _percentile(0.05)),
    _Field(Column("median"), _percentile(0.5)),
    _Field(Column("95 %"), _percentile(0.95)),
    _field("maximum", _maximum),
    _number("mean"),
    _number("standard_deviation"),
)
_DISTRIBUTION = Column("distribution", style="green")
_HIDDEN_FIRST = (("std dev",), ("5 %", "95 %"), ("mean",), ("NaN",), ("distribution",), ("median",))
_ROOMS = (
    _Room(40, 40),
    _Room(32, 24),
    _Room(24, 20),
    _Room(24, 20, compact=True),
    _Room(20, 16, compact=True),
    _Room(16, 13, compact=True),
    _Room(13, 12, compact=True, gap=1),
)
"""The limits to try, from wide to narrow. Fields are hidden only if the narrowest limits do not fit."""


def draw_statistics(
    page: Page,
    rows: Sequence[Row],
    shapes: Mapping[str, Sequence[int]],
    complete: bool = False,
    complete_options: str = "",
) -> None:
    """Draw a line for each column, then notes on columns without statistics and the user-defined statistics.

    On a terminal, long texts are cut first; then less important fields are hidden until the grid fits.

    Args:
        page: The page to draw on.
        rows: The statistics of the columns.
        shapes: The frequencies of a few bins for each column that has a histogram.
        complete: Whether to show all fields, in as many grids as needed.
        complete_options: The options that show hidden fields, which the page names.
    """
    fields = [field for field in _FIELDS if field is not _NANS or any(row["nan_count"] for row in rows)]
    if shapes:
        fields.append(_Field(_DISTRIBUTION, lambda row, room: sparkline(shapes.get(row["column"], ()))))
    hidden: list[str] = []
    if page.width is None:
        _draw_grid(page, fields, rows, _Room())
    elif complete:
        for number, part in enumerate(_parts(fields, rows, _ROOMS[0], page.width)):
            if number:
                page.line()
            _draw_grid(page, part, rows, _ROOMS[0])
    else:
        chosen, room = _fit(fields, rows, page.width)
        hidden = [field.column.heading for field in fields if field not in chosen]
        _draw_grid(page, chosen, rows, room)
    for row, following in zip_longest(rows, rows[1:]):
        # The nested columns that follow a struct, list or map describe it.
        if row["reason"] and not (following and following["column"].startswith(f"{row['column']}.")):
            page.line(Styled(f"  {text.printable(row['column'])}: {text.one_line(row['reason'])}", "dim"))
    for row in rows:
        for name, result in row["user_defined"].items():
            page.line(Styled(f"  {text.printable(row['column'])}: {name} {text.result(result)}", "dim"))
    if hidden and page.width is not None:
        hint = f"not shown: {', '.join(hidden)} (see {complete_options})"
        for line in textwrap.wrap(hint, max(20, page.width - 2)):
            page.line(Styled(f"  {line}", "dim"))


def draw_spreads(page: Page, rows: Sequence[Row]) -> None:
    """Draw how often values repeat, for each column with value counts."""
    for row in rows:
        if row["entropy"] is not None:
            repeated, single = text.number(row["duplicate_count"]), text.number(row["singleton_count"])
            counts = f"{repeated} of its values occur more than once, {single} once"
            entropy = f"entropy {text.number(row['entropy'])} bits"
            page.line(Styled(f"  {text.printable(row['column'])}: {counts}; {entropy}", "dim"))


def _draw_grid(page: Page, fields: Sequence[_Field], rows: Sequence[Row], room: _Room) -> None:
    lines = [[_quiet(field.cell(row, room)) for field in fields] for row in rows]
    page.grid([field.column for field in fields], lines, room.gap)


def _fit(fields: Sequence[_Field], rows: Sequence[Row], width: int) -> tuple[Sequence[_Field], _Room]:
    """Return the fields to show and the limits of their cells."""
    narrow = {field.column.heading: _width(field, rows, _ROOMS[-1]) for field in fields}
    for headings in ((), *_HIDDEN_FIRST):
        for heading in headings:
            narrow.pop(heading, None)
        if sum(narrow.values()) + _ROOMS[-1].gap * (len(narrow) - 1) <= width:
            break
    chosen = [field for field in fields if field.column.heading in narrow]
    for room in _ROOMS[:-1]:
        if sum(_width(field, rows, room) for field in chosen) + room.gap * (len(chosen) - 1) <= width:
            return chosen, room
    return chosen, _ROOMS[-1]


def _parts(fields: Sequence[_Field], rows: Sequence[Row], room: _Room, width: int) -> list[list[_Field]]:
    """Return the fields in as few grids as possible; each grid begins with the first field."""
    first, *others = fields
    parts = [[first]]
    used = _width(first, rows, room)
    for field in others:
        more = room.gap + _width(field, rows, room)
        if used + more > width and len(parts[-1]) > 1:
            parts.append([first])
            used = _width(first, rows, room)
        parts[-1].append(field)
        used += more
    return parts


def _width(field: _Field, rows: Sequence[Row], room: _Room) -> int:
    return max([len(field.column.heading), *(text.cells(field.cell(row, room)) for row in rows)])


def _quiet(cell: str) -> Styled:
    return Styled(cell, "dim" if cell in (text.ABSENT, "0") else "")
