"""CPU time of driver and cluster in the first profile of a table of small files on a Spark cluster of two workers.

The driver is this process, its JVM and its other children. The cluster is the master, the workers, their executors
and the executors' Python workers. The goal is that the driver uses at most a tenth of the CPU time of both, which is
nine times less than the cluster.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import metastore_assets
from benchmarks.measure import CpuTime, metastore, stop
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
    """Profile the table. Return the CPU seconds of the driver and of the cluster."""
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
            before = _cluster_seconds(cluster)
            used = CpuTime().of(lambda: refresh(config, table, lambda: spark))
            # The processes of the cluster are children of this one, so `used` includes their CPU time.
            of_cluster = _cluster_seconds(cluster) - before
        return sum(used.values()) - of_cluster, of_cluster
    finally:
        stop(spark)


def _cluster_seconds(cluster: Cluster) -> float:
    """Return the CPU seconds of the cluster's processes so far, and of their children that have ended."""
    roots = {cluster.master.pid, *(worker.pid for worker in cluster.workers.values())}
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # The process has ended since it was listed.
        parents[int(path.parent.name)] = int(fields[1])
        ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    total = 0
    for process, used in ticks.items():
        ancestor: int | None = process
        while ancestor is not None and ancestor not in roots:
            ancestor = parents.get(ancestor)
        if ancestor is not None:
            total += used
    return total / os.sysconf("SC_CLK_TCK")
