"""Construction of the next version of a table from the profiles of its fragments.

Only differences from the published version are computed, so the work depends on the number of changed partitions.

A fragment is a data file with its deletes. A profile is the statistics of a fragment, a partition or the table, and a
profile spec says which statistics it has. Value counts are the distinct values of a column with their frequencies. A
version is the published statistics of a table at one snapshot. It has an entry for each fragment and each partition. A
retired fragment was removed by a recent version, but its profile is retained for a restore of the table. A node is a
stored intermediate result of merging profiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version as package_version
from typing import Any

import pyarrow as pa

from metastore_assets.formats.schema_casting import withhold_default_values
from metastore_assets.pipeline.auto_policies import record_decisions
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.indexes import IndexedColumns, Indexes, update_indexes
from metastore_assets.pipeline.merging.compaction import SegmentChanges, compact_changes, table_node_window
from metastore_assets.pipeline.merging.groups import (
    TABLE,
    Child,
    GroupChildren,
    MergeContext,
    MergeGroup,
    PreviousResult,
)
from metastore_assets.pipeline.merging.merge_plan import find_group_nodes
from metastore_assets.pipeline.merging.reduce import Reduction, merge_groups
from metastore_assets.pipeline.merging.small_files import bundle_small_files
from metastore_assets.pipeline.merging.tree import ROOT
from metastore_assets.pipeline.plan import (
    PartitionPlan,
    Target,
    content_id,
    members_id,
    partition_content_id,
    updated_content_id,
)
from metastore_assets.pipeline.profile_spec import SpecCompatibility, field_identity
from metastore_assets.pipeline.retired_fragments import expired_fragments, find_retired
from metastore_assets.pipeline.value_counts.update import ValueCountUpdate
from metastore_assets.pipeline.value_filters import filtered_columns
from metastore_assets.store.entries import (
    FRAGMENTS,
    NODES,
    PARTITIONS,
    RETIRED,
    SHARED_FILES,
    EntryKind,
    StoredEntries,
)
from metastore_assets.store.entry_changes import EntryChanges, entries_of
from metastore_assets.store.segments import changed_items
from metastore_assets.store.version import (
    FragmentEntry,
    MetadataCacheEntries,
    NodeEntry,
    PartitionEntry,
    ProfileFiles,
    RetiredFragment,
    ValueCountFiles,
    Version,
    node_key,
    repeated_fragment_error,
)


@dataclass(frozen=True)
class _PartitionChildren:
    """The published partitions, as inputs of a merge that computes the table's profile."""

    entries: StoredEntries[PartitionEntry] | None
    child: Callable[[PartitionEntry], Child]

    def find_all(self, keys: Collection[str]) -> dict[str, Child]:
        entries = self.entries.find_all(keys) if self.entries is not None else {}
        return {key: self.child(entry) for key, entry in entries.items()}

    def read_all(self) -> dict[str, Child]:
        return {entry.key: self.child(entry) for entry in self.entries or ()}


