"""`metastore prune`, `estimate` and `count`: questions about the rows that a predicate is true of."""

from __future__ import annotations

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import configured, newest, published, table_of
from metastore_assets.cli.options import answering, name_argument
from metastore_assets.cli.outputs import make_output
from metastore_assets.cli.progress import watching
from metastore_assets.cli.spark import LazySpark

where_option = click.option(
    "--where",
    required=True,
    metavar="E",
    help="A predicate in SQL, such as \"price > 100 and country in ('FR', 'DE')\".",
)


@click.command(short_help="List the files that a query has to read.")
@name_argument
@where_option
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="No more files than it takes for so many rows.")
@click.option("--explain", is_flag=True, help="Tell of each other file what rules it out.")
@answering
@click.pass_obj
def prune(invocation: Invocation, name: str, where: str, limit: int | None, explain: bool, as_json: bool) -> None:
    """List the files of the newest version that may have rows that a predicate is true of.

    A file is left out only where its statistics rule out every row. Reads no file of the table.
    """
    from dataclasses import asdict

    found = newest(invocation, name).prune(where, limit)
    answer = found.to_json()
    if explain:
        answer["eliminated"] = [asdict(own) for own in found.eliminated_fragments()]
    make_output(as_json).pruned({"table": name, **answer})


@click.command(short_help="Estimate how many rows a predicate is true of.")
@name_argument
@where_option
@answering
@click.pass_obj
def estimate(invocation: Invocation, name: str, where: str, as_json: bool) -> None:
    """Estimate how many rows of the newest version a predicate is true of.

    There are no fewer than `lower` and no more than `upper`. Reads no file of the table.
    """
    from dataclasses import asdict

    make_output(as_json).estimated(asdict(newest(invocation, name).estimate(where)))


@click.command(short_help="Count the rows that a predicate is true of.")
@name_argument
@where_option
@click.option(
    "--snapshot",
    type=click.Choice(["now", "version"]),
    default="now",
    show_default=True,
    help="Of the table as it is now, or as it was when the newest version was made.",
)
@answering
@click.pass_obj
def count(invocation: Invocation, name: str, where: str, snapshot: str, as_json: bool) -> None:
    """Count the rows that a predicate is true of, exactly.

    Of files with all or none of such rows the newest version says how many; only the others are read.
    """
    config = configured(invocation)
    table = table_of(config, name)
    lookup = published(config, name)

    from metastore_assets.scan import count as count_rows

    with watching() as watcher, LazySpark(config.spark, watcher) as spark:
        found = count_rows(lookup, table, where, spark, snapshot="version" if snapshot == "version" else "now")
        watcher.hide()
    make_output(as_json).counted(found.to_json())
