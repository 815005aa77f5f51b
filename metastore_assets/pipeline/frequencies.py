"""Sums of frequency lists of any size: partial sums where the files are read, one Spark exchange, full sums.

A sum has signed terms, so that the same function serves from scratch (every child, +1) and after a commit (the old
sum and the children that came, +1; those that went, -1). The exchange carries opaque blobs, one column's values each:
Spark sees no types, and a reducer holds one column at a time, or, where that is cut, one range of it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TypeAlias, TypeVar

import pyarrow as pa

from metastore_assets.errors import CorruptionError, MetastoreError
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.exchange import EXCHANGED, blobs, exchanged_row, exchanged_rows, of_blob
from metastore_assets.pipeline.files import FrequencyWriter
from metastore_assets.pipeline.layouts import Layout
from metastore_assets.pipeline.states_files import StatesFiles
from metastore_assets.pipeline.stored import FrequencyReader
from metastore_assets.spark.tasks import (
    balanced_bins,
    begin_task,
    blob_batch,
    collected,
    counting,
    failure,
    pack,
    results,
)
from metastore_assets.statistics.frequencies import (
    EMPTY,
    Frequencies,
    FrequencyFacts,
    cut,
    frequency_facts,
    sum_frequencies,
)
from metastore_assets.statistics.types import type_class
from metastore_assets.statistics.user_defined.telling import facts_with_results
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.traffic import is_metered

_TERMS_PER_TASK = 16
_ROWS_PER_BUCKET = 2_000_000
R = TypeVar("R")
WriteSums: TypeAlias = Callable[[int, Iterable[tuple[int, Frequencies]]], R]
"""Called with the number of a profile, and position and full list of some of its columns, by increasing position."""


@dataclass(frozen=True)
class FrequencySum:
    """Some columns of one profile, to be summed from the lists of others."""

    total: int
    """Number of the profile that the sum is for; sums of one profile share it."""
    positions: tuple[int, ...]
    """Columns, by their position in the layout."""
    terms: tuple[tuple[ProfileFiles, int], ...]
    """Lists with their signs. A column that a term does not list counts as empty."""
    rows: int
    """About how many values the terms list, over all columns."""
    splitters: Mapping[int, pa.Array] = field(default_factory=dict)
    """By position, what columns are cut by into ranges, each of which is summed by a task of its own."""


@dataclass
class SummedColumns:
    """The outcome for one profile."""

    facts: dict[int, FrequencyFacts] = field(default_factory=dict)
    """What the full list of each column says, by position."""
    files: list[tuple[int, str]] = field(default_factory=list)
    """First position and path of each file written."""


@dataclass(frozen=True)
class _Part:
    total: int
    facts: Mapping[int, FrequencyFacts]
    file: tuple[int, str]


@dataclass(frozen=True)
class _MapTask:
    total: int
    buckets: tuple[tuple[int, int], ...]
    """(position, bucket) of each column."""
    terms: tuple[tuple[ProfileFiles, int], ...]
    splitters: Mapping[int, pa.Array]
    """By position, of columns that are cut: the bucket is that of the first range, the others follow."""
    first: bool
    """Whether it is the first task of its sum: the one that answers for columns without any list."""


def sum_columns(
    engine: Engine, store: ObjectStore, folder: str, layout: Layout, sums: Sequence[FrequencySum]
) -> dict[int, SummedColumns]:
    """Sum here where the lists are short, else in one Spark job with one exchange; outcomes by profile number.

    Raises CorruptionError when a total comes out negative, for then the terms were not what they claim to be.
    """
    outcomes: dict[int, SummedColumns] = {}
    for part in map_sums(engine, store, layout, sums, partial(_write_sums, store, folder, layout)):
        outcome = outcomes.setdefault(part.total, SummedColumns())
        outcome.facts.update(part.facts)
        outcome.files.append(part.file)
    for outcome in outcomes.values():
        outcome.files.sort()
    return outcomes


def map_sums(
    engine: Engine, store: ObjectStore, layout: Layout, sums: Sequence[FrequencySum], write: WriteSums[R]
) -> list[R]:
    """What `write` returns for the full sums of some neighbouring columns of one profile, or of a range of one that is
    cut, for all of them.

    Where the lists are short it is called here, else in Spark's tasks: it has to be picklable. Raises CorruptionError
    when a total comes out negative, for then the terms were not what they claim to be.
    """
    if not sums:
        return []
    if are_summed_here(engine, sums):
        return _summed_here(store, layout, sums, write)
    return _summed_on_spark(engine, store, layout, sums, write)


def are_summed_here(engine: Engine, sums: Sequence[FrequencySum]) -> bool:
    """Whether sums are made without Spark: where the lists are short, and none is cut."""
    lists = sum(len(total.positions) * len(total.terms) for total in sums)
    is_cut = any(total.splitters for total in sums)
    return not is_cut and engine.sums_here(lists, sum(total.rows for total in sums))


def summed_lists(
    store: ObjectStore, layout: Layout, positions: Sequence[int], profiles: Sequence[ProfileFiles]
) -> dict[int, Frequencies]:
    """The full sums of the lists that some profiles have of some columns, by position, in this process.

    Raises CorruptionError.
    """
    one = FrequencySum(0, tuple(positions), tuple((files, 1) for files in profiles), 0)
    (found,) = _summed_here(store, layout, [one], lambda total, lists: dict(lists))
    return found


def _summed_here(store: ObjectStore, layout: Layout, sums: Sequence[FrequencySum], write: WriteSums[R]) -> list[R]:
    """All lists of a column at once: of short ones, partial sums would be the most of the work."""
    outcomes = []
    for number, own in groupby(sorted(sums, key=lambda one: one.total), key=lambda one: one.total):
        with ExitStack() as stack:
            opened = stack.enter_context(StatesFiles(store))
            columns: list[tuple[int, list[tuple[FrequencyReader, int]]]] = []
            for one in own:
                readers = [(stack.enter_context(FrequencyReader(opened, files)), sign) for files, sign in one.terms]
                columns += [(position, readers) for position in one.positions]
            columns.sort(key=lambda column: column[0])
            lists = ((position, _lists(layout, position, readers)) for position, readers in columns)
            outcomes.append(write(number, _full_sums(layout, lists)))
    return outcomes


def _lists(
    layout: Layout, position: int, readers: Sequence[tuple[FrequencyReader, int]]
) -> list[tuple[Frequencies, int]]:
    leaf, _ = layout.leaves[position]
    found = [(reader.read(leaf.field_id), sign) for reader, sign in readers]
    return [(own, sign) for own, sign in found if own is not None]


def _summed_on_spark(
    engine: Engine, store: ObjectStore, layout: Layout, sums: Sequence[FrequencySum], write: WriteSums[R]
) -> list[R]:
    slots = engine.slots()
    tasks, buckets = _map_tasks(sums, slots)
    bins = balanced_bins([float(len(task.terms) * len(task.buckets)) for task in tasks], slots * 4)
    packed = [pack([tasks[index] for index in group]) for group in bins]
    partials = engine.session.range(0, len(packed), 1, len(packed)).mapInArrow(
        partial(_read_partials, store, layout, packed, is_metered()), EXCHANGED
    )
    # Buckets are dealt out by number, not by hash: a bucket's file covers the columns it was planned for.
    ordered = partials.repartitionById(buckets, "bucket").sortWithinPartitions("bucket", "total", "position")
    summed = ordered.mapInArrow(partial(_sum_partials, layout, write, is_metered()), "result binary")
    return results(collected(summed))


def _map_tasks(sums: Sequence[FrequencySum], slots: int) -> tuple[list[_MapTask], int]:
    """Chunks of terms, and the buckets that neighbouring columns of one profile share."""
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
    store: ObjectStore, layout: Layout, packed: Sequence[bytes], counted: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Map side: the partial sum of each column over a chunk of terms, one blob or more per column and sign."""
    begin_task()
    with counting(counted) as count, StatesFiles(store) as opened:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                for task in pickle.loads(packed[index]):
                    try:
                        yield from _partials(opened, layout, task)
                    except MetastoreError as error:
                        yield exchanged_row(0, -1, -1, 1, failure(error))
        if counted:
            yield exchanged_row(0, -1, -1, 1, count())