class VersionBuilder:
    """A builder of the next version.

    Call the methods from `merge_partitions` to `version` once, in the order of their definition. Call `discard` only if
    the version will not be published.
    """

    def __init__(self, context: RefreshContext, target: Target, fragments: Mapping[str, FragmentEntry]) -> None:
        """Prepare to build a version.

        Args:
            context: The table, its store and engine.
            target: The partitions, and the profile spec after the decisions about `auto` and `repeated` columns.
            fragments: The entries of all fragments of the target's partitions, by fragment id.
        """
        self._context = context
        self._target = target
        base = target.base
        self._fragments_by_id = fragments
        self._fragments = _changed_fragments(context.versions.table, target, fragments)
        self._retired_fragments = self._changed_retired()
        self._value_counts = ValueCountUpdate(context.engine, context.objects, target, fragments)
        self._compatibility = SpecCompatibility(target.specs, target.spec)
        stored_nodes = entries_of(base, NODES) if base else EntryChanges(NODES, None, {}, {})
        self._merge = MergeContext(
            context.engine, context.objects, self._compatibility, stored_nodes, self._value_counts.summaries
        )
        self._partitions: EntryChanges[PartitionEntry]
        self._put_nodes: dict[str, NodeEntry] = {}
        self._dropped_nodes: set[str] = set()
        self._nodes: EntryChanges[NodeEntry]
        self._table_files: ProfileFiles
        self._value_count_files: ValueCountFiles | None = None
        self._indexes: Indexes

    def merge_partitions(self) -> None:
        """Merge fragment profiles into a profile of each changed partition.

        The nodes of removed partitions are dropped. If a rewrite only moved the rows of a partition to other files,
        the partition keeps its published profile. Its nodes are dropped, too, because they describe the old fragments.
        """
        target = self._target
        groups = [self._partition_group(partition) for partition in target.partitions if partition.reused_entry is None]
        reduction = merge_groups(self._merge, groups)
        self._change_nodes(reduction)
        rewritten_keys = [
            partition.key
            for partition in target.partitions
            if partition.reused_entry is not None
            and partition.published_entry is not None
            and partition.reused_entry.members != partition.published_entry.members
        ]
        outdated_keys = [*rewritten_keys, *(entry.key for entry in target.removed_partition_entries)]
        self._dropped_nodes |= find_group_nodes(self._merge.nodes, outdated_keys)
        entries = [
            partition.reused_entry or self._partition_entry(partition, reduction.files)
            for partition in target.partitions
        ]
        published_entries = {
            partition.key: partition.published_entry
            for partition in target.partitions
            if partition.published_entry is not None
        }
        put_entries = changed_items(published_entries, {entry.key: entry for entry in entries})
        replaced_entries = {key: entry for key, entry in published_entries.items() if key in put_entries}
        removed_entries = {entry.key: entry for entry in target.removed_partition_entries}
        self._partitions = EntryChanges(
            PARTITIONS, _stored(target.base, PARTITIONS), put_entries, {**replaced_entries, **removed_entries}
        )

    def merge_table(self) -> None:
        """Merge the profiles of all partitions into that of the table.

        The published profile stays if neither a partition nor the profile spec changed.
        """
        base, spec = self._target.base, self._target.spec
        before, now = (
            {key: self._partition_child(entry) for key, entry in entries.items()}
            for entries in (self._partitions.dropped_entries, self._partitions.put_entries)
        )
        children = GroupChildren(
            changed_items(before, now),
            frozenset(before.keys() - now.keys()),
            len(self._partitions),
            _PartitionChildren(self._partitions.base, self._partition_child),
        )
        if base is not None and base.spec_id == spec.id and not children.changed_children and not children.removed_keys:
            self._table_files = base.files
        else:
            group = MergeGroup(TABLE, "table", children, is_input=False, has_value_counts=False)
            reduction = merge_groups(self._merge, [group])
            self._table_files = reduction.files[TABLE]
            self._change_nodes(reduction)
        self._nodes = EntryChanges.changed(NODES, _stored(base, NODES), self._put_nodes.values(), self._dropped_nodes)

    def update_value_counts(self) -> None:
        """Write the value counts of the next version.

        If no count changed, the published files are kept.
        """

        def profiles() -> list[tuple[str, ProfileFiles]]:
            """Return (key, files) of the profiles whose value counts add up to those of the table.

            These are the profiles of partitions, with partition keys. If there is only one partition, its profile has
            no value counts. Then the profiles of its fragments are returned, with fragment keys.
            """
            entries = self._fragments if len(self._partitions) == 1 else self._partitions
            return [(entry.key, entry.files) for entry in entries]

        self._value_count_files = self._value_counts.files(profiles, self._table_files)

    def compact_segments(self) -> None:
        """Copy profiles from small files and from sparse files to new files.

        A sparse file has many profiles that the version does not use. Only used profiles are copied.
        """
        shared_files, columns = _stored(self._target.base, SHARED_FILES), len(self._target.spec.columns)
        partitions = [
            [self._fragments_by_id[id_] for id_ in partition.fragments] for partition in self._target.partitions
        ]
        fragments = bundle_small_files(self._context, columns, self._fragments, partitions)
        changes = SegmentChanges(fragments, self._nodes, self._retired_fragments)
        root = self._nodes.find(node_key(TABLE, ROOT))
        window = table_node_window(TABLE, 0 if root is None else root.count, self._target.number)
        compacted_changes = compact_changes(self._context, columns, changes, shared_files, {TABLE: window})
        self._fragments, self._nodes, self._retired_fragments = (
            compacted_changes.fragments,
            compacted_changes.nodes,
            compacted_changes.retired_fragments,
        )

    def write_indexes(self) -> None:
        """Update the fragment index, the partition index, and the value filters."""
        spec, changes = self._target.spec, (self._fragments, self._partitions, self._nodes, self._retired_fragments)
        columns = IndexedColumns(len(spec.columns), filtered_columns(spec))
        self._indexes = update_indexes(
            self._context.engine,
            self._context.objects,
            columns,
            self._target.base,
            {each.kind.name: each for each in changes},
        )

    @property
    def may_merge_entries(self) -> bool:
        """Whether stored segments of entries may be merged when the version is published.

        Call `write_indexes` first.

        Segments are the sorted files of an index, or of the entries of one kind. A commit of many changes merges
        segments of only one index or one kind. The result is false if `write_indexes` may have merged segments of an
        index.
        """
        return not self._indexes.is_merged

    def version(
        self, cached_metadata: MetadataCacheEntries | None = None, dropped_columns: tuple[str, ...] = ()
    ) -> Version:
        """Return the version with references to all written files.

        It is not published yet.

        Args:
            cached_metadata: Metadata of the table's files, stored to plan the next version faster.
            dropped_columns: Names of columns that a policy names but the table no longer has.
        """
        target, base, snapshot = self._target, self._target.base, self._target.snapshot
        put_entries, dropped_entries = self._partitions.put_entries.values(), self._partitions.dropped_entries.values()
        is_same_spec = base is not None and base.spec_id == target.spec.id
        return Version(
            number=target.number,
            table=self._context.versions.table,
            format=snapshot.format,
            snapshot=snapshot.id,
            committed_at=snapshot.committed_at,
            published_at=datetime.now(UTC),
            schema=_stored_schema(target),
            partition_columns=snapshot.partition_columns,
            row_count=_updated_sum(base, "row_count", put_entries, dropped_entries),
            bytes=_updated_sum(base, "bytes", put_entries, dropped_entries),
            content_id=updated_content_id(target.spec, base.content_id, dropped_entries, put_entries)
            if base is not None and is_same_spec
            else content_id(target.spec, self._partitions),
            files=self._table_files,
            code_version=package_version("metastore-assets"),
            spec_id=target.spec.id,
            specs=self._used_specs(is_complete=not is_same_spec),
            fragments=self._fragments,
            retired=self._retired_fragments,
            partitions=self._partitions,
            nodes=self._nodes,
            metadata_cache=cached_metadata or {},
            value_counts=self._value_count_files,
            index=self._indexes.fragments,
            partition_index=self._indexes.partitions,
            value_filters=self._indexes.value_filters,
            buckets=snapshot.buckets,
            decisions=record_decisions(self._context.objects, target, self._table_files),
            dropped_columns=dropped_columns,
            policies_id=self._context.table.policies_id,
            # A version that replaces a damaged one counts as purged: only the damaged one records the last purge.
            purged=base.purged if base else (target.number if target.number > 1 else 0),
        )

    def new_paths(self, version: Version) -> set[str]:
        """Return the paths of the files that may have been written for this version.

        These are the files of new and changed fragments, retired fragments, partitions and nodes, and of the table's
        profile, value counts and indexes. Files of the previous version's profile, value counts and indexes are
        omitted. Some of the returned files may be older: a fragment that was retired or moved to another partition has
        a new entry with its old files.
        """
        base = self._target.base
        paths = {*version.files.paths(), *version.auxiliary_files()}
        for entries in (self._fragments, self._retired_fragments, self._partitions, self._nodes):
            paths.update(path for entry in entries.put_entries.values() for path in entry.files.paths())
        return paths - ({*base.files.paths(), *base.auxiliary_files()} if base else set())

    def discard(self) -> None:
        """Delete the value counts that were written for this version, because it will not be published."""
        self._value_counts.discard()

    def _child(self, entry: FragmentEntry) -> Child:
        matches_spec = self._compatibility.equals(entry.spec_id, entry.not_enumerated)
        return Child(entry.id, entry.files, entry.spec_id, matches_spec, entry.row_count)

    def _partition_child(self, entry: PartitionEntry) -> Child:
        # People read the table's own files, so these have current column names and order, unlike those of partitions.
        matches_spec = self._compatibility.has_current_names(entry.spec_id)
        return Child(entry.key, entry.files, entry.spec_id, matches_spec, entry.row_count)

    def _partition_group(self, partition: PartitionPlan) -> MergeGroup:
        """Return the merge that computes the profile of a partition.

        It has the changes from the published fragments to the next ones, and the published profile of the partition.
        """
        entries = {entry.id: entry for entry in partition.fragments_before}
        before = {id_: self._child(entry) for id_, entry in entries.items()}
        fragments = [self._fragments_by_id[id_] for id_ in partition.fragments]
        now = [before[each.id] if entries.get(each.id) is each else self._child(each) for each in fragments]
        children, published_entry = GroupChildren.between(before.values(), now), partition.published_entry
        previous = None if published_entry is None else self._previous_result(published_entry, children)
        has_value_counts = self._target.partition_count > 1
        return MergeGroup(partition.key, "partitions", children, previous, has_value_counts=has_value_counts)

    def _change_nodes(self, reduction: Reduction) -> None:
        self._put_nodes |= {node.key: node for node in reduction.nodes}
        self._dropped_nodes |= reduction.dropped_nodes

    def _previous_result(self, entry: PartitionEntry, children: GroupChildren) -> PreviousResult | None:
        """Return the published profile of a partition, from which the next one is computed.

        Returns None if one of the profile's columns does not have exactly the outputs (statistics, frequencies and the
        like) of the current profile spec. Added and removed columns do not matter.
        """
        if not self._compatibility.equals(entry.spec_id):
            return None
        missing = self._compatibility.missing_columns(entry.spec_id)
        stored_children = children.stored_children.read_all()
        for child in stored_children.values():
            missing &= self._compatibility.missing_columns(child.spec_id)
        keys = children.removed_keys | children.changed_children.keys()
        return PreviousResult(
            entry.files, missing, tuple(child for key, child in stored_children.items() if key in keys)
        )

    def _partition_entry(self, partition: PartitionPlan, files: Mapping[str, ProfileFiles]) -> PartitionEntry:
        """Return the new entry of a partition, given the files of all merged profiles by partition key."""
        fragments = [self._fragments_by_id[id_] for id_ in partition.fragments]
        spec_id = self._target.spec.id
        if len(fragments) == 1 and fragments[0].files == files[partition.key]:
            spec_id = fragments[0].spec_id
        return PartitionEntry(
            key=partition.key,
            # Not `spec_id`: an equal profile may have been made while `auto` policies were undecided.
            content_id=partition_content_id(self._target.spec.id, partition.fragments),
            row_count=sum(entry.row_count for entry in fragments),
            bytes=sum(entry.bytes for entry in fragments),
            fragments=len(fragments),
            files=files[partition.key],
            version=self._target.number,
            spec_id=spec_id,
            members=members_id(partition.fragments),
        )

    def _changed_retired(self) -> EntryChanges[RetiredFragment]:
        """Return the changes of the entries of retired fragments.

        A fragment is retired if one of the last `keep_versions` versions removed it. If a restore of the table adds it
        again, its profile is reused.
        """
        target, number = self._target, self._target.number
        if target.base is None:
            return EntryChanges(RETIRED, None, {}, {})
        before, now = (
            {entry.id for entry in entries.values()}
            for entries in (self._fragments.dropped_entries, self._fragments.put_entries)
        )
        retired_entries = [
            RetiredFragment(number, entry) for entry in self._fragments.dropped_entries.values() if entry.id not in now
        ]
        restored_entries = find_retired(target.base, now - before)
        expired_entries = expired_fragments(target.base, number - self._context.keep_versions)
        dropped_entries = {entry.key: entry for entry in (*restored_entries, *expired_entries)}
        return EntryChanges(
            RETIRED, _stored(target.base, RETIRED), {entry.key: entry for entry in retired_entries}, dropped_entries
        )

    def _used_specs(self, *, is_complete: bool) -> Mapping[str, Mapping[str, str]]:
        """Return the profile specs of the next version: its own, and those to which its entries refer.

        The form is that of `Version.specs`: {spec id: {identity of a top-level column: text of its column spec}}.

        Args:
            is_complete: Whether to read all entries, to find exactly the specs to which they refer. If false, only new
                and changed entries are read, and the result also has all specs of the published version.
        """
        specs, base, kinds = self._target.specs, self._target.base, (self._fragments, self._partitions, self._nodes)
        used_ids = {self._target.spec.id}
        if is_complete or base is None:
            used_ids |= {entry.spec_id for entries in kinds for entry in entries}
            used_ids |= {entry.fragment.spec_id for entry in self._retired_fragments}
        else:
            used_ids |= {entry.spec_id for entries in kinds for entry in entries.put_entries.values()}
            if used_ids == {base.spec_id}:
                return base.specs  # Without a read of them.
            used_ids |= set(base.specs)
        return {key: value for key, value in specs.items() if key in used_ids}


