"""Incremental user-defined statistics equal those from scratch and those of plain Python."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig
from metastore_assets.config.models import TableConfig
from metastore_assets.errors import ConfigError
from metastore_assets.lookup.json import column_to_json
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline import auto_policies
from metastore_assets.pipeline.outcome import RefreshResult
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.profile_spec import table_profile_spec
from metastore_assets.pipeline.profiles.states_writer import MAX_DERIVABLE_VALUES
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from metastore_assets.pipeline.verification.verify import verify
from tests.pipeline.file_lake import Lake, everything_on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATISTICS_MODULE = "tests.pipeline.user_statistics"
SHIPPED = "metastore_assets.statistics.user_defined.shipped"
ALL = [f"{SHIPPED}:{name}" for name in ("Benford", "StringPatterns", "LongestCommonPrefix", "OutsideFences")] + [
    f"{STATISTICS_MODULE}:{name}" for name in ("Parities", "Letters", "MostFrequent")
]

LONG = MAX_DERIVABLE_VALUES + 1000
"""A number of rows with which `id` has too many values to derive states from them, so the states are stored as well."""


def no_spark() -> SparkSession:
    raise AssertionError("Spark was started for small work")


def config_of(lake: Lake, root: str = "root") -> MetastoreConfig:
    return MetastoreConfig(root=str(lake.folder / root), engine="auto", tables=[lake.table])


def refreshed(lake: Lake, root: str = "root", **how: Any) -> RefreshResult:
    return refresh(config_of(lake, root), lake.table, no_spark, **how)


def results(lake: Lake, root: str = "root") -> dict[str, dict[str, Any]]:
    """Return the user-defined statistics by partition (`*` for the table) and column."""
    table = Metastore(config_of(lake, root).root).table("t")
    locations = [None, *(entry.key for entry in table.partitions())]
    return {
        location or "*": {
            row.column: column_to_json(row)["user_defined"] for row in table.statistics(partition=location)
        }
        for location in locations
    }


def values_of(lake: Lake, location: str, column: str) -> list[Any]:
    """Return the values of a column in the table's files, without nulls."""
    folder = lake.uri if location == "*" else lake.uri / location
    tables = [pq.read_table(path, columns=[column], partitioning=None) for path in sorted(folder.rglob("*.parquet"))]
    return [value for table in tables for value in table[column].to_pylist() if value is not None]


def close(one: Any, other: Any) -> bool:
    """Return whether two results are equal, except for rounding errors of floats."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    return bool(one == other)


# The statistics, computed from all values at once.


def benford(values: Iterable[Any]) -> float | None:
    """Return the mean distance of the shares of first digits from Benford's law; None without a digit."""
    digits = Counter(
        digit
        for value in values
        if math.isfinite(value)
        for digit in [next((char for char in f"{abs(value):.400f}" if char in "123456789"), None)]
        if digit is not None
    )
    total = sum(digits.values())
    law = {str(digit): math.log10((digit + 1) / digit) for digit in range(1, 10)}
    return sum(abs(digits[first_digit] / total - law[first_digit]) for first_digit in law) / 9 if total else None


def outside(values: Iterable[Any]) -> float | None:
    numbers = sorted(Fraction(value) for value in values if not math.isnan(value))
    if not numbers:
        return None
    low, high = (numbers[math.ceil(len(numbers) * share / 4) - 1] for share in (1, 3))
    fences = low - (high - low) * 3 / 2, high + (high - low) * 3 / 2
    return sum(not fences[0] <= number <= fences[1] for number in numbers) / len(numbers)


def patterns(values: list[str]) -> list[dict[str, Any]] | None:
    kinds = Counter("word" if value else "empty" for value in values)
    order = {"empty": 0, "word": 1}
    result = sorted(kinds.items(), key=lambda pair: (-pair[1], order[pair[0]]))
    return [{"pattern": name, "share": count / len(values)} for name, count in result] or None


def frequent(values: list[Any]) -> int | None:
    counts = Counter("nan" if value != value else value for value in values)
    return max(counts.values(), default=None)


