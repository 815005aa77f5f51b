"""Frequencies add and subtract exactly, and negative results are an error."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import ColumnPolicy
from metastore_assets.errors import CorruptionError
from metastore_assets.statistics import counting, interface, value_runs
from metastore_assets.statistics import profile as profile_module
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, sum_frequencies, summarize_frequencies
from tests.statistics.oracle import FRACTIONS, Facts, plain
from tests.statistics.random_columns import KINDS, profile_one, rows, share
from tests.statistics.test_merge import assert_equal_rows, check_moments, check_shape
from tests.statistics.test_profile import widened


def frequencies(values: list[Any], name: str) -> Frequencies:
    result = profile_one(KINDS[name].array(values), ColumnPolicy(frequencies="all")).frequencies
    assert result is not None
    return result


@pytest.mark.parametrize("name", KINDS)
@share(20)
@given(data=st.data())
def test_sums_and_differences(name: str, data: st.DataObject) -> None:
    """Sums and differences of frequencies equal counts of the remaining values, in any order of terms.

    Values whose frequency becomes zero are left out.
    """
    kind = KINDS[name]
    removed_values, remaining_values = data.draw(rows(kind, 12)), data.draw(rows(kind, 12))
    terms = [
        (frequencies(removed_values + remaining_values, name), 1),
        (frequencies(removed_values, name), -1),
        (frequencies(remaining_values, name), 1),
        (EMPTY, 1),
    ]
    result = sum_frequencies(data.draw(st.permutations(terms)))
    expected = Facts([None if value is None else widened(name, value) for value in remaining_values + remaining_values])
    assert [plain(value) for value in result.values] == expected.ascending
    assert result.counts.to_pylist() == [expected.counts[value] for value in expected.ascending]
    facts = summarize_frequencies(result)
    assert (facts.distinct_count, facts.duplicate_count) == (expected.distinct_count, expected.duplicate_count)
    assert [(q, plain(value)) for q, value in facts.percentiles] == list(zip(FRACTIONS, expected.percentiles))  # noqa: B905


def test_a_negative_frequency_is_a_corruption_error() -> None:
    """Subtracting a value more often than it occurs is an error whose message names the value."""
    with pytest.raises(CorruptionError, match=r"\bb\b.*frequency -1.*--full"):
        sum_frequencies([(frequencies(["a", "b"], "string"), 1), (frequencies(["b", "b"], "string"), -1)])


def test_frequencies_of_different_type_classes_are_refused() -> None:
    with pytest.raises(CorruptionError, match="float64, int64"):
        sum_frequencies([(frequencies([1], "int64"), 1), (frequencies([1.0], "float64"), 1)])


def test_sums_without_values_are_empty() -> None:
    """A sum is empty if there is nothing to add, or if the added frequencies have no values."""
    assert sum_frequencies([]) == EMPTY
    assert sum_frequencies([(EMPTY, 1), (EMPTY, -1)]) == EMPTY
    assert len(sum_frequencies([(frequencies([None], "int8"), 1)])) == 0
    assert summarize_frequencies(EMPTY).percentiles == ()


def test_terms_are_multiplied_by_integer_factors() -> None:
    result = sum_frequencies([(frequencies([1, 1, 2], "int8"), 3)])
    assert result == Frequencies(pa.array([1, 2]), pa.array([6, 3]))


def test_frequencies_of_nan_are_equal_to_themselves() -> None:
    """Frequencies of the same values are equal in any order of the rows, even if a value is NaN.

    Frequencies with other values, counts or types are not equal.
    """
    one = frequencies([math.nan, 1.0], "float64")
    assert one == frequencies([1.0, math.nan], "float64")
    assert one != frequencies([1.0, 2.0], "float64")
    assert one != frequencies([1.0, math.nan, math.nan], "float64")
    assert frequencies([1], "int8") != frequencies([1.0], "float64")


@pytest.mark.parametrize(
    "name", ["int32", "uint64", "string_view", "binary", "decimal128", "float64", "dictionary", "boolean", "uuid"]
)
@share(40)
@given(data=st.data())
def test_results_do_not_depend_on_run_and_block_sizes(name: str, data: st.DataObject) -> None:
    kind = KINDS[name]
    values = data.draw(rows(kind, 80))
    chunk = data.draw(st.integers(1, 10))
    chunks = [kind.array(values[at : at + chunk]) for at in range(0, len(values), chunk)] or [kind.array([])]
    expected = profile_one(chunks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_PENDING_ROWS", data.draw(st.integers(1, 40)))
        patch.setattr(value_runs, "BLOCK", data.draw(st.integers(4, 16)))
        patch.setattr(interface, "_PENDING_PARTS", data.draw(st.integers(2, 5)))
        result = profile_one(chunks)
    assert result.frequencies == expected.frequencies
    assert result.histogram == expected.histogram
    assert_equal_rows(result.statistics, expected.statistics, {"skewness", "kurtosis", "moments", "quantile_sketch"})
    check_shape(result.statistics, expected.statistics, len(values))
    check_moments(result.statistics, expected.statistics)


def test_statistics_over_the_frequency_limit_are_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a column has more distinct values than the limit, their frequencies are not stored.

    The number of distinct values is then an estimate, and the sum stays exact.
    """
    monkeypatch.setattr(value_runs, "BLOCK", 8)
    monkeypatch.setattr(counting, "_PENDING_ROWS", 10)
    monkeypatch.setattr(profile_module, "FREQUENCY_LIMIT", 50)
    for distinct, state in ((50, "enumerated"), (51, "estimated")):
        values = [at * 37 % distinct for at in range(500)]
        result = profile_one(pa.array(values))
        assert (result.statistics.frequencies, result.frequencies is not None) == (state, state == "enumerated")
        assert result.statistics.distinct_count == pytest.approx(distinct, rel=0.06)
        assert result.statistics.duplicate_count == (distinct if state == "enumerated" else None)
        assert result.statistics.sum == sum(values)


