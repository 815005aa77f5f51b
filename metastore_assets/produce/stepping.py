"""One node of the graph from one version to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import polars as pl

from metastore_assets.produce.applying import Applied, ApplyTask, apply, count_novel
from metastore_assets.produce.compaction import Work, assembled, compacted
from metastore_assets.produce.dataset import Dataset, State
from metastore_assets.produce.executor import Executor, LocalExecutor
from metastore_assets.produce.graph import Typed, ports
from metastore_assets.produce.inputs import Feeder, distinct_feeders, even_ranges, task_ranges
from metastore_assets.produce.parts import Part, Sink, Spool, part_bounds, part_rows, scan_part
from metastore_assets.produce.producing import Instructions, ProduceTask, produce
from metastore_assets.produce.rows import Rows
from metastore_assets.produce.runs import EVERYTHING, KeyRange, Run, RunWriter, run_bounds
from metastore_assets.produce.settings import Settings
from metastore_assets.produce.stages import Delta, DeltaRoot, Preserve, Stage, SumStage
from metastore_assets.produce.state import StageState
from metastore_assets.produce.summing import DeltaTask, SumTask, changed_amounts, delta_amounts
from metastore_assets.produce.updates import update_schema
from metastore_assets.store.objects import ObjectStore


def empty_state(typed: Typed) -> StageState:
    """What a node has before its first version."""
    content = State(typed.content.empty_keys)
    mappings = State(typed.mappings.empty_keys) if typed.mappings else None
    return StageState(typed.fingerprint, typed.form, content, mappings, ())


@dataclass(frozen=True)
class Environment:
    """What every step needs."""

    storage: ObjectStore
    folder: str
    """Of the files that are written."""
    executor: Executor
    settings: Settings
    check: bool
    scratch: list[str]
    """Files that tasks wrote for each other: no version names them, unless one of them became a run."""
    updates: dict[str, Part] = field(default_factory=dict)
    """By node: its update, where that is in memory."""
    replaced: dict[str, pl.DataFrame] = field(default_factory=dict)
    """By node: all rows that the keys of its update had, where they are few and were read."""
    deltas: Mapping[str, tuple[Delta, ...]] = field(default_factory=dict)
    """By root of deltas: what came and what went."""
    written: list[str] = field(default_factory=list)
    """Files of content that was given whole."""

    def again(self) -> Environment:
        """For another attempt, which knows nothing of what this one read; the scratch is common."""
        return replace(self, updates={}, replaced={})

    def spool(self, rows: int) -> Spool:
        """Where the instructions that come of so many rows go."""
        return Spool(self.storage, self.folder, self.settings, in_memory=rows <= self.settings.small_rows)

    def executor_for(self, rows: int) -> Executor:
        """A job for few rows costs more than the rows."""
        return LocalExecutor() if rows <= self.settings.small_rows else self.executor


def step_root(env: Environment, root: Typed, before: StageState, incoming: Part) -> StageState:
    """A root with an update, which has been checked and brought into the form of instructions."""
    return _apply(env, root, before, Instructions([incoming], []), env.spool(part_rows([incoming])))


def step_stage(
    env: Environment,
    stage: Typed,
    graph: Mapping[str, Typed],
    before: StageState,
    former: Mapping[str, StageState],
    now: Mapping[str, StageState],
    *,
    whole: bool,
) -> StageState:
    """A stage whose feeders have been brought to the next version.

    `former` and `now` are the states of all nodes at the last version and, those behind excepted, at the next one.
    With `whole`, the stage is built on all that its feeders hold now, and `before` is to be empty.
    """
    deltas = [delta for name in stage.feeders for delta in env.deltas.get(name, ())]
    rows = sum(delta.row_count for delta in deltas)
    rows += sum(now[name].content.rows if whole else part_rows(now[name].update) for name in stage.feeders)
    if not rows:
        return replace(before, update=(), reset=whole)
    spool = env.spool(rows)
    content = now if whole else former
    feeders = {
        name: _feeder(env, graph[name], content[name].content, () if whole else now[name].update, spool, whole=whole)
        for name in stage.feeders
        if not isinstance(graph[name].node, DeltaRoot)
    }
    fed = tuple(tuple(feeders[name] for name in port if name in feeders) for port in ports(stage.node))
    instructions = _instructions(env, stage, before, fed, deltas, spool)
    return replace(_apply(env, stage, before, instructions, spool), reset=whole)


def _feeder(
    env: Environment, feeder: Typed, content: State, files: tuple[Part, ...], spool: Spool, *, whole: bool
) -> Feeder:
    """A feeder with the files of its update, or in their place what of it is in memory."""
    update, replaced = files, None
    if spool.in_memory and files:
        # Only then: what is sent to other processes is to be small, and they can read the files.
        update = (env.updates[feeder.name],) if feeder.name in env.updates else files
        replaced = env.replaced.get(feeder.name)
    dataset = Dataset(env.storage, feeder.content, content)
    return Feeder(feeder.name, feeder.rows, dataset, update, isinstance(feeder.node, SumStage), replaced, whole)


def _instructions(
    env: Environment,
    stage: Typed,
    before: StageState,
    fed: tuple[tuple[Feeder, ...], ...],
    deltas: Sequence[Delta],
    spool: Spool,
) -> Instructions:
    """What is to be done with the content and the key-mappings of a stage, given the feeders of its ports."""
    feeders = distinct_feeders(fed)
    if isinstance(stage.node, SumStage):
        return Instructions([*_delta_amounts(env, stage, deltas, spool), *_amounts(env, stage, feeders, spool)], [])
    ranges = [EVERYTHING] if spool.in_memory else task_ranges(feeders, env.settings)
    executor = env.executor_for(sum(feeder.update_rows for feeder in feeders))
    assert stage.mappings is not None
    assert before.mappings is not None
    mappings = Dataset(env.storage, stage.mappings, before.mappings)
    made = executor.map(produce, [ProduceTask(stage, fed, mappings, own, spool, env.check) for own in ranges])
    return Instructions(_flat([one.content for one in made]), _flat([one.mappings for one in made]))


def _amounts(env: Environment, stage: Typed, feeders: Sequence[Feeder], spool: Spool) -> list[Part]:
    """What the updates of feeders add to the totals of a stage."""
    rows = sum(feeder.update_rows for feeder in feeders)
    if not rows:
        return []
    ranges = [EVERYTHING] if spool.in_memory else task_ranges(feeders, env.settings)
    tasks = [SumTask(stage, tuple(feeders), own, spool) for own in ranges]
    return _flat(env.executor_for(rows).map(changed_amounts, tasks))


def _delta_amounts(env: Environment, stage: Typed, deltas: Sequence[Delta], spool: Spool) -> list[Part]:
    """What rows that came and went add to the totals of a stage."""
    rows = sum(delta.row_count for delta in deltas)
    tasks: list[DeltaTask] = []
    taken: list[Delta] = []
    for delta in deltas:
        taken.append(delta)
        if not spool.in_memory and sum(one.row_count for one in taken) >= env.settings.task_rows:
            tasks.append(DeltaTask(stage, tuple(taken), spool))
            taken = []
    tasks += [DeltaTask(stage, tuple(taken), spool)] if taken else []
    return _flat(env.executor_for(rows).map(delta_amounts, tasks)) if tasks else []


def _apply(env: Environment, node: Typed, before: StageState, made: Instructions, spool: Spool) -> StageState:
    """Content and key-mappings with some instructions carried out."""
    env.scratch.extend(part.path for part in (*made.content, *made.mappings) if isinstance(part, Run))
    own = node.node
    suppress, preserve = (own.suppress_unchanged, own.preserve) if isinstance(own, Stage) else (False, None)
    dataset = Dataset(env.storage, node.content, before.content)
    job = _Job(env, spool, node.name, node.rows, dataset, suppress, preserve, before.counter)
    content = job.run(made.content)
    mappings = before.mappings
    if node.mappings is not None and mappings is not None:
        pairs = Dataset(env.storage, node.mappings, mappings)
        mappings = _Job(env, spool, node.name, None, pairs).run(made.mappings).state
    counter = before.counter + content.novel
    return replace(before, content=content.state, mappings=mappings, update=content.update, counter=counter)


@dataclass(frozen=True)
class _Result:
    """What came of a dataset."""

    state: State
    update: tuple[Run, ...] = ()
    novel: int = 0
    """How many numbers were given to novel keys."""


@dataclass(frozen=True)
class _Job:
    """Instructions to be applied to one dataset."""

    env: Environment
    spool: Spool
    stage: str
    rows: Rows | None
    dataset: Dataset
    suppress: bool = False
    preserve: Preserve | None = None
    counter: int = 0

    def run(self, parts: list[Part]) -> _Result:
        """Carry out the instructions, and the merges that are then due."""
        rows = part_rows(parts)
        if not rows:
            return _Result(self.dataset.state)
        executor = self.env.executor_for(rows)
        settings, stored = self.env.settings, self.dataset.state.rows
        single = rows + stored <= settings.single_run_rows
        bulk = single or rows > settings.bulk_share * stored
        ranges = [EVERYTHING] if single else self._ranges(parts, rows, bulk=bulk)
        tasks = self._tasks(parts, ranges, executor, bulk=bulk)
        done = executor.map(apply, tasks)
        if len(done) == 1 and done[0].former is not None:
            self.env.replaced[self.stage] = done[0].former
        update = self._written(done)
        new = self._rewritten(tasks, done) if bulk else self._extended(done)
        return _Result(self._tidied(new, executor), update, sum(one.novel for one in done))

    def _tasks(self, parts: list[Part], ranges: list[KeyRange], executor: Executor, *, bulk: bool) -> list[ApplyTask]:
        """One per range, each of which knows the numbers that those before it give."""
        tasks = [
            ApplyTask(
                stage=self.stage,
                rows=self.rows,
                dataset=self.dataset,
                parts=tuple(parts),
                key_range=own,
                spool=self.spool,
                bulk=bulk,
                suppress=self.suppress,
                preserve=self.preserve,
                counter=self.counter,
            )
            for own in ranges
        ]
        if self.preserve is None or len(tasks) == 1:
            return tasks
        counters = accumulate(executor.map(count_novel, tasks[:-1]), initial=self.counter)
        return [replace(task, counter=counter) for task, counter in zip(tasks, counters, strict=True)]

    def _rewritten(self, tasks: Sequence[ApplyTask], done: Sequence[Applied]) -> State:
        """The state where all was written anew."""
        pieces = [(one.pieces, task.key_range) for task, one in zip(tasks, done, strict=True)]
        return assembled(self.dataset.state, pieces)

    def _extended(self, done: Sequence[Applied]) -> State:
        """The state with one more run."""
        state = self.dataset.state
        level0 = self._level0([one.content for one in done])
        credit = state.credit + self.env.settings.inline_budget * sum(run.rows for run in level0)
        return replace(state, level0=(*state.level0, *level0), credit=credit)

    def _tidied(self, new: State, executor: Executor) -> State:
        """The state after the merges that it can afford; files that were written in vain are scratch."""
        work = Work(executor, self.env.folder, self.env.settings)
        tidy = compacted(replace(self.dataset, state=new), work, unlimited=False)
        written = {run.path for run in new.runs()} - {run.path for run in self.dataset.state.runs()}
        self.env.scratch.extend(written - {run.path for run in tidy.runs()})
        return tidy

    def _ranges(self, parts: Sequence[Part], rows: int, *, bulk: bool) -> list[KeyRange]:
        state, run_schema, settings = self.dataset.state, self.dataset.run_schema, self.env.settings
        if self.spool.in_memory:
            return [EVERYTHING]
        if not bulk:
            return state.ranges()
        count = max(-(-(rows + state.rows) // settings.target_rows), self.env.executor.slots())
        stored = [run_bounds(self.env.storage, run) for run in state.runs()]
        sample = pl.concat([part_bounds(self.env.storage, run_schema, parts), *stored])
        return even_ranges(sample, run_schema.group, count)

    def _written(self, done: Sequence[Applied]) -> tuple[Run, ...]:
        """The files of the update, if any: as tasks wrote them, or one for all that is in memory."""
        if self.rows is None:
            return ()
        parts = _flat([one.update for one in done])
        if all(isinstance(part, Run) for part in parts):
            return tuple(part for part in parts if isinstance(part, Run))
        update = pl.concat([part for part in parts if isinstance(part, pl.DataFrame)])
        self.env.updates[self.stage] = update
        run_schema = update_schema(self.rows, sums=bool(self.dataset.run_schema.amounts))
        with Sink(replace(self.spool, in_memory=False), run_schema) as sink:
            sink.add(update)
        return tuple(part for part in sink.parts if isinstance(part, Run))

    def _level0(self, contents: Sequence[Sequence[Part]]) -> list[Run]:
        """One run over all shards, whose row groups end where shards do."""
        run_schema, storage = self.dataset.run_schema, self.env.storage
        if not any(contents):
            return []
        with RunWriter(storage, self.env.folder, run_schema, self.env.settings.row_group_rows) as writer:
            shard = 0
            for part in _flat(contents):
                if isinstance(part, Run):
                    self.env.scratch.append(part.path)
                for frame in scan_part(storage, run_schema, part).frames:
                    for number, own in enumerate(self.dataset.state.split(frame, run_schema.group)):
                        if own.height:
                            if number != shard:
                                writer.end_group()
                            writer.write(own)
                            shard = number
        return [writer.run(0)]


def _flat(parts: Sequence[Sequence[Part]]) -> list[Part]:
    return [part for own in parts for part in own]