def prefix(values: list[str]) -> str | None:
    return (
        max(
            (
                values[0][:end]
                for end in range(len(values[0]) + 1)
                if all(v.startswith(values[0][:end]) for v in values)
            ),
            key=len,
        )
        if values
        else None
    )


def expected(lake: Lake, location: str, column: str, is_listed: bool) -> dict[str, Any]:
    """Return the expected result of each user-defined statistic of a column.

    `is_listed` is whether all values of the column are stored.
    """
    values = values_of(lake, location, column)
    by_statistic: dict[str, Any] = {}
    if column in ("id", "price", "ratio"):
        by_statistic["benford_distance"] = benford(values)
        by_statistic["share_outside_fences"] = outside(values) if is_listed else None
    if column == "id":
        by_statistic["parities"] = {"even": sum(v % 2 == 0 for v in values), "odd": sum(v % 2 for v in values)}
    if column in ("group", "tags.element"):
        if column == "group":
            by_statistic["string_patterns"] = patterns(values)
        by_statistic["common_prefix"] = prefix(values)
        by_statistic["letters"] = "".join(sorted(set("".join(values))))
    by_statistic["most_frequent"] = frequent(values) if is_listed else None
    return by_statistic


def not_enumerated(lake: Lake) -> list[str]:
    """Return the columns without value counts in the newest version."""
    rows = Metastore(config_of(lake).root).table("t").statistics()
    return [row.column for row in rows if row.frequencies == "estimated"]


def assert_true(lake: Lake, without: Iterable[str] = ()) -> None:
    """Assert that user-defined statistics of partitions and the table equal those of the rows.

    Columns in `without` have no value counts.
    """
    for location, columns in results(lake).items():
        for column in ("id", "group", "price", "ratio", "day"):
            values = {name: result["value"] for name, result in columns[column].items()}
            expected_values = expected(lake, location, column, column not in without)
            assert close(values, expected_values), (location, column, values, expected_values)


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, *range(3, 60)))])
def test_incremental_equals_from_scratch_and_the_rows(tmp_path: Path, seed: int) -> None:
    """After random commits and policies, statistics equal those from scratch and from the rows.

    `verify` accepts them.
    """
    draw = random.Random(seed)
    lake = Lake(tmp_path, draw)
    off = draw.sample(["id", "group", "price"], 1)
    columns = {column: {"frequencies": "off"} for column in off}
    lake.options = {"statistics": ALL, "columns": columns}
    for partition in range(3):
        lake.append(partition)
    for _ in range(3):
        if draw.random() < 0.5:
            # Other statistics in between: those that return are computed from stored profiles and from rows.
            lake.options = {"statistics": draw.sample(ALL, 3), "columns": columns}
            refreshed(lake)
            lake.options = {"statistics": ALL, "columns": columns}
        refreshed(lake)
        assert_true(lake, off)
        lake.commit()
    refreshed(lake)
    refreshed(lake, "scratch")
    assert close(results(lake), results(lake, "scratch"))
    assert verify(config_of(lake), lake.table, no_spark).is_right


