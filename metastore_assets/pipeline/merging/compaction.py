"""Copies of profiles to new files, which compact files with several profiles, or drop value counts.

A profile is the statistics of a set of rows. A file with several profiles has a section for each of them. A profile is
used if an entry of the version references it. Compaction copies the used profiles of sparse files, in which too few
profiles are used. `drop_value_counts` copies profiles without value counts that are not needed. A copied profile
retains its name, so profiles that were merged from it stay valid.

A fragment is a data file with its deletes. The profiles of fragments, nodes and retired fragments share files. A node
is a stored intermediate result of a merge tree, along which the profiles of a partition's fragments, or of all
partitions, are merged. A retired fragment was removed by a recent version, and may be restored. A profile spec says
which statistics a profile has.

A type class is the physical type of values, such as `int64` for int8 to int64. A states file has profiles in mergeable
form. An enumerated column is stored as value counts: its distinct values with their frequencies. A fingerprinted column
is stored as short hashes of its values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.batching import batched
from metastore_assets.config import ResolvedPolicy
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.merging.merge_plan import FAN_IN
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_reader import StatesReader, corruption_guard, value_counts_at
from metastore_assets.pipeline.profiles.states_writer import (
    FINGERPRINT_COLUMNS,
    SECTION_COLUMNS,
    VALUE_COUNT_COLUMNS,
    VALUE_FILTER_COLUMN,
    StatesContent,
    StatesWriter,
    fingerprint_arrays,
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
from metastore_assets.statistics.typed_union import cast_to_union, merge_unions
from metastore_assets.statistics.user_defined.states import compute_states
from metastore_assets.statistics.value_filter import build_filter_of_frequencies
from metastore_assets.store.entries import Entries, StoredEntries
from metastore_assets.store.entry_changes import EntryChanges
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.shared_files import count_profiles
from metastore_assets.store.version import (
    LAST_NODE_BLOCK,
    NODE_BLOCK_DIGITS,
    FragmentEntry,
    NodeEntry,
    ProfileFiles,
    RetiredFragment,
    SharedFileEntry,
    fragment_key,
    node_key_prefix,
    shared_file_key,
)
from metastore_assets.values.columns import Column
from metastore_assets.values.types import type_text

Entry = TypeVar("Entry", FragmentEntry, NodeEntry)

MAX_SECTIONS = 128
"""Maximum number of profiles in a file that compaction writes."""
_WINDOW_CHILDREN = 500
"""Approximate number of children of the table's tree that have their nodes in one window (see `table_node_window`)."""
_WINDOW_INTERVAL = 4
"""If a tree has several windows, one version in this many may compact a window."""
_COPIES_PER_MERGE = 10
"""Number of profiles that can be copied in the time of merging one profile."""
_FEW_VALUES = 32
"""Value counts of at most this many values are not dropped: the sketches that replace them would be larger."""


@dataclass(frozen=True)
class SegmentEntries:
    """Some or all entries of fragments, nodes and retired fragments of a version.

    Their profiles may share files.
    """

    fragments: Sequence[FragmentEntry]
    nodes: Sequence[NodeEntry]
    retired_fragments: Sequence[RetiredFragment] = ()


@dataclass(frozen=True)
class SegmentChanges:
    """The changes of the entries of fragments, nodes and retired fragments from one version to the next.

    The profiles of these entries may share files.
    """

    fragments: EntryChanges[FragmentEntry]
    nodes: EntryChanges[NodeEntry]
    retired_fragments: EntryChanges[RetiredFragment]


@dataclass(frozen=True)
class CompactionLimits:
    """The limits that decide which files with several profiles are compacted."""

    min_used_share: float
    """A file is sparse if a smaller share of its profiles is used. Only sparse files are compacted."""
    max_waste: float
    """Sparse files of a group are compacted if they have more than this number of unused profiles for each used profile
    of the group. A group is the fragments of a partition, or the nodes of one merge tree."""


DEFAULT_LIMITS = CompactionLimits(0.5, 0.25)
COMPACT_ALL = CompactionLimits(1, 0)
"""Limits that compact every file with an unused profile."""


