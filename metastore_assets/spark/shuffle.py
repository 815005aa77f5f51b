"""A shuffle of encoded data on Spark: tasks yield rows, and each group of rows is reduced.

A row is a blob with three integers: its partition, its group in the partition, and its position in the group. The
caller's function reduces the rows of a group to one result. For Spark, blobs are opaque, so values of tables need no
conversion to Spark's types.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa

from metastore_assets.errors import MetastoreError
from metastore_assets.spark.pyspark_compat import repartition_by_id
from metastore_assets.spark.runner import (
    collect_results,
    pack,
    pack_failure,
    packing_io_counts,
    prepare_task,
    reporting_ended_java,
    result_batch,
    unpack_results,
)
from metastore_assets.storage.io_counters import is_counting_io

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_RESULT_GROUP = -1
"""The group of rows that are not reduced: errors and I/O counts of tasks, which are passed on as results."""


class ShuffledRow(NamedTuple):
    """A blob with the keys by which the shuffle distributes, groups and sorts it."""

    partition: int
    """Number of the partition to which Spark moves the row, from 0."""
    group: int
    """Number of the group, at least 0. All rows of a group in a partition are reduced together."""
    position: int
    """Order of the row in its group: `reduce` gets the rows by increasing position."""
    blob: bytes


_SCHEMA = pa.schema({"partition": pa.int32(), "group": pa.int32(), "position": pa.int32(), "blob": pa.binary()})
_SPARK_SCHEMA = "partition int, `group` int, position int, blob binary"


def shuffle(
    spark: SparkSession,
    read: Callable[[T], Iterable[ShuffledRow]],
    tasks: Sequence[T],
    partitions: int,
    reduce: Callable[[int, Iterator[ShuffledRow]], R],
) -> list[R]:
    """Read rows from tasks, move the rows to partitions, and reduce each group of rows, in one Spark job.

    Each row names its partition, its group, and its position in the group; see `ShuffledRow`. A worker of Spark that
    calls `read` sends each row on immediately. A worker that calls `reduce` has one Arrow batch of rows in memory at a
    time, besides what `reduce` keeps. Spark decides how many rows are in a batch.

    Args:
        spark: The session, classic or Connect.
        read: Called with each item of `tasks`. Yields rows.
        tasks: The items, each of which becomes a task of Spark.
        partitions: The number of partitions. The partition of each row must be less than this.
        reduce: Called once for each pair (partition, group) that has rows. Gets the number of the group, and the rows
            of the pair by increasing position.

    Returns:
        The results of all calls of `reduce`, in no particular order.

    Raises:
        MetastoreError: `read` or `reduce` raised it.
        WorkerEndedError: A worker crashed.
    """
    packed_tasks = [pack(task) for task in tasks]
    with reporting_ended_java():
        rows = spark.range(0, len(packed_tasks), 1, max(1, len(packed_tasks))).mapInArrow(
            partial(_read_tasks, pack(read), packed_tasks, is_counting_io()), _SPARK_SCHEMA
        )
        shuffled_rows = repartition_by_id(rows, partitions, "partition").sortWithinPartitions(
            "partition", "group", "position"
        )
        reduced_rows = shuffled_rows.mapInArrow(
            partial(_reduce_groups, pack(reduce), is_counting_io()), "result binary"
        )
    return unpack_results(collect_results(reduced_rows))


def _read_tasks(
    packed_read: bytes, packed_tasks: Sequence[bytes], counts_io: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Call `read` of `shuffle` with each task of a Spark partition.

    Yield each row of the results as a batch.

    A task that raises a MetastoreError yields the error, as a row of the group `_RESULT_GROUP`.

    Args:
        packed_read: The pickled function.
        packed_tasks: The pickled tasks of all partitions.
        counts_io: Whether to yield the I/O counts at the end, as a row of the group `_RESULT_GROUP`.
        batches: Batches with a column `id`: the indices of this partition's tasks.
    """
    prepare_task()
    read = pickle.loads(packed_read)
    with packing_io_counts(counts_io) as pack_counts:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                try:
                    for row in read(pickle.loads(packed_tasks[number])):
                        yield _row_batch(row)
                except MetastoreError as error:
                    yield _row_batch(ShuffledRow(0, _RESULT_GROUP, 0, pack_failure(error)))
        if counts_io:
            yield _row_batch(ShuffledRow(0, _RESULT_GROUP, 0, pack_counts()))


def _reduce_groups(
    packed_reduce: bytes, counts_io: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Call the function `reduce` for each group in a Spark partition.

    Yield each packed result as a batch.

    If `reduce` raises a MetastoreError, the packed error is yielded instead of a result. Rows of the group
    `_RESULT_GROUP` are packed errors and I/O counts of tasks. They are yielded unchanged.

    Args:
        packed_reduce: The pickled function `reduce`, an argument of `shuffle`.
        counts_io: Whether to yield the I/O counts at the end.
        batches: The rows, sorted by partition, group and position.
    """
    prepare_task()
    reduce = pickle.loads(packed_reduce)
    with packing_io_counts(counts_io) as pack_counts:
        for (_, group), rows in groupby(_rows(batches), key=attrgetter("partition", "group")):
            if group == _RESULT_GROUP:
                yield from (result_batch(row.blob) for row in rows)
                continue
            try:
                result = pack(reduce(group, rows))
            except MetastoreError as error:
                result = pack_failure(error)
            yield result_batch(result)
        if counts_io:
            yield result_batch(pack_counts())


def _row_batch(row: ShuffledRow) -> pa.RecordBatch:
    return pa.record_batch([pa.array([value], field.type) for value, field in zip(row, _SCHEMA, strict=True)], _SCHEMA)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[ShuffledRow]:
    for batch in batches:
        for index in range(batch.num_rows):
            yield ShuffledRow(*(column[index].as_py() for column in batch.columns))
