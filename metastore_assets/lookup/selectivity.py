"""How many rows a predicate is true of: bounds that always hold, and a number between them.

What is known of values in their order (lists, histograms, sketches) bounds each condition on one column for the whole
table; the index bounds the whole predicate fragment by fragment. Both hold, so the narrower of each side is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from metastore_assets.errors import NotStoredError
from metastore_assets.expressions.predicates import (
    And,
    Column,
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
from metastore_assets.lookup.results import Count
from metastore_assets.statistics.column import ColumnStatistics, Guarantee
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.values.physical import order_key, physical_value
from metastore_assets.values.truncation import prefix_successor


@dataclass(frozen=True)
class Estimate:
    """A number of rows."""

    lower: int
    """There are no fewer."""
    estimate: int
    upper: int
    """There are no more."""
    guarantee: Guarantee
    """What `estimate` is worth: `exact` where the bounds meet, else `estimate`."""
    assumes: str | None = None
    """`independence` where the estimate takes it that conditions on different columns have nothing to do with each
    other; the bounds do not."""


class ColumnDistribution(Protocol):
    """What is asked of one column of a version."""

    row: ColumnStatistics

    def before(self, value: pa.Scalar, *, inclusive: bool) -> Count | None:
        """How many values are less, or equal and `inclusive`; None where nothing tells."""

    def frequency(self, value: pa.Scalar) -> Count:
        """How often a value occurs; an estimate is at most so often. Raises NotStoredError."""

    def histogram(self) -> Histogram | None:
        """Exact counts of the finite values by bins."""


@dataclass(frozen=True)
class _Rows:
    """Bounds, inclusive, and a number between them."""

    least: float
    most: float
    about: float

    def within(self, total: float) -> _Rows:
        least, most = min(max(0, self.least), total), min(max(0, self.most), total)
        most = max(least, most)
        return _Rows(least, most, min(max(self.about, least), most))

    def complement(self, total: float) -> _Rows:
        return _Rows(total - self.most, total - self.least, total - self.about).within(total)


def estimate_rows(
    predicate: Predicate, rows: int, known: Callable[[Column], ColumnDistribution], index: tuple[int, int]
) -> Estimate:
    """How many of the `rows` of a table; `index` are the bounds that fragments give."""
    found = _of(predicate, rows, known)
    lower, upper = max(int(found.least), index[0]), min(int(found.most), index[1])
    about = min(max(round(found.about), lower), upper)
    columns = {leaf.column for leaf in predicate.leaves()}
    is_exact = lower == upper
    assumes = "independence" if len(columns) > 1 and not is_exact else None
    return Estimate(lower, about, upper, "exact" if is_exact else "estimate", assumes)


def _of(predicate: Predicate, rows: int, known: _Distributions) -> _Rows:
    return _EVALUATORS[type(predicate)](predicate, rows, known)


def _of_constant(predicate: Constant, rows: int, known: _Distributions) -> _Rows:
    exact = rows if predicate.value else 0
    return _Rows(exact, exact, exact)


def _of_and(predicate: And, rows: int, known: _Distributions) -> _Rows:
    intervals, others = _intervals(predicate.children)
    parts = [_interval(comparisons, known(column)) for column, comparisons in intervals.items()]
    return _all(parts + [_of(child, rows, known) for child in others], rows)


def _of_or(predicate: Or, rows: int, known: _Distributions) -> _Rows:
    parts = [_of(child, rows, known).complement(rows) for child in predicate.children]
    return _all(parts, rows).complement(rows)


def _all(parts: Sequence[_Rows], rows: int) -> _Rows:
    """Of what all parts are true of (Fréchet); the number takes them for independent."""
    least = sum(part.least for part in parts) - (len(parts) - 1) * rows
    share = float(np.prod([part.about / rows for part in parts])) if rows else 0.0
    return _Rows(least, min(part.most for part in parts), share * rows).within(rows)


def _intervals(children: Sequence[Predicate]) -> tuple[dict[Column, list[Comparison]], list[Predicate]]:
    """The comparisons that say from where to where a column's values go, by column, and all else."""
    found: dict[Column, list[Comparison]] = {}
    others: list[Predicate] = []
    for child in children:
        if isinstance(child, Comparison) and child.operator != "!=":
            found.setdefault(child.column, []).append(child)
        else:
            others.append(child)
    return found, others


def _interval(own: Sequence[Comparison], known: ColumnDistribution) -> _Rows:
    """Of the values that several comparisons of one column leave."""
    lows = [(order_key(one.value), one.operator == ">", one) for one in own if one.operator in (">", ">=", "=")]
    highs = [(order_key(one.value), one.operator != "<", one) for one in own if one.operator in ("<", "<=", "=")]
    values = known.row.value_count
    low = max(lows, key=lambda side: side[:2]) if lows else None
    high = min(highs, key=lambda side: side[:2]) if highs else None
    if low and high and (low[0] > high[0] or (low[0] == high[0] and (low[1] or not high[1]))):
        return _Rows(0, 0, 0)
    if low and high and low[0] == high[0]:
        return _equal(low[2].value, known)
    below = _before(high[2].value, high[1], known) if high else _Rows(values, values, values)
    under = _before(low[2].value, low[1], known) if low else _Rows(0, 0, 0)
    found = _Rows(below.least - under.most, below.most - under.least, below.about - under.about)
    return found.within(values)


