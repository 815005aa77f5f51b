"""Reduce profiles to profiles: fragments to partitions, partitions to the table, by the same three steps.

1. Merge what only merges (statistics, sketches, histograms) along a tree of bounded fan-in. A node is named by what
   it merges, so the nodes that a commit did not touch are taken over from the published version.
2. Sum the frequencies of the columns worth listing, in one Spark exchange for all profiles.
3. Put what the full lists say (distinct and duplicate values, percentiles) into the statistics.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.files import ProfileWriter, write_profile, write_states
from metastore_assets.pipeline.frequencies import FrequencySum, SummedColumns, sum_columns
from metastore_assets.pipeline.packed import layout_union
from metastore_assets.pipeline.plan import Held, Layout
from metastore_assets.pipeline.stored import FrequencyReader, read_states
from metastore_assets.pipeline.tree import Branch, key_position, merge_tree
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.merge import merge_states
from metastore_assets.statistics.naming import as_named
from metastore_assets.statistics.profile import ColumnProfile, all_null_statistics
from metastore_assets.statistics.states import histograms_of_states, state_rows, states_table
from metastore_assets.statistics.told import apply_facts, completed
from metastore_assets.statistics.types import type_text
from metastore_assets.store.manifest import NodeEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore

FAN_IN = 6
"""Most profiles that one merge reads. A branch splits into four; those of 4 to 7 children read the same after a commit,
and 6 makes a quarter fewer nodes than 4, and a third of those of 2, which reads least."""
_INPUTS_PER_TASK = 64
"""A branch of no more inputs is merged by one task, all the way up: what it merges on the way is not read again."""


@dataclass(frozen=True)
class Child:
    """One profile to be merged."""

    key: str
    """What the profile describes: a fragment id or a partition key."""
    files: ProfileFiles
    layout: str
    """Under which the files were made: a key of `Held.layouts`."""
    as_wanted: bool
    """Whether it is what is wanted, no more and no less: a single such child is the result, if it is not packed."""


@dataclass(frozen=True)
class Former:
    """The published profile of the same group, whose columns are what is wanted."""

    files: ProfileFiles
    without: frozenset[str]
    """Identities of wanted columns that neither it nor any of its children has: their lists are empty."""
    children: tuple[Child, ...]


@dataclass(frozen=True)
class Group:
    """Profiles that become one profile."""

    key: str
    folder: str
    """Folder of the result's files, below the table's."""
    children: tuple[Child, ...]
    former: Former | None = None
    is_merged_on: bool = True
    """Whether its profile will be merged further, and so needs its states."""


@dataclass(frozen=True)
class Reduction:
    """The results, by group key, and the tree nodes they were made with."""

    files: Mapping[str, ProfileFiles]
    nodes: tuple[NodeEntry, ...]


@dataclass(frozen=True)
class _Merge:
    """One merge of the tree, of profiles and of what other merges result in: of a node, or of the group itself."""

    group_key: str
    inputs: tuple[ProfileFiles | _Merge, ...]
    group: Group | None = None
    """Of the merge that is the last of its group."""
    number: int = 0
    """Tells the tasks of a round apart."""

    @property
    def weight(self) -> int:
        """Number of profiles that are read for it, those of the merges below included."""
        return sum(part.weight if isinstance(part, _Merge) else 1 for part in self.inputs)


@dataclass
class _Merged:
    number: int
    files: ProfileFiles
    nodes: list[NodeEntry] = field(default_factory=list)
    """Of all the merges of the task but the root."""
    sums: tuple[FrequencySum, ...] = ()
    """Of a root: what is left to sum; its files are then only a step on the way."""


@dataclass(frozen=True)
class _Completion:
    group: Group
    files: ProfileFiles
    summed: SummedColumns


def reduce_groups(
    engine: Engine,
    store: ObjectStore,
    held: Held,
    groups: Sequence[Group],
    known_nodes: Mapping[str, NodeEntry],
) -> Reduction:
    """Reduce every group to what `held` wants; Spark is asked for only when there is much to merge.

    Raises CorruptionError when stored frequencies contradict each other.
    """
    layout, columns = held.wanted, len(held.wanted.leaves)
    files = {group.key: group.children[0].files for group in groups if _passes_through(group)}
    unpacking = [group for group in groups if group.key not in files and _is_alone(group)]
    merging = [group for group in groups if group.key not in files and not _is_alone(group)]
    files |= engine.merge(partial(_unpack, store, layout), unpacking, [columns] * len(unpacking))
    if not merging:
        return Reduction(files, ())
    merged, nodes = _merge_all(engine, store, held, merging, known_nodes)
    numbers = {group.key: number for number, group in enumerate(merging)}
    sums = [
        replace(one, total=numbers[group.key]) for group in merging for one in merged[group.key].sums if one.positions
    ]
    summed = sum_columns(engine, store, merging[0].folder, layout, sums)
    completions = [
        _Completion(group, merged[group.key].files, summed[numbers[group.key]])
        for group in merging
        if numbers[group.key] in summed
    ]
    completed_files = dict(engine.merge(partial(_complete, store, layout), completions, [columns] * len(completions)))
    # The states that were only a step on the way are named by no version; gone now, they need not wait for it.
    store.delete([path for completion in completions for path in completion.files.paths()])
    for group in merging:
        files[group.key] = completed_files.get(group.key, merged[group.key].files)
    return Reduction(files, tuple(nodes))


def _is_alone(group: Group) -> bool:
    return len(group.children) == 1 and group.children[0].as_wanted


def _passes_through(group: Group) -> bool:
    return _is_alone(group) and not group.children[0].files.is_packed


def _unpack(store: ObjectStore, layout: Layout, group: Group) -> tuple[str, ProfileFiles]:
    """Write the profile of a single fragment, that was packed, for people to read. May run in a worker process."""
    packed = group.children[0].files
    row_count, states = read_states(store, packed, layout)
    with (
        FrequencyReader(store, packed) as lists,
        ProfileWriter(store, group.folder, layout, row_count) as writer,
    ):
        for row, histogram in zip(_rows(layout, states), histograms_of_states(states), strict=True):
            frequencies = lists.read(row.field_id) if row.frequencies == "listed" else None
            writer.add(ColumnProfile(row, frequencies, histogram))
    return group.key, writer.files


def _merge_all(
    engine: Engine,
    store: ObjectStore,
    held: Held,
    groups: Sequence[Group],
    known: Mapping[str, NodeEntry],
) -> tuple[dict[str, _Merged], list[NodeEntry]]:
    """The merged groups by key, and all nodes below them: those that are known are taken over, the others computed.

    In rounds: a task merges a branch of a few inputs whole; what is above waits for the next round.
    """
    used: list[NodeEntry] = []

    def planned(
        branch: Branch[Child], key: str, group: Group | None = None
    ) -> tuple[ProfileFiles | _Merge, frozenset[str]]:
        """What is to be done for a branch, and the layouts of the children below it."""
        parts = [
            planned(part, key) if isinstance(part, Branch) else (part.files, frozenset([part.layout]))
            for part in branch.parts
        ]
        inputs = tuple(part for part, _ in parts)
        below = frozenset(layout for _, own in parts for layout in own)
        profiles = [part for part in inputs if isinstance(part, ProfileFiles)]
        node = known.get(_node_id(key, profiles))
        if group is None and len(profiles) == len(inputs) and node is not None and _still(held, node, below):
            used.append(node)
            return node.files, below
        return _Merge(key, inputs, group), below

    roots: list[ProfileFiles | _Merge] = [
        planned(merge_tree([(key_position(child.key), child) for child in group.children], FAN_IN), group.key, group)[0]
        for group in groups
    ]
    done: dict[str, _Merged] = {}
    columns = len(held.wanted.leaves)
    function = partial(_run, store, held.wanted)
    while any(isinstance(root, _Merge) for root in roots):
        waiting = [root for root in roots if isinstance(root, _Merge)]
        inputs = sum(root.weight for root in waiting)
        limit = (
            inputs if engine.merges_here(columns * inputs) else max(_INPUTS_PER_TASK, inputs // (4 * engine.slots()))
        )
        units = [unit for root in waiting for unit in _units(root, limit)]
        tasks = [replace(unit, number=number) for number, unit in enumerate(units)]
        outcome: dict[int, ProfileFiles] = {}
        for result in engine.merge(function, tasks, [columns * task.weight for task in tasks]):
            unit = units[result.number]
            outcome[id(unit)] = result.files
            used += result.nodes
            if unit.group is not None:
                done[unit.group_key] = result
        roots = [_with_results(root, outcome) for root in waiting]
    return done, used


def _units(merge: _Merge, limit: int) -> list[_Merge]:
    """The merges that one task each is for: as high up as inputs of that number allow."""
    parts = [part for part in merge.inputs if isinstance(part, _Merge)]
    if merge.weight <= limit or not parts:
        return [merge]
    return [unit for part in parts for unit in _units(part, limit)]


def _with_results(merge: ProfileFiles | _Merge, outcome: Mapping[int, ProfileFiles]) -> ProfileFiles | _Merge:
    if isinstance(merge, ProfileFiles):
        return merge
    if id(merge) in outcome:
        return outcome[id(merge)]
    return replace(merge, inputs=tuple(_with_results(part, outcome) for part in merge.inputs))


def _still(held: Held, node: NodeEntry, below: frozenset[str]) -> bool:
    """Whether a node that was made under its layout, of profiles that were made under those below, is what is wanted:
    columns that it does not have must be missing from all of them."""
    missing = held.missing(node.layout)
    return held.equals(node.layout) and all(missing <= held.missing(layout) for layout in below)


def _node_id(group_key: str, members: Sequence[ProfileFiles]) -> str:
    names = "\0".join(map(_name, members))
    return f"{group_key}:{hashlib.blake2b(names.encode(), digest_size=16).hexdigest()}"


def _name(files: ProfileFiles) -> str:
    """The file that tells a profile from all others."""
    return files.statistics or files.states


def _run(store: ObjectStore, layout: Layout, merge: _Merge) -> _Merged:
    """Merge a branch, all that is below first. Runs in a worker process."""
    nodes: list[NodeEntry] = []
    row_count, states, names = _states(store, layout, merge, nodes)
    group = merge.group
    if group is None:
        files = write_states(store, "nodes", layout, row_count, states)
        nodes.append(NodeEntry(_node_id(merge.group_key, names), files, layout.id))
        return _Merged(merge.number, files, nodes)
    rows = _rows(layout, states)
    wanted = {position: row.distinct_count or 0 for position, row in enumerate(rows) if row.frequencies == "listed"}
    sums = _sums(store, layout, group, wanted)
    if any(one.positions for one in sums):
        files = write_states(store, group.folder, layout, row_count, states)
        return _Merged(merge.number, files, nodes, sums)
    histograms = histograms_of_states(states)
    files = write_profile(store, group.folder, layout, row_count, rows, histograms, (), states=group.is_merged_on)
    return _Merged(merge.number, files, nodes)


def _states(
    store: ObjectStore, layout: Layout, merge: _Merge, nodes: list[NodeEntry]
) -> tuple[int, pa.Table, list[ProfileFiles]]:
    """Row count and states of a merge, and the files of its inputs; writes those that other merges result in."""
    row_count, tables, names = 0, [], []
    for part in merge.inputs:
        if isinstance(part, _Merge):
            rows, table, below = _states(store, layout, part, nodes)
            names.append(write_states(store, "nodes", layout, rows, table))
            nodes.append(NodeEntry(_node_id(part.group_key, below), names[-1], layout.id))
        else:
            rows, table = read_states(store, part, layout)
            names.append(part)
        row_count += rows
        tables.append(table)
    if not tables:
        rows_ = [all_null_statistics(leaf, 0, policy) for leaf, policy in layout.leaves]
        return 0, states_table(rows_, [None] * len(rows_), layout_union(layout)), names
    return row_count, merge_states(tables, [leaf.path for leaf, _ in layout.leaves]), names


def _rows(layout: Layout, states: pa.Table) -> list[ColumnStatistics]:
    """The statistics that states amount to, under the names of now."""
    labels = [(leaf.path, type_text(leaf.type)) for leaf, _ in layout.leaves]
    return [
        as_named(completed(row), position, leaf)
        for position, (row, (leaf, _)) in enumerate(zip(state_rows(states, labels), layout.leaves, strict=True))
    ]


def _sums(store: ObjectStore, layout: Layout, group: Group, wanted: Mapping[int, int]) -> tuple[FrequencySum, ...]:
    """How to sum the wanted columns of a group: from the former sum where that is less to read, else from scratch.

    `wanted` gives by position about how many values there are.
    """
    whole = tuple((child.files, 1) for child in group.children)
    before = {child.files for child in group.former.children} if group.former else set()
    after = {child.files for child in group.children}
    change = [(files, 1) for files in after - before] + [(files, -1) for files in before - after]
    if group.former is None or len(change) + 1 >= len(whole):
        return (FrequencySum(0, tuple(wanted), whole, sum(wanted.values())),)
    change.sort(key=lambda term: (term[1], _name(term[0])))
    with FrequencyReader(store, group.former.files) as reader:
        listed = {
            position: reader.row_count(field_id)
            for position in wanted
            if (field_id := layout.leaves[position][0].field_id) in reader.listed
            or layout.owners[field_id] in group.former.without
        }
    others = {position: rows for position, rows in wanted.items() if position not in listed}
    return (
        FrequencySum(0, tuple(listed), ((group.former.files, 1), *change), sum(listed.values())),
        FrequencySum(0, tuple(others), whole, sum(others.values())),
    )


def _complete(store: ObjectStore, layout: Layout, task: _Completion) -> tuple[str, ProfileFiles]:
    """Write a profile from merged states, with what the full lists say. Runs in a worker process."""
    row_count, states = read_states(store, task.files, layout)
    rows = [
        apply_facts(row, task.summed.facts[position]) if position in task.summed.facts else row
        for position, row in enumerate(_rows(layout, states))
    ]
    frequencies = tuple(name for _, name in task.summed.files)
    group, histograms = task.group, histograms_of_states(states)
    files = write_profile(
        store, group.folder, layout, row_count, rows, histograms, frequencies, states=group.is_merged_on
    )
    return group.key, files


def node_group(node_id: str) -> str:
    """The key of the group that a node is part of."""
    return node_id.rpartition(":")[0]
