"""Applying sorted instructions to one range of a dataset: what it holds then, and the typed update that says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from metastore_assets.produce.compaction import Pieces, write_pieces
from metastore_assets.produce.dataset import Dataset
from metastore_assets.produce.inputs import KeyChunks
from metastore_assets.produce.parts import Part, Sink, Spool, joined, part_rows
from metastore_assets.produce.preserving import novel_keys, preserved
from metastore_assets.produce.rows import CHANGE, Rows, with_nulls
from metastore_assets.produce.run_schema import GONE, RunSchema
from metastore_assets.produce.runs import KeyRange
from metastore_assets.produce.stages import Preserve
from metastore_assets.produce.streams import Stream, aligned
from metastore_assets.produce.summing import Step, add_amounts
from metastore_assets.produce.updates import ADD, DELETE, UPDATE, update_schema


@dataclass(frozen=True)
class ApplyTask:
    """One range of target keys."""

    stage: str
    rows: Rows | None
    """Keys and values of the update; None where none is asked for, as of key-mappings."""
    dataset: Dataset
    parts: tuple[Part, ...]
    key_range: KeyRange
    spool: Spool
    bulk: bool
    """Whether the range is written anew as a whole, or what changed as one run beside the others."""
    suppress: bool = False
    preserve: Preserve | None = None
    counter: int = 0
    """The last number that was given to a novel key."""


@dataclass(frozen=True)
class Applied:
    """What came of one range."""

    update: list[Part]
    content: list[Part]
    """What goes into the new run, unless all was written anew."""
    pieces: Pieces
    """The runs of the range, where all was written anew."""
    novel: int
    """How many target keys are new that have been given a number."""
    former: pl.DataFrame | None
    """Rows that the target keys of the update had, where that is little, and had to be read."""


def apply(task: ApplyTask) -> Applied:
    """Carry out the instructions of a range."""
    run_schema, spool = task.dataset.run_schema, task.spool
    updates = run_schema if task.rows is None else update_schema(task.rows, sums=bool(run_schema.amounts))
    tally = _Tally(spool.settings.buffer_rows if _reads_former(task) else None)
    pieces: Pieces = []
    with Sink(spool, updates) as update, Sink(spool, run_schema) as run:
        steps = _told(task, update, tally)
        if task.bulk:
            rows = task.dataset.state.rows + part_rows(task.parts)
            contents = (step.content for step in steps if step.content.height)
            pieces = write_pieces(spool.storage, spool.folder, run_schema, spool.settings, rows, contents)
        else:
            for step in steps:
                run.add(step.run)
    return Applied(update.parts, run.parts, pieces, tally.novel, tally.former())


def count_novel(task: ApplyTask) -> int:
    """How many numbers a range will give to novel keys."""
    assert task.rows is not None
    met = _met(task)
    return sum(novel_keys(task.rows, frame.filter(~pl.col(GONE)), former).height for frame, former in met)


class _Tally:
    """What there is to say of the steps of a range: novel keys, and the rows that there were while they are few."""

    def __init__(self, most: int | None) -> None:
        """`most` rows are kept; with None, none."""
        self.novel = 0
        self._most = most
        self._former: list[pl.DataFrame] = []

    def add(self, step: Step) -> None:
        """Count one more step."""
        self.novel += step.novel
        if self._most is not None:
            self._former.append(step.former)
            if sum(frame.height for frame in self._former) > self._most:
                self._most, self._former = None, []

    def former(self) -> pl.DataFrame | None:
        """The rows that there were; None where they are not kept."""
        return pl.concat(self._former) if self._former else None


def _reads_former(task: ApplyTask) -> bool:
    """Whether all rows of the target keys of an update are read, and not those of others, to be handed on in memory."""
    return task.rows is not None and task.spool.in_memory and not task.bulk and not _is_root(task.dataset.run_schema)


def _told(task: ApplyTask, update: Sink, tally: _Tally) -> Iterator[Step]:
    """The steps, once their part of the update is written and they are counted."""
    for step in _steps(task):
        tally.add(step)
        if task.rows is not None:
            update.add(step.update)
        yield step


def _steps(task: ApplyTask) -> Iterator[Step]:
    """What is done with some target keys after the other."""
    numbered = task.counter
    for instructions, former in _met(task):
        if task.dataset.run_schema.amounts:
            step = add_amounts(task.stage, task.dataset.run_schema, instructions, former)
        else:
            step = _replaced(replace(task, counter=numbered), instructions, former)
        numbered += step.novel
        yield step


def _met(task: ApplyTask) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Instructions with the rows that their target keys have so far; in bulk all rows of the range come along."""
    dataset, run_schema = task.dataset, task.dataset.run_schema
    frames = joined(dataset.storage, run_schema, task.parts, task.key_range)
    if task.bulk:
        for pair in aligned([Stream(frames, run_schema.empty), dataset.scan(task.key_range)], run_schema.group):
            yield pair[0], pair[1]
        return
    empty = run_schema.empty.drop(GONE, strict=False)
    columns = run_schema.group.columns if _is_root(run_schema) else run_schema.schema.names
    for frame in frames:
        if task.rows is None:
            # Key-mappings have no update, and are only told to go where they are.
            yield frame, empty
            continue
        # A few keys may have many rows.
        starts = np.flatnonzero(frame.select(run_schema.group.changes()).to_series().to_numpy())
        ends = np.append(starts[1:], frame.height)
        chunks = KeyChunks(frame[starts][list(run_schema.group.columns)], task.spool.settings.buffer_rows)
        done = 0
        for keys in chunks:
            former = with_nulls(dataset.lookup(keys, task.key_range, columns), empty)
            chunks.told(keys.height, former.height)
            yield frame[starts[done] : ends[done + keys.height - 1]], former
            done += keys.height