@pytest.mark.spark
def test_user_defined_results_are_equal_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The four shipped statistics are equal with and without merges and sums on Spark."""
    lake = Lake(tmp_path)
    lake.options = {"statistics": ALL[:4]}
    for partition in (1, 1, 2):
        lake.append(partition)
    with everything_on_spark():
        refresh(lake.config("spark"), lake.table, lambda: spark)
    refreshed(lake)
    assert close(results(lake), results(lake, "spark"))


def test_another_statistic_reads_only_columns_without_value_counts(tmp_path: Path) -> None:
    """An added statistic is computed from value counts.

    For a column without them, all fragments are read, and the plan says so.
    """
    lake = Lake(tmp_path)
    for partition in (1, 2, 2):
        lake.append(partition, LONG)
    refreshed(lake)
    lake.options = {
        "statistics": [
            f"{STATISTICS_MODULE}:Letters",
            f"{STATISTICS_MODULE}:MostFrequent",
            f"{STATISTICS_MODULE}:Parities",
        ]
    }
    assert refreshed(lake).fragments_profiled == 0
    assert results(lake)["*"]["id"]["parities"]["value"] == expected(lake, "*", "id", False)["parities"]
    assert results(lake)["*"]["group"]["letters"]["value"] == "".join(
        sorted(set("".join(values_of(lake, "*", "group"))))
    )

    off: dict[str, Any] = {"columns": {"id": {"frequencies": "off"}}}
    lake.options = off
    refreshed(lake, request=RefreshRequest(full=True))
    lake.options = {"statistics": [f"{STATISTICS_MODULE}:Parities"], **off}
    plan = plan_refresh(config_of(lake), lake.table)
    assert plan.to_json()["read_again"] == {"id": {f"{STATISTICS_MODULE}:Parities@1": 3}}
    assert refreshed(lake).fragments_profiled == 3
    assert results(lake)["*"]["id"]["parities"]["value"] == expected(lake, "*", "id", False)["parities"]
    lake.options = off
    assert refreshed(lake).fragments_profiled == 0
    assert results(lake)["*"]["id"] == {}


def test_a_failing_statistic_is_absent_with_a_reason(tmp_path: Path) -> None:
    """A statistic that raises an exception or returns an invalid result is absent.

    The other statistics are computed.
    """
    lake = Lake(tmp_path)
    for partition in (1, 1, 2):
        lake.append(partition)
    columns = {"price": {"frequencies": "off"}}
    lake.options = {
        "statistics": [f"{STATISTICS_MODULE}:{name}" for name in ("Raises", "WrongType", "MostFrequent")],
        "columns": columns,
    }
    assert refreshed(lake).published
    for location, columns_ in results(lake).items():
        statistics = columns_["id"]
        reason = "update() raised RuntimeError: an odd number"
        assert statistics["raises"] == {"value": None, "guarantee": "absent", "reason": reason}, location
        assert statistics["wrong_type"]["reason"] == "compute() returned 'many' (str), which is not of the type int64"
        assert statistics["most_frequent"]["guarantee"] == "exact"
        assert "frequencies: all" in columns_["price"]["most_frequent"]["reason"]


MODULE = """
import pyarrow as pa
from metastore_assets import FrequencyStatistic

class Distinct(FrequencyStatistic):
    '''How many values there are.'''
    name = "own_distinct"
    revision = "{revision}"
    types = ("any",)
    result = pa.int64()

    def compute(self, values, counts):
        return len(values){more}
"""


def test_a_changed_class_needs_a_new_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the code of a statistic changes without a new revision, no version is published.

    The error says what to do.

    Changed comments need no new revision. A class that cannot be imported is an error, too.
    """
    from metastore_assets.statistics.user_defined import loading

    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "changing_statistics.py"

    def write(revision: str, more: str) -> None:
        import linecache

        module.write_text(MODULE.format(revision=revision, more=more))
        sys.modules.pop("changing_statistics", None)
        linecache.clearcache()
        loading.load_statistic.cache_clear()
        loading._load_all.cache_clear()

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    lake = Lake(tmp_path)
    lake.append(1)
    refreshed(lake)
    lake.options = {"statistics": "changing_statistics:Distinct"}
    write("1", "")
    refreshed(lake)  # computed from value counts: a process that imports another module reads nothing
    write("1", "  # of them all")
    assert not refreshed(lake).published
    write("1", " + 1")
    with pytest.raises(ConfigError, match=r"'t'.*changing_statistics:Distinct.*revision.*'1'"):
        refreshed(lake)
    assert Metastore(config_of(lake).root).table("t").version.number == 2
    write("2", " + 1")
    refreshed(lake)
    assert results(lake)["*"]["group"]["own_distinct"]["value"] == len(set(values_of(lake, "*", "group"))) + 1
    module.unlink()
    del sys.modules["changing_statistics"]
    loading.load_statistic.cache_clear()
    loading._load_all.cache_clear()
    with pytest.raises(ConfigError, match=r"'t'.*'changing_statistics:Distinct'.*PYTHONPATH"):
        refreshed(lake)
    lake.options = {}
    assert refreshed(lake).fragments_profiled == 0


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        (f"{STATISTICS_MODULE}:Nobody", "Nobody"),
        ("tests.pipeline.file_lake:Lake", "Lake"),
        ("no.such.module:Statistic", r"no\.such\.module"),
        (f"{STATISTICS_MODULE}:BuiltInName", "name = 'mean'"),
        (f"{STATISTICS_MODULE}:OtherCase", "name = 'Mean'"),
    ],
)
def test_classes_that_are_no_statistics_are_refused(tmp_path: Path, reference: str, problem: str) -> None:
    lake = Lake(tmp_path)
    lake.append(1)
    lake.options = {"statistics": [reference]}
    with pytest.raises(ConfigError, match=problem) as error_info:
        refreshed(lake)
    assert reference in str(error_info.value)
    assert "table 't'" in str(error_info.value)


