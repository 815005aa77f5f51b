"""Comparison of a version's files with recomputed files, and a check that all files can be read.

A fragment is a data file with its deletes. A profile is the statistics of a fragment, a partition or the table. An
entry describes one of these in a version. A version is the published statistics of a table at one snapshot.

A version can have two indexes and value filters. The fragment index has bounds, null counts and NaN counts of each
column in each fragment. The partition index has the statistics of all partitions, stored column by column. A value
filter is a set of hash prefixes of a column's values in one fragment.

A node is a stored intermediate result of merging profiles. The nodes of a partition form a tree, and so do those that
merge the partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import CorruptionError, StoreError
from metastore_assets.index import IndexReader
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.fragment_index import class_or_none, index_table, read_rows
from metastore_assets.pipeline.merging.groups import TABLE
from metastore_assets.pipeline.merging.merge_plan import node_branch, tree_shape
from metastore_assets.pipeline.merging.tree import ROOT, Branch, TreeChildren
from metastore_assets.pipeline.partition_index import find_wrong_rows
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.value_counts.plain import (
    plain_file_columns,
    plain_file_differences,
    write_frequencies,
    write_ranks,
)
from metastore_assets.pipeline.value_filters import find_wrong_filters
from metastore_assets.pipeline.verification.profile_differences import (
    Difference,
    ProfileSource,
    by_partition_differences,
    compare_profiles,
    open_profile,
    value_text,
)
from metastore_assets.store.expire import FILES, PATHS, add_files
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.sorted_runs import SortedRuns, subtract
from metastore_assets.store.version import FragmentEntry, NodeEntry, ValueCountFiles, Version
from metastore_assets.store.version_document import stored_entries
from metastore_assets.store.versions import profile_paths, version_file_paths
from metastore_assets.value_counts import TableValueCounts, ValueCountReader, differing_rows, read_value_counts


@dataclass(frozen=True)
class VersionDifference:
    """A difference, with the profile, index or file that has it."""

    level: str
    """What differs: the profile of a `fragment`, a `partition` or the `table`; a `node` (an intermediate result of
    merging); `index` (the row of a fragment or partition); or a `file` that is missing or cannot be read."""
    name: str
    """Name of what differs: the path of a fragment's file, a partition key, the name of the table, the group and the
    branch of a node, or the path of a file below the table's folder."""
    difference: Difference


@dataclass(frozen=True)
class Recomputation:
    """A published version, and the profiles that were recomputed from its fragments."""

    engine: Engine
    store: ObjectStore
    """The table's folder, with the files of the version."""
    scratch: ObjectStore
    """The temporary folder, with the recomputed files."""
    version: Version
    spec: ProfileSpec
    """The profile spec of the version."""
    published_entries: Mapping[str, FragmentEntry] = field(default_factory=dict)
    """The entries of the compared fragments in the version, by fragment id."""
    entries: Mapping[str, FragmentEntry] = field(default_factory=dict)
    """The recomputed profiles, by fragment id. Fragments that could not be read are missing."""


def entry_differences(
    recomputation: Recomputation, recomputed_version: Version | None, *, is_complete: bool
) -> Iterator[VersionDifference]:
    """Yield the differences between stored and recomputed entries, for example in row counts and paths.

    Args:
        recomputation: The version, and the recomputed fragments.
        recomputed_version: The version built from the recomputed fragments; None if only fragments are compared.
        is_complete: Whether to compare the entry of the table too.
    """
    version, entries = recomputation.version, recomputation.entries
    of_fragment, of_partition = ("path", "partition_key", "row_count", "bytes"), ("row_count", "bytes", "fragments")
    pairs: list[tuple[str, str, object, object, tuple[str, ...]]] = [
        ("fragment", entry.path, entry, entries[entry.id], of_fragment)
        for entry in recomputation.published_entries.values()
        if entry.id in entries
    ]
    if recomputed_version is not None:
        partitions = {entry.key: entry for entry in recomputed_version.partitions}
        pairs += [
            ("partition", entry.key, entry, partitions[entry.key], of_partition)
            for entry in version.partitions
            if entry.key in partitions
        ]
        if is_complete:
            pairs.append(
                ("table", version.table, version, recomputed_version, ("row_count", "bytes", "fragment_count"))
            )
    for level, name, stored_entry, computed_entry, fields in pairs:
        for attribute in fields:
            values = getattr(stored_entry, attribute), getattr(computed_entry, attribute)
            if values[0] != values[1]:
                yield VersionDifference(level, name, Difference("", attribute, *map(str, values)))


