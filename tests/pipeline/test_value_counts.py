"""The table's value counts, updated with each commit, equal DuckDB's.

An update costs as much as its changes.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import VersionConflictError
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.merging import reduce
from metastore_assets.pipeline.refresh import RefreshResult, refresh
from metastore_assets.produce import Settings
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from metastore_assets.value_counts import graph, read_value_counts
from tests.pipeline.file_lake import Lake, assert_same, everything, latest
from tests.pipeline.test_refresh import assert_matches_duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
RUNS = Settings(single_run_rows=0, bulk_share=1e9, base_share=1e9, fan_in=3, max_runs=9, row_group_rows=7)
"""Settings with which every commit adds a run, and every row group has few rows."""


@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 40))])
def test_value_counts_in_many_runs_equal_duckdbs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(graph, "SETTINGS", RUNS)
    lake = Lake(tmp_path, random.Random(seed))
    for partition in range(4):
        lake.append(partition, 120)
    for _number in range(3):
        refresh(lake.config(), lake.table, lambda: spark)
        answer = everything(lake.config())
        assert_matches_duckdb(answer, lake)
        lake.commit()
    refresh(lake.config(), lake.table, lambda: spark)
    refresh(lake.config("scratch"), lake.table, lambda: spark)
    assert_same(everything(lake.config()), everything(lake.config("scratch")))


class Plain:
    """A table of plain Parquet files, which may be in folders of partitions.

    Refreshes use Spark.
    """

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder
        self.spark = spark
        self.columns: dict[str, Any] = {}

    @property
    def config(self) -> MetastoreConfig:
        config = TableConfig.model_validate({"name": "t", "uri": str(self.folder / "lake"), "columns": self.columns})
        return MetastoreConfig(root=str(self.folder / "root"), tables=[config])

    def put(self, name: str, table: pa.Table) -> None:
        path = self.folder / "lake" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)

    def refresh(self, **how: Any) -> RefreshResult:
        return refresh(self.config, self.config.tables[0], lambda: self.spark, **how)

    def top(self, column: str, partition: str | None = None) -> Counter[Any]:
        values = Metastore(self.config.root).table("t").top(column, 10**9, partition=partition)
        assert [count for _, count in values] == sorted((count for _, count in values), reverse=True)
        return Counter({value.as_py(): count for value, count in values})

    def written(self) -> set[Path]:
        return set((self.folder / "root" / "t" / "value_counts").iterdir())


@pytest.fixture
def plain(spark: SparkSession, tmp_path: Path) -> Plain:
    return Plain(tmp_path, spark)


def columns_of(plain: Plain) -> dict[str, str]:
    """Return the type class of each column with value counts, by column.

    A type class is a group of types whose values are stored as one Arrow type.
    """
    return dict(read_value_counts(ObjectStore(plain.config.root).child("t"), latest(plain.config).value_counts).columns)


def test_an_only_partition_uses_the_tables_value_counts(plain: Plain) -> None:
    """The table and its partitions have exact value counts with one partition, two, and one again."""
    first = {"a": [1, 1, 2], "b": ["x", None, "y"]}
    plain.put("p=1/one", pa.table(first))
    plain.put("p=1/two", pa.table({"a": [2, 3], "b": ["x", "x"]}))
    plain.refresh()
    assert plain.top("a") == plain.top("a", "p=1") == Counter({1: 2, 2: 2, 3: 1})
    assert plain.top("b", "p=1") == Counter({"x": 3, "y": 1})
    plain.put("p=2/one", pa.table({"a": [3], "b": ["z"]}))
    result = plain.refresh()
    assert result.fragments_profiled == 1
    assert plain.top("a") == Counter({1: 2, 2: 2, 3: 2})
    assert plain.top("a", "p=1") == Counter({1: 2, 2: 2, 3: 1})
    assert plain.top("b", "p=2") == Counter({"z": 1})
    (plain.folder / "lake/p=2/one.parquet").unlink()
    plain.put("p=1/three", pa.table({"a": [9], "b": ["x"]}))
    plain.refresh()
    assert plain.top("a") == plain.top("a", "p=1") == Counter({1: 2, 2: 2, 3: 1, 9: 1})


def test_columns_are_added_dropped_and_change_their_class(plain: Plain) -> None:
    plain.put("one", pa.table({"a": pa.array([1, 1, 2], pa.int64()), "gone": ["x", "x", "y"]}))
    plain.put("two", pa.table({"a": pa.array([2], pa.int64()), "gone": ["y"]}))
    plain.refresh()
    assert plain.top("a") == Counter({1: 2, 2: 2})
    # A float changes the column's class; the other column is in only one file from now on.
    plain.put("two", pa.table({"a": pa.array([2.5], pa.float64()), "new": [True]}))
    plain.refresh()
    assert plain.top("a") == Counter({1.0: 2, 2.0: 1, 2.5: 1})
    assert plain.top("new") == Counter({True: 1})
    assert plain.top("gone") == Counter({"x": 2, "y": 1})
    plain.put("one", pa.table({"a": pa.array([7.0])}))
    plain.refresh()
    assert set(
        read_value_counts(ObjectStore(plain.config.root).child("t"), latest(plain.config).value_counts).columns
    ) == {
        "a",
        "new",
    }
    assert plain.top("a") == Counter({7.0: 1, 2.5: 1})


def test_a_column_enumerated_again_is_read_from_stored_profiles(plain: Plain) -> None:
    plain.put("one", pa.table({"a": [1, 1, 2], "b": ["x", "y", "y"]}))
    plain.put("two", pa.table({"a": [2, 5], "b": ["z", "y"]}))
    plain.refresh()
    plain.columns = {"b": {"frequencies": "off"}}
    assert plain.refresh().fragments_profiled == 0
    assert columns_of(plain) == {"a": "int64"}
    plain.columns = {}
    assert plain.refresh().fragments_profiled == 0
    assert plain.top("b") == Counter({"y": 3, "x": 1, "z": 1})
    assert plain.top("a") == Counter({1: 2, 2: 2, 5: 1})


def test_a_small_commit_writes_few_of_many_values(plain: Plain) -> None:
    """A commit that changes ten of 200,000 values writes less than a twentieth of the stored bytes."""
    plain.columns = {"x": {"frequencies": "all"}}
    draw = np.random.default_rng(3)
    numbers = draw.choice(2**60, 200_000, replace=False)
    values = draw.permutation(np.repeat(numbers, 2))
    for at in range(4):
        plain.put(f"{at}", pa.table({"x": values[at::4]}))
    plain.refresh()
    before = plain.written()
    complete = sum(path.stat().st_size for path in before)
    plain.put("more", pa.table({"x": numbers[5:15]}))
    plain.refresh()
    new = plain.written() - before
    assert sum(path.stat().st_size for path in new if path.suffix == ".parquet") < complete / 20
    assert plain.top("x") == Counter(np.concatenate([values, numbers[5:15]]).tolist())
    row = Metastore(plain.config.root).table("t").statistics(["x"])[0]
    assert (row.distinct_count, row.duplicate_count, row.distinct_count_guarantee) == (200_000, 200_000, "exact")


def test_a_lost_race_leaves_no_value_count_files(plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.put("one", pa.table({"a": [1, 1, 2]}))
    plain.put("two", pa.table({"a": [4, 4, 2]}))
    plain.refresh()
    plain.put("three", pa.table({"a": [8]}))
    real, lost_counts = VersionStore.publish, []

    def losing(self: VersionStore, version: Any, base: Any = None, **options: Any) -> None:
        if not lost_counts:
            lost_counts.append(version.value_counts)
            raise VersionConflictError("lost")
        real(self, version, base, **options)

    monkeypatch.setattr(VersionStore, "publish", losing)
    plain.refresh()
    referenced_paths = set(latest(plain.config).value_counts.paths())  # type: ignore[union-attr]
    retained_paths = {path for number in (1, 2) for path in _lists(plain, number)}
    assert {f"value_counts/{path.name}" for path in plain.written()} == retained_paths >= referenced_paths
    assert plain.top("a") == Counter({1: 2, 2: 2, 4: 2, 8: 1})


def _lists(plain: Plain, number: int) -> set[str]:
    lists = VersionStore(ObjectStore(plain.config.root), "t").read(number).value_counts
    return set() if lists is None else set(lists.paths())


def test_value_counts_of_a_partition_are_updated_or_summed_whichever_reads_less(
    plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value counts of a partition are updated or summed again, whichever reads less.

    The counts of a small new file are added to the stored ones, and those of a removed small file are subtracted. After
    the large file is removed, the counts of the small files are summed.
    """
    terms: list[list[int]] = []
    real = reduce.sum_columns

    def answers(engine: Any, store: Any, folder: Any, spec: Any, sums: Any) -> Any:
        terms.extend([sign for _, sign in one.terms] for one in sums)
        return real(engine, store, folder, spec, sums)

    monkeypatch.setattr(reduce, "sum_columns", answers)
    values = {"large": [*range(50_000), 3, 3], **{f"{at}": [at, at + 1, 60_000 + at] for at in range(12)}}
    for name, file_values in values.items():
        plain.put(f"p=1/{name}", pa.table({"x": file_values}))
    plain.put("p=2/one", pa.table({"x": [1]}))
    plain.refresh()
    terms.clear()
    values["new"] = [3, 7, 99_999]
    plain.put("p=1/new", pa.table({"x": values["new"]}))
    plain.refresh()
    assert terms == [[1, 1]]
    assert plain.top("x", "p=1") == Counter(value for file_values in values.values() for value in file_values)
    del values["large"]
    (plain.folder / "lake/p=1/large.parquet").unlink()
    terms.clear()
    plain.refresh()
    assert terms == [[1] * 13]
    assert plain.top("x", "p=1") == Counter(value for file_values in values.values() for value in file_values)
    del values["new"]
    (plain.folder / "lake/p=1/new.parquet").unlink()
    terms.clear()
    plain.refresh()
    assert terms == [[1, -1]]
    assert plain.top("x", "p=1") == Counter(value for file_values in values.values() for value in file_values)
