"""Histograms of columns: how bins are read, selected and merged, and why a histogram is missing.

The policy of a column decides which of its statistics and values are stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa

from metastore_assets.errors import NotStoredError
from metastore_assets.lookup.arguments import integer_argument
from metastore_assets.lookup.results import AsOf, ResultSet, explain_no_values
from metastore_assets.lookup.value_counts import RelationProfiles, ValueCounts
from metastore_assets.lookup.version_references import VersionColumns
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.values.json import ScalarFieldsRepr
from metastore_assets.values.physical import physical_value, sort_key
from metastore_assets.values.types import class_named


@dataclass(frozen=True, repr=False)
class Bin(ScalarFieldsRepr):
    """One bin of a histogram."""

    minimum: pa.Scalar
    """The lower edge, inclusive."""
    maximum: pa.Scalar
    """The upper edge: exclusive, or inclusive if it is the greatest value of the type."""
    frequency: int


class Histograms:
    """The histograms of a table or a filtered view.

    Threads can share the object.
    """

    def __init__(
        self, columns: VersionColumns, profiles: RelationProfiles, value_counts: ValueCounts, as_of: AsOf
    ) -> None:
        self._columns = columns
        self._profiles = profiles
        self._value_counts = value_counts
        self._as_of = as_of

    def bins(
        self,
        column: str,
        bins: int | None = None,
        partition: str | None = None,
        *,
        lower: object = None,
        upper: object = None,
    ) -> ResultSet[Bin]:
        """Return the bins of a column's histogram.

        Arguments and errors are those of `Relation.histogram`.
        """
        bins = None if bins is None else integer_argument("bins", bins, 1)
        histogram = self.dyadic(column, partition)
        if histogram is not None and (lower is not None or upper is not None):
            values = self._value_counts.column(column, partition)
            bounds = [None if bound is None else values.literal(bound) for bound in (lower, upper)]
            histogram = select_bins(histogram, *bounds)
        merged_bins = [] if histogram is None else merge_bins(histogram, len(histogram) if bins is None else bins)
        type_ = self._value_counts.column(column, partition).arrow_type
        return ResultSet(
            merged_bins,
            self._as_of,
            pa.schema([("minimum", type_), ("maximum", type_), ("frequency", pa.int64())]),
        )

    def dyadic(self, column: str, partition: str | None = None) -> Histogram | None:
        """Return a histogram with its stored bins, whose width is a power of two; None without finite values.

        Raises NotStoredError if the histogram is missing for another reason, such as the policy `histogram: off` or a
        type that is neither numeric nor temporal.
        """
        profile = self._profiles.profile(partition)
        self._columns.column(column)
        histogram = profile.histogram(column)
        reason = explain_no_histogram(profile.statistics([column])[0]) if histogram is None else None
        if reason is not None:
            raise NotStoredError(f"{self._columns.subject(column)} has no histogram: {reason}")
        return histogram


def merge_bins(histogram: Histogram, limit: int) -> list[Bin]:
    """Merge neighbouring bins until there are at most `limit`, and return them by increasing minimum.

    Each bin begins where the previous one ends.
    """
    starts, frequencies = _merge_neighbours(histogram, limit)
    edges = histogram.edges().take(pa.array([*starts, len(histogram)]))
    return [Bin(edges[i], edges[i + 1], frequency) for i, frequency in enumerate(frequencies)]


def merge_bin_frequencies(histogram: Histogram, limit: int) -> list[int]:
    """Return the frequencies of the bins that `merge_bins` returns."""
    return _merge_neighbours(histogram, limit)[1]


def _merge_neighbours(histogram: Histogram, limit: int) -> tuple[list[int], list[int]]:
    width = max(1, -(-len(histogram) // limit))
    starts = list(range(0, len(histogram), width))
    return starts, np.add.reduceat(histogram.counts, starts).tolist()


def select_bins(histogram: Histogram, lower: pa.Scalar | None, upper: pa.Scalar | None) -> Histogram | None:
    """Return a histogram of only those bins that may have values from `lower` to `upper`, both inclusive.

    The result is None if there are no such bins.

    Args:
        histogram: The histogram.
        lower: The least value; None for no limit.
        upper: The greatest value; None for no limit.
    """
    low, high = 0, len(histogram)
    if lower is not None and upper is not None and sort_key(lower) > sort_key(upper):
        return None
    if lower is not None:
        low = max(low, _bin_number(histogram, lower))
    if upper is not None:
        high = min(high, _bin_number(histogram, upper) + 1)
    if low >= high:
        return None
    return replace(histogram, first=histogram.first + low, counts=histogram.counts[low:high])


def _bin_number(histogram: Histogram, value: pa.Scalar) -> int:
    """Return the number of a value's bin, counted from 0.

    Values below the first bin and -inf have a negative number. Values above the last bin, +inf and NaN have a number
    from `len(histogram)` on.
    """
    physical = physical_value(value)
    if isinstance(physical, float) and not math.isfinite(physical):
        return -1 if physical < 0 else len(histogram)
    return math.floor(Fraction(physical) / Fraction(2) ** histogram.exponent) - histogram.first


def explain_no_histogram(row: ColumnStatistics) -> str | None:
    """Return why a column has no histogram; None if the only reason is that it has no finite values."""
    if row.type_class is None:
        return explain_no_values(row)
    cls = class_named(row.type_class)
    if not cls.is_ordinal:
        return f"{row.type} is not numeric or temporal"
    finite = row.value_count - (row.nan_count or 0)
    if finite == 0 or (cls.kind == "float" and _has_only_infinities(row)):
        return None
    return "its policy is `histogram: off`; change it and refresh"


def _has_only_infinities(row: ColumnStatistics) -> bool:
    bounds = {bound.as_py() for bound in (row.minimum, row.maximum) if bound is not None}
    distinct = (row.distinct_count or 0) - bool(row.nan_count)
    is_exact = row.distinct_count_guarantee == "exact"
    return bounds <= {float("-inf"), float("inf")} and is_exact and distinct <= len(bounds)
