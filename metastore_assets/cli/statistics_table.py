"""The statistics of a table's columns as one compact table that fits the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from metastore_assets.cli import text
from metastore_assets.cli.page import GAP, Column, Page, Styled

SHAPE_BINS = 12
"""Most bins of the small pictures of distributions."""

Row = Mapping[str, Any]
"""A column as `show --json` has it."""


@dataclass(frozen=True)
class _Field:
    column: Column
    cell: Callable[[Row], str]
    cut: Callable[[str, int], str] | None = None
    """How it is shortened to fit; None: it is shown whole or left out."""


def _nulls(row: Row) -> str:
    nulls = row["null_count"]
    if not nulls:
        return text.number(nulls)
    return f"{text.number(nulls)} {text.share(nulls, nulls + row['value_count']):>6}"


def _distinct(row: Row) -> str:
    count = text.number(row["distinct_count"])
    return f"~{count}" if row["distinct_count_guarantee"] == "estimate" else count


def _minimum(row: Row) -> str:
    shown = text.typed_value(row["minimum"], row["type"])
    return shown if row["minimum"] is None or row["minimum_exact"] else f"≥{shown}"


def _maximum(row: Row) -> str:
    shown = text.typed_value(row["maximum"], row["type"])
    return shown if row["maximum"] is None or row["maximum_exact"] else f"≤{shown}"


_FIELDS = (
    _Field(Column("column", style="bold"), lambda row: text.printable(row["column"]), text.cut_middle),
    _Field(Column("type", style="cyan"), lambda row: text.type_name(row["type"]), text.cut),
    _Field(Column("nulls", right=True), _nulls),
    _Field(Column("NaN", right=True), lambda row: text.number(row["nan_count"])),
    _Field(Column("distinct", right=True), _distinct),
    _Field(Column("minimum"), _minimum, text.cut),
    _Field(Column("maximum"), _maximum, text.cut),
    _Field(Column("mean", right=True), lambda row: text.number(row["mean"])),
    _Field(Column("std dev", right=True), lambda row: text.number(row["standard_deviation"])),
)
_DISTRIBUTION = Column("distribution", style="green")
_LEAVE_OUT = (
    (),
    ("std dev",),
    ("std dev", "mean"),
    ("std dev", "mean", "distribution"),
    ("std dev", "mean", "distribution", "NaN"),
)
"""What to do without, the first that is enough."""
_CUT_AT = (40, 32, 24, 20, 16, 13)
"""Lengths to cut texts to, the first that is enough; the last two only when little more can be left out."""


def print_statistics(page: Page, rows: Sequence[Row], shapes: Mapping[str, Sequence[int]]) -> None:
    """One line per column, then one for each that something has to be said about.

    On a terminal, less important numbers are left out and long texts cut until it fits; elsewhere everything is whole.
    """
    fields = [field for field in _FIELDS if field.column.heading != "NaN" or any(row["nan_count"] for row in rows)]
    if shapes:
        fields.append(_Field(_DISTRIBUTION, lambda row: text.sparkline(shapes.get(row["column"], ()))))
    grid = [[field.cell(row) for row in rows] for field in fields]
    chosen, limit = _fit(fields, grid, page.width)
    lines = [
        [_quiet(_shortened(fields[index], grid[index][number], limit)) for index in chosen]
        for number in range(len(rows))
    ]
    page.grid([fields[index].column for index in chosen], lines)
    for row, following in zip_longest(rows, rows[1:]):
        # Of a struct, list or map the rows that follow tell all there is to tell.
        if row["reason"] and not (following and following["column"].startswith(f"{row['column']}.")):
            page.line(Styled(f"  {text.printable(row['column'])}: {text.one_line(row['reason'])}", "dim"))


def _fit(fields: Sequence[_Field], grid: Sequence[Sequence[str]], width: int | None) -> tuple[list[int], int | None]:
    """Which fields to show, and the length to cut texts to."""
    limit: int | None = None
    chosen = list(range(len(fields)))
    if width is None:
        return chosen, limit
    for left_out in _LEAVE_OUT:
        chosen = [index for index, field in enumerate(fields) if field.column.heading not in left_out]
        for limit in _CUT_AT if left_out in _LEAVE_OUT[-2:] else _CUT_AT[:-2]:
            needed = sum(_width(fields[index], grid[index], limit) for index in chosen) + GAP * (len(chosen) - 1)
            if needed <= width:
                return chosen, limit
    return chosen, limit


def _width(field: _Field, column: Sequence[str], limit: int) -> int:
    return max([len(field.column.heading), *(text.cells(_shortened(field, cell, limit)) for cell in column)])


def _shortened(field: _Field, cell: str, limit: int | None) -> str:
    return cell if field.cut is None or limit is None else field.cut(cell, limit)


def _quiet(cell: str) -> Styled:
    return Styled(cell, "dim" if cell in (text.ABSENT, "0") else "")
