"""The differences of two versions, or of two tables, in schema, rows, partitions and distributions.

A version has the statistics of one snapshot of the table. Value counts are the distinct values of a column with their
frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from metastore_assets.lookup.distances import ComparedColumn, Distances, has_equal_values, measure_distances
from metastore_assets.lookup.json import Json, column_to_json, float_json, integer_json
from metastore_assets.lookup.results import AsOf, ResultSet
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.store.entries import PARTITIONS, diff_entries
from metastore_assets.store.version import Version

if TYPE_CHECKING:
    from metastore_assets.lookup.table import Table

_MEASURES = ("stability_index", "kolmogorov_smirnov", "jensen_shannon")
_COLUMNS_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("column", "change", "type_before", "type_after")),
        *((f"{name}_{side}", pa.int64()) for name in ("null_count", "distinct_count") for side in ("before", "after")),
        (
            "distances",
            pa.struct(
                [*((name, pa.float64()) for name in _MEASURES), ("over", pa.string()), ("guarantee", pa.string())]
            ),
        ),
        ("reason", pa.string()),
    ]
)
Change: TypeAlias = Literal["added", "removed", "changed", "same"]


@dataclass(frozen=True)
class ColumnDiff:
    """The statistics of one column in two versions, and their differences."""

    column: str
    """The current path of the column, or the last path of a removed one."""
    before: ColumnStatistics | None = field(repr=False)
    """The earlier statistics; None if the column was added."""
    after: ColumnStatistics | None = field(repr=False)
    """The later statistics; None if the column was removed."""
    change: Change
    """`added`, `removed`, `changed` or `same`. `same` means equal name, type, nulls and values. Without a hash of the
    values, their statistics are compared."""
    distances: Distances | None
    """The distances of the distributions; None if they are unknown, or if the column was added or removed."""
    reason: str | None
    """Why distances are unknown; None if there are distances, or if the column was added or removed."""

    @property
    def is_renamed(self) -> bool:
        """Whether the column is in both versions, with different names."""
        return self.before is not None and self.after is not None and self.before.column != self.after.column

    @property
    def is_retyped(self) -> bool:
        """Whether the column is in both versions, with different types."""
        return self.before is not None and self.after is not None and self.before.type != self.after.type


@dataclass(frozen=True)
class PartitionsDiff:
    """The numbers of partitions that were added, removed, changed or left unchanged between two versions."""

    added: int
    removed: int
    changed: int
    """Number of partitions that exist in both versions with different content."""
    same: int


@dataclass(frozen=True)
class TableDiff:
    """The differences between two versions of a table, or between two tables."""

    tables: tuple[str, str]
    """The names of both tables; equal for two versions of one table."""
    before: AsOf
    after: AsOf
    row_count: tuple[int, int]
    """(row count before, row count after)."""
    bytes: tuple[int, int]
    """(size of the data files before, after)."""
    columns: ResultSet[ColumnDiff] = field(repr=False)
    """The columns of `after` in their order, then removed columns."""
    partitions: PartitionsDiff | None
    """The numbers of partitions that differ; None for two different tables."""


def diff(before: Table, after: Table) -> TableDiff:
    """Return the differences between two versions of a table, or between two tables.

    Columns of one table are paired by field id, columns of two tables by name. The statistics of both are read, and the
    histograms or value counts of columns that differ. Raises StoreError.
    """
    old, new = before.version, after.version
    is_same_table = before.objects.is_same_folder(after.objects)
    rows_before, rows_after = before.statistics(), after.statistics()
    before_by_key = {row.field_id if is_same_table else row.column: row for row in rows_before}
    columns = []
    for row in rows_after:
        columns.append(
            _diff_column(before, before_by_key.pop(row.field_id if is_same_table else row.column, None), after, row)
        )
    columns += [ColumnDiff(row.column, row, None, "removed", None, None) for row in before_by_key.values()]
    return TableDiff(
        (old.table, new.table),
        before.as_of,
        after.as_of,
        (old.row_count, new.row_count),
        (old.bytes, new.bytes),
        ResultSet(columns, after.as_of, lambda: _columns_table(columns)),
        diff_partitions(old, new) if is_same_table else None,
    )


def _columns_table(columns: Sequence[ColumnDiff]) -> pa.Table:
    """Return a table with the columns `_COLUMNS_SCHEMA` and a row per `ColumnDiff`."""
    records = [
        {
            "column": column.column,
            "change": column.change,
            **{
                f"{name}_{side}": None if row is None else getattr(row, name)
                for name in ("type", "null_count", "distinct_count")
                for side, row in (("before", column.before), ("after", column.after))
            },
            "distances": None if column.distances is None else vars(column.distances),
            "reason": column.reason,
        }
        for column in columns
    ]
    return pa.Table.from_pylist(records, _COLUMNS_SCHEMA)


def diff_partitions(before: Version, after: Version) -> PartitionsDiff:
    """Return how many partitions of a table were added, removed or changed between two versions.

    Files of the partition list that both versions share are not read. Raises StoreError.
    """
    pairs = diff_entries(PARTITIONS, before.partitions, after.partitions).values()
    added_count = sum(old is None for old, _ in pairs)
    removed_count = sum(new is None for _, new in pairs)
    changed_count = sum(old is not None and new is not None and old.content_id != new.content_id for old, new in pairs)
    return PartitionsDiff(
        added_count, removed_count, changed_count, len(after.partitions) - added_count - changed_count
    )


def diff_json(diff: TableDiff) -> Json:
    """Return the JSON document of `metastore diff --json`."""
    sides = zip(("from", "to"), diff.tables, (diff.before, diff.after), strict=True)
    paired_columns = [column for column in diff.columns if column.before is not None and column.after is not None]
    return {
        **{key: {"table": name, "version": as_of.version, "snapshot": as_of.snapshot} for key, name, as_of in sides},
        "row_count": [integer_json(count) for count in diff.row_count],
        "bytes": [integer_json(count) for count in diff.bytes],
        "schema": {
            "added": [column.column for column in diff.columns if column.change == "added"],
            "removed": [column.column for column in diff.columns if column.change == "removed"],
            "renamed": [_from_to(column, "column") for column in paired_columns if column.is_renamed],
            "retyped": [
                {"column": column.column, **_from_to(column, "type")} for column in paired_columns if column.is_retyped
            ],
        },
        "partitions": diff.partitions and vars(diff.partitions),
        "columns": [_column_diff_json(column) for column in diff.columns],
    }


def _diff_column(before: Table, old: ColumnStatistics | None, after: Table, new: ColumnStatistics) -> ColumnDiff:
    """Return how a column changed from its statistics `old` to `new`.

    The column was added if `old` is None.
    """
    if old is None:
        return ColumnDiff(new.column, None, new, "added", None, None)
    result = measure_distances(ComparedColumn(before, old), ComparedColumn(after, new))
    is_changed = old.column != new.column or old.type != new.type or not _has_same_values(old, new)
    change: Change = "changed" if is_changed else "same"
    if isinstance(result, str):
        return ColumnDiff(new.column, old, new, change, None, result)
    return ColumnDiff(new.column, old, new, change, result, None)


def _has_same_values(old: ColumnStatistics, new: ColumnStatistics) -> bool:
    """Return whether a column has the same values in two versions, judged by one hash of all values.

    If one of the versions lacks this hash, the column's statistics are compared instead.
    """
    if old.multiset_hash is not None and new.multiset_hash is not None:
        return has_equal_values(old, new)
    first, second = column_to_json(old), column_to_json(new)
    return all(first[key] == second[key] for key in first if key not in ("column", "reason", "frequencies"))


def _from_to(column: ColumnDiff, name: str) -> Json:
    return {"from": getattr(column.before, name), "to": getattr(column.after, name)}


def _column_diff_json(column: ColumnDiff) -> Json:
    distances = column.distances
    return {
        "column": column.column,
        "change": column.change,
        **{name: None if distances is None else float_json(getattr(distances, name)) for name in _MEASURES},
        "over": None if distances is None else distances.over,
        "guarantee": "absent" if distances is None else distances.guarantee,
        "reason": column.reason,
        "before": None if column.before is None else column_to_json(column.before),
        "after": None if column.after is None else column_to_json(column.after),
    }
