"""AWS Glue's Data Catalog, queried with boto3: tables of any format."""

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


class GlueTables:
    """Tables in Glue databases. The properties are those that pyiceberg takes for a Glue catalog."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        """Create the client without sending a request."""
        self._properties = dict(properties)
        options: dict[str, Any] = dict(properties)
        if (retries := options.get(_RETRIES, "")).isdecimal():
            options[_RETRIES] = int(retries)  # boto3 compares the value with a number.
        self._glue = GlueCatalog(name, **options).glue

    def tables(self, database: str) -> Sequence[ListedTable]:
        pages = self._glue.get_paginator("get_tables").paginate(DatabaseName=database)
        try:
            tables = [table for page in pages for table in page["TableList"]]
        except self._glue.exceptions.EntityNotFoundException as error:
            raise self._no_database(database) from error
        return [self._listed(table) for table in tables]

    def table(self, database: str, name: str) -> CatalogEntry:
        try:
            table = self._glue.get_table(DatabaseName=database, Name=name)["Table"]
        except self._glue.exceptions.EntityNotFoundException as error:
            raise TableNotFoundError(f"has no table {f'{database}.{name}'!r}") from error
        if link := _link(table):
            raise TableFormatError(link)
        entry = resolve_entry(_declared(table), lambda: self._partitions(database, name))
        return replace(entry, storage_options=storage_options(self._properties))

    def _listed(self, table: Mapping[str, Any]) -> ListedTable:
        link = _link(table)
        return ListedTable(table["Name"], None, link) if link else resolve_listed_table(_declared(table))

    def _partitions(self, database: str, name: str) -> Iterator[DeclaredPartition]:
        pages = self._glue.get_paginator("get_partitions").paginate(
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

    def _no_database(self, database: str) -> TableNotFoundError:
        pages = self._glue.get_paginator("get_databases").paginate()
        there = [one["Name"] for page in pages for one in page["DatabaseList"]]
        return TableNotFoundError(f"has no database {database!r}" + close_names(database, there, "; there are: {}"))


def _link(table: Mapping[str, Any]) -> str:
    """Return why a resource link is not a table itself; empty for a table."""
    target = table.get("TargetTable")
    if not target:
        return ""
    there = f"{target.get('DatabaseName')}.{target.get('Name')}"
    account = f" (catalog {target['CatalogId']})" if target.get("CatalogId") else ""
    return f"{table['Name']!r} is a link to the table {there!r}{account}: name that"


def _declared(table: Mapping[str, Any]) -> DeclaredTable:
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
