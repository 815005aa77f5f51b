"""A commit that changes one of 100 equal partitions, against the full refresh, in Spark task time."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.data import FOLDER, lineitem
from benchmarks.measure import TaskTime, metastore, stop
from benchmarks.report import Row
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.session import spark_session

PARTITIONS = 100
COMMITS = 5


def run() -> list[Row]:
    """Lineitem at scale 1 in 100 partitions of one file each; a commit replaces the file of one partition."""
    lake = _table()
    log = Path(tempfile.mkdtemp(prefix="metastore-bench-log-"))
    task_time = TaskTime(log)
    spark = spark_session({"spark.master": "local[2]", **task_time.settings()})
    commits = []
    with metastore(lake) as (config, table):
        refresh(config, table, lambda: spark)  # warm
        before = task_time.total()
        refresh(config, table, lambda: spark, full=True)
        full = task_time.total() - before
        for number in range(COMMITS):
            _commit(lake, number)
            before = task_time.total()
            result = refresh(config, table, lambda: spark)
            commits.append(task_time.total() - before)
            assert len(result.partitions_changed) == 1, result
    stop(spark)
    shutil.rmtree(log)
    shutil.rmtree(lake)
    ratios = sorted(full / commit for commit in commits)
    return [Row("commit to 1 of 100 partitions against full refresh (task time)", commits, [full],
                ratios[len(ratios) // 2], 50.0)]  # fmt: skip


def _table() -> Path:
    lake = FOLDER / "lineitem-partitioned"
    shutil.rmtree(lake, ignore_errors=True)
    files = sorted(lineitem(1, PARTITIONS).iterdir())
    for number, file in enumerate(files):
        folder = lake / f"part={number:03d}"
        folder.mkdir(parents=True)
        shutil.copy(file, folder / "0.parquet")
    return lake


def _commit(lake: Path, number: int) -> None:
    """Replace a partition's file by one with a thousand rows fewer."""
    folder = lake / f"part={number * 17 % PARTITIONS:03d}"
    (old,) = folder.iterdir()
    rows = pq.read_table(old)
    old.unlink()
    pq.write_table(rows.slice(1000), folder / f"{number + 1}.parquet")
