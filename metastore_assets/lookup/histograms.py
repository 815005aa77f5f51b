"""Bins of a column's histogram, and why a column has none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa

from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.values.physical import physical_value, sort_key
from metastore_assets.values.types import class_named


@dataclass(frozen=True)
class Bin:
    """One bin of a histogram."""

    minimum: pa.Scalar
    """Inclusive."""
    maximum: pa.Scalar
    """Exclusive; but inclusive where it is the greatest value that the type can hold."""
    frequency: int


def bins_of(histogram: Histogram, most: int) -> list[Bin]:
    """The bins of a histogram, without gaps; neighbouring ones added up, so that there are no more than `most`."""
    starts, frequencies = _added_up(histogram, most)
    edges = histogram.edges().take(pa.array([*starts, len(histogram)]))
    return [Bin(edges[i], edges[i + 1], frequency) for i, frequency in enumerate(frequencies)]


def shape_of(histogram: Histogram, most: int) -> list[int]:
    """The frequencies of these bins."""
    return _added_up(histogram, most)[1]


def _added_up(histogram: Histogram, most: int) -> tuple[list[int], list[int]]:
    width = max(1, -(-len(histogram) // most))
    starts = list(range(0, len(histogram), width))
    return starts, np.add.reduceat(histogram.counts, starts).tolist()


def between(histogram: Histogram, lower: pa.Scalar | None, upper: pa.Scalar | None) -> Histogram | None:
    """The bins with room for values between two, both inclusive; None where there is none. NaN has no place."""
    low, high = 0, len(histogram)
    if lower is not None and upper is not None and sort_key(lower) > sort_key(upper):
        return None
    if lower is not None:
        low = max(low, _place(histogram, lower))
    if upper is not None:
        high = min(high, _place(histogram, upper) + 1)
    if low >= high:
        return None
    return replace(histogram, first=histogram.first + low, counts=histogram.counts[low:high])


def _place(histogram: Histogram, value: pa.Scalar) -> int:
    """The number of the bin that a value is in, were there bins without end; beyond them all for what has no bin."""
    physical = physical_value(value)
    if isinstance(physical, float) and not math.isfinite(physical):
        return -1 if physical < 0 else len(histogram)
    return math.floor(Fraction(physical) / Fraction(2) ** histogram.exponent) - histogram.first


def why_no_histogram(row: ColumnStatistics) -> str | None:
    """Why a column has none; None when it has one, without a bin."""
    if row.type_class is None:
        return row.reason or f"{row.type} has no values of its own"
    cls = class_named(row.type_class)
    if not cls.is_ordinal:
        return f"{row.type} is not numeric or temporal"
    finite = row.value_count - (row.nan_count or 0)
    if finite == 0 or (cls.kind == "float" and _only_infinities(row)):
        return None
    return "its policy is `histogram: off`; change it and refresh"


def _only_infinities(row: ColumnStatistics) -> bool:
    held = {bound.as_py() for bound in (row.minimum, row.maximum) if bound is not None}
    distinct = (row.distinct_count or 0) - bool(row.nan_count)
    return held <= {float("-inf"), float("inf")} and row.distinct_count_guarantee == "exact" and distinct <= len(held)
