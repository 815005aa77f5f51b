"""Detection of commits that move rows between files without changing a row, such as a compaction.

A fragment is a data file with its deletes, and its profile is its statistics. Profiles store a hash of the multiset of
each column's values. If the added and the removed fragments of a partition have equal hashes, the partition's published
profile stays valid and is reused. A profile spec says which statistics a profile has. A version has an entry for each
fragment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.plan import PartitionPlan, Target, is_current_partition, members_id
from metastore_assets.pipeline.profile_spec import ProfileSpec, SpecCompatibility
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored_states import read_states
from metastore_assets.pipeline.stages import SkipRewrites
from metastore_assets.statistics.merge import merge_states
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry, PartitionEntry, ProfileFiles

_COMPARED = (
    "field_id",
    "type_class",
    "value_count",
    "null_count",
    "multiset_hash",
    "minimum_length",
    "maximum_length",
    "total_length",
    "reason",
)
"""The statistics that are compared. Lists, maps and unsupported types have no hash, and no statistics besides these."""


@dataclass(frozen=True)
class _Rewrite:
    """The profiles of the fragments that a commit added to a partition, and of those that it removed."""

    partition_key: str
    added_profiles: tuple[ProfileFiles, ...]
    removed_profiles: tuple[ProfileFiles, ...]


def skip_rewrites(
    context: RefreshContext, stage: SkipRewrites, target: Target, fragments: Mapping[str, FragmentEntry]
) -> Target:
    """Return the target with published profiles for partitions whose rows only moved between files.

    A published profile is reused only if it also fits the profile spec.

    Args:
        context: The table, its store and engine.
        stage: The partitions to compare.
        target: The next version, with the profile spec as decided after profiling.
        fragments: The entries of all fragments of the target's partitions, by fragment id.

    Raises:
        CorruptionError: A stored profile is damaged.
    """
    compatibility = SpecCompatibility(target.specs, target.spec)
    candidates = set(stage.partitions)
    rewrites = []
    for partition in target.partitions:
        if partition.key in candidates and partition.reused_entry is None:
            assert partition.published_entry is not None
            if is_current_partition(compatibility, partition.published_entry, partition.fragments_before):
                rewrites += _rewrite(
                    partition.key, partition.fragments_before, [fragments[id_] for id_ in partition.fragments]
                )
    columns = len(target.spec.columns)
    weights = [columns * (len(rewrite.added_profiles) + len(rewrite.removed_profiles)) for rewrite in rewrites]
    compare = partial(_has_same_rows, context.objects, target.spec)
    unchanged_keys = {key for key, is_same in context.engine.merge(compare, rewrites, weights) if is_same}
    if not unchanged_keys:
        return target
    partitions = tuple(
        _reuse(partition, partition.published_entry, fragments)
        if partition.published_entry is not None and partition.key in unchanged_keys
        else partition
        for partition in target.partitions
    )
    return replace(target, partitions=partitions)


def _rewrite(key: str, before: Sequence[FragmentEntry], now: Sequence[FragmentEntry]) -> list[_Rewrite]:
    """Return the change of a partition as a list of one item if it may be a rewrite, else an empty list.

    A rewrite removes fragments, and adds others with the same total number of rows.

    Args:
        key: The key of the partition.
        before: The fragments of the partition before the change.
        now: Its fragments after the change.
    """
    ids_before, ids_now = {entry.id for entry in before}, {entry.id for entry in now}
    added_entries = [entry for entry in now if entry.id not in ids_before]
    removed_entries = [entry for entry in before if entry.id not in ids_now]
    if not added_entries or not removed_entries or _row_count(added_entries) != _row_count(removed_entries):
        return []
    return [
        _Rewrite(key, tuple(entry.files for entry in added_entries), tuple(entry.files for entry in removed_entries))
    ]


def _row_count(entries: Iterable[FragmentEntry]) -> int:
    return sum(entry.row_count for entry in entries)


def _has_same_rows(store: ObjectStore, spec: ProfileSpec, rewrite: _Rewrite) -> tuple[str, bool]:
    """Return (partition key, whether the added and the removed fragments have the same rows).

    Rows count as the same if the statistics in `_COMPARED` are equal in each column. May run in a worker process.
    """
    paths = [column.path for column, _ in spec.columns]
    with StatesReader(store) as reader:
        added_states, removed_states = (
            merge_states([read_states(reader, files, spec)[1] for files in side], paths).select(_COMPARED)
            for side in (rewrite.added_profiles, rewrite.removed_profiles)
        )
    return rewrite.partition_key, bool(added_states.equals(removed_states))


def _reuse(partition: PartitionPlan, entry: PartitionEntry, fragments: Mapping[str, FragmentEntry]) -> PartitionPlan:
    """Return the plan of a partition that keeps its published profile under a new set of fragments."""
    entries = [fragments[id_] for id_ in partition.fragments]
    reused_entry = replace(
        entry,
        members=members_id(partition.fragments),
        bytes=sum(each.bytes for each in entries),
        fragments=len(entries),
    )
    return replace(partition, reused_entry=reused_entry)
