"""A shuffle of encoded data on Spark: tasks yield rows, Spark moves them to partitions, and each group is reduced.

A row is a blob with integer keys. For Spark, blobs are opaque, so values of tables need no conversion to Spark's types.
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
    """Read tasks, move their rows to partitions, and reduce each group of rows, in one Spark job.

    A worker of Spark has one row in memory at a time, besides what `reduce` keeps.

    Args:
        spark: The session, classic or Connect.
        read: Called with each item of `tasks`. Yields rows.
        tasks: The items, each of which becomes a task of Spark.
        partitions: The number of partitions. `ShuffledRow.partition` is less than this.
        reduce: Called for each group in each partition, with the number of the group and its rows, sorted by position.

    Returns:
        The results of `reduce`, one for each group of each partition that has rows, in no particular order.

    Raises:
        MetastoreError: `read` or `reduce` raised it.
        WorkerEndedError: A worker crashed.
    """
    packed = [pack(task) for task in tasks]
    rows = spark.range(0, len(packed), 1, max(1, len(packed))).mapInArrow(
        partial(_read_tasks, pack(read), packed, is_counting_io()), _SPARK_SCHEMA
    )
    shuffled = repartition_by_id(rows, partitions, "partition").sortWithinPartitions("partition", "group", "position")
    reduced = shuffled.mapInArrow(partial(_reduce_groups, pack(reduce), is_counting_io()), "result binary")
    return unpack_results(collect_results(reduced))


def _read_tasks(
    packed_read: bytes, packed_tasks: Sequence[bytes], counts_io: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the tasks of a Spark partition. Yield each row as a batch of one row.

    A MetastoreError of a task, and the I/O counts, become rows of the group `_RESULT_GROUP`.
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
    """Reduce the sorted rows of a Spark partition. Yield one packed result, or MetastoreError, per group.

    Rows of `_RESULT_GROUP` are passed on unchanged. I/O counts come last.
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
