"""`metastore purge`: remove what must not be told any more."""

from __future__ import annotations

from dataclasses import asdict

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import configured, kept_name
from metastore_assets.cli.options import answering, name_argument
from metastore_assets.cli.outputs import make_output
from metastore_assets.cli.progress import watching
from metastore_assets.cli.spark import LazySpark


@click.command(short_help="Remove older versions, and traces of former rows.")
@name_argument
@click.option(
    "--before", type=click.IntRange(min=1), metavar="VERSION", required=True, help="The oldest version that stays."
)
@answering
@click.pass_obj
def purge(invocation: Invocation, name: str, before: int, as_json: bool) -> None:
    """Remove older versions, and traces of former rows, at once.

    For values that must not be told any more: refresh the table, then purge it before the newest version, which is
    then published once more. A reader of an older version is stopped by that, and may try again; a refresh that runs
    begins again. Files that no version names go too, whatever their age. What restoring former files of the table
    would need goes as well: they would be read again.
    """
    from metastore_assets.pipeline.engine import Engine
    from metastore_assets.pipeline.purge import purge as purge_table
    from metastore_assets.store.versions import versions_of

    config = configured(invocation)
    versions = versions_of(config, kept_name(config, name))
    with watching() as watcher, LazySpark(config.spark, watcher) as spark:
        done = purge_table(Engine.of(config, spark), versions, before)
        watcher.hide()
    make_output(as_json).purged({"table": name, **asdict(done)})
