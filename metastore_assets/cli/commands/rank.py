"""`metastore rank`: show the rank and frequency of a value.

The value counts of a column are its distinct values with their frequencies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from metastore_assets.cli.drawing import draw_column_heading
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import column_to_answer, load_config, open_relation
from metastore_assets.cli.options import (
    NEGATIVE_VALUES,
    column_argument,
    filter_option,
    name_argument,
    output_options,
    partition_option,
    value_argument,
    version_option,
)
from metastore_assets.cli.output import Answer, Page, answer
from metastore_assets.errors import NotStoredError
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup import FilteredView, Table
    from metastore_assets.lookup.version_references import VersionReference


@click.command(context_settings=NEGATIVE_VALUES)
@name_argument
@column_argument
@value_argument
@partition_option
@filter_option
@version_option
@output_options
@click.pass_obj
def rank(
    invocation: Invocation,
    name: str,
    column: str,
    value: str,
    partition: str | None,
    where: str | None,
    version: VersionReference | None,
    as_json: bool,
) -> None:
    """Show the rank of a value and its frequency.

    The rank is the number of values in the column that are less. Write VALUE as `top --json` prints values. The rank is
    exact for columns with value counts.
    """
    with open_relation(load_config(invocation), name, where, partition, version) as (table, key):
        result = _read_rank(table, column, value, key)
        statistics = column_to_answer(table, column, key)
    answer(result, lambda page: _draw(page, statistics, result, value), as_json=as_json)


def _read_rank(table: Table | FilteredView, column: str, value: str, partition: str | None) -> Answer:
    """Return rank and frequency of a value as a JSON object.

    The frequency is None without value counts.
    """
    from metastore_assets.lookup import TextValue
    from metastore_assets.values.json import integer_json

    parsed_value = TextValue(value)
    rank = table.rank(column, parsed_value, partition=partition)
    try:
        frequency = integer_json(table.frequency(column, parsed_value, partition=partition).value)
    except NotStoredError:
        frequency = None
    return {
        "rank": integer_json(rank.value),
        "frequency": frequency,
        "row_count": integer_json(table.count(partition=partition).value),
        "guarantee": rank.guarantee,
    }


def _draw(page: Page, column: Answer, result: Answer, value: str) -> None:
    draw_column_heading(page, column)
    rows = text.format_count(result["row_count"], "row")
    rank = text.mark_estimate(text.format_number(result["rank"]), result["guarantee"])
    frequency = result["frequency"]
    occurs = "whose frequency is not stored"
    if frequency is not None:
        occurs = f"which occurs {text.format_count(frequency, 'time')}"
    page.line(f"{rank} of the values in {rows} are less than {text.format_value(value)}, {occurs}")
