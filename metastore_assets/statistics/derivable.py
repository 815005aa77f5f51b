"""Frequencies that exact counts and bounds determine: of booleans, of a constant, and of nothing but NaN."""

from __future__ import annotations

import math

import pyarrow as pa

from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.values.types import TypeClass, class_named


def derive_counts(
    cls: TypeClass, value_count: int, nan_count: int | None, true_count: int | None, *, is_constant: bool
) -> tuple[int, int] | None:
    """Return how often the only two possible values of a column occur, or None if there may be other values.

    Args:
        cls: Type class of the column.
        value_count: Values that are not null, NaN included.
        nan_count: Values that are NaN; None counts as 0.
        true_count: Booleans that are true; None if unknown.
        is_constant: Whether the exact minimum equals the exact maximum, or there is neither.

    Returns:
        The counts of false and true, or the counts of the constant and of NaN. Each may be 0.
    """
    if cls.kind == "boolean" and true_count is not None:
        return value_count - true_count, true_count
    if is_constant:
        return value_count - (nan_count or 0), nan_count or 0
    return None


def derive_frequencies(row: ColumnStatistics) -> Frequencies | None:
    """Return the frequencies of all values if the row's exact numbers determine them and there are values."""
    if row.type_class is None or row.value_count == 0:
        return None
    cls = class_named(row.type_class)
    is_constant = row.minimum_exact and row.maximum_exact and row.minimum == row.maximum
    counts = derive_counts(cls, row.value_count, row.nan_count, row.true_count, is_constant=is_constant)
    if counts is None:
        return None
    is_boolean = cls.kind == "boolean" and row.true_count is not None
    pairs = zip((False, True) if is_boolean else (row.minimum, math.nan), counts, strict=True)
    occurring = [(value, count) for value, count in pairs if count]
    values = pa.array([value for value, _ in occurring], cls.arrow)
    return Frequencies(values, pa.array([count for _, count in occurring], pa.int64()))
