"""Values pass through all steps of a refresh unchanged, with pandas installed or not.

Among them are times with nanoseconds, dates in far years, and decimals of 38 digits.
"""

from __future__ import annotations

import json
import math
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.assets.metadata import TableDescription, profile_metadata
from metastore_assets.assets.names import KINDS as FILES
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lookup import Table
from metastore_assets.lookup.json import columns_json, histogram_json, scalar_json, top_json
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.report.summary import read_summary
from metastore_assets.spark import runner, shuffle
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import summarize_frequencies
from tests.arrow_scalars import scalars_in
from tests.pipeline.file_lake import everything_on_spark
from tests.statistics.extreme_values import extremes
from tests.statistics.oracle import Facts, plain
from tests.statistics.random_columns import KINDS, profile_one, share
from tests.statistics.random_columns import rows as rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORABLE = [name for name, kind in KINDS.items() if not name.startswith(("runs", "dictionary_"))]
"""Kinds of columns that Parquet files can have."""
FINER = {"time32_s": 10**9, "time32_ms": 10**6, "time64_us": 1000, "timestamp_s": 1000, "timestamptz_s": 1000}
"""The number of units of the type class in one unit of the type."""
FILES_OF = {"part=a/1": 40, "part=a/2": 0, "part=a/3": 25, "part=b/1": None, "part=b/2": 30}
"""The number of rows of each file. With None, the file has nine rows with only nulls."""

_READER = """
import pickle, sys
if sys.argv[1] == "hidden":
    from metastore_assets.startup import hide_pandas
    hide_pandas()
elif sys.argv[1] == "used":
    import pandas
from metastore_assets.lookup.json import scalar_json
import pyarrow as pa
pa.array([1]).to_pylist()
plain, packed, scalars = pickle.load(sys.stdin.buffer)
facts, others = {name: pickle.loads(one) for name, one in plain.items()}, pickle.loads(packed)
assert all(facts[name] == others[name] for name in facts)
told = {name: [scalar_json(value) for _, value in one.percentiles] for name, one in facts.items()}
arrays = [pa.repeat(value, 1) for value in pickle.loads(scalars)()]
assert ("pandas" in sys.modules) == (sys.argv[1] != "hidden")
pickle.dump(({name: one.ranked for name, one in facts.items()}, told, arrays), sys.stdout.buffer)
"""


@pytest.mark.parametrize("pandas", ["hidden", "there", "used"])
def test_statistics_are_equal_bit_for_bit_in_other_processes(pandas: str) -> None:
    """Statistics arrive unchanged in a process in which pandas is hidden, installed or imported.

    Arrow scalars that a task's function refers to are unchanged too.
    """
    facts = {}
    for name, kind in KINDS.items():
        values = extremes(kind)
        result = profile_one(kind.array(values * 2)).frequencies
        assert result is not None
        facts[name] = summarize_frequencies(result)
        assert list(scalars_in(facts[name])) == []
    scalars = [kind.array(extremes(kind))[-1] for kind in KINDS.values()]
    messages = (
        {name: pickle.dumps(one) for name, one in facts.items()},
        runner.pack(facts),
        runner.pack(lambda: scalars),
    )
    process = subprocess.run(
        [sys.executable, "-c", _READER, pandas], input=pickle.dumps(messages), capture_output=True, check=True
    )
    arrays, results, captured_scalars = pickle.loads(process.stdout)
    for name, one in facts.items():
        assert arrays[name].equals(one.ranked), name
        assert results[name] == [scalar_json(value) for _, value in one.percentiles], name
    assert [array.type for array in captured_scalars] == [scalar.type for scalar in scalars]
    assert all(
        array[0].equals(scalar) or scalar != scalar for array, scalar in zip(captured_scalars, scalars, strict=True)
    )


