"""A program that builds, updates and compacts a stage of many rows on Spark.

The memory of each worker is limited.

python -m tests.produce.large_stage_program FOLDER ROWS LIMIT

LIMIT is the memory of a Python worker as Spark writes it: `2g`. The stage maps the rows of its input, the root, to rows
of target keys.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from metastore_assets.produce import Batch, Dataflow, Root, Rows, Stage
from metastore_assets.spark.runner import SparkRunner
from metastore_assets.store.objects import ObjectStore

PIECE = 1_000_000
_KEY = pa.schema([("key", pa.int64())])
_PAIRS = Rows(_KEY, pa.schema([("group", pa.int64()), ("amount", pa.int64())]))
_BY_GROUP = Rows(pa.schema([("group", pa.int64())]), pa.schema([("amount", pa.int64())]))


def pairs(keys: npt.NDArray[np.int64], rows: int, round_: int) -> pa.RecordBatch:
    """Return a row of an update for each key, with a group and an amount.

    There are `rows / 5` groups. The group of a key also depends on `round_`, so another round changes the key's group.
    """
    groups = (keys * 7_919 + round_ * 13) % (rows // 5)
    amounts = keys % 1_000 + round_
    change = pa.repeat("update", len(keys))
    return pa.RecordBatch.from_pydict({"_change": change, "key": keys, "group": groups, "amount": amounts})


def all_rows(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the first update, which has `rows` rows, in batches."""
    for start in range(0, rows, PIECE):
        yield pairs(np.arange(start, min(start + PIECE, rows)), rows, 0)


def by_group(batch: Batch) -> pa.Table:
    """Return the rows of the root unchanged: their column `group` is the target key of the stage."""
    return batch.ports[0]


def main(folder: str, rows: int, limit: str) -> None:
    """Build, update and compact the stage, and print one JSON object about each step.

    The objects `built`, `updated` and `compacted` have the number of rows of the stage, the sum of their groups and the
    sum of their amounts. The object `driver` has the peak memory of this process in bytes.

    Args:
        folder: The folder of the dataflow.
        rows: The number of rows of the root.
        limit: The memory of a Python worker (`spark.executor.pyspark.memory`).
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # The limit is on address space, of which allocators reserve a gigabyte or more per thread without using it.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    os.environ["MALLOC_ARENA_MAX"] = "2"
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.executor.pyspark.memory", limit).getOrCreate()
    stage = Stage("groups", (("pairs",),), _BY_GROUP, produce_batch=by_group)
    flow = Dataflow(ObjectStore(folder), [Root("pairs", _PAIRS), stage], runner=SparkRunner(lambda: spark))
    flow.advance({"pairs": all_rows(rows)})
    _print_json(built=_stored_rows(flow))
    # More than the calling process does for all shards.
    keys = np.arange(0, rows, 150)
    flow.advance({"pairs": pa.Table.from_batches([pairs(keys, rows, 1)])})
    _print_json(updated=_stored_rows(flow))
    flow.compact(full=True)
    _print_json(compacted=_stored_rows(flow))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _print_json(driver=peak * 1024)
    spark.stop()


def _print_json(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def _stored_rows(flow: Dataflow) -> list[int]:
    """Return the number of rows of the stage, the sum of their groups and the sum of their amounts."""
    totals = [0, 0, 0]
    for batch in flow.version().content_batches("groups"):
        sums = (pc.sum(batch.column(name)).as_py() for name in ("group", "amount"))
        totals = [old + new for old, new in zip(totals, (batch.num_rows, *sums), strict=True)]
    return totals


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
