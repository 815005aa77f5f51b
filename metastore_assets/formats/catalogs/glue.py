"""A client of AWS Glue's Data Catalog, which uses boto3.

The catalog contains tables of any format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.catalog.glue import GlueCatalog

from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats.catalogs.base import CatalogEntry, ListedTable, storage_options
from metastore_assets.formats.catalogs.declarations import (
    DeclaredPartition,
    DeclaredTable,
    resolve_entry,
    resolve_listed_table,
)
from metastore_assets.messages import close_names

_RETRIES = "glue.max-retries"


class GlueCatalogClient:
    """A client of AWS Glue's Data Catalog."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        """Create the client without sending a request.

        Args:
            name: the name of the catalog in the configuration.
            properties: the properties that pyiceberg takes for a Glue catalog.
        """
        self._properties = dict(properties)
        options: dict[str, Any] = dict(properties)
        if (retries := options.get(_RETRIES, "")).isdecimal():
            options[_RETRIES] = int(retries)  # boto3 compares the value with a number.
        self.glue: Any = GlueCatalog(name, **options).glue
        """The client of boto3."""

    def list_tables(self, database: str) -> Sequence[ListedTable]:
        """Return all tables and views of a database.

        Raises TableNotFoundError if the database does not exist.
        """
        pages = self.glue.get_paginator("get_tables").paginate(DatabaseName=database)
        try:
            tables = [table for page in pages for table in page["TableList"]]
        except self.glue.exceptions.EntityNotFoundException as error:
            raise self._database_not_found(database) from error
        return [self._listed_table(table) for table in tables]

    def load_entry(self, database: str, name: str) -> CatalogEntry:
        """Return the entry of a table.

        Raises TableNotFoundError, or TableFormatError if the table cannot be read.
        """
        try:
            table = self.glue.get_table(DatabaseName=database, Name=name)["Table"]
        except self.glue.exceptions.EntityNotFoundException as error:
            raise TableNotFoundError(f"has no table {f'{database}.{name}'!r}") from error
        if reason := _link_reason(table):
            raise TableFormatError(reason)
        entry = resolve_entry(_declared_table(table), lambda: self._request_partitions(database, name))
        return replace(entry, storage_options=storage_options(self._properties))

    def _listed_table(self, table: Mapping[str, Any]) -> ListedTable:
        reason = _link_reason(table)
        return ListedTable(table["Name"], None, reason) if reason else resolve_listed_table(_declared_table(table))

    def _request_partitions(self, database: str, name: str) -> Iterator[DeclaredPartition]:
        pages = self.glue.get_paginator("get_partitions").paginate(
            DatabaseName=database, TableName=name, ExcludeColumnSchema=True
        )
        for page in pages:
            for partition in page["Partitions"]:
                descriptor = partition.get("StorageDescriptor", {})
                yield DeclaredPartition(
                    tuple(partition["Values"]),
                    descriptor.get("Location", ""),
                    descriptor.get("InputFormat", ""),
                    descriptor.get("SerdeInfo", {}).get("SerializationLibrary", ""),
                )

    def _database_not_found(self, database: str) -> TableNotFoundError:
        pages = self.glue.get_paginator("get_databases").paginate()
        names = [entry["Name"] for page in pages for entry in page["DatabaseList"]]
        return TableNotFoundError(f"has no database {database!r}" + close_names(database, names, "; there are: {}"))


def _link_reason(table: Mapping[str, Any]) -> str:
    """Return why a resource link to another table cannot be read; empty if `table` is no link."""
    target = table.get("TargetTable")
    if not target:
        return ""
    name = f"{target.get('DatabaseName')}.{target.get('Name')}"
    account = f" (catalog {target['CatalogId']})" if target.get("CatalogId") else ""
    return f"{table['Name']!r} is a link to the table {name!r}{account}: name that table"


def _declared_table(table: Mapping[str, Any]) -> DeclaredTable:
    """Return the declaration of a table in a response of Glue.

    Missing fields become empty.
    """
    descriptor = table.get("StorageDescriptor") or {}
    serde = descriptor.get("SerdeInfo") or {}
    return DeclaredTable(
        table["Name"],
        table.get("TableType") or "",
        descriptor.get("Location") or "",
        descriptor.get("InputFormat") or "",
        serde.get("SerializationLibrary") or "",
        table.get("Parameters") or {},
        serde.get("Parameters") or {},
        _columns(descriptor.get("Columns")),
        _columns(table.get("PartitionKeys")),
    )


def _columns(columns: Sequence[Mapping[str, str]] | None) -> tuple[tuple[str, str], ...]:
    return tuple((column["Name"], column.get("Type") or "") for column in columns or ())
