"""Hot keys: target keys with more rows than are read at a time.

Their rows are processed a few source keys at a time.

A stage computes rows of target keys (the keys of its output) from source keys (the keys of its input). An instruction
is a row that replaces or deletes the rows that a source key contributes to a target key. A Preserve hook copies values
such as ids from previous rows to new rows of a target key. A run is a sorted file with rows of many target keys. The
update of a stage lists the target keys that changed.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from metastore_assets.produce.cogroup import ApplyTask, align_hot_key
from metastore_assets.produce.parts import merge_parts
from metastore_assets.produce.preserve import apply_preserve
from metastore_assets.produce.run_schema import TOMBSTONE
from metastore_assets.produce.runs import KeyRange
from metastore_assets.produce.sums import Step
from metastore_assets.produce.typed_rows import CHANGE, with_nulls
from metastore_assets.produce.updates import ADD, DELETE, UPDATE


class HotKey:
    """A hot key that is updated step by step.

    Each call of `step` applies the instructions of a few source keys.

    The first update row that `step` returns for the key says whether the key is added, updated or deleted. This depends
    on all rows of the key, so `__init__` determines it in a first pass.
    """

    def __init__(self, task: ApplyTask, key: pl.DataFrame) -> None:
        """Read the instructions and rows of a hot key, to determine whether it is added, updated or deleted.

        Args:
            task: The task that has the key.
            key: The key, as a frame with one row.
        """
        self._task = task
        self.key = key
        dataset = task.dataset
        alone = KeyRange(key, key, closed=True)
        instructions_of_key = merge_parts(dataset.storage, dataset.run_schema, task.parts, alone)
        self._touched = any(frame.height for frame in instructions_of_key)
        self._rows_reported = False
        self._example = _example(task, dataset.scan(alone).frames)
        self._existed = self._example.height > 0
        self._will_exist, self._suppressed = self._compute_outcome()

    @property
    def is_novel(self) -> bool:
        """Whether the key had no rows before, and has some now."""
        return self._will_exist and not self._existed

    def step(self, instructions: pl.DataFrame, previous: pl.DataFrame) -> Step:
        """Apply the instructions of the next few source keys to the hot key.

        The result covers only the rows of the hot key that come from these source keys.

        Args:
            instructions: All instructions of these source keys for the hot key.
            previous: The rows of the hot key that came from these source keys before.
        """
        task = self._task
        assert task.rows is not None
        run, content, self._example, novel = self._next(instructions, previous, self._example)
        columns = [CHANGE, *task.rows.schema.names]
        if not self._touched or self._suppressed:
            update = content[:0].with_columns(pl.lit(None, pl.String).alias(CHANGE))
        elif self._will_exist:
            first = (pl.int_range(pl.len()) == 0) & pl.lit(not self._existed and not self._rows_reported)
            update = content.with_columns(pl.when(first).then(pl.lit(ADD)).otherwise(pl.lit(UPDATE)).alias(CHANGE))
            self._rows_reported = self._rows_reported or content.height > 0
        else:
            # Only the first call reports the key as deleted.
            deleted_keys = self.key if self._existed and not self._rows_reported else self.key.clear()
            update = with_nulls(deleted_keys, content.clear()).with_columns(pl.lit(DELETE).alias(CHANGE))
            self._rows_reported = True
        return Step(previous, run, content, update.select(columns), novel)

    def _next(
        self, instructions: pl.DataFrame, previous: pl.DataFrame, example: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, int]:
        """Apply the instructions of the next few source keys.

        Args:
            instructions: All instructions of these source keys for the hot key.
            previous: The rows of the hot key that came from these source keys before.
            example: One row of the hot key, from which the Preserve hook copies values. If the key is new, it is the
                key's first new row, or an empty frame until there is one.

        Returns:
            (rows for a new run, rows of the hot key that now come from the source keys, example for the next call,
                number of new target keys). The last is 1 if the Preserve hook gets the first row of a new key, else 0.
        """
        task = self._task
        written_rows = instructions.filter(~pl.col(TOMBSTONE))
        novel = 0
        if task.preserve is not None and task.rows is not None and written_rows.height:
            written_rows, novel = apply_preserve(task, written_rows, example)
            example = example if example.height else written_rows[:1]
        return *apply_to_units(task, instructions, written_rows, previous), example, novel

    def _compute_outcome(self) -> tuple[bool, bool]:
        """Return (whether the key will have rows, whether its update is suppressed).

        It is suppressed if `task.suppress` is true and the key's rows have the same values in the same order as before.
        """
        same = _Comparison(self._task) if self._task.suppress else None
        will_be, example = False, self._example
        for instructions, previous in align_hot_key(self._task, self.key):
            _, content, example, _ = self._next(instructions, previous, example)
            will_be = will_be or content.height > 0
            if same is not None:
                same.add(previous, content)
            if will_be and (same is None or same.differ):
                break
        return will_be, same is not None and not same.differ and same.is_even


class _Comparison:
    """A comparison of the values of two sequences of rows, position by position.

    `add` appends rows to both sequences.
    """

    def __init__(self, task: ApplyTask) -> None:
        assert task.rows is not None
        self._names = task.rows.value.names
        self._rest = [task.dataset.run_schema.empty.select(self._names)] * 2
        self.differ = False

    @property
    def is_even(self) -> bool:
        """Whether the two compared sequences have the same number of rows so far."""
        return not any(frame.height for frame in self._rest)

    def add(self, *frames: pl.DataFrame) -> None:
        """Append rows to both sequences: the first frame to one, the second to the other.

        Rows at positions that both sequences now have are compared. `differ` becomes true if any differ.
        """
        one, other = (pl.concat([old, new.select(self._names)]) for old, new in zip(self._rest, frames, strict=True))
        count = min(one.height, other.height)
        pairs = one[:count].with_columns(other[:count][name].alias(f"_{name}") for name in self._names)
        differ = (pl.col(name).ne_missing(pl.col(f"_{name}")) for name in self._names)
        self.differ = self.differ or bool(pairs.select(pl.any_horizontal(differ).any()).item())
        self._rest = [one[count:], other[count:]]


def _example(task: ApplyTask, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return the first row of the frames, as a frame; an empty frame if there is no row."""
    empty = task.dataset.run_schema.empty
    return next((with_nulls(frame[:1], empty) for frame in frames if frame.height), empty)


def apply_to_units(
    task: ApplyTask, instructions: pl.DataFrame, written_rows: pl.DataFrame, previous: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Apply instructions to units, which are groups of rows that are replaced together.

    Args:
        task: The task, with the schema of the dataset.
        instructions: All instructions for the units.
        written_rows: The new rows, as the Preserve hook returned them.
        previous: The rows of the units so far.

    Returns:
        (rows to record in a new run, new content of the units).
    """
    run_schema = task.dataset.run_schema
    tombstones = instructions.filter(pl.col(TOMBSTONE))
    if task.rows is not None:
        # Deleting a unit that does not exist needs no tombstone.
        tombstones = run_schema.unit.semi(tombstones, previous)
    # Content: the previous rows of units without instructions, and the new rows.
    unchanged_rows = run_schema.unit.anti(previous, instructions)
    content = run_schema.order.sort(pl.concat([unchanged_rows, written_rows.drop(TOMBSTONE)]))
    run = run_schema.order.sort(pl.concat([written_rows, tombstones])) if tombstones.height else written_rows
    return run, content