def _before(value: pa.Scalar, inclusive: bool, known: ColumnDistribution) -> _Rows:
    """Of the values that are less, or equal and `inclusive`."""
    row = known.row
    found = known.before(value, inclusive=inclusive)
    if found is not None and found.guarantee == "exact":
        return _Rows(found.count, found.count, found.count)
    if row.type_class == "float64" and row.nan_count is None:
        return _Rows(0, row.value_count, row.value_count / 2)
    numbers = row.value_count - (row.nan_count or 0)
    bounds = _by_bounds(value, inclusive, row, numbers)
    histogram = known.histogram()
    if histogram is not None and histogram.type_class.is_ordinal:
        bounds = _meet(bounds, _by_histogram(value, histogram, numbers))
    return bounds if found is None else _Rows(bounds.least, bounds.most, found.count).within(numbers)


def _by_bounds(value: pa.Scalar, inclusive: bool, row: ColumnStatistics, numbers: int) -> _Rows:
    key = order_key(value)
    low, high = (None if own is None else order_key(own) for own in (row.minimum, row.maximum))
    if high is not None and (high < key or (inclusive and high == key)):
        return _Rows(numbers, numbers, numbers)
    if low is not None and (low > key or (not inclusive and low == key)):
        return _Rows(0, 0, 0)
    share = 0.5 if low is None or high is None else _share(key, low, high)
    return _Rows(0, numbers, share * numbers)


def _share(key: Any, low: Any, high: Any) -> float:
    """About how far a value lies between two others, as if all between them were as frequent."""
    if isinstance(key, bytes):
        common = next((at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))
        key, low, high = (int.from_bytes(own[common : common + 8].ljust(8, b"\0"), "big") for own in (key, low, high))
    span = float(high) - float(low)
    share = (float(key) - float(low)) / span if span else 0.5
    return min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.5


def _by_histogram(value: pa.Scalar, histogram: Histogram, numbers: int) -> _Rows:
    """Bins that lie below the value are counted, and the one that it lies in is not known of."""
    key = physical_value(value)
    ends = np.concatenate([[0], np.cumsum(histogram.counts)])
    # Infinities are in no bin, and how many of them are negative is not known.
    infinite = numbers - int(ends[-1])
    edges = [physical_value(edge) for edge in histogram.edges()]
    at = int(np.searchsorted(np.array(edges, object), key, side="right"))
    # A last edge that is the greatest value of the type is in the last bin.
    at -= at > len(histogram) and key == edges[-1]
    # Bin at - 1 begins at the value or before it, and the next one after it.
    least, most = int(ends[max(0, at - 1)]), int(ends[min(at, len(histogram))])
    return _Rows(least, most + infinite, (least + most) / 2)


def _equal(value: pa.Scalar, known: ColumnDistribution) -> _Rows:
    row = known.row
    try:
        found = known.frequency(value)
        return _Rows(found.count if found.guarantee == "exact" else 0, found.count, found.count)
    except NotStoredError:
        below, upto = (_before(value, inclusive, known) for inclusive in (False, True))
        numbers = row.value_count - (row.nan_count or 0)
        about = row.value_count / max(1, row.distinct_count or 1)
        return _Rows(upto.least - below.most, upto.most - below.least, about).within(numbers)


def _of_is_null(leaf: IsNull, rows: int, known: _Distributions) -> _Rows:
    row = known(leaf.column).row
    count = row.value_count if leaf.negated else row.null_count
    return _Rows(count, count, count)


def _of_is_nan(leaf: IsNaN, rows: int, known: _Distributions) -> _Rows:
    row = known(leaf.column).row
    if row.nan_count is None:
        matching = _Rows(0, row.value_count, 0)
    else:
        matching = _Rows(row.nan_count, row.nan_count, row.nan_count)
    if leaf.negated:
        return matching.complement(row.value_count)
    return matching.within(row.value_count + row.null_count)


def _of_comparison(leaf: Comparison, rows: int, known: _Distributions) -> _Rows:
    column = known(leaf.column)
    if leaf.operator == "!=":
        return _equal(leaf.value, column).complement(column.row.value_count)
    return _interval([leaf], column)


def _of_in(leaf: In, rows: int, known: _Distributions) -> _Rows:
    column = known(leaf.column)
    value_count = column.row.value_count
    parts = [_equal(value, column) for value in leaf.values]
    matching = _Rows(
        sum(part.least for part in parts), sum(part.most for part in parts), sum(part.about for part in parts)
    ).within(value_count)
    return matching.complement(value_count) if leaf.negated else matching


def _of_like(leaf: Like, rows: int, known: _Distributions) -> _Rows:
    column = known(leaf.column)
    matching = _like(leaf, column)
    return matching.complement(column.row.value_count) if leaf.negated else matching


def _like(leaf: Like, known: ColumnDistribution) -> _Rows:
    values = known.row.value_count
    try:
        prefix, end = leaf.prefix.decode(), prefix_successor(leaf.prefix)
        following = None if end is None else end.decode()
    except UnicodeDecodeError:
        return _Rows(0, values, values / 2)
    under = _before(pa.scalar(prefix, pa.large_string()), False, known) if prefix else _Rows(0, 0, 0)
    below = _Rows(values, values, values)
    if following is not None:
        below = _before(pa.scalar(following, pa.large_string()), False, known)
    found = _Rows(below.least - under.most, below.most - under.least, below.about - under.about).within(values)
    return found if leaf.pattern is None else _Rows(0, found.most, found.about / 2)


def _meet(own: _Rows, other: _Rows) -> _Rows:
    least, most = max(own.least, other.least), min(own.most, other.most)
    return _Rows(least, most, min(max(other.about, least), most))


_Distributions: TypeAlias = Callable[[Column], ColumnDistribution]
_EVALUATORS: Mapping[type[Predicate], Callable[[Any, int, _Distributions], _Rows]] = complete_evaluator(
    "selectivity",
    {
        Constant: _of_constant,
        And: _of_and,
        Or: _of_or,
        IsNull: _of_is_null,
        IsNaN: _of_is_nan,
        Comparison: _of_comparison,
        In: _of_in,
        Like: _of_like,
    },
)
