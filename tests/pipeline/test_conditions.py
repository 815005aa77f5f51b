"""Conditions select the partitions of a table that have statistics, and those that a backfill reads.

A condition may depend on the current date.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import ColumnNotFoundError, PartitionNotFoundError
from metastore_assets.expressions import sql_parser
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.backfill import plan_backfill
from metastore_assets.pipeline.backfill_plan import BackfillSelection
from metastore_assets.pipeline.refresh import refresh


def no_spark() -> Any:
    raise AssertionError("Spark was started for small work")


def table_of_days(folder: Path, **options: Any) -> MetastoreConfig:
    for day in range(1, 7):
        part = folder / "lake" / f"day=2024-01-0{day}"
        part.mkdir(parents=True)
        pq.write_table(pa.table({"x": [day]}), part / "0.parquet")
    table = {"name": "t", "uri": str(folder / "lake"), **options}
    return MetastoreConfig.model_validate({"root": str(folder / "root"), "tables": [table], "engine": "auto"})


def test_a_condition_on_current_date_selects_other_partitions_the_next_day(tmp_path: Path) -> None:
    """A second refresh on the same day publishes nothing.

    One on the next day publishes the new selection.
    """
    config = table_of_days(tmp_path, partitions="day >= current_date - 2")
    selected_days = []
    for day in (5, 5, 6):
        with patch.object(sql_parser, "today", lambda day=day: date(2024, 1, day)):
            result = refresh(config, config.tables[0], no_spark)
            selected_days.append([partition.key[-2:] for partition in open_table(config.root, "t").partitions()])
            assert result.published == (len(selected_days) != 2)
    assert selected_days == [["03", "04", "05", "06"], ["03", "04", "05", "06"], ["04", "05", "06"]]


def test_a_backfill_of_the_partitions_that_match_a_condition(tmp_path: Path) -> None:
    config = table_of_days(tmp_path)
    table = config.tables[0]
    refresh(config, table, no_spark)

    def keys(where: str, **choice: Any) -> list[str]:
        plan = plan_backfill(config, table, BackfillSelection("all", where=where, **choice))
        return [key.removeprefix("day=2024-01-0") for key in plan.keys]

    assert keys("day >= '2024-01-05'") == ["5", "6"]
    assert keys("day in ('2024-01-01', '2024-01-03')", first="2024-01-02") == ["3"]
    assert keys("day > '2024-01-03'", partitions=("day=2024-01-0[34]",)) == ["4"]
    with pytest.raises(ColumnNotFoundError, match=r"'dya'.*'day'"):
        keys("dya > '2024-01-01'")
    with pytest.raises(PartitionNotFoundError, match=r"\b6 partitions"):
        keys("day > '2025-01-01'")
    assert BackfillSelection(where="day > '2024-01-01'").id != BackfillSelection(where="day > '2024-01-02'").id
