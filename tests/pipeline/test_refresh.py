"""After any commits, an incremental refresh equals one from scratch and DuckDB's results."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from metastore_assets.pipeline.merging import merge_plan
from metastore_assets.pipeline.outcome import Progress, RefreshResult
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import refresh
from tests.pipeline.file_lake import Lake, assert_same, everything, everything_on_spark, latest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def no_spark() -> SparkSession:
    raise AssertionError("Spark was started for small work")


def assert_matches_duckdb(answer: dict[str, Any], lake: Lake) -> None:
    """Assert that counts, bounds, sums, distinct values and frequencies equal DuckDB's.

    DuckDB computes them from the files.
    """
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE VIEW t AS SELECT * FROM read_parquet('{lake.uri}/*/*.parquet', hive_partitioning = false)"
        )
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (answer["row_count"],)
        for column in ("id", "group", "price", "day"):
            row = answer["table"]["columns"][column]
            expected_row = connection.execute(
                f'SELECT count("{column}"), count(*) - count("{column}"), count(DISTINCT "{column}"), '
                f'min("{column}"), max("{column}") FROM t'
            ).fetchone()
            bounds = [None if row[key] is None else row[key].as_py() for key in ("minimum", "maximum")]
            assert expected_row == (row["value_count"], row["null_count"], row["distinct_count"], *bounds), column
            expected_counts = connection.execute(
                f'SELECT "{column}", count(*) FROM t WHERE "{column}" IS NOT NULL GROUP BY 1 ORDER BY 1'
            ).fetchall()
            assert row["enumerated"] == sorted((repr(value), count) for value, count in expected_counts), column
        for column in ("id", "price"):
            (total,) = connection.execute(f'SELECT sum("{column}") FROM t').fetchone() or (None,)
            assert answer["table"]["columns"][column]["sum"] == total, column


@pytest.mark.parametrize(
    ("seed", "fan_in"),
    [
        (2, 5),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in [(1, 32), *((seed, 5 + seed % 3) for seed in range(3, 30))]
        ),
    ],
)
def test_incremental_equals_from_scratch_and_duckdb(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, fan_in: int
) -> None:
    monkeypatch.setattr(merge_plan, "FAN_IN", fan_in)
    lake = Lake(tmp_path, random.Random(seed))
    for partition in range(6):
        lake.append(partition)
    for number in range(6):
        config = lake.config()
        refresh(config, lake.table, lambda: spark)
        answer = everything(config)
        assert_matches_duckdb(answer, lake)
        if number % 3 == 2:
            scratch = lake.config(f"scratch{number}")
            with everything_on_spark():
                refresh(scratch, lake.table, lambda: spark)
            assert_same(answer, everything(scratch))
        lake.commit()


def test_an_unchanged_table_publishes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(1)
    first = refresh(lake.config(), lake.table, lambda: spark)
    again = refresh(lake.config(), lake.table, no_spark)
    assert (first.published, again.published, again.version) == (True, False, 1)
    assert again.seconds < 1


def test_only_changed_fragments_are_read(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for partition in range(5):
        lake.append(partition)
    refresh(lake.config(), lake.table, lambda: spark)
    before = {entry.key: entry.files for entry in latest(lake.config()).partitions}
    lake.append(3)
    result = refresh(lake.config(), lake.table, lambda: spark)
    after = {entry.key: entry.files for entry in latest(lake.config()).partitions}
    assert (result.fragments_added, result.fragments_profiled, result.fragments_unchanged) == (1, 1, 5)
    assert result.partitions_changed == ("part=3",)
    assert {key for key in after if after[key] != before[key]} == {"part=3"}


def test_a_removed_and_restored_fragment_is_not_read_again(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(1)
    file = lake.append(1)
    refresh(lake.config(), lake.table, lambda: spark)
    first = everything(lake.config())
    file.rename(tmp_path / "away")
    removal_result = refresh(lake.config(), lake.table, no_spark)
    assert (removal_result.fragments_removed, removal_result.fragments_profiled) == (1, 0)
    (tmp_path / "away").rename(file)
    restore_result = refresh(lake.config(), lake.table, lambda: spark)
    assert (restore_result.fragments_added, restore_result.fragments_profiled) == (1, 0)
    assert_same(everything(lake.config()), first)


def test_progress_is_reported_in_order(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(1)
    lake.append(2)
    events: list[Progress] = []
    refresh(lake.config(), lake.table, lambda: spark, progress=events.append)
    stages = [one.stage for one in events]
    assert [stage for index, stage in enumerate(stages) if stages[:index].count(stage) == 0] == [
        "plan",
        "profile",
        "reduce",
        "publish",
    ]
    assert [(one.done, one.total) for one in events if one.stage == "profile"] == [(0, 2), (2, 2)]


def test_a_table_without_rows_has_a_version(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(1, count=0)
    result: RefreshResult = refresh(lake.config(), lake.table, lambda: spark)
    answer = everything(lake.config())
    assert (result.partitions_total, answer["row_count"]) == (1, 0)
    assert answer["table"]["columns"]["id"]["distinct_count"] == 0
    assert answer["table"]["columns"]["id"]["minimum"] is None


def test_requested_partitions_are_read_again(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for partition in range(3):
        lake.append(partition)
    refresh(lake.config(), lake.table, lambda: spark)
    first = everything(lake.config())
    result = refresh(lake.config(), lake.table, lambda: spark, RefreshRequest(partitions=("part=0", "part=2")))
    assert (result.version, result.fragments_profiled, result.partitions_changed) == (2, 2, ("part=0", "part=2"))
    assert_same(everything(lake.config()), first)
