"""Search for repeated values of a column of long texts: fingerprints against Spark's `GROUP BY`.

The column is nearly unique. A fingerprint is a part of a value's hash.

Bytes moved and times are compared. Both ways read the table's files, and return all values that occur at least twice.
`METASTORE_BENCH_FINGERPRINTS` is the number of rows, by default 1000000.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import FOLDER
from benchmarks.measure import TaskTime, paired, ratio, stop
from benchmarks.report import Row
from metastore_assets.config import TableConfig
from metastore_assets.formats import MetadataCache, open_table_format
from metastore_assets.formats.base import Fragment
from metastore_assets.pipeline.value_counts.fingerprint_shuffle import FingerprintRanges, shuffle_fingerprints
from metastore_assets.pipeline.value_counts.fingerprinted_values import FingerprintedColumn, values_of_rows
from metastore_assets.spark.runner import SparkRunner
from metastore_assets.spark.session import get_spark_session
from metastore_assets.statistics.fingerprints import FINGERPRINT_BITS, FingerprintCounter, FingerprintCounts
from metastore_assets.statistics.frequencies import sum_frequencies
from metastore_assets.statistics.hashing import hash_values
from metastore_assets.values.physical import canonical_array, physical_series
from metastore_assets.values.types import class_named

ROWS = int(os.environ.get("METASTORE_BENCH_FINGERPRINTS", "1000000"))
FILES = 4
RUNS = 3
REPEATED = 2000
"""The number of values that occur twice is the number of rows divided by this. All other values occur once."""
LEAST_SHARE = 8.0


def run() -> list[Row]:
    """Compare the bytes that both ways move, and the times that both take.

    `GROUP BY` moves only the bytes that Spark shuffles. Fingerprints move three kinds of bytes: the shuffled
    fingerprints, the repeated fingerprints (sent to each task), and the values that the tasks return.
    """
    from pyspark import cloudpickle

    # Workers need not have the benchmarks.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
    log = folder / "log"
    log.mkdir()
    expected = _write(folder / "rows")
    spark = get_spark_session(
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "3g",
            # Spark's own work deserves its optimizing compiler, which the Metastore's defaults trade for a fast start.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4",
            **TaskTime(log).settings(),
        }
    )
    table = TableConfig(name="bench", uri=str(folder / "rows"))
    snapshot = open_table_format(table, MetadataCache()).snapshot()
    (field,) = snapshot.schema
    column = FingerprintedColumn("code", "code", "string", field, 0, FINGERPRINT_BITS, False)
    results: dict[str, tuple[int, int]] = {}
    task_bytes: list[int] = []

    def group() -> None:
        frame = spark.read.parquet(str(folder / "rows")).groupBy("code").count().where("count > 1")
        counts = frame.toArrow()["count"].to_numpy()
        results["group"] = len(counts), int(counts.sum())

    def fingerprints() -> None:
        read, write = partial(_read_fingerprints, column), _select_repeated
        ranges = FingerprintRanges.of_values(spark, ROWS, FINGERPRINT_BITS)
        parts = shuffle_fingerprints(spark, read, list(snapshot.fragments), ranges, write)
        candidates = np.sort(np.concatenate([part.fingerprints for part in parts]))
        value_counts = SparkRunner(lambda: spark).map(partial(values_of_rows, column, candidates), snapshot.fragments)
        counts = sum_frequencies((part, 1) for part in value_counts).counts.to_numpy()
        results["fingerprints"] = int((counts > 1).sum()), int(counts[counts > 1].sum())
        candidate_bytes = candidates.nbytes * len(snapshot.fragments)
        task_bytes.append(candidate_bytes + sum(part.values.nbytes for part in value_counts))

    try:
        for action in (group, fingerprints):
            action()
        if results["group"] != expected or results["fingerprints"] != expected:
            raise AssertionError(f"{expected} values and rows repeat, not {results}")
        grouped_bytes, fingerprint_bytes = _shuffled(log, group), _shuffled(log, fingerprints)
        fingerprint_times, peer_times = paired(RUNS, fingerprints, group)
    finally:
        stop(spark)
        shutil.rmtree(folder)
    fingerprint_bytes += task_bytes[-1]
    print(
        f"{ROWS:,} texts of 32 characters: grouping shuffles {grouped_bytes / 1e6:.1f} MB, fingerprints move "
        f"{fingerprint_bytes / 1e6:.1f} MB ({fingerprint_bytes / ROWS:.2f} bytes a value)"
    )
    return [
        Row(f"bytes moved to find the repeated values of {ROWS:,} texts (MB)", [fingerprint_bytes / 1e6],
            [grouped_bytes / 1e6], grouped_bytes / fingerprint_bytes, LEAST_SHARE),
        Row("time of that", fingerprint_times, peer_times, ratio(peer_times, fingerprint_times), 1.0),
    ]  # fmt: skip


def _write(folder: Path) -> tuple[int, int]:
    """Write hexadecimal texts in several files.

    Return how many values occur at least twice, and how many rows have one of these values.
    """
    draw = np.random.default_rng(8)
    folder.mkdir()
    repeated_bytes = draw.bytes(16 * (ROWS // REPEATED))
    size = ROWS // FILES
    for at in range(FILES):
        start = repeated_bytes if at < 2 else b""
        data = (start + draw.bytes(16 * size - len(start))).hex()
        offsets = pa.py_buffer(np.arange(size + 1, dtype=np.int32) * 32)
        texts = pa.StringArray.from_buffers(size, offsets, pa.py_buffer(data.encode()))
        pq.write_table(pa.table({"code": texts}), folder / f"{at}.parquet", use_dictionary=False)
    return ROWS // REPEATED, 2 * (ROWS // REPEATED)


def _read_fingerprints(column: FingerprintedColumn, fragment: Fragment) -> FingerprintCounts:
    """Return the fingerprints of a file's rows, with the number of rows of each, as profiling does."""
    cls, counter = class_named(column.type_class), FingerprintCounter()
    with fragment.source.open() as reader:
        for chunk in reader.read(column.field):
            values = physical_series(chunk, cls)
            hashes, _ = hash_values(canonical_array(values, cls), cls)
            counter.add(hashes, np.ones(len(values), np.int64))
    return counter.total()


def _select_repeated(_range: int, total: FingerprintCounts) -> FingerprintCounts:
    return total.part(total.counts > 1)


def _shuffled(log: Path, action: object) -> int:
    """Run `action`, a function without arguments.

    Return how many shuffle bytes the Spark tasks of this run have written, according to the event log `log`.
    """
    before = _written(log)
    assert callable(action)
    action()
    return _written(log) - before


def _written(log: Path) -> int:
    time.sleep(1.5)  # The listener writes behind the job.
    total = 0
    for path in log.iterdir():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if '"SparkListenerTaskEnd"' in line:
                    total += json.loads(line)["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return total
