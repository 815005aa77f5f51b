"""One node of the graph from one version to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from metastore_assets.produce.applying import Applied, ApplyTask, apply, count_novel
from metastore_assets.produce.compaction import Work, assembled, compacted
from metastore_assets.produce.dataset import Dataset, State
from metastore_assets.produce.executor import Executor, LocalExecutor
from metastore_assets.produce.graph import Typed, ports
from metastore_assets.produce.inputs import Feeder, distinct_feeders, even_ranges, task_ranges
from metastore_assets.produce.layout import Layout
from metastore_assets.produce.manifest import DATA, StageState
from metastore_assets.produce.parts import Part, Sink, Spool, part_bounds, part_rows, scan_part
from metastore_assets.produce.producing import ProduceTask, produce
from metastore_assets.produce.rows import Rows
from metastore_assets.produce.runs import EVERYTHING, KeyRange, Run, RunWriter, run_bounds
from metastore_assets.produce.settings import Settings
from metastore_assets.produce.stages import Preserve, Stage, SumStage
from metastore_assets.produce.storage import Storage
from metastore_assets.produce.summing import SumTask, changed_amounts
from metastore_assets.produce.updates import update_layout


def empty_state(typed: Typed) -> StageState:
    """What a node has before its first version."""
    content = State(typed.content.empty_keys)
    mappings = State(typed.mappings.empty_keys) if typed.mappings else None
    return StageState(typed.fingerprint, typed.form, content, mappings, ())


@dataclass(frozen=True)
class Environment:
    """What every step needs."""

    storage: Storage
    executor: Executor
    settings: Settings
    check: bool
    scratch: list[str]
    """Files that tasks wrote for each other: no version names them, unless one of them became a run."""
    updates: dict[str, Part] = field(default_factory=dict)
    """By node: its update, where that is in memory."""
    replaced: dict[str, pl.DataFrame] = field(default_factory=dict)
    """By node: all rows that the keys of its update had, where they are few and were read."""

    def spool(self, rows: int) -> Spool:
        """Where the instructions that come of so many rows go."""
        return Spool(self.storage, DATA, self.settings, in_memory=rows <= self.settings.small_rows)

    def executor_for(self, rows: int) -> Executor:
        """A job for few rows costs more than the rows."""
        return LocalExecutor() if rows <= self.settings.small_rows else self.executor


def step_root(env: Environment, root: Typed, before: StageState, incoming: Part) -> StageState:
    """A root with an update, which has been checked and brought into the form of instructions."""
    return _apply(env, root, before, [incoming], [], env.spool(part_rows([incoming])))


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

    def feeder(name: str) -> Feeder:
        typed = graph[name]
        content = Dataset(env.storage, typed.content, (now[name] if whole else former[name]).content)
        update: tuple[Part, ...] = () if whole else now[name].update
        replaced = None
        if spool.in_memory and update:
            # Only then: what is sent to other processes is to be small, and they can read the files.
            update = (env.updates[name],) if name in env.updates else update
            replaced = env.replaced.get(name)
        return Feeder(name, typed.rows, content, update, isinstance(typed.node, SumStage), replaced, whole)

    rows = sum(now[name].content.rows if whole else part_rows(now[name].update) for name in stage.feeders)
    if not rows:
        return replace(before, update=(), reset=whole)
    spool = env.spool(rows)
    fed = tuple(tuple(feeder(name) for name in port) for port in ports(stage.node))
    feeders = distinct_feeders(fed)
    ranges = [EVERYTHING] if spool.in_memory else task_ranges(feeders, env.settings)
    executor = env.executor_for(rows)
    if isinstance(stage.node, SumStage):
        amounts = executor.map(changed_amounts, [SumTask(stage, fed[0], own, spool) for own in ranges])
        return replace(_apply(env, stage, before, _flat(amounts), [], spool), reset=whole)
    assert stage.mappings is not None
    assert before.mappings is not None
    mappings = Dataset(env.storage, stage.mappings, before.mappings)
    made = executor.map(produce, [ProduceTask(stage, fed, mappings, own, spool, env.check) for own in ranges])
    content, pairs = _flat([one.content for one in made]), _flat([one.mappings for one in made])
    return replace(_apply(env, stage, before, content, pairs, spool), reset=whole)


def _apply(
    env: Environment, node: Typed, before: StageState, content: list[Part], pairs: list[Part], spool: Spool
) -> StageState:
    """Content and key-mappings with some instructions carried out."""
    env.scratch.extend(part.path for part in (*content, *pairs) if isinstance(part, Run))
    own = node.node
    suppress, preserve = (own.suppress_unchanged, own.preserve) if isinstance(own, Stage) else (False, None)
    job = _Job(env, spool, node.name, node.rows, Dataset(env.storage, node.content, before.content), suppress, preserve)
    state, update, novel = job.run(content, before.counter)
    mappings = before.mappings
    if node.mappings is not None and mappings is not None:
        dataset = Dataset(env.storage, node.mappings, mappings)
        mappings, _, _ = _Job(env, spool, node.name, None, dataset, False, None).run(pairs, 0)
    return replace(before, content=state, mappings=mappings, update=update, counter=before.counter + novel)


@dataclass(frozen=True)
class _Job:
    """Instructions to be applied to one dataset."""

    env: Environment
    spool: Spool
    stage: str
    rows: Rows | None
    dataset: Dataset
    suppress: bool
    preserve: Preserve | None

    def run(self, parts: list[Part], counter: int) -> tuple[State, tuple[Run, ...], int]:
        """The dataset's next state, the files of its update, and how many numbers were given."""
        state, layout, settings = self.dataset.state, self.dataset.layout, self.env.settings
        rows = part_rows(parts)
        if not rows:
            return state, (), 0
        bulk = rows > settings.bulk_share * state.rows
        ranges = self._ranges(parts, rows, bulk=bulk)
        executor = self.env.executor_for(rows)
        tasks = [
            ApplyTask(
                self.stage, self.rows, self.dataset, tuple(parts), own, self.spool, bulk, self.suppress, self.preserve,
                counter,
            )
            for own in ranges
        ]  # fmt: skip
        if self.preserve is not None and len(tasks) > 1:
            for number, novel in enumerate(executor.map(count_novel, tasks)[:-1]):
                tasks[number + 1] = replace(tasks[number + 1], counter=tasks[number].counter + novel)
        done = executor.map(apply, tasks)
        if len(done) == 1 and done[0].former is not None:
            self.env.replaced[self.stage] = done[0].former
        update = self._written(update_layout(self.rows, sums=bool(layout.amounts)), done) if self.rows else ()
        if bulk:
            new = assembled(state, [(one.pieces, own) for one, own in zip(done, ranges, strict=True)])
        else:
            level0 = self._level0([one.content for one in done])
            credit = state.credit + settings.inline_budget * sum(run.rows for run in level0)
            new = replace(state, level0=(*state.level0, *level0), credit=credit)
        work = Work(self.env.executor_for(rows), DATA, settings)
        tidy = compacted(replace(self.dataset, state=new), work, unlimited=False)
        written = {run.path for run in new.runs()} - {run.path for run in state.runs()}
        self.env.scratch.extend(written - {run.path for run in tidy.runs()})
        return tidy, update, sum(one.novel for one in done)

    def _ranges(self, parts: Sequence[Part], rows: int, *, bulk: bool) -> list[KeyRange]:
        state, layout, settings = self.dataset.state, self.dataset.layout, self.env.settings
        if self.spool.in_memory:
            return [EVERYTHING]
        if not bulk:
            return state.ranges()
        count = max(-(-(rows + state.rows) // settings.target_rows), self.env.executor.slots())
        stored = [run_bounds(self.env.storage, run) for run in state.runs()]
        sample = pl.concat([part_bounds(self.env.storage, layout, parts), *stored])
        return even_ranges(sample, layout.group, count)

    def _written(self, layout: Layout, done: Sequence[Applied]) -> tuple[Run, ...]:
        """The files of an update: as tasks wrote them, or one for all that is in memory."""
        parts = _flat([one.update for one in done])
        if all(isinstance(part, Run) for part in parts):
            return tuple(part for part in parts if isinstance(part, Run))
        update = pl.concat([part for part in parts if isinstance(part, pl.DataFrame)])
        self.env.updates[self.stage] = update
        with Sink(replace(self.spool, in_memory=False), layout) as sink:
            sink.add(update)
        return tuple(part for part in sink.parts if isinstance(part, Run))

    def _level0(self, contents: Sequence[Sequence[Part]]) -> list[Run]:
        """One run over all shards, whose row groups end where shards do."""
        layout, storage = self.dataset.layout, self.env.storage
        if not any(contents):
            return []
        with RunWriter(storage, DATA, layout, self.env.settings.row_group_rows) as writer:
            shard = 0
            for part in _flat(contents):
                if isinstance(part, Run):
                    self.env.scratch.append(part.path)
                for frame in scan_part(storage, layout, part).frames:
                    for number, own in enumerate(self.dataset.state.split(frame, layout.group)):
                        if own.height:
                            if number != shard:
                                writer.end_group()
                            writer.write(own)
                            shard = number
        return [writer.run(0)]


def _flat(parts: Sequence[Sequence[Part]]) -> list[Part]:
    return [part for own in parts for part in own]