def fragment_differences(recomputation: Recomputation) -> Iterator[VersionDifference]:
    """Yield the differences between the stored profiles of fragments and the recomputed ones."""
    entries = recomputation.entries
    with StatesReader(recomputation.store) as stored_reader, StatesReader(recomputation.scratch) as computed_reader:
        for entry in sorted(recomputation.published_entries.values(), key=lambda entry: entry.files.states):
            if entry.id in entries:
                stored_source = ProfileSource(stored_reader, entry.files, "fragment", compares_states=True)
                computed_source = ProfileSource(
                    computed_reader, entries[entry.id].files, "fragment", compares_states=True
                )
                yield from _profile_differences(stored_source, computed_source, recomputation.spec, entry.path)


def merge_differences(
    recomputation: Recomputation, recomputed_version: Version, *, is_complete: bool
) -> Iterator[VersionDifference]:
    """Yield the differences between stored and recomputed profiles of partitions, and of the table.

    The rows of the partition index are compared with the stored profiles, too.

    Args:
        recomputation: The version, and the recomputed fragments.
        recomputed_version: The version built from the recomputed fragments. It has only the partitions to compare.
        is_complete: Whether to compare the table's profile, its value counts, and all nodes too.
    """
    store, scratch = recomputation.store, recomputation.scratch
    version, spec = recomputation.version, recomputation.spec
    stored_counts = read_value_counts(store, version.value_counts)
    computed_counts = read_value_counts(scratch, recomputed_version.value_counts)
    readers = ValueCountReader(store, stored_counts), ValueCountReader(scratch, computed_counts)
    stored_files = {entry.key: entry.files for entry in version.partitions}
    pairs = [("partition", entry.key, stored_files[entry.key], entry.files) for entry in recomputed_version.partitions]
    if is_complete:
        pairs.append(("table", version.table, version.files, recomputed_version.files))
    # The only fragment of a partition may share its files with the partition, which then include a statistics file.
    # `fragment_differences` compares the states of these files.
    compared_files = {
        (recomputation.published_entries[id_].files, entry.files)
        for id_, entry in recomputation.entries.items()
        if entry.files.statistics
    }
    with StatesReader(store) as stored_reader, StatesReader(scratch) as computed_reader:
        for level, name, stored_profile, computed_profile in pairs:
            results: list[VersionDifference] = []
            # The files that people read; for partitions, also the states that later versions merge.
            has_new_states = level == "partition" and (stored_profile, computed_profile) not in compared_files
            for is_merged in (False, True) if has_new_states else (False,):
                stored_source = ProfileSource(stored_reader, stored_profile, level, is_merged, readers[0])
                computed_source = ProfileSource(computed_reader, computed_profile, level, is_merged, readers[1])
                results += _profile_differences(stored_source, computed_source, spec, name)
            yield from dict.fromkeys(results)
    if is_complete:
        for difference in by_partition_differences(spec, *readers):
            yield VersionDifference("table", version.table, difference)
        yield from _node_differences(recomputation, recomputed_version)
        yield from _value_count_differences(recomputation, stored_counts, computed_counts)
    keys = stored_files.keys() & {entry.key for entry in recomputed_version.partitions}
    yield from _partition_index_differences(store, version, keys)


