"""Reduce profiles to profiles: fragments to partitions, partitions to the table, by the same three steps.

1. Merge what only merges (statistics, sketches, histograms) along a tree of bounded fan-in. A node is named by what
   it merges, so the nodes that a commit did not touch are taken over from the published version.
2. Sum the frequencies of the columns worth listing, in one Spark exchange for all profiles.
3. Put what the full lists say (distinct and duplicate values, percentiles) into the statistics.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from metastore_assets.config import KeptPolicy
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.files import (
    FrequencyReader,
    read_histograms,
    read_statistics,
    write_statistics,
    write_statistics_file,
)
from metastore_assets.pipeline.frequencies import FrequencySum, SummedColumns, sum_columns
from metastore_assets.pipeline.plan import Held, Layout
from metastore_assets.pipeline.tree import Branch, key_position, levels, merge_tree
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.histogram import Histogram, histogram_capacity, limited
from metastore_assets.statistics.leaves import LeafColumn
from metastore_assets.statistics.merge import apply_facts, as_kept, merge_histograms, merge_statistics
from metastore_assets.statistics.naming import as_named
from metastore_assets.statistics.profile import all_null_statistics
from metastore_assets.store.manifest import NodeEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore

FAN_IN = 16
"""Most profiles that one merge reads. After a commit each level of the tree costs so many."""


@dataclass(frozen=True)
class Child:
    """One profile to be merged."""

    key: str
    """What the profile describes: a fragment id or a partition key."""
    files: ProfileFiles
    layout: str
    """Under which the files were made: a key of `Held.layouts`."""
    as_wanted: bool
    """Whether it is what is wanted, no more and no less: a single such child is the result."""


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


@dataclass(frozen=True)
class Reduction:
    """The results, by group key, and the tree nodes they were made with."""

    files: Mapping[str, ProfileFiles]
    nodes: tuple[NodeEntry, ...]


@dataclass(frozen=True)
class _Merge:
    """One merge of the tree: of a node, or (with `group`) of the profile itself."""

    id: str
    folder: str
    inputs: tuple[ProfileFiles, ...]
    group: Group | None = None


@dataclass(frozen=True)
class _Merged:
    id: str
    files: ProfileFiles
    sums: tuple[FrequencySum, ...] = ()


@dataclass(frozen=True)
class _Completion:
    key: str
    files: ProfileFiles
    folder: str
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
    files = {group.key: group.children[0].files for group in groups if _passes_through(group)}
    merging = [group for group in groups if group.key not in files]
    if not merging:
        return Reduction(files, ())
    layout = held.wanted
    roots, nodes = _merge_nodes(engine, store, held, merging, known_nodes)
    merge = partial(_merge, store, layout)
    merged = {result.id: result for result in engine.merge(merge, roots, _columns(layout, roots))}
    numbers = {group.key: number for number, group in enumerate(merging)}
    sums = [
        replace(one, total=numbers[group.key]) for group in merging for one in merged[group.key].sums if one.positions
    ]
    summed = sum_columns(engine, store, merging[0].folder, layout, sums)
    completions = [
        _Completion(group.key, merged[group.key].files, group.folder, summed[number])
        for group, number in zip(merging, range(len(merging)), strict=True)
        if number in summed
    ]
    completed = dict(
        engine.merge(partial(_complete, store, layout), completions, [len(layout.leaves)] * len(completions))
    )
    # The statistics that were only a step on the way are named by no version; gone now, they need not wait for it.
    store.delete([completion.files.statistics for completion in completions])
    for group in merging:
        files[group.key] = completed.get(group.key, merged[group.key].files)
    return Reduction(files, tuple(nodes.values()))


def _passes_through(group: Group) -> bool:
    return len(group.children) == 1 and group.children[0].as_wanted


def _merge_nodes(
    engine: Engine,
    store: ObjectStore,
    held: Held,
    groups: Sequence[Group],
    known: Mapping[str, NodeEntry],
) -> tuple[list[_Merge], dict[str, NodeEntry]]:
    """The last merge of each group, over children or over tree nodes; nodes that are not known are computed.

    Returns also all nodes below, by id. Nodes of one height are computed at once, the lowest first.
    """
    roots = {
        group.key: merge_tree([(key_position(child.key), child) for child in group.children], FAN_IN)
        for group in groups
    }
    by_height: list[list[tuple[Group, Branch[Child]]]] = []
    for group in groups:
        for height, branches in enumerate(levels(roots[group.key])):
            by_height.extend([] for _ in range(len(by_height), height + 1))
            by_height[height] += [(group, branch) for branch in branches]
    used: dict[str, NodeEntry] = {}
    done: dict[int, tuple[ProfileFiles, frozenset[str]]] = {}  # by identity of the branch

    def parts(branch: Branch[Child]) -> list[tuple[ProfileFiles, frozenset[str]]]:
        """Files, and layouts of the children below, of each part."""
        return [
            done[id(part)] if isinstance(part, Branch) else (part.files, frozenset([part.layout]))
            for part in branch.parts
        ]

    def inputs(branch: Branch[Child]) -> tuple[ProfileFiles, ...]:
        return tuple(files for files, _ in parts(branch))

    for level in by_height:
        merges = [(branch, _node(group.key, inputs(branch)), _below(parts(branch))) for group, branch in level]
        missing = [
            merge for _, merge, below in merges if merge.id not in known or not _still(held, known[merge.id], below)
        ]
        computed = engine.merge(partial(_merge, store, held.wanted), missing, _columns(held.wanted, missing))
        new = {result.id: NodeEntry(result.id, result.files, held.wanted.id) for result in computed}
        for branch, merge, below in merges:
            used[merge.id] = new[merge.id] if merge.id in new else known[merge.id]
            done[id(branch)] = used[merge.id].files, below
    return [_Merge(group.key, group.folder, inputs(roots[group.key]), group) for group in groups], used


def _columns(layout: Layout, merges: Sequence[_Merge]) -> list[int]:
    return [len(layout.leaves) * len(merge.inputs) for merge in merges]


def _below(parts: Sequence[tuple[ProfileFiles, frozenset[str]]]) -> frozenset[str]:
    return frozenset(layout for _, own in parts for layout in own)


def _still(held: Held, node: NodeEntry, below: frozenset[str]) -> bool:
    """Whether a node that was made under its layout, of profiles that were made under those below, is what is wanted:
    columns that it does not have must be missing from all of them."""
    missing = held.missing(node.layout)
    return held.equals(node.layout) and all(missing <= held.missing(layout) for layout in below)


def _node(group: str, members: tuple[ProfileFiles, ...]) -> _Merge:
    names = "\0".join(files.statistics for files in members)
    return _Merge(f"{group}:{hashlib.blake2b(names.encode(), digest_size=16).hexdigest()}", "nodes", members)


def _merge(store: ObjectStore, layout: Layout, task: _Merge) -> _Merged:
    """Merge statistics and histograms, column by column. Runs in a worker process."""
    profiles = [read_statistics(store, files) for files in task.inputs]
    row_count = sum(rows for rows, _ in profiles)
    histograms = [
        _by_field_id(read_histograms(store, files), own) for files, (_, own) in zip(task.inputs, profiles, strict=True)
    ]
    statistics: list[ColumnStatistics] = []
    merged_histograms: dict[str, Histogram] = {}
    wanted: list[int] = []
    for position, (leaf, policy) in enumerate(layout.leaves):
        merged = _merge_column(position, leaf, policy, [(rows, own.get(leaf.field_id)) for rows, own in profiles])
        if task.group is not None and merged.frequencies == "listed":
            wanted.append(position)
        statistics.append(merged)
        present = [own[leaf.field_id] for own in histograms if leaf.field_id in own]
        if present and policy.histogram != "off":
            most = histogram_capacity(policy.histogram)
            merged_histograms[leaf.path] = merge_histograms([limited(own, most) for own in present])
    paths = write_statistics(store, task.folder, row_count, statistics, merged_histograms)
    listed = {
        position: sum(
            own[layout.leaves[position][0].field_id].distinct_count or 0
            for _, own in profiles
            if layout.leaves[position][0].field_id in own
        )
        for position in wanted
    }
    sums = _sums(store, layout, task.group, listed) if task.group is not None else ()
    return _Merged(task.id, ProfileFiles(*paths, ()), sums)


def _merge_column(
    position: int, leaf: LeafColumn, policy: KeptPolicy, inputs: Sequence[tuple[int, ColumnStatistics | None]]
) -> ColumnStatistics:
    own = [as_kept(found or all_null_statistics(leaf, rows, policy), policy) for rows, found in inputs]
    merged = merge_statistics(own) if own else all_null_statistics(leaf, 0, policy)
    return as_named(merged, position, leaf)


def _by_field_id(
    histograms: Mapping[str, Histogram], statistics: Mapping[str, ColumnStatistics]
) -> dict[str, Histogram]:
    return {row.field_id: histograms[row.column] for row in statistics.values() if row.column in histograms}


def _sums(store: ObjectStore, layout: Layout, group: Group, wanted: Mapping[int, int]) -> tuple[FrequencySum, ...]:
    """How to sum the wanted columns of a group: from the former sum where that is less to read, else from scratch.

    `wanted` gives by position the number of values that the children list together.
    """
    whole = tuple((child.files, 1) for child in group.children)
    before = {child.files for child in group.former.children} if group.former else set()
    after = {child.files for child in group.children}
    change = [(files, 1) for files in after - before] + [(files, -1) for files in before - after]
    if group.former is None or len(change) + 1 >= len(whole):
        return (FrequencySum(0, tuple(wanted), whole, sum(wanted.values())),)
    change.sort(key=lambda term: (term[1], term[0].statistics))
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
    """Write the statistics again, with what the full lists say. Runs in a worker process."""
    row_count, by_id = read_statistics(store, task.files)
    rows = []
    for position, (leaf, _) in enumerate(layout.leaves):
        row = by_id[leaf.field_id]
        if position in task.summed.facts:
            row = apply_facts(row, task.summed.facts[position])
        rows.append(row)
    path = write_statistics_file(store, f"{task.folder}/{uuid.uuid4().hex}.statistics.parquet", row_count, rows)
    return task.key, ProfileFiles(path, task.files.histograms, tuple(name for _, name in task.summed.files))


def node_group(node_id: str) -> str:
    """The key of the group that a node is part of."""
    return node_id.rpartition(":")[0]