@dataclass(frozen=True)
class CopyTask:
    """A task of `run_copies`: profiles to copy to a new file, and columns whose value counts are dropped."""

    folder: str
    files: tuple[ProfileFiles, ...]
    """The profiles to copy. All are fragments of one partition, or nodes of one group."""
    dropped_columns: Mapping[str, tuple[Column, ResolvedPolicy]] = field(default_factory=dict)
    """The columns whose value counts are dropped, by field id, with their policies."""


@dataclass(frozen=True)
class CopyResult:
    """The new files of copied profiles."""

    files: Mapping[str, ProfileFiles]
    """The files of each copy, by name of the profile (`ProfileFiles.name`)."""
    not_enumerated: Mapping[str, tuple[str, ...]]
    """Field ids of the columns whose value counts were dropped, by name of the profile."""


def compact_segments(
    engine: Engine,
    store: ObjectStore,
    columns: int,
    entries: SegmentEntries,
    limits: CompactionLimits = DEFAULT_LIMITS,
) -> SegmentEntries:
    """Copy the used profiles of sparse files to new files, group by group.

    A group is the fragments of a partition, or the nodes of one merge tree. It is skipped if its sparse files have few
    unused profiles, compared with the used profiles of the group. With the default limits, files take little more than
    twice the space of their used profiles.

    Args:
        engine: The engine that copies.
        store: The table's folder.
        columns: Number of columns of the table, to estimate the work.
        entries: The entries of a version.
        limits: The limits that decide which files are compacted.

    Returns:
        All of `entries`. Those of copied profiles name the new files.

    Raises:
        CorruptionError: A file with several profiles is corrupt.
    """
    tasks = [
        *_sparse_files("fragments", [*entries.fragments, *entries.retired_fragments], limits),
        *_sparse_files("nodes", entries.nodes, limits),
    ]
    if not tasks:
        return entries
    copied_files = run_copies(engine, store, columns, tasks).files
    retired_entries = [
        replace(entry, fragment=fragment)
        for entry, fragment in zip(
            entries.retired_fragments,
            _replace_files([entry.fragment for entry in entries.retired_fragments], copied_files),
            strict=True,
        )
    ]
    return SegmentEntries(
        _replace_files(entries.fragments, copied_files), _replace_files(entries.nodes, copied_files), retired_entries
    )


def compact_changes(
    context: RefreshContext,
    columns: int,
    changes: SegmentChanges,
    shared_files: StoredEntries[SharedFileEntry] | None,
    windows: Mapping[str, Sequence[str]],
) -> SegmentChanges:
    """Compact sparse files as `compact_segments` does, in the groups that a commit affects.

    A group is the fragments of a partition, or the nodes of one merge tree. It is affected in two cases:

    - The commit removed or replaced one of its profiles in a file with several profiles.
    - It has a profile in a sparse file, and the commit added or removed any profile in this file.

    Args:
        context: The table, its store and engine.
        columns: Number of columns of the table, to estimate the work.
        changes: The changes of the version's entries.
        shared_files: How many entries of the previous version reference each shared file; None if there is no such
            version.
        windows: {group of nodes: key prefixes of the nodes that may be compacted now}. A group that is missing here has
            no such limit.

    Returns:
        The changes. Entries of copied profiles have new files.

    Raises:
        CorruptionError: A file with several profiles is corrupt.
    """
    tasks, entries = plan_compaction(context.table.name, changes, shared_files, windows)
    if not tasks:
        return changes
    copied_files = run_copies(context.engine, context.objects, columns, tasks).files
    fragments: list[tuple[FragmentEntry, FragmentEntry]] = []
    nodes: list[tuple[NodeEntry, NodeEntry]] = []
    retired_fragments: list[tuple[RetiredFragment, RetiredFragment]] = []
    for entry in entries:
        files = copied_files.get(entry.files.name)
        if files is None:
            continue
        if isinstance(entry, RetiredFragment):
            retired_fragments.append((entry, replace(entry, fragment=replace(entry.fragment, files=files))))
        elif isinstance(entry, FragmentEntry):
            fragments.append((entry, replace(entry, files=files)))
        else:
            nodes.append((entry, replace(entry, files=files)))
    return SegmentChanges(
        changes.fragments.replacing(fragments),
        changes.nodes.replacing(nodes),
        changes.retired_fragments.replacing(retired_fragments),
    )


