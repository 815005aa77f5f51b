"""`metastore profile`: compute and show the statistics of tables without a configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.completion import complete_file
from metastore_assets.cli.drawing import draw_table_heading
from metastore_assets.cli.failures import Invocation, explain_error, raise_interrupt, report_error
from metastore_assets.cli.options import output_options
from metastore_assets.cli.output import Answer, Page, answer, write_json
from metastore_assets.cli.progress import show_progress
from metastore_assets.cli.spark import LazySpark
from metastore_assets.messages import redact

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig


@click.command(short_help="Compute and show the statistics of any tables.")
@click.argument(
    "uris",
    metavar="URI...",
    nargs=-1,
    required=True,
    callback=lambda context, option, uris: tuple(map(_check_uri, uris)),
    shell_complete=complete_file,
)
@click.option(
    "--option",
    "options",
    metavar="KEY=VALUE",
    multiple=True,
    callback=lambda context, option, texts: dict(map(_parse_option, texts)),
    help="A reader option of the format, such as header=false or delimiter=';' for CSV. May be repeated.",
)
@click.option(
    "--schema",
    metavar="COLUMN=TYPE",
    multiple=True,
    callback=lambda context, option, texts: dict(map(_parse_pair, texts)),
    help="The type of a column of plain files, such as zip=string or 'price=decimal(10,2)'. May be repeated.",
)
@click.option(
    "--at",
    metavar="STATE",
    help="Profile a past state: a version, snapshot id, branch, tag or instant, or a time in ISO 8601.",
)
@click.option(
    "--partition",
    "partitions",
    metavar="COLUMN=PATTERN",
    multiple=True,
    callback=lambda context, option, texts: _group_values(map(_parse_pair, texts)),
    help="Profile only partitions whose value matches, such as day=2024-*. May be repeated: one pattern of each column "
    "must match.",
)
@click.option(
    "--path-mapping",
    metavar="FROM=TO",
    multiple=True,
    callback=lambda context, option, texts: {old: _absolute(new) for old, new in map(_parse_pair, texts)},
    help="Read files from below TO that the table's metadata places below FROM. May be repeated.",
)
@click.option(
    "--allow",
    metavar="PREFIX",
    multiple=True,
    callback=lambda context, option, prefixes: tuple(map(_absolute, prefixes)),
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

    status = 0
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
                status = 1
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
    from metastore_assets.profiling import table_name

    return TableConfig(name=table_name(uri), uri=_absolute(uri), **settings)


def _absolute(uri: str) -> str:
    return uri if "://" in uri else os.path.abspath(os.path.expanduser(uri))


def _check_uri(uri: str) -> str:
    if not uri.strip():
        raise click.BadParameter("a URI is empty; use `.` for the working folder")
    return uri


def _parse_option(text: str) -> tuple[str, Any]:
    """Parse an option such as `header=false` into key and value. A value that is not JSON is a text."""
    key, value = _parse_pair(text)
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _parse_pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} has no `=` after a name")
    return key, value


def _group_values(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
