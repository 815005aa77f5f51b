"""The stored counts of repeated values are exact, after any commits and with any hash collisions.

A repeated value occurs at least twice in the table. For a fingerprinted column, the table's value counts contain its
repeated values. The profile (statistics) of a data file has no values of the column, only fingerprints: parts of the
values' hashes.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import RefreshResult, refresh
from metastore_assets.pipeline.value_counts import fingerprints
from metastore_assets.produce import Settings
from metastore_assets.value_counts import graph

RUNS = Settings(single_run_rows=0, bulk_share=1e9, base_share=1e9, fan_in=3, max_runs=9, row_group_rows=40)
COLUMNS = {"code": pa.string(), "number": pa.float64(), "parts": pa.list_(pa.int64())}
EXPRESSIONS = {"code": "code", "number": "number", "parts.element": "unnest(parts)"}
PRINTED = {"frequencies": "repeated", "algorithm": "fingerprints"}


class Lake:
    """A partitioned table of small files with fingerprinted columns, which is refreshed without Spark."""

    def __init__(self, folder: Path, policy: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.policy = PRINTED if policy is None else policy
        self.written = 0

    @property
    def config(self) -> MetastoreConfig:
        config = TableConfig.model_validate(
            {"name": "t", "uri": str(self.folder / "lake"), "columns": dict.fromkeys(EXPRESSIONS, self.policy)}
        )
        return MetastoreConfig(root=str(self.folder / "root"), engine="auto", tables=[config])

    @property
    def files(self) -> list[Path]:
        return sorted((self.folder / "lake").rglob("*.parquet"))

    def put(self, table: pa.Table, part: int = 0) -> Path:
        self.written += 1
        path = self.folder / "lake" / f"p={part}" / f"{self.written}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        return path

    def refresh(self, **how: Any) -> RefreshResult:
        return refresh(self.config, self.config.tables[0], _no_spark, **how)

    @property
    def table(self) -> Table:
        return Metastore(self.config.root).table("t")


def _no_spark() -> Any:
    raise AssertionError("so few rows need no Spark")


def rows(draw: random.Random, count: int) -> pa.Table:
    """Return rows in which some values repeat, within a file and across files."""

    def code() -> str | None:
        return draw.choice([None, f"{draw.randrange(150):03}", f"x{draw.randrange(10**6)}", ""])

    def number() -> float | None:
        return draw.choice([None, 0.0, -0.0, math.nan, draw.randrange(40) / 4, draw.random()])

    columns = {
        "code": [code() for _ in range(count)],
        "number": [number() for _ in range(count)],
        "parts": [[draw.randrange(60) for _ in range(draw.randrange(3))] for _ in range(count)],
    }
    return pa.table({name: pa.array(values, COLUMNS[name]) for name, values in columns.items()})


def expected(lake: Lake, column: str) -> Counter[Any]:
    """Return DuckDB's counts of a column's values in the table's files, by the text of the value."""
    if not lake.files:
        return Counter()
    query = f"""
        select value, count(*)
        from (select {EXPRESSIONS[column]} as value from read_parquet(?, hive_partitioning = false))
        where value is not null group by value
    """
    result = duckdb.execute(query, [[str(path) for path in lake.files]]).fetchall()
    return Counter({repr(_plain(value)): count for value, count in result})


def _plain(value: Any) -> Any:
    return 0.0 if value == 0 and isinstance(value, float) else value


def check(lake: Lake) -> None:
    table = lake.table
    for column in EXPRESSIONS:
        expected_counts = expected(lake, column)
        repeated_counts = {value: count for value, count in expected_counts.items() if count > 1}
        result = table.top(column, 10**9)
        assert {repr(_plain(value.as_py())): count for value, count in result} == repeated_counts
        assert len(result) == len(repeated_counts)
        spread = table.spread(column)
        assert spread.distinct_count == len(expected_counts)
        assert spread.duplicate_count == len(repeated_counts)
        assert spread.singleton_count == len(expected_counts) - len(repeated_counts)
        n = sum(expected_counts.values())
        entropy = -sum(count / n * math.log2(count / n) for count in expected_counts.values())
        assert spread.entropy == pytest.approx(entropy, abs=1e-9)
        (row,) = table.statistics([column])
        assert (row.frequencies, row.distinct_count_guarantee) == ("repeated", "exact")
        assert (row.distinct_count, row.duplicate_count) == (len(expected_counts), len(repeated_counts))


