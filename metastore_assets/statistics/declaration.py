"""Declarations of statistics: the rules to store, merge, report and label a column of `statistics`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import pyarrow as pa

Guarantee = Literal["exact", "bound", "estimate", "absent"]
"""How far a number can be trusted.

- `exact`: the true value.
- `bound`: a limit. The true value is not below it if it is a minimum, and not above it if it is a maximum or a count.
- `estimate`: an approximation, which may be too low or too high.
- `absent`: unknown. It never means zero.
"""

StatisticKind = Literal["position", "count", "measure", "flag", "text", "bytes", "sum", "value", "percentiles"]
"""The kind of a statistic's value, which determines how it is stored and formatted.

`position` and `count` are integers, `measure` is a float, `sum` is an exact number as text. `value` is a value of the
column, stored in the typed union; `percentiles` is a list of (fraction, value).
"""

MergeRule = Literal["schema", "derived", "sum", "length_sum", "length_minimum", "length_maximum", "statistic"]
"""How a statistic of several disjoint sets of rows, the parts, is computed from the statistics of each.

- `schema`: not merged; the current schema of the table determines it.
- `derived`: not merged and not stored in tables of states; `finalize` computes it from states.
- `sum`: the sum; null if it is null in a part that has values. Only for columns with a type class.
- `length_sum`, `length_minimum`, `length_maximum`: sum, minimum, maximum of the parts; also for lists and maps, which
  have no type class.
- `statistic`: by the method `merge` of its class in `registry.BUILTIN_STATISTICS`, or in `merge.py`.
"""

ARROW_TYPES: Mapping[StatisticKind, pa.DataType] = {
    "position": pa.int32(),
    "count": pa.int64(),
    "measure": pa.float64(),
    "flag": pa.bool_(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "sum": pa.string(),
    "value": pa.null(),
    "percentiles": pa.null(),
}
"""The stored type of each kind. `null` stands for a type that depends on the table (see `column.statistic_type`)."""

_KEY = "statistic"


@dataclass(frozen=True)
class StatisticColumn:
    """The declaration of one column of the file `statistics`."""

    name: str
    kind: StatisticKind
    label: str
    """The name that people read."""
    merge: MergeRule
    is_reported: bool
    """Whether the JSON of statistics contains the column. Columns that serve only merging or identification are left
    out."""

    @property
    def is_state(self) -> bool:
        """Whether merges need the column.

        Tables of states, the input of merges, contain only columns that merges need.
        """
        return self.merge not in ("schema", "derived")


def declare_statistic(kind: StatisticKind, label: str, merge: MergeRule, *, reported: bool = True) -> Mapping[str, Any]:
    """Return the metadata that makes a dataclass field a statistic.

    Args:
        kind: The kind of value, which determines the stored type.
        label: The name that users read. Labels are unique.
        merge: The rule that computes the statistic of several disjoint sets of rows from the statistics of each set.
        reported: Whether the JSON of statistics contains it.
    """
    return {_KEY: (kind, label, merge, reported)}


def list_declared(row_type: type) -> dict[str, StatisticColumn]:
    """Return the declarations of a dataclass whose fields have metadata of `declare_statistic`, in field order."""
    declared = (field for field in fields(row_type) if _KEY in field.metadata)
    return {field.name: StatisticColumn(field.name, *field.metadata[_KEY]) for field in declared}
