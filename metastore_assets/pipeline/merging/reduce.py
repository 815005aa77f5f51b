"""Merging of the profiles of groups: fragments into partitions, and partitions into the table.

A fragment is a data file with its deletes. A profile is the statistics of a fragment, a partition or the table. States
are the mergeable forms of statistics, such as sketches. The value counts of a column are its distinct values with their
frequencies. An enumerated column is one that has them. A fingerprinted column has short hashes of its values instead. A
profile spec says which statistics a profile has.

A group is the profiles that are merged into one. They are called the children of the group. If a group has only one
profile, and it matches the spec, this profile is usually used without a merge. Otherwise a merge has three steps:

- Merge statistics, sketches and histograms along a tree. Intermediate results are stored as nodes, and only nodes above
  changed profiles are merged again.
- Sum the frequencies of the enumerated columns for all groups: in this process if they are few, else in one Spark
  shuffle. For the table and its only partition, the table's value counts are summarized instead.
- Add the statistics that follow from the sums, such as distinct counts and percentiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.pipeline.merging.groups import Child, MergeContext, MergeGroup
from metastore_assets.pipeline.merging.merge_plan import (
    TreeMerge,
    find_group_nodes,
    insert_results,
    plan_merges,
    split_into_tasks,
)
from metastore_assets.pipeline.merging.merges import NodeWriter, merge_node_states
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
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import NodeEntry, ProfileFiles
from metastore_assets.values.types import type_text

_COST_PER_COLUMN = 2_000
"""Cost of reading one column's value counts in one profile: the number of values that are summed in the same time."""
_INPUTS_PER_TASK = 64
"""A branch with at most this many inputs is merged by one task."""


@dataclass(frozen=True)
class Reduction:
    """The merged profile of each group, by group key, and the changes of stored tree nodes."""

    files: Mapping[str, ProfileFiles]
    nodes: tuple[NodeEntry, ...] = ()
    """The nodes that were added or replaced."""
    dropped_nodes: frozenset[str] = frozenset()
    """Keys of the nodes that no tree has any more."""


@dataclass
class _TaskResult:
    """The merged profile that one task computed.

    Its value counts may still be missing.
    """

    number: int
    """Number of the task."""
    files: ProfileFiles | ProfileContent
    """The merged profile, without value counts if `sums` or `distinct_counts` is not empty."""
    nodes: list[NodeEntry] = field(default_factory=list)
    """The entries of the nodes that the task wrote. The root of a tree is none of them."""
    sums: tuple[FrequencySum, ...] = ()
    """The value counts to sum next, if the group stores value counts."""
    distinct_counts: Mapping[int, int] = field(default_factory=dict)
    """{position of a column: approximate number of distinct values}, of the columns to summarize from the table's value
    counts. Empty if the group stores its own value counts."""


@dataclass(frozen=True)
class _SectionCopy:
    """A task for a group with one profile: copy it from a section of a shared file to separate files."""

    group_key: str
    folder: str
    files: ProfileFiles


@dataclass(frozen=True)
class _Completion:
    """A merged profile without value counts, and the value counts to add."""

    group: MergeGroup
    """The group, without its children."""
    files: ProfileFiles | ProfileContent
    summed_columns: SummedColumns