def test_statistics_over_many_blocks_are_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics are correct if the values of a column are in different blocks.

    A block is some of the column's values, which are processed together. The statistics are lengths, bounds,
    percentiles, distinct counts, duplicates and numbers of NaN.
    """
    monkeypatch.setattr(value_runs, "BLOCK", 4)
    monkeypatch.setattr(counting, "_PENDING_ROWS", 30)
    words = [chr(97 + at % 26) * (1 + (at * 7) % 23) for at in range(26)] + ["mid"] * 5 + ["zz" * 20, ""]
    expected = Facts(words)
    row = profile_one([pa.array(words[:20]), pa.array(words[20:])]).statistics
    lengths = [len(word) for word in words]
    assert (row.minimum_length, row.maximum_length, row.total_length) == (0, 40, sum(lengths))
    assert (row.total_bytes, row.mean_length) == (sum(lengths), sum(lengths) / len(lengths))
    assert (plain(row.minimum), plain(row.maximum)) == (expected.minimum, expected.maximum)
    assert [plain(value) for _, value in row.percentiles or ()] == expected.percentiles
    assert (row.distinct_count, row.duplicate_count) == (expected.distinct_count, expected.duplicate_count)
    shrinking = profile_one(pa.array(["a" * 9, "b" * 8, "c" * 7, "d" * 6, "e" * 5, "f" * 4, "g" * 3])).statistics
    assert (shrinking.minimum_length, shrinking.maximum_length) == (3, 9)
    growing = profile_one(pa.array(["a" * 3, "b" * 4, "c" * 5, "d" * 6, "e" * 7, "f" * 8, "g" * 9])).statistics
    assert (growing.minimum_length, growing.maximum_length) == (3, 9)
    floats = profile_one(pa.array([math.nan, *map(float, range(9)), math.nan, math.inf])).statistics
    assert (floats.nan_count, floats.distinct_count, floats.duplicate_count) == (2, 11, 1)
    assert (plain(floats.maximum), dict(floats.percentiles or ())[0.5].as_py()) == (math.inf, 4.0)


@pytest.mark.parametrize("name", ["string", "binary_view"])
def test_sorting_and_hashing_give_the_same_counts(name: str) -> None:
    """Counts of byte strings are right, whether the strings are sorted or hashed.

    They are sorted if most are distinct, and hashed otherwise.
    """
    for distinct in (7, 9_000):
        values = [f"value-{(at * 7919) % distinct:09d}" for at in range(10_000)]
        if "binary" in name:
            values = [value.encode() for value in values]  # type: ignore[misc]
        result = frequencies(values, name)
        expected = Counter(values)
        assert [plain(value) for value in result.values] == sorted(expected)
        assert result.counts.to_pylist() == [expected[value] for value in sorted(expected)]


@pytest.mark.parametrize(
    ("type_", "number", "text"),
    [
        (pa.date32(), 2_932_897, "+10000-01-01"),
        (pa.timestamp("ns"), 1, "1970-01-01T00:00:00.000000001"),
        (pa.timestamp("us", "UTC"), -(2**63), "-290308-12-21T19:59:05.224192Z"),
        (pa.time64("ns"), 999, "00:00:00.000000999"),
    ],
)
def test_corruption_errors_name_values_beyond_the_range_of_python(type_: pa.DataType, number: int, text: str) -> None:
    storage = pa.int32() if type_.bit_width == 32 else pa.int64()
    result = Frequencies(pa.array([number], storage).view(type_), pa.array([1]))
    with pytest.raises(CorruptionError, match=f"{re.escape(text)}.*frequency -1"):
        sum_frequencies([(result, 1), (result, -2)])
