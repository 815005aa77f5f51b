"""Bounds on numbers of rows, for many sets of rows at once, such as the fragments of a table.

A type class is a group of column types whose values are stored as one Arrow type, the canonical one. A fragment is a
data file with the deletes that apply to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.values.physical import array_of, comparable, storage
from metastore_assets.values.types import TypeClass

if TYPE_CHECKING:
    from metastore_assets.expressions.predicates import Leaf

RowCounts: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
UpperLimits: TypeAlias = "Mapping[Leaf, RowCounts]"
"""For some leaves (conditions on one column), the greatest possible number of matching rows in each set of rows."""


@dataclass(frozen=True)
class RowBounds:
    """Inclusive bounds on a number of rows, such as matching ones, for each of several sets of rows."""

    least: RowCounts
    most: RowCounts

    @property
    def total(self) -> tuple[int, int]:
        """The least and the greatest possible number of rows in all sets together."""
        return int(self.least.sum()), int(self.most.sum())


@dataclass(frozen=True)
class ColumnBounds:
    """Bounds on a column's null count, NaN count and values, for each of several sets of rows.

    Each array has one item per set. A count that is unknown has the bounds 0 and the number of rows.
    """

    rows: RowCounts
    """The number of rows of each set."""
    nulls: RowBounds
    nans: RowBounds
    minimum: pa.Array
    """A lower bound of the values other than NaN, of the canonical type; null if unknown or if there are no values."""
    maximum: pa.Array
    """An upper bound of the values other than NaN, of the canonical type; null if unknown or if there are no values."""

    @property
    def numbers(self) -> RowBounds:
        """Bounds on the number of values that are neither null nor NaN."""
        return RowBounds(
            np.maximum(self.rows - self.nulls.most - self.nans.most, 0),
            np.maximum(self.rows - self.nulls.least - self.nans.least, 0),
        )


def bound_conjunction(parts: Sequence[RowBounds], row_counts: RowCounts) -> RowBounds:
    """Return bounds on the number of rows for which all parts of a predicate are true.

    The bounds are Fréchet inequalities.

    Args:
        parts: Bounds on the number of rows for which each part is true.
        row_counts: The number of rows of each set.
    """
    least = sum((part.least for part in parts), np.zeros_like(row_counts)) - (len(parts) - 1) * row_counts
    return RowBounds(np.maximum(least, 0), np.minimum.reduce([part.most for part in parts]))


def bound_disjunction(parts: Sequence[RowBounds], row_counts: RowCounts) -> RowBounds:
    """Return bounds on the number of rows for which any part of a predicate is true.

    The bounds are Fréchet inequalities.

    Args:
        parts: Bounds on the number of rows for which each part is true.
        row_counts: The number of rows of each set.
    """
    most = sum((part.most for part in parts), np.zeros_like(row_counts))
    return RowBounds(np.maximum.reduce([part.least for part in parts]), np.minimum(most, row_counts))


def order_comparable(values: pa.Array | pa.Scalar, cls: TypeClass) -> pa.Array | pa.Scalar:
    """Cast values of the canonical type to a type that Arrow can compare, and keep their order."""
    if isinstance(values, pa.Scalar):
        return order_comparable(array_of([values]), cls)[0]
    return storage(values) if cls.kind == "bytes" else comparable(values)


def to_mask(booleans: pa.Array, *, if_null: bool) -> Mask:
    """Convert Arrow booleans to a numpy mask.

    Nulls become `if_null`.
    """
    mask: Mask = booleans.fill_null(if_null).to_numpy(zero_copy_only=False)
    return mask
