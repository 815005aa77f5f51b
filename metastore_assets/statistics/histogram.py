"""Histograms whose bins have the width 2**k.

Edges are multiples of the width, so any two histograms merge exactly.

The exponent k depends only on the minimum, the maximum and the capacity, which is the maximum number of bins. It is the
smallest k with at most `capacity` bins from floor(minimum / 2**k) to floor(maximum / 2**k). For values that are stored
as integers, k is at least 0. For floats, 2**k is at least the distance of neighbouring doubles at the value of greatest
magnitude. So a merged histogram equals the one that is built from all rows at once.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type.

The *policy* of a column decides which of its statistics and values are stored.

A *table of states* has the statistics of a set of rows in mergeable form, with one row per column of the data table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.errors import CorruptionError
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.interface import BuiltinStatistic, ColumnContext, Fold
from metastore_assets.statistics.merge_rules import MergeParts
from metastore_assets.statistics.moments import rounded_ratio
from metastore_assets.statistics.power_sums import magnitude, scale_by_power_of_two
from metastore_assets.values.physical import Numbers, build_list_array, integers_array, numbers, split_lists
from metastore_assets.values.types import TypeClass, class_named

if TYPE_CHECKING:
    from metastore_assets.config import ResolvedPolicy
    from metastore_assets.statistics.blocks import ValueBlock

MAX_BINS = 10_000


@dataclass(frozen=True, eq=False)
class Histogram:
    """Frequencies of a column's finite values in bins of equal width.

    NaN and infinities are in no bin.

    Bin i has the values v with  (first + i) * 2**exponent <= v < (first + i + 1) * 2**exponent. Decimals are unscaled,
    dates are in days, times and timestamps in their unit. `counts` has an item per bin, 0 for an empty one. The first
    and the last bin are never empty. There are at most `capacity` bins.
    """

    type_class: TypeClass
    exponent: int
    first: int
    counts: npt.NDArray[np.int64]
    capacity: int

    def __len__(self) -> int:
        return len(self.counts)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Histogram)
            and (self.type_class, self.exponent, self.first, self.capacity)
            == (other.type_class, other.exponent, other.first, other.capacity)
            and np.array_equal(self.counts, other.counts)
        )

    def edges(self) -> pa.Array:
        """Return the ascending bin edges, one more than there are bins, as values of the type class.

        Bin i is from edge i (inclusive) to edge i + 1 (exclusive). Edges are limited to the range of the type class,
        such as that of 64-bit integers. If the last edge is limited, the last bin includes it.
        """
        return self._values(np.arange(len(self) + 1))

    def minima(self, bins: npt.NDArray[np.intp]) -> pa.Array:
        """Return the lower edges of bins as values of the column's type class.

        Edges are limited to the range of the class.

        Args:
            bins: Ascending indices of bins. The first bin of the histogram has the index 0.
        """
        return self._values(bins)

    def _values(self, bins: npt.NDArray[np.intp]) -> pa.Array:
        """Return the lower edges of bins as values of the type class.

        Edges are limited to the range of the class.

        Args:
            bins: Ascending indices of bins. The first bin of the histogram has the index 0.
        """
        ends = (self.first + int(bins[0]), self.first + int(bins[-1])) if len(bins) else (0, 0)
        bits = max(end.bit_length() for end in ends)
        if self.type_class.kind == "float":
            greatest = np.finfo(np.float64).max
            if bits <= 53:  # The integer is exact as a double, so that only the result is rounded.
                with np.errstate(over="ignore", under="ignore"):
                    edges = np.ldexp((self.first + bins).astype(np.float64), self.exponent)
                return pa.array(np.clip(edges, -greatest, greatest))
            exact = (rounded_ratio(self.first + at, 1, self.exponent) for at in bins.tolist())
            return pa.array([max(-greatest, min(edge, greatest)) for edge in exact], pa.float64())
        low, high = self.type_class.physical_range
        if bits + self.exponent < 63:
            edges_in_units = (self.first + bins) << self.exponent
            return integers_array(np.clip(edges_in_units, max(low, -(2**63)), min(high, 2**63 - 1)), self.type_class)
        values = [max(low, min((self.first + at) << self.exponent, high)) for at in bins.tolist()]
        return integers_array(values, self.type_class)

    def rebin(self, n: int) -> Histogram:
        """Return the histogram with at most n bins, which are wider if necessary.

        The result has at least n / 2 bins if this histogram has that many.

        Raises:
            ValueError: n < 2. No bin contains both negative and positive values, so one bin may not suffice.
        """
        if n < 2:
            raise ValueError(f"a histogram has at least 2 bins, not {n}")
        return self.coarsened(_merged_exponent([self], n))

    def coarsened(self, exponent: int) -> Histogram:
        """Return the histogram with wider bins, of width 2**exponent, and the same capacity.

        `exponent` must be at least that of this histogram, because bins can be merged, but not split.
        """
        return _coarsen(self, exponent, self.capacity)


def limit_bins(histogram: Histogram, capacity: int) -> Histogram:
    """Return the histogram of the same values with at most `capacity` bins.

    A histogram whose own capacity is not larger is returned unchanged.
    """
    if histogram.capacity <= capacity:
        return histogram
    return _coarsen(histogram, _merged_exponent([histogram], capacity), capacity)


def histogram_capacity(bins: int) -> int:
    """Return the maximum number of bins of a histogram for which a policy asks for `bins` bins.

    The capacity is twice `bins`, because a merge can halve the number of bins. It is at most `MAX_BINS`.
    """
    return min(2 * bins, MAX_BINS)


def build_histogram(frequencies: Frequencies, capacity: int) -> Histogram | None:
    """Return the histogram of a column from its frequencies.

    Args:
        frequencies: All distinct values of the column with their counts.
        capacity: Maximum number of bins, at least 2.

    Returns:
        The histogram; None for booleans, strings, binary values and UUIDs, or if there is no finite value.
    """
    cls = frequencies.type_class
    if not cls.is_ordinal:
        return None
    return build_histogram_of_values(numbers(frequencies.values, cls), frequencies.counts.to_numpy(), cls, capacity)


def build_histogram_of_values(
    values: Numbers, counts: npt.NDArray[np.int64], cls: TypeClass, capacity: int
) -> Histogram | None:
    """Return the histogram of numbers, dates or times with their counts.

    Args:
        values: Ascending numbers as they are stored: decimals unscaled, dates in days. NaN and infinities are ignored.
        counts: How often each value occurs.
        cls: The type class of the values, of kind `integer` or `float`.
        capacity: Maximum number of bins, at least 2.

    Returns:
        The histogram; None if there is no finite value.
    """
    if cls.kind == "float":
        finite = np.isfinite(values)
        values, counts = values[finite], counts[finite]
    if len(values) == 0:
        return None
    exponent = _exponent(values, capacity)
    indices = _indices(values, exponent)
    first = int(indices[0])
    starts = np.flatnonzero(np.concatenate([[True], indices[1:] != indices[:-1]]))
    dense = np.zeros(int(indices[-1]) - first + 1, np.int64)
    dense[(indices[starts] - indices[0]).astype(np.intp)] = np.add.reduceat(counts, starts)
    return Histogram(cls, exponent, first, dense, capacity)


def bin_numbers(values: Numbers, exponent: int, first: int) -> npt.NDArray[np.intp]:
    """Return the index of the bin of each value.

    Args:
        values: Numbers as they are stored: decimals unscaled, dates in days.
        exponent: Bins have the width 2**exponent.
        first: The bin with index 0 starts at first * 2**exponent.
    """
    return (_indices(values, exponent) - first).astype(np.intp)


def merge_histograms(histograms: Sequence[Histogram]) -> Histogram:
    """Merge one or more histograms of disjoint sets of rows and of one type class.

    The result has the smallest of their capacities. It equals the histogram that `build_histogram` builds from all rows
    with that capacity, so order and grouping of merges do not matter.

    Raises:
        CorruptionError: The type classes differ.
    """
    classes = sorted({histogram.type_class.name for histogram in histograms})
    if len(classes) != 1:
        raise CorruptionError(f"histograms of different type classes cannot be added: {', '.join(classes)}")
    capacity = min(histogram.capacity for histogram in histograms)
    exponent = _merged_exponent(histograms, capacity)
    parts = [_coarsen(histogram, exponent, capacity) for histogram in histograms]
    first = min(part.first for part in parts)
    counts = np.zeros(max(part.first + len(part) for part in parts) - first, np.int64)
    for part in parts:
        counts[part.first - first : part.first - first + len(part)] += part.counts
    return Histogram(parts[0].type_class, exponent, first, counts, capacity)


def _merged_exponent(histograms: Sequence[Histogram], capacity: int) -> int:
    """Return the exponent k of the histogram that results from merging histograms.

    It is the least k, not below any histogram's exponent, for which `capacity` bins of width 2**k cover all of them.
    """
    exponent = max(histogram.exponent for histogram in histograms)
    firsts = [histogram.first >> (exponent - histogram.exponent) for histogram in histograms]
    lasts = [(h.first + len(h) - 1) >> (exponent - h.exponent) for h in histograms]
    first, last = min(firsts), max(lasts)
    while last - first >= capacity:
        exponent, first, last = exponent + 1, first >> 1, last >> 1
    return exponent


def _coarsen(histogram: Histogram, exponent: int, capacity: int) -> Histogram:
    """Return the histogram with the given capacity and bins of width 2**exponent.

    The exponent must not be less than that of the histogram, because bins cannot be split.
    """
    shift = exponent - histogram.exponent
    if not shift:
        return replace(histogram, capacity=capacity)
    first = histogram.first >> shift
    last = (histogram.first + len(histogram) - 1) >> shift
    counts = np.zeros(last - first + 1, np.int64)
    # Positions within the histogram are small, however far from zero it lies. So the positions are shifted.
    inside = (
        (np.arange(len(histogram)) + (histogram.first - (first << shift))) >> shift
        if shift < 62
        else (np.array([((histogram.first + i) >> shift) - first for i in range(len(histogram))]))
    )
    np.add.at(counts, inside, histogram.counts)
    return Histogram(histogram.type_class, exponent, first, counts, capacity)


def _exponent(values: Numbers, capacity: int) -> int:
    """Return the exponent of the bins, which is the k of the module's docstring.

    The values are ascending.
    """
    if values.dtype == np.float64:
        (low, low_exponent), (high, high_exponent) = (_integer_form(float(values[at])) for at in (0, -1))
        # The bins are no finer than the doubles of the greatest magnitude, so that indices stay within 2**53.
        exponent = max(-1074, magnitude(values) - 53) if values[0] or values[-1] else -1074
        first, last = _floor(low, low_exponent - exponent), _floor(high, high_exponent - exponent)
    else:
        exponent, first, last = 0, int(values[0]), int(values[-1])
    while last - first >= capacity:
        exponent, first, last = exponent + 1, first >> 1, last >> 1
    return exponent


def _indices(values: Numbers, exponent: int) -> Numbers:
    """Return floor(value / 2**exponent) for each value: the index of its bin if bin 0 starts at 0."""
    if values.dtype == np.float64:
        indices = np.floor(scale_by_power_of_two(values, -exponent)).astype(np.int64)
        # A negative value much smaller than a bin underflows to zero when it is scaled.
        return np.where((values < 0) & (indices >= 0), -1, indices)
    if values.dtype == object:
        return values >> exponent
    return values >> values.dtype.type(exponent)


def _integer_form(value: float) -> tuple[int, int]:
    """Return (mantissa, exponent) with value == mantissa * 2**exponent, exactly."""
    fraction, exponent = math.frexp(value)
    return int(math.ldexp(fraction, 53)), exponent - 53


def _floor(mantissa: int, shift: int) -> int:
    return mantissa << shift if shift >= 0 else mantissa >> -shift


@dataclass
class HistogramState:
    """The maximum number of bins, and the histograms of the blocks that were added so far."""

    capacity: int
    histograms: Fold[Histogram]


class HistogramStatistic(BuiltinStatistic[HistogramState]):
    """The histogram of a column.

    It is no field of `ColumnStatistics`, because it is stored in a separate file.
    """

    name = "histogram"
    version = "1"
    state_schema = pa.schema(
        [
            ("histogram_exponent", pa.int32()),
            ("histogram_first", pa.string()),  # text, because a decimal of 38 digits exceeds 64 bits
            ("histogram_capacity", pa.int32()),
            ("histogram_counts", pa.list_(pa.int64())),
        ]
    )

    def applies_to(self, cls: TypeClass, policy: ResolvedPolicy) -> bool:
        """Return whether the values are numbers, dates or times, and the policy stores histograms."""
        return cls.is_ordinal and policy.histogram != "off"

    def initial(self, context: ColumnContext) -> HistogramState:
        assert context.policy.histogram != "off"
        return HistogramState(histogram_capacity(context.policy.histogram), Fold(merge_histograms))

    def update(self, state: HistogramState, block: ValueBlock) -> HistogramState:
        values = block.without_nan
        if len(values) and values.numbers is not None:
            histogram = build_histogram_of_values(values.numbers, values.counts, values.cls, state.capacity)
            state.histograms.add(histogram)
        return state

    def to_fields(self, state: HistogramState, row: ColumnStatistics) -> Mapping[str, Any]:
        return {}

    def merge(self, parts: MergeParts, merged_columns: Mapping[str, Any]) -> Mapping[str, pa.Array]:
        """Return the merged histogram of each column, encoded as by `encode_states`.

        Parts without one are ignored.
        """
        by_part = [decode_histograms(table) for table in parts.tables]
        histograms: list[Histogram | None] = []
        for at, flags in enumerate(parts.typed.T.tolist()):
            present = [part[at] for part, flag in zip(by_part, flags, strict=True) if flag]
            column_histograms = [histogram for histogram in present if histogram is not None]
            histograms.append(merge_histograms(column_histograms) if column_histograms else None)
        return dict(zip(self.state_schema.names, self.encode_states([], histograms), strict=True))

    def encode_states(
        self, rows: Sequence[ColumnStatistics], histograms: Sequence[Histogram | None]
    ) -> Sequence[pa.Array]:
        """Return four arrays: the exponents, first bins, capacities and counts of the histograms.

        Each array has an item per histogram, which is null for None.
        """
        return [
            pa.array([None if histogram is None else histogram.exponent for histogram in histograms], pa.int32()),
            pa.array([None if histogram is None else str(histogram.first) for histogram in histograms], pa.string()),
            pa.array([None if histogram is None else histogram.capacity for histogram in histograms], pa.int32()),
            build_list_array([None if histogram is None else histogram.counts for histogram in histograms], np.int64),
        ]

    def decode_states(self, table: pa.Table) -> Mapping[str, list[Any]]:
        """Return no fields; `decode_histograms` reads histograms."""
        return {}


def decode_histograms(table: pa.Table) -> list[Histogram | None]:
    """Return the histogram of each row of a table of states; None for a row without one."""
    offsets, counts = split_lists(table["histogram_counts"])
    names = ("type_class", "histogram_exponent", "histogram_first", "histogram_capacity")
    columns = (table[name].to_pylist() for name in names)
    entries = zip(*columns, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return [
        None if exponent is None else Histogram(class_named(cls), exponent, int(first), counts[start:stop], capacity)
        for cls, exponent, first, capacity, start, stop in entries
    ]
