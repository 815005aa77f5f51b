"""Requests that read and change one table in AWS Glue's Data Catalog, through boto3."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from metastore_assets.config import TableConfig
from metastore_assets.errors import ExportError
from metastore_assets.exports.catalog_table import (
    PartitionName,
    RegisteredPartition,
    RegisteredTable,
    TableDeclaration,
    changed_properties,
    open_catalog_of,
)
from metastore_assets.exports.declared_statistics import DeclaredStatistics
from metastore_assets.exports.glue.column_statistics import read_response, to_request

_WRITE_BATCH = 25
"""The greatest number of columns whose statistics one request writes."""
_READ_BATCH = 100
"""The greatest number of columns, or of partitions, in other requests."""


class GlueTable(RegisteredTable):
    """One table of Glue's Data Catalog, with the boto3 client that sends its requests."""

    count_names = ("NumberOfNulls", "NumberOfDistinctValues", "NumberOfTrues", "MaximumLength")

    def __init__(self, client: Any, database: str, name: str) -> None:
        """Create the object.

        No request is sent.

        Args:
            client: The client of boto3 for the service `glue`.
            database: Name of the database.
            name: Name of the table.
        """
        self._client = client
        self._key = {"DatabaseName": database, "TableName": name}

    def load(self) -> TableDeclaration:
        """Request the table's declaration.

        Raises ExportError if it is a link to another table.
        """
        table = self._load()
        return TableDeclaration(
            properties=table.get("Parameters", {}),
            columns={column["Name"]: column.get("Type", "") for column in table["StorageDescriptor"]["Columns"]},
            keys={key["Name"]: key.get("Type", "") for key in table.get("PartitionKeys", ())},
        )

    def change_properties(
        self,
        new_properties: Mapping[str, str],
        removed_names: Collection[str] = (),
        expected: tuple[str, str] | None = None,
    ) -> None:
        """Change properties of the table.

        Glue refuses the request if the table changes meanwhile.

        See `RegisteredTable.change_properties`. Glue archives no version of the table.
        """
        table = self._load()
        parameters = changed_properties(table.get("Parameters"), new_properties, removed_names, expected)
        version = {"VersionId": table["VersionId"]} if table.get("VersionId") else {}
        self._client.update_table(
            DatabaseName=self._key["DatabaseName"],
            TableInput=self._input("TableInput", table, parameters),
            SkipArchive=True,
            **version,
        )

    def partitions(self) -> Iterator[RegisteredPartition]:
        """Request the partitions page by page.

        In Glue, the name of a partition is the tuple of its values.
        """
        for page in self._client.get_paginator("get_partitions").paginate(**self._key):
            for partition in page["Partitions"]:
                values = tuple(partition["Values"])
                yield RegisteredPartition(values, values, partition.get("Parameters", {}))

    def change_partitions(
        self, names: Sequence[PartitionName], change: Callable[[PartitionName, dict[str, str]], Mapping[str, str]]
    ) -> None:
        """Change properties of partitions.

        See `RegisteredTable.change_partitions`.

        For every 100 partitions, one request reads them and one writes them.

        Raises ExportError if Glue refuses the change of a partition.
        """
        for start in range(0, len(names), _READ_BATCH):
            keys = [{"Values": list(_values(name))} for name in names[start : start + _READ_BATCH]]
            entries = [
                {
                    "PartitionValueList": partition["Values"],
                    "PartitionInput": self._input(
                        *("PartitionInput", partition),
                        change(tuple(partition["Values"]), dict(partition.get("Parameters", {}))),
                    ),
                }
                for partition in self._load_partitions(keys)
            ]
            if entries:
                _raise_errors(self._client.batch_update_partition(**self._key, Entries=entries))

    def statistics(self, columns: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the stored statistics of columns, by column and Glue's name.

        Example: `{"amount": {"NumberOfNulls": 3}}`. Columns without statistics are omitted.
        """
        statistics: dict[str, dict[str, Any]] = {}
        for start in range(0, len(columns), _READ_BATCH):
            names = list(columns[start : start + _READ_BATCH])
            response = self._client.get_column_statistics_for_table(**self._key, ColumnNames=names)
            statistics |= read_response(response["ColumnStatisticsList"])
        return statistics

    def write_statistics(self, columns: Sequence[DeclaredStatistics], analyzed_at: datetime) -> int:
        """Write statistics of the table, and return the number of bytes that were sent.

        Each request has at most 25 columns. See `RegisteredTable.write_statistics`.

        Raises ExportError if Glue refuses the statistics of a column.
        """
        return self._write(self._client.update_column_statistics_for_table, columns, analyzed_at)

    def write_partition_statistics(
        self, partitions: Mapping[PartitionName, Sequence[DeclaredStatistics]], analyzed_at: datetime
    ) -> int:
        """Write statistics of partitions, and return the number of bytes that were sent.

        Each request has at most 25 columns of a partition. See `RegisteredTable.write_partition_statistics`.

        Raises ExportError if Glue refuses the statistics of a column.
        """
        update = self._client.update_column_statistics_for_partition
        return sum(
            self._write(update, columns, analyzed_at, PartitionValues=list(_values(name)))
            for name, columns in partitions.items()
        )

    def delete_statistics(self, columns: Iterable[str], partition: PartitionName | None = None) -> None:
        """Delete column statistics with one request per column.

        See `RegisteredTable.delete_statistics`.
        """
        for column in columns:
            try:
                if partition is None:
                    self._client.delete_column_statistics_for_table(**self._key, ColumnName=column)
                else:
                    self._client.delete_column_statistics_for_partition(
                        **self._key, PartitionValues=list(_values(partition)), ColumnName=column
                    )
            except self._client.exceptions.EntityNotFoundException:
                continue

    def _load(self) -> dict[str, Any]:
        """Return the table as Glue's type `Table`.

        Raises ExportError if it is a link to another table.
        """
        table = self._client.get_table(DatabaseName=self._key["DatabaseName"], Name=self._key["TableName"])["Table"]
        if table.get("TargetTable"):
            raise ExportError(f"{table['Name']!r} is a link to another table: export that table")
        return dict(table)

    def _load_partitions(self, keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return partitions as Glue's type `Partition`.

        Partitions that do not exist are omitted.

        Keys that Glue does not process are requested again. Raises ExportError if Glue processes no key of a request.

        Args:
            keys: The values of each partition as Glue's type `PartitionValueList`; at most 100 items.
        """
        partitions: list[dict[str, Any]] = []
        while keys:
            response = self._client.batch_get_partition(**self._key, PartitionsToGet=keys)
            partitions += response["Partitions"]
            unprocessed_keys = response.get("UnprocessedKeys") or []
            if len(unprocessed_keys) >= len(keys):
                raise ExportError(f"Glue returns none of {len(keys)} partitions: export again later")
            keys = unprocessed_keys
        return partitions

    def _write(
        self, update: Callable[..., Any], columns: Sequence[DeclaredStatistics], analyzed_at: datetime, **owner: Any
    ) -> int:
        """Write statistics in batches.

        Return the number of bytes that were sent.

        Args:
            update: The client's method that sends one batch, for a table or for a partition.
            columns: The statistics.
            analyzed_at: The time at which they were computed.
            owner: For a partition, the parameter of `update` that names it: `PartitionValues=["2024-01-01"]`.
        """
        requests = to_request(columns, analyzed_at)
        for start in range(0, len(requests), _WRITE_BATCH):
            batch = requests[start : start + _WRITE_BATCH]
            _raise_errors(update(**self._key, **owner, ColumnStatisticsList=batch))
        return len(json.dumps(requests, default=str)) if requests else 0

    def _input(self, shape: str, item: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
        """Return the part of an update request that describes a table or partition.

        It replaces all properties, and repeats everything else that a request can set.

        Args:
            shape: The type of this part: `TableInput` or `PartitionInput`.
            item: The present table or partition, as a response contains it.
            parameters: All properties after the update.
        """
        names = self._client.meta.service_model.shape_for(shape).members
        return {**{name: item[name] for name in names if name in item}, "Parameters": dict(parameters)}


def _values(name: PartitionName) -> tuple[str, ...]:
    assert isinstance(name, tuple)
    return name


def _raise_errors(response: Mapping[str, Any]) -> None:
    """Raise ExportError for the first error that a response of Glue lists, if there is one."""
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
    with open_catalog_of(table, "glue", title) as (catalog, database, name):
        from metastore_assets.formats.catalogs.glue import GlueCatalogClient

        assert isinstance(catalog, GlueCatalogClient)
        yield GlueTable(catalog.glue, database, name)
