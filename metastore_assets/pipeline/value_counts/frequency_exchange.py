"""Sums of long frequencies on Spark: partial sums where the files are read, one shuffle, full sums.

The shuffle carries opaque blobs, each with values of one column. A reducer holds one column, or one range of it, at a
time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import pyarrow as pa

from metastore_assets.errors import MetastoreError
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.pipeline.value_counts.exchange import EXCHANGED, blobs, exchanged_row, exchanged_rows, of_blob
from metastore_assets.pipeline.value_counts.frequency_sums import FrequencySum, R, WriteSums, full_sums
from metastore_assets.spark.runner import (
    balance_bins,
    collect_results,
    pack,
    pack_failure,
    packing_io_counts,
    prepare_task,
    result_batch,
    unpack_results,
)
from metastore_assets.statistics.frequencies import EMPTY, split_frequencies, sum_frequencies
from metastore_assets.storage.io_counters import is_counting_io
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore

_TERMS_PER_TASK = 16
_ROWS_PER_BUCKET = 2_000_000


@dataclass(frozen=True)
class _MapTask:
    total: int
    buckets: tuple[tuple[int, int], ...]
    """(position, bucket) of each column."""
    terms: tuple[tuple[ProfileFiles, int], ...]
    splitters: Mapping[int, pa.Array]
    """The values that split columns into ranges, by position. The bucket of a column is that of its first range."""
    first: bool
    """Whether this is the first task of its sum. It emits an empty blob for columns without frequencies."""


def sum_on_spark(
    engine: Engine, store: ObjectStore, spec: ProfileSpec, sums: Sequence[FrequencySum], write: WriteSums[R]
) -> list[R]:
    """Return the results of `write` for the sums of each bucket of columns of a profile, and of each range of a column.

    Raises:
        CorruptionError: A profile is damaged, or a total is negative.
    """
    slots = engine.slots()
    tasks, buckets = _map_tasks(sums, slots)
    bins = balance_bins([float(len(task.terms) * len(task.buckets)) for task in tasks], slots * 4)
    packed = [pack([tasks[index] for index in group]) for group in bins]
    partials = engine.session.range(0, len(packed), 1, len(packed)).mapInArrow(
        partial(_read_partials, store, spec, packed, is_counting_io()), EXCHANGED
    )
    # Rows are partitioned by bucket number, not by hash, because a bucket's file covers planned columns.
    ordered = partials.repartitionById(buckets, "bucket").sortWithinPartitions("bucket", "total", "position")
    summed = ordered.mapInArrow(partial(_sum_partials, spec, write, is_counting_io()), "result binary")
    return unpack_results(collect_results(summed))


def _map_tasks(sums: Sequence[FrequencySum], slots: int) -> tuple[list[_MapTask], int]:
    """Return tasks of bounded size and the number of buckets. Adjacent columns of one profile share a bucket."""
    count = max(1, min(4 * slots, sum(total.rows for total in sums) // _ROWS_PER_BUCKET + slots))
    positions: dict[int, set[int]] = {}
    rows: dict[int, int] = {}
    for total in sums:
        positions.setdefault(total.total, set()).update(total.positions)
        rows[total.total] = rows.get(total.total, 0) + total.rows
    bucket_of: dict[tuple[int, int], int] = {}
    next_bucket = 0
    for number, own in positions.items():
        spread = max(1, min(count, len(own), rows[number] // _ROWS_PER_BUCKET + 1))
        for index, position in enumerate(sorted(own)):
            bucket_of[number, position] = (next_bucket + index * spread // len(own)) % count
        next_bucket += spread
    for total in sums:
        for position, splitters in total.splitters.items():
            bucket_of[total.total, position] = count
            count += len(splitters) + 1
    tasks = []
    for total in sums:
        buckets = tuple((position, bucket_of[total.total, position]) for position in total.positions)
        for start in range(0, max(1, len(total.terms)), _TERMS_PER_TASK):
            terms = total.terms[start : start + _TERMS_PER_TASK]
            tasks.append(_MapTask(total.total, buckets, terms, total.splitters, first=start == 0))
    return tasks, count


def _read_partials(
    store: ObjectStore, spec: ProfileSpec, packed: Sequence[bytes], counted: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the partial sums of each column over the terms of tasks: at least one blob per column and sign."""
    prepare_task()
    with packing_io_counts(counted) as count, StatesReader(store) as opened:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                for task in pickle.loads(packed[index]):
                    try:
                        yield from _partials(opened, spec, task)
                    except MetastoreError as error:
                        yield exchanged_row(0, -1, -1, 1, pack_failure(error))
        if counted:
            yield exchanged_row(0, -1, -1, 1, count())


def _partials(opened: StatesReader, spec: ProfileSpec, task: _MapTask) -> Iterator[pa.RecordBatch]:
    readers = [(FrequencyReader(opened, files), sign) for files, sign in task.terms]
    try:
        for position, bucket in task.buckets:
            leaf, _ = spec.leaves[position]
            silent = task.first
            for sign in (1, -1):
                lists = [reader.read(leaf.field_id) for reader, own in readers if own == sign]
                present = [found for found in lists if found is not None]
                if not present:
                    continue
                whole = present[0] if len(present) == 1 else sum_frequencies((found, 1) for found in present)
                pieces = split_frequencies(whole, task.splitters[position]) if position in task.splitters else [whole]
                for number, piece in enumerate(pieces):
                    if len(piece) or len(pieces) == 1:
                        for blob in blobs(piece):
                            yield exchanged_row(bucket + number, task.total, position, sign, blob)
                silent = False
            if silent:
                # Empty frequencies are written too: they record that the column has no values.
                yield from (exchanged_row(bucket, task.total, position, 1, blob) for blob in blobs(EMPTY))
    finally:
        for reader, _ in readers:
            reader.__exit__()


def _sum_partials(
    spec: ProfileSpec, write: WriteSums[R], counted: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Sum and write each column. Rows arrive ordered by bucket, profile and column."""
    prepare_task()
    rows = exchanged_rows(batches)
    with packing_io_counts(counted) as count:
        for (_, total), group in groupby(rows, key=lambda row: (row[0], row[1])):
            if total < 0:
                yield from (result_batch(row[4]) for row in group)
                continue
            try:
                columns = groupby(group, key=lambda row: row[2])
                lists = ((position, [(of_blob(row[4]), row[3]) for row in own]) for position, own in columns)
                outcome = pack(write(total, full_sums(spec, lists)))
            except MetastoreError as error:
                outcome = pack_failure(error)
            yield result_batch(outcome)
        if counted:
            yield result_batch(count())
