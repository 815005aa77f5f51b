"""Statistics are right for difficult tables.

The tables have many columns or partitions, long or near-unique values, strange names, empty files, or no rows any more.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.errors import NotStoredError
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import refresh
from tests.pipeline.file_lake import Lake, rows
from tests.robustness.refresh_assertions import assert_equals_scratch, no_spark, refreshed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def lake_of_files(folder: Path, **files: pa.Table) -> Lake:
    """Write a table of Parquet files with these names and rows.

    Return the table.
    """
    lake = Lake(folder)
    for name, table in files.items():
        add(lake, name, table)
    return lake


def add(lake: Lake, name: str, table: pa.Table) -> None:
    lake.uri.mkdir(exist_ok=True)
    pq.write_table(table, lake.uri / f"{name}.parquet")


def lookup(lake: Lake) -> Table:
    return Metastore(lake.config().root).table("t")


NAMES = [
    "a.b",
    "a",
    "A",
    "`",
    "x`y",
    '"',
    "'",
    "🦊",
    "two\nlines",
    " ",
    "",
    "%",
    "/",
    "a,b",
    "é",
    "e\u0301",
    "null",
    "*",
]


def test_strange_column_names_are_distinguished(spark: SparkSession, tmp_path: Path) -> None:
    """Columns have separate statistics, even if names differ only in case or look like nested fields."""
    columns = {name: pa.array([number, None]) for number, name in enumerate(NAMES)}
    columns["a"] = pa.array([{"b": 1, "B": 2, "b.c": 3}, None])
    lake = lake_of_files(tmp_path, one=pa.table(columns), two=pa.table(columns))
    refreshed(lake.config(), spark)
    add(lake, "three", pa.table(columns))
    refreshed(lake.config(), spark)
    published_table = lookup(lake)
    column_rows = published_table.statistics()
    assert len({row.column for row in column_rows}) == len(column_rows) == len(NAMES) + 3
    for number, name in enumerate(NAMES):
        path = "`a.b`" if name == "a.b" else name
        (row,) = published_table.statistics([path])
        if name != "a":
            assert [(value.as_py(), count) for value, count in published_table.top(path)] == [(number, 3)]
            assert sum(one.frequency for one in published_table.histogram(path)) == 3
        assert (row.value_count, row.null_count) == (3, 3)
    for path, value in {"a.b": 1, "a.B": 2, "a.b.c": 3}.items():
        assert [(scalar.as_py(), count) for scalar, count in published_table.top(path)] == [(value, 3)]
    assert_equals_scratch(lake.config(), spark, tmp_path)


def test_files_without_row_groups_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Files with a schema and no rows are counted: alone, beside others, or as the only ones left."""
    schema = pa.schema([("a", pa.int64()), ("s", pa.string())])
    lake = lake_of_files(tmp_path)
    lake.uri.mkdir()
    pq.ParquetWriter(lake.uri / "empty.parquet", schema).close()
    assert pq.ParquetFile(lake.files()[0]).num_row_groups == 0
    refreshed(lake.config(), spark)
    assert (lookup(lake).count().value, lookup(lake).top("s"), lookup(lake).histogram("a")) == (0, [], [])
    add(lake, "filled", pa.table({"a": [1, 2], "s": ["x", None]}, schema))
    refreshed(lake.config(), spark)
    assert (lookup(lake).count().value, len(lookup(lake).histogram("a"))) == (2, 2)
    assert_equals_scratch(lake.config(), spark, tmp_path)
    (lake.uri / "filled.parquet").unlink()
    refreshed(lake.config(), spark)
    assert lookup(lake).count().value == 0
    assert_equals_scratch(lake.config(), spark, tmp_path)


@pytest.mark.parametrize("columns", [300, pytest.param(5000, marks=pytest.mark.long)])
def test_many_columns(spark: SparkSession, tmp_path: Path, columns: int) -> None:
    def table(shift: int) -> pa.Table:
        return pa.table({f"c{number}": [number, number + shift, None] for number in range(columns)})

    lake = lake_of_files(tmp_path, one=table(1), two=table(2))
    refreshed(lake.config(), spark)
    add(lake, "three", table(0))
    assert refreshed(lake.config(), spark).fragments_profiled == 1
    published_table = lookup(lake)
    assert [row.distinct_count for row in published_table.statistics()] == [3] * columns
    last = columns - 1
    assert [(value.as_py(), count) for value, count in published_table.top(f"c{last}")] == [
        (last, 4),
        (last + 1, 1),
        (last + 2, 1),
    ]
    assert refresh(lake.config(), lake.table, no_spark).seconds < 10


