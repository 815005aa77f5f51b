"""What changed between two versions of a table, value by value: typed updates of its lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.lookup.relation import explains_missing_files
from metastore_assets.lookup.results import AsOf
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.store.manifest import Version
from metastore_assets.value_counts import read_lists
from metastore_assets.value_counts.between import changes_between
from metastore_assets.values.json import Json, integer_json, scalar_json

if TYPE_CHECKING:
    from metastore_assets.lookup.table import Table


@dataclass(frozen=True)
class ColumnChanges:
    """How the list of one column changed."""

    column: str
    type: str
    """Of the column, as statistics name it."""
    table: pa.Table | None
    """`change` (`add`, `update`, `delete`), `value` (of the canonical type of the column's class), `before`, `after`:
    frequencies, null where there is no such value. By increasing value. None where that is not known."""
    reason: str | None
    """Why it is not known."""


@dataclass(frozen=True)
class Changes:
    """What changed from one version to another."""

    before: AsOf
    after: AsOf
    columns: Sequence[ColumnChanges]
    """In the order asked for."""


@explains_missing_files
def _read(
    table: Table, before: Version, between: Sequence[Version] | None, columns: dict[str, str]
) -> dict[str, pa.Table]:
    objects = table.versions.objects
    versions = [before] if before.number == table.version.number else [before, *(between or ()), table.version]
    lists = [read_lists(objects, own.lists) for own in versions]
    # Lists that were only written anew keep the update that led to what they hold.
    steps = [
        pair
        for (old, new), pair in zip(pairwise(versions), pairwise(lists), strict=True)
        if old.content_id != new.content_id
    ]
    return changes_between(objects, lists[0], lists[-1], None if between is None else steps, columns)


def changes(before: Table, after: Table, columns: Iterable[str] | None = None) -> Changes:
    """What changed of the listed columns of a table. Raises ColumnNotFoundError, StoreError.

    Costs what changed, where all versions in between are there; else both lists are read as a whole.
    """
    was = {row.field_id: row for row in before.statistics()}
    rows = after.statistics(columns)
    reasons = {row.field_id: _why_not(was.get(row.field_id), row) for row in rows}
    wanted = {row.field_id: row.type_class for row in rows if reasons[row.field_id] is None and row.type_class}
    found = _read(after, before.version, _between(before, after), wanted)
    told = [ColumnChanges(row.column, row.type, found.get(row.field_id), reasons[row.field_id]) for row in rows]
    return Changes(before.as_of, after.as_of, told)


def changes_json(table: str, found: Changes, most: int | None = None) -> Json:
    """The shape of `changes --json`: by column, the values by increasing value; with `most` only so many, those whose
    frequency changed most."""
    return {
        "table": table,
        "before": vars(found.before),
        "after": vars(found.after),
        "columns": [
            {
                "column": own.column,
                "type": own.type,
                "counts": None if own.table is None else _counts(own.table),
                "reason": own.reason,
                "changes": None if own.table is None else _rows(_largest(own.table, most)),
            }
            for own in found.columns
        ],
    }


def _counts(table: pa.Table) -> dict[str, int]:
    found = Counter(table["change"].to_pylist())
    return {change: found[change] for change in ("add", "update", "delete")}


def _largest(table: pa.Table, most: int | None) -> pa.Table:
    if most is None or table.num_rows <= most:
        return table
    moved = pc.abs(pc.subtract(table["after"].fill_null(0), table["before"].fill_null(0))).to_numpy()
    return table.take(pa.array(np.sort(np.argsort(-moved, kind="stable")[:most])))


def _rows(table: pa.Table) -> list[Json]:
    columns = [table["change"].to_pylist(), table["value"], table["before"].to_pylist(), table["after"].to_pylist()]
    return [
        {
            "change": change,
            "value": scalar_json(value),
            **{
                name: None if count is None else integer_json(count)
                for name, count in (("before", before), ("after", after))
            },
        }
        for change, value, before, after in zip(*columns, strict=True)
    ]


def _between(before: Table, after: Table) -> list[Version] | None:
    """The versions between one and the other; None where one of them is gone, or the order is the other way round."""
    first, last = before.version.number, after.version.number
    if first > last:
        return None
    try:
        return [after.versions.read(number) for number in range(first + 1, last)]
    except VersionNotFoundError:
        return None


def _why_not(before: ColumnStatistics | None, after: ColumnStatistics) -> str | None:
    """None for a column whose changes are known; one that was added had no values."""
    if after.type_class is None or after.frequencies != "enumerated":
        return after.reason or f"its values are not listed: {after.frequencies}"
    if before is None:
        return None
    if before.type_class is None or before.frequencies != "enumerated":
        return f"its values were not listed: {before.frequencies}"
    if before.type_class != after.type_class:
        return f"its values were {before.type}, and are {after.type}"
    return None
