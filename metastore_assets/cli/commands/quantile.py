"""`metastore quantile`: show quantiles of a column.

The value counts of a column are its distinct values with their frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.drawing import draw_column_heading
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
from metastore_assets.cli.output import Answer, GridColumn, Page, answer
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup.version_references import VersionReference


@click.command()
@name_argument
@column_argument
@click.argument("fractions", metavar="Q...", nargs=-1, required=True)
@click.option(
    "--continuous",
    is_flag=True,
    help="Interpolate between the two nearest values, as percentile_cont of SQL does. For numbers and times only.",
)
@partition_option
@filter_option
@version_option
@output_options
@click.pass_obj
def quantile(
    invocation: Invocation,
    name: str,
    column: str,
    fractions: tuple[str, ...],
    continuous: bool,
    partition: str | None,
    where: str | None,
    version: VersionReference | None,
    as_json: bool,
) -> None:
    """Show quantiles of a column, such as 0.5 for the median.

    The quantile Q is the least value such that at least the fraction Q of the values is less than or equal to it. It is
    exact for columns with value counts.
    """
    from metastore_assets.lookup.column_values import parse_fraction
    from metastore_assets.lookup.json import quantiles_json

    requested_fractions = [parse_fraction(fraction) for fraction in fractions]
    with open_relation(load_config(invocation), name, where, partition, version) as (table, key):
        rows = quantiles_json(
            table.quantile(
                column, requested_fractions, partition=key, method="continuous" if continuous else "discrete"
            )
        )
        statistics = column_to_answer(table, column, key)
    answer(rows, lambda page: _draw(page, statistics, rows), as_json=as_json)


def _draw(page: Page, column: Answer, rows: Sequence[Answer]) -> None:
    draw_column_heading(page, column)
    lines = [
        (
            f"{row['q']:.10g}",
            text.mark_estimate(text.format_typed_value(row["value"], column["type"]), row["guarantee"]),
        )
        for row in rows
    ]
    page.fitting_grid([GridColumn("q", right=True, style="bold"), GridColumn("value")], lines)
