"""`metastore profile`: compute and show the statistics of tables.

Needs no configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.drawing import draw_table_heading
from metastore_assets.cli.failures import ERROR, SUCCESS, Invocation, explain_error, raise_interrupt, report_error
from metastore_assets.cli.options import (
    output_options,
    parse_pair,
    reader_option,
    schema_option,
    uris_argument,
)
from metastore_assets.cli.output import Answer, Page, answer, write_json
from metastore_assets.cli.progress import show_progress
from metastore_assets.cli.spark import LazySpark
from metastore_assets.messages import absolute_location, redact

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig


@click.command(short_help="Compute and show the statistics of any tables.")
@uris_argument
@reader_option
@schema_option
@click.option(
    "--at",
    metavar="STATE",
    help="Profile a past state: a version, snapshot id, branch, tag or instant, or a time in ISO 8601.",
)
@click.option(
    "--partition",
    "partitions",
    metavar="KEY",
    multiple=True,
    callback=lambda context, option, texts: _parse_partitions(texts),
    help="Profile only this partition, or those that match a pattern such as 'day=2024-*'. May be repeated.",
)
@click.option(
    "--path-mapping",
    metavar="FROM=TO",
    multiple=True,
    callback=lambda context, option, texts: {old: absolute_location(new) for old, new in map(parse_pair, texts)},
    help="Read files from below TO that the table's metadata places below FROM. May be repeated.",
)
@click.option(
    "--allow",
    metavar="PREFIX",
    multiple=True,
    callback=lambda context, option, prefixes: tuple(map(absolute_location, prefixes)),
    help="Allow reading files below PREFIX that the table's metadata names, even in a store other than the table's. "
    "May be repeated.",
)
@click.option("--restrict-to-table-root", is_flag=True, help="Refuse to read files outside the table's location.")
@output_options
@click.pass_obj
def profile(invocation: Invocation, /, uris: tuple[str, ...], as_json: bool, **settings: Any) -> int:
    """Compute and show the statistics of any tables.

    Needs no configuration and stores nothing. Detects the table format. With --json, prints one line for each URI.
    """
    from metastore_assets.cli.answers import read_shapes, show_answer
    from metastore_assets.profiling import profile_table
    from metastore_assets.storage.temporary_folders import TemporaryFolder

    status = SUCCESS
    with (
        TemporaryFolder("profile") as folder,
        show_progress() as watcher,
        LazySpark({}, watcher) as spark,
    ):
        for index, uri in enumerate(uris):
            try:
                table = profile_table(_table_config(uri, settings), f"{folder}/{index}", spark, watcher)
                rows = table.statistics()
                shapes = {} if as_json else read_shapes(table, rows)
            except Exception as error:  # noqa: BLE001 (one failure must not stop the other tables)
                raise_interrupt(error)
                spark.explain(error)
                watcher.hide()
                report_error(error, invocation, uri)
                if as_json:
                    write_json({"uri": redact(uri), "error": explain_error(error)})
                status = ERROR
            else:
                watcher.hide()
                statistics = show_answer(table, rows, current=True)
                statistics = {key: value for key, value in statistics.items() if key not in ("table", "version")}
                _answer({"uri": redact(uri), **statistics}, shapes, as_json)
    return status


def _answer(statistics: Answer, shapes: Mapping[str, Sequence[int]], as_json: bool) -> None:
    from metastore_assets.cli.statistics_table import draw_statistics

    def draw(page: Page) -> None:
        draw_table_heading(page, statistics)
        draw_statistics(page, statistics["columns"], shapes, complete_options="--json")

    answer(statistics, draw, as_json=as_json)


def _table_config(uri: str, settings: dict[str, Any]) -> TableConfig:
    from metastore_assets.config import TableConfig
    from metastore_assets.errors import ConfigError
    from metastore_assets.profiling import table_name

    if uri.startswith("catalog://"):
        raise ConfigError(
            "`profile` takes locations, not names in a catalog; write a configuration with `metastore init` and the "
            "same name, then run `metastore refresh`"
        )
    return TableConfig(name=table_name(uri), uri=absolute_location(uri), **settings)


def _parse_partitions(texts: Sequence[str]) -> dict[str, list[str]]:
    """Group patterns of partition keys by column: `{"day": ["2024-01-*", "2024-02-01"]}`.

    All texts must name the same columns, and agree in all columns except one. Raises BadParameter if they do not, or
    if a text is neither a key nor a pattern.
    """
    from metastore_assets.expressions.partition_patterns import combine_partition_patterns

    try:
        return combine_partition_patterns(texts)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
