"""The values of a column in their order: how many lie before a value, and which one lies at a rank.

From the full list of the values, from the table's lists, of which a block or two are read, or, about, from a sketch.
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
    from metastore_assets.value_counts import ListReader

Method = Literal["discrete", "continuous"]


class Ordered(Protocol):
    """The values of a column, null left out, in the order of their class; NaN is the greatest."""

    @property
    def guarantee(self) -> Guarantee:
        """What the answers are worth."""

    @property
    def ranked(self) -> int:
        """How many values there are but for NaN."""

    def at(self, rank: int) -> pa.Scalar:
        """The value at a rank, from 0 up to `ranked`, and not with it."""

    def before(self, value: pa.Scalar, *, inclusive: bool = False) -> int:
        """How many values are less than a scalar of the class, or equal to it and `inclusive`."""


class ListedValues:
    """Values that are all in memory, with their frequencies."""

    guarantee: Guarantee = "exact"

    def __init__(self, frequencies: Frequencies) -> None:
        self._values = frequencies.values
        self._ends = np.cumsum(frequencies.counts.to_numpy())
        total = int(self._ends[-1]) if len(self._ends) else 0
        self.ranked = total - count_nan(frequencies)

    def at(self, rank: int) -> pa.Scalar:
        """As `Ordered`."""
        return self._values[int(np.searchsorted(self._ends, rank, "right"))]

    def before(self, value: pa.Scalar, *, inclusive: bool = False) -> int:
        """As `Ordered`, by a binary search."""
        key = sort_key(value)
        low, high = 0, len(self._values)
        while low < high:
            middle = (low + high) // 2
            own = sort_key(self._values[middle])
            low, high = (middle + 1, high) if own < key or (inclusive and own == key) else (low, middle)
        return int(self._ends[low - 1]) if low else 0


class StoredValues:
    """Values of a column in the table's lists. Not safe to share between threads, as what it reads is not."""

    guarantee: Guarantee = "exact"

    def __init__(self, lists: ListReader, field_id: str, type_class: str) -> None:
        self._ranks = lists.ranks(type_class)
        self._arrow = class_named(type_class).arrow
        self._column = pa.table({"column": pa.array([field_id])})

    @lock_free_cached_property
    def ranked(self) -> int:
        """As `Ordered`."""
        total = self._ranks.total(self._column)
        if not t.is_floating(self._arrow):
            return total
        nan = pa.scalar(math.nan, self._arrow)
        return total - (self.before(nan, inclusive=True) - self.before(nan))

    def at(self, rank: int) -> pa.Scalar:
        """As `Ordered`."""
        return self._ranks.at_rank(self._column, rank)["value"][0].cast(self._arrow)

    def before(self, value: pa.Scalar, *, inclusive: bool = False) -> int:
        """As `Ordered`."""
        key = self._column.append_column("value", pa.repeat(value, 1))
        (rank,) = self._ranks.rank(key)
        return rank + self._ranks.count_between(key, key) if inclusive else rank


@dataclass(frozen=True)
class SketchedValues:
    """Values of a class with distances, about, from their t-digest."""

    cls: TypeClass
    digest: Digest | None
    infinities: tuple[int, int]
    """How often -inf and +inf occur, which the digest does not hold."""
    bounds: tuple[pa.Scalar, pa.Scalar]
    """Least and greatest value, both inclusive; no answer is further out."""
    nans: int = 0
    guarantee: Guarantee = "estimate"

    @property
    def ranked(self) -> int:
        """As `Ordered`."""
        return count_ranked_values(self.digest, self.infinities)

    def at(self, rank: int) -> pa.Scalar:
        """As `Ordered`."""
        (value,) = estimate_values(self.digest, self.cls, self.infinities, self.bounds, np.array([rank + 1]))
        return value

    def before(self, value: pa.Scalar, *, inclusive: bool = False) -> int:
        """As `Ordered`. How many values are equal to one a sketch does not tell: as if none were, within the bounds."""
        least, greatest = self.bounds
        key = is_nan, _ = sort_key(value)
        if is_nan:
            return self.ranked + (self.nans if inclusive else 0)
        if key < sort_key(least):
            return 0
        if key > sort_key(greatest) or (inclusive and key == sort_key(greatest)):
            return self.ranked
        return estimate_rank(self.digest, self.infinities, float(physical_value(value)))


def quantile(values: Ordered, fraction: Fraction, method: Method) -> pa.Scalar | None:
    """The quantile of a fraction from 0 to 1, NaN left out; None where there is no value.

    `discrete`: the least value that at least this fraction of the values does not exceed, SQL's `percentile_disc`.
    `continuous`: between the two values nearest to the place, SQL's `percentile_cont`. Of integers, floats and
    decimals that is a float64, rounded once; of temporal values the nearest unit, of dates as timestamps of
    milliseconds.
    """
    n = values.ranked
    if not n:
        return None
    if method == "discrete":
        return values.at(max(1, math.ceil(fraction * n)) - 1)
    place = fraction * (n - 1)
    low = values.at(math.floor(place))
    high = low if place.denominator == 1 else values.at(math.ceil(place))
    return _between(low, high, place - math.floor(place))


def _between(low: pa.Scalar, high: pa.Scalar, share: Fraction) -> pa.Scalar:
    if t.is_floating(low.type):
        first, last = physical_value(low), physical_value(high)
        if first == last or math.isinf(first) or math.isinf(last):
            return pa.scalar(_of_infinities(first, last, share), pa.float64())
        return pa.scalar(float((1 - share) * Fraction(first) + share * Fraction(last)), pa.float64())
    exact = (1 - share) * physical_value(low) + share * physical_value(high)
    if t.is_temporal(low.type):
        if t.is_date(low.type):
            return integers_array([round(exact * 86_400_000)], class_named("timestamp_ms"))[0]
        return pa.array([round(exact)], pa.int64()).view(low.type)[0]
    scale = low.type.scale if t.is_decimal(low.type) else 0
    return pa.scalar(float(exact / 10**scale), pa.float64())


def _of_infinities(first: float, last: float, share: Fraction) -> float:
    """Between equal values, or where one is infinite: then all that lies between the two is."""
    if first == last or share == 0:
        return first
    return last if math.isinf(last) else first
