"""`metastore compact`: lists of values in one file for each range of them."""

from __future__ import annotations

from dataclasses import asdict

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import configured, kept_name
from metastore_assets.cli.options import answering, name_argument
from metastore_assets.cli.outputs import make_output


@click.command()
@name_argument
@answering
@click.pass_obj
def compact(invocation: Invocation, name: str, as_json: bool) -> None:
    """Merge the files of a table's lists of values.

    Publishes a version of the same content, of which other tools read the lists without adding anything up. Refreshes
    merge files as well, but no more than pays; nothing needs this command.
    """
    from metastore_assets.pipeline.compact import compact as compact_table
    from metastore_assets.store.objects import ObjectStore
    from metastore_assets.store.versions import VersionStore

    config = configured(invocation)
    versions = VersionStore(ObjectStore(config.root, config.storage_options), kept_name(config, name))
    make_output(as_json).compacted({"table": name, **asdict(compact_table(versions))})
