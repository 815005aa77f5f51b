"""The next version of a table, from a plan and the profiles of its fragments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version as package_version

import pyarrow as pa

from metastore_assets.formats.schema_casting import withhold_default_values
from metastore_assets.pipeline.auto_policies import record
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.index import table_index
from metastore_assets.pipeline.membership import filtered_columns, table_membership
from metastore_assets.pipeline.merging.compaction import compact_segments
from metastore_assets.pipeline.merging.merges import TABLE, Child, Group, PreviousResult, node_group
from metastore_assets.pipeline.merging.reduce import Reduction, reduce_groups
from metastore_assets.pipeline.partition_files import table_partition_files
from metastore_assets.pipeline.plan import PartitionPlan, Plan, content_id, members_id, partition_content_id
from metastore_assets.pipeline.profile_spec import SpecCompatibility, field_identity
from metastore_assets.pipeline.value_counts.table import TableLists
from metastore_assets.store.manifest import FragmentEntry, NodeEntry, PartitionEntry, ProfileFiles, Version
from metastore_assets.store.objects import ObjectStore


def next_version(
    engine: Engine,
    store: ObjectStore,
    plan: Plan,
    fragments: Mapping[str, FragmentEntry],
    keep_versions: int,
    then_the_table: Callable[[], None] = lambda: None,
    memory: Mapping[bytes, bytes] | None = None,
) -> Version:
    """Reduce what the plan says has changed; everything else is taken over from the published version.

    `then_the_table` is called when all partitions are reduced. `memory` is what planning learnt.

    `fragments` are the profiles of all fragments, by id; the plan is settled. Spark is asked for only when there is
    much to merge. Profiles of fragments that left the table stay known for `keep_versions` versions: a restore
    brings the fragments back.
    """
    plan = _with_lists_of_its_own(plan)
    lists = TableLists(engine, store, plan, fragments)
    try:
        return _assembled(engine, store, plan, fragments, keep_versions, then_the_table, memory or {}, lists)
    except BaseException:
        lists.discard()
        raise


def _assembled(
    engine: Engine,
    store: ObjectStore,
    plan: Plan,
    fragments: Mapping[str, FragmentEntry],
    keep_versions: int,
    then_the_table: Callable[[], None],
    memory: Mapping[bytes, bytes],
    lists: TableLists,
) -> Version:
    held = SpecCompatibility(plan.specs, plan.spec)
    known = {node.id: node for node in plan.base.nodes} if plan.base else {}
    reduced = _reduce_partitions(engine, store, plan, held, fragments, known, lists)
    partitions = [
        partition.reused or _partition(plan, partition, [fragments[i] for i in partition.fragments], reduced.files)
        for partition in plan.partitions
    ]
    unchanged = {partition.key for partition in plan.partitions if partition.reused is not None}
    kept_nodes = [node for node in known.values() if node_group(node.id) in unchanged]
    then_the_table()
    table_files, table_nodes = _reduce_table(engine, store, plan, held, partitions, known, lists)
    whole = [fragments[own].files for own in plan.partitions[0].fragments] if len(partitions) == 1 else None
    list_files = lists.files([entry.files for entry in partitions] if whole is None else whole)
    current = [fragments[own] for partition in plan.partitions for own in partition.fragments]
    entries = [*current, *_retired(plan, {entry.id for entry in current}, keep_versions)]
    nodes = [*kept_nodes, *reduced.nodes, *table_nodes]
    entries, nodes = compact_segments(engine, store, len(plan.spec.leaves), entries, nodes)
    index = table_index(
        engine, store, len(plan.spec.leaves), plan.base, [entry for entry in entries if entry.retired is None]
    )
    partition_files = table_partition_files(engine, store, len(plan.spec.leaves), plan.base, partitions)
    live = [entry for entry in entries if entry.retired is None]
    membership = table_membership(engine, store, filtered_columns(plan.spec), plan.base, live)
    used = {entry.spec_id for held_ in (entries, partitions, nodes) for entry in held_} | {plan.spec.id}
    return Version(
        number=plan.number,
        table=plan.table,
        format=plan.snapshot.format,
        snapshot=plan.snapshot.id,
        committed_at=plan.snapshot.committed_at,
        published_at=datetime.now(UTC),
        schema=_stored_schema(plan),
        partition_columns=plan.snapshot.partition_columns,
        row_count=sum(entry.row_count for entry in partitions),
        bytes=sum(entry.bytes for entry in partitions),
        content_id=content_id(plan.spec, partitions),
        files=table_files,
        code_version=package_version("metastore-assets"),
        spec_id=plan.spec.id,
        specs={key: value for key, value in plan.specs.items() if key in used},
        fragments=entries,
        partitions=partitions,
        nodes=nodes,
        memory=memory,
        lists=list_files,
        index=index,
        partition_files=partition_files,
        membership=membership,
        buckets=plan.snapshot.buckets,
        decisions=record(store, plan, table_files),
        dropped_columns=plan.dropped_columns,
        # Of a version that is rebuilt because the one before is damaged it is not known what was purged.
        purged=plan.base.purged if plan.base else (plan.number if plan.number > 1 else 0),
    )


def _stored_schema(plan: Plan) -> pa.Schema:
    """Return the schema of the snapshot, without defaults of columns that are hidden or hold what is."""
    owners = plan.spec.owners
    hidden = {owners[leaf.field_id] for leaf, policy in plan.spec.leaves if policy.values == "hidden"}
    schema = plan.snapshot.schema
    fields = [withhold_default_values(field) if field_identity(field) in hidden else field for field in schema]
    return pa.schema(fields, schema.metadata)


def _with_lists_of_its_own(plan: Plan) -> Plan:
    """A partition that was all of the table has no lists but the table's: it is computed anew beside others."""
    base = plan.base
    if base is None or base.lists is None or len(base.partitions) != 1 or len(plan.partitions) < 2:
        return plan
    partitions = tuple(
        replace(part, reused=None) if part.reused is not None and not part.reused.files.frequencies else part
        for part in plan.partitions
    )
    return replace(plan, partitions=partitions)


