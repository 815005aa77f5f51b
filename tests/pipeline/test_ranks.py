"""After any commits, quantiles, ranks and the location of values equal DuckDB's."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from metastore_assets.errors import VersionConflictError
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_counts.compact import compact
from metastore_assets.produce import Settings
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from metastore_assets.value_counts import graph, read_value_counts
from tests.pipeline.file_lake import Lake, assert_same, everything

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
RUNS = Settings(single_run_rows=0, bulk_share=1e9, base_share=1e9, max_runs=9, row_group_rows=7)
"""Settings with which every commit adds a run, however few rows it has."""
FRACTIONS = (0, 0.01, 0.3, 0.5, 0.9, 1)
COLUMNS = ("id", "group", "price", "day")


@pytest.fixture(autouse=True)
def _in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "SETTINGS", RUNS)


def assert_answers(table: Table, lake: Lake, draw: random.Random) -> None:
    """Compare answers for the table and for a random partition with DuckDB's.

    The table's files of value counts are also compared.
    """
    key = draw.choice([entry.key for entry in table.partitions()])
    for partition in (None, key):
        folder = "*" if partition is None else partition
        with duckdb.connect() as connection:
            files = f"{lake.uri}/{folder}/*.parquet"
            connection.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet('{files}', hive_partitioning = false)")
            for column in COLUMNS:
                assert_column(table, connection, column, partition, draw)
                if partition is None:
                    assert_files(table, connection, column, lake)
    with duckdb.connect() as connection:
        for column in ("group", "day"):
            source = f"read_parquet('{lake.uri}/*/*.parquet', hive_partitioning = true)"
            rows = connection.execute(f'SELECT "{column}", part, count(*) FROM {source} GROUP BY ALL').fetchall()
            value = draw.choice([row[0] for row in rows if row[0] is not None])
            frequencies = {f"part={part}": count for row_value, part, count in rows if row_value == value}
            assert dict(table.locate(column, value)) == frequencies


def assert_files(table: Table, connection: duckdb.DuckDBPyConnection, column: str, lake: Lake) -> None:
    """Assert that frequencies in a column's value-count files, summed by value, equal DuckDB's."""
    files = [f"{lake.config().root}/t/{path}" for path in table.value_files(column)]
    (row,) = table.statistics([column])
    expected_rows = connection.execute(
        "SELECT value, sum(frequency) FROM read_parquet(?) f WHERE f.column = ? "
        "GROUP BY value HAVING sum(frequency) > 0 ORDER BY value",
        [files, row.field_id],
    ).fetchall()
    rows = connection.execute(f'SELECT "{column}", count(*) FROM t WHERE "{column}" IS NOT NULL GROUP BY 1 ORDER BY 1')
    assert expected_rows == rows.fetchall()


def assert_column(
    table: Table, connection: duckdb.DuckDBPyConnection, column: str, partition: str | None, draw: random.Random
) -> None:
    """Assert that a column's quantiles, ranks, counts and entropy equal DuckDB's.

    Counts are frequencies and distinct counts.
    """

    def ask(what: str, *parameters: Any) -> Any:
        result = connection.execute(f"SELECT {what} FROM t", parameters).fetchone()
        assert result is not None
        return result[0] if len(result) == 1 else result

    for quantile in table.quantile(column, FRACTIONS, partition=partition):
        stored_value = None if quantile.value is None else quantile.value.as_py()
        assert stored_value == ask(f'quantile_disc("{column}", {quantile.q:f})'), (column, quantile, partition)
    if column != "group":
        # DuckDB rounds decimals to their scale, and returns timestamps for dates.
        what = f'quantile_cont("{column}"::DOUBLE, ?)' if column != "day" else 'quantile_cont("day"::TIMESTAMP, ?)'
        for quantile in table.quantile(column, FRACTIONS, partition=partition, method="continuous"):
            stored_value = None if quantile.value is None else quantile.value.as_py()
            expected = connection.execute(f"SELECT {what.replace('?', f'{quantile.q:f}')} FROM t").fetchone()
            assert expected is not None
            if isinstance(stored_value, float):
                assert stored_value == pytest.approx(expected[0], rel=1e-12)
            else:
                # To the millisecond, which is the precision of the answer.
                assert (stored_value is None) == (expected[0] is None)
                assert stored_value is None or abs((stored_value - expected[0]).total_seconds()) <= 0.001
    values = [row[0] for row in connection.execute(f'SELECT DISTINCT "{column}" FROM t').fetchall()]
    non_null = [value for value in values if value is not None]
    odd = {"id": 500_000, "group": "b!", "price": Decimal("123456.78"), "day": date(1999, 12, 31)}[column]
    for value in [odd, *draw.sample(non_null, min(2, len(non_null)))]:
        assert table.rank(column, value, partition=partition).value == ask(f'count(*) FILTER ("{column}" < ?)', value)
        assert table.frequency(column, value, partition=partition).value == ask(
            f'count(*) FILTER ("{column}" = ?)', value
        )
        low, high = sorted([value, odd])
        between = ask(f'count(*) FILTER ("{column}" BETWEEN ? AND ?)', low, high)
        assert table.frequency_between(column, low, high, partition=partition).value == between
    spread = table.spread(column, partition=partition)
    often = f'SELECT count(*) AS often FROM t WHERE "{column}" IS NOT NULL GROUP BY "{column}"'
    counts = connection.execute(f"SELECT count(*), count(*) FILTER (often > 1) FROM ({often})").fetchone()
    assert counts == (spread.distinct_count, spread.duplicate_count)
    assert spread.entropy == pytest.approx(ask(f'coalesce(entropy("{column}") FILTER ("{column}" IS NOT NULL), 0)'))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))])
def test_ranks_equal_those_from_the_rows_after_any_commits(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    lake = Lake(tmp_path, random.Random(seed))
    for partition in range(4):
        lake.append(partition)
    for _ in range(2):
        refresh(lake.config(), lake.table, lambda: spark)
        assert_answers(Metastore(lake.config().root).table("t"), lake, lake.draw)
        lake.commit()


def test_ranks_are_equal_after_a_compaction(spark: SparkSession, tmp_path: Path) -> None:
    """A compaction changes no answer, leaves fewer files, and has nothing to do if it is repeated.

    The next refresh continues from the new files.
    """
    lake = Lake(tmp_path)
    for partition in range(3):
        lake.append(partition, 60)
    config = lake.config()
    refresh(config, lake.table, lambda: spark)
    lake.append(1, 20)
    refresh(config, lake.table, lambda: spark)
    versions = VersionStore(ObjectStore(config.root), "t")
    before, latest = everything(config), versions.latest()
    result = compact(versions, config.tables[0])
    assert latest is not None
    assert (result.published, result.version) == (True, latest.number + 1)
    assert result.files < result.files_before
    newest = versions.latest()
    assert newest is not None
    assert (newest.content_id, newest.snapshot) == (latest.content_id, latest.snapshot)
    assert_same(before, everything(config))
    for stage in read_value_counts(versions.objects, newest.value_counts).flow.stages.values():
        assert stage.content is not None
        assert len(list(stage.content.runs())) <= 1
    assert compact(versions, config.tables[0]).published is False
    assert refresh(config, lake.table, lambda: spark).published is False, "the table is the same"
    lake.append(1, 10)
    refresh(config, lake.table, lambda: spark)
    assert_answers(Metastore(config.root).table("t"), lake, lake.draw)


def test_a_compaction_repeats_after_a_concurrent_publish(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction that loses five races raises an error and leaves no files.

    A later one succeeds.
    """
    lake = Lake(tmp_path)
    lake.append(1, 60)
    config = lake.config()
    refresh(config, lake.table, lambda: spark)
    lake.append(1, 20)
    refresh(config, lake.table, lambda: spark)
    versions = VersionStore(ObjectStore(config.root), "t")
    files = {info.path for info in versions.objects.list()}

    def lose(*_: object, **options: object) -> None:
        raise VersionConflictError("another was first")

    with monkeypatch.context() as patch:
        patch.setattr(VersionStore, "publish", lose)
        with pytest.raises(VersionConflictError, match=r"\b5 versions"):
            compact(versions, config.tables[0])
    assert {info.path for info in versions.objects.list()} == files
    assert compact(versions, config.tables[0]).published
