"""Application of sorted instructions to one key range of a stage's dataset.

The results are new content and an update. A stage computes rows for target keys (the keys of its output) from rows of
source keys (the keys of its input). An instruction is a row that replaces older rows of a target key, deletes them (a
tombstone), or adds to its total. An update lists the changed target keys for the next stages. A task applies
instructions to one key range: it rewrites the range (`bulk`), or writes the changes to a new sorted file (a run). A
step is the effect of a task on a few target keys. A Preserve hook copies values such as ids from previous rows to new
rows of a key. A root is a node of the dataflow that receives rows from outside. Key-mappings are the stored pairs
(source key, target key) of a stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl

from metastore_assets.produce.cogroup import ApplyTask, cogroup_instructions, is_root
from metastore_assets.produce.compaction import Pieces, write_pieces
from metastore_assets.produce.hot_keys import HotKey, apply_to_units
from metastore_assets.produce.parts import Part, Sink, part_rows
from metastore_assets.produce.preserve import apply_preserve, novel_keys
from metastore_assets.produce.run_schema import TOMBSTONE
from metastore_assets.produce.sums import Step, add_amounts, sum_changes
from metastore_assets.produce.typed_rows import CHANGE, Rows
from metastore_assets.produce.updates import ADD, DELETE, UPDATE, update_schema


@dataclass(frozen=True)
class Applied:
    """The rows and files that a task has written for its key range."""

    update: list[Part]
    content: list[Part]
    """Rows of the new run; empty if the range was rewritten."""
    pieces: Pieces
    """The new runs of a rewritten range, each with its greatest key; otherwise empty."""
    novel: int
    """Number of new target keys that got a number for the Preserve hook; 0 without a hook."""
    previous: pl.DataFrame | None
    """All previous rows of the updated target keys; None if they were not read, or are too many."""


def apply(task: ApplyTask) -> Applied:
    """Apply the instructions of a task to its key range: write new content and an update.

    Return what was written.
    """
    run_schema, spool = task.dataset.run_schema, task.spool
    updates = run_schema if task.rows is None else update_schema(task.rows, sums=bool(run_schema.amounts))
    tally = _StepTotals(spool.settings.buffer_rows if _reads_previous(task) else None)
    pieces: Pieces = []
    with Sink(spool, updates) as update, Sink(spool, run_schema) as run:
        steps = _report_steps(task, update, tally)
        if task.bulk:
            rows = task.dataset.state.rows + part_rows(task.parts)
            contents = (step.content for step in steps if step.content.height)
            pieces = write_pieces(spool, run_schema, rows, contents)
        else:
            for step in steps:
                run.add(step.run)
    return Applied(update.parts, run.parts, pieces, tally.novel, tally.previous())


def count_novel(task: ApplyTask) -> int:
    """Return how many target keys of a task are new: they had no rows before, and get some.

    The Preserve hook gets a number for each new key. The first number of a task depends on how many new keys the
    previous tasks have, so the new keys are counted before the tasks run.
    """
    assert task.rows is not None
    novel = 0
    hot_key: pl.DataFrame | None = None
    for cogroup in cogroup_instructions(task):
        if cogroup.hot_key is None:
            novel += novel_keys(task.rows, cogroup.instructions.filter(~pl.col(TOMBSTONE)), cogroup.previous).height
        elif cogroup.hot_key is not hot_key:
            hot_key = cogroup.hot_key
            novel += HotKey(task, hot_key).is_novel
    return novel


class _StepTotals:
    """Totals over the steps of a task: new keys are counted, and replaced rows are collected."""

    def __init__(self, limit: int | None) -> None:
        """Start with no steps.

        Args:
            limit: Maximum number of replaced rows to collect; None to collect none. If the steps replace more rows,
                none are kept. The limit does not affect the count of new target keys (`novel`).
        """
        self.novel = 0
        self._limit = limit
        self._previous: list[pl.DataFrame] = []

    def add(self, step: Step) -> None:
        self.novel += step.novel
        if self._limit is not None:
            self._previous.append(step.previous)
            if sum(frame.height for frame in self._previous) > self._limit:
                self._limit, self._previous = None, []

    def previous(self) -> pl.DataFrame | None:
        """Return the replaced rows of all steps as one frame.

        Returns None if `limit` is None, if there are more than `limit` rows, or if there was no step.
        """
        return pl.concat(self._previous) if self._previous else None


def _reads_previous(task: ApplyTask) -> bool:
    """Return whether to collect the previous rows that a task reads.

    The stages that read the update of the task reuse these rows. The rows are collected only if there are few
    instructions (`in_memory`). In three cases, they are never collected:

    - The dataset has key-mappings (`rows` is None). Such a dataset has no update.
    - The dataset is the content of a root. The task then reads only the key columns of previous rows.
    - The task rewrites its range (`bulk`). It then also reads rows of keys without instructions.
    """
    return task.rows is not None and task.spool.in_memory and not task.bulk and not is_root(task.dataset.run_schema)


def _report_steps(task: ApplyTask, update: Sink, tally: _StepTotals) -> Iterator[Step]:
    """Yield the steps of a task.

    Before a step is yielded, it is added to `tally`, and its changed keys are added to `update`.

    Nothing is added to `update` if the dataset has no update (key-mappings), or if no stage and no reader needs the
    update (`task.is_followed` is false).
    """
    for step in _steps(task):
        tally.add(step)
        if task.rows is not None and task.is_followed:
            update.add(step.update)
        yield step


def _steps(task: ApplyTask) -> Iterator[Step]:
    """Apply the instructions of a task, for a few target keys at a time.

    Yield the effect on these keys as a step.

    A hot key, which has more rows than are read at a time, has several steps.
    """
    counter = task.counter
    hot_key: HotKey | None = None
    for cogroup in cogroup_instructions(task):
        numbered_task = replace(task, counter=counter)
        if task.dataset.run_schema.amounts:
            run_schema = task.dataset.run_schema
            changes = sum_changes(task.stage, cogroup.instructions, run_schema)
            step = add_amounts(task.stage, run_schema, changes, cogroup.previous, is_followed=task.is_followed)
        elif cogroup.hot_key is None:
            step = _replace_rows(numbered_task, cogroup.instructions, cogroup.previous)
        else:
            if hot_key is None or hot_key.key is not cogroup.hot_key:
                hot_key = HotKey(numbered_task, cogroup.hot_key)
            step = hot_key.step(cogroup.instructions, cogroup.previous)
        counter += step.novel
        yield step


def _replace_rows(task: ApplyTask, instructions: pl.DataFrame, previous: pl.DataFrame) -> Step:
    """Apply instructions that replace or delete rows.

    Return the rows before and after, and the rows to write.

    If the task has a Preserve hook, the new rows are those that the hook returns.
    """
    written_rows = instructions.filter(~pl.col(TOMBSTONE))
    novel = 0
    if task.preserve is not None and task.rows is not None:
        written_rows, novel = apply_preserve(task, written_rows, previous)
    run, content = apply_to_units(task, instructions, written_rows, previous)
    update = _update(task, instructions, previous, content) if task.rows else previous.clear()
    return Step(previous, run, content, update, novel)


def _update(task: ApplyTask, instructions: pl.DataFrame, previous: pl.DataFrame, content: pl.DataFrame) -> pl.DataFrame:
    """Return the update rows (`delete`, `add` or `update`) of the target keys in some instructions.

    Args:
        task: The task, which may suppress keys whose values did not change.
        instructions: The instructions.
        previous: All rows of these keys before the instructions.
        content: All rows of these keys after the instructions.
    """
    assert task.rows is not None
    rows, group = task.rows, task.dataset.run_schema.group
    touched_keys = group.distinct(instructions)
    before, now = group.semi(previous, touched_keys), group.semi(content, touched_keys)
    if task.suppress:
        unchanged_keys = _unchanged(rows, before, now)
        before, now = group.anti(before, unchanged_keys), group.anti(now, unchanged_keys)
    # The first row of a key that did not exist is an `add`; all other rows of existing and new keys are an `update`.
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
    """Return the target keys with the same values in the same order in both frames."""
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
