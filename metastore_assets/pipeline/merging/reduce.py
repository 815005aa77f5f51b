"""Reduce profiles to profiles: fragments to partitions, partitions to the table, by the same three steps.

1. Merge what only merges (statistics, sketches, histograms) along a tree of bounded fan-in. A node is named by what
   it merges, so the nodes that a commit did not touch are taken over from the published version.
2. Sum the frequencies of the columns worth listing, in one Spark exchange for all profiles.
3. Put what the full lists say (distinct and duplicate values, percentiles) into the statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.merging.merges import (
    Child,
    Group,
    Merge,
    NodeFiles,
    merged_states,
    node_id,
    planned_merge,
    units,
    with_results,
)
from metastore_assets.pipeline.profile_spec import ProfileSpec, SpecCompatibility
from metastore_assets.pipeline.profiles.files import ProfileWriter, write_profile, write_states
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.pipeline.profiles.stored_states import read_states
from metastore_assets.pipeline.value_counts.frequencies import SummedColumns, sum_columns
from metastore_assets.pipeline.value_counts.frequency_sums import FrequencySum
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.current_schema import apply_schema
from metastore_assets.statistics.finalize import apply_summary, finalize_statistics
from metastore_assets.statistics.frequencies import FrequencySummary
from metastore_assets.statistics.histogram import Histogram, decode_histograms
from metastore_assets.statistics.profile import ColumnProfile
from metastore_assets.statistics.states import read_state_rows
from metastore_assets.statistics.user_defined.finalize import add_user_results
from metastore_assets.store.manifest import NodeEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.types import type_text

_ONE_LIST = 2_000
"""Listed values that are summed in the time that it takes to come by one list of a column."""
_INPUTS_PER_TASK = 64
"""A branch of no more inputs is merged by one task, all the way up: what it merges on the way is not read again."""


@dataclass(frozen=True)
class Reduction:
    """The results, by group key, and the tree nodes they were made with."""

    files: Mapping[str, ProfileFiles]
    nodes: tuple[NodeEntry, ...]


@dataclass(frozen=True)
class _Unlisted:
    """A merged profile without what lists tell, in memory."""

    row_count: int
    rows: Sequence[ColumnStatistics]
    histograms: Sequence[Histogram | None]


@dataclass
class _Merged:
    number: int
    files: ProfileFiles | _Unlisted
    """Of a root with lists or sums it is only a step on the way."""
    nodes: list[NodeEntry] = field(default_factory=list)
    """Of all the merges of the task but the root."""
    sums: tuple[FrequencySum, ...] = ()
    """Of a root: what is left to sum."""
    listed: Mapping[int, int] = field(default_factory=dict)
    """Of a root without lists of its own: by position of the columns listed, about how many values they have."""


@dataclass(frozen=True)
class _Completion:
    group: Group
    files: ProfileFiles | _Unlisted
    summed: SummedColumns


TellLists: TypeAlias = Callable[[Sequence[ProfileFiles], Mapping[int, int]], Mapping[int, FrequencySummary]]
"""Given the profiles that a group is made of, and by position of the columns listed about how many values they have,
says what the table's lists tell of these columns."""


def reduce_groups(
    engine: Engine,
    store: ObjectStore,
    held: SpecCompatibility,
    groups: Sequence[Group],
    known_nodes: Mapping[str, NodeEntry],
    lists: TellLists,
) -> Reduction:
    """Reduce every group to what `held` wants; Spark is asked for only when there is much to merge. `lists` is asked
    for groups without lists of their own.

    Raises CorruptionError when stored frequencies contradict each other.
    """
    spec, columns = held.wanted, len(held.wanted.leaves)
    printed = any(policy.is_fingerprinted for _, policy in spec.leaves)
    alone = [group for group in groups if _is_alone(group) and not (printed and not group.is_merged_on)]
    files = {group.key: group.children[0].files for group in alone if not group.children[0].files.is_packed}
    unpacking = [group for group in alone if group.key not in files]
    merging = [group for group in groups if group not in alone]
    files |= engine.merge(partial(_unpack, store, spec), unpacking, [columns] * len(unpacking))
    if not merging:
        return Reduction(files, ())
    merged, nodes = _merge_all(engine, store, held, merging, known_nodes)
    numbers = {group.key: number for number, group in enumerate(merging)}
    sums = [
        replace(one, total=numbers[group.key]) for group in merging for one in merged[group.key].sums if one.positions
    ]
    summed = sum_columns(engine, store, merging[0].folder, spec, sums)
    for group in merging:
        if listed := merged[group.key].listed:
            told = lists([child.files for child in group.children], listed)
            summed[numbers[group.key]] = SummedColumns(dict(told))
    completions = [
        _Completion(group, merged[group.key].files, summed[numbers[group.key]])
        for group in merging
        if numbers[group.key] in summed
    ]
    steps = {own.group.key: own.files for own in completions if isinstance(own.files, ProfileFiles)}
    complete = partial(_complete, store, spec)
    files |= {key: own.files for key, own in merged.items() if isinstance(own.files, ProfileFiles)}
    files |= dict(complete(own) for own in completions if own.group.key not in steps)
    files |= engine.merge(complete, [own for own in completions if own.group.key in steps], [columns] * len(steps))
    # The states that were only a step on the way are named by no version; gone now, they need not wait for it.
    store.delete([path for own in steps.values() for path in own.paths()])
    return Reduction(files, tuple(nodes))


