"""What is known of a column in many sets of rows, such as fragments, and how many of their rows a predicate is true of.

All is bounds: what is not known is anything from none to all. So what cannot decide leaves a set of rows undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.expressions.predicates import (
    And,
    Comparison,
    Constant,
    In,
    IsNaN,
    IsNull,
    Leaf,
    Like,
    Or,
    Predicate,
    array_of,
)
from metastore_assets.values.physical import comparable, storage
from metastore_assets.values.truncation import prefix_successor
from metastore_assets.values.types import TypeClass

Int64Array: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_MANY = 64
"""Members of `in` that are looked at one by one, where their class allows nothing better."""


@dataclass(frozen=True)
class RowBounds:
    """Of each set of rows, at least and at most how many of them something is true of, both inclusive."""

    least: Int64Array
    most: Int64Array

    @property
    def total(self) -> tuple[int, int]:
        """The same of all sets together."""
        return int(self.least.sum()), int(self.most.sum())


@dataclass(frozen=True)
class ColumnBounds:
    """What is known of a column in each of several sets of rows."""

    rows: Int64Array
    nulls: RowBounds
    nans: RowBounds
    minimum: pa.Array
    """No value but NaN is less; of the canonical type of the class, and null where that is not known, or there is none.
    """
    maximum: pa.Array
    """No value but NaN is greater; likewise."""

    @property
    def numbers(self) -> RowBounds:
        """Of each set, how many values there are but NaN."""
        return RowBounds(
            np.maximum(self.rows - self.nulls.most - self.nans.most, 0),
            np.maximum(self.rows - self.nulls.least - self.nans.least, 0),
        )


Caps: TypeAlias = Mapping[Leaf, Int64Array]
"""By leaf, of each set of rows at most how many of them it is true of, where that is known beside bounds."""


def bound_matching_rows(
    predicate: Predicate, rows: Int64Array, columns: Mapping[str, ColumnBounds], caps: Caps | None = None
) -> RowBounds:
    """How many of the `rows` of each set the predicate is true of. `columns` has its columns, by field id."""
    if isinstance(predicate, Constant):
        return RowBounds(*(rows if predicate.value else np.zeros_like(rows),) * 2)
    if isinstance(predicate, And | Or):
        parts = [bound_matching_rows(child, rows, columns, caps) for child in predicate.children]
        return bound_conjunction(parts, rows) if isinstance(predicate, And) else bound_disjunction(parts, rows)
    found = bound_leaf_rows(predicate, columns[predicate.column.field_id])
    if caps is None or predicate not in caps:
        return found
    return RowBounds(np.minimum(found.least, caps[predicate]), np.minimum(found.most, caps[predicate]))


def bound_conjunction(parts: list[RowBounds], rows: Int64Array) -> RowBounds:
    """Bounds of a conjunction from those of its parts, whatever they have to do with each other (Fréchet)."""
    least = sum((part.least for part in parts), np.zeros_like(rows)) - (len(parts) - 1) * rows
    return RowBounds(np.maximum(least, 0), np.minimum.reduce([part.most for part in parts]))


def bound_disjunction(parts: list[RowBounds], rows: Int64Array) -> RowBounds:
    """Bounds of a disjunction, likewise."""
    most = sum((part.most for part in parts), np.zeros_like(rows))
    return RowBounds(np.maximum.reduce([part.least for part in parts]), np.minimum(most, rows))


def bound_leaf_rows(leaf: Leaf, column: ColumnBounds) -> RowBounds:
    """How many rows of each set a leaf is true of."""
    rows = column.rows
    if isinstance(leaf, IsNull):
        nulls = column.nulls
        return RowBounds(rows - nulls.most, rows - nulls.least) if leaf.negated else nulls
    if isinstance(leaf, IsNaN):
        return column.numbers if leaf.negated else column.nans
    may, must = _decided(leaf, column)
    # NaN is greater than any value, and different from all.
    counts_nan = leaf.operator in (">", ">=", "!=") if isinstance(leaf, Comparison) else leaf.negated
    numbers, nans = column.numbers, column.nans
    least = np.where(must, numbers.least, 0) + (nans.least if counts_nan else 0)
    most = np.where(may, numbers.most, 0) + (nans.most if counts_nan else 0)
    return RowBounds(np.minimum(least, rows - column.nulls.least), np.minimum(most, rows - column.nulls.least))


def _decided(leaf: Comparison | In | Like, column: ColumnBounds) -> tuple[Mask, Mask]:
    """Whether the leaf may be true of a value within the bounds, and whether it is of all of them."""
    cls = leaf.column.cls
    assert cls is not None
    if isinstance(leaf, Comparison):
        low, high, value = (order_comparable(own, cls) for own in (column.minimum, column.maximum, leaf.value))
        may, must = _COMPARISONS[leaf.operator](low, high, value)
    elif isinstance(leaf, In):
        may, must = _among(leaf.values, column, cls)
    else:
        may, must = _alike(leaf, storage(column.minimum), storage(column.maximum))
    if not isinstance(leaf, Comparison) and leaf.negated:
        may, must = pc.invert(must), pc.invert(may)
    return _flags(may, unknown=True), _flags(must, unknown=False)


def _among(values: pa.Array, column: ColumnBounds, cls: TypeClass) -> tuple[pa.Array, pa.Array]:
    low, high, wanted = (order_comparable(own, cls) for own in (column.minimum, column.maximum, values))
    within = pc.and_kleene(pc.less_equal(low, wanted[-1]), pc.greater_equal(high, wanted[0]))
    if cls.kind == "float" or pa.types.is_integer(wanted.type):
        known = pc.and_kleene(low.is_valid(), high.is_valid()).to_numpy(zero_copy_only=False)
        members = wanted.to_numpy()
        ends = [own.fill_null(0).to_numpy() for own in (low, high)]
        # The first member that is not below the minimum has to be no greater than the maximum.
        at = np.searchsorted(members, ends[0], side="left")
        hit = (at < len(members)) & (members[np.minimum(at, len(members) - 1)] <= ends[1])
        within = pc.and_kleene(within, pa.array(hit, mask=~known))
    elif len(wanted) <= _MANY:
        hits = [pc.and_kleene(pc.less_equal(low, own), pc.greater_equal(high, own)) for own in wanted]
        within = hits[0]
        for hit in hits[1:]:
            within = pc.or_kleene(within, hit)
    must = pc.and_kleene(pc.equal(low, high), pc.is_in(low, value_set=wanted, skip_nulls=True))
    return within, must


def _alike(leaf: Like, low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Texts with a prefix lie side by side: from it to what follows on all of them."""
    prefix, end = pa.scalar(leaf.prefix, pa.large_binary()), prefix_successor(leaf.prefix)
    may, must = pc.greater_equal(high, prefix), pc.greater_equal(low, prefix)
    if end is not None:
        following = pa.scalar(end, pa.large_binary())
        may, must = pc.and_kleene(may, pc.less(low, following)), pc.and_kleene(must, pc.less(high, following))
    if leaf.pattern is None:
        return may, must
    # Bounds say nothing of what follows the prefix, unless all values are one: as those of a partition column are.
    is_one = pc.equal(low, high).fill_null(False)
    fitting = np.zeros(len(low), np.bool_)
    fitting[is_one.to_numpy(zero_copy_only=False)] = pc.match_like(
        low.filter(is_one).view(pa.large_string()), leaf.pattern
    ).to_numpy(zero_copy_only=False)
    alike = pa.array(fitting)
    return pc.if_else(is_one, alike, may), pc.if_else(is_one, alike, pc.and_kleene(must, pa.scalar(False)))