def _is_root(run_schema: RunSchema) -> bool:
    """Whether all rows of a key are replaced together, so that it only matters which keys there were."""
    return run_schema.replaces and run_schema.order == run_schema.group


def _replaced(task: ApplyTask, instructions: pl.DataFrame, former: pl.DataFrame) -> Step:
    run_schema = task.dataset.run_schema
    gone = instructions.filter(pl.col(GONE))
    if task.rows is not None:
        # What is gone and was never there needs no instruction.
        gone = run_schema.unit.semi(gone, former)
    written = instructions.filter(~pl.col(GONE))
    novel = 0
    if task.preserve is not None and task.rows is not None:
        written, novel = preserved(task.preserve, task.stage, task.rows, written, former, task.counter)
    kept = run_schema.unit.anti(former, instructions)
    content = run_schema.order.sort(pl.concat([kept, written.drop(GONE)]))
    run = run_schema.order.sort(pl.concat([written, gone])) if gone.height else written
    update = (
        _update(task.rows, run_schema, instructions, former, content, task.suppress) if task.rows else former.clear()
    )
    return Step(former, run, content, update, novel)


def _update(
    rows: Rows,
    run_schema: RunSchema,
    instructions: pl.DataFrame,
    former: pl.DataFrame,
    content: pl.DataFrame,
    suppress: bool,
) -> pl.DataFrame:
    """Delete, Add or Update, decided when all rows of a target key are known."""
    group = run_schema.group
    touched = group.distinct(instructions)
    before, now = group.semi(former, touched), group.semi(content, touched)
    if suppress:
        unchanged = _unchanged(rows, before, now)
        before, now = group.anti(before, unchanged), group.anti(now, unchanged)
    first = group.changes() & ~pl.col("_was")
    was = before.select(group.columns).unique().with_columns(pl.lit(True).alias("_was"))
    upserts = group.beside(now, was).with_columns(pl.col("_was").fill_null(False))
    upserts = upserts.with_columns(pl.when(first).then(pl.lit(ADD)).otherwise(pl.lit(UPDATE)).alias(CHANGE))
    deletes = group.distinct(group.anti(before, now)).with_columns(
        pl.lit(DELETE).alias(CHANGE), *(pl.lit(None, content.schema[name]).alias(name) for name in rows.value.names)
    )
    columns = [CHANGE, *rows.schema.names]
    return group.sort(pl.concat([deletes.select(columns), upserts.select(columns)]))


def _unchanged(rows: Rows, before: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """The target keys whose groups are the same lists of values."""
    group, names = rows.order, rows.schema.names
    sizes = (
        frame.group_by(group.columns, maintain_order=True).len(name)
        for frame, name in ((before, "_before"), (now, "_now"))
    )
    equal = group.beside(*sizes).filter(pl.col("_before") == pl.col("_now"))
    mine, other = (group.sort(group.semi(frame.select(names), equal)) for frame in (before, now))
    pairs = mine.with_columns(other[name].alias(f"_{name}") for name in rows.value.names)
    differ = pairs.filter(pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"_{name}")) for name in rows.value.names))
    return group.anti(equal.select(group.columns), differ)