def change(lake: Lake, draw: random.Random, removed_files: list[tuple[Path, bytes]]) -> str:
    """Change the table randomly.

    Return a description of the change.

    Some removed files are added to `removed_files` with their content, and a later change may restore them.
    """
    kind = draw.choice(["append", "append", "delete", "overwrite", "rewrite", "restore", "compact"])
    if kind == "append" or (len(lake.files) < 3 and kind != "restore"):
        lake.put(rows(draw, draw.randrange(60)), draw.randrange(3))
    elif kind == "restore":
        for path, data in removed_files[-2:]:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
    elif kind == "compact":
        rewritten = lake.files[:2]
        lake.put(pa.concat_tables([pq.read_table(path, partitioning=None) for path in rewritten]))
        for path in rewritten:
            path.unlink()
    else:
        path = draw.choice(lake.files)
        removed_files.append((path, path.read_bytes()))
        table = pq.read_table(path, partitioning=None)
        path.unlink()
        if kind == "rewrite":
            lake.put(table.slice(len(table) // 2), 1)
        elif kind == "overwrite":
            lake.put(rows(draw, len(table)), 2)
    return kind


@pytest.mark.parametrize(
    ("seed", "bits", "commits"),
    [(1, 5, 2), *(pytest.param(seed, (5, 12, 48)[seed % 3], 12, marks=pytest.mark.long) for seed in range(2, 60))],
)
def test_repeated_values_equal_those_of_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, bits: int, commits: int
) -> None:
    """After every commit of a random history, the repeated values equal those of DuckDB.

    Fingerprints of few bits collide.
    """
    monkeypatch.setattr(fingerprints, "TABLE_BITS", bits)
    monkeypatch.setattr(graph, "SETTINGS", RUNS)
    draw = random.Random(1000 * bits + seed)
    lake, removed_files = Lake(tmp_path), []
    for part in range(5):
        lake.put(rows(draw, 80), part % 3)
    lake.refresh()
    check(lake)
    for _ in range(commits):
        change(lake, draw, removed_files)
        lake.refresh()
        check(lake)
    lake.refresh(request=RefreshRequest(full=True))
    check(lake)


@pytest.mark.parametrize("policy", [PRINTED, {"frequencies": "all"}], ids=["fingerprints", "lists"])
def test_a_refresh_reports_changed_value_counts(tmp_path: Path, policy: dict[str, Any]) -> None:
    lake = Lake(tmp_path, policy)
    path = lake.put(codes("aabb" * 5))
    lake.put(codes("ab" * 15))
    small = codes("ccb")
    lists = [lake.refresh().value_count_changes]
    small_file = lake.put(small)
    lists.append(lake.refresh().value_count_changes)
    small_file.unlink()
    lists.append(lake.refresh().value_count_changes)
    partitions = 1  # the key of the only partition is a column with value counts, too
    answer = [changes and (changes.added, changes.removed, changes.changed) for changes in lists]
    assert answer == [(2 + partitions, 0, 0), (1, 0, 1 + partitions), (0, 1, 1 + partitions)]
    path.unlink()
    lake.put(codes("x" * 80))
    result = lake.refresh()
    assert result.value_count_changes is None  # most of the table differs: value counts are rebuilt
    assert result.to_json()["value_counts"] is None


@pytest.mark.parametrize("policy", [PRINTED, {"frequencies": "all"}], ids=["fingerprints", "lists"])
def test_values_of_columns_that_are_no_longer_counted_are_reported_as_removed(
    tmp_path: Path, policy: dict[str, Any]
) -> None:
    """When value counts are switched off, all values of the columns are reported as removed.

    The table has three codes and two numbers, which are five values.
    """
    lake = Lake(tmp_path, policy)
    lake.put(codes("aabb").set_column(1, "number", pa.array([0.5, 0.5, 0.5, 0.5])))
    lake.put(codes("abcc").set_column(1, "number", pa.array([0.5, 0.5, 1.0, 1.0])))
    lake.refresh()
    lake.policy = {"frequencies": "off"}
    result = lake.refresh().value_count_changes
    assert result is not None
    assert (result.added, result.removed, result.changed) == (0, 5, 0)


def codes(texts: str) -> pa.Table:
    """Return rows with one code each, in which all other columns are null."""
    nulls = {name: pa.nulls(len(texts), COLUMNS[name]) for name in ("number", "parts")}
    return pa.table({"code": list(texts), **nulls})
