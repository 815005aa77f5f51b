"""Cogroups: the instructions for a range of target keys, joined piece by piece with the current rows of these keys.

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
from metastore_assets.produce.rows import Rows, with_nulls
from metastore_assets.produce.run_schema import TOMBSTONE, RunSchema
from metastore_assets.produce.runs import KeyRange
from metastore_assets.produce.stages import Preserve
from metastore_assets.produce.streams import Stream, align_streams, regroup_steps

_NO_LIMIT = 2**62


@dataclass(frozen=True)
class ApplyTask:
    """A task that applies instructions to one range of target keys."""

    stage: str
    rows: Rows | None
    """Types of the update's keys and values. None for a dataset of key-mappings (pairs of source and target key), which
    has no update."""
    dataset: Dataset
    parts: tuple[Part, ...]
    key_range: KeyRange
    spool: Spool
    bulk: bool
    """Whether to rewrite the whole range, rather than add one run with the changes."""
    suppress: bool = False
    """Whether target keys whose values did not change are left out of the update."""
    preserve: Preserve | None = None
    counter: int = 0
    """The last number that was assigned to a new key."""
    is_followed: bool = True
    """Whether other stages or readers need the update."""


@dataclass(frozen=True)
class Cogroup:
    """Instructions for some target keys, together with the current rows of these keys."""

    instructions: pl.DataFrame
    previous: pl.DataFrame
    """The current rows of the keys in `instructions`. In bulk, also the rows of other keys of the range."""
    hot_key: pl.DataFrame | None = None
    """The hot key, if this is only a part of its instructions and rows; otherwise None."""


def cogroup_instructions(task: ApplyTask) -> Iterator[Cogroup]:
    """Yield the instructions of a task together with the current rows of their target keys.

    If `task.bulk`, the cogroups contain all rows of the range. Otherwise they contain only the rows of target keys
    with instructions. In that case, fewer rows and columns are read of some datasets: no rows of key-mappings, and
    only the key columns of a root (value columns are null). A hot key is yielded in several cogroups.
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
    """Yield instructions together with the current rows of their target keys, which are looked up in the dataset.

    Args:
        task: The task.
        frame: Instructions, sorted. All instructions of a target key are in the same frame.
        hot_keys: The target keys with more rows than are read at a time. Their instructions are read again from the
            task, and yielded a few source keys at a time.
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
    """Yield the instructions of a frame together with the current rows, a limited number of rows at a time.

    The frame contains no hot key.
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
    """Yield the pairs of `align_hot_key` as cogroups that name the hot key."""
    for instructions, previous in align_hot_key(task, key):
        yield Cogroup(instructions, previous, key)


def align_hot_key(task: ApplyTask, key: pl.DataFrame) -> Iterator[list[pl.DataFrame]]:
    """Yield pairs [instructions, current rows] of one target key, each for the next few source keys."""
    dataset, run_schema = task.dataset, task.dataset.run_schema
    alone = KeyRange(key, key, closed=True)
    instructions = merge_parts(dataset.storage, run_schema, task.parts, alone)
    return align_streams([Stream(instructions, run_schema.empty), dataset.scan(alone)], run_schema.unit)


def _has_several_sources(run_schema: RunSchema) -> bool:
    """Return True if several source keys may contribute rows to one target key."""
    return run_schema.unit != run_schema.group


def _row_limit(task: ApplyTask) -> int:
    """Return the number of rows of one target key that are read at a time. A key with more rows is a hot key.

    There is no limit for datasets where each target key has rows of only one source key.
    """
    return task.spool.settings.buffer_rows if _has_several_sources(task.dataset.run_schema) else _NO_LIMIT


def is_root(run_schema: RunSchema) -> bool:
    """Return True for the schema of a root's content, where the new rows of a key replace all of its previous rows.

    For such content, only the existence of previous rows matters, not their values.
    """
    return run_schema.replaces and run_schema.order == run_schema.group
