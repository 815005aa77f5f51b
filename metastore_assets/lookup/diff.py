"""What is different between two versions of a table, or between two tables: schema, rows, columns, distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from metastore_assets.lookup.distances import Distances, distances, is_same
from metastore_assets.lookup.json import Json, column_to_json, float_json, integer_json
from metastore_assets.lookup.results import AsOf
from metastore_assets.statistics.column import ColumnStatistics

if TYPE_CHECKING:
    from metastore_assets.lookup.table import Table

Change: TypeAlias = Literal["added", "removed", "changed", "same"]


@dataclass(frozen=True)
class ColumnDiff:
    """A column before and after."""

    before: ColumnStatistics | None
    """None for one that was added."""
    after: ColumnStatistics | None
    """None for one that was removed."""
    change: Change
    """`same`: the same name, type, number of nulls and multiset of values."""
    distances: Distances | None
    reason: str | None
    """Why there are no distances; None where there are, or where one of the two is not there."""

    @property
    def name(self) -> str:
        """What the column is called now, or was called last."""
        row = self.after or self.before
        assert row is not None
        return row.column

    @property
    def is_renamed(self) -> bool:
        """Whether it had another name."""
        return self.before is not None and self.after is not None and self.before.column != self.after.column

    @property
    def is_retyped(self) -> bool:
        """Whether its values had another type."""
        return self.before is not None and self.after is not None and self.before.type != self.after.type


@dataclass(frozen=True)
class PartitionsDiff:
    """How many partitions are other ones."""

    added: int
    removed: int
    changed: int
    """In both, with other content."""
    same: int


@dataclass(frozen=True)
class TableDiff:
    """All that is different."""

    tables: tuple[str, str]
    """The names of both tables; mostly they are one."""
    before: AsOf
    after: AsOf
    row_count: tuple[int, int]
    bytes: tuple[int, int]
    columns: Sequence[ColumnDiff]
    """In the order of the table now; then those that were removed."""
    partitions: PartitionsDiff | None
    """None between different tables."""


def diff(before: Table, after: Table) -> TableDiff:
    """Comparison two versions. Columns of one table are paired by field id, those of two by name.

    Reads the statistics of both and, of columns that are not the same, histograms or lists. Raises StoreError.
    """
    old, new = before.version, after.version
    is_one = before.location == after.location
    rows_before, rows_after = before.statistics(), after.statistics()
    keyed = {row.field_id if is_one else row.column: row for row in rows_before}
    columns = []
    for row in rows_after:
        columns.append(_column(before, keyed.pop(row.field_id if is_one else row.column, None), after, row))
    columns += [ColumnDiff(row, None, "removed", None, None) for row in keyed.values()]
    return TableDiff(
        (old.table, new.table),
        before.as_of,
        after.as_of,
        (old.row_count, new.row_count),
        (old.bytes, new.bytes),
        columns,
        _partitions(before, after) if is_one else None,
    )


def diff_json(found: TableDiff) -> Json:
    """The shape of `metastore diff --json`."""
    sides = zip(("from", "to"), found.tables, (found.before, found.after), strict=True)
    paired = [own for own in found.columns if own.before is not None and own.after is not None]
    return {
        **{key: {"table": name, "version": of.version, "snapshot": of.snapshot} for key, name, of in sides},
        "row_count": [integer_json(count) for count in found.row_count],
        "bytes": [integer_json(count) for count in found.bytes],
        "schema": {
            "added": [own.name for own in found.columns if own.change == "added"],
            "removed": [own.name for own in found.columns if own.change == "removed"],
            "renamed": [_pair(own, "column") for own in paired if own.is_renamed],
            "retyped": [{"column": own.name, **_pair(own, "type")} for own in paired if own.is_retyped],
        },
        "partitions": found.partitions and vars(found.partitions),
        "columns": [_column_json(own) for own in found.columns],
    }


def _column(before: Table, old: ColumnStatistics | None, after: Table, new: ColumnStatistics) -> ColumnDiff:
    if old is None:
        return ColumnDiff(None, new, "added", None, None)
    told = distances(before, old, after, new)
    known = None if isinstance(told, str) else told
    is_changed = old.column != new.column or old.type != new.type or not _is_alike(old, new)
    return ColumnDiff(old, new, "changed" if is_changed else "same", known, told if isinstance(told, str) else None)


def _is_alike(old: ColumnStatistics, new: ColumnStatistics) -> bool:
    """Whether all is the same that is known of two columns' values."""
    if old.multiset_hash is not None and new.multiset_hash is not None:
        return is_same(old, new)
    first, second = column_to_json(old), column_to_json(new)
    return all(first[key] == second[key] for key in first if key not in ("column", "reason", "frequencies"))


def _partitions(before: Table, after: Table) -> PartitionsDiff:
    old = {entry.key: entry.content_id for entry in before.partitions()}
    new = {entry.key: entry.content_id for entry in after.partitions()}
    both = old.keys() & new.keys()
    changed = sum(old[key] != new[key] for key in both)
    return PartitionsDiff(len(new.keys() - both), len(old.keys() - both), changed, len(both) - changed)


def _pair(own: ColumnDiff, name: str) -> Json:
    return {"from": getattr(own.before, name), "to": getattr(own.after, name)}


def _column_json(own: ColumnDiff) -> Json:
    known = own.distances
    measures = ("stability_index", "kolmogorov_smirnov", "jensen_shannon")
    return {
        "column": own.name,
        "change": own.change,
        **{name: None if known is None else float_json(getattr(known, name)) for name in measures},
        "over": None if known is None else known.over,
        "guarantee": "absent" if known is None else known.guarantee,
        "reason": own.reason,
        "before": None if own.before is None else column_to_json(own.before),
        "after": None if own.after is None else column_to_json(own.after),
    }
