"""Merged profiles of parts equal the profile of all rows.

This holds for any split of the rows and any grouping of the merges.

A profile is the statistics of the columns in a set of rows, such as a file, a partition or the table. A policy says
which statistics of a column are computed and stored.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import ColumnPolicy
from metastore_assets.errors import CorruptionError
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.distinct import estimate_distinct
from metastore_assets.statistics.finalize import apply_summary, max_distinct, restrict_to_policy
from metastore_assets.statistics.frequencies import Frequencies, sum_frequencies, summarize_frequencies
from metastore_assets.statistics.histogram import merge_histograms
from metastore_assets.statistics.merge import merge_states
from metastore_assets.statistics.moments import decode_moments
from metastore_assets.statistics.profile import ColumnProfile
from tests.statistics.oracle import Facts, plain, root, rounded
from tests.statistics.random_columns import FINITE, KINDS, merge_statistics, profile, profile_one, rows, share

ESTIMATED = {"distinct_count", "distinct_count_guarantee", "duplicate_count", "percentiles", "percentiles_guarantee"}
ROUNDED = {"skewness", "kurtosis"}
STATES = {"moments", "quantile_sketch"}


def parts_of(data: st.DataObject, values: list[Any], most: int = 6) -> list[list[Any]]:
    """Distribute the values at random over up to `most` parts, some of which may be empty."""
    count = data.draw(st.integers(1, most), label="parts")
    part_numbers = data.draw(
        st.lists(st.integers(0, count - 1), min_size=len(values), max_size=len(values)), label="places"
    )
    return [[v for v, at in zip(values, part_numbers, strict=True) if at == part] for part in range(count)]


def merged_in_any_order(data: st.DataObject, children: list[ColumnStatistics]) -> ColumnStatistics:
    """Merge random groups of statistics until one is left."""
    children = data.draw(st.permutations(children), label="order")
    while len(children) > 1:
        size = data.draw(st.integers(1, len(children)), label="group")
        children = [*children[size:], merge_statistics(children[:size])]
    return children[0]


def assert_equal_rows(result: ColumnStatistics, expected: ColumnStatistics, ignored_fields: set[str]) -> None:
    for field in fields(ColumnStatistics):
        if field.name not in ignored_fields:
            left, right = getattr(result, field.name), getattr(expected, field.name)
            both_nan = left != left and right != right
            assert left == right or both_nan, field.name


@pytest.mark.parametrize("name", KINDS)
@share(30)
@given(data=st.data())
def test_merged_equals_from_scratch(name: str, data: st.DataObject) -> None:
    """Exact statistics of merged parts equal those of all values bit for bit, and estimates are marked.

    Skewness and kurtosis are equal up to rounding.
    """
    kind = KINDS[name]
    values = data.draw(rows(kind, 30))
    children = [profile_one(kind.array(part)) for part in parts_of(data, values)]
    scratch = profile_one(kind.array(values))
    merged_statistics = merged_in_any_order(data, [child.statistics for child in children])

    assert_equal_rows(merged_statistics, scratch.statistics, ESTIMATED | ROUNDED | STATES)
    check_shape(merged_statistics, scratch.statistics, len(values))
    check_estimates(merged_statistics, scratch.statistics)
    check_moments(merged_statistics, scratch.statistics)
    check_with_facts(merged_statistics, scratch, children)
    histograms = [child.histogram for child in children if child.histogram is not None]
    assert (merge_histograms(histograms) if histograms else None) == scratch.histogram


def check_shape(merged_statistics: ColumnStatistics, scratch: ColumnStatistics, n: int) -> None:
    for left, right in ((merged_statistics.skewness, scratch.skewness), (merged_statistics.kurtosis, scratch.kurtosis)):
        assert (left is None) == (right is None)
        assert left is None or left == pytest.approx(right, rel=1e-9, abs=1e-9 * math.sqrt(n))


def check_estimates(merged_statistics: ColumnStatistics, scratch: ColumnStatistics) -> None:
    assert merged_statistics.distinct_count is not None
    assert scratch.distinct_count is not None
    if merged_statistics.distinct_count_guarantee == "exact":
        assert (merged_statistics.distinct_count, merged_statistics.duplicate_count) == (
            scratch.distinct_count,
            scratch.duplicate_count,
        )
        assert merged_statistics.percentiles == scratch.percentiles
        return
    assert merged_statistics.distinct_count_guarantee == "estimate"
    assert merged_statistics.duplicate_count is None
    assert abs(merged_statistics.distinct_count - scratch.distinct_count) <= 2 + 0.1 * scratch.distinct_count
    if merged_statistics.percentiles is None:
        assert merged_statistics.percentiles_guarantee == "absent"
        return
    assert merged_statistics.percentiles_guarantee == "estimate"
    estimates = [plain(value) for _, value in merged_statistics.percentiles]
    assert estimates == sorted(estimates)
    assert plain(scratch.minimum) <= estimates[0]
    assert estimates[-1] <= plain(scratch.maximum)


def check_moments(merged_statistics: ColumnStatistics, scratch: ColumnStatistics) -> None:
    assert (merged_statistics.moments is None) == (scratch.moments is None)
    if merged_statistics.moments is not None and scratch.moments is not None:
        left, right = decode_moments(merged_statistics.moments), decode_moments(scratch.moments)
        assert (left.n, left.infinities) == (right.n, right.infinities)
        low = min(left.base, right.base)
        assert left.s1 << (left.base - low) == right.s1 << (right.base - low)
        assert left.s2 << 2 * (left.base - low) == right.s2 << 2 * (right.base - low)


def check_with_facts(
    merged_statistics: ColumnStatistics, scratch: ColumnProfile, children: list[ColumnProfile]
) -> None:
    """Assert that merged statistics, corrected by the frequencies of the parts, equal those of all rows.

    The frequencies of the parts are summed, and exact statistics computed from the sum replace estimates. `scratch` has
    the statistics of all rows. Skewness, kurtosis, the stored moments and the quantile sketch may differ.
    """
    assert scratch.frequencies is not None
    assert merged_statistics.frequencies == "enumerated"
    total = sum_frequencies([(child.frequencies, 1) for child in children if child.frequencies is not None])
    if len(total) or len(scratch.frequencies):
        assert total == scratch.frequencies
    with_facts = apply_summary(merged_statistics, summarize_frequencies(total))
    assert_equal_rows(with_facts, scratch.statistics, ROUNDED | STATES)


@given(data=st.data())
def test_floats_merge_without_rounding(data: st.DataObject) -> None:
    """Sum and mean are correctly rounded for any grouping, so that results are equal.

    The standard deviation has a relative error of at most 1e-15.
    """
    values = data.draw(st.lists(FINITE, min_size=2, max_size=30))
    children = [profile_one(pa.array(part, pa.float64())).statistics for part in parts_of(data, values)]
    merged_statistics = merged_in_any_order(data, children)
    expected = Facts(values)
    assert merged_statistics.sum is not None
    assert float(merged_statistics.sum) == rounded(expected.exact_sum)
    assert merged_statistics.mean == rounded(expected.mean)
    deviation = root(expected.central(2) / (len(values) - 1))
    assert merged_statistics.standard_deviation == pytest.approx(deviation, rel=1e-15, abs=0)


@given(data=st.data())
def test_merging_many_is_commutative(data: st.DataObject) -> None:
    values = data.draw(st.lists(FINITE, max_size=40))
    children = [profile_one(pa.array(part, pa.float64())).statistics for part in parts_of(data, values)]
    children = [replace(child, position=at) for at, child in enumerate(children)]
    assert merge_statistics(data.draw(st.permutations(children))) == merge_statistics(children)


def test_merging_one_child_or_adding_empty_children_changes_nothing() -> None:
    """A single part is returned unchanged, and parts without values add only their nulls.

    The nulls change the null count and the multiset hash.
    """
    child = profile_one(pa.array([1.0, 2.0, 2.0, None])).statistics
    empty = profile_one(pa.nulls(3, pa.float64())).statistics
    assert merge_statistics([child]) is child
    merged_statistics = merge_statistics([empty, child, empty])
    assert merged_statistics == replace(child, null_count=7, multiset_hash=merged_statistics.multiset_hash)
    assert merged_statistics.distinct_count_guarantee == "exact"
    assert (
        merged_statistics.multiset_hash == profile_one(pa.array([1.0, 2.0, 2.0] + [None] * 7)).statistics.multiset_hash
    )


def test_a_column_of_type_null_merges_with_any_type() -> None:
    void_statistics, typed_statistics = (
        profile_one(pa.nulls(2)).statistics,
        profile_one(pa.array([None], pa.int8())).statistics,
    )
    merged_statistics = merge_statistics([void_statistics, typed_statistics])
    assert (merged_statistics.type_class, merged_statistics.null_count) == ("int64", 3)
    merged_statistics = merge_statistics([void_statistics, profile_one(pa.array(["a"])).statistics])
    assert (merged_statistics.type_class, merged_statistics.null_count, merged_statistics.value_count) == (
        "string",
        2,
        1,
    )


def test_widened_columns_merge_within_their_class() -> None:
    """Statistics of columns whose types have one type class can be merged, for example int8 and int64.

    A type class is a group of types whose values are converted to one type. Statistics of different classes cannot be
    merged.
    """
    narrow, wide = profile_one(pa.array([1], pa.int8())).statistics, profile_one(pa.array([2**40])).statistics
    merged_statistics = merge_statistics([narrow, wide])
    assert (merged_statistics.type_class, merged_statistics.sum, merged_statistics.total_bytes) == (
        "int64",
        2**40 + 1,
        9,
    )
    with pytest.raises(CorruptionError, match="int64, string"):
        merge_statistics([narrow, profile_one(pa.array(["a"])).statistics])
    with pytest.raises(ValueError):
        merge_states([], [])


@pytest.mark.parametrize(
    ("parts", "distinct", "duplicates", "median"),
    [
        ([pa.array([True, True]), pa.array([False, None, True])], 2, 1, True),
        ([pa.array([False]), pa.array([False])], 1, 1, False),
        ([pa.array(["x"]), pa.array(["x", None])], 1, 1, "x"),
        ([pa.array([7.5]), pa.array([7.5, math.nan])], 2, 1, 7.5),
        ([pa.array([math.nan]), pa.array([math.nan, math.nan])], 1, 1, None),
        ([pa.array([-0.0]), pa.array([0.0])], 1, 1, 0.0),
    ],
)
def test_derivable_statistics_stay_exact(parts: list[pa.Array], distinct: int, duplicates: int, median: Any) -> None:
    """Distinct counts and percentiles of booleans and constants are exact without frequencies."""
    merged_statistics = merge_statistics([profile_one(part).statistics for part in parts])
    assert (merged_statistics.distinct_count, merged_statistics.distinct_count_guarantee) == (distinct, "exact")
    assert merged_statistics.duplicate_count == duplicates
    assert merged_statistics.percentiles_guarantee == "exact"
    assert [plain(v) for q, v in merged_statistics.percentiles or () if q == 0.5] == (
        [] if median is None else [median]
    )


def test_distinct_estimate_is_within_its_bounds() -> None:
    """An estimate exceeds neither the value count nor the number of integers between minimum and maximum."""
    halves = [pa.array(range(start, start + 60_000, 2), pa.int32()) for start in (0, 1)]
    merged_statistics = merge_statistics([profile_one(half).statistics for half in halves])
    assert merged_statistics.distinct_count_guarantee == "estimate"
    assert 57_000 <= (merged_statistics.distinct_count or 0) <= 60_000
    beyond = 0
    for first in range(0, 20_000, 1000):
        days = [pa.array(range(first + odd, first + 1000, 2), pa.int32()).view(pa.date32()) for odd in (0, 1, 1, 0)]
        merged_statistics = merge_statistics([profile_one(each).statistics for each in days])
        assert (merged_statistics.distinct_count or 0) <= 1000
        beyond += estimate_distinct(merged_statistics.distinct_sketch or b"") > 1000
    assert beyond  # else the test has tested nothing


@pytest.mark.parametrize("name", KINDS)
@share(30)
@given(data=st.data())
def test_no_column_has_more_distinct_values_than_its_bound(name: str, data: st.DataObject) -> None:
    """`max_distinct` is at least the distinct count of a column and at most its value count.

    This holds also for types with NaN and two zeros.
    """
    kind = KINDS[name]
    statistics = profile_one(kind.array(data.draw(rows(kind)))).statistics
    assert statistics.distinct_count_guarantee == "exact"
    assert (statistics.distinct_count or 0) <= max_distinct(statistics) <= statistics.value_count


@pytest.mark.parametrize(
    ("values", "bound"),
    [
        (pa.array([1, 5, 5, 5, 5, 5, 5]), 5),
        (pa.array([1, 9]), 2),
        (pa.array(["a", "a"]), 1),
        (pa.array(["a", "b", "b"]), 3),
        (pa.array([0.0, 1.0, math.nan, math.nan]), 3),
        (pa.array([1.0, 1.0, math.nan, math.nan]), 2),
        (pa.array([math.nan, math.nan, None]), 1),
        (pa.nulls(2, pa.int64()), 0),
    ],
)
def test_the_bound_of_distinct_values_uses_minimum_maximum_and_nan(values: pa.Array, bound: int) -> None:
    assert max_distinct(profile_one(values).statistics) == bound


@given(data=st.data())
def test_distinct_estimates_lie_between_the_greatest_part_and_the_sum(data: st.DataObject) -> None:
    """A merged distinct count is between the greatest count of a part and the sum of all counts.

    This holds at every level of merging.
    """
    spans = data.draw(
        st.lists(st.tuples(st.integers(0, 600), st.integers(0, 400), st.integers(1, 3)), min_size=2, max_size=6)
    )
    parts = [[7919 * value for value in range(start, start + length)] for start, length, _ in spans]
    children = [
        profile_one(pa.array(values * times, pa.int64())).statistics
        for values, (_, _, times) in zip(parts, spans, strict=True)
    ]
    groups = [(child, len(part), len(part), set(part)) for child, part in zip(children, parts, strict=True)]
    while len(groups) > 1:
        size = data.draw(st.integers(2, len(groups)), label="group")
        group, groups = groups[:size], groups[size:]
        merged_statistics = merge_statistics([child for child, *_ in group])
        greatest, total = max(one[1] for one in group), sum(one[2] for one in group)
        values = set().union(*(one[3] for one in group))
        distinct_count = merged_statistics.distinct_count
        assert distinct_count is not None
        assert greatest <= distinct_count <= min(total, merged_statistics.value_count)
        assert distinct_count <= sum(child.distinct_count or 0 for child, *_ in group)
        assert distinct_count >= max(child.distinct_count or 0 for child, *_ in group)
        assert merged_statistics.distinct_count_guarantee == "estimate" or distinct_count == len(values)
        groups.append((merged_statistics, greatest, total, values))


@pytest.mark.parametrize("is_grouped", [False, True])
def test_an_estimate_is_not_less_than_the_count_of_a_part(is_grouped: bool) -> None:
    """A merged distinct count is not less than the count of a part, and not greater than their sum.

    The estimate of the merged sketch alone errs a little in both directions.
    """
    below = above = 0
    for count in range(50, 1500, 58):
        complete, half = ([7919 * value for value in range(most)] for most in (count, count // 2))
        subsets = [profile_one(pa.array(values)).statistics for values in (half, complete, half)]
        disjoint = [
            profile_one(pa.array(values * 9)).statistics for values in (complete, [-1 - value for value in half], [7])
        ]
        for children, most in ((subsets, count + 2 * (count // 2)), (disjoint, count + count // 2 + 1)):
            merged_statistics = merge_statistics(
                [merge_statistics(children[:2]), children[2]] if is_grouped else children
            )
            estimate = estimate_distinct(merged_statistics.distinct_sketch or b"")
            below, above = below + (estimate < count), above + (estimate > most)
            assert count <= (merged_statistics.distinct_count or 0) <= most
    assert min(below, above) > 2  # else the test has tested nothing


def test_a_part_with_unknown_values_is_not_treated_as_empty() -> None:
    """If a part's distinct count is unknown, the merged count is estimated from all parts' sketches.

    If that part has no sketch either, the merged count is unknown.
    """
    part, unknown_part = (profile_one(pa.array(values)).statistics for values in ([1, 2, 2], [3, 4, 5, 5]))
    unknown_part = replace(unknown_part, distinct_count=None, distinct_count_guarantee="absent", duplicate_count=None)
    merged_statistics = merge_statistics([part, unknown_part])
    assert (merged_statistics.distinct_count, merged_statistics.distinct_count_guarantee) == (5, "estimate")
    merged_statistics = merge_statistics([part, replace(unknown_part, distinct_sketch=None)])
    assert (merged_statistics.distinct_count, merged_statistics.distinct_count_guarantee) == (None, "absent")


def test_truncated_and_unknown_bounds_are_merged() -> None:
    """A truncated bound becomes exact if another part has the value of the bound.

    An unknown bound stays unknown.
    """
    long = pa.array([b"a" * 5000])
    one, other = profile_one(long).statistics, profile_one(pa.array([b"a" * 4096])).statistics
    merged_statistics = merge_statistics([one, other])
    assert (merged_statistics.minimum_exact, plain(merged_statistics.minimum)) == (True, b"a" * 4096)
    assert (merged_statistics.maximum_exact, plain(merged_statistics.maximum)) == (False, b"a" * 4095 + b"b")
    without_maximum = profile_one(pa.array([b"\xff" * 5000])).statistics
    merged_statistics = merge_statistics([without_maximum, other])
    assert (merged_statistics.maximum, merged_statistics.maximum_exact) == (None, False)
    assert (plain(merged_statistics.minimum), merged_statistics.minimum_exact) == (b"a" * 4096, True)


def test_containers_merge_their_counts_and_lengths() -> None:
    """Counts of lists and of unprofiled types are added, and lengths of lists are merged."""
    first, second = (profile(pa.array(v, pa.list_(pa.int8())))[0].statistics for v in ([[1], None], [[], [2, 3]]))
    merged_statistics = merge_statistics([first, second])
    assert (merged_statistics.value_count, merged_statistics.null_count, merged_statistics.reason) == (
        3,
        1,
        first.reason,
    )
    lengths = (
        merged_statistics.minimum_length,
        merged_statistics.maximum_length,
        merged_statistics.total_length,
        merged_statistics.mean_length,
    )
    assert lengths == (0, 2, 3, 1.0)
    durations = [profile_one(pa.array(v, pa.duration("s"))).statistics for v in ([1, None], [2, 3])]
    merged_statistics = merge_statistics(durations)
    assert (
        merged_statistics.value_count,
        merged_statistics.null_count,
        merged_statistics.distinct_count_guarantee,
    ) == (3, 1, "absent")
    assert merged_statistics.reason == durations[0].reason


def test_an_unprofiled_part_makes_the_merged_statistics_absent() -> None:
    """If statistics of one part are absent, merged statistics are absent, except for counts.

    The reason is that of the part.
    """
    good = profile_one(pa.array([1], pa.timestamp("s"))).statistics
    bad = profile_one(pa.array([2**62], pa.timestamp("s"))).statistics
    for children in ([good, bad], [bad, good]):
        merged_statistics = merge_statistics(children)
        assert (merged_statistics.type_class, merged_statistics.value_count, merged_statistics.minimum) == (
            None,
            2,
            None,
        )
        assert merged_statistics.reason == bad.reason


def test_a_part_without_a_quantile_sketch_removes_the_merged_sketch() -> None:
    with_sketch = profile_one(pa.array([1.0, 2.0])).statistics
    without = profile_one(pa.array([3.0]), ColumnPolicy(quantiles="off")).statistics
    merged_statistics = merge_statistics([with_sketch, without])
    assert (
        merged_statistics.quantile_sketch,
        merged_statistics.percentiles,
        merged_statistics.percentiles_guarantee,
    ) == (None, None, "absent")
    infinite = profile_one(pa.array([math.inf])).statistics
    assert merge_statistics([with_sketch, infinite]).percentiles_guarantee == "estimate"


def test_infinities_are_counted_in_percentiles() -> None:
    """A merged percentile is infinite if the value of its rank is an infinity.

    The sketch does not store infinities. They are counted separately.
    """
    children = [
        profile_one(pa.array(v)).statistics for v in ([-math.inf] * 30 + [1.0] * 30, [2.0] * 10 + [math.inf] * 30)
    ]
    result = dict(merge_statistics(children).percentiles or ())
    assert [result[q].as_py() for q in (0.25, 0.75, 0.95)] == [-math.inf, math.inf, math.inf]
    assert 1.0 <= result[0.5].as_py() <= 1.5


def test_merged_rows_are_listed_only_if_all_parts_are() -> None:
    row = replace(profile_one(pa.array([1, 2])).statistics, frequencies="enumerated")
    rank = {"enumerated": 0, "estimated": 1, "off": 2}
    for first in rank:
        for second in rank:
            children = [replace(row, frequencies=first), replace(row, frequencies=second)]
            assert merge_statistics(children).frequencies == max(first, second, key=rank.__getitem__)


def test_complete_frequencies_replace_estimates() -> None:
    children = [profile_one(pa.array(v)).statistics for v in ([1, 2, 2], [2, 3])]
    facts = summarize_frequencies(Frequencies(pa.array([1, 2, 3]), pa.array([1, 3, 1])))
    reported_statistics = apply_summary(merge_statistics(children), facts)
    assert (
        reported_statistics.frequencies,
        reported_statistics.distinct_count,
        reported_statistics.distinct_count_guarantee,
    ) == (
        "enumerated",
        3,
        "exact",
    )
    assert (reported_statistics.duplicate_count, reported_statistics.percentiles_guarantee) == (1, "exact")


def comparable(row: ColumnStatistics, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a row by name, except those in `without`.

    The text `nan` replaces NaN, which is not equal to itself.
    """
    return {name: "nan" if value != value else value for name, value in vars(row).items() if name not in without}


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=max(6, settings().max_examples // 50))
@given(data=st.data())
def test_a_restricted_row_equals_one_profiled_under_the_policy(kind: str, data: st.DataObject) -> None:
    """Statistics restricted to a policy that stores less equal those profiled under this policy.

    Percentiles, the stored moments and the quantile sketch may differ. Restricting the result again changes nothing.
    """
    values = data.draw(rows(KINDS[kind], 40))
    array = KINDS[kind].array(values)
    approximate = {*STATES, "percentiles"}
    for policy in (ColumnPolicy().resolve("estimated"), ColumnPolicy(frequencies="off", quantiles="off")):
        restricted_statistics = restrict_to_policy(profile_one(array).statistics, policy)
        once = profile_one([array.slice(0, len(array) // 2), array.slice(len(array) // 2)], policy).statistics
        assert comparable(restricted_statistics, approximate) == comparable(once, approximate)
        assert restricted_statistics.percentiles_guarantee == once.percentiles_guarantee
        assert restricted_statistics.frequencies in ("off", "estimated", "absent")
        assert (
            restricted_statistics.frequencies == "absent"
            or restricted_statistics.value_count == 0
            or restricted_statistics.distinct_count >= 1
        )
        assert comparable(restrict_to_policy(restricted_statistics, policy)) == comparable(restricted_statistics)
