"""The shipped custom statistics obey the laws of mergeable statistics.

Violations of the laws are reported.

A state is the form of a statistic that can be merged. The result is computed from the state of all rows.

Retracting subtracts the state of a part from a merged state.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import ResolvedPolicy
from metastore_assets.errors import ConfigError
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.user_defined import shipped
from metastore_assets.statistics.user_defined.finalize import compute_frequency_results
from metastore_assets.statistics.user_defined.interface import FrequencyStatistic
from metastore_assets.statistics.user_defined.laws import equals_up_to_rounding, find_counterexample
from metastore_assets.statistics.user_defined.loading import LoadedStatistic, load_for_class, load_statistic
from metastore_assets.statistics.user_defined.results import UserResult, build_result_columns, read_results
from metastore_assets.values.types import type_class
from tests.pipeline import user_statistics as custom

SHIPPED = [shipped.Benford, shipped.StringPatterns, shipped.LongestCommonPrefix, shipped.OutsideFences]


@pytest.mark.parametrize("cls", [*SHIPPED, custom.Parities, custom.Letters, custom.MostFrequent])
def test_statistics_that_obey_all_laws(cls: Any) -> None:
    assert find_counterexample(cls(), tries=30) is None


class Minus(custom.Parities):
    """A statistic whose merging is neither commutative nor associative."""

    def merge(self, one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        return {key: one[key] - other[key] for key in one}


class FromOne(custom.Parities):
    """A statistic whose initial state is no identity of its merging."""

    def initial(self) -> dict[str, int]:
        return {"even": 1, "odd": 0}


class Average(custom.Parities):
    """A statistic whose merging averages averages, which is commutative and not associative."""

    def merge(self, one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        if not any(one.values()) or not any(other.values()):
            return {key: one[key] + other[key] for key in one}
        return {key: (one[key] + other[key]) // 2 for key in one}


class Uncounted(custom.Parities):
    """A statistic that ignores the counts of values."""

    def update(self, state: dict[str, int], values: pa.Array, counts: pa.Array) -> dict[str, int]:
        return super().update(state, values, pa.array([1] * len(values), pa.int64()))


class Ascents(custom.Parities):
    """A statistic that counts how often a value is greater than the previous one.

    This depends on the order of rows.
    """

    def update(self, state: dict[str, int], values: pa.Array, counts: pa.Array) -> dict[str, int]:
        row_values = values.to_pylist()
        return {**state, "odd": state["odd"] + sum(a < b for a, b in pairwise(row_values))}


class Unretracted(custom.Parities):
    """A statistic for which retracting a part changes nothing."""

    def retract(self, complete: dict[str, int], part: dict[str, int]) -> dict[str, int]:
        return complete


class Remembers(custom.Parities):
    """A statistic that keeps state in the instance between calls."""

    def __init__(self) -> None:
        self.seen = 0

    def update(self, state: dict[str, int], values: pa.Array, counts: pa.Array) -> dict[str, int]:
        self.seen += 1
        return {"even": state["even"] + self.seen, "odd": 0}


class Text(custom.Parities):
    """A statistic whose result has another type than declared."""

    def finalize(self, state: dict[str, int]) -> Any:
        return "text"


@pytest.mark.parametrize(
    ("cls", "law"),
    [
        (custom.First, "merge() is commutative|update() does not depend on the order"),
        (Ascents, "update() does not depend on the order|merge() of the states"),
        (custom.Rows, "merge() of the states of two parts|update() treats a value with the count"),
        (custom.Raises, "methods raise no error"),
        (custom.WrongType, "return values of the declared types"),
        (Minus, "initial state|commutative"),
        (FromOne, "initial state"),
        (Average, "associative|merge() of the states"),
        (Uncounted, "update() treats a value with the count n"),
        (Unretracted, "retract()"),
        (Remembers, "order|stores|parts|calls"),
        (Text, "methods raise no error"),
    ],
)
def test_a_violated_law_is_reported_with_the_data(cls: Any, law: str) -> None:
    result = find_counterexample(cls())
    assert result is not None
    assert any(part in result.law for part in law.split("|")), result
    assert result.expected != result.observed
    assert result.data


def test_first_digits_are_exact() -> None:
    """Integers beyond 2**53, decimals and floats have exact first digits.

    Each of three rows with 5e-324, the smallest positive float, counts once. Whether its text begins with 5 or with 4.9
    is not checked.
    """
    first = shipped.Benford()
    for values, digits in [
        (pa.array([2**63 - 1, -999_999_999_999_999_999, 0, 10**18]), [9, 9, 1]),
        (pa.array([Decimal("0.00"), Decimal("-0.07"), Decimal("123.45")], pa.decimal128(38, 2)), [7, 1]),
        (pa.array([1e300, 0.1, float("nan"), float("-inf"), -0.0, 99.5]), [1, 1, 9]),
    ]:
        state = first.update(first.initial(), values, pa.array([1] * len(values)))
        assert state == [digits.count(digit) for digit in range(1, 10)]
    assert sum(first.update(first.initial(), pa.array([5e-324]), pa.array([3]))) == 3


def test_text_patterns_are_counted() -> None:
    patterns = shipped.StringPatterns()
    texts = ["", " ", "12", "-1.5e3", "2024-01-31", "a@b.org", "https://x.y/z", "Ünder", "a b", "2024-01-31T10:00Z"]
    values = pa.array(texts, pa.large_string())
    shares = patterns.finalize(patterns.update(patterns.initial(), values, pa.array([1] * len(texts))))
    names = ["empty", "blank", "integer", "number", "date", "timestamp", "e-mail", "url", "word", "other"]
    assert shares == [{"pattern": name, "share": 0.1} for name in names]
    assert patterns.finalize(patterns.initial()) is None


def test_outliers_are_counted_outside_the_quartile_fences() -> None:
    """None of the values 1, 2, 3, 4 and 7 is an outlier, and one of 1, 2, 3, 4 and 8 is.

    With the quartiles 2 and 4, values from -1 to 7 are no outliers. NaN does not count, and the result without other
    values is None.
    """
    fences = shipped.OutsideFences()
    ones = pa.array([1] * 5)
    assert fences.compute(pa.array([1, 2, 3, 4, 7]), ones) == 0
    assert fences.compute(pa.array([1, 2, 3, 4, 8]), ones) == 0.2
    assert fences.compute(pa.array([], pa.int64()), pa.array([], pa.int64())) is None
    assert fences.compute(pa.array([float("nan")]), pa.array([3])) is None
    assert fences.compute(pa.array([float("-inf"), 1.0, 1.5, 2.0, float("nan")]), pa.array([1, 5, 5, 5, 9])) == 1 / 16


def test_custom_classes_with_different_code_have_different_sources() -> None:
    """`source` identifies the code of a custom class.

    For a shipped class, it depends only on the revision.
    """

    def source(cls: Any) -> str:
        return LoadedStatistic("x", cls()).source

    assert source(custom.Parities) == source(custom.Parities)
    assert source(shipped.Benford) == source(shipped.OutsideFences)  # of which only revisions count
    assert len({source(cls) for cls in (custom.Parities, custom.Raises, Minus, FromOne)}) == 4


def test_two_statistics_with_one_name_are_refused() -> None:
    twice = ("tests.pipeline.user_statistics:Parities", f"{__name__}:Minus")
    with pytest.raises(ConfigError, match="'parities'"):
        load_for_class(twice, type_class(pa.int64()))


def test_types_are_chosen_by_name_and_group() -> None:
    def suited(types: tuple[str, ...], arrow: pa.DataType) -> bool:
        statistic = custom.MostFrequent()
        statistic.types = types  # type: ignore[misc]
        return statistic.is_for(type_class(arrow))

    assert suited(("numeric",), pa.decimal128(5, 2))
    assert not suited(("numeric",), pa.date32())
    assert suited(("temporal",), pa.date32())
    assert suited(("timestamp",), pa.timestamp("ns"))
    assert not suited(("timestamp",), pa.timestamp("ns", "UTC"))
    assert suited(("decimal_2",), pa.decimal128(5, 2))
    assert not suited(("decimal_2",), pa.decimal128(5, 3))
    assert suited(("any",), pa.uuid())
    assert not suited(("any",), pa.null())


@pytest.mark.parametrize("key", ["name", "revision", "types", "result", "guarantee"])
def test_invalid_declarations_are_refused(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr(custom.MostFrequent, key, ("no class",) if key == "types" else "a b@")
    load_statistic.cache_clear()
    try:
        with pytest.raises(ConfigError, match=f"'tests.pipeline.user_statistics:MostFrequent'.*{key}"):
            load_statistic("tests.pipeline.user_statistics:MostFrequent")
    finally:
        load_statistic.cache_clear()


@pytest.mark.parametrize("name", ["mean", "partition"])
def test_names_of_other_columns_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(custom.MostFrequent, "name", name)
    load_statistic.cache_clear()
    try:
        with pytest.raises(ConfigError, match=f"name = '{name}'"):
            load_statistic("tests.pipeline.user_statistics:MostFrequent")
    finally:
        load_statistic.cache_clear()


class Latest(FrequencyStatistic):
    """The greatest time of day."""

    name = "latest"
    revision = "1"
    types = ("time",)
    result = pa.time64("ns")

    def compute(self, values: pa.Array, counts: pa.Int64Array) -> pa.Scalar:
        return values[-1]


def test_results_have_nanoseconds() -> None:
    """Results stay Arrow values, because Python's times have no nanoseconds."""
    policy = ResolvedPolicy(statistics=(f"{__name__}:Latest",))
    times = pa.array([5, 2_345], pa.time64("ns"))
    results = compute_frequency_results(policy, type_class(times.type), Frequencies(times, pa.array([1, 1])))
    assert results["latest"].array == times[1:]


def test_results_are_columns_of_statistics() -> None:
    rows = [
        {"a": UserResult(pa.array([1]), "exact"), "b": UserResult(pa.array([["x"]]), "estimate")},
        {},
        {"a": UserResult(pa.nulls(1, pa.int64()), "absent", "because")},
    ]
    table = pa.table(build_result_columns(rows)).append_column("other", pa.array([1, 2, 3]))
    assert read_results(table, ["other"]) == rows
    assert read_results(table.slice(1), ["other"]) == rows[1:]


def test_floats_are_compared_up_to_rounding() -> None:
    assert equals_up_to_rounding({"a": [0.1 + 0.2, float("nan")]}, {"a": [0.3, float("nan")]})
    assert not equals_up_to_rounding([1.0], [1.1])
    assert not equals_up_to_rounding([1], [1, 2])
