"""Spark starts for large work only, and results without it are equal.

A version is the published statistics of a table at one snapshot. The profile of a file is its stored statistics.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, ProfileError
from metastore_assets.pipeline import engine as engines
from metastore_assets.pipeline.refresh import refresh
from tests.formats.hudi.tables import HUDI_TABLES
from tests.formats.iceberg.tables import ICEBERG_TABLES
from tests.formats.table_writers import DAYS, TABLES, Table
from tests.pipeline.file_lake import Lake, assert_same, everything, everything_on_spark
from tests.robustness.crashing_files import negative_lengths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_OFTEN = ("ParquetFiles", "CsvFiles", "DeltaDeletionVectors", "IcebergEqualityDeletes", "HudiMergeOnRead")
_KINDS = [
    pytest.param(kind, id=kind.__name__, marks=[] if kind.__name__ in _OFTEN else pytest.mark.long)
    for kind in (*TABLES, *ICEBERG_TABLES, *HUDI_TABLES)
]


class SparkWanted(Exception):
    """Raised instead of starting Spark."""


def no_spark() -> SparkSession:
    raise SparkWanted


def _auto(lake: Lake, root: str) -> MetastoreConfig:
    return lake.config(root).model_copy(update={"engine": "auto"})


@pytest.mark.spark
@pytest.mark.parametrize("kind", _KINDS)
def test_results_are_equal_with_and_without_spark(spark: SparkSession, tmp_path: Path, kind: type[Table]) -> None:
    """For every format, a version updated without Spark equals one from scratch on Spark."""
    table = kind(tmp_path / "t")
    table.append([(number, f"text {number % 4}", DAYS[number % 3]) for number in range(12)])
    config = MetastoreConfig(
        root=str(tmp_path / "auto"), engine="auto", tables=[TableConfig(name="t", uri=str(tmp_path / "t"))]
    )
    refresh(config, config.tables[0], no_spark)
    table.append([(number, "new", DAYS[0]) for number in range(20, 24)])
    table.delete([3, 4, 20])
    refresh(config, config.tables[0], no_spark)
    on_spark = config.model_copy(update={"root": str(tmp_path / "spark"), "engine": "spark"})
    with everything_on_spark():
        refresh(on_spark, config.tables[0], lambda: spark)
    assert_same(everything(config), everything(on_spark))


@pytest.mark.parametrize("limit", ["_SMALL_BYTES", "_SMALL_FILES", "_SMALL_MERGE", "_SMALL_SUM"])
def test_much_work_runs_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Each limit alone starts Spark: bytes or files to read, columns to merge, or values to sum."""
    lake = Lake(tmp_path)
    lake.append(1)
    lake.append(2)
    refresh(_auto(lake, "little"), lake.table, no_spark)
    monkeypatch.setattr(engines, limit, 1)
    with pytest.raises(SparkWanted):
        refresh(_auto(lake, "much"), lake.table, no_spark)


def test_many_short_value_counts_are_summed_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many columns are summed on Spark even if they have few values.

    Reading a column costs more than summing it.
    """
    monkeypatch.setattr(engines, "_SMALL_MERGE", 100)
    engine = engines.Engine(no_spark)
    assert engine.sums_here(columns=100, values=5_000)
    assert not engine.sums_here(columns=101, values=5_000)


def test_files_are_read_on_spark_unless_configured_otherwise(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(1)
    with pytest.raises(SparkWanted):
        refresh(lake.config(), lake.table, no_spark)
    with pytest.raises(ConfigError, match=r"engine"):
        MetastoreConfig(root="r", engine="none")  # type: ignore[arg-type]


@pytest.mark.spark
def test_a_commit_without_new_files_starts_no_spark(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for partition in (1, 1, 2):
        removed_file = lake.append(partition)
    refresh(lake.config(), lake.table, lambda: spark)
    removed_file.unlink()
    refresh(lake.config(), lake.table, no_spark)
    scratch = lake.config("scratch")
    refresh(scratch, lake.table, lambda: spark)
    assert_same(everything(lake.config()), everything(scratch))


def test_errors_name_a_file_that_crashes_its_reader(tmp_path: Path) -> None:
    """One of two ORC files crashes its reader.

    The error names the file, and the profile of the other file is saved.
    """
    folder = tmp_path / "t"
    folder.mkdir()
    maps = pa.array([[(7, 1)]] * 20, pa.map_(pa.int32(), pa.int32()))
    orc.write_table(pa.table({"id": pa.array(range(20), pa.int64()), "m": maps}), folder / "good.orc")
    (folder / "killer.orc").write_bytes(negative_lengths())
    config = MetastoreConfig(root=str(tmp_path / "r"), engine="auto", tables=[TableConfig(name="t", uri=str(folder))])
    with pytest.raises(ProfileError, match=r"\b1 of 2\b.*killer\.orc.*column 'm'"):
        refresh(config, config.tables[0], no_spark)
    (folder / "killer.orc").unlink()
    assert refresh(config, config.tables[0], no_spark).fragments_profiled == 0
