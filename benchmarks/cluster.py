"""CPU time of driver and cluster in the first profile of many small files on a Spark cluster.

The cluster has two workers. The driver is this process, its JVM and its other children. The cluster is the master, the
workers, their executors and the executors' Python workers. The goal is that the driver uses at most a tenth of the
total CPU time.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import metastore_assets
from benchmarks.measure import CpuTime, descends_from, metastore, running_processes, stop
from benchmarks.report import Row
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.session import get_spark_session
from tests.cluster.standalone import Cluster, standalone_cluster

FILES = int(os.environ.get("METASTORE_BENCH_CLUSTER", "50000"))
PARTITIONS = 100
ROWS = 200
GOAL = 9.0


def run() -> list[Row]:
    """Profile the table once, and compare the CPU of the cluster with that of the driver."""
    with tempfile.TemporaryDirectory(prefix="metastore-bench-") as folder:
        lake = Path(folder) / "lake"
        _write_files(lake)
        with standalone_cluster(Path(folder) / "cluster", {}) as cluster:
            driver, workers = _profile(lake, cluster, Path(folder))
    return [
        Row(f"CPU of a first profile of {FILES:,} files: driver, cluster", [driver], [workers], workers / driver, GOAL)
    ]


def _write_files(lake: Path) -> None:
    draw = random.Random(1)
    for number in range(FILES):
        folder = lake / f"p={number % PARTITIONS}"
        folder.mkdir(parents=True, exist_ok=True)
        rows = pa.table(
            {
                "id": range(number * ROWS, (number + 1) * ROWS),
                "amount": [draw.random() for _ in range(ROWS)],
                "kind": [draw.choice("abcdef") for _ in range(ROWS)],
                "name": [f"n{draw.randrange(10_000)}" for _ in range(ROWS)],
            }
        )
        pq.write_table(rows, folder / f"{number}.parquet")


def _profile(lake: Path, cluster: Cluster, folder: Path) -> tuple[float, float]:
    """Profile the table.

    Return the CPU seconds of the driver and of the cluster.
    """
    package = folder / "metastore_assets.zip"
    subprocess.run([sys.executable, "-m", "zipfile", "-c", str(package), *metastore_assets.__path__], check=True)
    spark = get_spark_session(
        {
            "spark.master": cluster.url,
            "spark.submit.pyFiles": str(package),
            "spark.pyspark.python": sys.executable,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
        }
    )
    try:
        with metastore(lake) as (config, table):
            roots = {cluster.master.pid, *(worker.pid for worker in cluster.workers.values())}
            with _ClusterCpu(roots) as of_cluster:
                of_driver = CpuTime(excluded_ids=roots).of(lambda: refresh(config, table, lambda: spark))
        return sum(of_driver.values()), of_cluster.seconds()
    finally:
        stop(spark)


class _ClusterCpu:
    """CPU time of the processes with the ids `roots`, and of their descendants, during a `with` block.

    PySpark's daemon ends Python workers that were idle for a minute. It ignores SIGCHLD, so the CPU time of an ended
    worker is not added to that of its parent. Therefore a thread reads the CPU time of all processes every five
    seconds. For a process that has ended, its last reading counts.
    """

    def __init__(self, roots: Collection[int]) -> None:
        self._roots = roots
        self._seen: dict[tuple[int, int], float] = {}
        """The CPU time of each process at its last reading, by id and start."""
        self._before = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read_repeatedly, daemon=True)

    def seconds(self) -> float:
        """Return the CPU seconds since the block began, up to the last reading."""
        return sum(self._seen.values()) - self._before

    def __enter__(self) -> _ClusterCpu:
        self._read()
        self._before = sum(self._seen.values())
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._read()

    def _read_repeatedly(self) -> None:
        while not self._is_over.wait(5.0):
            self._read()

    def _read(self) -> None:
        processes = running_processes()
        for pid, process in processes.items():
            if descends_from(processes, pid, self._roots):
                self._seen[pid, process.started] = process.cpu
