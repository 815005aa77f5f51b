"""Writing sections of files of states anew: where most of their neighbours are of no use any more, or their lists are.

A section keeps its name when it moves, so nothing that was merged from it changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.config import ResolvedPolicy
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.merging.merges import node_group
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_reader import StatesReader, list_at, sound
from metastore_assets.pipeline.profiles.states_writer import (
    LISTS,
    MEMBERSHIP,
    PRINTS,
    SECTION,
    StatesWriter,
    print_arrays,
)
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.column_profiler import profile_frequencies
from metastore_assets.statistics.finalize import restrict_to_policy
from metastore_assets.statistics.fingerprints import FingerprintCounts, fingerprint_frequencies
from metastore_assets.statistics.histogram import Histogram, decode_histograms
from metastore_assets.statistics.states import (
    SKETCH_COLUMNS,
    STATE_COLUMNS,
    build_states_table,
    read_state_rows,
)
from metastore_assets.statistics.union import cast_to_union, merge_unions
from metastore_assets.statistics.user_defined.states import compute_states
from metastore_assets.statistics.value_filter import build_filter_of_frequencies
from metastore_assets.store.manifest import FragmentEntry, NodeEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.leaf_columns import LeafColumn
from metastore_assets.values.types import type_text

Entry = TypeVar("Entry", FragmentEntry, NodeEntry)

_SECTIONS = 128
"""Most sections of a file that gathers what is left of others."""
_WORTHLESS_LIST = 32
"""A list of no more values stays when the column is estimated: it is smaller than what would follow from it."""


@dataclass(frozen=True)
class _Task:
    """Sections that become one file."""

    folder: str
    files: tuple[ProfileFiles, ...]
    """Where they are; all of one partition, or nodes of one group."""
    turned: Mapping[str, tuple[LeafColumn, ResolvedPolicy]] = field(default_factory=dict)
    """By field id, columns whose lists are left out."""


@dataclass(frozen=True)
class _Outcome:
    files: tuple[ProfileFiles, ...]
    """Where they are now."""
    unlisted: Mapping[str, tuple[str, ...]]
    """By name of the section, field ids of the columns whose lists were left out."""


def compact_segments(
    engine: Engine,
    store: ObjectStore,
    columns: int,
    fragments: Sequence[FragmentEntry],
    nodes: Sequence[NodeEntry],
    least_share: float = 0.5,
    most_waste: float = 0.25,
) -> tuple[list[FragmentEntry], list[NodeEntry]]:
    """All entries of the next version, of which those lie elsewhere whose file has less than that share of its sections
    left: once such files of a group (a partition, or the nodes of one merge) have more than `most_waste` of what is in
    use of no use, as otherwise every commit would write anew what little the last ones left.

    So files take at most a little over twice the room of what is in use. Raises CorruptionError.
    """
    tasks = [
        *_sparse("fragments", fragments, lambda entry: entry.partition_key, least_share, most_waste),
        *_sparse("nodes", nodes, lambda entry: node_group(entry.id), least_share, most_waste),
    ]
    if not tasks:
        return list(fragments), list(nodes)
    outcomes = engine.merge(partial(_rewrite, store), tasks, [columns * len(task.files) for task in tasks])
    moved = {files.name: files for outcome in outcomes for files in outcome.files}
    return _moved(fragments, moved), _moved(nodes, moved)


def drop_value_counts(
    engine: Engine, store: ObjectStore, asked: ProfileSpec, decided: ProfileSpec, fragments: Mapping[str, FragmentEntry]
) -> dict[str, FragmentEntry]:
    """The fragments, by id, without the lists of the columns that it was just decided to estimate, or to keep
    fingerprints of.

    `asked` is the spec before that, `decided` the one after. Lists are what takes most room of small fragments, of
    which only the whole table shows that their values hardly repeat. Fingerprints follow from lists: where the former
    profile spec had decided for these, they stay. Raises CorruptionError.
    """
    before = {leaf.field_id: policy for leaf, policy in asked.leaves}
    turned = {
        leaf.field_id: (leaf, policy)
        for leaf, policy in decided.leaves
        if (policy.frequencies == "estimated" and before[leaf.field_id].frequencies != "estimated")
        or (policy.is_fingerprinted and before[leaf.field_id].is_undecided)
    }
    by_path: dict[str, list[ProfileFiles]] = {}
    settled: set[str] = set()
    for entry in fragments.values() if turned else ():
        if entry.files.is_packed and not turned.keys() <= set(entry.unlisted):
            by_path.setdefault(entry.files.states, []).append(entry.files)
            settled |= {entry.files.states} if entry.spec_id != asked.id else set()
    estimated = {field_id: own for field_id, own in turned.items() if not own[1].is_fingerprinted}
    tasks = [
        _Task("fragments", tuple(own), estimated if path in settled else turned)
        for path, own in by_path.items()
        if estimated or path not in settled
    ]
    weights = [len(decided.leaves) * len(task.files) for task in tasks]
    outcomes = engine.merge(partial(_rewrite, store), tasks, weights)
    moved = {files.name: files for outcome in outcomes for files in outcome.files}
    unlisted = {name: leaves for outcome in outcomes for name, leaves in outcome.unlisted.items()}
    return {
        id_: replace(
            entry,
            files=moved[entry.files.name],
            unlisted=tuple(sorted({*entry.unlisted, *unlisted[entry.files.name]})),
        )
        if entry.files.name in moved
        else entry
        for id_, entry in fragments.items()
    }


def _sparse(
    folder: str, entries: Sequence[Entry], group: Callable[[Entry], str], least_share: float, most_waste: float
) -> Iterable[_Task]:
    shared = [entry for entry in entries if entry.files.sections > 1]
    left = Counter(entry.files.states for entry in shared)
    found: dict[str, list[ProfileFiles]] = {}
    in_use: Counter[str] = Counter()
    for entry in shared:
        in_use[group(entry)] += 1
        if left[entry.files.states] < least_share * entry.files.sections:
            found.setdefault(group(entry), []).append(entry.files)
    for name, own in found.items():
        wasted = sum(sections - left[path] for path, sections in {(files.states, files.sections) for files in own})
        if wasted <= most_waste * in_use[name]:
            continue
        own.sort(key=lambda files: files.states)
        for start in range(0, len(own), _SECTIONS):
            yield _Task(folder, tuple(own[start : start + _SECTIONS]))


def _moved(entries: Sequence[Entry], moved: Mapping[str, ProfileFiles]) -> list[Entry]:
    return [replace(entry, files=moved[entry.files.name]) if entry.files.name in moved else entry for entry in entries]


def _rewrite(store: ObjectStore, task: _Task) -> _Outcome:
    """Copy sections to a new file, without the lists of some columns. May run in a worker process."""
    turned = task.turned
    wanted: dict[str, set[str]] = {}
    for files in task.files:
        wanted.setdefault(files.states, set()).add(files.section)
    unlisted: dict[str, list[str]] = {files.name: [] for files in task.files}
    with StatesReader(store) as opened:
        schemas = [opened.schema(path) for path in wanted]
        union = merge_unions(schema.field("minimum").type for schema in schemas)
        lists = LISTS[0] in schemas[0].names
        prints = any(PRINTS[0] in schema.names for schema in schemas)
        filters = any(MEMBERSHIP in schema.names for schema in schemas)
        with StatesWriter(store, task.folder, union, lists=lists, prints=prints, filters=filters) as writer:
            for files in task.files:
                writer.begin(0, files.name)  # each row tells the number of rows of its profile
            for path, sections in wanted.items():
                for table in opened.group_tables(path):
                    own = table.filter(pc.is_in(table[SECTION[0]], pa.array(sorted(sections), pa.string())))
                    with sound(store, path):
                        rows = _in_union(own.combine_chunks(), union)
                        writer.add_rows(_without_lists(rows, turned, union, unlisted) if turned else rows)
    return _Outcome(tuple(writer.files), {name: tuple(leaves) for name, leaves in unlisted.items()})


def _in_union(table: pa.Table, union: pa.StructType) -> pa.Table:
    for at, name in enumerate(table.column_names):
        if name in ("minimum", "maximum", "percentiles", LISTS[0]) and table.num_rows:
            values = table[name].chunk(0)
            own = _lists_in_union(values, union) if name == LISTS[0] else cast_to_union(values, union)
            table = table.set_column(at, name, own)
    return table


def _lists_in_union(lists: pa.ListArray, union: pa.StructType) -> pa.ListArray:
    if lists.type.value_type == union:
        return lists
    missing = lists.is_null()
    offsets = pc.add(lists.offsets, 0)  # a copy, for a mask goes with no slice of a buffer
    return pa.ListArray.from_arrays(offsets, cast_to_union(lists.values, union), mask=missing)


def _without_lists(
    table: pa.Table,
    turned: Mapping[str, tuple[LeafColumn, ResolvedPolicy]],
    union: pa.StructType,
    unlisted: Mapping[str, list[str]],
) -> pa.Table:
    """The rows, of which those of some columns have states in place of lists; notes which in `unlisted`."""
    made: list[tuple[ColumnStatistics, Histogram | None]] = []
    prints: list[FingerprintCounts | None] = []
    filters: list[bytes | None] = []
    order = list(range(table.num_rows))
    names = [*SECTION, "field_id", "frequencies", "type_class", "null_count", "distinct_sketch"]
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    lengths = pc.list_value_length(table[LISTS[1]]).to_pylist()
    marks: list[tuple[str, int]] = []
    for at, (section, row_count, field_id, state, cls, null_count, sketch) in enumerate(rows):
        if field_id not in turned or state != "enumerated" or (lengths[at] or 0) <= _WORTHLESS_LIST:
            continue
        leaf, policy = turned[field_id]
        if sketch is None:
            row, histogram = profile_frequencies(leaf, policy, cls, null_count, list_at(table, at))
        else:
            one = table.select([*STATE_COLUMNS, *SKETCH_COLUMNS]).slice(at, 1).combine_chunks()
            (row,) = read_state_rows(one, [(leaf.path, type_text(leaf.type))])
            (histogram,) = decode_histograms(one)
            row = replace(row, user_states=compute_states(policy, cls, list_at(table, at)))
        unlisted[section].append(field_id)
        order[at] = table.num_rows + len(made)
        made.append((restrict_to_policy(row, policy), histogram))
        prints.append(fingerprint_frequencies(list_at(table, at)) if policy.is_fingerprinted else None)
        filters.append(build_filter_of_frequencies(list_at(table, at)) if policy.has_value_filter else None)
        marks.append((section, row_count))
    if not made:
        return table
    own = build_states_table([row for row, _ in made], [histogram for _, histogram in made], union)
    for at, (name, values) in enumerate(zip(SECTION, zip(*marks, strict=True), strict=True)):
        own = own.add_column(at, name, pa.array(values))
    for name in LISTS:
        own = own.append_column(name, pa.nulls(len(made), table[name].type))
    if PRINTS[0] in table.column_names:
        for name, array in zip(PRINTS, print_arrays(prints), strict=True):
            own = own.append_column(name, array)
    if MEMBERSHIP in table.column_names:
        own = own.append_column(MEMBERSHIP, pa.array(filters, pa.binary()))
    return pa.concat_tables([table, own.cast(table.schema)]).take(pa.array(order, pa.int64())).combine_chunks()