def _partials(opened: StatesFiles, layout: Layout, task: _MapTask) -> Iterator[pa.RecordBatch]:
    readers = [(FrequencyReader(opened, files), sign) for files, sign in task.terms]
    try:
        for position, bucket in task.buckets:
            leaf, _ = layout.leaves[position]
            silent = task.first
            for sign in (1, -1):
                lists = [reader.read(leaf.field_id) for reader, own in readers if own == sign]
                present = [found for found in lists if found is not None]
                if not present:
                    continue
                whole = present[0] if len(present) == 1 else sum_frequencies((found, 1) for found in present)
                pieces = cut(whole, task.splitters[position]) if position in task.splitters else [whole]
                for number, piece in enumerate(pieces):
                    if len(piece) or len(pieces) == 1:
                        for blob in blobs(piece):
                            yield exchanged_row(bucket + number, task.total, position, sign, blob)
                silent = False
            if silent:
                # A list that stays empty is written too: it says that the column has no values.
                yield from (exchanged_row(bucket, task.total, position, 1, blob) for blob in blobs(EMPTY))
    finally:
        for reader, _ in readers:
            reader.__exit__()


def _sum_partials(
    layout: Layout, write: WriteSums[R], counted: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Reduce side: rows arrive by bucket, profile and column; each column is summed and written."""
    begin_task()
    rows = exchanged_rows(batches)
    with counting(counted) as count:
        for (_, total), group in groupby(rows, key=lambda row: (row[0], row[1])):
            if total < 0:
                yield from (blob_batch(row[4]) for row in group)
                continue
            try:
                columns = groupby(group, key=lambda row: row[2])
                lists = ((position, [(of_blob(row[4]), row[3]) for row in own]) for position, own in columns)
                outcome = pack(write(total, _full_sums(layout, lists)))
            except MetastoreError as error:
                outcome = failure(error)
            yield blob_batch(outcome)
        if counted:
            yield blob_batch(count())


def _full_sums(
    layout: Layout, columns: Iterable[tuple[int, Sequence[tuple[Frequencies, int]]]]
) -> Iterator[tuple[int, Frequencies]]:
    """Position and full list of each column, one at a time, of lists with their signs."""
    for position, lists in columns:
        try:
            yield position, sum_frequencies(lists)
        except CorruptionError as error:
            leaf, _ = layout.leaves[position]
            raise CorruptionError(f"column {leaf.path!r}: {error}; `metastore refresh --full` rebuilds") from error


def _write_sums(
    store: ObjectStore, folder: str, layout: Layout, total: int, lists: Iterable[tuple[int, Frequencies]]
) -> _Part:
    """Write the lists as a part of the frequencies of a profile."""
    facts: dict[int, FrequencyFacts] = {}
    with FrequencyWriter(store, folder, layout) as writer:
        for position, whole in lists:
            leaf, policy = layout.leaves[position]
            facts[position] = facts_with_results(frequency_facts(whole), policy, type_class(leaf.type), whole)
            writer.add(leaf.path, leaf.field_id, whole)
    return _Part(total, facts, (min(facts), writer.path))
