"""Bounds of columns in fragments or zones, in the form in which predicates are evaluated.

A fragment is a data file with its deletes. A zone is a run of consecutive fragments. A type class is a group of types
with one canonical type: int8 and int64 have the class `int64`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from metastore_assets.expressions.row_bounds import ColumnBounds, RowBounds, RowCounts
from metastore_assets.index.flat_columns import SIDES, bound_column, count_column
from metastore_assets.values.physical import one_chunk
from metastore_assets.values.types import TypeClass

if TYPE_CHECKING:
    from metastore_assets.expressions.predicates import BoundColumn


@dataclass(frozen=True)
class BoundedRows:
    """The row counts and column bounds of fragments, or of zones (runs of consecutive fragments)."""

    row_counts: RowCounts
    """The number of rows of each fragment or zone."""
    columns: Mapping[str, ColumnBounds]
    """The bounds of the requested columns, by field id."""


def concatenate_bounds(columns: Sequence[BoundColumn], parts: Sequence[BoundedRows]) -> BoundedRows:
    """Return the bounds of the given columns in all parts, one part after the other.

    The parts have the bounds of fragments, or of zones.
    """
    if len(parts) == 1:
        return parts[0]
    row_counts = _concatenate_counts([part.row_counts for part in parts])
    joined_bounds = {}
    for column in columns:
        bounds = [part.columns[column.field_id] for part in parts]
        nulls, nans = (
            RowBounds(
                _concatenate_counts([side.least for side in sides]), _concatenate_counts([side.most for side in sides])
            )
            for sides in ([part.nulls for part in bounds], [part.nans for part in bounds])
        )
        empty = pa.nulls(0, pa.null() if column.cls is None else column.cls.arrow)
        minimum, maximum = (
            pa.concat_arrays([empty, *sides])
            for sides in ([part.minimum for part in bounds], [part.maximum for part in bounds])
        )
        joined_bounds[column.field_id] = ColumnBounds(row_counts, nulls, nans, minimum, maximum)
    return BoundedRows(row_counts, joined_bounds)


def _concatenate_counts(parts: Sequence[RowCounts]) -> RowCounts:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def column_bounds(table: pa.Table, column: BoundColumn) -> ColumnBounds:
    """Return the bounds of a column in each fragment or zone.

    Args:
        table: Rows of a fragment index, one per fragment or zone. It has a flat column, such as `column
            3.null_count`, for each bound and count (see `index.flat_columns`).
        column: A column of the table that the index describes. If `table` has no null counts of it, the column is null
            in all rows.
    """
    row_counts, cls, field_id = table["row_count"].to_numpy(), column.cls, column.field_id
    sides = [side_values(table, field_id, side, cls) for side in SIDES]
    zeros = np.zeros_like(row_counts)
    nans = RowBounds(zeros, zeros)
    if count_column(field_id, "null_count") not in table.column_names:
        return ColumnBounds(row_counts, RowBounds(row_counts, row_counts), nans, *sides)
    nulls = _count_bounds(table[count_column(field_id, "null_count")], row_counts)
    if cls is not None and cls.kind == "float":
        name = count_column(field_id, "nan_count")
        counts = table[name] if name in table.column_names else pa.chunked_array([pa.nulls(len(table), pa.int64())])
        nans = _count_bounds(counts, np.maximum(row_counts - nulls.least, 0))
    return ColumnBounds(row_counts, nulls, nans, *sides)


def _count_bounds(counts: pa.ChunkedArray, most: RowCounts) -> RowBounds:
    """Return the lower and the upper bound of each count.

    Both bounds are the count itself if it is known.

    A count is unknown if it is null. Its lower bound is then 0, and its upper bound is the value of `most` in the same
    row.
    """
    if not counts.null_count:
        exact = counts.to_numpy()
        return RowBounds(exact, exact)
    is_exact = counts.is_valid().to_numpy()
    exact = counts.fill_null(0).to_numpy()
    return RowBounds(np.where(is_exact, exact, 0), np.where(is_exact, exact, most))


def side_values(table: pa.Table, field_id: str, side: str, cls: TypeClass | None) -> pa.Array:
    """Return the minima or maxima of a column that are stored as values of a type class.

    The result has one item for each row of `table`. All are null if the table does not store such bounds.

    Args:
        table: A table with a row for each fragment or zone, and a column for each bound.
        field_id: The field id of the column.
        side: `minimum` or `maximum`.
        cls: The type class; None for a column whose values cannot be compared, such as a struct. It has no bounds.
    """
    if cls is None or bound_column(field_id, side, cls) not in table.column_names:
        return pa.nulls(len(table), pa.null() if cls is None else cls.arrow)
    return one_chunk(table[bound_column(field_id, side, cls)])
