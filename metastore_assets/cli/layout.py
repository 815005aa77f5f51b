"""`metastore layout`: how well the columns of a table skip files, and by which it might be ordered."""

from __future__ import annotations

import click

from metastore_assets.cli.completion import column_list
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import newest
from metastore_assets.cli.options import answering, column_names, name_argument
from metastore_assets.cli.outputs import make_output


@click.command(short_help="Show how well columns skip files.")
@name_argument
@click.option(
    "--columns",
    metavar="A,B",
    shell_complete=column_list,
    help="Only these columns; one with a comma in double quotes.",
)
@answering
@click.pass_obj
def layout(invocation: Invocation, name: str, columns: str | None, as_json: bool) -> None:
    """Show in how many files a value of a column lies, by the files' bounds, and so how many a query for it skips.

    A column that queries filter by and that is scattered is one to order, cluster or partition the table by.
    """
    from dataclasses import asdict

    from metastore_assets.cli.layout_page import print_layout

    wanted = column_names(columns)
    if columns is not None and not wanted:
        raise click.UsageError("--columns names no column")
    table = newest(invocation, name)
    version = table.version
    answer = {
        "table": name,
        "version": version.number,
        "snapshot": version.snapshot,
        "fragments": version.fragment_count,
        "columns": [asdict(own) for own in table.clustering(wanted)],
    }
    make_output(as_json).answer(answer, lambda page: print_layout(page, answer))
