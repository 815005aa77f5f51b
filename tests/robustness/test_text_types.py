"""A plan reports if later files change the type of a column, and statistics are those from scratch.

A plan says which files a refresh will read. Statistics from scratch are those of a first refresh under an empty root. A
root is the folder with all stored state.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import plan_refresh
from tests.robustness.refresh_assertions import assert_equals_scratch, refreshed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _config(folder: Path, **schema: str) -> MetastoreConfig:
    table = TableConfig.model_validate({"name": "t", "uri": str(folder / "t"), "schema": schema})
    return MetastoreConfig(root=str(folder / "root"), tables=[table])


def _changes(config: MetastoreConfig) -> list[dict[str, Any]]:
    changed_types = plan_refresh(config, config.tables[0]).to_json()["type_changes"]
    assert isinstance(changed_types, list)
    return changed_types


def _extremes(config: MetastoreConfig, column: str) -> tuple[Any, ...]:
    row = Metastore(config.root).table("t").statistics([column])[0]
    return row.type, row.null_count, row.minimum.as_py(), row.maximum.as_py()


def test_a_later_file_makes_a_column_text_and_back(spark: SparkSession, tmp_path: Path) -> None:
    """A column of numbers becomes text while a later CSV file has text in this column.

    The earlier file is read again, and its numbers become texts, of which 9 is the greatest. After the later file is
    removed, the plan reports the former types.
    """
    folder = tmp_path / "t"
    for day in (1, 2):
        (folder / f"day={day}").mkdir(parents=True)
    (folder / "day=1" / "a.csv").write_text("zip,x,y\n9,1,\n1234,2,\n")
    config = _config(tmp_path)
    refreshed(config, spark)
    assert _extremes(config, "zip") == ("int64", 0, 9, 1234)

    (folder / "day=2" / "b.csv").write_text("zip,x,y\n1,1.5,\n\n01234,,7\n")
    assert _changes(config) == [
        {"column": "zip", "before": "int64", "now": "string", "reason": f"'01234' in {folder}/day=2/b.csv, line 4"},
        {"column": "x", "before": "int64", "now": "double", "reason": f"'1.5' in {folder}/day=2/b.csv, line 2"},
        {"column": "y", "before": "null", "now": "int64", "reason": None},
    ]
    done = refreshed(config, spark)
    assert [change.column for change in done.type_changes] == ["zip", "x", "y"]
    assert (done.fragments_added, done.fragments_profiled) == (1, 2)
    assert _extremes(config, "zip") == ("string", 0, "01234", "9")
    assert _extremes(config, "x") == ("double", 1, 1.0, 2.0)
    assert_equals_scratch(config, spark, tmp_path)

    (folder / "day=2" / "b.csv").unlink()
    assert [change["now"] for change in _changes(config)] == ["int64", "int64", "null"]
    refreshed(config, spark)
    assert_equals_scratch(config, spark, tmp_path)


def test_a_declared_type_is_a_change_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """If the configuration declares another type for a column, the plan reports the change.

    The refresh reads the Parquet files again, although no file is new.
    """
    folder = tmp_path / "t"
    folder.mkdir()
    pd.DataFrame({"a": [1, 2], "b": [3, 4]}).to_parquet(folder / "a.parquet", index=False)
    pd.DataFrame({"a": [1, None], "b": [3, 4]}).to_parquet(folder / "b.parquet", index=False)
    config = _config(tmp_path)
    refreshed(config, spark)
    assert _extremes(config, "a") == ("double", 1, 1.0, 2.0)
    assert not refreshed(config, spark).published

    config = _config(tmp_path, a="decimal(10,2)")
    assert [(change["column"], change["now"]) for change in _changes(config)] == [("a", "decimal128(10, 2)")]
    done = refreshed(config, spark)
    assert (done.published, done.fragments_added, done.fragments_profiled) == (True, 0, 2)
    assert _extremes(config, "a")[0] == "decimal128(10, 2)"
    assert_equals_scratch(config, spark, tmp_path)
