"""Declarations of statistics: how columns of the file `statistics` are stored, merged and reported.

A *table of states* has the statistics of a set of rows in mergeable form. A *type class* is a group of column types,
such as all signed integers. Containers, and types that are not profiled, have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import pyarrow as pa

Guarantee = Literal["exact", "bound", "estimate", "absent"]
"""How far a number can be trusted.

- `exact`: the true value.
- `bound`: a limit of the true value: a lower limit for a minimum, an upper limit for a maximum or a count.
- `estimate`: an approximation, which may be too low or too high.
- `absent`: unknown. It never means zero.
"""

StatisticKind = Literal["position", "count", "measure", "flag", "text", "bytes", "sum", "value", "percentiles"]
"""The kind of a statistic's value, which determines how it is stored and formatted.

`position` and `count` are integers, `measure` is a float, `sum` is an exact number as text. `value` is a value of the
column, stored in the typed union; `percentiles` is a list of (fraction, value).
"""

MergeRule = Literal["schema", "derived", "sum", "length_sum", "length_minimum", "length_maximum", "statistic"]
"""How the statistic of a set of rows is computed from the statistics of disjoint parts of it.

- `schema`: not merged; the current schema of the table determines it.
- `derived`: not merged and not stored in tables of states; `finalize` computes it from states.
- `sum`: the sum; null if it is null in a part with values. Only for columns with a type class.
- `length_sum`, `length_minimum`, `length_maximum`: the sum, minimum or maximum of lengths, also for lists and maps,
  which have no type class.
- `statistic`: merged by the method `merge` of its class in `registry.BUILTIN_STATISTICS`, or by `merge.py`."""

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
    """The name in texts for users."""
    merge: MergeRule
    is_reported: bool
    """Whether the JSON of statistics contains the column. It omits columns that only identify a row or serve its
    merging."""

    @property
    def is_state(self) -> bool:
        """Whether tables of states, the input of merges, have the column."""
        return self.merge not in ("schema", "derived")


def declare_statistic(
    kind: StatisticKind, label: str, merge: MergeRule, *, is_reported: bool = True
) -> Mapping[str, Any]:
    """Return the metadata that makes a dataclass field a statistic.

    Args:
        kind: The kind of value, which determines the stored type.
        label: The name in texts for users. Labels are unique.
        merge: How the statistic of disjoint sets of rows is merged.
        is_reported: Whether the JSON of statistics contains it.
    """
    return {_KEY: (kind, label, merge, is_reported)}


def list_declared(row_type: type) -> dict[str, StatisticColumn]:
    """Return the declarations in a dataclass's field metadata by field name, in the order of the fields."""
    declared_fields = (field for field in fields(row_type) if _KEY in field.metadata)
    return {field.name: StatisticColumn(field.name, *field.metadata[_KEY]) for field in declared_fields}
