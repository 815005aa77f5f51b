"""`metastore changes`: what a table's commits changed, value by value."""

from __future__ import annotations

import click

from metastore_assets.cli.completion import column_list
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import newest, version_choice
from metastore_assets.cli.options import answering, column_names, name_argument
from metastore_assets.cli.outputs import make_output


@click.command(short_help="Show which values came, went, or occur otherwise often.")
@name_argument
@click.option(
    "--since",
    required=True,
    metavar="VERSION",
    help="Since this version: its number, `snapshot:ID`, or a time in ISO 8601.",
)
@click.option(
    "--columns",
    metavar="A,B",
    shell_complete=column_list,
    help="Only these columns; one with a comma in double quotes.",
)
@click.option(
    "-n",
    "most",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Values of each column, those with the largest change; JSON has all, unless this is given.",
)
@answering
@click.pass_context
def changes(context: click.Context, name: str, since: str, columns: str | None, most: int, as_json: bool) -> None:
    """Show of each listed column the values that came, went, or occur otherwise often, since an earlier version.

    Costs what changed, as long as the versions in between are kept.
    """
    from metastore_assets.cli.changes_page import print_changes
    from metastore_assets.lookup.changes import changes_json

    invocation: Invocation = context.ensure_object(Invocation)
    given = context.get_parameter_source("most") is not click.core.ParameterSource.DEFAULT
    wanted = column_names(columns)
    if columns is not None and not wanted:
        raise click.UsageError("--columns names no column")
    table = newest(invocation, name)
    found = table.changes(version_choice(since) or 0, wanted)
    document = changes_json(name, found, most if given else None)
    make_output(as_json).answer(document, lambda page: print_changes(page, document, most, chosen=wanted is not None))
