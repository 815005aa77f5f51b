"""The step of one node of a dataflow graph, from its previous state to its new state.

A node is a root, which receives rows from an external source, or a stage. A stage computes its content from the content
of other nodes, its feeders. A port is one input of a stage. The update of a node lists the keys that the step changed.
The keys of a stage's input are source keys, and the keys of its content are target keys. Key-mappings are the stored
pairs (source key, target key).

Instructions are rows that replace or delete rows of a node's content. The content of a sum stage is totals, and its
instructions are amounts to add to them. A delta root has no content: it passes deltas, which are rows that were added
or removed, to sum stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from metastore_assets.produce.dataset import Dataset, DatasetState
from metastore_assets.produce.dataset_step import DatasetStep, flat
from metastore_assets.produce.environment import Environment, Spool
from metastore_assets.produce.graph import TypedNode, ports
from metastore_assets.produce.inputs import Feeder, distinct_feeders, task_ranges
from metastore_assets.produce.parts import Part, part_rows
from metastore_assets.produce.run_produce import Instructions, ProduceTask, produce
from metastore_assets.produce.runs import EVERYTHING, KeyRange, Run
from metastore_assets.produce.stages import Delta, DeltaRoot, Stage, SumStage
from metastore_assets.produce.state import StageState
from metastore_assets.produce.sums import (
    DeltaTask,
    SumTask,
    all_totals,
    changed_amounts,
    delta_amounts,
    updated_amounts,
)


def empty_state(typed_node: TypedNode) -> StageState:
    """Return the state of a node without rows."""
    content = DatasetState(typed_node.content.empty_keys)
    mappings = DatasetState(typed_node.mappings.empty_keys) if typed_node.mappings else None
    return StageState(typed_node.fingerprint, typed_node.form, content, mappings, ())


@dataclass(frozen=True)
class StepStates:
    """The graph of a dataflow, and the states of its nodes before and after one step."""

    graph: Mapping[str, TypedNode]
    previous: Mapping[str, StageState]
    """The states of all nodes before the step, by name."""
    new: Mapping[str, StageState]
    """The new states of the nodes that were stepped already, by name."""


def step_root(env: Environment, root: TypedNode, before: StageState, incoming: Part) -> StageState:
    """Apply a validated update to a root.

    Return its new state.

    Args:
        env: The environment of the step.
        root: The root.
        before: The state of the root before the step.
        incoming: The update, as `receive_update` returned it.
    """
    step = _NodeStep(env, root, before, env.spool(part_rows([incoming])))
    return step.apply(Instructions([incoming], []))


def step_stage(env: Environment, stage: TypedNode, states: StepStates, *, is_full: bool) -> StageState:
    """Apply the updates of a stage's feeders to the stage.

    Return its new state. The totals of a small sum stage without stored updates are computed again from the contents of
    its feeders, if these are in memory.

    Args:
        env: The environment of the step.
        stage: The stage.
        states: The states of all nodes before the step, and the new states of the stage's feeders.
        is_full: Whether to build the stage from the complete content of its feeders. The stage's state in
            `states.previous` must then be empty. This is not checked: outdated rows would remain, and totals would
            count twice.
    """
    before = replace(states.previous[stage.name], loaded=False)
    # A feeder with content has an update: the changed rows. A feeder without content passes on deltas, its own input.
    deltas = [delta for name in stage.feeders for delta in env.deltas.get(name, ())]
    rows = sum(delta.row_count for delta in deltas)
    for name in stage.feeders:
        rows += states.new[name].content.rows if is_full else part_rows(states.new[name].update)
    if not rows:
        return replace(before, update=(), reset=is_full)
    if (amounts := _small_stage_totals(env, stage)) is not None:
        # The totals are complete: they replace the previous content.
        emptied_state = replace(before, content=DatasetState(stage.content.empty_keys))
        step = _NodeStep(env, stage, emptied_state, env.spool(amounts.height))
        return replace(step.apply(Instructions([amounts], [])), reset=is_full)
    step = _NodeStep(env, stage, before, env.spool(rows))
    instructions = step.instructions(step.ports(states, is_full=is_full), deltas)
    return replace(step.apply(instructions), reset=is_full)


def _small_stage_totals(env: Environment, stage: TypedNode) -> pl.DataFrame | None:
    """Return all totals of a small sum stage, computed from the contents of its feeders in memory.

    Returns None if the node is no sum stage, or if it stores updates (`SumStage.is_followed`). Also returns None if the
    contents of the feeders are large, or one of them is not in memory.
    """
    if not isinstance(stage.node, SumStage) or stage.node.is_followed:
        return None
    contents = [env.contents[name] for name in stage.feeders if name in env.contents]
    is_small = sum(content.height for content in contents) <= env.settings.single_run_rows
    return all_totals(stage, contents) if is_small and len(contents) == len(stage.feeders) else None


@dataclass(frozen=True)
class _NodeStep:
    """A node and its state before the step.

    `instructions` and `apply` compute the new state.
    """

    env: Environment
    node: TypedNode
    before: StageState
    spool: Spool
    """Destination of the node's instructions."""

    def ports(self, states: StepStates, *, is_full: bool) -> tuple[tuple[Feeder, ...], ...]:
        """Return the feeders of each port (input of the stage), without delta roots, which have no content.

        Args:
            states: The states of all nodes before the step, and the new states of the stage's feeders.
            is_full: Whether the feeders pass on their complete new content instead of their updates.
        """
        graph = states.graph
        feeders = {
            name: self._feeder(graph[name], states, is_full=is_full)
            for name in self.node.feeders
            if not isinstance(graph[name].node, DeltaRoot)
        }
        return tuple(tuple(feeders[name] for name in port if name in feeders) for port in ports(self.node.node))

    def _feeder(self, feeder: TypedNode, states: StepStates, *, is_full: bool) -> Feeder:
        content = (states.new if is_full else states.previous)[feeder.name].content
        files = () if is_full else states.new[feeder.name].update
        update: tuple[Part, ...] = files
        replaced_rows = None
        if self.spool.in_memory and files:
            # Tasks in other processes read the files, so that tasks stay small.
            update = (self.env.updates[feeder.name],) if feeder.name in self.env.updates else files
            replaced_rows = self.env.replaced.get(feeder.name)
        dataset = Dataset(self.env.storage, feeder.content, content)
        return Feeder(
            feeder.name, feeder.rows, dataset, update, isinstance(feeder.node, SumStage), replaced_rows, is_full
        )

    def instructions(self, fed: tuple[tuple[Feeder, ...], ...], deltas: Sequence[Delta]) -> Instructions:
        """Return the instructions for the node's content and key-mappings.

        Args:
            fed: The feeders of each port.
            deltas: Added and removed rows of the delta roots that feed the node.
        """
        env, stage = self.env, self.node
        feeders = distinct_feeders(fed)
        if isinstance(stage.node, SumStage):
            return Instructions([*self._delta_amounts(deltas), *self._amounts(feeders)], [])
        runner = env.runner_for(sum(feeder.update_rows for feeder in feeders))
        assert stage.mappings is not None
        assert self.before.mappings is not None
        mappings = Dataset(env.storage, stage.mappings, self.before.mappings)
        tasks = [ProduceTask(stage, fed, mappings, key_range, self.spool) for key_range in self._ranges(feeders)]
        results = runner.map(produce, tasks)
        return Instructions(flat([result.content for result in results]), flat([result.mappings for result in results]))

    def _ranges(self, feeders: Sequence[Feeder]) -> list[KeyRange]:
        return [EVERYTHING] if self.spool.in_memory else task_ranges(feeders, self.env.settings)

    def _amounts(self, feeders: Sequence[Feeder]) -> list[Part]:
        """Return the amounts that updates of feeders add to the totals of a sum stage."""
        rows = sum(feeder.update_rows for feeder in feeders)
        if not rows:
            return []
        updates = [part for feeder in feeders for part in feeder.update if isinstance(part, pl.DataFrame)]
        are_sums = all(feeder.sums and not feeder.is_full for feeder in feeders)
        if self.spool.in_memory and len(updates) == len(feeders) and are_sums:
            return [updated_amounts(self.node, feeders, updates)]
        tasks = [SumTask(self.node, tuple(feeders), key_range, self.spool) for key_range in self._ranges(feeders)]
        return flat(self.env.runner_for(rows).map(changed_amounts, tasks))

    def _delta_amounts(self, deltas: Sequence[Delta]) -> list[Part]:
        """Return the amounts that added and removed rows contribute to the totals of a sum stage."""
        rows = sum(delta.row_count for delta in deltas)
        tasks: list[DeltaTask] = []
        task_deltas: list[Delta] = []
        for delta in deltas:
            task_deltas.append(delta)
            task_rows = sum(task_delta.row_count for task_delta in task_deltas)
            if not self.spool.in_memory and task_rows >= self.env.settings.task_rows:
                tasks.append(DeltaTask(self.node, tuple(task_deltas), self.spool))
                task_deltas = []
        tasks += [DeltaTask(self.node, tuple(task_deltas), self.spool)] if task_deltas else []
        return flat(self.env.runner_for(rows).map(delta_amounts, tasks)) if tasks else []

    def apply(self, instructions: Instructions) -> StageState:
        """Apply instructions to the node's content and key-mappings.

        Return its new state.
        """
        env, node, before = self.env, self.node, self.before
        parts = (*instructions.content, *instructions.mappings)
        env.scratch.extend(part.path for part in parts if isinstance(part, Run))
        declared_node = node.node
        suppress, preserve = (
            (declared_node.suppress_unchanged, declared_node.preserve)
            if isinstance(declared_node, Stage)
            else (False, None)
        )
        dataset = Dataset(env.storage, node.content, before.content)
        is_followed = not isinstance(declared_node, SumStage) or declared_node.is_followed
        content = DatasetStep(
            env, self.spool, node.name, node.rows, dataset, suppress, preserve, before.counter, is_followed
        ).run(instructions.content)
        mappings = before.mappings
        if node.mappings is not None and mappings is not None:
            pairs = Dataset(env.storage, node.mappings, mappings)
            mappings = DatasetStep(env, self.spool, node.name, None, pairs).run(instructions.mappings).state
        counter = before.counter + content.novel
        return replace(before, content=content.state, mappings=mappings, update=content.update, counter=counter)
