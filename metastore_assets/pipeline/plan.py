"""The plan of a refresh: a pure function of the published version, the snapshot and the wanted outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from metastore_assets.expressions.partition_patterns import match_partitions
from metastore_assets.formats.base import Fragment, Snapshot
from metastore_assets.pipeline.column_spec import digest
from metastore_assets.pipeline.profile_spec import ProfileSpec, ProfileSpecs, SpecCompatibility, field_identity
from metastore_assets.pipeline.stages import (
    CompactSegments,
    DropValueCounts,
    MergePartitions,
    MergeTable,
    PlanStage,
    ProfileFragments,
    Publish,
    ResolveAutoPolicies,
    SaveProfiles,
    SkipRewrites,
    UpdateValueCounts,
    WriteIndexes,
    stages_to_json,
)
from metastore_assets.store.manifest import FragmentEntry, PartitionEntry, Version


@dataclass(frozen=True)
class RefreshRequest:
    """A request to read fragments again although their profiles are stored."""

    full: bool = False
    """Whether to read all fragments again."""
    partitions: tuple[str, ...] = ()
    """Keys or patterns of the partitions whose fragments to read again, see `match_partitions`."""

    @property
    def forces_reading(self) -> bool:
        """Whether any fragments are read again although their profiles are stored."""
        return self.full or bool(self.partitions)


DEFAULT_REQUEST = RefreshRequest()
"""The request to read only fragments without a stored profile."""


@dataclass(frozen=True)
class PlanInputs:
    """The inputs of a plan: snapshot, published version, wanted profile spec, and stored profiles."""

    table: str
    base: Version | None
    """The last published version; None if there is none."""
    snapshot: Snapshot
    spec: ProfileSpec
    """The wanted outputs. Policies that depend on profiles still to be made are not resolved."""
    stored: Sequence[FragmentEntry] = ()
    """Stored profiles: of the published version, of removed fragments, and of attempts that did not publish."""
    attempt_profiles: Sequence[FragmentEntry] = ()
    """Profiles from earlier attempts with the same request. They are used even for fragments that the request reads
    again."""
    specs: ProfileSpecs = field(default_factory=dict)
    """The specs under which stored profiles were made, by id."""
    number: int | None = None
    """Number of the next version; None for the number after `base`. It is set if a damaged version is replaced, without
    `base`."""
    dropped_columns: tuple[str, ...] = ()
    """Columns that a policy names and that only earlier versions of the table had."""


@dataclass(frozen=True)
class PartitionPlan:
    """One partition of the next version."""

    key: str
    fragments: tuple[str, ...]
    """Fragment ids, sorted."""
    reused: PartitionEntry | None
    """The published partition if its profile is reused; None if the profile has to be merged."""


@dataclass(frozen=True)
class TypeChange:
    """A column whose type differs from its type in the published version."""

    column: str
    before: pa.DataType
    now: pa.DataType
    reason: str | None
    """The content that did not fit the earlier type, and its file. Only for formats that infer types from file
    contents."""

    def to_json(self) -> dict[str, object]:
        """Return the change as an item of `type_changes`, which a refresh and its plan print."""
        return {"column": self.column, "before": str(self.before), "now": str(self.now), "reason": self.reason}


@dataclass(frozen=True)
class Target:
    """The partitions and the profile spec of the next version.

    The target is planned before fragments are profiled. Then two stages may change it. `ResolveAutoPolicies` changes
    the spec, and with it which partitions are reused. `SkipRewrites` adds reused partitions.
    """

    number: int
    base: Version | None
    snapshot: Snapshot
    spec: ProfileSpec
    specs: ProfileSpecs
    """The specs of all stored profiles, and of those that the plan makes, by id."""
    partitions: tuple[PartitionPlan, ...]
    """Every partition of the snapshot, sorted by key."""

    @property
    def changed_partitions(self) -> tuple[str, ...]:
        """Keys of the partitions whose profile has to be merged."""
        return tuple(partition.key for partition in self.partitions if partition.reused is None)

    @property
    def needs_partition_value_counts(self) -> bool:
        """Whether value counts of single partitions have to be made that the base does not store.

        The value counts of an only partition are those of the table, so they are not stored twice. The partition needs
        its own when a second partition is added.
        """
        base = self.base
        return (
            base is not None
            and base.value_counts is not None
            and len(base.partitions) == 1
            and len(self.partitions) > 1
        )

    def with_spec(self, spec: ProfileSpec, fragments: Mapping[str, FragmentEntry]) -> Target:
        """Return the target with another profile spec.

        Partitions that do not fit the spec are no longer reused.

        Args:
            spec: The profile spec.
            fragments: The profiles of all fragments of the snapshot, by id.
        """
        if spec.id == self.spec.id:
            return self
        specs = {**self.specs, spec.id: spec.column_specs}
        compatibility = SpecCompatibility(specs, spec)
        partitions = tuple(
            partition
            if partition.reused is None
            or is_current_partition(compatibility, partition.reused, [fragments[id_] for id_ in partition.fragments])
            else replace(partition, reused=None)
            for partition in self.partitions
        )
        return replace(self, spec=spec, specs=specs, partitions=partitions)


@dataclass(frozen=True)
class Plan:
    """The stages that lead from the published version to the next one, and their inputs."""

    table: str
    target: Target
    """The partitions and the spec of the next version, as planned before profiling."""
    stages: tuple[PlanStage, ...]
    to_profile: tuple[Fragment, ...]
    """Fragments to read. All other fragments have usable stored profiles."""
    reused: Mapping[str, FragmentEntry]
    """The usable stored profiles, by fragment id."""
    added: tuple[str, ...]
    """Ids of fragments of the snapshot that are not in the published version."""
    removed: tuple[FragmentEntry, ...]
    """Fragments of the published version that are not in the snapshot."""
    unchanged: int
    """Number of fragments that are in both the published version and the snapshot."""
    removed_partitions: tuple[str, ...]
    type_changes: tuple[TypeChange, ...] = ()
    """Columns of both schemas whose type changed."""
    read_again: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Number of fragments that are read again because their profile lacks an output, by column and output."""
    dropped_columns: tuple[str, ...] = ()
    """Columns that a policy names and that only earlier versions of the table had."""

    @property
    def number(self) -> int:
        """The number of the version that the plan publishes."""
        return self.target.number

    @property
    def base(self) -> Version | None:
        """The published version that the plan starts from; None if there is none."""
        return self.target.base

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that the plan describes."""
        return self.target.snapshot

    @property
    def spec(self) -> ProfileSpec:
        """The wanted profile spec. Policies that depend on profiles still to be made are not resolved."""
        return self.target.spec

    @property
    def partitions(self) -> tuple[PartitionPlan, ...]:
        """Every partition of the snapshot, sorted by key."""
        return self.target.partitions

    @property
    def changed_partitions(self) -> tuple[str, ...]:
        """Keys of the partitions whose profile has to be merged, as planned before profiling."""
        return self.target.changed_partitions

    @property
    def may_read_again(self) -> dict[str, int]:
        """Number of unchanged fragments whose values may be read again, by path of each fingerprinted column.

        Fingerprinted columns store short hashes, and values only where a hash occurs at least twice. A fragment is read
        again if one of its values occurs twice now and once before. Which fragments these are is unknown before
        profiling.
        """
        fingerprinted = [leaf.path for leaf, policy in self.spec.leaves if policy.is_fingerprinted]
        profiled = {fragment.id for fragment in self.to_profile}
        unchanged = sum(entry.id not in profiled for entry in self.reused.values())
        return dict.fromkeys(fingerprinted, unchanged) if unchanged and (self.added or self.removed) else {}

    def to_json(self) -> dict[str, object]:
        """Return the plan as `refresh --dry-run --json` prints it."""
        return {
            "table": self.table,
            "version": self.number,
            "snapshot": self.snapshot.id,
            "dry_run": True,
            "fragments": {
                "added": len(self.added),
                "removed": len(self.removed),
                "kept": self.unchanged,
                "profiled": len(self.to_profile),
            },
            "partitions": {
                "changed": len(self.changed_partitions),
                "removed": len(self.removed_partitions),
                "total": len(self.partitions),
            },
            "changed_partitions": list(self.changed_partitions),
            "removed_partitions": list(self.removed_partitions),
            "type_changes": [change.to_json() for change in self.type_changes],
            "read_again": {column: dict(outputs) for column, outputs in self.read_again.items()},
            "may_read_again": self.may_read_again,
            "bytes_to_read": self.snapshot.bytes_read + sum(fragment.bytes for fragment in self.to_profile),
            "stages": stages_to_json(self.stages),
        }


def make_plan(inputs: PlanInputs, request: RefreshRequest = DEFAULT_REQUEST) -> Plan:
    """Plan a refresh: compare a snapshot with the last published version.

    Args:
        inputs: The snapshot, the published version, the profile spec and the stored profiles.
        request: The fragments that are read again.

    Raises:
        PartitionNotFoundError: The request names a partition that the snapshot does not have.
    """
    base, snapshot, spec = inputs.base, inputs.snapshot, inputs.spec
    compatibility = SpecCompatibility(inputs.specs, spec)
    fragments_by_partition: dict[str, list[Fragment]] = {}
    for fragment in snapshot.fragments:
        fragments_by_partition.setdefault(fragment.partition_key, []).append(fragment)
    requested = match_partitions(inputs.table, request.partitions, fragments_by_partition)
    forced = set(fragments_by_partition) if request.full else requested
    attempt_profiles = _usable_profiles(inputs.attempt_profiles, compatibility, snapshot, ())
    reused = {**attempt_profiles, **_usable_profiles(inputs.stored, compatibility, snapshot, forced)}
    to_profile = tuple(fragment for fragment in snapshot.fragments if fragment.id not in reused)
    published = {entry.id: entry for entry in base.fragments} if base else {}
    current = {fragment.id for fragment in snapshot.fragments}
    target = Target(
        number=inputs.number or (base.number + 1 if base else 1),
        base=base,
        snapshot=snapshot,
        spec=spec,
        specs={**compatibility.specs, spec.id: spec.column_specs},
        partitions=tuple(
            PartitionPlan(key, tuple(sorted(fragment.id for fragment in fragments_by_partition[key])), None)
            for key in sorted(fragments_by_partition)
        ),
    )
    merged_again = {fragment.partition_key for fragment in to_profile} | forced
    target = _reuse_partitions(target, compatibility, reused, merged_again)
    return Plan(
        table=inputs.table,
        target=target,
        stages=_stages(target, request, to_profile, len(reused)),
        to_profile=to_profile,
        reused=reused,
        added=tuple(fragment.id for fragment in snapshot.fragments if fragment.id not in published),
        removed=tuple(entry for id_, entry in published.items() if id_ not in current),
        unchanged=len(current & set(published)),
        removed_partitions=tuple(
            sorted({entry.key for entry in base.partitions} - set(fragments_by_partition)) if base else ()
        ),
        type_changes=_type_changes(base.schema, snapshot) if base else (),
        read_again=_read_again(compatibility, inputs.stored, {fragment.id for fragment in to_profile}),
        dropped_columns=inputs.dropped_columns,
    )


def _reuse_partitions(
    target: Target,
    compatibility: SpecCompatibility,
    profiles: Mapping[str, FragmentEntry],
    merged_again: Collection[str],
) -> Target:
    """Return the target in which each partition that needs no merge reuses its published entry.

    Args:
        target: The target.
        compatibility: Compares specs of stored profiles with the wanted spec.
        profiles: The usable stored profiles, by fragment id.
        merged_again: Keys of the partitions with fragments that are read.
    """
    published = {entry.key: entry for entry in target.base.partitions} if target.base else {}
    partitions = []
    for partition in target.partitions:
        entry = published.get(partition.key)
        is_reused = (
            entry is not None
            and partition.key not in merged_again
            and is_current_partition(compatibility, entry, [profiles[id_] for id_ in partition.fragments])
            and (entry.files.frequencies or not target.needs_partition_value_counts)
        )
        partitions.append(replace(partition, reused=entry if is_reused else None))
    return replace(target, partitions=tuple(partitions))


def _stages(
    target: Target, request: RefreshRequest, to_profile: Sequence[Fragment], reused: int
) -> tuple[PlanStage, ...]:
    """Return the stages of a plan, in the order in which they run."""
    spec, valued = target.spec, target.spec.typed_leaves
    undecided = undecided_columns(spec)
    auto_columns = tuple(leaf.path for leaf, _ in spec.leaves if leaf.field_id in undecided)
    counted = tuple(
        leaf.path
        for leaf, policy in spec.leaves
        if leaf.field_id in valued and (policy.is_enumerated or policy.is_fingerprinted)
    )
    filtered = tuple(leaf.path for leaf, policy in spec.leaves if policy.has_value_filter and leaf.field_id in valued)
    rewritten = () if request.forces_reading else rewritten_partitions(target, {fragment.id for fragment in to_profile})
    stages: list[PlanStage] = []
    if to_profile:
        stages.append(ProfileFragments(len(to_profile), sum(fragment.bytes for fragment in to_profile), reused))
    if auto_columns:
        stages += [ResolveAutoPolicies(auto_columns), DropValueCounts(auto_columns)]
    if to_profile:
        stages.append(SaveProfiles(len(to_profile)))
    if rewritten:
        stages.append(SkipRewrites(rewritten))
    changed_by = tuple(stage.name for stage in stages if isinstance(stage, ResolveAutoPolicies | SkipRewrites))
    return (
        *stages,
        MergePartitions(target.changed_partitions, len(target.partitions), changed_by),
        MergeTable(),
        UpdateValueCounts(counted),
        CompactSegments(),
        WriteIndexes(filtered),
        Publish(target.number, target.base.number if target.base else 0),
    )


def undecided_columns(spec: ProfileSpec) -> frozenset[str]:
    """Return the field ids of columns that are enumerated for now, but may not be after profiling.

    Their policy depends on the values.
    """
    enumerated = {leaf.field_id for leaf, policy in spec.leaves if policy.is_enumerated}
    return frozenset(enumerated & spec.auto_leaves & spec.typed_leaves)


def rewritten_partitions(target: Target, profiled: Collection[str]) -> tuple[str, ...]:
    """Return the keys of published partitions whose files may have been rewritten without a change of rows.

    These partitions both lost and gained fragments, as in a compaction.

    Args:
        target: The next version, as planned before profiling.
        profiled: Ids of the fragments that the refresh reads. A partition is left out if one of its unchanged
            fragments is among them.
    """
    base = target.base
    if base is None:
        return ()
    published = {
        entry.key for entry in base.partitions if entry.files.frequencies or not target.needs_partition_value_counts
    }
    fragments_before: dict[str, set[str]] = {}
    for entry in base.fragments:
        fragments_before.setdefault(entry.partition_key, set()).add(entry.id)
    keys = []
    for partition in target.partitions:
        if partition.key in published:
            before, now = fragments_before.get(partition.key, set()), set(partition.fragments)
            if now - before and before - now and not any(id_ in profiled for id_ in before & now):
                keys.append(partition.key)
    return tuple(keys)


def _type_changes(before: pa.Schema, snapshot: Snapshot) -> tuple[TypeChange, ...]:
    """Return the columns of the snapshot whose type differs from the schema `before`.

    Columns are matched by identity. New columns are left out.
    """
    types = {field_identity(field): field.type for field in before}
    reasons = {(reason.column, reason.type): reason.counterexample for reason in snapshot.type_reasons}
    return tuple(
        TypeChange(field.name, old, field.type, reasons.get((field.name, old)))
        for field in snapshot.schema
        if (old := types.get(field_identity(field), field.type)) != field.type
    )


def members_id(fragments: Iterable[str]) -> str:
    """Return a digest that identifies the set of fragments of a partition."""
    return digest(sorted(fragments))


def partition_content_id(spec_id: str, fragments: Iterable[str]) -> str:
    """Return a digest of all that determines a partition's profile: its profile spec and its fragments."""
    return digest([spec_id, *sorted(fragments)])


