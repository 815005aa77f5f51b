"""Requests that read and change one table in AWS Glue's Data Catalog, through boto3."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from metastore_assets.config import CatalogConfig, TableConfig
from metastore_assets.errors import ExportError
from metastore_assets.formats.catalogs.client import open_catalog, table_identifier

_WRITE_BATCH = 25
"""The greatest number of columns whose statistics one request writes."""
_READ_BATCH = 100
"""The greatest number of columns, or of partitions, in other requests."""


class GlueTable:
    """One table of Glue's Data Catalog, with the boto3 client that sends its requests."""

    def __init__(self, client: Any, database: str, name: str) -> None:
        """Create the object. No request is sent.

        Args:
            client: The client of boto3 for the service `glue`.
            database: Name of the database.
            name: Name of the table.
        """
        self._client = client
        self._key = {"DatabaseName": database, "TableName": name}

    def load(self) -> dict[str, Any]:
        """Return the table as Glue's type `Table`. Raises ExportError if it is a link to another table."""
        table = self._client.get_table(DatabaseName=self._key["DatabaseName"], Name=self._key["TableName"])["Table"]
        if table.get("TargetTable"):
            raise ExportError(f"{table['Name']!r} is a link to another table: export that table")
        return dict(table)

    def change_properties(self, added: Mapping[str, str], removed: Collection[str] = ()) -> None:
        """Remove and add properties of the table with one request. Glue refuses it if the table changes meanwhile.

        Glue archives no version of the table, because statistics change more often than tables.

        Args:
            added: The properties to set.
            removed: The names to remove. A name that is also in `added` is set.
        """
        table = self.load()
        parameters = {key: text for key, text in table.get("Parameters", {}).items() if key not in removed}
        version = {"VersionId": table["VersionId"]} if table.get("VersionId") else {}
        self._client.update_table(
            DatabaseName=self._key["DatabaseName"],
            TableInput=self._input("TableInput", table, {**parameters, **added}),
            SkipArchive=True,
            **version,
        )

    def partitions(self) -> Iterator[dict[str, Any]]:
        """Yield all partitions as Glue's type `Partition`, requested page by page."""
        for page in self._client.get_paginator("get_partitions").paginate(**self._key):
            yield from page["Partitions"]

    def change_partitions(self, partitions: Iterable[tuple[Mapping[str, Any], Mapping[str, str]]]) -> None:
        """Replace all properties of partitions. Raises ExportError if Glue refuses one.

        Args:
            partitions: Pairs of a partition, as `partitions` yields it, and its new properties.
        """
        remaining = iter(partitions)
        while batch := list(islice(remaining, _READ_BATCH)):
            entries = [
                {
                    "PartitionValueList": partition["Values"],
                    "PartitionInput": self._input("PartitionInput", partition, parameters),
                }
                for partition, parameters in batch
            ]
            _raise_errors(self._client.batch_update_partition(**self._key, Entries=entries))

    def statistics(self, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return the statistics that Glue stores for columns of the table. Columns without any are omitted."""
        statistics: list[dict[str, Any]] = []
        for start in range(0, len(columns), _READ_BATCH):
            names = list(columns[start : start + _READ_BATCH])
            statistics += self._client.get_column_statistics_for_table(**self._key, ColumnNames=names)[
                "ColumnStatisticsList"
            ]
        return statistics

    def write_statistics(self, columns: Sequence[Mapping[str, Any]], values: Sequence[str] | None = None) -> None:
        """Write column statistics of the table or of one partition. Raises ExportError if Glue refuses a column.

        Args:
            columns: The statistics, as Glue's type `ColumnStatistics`.
            values: The values of the partition columns; None for the table.
        """
        for start in range(0, len(columns), _WRITE_BATCH):
            batch = list(columns[start : start + _WRITE_BATCH])
            if values is None:
                response = self._client.update_column_statistics_for_table(**self._key, ColumnStatisticsList=batch)
            else:
                response = self._client.update_column_statistics_for_partition(
                    **self._key, PartitionValues=list(values), ColumnStatisticsList=batch
                )
            _raise_errors(response)

    def delete_statistics(self, columns: Iterable[str], values: Sequence[str] | None = None) -> None:
        """Delete column statistics of the table or of one partition. Missing ones are no error.

        Args:
            columns: Names of the columns.
            values: The values of the partition columns; None for the table.
        """
        for column in columns:
            try:
                if values is None:
                    self._client.delete_column_statistics_for_table(**self._key, ColumnName=column)
                else:
                    self._client.delete_column_statistics_for_partition(
                        **self._key, PartitionValues=list(values), ColumnName=column
                    )
            except self._client.exceptions.EntityNotFoundException:
                continue

    def _input(self, shape: str, item: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
        """Return the request that stores a table or partition again, with other properties.

        Args:
            shape: The type of the request: `TableInput` or `PartitionInput`.
            item: The table or partition, as a response contains it. Members that the request lacks are left out.
            parameters: The properties.
        """
        names = self._client.meta.service_model.shape_for(shape).members
        return {**{name: item[name] for name in names if name in item}, "Parameters": dict(parameters)}


def _raise_errors(response: Mapping[str, Any]) -> None:
    for error in response.get("Errors") or ():
        detail = error.get("Error") or error.get("ErrorDetail") or {}
        column = error.get("ColumnStatistics", {}).get("ColumnName")
        subject = f"column {column!r}" if column else f"partition {'/'.join(error.get('PartitionValueList', ()))!r}"
        raise ExportError(
            f"Glue refuses statistics of {subject}: {detail.get('ErrorCode')}: {detail.get('ErrorMessage')}"
        )


@contextmanager
def open_glue_table(table: TableConfig, title: str) -> Iterator[GlueTable]:
    """Open the table of a configuration in Glue.

    Args:
        table: The configuration of the table.
        title: The name of the target in messages.

    Raises:
        ExportError: The table is not in a catalog of type `glue`.
        TableFormatError: Glue cannot be reached, or refuses a request.
    """
    if not isinstance(table.catalog, CatalogConfig) or table.catalog.type != "glue":
        raise ExportError(
            f"{title} needs a table in a catalog of type `glue`, and table {table.name!r} is in none: name it by "
            "`catalog` and `table` instead of by its location"
        )
    database, name = table_identifier(table)
    with open_catalog(table.catalog, f"update table {table.identifier!r}") as catalog:
        from metastore_assets.formats.catalogs.glue import GlueCatalogClient

        assert isinstance(catalog, GlueCatalogClient)
        yield GlueTable(catalog.glue, database, name)
