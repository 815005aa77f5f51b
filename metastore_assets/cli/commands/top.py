"""`metastore top`: show the most frequent values of a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.drawing import bar, draw_column_heading
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
from metastore_assets.cli.output import Answer, GridColumn, Page, Part, Styled, answer
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup.version_references import VersionReference

_BAR_WIDTH = 30


@click.command()
@name_argument
@column_argument
@click.option(
    "-n", "count", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="Number of values."
)
@partition_option
@filter_option
@version_option
@output_options
@click.pass_obj
def top(
    invocation: Invocation,
    name: str,
    column: str,
    count: int,
    partition: str | None,
    where: str | None,
    version: VersionReference | None,
    as_json: bool,
) -> None:
    """Show the most frequent values of a column."""
    from metastore_assets.lookup.json import top_json

    with open_relation(load_config(invocation), name, where, partition, version) as (table, key):
        values = top_json(table.top(column, count, partition=key))
        statistics = column_to_answer(table, column, key)
    answer(values, lambda page: _draw(page, statistics, values), as_json=as_json)


def _draw(page: Page, column: Answer, values: Sequence[Answer]) -> None:
    draw_column_heading(page, column)
    total = column["value_count"] + column["null_count"]
    maximum = max((row["frequency"] for row in values), default=0)
    bar_width = _BAR_WIDTH if page.width is None else max(8, min(_BAR_WIDTH, page.width // 3))
    limit = None if page.width is None else max(12, page.width - bar_width - 30)
    lines: list[Sequence[Part]] = [
        (
            text.format_typed_value(row["value"], column["type"], limit),
            text.format_number(row["frequency"]),
            Styled(text.format_share(row["frequency"], total), "dim"),
            Styled(bar(row["frequency"], maximum, bar_width), "green"),
        )
        for row in values
    ]
    other_count = column["value_count"] - sum(row["frequency"] for row in values)
    lines += [
        tuple(
            Styled(cell, "dim italic")
            for cell in (label, text.format_number(count), text.format_share(count, total), "")
        )
        for label, count in (("other values", other_count), ("null", column["null_count"]))
        if count > 0
    ]
    columns = [
        GridColumn("value"),
        GridColumn("frequency", right=True),
        GridColumn("share", right=True),
        GridColumn("", style="green"),
    ]
    page.fitting_grid(columns, lines)
