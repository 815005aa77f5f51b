"""A grid of column statistics that fits the terminal.

The value counts of a column are its distinct values with their frequencies.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

from metastore_assets.cli.drawing import sparkline
from metastore_assets.cli.output import GAP, GridColumn, Page, Styled
from metastore_assets.report import text
from metastore_assets.statistics.column import STATISTICS

SHAPE_BINS = 12
"""The maximum number of bins in the small pictures of distributions."""

Row = Mapping[str, Any]
"""The statistics of a column as a JSON object of `show --json`."""


@dataclass(frozen=True)
class _CellLimits:
    """The widths to which the cells of the grid are truncated, in terminal cells.

    Names of columns are truncated to the width `names`, and their values to the width `values`; None for no limit.
    `gap` is the space between two columns.
    """

    names: int | None = None
    values: int | None = None
    compact: bool = False
    """Whether nulls are shown only as a share, types without units, and numbers with six digits."""
    gap: int = GAP


@dataclass(frozen=True)
class _Field:
    """A column of the grid, and the function that formats its cell in a row."""

    column: GridColumn
    cell: Callable[[Row, _CellLimits], str]


def _name(row: Row, limits: _CellLimits) -> str:
    name = text.make_printable(row["column"])
    return name if limits.names is None else text.truncate_middle(name, limits.names)


def _type(row: Row, limits: _CellLimits) -> str:
    name = text.format_type(row["type"])
    if limits.compact and name.startswith(("time", "duration")):
        name = name.partition("[")[0]
    return name if limits.names is None else text.truncate(name, max(limits.names, len("decimal(38,18)")))


def _nulls(row: Row, limits: _CellLimits) -> str:
    nulls = row["null_count"]
    if not nulls:
        return text.format_number(nulls)
    share = text.format_share(nulls, nulls + row["value_count"])
    return share if limits.compact else f"{text.format_number(nulls)} {share:>6}"


def _distinct(row: Row, limits: _CellLimits) -> str:
    return text.mark_estimate(text.format_number(row["distinct_count"]), row["distinct_count_guarantee"])


def _minimum(row: Row, limits: _CellLimits) -> str:
    return _value(
        row, row["minimum"], limits, lambda value_text: text.mark_lower_bound(value_text, row["minimum_exact"])
    )


def _maximum(row: Row, limits: _CellLimits) -> str:
    return _value(
        row, row["maximum"], limits, lambda value_text: text.mark_upper_bound(value_text, row["maximum_exact"])
    )


def _percentile(fraction: float) -> Callable[[Row, _CellLimits], str]:
    def cell(row: Row, limits: _CellLimits) -> str:
        values = {entry["fraction"]: entry["value"] for entry in row["percentiles"] or ()}
        mark = partial(text.mark_estimate, guarantee=row["percentiles_guarantee"])
        return _value(row, values.get(fraction), limits, mark)

    return cell


def _value(row: Row, value: Any, limits: _CellLimits, mark: Callable[[str], str]) -> str:
    """Format a minimum, maximum or percentile, truncated to the limits.

    Args:
        row: The statistics of the column.
        value: The value in its JSON form; None if it is unknown.
        limits: The limits.
        mark: Puts the sign of a bound or an estimate, such as `~`, before a text.
    """
    if value is None:
        return text.ABSENT
    if isinstance(value, float) and limits.compact:
        return mark(text.format_number(value))
    value_text = mark(text.format_typed_value(value, row["type"]))
    if limits.values is None or text.count_cells(value_text) <= limits.values:
        return value_text
    day, blank, _ = value_text.partition(" ")
    if blank and row["type"].startswith("timestamp") and text.count_cells(day) < limits.values:
        return f"{day}…"
    return text.truncate(value_text, limits.values)


def _field(name: str, cell: Callable[[Row, _CellLimits], str], style: str = "", right: bool = False) -> _Field:
    """Create a field, whose heading is the label of a statistic.

    Args:
        name: The name of the statistic in `STATISTICS`.
        cell: Formats a cell.
        style: The style of the cells.
        right: Whether the cells are aligned to the right.
    """
    return _Field(GridColumn(STATISTICS[name].label, style=style, right=right), cell)


def _number(name: str) -> _Field:
    return _field(name, lambda row, limits: text.format_number(row[name]), right=True)


_NANS = _number("nan_count")
_FIELDS = (
    _field("column", _name, style="bold"),
    _field("type", _type, style="cyan"),
    _field("null_count", _nulls, right=True),
    _NANS,
    _field("distinct_count", _distinct, right=True),
    _field("minimum", _minimum),
    _Field(GridColumn("5 %"), _percentile(0.05)),
    _Field(GridColumn("median"), _percentile(0.5)),
    _Field(GridColumn("95 %"), _percentile(0.95)),
    _field("maximum", _maximum),
    _number("mean"),
    _number("standard_deviation"),
)
_DISTRIBUTION = GridColumn("distribution", style="green")
_HIDDEN_FIRST = (("std dev",), ("5 %", "95 %"), ("mean",), ("NaN",), ("distribution",), ("median",), ("type",))
_LIMITS = (
    _CellLimits(40, 40),
    _CellLimits(32, 24),
    _CellLimits(24, 20),
    _CellLimits(24, 20, compact=True),
    _CellLimits(20, 16, compact=True),
    _CellLimits(16, 13, compact=True),
    _CellLimits(13, 12, compact=True, gap=1),
)
"""The limits to try, from wide to narrow. If the grid does not fit even with the narrowest, fields are hidden."""


def draw_statistics(
    page: Page,
    rows: Sequence[Row],
    shapes: Mapping[str, Sequence[int]],
    complete: bool = False,
    complete_options: str = "",
) -> None:
    """Draw a grid with a line for each column.

    Below it, draw user-defined statistics and why statistics are missing.

    Args:
        page: The page to draw on.
        rows: The statistics of the columns.
        shapes: By column name, the frequencies of the histogram's bins. They are drawn as sparklines.
        complete: Whether to show all fields, in as many grids as necessary.
        complete_options: The command-line options that show all fields, for the note on hidden fields.
    """
    fields = [field for field in _FIELDS if field is not _NANS or any(row["nan_count"] for row in rows)]
    if shapes:
        fields.append(_Field(_DISTRIBUTION, lambda row, limits: sparkline(shapes.get(row["column"], ()))))
    hidden_headings: list[str] = []
    if page.width is None:
        _draw_grid(page, fields, rows, _CellLimits())
    elif complete:
        for number, part in enumerate(_split_fields(fields, rows, _LIMITS[0], page.width)):
            if number:
                page.line()
            _draw_grid(page, part, rows, _LIMITS[0])
    else:
        chosen_fields, limits = _fit(fields, rows, page.width)
        hidden_headings = [field.column.heading for field in fields if field not in chosen_fields]
        _draw_grid(page, chosen_fields, rows, limits)
    for row, next_row in zip_longest(rows, rows[1:]):
        # No note for a struct, list or map: its nested columns follow it.
        if row["reason"] and not (next_row and next_row["column"].startswith(f"{row['column']}.")):
            page.line(Styled(f"  {text.make_printable(row['column'])}: {text.to_one_line(row['reason'])}", "dim"))
    for row in rows:
        for name, result in row["user_defined"].items():
            page.line(
                Styled(f"  {text.make_printable(row['column'])}: {name} {text.format_user_defined(result)}", "dim")
            )
    if hidden_headings and page.width is not None:
        hint = f"not shown: {', '.join(hidden_headings)} (see {complete_options})"
        for line in textwrap.wrap(hint, max(20, page.width - 2)):
            page.line(Styled(f"  {line}", "dim"))


def draw_spreads(page: Page, rows: Sequence[Row]) -> None:
    """Draw a line for each column whose value counts are complete.

    It has the number of values that occur more than once, the number of those that occur once, and the entropy.
    """
    for row in rows:
        if row["entropy"] is not None:
            repeated_count, singleton_text = row["duplicate_count"], text.format_number(row["singleton_count"])
            verb = "occurs" if repeated_count == 1 else "occur"
            counts = f"{text.format_count(repeated_count, 'value')} {verb} more than once, {singleton_text} once"
            entropy = f"entropy {text.format_number(row['entropy'])} bits"
            page.line(Styled(f"  {text.make_printable(row['column'])}: {counts}; {entropy}", "dim"))


def _draw_grid(page: Page, fields: Sequence[_Field], rows: Sequence[Row], limits: _CellLimits) -> None:
    lines = [[_dim_if_empty(field.cell(row, limits)) for field in fields] for row in rows]
    page.grid([field.column for field in fields], lines, limits.gap)


def _fit(fields: Sequence[_Field], rows: Sequence[Row], width: int) -> tuple[Sequence[_Field], _CellLimits]:
    """Return (fields to show in `width` terminal cells, limits of their cells).

    Unimportant fields, such as `std dev`, are dropped only if the grid is too wide even with the narrowest limits. The
    result has the widest limits with which the remaining fields fit.
    """
    narrow_widths = {field.column.heading: _width(field, rows, _LIMITS[-1]) for field in fields}
    for headings in ((), *_HIDDEN_FIRST):
        for heading in headings:
            narrow_widths.pop(heading, None)
        if sum(narrow_widths.values()) + _LIMITS[-1].gap * (len(narrow_widths) - 1) <= width:
            break
    chosen_fields = [field for field in fields if field.column.heading in narrow_widths]
    for limits in _LIMITS[:-1]:
        if sum(_width(field, rows, limits) for field in chosen_fields) + limits.gap * (len(chosen_fields) - 1) <= width:
            return chosen_fields, limits
    return chosen_fields, _LIMITS[-1]


def _split_fields(fields: Sequence[_Field], rows: Sequence[Row], limits: _CellLimits, width: int) -> list[list[_Field]]:
    """Split the fields into grids of at most `width` terminal cells.

    Each grid begins with the first field.

    A grid with two fields may be wider, because one field after the first is always included.
    """
    first_field, *other_fields = fields
    grids = [[first_field]]
    grid_width = _width(first_field, rows, limits)
    for field in other_fields:
        field_width = limits.gap + _width(field, rows, limits)
        if grid_width + field_width > width and len(grids[-1]) > 1:
            grids.append([first_field])
            grid_width = _width(first_field, rows, limits)
        grids[-1].append(field)
        grid_width += field_width
    return grids


def _width(field: _Field, rows: Sequence[Row], limits: _CellLimits) -> int:
    return max([len(field.column.heading), *(text.count_cells(field.cell(row, limits)) for row in rows)])


def _dim_if_empty(cell: str) -> Styled:
    return Styled(cell, "dim" if cell in (text.ABSENT, "0") else "")