def content_id(spec: ProfileSpec, partitions: Iterable[PartitionEntry]) -> str:
    """Return a digest of all that determines a version's numbers: its spec, and its partitions' content."""
    return digest([spec.id, *(f"{partition.key}:{partition.content_id}" for partition in partitions)])


def is_current_partition(
    compatibility: SpecCompatibility, entry: PartitionEntry, fragments: Sequence[FragmentEntry]
) -> bool:
    """Return whether a published partition has the profile that a new merge would give.

    Args:
        compatibility: Compares specs of stored profiles with the wanted spec.
        entry: The published partition.
        fragments: The fragments that the partition has in the next version.
    """
    if entry.members != members_id(fragment.id for fragment in fragments):
        return False
    # The profile of a partition of one fragment may be that fragment's profile, which may not be enumerated.
    not_enumerated = fragments[0].not_enumerated if len(fragments) == 1 and fragments[0].files == entry.files else ()
    if not compatibility.equals(entry.spec_id, not_enumerated):
        return False
    missing = compatibility.missing_columns(entry.spec_id)
    if not missing:
        return True
    if compatibility.has_user_defined(missing):
        return False  # A user-defined statistic has a value for no rows, too.
    # Columns that the partition's profile lacks must be null in all of its rows.
    return all(
        missing <= compatibility.missing_columns(fragment.spec_id) and not missing & set(fragment.unprofiled)
        for fragment in fragments
    )