def _reduce_partitions(
    engine: Engine,
    store: ObjectStore,
    plan: Plan,
    held: SpecCompatibility,
    fragments: Mapping[str, FragmentEntry],
    known: Mapping[str, NodeEntry],
    lists: TableLists,
) -> Reduction:
    children: dict[str, list[Child]] = {}
    for entry in plan.base.fragments if plan.base else ():
        if entry.retired is None:
            children.setdefault(entry.partition_key, []).append(_child(entry, held))
    published = {entry.key: entry for entry in plan.base.partitions} if plan.base else {}
    groups = [
        Group(
            partition.key,
            "partitions",
            tuple(_child(fragments[own], held) for own in partition.fragments),
            _former(held, published[partition.key].files, published[partition.key].spec_id, children[partition.key])
            if partition.key in published
            else None,
            has_lists=len(plan.partitions) > 1,
        )
        for partition in plan.partitions
        if partition.reused is None
    ]
    return reduce_groups(engine, store, held, groups, known, lists.facts)


def _reduce_table(
    engine: Engine,
    store: ObjectStore,
    plan: Plan,
    held: SpecCompatibility,
    partitions: Sequence[PartitionEntry],
    known: Mapping[str, NodeEntry],
    lists: TableLists,
) -> tuple[ProfileFiles, Sequence[NodeEntry]]:
    base = plan.base
    # People read the table's own files: unlike partitions', these have the names and the order of now.
    children = tuple(
        Child(entry.key, entry.files, entry.spec_id, held.has_current_names(entry.spec_id), entry.row_count)
        for entry in partitions
    )
    if base is not None:
        before = [(entry.key, entry.files) for entry in base.partitions]
        if base.spec_id == plan.spec.id and before == [(child.key, child.files) for child in children]:
            return base.files, [node for node in known.values() if node_group(node.id) == TABLE]
    group = Group(TABLE, "table", children, is_merged_on=False, has_lists=False)
    reduction = reduce_groups(engine, store, held, [group], known, lists.facts)
    return reduction.files[TABLE], reduction.nodes


def _former(
    held: SpecCompatibility, files: ProfileFiles, spec_id: str, children: Sequence[Child]
) -> PreviousResult | None:
    """The published profile of a group, where its lists are what is wanted."""
    if not held.equals(spec_id):
        return None
    without = held.missing_columns(spec_id)
    for child in children:
        without &= held.missing_columns(child.spec_id)
    return PreviousResult(files, without, tuple(children))


def _child(entry: FragmentEntry, held: SpecCompatibility) -> Child:
    return Child(entry.id, entry.files, entry.spec_id, held.equals(entry.spec_id, entry.unlisted), entry.row_count)


def _partition(
    plan: Plan, partition: PartitionPlan, own: Sequence[FragmentEntry], files: Mapping[str, ProfileFiles]
) -> PartitionEntry:
    spec_id = plan.spec.id
    if len(own) == 1 and own[0].files == files[partition.key]:
        spec_id = own[0].spec_id
    return PartitionEntry(
        key=partition.key,
        content_id=partition_content_id(spec_id, partition.fragments),
        row_count=sum(entry.row_count for entry in own),
        bytes=sum(entry.bytes for entry in own),
        fragments=len(own),
        files=files[partition.key],
        version=plan.number,
        spec_id=spec_id,
        members=members_id(partition.fragments),
    )


def _retired(plan: Plan, live: set[str], keep_versions: int) -> list[FragmentEntry]:
    """Entries of fragments that are in no partition any more, as of the version that dropped them."""
    before = plan.base.fragments if plan.base else ()
    gone = [
        replace(entry, retired=plan.number if entry.retired is None else entry.retired)
        for entry in before
        if entry.id not in live
    ]
    return [entry for entry in gone if entry.retired is not None and entry.retired > plan.number - keep_versions]
