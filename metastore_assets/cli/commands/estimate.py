"""`metastore estimate`: estimate the number of rows that match a predicate.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import load_config, open_version
from metastore_assets.cli.options import name_argument, output_options, predicate_option, version_option
from metastore_assets.cli.output import Answer, Page, Styled, answer
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.lookup.version_references import VersionReference


@click.command(short_help="Estimate the number of rows that match a predicate.")
@name_argument
@predicate_option
@version_option
@output_options
@click.pass_obj
def estimate(invocation: Invocation, name: str, where: str, version: VersionReference | None, as_json: bool) -> None:
    """Estimate how many rows of a version match a predicate.

    The true number lies between `lower` and `upper`, inclusive. The command reads no file of the table.
    """
    row_estimate = open_version(load_config(invocation), name, version).estimate(where)
    names = ("lower", "upper", "guarantee", "assumes")
    result = {"estimate": row_estimate.value, **{field: getattr(row_estimate, field) for field in names}}
    answer(result, lambda page: _draw(page, result), as_json=as_json)


def _draw(page: Page, result: Answer) -> None:
    if result["guarantee"] == "exact":
        page.line(Styled(text.format_count(result["estimate"], "row"), "bold"))
        return
    assumption = "; the estimate assumes that conditions on different columns are independent"
    page.line(
        Styled(f"~{result['estimate']:,} rows", "bold"),
        f", from {result['lower']:,} to {result['upper']:,}{assumption if result['assumes'] else ''}",
    )
