"""The interface of a table in a catalog that stores statistics: a Hive metastore or AWS Glue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from metastore_assets.config import CatalogConfig, TableConfig
from metastore_assets.errors import ExportError
from metastore_assets.exports.declared_statistics import DeclaredStatistics
from metastore_assets.formats.catalogs.base import Catalog
from metastore_assets.formats.catalogs.client import open_catalog, table_identifier

PartitionName = Hashable
"""The name of a partition in requests: a text for a Hive metastore, a tuple of values for Glue."""


@dataclass(frozen=True)
class TableDeclaration:
    """The columns and properties of a table, as the catalog stores them."""

    properties: Mapping[str, str]
    columns: Mapping[str, str]
    """The type of each column except partition columns, by name."""
    keys: Mapping[str, str]
    """The type of each partition column, by name."""


@dataclass(frozen=True)
class RegisteredPartition:
    """A partition that the catalog registers for a table."""

    name: PartitionName
    values: tuple[str, ...]
    """The values of the partition columns, as texts in the catalog's form."""
    properties: Mapping[str, str]


class RegisteredTable(ABC):
    """One table of a catalog.

    Each method sends requests.
    """

    count_names: ClassVar[tuple[str, ...]]
    """The catalog's names of the numbers in `DeclaredStatistics.counts`, in the same order."""

    @abstractmethod
    def load(self) -> TableDeclaration:
        """Request the table's declaration.

        Raises TableNotFoundError or another error of the catalog's client.
        """

    @abstractmethod
    def change_properties(
        self,
        new_properties: Mapping[str, str],
        removed_names: Collection[str] = (),
        expected: tuple[str, str] | None = None,
    ) -> None:
        """Remove and add properties of the table in one change, which affects nothing else.

        Args:
            new_properties: The properties to set.
            removed_names: The names to remove. A name that is also in `new_properties` is set.
            expected: (name, value) of a property. If the table does not have the property with this value, nothing is
                changed. None for no condition.

        Raises:
            TableChangedError: The table does not have the expected property.
        """

    @abstractmethod
    def partitions(self) -> Iterator[RegisteredPartition]:
        """Request the partitions in batches, and yield them."""

    @abstractmethod
    def change_partitions(
        self, names: Sequence[PartitionName], change: Callable[[PartitionName, dict[str, str]], Mapping[str, str]]
    ) -> None:
        """Load partitions, and store them with changed properties.

        Args:
            names: Names of the partitions.
            change: Returns the new properties of a partition from its name and its present properties.
        """

    @abstractmethod
    def statistics(self, columns: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the stored statistics of some columns: `{"id": {"numNulls": 0}}`, with the catalog's names.

        Columns without statistics are omitted.
        """

    @abstractmethod
    def write_statistics(self, columns: Sequence[DeclaredStatistics], analyzed_at: datetime) -> int:
        """Write or replace the table's statistics of some columns.

        The statistics of other columns stay.

        Args:
            columns: The statistics.
            analyzed_at: The time at which they were computed.

        Returns:
            The number of bytes that were sent.
        """

    @abstractmethod
    def write_partition_statistics(
        self, partitions: Mapping[PartitionName, Sequence[DeclaredStatistics]], analyzed_at: datetime
    ) -> int:
        """Write or replace the statistics of some columns of partitions.

        The statistics of other columns stay.

        Args:
            partitions: The statistics of each partition, by its name.
            analyzed_at: The time at which they were computed.

        Returns:
            The number of bytes that were sent.
        """

    @abstractmethod
    def delete_statistics(self, columns: Iterable[str], partition: PartitionName | None = None) -> None:
        """Delete column statistics of the table or of one partition.

        Missing statistics are no error.

        Args:
            columns: Names of the columns.
            partition: The name of the partition; None for the table.
        """


class TableChangedError(ExportError):
    """Raised if a property of a table does not have the value that the caller expects.

    Another process has then changed the table.
    """

    def __init__(self) -> None:
        super().__init__(
            "another process changed the table in the catalog at the same time: the next refresh exports it again"
        )


def changed_properties(
    properties: Mapping[str, str] | None,
    new_properties: Mapping[str, str],
    removed_names: Collection[str],
    expected: tuple[str, str] | None,
) -> dict[str, str]:
    """Return `properties` without the names in `removed_names`, and with those in `new_properties`.

    Names are removed first, then added or replaced. `expected` is a pair (name, value), or None for no condition.
    Raises TableChangedError if the property `name` of `properties` is missing or has another value: another process has
    then changed the table. None as `properties` stands for no properties.
    """
    present = properties or {}
    if expected is not None and present.get(expected[0]) != expected[1]:
        raise TableChangedError
    return {**{name: text for name, text in present.items() if name not in removed_names}, **new_properties}


@contextmanager
def open_catalog_of(table: TableConfig, type_: str, title: str) -> Iterator[tuple[Catalog, str, str]]:
    """Open the catalog in which a table is registered.

    Yield (catalog, name of the database, name of the table).

    Args:
        table: The configuration of the table.
        type_: The type of the catalog: `glue` or `hive`.
        title: The name of the target in messages.

    Raises:
        ExportError: The table is not in a catalog of this type.
        TableFormatError: The catalog cannot be reached, or refuses a request.
    """
    if not isinstance(table.catalog, CatalogConfig) or table.catalog.type != type_:
        raise ExportError(
            f"{title} needs a table in a catalog of type `{type_}`, and table {table.name!r} is in none: name it by "
            "`catalog` and `table` instead of by its location"
        )
    database, name = table_identifier(table)
    with open_catalog(table.catalog, f"update table {table.identifier!r}") as catalog:
        yield catalog, database, name
