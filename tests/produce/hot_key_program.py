"""A program that builds, updates and compacts a stage in which all rows have one target key.

python -m tests.produce.hot_key_program FOLDER ROWS KIND

With the KIND `hot`, all rows have one target key. With `spread`, each row has a different one, for comparison. A stage
maps the rows of source keys to rows of target keys.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.produce import Batch, Dataflow, Root, Rows, Settings, Stage, SurrogateKey
from metastore_assets.store.objects import ObjectStore

PIECE = 50_000
SETTINGS = Settings(buffer_rows=100_000, row_group_rows=20_000, batch_rows=50_000, small_rows=0)
_PAIRS = Rows(pa.schema([("key", pa.int64())]), pa.schema([("amount", pa.int64())]))
_ONE = Rows(pa.schema([("group", pa.int64())]), pa.schema([("amount", pa.int64()), ("id", pa.int64())]))


def pairs(keys: npt.NDArray[np.int64], change: str, more: int = 0) -> pa.RecordBatch:
    changes = pa.repeat(change, len(keys))
    return pa.RecordBatch.from_pydict({"_change": changes, "key": keys, "amount": keys % 1_000 + more})


def all_rows(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, PIECE):
        yield pairs(np.arange(start, min(start + PIECE, rows)), "add")


def hot(batch: Batch) -> pa.Table:
    """Map every row to the same key."""
    port = batch.ports[0]
    columns = {"group": pa.repeat(pa.scalar(0, pa.int64()), port.num_rows), "id": pa.nulls(port.num_rows, pa.int64())}
    return pa.table({"_source": port["_source"], "amount": port["amount"], **columns})


def spread(batch: Batch) -> pa.Table:
    """Map every row to its own key."""
    port = batch.ports[0]
    group = batch.keys["key"].take(port["_source"])
    return pa.table({**dict(zip(port.column_names, port.columns, strict=True)), "group": group}).append_column(
        "id", pa.nulls(port.num_rows, pa.int64())
    )


def main(folder: str, rows: int, kind: str) -> None:
    """Build, update and compact the stage, and print a JSON list about its rows after each step.

    The build and the update each print a list for the changes of the stage, and then one for its content. The
    compaction prints one for the content. A list has the number of rows, the sum of amounts, the number of distinct ids
    (-1 if there are more than two), and the number of `add` rows. The last line is the growth of peak memory in MiB.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    produce = hot if kind == "hot" else spread
    stage = Stage("one", (("pairs",),), _ONE, produce_batch=produce, preserve=SurrogateKey("id"))
    flow = Dataflow(ObjectStore(folder), [Root("pairs", _PAIRS), stage], settings=SETTINGS)
    for update in (all_rows(rows), [pairs(np.arange(7, rows, rows // 10), "update", 1)]):
        flow.advance({"pairs": update})
        for batches_ in (flow.version().update_batches("one"), flow.version().content_batches("one")):
            _print_json(_stored_rows(batches_))
    flow.compact(full=True)
    _print_json(_stored_rows(flow.version().content_batches("one")))
    _print_json((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def _stored_rows(batches: Iterator[pa.RecordBatch]) -> list[int]:
    rows = amounts = adds = 0
    ids: set[int] = set()
    for batch in batches:
        rows += batch.num_rows
        amounts += int(batch.column("amount").to_numpy().sum())
        ids |= set(np.unique(batch.column("id").to_numpy()).tolist()) if len(ids) < 3 else set()
        adds += batch.column("_change").to_pylist().count("add") if "_change" in batch.schema.names else 0
    return [rows, amounts, len(ids) if len(ids) < 3 else -1, adds]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
