"""Step one node of the graph from one version to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from metastore_assets.produce.dataset import Dataset, DatasetState
from metastore_assets.produce.dataset_step import DatasetStep, flat
from metastore_assets.produce.environment import Environment
from metastore_assets.produce.graph import Typed, ports
from metastore_assets.produce.inputs import Feeder, distinct_feeders, task_ranges
from metastore_assets.produce.parts import Part, Spool, part_rows
from metastore_assets.produce.run_produce import Instructions, ProduceTask, produce
from metastore_assets.produce.runs import EVERYTHING, Run
from metastore_assets.produce.stages import Delta, DeltaRoot, Stage, SumStage
from metastore_assets.produce.state import StageState
from metastore_assets.produce.sums import (
    DeltaTask,
    SumTask,
    all_amounts,
    changed_amounts,
    delta_amounts,
    updated_amounts,
)


def empty_state(typed: Typed) -> StageState:
    """Return the state of a node before its first version."""
    content = DatasetState(typed.content.empty_keys)
    mappings = DatasetState(typed.mappings.empty_keys) if typed.mappings else None
    return StageState(typed.fingerprint, typed.form, content, mappings, ())


def step_root(env: Environment, root: Typed, before: StageState, incoming: Part) -> StageState:
    """Return a root's state after an update, which was validated and converted to instructions."""
    return _apply(env, root, before, Instructions([incoming], []), env.spool(part_rows([incoming])))


def step_stage(
    env: Environment,
    stage: Typed,
    graph: Mapping[str, Typed],
    before: StageState,
    previous: Mapping[str, StageState],
    now: Mapping[str, StageState],
    *,
    is_full: bool,
) -> StageState:
    """Return a stage's state after its feeders have reached the next version.

    Args:
        before: The stage's previous state; it must be empty if `is_full`.
        previous: States of all nodes in the last version.
        now: States of the nodes that precede the stage, in the next version.
        whole: Whether to build the stage from the complete current content of its feeders.
    """
    deltas = [delta for name in stage.feeders for delta in env.deltas.get(name, ())]
    rows = sum(delta.row_count for delta in deltas)
    rows += sum(now[name].content.rows if is_full else part_rows(now[name].update) for name in stage.feeders)
    if not rows:
        return replace(before, update=(), reset=is_full)
    if (amounts := _few_amounts(env, stage)) is not None:
        emptied = replace(before, content=DatasetState(stage.content.empty_keys))
        return replace(
            _apply(env, stage, emptied, Instructions([amounts], []), env.spool(amounts.height)), reset=is_full
        )
    spool = env.spool(rows)
    content = now if is_full else previous
    feeders = {
        name: _feeder(
            env, graph[name], content[name].content, () if is_full else now[name].update, spool, is_full=is_full
        )
        for name in stage.feeders
        if not isinstance(graph[name].node, DeltaRoot)
    }
    fed = tuple(tuple(feeders[name] for name in port if name in feeders) for port in ports(stage.node))
    instructions = _instructions(env, stage, before, fed, deltas, spool)
    return replace(_apply(env, stage, before, instructions, spool), reset=is_full)


def _feeder(
    env: Environment, feeder: Typed, content: DatasetState, files: tuple[Part, ...], spool: Spool, *, is_full: bool
) -> Feeder:
    """Return a feeder with the files of its update, or with the parts of the update that are in memory."""
    update, replaced = files, None
    if spool.in_memory and files:
        # Tasks in other processes read the files, so that tasks stay small.
        update = (env.updates[feeder.name],) if feeder.name in env.updates else files
        replaced = env.replaced.get(feeder.name)
    dataset = Dataset(env.storage, feeder.content, content)
    return Feeder(feeder.name, feeder.rows, dataset, update, isinstance(feeder.node, SumStage), replaced, is_full)


