"""Spark's data source returns the rows of a filtered full scan, and opens only files that may match."""

from __future__ import annotations

import random
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lookup import ScanRequest, Table
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.scan import register
from tests.expressions.random_predicates import holds, plain, predicates, rows_of, sql, table_of
from tests.scan.test_pruned_scan import example, no_spark


def published(folder: Path, uri: Path, name: str = "t") -> Table:
    table_config = TableConfig(name=name, uri=str(uri))
    config = MetastoreConfig(root=str(folder / "root"), tables=[table_config], engine="auto")
    refresh(config, table_config, no_spark)
    return open_table(config.root, name, table_locations=[str(uri)])


def opened(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    return (
        spark.read.format("metastore")
        .options(**{"table": "t", "uri": str(folder / "lake"), **options})
        .load(str(folder / "root"))
    )


def tenfold(uri: Path, files: int) -> None:
    """Write a Delta table of `files` files with ten numbers each."""
    for at in range(files):
        ids = list(range(at * 10, at * 10 + 10))
        write_deltalake(str(uri), pa.table({"id": ids, "name": [f"n{number}" for number in ids]}), mode="append")


def move_files(paths: set[str], folder: Path) -> None:
    for path in paths:
        Path(path).rename(folder / Path(path).name)


def check(spark: SparkSession, folder: Path, number: int, count: int) -> None:
    """Write a random table with the seed `number`, and compare Spark's rows for `count` predicates.

    The expected rows are computed in plain Python.
    """
    draw = random.Random(number)
    parts = example(st.lists(rows_of(most=8), min_size=2, max_size=4), draw, 3)[-1]
    every = []
    uri = folder / f"lake{number}"
    for at, rows in enumerate(parts):
        numbered_rows = [{**row, "n": at * 100 + position} for position, row in enumerate(plain(rows))]
        every += numbered_rows
        part = uri / f"part={at % 2}"
        part.mkdir(parents=True, exist_ok=True)
        table = table_of(rows).append_column("n", pa.array([row["n"] for row in numbered_rows], pa.int64()))
        pq.write_table(table, part / f"{at}.parquet")
    published(folder, uri, f"t{number}")
    for node in example(predicates(), draw, count):
        expected_numbers = sorted(row["n"] for row in every if holds(node, row) is True)
        frame = opened(spark, folder, table=f"t{number}", uri=str(uri), where=sql(node))
        assert sorted(row["n"] for row in frame.select("n").collect()) == expected_numbers, sql(node)


@pytest.mark.spark
def test_rows_are_those_of_a_full_scan(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    check(spark, tmp_path, 1, 2)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_rows_are_those_of_a_full_scan_at_length(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    for number in range(10):
        check(spark, tmp_path, 10 + number, 20)


@pytest.mark.spark
def test_only_files_that_may_match_are_opened(spark: SparkSession, tmp_path: Path) -> None:
    """A frame with a predicate has the matching rows, and opens no pruned file.

    Pruned files are moved away, so that opening one would fail. A request for an unknown column, with an unknown
    option or without the option `table` is an error.
    """
    register(spark)
    tenfold(tmp_path / "lake", 6)
    lookup = published(tmp_path, tmp_path / "lake")
    few = opened(spark, tmp_path, where="id between 22 and 24 and name like 'n2%'", columns="name")
    move_files(set(lookup.prune("true").paths) - set(lookup.prune("id between 22 and 24").paths), tmp_path)
    assert few.columns == ["name"]
    assert sorted(row["name"] for row in few.collect()) == ["n22", "n23", "n24"]
    with pytest.raises(PythonException, match=r"\bFragmentError\b.*\.parquet"):
        opened(spark, tmp_path).count()
    with pytest.raises(AnalysisException, match=r"\bColumnNotFoundError\b.*'nmae'.*'name'"):
        opened(spark, tmp_path, columns="nmae")
    with pytest.raises(AnalysisException, match=r"\bConfigError\b.*\boption 'wher'; did you mean 'where'"):
        opened(spark, tmp_path, wher="id = 22")
    with pytest.raises(AnalysisException, match=r"\boption\b.*\btable\b"):
        spark.read.format("metastore").load(str(tmp_path / "root"))


@pytest.mark.spark
@pytest.mark.long
def test_filters_of_one_query_do_not_affect_other_queries(spark: SparkSession, tmp_path: Path) -> None:
    """Spark pushes the filters of several queries on one frame down to the source.

    Each query returns only the rows that match its own filter.
    """
    register(spark)
    tenfold(tmp_path / "lake", 6)
    published(tmp_path, tmp_path / "lake")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = opened(spark, tmp_path)
        late, early = frame.filter("id > 52"), frame.filter("id < 3")
        plans = [frame_.groupBy().count() for frame_ in (late, early, frame)]
        for frame_ in plans:
            frame_._jdf.queryExecution().executedPlan()
        assert [plan.collect()[0][0] for plan in plans] == [7, 3, 60]
        assert late.join(frame.filter("id < 56"), "id").count() == 3
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.spark
def test_a_limit_opens_only_necessary_files(spark: SparkSession, tmp_path: Path) -> None:
    tenfold(tmp_path / "lake", 6)
    lookup = published(tmp_path, tmp_path / "lake")
    limited_pruning = lookup.prune("id >= 5", limit=18)
    assert limited_pruning.fragment_count == 2
    assert sum(elimination.fragments for elimination in limited_pruning.explanation) == 4
    move_files(set(lookup.prune("true").paths) - set(limited_pruning.paths), tmp_path)
    assert len(lookup.scan(spark, ScanRequest("id >= 5", limit=18)).collect()) == 18
    assert lookup.scan(spark, ScanRequest("id >= 5", limit=0)).collect() == []
