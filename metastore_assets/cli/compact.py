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
    """Write a table's values as plain files for other tools.

    Publishes a version of the same content whose lists are merged, with all listed values by decreasing frequency in
    one file, and those of columns with `ranks: on` in another, with their ranks. The next commit that changes a list
    leaves them behind. Refreshes merge lists as well, but no more than pays: the Metastore does not need this command.
    """
    from metastore_assets.pipeline.value_counts.compact import compact as compact_table
    from metastore_assets.store.versions import versions_of

    config = configured(invocation)
    table = table_of(config, name)
    versions = versions_of(config, table.name)
    answer = {"table": name, **asdict(compact_table(versions, table))}
    for kind in ("frequencies", "ranks"):
        answer[kind] = answer[kind] and versions.objects.uri(answer[kind])
    make_output(as_json).compacted(answer)
