"""File sizes claimed by metadata do not start Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from metastore_assets import open_table
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.pipeline import engine
from metastore_assets.pipeline.refresh import refresh
from tests.formats.iceberg.writer import IcebergWriter, column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
CLAIM = 2**62


class SparkWanted(Exception):
    """Raised instead of starting Spark."""


def no_spark() -> SparkSession:
    raise SparkWanted


def refreshed(folder: Path) -> int:
    config = MetastoreConfig(
        root=str(folder / "root"), engine="auto", tables=[TableConfig(name="t", uri=str(folder / "t"))]
    )
    refresh(config, config.tables[0], no_spark)
    return open_table(config.root, "t").version.row_count


def test_claimed_sizes_of_delta_start_no_spark(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), ROWS)
    [log] = (tmp_path / "t" / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["size"] = CLAIM
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    assert refreshed(tmp_path) == 3


def test_claimed_sizes_of_iceberg_start_no_spark(tmp_path: Path) -> None:
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    writer.commit(writer.data(ROWS, file_size_in_bytes=CLAIM))
    assert refreshed(tmp_path) == 3


def test_large_tables_start_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_SMALL_BYTES", 100)
    write_deltalake(str(tmp_path / "t"), ROWS)
    with pytest.raises(SparkWanted):
        refreshed(tmp_path)
