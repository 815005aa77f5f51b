"""One step of a dataflow from a state to the next: each node is computed once, in graph order.

Nothing is published.

A node is a root or a stage. A root receives rows from an external source; a delta root does not store them. The feeders
of a stage are the nodes whose output it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain

import polars as pl

from metastore_assets.errors import StageChangedError
from metastore_assets.produce.compaction import Work, compact_dataset, rewrite_dataset
from metastore_assets.produce.dataset import Dataset, DatasetState
from metastore_assets.produce.environment import Environment, Spool
from metastore_assets.produce.graph import TypedNode
from metastore_assets.produce.node_step import StepStates, empty_state, step_root, step_stage
from metastore_assets.produce.parts import Part
from metastore_assets.produce.run_schema import TOMBSTONE, RunSchema
from metastore_assets.produce.runs import RunWriter
from metastore_assets.produce.stages import Delta, DeltaRoot, Root
from metastore_assets.produce.state import FlowState, StageState
from metastore_assets.produce.typed_rows import CHANGE
from metastore_assets.produce.updates import DELETE, External, validate_update


@dataclass(frozen=True)
class StepInput:
    """The input of one step of a dataflow."""

    updates: Mapping[str, Part] = field(default_factory=dict)
    """{root: its validated update}."""
    deltas: Mapping[str, tuple[Delta, ...]] = field(default_factory=dict)
    """{delta root: its added and removed rows}."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """{root: version of its source after this step}, for roots whose source has versions."""
    loaded: Mapping[str, DatasetState] = field(default_factory=dict)
    """{node: content that replaces all of its content}."""

    def newer_than(self, applied_versions: Mapping[str, int]) -> StepInput:
        """Return the input without the updates that were applied before.

        `applied_versions` has the last applied version of each root's source.
        """

        def is_new(name: str) -> bool:
            return name not in self.sources or self.sources[name] > applied_versions.get(name, self.sources[name] - 1)

        return StepInput(
            {name: update for name, update in self.updates.items() if is_new(name)},
            {name: deltas for name, deltas in self.deltas.items() if is_new(name)},
            {name: version for name, version in self.sources.items() if is_new(name)},
            self.loaded,
        )

    @property
    def is_empty(self) -> bool:
        """Whether the input is empty."""
        return not (self.updates or self.deltas or self.sources or self.loaded)


def step_flow(
    env: Environment, graph: Mapping[str, TypedNode], base: FlowState, step_input: StepInput, rebuilt: AbstractSet[str]
) -> FlowState:
    """Return the state after one step from `base`.

    After an error, the new files of finished nodes are added to `env.scratch`, so that the caller deletes them.

    Args:
        env: The environment of the step.
        graph: The nodes by name. Feeders come before the nodes that read them.
        base: The state to start from.
        step_input: The input from outside.
        rebuilt: Names of the nodes to rebuild: stages from the complete content of their feeders, roots from nothing.
            Nodes that `base` lacks are rebuilt, too, unless `base` is the empty state.

    Raises:
        StageChangedError: The declaration of a node differs from that in `base`, but the node is neither in `rebuilt`
            nor in `step_input.loaded`. Or a stage would have to be rebuilt from a delta root, whose rows are not
            stored.
    """
    check_declared(graph, base, rebuilt | step_input.loaded.keys(), env.storage.uri())
    env = replace(env, deltas=step_input.deltas)
    previous = {name: base.stages.get(name, empty_state(typed_node)) for name, typed_node in graph.items()}
    for name in rebuilt:
        # Numbers continue, so that a published id never gets another meaning.
        previous[name] = replace(empty_state(graph[name]), counter=previous[name].counter)
    new: dict[str, StageState] = {}
    states = StepStates(graph, previous, new)
    try:
        for name, typed_node in graph.items():
            rebuild = name in rebuilt or (bool(base.stages) and name not in base.stages)
            if name in step_input.loaded:
                empty = empty_state(typed_node)
                new[name] = replace(empty, content=step_input.loaded[name], reset=True, loaded=True)
            elif isinstance(typed_node.node, Root | DeltaRoot):
                new[name] = replace(previous[name], update=(), reset=rebuild, loaded=False)
                if name in step_input.updates:
                    new[name] = step_root(env, typed_node, new[name], step_input.updates[name])
            else:
                if rebuild:
                    _check_stored(graph, typed_node, base, rebuilt)
                new[name] = step_stage(env, typed_node, states, is_full=rebuild)
    except BaseException:
        loaded_runs = {run.path for state in step_input.loaded.values() for run in state.runs()}
        env.scratch.extend({path for state in new.values() for path in state.paths()} - base.paths() - loaded_runs)
        raise
    # A root that is no longer declared loses its source version, because its rows are not stored any more.
    retained_sources = {
        name: version for name, version in base.sources.items() if name in graph and name not in rebuilt
    }
    return FlowState(new, {**retained_sources, **step_input.sources})


def fed_by(graph: Mapping[str, TypedNode], names: AbstractSet[str]) -> set[str]:
    """Return the given names, and those of all nodes that they feed, directly or indirectly."""
    fed_names = set(names)
    for name, typed_node in graph.items():
        if fed_names & set(typed_node.feeders):
            fed_names.add(name)
    return fed_names


def receive_update(env: Environment, typed_node: TypedNode, update: External, *, sort: bool) -> Part:
    """Validate the update of a root.

    Return its rows as a frame, or as a temporary file if there are many.

    The result has the columns of the root's content. Its tombstone column is True for a deleted key.

    Args:
        env: The environment of the step.
        typed_node: The root.
        update: The rows of the update.
        sort: Whether to sort the update first.

    Raises:
        UpdateError: The update breaks the rules of `validate_update`. For example, keys decrease and `sort` is false.
    """
    frames = (
        frame.with_columns((pl.col(CHANGE) == DELETE).alias(TOMBSTONE))[:, typed_node.content.file_schema.names]
        for frame in validate_update(typed_node.name, typed_node.rows, update, sort=sort)
    )
    first = [typed_node.content.empty]
    rows = 0
    for frame in frames:
        first.append(frame)
        rows += frame.height
        if rows > env.settings.small_rows:
            break
    else:
        return pl.concat(first)
    with RunWriter(env.storage, env.folder, typed_node.content, env.settings.row_group_rows) as writer:
        env.scratch.append(writer.path)
        for frame in chain(first, frames):
            writer.write(frame)
    return writer.run(0)


def compact_state(env: Environment, graph: Mapping[str, TypedNode], base: FlowState, *, full: bool) -> FlowState:
    """Execute all due merges of runs.

    Return the resulting state, which has the same rows.

    The merged runs are written to new files. The old files are not deleted.

    Args:
        env: The environment of the merges.
        graph: The nodes by name.
        base: The state to compact.
        full: Whether to merge all runs (sorted files) of each key range into one.
    """
    check_declared(graph, base, frozenset(), env.storage.uri())
    work = Work(env.runner, Spool(env.storage, env.folder, env.settings, in_memory=False))

    def merged(run_schema: RunSchema, state: DatasetState) -> DatasetState:
        dataset = Dataset(env.storage, run_schema, state)
        is_compact = not state.level0 and all(len(shard.runs) <= 1 for shard in state.shards)
        if full:
            return state if is_compact else rewrite_dataset(dataset, work)
        return compact_dataset(dataset, work, is_unlimited=True)

    stages = dict(base.stages)
    for name in base.stages.keys() & graph.keys():
        typed_node, state = graph[name], base.stages[name]
        content = merged(typed_node.content, state.content)
        mappings = merged(typed_node.mappings, state.mappings) if typed_node.mappings and state.mappings else None
        stages[name] = replace(state, content=content, mappings=mappings)
    return replace(base, stages=stages)


def check_declared(graph: Mapping[str, TypedNode], base: FlowState, rebuilt: AbstractSet[str], uri: str) -> None:
    """Raise StageChangedError if a stage that is not rebuilt has another declaration than the stored one.

    Args:
        graph: The declared nodes, by name.
        base: The state with the stored declarations.
        rebuilt: Names of the nodes that are rebuilt or loaded.
        uri: The URI of the dataflow's storage, for the message.
    """
    for name, state in base.stages.items():
        typed_node = graph.get(name)
        if typed_node is not None and name not in rebuilt and typed_node.fingerprint != state.fingerprint:
            raise StageChangedError(
                f"the declaration of stage {name!r} has changed since its state in {uri} was built; "
                f"`rebuild({name!r})` rebuilds it and all stages that it feeds"
            )


def _check_stored(graph: Mapping[str, TypedNode], stage: TypedNode, base: FlowState, rebuilt: AbstractSet[str]) -> None:
    """Raise StageChangedError if a stage to rebuild reads a delta root, whose rows are not stored.

    A delta root that is new, or is rebuilt as well, is allowed, because no earlier rows are needed.
    """
    unstored_feeders: Sequence[str] = [
        name
        for name in stage.feeders
        if isinstance(graph[name].node, DeltaRoot) and name in base.stages and name not in rebuilt
    ]
    if unstored_feeders:
        raise StageChangedError(
            f"stage {stage.name!r} cannot be rebuilt from {unstored_feeders[0]!r}, whose rows are not stored: load the "
            f"stage, or `rebuild({unstored_feeders[0]!r})`, which empties all stages that it feeds, and pass all of "
            "its rows again"
        )
