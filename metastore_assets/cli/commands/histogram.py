"""`metastore histogram`: show the distribution of a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.drawing import CHART_HEIGHT, bar, chart, draw_column_heading
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import column_to_answer, load_config, open_relation
from metastore_assets.cli.options import (
    column_argument,
    filter_option,
    name_argument,
    output_options,
    partition_option,
    version_option,
)
from metastore_assets.cli.output import Answer, GridColumn, Page, Styled, answer
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup.version_references import VersionReference

_PLAIN_BINS = 20
"""The default number of bins if stdout is not a terminal."""
_LISTED_BINS = 40
"""The number of bins up to which a page has a line for each bin; more bins are drawn as a chart."""
_BAR_WIDTH = 30


@click.command()
@name_argument
@column_argument
@click.option(
    "--bins", type=click.IntRange(min=1), metavar="N", help="The maximum number of bins.  [default: as stored]"
)
@partition_option
@filter_option
@version_option
@output_options
@click.pass_obj
def histogram(
    invocation: Invocation,
    name: str,
    column: str,
    bins: int | None,
    partition: str | None,
    where: str | None,
    version: VersionReference | None,
    as_json: bool,
) -> None:
    """Show the distribution of a numeric or temporal column."""
    from metastore_assets.lookup.json import histogram_json

    count = bins or (None if as_json else _fitting_bins(Page().width))
    with open_relation(load_config(invocation), name, where, partition, version) as (table, key):
        rows = histogram_json(table.histogram(column, bins=count, partition=key))
        statistics = column_to_answer(table, column, key)
    answer(rows, lambda page: _draw(page, statistics, rows), as_json=as_json)


def _fitting_bins(width: int | None) -> int:
    # With half as many bins as cells, bars of two or three cells fill most of a line.
    return _PLAIN_BINS if width is None else max(8, (width - 12) // 2)


def _draw(page: Page, column: Answer, bins: Sequence[Answer]) -> None:
    draw_column_heading(page, column)
    if not bins:
        page.line(Styled("  no finite values", "dim"))
    elif page.width is None or len(bins) <= _LISTED_BINS:
        _draw_list(page, column, bins)
    else:
        _draw_chart(page, column["type"], bins, page.width)
    # JSON has integers beyond 2**53 as text.
    binned_count = sum(int(row["frequency"]) for row in bins)
    infinite = int(column["value_count"]) - int(column["nan_count"] or 0) - binned_count
    if infinite > 0:
        verb = "is" if infinite == 1 else "are"
        page.line(Styled(f"  {text.format_count(infinite, 'infinite value')} {verb} in no bin", "dim"))


def _draw_list(page: Page, column: Answer, bins: Sequence[Answer]) -> None:
    type = column["type"]
    maximum = max(row["frequency"] for row in bins)
    limit = None if page.width is None else 30
    columns = [
        *(GridColumn(heading, right=True) for heading in ("from", "below", "frequency")),
        GridColumn("", style="green"),
    ]
    lines: list[tuple[str, ...]] = [
        (
            text.format_typed_value(row["minimum"], type, limit),
            text.format_typed_value(row["maximum"], type, limit),
            text.format_number(row["frequency"]),
            bar(row["frequency"], maximum, _BAR_WIDTH),
        )
        for row in bins
    ]
    if str(column["maximum"]) == str(bins[-1]["maximum"]):
        # The upper edge is the greatest value of the type, and the column has that value.
        lower, upper, *other_cells = lines[-1]
        lines[-1] = (lower, f"up to {upper}", *other_cells)
    page.fitting_grid(columns, lines)


def _draw_chart(page: Page, type: str, bins: Sequence[Answer], width: int) -> None:
    counts = [row["frequency"] for row in bins]
    labels = {0: text.format_number(max(counts)), CHART_HEIGHT // 2: text.format_number(max(counts) // 2)}
    axis = max(map(len, labels.values())) + 2
    stretch = max(1, (width - axis) // len(counts))
    lines = chart([count for count in counts for _ in range(stretch)], CHART_HEIGHT)
    for row, line in enumerate(lines):
        label = f"{labels[row]:>{axis - 2}} ┤" if row in labels else f"{'│':>{axis}}"
        page.line(Styled(label, "dim"), Styled(line.rstrip(), "green"))
    chart_width = len(counts) * stretch
    page.line(Styled(f"{'0':>{axis - 2}} └{'─' * chart_width}", "dim"))
    page.line(Styled(" " * axis + _axis_labels(type, bins, chart_width), "dim"))


def _axis_labels(type: str, bins: Sequence[Answer], width: int) -> str:
    """Return the line of labels below a chart.

    The labels are the first edge, the middle edge if there is room, and the last edge.
    """
    first_label = text.format_typed_value(bins[0]["minimum"], type, width // 2)
    last_label = text.format_typed_value(bins[-1]["maximum"], type, width // 2)
    middle_label = text.format_typed_value(bins[len(bins) // 2]["minimum"], type)
    start = width * (len(bins) // 2) // len(bins)
    end = width - text.count_cells(last_label)
    line = first_label
    if start > text.count_cells(first_label) + 2 and start + text.count_cells(middle_label) + 2 < end:
        line += " " * (start - text.count_cells(first_label)) + middle_label
    return line + " " * max(2, end - text.count_cells(line)) + last_label
