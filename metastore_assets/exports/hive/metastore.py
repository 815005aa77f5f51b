"""Requests that read and change one table in a Hive metastore, through its Thrift interface."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from metastore_assets.config import CatalogConfig, TableConfig
from metastore_assets.errors import ExportError
from metastore_assets.formats.catalogs.client import open_catalog, table_identifier

if TYPE_CHECKING:
    from hive_metastore.ttypes import ColumnStatistics, ColumnStatisticsObj, Partition, Table

_ENGINE = "hive"
"""Hive 4 stores separate statistics for each engine. Earlier versions ignore the engine."""
_NO_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}
"""Prevents the metastore from listing the table's files after a change, and from replacing a client's numbers."""


class HiveTable:
    """One table of a Hive metastore, with the connection over which requests are sent."""

    def __init__(self, client: Any, database: str, name: str) -> None:
        """Create the object. No request is sent.

        Args:
            client: Thrift's client `ThriftHiveMetastore.Client`.
            database: Name of the database.
            name: Name of the table.
        """
        self.client = client
        self.database = database
        self.name = name

    def load(self) -> Table:
        """Request the table's declaration. Raises TableNotFoundError if there is no such table."""
        from metastore_assets.formats.catalogs.hive import request_table

        return request_table(self.client, self.database, self.name)

    def change_properties(self, added: Mapping[str, str], removed: Collection[str] = ()) -> None:
        """Remove and add properties of the table with one request, which changes nothing else.

        Args:
            added: The properties to set.
            removed: The names to remove. A name that is also in `added` is set.
        """
        from hive_metastore.ttypes import EnvironmentContext

        table = self.load()
        table.parameters = {key: text for key, text in (table.parameters or {}).items() if key not in removed} | dict(
            added
        )
        self.client.alter_table_with_environment_context(
            self.database, self.name, table, EnvironmentContext(dict(_NO_STATISTICS))
        )

    def partition_names(self) -> list[str]:
        """Return the names of all partitions, such as `day=2024-01-01/country=FR`, with the metastore's escapes."""
        return self.client.get_partition_names(self.database, self.name, -1)  # type: ignore[no-any-return]

    def load_partitions(self, names: Sequence[str]) -> list[tuple[str, Partition]]:
        """Request partitions by name. Return (name, partition) pairs in no particular order."""
        if not names:
            return []
        by_values = {tuple(unquote(item.partition("=")[2]) for item in name.split("/")): name for name in names}
        partitions = self.client.get_partitions_by_names(self.database, self.name, list(names))
        return [(by_values[tuple(partition.values)], partition) for partition in partitions]

    def change_partitions(self, partitions: list[Partition]) -> None:
        """Store partitions whose properties the caller has changed."""
        from hive_metastore.ttypes import EnvironmentContext

        if partitions:
            self.client.alter_partitions_with_environment_context(
                self.database, self.name, partitions, EnvironmentContext(dict(_NO_STATISTICS))
            )

    def statistics(self, columns: Sequence[str]) -> list[ColumnStatisticsObj]:
        """Return the statistics that the metastore stores for columns of the table. Columns without any are omitted."""
        from hive_metastore.ttypes import TableStatsRequest

        if not columns:
            return []
        request = TableStatsRequest(self.database, self.name, list(columns), engine=_ENGINE)
        return self.client.get_table_statistics_req(request).tableStats  # type: ignore[no-any-return]

    def write_statistics(self, columns: list[ColumnStatisticsObj]) -> None:
        """Write or replace the table's statistics of some columns. Those of other columns stay."""
        if columns:
            self.client.update_table_column_statistics(self._column_statistics(columns, None))

    def write_partition_statistics(self, columns: Mapping[str, list[ColumnStatisticsObj]]) -> None:
        """Write or replace statistics of partitions. Keys are names of partitions; values have one item per column."""
        from hive_metastore.ttypes import SetPartitionsStatsRequest

        statistics = [self._column_statistics(objects, name) for name, objects in columns.items() if objects]
        if statistics:
            self.client.set_aggr_stats_for(SetPartitionsStatsRequest(statistics, engine=_ENGINE))

    def delete_statistics(self, columns: Iterable[str], partition: str | None = None) -> None:
        """Delete column statistics of the table or of one partition. Missing ones are no error.

        Args:
            columns: Names of the columns.
            partition: Name of the partition; None for the table.
        """
        from hive_metastore.ttypes import NoSuchObjectException

        for column in columns:
            with suppress(NoSuchObjectException):
                if partition is None:
                    self.client.delete_table_column_statistics(self.database, self.name, column, _ENGINE)
                else:
                    arguments = (self.database, self.name, partition, column, _ENGINE)
                    self.client.delete_partition_column_statistics(*arguments)

    @staticmethod
    def size_of(objects: Iterable[Any]) -> int:
        """Return the total size of Thrift objects in bytes, serialized as in a request."""
        from thrift.TSerialization import serialize

        return sum(len(serialize(item)) for item in objects)

    def _column_statistics(self, columns: list[ColumnStatisticsObj], partition: str | None) -> ColumnStatistics:
        from hive_metastore.ttypes import ColumnStatistics, ColumnStatisticsDesc

        description = ColumnStatisticsDesc(partition is None, self.database, self.name, partition)
        return ColumnStatistics(description, columns, engine=_ENGINE)


@contextmanager
def open_hive_table(table: TableConfig, title: str) -> Iterator[HiveTable]:
    """Connect to the metastore of a table.

    Args:
        table: The configuration of the table.
        title: The name of the target in messages.

    Raises:
        ExportError: The table is not in a catalog of type `hive`.
        TableFormatError: The metastore cannot be reached, or refuses a request.
    """
    if not isinstance(table.catalog, CatalogConfig) or table.catalog.type != "hive":
        raise ExportError(
            f"{title} needs a table in a catalog of type `hive`, and table {table.name!r} is in none: name it by "
            "`catalog` and `table` instead of by its location"
        )
    database, name = table_identifier(table)
    with open_catalog(table.catalog, f"update table {table.identifier!r}") as catalog:
        from metastore_assets.formats.catalogs.hive import HiveCatalogClient

        assert isinstance(catalog, HiveCatalogClient)
        with catalog.connect() as client:
            yield HiveTable(client, database, name)