@pytest.mark.parametrize("name", KINDS)
@share(20)
@given(data=st.data())
def test_percentiles_are_values_of_the_column(name: str, data: st.DataObject) -> None:
    """Percentiles of columns of any type are values of the column, and equal those of plain Python.

    They also survive serialization.
    """
    values = data.draw(rows_of(KINDS[name], 30))
    profile = profile_one(KINDS[name].array(values))
    assert profile.frequencies is not None
    facts = summarize_frequencies(profile.frequencies)
    for received_facts in (pickle.loads(pickle.dumps(facts)), pickle.loads(runner.pack(facts))):
        assert received_facts == facts
        assert [value.type for _, value in received_facts.percentiles] == [profile.frequencies.values.type] * len(
            received_facts.ranked
        )
    oracle = Facts(values if name not in FINER else [None if v is None else v * FINER[name] for v in values])
    result = [plain(value) for _, value in facts.percentiles]
    assert set(result) <= set(oracle.numbers)
    assert result == oracle.percentiles


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, list[Any]]]:
    """Return random rows by file and type, in which a few extreme values and null repeat."""
    draw = random.Random(7)
    choices = {name: [*extremes(KINDS[name]), None] for name in STORABLE}
    return {
        file: {name: [None] * 9 if count is None else draw.choices(choices[name], k=count) for name in STORABLE}
        for file, count in FILES_OF.items()
    }


@pytest.fixture(scope="module")
def results(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, rows: dict[str, dict[str, list[Any]]]
) -> Table:
    """A refreshed table with columns of all types, in two partitions of several files.

    No task or result of the refresh contained an Arrow scalar.
    """
    folder = tmp_path_factory.mktemp("values")
    for file, columns in rows.items():
        arrays = {name: KINDS[name].array(values) for name, values in columns.items()}
        arrays["nested"] = pa.StructArray.from_arrays([arrays["timestamp_ns"], arrays["date32"]], ["at", "day"])
        arrays["list"] = pa.ListArray.from_arrays(range(len(arrays["nested"]) + 1), arrays["time64_ns"])
        arrays["duration"] = arrays["timestamp_ns"].view(pa.duration("ns"))
        (folder / "lake" / file).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(arrays), folder / "lake" / f"{file}.parquet")
    table = TableConfig(name="t", uri=str(folder / "lake"))
    config = MetastoreConfig(root=str(folder / "root"), tables=[table])
    with pytest.MonkeyPatch.context() as patch, everything_on_spark():
        sent_types = watch_what_travels(patch)
        refresh(config, table, lambda: spark)
    assert {
        "Fragment",
        "FragmentEntry",
        "TreeMerge",
        "_TaskResult",
        "_PartialSum",
        "_Part",
        "_Completion",
    } <= sent_types
    return Metastore(config.root).table("t")


def watch_what_travels(patch: pytest.MonkeyPatch) -> set[str]:
    """Assert from now on that nothing that is pickled or returned contains an Arrow scalar.

    Returns a set that collects the class names of the checked objects.
    """
    observed_types: set[str] = set()

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(argument: Any) -> Any:
            result = function(argument)
            for value in (argument, result):
                assert list(scalars_in(value)) == []
                observed_types.update(type(one).__name__ for one in flat(value))
            return result

        return call

    def flat(value: Any) -> Iterator[Any]:
        """Yield the elements of lists and tuples, at any depth."""
        if isinstance(value, list | tuple):
            for one in value:
                yield from flat(one)
        else:
            yield value

    for module in (runner, shuffle):
        for name in ("pack", "unpack_results"):
            patch.setattr(module, name, watched(getattr(module, name)))
    return observed_types