def plan_compaction(
    table: str,
    changes: SegmentChanges,
    shared_files: StoredEntries[SharedFileEntry] | None,
    windows: Mapping[str, Sequence[str]],
) -> tuple[list[CopyTask], list[FragmentEntry | RetiredFragment | NodeEntry]]:
    """Plan the compaction of sparse files in the groups that a commit affects (see `compact_changes`).

    A group is the fragments of a partition, or the nodes of one merge tree.

    Args:
        table: Name of the table, for messages.
        changes: The changes of the version's entries.
        shared_files: How many entries of the previous version reference each shared file; None if there is no such
            version.
        windows: {group of nodes: key prefixes of the nodes that may be compacted now}. A group that is missing here has
            no such limit.

    Returns:
        (tasks that copy used profiles, entries of affected groups whose profiles are in files with several profiles).
            The entries include those whose profiles are not copied.
    """
    limits = DEFAULT_LIMITS
    counts = count_profiles(table, (changes.fragments, changes.nodes, changes.retired_fragments), shared_files)
    tasks: list[CopyTask] = []
    entries: list[FragmentEntry | RetiredFragment | NodeEntry] = []
    kinds: tuple[tuple[str, Entries[Any], Sequence[EntryChanges[Any]]], ...] = (
        ("fragments", changes.fragments, (changes.fragments, changes.retired_fragments)),
        ("nodes", changes.nodes, (changes.nodes,)),
    )
    for folder, lookup, kind_changes in kinds:
        # Groups to look at: those that lost a profile, and those in a changed file that is sparse now.
        removed_entries = [
            entry for each in kind_changes for entry in each.dropped_entries.values() if entry.files.sections > 1
        ]
        added_entries = [
            entry for each in kind_changes for entry in each.put_entries.values() if entry.files.sections > 1
        ]
        groups = {entry.group for entry in removed_entries}
        for path in {entry.files.states for entry in (*removed_entries, *added_entries)}:
            count = counts.put_entries.get(shared_file_key(path))
            if count is not None and count.references < limits.min_used_share * count.sections:
                groups.update(count.groups)
        # The profiles of these groups that are in files with several profiles.
        prefix = node_key_prefix if folder == "nodes" else partial(fragment_key, path="")
        folder_windows = windows if folder == "nodes" else {}
        prefixes = [each for group in sorted(groups) for each in folder_windows.get(group, (prefix(group),))]
        retired_entries = changes.retired_fragments if groups and folder == "fragments" else ()
        shared_entries = [
            entry
            for entry in (*lookup.find_prefixes(prefixes), *retired_entries)
            if entry.group in groups and entry.files.sections > 1
        ]
        used_files = counts.find_all({shared_file_key(entry.files.states) for entry in shared_entries})
        tasks += _copy_tasks(
            folder, shared_entries, {entry.path: entry.references for entry in used_files.values()}, limits
        )
        entries += shared_entries
    return tasks, entries


def table_node_window(group: str, count: int, number: int) -> tuple[str, ...]:
    """Return the key prefixes of the nodes that a version may compact; () for none.

    Every version may compact all nodes of a small tree. A large tree is divided into windows: nodes whose names begin
    with the same digits. Every fourth version (`_WINDOW_INTERVAL`) may compact one window, and the windows take turns.
    So no version reads all nodes of a large tree.

    Args:
        group: The key of the partition whose fragments the tree merges; `*` for the tree that merges all partitions.
        count: Number of fragments or partitions that the tree merges.
        number: Number of the version that compacts.
    """
    prefix, digit_bits = node_key_prefix(group), FAN_IN.bit_length() - 1
    length = 0
    while length <= NODE_BLOCK_DIGITS and count > _WINDOW_CHILDREN << (length * digit_bits):
        length += 1
    if not length:
        return (prefix,)
    round_number, remainder = divmod(number, _WINDOW_INTERVAL)
    if remainder:
        return ()
    # The nodes of block 0 are the last window. The names of other nodes have at least `length` digits.
    window = round_number % ((1 << length * digit_bits) + 1)
    if window == 1 << length * digit_bits:
        return (f"{prefix}0",)
    digits = np.base_repr(window, 1 << digit_bits).lower().zfill(length)
    return tuple(f"{prefix}{block}{digits}" for block in range(1, LAST_NODE_BLOCK + 1))