def _profile_differences(
    stored_source: ProfileSource, computed_source: ProfileSource, spec: ProfileSpec, name: str
) -> list[VersionDifference]:
    """Return the differences of one profile.

    A damaged file is one difference.
    """
    try:
        with open_profile(stored_source, spec) as stored_view, open_profile(computed_source, spec) as computed_view:
            return [
                VersionDifference(stored_source.level, name, difference)
                for difference in compare_profiles(spec, stored_view, computed_view)
            ]
    except CorruptionError as error:
        return [_unreadable(stored_source.level, name, error)]


def _node_differences(recomputation: Recomputation, recomputed_version: Version) -> Iterator[VersionDifference]:
    """Yield the differences between the stored nodes and the recomputed ones.

    A difference is a missing node, a superfluous one, one that merged the wrong inputs, or a profile that differs. The
    profile of a node is compared only if the node, and each node below it in the tree, merged the right inputs. The
    profile of the root is the partition's or the table's, and is not compared here.

    A partition without any nodes is no difference. If a commit only rewrites files of a partition, a refresh can keep
    the partition's profile. The partition then has no nodes.
    """
    spec = recomputation.spec
    stored_groups, computed_groups = (
        _nodes_by_group(version.nodes) for version in (recomputation.version, recomputed_version)
    )
    with StatesReader(recomputation.store) as stored_reader, StatesReader(recomputation.scratch) as computed_reader:
        for group, children in _node_groups(recomputation.version):
            stored_nodes, computed_nodes = stored_groups.get(group, {}), computed_groups.get(group, {})
            shape = tree_shape()
            tree_children = None if group == TABLE else TreeChildren(shape, children)
            # If a rewrite was skipped, a partition has no nodes.
            has_nodes = len(children) > shape.fan_in and (group == TABLE or bool(stored_nodes))
            expected = shape.build(children).put_branches if has_nodes else {}
            for name in sorted(stored_nodes.keys() - expected.keys()):
                yield _wrong_parts(group, name, node_branch(stored_nodes[name], tree_children), None)
            same: set[str] = set()
            for name, branch in expected.items():
                stored_node, computed_node = stored_nodes.get(name), computed_nodes.get(name)
                stored_branch = None if stored_node is None else node_branch(stored_node, tree_children)
                if stored_node is None or stored_branch != branch:
                    yield _wrong_parts(group, name, stored_branch, branch)
                elif (
                    computed_node is not None
                    and node_branch(computed_node, tree_children) == branch
                    and same.issuperset(branch.branches)
                ):
                    same.add(name)
                    if name != ROOT:
                        stored_source = ProfileSource(stored_reader, stored_node.files, "node", compares_states=True)
                        computed_source = ProfileSource(
                            computed_reader, computed_node.files, "node", compares_states=True
                        )
                        yield from _profile_differences(stored_source, computed_source, spec, f"{group}:{name}")


def _wrong_parts(
    group: str, name: str, stored_branch: Branch | None, expected_branch: Branch | None
) -> VersionDifference:
    """Return the difference between the inputs that a stored node merged and those that it should merge.

    Args:
        group: The key of the node's partition. For a node that merges partitions, it is `TABLE`.
        name: The name of the node.
        stored_branch: The names of the inputs that the stored node merged; None if there is no such node.
        expected_branch: The names of the inputs that the node should merge; None if there should be no such node.
    """
    parts = [
        "no node" if branch is None else ", ".join((*branch.children, *branch.branches))
        for branch in (stored_branch, expected_branch)
    ]
    return VersionDifference("node", f"{group}:{name}", Difference("", "parts", *parts))


def _nodes_by_group(nodes: Iterable[NodeEntry]) -> dict[str, dict[str, NodeEntry]]:
    """Return {partition key: {name of the node: node}}.

    The nodes that merge partitions are under the key `TABLE`.
    """
    groups: dict[str, dict[str, NodeEntry]] = {}
    for node in nodes:
        groups.setdefault(node.group, {})[node.name] = node
    return groups


def _node_groups(version: Version) -> Iterator[tuple[str, list[str]]]:
    """Yield (partition key, ids of its fragments) of each partition, then (`TABLE`, all partition keys)."""
    members: dict[str, list[str]] = {}
    for entry in version.fragments:
        members.setdefault(entry.partition_key, []).append(entry.id)
    yield from members.items()
    yield TABLE, [entry.key for entry in version.partitions]


