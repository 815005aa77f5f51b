"""Opened files, read bytes and time of a selective query of 500 files: pruned against `spark.read`.

A value of `customer` occurs in one file, but lies between the minimum and maximum of all files. Only the column's value
counts by partition rule out the other files.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.data import FOLDER
from benchmarks.measure import metastore, paired, ratio
from benchmarks.report import Row
from metastore_assets.lookup import ScanRequest
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.session import get_spark_session

FILES = 500
ROWS = 4_000
RUNS = 3
_CUSTOMERS_OF_A_FILE = 40


def run() -> list[Row]:
    """Write the table, and compare files, bytes and seconds of one query.

    Ratios are Spark's value / ours.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
    events = folder / "events"
    events.mkdir()
    settings = {
        "spark.master": "local[2]",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    spark = get_spark_session(settings)
    try:
        customer = write(folder / "lake")
        return compare(spark, folder / "lake", f"customer = '{customer}'", events)
    finally:
        spark.stop()
        shutil.rmtree(folder)


def write(lake: Path) -> str:
    """Write the table.

    Return one of its customers.
    """
    draw = np.random.default_rng(0)
    names = np.array([f"customer {number:032x}" for number in draw.permutation(FILES * _CUSTOMERS_OF_A_FILE)])
    for at in range(FILES):
        # Each file has customers from all over the alphabet.
        customers = names[at * _CUSTOMERS_OF_A_FILE : (at + 1) * _CUSTOMERS_OF_A_FILE]
        part = lake / f"batch={at:03d}"
        part.mkdir(parents=True)
        table = pa.table(
            {
                "customer": pa.array(customers[draw.integers(0, len(customers), ROWS)]),
                "amount": pa.array(draw.normal(100, 20, ROWS)),
                "note": pa.array(draw.integers(0, 2**60, ROWS)),
            }
        )
        pq.write_table(table, part / "0.parquet")
    return str(names[FILES * _CUSTOMERS_OF_A_FILE // 2])


def compare(spark: SparkSession, lake: Path, where: str, events: Path) -> list[Row]:
    """Refresh the table and measure the query.

    Args:
        spark: A session that writes an event log to the folder `events`.
        lake: The folder of the table.
        where: The condition of the query.
        events: The folder with the session's event log.
    """
    with metastore(lake, columns={"customer": {"by_partition": "on"}}) as (config, table):
        refresh(config, table, lambda: spark)

        def scan() -> int:
            request = ScanRequest(where, columns=["amount"])
            return len(open_table(config.root, table.name).scan(spark, request, table=str(lake)).collect())

        frames = []

        def read() -> int:
            frames.append(spark.read.parquet(str(lake)).filter(where).select("amount"))
            return len(frames[-1].collect())

        assert scan() == read() > 0
        before = _bytes_read(events)
        read()
        spark_bytes = _bytes_read(events) - before
        metrics = frames[-1]._jdf.queryExecution().executedPlan().collectLeaves().head().metrics()
        files = int(metrics.apply("numFiles").value())
        pruning = open_table(config.root, table.name).prune(where)
        scan_times, peer_times = paired(RUNS, scan, read)
    return [
        Row(f"files opened of {FILES}, selective query, against spark.read", [pruning.fragment_count], [files],
            files / pruning.fragment_count, 50.0),
        Row("bytes of these files, against bytes that spark.read reads", [pruning.bytes], [spark_bytes],
            spark_bytes / pruning.bytes, 10.0),
        Row("the same query, seconds with planning", scan_times, peer_times, ratio(peer_times, scan_times), 0.0),
    ]  # fmt: skip


def _bytes_read(events: Path) -> int:
    """Return how many bytes all tasks have read so far, as Spark counts them."""
    from time import sleep

    sleep(1.5)  # the listener writes behind the job
    total = 0
    for path in events.iterdir():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if '"SparkListenerTaskEnd"' in line:
                    total += json.loads(line)["Task Metrics"]["Input Metrics"]["Bytes Read"]
    return total
