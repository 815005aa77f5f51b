"""Declarations of statistics: how a column of `statistics` is stored, merged, reported as JSON and labelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import pyarrow as pa

Guarantee = Literal["exact", "bound", "estimate", "absent"]
"""How far a number can be trusted.

- `exact`: the true value.
- `bound`: the true value lies on the inner side: no smaller than a minimum, no greater than a maximum or a count.
- `estimate`: an approximation on either side.
- `absent`: unknown. It never means zero.
"""

StatisticKind = Literal["position", "count", "measure", "flag", "text", "bytes", "sum", "value", "percentiles"]
"""What a statistic holds.

`position` and `count` are integers, `measure` is a float, `sum` is an exact number as text. `value` is a value of the
column, stored in the typed union; `percentiles` is a list of (fraction, value).
"""

MergeRule = Literal["schema", "derived", "sum", "length_sum", "length_minimum", "length_maximum", "statistic"]
"""How the number of several disjoint sets of rows is computed from the numbers of each.

- `schema`: not merged; the current schema of the table determines it.
- `derived`: not merged and not stored in tables of states; `finalize` computes it from states.
- `sum`: the sum; null if a part with values has null. Only for columns with a type class.
- `length_sum`, `length_minimum`, `length_maximum`: over the parts; also for lists and maps, which have no type class.
- `statistic`: by the method `merge` of the statistic that computes it, or in `merge.py`.
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
"""The stored type of each kind; null where it depends on the type classes in the table (`column.statistic_type`)."""

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
    """Whether the JSON of a row contains it. Columns that only merging or identification needs are not reported."""

    @property
    def is_state(self) -> bool:
        """Whether merging needs it, so that tables of states contain it."""
        return self.merge not in ("schema", "derived")


def declare_statistic(kind: StatisticKind, label: str, merge: MergeRule, *, reported: bool = True) -> Mapping[str, Any]:
    """Return the metadata that makes a dataclass field a statistic.

    Args:
        kind: What it holds, which determines the stored type.
        label: The name that people read; unique.
        merge: How the numbers of disjoint sets of rows are merged.
        reported: Whether the JSON of a row contains it.
    """
    return {_KEY: (kind, label, merge, reported)}


def list_declared(row_type: type) -> dict[str, StatisticColumn]:
    """Return the declarations of a dataclass whose fields have metadata of `declare_statistic`, in field order."""
    declared = (field for field in fields(row_type) if _KEY in field.metadata)
    return {field.name: StatisticColumn(field.name, *field.metadata[_KEY]) for field in declared}
