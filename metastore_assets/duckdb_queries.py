"""DuckDB connections for queries, by default without access to files, network and Python variables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from metastore_assets.errors import QueryError
from metastore_assets.extras import extra
from metastore_assets.storage.temporary_folders import TemporaryFolder

if TYPE_CHECKING:
    import duckdb

_ALWAYS = {
    "autoinstall_known_extensions": "false",
    # DuckDB would resolve unknown table names as variables of the calling Python functions.
    "python_enable_replacements": "false",
}
_RESTRICTED = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
}
_READING_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
"""The types of query nodes that only read, in DuckDB's serialized form. A `WITH` may contain nodes that write, such as
INSERT or COPY."""

_ADVICE = (
    "; a query reads no files. For a query of your own, `--unrestricted`, or `unrestricted=True` in Python, lifts this"
)


class QueryConnection:
    """A connection to an empty in-memory database, for one query.

    `query_connection` creates it.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, is_restricted: bool) -> None:
        """Wrap an open connection.

        Args:
            connection: The connection, whose settings are already restricted if `is_restricted` is true.
            is_restricted: Whether `parse` rejects statements that write, and `run` locks the settings before the query.
        """
        self.connection = connection
        self._restricted = is_restricted
        self.names_files = False
        """Whether the parsed query names a file as a table; always False for an unrestricted connection. A restricted
        DuckDB reports the file as a missing table, so the error message needs advice."""

    def parse(self, text: str) -> Any:
        """Parse a query, and return its syntax tree as DuckDB serializes it.

        Raises:
            QueryError: The text is not exactly one query. Or the connection is restricted, and the query contains a
                statement that writes.
        """
        statements = self.connection.extract_statements(text)
        if len(statements) != 1:
            raise QueryError("give one query")
        ((serialized_tree,),) = self.connection.execute("select json_serialize_sql(?)", [text]).fetchall()
        tree = json.loads(serialized_tree)
        if tree.get("error"):
            if statements[0].type.name == "MULTI":
                raise QueryError("PIVOT needs the values that become columns: write `on column in ('a', 'b')`")
            # The message of DuckDB is about its serialization.
            raise QueryError(f"{statements[0].type.name} is not allowed: give a query, such as SELECT or SUMMARIZE")
        if self._restricted:
            for node in walk(tree):
                kind = str(node.get("type", ""))
                if kind.endswith("_NODE") and kind not in _READING_NODES:
                    statement = kind.removesuffix("_NODE").removesuffix("_QUERY")
                    raise QueryError(f"a query may only read, and this one contains the statement {statement}")
                if kind == "BASE_TABLE" and {".", "/"} & set(node["table_name"]):
                    self.names_files = True
        return tree

    def run(self, text: str) -> duckdb.DuckDBPyRelation:
        """Run a query that `parse` has accepted, and return its lazy result."""
        if self._restricted:
            self.connection.execute("set lock_configuration = true")
        return self.connection.sql(text)


@contextmanager
def query_connection(*, unrestricted: bool) -> Iterator[QueryConnection]:
    """Connect to an empty in-memory database.

    An error of DuckDB in the block becomes a QueryError.

    Args:
        unrestricted: Whether queries may read and write files and load extensions, as is DuckDB's default.

    Raises:
        MissingPackageError: DuckDB is not installed.
        QueryError: DuckDB refuses the query.
    """
    with extra("sql", "SQL"):
        import duckdb
    with TemporaryFolder("sql") as folder:
        # By default DuckDB spills to `.tmp` in the working folder.
        config: dict[str, Any] = {**_ALWAYS, **({} if unrestricted else _RESTRICTED), "temp_directory": folder}
        with duckdb.connect(config=config) as connection:
            session = QueryConnection(connection, is_restricted=not unrestricted)
            try:
                yield session
            except duckdb.Error as error:
                is_refused = isinstance(error, duckdb.PermissionException)
                missing = isinstance(error, duckdb.CatalogException) and session.names_files
                advice = _ADVICE if is_refused or missing else ""
                raise QueryError(_first_line(error) + advice) from error


def walk(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object in a syntax tree from `QueryConnection.parse`, at any depth."""
    remaining = [tree]
    while remaining:
        node = remaining.pop()
        if isinstance(node, dict):
            yield node
            remaining.extend(node.values())
        elif isinstance(node, list):
            remaining.extend(node)


def _first_line(error: Exception) -> str:
    text = str(error).partition("\n\n")[0]
    # An error of a Python source is followed by its traceback.
    return " ".join(text.partition(". Detail: Python exception: ")[0].split())
