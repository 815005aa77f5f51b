"""The views in an engine: DuckDB, which reads of them what a query names; Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metastore_assets.duckdb_queries import query_connection, walk
from metastore_assets.errors import QueryError
from metastore_assets.messages import close_names
from metastore_assets.sql.views import VIEWS, view_batches

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from metastore_assets.metastore import Metastore


def query(metastore: Metastore, text: str, *, unrestricted: bool = False) -> pa.Table:
    """Return the rows of a query in DuckDB's SQL over `VIEWS`: `statistics` of all tables, `orders.statistics` of one.

    Only the views that the query names are read. The query reaches nothing else: no file, no network, no setting, no
    variable of Python.

    Args:
        metastore: The root with the tables.
        text: One query, such as SELECT or SUMMARIZE.
        unrestricted: Whether the query may read and write files and load extensions. Only for queries of your own.

    Raises:
        QueryError: The text is no query, or DuckDB refuses it.
        MissingPackageError: DuckDB is not installed.
        StoreError: The root cannot be read.
    """
    with query_connection(unrestricted=unrestricted) as session:
        named = _named_tables(session.parse(text))
        tables = metastore.tables()
        for schema, name in sorted(named):
            _define(session.connection, metastore, tables, schema, name)
        return session.run(text).to_arrow_table()


def _named_tables(tree: Any) -> set[tuple[str, str]]:
    """Return schema (empty where there is none) and name of the tables that a query reads."""
    return {
        (node["schema_name"].lower(), node["table_name"].lower())
        for node in walk(tree)
        if node.get("type") == "BASE_TABLE"
    }


def _define(
    connection: duckdb.DuckDBPyConnection, metastore: Metastore, tables: Sequence[str], schema: str, name: str
) -> None:
    """Make one of the views, if that is one; the engine says what it thinks of others. Raises QueryError."""
    chosen = [table for table in tables if table.lower() == schema]
    if schema and not chosen and name in VIEWS:
        there = close_names(schema, tables, "; there are: {}") or "; there is none"
        raise QueryError(f"there is no published table {schema!r}{there}")
    if name not in VIEWS or (schema and not chosen):
        return
    quoted = '"{}"'.format(schema.replace('"', '""'))
    if schema:
        connection.execute(f"create schema if not exists {quoted}").fetchall()
    rows = view_batches(name, metastore, chosen if schema else tables)
    connection.register("_rows", rows)
    # Held by the engine, for a stream of rows is there once, and a query may ask for them twice.
    connection.execute(f"create table {quoted + '.' if schema else ''}{name} as select * from _rows").fetchall()
    connection.unregister("_rows")


def spark_views(
    spark: SparkSession, metastore: Metastore, views: Sequence[str] = tuple(VIEWS), prefix: str = "metastore_"
) -> list[str]:
    """Make the same views temporary views of a Spark session, of all tables; their names, such as
    `metastore_statistics`.

    They hold what was published when they were made. Values are sent through this process: of large tables leave
    `frequencies` out.
    """
    unknown = sorted(set(views) - VIEWS.keys())
    if unknown:
        raise ValueError(f"there is no view {unknown[0]!r}" + close_names(unknown[0], list(VIEWS), "; there are: {}"))
    tables = metastore.tables()
    made = []
    for name in views:
        rows = view_batches(name, metastore, tables).read_all()
        spark.createDataFrame(rows).createOrReplaceTempView(f"{prefix}{name}")
        made.append(f"{prefix}{name}")
    return made
