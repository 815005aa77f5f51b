"""A scan on Spark returns the rows of the filtered table, and opens only files that may match.

A version has the statistics of one snapshot of the table. A profile has the statistics of a set of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ColumnNotFoundError, FragmentError, MetastoreError, UnsupportedTypeError
from metastore_assets.lookup import ScanRequest, Table
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.reads.scan_plan import plan_scan


def no_spark() -> Any:
    raise AssertionError("nothing here is worth a session")


def published(uri: Path) -> tuple[TableConfig, Table]:
    config = MetastoreConfig(root=f"{uri}-root", tables=[TableConfig(name="t", uri=str(uri))], engine="auto")
    refresh(config, config.tables[0], no_spark)
    return config.tables[0], open_table(config.root, "t")


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": ids,
            "name": [f"n{number:04d}" if number % 7 else None for number in ids],
            "x": [number / 4 for number in ids],
        }
    )


@pytest.mark.spark
def test_a_scan_returns_the_matching_rows_and_skips_pruned_files(spark: SparkSession, tmp_path: Path) -> None:
    """Scans and counts read the current snapshot of a table, or the snapshot of the version.

    The table has deleted rows. Pruned files are moved away, so that opening one would fail. The files of rows that are
    added after the version have no profiles yet. They are pruned by the statistics of the Delta log.
    """
    uri = tmp_path / "delta"
    for part in range(6):
        write_deltalake(str(uri), rows(part * 100, 100), mode="append")
    DeltaTable(str(uri)).delete("id = 205")
    table, lookup = published(uri)
    frame = lookup.scan(spark, ScanRequest("id between 190 and 210 and name is not null", ["name", "id"]), table=table)
    expected_ids = [index for index in range(190, 211) if index % 7 and index != 205]
    assert frame.columns == ["name", "id"]
    assert sorted(row["id"] for row in frame.collect()) == expected_ids
    assert {row["name"] for row in frame.collect()} == {f"n{number:04d}" for number in expected_ids}
    assert lookup.scan(spark, "id < 0", table=table).collect() == []
    assert lookup.scan(spark, ScanRequest("id >= 0", limit=5), table=table).count() == 5
    assert lookup.scan(spark, "true", table=table).count() == 599
    # Pruned files are removed, so that opening one fails.
    for path in lookup.prune("id > 300").paths:
        Path(path.removeprefix("file://")).rename(tmp_path / Path(path).name)
    assert lookup.scan(spark, "id < 50", table=table).count() == 50
    with pytest.raises(FragmentError, match="parquet"):
        lookup.count("x > 80.1 and x < 80.3 and name like '%9'", table=table, spark=spark, snapshot="version")
    for path in tmp_path.glob("*.parquet"):
        path.rename(uri / path.name)
    # Rows that were added since the version are read.
    write_deltalake(str(uri), rows(1000, 50), mode="append")
    answer = lookup.count("id >= 580", table=table, spark=spark)
    assert (answer.value, answer.as_of.snapshot != lookup.version.snapshot) == (70, True)
    assert lookup.count("id >= 580", table=table, spark=spark, snapshot="version").value == 20
    # Files that are not profiled yet are pruned by statistics of the Delta log.
    answer = lookup.count("id < 50 and name is not null", table=table, spark=spark)
    assert answer.value == len([index for index in range(50) if index % 7])
    assert plan_scan(lookup, table, "id between 1050 and 2000", "now").partial_fragments == ()
    assert len(plan_scan(lookup, table, "id = 1049", "now").partial_fragments) == 1
    assert sorted(row["id"] for row in lookup.scan(spark, "id >= 1045", table=table).collect()) == list(
        range(1045, 1050)
    )
    with pytest.raises(ColumnNotFoundError, match="'name'"):
        lookup.scan(spark, ScanRequest("id > 1", columns=["nmae"]), table=table)


@pytest.mark.spark
def test_columns_have_spark_types_and_others_are_refused(
    spark: SparkSession, tmp_path: Path, build: Callable[[], pa.Table]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    pq.write_table(build(), folder / "0.parquet")
    table, lookup = published(folder)
    columns = [name for name in build().column_names if name != "clock"]
    (row,) = lookup.scan(spark, ScanRequest("small = 200", columns), table=table).collect()
    assert (row["small"], row["big"], row["in"]["y"], row["many"]) == (200, 2**64 - 1, 2.5, [1, 2])
    assert str(row["at"]) == "2024-01-01 00:00:00.000001"
    with pytest.raises(UnsupportedTypeError, match=r"'clock'.*'t'.*time64"):
        lookup.scan(spark, "small = 200", table=table)


@pytest.fixture
def build() -> Callable[[], pa.Table]:
    return lambda: pa.table(
        {
            "small": pa.array([1, 200], pa.uint8()),
            "big": pa.array([0, 2**64 - 1], pa.uint64()),
            "in": pa.array([None, {"y": 2.5}], pa.struct([("y", pa.float32())])),
            "many": pa.array([[], [1, 2]], pa.large_list(pa.int32())),
            "at": pa.array([0, 1704067200000001000], pa.timestamp("ns")),
            "clock": pa.array([1, 2], pa.time64("us")),
        }
    )


def test_a_version_of_plain_files_that_changed_cannot_be_counted(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    pq.write_table(rows(0, 10), folder / "0.parquet")
    table, lookup = published(folder)
    pq.write_table(rows(10, 10), folder / "1.parquet")
    assert lookup.count("id >= 5", table=table).value == 15
    with pytest.raises(MetastoreError, match=r"'t'.*version 1\b"):
        lookup.count("id >= 5", table=table, snapshot="version")