@pytest.mark.spark
@pytest.mark.parametrize("partition", [None, "part=a", "part=b"])
@pytest.mark.parametrize("name", STORABLE)
def test_every_type_is_reported_unchanged(
    results: Table, rows: dict[str, dict[str, list[Any]]], name: str, partition: str | None
) -> None:
    """Counts, bounds, percentiles and frequencies equal those that Python computes by definition."""
    values = [
        value
        for file, columns in rows.items()
        if partition is None or file.startswith(partition)
        for value in columns[name]
    ]
    if name in FINER:
        values = [None if value is None else value * FINER[name] for value in values]
    facts = Facts(values)
    (row,) = results.statistics([name], partition=partition)
    assert (row.value_count, row.null_count) == (facts.value_count, facts.null_count)
    assert (row.distinct_count, row.distinct_count_guarantee) == (facts.distinct_count, "exact")
    assert row.duplicate_count == facts.duplicate_count
    assert (plain(row.minimum), plain(row.maximum)) == (facts.minimum, facts.maximum)
    assert [plain(value) for _, value in row.percentiles or ()] == facts.percentiles
    assert row.percentiles_guarantee == "exact"
    top_values = results.top(name, 1000, partition=partition)
    assert {plain(value): count for value, count in top_values} == facts.counts


@pytest.mark.spark
def test_every_answer_is_json_without_loss(results: Table) -> None:
    """The JSON of commands and Dagster events is exact for values that Python cannot represent."""
    table = results.statistics()
    rows_by_column = {row["column"]: row for row in columns_json(results.version, table)}
    json.dumps(rows_by_column, allow_nan=False)
    expected = {
        "date32": ("-5877641-06-23", "+5881580-07-11"),
        "time64_ns": ("00:00:00", "23:59:59.999999999"),
        "list.element": ("00:00:00", "23:59:59.999999999"),
        "timestamp_ns": ("1677-09-21T00:12:43.145224192", "2262-04-11T23:47:16.854775807"),
        "nested.at": ("1677-09-21T00:12:43.145224192", "2262-04-11T23:47:16.854775807"),
        "timestamptz_us": ("-290308-12-21T19:59:05.224192Z", "+294247-01-10T04:00:54.775807Z"),
        "uint64": (0, str(2**64 - 1)),
        "decimal128": (f"-{10**38 - 1}", str(10**38 - 1)),
        "duration": (None, None),
    }
    for name, bounds in expected.items():
        assert (rows_by_column[name]["minimum"], rows_by_column[name]["maximum"]) == bounds, name
    assert rows_by_column["duration"]["reason"] == "duration[ns] is not a type that values are profiled of"
    for row in table:
        check_histogram(results, row)
        if row.frequencies == "enumerated":
            json.dumps(top_json(results.top(row.column)), allow_nan=False)
    summary = read_summary(results, None, 8)
    for kind in FILES:
        assert profile_metadata(kind, TableDescription(summary, "t", results.version.schema), ["uri"])


def check_histogram(results: Table, row: ColumnStatistics) -> None:
    """Assert that a column's histogram can be written as JSON, and its bins count all finite values."""
    if row.percentiles is None or row.type_class in ("string", "binary", "uuid", "boolean", None):
        return
    bins = results.histogram(row.column)
    json.dumps(histogram_json(bins), allow_nan=False)
    top_values = ((plain(value), count) for value, count in results.top(row.column, 1000))
    infinite = sum(count for value, count in top_values if value in (math.inf, -math.inf))
    assert sum(one.frequency for one in bins) == row.value_count - (row.nan_count or 0) - infinite


@pytest.mark.spark
def test_tasks_of_users_return_scalars(spark: SparkSession) -> None:
    """A user's function on Spark may return and refer to Arrow scalars, whose values do not change.

    Functions of a refresh must not, as the fixture `results` checks.
    """
    types = (pa.timestamp("ns"), pa.time64("ns"), pa.timestamp("us", "UTC"), pa.duration("ns"))
    numbers = (1, 999, 2**63 - 1, 7)
    scalars = [pa.array([number], pa.int64()).view(type_)[0] for number, type_ in zip(numbers, types, strict=True)]
    result = runner.SparkRunner(lambda: spark).map(lambda number: [scalars[number], number], list(range(len(scalars))))
    assert tuple(value.value for value, _ in sorted(result, key=lambda pair: pair[1])) == numbers