@pytest.mark.parametrize("count", [20, *(pytest.param(count, marks=pytest.mark.long) for count in (70, 2000))])
def test_many_partitions(spark: SparkSession, tmp_path: Path, count: int) -> None:
    """After a commit to two of many partitions, a refresh recomputes no other partition.

    The statistics of the table are right.
    """
    lake = Lake(tmp_path)
    for partition in range(count):
        folder = lake.uri / f"part={partition}"
        folder.mkdir(parents=True)
        pq.write_table(
            pa.table({"a": [partition, partition, -1], "s": ["x", None, str(partition)]}), folder / "1.parquet"
        )
    refreshed(lake.config(), spark)
    for partition in (3, 5):
        pq.write_table(pa.table({"a": [7], "s": ["y"]}), lake.uri / f"part={partition}" / "2.parquet")
    result = refreshed(lake.config(), spark)
    assert (result.fragments_profiled, result.partitions_changed) == (2, ("part=3", "part=5"))
    published_table = lookup(lake)
    assert published_table.count().value == 3 * count + 2
    assert [(value.as_py(), times) for value, times in published_table.top("a", 2)] == [(-1, count), (7, 4)]
    (row,) = published_table.statistics(["part"])
    assert row.distinct_count == count
    if count < 1000:
        assert_equals_scratch(lake.config(), spark, tmp_path)


@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.long)])
def test_values_of_a_megabyte_are_stored_completely(spark: SparkSession, tmp_path: Path, count: int) -> None:
    """Value counts have the complete values, even if these have a megabyte.

    Bounds in `statistics` are truncated and marked as such.
    """
    draw = random.Random(count)

    def table() -> pa.Table:
        return pa.table({"s": ["common", *(draw.randbytes(500_000).hex() for _ in range(count))]})

    tables = {name: table() for name in ("one", "two")}
    lake = lake_of_files(tmp_path, **tables)
    refreshed(lake.config(), spark)
    texts = [text for one in tables.values() for text in one["s"].to_pylist()]
    published_table = lookup(lake)
    (row,) = published_table.statistics(["s"])
    assert (row.distinct_count, row.maximum_length) == (2 * count + 1, 1_000_000)
    assert (row.minimum_exact, row.maximum_exact) == (False, max(texts) == "common")
    assert row.minimum.as_py() <= min(texts)
    assert row.maximum.as_py() >= max(texts)
    top_values = published_table.top("s", 2)
    assert [(value.as_py(), times) for value, times in top_values] == [("common", 2), (min(texts), 1)]


@pytest.mark.parametrize("count", [140_000, pytest.param(2_000_000, marks=pytest.mark.long)])
def test_a_near_unique_column_is_estimated(spark: SparkSession, tmp_path: Path, count: int) -> None:
    """A near-unique column has an estimated number of distinct values, and no value counts.

    The error of a lookup says how value counts can be stored.
    """
    half = count // 2
    lake = lake_of_files(
        tmp_path,
        one=pa.table({"u": [f"user-{number:012}" for number in range(half)]}),
        two=pa.table({"u": [f"user-{number:012}" for number in range(half, count)]}),
    )
    refreshed(lake.config(), spark)
    published_table = lookup(lake)
    (row,) = published_table.statistics(["u"])
    assert (row.frequencies, row.distinct_count_guarantee) == ("estimated", "estimate")
    assert row.distinct_count == pytest.approx(count, rel=0.05)
    with pytest.raises(NotStoredError, match="frequencies: all"):
        published_table.top("u")
    assert_equals_scratch(lake.config(), spark, tmp_path)


def test_deletes_down_to_no_rows_are_correct(spark: SparkSession, tmp_path: Path) -> None:
    """Each commit only deletes rows, until none is left.

    Row counts and value counts are those of the live rows.
    """
    lake = Lake(tmp_path)
    for _ in range(3):
        write_deltalake(str(lake.uri), rows(lake.draw, 60), mode="append")
    refreshed(lake.config(), spark)
    for predicate in ("\"group\" = 'a'", "id < 500000", "id is null", '"group" is null', "true"):
        table = DeltaTable(lake.uri)
        table.delete(predicate)
        refreshed(lake.config(), spark)
        live = DeltaTable(lake.uri).to_pyarrow_table().to_pylist()
        published_table = lookup(lake)
        assert published_table.count().value == len(live)
        counts = Counter(row["group"] for row in live if row["group"] is not None)
        assert {value.as_py(): times for value, times in published_table.top("group")} == counts
    assert_equals_scratch(lake.config(), spark, tmp_path)
