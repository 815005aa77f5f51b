"""`metastore diff`: what is different between two versions of a table, or between two tables."""

from __future__ import annotations

import click

from metastore_assets.cli.completion import table_names
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import configured, published, version_choice
from metastore_assets.cli.options import answering, name_argument
from metastore_assets.cli.outputs import make_output
from metastore_assets.errors import VersionNotFoundError

_VERSION = "its number, `snapshot:ID`, or a time in ISO 8601"


@click.command(short_help="Show what is different between two versions.")
@name_argument
@click.option("--from", "before", metavar="VERSION", help=f"The earlier one: {_VERSION}.  [default: the one before]")
@click.option("--to", "after", metavar="VERSION", help="The later version.  [default: the newest]")
@click.option(
    "--baseline",
    metavar="TABLE",
    shell_complete=table_names,
    help="Compare with this table instead, at --from or as it is now. Columns are paired by name.",
)
@click.option("--all", "everything", is_flag=True, help="List also the columns that are the same.")
@answering
@click.pass_obj
def diff(
    invocation: Invocation,
    name: str,
    before: str | None,
    after: str | None,
    baseline: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Show what is different between two versions of a table: schema, rows, nulls, distinct values, distributions.

    PSI is the population stability index: by custom less than 0.1 is stable, more than 0.25 has shifted. KS, after
    Kolmogorov and Smirnov, and JS, after Jensen and Shannon, are from 0 to 1.
    """
    from metastore_assets.cli.diff_page import print_diff
    from metastore_assets.lookup.diff import diff_json

    config = configured(invocation)
    table = published(config, name, version_choice(after))
    if baseline is not None:
        other = published(config, baseline, version_choice(before))
    elif before is not None:
        other = table.at(version_choice(before) or table)
    else:
        numbers = [number for number in table.versions.numbers() if number < table.version.number]
        if not numbers:
            raise VersionNotFoundError(
                f"table {name!r} has no version before {table.version.number} to compare with: give another "
                "table with --baseline"
            )
        other = table.at(numbers[-1])
    found = table.diff(other)
    make_output(as_json).answer(diff_json(found), lambda page: print_diff(page, found, everything=everything))
