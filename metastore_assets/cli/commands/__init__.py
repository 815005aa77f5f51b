"""The `metastore` command and its subcommands, one module each."""

from __future__ import annotations

import click

from metastore_assets.cli.commands.backfill import backfill
from metastore_assets.cli.commands.changes import changes
from metastore_assets.cli.commands.check import check
from metastore_assets.cli.commands.check_statistic import check_statistic
from metastore_assets.cli.commands.clustering import clustering
from metastore_assets.cli.commands.compact import compact
from metastore_assets.cli.commands.count import count
from metastore_assets.cli.commands.diff import diff
from metastore_assets.cli.commands.doctor import doctor
from metastore_assets.cli.commands.estimate import estimate
from metastore_assets.cli.commands.expire import expire
from metastore_assets.cli.commands.export import export
from metastore_assets.cli.commands.histogram import histogram
from metastore_assets.cli.commands.history import history
from metastore_assets.cli.commands.init import init
from metastore_assets.cli.commands.locate import locate
from metastore_assets.cli.commands.profile import profile
from metastore_assets.cli.commands.prune import prune
from metastore_assets.cli.commands.purge import purge
from metastore_assets.cli.commands.quantile import quantile
from metastore_assets.cli.commands.rank import rank
from metastore_assets.cli.commands.refresh import refresh
from metastore_assets.cli.commands.report import report
from metastore_assets.cli.commands.schema import schema
from metastore_assets.cli.commands.show import show
from metastore_assets.cli.commands.spark_server import spark_server
from metastore_assets.cli.commands.sql import sql
from metastore_assets.cli.commands.tables import tables
from metastore_assets.cli.commands.top import top
from metastore_assets.cli.commands.verify import verify
from metastore_assets.cli.commands.versions import versions
from metastore_assets.cli.failures import MetastoreGroup
from metastore_assets.cli.options import global_options

_EPILOG = """\b
Completion of names with Tab in bash (see docs/reference/output.md for other shells):
  eval "$(_METASTORE_COMPLETE=bash_source metastore)"
"""
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=MetastoreGroup, context_settings=_SETTINGS, epilog=_EPILOG)
@click.version_option(package_name="metastore-assets", message="%(version)s")
@global_options
def cli() -> None:
    """Rich column statistics of lakehouse tables, true after every commit.

    `profile` computes the statistics of any table. The other commands work on the tables of a configuration, which
    `init` writes; NAME is the name of a table in it. `refresh` brings the stored statistics up to date. The rest reads
    the stored statistics, mostly without Spark.
    """


_SECTIONS = {
    "Common commands": (profile, refresh, show, top, check),
    "Set up and refresh": (init, doctor, tables, backfill, spark_server),
    "Look at a table": (histogram, quantile, rank, locate, history, report, sql, schema),
    "Plan a query": (prune, estimate, count, clustering, export),
    "Compare versions": (versions, changes, diff),
    "Check the statistics": (verify, check_statistic),
    "Maintain the store": (compact, expire, purge),
}
"""The commands by the sections of `metastore --help`."""

for _title, _commands in _SECTIONS.items():
    for _command in _commands:
        cli.add_command_to_section(_title, _command)
