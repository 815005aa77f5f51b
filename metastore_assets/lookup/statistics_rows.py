"""Answers with statistics: a row for each column, or for each partition and column.

A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import SupportsIndex, overload

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.lookup.results import AsOf, ResultSet
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.profile_tables import (
    build_statistics_table,
    build_typed_table,
    normalize_statistics_table,
    parse_statistics_rows,
    with_partition,
)


def statistics_rows(
    rows: Sequence[ColumnStatistics], as_of: AsOf, shapes: Callable[[], Sequence[Sequence[int]]] | None = None
) -> ResultSet[ColumnStatistics]:
    """Return statistics as an answer.

    Args:
        rows: The rows. If they describe partitions, each has the key of its partition.
        as_of: The version of the statistics.
        shapes: Returns the heights of the bars of one small chart per row, in the order of `rows`. If there are fewer
            charts than rows, the last rows have none. None for no charts.
    """

    def table() -> pa.Table:
        keys = [row.partition for row in rows]
        return _table(build_statistics_table(rows), None if None in keys else keys)

    return ResultSet(rows, as_of, table, guarantee=None, shapes=shapes)


def stored_statistics_rows(table: pa.Table, partitions: Sequence[str], as_of: AsOf) -> ResultSet[ColumnStatistics]:
    """Return stored statistics of many partitions as an answer.

    The first access to any row parses all rows.

    Args:
        table: The rows, with the columns of `build_statistics_table`.
        partitions: The partition key of each row.
        as_of: The version of the statistics.
    """
    rows = _ParsedRows(table, partitions)
    return ResultSet(rows, as_of, lambda: _table(normalize_statistics_table(table), partitions), guarantee=None)


def _table(table: pa.Table, partitions: Sequence[str | None] | None) -> pa.Table:
    typed_table = build_typed_table(table)
    return (
        typed_table if partitions is None else typed_table.add_column(0, "partition", pa.array(partitions, pa.string()))
    )


class _ParsedRows(Sequence[ColumnStatistics]):
    """The rows of a table of statistics, parsed on first access."""

    def __init__(self, table: pa.Table, partitions: Sequence[str]) -> None:
        self._stored = table
        self._partitions = partitions

    @lock_free_cached_property
    def _rows(self) -> list[ColumnStatistics]:
        return list(map(with_partition, parse_statistics_rows(self._stored), self._partitions))

    @overload
    def __getitem__(self, at: SupportsIndex) -> ColumnStatistics: ...

    @overload
    def __getitem__(self, at: slice) -> list[ColumnStatistics]: ...

    def __getitem__(self, at: SupportsIndex | slice) -> ColumnStatistics | list[ColumnStatistics]:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[ColumnStatistics]:
        return iter(self._rows)
