"""Requests that read and change one table in a Hive metastore, through its Thrift interface."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from metastore_assets.config import TableConfig
from metastore_assets.exports.catalog_table import (
    PartitionName,
    RegisteredPartition,
    RegisteredTable,
    TableDeclaration,
    changed_properties,
    open_catalog_of,
)
from metastore_assets.exports.declared_statistics import DeclaredStatistics
from metastore_assets.exports.hive.column_statistics import read_thrift, to_thrift

if TYPE_CHECKING:
    from hive_metastore.ttypes import ColumnStatistics, ColumnStatisticsObj, Partition, Table

_ENGINE = "hive"
"""Hive 4 stores separate statistics for each engine. Earlier versions ignore the engine."""
ACCURATE = "COLUMN_STATS_ACCURATE"
"""The property that names the columns with accurate statistics."""
_NAMES_LENGTH = 3_500
"""Maximum number of characters of the columns' names in one request. The metastore itself adds the names of written
columns to the property ACCURATE, which may have 4,000 characters in its database. So the property is removed between
two requests."""
_NAME_EXTRA = 12
"""Number of further characters for each name in the property."""
_READ_BATCH = 200
"""Number of partitions that one request loads."""
_NO_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}
"""Prevents the metastore from listing the table's files after a change, and from replacing a client's numbers."""


class HiveTable(RegisteredTable):
    """One table of a Hive metastore, with the connection over which requests are sent."""

    count_names = ("numNulls", "numDVs", "numTrues", "maxColLen")

    def __init__(self, client: Any, database: str, name: str) -> None:
        """Create the object.

        No request is sent.

        Args:
            client: Thrift's client `ThriftHiveMetastore.Client`.
            database: Name of the database.
            name: Name of the table.
        """
        self.client = client
        self.database = database
        self.name = name

    def load(self) -> TableDeclaration:
        """Request the table's declaration.

        Raises TableNotFoundError if there is no such table.
        """
        table = self._load()
        return TableDeclaration(
            properties=dict(table.parameters or {}),
            columns={column.name: column.type for column in table.sd.cols},
            keys={key.name: key.type for key in table.partitionKeys or ()},
        )

    def change_properties(
        self,
        new_properties: Mapping[str, str],
        removed_names: Collection[str] = (),
        expected: tuple[str, str] | None = None,
    ) -> None:
        """Change properties of the table.

        See `RegisteredTable.change_properties`.

        The request tells the metastore not to update the table's basic statistics, as it would by default.
        """
        from hive_metastore.ttypes import EnvironmentContext

        table = self._load()
        table.parameters = changed_properties(table.parameters, new_properties, removed_names, expected)
        self.client.alter_table_with_environment_context(
            self.database, self.name, table, EnvironmentContext(dict(_NO_STATISTICS))
        )

    def partitions(self) -> Iterator[RegisteredPartition]:
        """Request the partitions in batches.

        Their names are like `day=2024-01-01/country=FR`, with Hive's escapes.
        """
        names = self.client.get_partition_names(self.database, self.name, -1)
        for start in range(0, len(names), _READ_BATCH):
            for name, partition in self._load_partitions(names[start : start + _READ_BATCH]):
                yield RegisteredPartition(name, tuple(partition.values), partition.parameters or {})

    def change_partitions(
        self, names: Sequence[PartitionName], change: Callable[[PartitionName, dict[str, str]], Mapping[str, str]]
    ) -> None:
        """Change properties of partitions with two requests.

        See `RegisteredTable.change_partitions`.
        """
        from hive_metastore.ttypes import EnvironmentContext

        partitions = self._load_partitions(names)
        for name, partition in partitions:
            partition.parameters = dict(change(name, dict(partition.parameters or {})))
        if partitions:
            self.client.alter_partitions_with_environment_context(
                *(self.database, self.name, [partition for _, partition in partitions]),
                EnvironmentContext(dict(_NO_STATISTICS)),
            )

    def statistics(self, columns: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the stored statistics of some columns: `{"id": {"numNulls": 0}}`.

        Columns without statistics are omitted.
        """
        return read_thrift(self._stored(columns))

    def write_statistics(self, columns: Sequence[DeclaredStatistics], analyzed_at: datetime) -> int:
        """Write the table's statistics, and return the number of bytes that were sent.

        Columns are written in batches. Before each batch, stored bounds that the new statistics lack are deleted. See
        `RegisteredTable.write_statistics`.
        """
        size, by_name = 0, {column.column: column for column in columns}
        for number, names in enumerate(_batches(by_name)):
            if number:
                self.change_properties({}, {ACCURATE})
            batch = [by_name[name] for name in names]
            self._delete_outdated(None, batch, self._stored(_without_bounds(batch)))
            statistics = self._column_statistics(batch, None)
            self.client.update_table_column_statistics(statistics)
            size += _size_of([statistics])
        return size

    def write_partition_statistics(
        self, partitions: Mapping[PartitionName, Sequence[DeclaredStatistics]], analyzed_at: datetime
    ) -> int:
        """Write the statistics of partitions, and return the number of bytes that were sent.

        Each batch of columns is written with one request for all partitions. Before that, stored bounds that the new
        statistics lack are deleted. See `RegisteredTable.write_partition_statistics`.
        """

        def without_accuracy(name: PartitionName, properties: dict[str, str]) -> dict[str, str]:
            return {key: text for key, text in properties.items() if key != ACCURATE}

        size, all_names = 0, dict.fromkeys(column.column for columns in partitions.values() for column in columns)
        for number, names in enumerate(map(set, _batches(all_names))):
            if number:
                self.change_partitions(list(partitions), without_accuracy)
            size += self._write_partition_columns(
                {name: [column for column in columns if column.column in names] for name, columns in partitions.items()}
            )
        return size

    def _write_partition_columns(self, partitions: Mapping[PartitionName, Sequence[DeclaredStatistics]]) -> int:
        """Write column statistics of partitions.

        Return their size in bytes.

        Stored statistics that would keep an outdated bound are deleted first.
        """
        from hive_metastore.ttypes import PartitionsStatsRequest, SetPartitionsStatsRequest

        names = [name for name, columns in partitions.items() if _without_bounds(columns)]
        if names:
            columns = {column for name in names for column in _without_bounds(partitions[name])}
            request = PartitionsStatsRequest(self.database, self.name, sorted(columns), names, engine=_ENGINE)
            for name, stored_statistics in self.client.get_partitions_statistics_req(request).partStats.items():
                self._delete_outdated(name, partitions[name], stored_statistics)
        statistics = [self._column_statistics(columns, str(name)) for name, columns in partitions.items() if columns]
        if statistics:
            self.client.set_aggr_stats_for(SetPartitionsStatsRequest(statistics, engine=_ENGINE))
        return _size_of(statistics)

    def delete_statistics(self, columns: Iterable[str], partition: PartitionName | None = None) -> None:
        """Delete column statistics with one request per column.

        See `RegisteredTable.delete_statistics`.
        """
        from hive_metastore.ttypes import NoSuchObjectException

        for column in columns:
            with suppress(NoSuchObjectException):
                if partition is None:
                    self.client.delete_table_column_statistics(self.database, self.name, column, _ENGINE)
                else:
                    arguments = (self.database, self.name, partition, column, _ENGINE)
                    self.client.delete_partition_column_statistics(*arguments)

    def _stored(self, columns: Sequence[str]) -> list[ColumnStatisticsObj]:
        """Return the statistics that the metastore has for columns of the table."""
        from hive_metastore.ttypes import TableStatsRequest

        stored_statistics: list[ColumnStatisticsObj] = []
        for batch in _batches(columns):
            request = TableStatsRequest(self.database, self.name, batch, engine=_ENGINE)
            stored_statistics += self.client.get_table_statistics_req(request).tableStats
        return stored_statistics

    def _delete_outdated(
        self,
        partition: str | None,
        columns: Sequence[DeclaredStatistics],
        stored_statistics: Iterable[ColumnStatisticsObj],
    ) -> None:
        """Delete stored statistics with a bound that the new ones lack.

        A write would not remove the bound.

        Args:
            partition: The name of the partition; None for the table.
            columns: The new statistics.
            stored_statistics: The stored statistics of the columns whose new statistics lack a bound.
        """
        without = set(_without_bounds(columns))
        outdated_columns = [
            name for name, numbers in read_thrift(stored_statistics).items() if {"lowValue", "highValue"} & set(numbers)
        ]
        self.delete_statistics([name for name in outdated_columns if name in without], partition)

    def _load(self) -> Table:
        from metastore_assets.formats.catalogs.hive import request_table

        return request_table(self.client, self.database, self.name)

    def _load_partitions(self, names: Sequence[Any]) -> list[tuple[str, Partition]]:
        """Request partitions by name.

        Return (name, partition) pairs in no particular order.
        """
        if not names:
            return []
        by_values = {tuple(unquote(item.partition("=")[2]) for item in name.split("/")): name for name in names}
        partitions = self.client.get_partitions_by_names(self.database, self.name, list(names))
        return [(by_values[tuple(partition.values)], partition) for partition in partitions]

    def _column_statistics(self, columns: Sequence[DeclaredStatistics], partition: str | None) -> ColumnStatistics:
        from hive_metastore.ttypes import ColumnStatistics, ColumnStatisticsDesc

        description = ColumnStatisticsDesc(partition is None, self.database, self.name, partition)
        return ColumnStatistics(description, to_thrift(columns), engine=_ENGINE)


