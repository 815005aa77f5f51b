"""Changes of value counts (distinct values with their frequencies) between two versions of a table.

A type class is a group of column types whose values are stored as one Arrow type, the canonical one. The root is the
folder with all stored state. A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.lookup.relation import explain_missing_files
from metastore_assets.lookup.results import AsOf, ResultSet, TableRows
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.store.version import Version
from metastore_assets.value_counts import read_value_counts
from metastore_assets.value_counts.version_changes import changes_between
from metastore_assets.values.json import Json, ScalarFieldsRepr, integer_json, scalar_json

if TYPE_CHECKING:
    from metastore_assets.lookup.table import Table

_COLUMNS_SCHEMA = pa.schema(
    [("column", pa.string()), ("type", pa.string()), ("change_count", pa.int64()), ("reason", pa.string())]
)


@dataclass(frozen=True, repr=False)
class ValueChange(ScalarFieldsRepr):
    """A value whose frequency differs between two versions."""

    change: str
    """`add`, `update` or `delete`."""
    value: pa.Scalar
    """A scalar of the canonical Arrow type of the column's type class."""
    before: int | None
    """The frequency in the earlier version; None if the value did not occur."""
    after: int | None
    """The frequency in the later version; None if the value does not occur."""


@dataclass(frozen=True)
class ColumnChanges:
    """The values of one column whose frequencies differ between two versions."""

    column: str
    type: str
    """The type of the column, as in its statistics."""
    changes: ResultSet[ValueChange] | None = field(repr=False)
    """The changed values, sorted by value; None if they are unknown."""
    reason: str | None
    """Why changes are unknown; None if they are known."""

    @property
    def change_count(self) -> int | None:
        """The number of changed values; None if they are unknown."""
        return None if self.changes is None else len(self.changes)


@dataclass(frozen=True)
class TableChanges:
    """The changed values of the columns of a table, from one version to another."""

    before: AsOf
    after: AsOf
    columns: ResultSet[ColumnChanges] = field(repr=False)
    """The columns, in the requested order."""


@explain_missing_files
def _read_changes(
    table: Table, before: Version, between: Sequence[Version] | None, columns: dict[str, str]
) -> dict[str, pa.Table]:
    """Return {field id: table of the changed values} for columns.

    A table has the columns `change` (such as `add`), `value`, `before` and `after` (frequencies), sorted by value.

    Args:
        table: The table as of the later version.
        before: The earlier version.
        between: The versions between `before` and the table's version; None if one of them expired.
        columns: The type class of each column, by field id.
    """
    objects = table.objects
    versions = [before] if before.number == table.version.number else [before, *(between or ()), table.version]
    value_counts = [read_value_counts(objects, version.value_counts) for version in versions]
    # Value counts that were only rewritten still refer to the update that produced them; it must not count twice.
    steps = [
        pair
        for (old, new), pair in zip(pairwise(versions), pairwise(value_counts), strict=True)
        if old.content_id != new.content_id
    ]
    return changes_between(objects, value_counts[0], value_counts[-1], None if between is None else steps, columns)


def changes(before: Table, after: Table, columns: Iterable[str] | None = None) -> TableChanges:
    """Return the values of columns whose frequencies differ between two versions.

    For a column whose values cannot be compared, such as one without value counts, the result has the reason instead
    of values.

    A version stores its changes of value counts, except those of a type class whose value counts it added, removed or
    rebuilt. For each type class, only these changes are read if every version after `before`, up to and including
    `after`, still exists and has stored its changes. Otherwise all value counts of the requested columns of this type
    class are read from `before` and `after`.

    Args:
        before: The table as of the earlier version.
        after: The same table as of the later version.
        columns: Dotted paths of columns and nested fields; None for all.

    Raises:
        ColumnNotFoundError: There is no such column.
        StoreError: The root cannot be read.
    """
    earlier_rows = {row.field_id: row for row in before.statistics()}
    rows = after.statistics(columns)
    reasons = {row.field_id: _why_not_comparable(earlier_rows.get(row.field_id), row) for row in rows}
    classes = {row.field_id: row.type_class for row in rows if reasons[row.field_id] is None and row.type_class}
    tables = _read_changes(after, before.version, _versions_between(before, after), classes)
    columns_changes = []
    for row in rows:
        table = tables.get(row.field_id)
        value_changes = None if table is None else _value_changes(table, after.as_of)
        columns_changes.append(ColumnChanges(row.column, row.type, value_changes, reasons[row.field_id]))
    return TableChanges(before.as_of, after.as_of, ResultSet(columns_changes, after.as_of, _COLUMNS_SCHEMA))


def _value_changes(table: pa.Table, as_of: AsOf) -> ResultSet[ValueChange]:
    return ResultSet(TableRows(table, _parse_changes), as_of, lambda: table)


def _parse_changes(table: pa.Table) -> Iterator[ValueChange]:
    columns = (table["change"].to_pylist(), table["value"], table["before"].to_pylist(), table["after"].to_pylist())
    return (ValueChange(*fields) for fields in zip(*columns, strict=True))


def changes_json(table: str, changes: TableChanges, limit: int | None = None) -> Json:
    """Return the JSON document that `changes --json` prints.

    Args:
        table: The table's name.
        changes: The changes.
        limit: The maximum number of values per column: those whose frequency changed most. None for all.
    """
    return {
        "table": table,
        "before": vars(changes.before),
        "after": vars(changes.after),
        "columns": [
            {
                "column": column.column,
                "type": column.type,
                "counts": None if column.changes is None else _count_changes(column.changes.to_arrow()),
                "reason": column.reason,
                "changes": None
                if column.changes is None
                else _rows_json(_largest_changes(column.changes.to_arrow(), limit)),
            }
            for column in changes.columns
        ],
    }


def _count_changes(table: pa.Table) -> dict[str, int]:
    counts = Counter(table["change"].to_pylist())
    return {change: counts[change] for change in ("add", "update", "delete")}


def _largest_changes(table: pa.Table, limit: int | None) -> pa.Table:
    """Return the `limit` rows with the greatest change of frequency, in the order of the table.

    Returns all rows if `limit` is None.
    """
    if limit is None or table.num_rows <= limit:
        return table
    differences = pc.abs(pc.subtract(table["after"].fill_null(0), table["before"].fill_null(0))).to_numpy()
    return table.take(pa.array(np.sort(np.argsort(-differences, kind="stable")[:limit])))


def _rows_json(table: pa.Table) -> list[Json]:
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


def _versions_between(before: Table, after: Table) -> list[Version] | None:
    """Return the versions that are newer than that of `before` and older than that of `after`.

    Return None if one of these versions expired, or if `before` is newer than `after`.
    """
    first, last = before.version.number, after.version.number
    if first > last:
        return None
    try:
        return [after.versions.read(number) for number in range(first + 1, last)]
    except VersionNotFoundError:
        return None


def _why_not_comparable(before: ColumnStatistics | None, after: ColumnStatistics) -> str | None:
    """Return the reason why the value counts of a column cannot be compared; None if they can.

    A column that was added between the versions had no values before, and can be compared.
    """
    if after.type_class is None or after.frequencies != "enumerated":
        return after.reason or f"it has no value counts: frequencies are {after.frequencies}"
    if before is None:
        return None
    if before.type_class is None or before.frequencies != "enumerated":
        return f"it had no value counts: frequencies were {before.frequencies}"
    if before.type_class != after.type_class:
        return f"its values were {before.type}, and are {after.type}"
    return None
