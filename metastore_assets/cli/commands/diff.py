"""`metastore diff`: compare two versions of a table, or two tables.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.completion import complete_tables
from metastore_assets.cli.drawing import draw_hidden_columns
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import load_config, open_version
from metastore_assets.cli.options import name_argument, output_options, since_option, version_option
from metastore_assets.cli.output import GridColumn, Page, Part, Styled, answer
from metastore_assets.errors import VersionNotFoundError
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup.diff import ColumnDiff, TableDiff
    from metastore_assets.lookup.version_references import VersionReference
    from metastore_assets.statistics.column import ColumnStatistics

_STABLE, _SHIFTED = 0.1, 0.25
"""The population stability index up to which a distribution is stable, and the one above which it has shifted."""
_STYLES = {"added": "green", "removed": "red", "changed": "", "same": "dim"}


@click.command(short_help="Compare two versions of a table.")
@name_argument
@since_option("The earlier version")
@version_option
@click.option(
    "--baseline",
    metavar="TABLE",
    shell_complete=complete_tables,
    help="Compare with this table instead, at --since or at its newest version. Columns are paired by name.",
)
@click.option("--all", "everything", is_flag=True, help="Also list the columns that are the same.")
@output_options
@click.pass_obj
def diff(
    invocation: Invocation,
    name: str,
    since: VersionReference | None,
    version: VersionReference | None,
    baseline: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Compare schema, rows, nulls, distinct values and distributions of two versions of a table.

    PSI, the population stability index, commonly counts as stable below 0.1 and as shifted above 0.25. KS, the
    Kolmogorov-Smirnov distance, and JS, the Jensen-Shannon distance, are between 0 and 1.
    """
    from metastore_assets.lookup.diff import diff_json

    config = load_config(invocation)
    table = open_version(config, name, version)
    if baseline is not None:
        other_table = open_version(config, baseline, since)
    elif since is not None:
        other_table = table.at(since)
    else:
        numbers = [number for number in table.versions.numbers() if number < table.version.number]
        if not numbers:
            raise VersionNotFoundError(
                f"table {name!r} has no version before {table.version.number} to compare with: give another "
                "table with --baseline"
            )
        other_table = table.at(numbers[-1])
    table_diff = table.diff(other_table)
    answer(diff_json(table_diff), lambda page: _draw(page, table_diff, everything=everything), as_json=as_json)


def _draw(page: Page, table_diff: TableDiff, *, everything: bool) -> None:
    """Draw versions, sizes, changes of the schema, and a grid of changed columns.

    With `everything`, the grid has all columns.
    """
    versions = zip(table_diff.tables, (table_diff.before, table_diff.after), strict=True)
    sides = [
        f"{name} version {version.version:,}, snapshot {text.shorten(version.snapshot, 20)}"
        for name, version in versions
    ]
    page.line(Styled(sides[0], "bold"), " → ", Styled(sides[1], "bold"))
    sizes = " → ".join(map(text.format_size, table_diff.bytes))
    page.line(f"  rows {text.format_count_change(*table_diff.row_count)}, {sizes}")
    if table_diff.partitions is not None:
        counts = [f"{count:,} {change}" for change, count in vars(table_diff.partitions).items() if count]
        page.line("  partitions: " + (", ".join(counts) or "none"))
    for column in table_diff.columns:
        _draw_schema_change(page, column)
    shown_columns = [column for column in table_diff.columns if everything or column.change != "same"]
    shown_columns.sort(key=lambda column: -(column.distances.stability_index if column.distances else 0))
    if shown_columns:
        headings = [
            GridColumn("column", style="bold"),
            *(GridColumn(heading, right=True) for heading in ("nulls", "distinct", "mean", "PSI", "KS", "JS")),
            GridColumn("over", style="dim"),
        ]
        lines = [_column_line(column) for column in shown_columns]
        draw_hidden_columns(page, page.fitting_grid(headings, lines, ["mean", "JS", "KS"]))
    same_count = len(table_diff.columns) - len(shown_columns)
    if same_count:
        page.line(Styled(f"  {text.format_count(same_count, 'column')} the same (--all lists them)", "dim"))


def _draw_schema_change(page: Page, column: ColumnDiff) -> None:
    """Draw lines about an added, removed, renamed or retyped column; nothing for other columns."""
    name = text.make_printable(column.column)
    statistics = column.after or column.before
    assert statistics is not None
    if column.change in ("added", "removed"):
        sign = "+" if column.change == "added" else "-"
        page.line(Styled(f"  {sign} {name} {text.format_type(statistics.type)}", _STYLES[column.change]))
        return
    assert column.before is not None
    if column.is_renamed:
        page.line(Styled(f"  {text.make_printable(column.before.column)} is now called {name}", "yellow"))
    if column.is_retyped:
        types = text.format_type_change(column.before.type, statistics.type)
        page.line(Styled(f"  {name}: {types}", "yellow"))


def _column_line(column: ColumnDiff) -> tuple[Part, ...]:
    """Return the cells of a column's line.

    They are name, nulls, distinct values, mean, PSI, KS, JS, and what was compared. The last cell is, for example, `12
    bins`. If there are no distances, the last cell says why, for example `added`.
    """
    distances = column.distances
    name = Styled(text.make_printable(column.column), f"bold {_STYLES[column.change]}".strip())
    counts = [
        _format_sides(column, _null_share),
        _format_sides(column, _distinct_count),
        _format_sides(column, lambda row: text.format_number(row.mean)),
    ]
    if distances is None:
        reason = column.reason or ("added" if column.change == "added" else "removed")
        return (name, *counts, *[text.ABSENT] * 3, text.to_one_line(reason))
    shift = distances.stability_index
    style = "red" if shift > _SHIFTED else "yellow" if shift > _STABLE else ""
    other_distances = [_format_distance(distances.kolmogorov_smirnov), _format_distance(distances.jensen_shannon)]
    return (name, *counts, Styled(_format_distance(shift), style), *other_distances, distances.over)


def _format_distance(value: float) -> str:
    return "0" if value == 0 else "<0.001" if value < 0.001 else f"{value:.3f}"


def _format_sides(column: ColumnDiff, format_cell: Callable[[ColumnStatistics], str]) -> str:
    """Format a cell as `before → after`, or as one text if both are equal."""
    sides = [None if row is None else format_cell(row) for row in (column.before, column.after)]
    if sides[0] == sides[1]:
        return str(sides[0])
    return " → ".join("" if side is None else side for side in sides).strip()


def _null_share(row: ColumnStatistics) -> str:
    return text.format_share(row.null_count, row.null_count + row.value_count)


def _distinct_count(row: ColumnStatistics) -> str:
    return text.mark_estimate(text.format_number(row.distinct_count), row.distinct_count_guarantee)