def _read_again(
    compatibility: SpecCompatibility, stored: Iterable[FragmentEntry], profiled: set[str]
) -> dict[str, dict[str, int]]:
    """Return how many fragments are read again because of each missing output.

    Args:
        compatibility: Compares specs of stored profiles with the wanted spec.
        stored: The stored profiles.
        profiled: Ids of the fragments that are read. Stored profiles of other fragments are ignored.

    Returns:
        The number of fragments by path of the leaf, then by name of the output.
    """
    paths = {leaf.field_id: leaf.path for leaf, _ in compatibility.wanted.leaves}
    counts: dict[str, dict[str, int]] = {}
    for entry in {entry.id: entry for entry in stored if entry.id in profiled}.values():
        for leaf, output in compatibility.missing_outputs(entry.spec_id, entry.not_enumerated):
            by_output = counts.setdefault(paths.get(leaf, leaf), {})
            by_output[output] = by_output.get(output, 0) + 1
    return counts


def _usable_profiles(
    profiles: Iterable[FragmentEntry], compatibility: SpecCompatibility, snapshot: Snapshot, forced: Collection[str]
) -> dict[str, FragmentEntry]:
    """Return the profiles that can be used instead of reading their fragments, by fragment id.

    A usable profile satisfies the wanted spec. It gets the partition key and path that the fragment has in the
    snapshot. Profiles of fragments in the partitions `forced` are left out, because these fragments are read again.
    """
    fragments = {fragment.id: fragment for fragment in snapshot.fragments if fragment.partition_key not in forced}
    usable: dict[str, FragmentEntry] = {}
    for entry in profiles:
        fragment = fragments.get(entry.id)
        if fragment is None or entry.id in usable or not compatibility.satisfies(entry.spec_id, entry.not_enumerated):
            continue
        # A column is all null in fragments that were written without it, and must be read from the others.
        missing = compatibility.missing_columns(entry.spec_id)
        if not missing & compatibility.wanted.defaulted_columns and not missing & set(entry.unprofiled):
            if (entry.partition_key, entry.path) != (fragment.partition_key, fragment.path):
                entry = replace(entry, partition_key=fragment.partition_key, path=fragment.path)
            usable[entry.id] = entry
    return usable
