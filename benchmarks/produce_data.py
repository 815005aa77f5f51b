"""Rows for the benchmarks of the produce layer, and dataflows in temporary folders."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.produce import Batch, Dataflow, InProcessRunner, Root, Rows, Settings, Stage, SumStage
from metastore_assets.store.objects import ObjectStore

PIECE = 100_000

_KEY = pa.schema([("key", pa.int64())])
PAIRS = Rows(_KEY, pa.schema([("group", pa.int64()), ("amount", pa.int64())]))


def by_group(batch: Batch) -> pa.Table:
    """Return the rows of a batch unchanged, as the function of a stage.

    Such a stage stores the rows of its source by `group`, which is the key column of its output.
    """
    return batch.ports[0]


def all_pairs(rows: int, random: np.random.Generator) -> Iterator[pa.RecordBatch]:
    """Yield a number of rows with random groups, in batches of up to `PIECE` rows."""
    for keys in key_ranges(rows):
        yield pairs(keys, random.integers(0, rows // 4, len(keys)))


def key_ranges(rows: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the keys from 0 to `rows` (exclusive), in arrays of up to `PIECE` keys."""
    for start in range(0, rows, PIECE):
        yield np.arange(start, min(start + PIECE, rows))


def pairs(keys: npt.NDArray[np.int64], groups: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return one row for each key, with the group at the same position."""
    return batch({"key": keys, "group": groups, "amount": keys % 97})


def batch(columns: dict[str, npt.NDArray[np.int64]]) -> pa.RecordBatch:
    """Return the columns as a batch of rows to insert or replace."""
    rows = len(next(iter(columns.values())))
    return pa.RecordBatch.from_pydict({"_change": pa.repeat("update", rows), **columns})


def table(batch: pa.RecordBatch) -> pa.Table:
    """Return a batch as a table."""
    return pa.Table.from_batches([batch])


@contextmanager
def flow_of(nodes: list[Root | Stage | SumStage], settings: Settings | None = None) -> Iterator[Dataflow]:
    """Yield a dataflow of roots (inputs) and stages in a temporary folder, which is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="metastore-bench-produce-"))
    try:
        yield Dataflow(ObjectStore(str(folder)), nodes, runner=InProcessRunner(2), settings=settings)
    finally:
        shutil.rmtree(folder)