def drop_value_counts(
    context: RefreshContext, before: ProfileSpec, resolved_spec: ProfileSpec, fragments: Mapping[str, FragmentEntry]
) -> dict[str, FragmentEntry]:
    """Copy fragment profiles without the value counts of columns that are no longer enumerated.

    The copies have sketches in place of these value counts, and fingerprints of columns that become fingerprinted. Only
    profiles that have just a states file (`is_states_only`) are copied, to new states files. The old files are not
    deleted.

    In three cases, a profile keeps the value counts of such a column:

    - The column has few distinct values in the profile.
    - The column is fingerprinted under `before`. Its fingerprints are derived from the value counts.
    - The column becomes fingerprinted, and the file also has a profile under another spec than `before`.

    Args:
        context: The table, its store and engine.
        before: The profile spec under which the fragments were profiled.
        resolved_spec: The profile spec after the decision which `auto` and `repeated` columns are enumerated.
        fragments: The entries of all fragments, by fragment id.

    Returns:
        The entries of all fragments, by fragment id. If a profile was changed, its entry names the new file, and lists
            in `not_enumerated` the columns without value counts.

    Raises:
        CorruptionError: A profile is corrupt.
    """
    policies_before = {column.field_id: policy for column, policy in before.columns}
    # Columns that became estimated, and undecided columns that became fingerprinted.
    dropped_columns = {
        column.field_id: (column, policy)
        for column, policy in resolved_spec.columns
        if (policy.frequencies == "estimated" and policies_before[column.field_id].frequencies != "estimated")
        or (policy.is_fingerprinted and policies_before[column.field_id].is_undecided)
    }
    files_by_path: dict[str, list[ProfileFiles]] = {}
    other_specs: set[str] = set()
    """Paths of files with at least one profile that was made under another spec than `before`. No value counts in these
    files are replaced by fingerprints."""
    for entry in fragments.values() if dropped_columns else ():
        if entry.files.is_states_only and not dropped_columns.keys() <= set(entry.not_enumerated):
            files_by_path.setdefault(entry.files.states, []).append(entry.files)
            other_specs |= {entry.files.states} if entry.spec_id != before.id else set()
    estimated_columns = {
        field_id: column for field_id, column in dropped_columns.items() if not column[1].is_fingerprinted
    }
    tasks = [
        CopyTask("fragments", tuple(files), estimated_columns if path in other_specs else dropped_columns)
        for path, files in files_by_path.items()
        if estimated_columns or path not in other_specs
    ]
    result = run_copies(context.engine, context.objects, len(resolved_spec.columns), tasks)
    copied_files, not_enumerated = result.files, result.not_enumerated
    return {
        id_: replace(
            entry,
            files=copied_files[entry.files.name],
            not_enumerated=tuple(sorted({*entry.not_enumerated, *not_enumerated[entry.files.name]})),
        )
        if entry.files.name in copied_files
        else entry
        for id_, entry in fragments.items()
    }


def _sparse_files(
    folder: str, entries: Sequence[FragmentEntry | RetiredFragment | NodeEntry], limits: CompactionLimits
) -> Iterable[CopyTask]:
    """Yield the tasks that copy the used profiles out of sparse files.

    A group is the fragments of a partition, or the nodes of one merge tree. It is skipped if its sparse files have few
    unused profiles, compared with the used profiles of the group.

    Args:
        folder: The folder of the new files.
        entries: The entries of all used profiles. Those in files with a single profile are ignored.
        limits: The limits that decide which files are compacted.
    """
    shared_entries = [entry for entry in entries if entry.files.sections > 1]
    yield from _copy_tasks(folder, shared_entries, Counter(entry.files.states for entry in shared_entries), limits)


