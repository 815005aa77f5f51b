"""Statistics of many partitions at once, from the column-wise files of the partition index.

A version has the statistics of one snapshot of the table. The partition index has the statistics of most partitions in
a few shared files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.current_schema import SCHEMA_COLUMNS, apply_schema_to_table
from metastore_assets.statistics.profile_tables import build_statistics_table
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import PartitionIndex, UnindexedPartition
from metastore_assets.values.columns import Column


class StatisticsSource(Protocol):
    """An object that reads the statistics of the columns of one partition."""

    def statistics(self, columns: Iterable[str] | None = None) -> list[ColumnStatistics]:
        """Return the statistics of the named columns, or of all columns."""


class PartitionStatistics:
    """The statistics of the partitions of one version.

    Each file is opened once, on first use. Threads may share the object.
    """

    def __init__(
        self,
        objects: ObjectStore,
        files: PartitionIndex,
        open_profile: Callable[[UnindexedPartition], StatisticsSource],
        missing: Callable[[int, Column], ColumnStatistics],
    ) -> None:
        """Create a reader of the statistics of partitions.

        Args:
            objects: The table's folder.
            files: The shared files with the statistics of most partitions, and a list of partitions with separate
                files.
            open_profile: Opens the separate file of a partition.
            missing: A function (row count, column) that returns the statistics of a column that has only nulls. It is
                called for columns that were added after a partition was profiled.
        """
        # Lookups of the statistics of a table do not need it.
        from metastore_assets.index.partition_index import PartitionReader

        self._reader = PartitionReader(objects, files.files)
        self._files = files
        self._open_profile = open_profile
        self._missing = missing
        self._separate: dict[str, StatisticsSource] = {}

    def table(
        self, columns: Sequence[tuple[int, Column]], keys: Sequence[str] | None = None
    ) -> tuple[pa.Table, list[str]]:
        """Return a table of statistics with a row per partition and column, and the key of each row.

        The rows are all columns of the first partition, then those of the second.

        Args:
            columns: (position, column) pairs. The position is 0-based, among all columns of the profiled table,
                nested ones included.
            keys: Keys of existing partitions, in the order of the result; None for all partitions, sorted by key.

        Returns:
            (Arrow table, list with the partition key of each of its rows).
        """
        # Rows come from three sources: the shared files, separate files, and nulls for columns that were added later.
        separate = {entry.key: entry for entry in self._files.unindexed}
        superseded_keys = separate.keys() | self._files.removed
        row_counts = self._row_counts
        keys = sorted([*(row_counts.keys() - superseded_keys), *separate]) if keys is None else list(keys)
        ranks = {key: rank for rank, key in enumerate(keys)}
        rank_at = np.array([-1 if key in superseded_keys else ranks.get(key, -1) for key in row_counts], np.int64)
        rows = _StatisticsRows(len(keys), len(columns))
        for number, (position, column) in enumerate(columns):
            for at, table in self._reader.column(column.field_id, SCHEMA_COLUMNS) if row_counts else ():
                rows.add(rank_at[at], number, apply_schema_to_table(table, position, column))
        for key in separate.keys() & ranks.keys():
            table = build_statistics_table(
                self._separate_statistics(separate[key], [column.path for _, column in columns])
            )
            rows.add(np.full(len(columns), ranks[key]), np.arange(len(columns)), table)
        for number, (position, column) in enumerate(columns):
            missing = rows.missing(number)
            if len(missing):
                counts, which = np.unique([row_counts[keys[rank]] for rank in missing.tolist()], return_inverse=True)
                nulls = build_statistics_table([self._missing(count, column) for count in counts.tolist()])
                rows.add(missing, number, apply_schema_to_table(nulls.take(pa.array(which)), position, column))
        return rows.ordered(), [key for key in keys for _ in columns]

    @lock_free_cached_property
    def _row_counts(self) -> dict[str, int]:
        """The row counts of partitions in the partition index, by partition key, in file order."""
        if not self._files.files.files:
            return {}
        partitions = self._reader.partitions
        return dict(zip(partitions["_key"].to_pylist(), partitions["_row_count"].to_pylist(), strict=True))

    def _separate_statistics(self, entry: UnindexedPartition, columns: Sequence[str]) -> list[ColumnStatistics]:
        if entry.key not in self._separate:
            self._separate.setdefault(entry.key, self._open_profile(entry))
        return self._separate[entry.key].statistics(columns)


class _StatisticsRows:
    """Rows of statistics that are added in any order, and returned sorted by partition and column."""

    def __init__(self, partitions: int, columns: int) -> None:
        self._is_present = np.zeros((partitions, columns), np.bool_)
        self._order: list[npt.NDArray[np.int64]] = []
        self._tables: list[pa.Table] = []

    def add(self, ranks: npt.NDArray[np.int64], columns: npt.NDArray[np.int64] | int, table: pa.Table) -> None:
        """Add the rows of a table.

        Args:
            ranks: For each row, the position of its partition in the result; rows with -1 are ignored.
            columns: For each row, the position of its column in the result; or one position for all rows.
            table: The rows.
        """
        has_rank = ranks >= 0
        if not has_rank.all():
            ranks, table = ranks[has_rank], table.filter(pa.array(has_rank))
        self._is_present[ranks, columns] = True
        self._order.append(ranks * self._is_present.shape[1] + columns)
        self._tables.append(table)

    def missing(self, column: int) -> npt.NDArray[np.int64]:
        """Return the positions of the partitions for which no row of a column was added yet.

        Args:
            column: The position of the column. As in `add`, positions are those in the result, counted from 0.
        """
        return np.flatnonzero(~self._is_present[:, column])

    def ordered(self) -> pa.Table:
        """Return all rows, sorted by partition, then column.

        The rows are copied to new buffers, so that the memory of the added tables can be freed.
        """
        from metastore_assets.index.partition_index import cast_statistics, statistics_schema

        tables = self._tables or [build_statistics_table([])]
        if len(tables) > 1:
            schema = statistics_schema(table.schema for table in tables)
            tables = [cast_statistics(table, schema) for table in tables]
        order = np.argsort(np.concatenate([np.empty(0, np.int64), *self._order]))
        return pa.concat_tables(tables).take(pa.array(order))
