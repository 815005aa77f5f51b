"""Frequencies: the distinct values of a column and how often each occurs, their sums, and what follows from them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.errors import CorruptionError
from metastore_assets.iso8601 import temporal_text
from metastore_assets.statistics.runs import CountedRun, sum_counts
from metastore_assets.statistics.user_defined.results import UserResult
from metastore_assets.values.physical import canonical_array, physical_series, sort_key
from metastore_assets.values.types import TypeClass, type_class

PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99)
"""The percentiles that are kept, as percents."""

Percentiles = tuple[tuple[float, pa.Scalar], ...]
"""(fraction, value) by increasing fraction: .01, .05, .1, .25, .5, .75, .9, .95, .99."""


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Exact frequencies of one column's values.

    `values`: of the canonical type of the class, ascending (numeric; bytewise; false before true), distinct, no nulls;
    NaN last, zero as 0.0. `counts`: int64, same length. Positive, except in a difference that is yet to be added.
    """

    values: pa.Array
    counts: pa.Int64Array

    def __eq__(self, other: object) -> bool:
        # Arrow's own equality of arrays takes NaN for different from itself.
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
        """The class of the values; `null` for a column that has none."""
        return type_class(self.values.type)

    def __len__(self) -> int:
        return len(self.values)


EMPTY = Frequencies(pa.nulls(0), pa.array([], pa.int64()))
"""The frequencies of no values of any class: the zero of the sum."""


@dataclass(frozen=True)
class FrequencySummary:
    """What follows from the full list of frequencies, all of it exact. Travels between processes."""

    distinct_count: int
    duplicate_count: int
    """Distinct values that occur more than once."""
    ranked: pa.Array | None
    """The values of `percentiles`, as an array: scalars travel as Python values, of which some are rounded. None where
    values that occur once are not known."""
    user_defined: Mapping[str, UserResult] = field(default_factory=dict)
    """By name, the user-defined statistics that follow from the list and are asked for."""

    @property
    def percentiles(self) -> Percentiles | None:
        """Nearest rank: the smallest value whose cumulative frequency is at least fraction * n, NaN left out. Empty
        when there is no value but NaN, None when they are not known."""
        if self.ranked is None:
            return None
        percents = PERCENTS if len(self.ranked) else ()
        return tuple((percent / 100, value) for percent, value in zip(percents, self.ranked, strict=True))


def run_to_frequencies(run: CountedRun, cls: TypeClass) -> Frequencies:
    """The frequencies that a run of counted values stands for."""
    return Frequencies(canonical_array(run.values, cls), pa.array(run.counts))


def split_frequencies(own: Frequencies, splitters: pa.Array) -> list[Frequencies]:
    """A list in ranges, one more than there are splitters, which ascend: each is the last that a range may have."""
    keys = [sort_key(splitter) for splitter in splitters]
    numbers = range(len(own))
    ends = [bisect_right(numbers, key, key=lambda at: sort_key(own.values[at])) for key in keys]
    bounds = pairwise([0, *ends, len(own)])
    return [Frequencies(own.values[start:stop], own.counts[start:stop]) for start, stop in bounds]


def sum_frequencies(terms: Iterable[tuple[Frequencies, int]]) -> Frequencies:
    """The sum of frequencies, each times its sign (an integer factor, usually +1 or -1). Zeros vanish.

    Associative and commutative. Raises CorruptionError when a value would have a negative frequency, or the terms are
    of more than one type class.
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
    kept = np.flatnonzero(total.counts)
    if len(kept) < len(total.counts):
        total = CountedRun(total.values[kept], total.counts[kept])
    return run_to_frequencies(total, cls)


def _text(value: pa.Scalar) -> str:
    """For people; Python has no dates of all years."""
    return temporal_text(value.value, value.type) if t.is_temporal(value.type) else str(value)[:200]


def summarize_frequencies(frequencies: Frequencies) -> FrequencySummary:
    """Distinct and duplicate values and percentiles of the full list of a column's frequencies."""
    counts = frequencies.counts.to_numpy()
    return FrequencySummary(len(counts), int((counts > 1).sum()), exact_percentiles(frequencies))


def count_nan(frequencies: Frequencies) -> int:
    """How often NaN occurs; 0 for classes without it."""
    if len(frequencies) == 0 or frequencies.values.type != pa.float64():
        return 0
    last = frequencies.values[-1].as_py()
    return frequencies.counts[-1].as_py() if last != last else 0


def exact_percentiles(frequencies: Frequencies) -> pa.Array:
    """The percentiles of values with exact frequencies, by nearest rank; NaN left out. Empty when nothing is left."""
    counts = frequencies.counts.to_numpy()
    if count_nan(frequencies):
        counts = counts[:-1]
    ends = np.cumsum(counts)
    positions = np.searchsorted(ends, nearest_ranks(int(ends[-1]))) if len(ends) else np.empty(0, np.int64)
    return frequencies.values.take(pa.array(positions))


def nearest_ranks(n: int) -> npt.NDArray[np.int64]:
    """1-based rank of each of the percentiles among n > 0 values: the least integer that is at least fraction * n."""
    return np.array([-(-percent * n // 100) for percent in PERCENTS], np.int64)
