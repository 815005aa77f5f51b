"""Frequencies: each distinct value of a column, with its number of rows.

The functions add, subtract and split frequencies, and compute statistics from them.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type,
the *canonical type*.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.errors import CorruptionError
from metastore_assets.iso8601 import temporal_text
from metastore_assets.statistics.user_defined.results import UserResult
from metastore_assets.statistics.value_runs import CountedRun, sum_counts
from metastore_assets.values.physical import canonical_array, physical_series, sort_key
from metastore_assets.values.types import TypeClass, class_named, type_class

if TYPE_CHECKING:
    from metastore_assets.statistics.column import ColumnStatistics

PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99)
"""The percentiles that are stored, as percents."""

Percentiles = tuple[tuple[float, pa.Scalar], ...]
"""(fraction, value) by increasing fraction: .01, .05, .1, .25, .5, .75, .9, .95, .99."""


@dataclass(frozen=True, eq=False)
class Frequencies:
    """The distinct values of one column with their exact frequencies.

    `values` are ascending, not null, and of the canonical Arrow type of the column's type class. Strings and binary are
    ordered by their bytes, false is before true, NaN is last, and -0.0 is stored as 0.0. `counts` has the frequency of
    each value, at least 1. If an object stands for the difference of two columns' frequencies, counts may be negative.
    """

    values: pa.Array
    counts: pa.Int64Array

    def __eq__(self, other: object) -> bool:
        # Arrow's equality of arrays treats NaN as different from itself.
        return (
            isinstance(other, Frequencies)
            and self.counts.equals(other.counts)
            and self.values.type == other.values.type
            and (
                np.array_equal(self.values.to_numpy(), other.values.to_numpy(), equal_nan=True)
                if self.values.type == pa.float64()
                else self.values.equals(other.values)
            )
        )

    @property
    def type_class(self) -> TypeClass:
        """The type class of the values; `null` for a column without values."""
        return type_class(self.values.type)

    def __len__(self) -> int:
        return len(self.values)


EMPTY = Frequencies(pa.nulls(0), pa.array([], pa.int64()))
"""The frequencies of a column without values. Adding them to other frequencies changes nothing."""


@dataclass(frozen=True)
class FrequencySummary:
    """Exact statistics that are computed from the frequencies of all values.

    Instances can be sent between processes.
    """

    distinct_count: int
    duplicate_count: int
    """The number of distinct values that occur more than once."""
    ranked: pa.Array | None
    """The values of `percentiles` as an array, because pickled scalars lose precision. None if percentiles are unknown,
    because only values that occur at least twice are stored."""
    user_defined: Mapping[str, UserResult] = field(default_factory=dict)
    """Results of the requested user-defined statistics that need frequencies, by name."""

    @property
    def percentiles(self) -> Percentiles | None:
        """(fraction, value) pairs: 0.9 has the least value that at least 90 % of all values do not exceed.

        NaN is ignored. The result is empty if all values are NaN, and None if percentiles are unknown.
        """
        if self.ranked is None:
            return None
        percents = PERCENTS if len(self.ranked) else ()
        return tuple((percent / 100, value) for percent, value in zip(percents, self.ranked, strict=True))


def run_to_frequencies(run: CountedRun, cls: TypeClass) -> Frequencies:
    """Convert a run (ascending distinct values with their counts) to frequencies of the type class `cls`."""
    return Frequencies(canonical_array(run.values, cls), pa.array(run.counts))


def split_frequencies(frequencies: Frequencies, splitters: pa.Array) -> list[Frequencies]:
    """Split frequencies into ranges of values.

    Args:
        frequencies: The frequencies to split.
        splitters: Ascending values; each is the last value of a range.

    Returns:
        The ranges: one more than there are splitters. A range may be empty.
    """
    keys = [sort_key(splitter) for splitter in splitters]
    indices = range(len(frequencies))
    ends = [bisect_right(indices, key, key=lambda at: sort_key(frequencies.values[at])) for key in keys]
    bounds = pairwise([0, *ends, len(frequencies)])
    return [Frequencies(frequencies.values[start:stop], frequencies.counts[start:stop]) for start, stop in bounds]


def sum_frequencies(terms: Iterable[tuple[Frequencies, int]]) -> Frequencies:
    """Return the sum of frequencies, each multiplied by a factor.

    Values with the sum 0 are omitted.

    If only one term has values, and its factor is 1, its frequencies are returned unchanged and unchecked.

    Args:
        terms: (frequencies, integer factor), usually +1 or -1.

    Raises:
        CorruptionError: A value would have a negative frequency, or the terms are of several type classes.
    """
    parts = [(frequencies, sign) for frequencies, sign in terms if len(frequencies)]
    if not parts:
        return EMPTY
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    classes = {frequencies.type_class for frequencies, _ in parts}
    if len(classes) > 1:
        names = ", ".join(sorted(cls.name for cls in classes))
        raise CorruptionError(
            f"frequencies of different type classes cannot be added: {names}; `metastore refresh NAME --full` rebuilds"
        )
    cls = classes.pop()
    values = physical_series(pa.concat_arrays([frequencies.values for frequencies, _ in parts]), cls)
    total = sum_counts(values, np.concatenate([frequencies.counts.to_numpy() * sign for frequencies, sign in parts]))
    if (total.counts < 0).any():
        at = int(np.argmin(total.counts))
        raise CorruptionError(
            f"the value {_text(canonical_array(total.values.slice(at, 1), cls)[0])} would have frequency "
            f"{total.counts[at]}: stored frequencies contradict each other; `metastore refresh NAME --full` rebuilds"
        )
    nonzero = np.flatnonzero(total.counts)
    if len(nonzero) < len(total.counts):
        total = CountedRun(total.values[nonzero], total.counts[nonzero])
    return run_to_frequencies(total, cls)


def _text(value: pa.Scalar) -> str:
    """Return a value as text for messages, also for years beyond those of Python's dates."""
    return temporal_text(value.value, value.type) if t.is_temporal(value.type) else str(value)[:200]


