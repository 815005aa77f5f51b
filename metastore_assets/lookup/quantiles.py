"""Ranks and quantiles of the values of a column in ascending order.

A profile is the statistics and values of some rows. Ranks and quantiles are exact if a profile in memory or the table's
value counts have the values. A lookup in value counts reads only a few row groups. Without values, ranks and quantiles
are estimated from a sketch.

A type class is a group of column types whose values are stored as one Arrow type, the canonical one. Value counts are
the distinct values of a column with their frequencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.statistics.column import Guarantee
from metastore_assets.statistics.frequencies import Frequencies, count_nan
from metastore_assets.statistics.quantiles import Digest, count_ranked_values, estimate_rank, estimate_values
from metastore_assets.values.physical import integers_array, physical_value, sort_key
from metastore_assets.values.types import TypeClass, class_named

if TYPE_CHECKING:
    from metastore_assets.produce.ranks import Ranks
    from metastore_assets.value_counts import ValueCountReader

Method = Literal["discrete", "continuous"]


class RankedValues(Protocol):
    """The values of a column in ascending order, including repeats, without null.

    NaN is the greatest value.
    """

    @property
    def guarantee(self) -> Guarantee:
        """The precision of the answers: `exact` or `estimate`."""

    @property
    def ranked(self) -> int:
        """The number of values that are neither null nor NaN."""

    def value_at(self, rank: int) -> pa.Scalar:
        """Return the value at a rank: 0 for the least value, up to `ranked` - 1."""

    def count_below(self, value: pa.Scalar, *, inclusive: bool = False) -> int:
        """Return the number of values < `value`, or <= `value` if `inclusive`.

        Args:
            value: A scalar of the canonical Arrow type of the column's type class.
            inclusive: Whether to count values that equal `value`, too.
        """


class ExactValues(RankedValues, Protocol):
    """The exact values of a column."""

    def frequencies(self, values: pa.Array) -> list[int]:
        """Return the number of rows with each value of an array of the canonical Arrow type."""


class ValuesInMemory:
    """The sorted values of a column in memory, with their frequencies."""

    guarantee: Guarantee = "exact"

    def __init__(self, frequencies: Frequencies) -> None:
        self._values = frequencies.values
        self._ends = np.cumsum(frequencies.counts.to_numpy())
        total = int(self._ends[-1]) if len(self._ends) else 0
        self.ranked = total - count_nan(frequencies)

    def value_at(self, rank: int) -> pa.Scalar:
        """Return the value at a rank, counted from 0."""
        return self._values[int(np.searchsorted(self._ends, rank, "right"))]

    def count_below(self, value: pa.Scalar, *, inclusive: bool = False) -> int:
        """Return the number of values < `value`, or <= `value` if `inclusive`."""
        key = sort_key(value)
        low, high = 0, len(self._values)
        while low < high:
            middle = (low + high) // 2
            other = sort_key(self._values[middle])
            low, high = (middle + 1, high) if other < key or (inclusive and other == key) else (low, middle)
        return int(self._ends[low - 1]) if low else 0

    def frequencies(self, values: pa.Array) -> list[int]:
        """Return the number of rows with each value."""
        return [self.count_below(value, inclusive=True) - self.count_below(value) for value in values]


class TableValues:
    """All values of a column in ascending order, read from the table's value counts.

    Threads can share the object.
    """

    guarantee: Guarantee = "exact"

    def __init__(self, table_counts: ValueCountReader, field_id: str, type_class: str) -> None:
        self._table_counts = table_counts
        self._type_class = type_class
        self._arrow = class_named(type_class).arrow
        self._column = pa.table({"column": pa.array([field_id])})

    @property
    def _ranks(self) -> Ranks:
        """The reader of the ranks in the table's value counts.

        Each thread has its own reader.
        """
        return self._table_counts.ranks(self._type_class)

    @lock_free_cached_property
    def ranked(self) -> int:
        """The number of values that are neither null nor NaN."""
        total = self._ranks.total(self._column)
        if not t.is_floating(self._arrow):
            return total
        nan = pa.scalar(math.nan, self._arrow)
        return total - (self.count_below(nan, inclusive=True) - self.count_below(nan))

    def value_at(self, rank: int) -> pa.Scalar:
        """Return the value at a rank, counted from 0."""
        return self._ranks.at_rank(self._column, rank)["value"][0].cast(self._arrow)

    def count_below(self, value: pa.Scalar, *, inclusive: bool = False) -> int:
        """Return the number of values < `value`, or <= `value` if `inclusive`."""
        key = self._column.append_column("value", pa.repeat(value, 1))
        (rank,) = self._ranks.rank(key)
        return rank + self._ranks.amount_between(key, key) if inclusive else rank

    def frequencies(self, values: pa.Array) -> list[int]:
        """Return the number of rows with each of the given values, in the order of `values`.

        A single value is looked up with the reader of ranks, which caches the row groups that it has read. For several
        values, each row group is read once.
        """
        if len(values) == 1:
            key = self._column.append_column("value", values)
            return [self._ranks.amount_between(key, key)]
        (field_id,) = self._column["column"].to_pylist()
        return self._table_counts.frequencies_of(field_id, self._type_class, values)


@dataclass(frozen=True)
class SketchedValues:
    """The values of a numeric or temporal column, estimated from their t-digest."""

    cls: TypeClass
    digest: Digest | None
    """The digest of the finite values; None if there are none."""
    infinities: tuple[int, int]
    """(number of -inf, number of +inf), which the digest does not include."""
    bounds: tuple[pa.Scalar, pa.Scalar]
    """(minimum, maximum). No answer is beyond them."""
    nans: int = 0
    guarantee: Guarantee = "estimate"

    @property
    def ranked(self) -> int:
        """The number of values that are neither null nor NaN."""
        return count_ranked_values(self.digest, self.infinities)

    def value_at(self, rank: int) -> pa.Scalar:
        """Return the estimated value at a rank, counted from 0."""
        (value,) = estimate_values(self.digest, self.cls, self.infinities, self.bounds, np.array([rank + 1]))
        return value

    def count_below(self, value: pa.Scalar, *, inclusive: bool = False) -> int:
        """Return an estimate of the number of values that are less than a value.

        If `inclusive` is true and `value` is NaN or the maximum, values equal to `value` are counted too. For any other
        `value`, `inclusive` changes nothing.
        """
        least, greatest = self.bounds
        key = is_nan, _ = sort_key(value)
        if is_nan:
            return self.ranked + (self.nans if inclusive else 0)
        if key < sort_key(least):
            return 0
        if key > sort_key(greatest) or (inclusive and key == sort_key(greatest)):
            return self.ranked
        return estimate_rank(self.digest, self.infinities, float(physical_value(value)))


def quantile(values: RankedValues, fraction: Fraction, method: Method) -> pa.Scalar | None:
    """Return the quantile of a fraction; None if there are no values.

    NaN is ignored.

    Args:
        values: The values of a column.
        fraction: From 0 to 1, both inclusive.
        method: `discrete` returns the least value v for which at least this fraction of the values is at most v, as
            SQL's `percentile_disc`. `continuous` interpolates between the two nearest values, as SQL's
            `percentile_cont`. Its result is a float64 for numbers, and a timestamp of milliseconds for dates. For other
            temporal values, the result has the type of the values, and is rounded to the unit of this type.
    """
    n = values.ranked
    if not n:
        return None
    if method == "discrete":
        return values.value_at(max(1, math.ceil(fraction * n)) - 1)
    position = fraction * (n - 1)
    low = values.value_at(math.floor(position))
    high = low if position.denominator == 1 else values.value_at(math.ceil(position))
    return _interpolate(low, high, position - math.floor(position))


def _interpolate(low: pa.Scalar, high: pa.Scalar, share: Fraction) -> pa.Scalar:
    """Return low + share * (high - low), in the type that `quantile` describes."""
    if t.is_floating(low.type):
        first, last = physical_value(low), physical_value(high)
        if first == last or math.isinf(first) or math.isinf(last):
            return pa.scalar(_interpolate_infinities(first, last, share), pa.float64())
        return pa.scalar(float((1 - share) * Fraction(first) + share * Fraction(last)), pa.float64())
    exact = (1 - share) * physical_value(low) + share * physical_value(high)
    if t.is_temporal(low.type):
        if t.is_date(low.type):
            return integers_array([round(exact * 86_400_000)], class_named("timestamp_ms"))[0]
        return pa.array([round(exact)], pa.int64()).view(low.type)[0]
    scale = low.type.scale if t.is_decimal(low.type) else 0
    return pa.scalar(float(exact / 10**scale), pa.float64())


def _interpolate_infinities(first: float, last: float, share: Fraction) -> float:
    """Return the float at `share` of the way from `first` to `last`, for equal or infinite values.

    In these cases, which `_interpolate` leaves to this function, `first` equals `last`, or at least one of them is
    infinite. The result is `first` if both are equal, or if `share` is 0. Otherwise it is `last` if `last` is infinite,
    else `first`.
    """
    if first == last or share == 0:
        return first
    return last if math.isinf(last) else first
