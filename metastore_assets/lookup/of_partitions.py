"""The statistics of many partitions: of one column those of all of them lie in one slice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.expressions.wildcards import matches_wildcards
from metastore_assets.lookup.profile_files import Profile
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.current_schema import SCHEMA_COLUMNS, apply_schema_to_table
from metastore_assets.statistics.tables import build_statistics_table
from metastore_assets.store.manifest import OwnStatistics, PartitionFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.leaf_columns import LeafColumn

ALL = ("*", "all")
"""What stands for all partitions. `all` is also the key of the only one of a table without partition columns."""


class PartitionStatistics:
    """The statistics of the partitions of one version. Opens each file once, on first use; safe to share."""

    def __init__(
        self,
        objects: ObjectStore,
        files: PartitionFiles,
        read: Callable[[OwnStatistics], Profile],
        missing: Callable[[int, LeafColumn], ColumnStatistics],
    ) -> None:
        """`read` opens a partition that has a file of its own; `missing` tells what is known of a column in a partition
        of so many rows that was profiled without it."""
        from metastore_assets.index.partitions import PartitionReader  # the statistics of a table do without

        self._reader = PartitionReader(objects, files.files)
        self._files = files
        self._read = read
        self._missing = missing
        self._apart: dict[str, Profile] = {}

    def table(
        self, columns: Sequence[tuple[int, LeafColumn]], wanted: Sequence[str] | None = None
    ) -> tuple[pa.Table, list[str]]:
        """Rows of columns, each with its place in the table, partition by partition, and the key of each row: of all
        by key, or of those wanted in the order given, which there have to be."""
        apart = {own.key: own for own in self._files.apart}
        hidden = apart.keys() | self._files.gone
        in_files = self._in_files
        keys = sorted([*(in_files.keys() - hidden), *apart]) if wanted is None else list(wanted)
        ranks = {key: rank for rank, key in enumerate(keys)}
        rank_at = np.array([-1 if key in hidden else ranks.get(key, -1) for key in in_files], np.int64)
        found = _Rows(len(keys), len(columns))
        for number, (position, leaf) in enumerate(columns):
            for at, table in self._reader.column(leaf.field_id, SCHEMA_COLUMNS) if in_files else ():
                found.add(rank_at[at], number, apply_schema_to_table(table, position, leaf))
        for key in apart.keys() & ranks.keys():
            table = build_statistics_table(self._own(apart[key], [leaf.path for _, leaf in columns]))
            found.add(np.full(len(columns), ranks[key]), np.arange(len(columns)), table)
        for number, (position, leaf) in enumerate(columns):
            lacking = found.lacking(number)
            if len(lacking):
                rows, which = np.unique([in_files[keys[rank]] for rank in lacking.tolist()], return_inverse=True)
                nulls = build_statistics_table([self._missing(count, leaf) for count in rows.tolist()]).take(
                    pa.array(which)
                )
                found.add(lacking, number, apply_schema_to_table(nulls, position, leaf))
        return found.ordered(), [key for key in keys for _ in columns]

    @lock_free_cached_property
    def _in_files(self) -> dict[str, int]:
        """Numbers of rows of the partitions that files tell of, by key, in their order."""
        if not self._files.files.files:
            return {}
        partitions = self._reader.partitions
        return dict(zip(partitions["_key"].to_pylist(), partitions["_row_count"].to_pylist(), strict=True))

    def _own(self, own: OwnStatistics, columns: Sequence[str]) -> list[ColumnStatistics]:
        if own.key not in self._apart:
            self._apart.setdefault(own.key, self._read(own))
        return self._apart[own.key].statistics(columns)


class _Rows:
    """Rows of statistics, by rank of their partition and number of their column, as they are found."""

    def __init__(self, partitions: int, columns: int) -> None:
        self._is_there = np.zeros((partitions, columns), np.bool_)
        self._order: list[npt.NDArray[np.int64]] = []
        self._tables: list[pa.Table] = []

    def add(self, ranks: npt.NDArray[np.int64], columns: npt.NDArray[np.int64] | int, table: pa.Table) -> None:
        """The rows of a table but for those of no rank (-1)."""
        ranked = ranks >= 0
        if not ranked.all():
            ranks, table = ranks[ranked], table.filter(pa.array(ranked))
        self._is_there[ranks, columns] = True
        self._order.append(ranks * self._is_there.shape[1] + columns)
        self._tables.append(table)

    def lacking(self, column: int) -> npt.NDArray[np.int64]:
        """The ranks that there is no row of that column of."""
        return np.flatnonzero(~self._is_there[:, column])

    def ordered(self) -> pa.Table:
        """All of them, by rank, then column: a copy, which keeps nothing of what they were read from."""
        from metastore_assets.index.partition_rows import in_schema, rows_schema

        tables = self._tables or [build_statistics_table([])]
        if len(tables) > 1:
            schema = rows_schema(table.schema for table in tables)
            tables = [in_schema(table, schema) for table in tables]
        order = np.argsort(np.concatenate([np.empty(0, np.int64), *self._order]))
        return pa.concat_tables(tables).take(pa.array(order))


def chosen_keys(texts: Iterable[str], keys: Collection[str]) -> list[str] | str:
    """The keys that texts mean, in that order, each once: keys, or patterns; the first text that means none, by itself.

    A pattern is `column=pattern`, or several of them joined by `/` (`*`, `?` and `[…]` are wildcards): all partitions
    whose key has a part that fits each.
    """
    found: dict[str, None] = {}
    for text in texts:
        own = [text] if text in keys else [key for key in keys if _fits(key, text)]
        if not own:
            return text
        found.update(dict.fromkeys(own))
    return list(found)


def _fits(key: str, text: str) -> bool:
    parts = key.split("/")
    readable = [unquote(part) for part in parts]
    return all(
        any(matches_wildcards(own, pattern) for own in (*parts, *readable))
        for pattern in text.split("/")
        if "=" in pattern
    ) and ("=" in text or matches_wildcards(key, text))
