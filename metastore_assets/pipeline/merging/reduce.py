"""Merge the profiles of groups: fragments into partitions, and partitions into the table.

Both merges have the same three steps:

- Merge statistics, sketches and histograms along a tree of bounded fan-in. Intermediate results are stored as nodes.
  The id of a node is a digest of its inputs, so nodes that a commit does not touch are reused from the published
  version.
- Sum the frequencies of the enumerated columns, in one Spark shuffle for all groups.
- Add the statistics that follow from the sums: distinct and duplicate counts, and percentiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.pipeline.merging.merges import (
    Child,
    MergeContext,
    MergeGroup,
    NodeWriter,
    TreeMerge,
    insert_results,
    merge_node_states,
    node_id,
    plan_merge,
    split_into_tasks,
)
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.files import ProfileContent, ProfileWriter, write_profile, write_states
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.pipeline.profiles.stored_states import read_states
from metastore_assets.pipeline.value_counts.frequencies import SummedColumns, sum_columns
from metastore_assets.pipeline.value_counts.frequency_sums import FrequencySum
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.current_schema import apply_schema
from metastore_assets.statistics.finalize import apply_summary, finalize_statistics
from metastore_assets.statistics.histogram import decode_histograms
from metastore_assets.statistics.profile import ColumnProfile
from metastore_assets.statistics.states import read_state_rows
from metastore_assets.statistics.user_defined.finalize import add_user_results
from metastore_assets.store.manifest import NodeEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.types import type_text

_COST_PER_COLUMN = 2_000
"""Cost of reading the value counts of one column of one profile: the number of values that are summed in the same time.
"""
_INPUTS_PER_TASK = 64
"""One task merges a whole branch with at most this many inputs. No intermediate result of the branch is read again."""


@dataclass(frozen=True)
class Reduction:
    """The merged profile of each group, by group key, and the nodes of all trees."""

    files: Mapping[str, ProfileFiles]
    nodes: tuple[NodeEntry, ...]


@dataclass
class _TaskResult:
    """The result of one task: a merged profile, which may still lack its value counts."""

    number: int
    files: ProfileFiles | ProfileContent
    """The merged profile. It lacks its value counts if `sums` has columns, or if `distinct_counts` is not empty."""
    nodes: list[NodeEntry] = field(default_factory=list)
    """The nodes that the task wrote. The root of a tree is no node."""
    sums: tuple[FrequencySum, ...] = ()
    """The value counts to sum next, if the group stores value counts."""
    distinct_counts: Mapping[int, int] = field(default_factory=dict)
    """The approximate number of distinct values of each column whose value counts are those of the table, by position.
    """


@dataclass(frozen=True)
class _Completion:
    """A merged profile that lacks its value counts, and the value counts to add."""

    group: MergeGroup
    files: ProfileFiles | ProfileContent
    summed: SummedColumns


def merge_groups(context: MergeContext, groups: Sequence[MergeGroup]) -> Reduction:
    """Merge the profiles of each group into one profile. Spark is started only if there is much to merge.

    Args:
        context: The objects that merges need.
        groups: The groups.

    Raises:
        CorruptionError: A stored profile is damaged, or stored frequencies contradict each other.
    """
    engine, store, spec = context.engine, context.store, context.spec
    columns = len(spec.leaves)
    has_fingerprints = any(policy.is_fingerprinted for _, policy in spec.leaves)
    single = [group for group in groups if _is_single(group) and not (has_fingerprints and not group.is_input)]
    files = {group.key: group.children[0].files for group in single if not group.children[0].files.is_states_only}
    segment_groups = [group for group in single if group.key not in files]
    merging = [group for group in groups if group not in single]
    files |= engine.merge(partial(_write_separate_files, store, spec), segment_groups, [columns] * len(segment_groups))
    if not merging:
        return Reduction(files, ())
    merged, nodes = _merge_trees(context, merging)
    numbers = {group.key: number for number, group in enumerate(merging)}
    sums = [
        replace(part, profile_number=numbers[group.key])
        for group in merging
        for part in merged[group.key].sums
        if part.positions
    ]
    summed = sum_columns(engine, store, merging[0].folder, spec, sums)
    for group in merging:
        if distinct_counts := merged[group.key].distinct_counts:
            profiles = [(child.key, child.files) for child in group.children]
            summaries = context.summarize_value_counts(profiles.copy, distinct_counts)
            summed[numbers[group.key]] = SummedColumns(dict(summaries))
    completions = [
        _Completion(group, merged[group.key].files, summed[numbers[group.key]])
        for group in merging
        if numbers[group.key] in summed
    ]
    intermediate = {task.group.key: task.files for task in completions if isinstance(task.files, ProfileFiles)}
    complete = partial(_complete, store, spec)
    files |= {key: result.files for key, result in merged.items() if isinstance(result.files, ProfileFiles)}
    files |= dict(complete(task) for task in completions if task.group.key not in intermediate)
    stored = [task for task in completions if task.group.key in intermediate]
    files |= engine.merge(complete, stored, [columns] * len(stored))
    # No version references the intermediate states, so they are removed now instead of when versions expire.
    store.delete([path for profile in intermediate.values() for path in profile.paths()])
    return Reduction(files, tuple(nodes))


def _is_single(group: MergeGroup) -> bool:
    """Return whether a group has only one child, and the child's profile has exactly the wanted outputs."""
    return len(group.children) == 1 and group.children[0].matches_spec


