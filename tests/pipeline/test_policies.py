"""Policies such as `top(2)` limit the listed values, not the stored ones.

So a change from one such policy to another reads no file.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import plan_refresh, refresh

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
VALUES = {"a": ["x", "y", "x", "z", None, "y", "x"], "b": ["w", "x", "v", "v"]}


def config_of(folder: Path, **policy: Any) -> tuple[MetastoreConfig, TableConfig]:
    fields = {"name": "t", "uri": str(folder / "lake"), "columns": {"word": policy}}
    table = TableConfig.model_validate(fields)
    return MetastoreConfig(root=str(folder / "root"), tables=[table]), table


def top(table: Table, partition: str | None = None) -> list[tuple[str, int]]:
    return [(value.as_py(), count) for value, count in table.top("word", 10, partition=partition)]


def counted(*parts: str) -> list[tuple[str, int]]:
    counts = Counter(value for part in parts for value in VALUES[part] if value is not None)
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def test_policies_limit_listed_values(spark: SparkSession, tmp_path: Path) -> None:
    """The policy of a column changes between `all`, `top`, `repeated` and `auto`, which reads no file.

    Each policy limits the values that `top` lists, for the table and for partitions. Other answers stay exact.
    """
    for part, values in VALUES.items():
        (tmp_path / "lake" / f"part={part}").mkdir(parents=True)
        pq.write_table(pa.table({"word": values}), tmp_path / "lake" / f"part={part}" / "1.parquet")
    every = counted("a", "b")
    expected = {
        "all": lambda rows: rows,
        "top(2)": lambda rows: rows[:2],
        "repeated": lambda rows: [row for row in rows if row[1] > 1],
        "top(1)": lambda rows: rows[:1],
        "auto": lambda rows: rows,
    }
    for number, (policy, limit_counts) in enumerate(expected.items(), 1):
        config, table = config_of(tmp_path, frequencies=policy)
        result = refresh(config, table, lambda: spark)
        assert (result.published, result.version) == (True, number)
        assert result.fragments_profiled == (0 if number > 1 else 2)
        published_table = Metastore(config.root).table("t")
        assert top(published_table) == limit_counts(every)
        assert top(published_table, "part=a") == limit_counts(counted("a"))
        assert published_table.mode("word").value is not None
        assert published_table.frequency("word", "w").value == 1
        assert published_table.rank("word", "x").value == 3
        assert [*map(tuple, published_table.locate("word", "x"))] == [("part=a", 3), ("part=b", 1)]
        spread = published_table.spread("word")
        assert (spread.distinct_count, spread.duplicate_count, spread.singleton_count) == (5, 3, 2)
        (row,) = published_table.statistics(["word"], partition="part=b")
        assert (row.frequencies, row.distinct_count, row.duplicate_count) == ("enumerated", 3, 1)
        assert refresh(config, table, lambda: spark).published is False
    pq.write_table(pa.table({"word": ["w"]}), tmp_path / "lake" / "part=b" / "2.parquet")
    config, table = config_of(tmp_path, frequencies="repeated")
    refresh(config, table, lambda: spark)
    assert ("w", 2) in top(Metastore(config.root).table("t")), "a second occurrence makes the value repeated"


def test_enumerating_a_column_reads_fragments_without_value_counts(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"word": VALUES["a"]}), tmp_path / "lake" / "1.parquet")
    config, table = config_of(tmp_path, frequencies="off")
    refresh(config, table, lambda: spark)
    for policy in ({"frequencies": "top(2)"}, {"ranks": "on"}):
        config, table = config_of(tmp_path, **policy)
        assert plan_refresh(config, table).to_json()["read_again"] == {"word": {"frequencies": 1}}
    refresh(config, table, lambda: spark)
    assert top(Metastore(config.root).table("t")) == counted("a")
