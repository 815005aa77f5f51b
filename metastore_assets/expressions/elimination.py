"""By which statistic it is known that a predicate is true of no row of a set."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.expressions.predicates import (
    Comparison,
    Constant,
    In,
    IsNaN,
    IsNull,
    Leaf,
    Predicate,
    array_of,
    leaves,
)
from metastore_assets.expressions.row_bounds import (
    Caps,
    ColumnBounds,
    Int64Array,
    Mask,
    bound_leaf_rows,
    order_comparable,
)
from metastore_assets.expressions.sql_text import literal_to_sql

Names = npt.NDArray[np.str_]
NO_FILTERS: Mapping[Leaf, Mask] = {}
_BOTH = "minimum, maximum"
_BY_PARTITION = "partition"
_BY_MEMBERSHIP = "membership"


def eliminating_statistics(
    predicate: Predicate,
    columns: Mapping[str, ColumnBounds],
    rows: Int64Array,
    caps: Caps,
    filters: Mapping[Leaf, Mask] = NO_FILTERS,
) -> Names:
    """The statistic, or several with commas between them, for each set; right for those that it is true of nothing in.

    Sets without rows are eliminated by their `row_count`. `filters` say of a leaf which sets may hold its values.
    """
    found = [_of_capped(leaf, columns[leaf.column.field_id], caps, filters) for leaf in leaves(predicate)]
    if not found or isinstance(predicate, Constant):
        return np.where(rows == 0, "row_count", "constant")
    joined = found[0]
    for other in found[1:]:
        same = joined == other
        joined = np.where(same, joined, np.char.add(np.char.add(joined, ", "), other))
    return np.where(rows == 0, "row_count", joined)


def eliminating_value(predicate: Predicate, columns: Mapping[str, ColumnBounds], statistic: str, at: int) -> str | None:
    """The value of a single statistic of a single column in one set of rows."""
    own = list(leaves(predicate))
    if len(own) != 1 or statistic not in ("minimum", "maximum", "null_count", "nan_count"):
        return None
    column = columns[own[0].column.field_id]
    if statistic in ("null_count", "nan_count"):
        return str((column.nulls if statistic == "null_count" else column.nans).least[at])
    return literal_to_sql((column.minimum if statistic == "minimum" else column.maximum)[at])


def _of_capped(leaf: Leaf, column: ColumnBounds, caps: Caps, filters: Mapping[Leaf, Mask]) -> Names:
    found = _of_leaf(leaf, column)
    if leaf not in caps and leaf not in filters:
        return found
    left = bound_leaf_rows(leaf, column).most > 0
    if leaf in filters:
        found = np.where(left & ~filters[leaf], _BY_MEMBERSHIP, found)
    return np.where(left & (caps[leaf] == 0), _BY_PARTITION, found) if leaf in caps else found


def _of_leaf(leaf: Leaf, column: ColumnBounds) -> Names:
    if isinstance(leaf, IsNull):
        return np.full(len(column.rows), "null_count")
    only_nulls = column.nulls.least == column.rows
    if isinstance(leaf, IsNaN):
        return np.where(only_nulls, "null_count", "nan_count")
    counted = np.where(only_nulls, "null_count", np.where(column.numbers.most == 0, "nan_count", ""))
    return np.where(counted == "", _side(leaf, column), counted)


def _side(leaf: Leaf, column: ColumnBounds) -> Names:
    count = len(column.rows)
    if isinstance(leaf, Comparison) and leaf.operator in ("<", "<=", ">", ">="):
        return np.full(count, "minimum" if leaf.operator in ("<", "<=") else "maximum")
    if isinstance(leaf, Comparison):
        first = last = array_of([leaf.value])
        negated = leaf.operator == "!="
    elif isinstance(leaf, In):
        first, last, negated = leaf.values.slice(0, 1), leaf.values.slice(len(leaf.values) - 1), leaf.negated
    else:
        assert not isinstance(leaf, IsNull | IsNaN)
        first = last = pa.array([leaf.prefix], pa.large_binary())
        negated = leaf.negated
    cls = leaf.column.cls
    assert cls is not None
    if negated:
        return np.full(count, _BOTH)
    low, high, first, last = (order_comparable(own, cls) for own in (column.minimum, column.maximum, first, last))
    above, below = _flags(pc.greater(low, last[0])), _flags(pc.less(high, first[0]))
    return np.where(above, "minimum", np.where(below, "maximum", _BOTH))


def _flags(decided: pa.Array) -> Mask:
    found: Mask = decided.fill_null(False).to_numpy(zero_copy_only=False)
    return found
