"""What is declared of a statistic, in one place: how it is stored, merged, told as JSON, and called by people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import pyarrow as pa

Guarantee = Literal["exact", "bound", "estimate", "absent"]
"""`exact`; `bound`: the true value is no further out; `estimate`; `absent`: not known, which never means zero."""

StatisticKind = Literal["place", "count", "measure", "flag", "text", "bytes", "sum", "value", "percentiles"]
"""`count`: an integer. `measure`: a float. `sum`: an exact number as text. `value`: one of the column's own values, of
the typed union; `percentiles`: a list of (fraction, such a value)."""

MergeRule = Literal["named", "derived", "sum", "sum of lengths", "least", "greatest", "together"]
"""How the numbers of disjoint sets of rows make that of all of them.

`named`: they do not, it follows from the schema that the table has now. `derived`: nor do these, which follow from
states or from other statistics (`told.completed`) and are not among what is stored for merging. `sum`: null if any part
with values has null; `sum of lengths`: likewise, of lists and maps too; `least`, `greatest`: of those known, of lists
and maps too. `together`: only along with others, in `merge.py`.
"""

ARROW_TYPES: Mapping[StatisticKind, pa.DataType] = {
    "place": pa.int32(),
    "count": pa.int64(),
    "measure": pa.float64(),
    "flag": pa.bool_(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "sum": pa.string(),
    "value": pa.null(),
    "percentiles": pa.null(),
}
"""How a kind is stored; null where the type is made of the classes of the values at hand."""

_KEY = "statistic"


@dataclass(frozen=True)
class StatisticColumn:
    """A column of the file `statistics`, but for its values."""

    name: str
    kind: StatisticKind
    label: str
    """What it is called where people read it."""
    merge: MergeRule
    is_reported: bool
    """Whether JSON has it: what serves merging and identity alone is left out."""

    @property
    def is_state(self) -> bool:
        """Whether merging needs it, so that tables of states have it too."""
        return self.merge not in ("named", "derived")


def declare_statistic(kind: StatisticKind, label: str, merge: MergeRule, *, told: bool = True) -> Mapping[str, Any]:
    """The metadata of a dataclass field that is a statistic."""
    return {_KEY: (kind, label, merge, told)}


def list_declared(row: type) -> dict[str, StatisticColumn]:
    """The statistics that the fields of a dataclass declare, by name, in the order of the file."""
    return {
        field.name: StatisticColumn(field.name, *field.metadata[_KEY])
        for field in fields(row)
        if _KEY in field.metadata
    }
