"""`metastore show`: show the statistics of a table's columns.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.completion import complete_columns
from metastore_assets.cli.drawing import draw_hidden_columns, draw_table_heading
from metastore_assets.cli.failures import Invocation, print_note
from metastore_assets.cli.opening import load_config, open_relation
from metastore_assets.cli.options import (
    filter_option,
    name_argument,
    output_options,
    parse_column_names,
    partition_option,
    version_option,
)
from metastore_assets.cli.output import Answer, GridColumn, Page, answer
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.cli.answers import Detail
    from metastore_assets.lookup import FilteredView, Table
    from metastore_assets.lookup.version_references import VersionReference


@click.command()
@name_argument
@partition_option
@filter_option
@click.option(
    "--columns",
    metavar="A,B",
    shell_complete=complete_columns,
    help="Show all statistics of only these columns. Put a name that contains a comma in double quotes.",
)
@click.option("--partitions", is_flag=True, help="List the partitions instead.")
@version_option
@output_options
@click.pass_obj
def show(
    invocation: Invocation,
    name: str,
    partition: str | None,
    where: str | None,
    columns: str | None,
    partitions: bool,
    version: VersionReference | None,
    as_json: bool,
) -> None:
    """Show the statistics of a table's columns."""
    from metastore_assets.cli.answers import read_shapes, show_answer
    from metastore_assets.cli.current import CurrentCheck
    from metastore_assets.cli.statistics_table import draw_spreads, draw_statistics

    if partitions and any(option is not None for option in (partition, columns, where)):
        raise click.UsageError("--partitions does not go with --partition, --columns or --where")
    names = parse_column_names(columns)
    config = load_config(invocation)
    check = CurrentCheck(config, name)
    with open_relation(config, name, where, partition, version) as (table, key):
        rows = [] if partitions else table.statistics(names, partition=key)
        shapes = {} if as_json else read_shapes(table, rows, key)
        current, reason = check.is_current(table.version)
        if reason is not None:
            print_note(reason)
        detail: Detail = "selected" if names is not None else "full" if as_json else "summary"
        statistics = show_answer(table, rows, current, key, detail)
        entries = _list_partitions(table) if partitions else []
    if partitions:
        answer(entries, lambda page: _draw_partitions(page, statistics, entries), as_json=as_json)
        return
    if where is not None:
        statistics["where"] = where

    def draw(page: Page) -> None:
        draw_table_heading(page, statistics)
        draw_statistics(page, statistics["columns"], shapes, names is not None, "--columns A,B or --json")
        if names is not None:
            draw_spreads(page, statistics["columns"])

    answer(statistics, draw, as_json=as_json)


def _list_partitions(table: Table | FilteredView) -> list[dict[str, Any]]:
    """Return a JSON object for each partition, in ascending order of keys."""
    from metastore_assets.values.json import integer_json

    return [
        {
            "partition": entry.key,
            "row_count": integer_json(entry.row_count),
            "bytes": integer_json(entry.bytes),
            "fragments": entry.fragments,
            "version": entry.version,
        }
        for entry in table.partitions()
    ]


def _draw_partitions(page: Page, statistics: Answer, entries: Sequence[Answer]) -> None:
    draw_table_heading(page, statistics)
    columns = [GridColumn("partition", style="bold")]
    columns += [GridColumn(heading, right=True) for heading in ("rows", "bytes", "fragments", "version")]
    lines = [
        (
            text.make_printable(entry["partition"]),
            text.format_number(entry["row_count"]),
            text.format_size(entry["bytes"]),
            text.format_number(entry["fragments"]),
            text.format_number(entry["version"]),
        )
        for entry in entries
    ]
    draw_hidden_columns(page, page.fitting_grid(columns, lines, ["version", "fragments", "bytes"]))
