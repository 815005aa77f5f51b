"""Rules that merge one statistic of several tables of states for all columns of the data table.

A table of states has the statistics of a set of rows in mergeable form, with one row per column of the data table.
A *type class* is a group of column types, such as all signed integers. Containers, and types that are not profiled,
have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.statistics.declaration import MergeRule
from metastore_assets.values.types import TypeClass

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MergeParts:
    """Tables of states to merge, the *parts*, with flags that say which part contributes to which column.

    Row i of each table belongs to the same column of the data table. Matrices have a row for each part, and a column
    for each column of the data table.
    """

    tables: Sequence[pa.Table]
    non_empty: Flags
    """Matrix: whether the part has values of the column."""
    untyped: Flags
    """By column: whether a part with values has no type class. Then the merged column has none."""
    has_lengths: Flags
    """By column: whether lengths can be merged: all parts with values have a type class, or none has."""
    classes: Sequence[TypeClass | None]
    """By column: the type class of the merged column; None if it is untyped."""
    union: pa.StructType
    """The typed union of the values of all tables."""

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def typed(self) -> Flags:
        """Matrix of parts by columns: whether the part has values of the column.

        All parts have false for a column that has no type class after the merge.
        """
        return self.non_empty & ~self.untyped

    @property
    def sketched(self) -> Flags:
        """Matrix of parts by columns: whether the part's distinct sketch of the column has to be merged.

        Unlike in `typed`, a column of hidden values has true here, because it has a sketch, although no type class.
        """
        return self.non_empty & self.has_lengths

    def states_by_column(self, name: str, is_included: Flags) -> list[list[Any]]:
        """Return one list for each column of the data table, with the values of a statistic in the parts.

        Args:
            name: The name of the statistic, a column of `tables`.
            is_included: `is_included[part, column]` says whether the list of the column includes the value of the part.
        """
        by_part = [table[name].to_pylist() for table in self.tables]
        return [
            [part[at] for part, flag in zip(by_part, flags, strict=True) if flag]
            for at, flags in enumerate(is_included.T.tolist())
        ]


def integer_matrix(tables: Sequence[pa.Table], name: str) -> tuple[Integers, Flags]:
    """Return an integer column of all tables as (matrix, mask), both with a row per table.

    A null is 0 in the matrix, and false in the mask.
    """
    column = chain_column(tables, name)
    return to_matrix(tables, column.fill_null(0)), to_matrix(tables, column.is_valid())


def chain_column(tables: Sequence[pa.Table], name: str) -> pa.ChunkedArray:
    """Return a column of all tables as one array, so that one call of Arrow processes all of them."""
    columns = [table[name] for table in tables]
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)


def to_matrix(tables: Sequence[pa.Table], values: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Reshape a result of `chain_column` to a matrix with one row per table.

    The matrix has a column per row of each table. `values` must have no nulls, because numpy has no integers or
    booleans that are null.
    """
    return values.to_numpy().reshape(len(tables), -1)


def _sum(parts: MergeParts, name: str) -> pa.Array:
    return _masked_sum(parts, name, ~parts.untyped)


def _length_sum(parts: MergeParts, name: str) -> pa.Array:
    return _masked_sum(parts, name, parts.has_lengths)


def _masked_sum(parts: MergeParts, name: str, is_defined: Flags) -> pa.Array:
    values, is_valid = integer_matrix(parts.tables, name)
    is_null = (parts.non_empty & ~is_valid).any(axis=0) | ~is_defined
    return pa.array(np.where(parts.non_empty, values, 0).sum(axis=0), mask=is_null)


def _length_extreme(parts: MergeParts, name: str, *, choose: np.ufunc, neutral: int) -> pa.Array:
    values, is_valid = integer_matrix(parts.tables, name)
    is_valid &= parts.non_empty
    is_null = ~(is_valid.any(axis=0) & parts.has_lengths)
    return pa.array(choose.reduce(np.where(is_valid, values, neutral), axis=0), mask=is_null)


_RANGE = np.iinfo(np.int64)

RULES: Mapping[MergeRule, Callable[[MergeParts, str], pa.Array]] = {
    "sum": _sum,
    "length_sum": _length_sum,
    "length_minimum": partial(_length_extreme, choose=np.minimum, neutral=_RANGE.max),
    "length_maximum": partial(_length_extreme, choose=np.maximum, neutral=_RANGE.min),
}
"""Functions (parts, name of a statistic) -> its merged values, one per column of the data table, by rule."""
