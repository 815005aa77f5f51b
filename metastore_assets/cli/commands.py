"""The `metastore` command, and those of its commands that need no Spark."""

from __future__ import annotations

from datetime import timedelta

import click

from metastore_assets.cli.backfill import backfill
from metastore_assets.cli.changes import changes
from metastore_assets.cli.check import check
from metastore_assets.cli.check_statistic import check_statistic
from metastore_assets.cli.compact import compact
from metastore_assets.cli.completion import column_list
from metastore_assets.cli.diff import diff
from metastore_assets.cli.failures import Invocation, MetastoreGroup, note
from metastore_assets.cli.filtering import count, estimate, prune
from metastore_assets.cli.history import history
from metastore_assets.cli.layout import layout
from metastore_assets.cli.opening import (
    column_answer,
    configured,
    kept_name,
    metastore_of,
    published,
    with_databases,
)
from metastore_assets.cli.options import (
    answering,
    column_argument,
    column_names,
    global_options,
    name_argument,
    partition_option,
)
from metastore_assets.cli.outputs import make_output
from metastore_assets.cli.profile_command import profile
from metastore_assets.cli.purge import purge
from metastore_assets.cli.refresh import refresh
from metastore_assets.cli.report import report
from metastore_assets.cli.scoping import asked, where_option
from metastore_assets.cli.spark_server import spark_server
from metastore_assets.cli.sql import sql
from metastore_assets.cli.values import quantile, rank
from metastore_assets.cli.values import where as where_is
from metastore_assets.cli.verify import verify

_EPILOG = """\b
Completion of names with Tab, in bash (docs/reference/output.md has other shells):
  eval "$(_METASTORE_COMPLETE=bash_source metastore)"
"""
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=MetastoreGroup, context_settings=_SETTINGS, epilog=_EPILOG)
@click.version_option(package_name="metastore-assets", message="%(version)s")
@global_options
def cli() -> None:
    """Rich column statistics of lakehouse tables, true after every commit.

    `profile` looks at any table at once. The other commands work on the tables of a configuration: `refresh` brings
    what is kept of them up to date, and the rest reads that, without Spark.
    """


cli.add_command(refresh)
cli.add_command(backfill)
cli.add_command(profile)
cli.add_command(verify)
cli.add_command(purge)
cli.add_command(check)
cli.add_command(check_statistic)
cli.add_command(compact)
cli.add_command(diff)
cli.add_command(changes)
cli.add_command(history)
cli.add_command(layout)
cli.add_command(report)
cli.add_command(sql)
cli.add_command(spark_server)
cli.add_command(quantile)
cli.add_command(rank)
cli.add_command(where_is)
cli.add_command(prune)
cli.add_command(estimate)
cli.add_command(count)


@cli.command()
@answering
@click.pass_obj
def tables(invocation: Invocation, as_json: bool) -> None:
    """List the configured tables and their newest versions."""
    from metastore_assets.cli.answers import table_answers

    make_output(as_json).tables(table_answers(with_databases(configured(invocation))[0]))


@cli.command()
@name_argument
@partition_option
@where_option
@click.option(
    "--columns",
    metavar="A,B",
    shell_complete=column_list,
    help="Only these columns, with all that is known of them; one with a comma in double quotes.",
)
@click.option("--partitions", is_flag=True, help="List the partitions instead.")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="An older version instead of the newest.")
@answering
@click.pass_obj
def show(
    invocation: Invocation,
    name: str,
    partition: str | None,
    where: str | None,
    columns: str | None,
    partitions: bool,
    version: int | None,
    as_json: bool,
) -> None:
    """Show the statistics of a table's columns."""
    from metastore_assets.cli.answers import partition_answers, shapes, show_answer
    from metastore_assets.cli.current import CurrentCheck

    if partitions and any(given is not None for given in (partition, columns, where)):
        raise click.UsageError("--partitions lists all of them: it goes with no --partition, --columns or --where")
    if columns is not None and not column_names(columns):
        raise click.UsageError("--columns names no column")
    config = configured(invocation)
    check = CurrentCheck(config, name)
    output = make_output(as_json)
    with asked(config, name, where, partition, version) as (table, key):
        rows = [] if partitions else table.statistics(column_names(columns), key)
        pictures = shapes(table, rows, key) if output.draws else {}
        current, reason = check.is_current(table.version)
        if reason is not None:
            note(reason)
        answer = show_answer(table, rows, current, key, chosen=columns is not None, complete=as_json)
        listed = partition_answers(table) if partitions else None
    if listed is not None:
        output.partitions(answer, listed)
    else:
        where_told = {} if where is None else {"where": where}
        output.statistics({**answer, **where_told}, pictures, chosen=columns is not None)


@cli.command()
@name_argument
@column_argument
@click.option(
    "-n", "count", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="Number of values."
)
@partition_option
@where_option
@answering
@click.pass_obj
def top(
    invocation: Invocation,
    name: str,
    column: str,
    count: int,
    partition: str | None,
    where: str | None,
    as_json: bool,
) -> None:
    """Show the most frequent values of a column."""
    from metastore_assets.lookup.json import top_json

    with asked(configured(invocation), name, where, partition) as (table, key):
        values = top_json(table.top(column, count, key))
        subject = column_answer(table, column, key)
    make_output(as_json).top(subject, values)


@cli.command()
@name_argument
@column_argument
@click.option("--bins", type=click.IntRange(min=1), metavar="N", help="At most so many bins.  [default: as kept]")
@partition_option
@where_option
@answering
@click.pass_obj
def histogram(
    invocation: Invocation,
    name: str,
    column: str,
    bins: int | None,
    partition: str | None,
    where: str | None,
    as_json: bool,
) -> None:
    """Show the distribution of a numeric or temporal column."""
    from metastore_assets.lookup.json import histogram_json

    output = make_output(as_json)
    with asked(configured(invocation), name, where, partition) as (table, key):
        found = histogram_json(table.histogram(column, bins or output.default_bins, key))
        subject = column_answer(table, column, key)
    output.histogram(subject, found)


@cli.command()
@name_argument
@answering
@click.pass_obj
def versions(invocation: Invocation, name: str, as_json: bool) -> None:
    """List the published versions of a table, the newest first."""
    from metastore_assets.cli.answers import version_answers

    config = configured(invocation)
    latest = published(config, name).version
    make_output(as_json).versions(version_answers(metastore_of(config), name, latest))


@cli.command()
@name_argument
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Versions to keep.  [default: as configured]")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=24.0,
    show_default=True,
    metavar="HOURS",
    help="What is younger stays: longer than any refresh or reader that may be running.",
)
@answering
@click.pass_obj
def expire(invocation: Invocation, name: str, keep: int | None, grace: float, as_json: bool) -> None:
    """Remove old versions of a table and their files.

    And whatever else no version names, such as files of a refresh that was killed.
    """
    from metastore_assets.extras import is_installed
    from metastore_assets.history import append_versions, why_unavailable
    from metastore_assets.store.versions import versions_of

    config = configured(invocation)
    versions = versions_of(config, kept_name(config, name))
    most = keep or config.keep_versions
    if len(versions.numbers()) > most and is_installed("history"):
        reason = why_unavailable(versions.objects)
        if reason is None:
            append_versions(versions)
        else:
            note(reason)
    removed = versions.expire(most, timedelta(hours=grace))
    make_output(as_json).expired(
        {"table": name, "versions": removed.versions, "files": removed.files, "bytes": removed.bytes}
    )