def _value_count_differences(
    recomputation: Recomputation, stored_counts: TableValueCounts, computed_counts: TableValueCounts
) -> Iterator[VersionDifference]:
    """Yield the differences between the stored and the computed value counts of the table.

    The files `frequencies` and `ranks` are also compared, if the version has them. They repeat the value counts as
    plain Parquet, for other tools. A damaged file is one difference, and the last in the result.
    """
    store, scratch, version = recomputation.store, recomputation.scratch, recomputation.version
    name = version.table
    columns_by_id = {column.field_id: column for column, _ in recomputation.spec.columns}
    try:
        for row in differing_rows(store, stored_counts, scratch, computed_counts):
            column_path = columns_by_id[row.column].path if row.column in columns_by_id else row.column
            yield VersionDifference("table", name, Difference(column_path, row.content, row.stored, row.computed))
        files = version.value_counts or ValueCountFiles("", ())
        counted_columns = [
            column
            for column in columns_by_id.values()
            if column.field_id in computed_counts.columns.keys() | computed_counts.fingerprinted.columns
        ]
        # The file says which columns have ranks: policies may have changed since it was written.
        ranked_ids = plain_file_columns(store, files.ranks) & computed_counts.columns.keys()
        ranked_columns = [column for column in counted_columns if column.field_id in ranked_ids]
        for kind, path, columns, write in (
            ("frequencies", files.frequencies, counted_columns, write_frequencies),
            ("ranks", files.ranks, ranked_columns, write_ranks),
        ):
            if path:
                expected = write(scratch, computed_counts, columns)
                for column_path, *rows in plain_file_differences(store, path, scratch, expected, columns):
                    yield VersionDifference("table", name, Difference(column_path, f"{kind} file", *rows))
    except CorruptionError as error:
        yield _unreadable("table", name, error)


def index_differences(recomputation: Recomputation) -> list[VersionDifference]:
    """Return the differences between the fragment index and the recomputed fragments.

    A damaged index is one difference, and the only one in the result. NaN counts are compared only for floats, and null
    counts only for columns that are not nested in a list: others may differ without an error.
    """
    version, entries = recomputation.version, list(recomputation.entries.values())
    if version.index is None or not entries:
        return []
    columns = {column.field_id: column for column, _ in recomputation.spec.columns}
    index_rows = read_rows(recomputation.engine, recomputation.scratch, len(columns), entries)
    try:
        selection = IndexReader(recomputation.store, version.index).find(
            {recomputation.published_entries[entry.id].key for entry in entries}
        )
        positions = {id_: at for at, id_ in enumerate(selection.fragments(("id",))["id"].to_pylist())}
        results = [
            VersionDifference("index", entry.path, Difference("", "index", "no row", "a row"))
            for entry in entries
            if entry.id not in positions
        ]
        indexed_entries = [(at, entry) for at, entry in enumerate(entries) if entry.id in positions]
        computed_rows = pa.array([at for at, _ in indexed_entries], pa.int64())
        stored_rows = pa.array([positions[entry.id] for _, entry in indexed_entries], pa.int64())
        for field_id, table in index_rows.columns.items():
            column = columns[field_id]
            cls = class_or_none(column.type)
            computed_table = index_table(table, column.type).take(computed_rows)
            stored_table = selection.column(field_id, cls).take(stored_rows)
            if cls is None or cls.kind != "float":
                # Only floats have NaN. For other columns the count is null or 0, for example in fragments written
                # before the column was added.
                computed_table, stored_table = (
                    part.drop_columns("nan_count") for part in (computed_table, stored_table)
                )
            if column.repeated:
                # In fragments written before the column was added, the count of nulls is the number of rows in the
                # index, and 0 in a profile. No predicate reads the count of nulls below a list.
                computed_table, stored_table = (
                    part.drop_columns("null_count") for part in (computed_table, stored_table)
                )
            for name in computed_table.column_names if not computed_table.equals(stored_table) else ():
                values = zip(stored_table[name], computed_table[name], indexed_entries, strict=True)
                results += [
                    VersionDifference("index", entry.path, Difference(column.path, name, *map(value_text, pair)))
                    for *pair, (_, entry) in values
                    if not pair[0].equals(pair[1]) and value_text(pair[0]) != value_text(pair[1])
                ]
    except CorruptionError as error:
        results = [_unreadable("index", version.table, error)]
    return results