def _instructions(
    env: Environment,
    stage: Typed,
    before: StageState,
    fed: tuple[tuple[Feeder, ...], ...],
    deltas: Sequence[Delta],
    spool: Spool,
) -> Instructions:
    """Return the instructions for the content and the key-mappings of a stage."""
    feeders = distinct_feeders(fed)
    if isinstance(stage.node, SumStage):
        return Instructions([*_delta_amounts(env, stage, deltas, spool), *_amounts(env, stage, feeders, spool)], [])
    ranges = [EVERYTHING] if spool.in_memory else task_ranges(feeders, env.settings)
    runner = env.runner_for(sum(feeder.update_rows for feeder in feeders))
    assert stage.mappings is not None
    assert before.mappings is not None
    mappings = Dataset(env.storage, stage.mappings, before.mappings)
    produced = runner.map(
        produce, [ProduceTask(stage, fed, mappings, declared, spool, env.check) for declared in ranges]
    )
    return Instructions(flat([one.content for one in produced]), flat([one.mappings for one in produced]))


def _few_amounts(env: Environment, stage: Typed) -> pl.DataFrame | None:
    """Return all totals of a stage that sums few rows in memory and whose updates are not needed; otherwise None.

    Such a stage is rewritten anyway, so it need not be read first.
    """
    if not isinstance(stage.node, SumStage) or stage.node.is_followed:
        return None
    held = [env.contents[name] for name in stage.feeders if name in env.contents]
    few = sum(declared.height for declared in held) <= env.settings.single_run_rows
    return all_amounts(stage, held) if few and len(held) == len(stage.feeders) else None


def _amounts(env: Environment, stage: Typed, feeders: Sequence[Feeder], spool: Spool) -> list[Part]:
    """Return the amounts that the updates of feeders add to the totals of a stage."""
    rows = sum(feeder.update_rows for feeder in feeders)
    if not rows:
        return []
    updates = [part for feeder in feeders for part in feeder.update if isinstance(part, pl.DataFrame)]
    if (
        spool.in_memory
        and len(updates) == len(feeders)
        and all(declared.sums and not declared.is_full for declared in feeders)
    ):
        return [updated_amounts(stage, feeders, updates)]
    ranges = [EVERYTHING] if spool.in_memory else task_ranges(feeders, env.settings)
    tasks = [SumTask(stage, tuple(feeders), declared, spool) for declared in ranges]
    return flat(env.runner_for(rows).map(changed_amounts, tasks))


def _delta_amounts(env: Environment, stage: Typed, deltas: Sequence[Delta], spool: Spool) -> list[Part]:
    """Return the amounts that added and removed rows contribute to the totals of a stage."""
    rows = sum(delta.row_count for delta in deltas)
    tasks: list[DeltaTask] = []
    taken: list[Delta] = []
    for delta in deltas:
        taken.append(delta)
        if not spool.in_memory and sum(one.row_count for one in taken) >= env.settings.task_rows:
            tasks.append(DeltaTask(stage, tuple(taken), spool))
            taken = []
    tasks += [DeltaTask(stage, tuple(taken), spool)] if taken else []
    return flat(env.runner_for(rows).map(delta_amounts, tasks)) if tasks else []


def _apply(env: Environment, node: Typed, before: StageState, produced: Instructions, spool: Spool) -> StageState:
    """Return the node's state after applying instructions to its content and key-mappings."""
    env.scratch.extend(part.path for part in (*produced.content, *produced.mappings) if isinstance(part, Run))
    declared = node.node
    suppress, preserve = (
        (declared.suppress_unchanged, declared.preserve) if isinstance(declared, Stage) else (False, None)
    )
    dataset = Dataset(env.storage, node.content, before.content)
    followed = not isinstance(declared, SumStage) or declared.is_followed
    job = DatasetStep(env, spool, node.name, node.rows, dataset, suppress, preserve, before.counter, followed)
    content = job.run(produced.content)
    mappings = before.mappings
    if node.mappings is not None and mappings is not None:
        pairs = Dataset(env.storage, node.mappings, mappings)
        mappings = DatasetStep(env, spool, node.name, None, pairs).run(produced.mappings).state
    counter = before.counter + content.novel
    return replace(before, content=content.state, mappings=mappings, update=content.update, counter=counter)