def summarize_frequencies(frequencies: Frequencies) -> FrequencySummary:
    """Return the distinct count, the duplicate count and the percentiles of all values of a column."""
    counts = frequencies.counts.to_numpy()
    return FrequencySummary(len(counts), int((counts > 1).sum()), exact_percentiles(frequencies))


def count_nan(frequencies: Frequencies) -> int:
    """Return the number of NaN values; 0 for classes without NaN."""
    if len(frequencies) == 0 or frequencies.values.type != pa.float64():
        return 0
    last = frequencies.values[-1].as_py()
    return frequencies.counts[-1].as_py() if last != last else 0


def exact_percentiles(frequencies: Frequencies) -> pa.Array:
    """Return the values at the percentiles `PERCENTS`, by nearest rank among all values except NaN.

    The result is empty if the column has no values except NaN.
    """
    counts = frequencies.counts.to_numpy()
    if count_nan(frequencies):
        counts = counts[:-1]
    ends = np.cumsum(counts)
    positions = np.searchsorted(ends, nearest_ranks(int(ends[-1]))) if len(ends) else np.empty(0, np.int64)
    return frequencies.values.take(pa.array(positions))


def nearest_ranks(n: int) -> npt.NDArray[np.int64]:
    """Return the 1-based rank of each of `PERCENTS` among n > 0 values: percent / 100 * n, rounded up."""
    return np.array([-(-percent * n // 100) for percent in PERCENTS], np.int64)


def derive_counts(
    cls: TypeClass, value_count: int, nan_count: int | None, true_count: int | None, *, is_constant: bool
) -> tuple[int, int] | None:
    """Return the frequencies of a column's two possible values: both booleans, or one value and NaN.

    Args:
        cls: Type class of the column.
        value_count: Number of values that are not null, NaN included.
        nan_count: Number of NaN; None counts as 0.
        true_count: Number of true booleans; None if unknown.
        is_constant: Whether minimum and maximum are exact, and are equal or both missing.

    Returns:
        (count of false, count of true), or (count of the only value, count of NaN). None if the counts are unknown, or
        if there may be other values.
    """
    if cls.kind == "boolean" and true_count is not None:
        return value_count - true_count, true_count
    if is_constant:
        return value_count - (nan_count or 0), nan_count or 0
    return None


def derive_frequencies(row: ColumnStatistics) -> Frequencies | None:
    """Return the frequencies of a column's values, if the counts in the column's row determine them.

    The counts determine the frequencies of booleans, and of a column with only one value besides NaN. The result is
    None for any other column, for a column without values, and if a necessary count is unknown.
    """
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


@dataclass(frozen=True)
class SpreadCounts:
    """The exact numbers of distinct, repeated and unique values, and the entropy.

    A repeated value is a distinct value that occurs more than once. A unique value occurs once. NaN is a value, null is
    not.
    """

    distinct_count: int
    duplicate_count: int
    """The number of distinct values that occur more than once."""
    singleton_count: int
    """The number of distinct values that occur once."""
    entropy: float
    """Shannon entropy in bits: 0 if there is at most one distinct value, log2(n) if all n values differ."""


def measure_spread(counts: Iterable[tuple[int, int]]) -> SpreadCounts:
    """Return the numbers of distinct, repeated and unique values of a column, and its entropy.

    A repeated value is a distinct value that occurs more than once. A unique value occurs once.

    Args:
        counts: (frequency, number of distinct values with this frequency).
    """
    pairs = list(counts)
    distinct = sum(number for _, number in pairs)
    singletons = sum(number for frequency, number in pairs if frequency == 1)
    rows = sum(frequency * number for frequency, number in pairs)
    if not rows:
        return SpreadCounts(0, 0, 0, 0.0)
    # An exact sum does not depend on the order of the counts.
    information = math.fsum(number * frequency * math.log2(frequency) for frequency, number in pairs)
    return SpreadCounts(distinct, distinct - singletons, singletons, max(0.0, math.log2(rows) - information / rows))