def order_comparable(own: pa.Array | pa.Scalar, cls: TypeClass) -> pa.Array | pa.Scalar:
    """As a type that Arrow compares, in the order of the class."""
    if isinstance(own, pa.Scalar):
        return order_comparable(array_of([own]), cls)[0]
    return storage(own) if cls.kind == "bytes" else comparable(own)


def _flags(decided: pa.Array, *, unknown: bool) -> Mask:
    found: Mask = decided.fill_null(unknown).to_numpy(zero_copy_only=False)
    return found


_Sides: TypeAlias = Callable[[pa.Array, pa.Array, pa.Scalar], tuple[pa.Array, pa.Array]]
_COMPARISONS: Mapping[str, _Sides] = {
    "<": lambda low, high, value: (pc.less(low, value), pc.less(high, value)),
    "<=": lambda low, high, value: (pc.less_equal(low, value), pc.less_equal(high, value)),
    ">": lambda low, high, value: (pc.greater(high, value), pc.greater(low, value)),
    ">=": lambda low, high, value: (pc.greater_equal(high, value), pc.greater_equal(low, value)),
    "=": lambda low, high, value: _equal(low, high, value),
    "!=": lambda low, high, value: tuple(map(pc.invert, reversed(_equal(low, high, value)))),
}


def _equal(low: pa.Array, high: pa.Array, value: pa.Scalar) -> tuple[pa.Array, pa.Array]:
    # With one bound unknown the other may still rule it out.
    may = pc.and_kleene(pc.less_equal(low, value), pc.greater_equal(high, value))
    return may, pc.and_kleene(pc.greater_equal(low, value), pc.less_equal(high, value))
