"""`metastore profile`: the statistics of tables that nothing is known of, computed and printed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.completion import location
from metastore_assets.cli.failures import Invocation, explained, raise_interrupt, report
from metastore_assets.cli.options import answering
from metastore_assets.cli.outputs import make_output
from metastore_assets.cli.progress import watching
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
    callback=lambda context, option, given: tuple(map(_not_empty, given)),
    shell_complete=location,
)
@click.option(
    "--option",
    "options",
    metavar="KEY=VALUE",
    multiple=True,
    callback=lambda context, option, given: dict(map(_key_and_value, given)),
    help="A reader option of the format, such as header=false or delimiter=';' for CSV. May be repeated.",
)
@click.option(
    "--schema",
    metavar="COLUMN=TYPE",
    multiple=True,
    callback=lambda context, option, given: dict(map(_pair, given)),
    help="The type of a column of plain files, such as zip=string or 'price=decimal(10,2)'. May be repeated.",
)
@click.option(
    "--at",
    metavar="STATE",
    help="A state of the past: a version, snapshot id, branch, tag or instant, or a time in ISO 8601.",
)
@click.option(
    "--partition",
    "partitions",
    metavar="COLUMN=PATTERN",
    multiple=True,
    callback=lambda context, option, given: _grouped(map(_pair, given)),
    help="Only partitions whose value fits, such as day=2024-*. May be repeated: one of a column's patterns must fit.",
)
@click.option(
    "--path-mapping",
    metavar="FROM=TO",
    multiple=True,
    callback=lambda context, option, given: {old: _absolute(new) for old, new in map(_pair, given)},
    help="Files that the table's metadata say lie below FROM lie below TO. May be repeated.",
)
@click.option(
    "--allow",
    metavar="PREFIX",
    multiple=True,
    callback=lambda context, option, given: tuple(map(_absolute, given)),
    help="What lies below PREFIX may be read where the table's metadata name it, though it is in another store than "
    "the table. May be repeated.",
)
@click.option(
    "--restrict-to-table-root", is_flag=True, help="Refuse to read what is not below the table's own location."
)
@answering
@click.pass_obj
def profile(invocation: Invocation, /, uris: tuple[str, ...], as_json: bool, **settings: Any) -> int:
    """Compute and show the statistics of tables, wherever they lie.

    Needs no configuration and keeps nothing. The table format is found out. With --json, one line per URI.
    """
    from metastore_assets.cli.answers import profile_answer, shapes
    from metastore_assets.profiling import profile_table
    from metastore_assets.storage.temporary_folders import TemporaryFolder

    output = make_output(as_json)
    status = 0
    with (
        TemporaryFolder("profile") as folder,
        watching() as watcher,
        LazySpark({}, watcher) as spark,
    ):
        for index, uri in enumerate(uris):
            try:
                table = profile_table(_table(uri, settings), f"{folder}/{index}", spark, watcher)
                rows = table.statistics()
                pictures = shapes(table, rows) if output.draws else {}
            except Exception as error:  # noqa: BLE001 (the other tables are profiled all the same)
                raise_interrupt(error)
                spark.explain(error)
                watcher.hide()
                report(error, invocation, uri)
                output.failed({"uri": redact(uri)}, explained(error))
                status = 1
            else:
                watcher.hide()
                output.statistics(profile_answer(uri, table, rows), pictures)
    return status


def _table(uri: str, settings: dict[str, Any]) -> TableConfig:
    from metastore_assets.config import TableConfig
    from metastore_assets.profiling import table_name

    return TableConfig(name=table_name(uri), uri=_absolute(uri), **settings)


def _absolute(uri: str) -> str:
    return uri if "://" in uri else os.path.abspath(os.path.expanduser(uri))


def _not_empty(uri: str) -> str:
    if not uri.strip():
        raise click.BadParameter("a location is empty; `.` is the working folder")
    return uri


def _key_and_value(text: str) -> tuple[str, Any]:
    """`header=false`, `null_values=["NA"]`: a value that is JSON, or else the text as it stands."""
    key, value = _pair(text)
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _pair(text: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not left or not equals:
        raise click.BadParameter(f"{text!r} has no `=` behind a name")
    return left, right


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
