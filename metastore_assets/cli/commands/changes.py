"""`metastore changes`: show which values were added or deleted, or changed in frequency.

The value counts of a column are its distinct values with their frequencies. A version is the published statistics of a
table at one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import load_config, open_version
from metastore_assets.cli.options import (
    columns_option,
    name_argument,
    output_options,
    parse_column_names,
    since_option,
    version_option,
)
from metastore_assets.cli.output import Answer, GridColumn, Page, Styled, answer
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup.version_references import VersionReference

_SIGNS = {"add": ("+", "green"), "delete": ("-", "red"), "update": ("~", "yellow")}
_WORDS = {"add": "added", "update": "changed", "delete": "deleted"}


@click.command(short_help="Show which values were added or deleted, or changed in frequency.")
@name_argument
@since_option("The earlier version", required=True)
@version_option
@columns_option
@click.option(
    "-n",
    "limit",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Show the N values of each column that changed most. JSON has all values unless you give this option.",
)
@output_options
@click.pass_context
def changes(
    context: click.Context,
    name: str,
    since: VersionReference,
    version: VersionReference | None,
    columns: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show which values were added or deleted since an earlier version, or changed in frequency.

    Works for columns with value counts. If the versions in between are still stored, the cost depends only on the size
    of the change.
    """
    from metastore_assets.lookup.value_count_changes import changes_json

    invocation: Invocation = context.ensure_object(Invocation)
    is_limit_explicit = context.get_parameter_source("limit") is not click.core.ParameterSource.DEFAULT
    names = parse_column_names(columns)
    table_changes = open_version(load_config(invocation), name, version).changes(since, names)
    document = changes_json(name, table_changes, limit if is_limit_explicit else None)
    answer(document, lambda page: _draw(page, document, limit, has_selection=names is not None), as_json=as_json)


def _draw(page: Page, document: Answer, limit: int, *, has_selection: bool) -> None:
    """Draw a grid for each changed column, then a line with the number of unchanged columns.

    Args:
        page: The page to draw on.
        document: The JSON answer.
        limit: The maximum number of values in each grid.
        has_selection: Whether the user named the columns. If so, each column with unknown changes has a line with the
            reason. Otherwise, only the number of these columns is drawn.
    """
    sides = f" version {document['before']['version']:,} → {document['after']['version']:,}"
    page.line(Styled(text.make_printable(document["table"]), "bold"), sides)
    same_count = unknown_count = 0
    for column in document["columns"]:
        if column["changes"] is None:
            unknown_count += 1
            if has_selection:
                reason = text.make_printable(column["reason"] or "")
                page.line(Styled(f"{text.make_printable(column['column'])}: {reason}", "dim"))
        elif not any(column["counts"].values()):
            same_count += 1
        else:
            _draw_column(page, column, limit)
    facts = [f"{text.format_count(same_count, 'column')} the same"] if same_count else []
    if unknown_count and not has_selection:
        facts.append(f"{text.format_count(unknown_count, 'column')} without value counts (--columns shows why)")
    if facts:
        page.line(Styled(f"  {', '.join(facts)}", "dim"))


def _draw_column(page: Page, column: Answer, limit: int) -> None:
    counts = column["counts"]
    total = sum(counts.values())
    facts = ", ".join(f"{counts[kind]:,} {word}" for kind, word in _WORDS.items() if counts[kind])
    page.line(Styled(text.make_printable(column["column"]), "bold"), f"  {text.format_count(total, 'value')}: {facts}")
    lines = []
    for row in _largest_changes(column["changes"], limit):
        sign, style = _SIGNS[row["change"]]
        before, after = (int(row[side] or 0) for side in ("before", "after"))
        value = text.truncate(text.format_typed_value(row["value"], column["type"]), 60)
        lines.append((Styled(sign, style), value, f"{before:,}", f"{after:,}", f"{after - before:+,}"))
    headings = [
        GridColumn(""),
        GridColumn("value"),
        *(GridColumn(name, right=True) for name in ("before", "after", "change")),
    ]
    page.fitting_grid(headings, lines)
    if total > len(lines):
        page.line(Styled(f"  and {total - len(lines):,} more (-n, --json)", "dim"))


def _largest_changes(rows: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Return the rows with the largest changes of frequency, at most `limit`, in the order of `rows`."""
    sizes = [abs(int(row["after"] or 0) - int(row["before"] or 0)) for row in rows]
    largest_indices = sorted(range(len(rows)), key=lambda index: -sizes[index])[:limit]
    return [rows[index] for index in sorted(largest_indices)]
