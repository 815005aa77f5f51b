"""Reduce profiles to profiles: fragments to partitions, partitions to the table, by the same three steps.

1. Merge what only merges (statistics, sketches, histograms) along a tree of bounded fan-in. A node is named by what
   it merges, so the nodes that a commit did not touch are taken over from the published version.
2. Sum the frequencies of the columns worth listing, in one Spark exchange for all profiles.
3. Put what the full lists say (distinct and duplicate values, percentiles) into the statistics.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from metastore_assets.pipeline.files import FrequencyReader, ProfileWriter, read_states, write_profile, write_states
from metastore_assets.pipeline.frequencies import FrequencySum, SummedColumns, sum_columns
from metastore_assets.pipeline.packed import layout_union
from metastore_assets.pipeline.plan import Layout
from metastore_assets.pipeline.tree import Branch, key_position, merge_tree
from metastore_assets.spark.tasks import parallelism, run_tasks
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.merge import apply_facts, completed, lists_frequencies, merge_states
from metastore_assets.statistics.profile import ColumnProfile, all_null_statistics, value_width
from metastore_assets.statistics.states import histograms_of_states, state_rows, states_table
from metastore_assets.statistics.types import type_text
from metastore_assets.store.manifest import NodeEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAN_IN = 6
"""Most profiles that one merge reads. A branch splits into four; those of 4 to 7 children read the same after a commit,
and 6 makes a quarter fewer nodes than 4, and a third of those of 2, which reads least."""
_UNPACKED_HERE = 4
"""Up to so many profiles are unpacked without asking for Spark."""
_INPUTS_PER_TASK = 64
"""A branch of no more inputs is merged by one task, all the way up: what it merges on the way is not read again."""


@dataclass(frozen=True)
class Child:
    """One profile to be merged."""

    key: str
    """What the profile describes: a fragment id or a partition key."""
    files: ProfileFiles
    same_layout: bool
    """Whether it was made under the current layout, names and order included: a single such child is the result, if it
    is not packed."""


@dataclass(frozen=True)
class Former:
    """The published profile of the same group, made under the same layout."""

    files: ProfileFiles
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
    start_spark: Callable[[], SparkSession],
    store: ObjectStore,
    layout: Layout,
    groups: Sequence[Group],
    known_nodes: Mapping[str, ProfileFiles],
) -> Reduction:
    """Reduce every group; Spark is asked for only when one has something to merge.

    Raises CorruptionError when stored frequencies contradict each other.
    """
    files = {group.key: group.children[0].files for group in groups if _passes_through(group)}
    unpacking = [group for group in groups if group.key not in files and _is_alone(group)]
    merging = [group for group in groups if group.key not in files and not _is_alone(group)]
    unpack = partial(_unpack, store, layout)
    if len(unpacking) <= _UNPACKED_HERE:
        files |= map(unpack, unpacking)
    else:
        files |= run_tasks(start_spark(), unpack, unpacking)
    if not merging:
        return Reduction(files, ())
    spark = start_spark()
    merged, nodes = _merge_all(spark, store, layout, merging, known_nodes)
    numbers = {group.key: number for number, group in enumerate(merging)}
    sums = [
        replace(one, total=numbers[group.key]) for group in merging for one in merged[group.key].sums if one.positions
    ]
    summed = sum_columns(spark, store, merging[0].folder, layout, sums)
    completions = [
        _Completion(group, merged[group.key].files, summed[numbers[group.key]])
        for group in merging
        if numbers[group.key] in summed
    ]
    completed_files = dict(run_tasks(spark, partial(_complete, store, layout), completions))
    # The states that were only a step on the way are named by no version; gone now, they need not wait for it.
    store.delete([path for completion in completions for path in completion.files.paths()])
    for group in merging:
        files[group.key] = completed_files.get(group.key, merged[group.key].files)
    return Reduction(files, tuple(nodes))


def _is_alone(group: Group) -> bool:
    return len(group.children) == 1 and group.children[0].same_layout


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
    spark: SparkSession,
    store: ObjectStore,
    layout: Layout,
    groups: Sequence[Group],
    known: Mapping[str, ProfileFiles],
) -> tuple[dict[str, _Merged], list[NodeEntry]]:
    """The merged groups by key, and all nodes below them: those that are known are taken over, the others computed.

    In rounds: a task merges a branch of a few inputs whole; what is above waits for the next round.
    """
    used: list[NodeEntry] = []

    def planned(branch: Branch[ProfileFiles], key: str, group: Group | None = None) -> ProfileFiles | _Merge:
        inputs = tuple(planned(part, key) if isinstance(part, Branch) else part for part in branch.parts)
        profiles = [part for part in inputs if isinstance(part, ProfileFiles)]
        id_ = _node_id(layout, key, profiles)
        if group is None and len(profiles) == len(inputs) and id_ in known:
            used.append(NodeEntry(id_, known[id_]))
            return known[id_]
        return _Merge(key, inputs, group)

    roots = [
        planned(
            merge_tree([(key_position(child.key), child.files) for child in group.children], FAN_IN), group.key, group
        )
        for group in groups
    ]
    done: dict[str, _Merged] = {}
    function = partial(_run, store, layout)
    while any(isinstance(root, _Merge) for root in roots):
        waiting = [root for root in roots if isinstance(root, _Merge)]
        slots = parallelism(spark)
        limit = max(_INPUTS_PER_TASK, sum(root.weight for root in waiting) // (4 * slots))
        units = [unit for root in waiting for unit in _units(root, limit)]
        tasks = [replace(unit, number=number) for number, unit in enumerate(units)]
        outcome: dict[int, ProfileFiles] = {}
        for result in run_tasks(spark, function, tasks, [float(task.weight) for task in tasks]):
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


def _node_id(layout: Layout, group_key: str, members: Sequence[ProfileFiles]) -> str:
    names = "\0".join([layout.id, *map(_name, members)])
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
        nodes.append(NodeEntry(_node_id(layout, merge.group_key, names), files))
        return _Merged(merge.number, files, nodes)
    rows = _rows(layout, states)
    wanted = {
        position: row.distinct_count or 0
        for position, (row, (_, policy)) in enumerate(zip(rows, layout.leaves, strict=True))
        if lists_frequencies(row, policy)
    }
    sums = _sums(store, layout, group, wanted)
    if any(one.positions for one in sums):
        files = write_states(store, group.folder, layout, row_count, states)
        return _Merged(merge.number, files, nodes, sums)
    # Without the list itself nothing is known of it yet: what is not asked for now is counted only.
    rows = [apply_facts(row, None, listed=False) for row in rows]
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
            nodes.append(NodeEntry(_node_id(layout, part.group_key, below), names[-1]))
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
    """The statistics that states amount to."""
    labels = [(leaf.path, type_text(leaf.type)) for leaf, _ in layout.leaves]
    rows = []
    for row, (leaf, _) in zip(state_rows(states, labels), layout.leaves, strict=True):
        row = completed(row)
        if row.total_bytes is not None and (width := value_width(leaf.type)):
            # Profiles made before the column was widened counted narrower values.
            row = replace(row, total_bytes=row.value_count * width)
        rows.append(row)
    return rows


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
        apply_facts(row, task.summed.facts.get(position), listed=position in task.summed.listed)
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
