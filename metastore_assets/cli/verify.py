"""`metastore verify`: read a table again, and compare what is kept of it."""

from __future__ import annotations

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import configured, table_of
from metastore_assets.cli.options import answering, name_argument, partitions_option
from metastore_assets.cli.outputs import make_output
from metastore_assets.cli.progress import watching
from metastore_assets.cli.spark import LazySpark


@click.command(short_help="Compare the newest version with the table's files.")
@name_argument
@partitions_option("Only this partition")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Only N fragments, drawn at random.")
@answering
@click.pass_obj
def verify(invocation: Invocation, name: str, partitions: tuple[str, ...], sample: int | None, as_json: bool) -> int:
    """Compare the newest version with what the table's files say.

    They are read again; each number that differs is told. Estimates are not compared. Changes nothing. Exit status 1
    when anything differs or cannot be read.
    """
    from metastore_assets.pipeline.verifying.verify import verify as verify_table

    config = configured(invocation)
    table = table_of(config, name)
    with watching() as watcher, LazySpark(config.spark, watcher) as spark:
        result = verify_table(config, table, spark, partitions=partitions, sample=sample, progress=watcher)
        watcher.hide()
    make_output(as_json).verified(result.to_json())
    return 0 if result.is_right else 1