def value_filter_differences(recomputation: Recomputation) -> list[VersionDifference]:
    """Return the differences between the value filters and filters built from the recomputed fragments.

    A damaged file is one difference, and the only one in the result.
    """
    version, entries = recomputation.version, recomputation.entries
    if version.value_filters is None or not entries:
        return []
    recomputed_entries = {
        entry.key: entries[entry.id] for entry in recomputation.published_entries.values() if entry.id in entries
    }
    stores = recomputation.store, recomputation.scratch
    try:
        wrong = find_wrong_filters(recomputation.engine, *stores, version.value_filters, recomputed_entries)
        return [
            VersionDifference(
                "index",
                recomputed_entries[key].path,
                Difference(column, "value_filter", "another filter", "the filter of its values"),
            )
            for key, column in wrong
        ]
    except CorruptionError as error:
        return [_unreadable("index", version.table, error)]


def _partition_index_differences(
    store: ObjectStore, version: Version, keys: Collection[str]
) -> list[VersionDifference]:
    """Return the differences between the partition index and the statistics files of partitions.

    A damaged file is one difference, and the only one in the result.

    Args:
        store: The folder of the table.
        version: The version with the index.
        keys: Keys of the partitions to compare.
    """
    try:
        wrong = list(find_wrong_rows(store, version, keys))
    except CorruptionError as error:
        return [_unreadable("index", version.table, error)]
    return [
        VersionDifference(
            "index", key, Difference(column, "statistics", stored_text, "the row of the partition's file")
        )
        for key, column, stored_text in wrong
    ]


def missing_files(store: ObjectStore, version: Version) -> Iterator[VersionDifference]:
    """Yield a difference for each missing file that a version refers to.

    Raises:
        StoreError: A file that stores entries of the version is missing. Without it, other paths are unknown.
    """
    with SortedRuns(PATHS) as referenced_paths, SortedRuns(FILES) as existing_files:
        for paths in version_file_paths(version):
            referenced_paths.add_keys(paths)
        for paths in profile_paths(version):
            referenced_paths.add_keys(paths.filter(pc.not_equal(paths, "")))
        add_files(existing_files, store.scan())
        for rows in subtract(referenced_paths, existing_files):
            for path in rows["path"].to_pylist():
                difference = Difference("", "file", "missing", f"a file of version {version.number}")
                yield VersionDifference("file", path, difference)


def unreadable_files(store: ObjectStore, version: Version) -> Iterator[VersionDifference]:
    """Yield a difference for each unreadable file that no other comparison reads.

    These are profiles of removed fragments and of nodes, files with entries, the garbage manifest (a list of files to
    delete), and the states (mergeable forms of statistics) of the table.
    """
    paths = {path for entry in version.retired for path in entry.files.paths()}
    paths |= {path for entry in version.nodes for path in entry.files.paths()}
    paths |= {path for entries in stored_entries(version) for path in entries.files.paths()}
    paths |= {path for path in (version.garbage_manifest, version.files.states) if path}
    for path in sorted(paths):
        try:
            with parquet_errors(store.uri(path)):
                file = store.open_parquet(path)
                for group in range(file.metadata.num_row_groups):
                    file.read_row_group(group)
        except (CorruptionError, StoreError) as error:
            yield _unreadable("file", path, error)


def _unreadable(level: str, name: str, error: Exception) -> VersionDifference:
    return VersionDifference(level, name, Difference("", "files", str(error), "readable files"))