def _write_separate_files(store: ObjectStore, spec: ProfileSpec, group: MergeGroup) -> tuple[str, ProfileFiles]:
    """Copy the profile of a group's only child out of a file with several profiles to separate files.

    May run in a worker process. Returns the group's key and the separate files.
    """
    segment = group.children[0].files
    with StatesReader(store) as states_reader, FrequencyReader(states_reader, segment) as frequency_reader:
        row_count, states = read_states(states_reader, segment, spec)
        with ProfileWriter(store, group.folder, spec, row_count) as writer:
            columns = zip(_finalize(spec, states), spec.leaves, decode_histograms(states), strict=True)
            for row, (_, policy), histogram in columns:
                frequencies = frequency_reader.read(row.field_id) if row.frequencies == "enumerated" else None
                if policy.statistics and frequencies is not None:
                    row = add_user_results(row, policy, frequencies)
                writer.add(ColumnProfile(row, frequencies, histogram))
    return group.key, writer.files


def _merge_trees(context: MergeContext, groups: Sequence[MergeGroup]) -> tuple[dict[str, _TaskResult], list[NodeEntry]]:
    """Merge each group along its tree; return the result of each root by group key, and all other nodes.

    Reusable nodes are not merged again. Other branches are merged in rounds: one task merges a branch with few inputs,
    and the merges above it wait for the next round.
    """
    engine = context.engine
    nodes: list[NodeEntry] = []
    roots = [plan_merge(context, group, nodes) for group in groups]
    done: dict[str, _TaskResult] = {}
    columns = len(context.spec.leaves)
    while waiting := [root for root in roots if isinstance(root, TreeMerge)]:
        inputs = sum(root.weight for root in waiting)
        is_local = engine.merges_here(columns * inputs)
        max_inputs = inputs if is_local else max(_INPUTS_PER_TASK, inputs // (4 * engine.slots()))
        merges = [task for root in waiting for task in split_into_tasks(root, max_inputs)]
        tasks = [replace(merge, number=number) for number, merge in enumerate(merges)]
        results: dict[int, ProfileFiles] = {}
        run = partial(_run, context.store, context.spec, is_local)
        for result in engine.merge(run, tasks, [columns * task.weight for task in tasks]):
            merge = merges[result.number]
            nodes += result.nodes
            if merge.group is not None:
                done[merge.group_key] = result
            elif isinstance(result.files, ProfileFiles):
                results[id(merge)] = result.files
        roots = [insert_results(root, results) for root in waiting if root.group_key not in done]
    return done, nodes


def _run(store: ObjectStore, spec: ProfileSpec, is_local: bool, merge: TreeMerge) -> _TaskResult:
    """Run a merge and all merges below it. May run in a worker process.

    Args:
        store: The table's folder.
        spec: The profile spec of the version.
        is_local: Whether this process runs the task. Then an incomplete profile is returned in memory, not written.
        merge: The merge.
    """
    nodes = NodeWriter(store, spec)
    with StatesReader(store) as reader:
        row_count, states, names = merge_node_states(reader, spec, merge, nodes)
    group = merge.group
    if group is None:
        nodes.add(node_id(merge.group_key, names), row_count, states)
        entries = nodes.finish()
        (files,) = (entry.files for entry in entries if entry.id == node_id(merge.group_key, names))
        return _TaskResult(merge.number, files, entries)
    entries = nodes.finish()
    rows = _finalize(spec, states)
    # Only the table's value counts have the repeated values of columns with the state `repeated`.
    counted_states = ("enumerated",) if group.is_input else ("enumerated", "repeated")
    counted = {
        position: row.distinct_count or 0 for position, row in enumerate(rows) if row.frequencies in counted_states
    }
    sums = _plan_sums(store, spec, group, counted) if group.has_value_counts else ()
    if any(part.positions for part in sums) or (counted and not group.has_value_counts):
        intermediate = (
            ProfileContent(row_count, rows, decode_histograms(states))
            if is_local
            else write_states(store, group.folder, spec, row_count, states)
        )
        return _TaskResult(merge.number, intermediate, entries, sums, {} if group.has_value_counts else counted)
    profile = ProfileContent(row_count, rows, decode_histograms(states))
    files = write_profile(store, group.folder, spec, profile, states=group.is_input)
    return _TaskResult(merge.number, files, entries)


def _finalize(spec: ProfileSpec, states: pa.Table) -> list[ColumnStatistics]:
    """Compute statistics from merged states, with the current names and types of the columns."""
    labels = [(leaf.path, type_text(leaf.type)) for leaf, _ in spec.leaves]
    return [
        apply_schema(add_user_results(finalize_statistics(row), policy), position, leaf)
        for position, (row, (leaf, policy)) in enumerate(zip(read_state_rows(states, labels), spec.leaves, strict=True))
    ]


def _plan_sums(
    store: ObjectStore, spec: ProfileSpec, group: MergeGroup, distinct_counts: Mapping[int, int]
) -> tuple[FrequencySum, ...]:
    """Plan how the value counts of a group are summed.

    The previous result is updated if that reads less than full sums.

    Args:
        store: The table's folder.
        spec: The profile spec of the version.
        group: The group.
        distinct_counts: The columns to sum, by position, with their approximate numbers of distinct values.

    Returns:
        One full sum; or an update, and a full sum of the columns that the previous result does not have.
    """
    # Sorted by file, so that few tasks read each file.
    all_terms = tuple((child.files, 1) for child in sorted(group.children, key=lambda child: child.files.states))
    full_sum = (FrequencySum(0, tuple(distinct_counts), all_terms, sum(distinct_counts.values())),)
    previous = group.previous
    if previous is None:
        return full_sum
    before = {child.files.name: child for child in previous.children}
    after = {child.files.name: child for child in group.children}
    added = [after[name] for name in sorted(after.keys() - before.keys())]
    removed = [before[name] for name in sorted(before.keys() - after.keys())]
    if not before.keys() & after.keys():
        return full_sum  # The previous files are not read: a full refresh may be under way because they are damaged.
    with StatesReader(store) as states_reader, FrequencyReader(states_reader, previous.files) as frequency_reader:
        stored_counts = {
            position: frequency_reader.row_count(field_id)
            for position in distinct_counts
            if (field_id := spec.leaves[position][0].field_id) in frequency_reader.columns
            or spec.column_of_leaf[field_id] in previous.missing_columns
        }
    # A profile has at most as many values of a column as it has rows, and as the column has distinct values.
    max_values = np.array([max(distinct_counts[position], count) for position, count in stored_counts.items()])
    update_cost = (
        sum(stored_counts.values())
        + _COST_PER_COLUMN * len(stored_counts)
        + _sum_cost(added, max_values)
        + _sum_cost(removed, max_values)
    )
    if update_cost >= _sum_cost(group.children, max_values):
        return full_sum
    others = {position: count for position, count in distinct_counts.items() if position not in stored_counts}
    terms = (
        (previous.files, 1),
        *((child.files, 1) for child in added),
        *((child.files, -1) for child in removed),
    )
    return (
        FrequencySum(0, tuple(stored_counts), terms, sum(stored_counts.values())),
        FrequencySum(0, tuple(others), all_terms, sum(others.values())),
    )


def _sum_cost(children: Sequence[Child], max_values: npt.NDArray[np.int64]) -> int:
    """Return the approximate cost of summing some columns of profiles, as a number of values.

    Args:
        children: The profiles.
        max_values: The maximum number of values of each column.
    """
    row_counts = np.array([child.row_count for child in children], np.int64)
    return int(np.minimum.outer(row_counts, max_values).sum()) + _COST_PER_COLUMN * len(row_counts) * len(max_values)


def _complete(store: ObjectStore, spec: ProfileSpec, task: _Completion) -> tuple[str, ProfileFiles]:
    """Add the summed value counts to a merged profile, and write it. May run in a worker process.

    Returns the group's key and the files of the profile.
    """
    merged, summaries, group = task.files, task.summed.summaries, task.group
    if isinstance(merged, ProfileFiles):
        with StatesReader(store) as reader:
            row_count, states = read_states(reader, merged, spec)
        merged = ProfileContent(row_count, _finalize(spec, states), decode_histograms(states))
    rows = [
        apply_summary(row, summaries[position]) if position in summaries else row
        for position, row in enumerate(merged.rows)
    ]
    frequencies = tuple(name for _, name in task.summed.files)
    profile = ProfileContent(merged.row_count, rows, merged.histograms, frequencies)
    return group.key, write_profile(store, group.folder, spec, profile, states=group.is_input)
