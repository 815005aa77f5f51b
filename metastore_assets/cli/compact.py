"""`metastore compact`: lists of values in one file for each range of them, and as plain files."""

from __future__ import annotations

from dataclasses import asdict

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import configured, table_of
from metastore_assets.cli.options import answering, name_argument
from metastore_assets.cli.outputs import make_output


@click.command()
@name_argument
@answering
@click.pass_obj
def compact(invocation: Invocation, name: str, as_json: bool) -> None:
    """Merge the files of a table's lists of values, and write them for other tools.

    Publishes a version of the same content, with all listed values by decreasing frequency in one plain file, and
    those of columns with `ranks: on` in another, with their ranks. The next commit that changes a list leaves them
    behind. Refreshes merge files as well, but no more than pays: the Metastore itself does not need this command.
    """
    from metastore_assets.pipeline.compact import compact as compact_table
    from metastore_assets.store.objects import ObjectStore
    from metastore_assets.store.versions import VersionStore

    config = configured(invocation)
    table = table_of(config, name)
    versions = VersionStore(ObjectStore(config.root, config.storage_options), table.name)
    answer = {"table": name, **asdict(compact_table(versions, table))}
    for kind in ("frequencies", "ranks"):
        answer[kind] = answer[kind] and versions.objects.uri(answer[kind])
    make_output(as_json).compacted(answer)
