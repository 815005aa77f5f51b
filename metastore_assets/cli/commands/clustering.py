"""`metastore clustering`: show how well the columns of a table skip files."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from metastore_assets.cli.drawing import bar
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import load_config, open_version
from metastore_assets.cli.options import (
    columns_option,
    name_argument,
    output_options,
    parse_column_names,
    version_option,
)
from metastore_assets.cli.output import Answer, GridColumn, Page, Styled, answer
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup.version_references import VersionReference

_BAR_WIDTH = 20
_STYLES = {"clustered": "green", "partly": "yellow", "scattered": "red"}


@click.command(short_help="Show how well columns skip files.")
@name_argument
@columns_option
@version_option
@output_options
@click.pass_obj
def clustering(
    invocation: Invocation, name: str, columns: str | None, version: VersionReference | None, as_json: bool
) -> None:
    """Show how many files may have a value of a column, and how many a query for that value skips.

    Uses the minima and maxima of the files. If queries filter by a scattered column, order, cluster or partition the
    table by it.
    """
    names = parse_column_names(columns)
    table = open_version(load_config(invocation), name, version)
    result = {
        "table": name,
        "version": table.version.number,
        "snapshot": table.version.snapshot,
        "fragments": table.version.fragment_count,
        "columns": [asdict(column) for column in table.clustering(names)],
    }
    answer(result, lambda page: _draw(page, result), as_json=as_json)


def _draw(page: Page, result: Answer) -> None:
    files = text.format_count(result["fragments"], "file")
    page.line(Styled(text.make_printable(result["table"]), "bold"), f" version {result['version']}: {files}")
    measured_columns = [column for column in result["columns"] if column["depth"] is not None]
    measured_columns.sort(key=lambda column: (column["depth"], column["column"]))
    headings = [
        GridColumn("column", style="bold"),
        *(GridColumn(name, right=True) for name in ("in files", "at most", "skips")),
    ]
    headings += [GridColumn("", style="green"), GridColumn("verdict")]
    lines = []
    for column in measured_columns:
        verdict = column["verdict"] if column["verdict"] != "unknown" else "too few files to judge"
        lines.append(
            (
                text.make_printable(column["column"]),
                f"{column['depth']:,.1f}",
                f"{column['deepest']:,}",
                f"{column['skipped']:.0%}",
                bar(round(column["skipped"] * 1000), 1000, _BAR_WIDTH),
                Styled(verdict, _STYLES.get(column["verdict"], "dim")),
            )
        )
    if lines:
        page.fitting_grid(headings, lines)
    scattered_columns = [
        text.make_printable(column["column"]) for column in measured_columns if column["verdict"] == "scattered"
    ]
    if scattered_columns:
        names = ", ".join(scattered_columns[:5]) + (", …" if len(scattered_columns) > 5 else "")
        advice = "  to skip files by a scattered column, order, cluster or partition the table by it: "
        page.line(Styled(advice, "dim"), names)
    if unmeasured_count := len(result["columns"]) - len(measured_columns):
        page.line(Styled(f"  {text.format_count(unmeasured_count, 'column')} without bounds", "dim"))
