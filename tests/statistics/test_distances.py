"""Distances between distributions equal those of DuckDB and of exact fractions.

They also obey mathematical laws.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.statistics.distances import (
    align_bins,
    group_bins,
    jensen_shannon,
    kolmogorov_smirnov,
    population_stability_index,
)
from metastore_assets.statistics.histogram import Histogram, build_histogram_of_values
from metastore_assets.values.types import class_named
from tests.statistics.random_columns import share

Distance = Callable[[Sequence[int], Sequence[int]], float]
DISTANCES: list[Distance] = [population_stability_index, kolmogorov_smirnov, jensen_shannon]
COUNTS = st.one_of(st.integers(0, 5), st.integers(0, 2**62))


@st.composite
def pairs(draw: st.DrawFn, groups: int = 2) -> list[list[int]]:
    size = draw(st.integers(1, 12))
    some = st.lists(COUNTS, min_size=size, max_size=size).filter(any)
    return [draw(some) for _ in range(groups)]


def in_duckdb(a: list[int], b: list[int]) -> tuple[float, float, float]:
    """Return the distances of two histograms, in the order of `DISTANCES`, computed in SQL.

    The SQL computes them from counts per bin. The population stability index replaces shares below 0.0001 by 0.0001.
    """
    rows = ", ".join(f"({at}, {p}::double, {q}::double)" for at, (p, q) in enumerate(zip(a, b, strict=True)))
    [result] = duckdb.sql(f"""
        with shares as (select bin, a / sum(a) over () as p, b / sum(b) over () as q from (values {rows}) t(bin, a, b)),
        cumulated as (select abs(sum(p) over (order by bin) - sum(q) over (order by bin)) as difference from shares)
        select
          (select sum((greatest(p, 1e-4) - greatest(q, 1e-4)) * ln(greatest(p, 1e-4) / greatest(q, 1e-4))) from shares),
          (select max(difference) from cumulated),
          (select sqrt(greatest(0, sum(
              coalesce(case when p > 0 then p * log2(2 * p / (p + q)) end, 0)
            + coalesce(case when q > 0 then q * log2(2 * q / (p + q)) end, 0)) / 2)) from shares)
    """).fetchall()
    return result


@share(30)
@given(pairs())
def test_distances_equal_those_of_duckdb(pair: list[list[int]]) -> None:
    for distance, expected in zip(DISTANCES, in_duckdb(*pair), strict=True):
        # Shares have rounding errors of 1e-16, whose square root is 1e-8.
        assert distance(*pair) == pytest.approx(expected, rel=1e-7, abs=3e-8)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # Shares .6, .2, .2 and .4, .2, .4, whose means are .5, .2, .3; 1.2 and .8 are their ratios to .5, and so on.
        (
            [6, 2, 2],
            [4, 2, 4],
            (
                0.2 * math.log(1.5) + 0.2 * math.log(2),
                0.2,
                math.sqrt(
                    (0.6 * math.log2(1.2) + 0.2 * math.log2(2 / 3) + 0.4 * math.log2(0.8) + 0.4 * math.log2(4 / 3)) / 2
                ),
            ),
        ),
        ([1, 0], [0, 1], (2 * 0.9999 * math.log(1 / 0.0001), 1.0, 1.0)),
        ([3, 1], [300, 100], (0.0, 0.0, 0.0)),
    ],
)
def test_distances_equal_hand_computed_values(a: list[int], b: list[int], expected: tuple[float, float, float]) -> None:
    assert [distance(a, b) for distance in DISTANCES] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("distance", DISTANCES)
@share(40)
@given(pairs(3), st.integers(1, 1000))
def test_distances_obey_the_laws_of_metrics(distance: Distance, counts: list[list[int]], factor: int) -> None:
    """Distances are symmetric, not negative, and 0 for equal shares of different totals.

    Except for the population stability index, they are at most 1 and obey the triangle inequality.
    """
    a, b, c = counts
    result = distance(a, b)
    assert result == pytest.approx(distance(b, a), rel=1e-9, abs=1e-12)
    assert distance(a, [count * factor for count in a]) == pytest.approx(0, abs=1e-7)
    assert result >= 0
    if distance is not population_stability_index:
        assert result <= 1
        assert distance(a, c) <= result + distance(b, c) + 1e-7


@share(40)
@given(pairs())
def test_kolmogorov_smirnov_equals_exact_fractions(pair: list[list[int]]) -> None:
    a, b = pair
    differences = [abs(Fraction(sum(a[: at + 1]), sum(a)) - Fraction(sum(b[: at + 1]), sum(b))) for at in range(len(a))]
    assert kolmogorov_smirnov(a, b) == pytest.approx(float(max(differences)), abs=1e-12)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1], [1, 2], r"\b1\b.*\b2\b"),
        ([], [], r"\bfirst\b.*\bbin\b"),
        ([1, 2], [0, 0], r"\bsecond\b.*\b0\b"),
        ([1, -1], [1, 1], r"\bfirst\b.*\bfinite\b"),
        ([1, 1], [1, math.nan], r"\bsecond\b.*\bfinite\b"),
        ([1, 1], [math.inf, 1], r"\bsecond\b.*\bfinite\b"),
        ([[1, 2]], [[1, 2]], r"\bfirst\b.*\bbin\b"),
    ],
)
def test_columns_without_a_distance_have_a_reason(distance: Distance, a: list[int], b: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distance(a, b)


VALUES = st.lists(st.one_of(st.integers(-30, 30), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=30)


def built(values: list[int], capacity: int) -> Histogram:
    sorted_counts = sorted(Counter(values).items())
    numbers = np.array([value for value, _ in sorted_counts], np.int64)
    histogram = build_histogram_of_values(
        numbers, np.array([n for _, n in sorted_counts], np.int64), class_named("int64"), capacity
    )
    assert histogram is not None
    return histogram


@share(60)
@given(VALUES, VALUES, st.integers(2, 40), st.integers(2, 40), st.none() | st.integers(2, 40))
def test_aligned_bins_count_the_values(
    a: list[int], b: list[int], left_capacity: int, right_capacity: int, most: int | None
) -> None:
    """`align_bins` gives two histograms the same bins, which count the values of each.

    Bin i counts the values from (first + i) * 2**exponent up to the next bin. There are at most `most` bins or, if
    `most` is None, at most as many as the larger of the two capacities. The capacity of a histogram is the greatest
    number of its bins. Bins are not wider than necessary.
    """
    bins = align_bins(built(a, left_capacity), built(b, right_capacity), most)
    for values, counts in ((a, bins.left), (b, bins.right)):
        expected = Counter(value // 2**bins.exponent - bins.first for value in values)
        assert {at: count for at, count in enumerate(counts.tolist()) if count} == expected
    assert len(bins.left) == len(bins.right) == len(bins) <= (most or max(left_capacity, right_capacity))
    finest = max(built(a, left_capacity).exponent, built(b, right_capacity).exponent)
    everything = [value >> (bins.exponent - 1) for value in a + b] if bins.exponent > finest else []
    assert not everything or max(everything) - min(everything) >= (most or max(left_capacity, right_capacity)), (
        "bins are coarser than necessary"
    )


def test_histograms_of_different_units_have_no_bins_in_common() -> None:
    days = build_histogram_of_values(np.array([1]), np.array([1]), class_named("date"), 10)
    assert days is not None
    with pytest.raises(ValueError, match=r"int64.*date"):
        align_bins(built([1], 10), days)
    with pytest.raises(ValueError, match=r"\b2\b"):
        align_bins(built([1], 10), built([1], 10), 1)


@share(60)
@given(pairs(), st.integers(1, 12))
def test_groups_have_about_equal_shares(pair: list[list[int]], groups: int) -> None:
    """At most `groups` groups of bins have values of the baseline, and the groups cover all bins.

    The baseline is the first of the two distributions. The share of its values in one group is at most 1 / `groups`
    plus the share of its values in the fullest bin.
    """
    baseline, other = pair
    left, right = group_bins(baseline, other, groups)
    assert len(left) == len(right) <= groups + 2
    assert sum(count > 0 for count in left) <= groups
    assert (sum(left), sum(right)) == pytest.approx((sum(baseline), sum(other)))
    heaviest = max(baseline) / sum(baseline)
    assert all(count / sum(baseline) <= 1 / groups + heaviest + 1e-6 for count in left)


def test_values_outside_the_baseline_form_separate_groups() -> None:
    """Values outside the range of the baseline form up to two separate groups.

    The baseline is the first of the two distributions. If the second distribution has values below the range of the
    baseline, the bins there form one group. The same holds above the range.
    """
    left, right = group_bins([0, 1, 1, 1, 1, 0], [7, 1, 2, 3, 4, 5], 2)
    assert (left.tolist(), right.tolist()) == ([0, 2, 2, 0], [7, 3, 7, 5])
    left, right = group_bins([0, 0, 1, 1, 0], [0, 0, 1, 1, 0], 2)
    assert (left.tolist(), right.tolist()) == ([1, 1], [1, 1])
    assert population_stability_index(*group_bins([100, 0], [100, 30], 10)) > 0.25
    with pytest.raises(ValueError, match=r"\b1 group"):
        group_bins([1], [1], 0)
