"""Build the next version of a table from the profiles of its fragments, once policies are resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version as package_version

import pyarrow as pa

from metastore_assets.formats.schema_casting import withhold_default_values
from metastore_assets.pipeline.auto_policies import record_decisions
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.fragment_index import update_fragment_index
from metastore_assets.pipeline.merging.compaction import SegmentEntries, compact_segments
from metastore_assets.pipeline.merging.merges import TABLE, Child, MergeContext, MergeGroup, PreviousResult, node_group
from metastore_assets.pipeline.merging.reduce import merge_groups
from metastore_assets.pipeline.partition_index import update_partition_index
from metastore_assets.pipeline.plan import (
    PartitionPlan,
    Target,
    content_id,
    members_id,
    partition_content_id,
)
from metastore_assets.pipeline.profile_spec import SpecCompatibility, field_identity
from metastore_assets.pipeline.value_counts.table import ValueCountUpdate
from metastore_assets.pipeline.value_filters import filtered_columns, update_table_value_filters
from metastore_assets.store.manifest import (
    FragmentEntry,
    NodeEntry,
    PartitionEntry,
    PartitionIndex,
    ProfileFiles,
    RetiredFragment,
    ValueCountFiles,
    ValueFilterFiles,
    Version,
)
from metastore_assets.store.segments import SegmentFiles


class VersionBuilder:
    """Builds the next version step by step. Call each method once, in the order of their definition.

    `discard` is called only if the version is not published.
    """

    def __init__(self, context: RefreshContext, target: Target, fragments: Mapping[str, FragmentEntry]) -> None:
        """Prepare to build a version.

        Args:
            context: The table, its store and engine.
            target: The partitions and the profile spec, with all policies resolved.
            fragments: The profiles of all fragments of the snapshot, by id.
        """
        self._context = context
        self._target = target
        self._fragments = fragments
        base = target.base
        self._nodes_before = {node.id: node for node in base.nodes} if base else {}
        self._value_counts = ValueCountUpdate(context.engine, context.objects, target, fragments)
        self._compatibility = SpecCompatibility(target.specs, target.spec)
        self._merge = MergeContext(
            context.engine, context.objects, self._compatibility, self._nodes_before, self._value_counts.summaries
        )
        self._partitions: list[PartitionEntry] = []
        self._entries = SegmentEntries((), ())
        self._table_files: ProfileFiles
        self._value_count_files: ValueCountFiles | None = None
        self._index: SegmentFiles
        self._partition_index: PartitionIndex
        self._value_filters: ValueFilterFiles | None = None

    def merge_partitions(self) -> None:
        """Merge the profiles of changed partitions. Other partitions reuse the published profile."""
        target = self._target
        children: dict[str, list[Child]] = {}
        for entry in target.base.fragments if target.base else ():
            children.setdefault(entry.partition_key, []).append(self._child(entry))
        published = {entry.key: entry for entry in target.base.partitions} if target.base else {}
        groups = [
            MergeGroup(
                partition.key,
                "partitions",
                tuple(self._child(self._fragments[id_]) for id_ in partition.fragments),
                self._previous_result(published[partition.key], children[partition.key])
                if partition.key in published
                else None,
                has_value_counts=len(target.partitions) > 1,
            )
            for partition in target.partitions
            if partition.reused is None
        ]
        reduction = merge_groups(self._merge, groups)
        self._partitions = [
            partition.reused or self._partition_entry(partition, reduction.files) for partition in target.partitions
        ]
        reused = {partition.key for partition in target.partitions if partition.reused is not None}
        nodes = [node for node in self._nodes_before.values() if node_group(node.id) in reused]
        self._entries = SegmentEntries(self._fragment_entries(), [*nodes, *reduction.nodes], self._retired_fragments())

    def merge_table(self) -> None:
        """Merge the profiles of all partitions into the profile of the table.

        If nothing changed, the published profile is reused.
        """
        base = self._target.base
        # People read the table's own files, so these have current column names and order, unlike those of partitions.
        children = tuple(
            Child(
                entry.key,
                entry.files,
                entry.spec_id,
                self._compatibility.has_current_names(entry.spec_id),
                entry.row_count,
            )
            for entry in self._partitions
        )
        if base is not None:
            before = [(entry.key, entry.files) for entry in base.partitions]
            if base.spec_id == self._target.spec.id and before == [(child.key, child.files) for child in children]:
                self._table_files = base.files
                self._add_nodes([node for node in self._nodes_before.values() if node_group(node.id) == TABLE])
                return
        group = MergeGroup(TABLE, "table", children, is_input=False, has_value_counts=False)
        reduction = merge_groups(self._merge, [group])
        self._table_files = reduction.files[TABLE]
        self._add_nodes(reduction.nodes)

    def update_value_counts(self) -> None:
        """Update the value counts of the table by the changed fragments, and write their files."""
        partitions = self._target.partitions
        profiles = (
            [self._fragments[id_].files for id_ in partitions[0].fragments]
            if len(partitions) == 1
            else [entry.files for entry in self._partitions]
        )
        self._value_count_files = self._value_counts.files(profiles)

    def compact_segments(self) -> None:
        """Copy profiles that are in use out of files whose other profiles are mostly unused."""
        columns = len(self._target.spec.leaves)
        self._entries = compact_segments(self._context.engine, self._context.objects, columns, self._entries)

    def write_indexes(self) -> None:
        """Update the fragment index, the partition index, and the value filters."""
        engine, store, spec, base = (
            self._context.engine, self._context.objects, self._target.spec, self._target.base,
        )  # fmt: skip
        live = self._entries.fragments
        self._index = update_fragment_index(engine, store, len(spec.leaves), base, live)
        self._partition_index = update_partition_index(engine, store, len(spec.leaves), base, self._partitions)
        self._value_filters = update_table_value_filters(engine, store, filtered_columns(spec), base, live)

    def version(
        self, cached_metadata: Mapping[bytes, bytes] | None = None, dropped_columns: tuple[str, ...] = ()
    ) -> Version:
        """Return the version, which references all written files. It is not published yet.

        Args:
            cached_metadata: Metadata of the table's files, which is stored for planning the next version.
            dropped_columns: Columns that a policy names and the table no longer has.
        """
        target, base, snapshot = self._target, self._target.base, self._target.snapshot
        fragments, nodes, retired = self._entries.fragments, self._entries.nodes, self._entries.retired
        used_specs = {entry.spec_id for entries in (fragments, self._partitions, nodes) for entry in entries}
        used_specs |= {entry.fragment.spec_id for entry in retired}
        used_specs.add(target.spec.id)
        return Version(
            number=target.number,
            table=self._context.versions.table,
            format=snapshot.format,
            snapshot=snapshot.id,
            committed_at=snapshot.committed_at,
            published_at=datetime.now(UTC),
            schema=_stored_schema(target),
            partition_columns=snapshot.partition_columns,
            row_count=sum(entry.row_count for entry in self._partitions),
            bytes=sum(entry.bytes for entry in self._partitions),
            content_id=content_id(target.spec, self._partitions),
            files=self._table_files,
            code_version=package_version("metastore-assets"),
            spec_id=target.spec.id,
            specs={key: value for key, value in target.specs.items() if key in used_specs},
            fragments=fragments,
            partitions=self._partitions,
            nodes=nodes,
            retired=retired,
            metadata_cache=cached_metadata or {},
            value_counts=self._value_count_files,
            index=self._index,
            partition_index=self._partition_index,
            value_filters=self._value_filters,
            buckets=snapshot.buckets,
            decisions=record_decisions(self._context.objects, target, self._table_files),
            dropped_columns=dropped_columns,
            # A version that replaces a damaged one counts as purged: only the damaged one records the last purge.
            purged=base.purged if base else (target.number if target.number > 1 else 0),
        )

    def discard(self) -> None:
        """Delete the value counts that were written for this version, because it will not be published."""
        self._value_counts.discard()

    def _add_nodes(self, nodes: Sequence[NodeEntry]) -> None:
        self._entries = replace(self._entries, nodes=[*self._entries.nodes, *nodes])

    def _child(self, entry: FragmentEntry) -> Child:
        matches_spec = self._compatibility.equals(entry.spec_id, entry.not_enumerated)
        return Child(entry.id, entry.files, entry.spec_id, matches_spec, entry.row_count)

    def _previous_result(self, entry: PartitionEntry, children: Sequence[Child]) -> PreviousResult | None:
        """Return the published profile of a partition, which the next profile may be computed from.

        Returns None if the profile does not have exactly the wanted outputs.
        """
        if not self._compatibility.equals(entry.spec_id):
            return None
        missing = self._compatibility.missing_columns(entry.spec_id)
        for child in children:
            missing &= self._compatibility.missing_columns(child.spec_id)
        return PreviousResult(entry.files, missing, tuple(children))

    def _partition_entry(self, partition: PartitionPlan, files: Mapping[str, ProfileFiles]) -> PartitionEntry:
        """Return the new entry of a partition that was merged.

        Args:
            partition: The partition.
            files: The files of the merged profiles, by partition key.
        """
        fragments = [self._fragments[id_] for id_ in partition.fragments]
        spec_id = self._target.spec.id
        if len(fragments) == 1 and fragments[0].files == files[partition.key]:
            spec_id = fragments[0].spec_id
        return PartitionEntry(
            key=partition.key,
            content_id=partition_content_id(spec_id, partition.fragments),
            row_count=sum(entry.row_count for entry in fragments),
            bytes=sum(entry.bytes for entry in fragments),
            fragments=len(fragments),
            files=files[partition.key],
            version=self._target.number,
            spec_id=spec_id,
            members=members_id(partition.fragments),
        )

    def _fragment_entries(self) -> list[FragmentEntry]:
        """Return the entries of all fragments of the version."""
        return [self._fragments[id_] for partition in self._target.partitions for id_ in partition.fragments]

    def _retired_fragments(self) -> list[RetiredFragment]:
        """Return the entries of fragments that were removed recently.

        A removed fragment is retained for `keep_versions` versions. If a restore brings it back, it is not read again.
        """
        base, number = self._target.base, self._target.number
        if base is None:
            return []
        live_ids = {id_ for partition in self._target.partitions for id_ in partition.fragments}
        oldest = number - self._context.keep_versions
        retired = [entry for entry in base.retired if entry.retired > oldest]
        retired += [RetiredFragment(number, entry) for entry in base.fragments if oldest < number]
        return [entry for entry in retired if entry.fragment.id not in live_ids]


def build_version(context: RefreshContext, target: Target, fragments: Mapping[str, FragmentEntry]) -> Version:
    """Build the next version without publishing it, and write its files.

    Args:
        context: The table, its store and engine.
        target: The partitions and the profile spec, with all policies resolved.
        fragments: The profiles of all fragments of the snapshot, by id.
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
    """Return the snapshot's schema without default values of hidden columns.

    A column that contains a hidden one loses its default value, too.
    """
    owners = target.spec.column_of_leaf
    hidden = {owners[leaf.field_id] for leaf, policy in target.spec.leaves if policy.values == "hidden"}
    schema = target.snapshot.schema
    fields = [withhold_default_values(field) if field_identity(field) in hidden else field for field in schema]
    return pa.schema(fields, schema.metadata)
