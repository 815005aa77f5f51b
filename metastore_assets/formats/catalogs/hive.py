"""A client of a Hive metastore, which uses pyiceberg's Thrift client.

The metastore contains tables of any format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from pyiceberg.catalog.hive import HiveCatalog

from metastore_assets.batching import batched
from metastore_assets.errors import TableNotFoundError
from metastore_assets.formats.catalogs.base import CatalogEntry, ListedTable, storage_options
from metastore_assets.formats.catalogs.declarations import (
    DeclaredPartition,
    DeclaredTable,
    resolve_entry,
    resolve_listed_table,
)
from metastore_assets.messages import close_names

_BATCH_SIZE = 500
"""Number of tables or partitions per request."""


class HiveCatalogClient:
    """A client of a Hive metastore."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        """Create the client without sending a request.

        Args:
            name: the name of the catalog in the configuration.
            properties: the properties that pyiceberg takes for a Hive catalog.
        """
        self._name = name
        self._properties = dict(properties)

    def list_tables(self, database: str) -> Sequence[ListedTable]:
        """Return all tables and views of a database.

        Raises TableNotFoundError if the database does not exist.
        """
        with self.connect() as client:
            databases = client.get_all_databases()
            # Hive stores names in lower case and accepts any case in requests.
            if database.lower() not in databases:
                raise TableNotFoundError(
                    f"has no database {database!r}" + close_names(database, databases, "; there are: {}")
                )
            names = client.get_all_tables(db_name=database)
            tables = [
                table
                for batch in batched(names, _BATCH_SIZE)
                for table in client.get_table_objects_by_name(dbname=database, tbl_names=batch)
            ]
        return [resolve_listed_table(_declared_table(table)) for table in tables]

    def load_entry(self, database: str, name: str) -> CatalogEntry:
        """Return the entry of a table.

        Raises TableNotFoundError, or TableFormatError if the table cannot be read.
        """
        with self.connect() as client:
            table = request_table(client, database, name)
            entry = resolve_entry(_declared_table(table), lambda: _request_partitions(client, database, name))
        return replace(entry, storage_options=storage_options(self._properties))

    def connect(self) -> AbstractContextManager[Any]:
        """Return a new connection, as a context manager that yields Thrift's client."""
        return HiveCatalog(self._name, **self._properties)._client


def request_table(client: Any, database: str, name: str) -> Any:
    """Return a table as Thrift's client returns it.

    Raises TableNotFoundError if there is no such table.
    """
    try:
        return client.get_table(dbname=database, tbl_name=name)
    except Exception as error:
        if type(error).__name__ == "NoSuchObjectException":
            raise TableNotFoundError(f"has no table {f'{database}.{name}'!r}") from error
        raise


def _request_partitions(client: Any, database: str, name: str) -> Iterator[DeclaredPartition]:
    names = client.get_partition_names(db_name=database, tbl_name=name, max_parts=-1)
    for batch in batched(names, _BATCH_SIZE):
        for partition in client.get_partitions_by_names(db_name=database, tbl_name=name, names=batch):
            descriptor = partition.sd
            yield DeclaredPartition(
                tuple(partition.values),
                descriptor.location or "",
                descriptor.inputFormat or "",
                descriptor.serdeInfo.serializationLib or "",
            )


def _declared_table(table: Any) -> DeclaredTable:
    """Return the declaration in Thrift's object of a table.

    Missing fields become empty.
    """
    descriptor = table.sd
    serde = descriptor.serdeInfo if descriptor else None
    return DeclaredTable(
        table.tableName,
        table.tableType or "",
        (descriptor.location if descriptor else "") or "",
        (descriptor.inputFormat if descriptor else "") or "",
        (serde.serializationLib if serde else "") or "",
        table.parameters or {},
        (serde.parameters if serde else None) or {},
        _columns(descriptor.cols if descriptor else None),
        _columns(table.partitionKeys),
    )


def _columns(columns: Sequence[Any] | None) -> tuple[tuple[str, str], ...]:
    return tuple((column.name, column.type or "") for column in columns or ())
