"""Histograms count every finite value in its dyadic bin, and merging equals building from all rows.

Dyadic bins are 2**k wide, and begin at multiples of 2**k. The capacity of a histogram is the greatest number of bins
that it may have.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError
from metastore_assets.statistics.histogram import Histogram, build_histogram, histogram_capacity, merge_histograms
from tests.statistics.oracle import plain
from tests.statistics.random_columns import FINITE, KINDS, Kind, integers, profile_one, share

LINES = ["int8", "int64", "uint64", "float64", "decimal128", "decimal128_short", "date32", "time64_ns", "timestamp_us"]


def physical(value: Any, kind: Kind) -> Fraction:
    scale = kind.type.scale if pa.types.is_decimal(kind.type) else 0
    return Fraction(value) * 10**scale


def built(values: list[Any], kind: Kind, capacity: int) -> Histogram | None:
    frequencies = profile_one(kind.array(values)).frequencies
    assert frequencies is not None
    return build_histogram(frequencies, capacity)


@pytest.mark.parametrize("name", LINES)
@share(40)
@given(data=st.data())
def test_bins_are_those_of_the_definition(name: str, data: st.DataObject) -> None:
    """Bin i counts the values from (first + i) * 2**k up to the next bin, where k is the exponent.

    The first and the last bin are not empty. The exponent is not greater than the capacity requires.
    """
    kind = KINDS[name]
    values = data.draw(st.lists(kind.values.filter(lambda v: not isinstance(v, float) or math.isfinite(v)), min_size=1))
    capacity = data.draw(st.integers(2, 40))
    histogram = built(values, kind, capacity)
    assert histogram is not None
    numbers = [physical(value, kind) for value in values]
    width = Fraction(2) ** histogram.exponent
    expected = Counter(math.floor(number / width) - histogram.first for number in numbers)
    assert {at: int(count) for at, count in enumerate(histogram.counts) if count} == dict(expected)
    assert histogram.counts[0] > 0
    assert histogram.counts[-1] > 0
    assert len(histogram) <= capacity
    finer = width / 2
    least = Fraction(1) if name != "float64" else max(Fraction(2) ** -1074, _finest(values))
    assert width == least or math.floor(max(numbers) / finer) - math.floor(min(numbers) / finer) >= capacity


def _finest(values: list[float]) -> Fraction:
    greatest = max(map(abs, values))
    return Fraction(2) ** (math.frexp(greatest)[1] - 53) if greatest else Fraction(0)


@pytest.mark.parametrize("name", LINES)
@share(40)
@given(data=st.data())
def test_merging_equals_building_from_all_rows(name: str, data: st.DataObject) -> None:
    """Merged histograms of parts equal the histogram of all values, in any order and grouping.

    The merged histogram has the smallest capacity of its parts.
    """
    kind = KINDS[name]
    values = data.draw(st.lists(kind.values, max_size=60))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=3)))
    capacities = data.draw(st.lists(st.integers(2, 64), min_size=len(cuts) + 1, max_size=len(cuts) + 1))
    parts = [values[a:b] for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]
    histograms = [built(part, kind, c) for part, c in zip(parts, capacities, strict=True)]
    histograms = data.draw(st.permutations([histogram for histogram in histograms if histogram is not None]))
    assume(histograms)
    scratch = built(values, kind, min(histogram.capacity for histogram in histograms))
    assert merge_histograms(histograms) == scratch
    step_by_step = histograms[0]
    for histogram in histograms[1:]:
        step_by_step = merge_histograms([step_by_step, histogram])
    assert step_by_step == scratch


@given(values=st.lists(FINITE | integers(64).map(float), min_size=1), n=st.integers(2, 100))
def test_rebinning_preserves_bin_boundaries_and_the_total(values: list[float], n: int) -> None:
    """`rebin(n)` gives at most n bins, which count all values and are not wider than necessary.

    Their width is that of a histogram that is built with n bins, or the original width if this is greater.
    """
    histogram = built(values, KINDS["float64"], 2048)
    assert histogram is not None
    coarse = histogram.rebin(n)
    assert len(coarse) <= n
    assert coarse.counts.sum() == len(values)
    assert coarse == histogram or len(histogram.rebin(2 * n)) > n
    assert histogram.rebin(10_000) == histogram
    again = built(values, KINDS["float64"], n)
    assert again is not None
    assert coarse.exponent == max(again.exponent, histogram.exponent)
    if coarse.exponent == again.exponent:
        assert (coarse.first, coarse.counts.tolist()) == (again.first, again.counts.tolist())
    with pytest.raises(ValueError):
        histogram.rebin(1)


@pytest.mark.parametrize("name", LINES)
@share(40)
@given(data=st.data())
def test_edges_have_the_column_type_and_enclose_all_values(name: str, data: st.DataObject) -> None:
    """A histogram of n bins has n + 1 ascending edges, which enclose the minimum and the maximum.

    The edges have the Arrow type to which values of the column's type class are converted, such as int64 for int8.
    """
    kind = KINDS[name]
    values = data.draw(st.lists(kind.values.filter(lambda v: not isinstance(v, float) or math.isfinite(v)), min_size=1))
    histogram = built(values, kind, data.draw(st.integers(2, 40)))
    assert histogram is not None
    edges = histogram.edges()
    assert edges.type == histogram.type_class.arrow
    result = [plain(edge) for edge in edges]
    assert len(result) == len(histogram) + 1
    assert result == sorted(result)
    assert result[0] <= min(values)
    assert result[-1] >= max(values)
    assert len(set(result)) >= len(histogram)


def test_the_last_edge_is_limited_to_the_range_of_the_type() -> None:
    """If the next edge exceeds the type's greatest value, the last bin includes that value."""
    for kind, value in (
        (KINDS["int64"], 2**63 - 1),
        (KINDS["uint64"], 2**64 - 1),
        (KINDS["time64_ns"], 86_399_999_999_999),
    ):
        histogram = built([value], kind, 2)
        assert histogram is not None
        assert [plain(edge) for edge in histogram.edges()][-1] == value
    for sign in (1, -1):
        most = sign * (10**38 - 1)
        histogram = built([most], KINDS["decimal128"], 2)
        assert histogram is not None
        assert histogram.rebin(2) == histogram
        wide = built([most, 0], KINDS["decimal128"], 3)
        assert wide is not None
        assert most in [int(edge.as_py()) for edge in wide.edges()]
    greatest = float(np.finfo(np.float64).max)
    histogram = built([greatest], KINDS["float64"], 2)
    assert histogram is not None
    assert histogram.edges().to_pylist()[-1] == greatest


