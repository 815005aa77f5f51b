"""One step of one dataset: applying instructions to it, which results in its new state and an update.

A dataset has the content or the key-mappings of a node (a root or a stage of a dataflow). Instructions are rows that
replace or delete rows of the dataset, or amounts to add to its totals. An update lists the changed keys.

A dataset consists of sorted files, called runs. The newest runs are at level 0, and span all keys. Every older run
belongs to a shard, which is a key range with its runs. The credit of a dataset is the number of rows that merges of its
runs may write. A stage computes rows of target keys (the keys of its output) from rows of source keys (the keys of its
input). Its key-mappings are the pairs (source key, target key).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import polars as pl

from metastore_assets.produce.apply_instructions import Applied, apply, count_novel
from metastore_assets.produce.cogroup import ApplyTask
from metastore_assets.produce.compaction import Work, assemble_state, compact_dataset, write_pieces
from metastore_assets.produce.dataset import Dataset, DatasetState
from metastore_assets.produce.environment import Environment, Spool
from metastore_assets.produce.inputs import even_ranges
from metastore_assets.produce.parts import Part, Sink, part_rows, sample_part_keys, scan_part
from metastore_assets.produce.runs import EVERYTHING, KeyRange, Run, RunWriter, sample_run_keys
from metastore_assets.produce.stages import Preserve
from metastore_assets.produce.sums import add_amounts, sum_changes
from metastore_assets.produce.typed_rows import Rows
from metastore_assets.produce.updates import update_schema
from metastore_assets.tasks.runner import TaskRunner


@dataclass(frozen=True)
class DatasetResult:
    """The new state of a dataset, and the files of the update."""

    state: DatasetState
    update: tuple[Run, ...] = ()
    novel: int = 0
    """Number of new target keys that got a number."""


@dataclass(frozen=True)
class DatasetStep:
    """One step of one dataset.

    `run` applies instructions to the dataset, and returns its new state and the update.
    """

    env: Environment
    spool: Spool
    stage: str
    rows: Rows | None
    """Types of the update's keys and values; None for key-mappings, which have no update."""
    dataset: Dataset
    suppress: bool = False
    """Whether the update omits target keys whose values did not change."""
    preserve: Preserve | None = None
    counter: int = 0
    """The last number that was assigned to a new target key."""
    is_followed: bool = True
    """Whether other stages or readers need the update."""

    def run(self, parts: list[Part]) -> DatasetResult:
        """Apply instructions to the dataset, then run due merges (see `_compact_affordable`).

        A small dataset is rewritten as one run. A dataset is also rewritten if the instructions are many compared with
        its rows (`Settings.bulk_share`). Otherwise the changes become a new run beside the stored ones. Small results
        are also kept in `env` for later stages.
        """
        rows = part_rows(parts)
        if not rows:
            return DatasetResult(self.dataset.state)
        runner = self.env.runner_for(rows)
        settings, stored_rows = self.env.settings, self.dataset.state.rows
        single = rows + stored_rows <= settings.single_run_rows
        frames = [part for part in parts if isinstance(part, pl.DataFrame)]
        if single and self.dataset.run_schema.amounts and len(frames) == len(parts):
            return self._run_at_once(frames)
        # In bulk, all stored rows are rewritten. Otherwise the results become a new run, beside the stored ones.
        bulk = single or rows > settings.bulk_share * stored_rows
        ranges = [EVERYTHING] if single else self._ranges(parts, rows, bulk=bulk)
        tasks = self._tasks(parts, ranges, runner, bulk=bulk)
        results = runner.map(apply, tasks)
        # A single task has read all replaced rows, and kept them if they are few.
        if len(results) == 1 and results[0].previous is not None:
            self.env.replaced[self.stage] = results[0].previous
        update = self._write_update(results)
        new = self._rewritten_state(tasks, results) if bulk else self._extended_state(results)
        return DatasetResult(self._compact_affordable(new, runner), update, sum(result.novel for result in results))

    def _run_at_once(self, frames: Sequence[pl.DataFrame]) -> DatasetResult:
        """Apply instructions to a small sum dataset in memory, and write its new totals as one run.

        The totals are also kept in `env.contents`, for the stages that read the dataset.
        """
        run_schema = self.dataset.run_schema
        names = run_schema.schema.names
        changes = frames[0][names]
        if len(frames) > 1:
            changes = sum_changes(self.stage, pl.concat([frame[:, names] for frame in frames]), run_schema)
        previous = pl.concat([run_schema.empty[:, names], *self.dataset.scan().frames])
        step = add_amounts(self.stage, run_schema, changes, previous, is_followed=self.is_followed)
        if not changes.height:
            return DatasetResult(self.dataset.state)
        self.env.contents[self.stage] = step.content
        content = [step.content] if step.content.height else []
        pieces = write_pieces(self.spool, run_schema, step.content.height, content)
        update = self._write_update([Applied([step.update], [], pieces, 0, None)])
        return DatasetResult(assemble_state(self.dataset.state, [(pieces, EVERYTHING)]), update)

    def _tasks(self, parts: list[Part], ranges: list[KeyRange], runner: TaskRunner, *, bulk: bool) -> list[ApplyTask]:
        """Return one task per key range.

        Each task applies the instructions of its range in `parts`.

        With `bulk`, tasks rewrite all rows of their ranges. Otherwise, they add a run with the changes.

        A Preserve hook (it copies values from previous rows to new rows) gets a number for each new target key. The
        numbers are consecutive over all tasks. So `runner` first counts the new keys of each task except the last.
        """
        tasks = [
            ApplyTask(
                stage=self.stage,
                rows=self.rows,
                dataset=self.dataset,
                parts=tuple(parts),
                key_range=key_range,
                spool=self.spool,
                bulk=bulk,
                suppress=self.suppress,
                preserve=self.preserve,
                counter=self.counter,
                is_followed=self.is_followed,
            )
            for key_range in ranges
        ]
        if self.preserve is None or len(tasks) == 1:
            return tasks
        counters = accumulate(runner.map(count_novel, tasks[:-1]), initial=self.counter)
        return [replace(task, counter=counter) for task, counter in zip(tasks, counters, strict=True)]

    def _rewritten_state(self, tasks: Sequence[ApplyTask], results: Sequence[Applied]) -> DatasetState:
        pieces = [(result.pieces, task.key_range) for task, result in zip(tasks, results, strict=True)]
        return assemble_state(self.dataset.state, pieces)

    def _extended_state(self, results: Sequence[Applied]) -> DatasetState:
        """Write the results of all tasks as one new run of level 0, unless they have no rows.

        Return the new state.

        The new state has this run, and more credit. The credit is the number of rows that later merges may write. It
        grows with the number of rows of the run.
        """
        state = self.dataset.state
        level0 = self._write_level0([result.content for result in results])
        credit = state.credit + self.env.settings.inline_budget * sum(run.rows for run in level0)
        return replace(state, level0=(*state.level0, *level0), credit=credit)

    def _compact_affordable(self, new: DatasetState, runner: TaskRunner) -> DatasetState:
        """Run the due merges that `new.credit` allows (a number of rows to write).

        Return the state after them.

        If a shard and level 0 have more than `max_runs` runs together, runs are merged in any case.
        """
        work = Work(runner, self.spool)
        compacted_state = compact_dataset(replace(self.dataset, state=new), work, is_unlimited=False)
        written_paths = {run.path for run in new.runs()} - {run.path for run in self.dataset.state.runs()}
        self.env.scratch.extend(written_paths - {run.path for run in compacted_state.runs()})
        return compacted_state

    def _ranges(self, parts: Sequence[Part], rows: int, *, bulk: bool) -> list[KeyRange]:
        """Return the key range of each task.

        If the step is small enough for memory, one task has all keys. Otherwise there is a task for each shard, or with
        `bulk`, tasks with about equally many rows.

        Args:
            parts: The instructions.
            rows: The number of instructions.
            bulk: Whether to divide the keys evenly, regardless of shards.
        """
        state, run_schema, settings = self.dataset.state, self.dataset.run_schema, self.env.settings
        if self.spool.in_memory:
            return [EVERYTHING]
        if not bulk:
            return state.ranges()
        count = max(-(-(rows + state.rows) // settings.target_rows), self.env.runner.parallelism)
        stored_keys = [sample_run_keys(self.env.storage, run) for run in state.runs()]
        sample = pl.concat([sample_part_keys(self.env.storage, run_schema, parts), *stored_keys])
        return even_ranges(sample, run_schema.group, count)

    def _write_update(self, results: Sequence[Applied]) -> tuple[Run, ...]:
        """Write the changes that all tasks report, which are the update of the dataset.

        Return its files; none for key-mappings, or if no stage and no reader needs the update. A small update is also
        kept in `env.updates`, for the stages that read the dataset.
        """
        if self.rows is None or not self.is_followed:
            return ()
        parts = flat([result.update for result in results])
        if all(isinstance(part, Run) for part in parts):
            return tuple(part for part in parts if isinstance(part, Run))
        update = pl.concat([part for part in parts if isinstance(part, pl.DataFrame)])
        self.env.updates[self.stage] = update
        run_schema = update_schema(self.rows, sums=bool(self.dataset.run_schema.amounts))
        with Sink(replace(self.spool, in_memory=False), run_schema) as sink:
            sink.add(update)
        return tuple(part for part in sink.parts if isinstance(part, Run))

    def _write_level0(self, contents: Sequence[Sequence[Part]]) -> list[Run]:
        """Write the rows of all tasks as one run of level 0.

        Return a list of this run; empty if no task has rows.

        Each row group of the run has rows of one shard only.

        Args:
            contents: The sorted rows that each task produced, as frames or temporary files. The tasks are in key order.
                The files are added to `env.scratch`, the list of files to delete after the step.
        """
        run_schema, storage = self.dataset.run_schema, self.env.storage
        if not any(contents):
            return []
        with RunWriter(storage, self.env.folder, run_schema, self.env.settings.row_group_rows) as writer:
            shard = 0
            for part in flat(contents):
                if isinstance(part, Run):
                    self.env.scratch.append(part.path)
                for frame in scan_part(storage, run_schema, part).frames:
                    for number, shard_rows in enumerate(self.dataset.state.split(frame, run_schema.group)):
                        if shard_rows.height:
                            if number != shard:
                                writer.end_group()
                            writer.write(shard_rows)
                            shard = number
        return [writer.run(0)]


def flat(parts: Sequence[Sequence[Part]]) -> list[Part]:
    return [part for task_parts in parts for part in task_parts]
