"""Three numbers of a table, from the Metastore and from other engines that scan the table."""

from __future__ import annotations

from decimal import Decimal

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from metastore_assets.config import MetastoreConfig
from metastore_assets.metastore import Metastore
from scripts.demo.lakehouse import Lakehouse

Facts = tuple[int, int, Decimal]
"""Rows, distinct values of one column, sum of another."""


def stored_facts(config: MetastoreConfig, table: str, distinct: str, total: str) -> Facts:
    """Return (row count, number of distinct values of one column, sum of another column), as stored.

    Args:
        config: The configuration. It names the root, which is the folder with all stored state.
        table: The name of the table.
        distinct: The column whose distinct values are counted.
        total: The column whose values are added up.

    Raises:
        ValueError: One of the two statistics is not stored.
    """
    lookup = Metastore(config.root, storage_options=config.storage_options).table(table)
    first, second = lookup.statistics([distinct, total])
    if first.distinct_count is None or second.sum is None:
        raise ValueError(f"{table}: no distinct count of {distinct}, or no sum of {total}")
    return lookup.count().value, first.distinct_count, Decimal(second.sum)


def scan_lineitem(lakehouse: Lakehouse, distinct: str, total: str) -> Facts:
    """Return the same numbers as `stored_facts`, from a scan of `lineitem` by delta-rs.

    delta-rs applies deletion vectors.
    """
    query = f"select count(*), count(distinct {distinct}), sum({total}) from t"
    result = QueryBuilder().register("t", DeltaTable(lakehouse.lineitem)).execute(query).read_all()
    rows, values, column_sum = (column[0].as_py() for column in pa.table(result).columns)
    return rows, values, column_sum


def scan_orders(lakehouse: Lakehouse, distinct: str, total: str) -> Facts:
    """Return the same numbers as `stored_facts`, from a scan of `orders` by DuckDB."""
    query = f"select count(*), count(distinct {distinct}), sum({total}) from read_parquet(?)"
    rows, values, column_sum = duckdb.execute(query, [f"{lakehouse.orders}/**/*.parquet"]).fetchall()[0]
    return rows, values, column_sum
