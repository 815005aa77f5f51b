"""The views in an engine: DuckDB, which reads of them what a query names; Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metastore_assets.errors import QueryError
from metastore_assets.extras import extra
from metastore_assets.lookup import Metastore
from metastore_assets.messages import close_names
from metastore_assets.sql.views import VIEWS, view_batches

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession


def query(metastore: Metastore, text: str) -> pa.Table:
    """The rows of a query in DuckDB's SQL over `VIEWS`: `statistics` of all tables, `orders.statistics` of one.

    Of the views those are read that the query names, and no others. Raises QueryError for what is no query or is none
    over what there is, MissingPackageError without `duckdb`, StoreError.
    """
    with extra("sql", "SQL"):
        import duckdb
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        try:
            named = _named_tables(connection, text)
            tables = metastore.tables()
            for schema, name in sorted(named):
                _define(connection, metastore, tables, schema, name)
            return connection.sql(text).to_arrow_table()
        except duckdb.Error as error:
            message = str(error).partition("\n\n")[0]
            raise QueryError(" ".join(message.split())) from error


def _named_tables(connection: duckdb.DuckDBPyConnection, text: str) -> set[tuple[str, str]]:
    """Schema, empty where there is none, and name of what a query takes its rows from. Raises QueryError."""
    if len(connection.extract_statements(text)) != 1:
        raise QueryError("give one query")
    ((serialized,),) = connection.execute("select json_serialize_sql(?)", [text]).fetchall()
    tree = json.loads(serialized)
    if tree.get("error"):
        raise QueryError(f"give a query, such as SELECT or SUMMARIZE: {tree['error_message']}")
    found: set[tuple[str, str]] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                found.add((node["schema_name"].lower(), node["table_name"].lower()))
            node = list(node.values())
        if isinstance(node, list):
            for each in node:
                walk(each)

    walk(tree)
    return found


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
