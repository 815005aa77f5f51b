"""`metastore sql`: queries over what is kept of all tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import configured, metastore_of
from metastore_assets.cli.options import answering
from metastore_assets.cli.outputs import make_output

if TYPE_CHECKING:
    import pyarrow as pa

    from metastore_assets.cli.page import Page

_LISTED = 1_000
"""Rows that a terminal shows at most."""


@click.command(short_help="Query what is kept of all tables, in SQL.")
@click.argument("text", metavar="QUERY")
@click.option(
    "--unrestricted",
    is_flag=True,
    help="Let the query read and write files and load extensions, as DuckDB does. Only for queries of your own.",
)
@answering
@click.pass_obj
def sql(invocation: Invocation, text: str, unrestricted: bool, as_json: bool) -> None:
    """Query what is kept of all tables, in DuckDB's SQL.

    \b
    Views, of all tables or, as in orders.statistics, of one:
      versions              every version that is there
      statistics            columns in the newest version
      partition_statistics  the same by partition
      history               columns in all versions, expired ones too
      partitions            rows and bytes by partition
      fragments             files
      frequencies           listed values with frequencies and ranks
      histograms            bins

    The query may read these views, and nothing else: no file, no network. It is one SELECT, FROM, WITH, VALUES,
    SUMMARIZE or DESCRIBE, and changes no setting.

    \b
    metastore sql "select table_name, column_name, null_count from statistics order by 3 desc limit 10"
    """
    from metastore_assets.sql import query

    found = query(metastore_of(configured(invocation)), text, unrestricted=unrestricted)
    # JSON has no two keys of one name.
    given = found.column_names
    names = [name if name not in given[:at] else f"{name}_{at}" for at, name in enumerate(given)]
    rows = _rows(found)
    make_output(as_json).answer(
        [dict(zip(names, row, strict=True)) for row in rows], lambda page: _print(page, found, rows)
    )


def _rows(found: pa.Table) -> list[list[Any]]:
    from metastore_assets.values.json import value_json

    columns = [[value_json(value) for value in column] for column in found.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _print(page: Page, found: pa.Table, rows: list[list[Any]]) -> None:
    import pyarrow.types as t

    from metastore_assets.cli.page import Column, Styled
    from metastore_assets.report import text

    def shown(value: Any, limit: int | None) -> str:
        if isinstance(value, bool) or value is None or isinstance(value, str):
            return text.value(value, limit)
        if isinstance(value, int | float):
            return text.number(value)
        return text.value(str(value), limit)

    limit = None if page.width is None else max(20, page.width // 2)
    numeric = [t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) for kind in found.schema.types]
    columns = [
        Column(text.printable(name), right=is_numeric)
        for name, is_numeric in zip(found.column_names, numeric, strict=True)
    ]
    page.grid(columns, [[shown(value, limit) for value in row] for row in rows[:_LISTED]])
    if len(rows) > _LISTED:
        page.line(Styled(f"  the first {_LISTED:,} of {len(rows):,} rows (all with --json)", "dim"))