def _changed_fragments(
    table: str, target: Target, fragments: Mapping[str, FragmentEntry]
) -> EntryChanges[FragmentEntry]:
    """Return the fragments of the next version as changes of the published ones.

    Args:
        table: Name of the table, for messages.
        target: The partitions of the next version.
        fragments: The entries of all fragments of the target's partitions, by fragment id.
    """
    before = {entry.key: entry for entry in target.fragments_before}
    entries = [fragments[id_] for partition in target.partitions for id_ in partition.fragments]
    now = {entry.key: entry for entry in entries}
    if len(now) < len(entries):
        key = next(key for key, count in Counter(entry.key for entry in entries).items() if count > 1)
        raise repeated_fragment_error(table, key)
    put_entries = changed_items(before, now)
    dropped_entries = {key: entry for key, entry in before.items() if key in put_entries or key not in now}
    return EntryChanges(FRAGMENTS, _stored(target.base, FRAGMENTS), put_entries, dropped_entries)


def _stored(base: Version | None, kind: EntryKind[Any]) -> StoredEntries[Any] | None:
    if base is None:
        return None
    entries = getattr(base, kind.name)
    assert isinstance(entries, StoredEntries), "the published version was read from a store"
    return entries


def _updated_sum(
    base: Version | None, name: str, put_entries: Iterable[PartitionEntry], dropped_entries: Iterable[PartitionEntry]
) -> int:
    """Return the sum of field `name` over all partitions of the next version.

    Args:
        base: The published version, which has the sum over its partitions; None if there is none.
        name: The field, such as `row_count`.
        put_entries: The new entries of added and changed partitions.
        dropped_entries: The published entries of changed and removed partitions.
    """
    total: int = getattr(base, name) if base is not None else 0
    return (
        total
        + sum(getattr(entry, name) for entry in put_entries)
        - sum(getattr(entry, name) for entry in dropped_entries)
    )


def build_version(context: RefreshContext, target: Target, fragments: Mapping[str, FragmentEntry]) -> Version:
    """Write all files of the next version, and return the version without publishing it.

    After an error, the value counts that were written for this version are deleted.

    Args:
        context: The table, its store and engine.
        target: The partitions, and the profile spec after the decisions about `auto` and `repeated` columns.
        fragments: The entries of all fragments of the target's partitions, by fragment id.
    """
    builder = VersionBuilder(context, target, fragments)
    try:
        builder.merge_partitions()
        builder.merge_table()
        builder.update_value_counts()
        builder.compact_segments()
        builder.write_indexes()
        return builder.version()
    except BaseException:
        builder.discard()
        raise


def _stored_schema(target: Target) -> pa.Schema:
    """Return the snapshot's schema without default values that reveal hidden columns."""
    owners = target.spec.top_level_ids
    hidden_ids = {owners[column.field_id] for column, policy in target.spec.columns if policy.values == "hidden"}
    schema = target.snapshot.schema
    fields = [withhold_default_values(field) if field_identity(field) in hidden_ids else field for field in schema]
    return pa.schema(fields, schema.metadata)