def _copy_tasks(
    folder: str,
    shared_entries: Iterable[FragmentEntry | RetiredFragment | NodeEntry],
    used_sections: Mapping[str, int],
    limits: CompactionLimits,
) -> Iterable[CopyTask]:
    """Yield the tasks that copy the used profiles out of sparse files: those with too few used profiles.

    A group is the fragments of a partition, or the nodes of one merge tree. It is skipped if its sparse files have few
    unused profiles, compared with the used profiles of the group.

    Args:
        folder: The folder of the new files.
        shared_entries: The entries of used profiles in shared files.
        used_sections: Number of used profiles in each of these files, by path.
        limits: The limits that decide which files are compacted.
    """
    sparse: dict[str, list[ProfileFiles]] = {}
    used_by_group: Counter[str] = Counter()
    for entry in shared_entries:
        used_by_group[entry.group] += 1
        if used_sections[entry.files.states] < limits.min_used_share * entry.files.sections:
            sparse.setdefault(entry.group, []).append(entry.files)
    for key, files in sparse.items():
        paths = {(profile.states, profile.sections) for profile in files}
        unused_sections = sum(sections - used_sections[path] for path, sections in paths)
        if unused_sections <= limits.max_waste * used_by_group[key]:
            continue
        files.sort(key=lambda profile: profile.states)
        yield from (CopyTask(folder, tuple(batch)) for batch in batched(files, MAX_SECTIONS))


def _replace_files(entries: Sequence[Entry], copied_files: Mapping[str, ProfileFiles]) -> list[Entry]:
    return [
        replace(entry, files=copied_files[entry.files.name]) if entry.files.name in copied_files else entry
        for entry in entries
    ]


