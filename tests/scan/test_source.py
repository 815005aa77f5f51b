"""Spark's data source has the rows of a full scan with the filter, and opens only files that may have any."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.scan.source import register
from tests.lookup.predicates.model import rows_of, table_of
from tests.scan.test_law import example, no_spark

NAMES = [
    "small",
    "price",
    "wide",
    "ratio",
    "single",
    "word",
    "raw",
    "flag",
    "day",
    "local",
    "moment",
    "in.word",
    "in.day",
]
TOP = ["small", "price", "wide", "ratio", "single", "word", "raw", "flag", "day", "local", "moment", "in", "n"]


def publish(folder: Path, tables: list[pa.Table], name: str = "t") -> tuple[Path, Path]:
    """The table's folder and the root."""
    uri = folder / f"lake-{name}"
    for at, table in enumerate(tables):
        part = uri / f"part={at % 2}"
        part.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, part / f"{at}.parquet")
    own = TableConfig(name=name, uri=str(uri))
    config = MetastoreConfig(root=str(folder / "root"), tables=[own], engine="auto")
    refresh(config, own, no_spark)
    return uri, folder / "root"


def conditions(draw: random.Random, rows: list[dict[str, Any]], depth: int = 2) -> Callable[[DataFrame], Column]:
    """A random condition with values that rows have."""
    if depth and draw.random() < 0.5:
        parts = [conditions(draw, rows, depth - 1) for _ in range(2)]
        kind = draw.choice(["and", "and", "or", "not"])
        if kind == "not":
            return lambda frame: ~parts[0](frame)
        return lambda frame: reduce(
            lambda one, other: (one & other) if kind == "and" else (one | other), [own(frame) for own in parts]
        )
    name = draw.choice(NAMES)
    held = [value_of(row, name) for row in rows]
    values = [own for own in held if own is not None] or [None]
    value, other = draw.choice(values), draw.choice(values)
    kind = draw.choice(["=", "<", "<=", ">", ">=", "!=", "<=>", "in", "null", "not null", "starts", "contains"])
    if kind in ("starts", "contains") and not isinstance(value, str):
        kind = "="
    return {
        "=": lambda frame: frame[name] == f.lit(value),
        "!=": lambda frame: frame[name] != f.lit(value),
        "<": lambda frame: frame[name] < f.lit(value),
        "<=": lambda frame: frame[name] <= f.lit(value),
        ">": lambda frame: frame[name] > f.lit(value),
        ">=": lambda frame: frame[name] >= f.lit(value),
        "<=>": lambda frame: frame[name].eqNullSafe(f.lit(value)),
        "in": lambda frame: frame[name].isin([own for own in (value, other) if own is not None]),
        "null": lambda frame: frame[name].isNull(),
        "not null": lambda frame: frame[name].isNotNull(),
        "starts": lambda frame: frame[name].startswith(str(value)[:2]),
        "contains": lambda frame: frame[name].contains(str(value)[1:2]),
    }[kind]


def value_of(row: dict[str, Any], name: str) -> Any:
    outer, _, inner = name.partition(".")
    value = row[outer] if not inner or row[outer] is None else row[outer][inner]
    # Spark's literals of times are in the session's zone, and Python's before 1900 lose theirs.
    return None if isinstance(value, datetime) and value.year < 1900 else value


def check(spark: SparkSession, folder: Path, number: int, count: int) -> int:
    draw = random.Random(number)
    parts = example(st.lists(rows_of(most=8), min_size=2, max_size=4), draw, 3)[-1]
    tables = []
    for at, rows in enumerate(parts):
        numbers = pa.array([at * 100 + place for place in range(len(rows))], pa.int64())
        tables.append(table_of(rows).append_column("n", numbers).select(TOP))
    uri, root = publish(folder, tables, f"t{number}")
    source = (
        spark.read.format("metastore").option("table", f"t{number}").option("columns", ",".join(TOP)).load(str(root))
    )
    full = spark.read.parquet(str(uri)).cache()
    every = [row for rows in parts for row in rows]
    pushed = 0
    for _ in range(count):
        condition = conditions(draw, every)
        wanted = sorted(row["n"] for row in full.filter(condition(full)).select("n").collect())
        found = source.filter(condition(source))
        assert sorted(row["n"] for row in found.select("n").collect()) == wanted, condition(source)
        pushed += "PushedFilters: [" in plan_of(found) and "PushedFilters: []" not in plan_of(found)
    full.unpersist()
    return pushed


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.spark
def test_rows_are_those_of_a_full_scan(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    check(spark, tmp_path, 1, 8)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_rows_are_those_of_a_full_scan_at_length(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    assert sum(check(spark, tmp_path, 10 + number, 30) for number in range(10)) > 100
