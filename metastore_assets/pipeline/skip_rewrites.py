"""Recognising commits that move rows and change none: a compaction, a clustering, a rewrite of files.

Numbers of a partition depend on the multiset of each column's values, of which the profiles keep a fingerprint. Where
what came and what went have the same ones, the published partition stays, with its files and its content id, and so
does everything that is made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.plan import PartitionPlan, Plan, holds, members_id
from metastore_assets.pipeline.profile_spec import ProfileSpec, SpecCompatibility
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored_states import read_states
from metastore_assets.statistics.merge import merge_states
from metastore_assets.store.manifest import FragmentEntry, PartitionEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore

_DECIDING = (
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
"""What two sets of rows must agree on to be told alike. Of columns of a class the fingerprint decides; of lists and
maps, and of types that are not profiled, these are all that is known, and they merge exactly."""


@dataclass(frozen=True)
class _Move:
    """What a commit did to one partition."""

    key: str
    came: tuple[ProfileFiles, ...]
    went: tuple[ProfileFiles, ...]


def skip_rewrites(engine: Engine, store: ObjectStore, plan: Plan, fragments: Mapping[str, FragmentEntry]) -> Plan:
    """The settled plan, in which partitions stay whose rows were only moved. `fragments`: all profiles, by id.

    Only profiles of what came and went are read, and only where both have equally many rows. Raises CorruptionError.
    """
    if plan.base is None:
        return plan
    known = SpecCompatibility(plan.specs, plan.spec)
    published = {entry.key: entry for entry in plan.base.partitions}
    before: dict[str, list[FragmentEntry]] = {}
    for entry in plan.base.fragments:
        if entry.retired is None:
            before.setdefault(entry.partition_key, []).append(entry)
    read = {fragment.id for fragment in plan.to_profile}
    moves = []
    for partition in plan.partitions:
        if partition.reused is None and partition.key in published:
            own = [fragments[id_] for id_ in partition.fragments]
            move = _move(known, published[partition.key], before.get(partition.key, []), own, read)
            moves += [move] if move is not None else []
    columns = len(plan.spec.leaves)
    weights = [columns * (len(move.came) + len(move.went)) for move in moves]
    same = {key for key, is_same in engine.merge(partial(_compare, store, plan.spec), moves, weights) if is_same}
    if not same:
        return plan
    partitions = tuple(
        _kept(partition, published[partition.key], fragments) if partition.key in same else partition
        for partition in plan.partitions
    )
    return replace(plan, partitions=partitions)


def _move(
    known: SpecCompatibility,
    entry: PartitionEntry,
    before: Sequence[FragmentEntry],
    now: Sequence[FragmentEntry],
    read: set[str],
) -> _Move | None:
    """What came and went, where it may be the same rows; None where it cannot, or has to be computed anew anyway."""
    was, is_ = {own.id for own in before}, {own.id for own in now}
    came = [own for own in now if own.id not in was]
    went = [own for own in before if own.id not in is_]
    if not came or not went or _rows(came) != _rows(went) or was & is_ & read or not holds(known, entry, before):
        return None
    return _Move(entry.key, tuple(own.files for own in came), tuple(own.files for own in went))


def _rows(entries: Iterable[FragmentEntry]) -> int:
    return sum(entry.row_count for entry in entries)


def _compare(store: ObjectStore, spec: ProfileSpec, move: _Move) -> tuple[str, bool]:
    """The partition's key, and whether its rows are the same as before. May run in a worker process."""
    paths = [leaf.path for leaf, _ in spec.leaves]
    with StatesReader(store) as opened:
        came, went = (
            merge_states([read_states(opened, files, spec)[1] for files in side], paths).select(_DECIDING)
            for side in (move.came, move.went)
        )
    return move.key, bool(came.equals(went))


def _kept(partition: PartitionPlan, entry: PartitionEntry, fragments: Mapping[str, FragmentEntry]) -> PartitionPlan:
    own = [fragments[id_] for id_ in partition.fragments]
    moved = replace(
        entry,
        members=members_id(partition.fragments),
        bytes=sum(each.bytes for each in own),
        fragments=len(own),
    )
    return replace(partition, reused=moved)