def merge_groups(context: MergeContext, groups: Sequence[MergeGroup]) -> Reduction:
    """Merge the profiles of each group into one profile.

    If a group has only one profile, and it matches the spec, this profile is used without a merge. Exception: a table
    with fingerprinted columns is always merged. Spark is started only if there is much to merge.

    Args:
        context: The objects that merges need.
        groups: The groups.

    Raises:
        CorruptionError: A stored profile is corrupt, or stored frequencies contradict each other.
    """
    engine, store, spec = context.engine, context.store, context.spec
    columns = len(spec.columns)
    has_fingerprints = any(policy.is_fingerprinted for _, policy in spec.columns)
    single = {
        group.key: child.files
        for group in groups
        if (child := _single_child(group)) is not None and not (has_fingerprints and not group.is_input)
    }
    files = {key: profile for key, profile in single.items() if not profile.is_states_only}
    copies = [
        _SectionCopy(group.key, group.folder, single[group.key])
        for group in groups
        if group.key in single and group.key not in files
    ]
    files |= engine.merge(partial(_write_separate_files, store, spec), copies, [columns] * len(copies))
    dropped_nodes = find_group_nodes(context.nodes, single)
    merging = [group for group in groups if group.key not in single]
    if not merging:
        return Reduction(files, dropped_nodes=dropped_nodes)
    root_results, nodes, dropped_branches = _merge_trees(context, merging)
    numbers = {group.key: number for number, group in enumerate(merging)}
    sums = [
        replace(part, profile_number=numbers[group.key])
        for group in merging
        for part in root_results[group.key].sums
        if part.positions
    ]
    summed_columns = sum_columns(engine, store, merging[0].folder, spec, sums)
    for group in merging:
        if distinct_counts := root_results[group.key].distinct_counts:
            summaries = context.summarize_value_counts(partial(_child_profiles, group), distinct_counts)
            summed_columns[numbers[group.key]] = SummedColumns(dict(summaries))
    completions = [
        _Completion(group.without_children(), root_results[group.key].files, summed_columns[numbers[group.key]])
        for group in merging
        if numbers[group.key] in summed_columns
    ]
    intermediate = {task.group.key: task.files for task in completions if isinstance(task.files, ProfileFiles)}
    complete = partial(_complete, store, spec)
    files |= {key: result.files for key, result in root_results.items() if isinstance(result.files, ProfileFiles)}
    files |= dict(complete(task) for task in completions if task.group.key not in intermediate)
    stored_completions = [task for task in completions if task.group.key in intermediate]
    files |= engine.merge(complete, stored_completions, [columns] * len(stored_completions))
    # No version references the intermediate states, so they are removed now instead of when versions expire.
    store.delete([path for profile in intermediate.values() for path in profile.paths()])
    return Reduction(files, tuple(nodes), dropped_nodes | dropped_branches)


def _single_child(group: MergeGroup) -> Child | None:
    """Return the only child of a group, if its profile can be the group's profile without a merge.

    Returns None if the group has several children, or if the child does not match the spec (see `Child.matches_spec`).
    """
    if group.children.count != 1:
        return None
    (child,) = group.children.read_all().values()
    return child if child.matches_spec else None


def _child_profiles(group: MergeGroup) -> list[tuple[str, ProfileFiles]]:
    """Return (key, profile) of all children of a group, by ascending key."""
    return [(key, child.files) for key, child in group.children.read_all().items()]


def _write_separate_files(store: ObjectStore, spec: ProfileSpec, copy: _SectionCopy) -> tuple[str, ProfileFiles]:
    """Copy a group's only profile from a section of a shared file to separate files.

    Returns (key of the group, the separate files). May run in a worker process.
    """
    with StatesReader(store) as states_reader, FrequencyReader(states_reader, copy.files) as frequency_reader:
        row_count, states = read_states(states_reader, copy.files, spec)
        with ProfileWriter(store, copy.folder, spec, row_count) as writer:
            columns = zip(_finalize(spec, states), spec.columns, decode_histograms(states), strict=True)
            for row, (_, policy), histogram in columns:
                frequencies = frequency_reader.read(row.field_id) if row.frequencies == "enumerated" else None
                if policy.statistics and frequencies is not None:
                    row = add_user_results(row, policy, frequencies)
                writer.add(ColumnProfile(row, frequencies, histogram))
    return copy.group_key, writer.files


