"""After small commits, a text column whose values hardly repeat stays estimated.

It has no stored value counts. The recorded decision has the current numbers of values and distinct values.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.config import NEAR_UNIQUE_ABOVE, MetastoreConfig, TableConfig
from metastore_assets.pipeline.refresh import refresh
from tests.pipeline.file_lake import latest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 2 * NEAR_UNIQUE_ABOVE


def test_a_small_commit_does_not_enumerate_an_estimated_column(tmp_path: Path) -> None:
    config = MetastoreConfig(
        root=str(tmp_path / "root"), tables=[TableConfig(name="t", uri=str(tmp_path / "lake"))], engine="auto"
    )
    total = 0
    for number, rows in enumerate((ROWS, 100, 100)):
        folder = tmp_path / "lake" / f"part={number}"
        folder.mkdir(parents=True)
        texts = [f"{number} of {at}, as a comment has it" for at in range(rows)]
        pq.write_table(pa.table({"comment": texts, "few": [at % 5 for at in range(rows)]}), folder / "0.parquet")
        refresh(config, config.tables[0], _no_spark)
        total += rows
        version = latest(config)
        (decision,) = version.decisions.values()
        assert (decision.frequencies, decision.values) == ("estimated", total)
        assert abs(decision.distinct - total) < total / 10


def _no_spark() -> SparkSession:
    raise AssertionError("so few rows need no Spark")