def test_a_column_named_default_has_the_default_policy_without_an_error() -> None:
    """The entry `default` is for all columns, even if one of them has the name `default`.

    In this entry, a statistic that needs value counts is no error for columns without them. In the entry of a single
    column without value counts, it is an error.
    """
    statistics = [f"{STATISTICS_MODULE}:MostFrequent"]
    schema = pa.schema([("default", pa.int64()), ("id", pa.int64())])
    for column, is_error in (("default", False), ("id", True)):
        policies = {column: {"frequencies": "off", "statistics": statistics}}
        config = TableConfig.model_validate({"name": "t", "uri": "/t", "columns": policies})
        with pytest.raises(ConfigError, match=r"columns\.id") if is_error else nullcontext():
            table_profile_spec(schema, config)


@pytest.mark.parametrize("before", [[], pytest.param(ALL, marks=pytest.mark.long)])
def test_states_remain_when_value_counts_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[str]
) -> None:
    """User-defined statistics of a column equal those of its rows after it lost its value counts.

    It loses them when its frequencies become estimated. `before` are the statistics that the first refresh computed.
    """
    lake = Lake(tmp_path)
    lake.options = {"statistics": before}
    for partition in (1, 1, 2):
        lake.append(partition, LONG)
    refreshed(lake)
    monkeypatch.setattr(auto_policies, "FREQUENCY_LIMIT", 60)
    lake.options = {"statistics": ALL}
    for partition in (2, 1):
        path = lake.append(partition)
        refreshed(lake)
        assert_true(lake, not_enumerated(lake))
    path.unlink()
    refreshed(lake)
    assert "id" in not_enumerated(lake)
    assert_true(lake, not_enumerated(lake))


def test_an_added_column_has_states_of_no_rows_in_older_fragments(tmp_path: Path) -> None:
    """One file adds a column.

    Partitions without the column are not read again. In these partitions, the statistics of the column are those of a
    column without values.
    """
    lake = Lake(tmp_path)
    lake.options = {"statistics": ALL}
    for partition in (1, 1, 2):
        lake.append(partition)
    refreshed(lake)
    path = lake.append(2)
    wider = pq.read_table(path, partitioning=None).append_column("extra", pa.array([1, 2] * 25))
    pq.write_table(wider, path)
    assert refreshed(lake).fragments_profiled == 1
    refreshed(lake, "scratch")
    values = results(lake)
    assert values["part=1"]["extra"]["parities"]["value"] == {"even": 0, "odd": 0}
    assert values["part=1"]["extra"]["benford_distance"] == {"value": None, "guarantee": "absent", "reason": None}
    assert values["*"]["extra"]["parities"]["value"] == {"even": 25, "odd": 25}
    assert close(values, results(lake, "scratch"))


def test_hidden_columns_have_no_user_defined_statistics(tmp_path: Path) -> None:
    """Nothing is computed from hidden values."""
    lake = Lake(tmp_path)
    lake.append(1)
    lake.options = {"statistics": ALL, "columns": {"group": {"values": "hidden"}, "id": {"statistics": []}}}
    refreshed(lake)
    values = results(lake)["*"]
    assert values["group"] == values["id"] == values["tags"] == {}
    assert set(values["day"]) == {"most_frequent"}