def run_copies(engine: Engine, store: ObjectStore, columns: int, tasks: Sequence[CopyTask]) -> CopyResult:
    """Copy profiles to new files, one for each task.

    Return the copies of all tasks.

    Args:
        engine: The engine that copies.
        store: The table's folder.
        columns: Number of columns of the table, to estimate the work.
        tasks: The profiles to copy.

    Raises:
        CorruptionError: A file with profiles is corrupt.
    """
    weights = [columns * len(task.files) // _COPIES_PER_MERGE for task in tasks]
    results = engine.merge(partial(_copy_profiles, store), tasks, weights)
    return CopyResult(
        {name: files for result in results for name, files in result.files.items()},
        {name: field_ids for result in results for name, field_ids in result.not_enumerated.items()},
    )


def _copy_profiles(store: ObjectStore, task: CopyTask) -> CopyResult:
    """Copy the profiles of a task to a new file, without the value counts to drop.

    May run in a worker process.
    """
    sections_by_path: dict[str, set[str]] = {}
    for files in task.files:
        sections_by_path.setdefault(files.states, set()).add(files.section)
    not_enumerated: dict[str, list[str]] = {files.name: [] for files in task.files}
    with StatesReader(store) as reader:
        schemas = [reader.schema(path) for path in sections_by_path]
        union = merge_unions(schema.field("minimum").type for schema in schemas)
        content = StatesContent(
            union,
            value_counts=VALUE_COUNT_COLUMNS[0] in schemas[0].names,
            fingerprints=any(FINGERPRINT_COLUMNS[0] in schema.names for schema in schemas),
            value_filters=any(VALUE_FILTER_COLUMN in schema.names for schema in schemas),
        )
        with StatesWriter(store, task.folder, content) as writer:
            for files in task.files:
                writer.begin(0, files.name)  # Each copied row has the row count of its profile.
            for path, sections in sections_by_path.items():
                for table in reader.group_tables(path):
                    rows = table.filter(pc.is_in(table[SECTION_COLUMNS[0]], pa.array(sorted(sections), pa.string())))
                    with corruption_guard(store, path):
                        rows = _cast_values(rows.combine_chunks(), union)
                        writer.add_rows(
                            _replace_value_counts(rows, task.dropped_columns, union, not_enumerated)
                            if task.dropped_columns
                            else rows
                        )
    copied_files = {files.name: files for files in writer.files}
    return CopyResult(copied_files, {name: tuple(field_ids) for name, field_ids in not_enumerated.items()})


def _cast_values(table: pa.Table, union: pa.StructType) -> pa.Table:
    """Cast values in rows of a states file, such as minimums, to another union type.

    A union type is a struct type with a field per type class. `union` has the fields of the rows' type, and may have
    more.
    """
    for at, name in enumerate(table.column_names):
        if name in ("minimum", "maximum", "percentiles", VALUE_COUNT_COLUMNS[0]) and table.num_rows:
            values = table[name].chunk(0)
            cast = _cast_list_values(values, union) if name == VALUE_COUNT_COLUMNS[0] else cast_to_union(values, union)
            table = table.set_column(at, name, cast)
    return table


def _cast_list_values(lists: pa.ListArray, union: pa.StructType) -> pa.ListArray:
    if lists.type.value_type == union:
        return lists
    offsets = pc.add(lists.offsets, 0)  # A copy: Arrow takes no mask with a slice of a buffer.
    return pa.ListArray.from_arrays(offsets, cast_to_union(lists.values, union), mask=lists.is_null())


def _replace_value_counts(
    table: pa.Table,
    dropped_columns: Mapping[str, tuple[Column, ResolvedPolicy]],
    union: pa.StructType,
    not_enumerated: Mapping[str, list[str]],
) -> pa.Table:
    """Return rows of a states file in which sketches or fingerprints replace some columns' value counts.

    A row with at most `_FEW_VALUES` distinct values keeps its value counts.

    Args:
        table: Rows of a states file: one per profile and column.
        dropped_columns: The columns whose value counts are to be replaced, by field id, with their policies.
        union: The struct type of values, with a field per type class.
        not_enumerated: {section name of a profile: list}. For each row that is changed, the field id of the column is
            appended to the list of the profile.
    """
    replacements: list[tuple[ColumnStatistics, Histogram | None]] = []
    fingerprints: list[FingerprintCounts | None] = []
    filters: list[bytes | None] = []
    # Replacements are appended to the table; `order` then selects the rows of the result, in the original order.
    order = list(range(table.num_rows))
    names = [*SECTION_COLUMNS, "field_id", "frequencies", "type_class", "null_count", "distinct_sketch"]
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    lengths = pc.list_value_length(table[VALUE_COUNT_COLUMNS[1]]).to_pylist()
    section_values: list[tuple[str, int]] = []
    for at, (section, row_count, field_id, state, class_name, null_count, sketch) in enumerate(rows):
        if field_id not in dropped_columns or state != "enumerated" or (lengths[at] or 0) <= _FEW_VALUES:
            continue
        column, policy = dropped_columns[field_id]
        frequencies = value_counts_at(table, at)
        # A row without a sketch stores only value counts: all states are computed. Otherwise only user-defined ones.
        if sketch is None:
            row, histogram = profile_frequencies(column, policy, class_name, null_count, frequencies)
        else:
            stored_row = table.select([*STATE_COLUMNS, *SKETCH_COLUMNS]).slice(at, 1).combine_chunks()
            (row,) = read_state_rows(stored_row, [(column.path, type_text(column.type))])
            (histogram,) = decode_histograms(stored_row)
            row = replace(row, user_states=compute_states(policy, class_name, frequencies))
        not_enumerated[section].append(field_id)
        order[at] = table.num_rows + len(replacements)
        replacements.append((restrict_to_policy(row, policy), histogram))
        fingerprints.append(fingerprint_frequencies(frequencies) if policy.is_fingerprinted else None)
        filters.append(build_filter_of_frequencies(frequencies) if policy.has_value_filter else None)
        section_values.append((section, row_count))
    if not replacements:
        return table
    states = build_states_table([row for row, _ in replacements], [histogram for _, histogram in replacements], union)
    for at, (name, values) in enumerate(zip(SECTION_COLUMNS, zip(*section_values, strict=True), strict=True)):
        states = states.add_column(at, name, pa.array(values))
    for name in VALUE_COUNT_COLUMNS:
        states = states.append_column(name, pa.nulls(len(replacements), table[name].type))
    if FINGERPRINT_COLUMNS[0] in table.column_names:
        for name, array in zip(FINGERPRINT_COLUMNS, fingerprint_arrays(fingerprints), strict=True):
            states = states.append_column(name, array)
    if VALUE_FILTER_COLUMN in table.column_names:
        states = states.append_column(VALUE_FILTER_COLUMN, pa.array(filters, pa.binary()))
    return pa.concat_tables([table, states.cast(table.schema)]).take(pa.array(order, pa.int64())).combine_chunks()
