"""Sums of many fingerprints on Spark: each task sends its fingerprints of each range to the reducer of that range.

Algorithm 2 of three for frequencies. Sorted fingerprints are sent as differences, some four bytes per value. For values
that hardly repeat, this is a small part of the bytes that a shuffle of the values takes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.errors import MetastoreError
from metastore_assets.spark.pyspark_compat import repartition_by_id
from metastore_assets.spark.runner import (
    collect_results,
    count_slots,
    pack,
    pack_failure,
    packing_io_counts,
    prepare_task,
    result_batch,
    unpack_results,
)
from metastore_assets.statistics.fingerprints import FingerprintCounts, sum_fingerprints
from metastore_assets.storage.io_counters import is_counting_io

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
WriteRange: TypeAlias = "Callable[[int, FingerprintCounts], R]"
"""Receives the number of a range and the sums of all its fingerprints."""
_ROWS_PER_RANGE = 4_000_000
"""The number of values whose fingerprints one task sums."""
_BLOB = "range int, blob binary"
_MOST_RANGES = 4096


def shuffle_fingerprints(
    spark: SparkSession,
    read: Callable[[T], FingerprintCounts],
    tasks: Sequence[T],
    values: int,
    bits: int,
    write: WriteRange[R],
) -> list[R]:
    """Return the results of `write` for each nonempty range of fingerprints, in no particular order.

    `read` and `write` run in Spark tasks; their errors are raised here.

    Args:
        spark: The session.
        read: Returns the fingerprints of one task. The more values a task has, the fewer bytes each of them takes.
        tasks: The arguments of `read`.
        values: The approximate number of values in all tasks.
        bits: Width of the fingerprints in bits.
        write: Receives the number of a range and its sums.
    """
    ranges = min(_MOST_RANGES, max(count_slots(spark), values // _ROWS_PER_RANGE + 1))
    packed = [pack(task) for task in tasks]
    sent = spark.range(0, len(packed), 1, max(1, len(packed))).mapInArrow(
        partial(_send, pack(read), packed, bits, ranges, is_counting_io()), _BLOB
    )
    summed = repartition_by_id(sent, ranges, "range").mapInArrow(
        partial(_receive, pack(write), is_counting_io()), "result binary"
    )
    return unpack_results(collect_results(summed))


def _send(
    read: bytes, packed: Sequence[bytes], bits: int, ranges: int, counted: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the fingerprints of tasks, split into ranges."""
    prepare_task()
    function = pickle.loads(read)
    bounds = np.array([(at << bits) // ranges for at in range(1, ranges)], np.int64)
    with packing_io_counts(counted) as count:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                try:
                    own: FingerprintCounts = function(pickle.loads(packed[index]))
                except MetastoreError as error:
                    yield _row(0, pack_failure(error))
                    continue
                ends = [0, *np.searchsorted(own.fingerprints, bounds).tolist(), len(own)]
                for number, (start, stop) in enumerate(pairwise(ends)):
                    if start < stop:
                        yield _row(
                            number, encoded(FingerprintCounts(own.fingerprints[start:stop], own.counts[start:stop]))
                        )
        if counted:
            yield _row(0, count())


def _receive(write: bytes, counted: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sum the fingerprints of each range. Blobs that are no fingerprints are passed on as results."""
    prepare_task()
    function = pickle.loads(write)
    found: dict[int, list[FingerprintCounts]] = {}
    for batch in batches:
        for number, blob in zip(batch.column("range").to_pylist(), batch.column("blob"), strict=True):
            data = blob.as_buffer()
            if data.slice(0, len(_MAGIC)).to_pybytes() == _MAGIC:
                found.setdefault(number, []).append(decoded(data))
            else:
                yield result_batch(data.to_pybytes())
    with packing_io_counts(counted) as count:
        for number in sorted(found):
            try:
                outcome = pack(function(number, sum_fingerprints(found.pop(number))))
            except MetastoreError as error:
                outcome = pack_failure(error)
            yield result_batch(outcome)
        if counted:
            yield result_batch(count())


def _row(number: int, blob: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([number], pa.int32()), pa.array([blob], pa.binary())], ["range", "blob"])


_MAGIC = b"PAR1"
_SCHEMA = pa.schema({"print": pa.int64(), "count": pa.int64()})


def encoded(fingerprints: FingerprintCounts) -> bytes:
    """Encode fingerprints as a Parquet file of two delta-encoded columns."""
    sink = pa.BufferOutputStream()
    encodings = dict.fromkeys(_SCHEMA.names, "DELTA_BINARY_PACKED")
    with pq.ParquetWriter(
        sink, _SCHEMA, use_dictionary=False, compression="none", column_encoding=encodings, write_statistics=False
    ) as writer:
        columns = [pa.array(fingerprints.fingerprints), pa.array(fingerprints.counts)]
        writer.write_table(pa.Table.from_arrays(columns, schema=_SCHEMA), row_group_size=max(1, len(fingerprints)))
    return sink.getvalue().to_pybytes()


def decoded(data: pa.Buffer) -> FingerprintCounts:
    """Decode the result of `encoded`."""
    table = pq.read_table(pa.BufferReader(data))
    return FingerprintCounts(*(table[name].to_numpy() for name in _SCHEMA.names))
