"""The next version of a table, from a plan and the profiles of its fragments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING

from metastore_assets.pipeline.plan import Layout, Plan, content_id
from metastore_assets.pipeline.reduce import Child, Former, Group, node_group, reduce_groups
from metastore_assets.store.manifest import FragmentEntry, NodeEntry, PartitionEntry, ProfileFiles, Version
from metastore_assets.store.objects import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLE = "*"
"""Group key of the table-level profile; no partition key has this form."""


def next_version(
    spark: Callable[[], SparkSession],
    store: ObjectStore,
    plan: Plan,
    profiles: Iterable[FragmentEntry],
    keep_versions: int,
    then_the_table: Callable[[], None] = lambda: None,
) -> Version:
    """Reduce what the plan says has changed; everything else is taken over from the published version.

    `then_the_table` is called when all partitions are reduced.

    `profiles` are those made for the plan. Spark is asked for only when there is something to merge. Profiles of
    fragments that left the table stay known for `keep_versions` versions: a restore brings the fragments back.
    """
    fragments = {**plan.reused, **{entry.id: entry for entry in profiles}}
    base = plan.base if plan.base is not None and plan.base.layout == plan.layout.id else None
    known = {node.id: node.files for node in base.nodes} if base else {}
    files, new_nodes = _reduce_partitions(spark, store, plan, base, fragments, known)
    partitions = [
        partition.reused
        or _partition(
            plan.number, partition.key, partition.content_id, [fragments[i] for i in partition.fragments], files
        )
        for partition in plan.partitions
    ]
    unchanged = {partition.key for partition in plan.partitions if partition.reused is not None}
    kept_nodes = [node for node in base.nodes if node_group(node.id) in unchanged] if base else []
    then_the_table()
    table_files, table_nodes = _reduce_table(spark, store, plan.layout, base, partitions, known)
    current = [fragments[own] for partition in plan.partitions for own in partition.fragments]
    entries = [*current, *_retired(plan, {entry.id for entry in current}, keep_versions)]
    used = {entry.layout for entry in entries} | {plan.layout.id}
    layouts = {**(plan.base.layouts if plan.base else {}), plan.layout.id: plan.layout.signatures}
    return Version(
        number=plan.number,
        table=plan.table,
        format=plan.snapshot.format,
        snapshot=plan.snapshot.id,
        committed_at=plan.snapshot.committed_at,
        published_at=datetime.now(UTC),
        schema=plan.snapshot.schema,
        partition_columns=plan.snapshot.partition_columns,
        row_count=sum(entry.row_count for entry in partitions),
        bytes=sum(entry.bytes for entry in partitions),
        content_id=content_id(plan.layout, plan.partitions),
        files=table_files,
        code_version=package_version("metastore-assets"),
        layout=plan.layout.id,
        layouts={key: value for key, value in layouts.items() if key in used},
        fragments=entries,
        partitions=partitions,
        nodes=[*kept_nodes, *new_nodes, *table_nodes],
    )


def _reduce_partitions(
    spark: Callable[[], SparkSession],
    store: ObjectStore,
    plan: Plan,
    base: Version | None,
    fragments: Mapping[str, FragmentEntry],
    known: Mapping[str, ProfileFiles],
) -> tuple[Mapping[str, ProfileFiles], Sequence[NodeEntry]]:
    former: dict[str, list[Child]] = {}
    for entry in base.fragments if base else ():
        if entry.retired is None:
            former.setdefault(entry.partition_key, []).append(_child(entry, plan.layout))
    published = {entry.key: entry.files for entry in base.partitions} if base else {}
    groups = [
        Group(
            partition.key,
            "partitions",
            tuple(_child(fragments[own], plan.layout) for own in partition.fragments),
            Former(published[partition.key], tuple(former[partition.key])) if partition.key in published else None,
        )
        for partition in plan.partitions
        if partition.reused is None
    ]
    reduction = reduce_groups(spark, store, plan.layout, groups, known)
    return reduction.files, reduction.nodes


def _reduce_table(
    spark: Callable[[], SparkSession],
    store: ObjectStore,
    layout: Layout,
    base: Version | None,
    partitions: Sequence[PartitionEntry],
    known: Mapping[str, ProfileFiles],
) -> tuple[ProfileFiles, Sequence[NodeEntry]]:
    children = tuple(Child(entry.key, entry.files, True) for entry in partitions)
    former = tuple(Child(entry.key, entry.files, True) for entry in base.partitions) if base else ()
    if base is not None and former == children:
        return base.files, [node for node in base.nodes if node_group(node.id) == _TABLE]
    group = Group(
        _TABLE, "table", children, Former(base.files, former) if base is not None else None, is_merged_on=False
    )
    reduction = reduce_groups(spark, store, layout, [group], known)
    return reduction.files[_TABLE], reduction.nodes


def _child(entry: FragmentEntry, layout: Layout) -> Child:
    return Child(entry.id, entry.files, entry.layout == layout.id)


def _partition(
    number: int, key: str, content: str, own: Sequence[FragmentEntry], files: Mapping[str, ProfileFiles]
) -> PartitionEntry:
    return PartitionEntry(
        key=key,
        content_id=content,
        row_count=sum(entry.row_count for entry in own),
        bytes=sum(entry.bytes for entry in own),
        fragments=len(own),
        files=files[key],
        version=number,
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
