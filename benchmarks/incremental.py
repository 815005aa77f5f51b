"""Refresh after a commit to one of 200 equal partitions, against a full refresh, in one session.

The process starts as `metastore refresh` does, and the session is warm. Spark's task time is compared, and the CPU time
of all processes: this one, the JVM, Python workers and other children. Two fixed costs are printed too: the CPU time of
an empty Spark job, and of a refresh of a table that has not changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.data import FOLDER, lineitem
from benchmarks.measure import CpuTime, TaskTime, metastore, stop
from benchmarks.report import Row
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.session import get_spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE = float(os.environ.get("METASTORE_BENCH_INCREMENTAL", "1"))
PARTITIONS = 200
ROUNDS = 3
COMMITS = 5
"""Number of commits in a round, after its full refresh. They are compared with this full refresh only, because the
machine's speed varies from round to round."""
GOAL = 50.0


_PROGRAM = """
import json, sys
from metastore_assets import startup
startup.limit_blas_threads()
startup.limit_polars_threads()
startup.collect_garbage_seldom()
from dataclasses import asdict
from benchmarks.incremental import measured
rows = [asdict(row) for row in measured()]
with open(sys.argv[1], "w") as output:
    json.dump(rows, output)
"""


def run() -> list[Row]:
    """Measure in a new process, and return the rows that compare commits with full refreshes.

    The table is lineitem with 20 columns, in 200 partitions of one file each. Each commit replaces the file of one
    partition.
    """
    with tempfile.NamedTemporaryFile("r") as output:
        subprocess.run([sys.executable, "-c", _PROGRAM, output.name], check=True)
        return [Row(**row) for row in json.load(output)]


def measured() -> list[Row]:
    """Measure full refreshes and refreshes after commits in this process.

    Print the CPU times by process.

    Returns:
        A row for Spark's task time, and one for the CPU time of all processes.
    """
    lake = _table()
    log = Path(tempfile.mkdtemp(prefix="metastore-bench-log-"))
    tasks, cpu = TaskTime(log), CpuTime()
    spark = get_spark_session({"spark.master": "local[2]", **tasks.settings()})
    with metastore(lake) as (config, table):

        def commit(number: int) -> None:
            result = refresh(config, table, lambda: spark)
            assert len(result.partitions_changed) == 1, result

        refresh(config, table, lambda: spark)  # warm
        for number in range(COMMITS):
            _commit(lake, number)
            commit(number)
        fulls, commits = [], []
        for first in range(COMMITS, (1 + ROUNDS) * COMMITS, COMMITS):
            fulls.append(
                _measured(tasks, cpu, lambda: refresh(config, table, lambda: spark, request=RefreshRequest(full=True)))
            )
            for number in range(first, first + COMMITS):
                _commit(lake, number)
                commits.append(_measured(tasks, cpu, lambda number=number: commit(number)))  # type: ignore[misc]
        idle_refreshes = [cpu.of(lambda: refresh(config, table, lambda: spark)) for _ in range(COMMITS)]
    jobs = [cpu.of(lambda: _job(spark)) for _ in range(COMMITS)]
    stop(spark)
    shutil.rmtree(log)
    shutil.rmtree(lake)
    print("CPU seconds                        driver   JVM  workers")
    for name, action_cpu_times in (
        ("full refresh", [cpu_times for _, cpu_times in fulls]),
        ("a commit", [cpu_times for _, cpu_times in commits]),
        ("a refresh when nothing changed", idle_refreshes),
        ("a Spark job of one empty task", jobs),
    ):
        print(f"{name:<33}", *(f"{median(one[kind] for one in action_cpu_times):7.2f}" for kind in idle_refreshes[0]))
    name = f"commit to 1 of {PARTITIONS} partitions against full refresh"
    rows = []
    for measure, full_times, times in (
        ("task time", [task for task, _ in fulls], [task for task, _ in commits]),
        ("CPU of all processes", _sums(fulls), _sums(commits)),
    ):
        rounds = [times[at : at + COMMITS] for at in range(0, len(times), COMMITS)]
        ratio = median(full / median(each) for full, each in zip(full_times, rounds, strict=True))
        rows.append(Row(f"{name} ({measure})", times, full_times, ratio, GOAL))
    return rows


def _measured(tasks: TaskTime, cpu: CpuTime, action: Callable[[], object]) -> tuple[float, dict[str, float]]:
    before = tasks.total()
    cpu_time = cpu.of(action)
    return tasks.total() - before, cpu_time


def _sums(measurements: list[tuple[float, dict[str, float]]]) -> list[float]:
    """Return the total CPU seconds of all processes for each measurement."""
    return [sum(cpu_time.values()) for _, cpu_time in measurements]


def _job(spark: SparkSession) -> None:
    spark.range(1, numPartitions=1).mapInArrow(lambda batches: batches, "id long").collect()


def _table() -> Path:
    lake = FOLDER / "lineitem-partitioned"
    shutil.rmtree(lake, ignore_errors=True)
    files = sorted(lineitem(SCALE, PARTITIONS).iterdir())
    for number, file in enumerate(files):
        folder = lake / f"part={number:03d}"
        folder.mkdir(parents=True)
        pq.write_table(_wider(pq.ParquetFile(file).read()), folder / "0.parquet")
    return lake


def _wider(rows: pa.Table) -> pa.Table:
    """Return lineitem with four more columns, so that it has 20."""
    price, discount = (rows[name].cast(pa.float64()) for name in ("l_extendedprice", "l_discount"))
    more = {
        "revenue": pc.multiply(price, pc.subtract(1.0, discount)),
        "delay": pc.days_between(rows["l_shipdate"], rows["l_receiptdate"]),
        "month": pc.strftime(rows["l_shipdate"], "%Y-%m"),
        "words": pc.list_value_length(pc.split_pattern(rows["l_comment"].cast(pa.string()), " ")),
    }
    for name, column in more.items():
        rows = rows.append_column(name, column)
    assert rows.num_columns == 20
    return rows


def _commit(lake: Path, number: int) -> None:
    """Replace the file of a partition by one without the first thirtieth of its rows.

    `number` selects the partition.
    """
    folder = lake / f"part={number * 17 % PARTITIONS:03d}"
    (old,) = folder.iterdir()
    rows = pq.ParquetFile(old).read()
    old.unlink()
    pq.write_table(rows.slice(rows.num_rows // 30), folder / f"{number + 1}.parquet")
