"""`metastore locate`: show the partitions that hold a value.

The value counts of a column are its distinct values with their frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.drawing import bar, draw_column_heading
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import column_to_answer, load_config, open_version
from metastore_assets.cli.options import (
    NEGATIVE_VALUES,
    column_argument,
    name_argument,
    output_options,
    value_argument,
    version_option,
)
from metastore_assets.cli.output import Answer, GridColumn, Page, Styled, answer
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup.version_references import VersionReference

_BAR_WIDTH = 30


@click.command(context_settings=NEGATIVE_VALUES, short_help="Show the partitions that hold a value.")
@name_argument
@column_argument
@value_argument
@version_option
@output_options
@click.pass_obj
def locate(
    invocation: Invocation, name: str, column: str, value: str, version: VersionReference | None, as_json: bool
) -> None:
    """Show the partitions that hold a value, with its frequency in each.

    Write VALUE as `top --json` prints values. Works for columns with value counts.
    """
    from metastore_assets.lookup import TextValue
    from metastore_assets.values.json import integer_json

    table = open_version(load_config(invocation), name, version)
    rows = [
        {"partition": key, "frequency": integer_json(frequency)}
        for key, frequency in table.locate(column, TextValue(value))
    ]
    statistics = column_to_answer(table, column, None)
    answer(rows, lambda page: _draw(page, statistics, rows), as_json=as_json)


def _draw(page: Page, column: Answer, rows: Sequence[Answer]) -> None:
    draw_column_heading(page, column)
    if not rows:
        page.line(Styled("  no partition holds it", "dim"))
        return
    longest = max(text.count_cells(row["partition"]) for row in rows)
    bar_width = _BAR_WIDTH if page.width is None else max(8, min(_BAR_WIDTH, page.width - longest - 14))
    maximum = max(row["frequency"] for row in rows)
    columns = [
        GridColumn("partition", style="bold"),
        GridColumn("frequency", right=True),
        GridColumn("", style="green"),
    ]
    lines = [
        (
            text.make_printable(row["partition"]),
            text.format_number(row["frequency"]),
            bar(row["frequency"], maximum, bar_width),
        )
        for row in rows
    ]
    page.fitting_grid(columns, lines)
