"""The Metastore's numbers beside those of engines that read the tables from end to end."""

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


def kept(config: MetastoreConfig, table: str, distinct: str, total: str) -> Facts:
    """As the Metastore keeps them."""
    lookup = Metastore(config.root, storage_options=config.storage_options).table(table)
    first, second = lookup.statistics([distinct, total])
    if first.distinct_count is None or second.sum is None:
        raise ValueError(f"{table}: no distinct count of {distinct}, or no sum of {total}")
    return lookup.count().value, first.distinct_count, Decimal(second.sum)


def scanned_lineitem(lakehouse: Lakehouse, distinct: str, total: str) -> Facts:
    """As Delta's own query engine finds them, deletion vectors applied."""
    query = f"select count(*), count(distinct {distinct}), sum({total}) from t"
    result = QueryBuilder().register("t", DeltaTable(lakehouse.lineitem)).execute(query).read_all()
    rows, values, summed = (column[0].as_py() for column in pa.table(result).columns)
    return rows, values, summed


def scanned_orders(lakehouse: Lakehouse, distinct: str, total: str) -> Facts:
    """As DuckDB finds them in the files."""
    query = f"select count(*), count(distinct {distinct}), sum({total}) from read_parquet(?)"
    rows, values, summed = duckdb.execute(query, [f"{lakehouse.orders}/**/*.parquet"]).fetchall()[0]
    return rows, values, summed