def _without_bounds(columns: Iterable[DeclaredStatistics]) -> list[str]:
    """Return the names of the columns whose minimum or maximum is None, or both.

    Only columns of dates, numbers and timestamps count: a Hive metastore has no bounds of other columns.
    """
    kinds = ("date", "decimal", "double", "long", "timestamp")
    return [
        column.column
        for column in columns
        if column.kind in kinds and (column.minimum is None or column.maximum is None)
    ]


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield the names of columns in batches, in order.

    A batch has at most `_NAMES_LENGTH` characters. Each name counts as its length plus `_NAME_EXTRA`. A longer name has
    its own batch.
    """
    batch: list[str] = []
    for name in names:
        if batch and sum(map(len, batch)) + len(name) + _NAME_EXTRA * (len(batch) + 1) > _NAMES_LENGTH:
            yield batch
            batch = []
        batch.append(name)
    if batch:
        yield batch


def _size_of(objects: Iterable[Any]) -> int:
    """Return the total size of Thrift objects in bytes, serialized as in a request."""
    from thrift.TSerialization import serialize

    return sum(len(serialize(item)) for item in objects)


@contextmanager
def open_hive_table(table: TableConfig, title: str) -> Iterator[HiveTable]:
    """Connect to the Hive metastore that has a table, and yield the table.

    The connection ends with the block.

    Args:
        table: The configuration of the table.
        title: The name of the target in messages.

    Raises:
        ExportError: The table is not in a catalog of type `hive`.
        TableFormatError: The metastore cannot be reached, or refuses a request.
    """
    with open_catalog_of(table, "hive", title) as (catalog, database, name):
        from metastore_assets.formats.catalogs.hive import HiveCatalogClient

        assert isinstance(catalog, HiveCatalogClient)
        with catalog.connect() as client:
            yield HiveTable(client, database, name)