def _is_alone(group: Group) -> bool:
    return len(group.children) == 1 and group.children[0].as_wanted


def _unpack(store: ObjectStore, spec: ProfileSpec, group: Group) -> tuple[str, ProfileFiles]:
    """Write the profile of a single fragment, that was packed, for people to read. May run in a worker process."""
    packed = group.children[0].files
    with StatesReader(store) as opened, FrequencyReader(opened, packed) as lists:
        row_count, states = read_states(opened, packed, spec)
        with ProfileWriter(store, group.folder, spec, row_count) as writer:
            rows = zip(_rows(spec, states), spec.leaves, decode_histograms(states), strict=True)
            for row, (_, policy), histogram in rows:
                frequencies = lists.read(row.field_id) if row.frequencies == "enumerated" else None
                if policy.statistics and frequencies is not None:
                    row = add_user_results(row, policy, frequencies)
                writer.add(ColumnProfile(row, frequencies, histogram))
    return group.key, writer.files


def _merge_all(
    engine: Engine,
    store: ObjectStore,
    held: SpecCompatibility,
    groups: Sequence[Group],
    known: Mapping[str, NodeEntry],
) -> tuple[dict[str, _Merged], list[NodeEntry]]:
    """The merged groups by key, and all nodes below them: those that are known are taken over, the others computed.

    In rounds: a task merges a branch of a few inputs whole; what is above waits for the next round.
    """
    used: list[NodeEntry] = []
    roots = [planned_merge(held, group, known, used) for group in groups]
    done: dict[str, _Merged] = {}
    columns = len(held.wanted.leaves)
    while waiting := [root for root in roots if isinstance(root, Merge)]:
        inputs = sum(root.weight for root in waiting)
        here = engine.merges_here(columns * inputs)
        limit = inputs if here else max(_INPUTS_PER_TASK, inputs // (4 * engine.slots()))
        own = [unit for root in waiting for unit in units(root, limit)]
        tasks = [replace(unit, number=number) for number, unit in enumerate(own)]
        outcome: dict[int, ProfileFiles] = {}
        function = partial(_run, store, held.wanted, here)
        for result in engine.merge(function, tasks, [columns * task.weight for task in tasks]):
            unit = own[result.number]
            used += result.nodes
            if unit.group is not None:
                done[unit.group_key] = result
            elif isinstance(result.files, ProfileFiles):
                outcome[id(unit)] = result.files
        roots = [with_results(root, outcome) for root in waiting if root.group_key not in done]
    return done, used


def _run(store: ObjectStore, spec: ProfileSpec, here: bool, merge: Merge) -> _Merged:
    """Merge a branch, all that is below first. Runs in a worker process, if not `here`."""
    nodes = NodeFiles(store, spec)
    with StatesReader(store) as opened:
        row_count, states, names = merged_states(opened, spec, merge, nodes)
    group = merge.group
    if group is None:
        nodes.add(node_id(merge.group_key, names), row_count, states)
        entries = nodes.finish()
        (files,) = (entry.files for entry in entries if entry.id == node_id(merge.group_key, names))
        return _Merged(merge.number, files, entries)
    entries = nodes.finish()
    rows = _rows(spec, states)
    # The table's lists alone tell what is repeated.
    asked = ("enumerated",) if group.is_merged_on else ("enumerated", "repeated")
    wanted = {position: row.distinct_count or 0 for position, row in enumerate(rows) if row.frequencies in asked}
    sums = _sums(store, spec, group, wanted) if group.has_lists else ()
    if any(one.positions for one in sums) or (wanted and not group.has_lists):
        step = (
            _Unlisted(row_count, rows, decode_histograms(states))
            if here
            else write_states(store, group.folder, spec, row_count, states)
        )
        return _Merged(merge.number, step, entries, sums, {} if group.has_lists else wanted)
    histograms = decode_histograms(states)
    files = write_profile(store, group.folder, spec, row_count, rows, histograms, (), states=group.is_merged_on)
    return _Merged(merge.number, files, entries)


def _rows(spec: ProfileSpec, states: pa.Table) -> list[ColumnStatistics]:
    """The statistics that states amount to, under the names of now."""
    labels = [(leaf.path, type_text(leaf.type)) for leaf, _ in spec.leaves]
    return [
        apply_schema(add_user_results(finalize_statistics(row), policy), position, leaf)
        for position, (row, (leaf, policy)) in enumerate(zip(read_state_rows(states, labels), spec.leaves, strict=True))
    ]


def _sums(store: ObjectStore, spec: ProfileSpec, group: Group, wanted: Mapping[int, int]) -> tuple[FrequencySum, ...]:
    """How to sum the wanted columns of a group: from the former sum where that is less to read, else from scratch.

    `wanted` gives by position about how many values there are.
    """
    # Neighbours in the same file, so that few tasks read it.
    whole = tuple((child.files, 1) for child in sorted(group.children, key=lambda child: child.files.states))
    anew = (FrequencySum(0, tuple(wanted), whole, sum(wanted.values())),)
    if group.former is None:
        return anew
    before = {child.files.name: child for child in group.former.children}
    after = {child.files.name: child for child in group.children}
    came = [after[name] for name in sorted(after.keys() - before.keys())]
    went = [before[name] for name in sorted(before.keys() - after.keys())]
    if not before.keys() & after.keys():
        return anew  # whatever the former files are like: they may be damaged, and all be read again for that
    with StatesReader(store) as opened, FrequencyReader(opened, group.former.files) as reader:
        listed = {
            position: reader.row_count(field_id)
            for position in wanted
            if (field_id := spec.leaves[position][0].field_id) in reader.listed
            or spec.owners[field_id] in group.former.without
        }
    # Of each list it is known that it has no more values than its profile has rows, and than there are in all.
    most = np.array([max(wanted[position], rows) for position, rows in listed.items()])
    changed = sum(listed.values()) + _ONE_LIST * len(listed) + _values(came, most) + _values(went, most)
    if changed >= _values(group.children, most):
        return anew
    others = {position: rows for position, rows in wanted.items() if position not in listed}
    terms = ((group.former.files, 1), *((child.files, 1) for child in came), *((child.files, -1) for child in went))
    return (
        FrequencySum(0, tuple(listed), terms, sum(listed.values())),
        FrequencySum(0, tuple(others), whole, sum(others.values())),
    )


def _values(children: Sequence[Child], most: npt.NDArray[np.int64]) -> int:
    """About how much it takes to sum the lists of some columns, in values; `most`: values of each column."""
    rows = np.array([child.row_count for child in children], np.int64)
    return int(np.minimum.outer(rows, most).sum()) + _ONE_LIST * len(rows) * len(most)


def _complete(store: ObjectStore, spec: ProfileSpec, task: _Completion) -> tuple[str, ProfileFiles]:
    """Write a merged profile, with what the full lists say. Runs in a worker process."""
    own, told, group = task.files, task.summed.facts, task.group
    if isinstance(own, ProfileFiles):
        with StatesReader(store) as opened:
            row_count, states = read_states(opened, own, spec)
        own = _Unlisted(row_count, _rows(spec, states), decode_histograms(states))
    rows = [apply_summary(row, told[position]) if position in told else row for position, row in enumerate(own.rows)]
    frequencies = tuple(name for _, name in task.summed.files)
    files = write_profile(
        store, group.folder, spec, own.row_count, rows, own.histograms, frequencies, states=group.is_merged_on
    )
    return group.key, files
