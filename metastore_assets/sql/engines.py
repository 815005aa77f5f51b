"""Queries over tables and views of statistics in DuckDB, and the same views in a Spark session.

The root is the folder with the stored statistics of all tables. A version is the published statistics of a table at one
snapshot. A hidden column is one whose values the configuration hides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metastore_assets.duckdb_queries import query_connection, walk
from metastore_assets.errors import ConfigError, QueryError
from metastore_assets.messages import close_names
from metastore_assets.sql.views import VIEWS, read_view

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from metastore_assets.config import TableConfig
    from metastore_assets.lookup.table import RowSource
    from metastore_assets.metastore import Metastore


def query(
    metastore: Metastore,
    text: str,
    *,
    unrestricted: bool = False,
    find_table: Callable[[str], TableConfig] | None = None,
) -> pa.Table:
    """Run a query in DuckDB's SQL over the tables and the views in `VIEWS`, and return its rows.

    In a query, the view `statistics` has the statistics of all tables. The view `orders.statistics` has only those of
    the table `orders`. The name `orders` alone is the table itself.

    Only tables and views that the query names are read.

    By default, the query has access to nothing else: no file, network, setting or variable of Python. A column of a
    table is left out if it is hidden, or was added after the table's newest version. So is a column that contains such
    a field.

    Args:
        metastore: The Metastore with the tables.
        text: One query, such as SELECT or SUMMARIZE.
        unrestricted: Whether the query may read and write files, load extensions, and read hidden columns. Only for
            trusted queries.
        find_table: Returns the configuration of a table by name. Default: tables are read at the locations in their
            versions, if each location equals or lies below one of the `table_locations` of the Metastore.

    Raises:
        QueryError: The text is no query, or DuckDB refuses it.
        MissingPackageError: DuckDB is not installed.
        StoreError: The root cannot be read.
        ConfigError: The location of a table is not known, or is neither at nor below one of `table_locations`.
        FragmentError: A file of a table cannot be read.
    """
    named_views: set[tuple[str, str]] = set()
    tables: Sequence[str] = ()
    try:
        with query_connection(unrestricted=unrestricted) as session:
            named_views = _named_tables(session.parse(text))
            tables = metastore.table_names()
            for schema, name in sorted({(schema.lower(), name.lower()) for schema, name in named_views}):
                matches = [] if schema or name in VIEWS else [table for table in tables if table.lower() == name]
                if matches:
                    lookup = metastore.table(matches[0])
                    rows = lookup.open_rows(table=None if find_table is None else find_table(matches[0]))
                    _define_table(session.connection, rows, matches[0], hides=not unrestricted)
                else:
                    _define(session.connection, metastore, tables, schema, name)
            return session.run(text).to_arrow_table()
    except QueryError as error:
        for schema, name in sorted(named_views):
            if f'because schema "{schema}" does not exist' in str(error):
                alternatives = close_names(f"{schema}_{name}", tables, "; there are: {}")
                message = f"there is no table {f'{schema}.{name}'!r}: tables are named without a schema{alternatives}"
                raise QueryError(message) from error
        existing_names = {table.lower() for table in tables} | VIEWS.keys()
        for written_name in sorted({schema or name for schema, name in named_views}):
            if find_table is None or written_name.lower() in existing_names:
                continue
            # DuckDB suggests its own system tables.
            is_missing = f"Table with name {written_name} does not exist" in str(error)
            if (configured_name := _configured_name(written_name, find_table)) is not None:
                hint = f"table {configured_name!r} has no published version; run `metastore refresh {configured_name}`"
                raise QueryError(hint if is_missing else f"{error}; {hint}") from error
            if is_missing:
                alternatives = close_names(written_name, [*tables, *VIEWS], "; there are: {}")
                raise QueryError(f"there is no table {written_name!r}{alternatives}") from error
        raise


def _configured_name(name: str, find_table: Callable[[str], TableConfig]) -> str | None:
    """Return the name of a table as it is configured; None if `find_table` does not find it."""
    try:
        return find_table(name).name
    except ConfigError:
        return None


def _named_tables(tree: Any) -> set[tuple[str, str]]:
    """Return (schema, name) of each table or view in a query, as they are written.

    A missing schema is empty.

    Args:
        tree: The syntax tree of the query, as DuckDB's JSON.
    """
    return {(node["schema_name"], node["table_name"]) for node in walk(tree) if node.get("type") == "BASE_TABLE"}


def _define_table(connection: duckdb.DuckDBPyConnection, rows: RowSource, name: str, *, hides: bool) -> None:
    """Register a table in DuckDB under a name.

    Its rows are read when the query runs.

    Args:
        connection: The connection.
        rows: The rows.
        name: The name of the table.
        hides: Whether hidden columns are excluded.

    Raises:
        QueryError: There is no column to read: DuckDB does not support tables without columns.
    """
    from metastore_assets.sql.tables import TableDataset  # pyarrow.dataset takes time to be imported

    columns = rows.list_shown_columns() if hides else rows.schema.names
    if not columns:
        hidden_note = (
            ", except hidden ones: `--unrestricted` (`unrestricted=True`) reads them" if rows.schema.names else ""
        )
        raise QueryError(f"table {name!r} has no columns{hidden_note}")
    connection.register(name, TableDataset(rows, columns))


def _define(
    connection: duckdb.DuckDBPyConnection, metastore: Metastore, tables: Sequence[str], schema: str, name: str
) -> None:
    """Copy the rows of a view in `VIEWS` to a table of DuckDB.

    Do nothing if `VIEWS` does not contain `name`.

    Args:
        connection: The connection.
        metastore: The root with the tables.
        tables: The names of the published tables.
        schema: The schema in the query, in lower case: the name of a published table, whose rows are copied. If it is
            empty, the rows of all tables are copied.
        name: The name in the query, in lower case.

    Raises:
        QueryError: `VIEWS` contains `name`, but `schema` is neither empty nor the name of a published table.
    """
    matches = [table for table in tables if table.lower() == schema]
    if schema and not matches and name in VIEWS:
        alternatives = close_names(schema, tables, "; there are: {}") or "; there is none"
        raise QueryError(f"there is no published table {schema!r}{alternatives}")
    if name not in VIEWS or (schema and not matches):
        return
    quoted_schema = '"{}"'.format(schema.replace('"', '""'))
    if schema:
        connection.execute(f"create schema if not exists {quoted_schema}").fetchall()
    rows = read_view(name, metastore, matches if schema else tables)
    connection.register("_rows", rows)
    # Copied into DuckDB, because a query may read the rows twice and a stream can be read once.
    connection.execute(f"create table {quoted_schema + '.' if schema else ''}{name} as select * from _rows").fetchall()
    connection.unregister("_rows")


def spark_views(
    spark: SparkSession, metastore: Metastore, views: Sequence[str] = tuple(VIEWS), prefix: str = "metastore_"
) -> list[str]:
    """Create the views of all tables as temporary views of a Spark session, and return their names.

    The views describe the versions that are newest now, and do not change later. All rows of the views pass through
    this process. If tables are large, leave out the view `frequencies`.

    Args:
        spark: The session.
        metastore: The Metastore with the tables.
        views: Names of views: keys of `VIEWS`.
        prefix: The prefix of the names in Spark, as in `metastore_statistics`.

    Raises:
        ValueError: `views` has a name that is not in `VIEWS`.
        StoreError: The root cannot be read.
    """
    unknown = sorted(set(views) - VIEWS.keys())
    if unknown:
        raise ValueError(f"there is no view {unknown[0]!r}" + close_names(unknown[0], list(VIEWS), "; there are: {}"))
    tables = metastore.table_names()
    names = []
    for name in views:
        rows = read_view(name, metastore, tables).read_all()
        spark.createDataFrame(rows).createOrReplaceTempView(f"{prefix}{name}")
        names.append(f"{prefix}{name}")
    return names
