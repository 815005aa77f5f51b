"""Estimates of the number of rows that match a predicate, with bounds that always hold.

The bounds are computed in two ways:

- Value counts and histograms of the whole table give bounds for each condition on one column. The bounds of the
  predicate follow from these. Quantile sketches give only estimates.
- The fragment index gives bounds for the whole predicate in each fragment (a data file with its deletes). The bounds of
  all fragments are added up.

Both are valid, so the result has the greater lower bound and the smaller upper bound.

A leaf of a predicate is a condition on one column, such as `x > 1`. A leaf can be negated, such as `x not in (1, 2)`. A
version has the statistics of one snapshot of the table. Value counts are the distinct values of a column with their
frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.errors import NotStoredError
from metastore_assets.expressions.predicates import (
    And,
    BoundColumn,
    Comparison,
    Constant,
    In,
    IsNaN,
    IsNull,
    Like,
    Or,
    Predicate,
    complete_evaluator,
)
from metastore_assets.lookup.results import AsOf, Count
from metastore_assets.statistics.column import ColumnStatistics, Guarantee
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.store.version import Version
from metastore_assets.values.physical import array_of, order_key, physical_value
from metastore_assets.values.truncation import prefix_successor


@dataclass(frozen=True)
class Estimate:
    """Estimated number of matching rows, with bounds."""

    value: int
    """The estimate."""
    lower: int
    """Lower bound, inclusive."""
    upper: int
    """Upper bound, inclusive."""
    guarantee: Guarantee
    """`exact` if the bounds are equal, else `estimate`."""
    as_of: AsOf = field(compare=False)
    assumes: str | None = None
    """`independence` if the estimate assumes that conditions on different columns are independent; otherwise None. The
    bounds never assume it."""


@dataclass(frozen=True)
class HistogramBins:
    """The bins of a histogram, prepared for many lookups."""

    edges: npt.NDArray[np.object_]
    """The edges of the bins, ascending, as the numbers that Arrow stores for them. There is one more edge than bins."""
    ends: npt.NDArray[np.int64]
    """The number of values below each edge."""

    @classmethod
    def of(cls, histogram: Histogram) -> HistogramBins:
        """Return the bins of a histogram, prepared for lookups."""
        edges = np.array([physical_value(edge) for edge in histogram.edges()], object)
        return cls(edges, np.concatenate([[0], np.cumsum(histogram.counts)]))


class ColumnDistribution(Protocol):
    """Stored distribution of one column of a version."""

    row: ColumnStatistics

    @property
    def has_exact_ranks(self) -> bool:
        """Whether all answers of `count_below` are exact."""

    def count_below(self, value: pa.Scalar, *, inclusive: bool) -> Count | None:
        """Return the number of values < `value`, or <= `value` if `inclusive`; None if the number is unknown."""

    def frequencies(self, values: pa.Array) -> list[Count]:
        """Return the number of rows with each value: exact, or an estimate that is never too small.

        Raises NotStoredError if neither statistics nor value counts of the column have the numbers.
        """

    @property
    def bins(self) -> HistogramBins | None:
        """The bins of the exact histogram of the finite values; None if there is none."""


@dataclass(frozen=True)
class _RowEstimate:
    """Inclusive bounds of a number of rows, and an estimate between them."""

    least: float
    most: float
    estimate: float

    def within(self, total: float) -> _RowEstimate:
        """Return this estimate with all numbers limited to the range from 0 to `total`."""
        least, most = min(max(0, self.least), total), min(max(0, self.most), total)
        most = max(least, most)
        return _RowEstimate(least, most, min(max(self.estimate, least), most))

    def minus(self, subset: _RowEstimate) -> _RowEstimate:
        """Return the difference: an estimate of the rows that `self` counts and `subset` does not.

        Its numbers may be negative. `within` limits them.
        """
        return _RowEstimate(self.least - subset.most, self.most - subset.least, self.estimate - subset.estimate)

    def complement(self, total: float) -> _RowEstimate:
        """Return an estimate of the number of rows that this estimate does not count, out of `total` rows."""
        return _RowEstimate(total - self.most, total - self.least, total - self.estimate).within(total)


def estimate_rows(
    predicate: Predicate,
    version: Version,
    distributions: Callable[[BoundColumn], ColumnDistribution],
    index: tuple[int, int],
) -> Estimate:
    """Return an estimate of the number of rows of a version that match a predicate.

    Args:
        predicate: The predicate.
        version: The version.
        distributions: A function that returns the stored distribution of a column.
        index: (lower bound, upper bound) of the number of matching rows, both inclusive, from statistics of fragments.
    """
    matching = _estimate(predicate, version.row_count, distributions)
    lower, upper = max(int(matching.least), index[0]), min(int(matching.most), index[1])
    about = min(max(round(matching.estimate), lower), upper)
    columns = {leaf.column for leaf in predicate.leaves()}
    is_exact = lower == upper
    assumes = "independence" if len(columns) > 1 and not is_exact else None
    return Estimate(about, lower, upper, "exact" if is_exact else "estimate", AsOf.of(version), assumes)


def _estimate(predicate: Predicate, rows: int, distributions: _Distributions) -> _RowEstimate:
    return _EVALUATORS[type(predicate)](predicate, rows, distributions)


def _estimate_constant(predicate: Constant, rows: int, distributions: _Distributions) -> _RowEstimate:
    exact = rows if predicate.value else 0
    return _RowEstimate(exact, exact, exact)


def _estimate_and(predicate: And, rows: int, distributions: _Distributions) -> _RowEstimate:
    intervals, others = _split_comparisons(predicate.children)
    parts = [_estimate_interval(comparisons, distributions(column)) for column, comparisons in intervals.items()]
    return _estimate_conjunction(parts + [_estimate(child, rows, distributions) for child in others], rows)


def _estimate_or(predicate: Or, rows: int, distributions: _Distributions) -> _RowEstimate:
    parts = [_estimate(child, rows, distributions).complement(rows) for child in predicate.children]
    return _estimate_conjunction(parts, rows).complement(rows)


def _estimate_conjunction(parts: Sequence[_RowEstimate], rows: int) -> _RowEstimate:
    """Estimate the number of rows that match all of several conditions.

    The bounds are Fréchet's. The estimate assumes that the conditions are independent.
    """
    least = sum(part.least for part in parts) - (len(parts) - 1) * rows
    share = float(np.prod([part.estimate / rows for part in parts])) if rows else 0.0
    return _RowEstimate(least, min(part.most for part in parts), share * rows).within(rows)


def _split_comparisons(children: Sequence[Predicate]) -> tuple[dict[BoundColumn, list[Comparison]], list[Predicate]]:
    """Split predicates into (comparisons by column, without those with `!=`; all remaining predicates)."""
    by_column: dict[BoundColumn, list[Comparison]] = {}
    others: list[Predicate] = []
    for child in children:
        if isinstance(child, Comparison) and child.operator != "!=":
            by_column.setdefault(child.column, []).append(child)
        else:
            others.append(child)
    return by_column, others


def _estimate_interval(comparisons: Sequence[Comparison], distribution: ColumnDistribution) -> _RowEstimate:
    """Estimate the number of rows for which all comparisons are true, such as `x > 1` and `x <= 5`.

    All comparisons are of one column. Together they select an interval of its values. Callers pass no comparison with
    `!=`, because it selects no interval. This function does not check that, and would ignore such a comparison.
    """
    lows = [
        (order_key(comparison.value), comparison.operator == ">", comparison)
        for comparison in comparisons
        if comparison.operator in (">", ">=", "=")
    ]
    highs = [
        (order_key(comparison.value), comparison.operator != "<", comparison)
        for comparison in comparisons
        if comparison.operator in ("<", "<=", "=")
    ]
    values = distribution.row.value_count
    low = max(lows, key=lambda side: side[:2]) if lows else None
    high = min(highs, key=lambda side: side[:2]) if highs else None
    if low and high and (low[0] > high[0] or (low[0] == high[0] and (low[1] or not high[1]))):
        return _RowEstimate(0, 0, 0)
    if low and high and low[0] == high[0]:
        return _estimate_equal(array_of([low[2].value]), distribution)[0]
    below_high = _estimate_below(high[2].value, high[1], distribution) if high else _RowEstimate(values, values, values)
    below_low = _estimate_below(low[2].value, low[1], distribution) if low else _RowEstimate(0, 0, 0)
    return below_high.minus(below_low).within(values)


def _estimate_below(value: pa.Scalar, inclusive: bool, distribution: ColumnDistribution) -> _RowEstimate:
    """Estimate the number of rows with a value < `value`, or <= `value` if `inclusive`."""
    row, bounds = distribution.row, _bound_below(value, inclusive, distribution)
    if distribution.has_exact_ranks or (row.type_class == "float64" and row.nan_count is None):
        return bounds
    answer = distribution.count_below(value, inclusive=inclusive)
    numbers = row.value_count - (row.nan_count or 0)
    return bounds if answer is None else _RowEstimate(bounds.least, bounds.most, answer.value).within(numbers)


def _bound_below(value: pa.Scalar, inclusive: bool, distribution: ColumnDistribution) -> _RowEstimate:
    """Estimate the number of rows with a value < `value`, or <= `value` if `inclusive`.

    Unlike `_estimate_below`, this does not use the quantile sketch, because a sketch gives no bounds.
    """
    row = distribution.row
    if distribution.has_exact_ranks:
        answer = distribution.count_below(value, inclusive=inclusive)
        if answer is not None:
            return _RowEstimate(answer.value, answer.value, answer.value)
    if row.type_class == "float64" and row.nan_count is None:
        return _RowEstimate(0, row.value_count, row.value_count / 2)
    numbers = row.value_count - (row.nan_count or 0)
    bounds = _estimate_by_bounds(value, inclusive, row, numbers)
    if distribution.bins is not None:
        bounds = _intersect_bounds(bounds, _estimate_by_bins(value, distribution.bins, numbers))
    return bounds


def _estimate_by_bounds(value: pa.Scalar, inclusive: bool, row: ColumnStatistics, numbers: int) -> _RowEstimate:
    """Estimate the number of rows with a value below `value`, by minimum and maximum.

    If `inclusive`, rows with this value count, too. `numbers` is the number of values of the column that are neither
    null nor NaN.
    """
    key = order_key(value)
    low, high = (None if bound is None else order_key(bound) for bound in (row.minimum, row.maximum))
    if high is not None and (high < key or (inclusive and high == key)):
        return _RowEstimate(numbers, numbers, numbers)
    if low is not None and (low > key or (not inclusive and low == key)):
        return _RowEstimate(0, 0, 0)
    share = 0.5 if low is None or high is None else _share_below(key, low, high)
    return _RowEstimate(0, numbers, share * numbers)


def _share_below(key: Any, low: Any, high: Any) -> float:
    """Return the share of values less than `key`, if values are uniform from `low` to `high`.

    For strings, the first 8 bytes after the common prefix of `low` and `high` are compared as numbers.
    """
    if isinstance(key, bytes):
        pairs = enumerate(zip(low, high, strict=False))
        common = next((at for at, (low_byte, high_byte) in pairs if low_byte != high_byte), len(low))
        key, low, high = (int.from_bytes(part[common : common + 8].ljust(8, b"\0"), "big") for part in (key, low, high))
    span = float(high) - float(low)
    share = (float(key) - float(low)) / span if span else 0.5
    return min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.5


def _estimate_by_bins(value: pa.Scalar, bins: HistogramBins, numbers: int) -> _RowEstimate:
    """Estimate the number of rows with a value < `value` from a histogram.

    The bounds also hold for <=.

    Of the values in the bin of `value`, none or all may be less. `numbers` is the number of values of the column that
    are neither null nor NaN.
    """
    key, ends = physical_value(value), bins.ends
    # Infinities are in no bin, and the number of negative ones is not stored.
    infinite = numbers - int(ends[-1])
    at = int(np.searchsorted(bins.edges, key, side="right"))
    # A last edge that is the greatest value of the type is in the last bin.
    at -= at >= len(bins.edges) and key == bins.edges[-1]
    # Bin at - 1 begins at the value or before it, and the next one after it.
    least, most = int(ends[max(0, at - 1)]), int(ends[min(at, len(ends) - 1)])
    return _RowEstimate(least, most + infinite, (least + most) / 2)


def _estimate_equal(values: pa.Array, distribution: ColumnDistribution) -> list[_RowEstimate]:
    """Return the estimated number of rows that have a value, for each of `values`, in this order.

    The estimates come from the frequencies of the values. If these are not stored, `_estimate_by_ranks` computes them.
    """
    try:
        answers = distribution.frequencies(values)
    except NotStoredError:
        return [_estimate_by_ranks(value, distribution) for value in values]
    return [
        _RowEstimate(answer.value if answer.guarantee == "exact" else 0, answer.value, answer.value)
        for answer in answers
    ]


def _estimate_by_ranks(value: pa.Scalar, distribution: ColumnDistribution) -> _RowEstimate:
    """Estimate the number of rows in which the column equals `value`, without value counts.

    The number is that of values <= `value`, less that of values < `value`. Both are known only within bounds, so it has
    bounds too. The estimate is the average frequency of a distinct value.
    """
    row = distribution.row
    below, upto = (_bound_below(value, inclusive, distribution) for inclusive in (False, True))
    numbers = row.value_count - (row.nan_count or 0)
    about = row.value_count / max(1, row.distinct_count or 1)
    return _RowEstimate(upto.least - below.most, upto.most - below.least, about).within(numbers)


def _estimate_is_null(leaf: IsNull, rows: int, distributions: _Distributions) -> _RowEstimate:
    row = distributions(leaf.column).row
    count = row.value_count if leaf.negated else row.null_count
    return _RowEstimate(count, count, count)


def _estimate_is_nan(leaf: IsNaN, rows: int, distributions: _Distributions) -> _RowEstimate:
    """Estimate the number of rows with NaN or, if the leaf is negated, of rows with any other value.

    Rows with null count in neither case.
    """
    row = distributions(leaf.column).row
    if row.nan_count is None:
        matching = _RowEstimate(0, row.value_count, 0)
    else:
        matching = _RowEstimate(row.nan_count, row.nan_count, row.nan_count)
    if leaf.negated:
        return matching.complement(row.value_count)
    return matching.within(row.value_count + row.null_count)


def _estimate_comparison(leaf: Comparison, rows: int, distributions: _Distributions) -> _RowEstimate:
    column = distributions(leaf.column)
    if leaf.operator == "!=":
        (matching,) = _estimate_equal(array_of([leaf.value]), column)
        return matching.complement(column.row.value_count)
    return _estimate_interval([leaf], column)


def _estimate_in(leaf: In, rows: int, distributions: _Distributions) -> _RowEstimate:
    """Estimate how many rows have one of the values of `in`.

    If the leaf is negated, estimate how many have any other value. Rows with null count in neither case.
    """
    column = distributions(leaf.column)
    value_count = column.row.value_count
    parts = _estimate_equal(leaf.values, column)
    matching = _RowEstimate(
        sum(part.least for part in parts), sum(part.most for part in parts), sum(part.estimate for part in parts)
    ).within(value_count)
    return matching.complement(value_count) if leaf.negated else matching


def _estimate_like(leaf: Like, rows: int, distributions: _Distributions) -> _RowEstimate:
    column = distributions(leaf.column)
    matching = _estimate_pattern(leaf, column)
    return matching.complement(column.row.value_count) if leaf.negated else matching


def _estimate_pattern(leaf: Like, distribution: ColumnDistribution) -> _RowEstimate:
    """Estimate the number of rows that match the pattern of a `like`, whether or not the leaf is negated.

    The result is the same for `like` and `not like`: callers take the complement for `not like`.

    The number of values that begin with `leaf.prefix`, the text before the first wildcard, is estimated. If
    `leaf.pattern` is None, all of these values match, as for `ab%`. Otherwise half of them are assumed to match.
    """
    values = distribution.row.value_count
    try:
        prefix, end = leaf.prefix.decode(), prefix_successor(leaf.prefix)
        following = None if end is None else end.decode()
    except UnicodeDecodeError:
        return _RowEstimate(0, values, values / 2)
    below_prefix = (
        _estimate_below(pa.scalar(prefix, pa.large_string()), False, distribution) if prefix else _RowEstimate(0, 0, 0)
    )
    below_end = _RowEstimate(values, values, values)
    if following is not None:
        below_end = _estimate_below(pa.scalar(following, pa.large_string()), False, distribution)
    matching = below_end.minus(below_prefix).within(values)
    return matching if leaf.pattern is None else _RowEstimate(0, matching.most, matching.estimate / 2)


def _intersect_bounds(bounds: _RowEstimate, other: _RowEstimate) -> _RowEstimate:
    """Return the range within the bounds of both arguments, with the estimate of `other`.

    An estimate outside of this range becomes the nearest number within it. The estimate of `bounds` is ignored.
    """
    least, most = max(bounds.least, other.least), min(bounds.most, other.most)
    return _RowEstimate(least, most, min(max(other.estimate, least), most))


_Distributions: TypeAlias = Callable[[BoundColumn], ColumnDistribution]
_EVALUATORS: Mapping[type[Predicate], Callable[[Any, int, _Distributions], _RowEstimate]] = complete_evaluator(
    "selectivity",
    {
        Constant: _estimate_constant,
        And: _estimate_and,
        Or: _estimate_or,
        IsNull: _estimate_is_null,
        IsNaN: _estimate_is_nan,
        Comparison: _estimate_comparison,
        In: _estimate_in,
        Like: _estimate_like,
    },
)
