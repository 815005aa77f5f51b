"""`metastore prune`: list the files that a query has to read.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import load_config, open_version
from metastore_assets.cli.options import name_argument, output_options, predicate_option, version_option
from metastore_assets.cli.output import Answer, GridColumn, Page, Styled, answer
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup.version_references import VersionReference


@click.command(short_help="List the files that a query has to read.")
@name_argument
@predicate_option
@version_option
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="List only the fewest files that certainly have N matching rows; all that may match if fewer are certain.",
)
@click.option("--explain", is_flag=True, help="Show what rules out each of the other files.")
@output_options
@click.pass_obj
def prune(
    invocation: Invocation,
    name: str,
    where: str,
    version: VersionReference | None,
    limit: int | None,
    explain: bool,
    as_json: bool,
) -> None:
    """List the files of a version that may have rows that match a predicate.

    Without --limit, a file is left out only if its statistics rule out every row. The command reads no file of the
    table.
    """
    pruning = open_version(load_config(invocation), name, version).prune(where, limit=limit)
    result = {"table": name, **pruning.to_json()}
    if explain:
        result["eliminated"] = [asdict(fragment) for fragment in pruning.eliminated_fragments()]
    answer(result, lambda page: _draw(page, result), as_json=as_json)


def _draw(page: Page, result: Answer) -> None:
    paths, total = result["fragments"], result["fragments_total"]
    share = f" ({text.format_share(len(paths), total)})" if total else ""
    page.line(
        Styled(result["table"], "bold"),
        Styled(f" version {result['version']}", "green"),
        f": {len(paths):,} of {text.format_count(total, 'file')} to read{share}, "
        f"{text.format_size(result['bytes'])} of {text.format_size(result['bytes_total'])}",
    )
    lower, upper = result["rows_lower"], result["rows_upper"]
    page.line(f"  {lower:,} to {upper:,} rows" if lower < upper else f"  exactly {text.format_count(upper, 'row')}")
    if result["explanation"]:
        columns = [
            GridColumn("ruled out by"),
            GridColumn("statistic"),
            GridColumn("files", right=True),
            GridColumn("bytes", right=True),
        ]
        lines = [
            (
                text.make_printable(step["conjunct"]),
                step["statistic"],
                f"{step['fragments']:,}",
                text.format_size(step["bytes"]),
            )
            for step in result["explanation"]
        ]
        page.fitting_grid(columns, lines)
    for path in paths:
        page.line(text.make_printable(path))
    for fragment in result.get("eliminated", ()):
        reason = fragment["statistic"] + (f" {fragment['value']}" if fragment["value"] is not None else "")
        conjunct = text.make_printable(fragment["conjunct"])
        page.line(Styled(f"- {text.make_printable(fragment['path'])}  {conjunct}: {reason}", "dim"))
