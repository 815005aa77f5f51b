"""`metastore sql`: query the stored statistics of all tables.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.drawing import draw_hidden_columns
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import find_table_config, load_config, open_metastore
from metastore_assets.cli.options import output_options
from metastore_assets.cli.output import GridColumn, Page, Styled, answer
from metastore_assets.report import text

if TYPE_CHECKING:
    import pyarrow as pa

    from metastore_assets.config import MetastoreConfig, TableConfig

_LISTED_ROWS = 1_000
"""The maximum number of rows that a page shows."""


@click.command(short_help="Query the stored statistics of all tables in SQL.")
@click.argument("statement", metavar="QUERY")
@click.option(
    "--unrestricted",
    is_flag=True,
    help="Let the query read and write files, load extensions, and read hidden columns. Use it only for queries that "
    "you wrote.",
)
@output_options
@click.pass_obj
def sql(invocation: Invocation, statement: str, unrestricted: bool, as_json: bool) -> None:
    """Query tables and their stored statistics in DuckDB's SQL.

    Name a published table directly: `select … from orders where …`. Only files that may have matching rows are
    opened. Hidden columns are left out, except with --unrestricted.

    \b
    Views of the statistics of all tables, or of one table as in orders.statistics:
      versions              every published version
      statistics            columns in the newest version
      partition_statistics  the same for each partition
      history               columns in all versions, including expired ones
      partitions            rows and bytes of each partition
      fragments             files
      frequencies           value counts and ranks
      histograms            bins

    The query can read only tables and views: no other files, no network. It must be one SELECT, FROM, WITH, VALUES,
    SUMMARIZE or DESCRIBE statement. It cannot change settings.

    \b
    metastore sql "select table_name, column_name, null_count from statistics order by 3 desc limit 10"
    """
    from metastore_assets.sql import query

    config = load_config(invocation)
    result = query(
        open_metastore(config), statement, unrestricted=unrestricted, find_table=partial(_find_table, config)
    )
    # A JSON object has each key once, but a result may have two columns of one name.
    keys = distinct_keys(result.column_names)
    rows = _rows_to_json(result)
    document = [dict(zip(keys, row, strict=True)) for row in rows]
    answer(document, lambda page: _draw(page, result, rows), as_json=as_json)


def distinct_keys(names: Sequence[str]) -> list[str]:
    """Return the names, with a number appended to each repetition of a name, so that all are distinct.

    Example: `["a", "a_1"]` for `["a", "a"]`.
    """
    keys: list[str] = []
    for index, name in enumerate(names):
        numbered_keys = (f"{name}_{number}" for number in count(index))
        is_new = name not in names[:index]
        keys.append(name if is_new else next(key for key in numbered_keys if key not in (*keys, *names)))
    return keys


def _find_table(config: MetastoreConfig, name: str) -> TableConfig:
    """Return the configuration of a table by its name.

    Raises ConfigError if there is no such table.

    Case is ignored, as in SQL, if exactly one table under `tables` then has the name.
    """
    matches = [table.name for table in config.tables if table.name.lower() == name.lower()]
    return find_table_config(config, matches[0] if len(matches) == 1 else name)


def _rows_to_json(result: pa.Table) -> list[list[Any]]:
    from metastore_assets.values.json import value_json

    columns = [[value_json(value) for value in column] for column in result.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _draw(page: Page, result: pa.Table, rows: list[list[Any]]) -> None:
    import pyarrow.types as t

    def format_cell(value: Any, limit: int | None) -> str:
        if isinstance(value, bool) or value is None or isinstance(value, str):
            return text.format_value(value, limit)
        if isinstance(value, int | float):
            return text.format_number(value)
        return text.format_value(str(value), limit)

    limit = None if page.width is None else max(20, page.width // 2)
    numeric = [t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) for kind in result.schema.types]
    columns = [
        GridColumn(text.make_printable(name), right=is_numeric)
        for name, is_numeric in zip(result.column_names, numeric, strict=True)
    ]
    lines = [[format_cell(value, limit) for value in row] for row in rows[:_LISTED_ROWS]]
    headings = [column.heading for column in columns]
    draw_hidden_columns(page, page.fitting_grid(columns, lines, headings[:0:-1]))
    if len(rows) > _LISTED_ROWS:
        page.line(Styled(f"  the first {_LISTED_ROWS:,} of {len(rows):,} rows (all with --json)", "dim"))
