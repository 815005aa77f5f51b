"""`metastore count`: count the rows that match a predicate.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import find_table_config, load_config, open_version
from metastore_assets.cli.options import name_argument, output_options, predicate_option, version_option
from metastore_assets.cli.output import Answer, Page, Styled, answer
from metastore_assets.cli.progress import show_progress
from metastore_assets.cli.spark import LazySpark
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup.table import SnapshotChoice
    from metastore_assets.lookup.version_references import VersionReference


@click.command(short_help="Count the rows that match a predicate.")
@name_argument
@predicate_option
@click.option(
    "--snapshot",
    type=click.Choice(["now", "version"]),
    help="Count the rows of the table's current snapshot, or of the snapshot that a version describes.  [default: now; "
    "version if you give --version]",
)
@version_option
@output_options
@click.pass_obj
def count(
    invocation: Invocation, name: str, where: str, snapshot: str | None, version: VersionReference | None, as_json: bool
) -> None:
    """Count the rows that match a predicate, exactly.

    Reads only the files in which some rows may match and others not. For all other files, the stored statistics tell
    how many rows match.
    """
    config = load_config(invocation)
    table = find_table_config(config, name)
    lookup = open_version(config, name, version)

    from metastore_assets.lookup.json import count_json
    from metastore_assets.scan import count as count_rows

    default = "now" if version is None else "version"
    choice: SnapshotChoice = "version" if (snapshot or default) == "version" else "now"
    with show_progress() as watcher, LazySpark(config.spark, watcher) as spark:
        watcher.working(name, "counting rows")
        row_count = count_rows(lookup, table, where, spark, snapshot=choice)
        watcher.hide()
    result = count_json(row_count)
    answer(result, lambda page: _draw(page, result), as_json=as_json)


def _draw(page: Page, result: Answer) -> None:
    read_text = f"{result['fragments_read']:,} of {text.format_count(result['fragments_total'], 'file')}"
    page.line(
        Styled(text.format_count(result["count"], "row"), "bold"),
        f"; read {read_text}, {text.format_size(result['bytes_read'])} of them",
    )
