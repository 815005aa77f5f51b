"""Cogroups: instructions joined with the current rows of their target keys.

A stage computes the rows of target keys (the keys of its output) from source keys (the keys of its input). It stores
these rows as its content, and the pairs (source key, target key) as its key-mappings. An instruction is a row that
replaces older rows of a target key, deletes them, or adds to its total. A hot key is a target key with more rows than
are read at a time. The rows of a hot key are joined a few source keys at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from metastore_assets.produce.dataset import Dataset
from metastore_assets.produce.environment import Spool
from metastore_assets.produce.inputs import KeyChunks
from metastore_assets.produce.parts import Part, merge_parts
from metastore_assets.produce.run_schema import TOMBSTONE, RunSchema
from metastore_assets.produce.runs import KeyRange
from metastore_assets.produce.stages import Preserve
from metastore_assets.produce.streams import Stream, align_streams, regroup_steps
from metastore_assets.produce.typed_rows import Rows, with_nulls

_NO_LIMIT = 2**62


@dataclass(frozen=True)
class ApplyTask:
    """A task that applies instructions to one range of target keys."""

    stage: str
    rows: Rows | None
    """Types of the update's keys and values. None for key-mappings, which have no update."""
    dataset: Dataset
    parts: tuple[Part, ...]
    key_range: KeyRange
    spool: Spool
    bulk: bool
    """Whether to rewrite the whole range, instead of adding a run with the changes."""
    suppress: bool = False
    """Whether the update omits target keys whose values did not change."""
    preserve: Preserve | None = None
    counter: int = 0
    """The last number that was assigned to a new key."""
    is_followed: bool = True
    """Whether other stages or readers need the update."""


@dataclass(frozen=True)
class Cogroup:
    """Instructions for some target keys, with the current rows of these keys, to which they are applied."""

    instructions: pl.DataFrame
    previous: pl.DataFrame
    """The current rows of the keys in `instructions`. In bulk, also the rows of other keys of the range. Otherwise, the
    rows of a root have only key columns, and there are no rows of key-mappings, because they are not needed."""
    hot_key: pl.DataFrame | None = None
    """The hot key, if this is a part of its instructions and rows; otherwise None."""


def cogroup_instructions(task: ApplyTask) -> Iterator[Cogroup]:
    """Yield the instructions of a task with the current rows of their target keys.

    A hot key has several cogroups. The current rows of key-mappings are not read, except with `task.bulk`.

    With `task.bulk`, the cogroups contain all rows of the range, also those of keys without instructions.
    """
    dataset, run_schema = task.dataset, task.dataset.run_schema
    frames = merge_parts(dataset.storage, run_schema, task.parts, task.key_range)
    if task.rows is None and not task.bulk:
        # Key-mappings have no update, so their current rows are not needed.
        empty = run_schema.empty.drop(TOMBSTONE, strict=False)
        yield from (Cogroup(frame, empty) for frame in frames)
        return
    if task.bulk:
        streams = [Stream(frames, run_schema.empty), dataset.scan(task.key_range)]
        steps = align_streams(streams, run_schema.unit)
    else:
        steps = ([frame] for frame in frames)
    split: pl.DataFrame | None = None
    hot_keys = (
        dataset.find_hot_keys(_row_limit(task))
        if not task.bulk and _has_several_sources(run_schema)
        else run_schema.empty_keys
    )
    for piece in regroup_steps(steps, run_schema.group, _row_limit(task)):
        if not piece.split:
            split = None
            yield from [Cogroup(*piece.frames)] if task.bulk else _cogroup_by_lookup(task, piece.frames[0], hot_keys)
            continue
        key = next(frame for frame in piece.frames if frame.height)[:1].select(run_schema.group.columns)
        if split is None or not key.equals(split, null_equal=True):
            # Read the complete hot key here; its further pieces are skipped.
            split = key
            yield from _cogroup_hot_key(task, key)


def _cogroup_by_lookup(task: ApplyTask, frame: pl.DataFrame, hot_keys: pl.DataFrame) -> Iterator[Cogroup]:
    """Yield instructions with the current rows of their target keys, which are looked up in the dataset.

    Args:
        task: The task.
        frame: Sorted instructions. For each target key in it, the frame has all instructions of the task.
        hot_keys: The hot keys of the dataset. A hot key in the frame gets several cogroups. Its instructions are not
            taken from the frame, but read again from `task.parts`, which has all instructions of the task.
    """
    group = task.dataset.run_schema.group
    batch_keys = group.semi(hot_keys, frame) if hot_keys.height else hot_keys
    begin = 0
    for number in range(batch_keys.height):
        key = batch_keys[number]
        start, stop = (frame.select(group.before(key, inclusive=bound).sum()).item() for bound in (False, True))
        yield from _cogroup_in_chunks(task, frame[begin:start])
        yield from _cogroup_hot_key(task, key)
        begin = stop
    yield from _cogroup_in_chunks(task, frame[begin:])


def _cogroup_in_chunks(task: ApplyTask, frame: pl.DataFrame) -> Iterator[Cogroup]:
    """Yield the instructions of a frame with the current rows of their target keys, in chunks of keys.

    All rows of a target key are read together. So the caller leaves out hot keys; this is not checked.
    """
    dataset, run_schema = task.dataset, task.dataset.run_schema
    empty = run_schema.empty.drop(TOMBSTONE, strict=False)
    columns = run_schema.group.columns if is_root(run_schema) else run_schema.schema.names
    starts = np.flatnonzero(frame.select(run_schema.group.changes()).to_series().to_numpy())
    ends = np.append(starts[1:], frame.height)
    chunks = KeyChunks(frame[starts][list(run_schema.group.columns)], task.spool.settings.buffer_rows)
    key_count = 0
    for keys in chunks:
        previous = with_nulls(dataset.lookup(keys, task.key_range, columns), empty)
        chunks.record(keys.height, previous.height)
        yield Cogroup(frame[starts[key_count] : ends[key_count + keys.height - 1]], previous)
        key_count += keys.height


def _cogroup_hot_key(task: ApplyTask, key: pl.DataFrame) -> Iterator[Cogroup]:
    for instructions, previous in align_hot_key(task, key):
        yield Cogroup(instructions, previous, key)


def align_hot_key(task: ApplyTask, key: pl.DataFrame) -> Iterator[list[pl.DataFrame]]:
    """Yield the instructions and current rows of a hot key, as lists [instructions, current rows].

    Each list has two frames, with all instructions and rows of one or more source keys. The lists are in the order of
    these keys.
    """
    dataset, run_schema = task.dataset, task.dataset.run_schema
    alone = KeyRange(key, key, closed=True)
    instructions = merge_parts(dataset.storage, run_schema, task.parts, alone)
    return align_streams([Stream(instructions, run_schema.empty), dataset.scan(alone)], run_schema.unit)


def _has_several_sources(run_schema: RunSchema) -> bool:
    """Return whether several source keys may contribute rows to one target key."""
    return run_schema.unit != run_schema.group


def _row_limit(task: ApplyTask) -> int:
    """Return the number of rows above which a target key is a hot key.

    The result is `_NO_LIMIT` if all rows of a target key in the dataset come from one source key.
    """
    return task.spool.settings.buffer_rows if _has_several_sources(task.dataset.run_schema) else _NO_LIMIT


def is_root(run_schema: RunSchema) -> bool:
    """Return whether a schema is that of the content of a root.

    A root is a node that is updated from outside the dataflow. In its content, new rows of a key replace all previous
    rows of the key.
    """
    return run_schema.replaces and run_schema.order == run_schema.group