def _merge_trees(
    context: MergeContext, groups: Sequence[MergeGroup]
) -> tuple[dict[str, _TaskResult], list[NodeEntry], frozenset[str]]:
    """Merge each group along its tree, in rounds.

    Each task of a round merges a subtree with few inputs. In the next round, its result takes the subtree's place.

    Returns:
        ({group key: result of the root}, added and replaced nodes, keys of dropped nodes).
    """
    engine = context.engine
    plans = plan_merges(context, groups)
    nodes = [node for plan in plans for node in plan.put_entries]
    roots: list[ProfileFiles | TreeMerge] = [plan.root for plan in plans]
    root_results: dict[str, _TaskResult] = {}
    columns = len(context.spec.columns)
    while unmerged_roots := [root for root in roots if isinstance(root, TreeMerge)]:
        # One round: each task merges a subtree with few inputs. Its result replaces the subtree in the next round.
        inputs = sum(root.weight for root in unmerged_roots)
        is_local = engine.merges_here(columns * inputs)
        max_inputs = inputs if is_local else max(_INPUTS_PER_TASK, inputs // (4 * engine.slots()))
        merges = [task for root in unmerged_roots for task in split_into_tasks(root, max_inputs)]
        tasks = [replace(merge, number=number) for number, merge in enumerate(merges)]
        results: dict[int, ProfileFiles] = {}
        run = partial(_run, context.store, context.spec, is_local)
        for result in engine.merge(run, tasks, [columns * task.weight for task in tasks]):
            merge = merges[result.number]
            nodes += result.nodes
            if merge.group is not None:
                root_results[merge.group_key] = result
            elif isinstance(result.files, ProfileFiles):
                results[id(merge)] = result.files
        roots = [insert_results(root, results) for root in unmerged_roots if root.group_key not in root_results]
    return root_results, nodes, frozenset().union(*(plan.dropped_keys for plan in plans))


def _run(store: ObjectStore, spec: ProfileSpec, is_local: bool, merge: TreeMerge) -> _TaskResult:
    """Run a merge and all merges below it.

    Return the merged profile, and the entries of the written nodes.

    The profile of a group is incomplete if it needs value counts, which are summed later. Then the result also says
    which columns to sum. May be called in a worker process.

    Args:
        store: The table's folder.
        spec: The profile spec of the version.
        is_local: Whether the process that started the merges also runs this task. An incomplete profile is then
            returned in memory; else it is written to the store.
        merge: The merge.
    """
    nodes = NodeWriter(store, spec)
    with StatesReader(store) as reader:
        row_count, states = merge_node_states(reader, spec, merge, nodes)
    group = merge.group
    if group is None:
        nodes.add(merge, row_count, states)
        entries = nodes.finish()
        (files,) = (entry.files for entry in entries if entry.key == merge.node_key)
        return _TaskResult(merge.number, files, entries)
    entries = nodes.finish()
    rows = _finalize(spec, states)
    # Only the table's value counts have the repeated values of columns with the state `repeated`.
    counted_states = ("enumerated",) if group.is_input else ("enumerated", "repeated")
    distinct_counts = {
        position: row.distinct_count or 0 for position, row in enumerate(rows) if row.frequencies in counted_states
    }
    sums = _plan_sums(store, spec, group, row_count, distinct_counts) if group.has_value_counts else ()
    if any(part.positions for part in sums) or (distinct_counts and not group.has_value_counts):
        intermediate = (
            ProfileContent(row_count, rows, decode_histograms(states))
            if is_local
            else write_states(store, group.folder, spec, row_count, states)
        )
        return _TaskResult(merge.number, intermediate, entries, sums, {} if group.has_value_counts else distinct_counts)
    profile = ProfileContent(row_count, rows, decode_histograms(states))
    files = write_profile(store, group.folder, spec, profile, states=group.is_input)
    return _TaskResult(merge.number, files, entries)


def _finalize(spec: ProfileSpec, states: pa.Table) -> list[ColumnStatistics]:
    """Compute statistics from merged states, such as sketches.

    In the result, columns have the names and types that `spec` gives them.
    """
    labels = [(column.path, type_text(column.type)) for column, _ in spec.columns]
    return [
        apply_schema(add_user_results(finalize_statistics(row), policy), position, column)
        for position, (row, (column, policy)) in enumerate(
            zip(read_state_rows(states, labels), spec.columns, strict=True)
        )
    ]


def _plan_sums(
    store: ObjectStore, spec: ProfileSpec, group: MergeGroup, row_count: int, distinct_counts: Mapping[int, int]
) -> tuple[FrequencySum, ...]:
    """Return the sums that compute the value counts of a group.

    There is one sum over all children, or two sums if that is cheaper. The first of the two applies the changes of
    children to the previous result. The second covers the columns that the previous result lacks, over all children.

    Args:
        store: The table's folder.
        spec: The profile spec of the version.
        group: The group.
        row_count: The number of rows of the group.
        distinct_counts: The columns to sum: {position in the spec: approximate number of distinct values}.
    """
    previous = group.previous
    if previous is None or group.children.is_replaced:
        # The previous files are not read: a full refresh may be under way because they are damaged.
        return (_full_sum(group, distinct_counts),)
    before = {child.files.name: child for child in previous.outdated_children}
    after = {child.files.name: child for child in group.children.changed_children.values()}
    added_children = [after[name] for name in sorted(after.keys() - before.keys())]
    removed_children = [before[name] for name in sorted(before.keys() - after.keys())]
    with StatesReader(store) as states_reader, FrequencyReader(states_reader, previous.files) as frequency_reader:
        stored_counts = {
            position: frequency_reader.distinct_count(field_id)
            for position in distinct_counts
            if (field_id := spec.columns[position][0].field_id) in frequency_reader.columns
            or spec.top_level_ids[field_id] in previous.missing_columns
        }
    # A profile has at most as many values of a column as it has rows, and as the column has distinct values.
    max_values = np.array([max(distinct_counts[position], count) for position, count in stored_counts.items()])
    update_cost = (
        sum(stored_counts.values())
        + _COST_PER_COLUMN * len(stored_counts)
        + _sum_cost([child.row_count for child in (*added_children, *removed_children)], max_values)
    )
    # As if all children had equally many rows.
    count = group.children.count
    if update_cost >= count * _sum_cost([row_count / count], max_values):
        return (_full_sum(group, distinct_counts),)
    others = {position: count for position, count in distinct_counts.items() if position not in stored_counts}
    terms = (
        (previous.files, 1),
        *((child.files, 1) for child in added_children),
        *((child.files, -1) for child in removed_children),
    )
    update = FrequencySum(0, tuple(stored_counts), terms, sum(stored_counts.values()))
    return update, _full_sum(group, others)


def _full_sum(group: MergeGroup, distinct_counts: Mapping[int, int]) -> FrequencySum:
    """Describe the sum of the value counts of all children of a group.

    It is computed later.

    `distinct_counts` has the columns to sum: {position in the profile spec: approximate number of distinct values}.
    """
    # Sorted by file, so that few tasks read each file.
    children = group.children.read_all().values() if distinct_counts else ()
    files = sorted((child.files for child in children), key=lambda files: files.states)
    return FrequencySum(
        0, tuple(distinct_counts), tuple((profile, 1) for profile in files), sum(distinct_counts.values())
    )


def _sum_cost(row_counts: Iterable[float], max_values: npt.NDArray[np.int64]) -> int:
    """Return the approximate cost of summing the value counts of several columns over several profiles.

    The unit is the cost of one value.

    Args:
        row_counts: The number of rows of each profile.
        max_values: For each column, the maximum number of distinct values in any of the profiles.
    """
    rows = np.array(list(row_counts), np.float64)
    return int(np.minimum.outer(rows, max_values).sum()) + _COST_PER_COLUMN * len(rows) * len(max_values)


def _complete(store: ObjectStore, spec: ProfileSpec, task: _Completion) -> tuple[str, ProfileFiles]:
    """Write a merged profile with its value counts.

    Return (key of the group, files). May run in a worker process.
    """
    merged_profile, summaries, group = task.files, task.summed_columns.summaries, task.group
    if isinstance(merged_profile, ProfileFiles):
        with StatesReader(store) as reader:
            row_count, states = read_states(reader, merged_profile, spec)
        merged_profile = ProfileContent(row_count, _finalize(spec, states), decode_histograms(states))
    rows = [
        apply_summary(row, summaries[position]) if position in summaries else row
        for position, row in enumerate(merged_profile.rows)
    ]
    frequencies = tuple(name for _, name in task.summed_columns.files)
    profile = ProfileContent(merged_profile.row_count, rows, merged_profile.histograms, frequencies)
    return group.key, write_profile(store, group.folder, spec, profile, states=group.is_input)