def test_few_distinct_integers_have_a_bin_each() -> None:
    """If a few integers are close together, each has a separate bin."""
    histogram = built([3, 5, 5], KINDS["int64"], 2048)
    assert histogram is not None
    assert (histogram.exponent, histogram.first, histogram.counts.tolist()) == (0, 3, [1, 0, 2])
    assert histogram.edges().to_pylist() == [3, 4, 5, 6]


def test_tiny_negative_values_stay_below_zero() -> None:
    """A tiny negative value beside a huge one is counted below zero.

    Scaling the tiny value to the width of the bins underflows.
    """
    histogram = built([-5e-324, 1e300], KINDS["float64"], 16)
    assert histogram is not None
    assert (histogram.first, histogram.counts[0], histogram.counts.sum()) == (-1, 1, 2)


def test_capacity_leaves_the_requested_bins() -> None:
    """The capacity is twice the requested number of bins, but at most 10,000.

    With the capacity for 1,000 bins, 1,000 or more consecutive integers have between 1,000 and 2,000 bins.
    """
    assert [histogram_capacity(n) for n in (1000, 1024, 5000, 10_000)] == [2000, 2048, 10_000, 10_000]
    for top in range(1000, 9000, 997):
        histogram = built(list(range(top)), KINDS["int64"], histogram_capacity(1000))
        assert histogram is not None
        assert 1000 <= len(histogram) <= 2000


@pytest.mark.parametrize("array", [pa.array([True]), pa.array(["a"]), pa.nulls(2), pa.array([math.nan, math.inf])])
def test_columns_without_a_histogram(array: pa.Array) -> None:
    """Booleans, text, nulls, and columns without a finite number have no histogram."""
    assert profile_one(array).histogram is None


def test_histograms_of_different_type_classes_are_refused() -> None:
    first, second = built([1], KINDS["int64"], 8), built([1.0], KINDS["float64"], 8)
    assert first is not None
    assert second is not None
    with pytest.raises(CorruptionError, match="float64, int64"):
        merge_histograms([first, second])
