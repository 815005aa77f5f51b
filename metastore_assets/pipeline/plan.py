"""The plan of a refresh: which fragments are read, and which profiles are merged.

A fragment is a data file with its deletes. A profile is the statistics of a fragment, a partition or the table, and a
profile spec says which statistics it has. `make_plan` reads no files of the table. It uses only `PlanInputs` and the
request.

The first version of a table with very many fragments is made in lots. A lot is a limited number of fragments, which are
profiled and stored before the next lot is read. An enumerated column is stored as value counts: all distinct values
with their frequencies. A version is the published statistics of a table at one snapshot. It has an entry for each
fragment and each partition. An output is a part of a profile, such as the frequencies of a column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.digests import digest_texts
from metastore_assets.exports.export_result import ExportResult
from metastore_assets.expressions.partition_patterns import match_partitions
from metastore_assets.formats.base import (
    UNMAPPED_COLUMNS,
    Fragment,
    NoDiffError,
    SnapshotMetadata,
    SortedFragments,
    fragment_order,
)
from metastore_assets.pipeline.fragment_runs import FragmentRuns
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
    WriteExports,
    WriteIndexes,
    stages_to_json,
)
from metastore_assets.pipeline.table_changes import SnapshotChanges
from metastore_assets.store.entries import FRAGMENTS, PARTITIONS, StoredEntries, partition_fragment_counts
from metastore_assets.store.entry_changes import entries_of
from metastore_assets.store.version import FragmentEntry, PartitionEntry, Version, fragment_key


@dataclass(frozen=True)
class RefreshRequest:
    """The fragments that a refresh reads again although their profiles are stored; by default none."""

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
_MODULUS = 1 << 256
"""Content ids are sums modulo this number."""
_ENTRIES_PER_LOOKUP = 10_000
"""A lookup takes partitions until they have at least this number of published fragments."""


@dataclass(frozen=True)
class PlanInputs:
    """The published version, the changes of the table, the wanted profile spec, and stored profiles."""

    table: str
    base: Version | None
    """The last published version; None if there is none."""
    changes: SnapshotChanges
    """How the table's snapshot differs from the published version."""
    spec: ProfileSpec
    """The wanted outputs. Policies that depend on new profiles are not resolved."""
    stored_profiles: Sequence[FragmentEntry] = ()
    """Stored profiles besides those of the published version: of fragments that were removed earlier, and of attempts
    that did not publish."""
    attempt_profiles: Sequence[FragmentEntry] = ()
    """Profiles from earlier attempts with the same request. Their fragments are not read again even if the request
    says so."""
    specs: ProfileSpecs = field(default_factory=dict)
    """The specs under which stored profiles were made, by id."""
    number: int | None = None
    """Number of the next version; None for the number after `base`. If a damaged version is replaced, `base` is None,
    and the number is the one after the damaged version."""
    dropped_columns: tuple[str, ...] = ()
    """Columns that a policy names and that only earlier versions of the table had."""
    exports: tuple[str, ...] = ()
    """Names of the targets to which the version is exported."""


@dataclass(frozen=True)
class PartitionPlan:
    """A partition of the next version, with its entry and its fragments in the published version."""

    key: str
    fragments: tuple[str, ...]
    """Fragment ids, sorted."""
    reused_entry: PartitionEntry | None
    """The published partition if its profile is reused; None if the profile has to be merged."""
    published_entry: PartitionEntry | None = None
    """The partition in the published version; None if it is new."""
    fragments_before: tuple[FragmentEntry, ...] = ()
    """The fragments of the partition in the published version."""


@dataclass(frozen=True)
class TypeChange:
    """A column whose type differs from its type in the published version."""

    column: str
    before: pa.DataType
    now: pa.DataType
    reason: str | None
    """For formats that infer types from files: the content that did not fit the earlier type, and its file.
    Otherwise None."""

    def to_json(self) -> dict[str, object]:
        """Return the change as an item of `type_changes` in the JSON of a refresh and its plan."""
        return {"column": self.column, "before": str(self.before), "now": str(self.now), "reason": self.reason}


@dataclass(frozen=True)
class Target:
    """The partitions and the profile spec of the next version, as changes of the published version.

    It is planned before profiling. Then the stage `ResolveAutoPolicies` may change the spec, and the stage
    `SkipRewrites` may find more partitions whose published profile can be reused.
    """

    number: int
    base: Version | None
    changes: SnapshotChanges
    spec: ProfileSpec
    specs: ProfileSpecs
    """The specs of all stored profiles, and of those that the plan makes, by id."""
    partitions: tuple[PartitionPlan, ...]
    """The partitions that may differ from the published version, sorted by key."""
    removed_partition_entries: tuple[PartitionEntry, ...] = ()
    """The partitions of the published version that the snapshot does not have."""
    removed_fragments: tuple[FragmentEntry, ...] = ()
    """The fragments of the removed partitions."""

    @property
    def snapshot(self) -> SnapshotMetadata:
        """The snapshot that the next version describes."""
        return self.changes.snapshot

    @lock_free_cached_property
    def partition_count(self) -> int:
        """Number of partitions of the snapshot."""
        published_count = len(self.base.partitions) if self.base else 0
        new_count = sum(partition.published_entry is None for partition in self.partitions)
        return published_count + new_count - len(self.removed_partition_entries)

    @property
    def changed_partitions(self) -> tuple[str, ...]:
        """Keys of the partitions whose profile has to be merged."""
        return tuple(partition.key for partition in self.partitions if partition.reused_entry is None)

    def next_fragments(
        self, fragments: Mapping[str, FragmentEntry], keys: Set[str] | None = None
    ) -> Iterator[FragmentEntry]:
        """Yield the entries of fragments of the next version.

        The entries of other partitions than those in `self.partitions` are read from the published version, in batches.

        Args:
            fragments: The entries of all fragments of `self.partitions`, by fragment id.
            keys: Keys of the partitions whose fragments are yielded; None for all partitions.
        """
        for partition in self.partitions:
            if keys is None or partition.key in keys:
                yield from (fragments[id_] for id_ in partition.fragments)
        published_count = sum(partition.published_entry is not None for partition in self.partitions)
        published_count += len(self.removed_partition_entries)
        if self.base is None or published_count == len(self.base.partitions):
            return
        affected_keys = self._affected_keys
        if keys is None:
            base_fragments = self.base.fragments
            # Iteration over stored entries would read all of them, and keep them in memory.
            entries = base_fragments.stream() if isinstance(base_fragments, StoredEntries) else base_fragments
            yield from (entry for entry in entries if entry.partition_key not in affected_keys)
            return
        lookup, counts = entries_of(self.base, FRAGMENTS), partition_fragment_counts(self.base)
        prefixes: list[str] = []
        size = 0
        for key in sorted(keys - affected_keys):
            prefixes.append(fragment_key(key, ""))
            size += counts.get(key, 0)
            if size >= _ENTRIES_PER_LOOKUP:
                yield from lookup.find_prefixes(prefixes)
                prefixes, size = [], 0
        yield from lookup.find_prefixes(prefixes)

    @property
    def needs_partition_value_counts(self) -> bool:
        """Whether the only published partition needs value counts of its own in the next version.

        Value counts of a partition are not stored as long as the table has a single partition, because they equal the
        value counts of the table. The partition needs its own when a second partition is added. It may have them
        already, which is not checked here.
        """
        base = self.base
        return (
            base is not None
            and base.value_counts is not None
            and len(base.partitions) == 1
            and self.partition_count > 1
        )

    @property
    def fragments_before(self) -> list[FragmentEntry]:
        """The published fragments of the partitions in `partitions` and `removed_partition_entries`."""
        return [
            *chain.from_iterable(partition.fragments_before for partition in self.partitions),
            *self.removed_fragments,
        ]

    def row_count(self, fragments: Mapping[str, FragmentEntry]) -> int:
        """Return the number of rows of the next version.

        Args:
            fragments: The entries of all fragments of `self.partitions`, by fragment id.
        """
        added_rows = sum(fragments[id_].row_count for part in self.partitions for id_ in part.fragments)
        removed_rows = sum(entry.row_count for entry in self.fragments_before)
        return (self.base.row_count if self.base else 0) + added_rows - removed_rows

    @property
    def _affected_keys(self) -> set[str]:
        """The keys of the partitions that may differ from the published version, removed ones included."""
        partition_keys = {partition.key for partition in self.partitions}
        return partition_keys | {entry.key for entry in self.removed_partition_entries}

    def with_all_partitions(self) -> Target:
        """Return a target whose `partitions` are all partitions of the next version.

        They include the unchanged partitions.
        """
        if self.base is None:
            return self
        affected_keys = self._affected_keys
        published_entries = {entry.key: entry for entry in self.base.partitions if entry.key not in affected_keys}
        fragments: dict[str, list[FragmentEntry]] = {key: [] for key in published_entries}
        for entry in self.base.fragments if published_entries else ():
            if entry.partition_key in fragments:
                fragments[entry.partition_key].append(entry)
        others = [
            PartitionPlan(key, tuple(sorted(each.id for each in fragments[key])), entry, entry, tuple(fragments[key]))
            for key, entry in published_entries.items()
        ]
        partitions = sorted([*self.partitions, *others], key=lambda partition: partition.key)
        return replace(self, partitions=tuple(partitions))

    def with_spec(self, spec: ProfileSpec, fragments: Mapping[str, FragmentEntry]) -> Target:
        """Return the target with the given profile spec.

        Partitions whose published profile does not fit the spec will be merged.

        Only the published profiles of the partitions in `self.partitions` are compared with the spec. Unchanged
        partitions are usually not among them. Call `with_all_partitions` before to compare those, too; this is not
        checked.

        Args:
            spec: The profile spec.
            fragments: The entries of all fragments of `self.partitions`, by fragment id.
        """
        if spec.id == self.spec.id:
            return self
        specs = {**self.specs, spec.id: spec.column_specs}
        compatibility = SpecCompatibility(specs, spec)
        partitions = tuple(
            partition
            if partition.reused_entry is None
            or is_current_partition(
                compatibility, partition.reused_entry, [fragments[id_] for id_ in partition.fragments]
            )
            else replace(partition, reused_entry=None)
            for partition in self.partitions
        )
        return replace(self, spec=spec, specs=specs, partitions=partitions)


@dataclass(frozen=True)
class Lots:
    """The fragments of a first version that is made in lots.

    Only one lot is in memory at a time.
    """

    fragments: FragmentRuns | SortedFragments
    """All fragments of the snapshot."""
    profiled_count: int
    """Number of fragments to read."""
    bytes: int
    """Stored size in bytes of the fragments to read."""
    partition_keys: tuple[str, ...]
    """Keys of all partitions of the snapshot, sorted."""


@dataclass(frozen=True)
class Plan:
    """The stages that lead from the published version to the next one, with their inputs."""

    table: str
    target: Target
    """The partitions and the spec of the next version, as planned before profiling."""
    stages: tuple[PlanStage, ...]
    to_profile: tuple[Fragment, ...]
    """Fragments to read. All others have usable stored profiles."""
    reused_profiles: Mapping[str, FragmentEntry]
    """The usable stored profiles of fragments in `partitions`, by fragment id."""
    added_ids: tuple[str, ...]
    """Ids of fragments of the snapshot that are not in the published version."""
    removed_fragments: tuple[FragmentEntry, ...]
    """Fragments of the published version that are not in the snapshot."""
    unchanged_count: int
    """Number of fragments that are in both the published version and the snapshot."""
    removed_partitions: tuple[str, ...]
    type_changes: tuple[TypeChange, ...] = ()
    """Columns of both schemas whose type changed."""
    read_again: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Number of fragments that are read again because their profile lacks an output: {column: {output: number}}."""
    dropped_columns: tuple[str, ...] = ()
    """Columns that a policy names and that only earlier versions of the table had."""
    exports: tuple[ExportResult, ...] = ()
    """The state of each target under `exports`, if the published version is up to date; otherwise empty."""
    staged_version: Version | None = None
    """The finished lots of an interrupted first refresh, whose profiles are reused; None if there are none."""
    lots: Lots | None = None
    """The fragments, if the version is made in lots. Then `to_profile`, `reused_profiles`, `added_ids` and
    `partitions` are empty."""

    @property
    def number(self) -> int:
        """The number of the version that the plan publishes."""
        return self.target.number

    @property
    def base(self) -> Version | None:
        """The published version that the plan starts from; None if there is none."""
        return self.target.base

    @property
    def publishes(self) -> bool:
        """Whether the plan publishes a version.

        False if the published version is up to date.
        """
        return any(isinstance(stage, Publish) for stage in self.stages)

    @property
    def snapshot(self) -> SnapshotMetadata:
        """The snapshot that the plan describes."""
        return self.target.snapshot

    @property
    def spec(self) -> ProfileSpec:
        """The wanted profile spec.

        Policies that depend on new profiles are not resolved yet.
        """
        return self.target.spec

    @property
    def partitions(self) -> tuple[PartitionPlan, ...]:
        """The partitions that may differ from the published version, sorted by key."""
        return self.target.partitions

    @property
    def partition_count(self) -> int:
        """Number of partitions of the snapshot."""
        return len(self.lots.partition_keys) if self.lots else self.target.partition_count

    @property
    def partition_keys(self) -> set[str]:
        """Keys of all partitions of the snapshot."""
        return set(self.lots.partition_keys) if self.lots else self.target.changes.partition_keys(self.base)

    @property
    def changed_partitions(self) -> tuple[str, ...]:
        """Keys of the partitions whose profile has to be merged, as planned before profiling.

        If the version is made in lots, the result is all partitions, even if earlier lots have merged some partitions.
        """
        return self.lots.partition_keys if self.lots else self.target.changed_partitions

    @property
    def added_count(self) -> int:
        """Number of fragments of the snapshot that are not in the published version."""
        return self.lots.fragments.count if self.lots else len(self.added_ids)

    @property
    def may_read_again(self) -> dict[str, int]:
        """The number of fragments with reused profiles that may be read again, by fingerprinted column.

        A fingerprint is a short hash of a value. For a fingerprinted column, only values that occur at least twice are
        stored. Unchanged fragments are therefore read again in two cases, which only profiling detects:

        - A value that occurred once, in an unchanged fragment, now also occurs in an added fragment.
        - A removed value shares its fingerprint with other values, so it is unknown which of them was removed.

        The keys of the result are the paths of the columns. It is empty if no fragment was added or removed.
        """
        fingerprinted_paths = [column.path for column, policy in self.spec.columns if policy.is_fingerprinted]
        reused_count = len(self.added_ids) + self.unchanged_count - len(self.to_profile)
        return (
            dict.fromkeys(fingerprinted_paths, reused_count)
            if reused_count and (self.added_ids or self.removed_fragments)
            else {}
        )

    def to_json(self) -> dict[str, object]:
        """Return the plan as `refresh --dry-run --json` prints it."""
        profiled_count, size = len(self.to_profile), sum(fragment.bytes for fragment in self.to_profile)
        if self.lots:
            profiled_count, size = self.lots.profiled_count, self.lots.bytes
        return {
            "table": self.table,
            "version": self.number,
            "snapshot": self.snapshot.id,
            "dry_run": True,
            "full_comparison": self.target.changes.comparison or None,
            "fragments": {
                "added": self.added_count,
                "removed": len(self.removed_fragments),
                "unchanged": self.unchanged_count,
                "profiled": profiled_count,
            },
            "partitions": {
                "changed": len(self.changed_partitions),
                "removed": len(self.removed_partitions),
                "total": self.partition_count,
            },
            "changed_partitions": list(self.changed_partitions),
            "removed_partitions": list(self.removed_partitions),
            "type_changes": [change.to_json() for change in self.type_changes],
            "read_again": {column: dict(outputs) for column, outputs in self.read_again.items()},
            "may_read_again": self.may_read_again,
            "bytes_to_read": self.snapshot.bytes_read + size,
            "stages": stages_to_json(self.stages),
        }


def make_plan(inputs: PlanInputs, request: RefreshRequest = DEFAULT_REQUEST) -> Plan:
    """Plan a refresh from the changes of the table since the last published version.

    Args:
        inputs: The published version, the changes, the profile spec and the stored profiles.
        request: The fragments that are read again.

    Raises:
        PartitionNotFoundError: The request names a partition that the snapshot does not have.
        NoDiffError: The changes lack a fragment that has to be read. Compare complete snapshots instead.
    """
    base, changes, spec = inputs.base, inputs.changes, inputs.spec
    compatibility = SpecCompatibility(inputs.specs, spec)
    affected_partitions = _find_affected_partitions(inputs, request)
    forced_keys = set(affected_partitions.fragments) if request.full else affected_partitions.requested_keys
    locations = {
        id_: (key, path) for key, fragments in affected_partitions.fragments.items() for id_, path in fragments.items()
    }
    unforced_locations = {id_: location for id_, location in locations.items() if location[0] not in forced_keys}
    stored_profiles = [*chain.from_iterable(affected_partitions.fragments_before.values()), *inputs.stored_profiles]
    reused_profiles = {
        **usable_profiles(inputs.attempt_profiles, compatibility, locations),
        **usable_profiles(stored_profiles, compatibility, unforced_locations),
    }
    to_profile = _fragments_to_profile(changes, [id_ for id_ in locations if id_ not in reused_profiles])
    published_entries = (
        entries_of(base, PARTITIONS).find_all([*affected_partitions.fragments, *affected_partitions.fragments_before])
        if base
        else {}
    )
    target = Target(
        number=inputs.number or (base.number + 1 if base else 1),
        base=base,
        changes=changes,
        spec=spec,
        specs=inputs.specs if spec.id in inputs.specs else {**inputs.specs, spec.id: spec.column_specs},
        partitions=tuple(
            PartitionPlan(
                key,
                tuple(sorted(fragments)),
                None,
                published_entries.get(key),
                tuple(affected_partitions.fragments_before.get(key, ())),
            )
            for key, fragments in sorted(affected_partitions.fragments.items())
        ),
        removed_partition_entries=tuple(
            entry for key, entry in sorted(published_entries.items()) if key not in affected_partitions.fragments
        ),
        removed_fragments=tuple(
            entry
            for key, entries in sorted(affected_partitions.fragments_before.items())
            if key not in affected_partitions.fragments
            for entry in entries
        ),
    )
    merged_again = {fragment.partition_key for fragment in to_profile} | forced_keys
    target = _reuse_partitions(target, compatibility, reused_profiles, merged_again)
    removed_ids, added_ids = (
        {each.id for each in side} for side in (changes.removed_entries.values(), changes.added_fragments)
    )
    removed_entries = tuple(entry for entry in changes.removed_entries.values() if entry.id not in added_ids)
    return Plan(
        table=inputs.table,
        target=target,
        stages=_stages(target, request, to_profile, inputs.exports),
        to_profile=to_profile,
        reused_profiles=reused_profiles,
        added_ids=tuple(fragment.id for fragment in changes.added_fragments if fragment.id not in removed_ids),
        removed_fragments=removed_entries,
        unchanged_count=(len(base.fragments) if base else 0) - len(removed_entries),
        removed_partitions=tuple(entry.key for entry in target.removed_partition_entries),
        type_changes=_type_changes(base.schema, changes.snapshot) if base else (),
        read_again=count_missing_outputs(compatibility, stored_profiles, {fragment.id for fragment in to_profile}),
        dropped_columns=inputs.dropped_columns,
    )


@dataclass(frozen=True)
class _AffectedPartitions:
    """The partitions that may differ from the published version, with published and current fragments."""

    fragments_before: Mapping[str, Sequence[FragmentEntry]]
    """The published fragments, by partition key."""
    fragments: Mapping[str, Mapping[str, str]]
    """The current fragments: {partition key: {fragment id: path}}. Partitions without fragments are missing."""
    requested_keys: set[str]
    """Keys of the partitions whose fragments the request reads again."""


def _find_affected_partitions(inputs: PlanInputs, request: RefreshRequest) -> _AffectedPartitions:
    """Return the partitions that may differ from the published version, and those that the request names.

    These are all partitions if no version is published, if the request is to read everything again, or if the profile
    spec changed.

    Raises:
        PartitionNotFoundError: The request names a partition that the snapshot does not have.
    """
    base, changes, spec = inputs.base, inputs.changes, inputs.spec
    changed_keys = {fragment.partition_key for fragment in changes.added_fragments}
    changed_keys |= {entry.partition_key for entry in changes.removed_entries.values()}
    current: dict[str, dict[str, str]] = {}
    if changes.current is not None:
        for fragment in changes.current.values():
            current.setdefault(fragment.partition_key, {})[fragment.id] = fragment.path
    requested_keys: set[str] = set()
    if request.partitions:
        keys = changes.partition_keys(base) if changes.current is None else current
        requested_keys = match_partitions(inputs.table, request.partitions, keys)
    before: dict[str, list[FragmentEntry]] = {}
    if base is None or request.full or spec.id != base.spec_id:
        assert changes.current is not None, "the planner compares complete snapshots then"
        for entry in base.fragments if base else ():
            before.setdefault(entry.partition_key, []).append(entry)
        return _AffectedPartitions(before, current, requested_keys)
    affected_keys = changed_keys | requested_keys
    if len(base.partitions) == 1:
        affected_keys |= {entry.key for entry in base.partitions}  # It may need value counts, see `Target`.
    before |= {key: [*entries] for key, entries in changes.entries_before.items() if key in affected_keys and entries}
    unread = affected_keys - changes.entries_before.keys()
    for entry in entries_of(base, FRAGMENTS).find_prefixes([fragment_key(key, "") for key in unread]):
        before.setdefault(entry.partition_key, []).append(entry)
    if changes.current is not None:
        fragments = {key: current[key] for key in affected_keys if key in current}
        return _AffectedPartitions(before, fragments, requested_keys)
    fragments = {}
    for key, entries in before.items():
        remaining = {entry.id: entry.path for entry in entries if entry.key not in changes.removed_entries}
        if remaining:
            fragments[key] = remaining
    for fragment in changes.added_fragments:
        fragments.setdefault(fragment.partition_key, {})[fragment.id] = fragment.path
    return _AffectedPartitions(before, fragments, requested_keys)


def _fragments_to_profile(changes: SnapshotChanges, ids: Collection[str]) -> tuple[Fragment, ...]:
    """Return the fragments with these ids, sorted by partition key and id.

    Raises:
        NoDiffError: The fragment of an id is not in `changes`.
    """
    added_fragments = {fragment.id: fragment for fragment in (*changes.unchanged_fragments, *changes.added_fragments)}
    current = changes.current or {}
    candidates = [added_fragments.get(id_) or current.get(id_) for id_ in ids]
    fragments = [fragment for fragment in candidates if fragment is not None]
    if len(fragments) < len(candidates):
        raise NoDiffError("a stored profile of an unchanged fragment cannot be used")
    return tuple(sorted(fragments, key=fragment_order))


def _reuse_partitions(
    target: Target,
    compatibility: SpecCompatibility,
    profiles: Mapping[str, FragmentEntry],
    merged_again: Collection[str],
) -> Target:
    """Return the target with `reused_entry` set in each of its partitions.

    `reused_entry` is the published entry of the partition. It is None if the profile of the partition must be merged.

    Args:
        target: The target.
        compatibility: Compares specs of stored profiles with the wanted spec.
        profiles: The usable stored profiles, by fragment id.
        merged_again: Keys of the partitions that are merged in any case: fragments are read, or the request names them.
    """
    partitions = []
    for partition in target.partitions:
        entry = partition.published_entry
        is_reused = (
            entry is not None
            and partition.key not in merged_again
            and is_current_partition(compatibility, entry, [profiles[id_] for id_ in partition.fragments])
            and (entry.files.frequencies or not target.needs_partition_value_counts)
        )
        partitions.append(replace(partition, reused_entry=entry if is_reused else None))
    return replace(target, partitions=tuple(partitions))


def _stages(
    target: Target, request: RefreshRequest, to_profile: Sequence[Fragment], exports: tuple[str, ...]
) -> tuple[PlanStage, ...]:
    """Return the stages of a plan, in the order in which a refresh runs them.

    Args:
        target: The partitions and the profile spec of the next version.
        request: Which fragments are read again, although their profiles are stored.
        to_profile: The fragments that have no usable profile.
        exports: Names of the exports to write. If there are none, the plan has no stage for them.
    """
    changes, reading = target.changes, None
    if to_profile:
        fragment_count = len(target.base.fragments) if target.base else 0
        fragment_count += len(changes.added_fragments) - len(changes.removed_entries)
        size = sum(fragment.bytes for fragment in to_profile)
        reading = ProfileFragments(len(to_profile), size, fragment_count - len(to_profile))
    rewritten = () if request.forces_reading else rewritten_partitions(target, {fragment.id for fragment in to_profile})
    merging = MergePartitions(target.changed_partitions, target.partition_count)
    return (
        *version_stages(target.spec, reading, rewritten, merging),
        *publishing_stages(target.number, target.base.number if target.base else 0, exports),
    )


def version_stages(
    spec: ProfileSpec, reading: ProfileFragments | None, rewritten: tuple[str, ...], merging: MergePartitions
) -> tuple[PlanStage, ...]:
    """Return those stages of a plan that run before the version is published.

    Args:
        spec: The profile spec, as planned before profiling.
        reading: The stage that profiles fragments; None if all have a usable profile.
        rewritten: Keys of the partitions that both lost and gained fragments.
        merging: The stage that merges partitions. Its `changed_by` is replaced by the names of earlier stages that may
            change its work.
    """
    typed_ids = spec.typed_ids
    undecided_ids = undecided_columns(spec)
    auto_columns = tuple(column.path for column, _ in spec.columns if column.field_id in undecided_ids)
    counted_paths = tuple(
        column.path
        for column, policy in spec.columns
        if column.field_id in typed_ids and (policy.is_enumerated or policy.is_fingerprinted)
    )
    filtered_paths = tuple(
        column.path for column, policy in spec.columns if policy.has_value_filter and column.field_id in typed_ids
    )
    stages: list[PlanStage] = [] if reading is None else [reading]
    if auto_columns:
        stages += [ResolveAutoPolicies(auto_columns), DropValueCounts(auto_columns)]
    if reading is not None:
        stages.append(SaveProfiles(reading.fragments))
    if rewritten:
        stages.append(SkipRewrites(rewritten))
    changed_by = tuple(stage.name for stage in stages if isinstance(stage, ResolveAutoPolicies | SkipRewrites))
    return (
        *stages,
        replace(merging, changed_by=changed_by),
        MergeTable(),
        UpdateValueCounts(counted_paths),
        CompactSegments(),
        WriteIndexes(filtered_paths),
    )


def publishing_stages(number: int, previous: int, exports: tuple[str, ...]) -> tuple[PlanStage, ...]:
    """Return the last stages of a plan: those that publish the version and write it to export targets.

    Args:
        number: Number of the version.
        previous: Number of the previous version; 0 if there is none.
        exports: Names of the targets. If there are none, the plan has no stage for them.
    """
    return (Publish(number, previous), *([WriteExports(exports)] if exports else ()))


def undecided_columns(spec: ProfileSpec) -> frozenset[str]:
    """Return the field ids of columns that are enumerated until profiling decides otherwise.

    These columns have the policy `auto` or `repeated`.
    """
    enumerated_ids = {column.field_id for column, policy in spec.columns if policy.is_enumerated}
    return frozenset(enumerated_ids & spec.auto_ids & spec.typed_ids)


def rewritten_partitions(target: Target, profiled_ids: Collection[str]) -> tuple[str, ...]:
    """Return the keys of partitions that both lost and gained fragments, as after a compaction.

    A partition is omitted if the refresh reads one of its unchanged fragments, or if it must be merged because it needs
    value counts of its own (see `Target.needs_partition_value_counts`).

    Args:
        target: The next version, as planned before profiling.
        profiled_ids: Ids of the fragments that the refresh reads.
    """
    keys = []
    for partition in target.partitions:
        entry = partition.published_entry
        if entry is not None and (entry.files.frequencies or not target.needs_partition_value_counts):
            before, now = {fragment.id for fragment in partition.fragments_before}, set(partition.fragments)
            if now - before and before - now and not any(id_ in profiled_ids for id_ in before & now):
                keys.append(partition.key)
    return tuple(keys)


def _type_changes(before: pa.Schema, snapshot: SnapshotMetadata) -> tuple[TypeChange, ...]:
    """Return the columns of the snapshot whose type differs from the schema `before`.

    New columns are omitted.
    """
    types = {field_identity(field): field.type for field in before}
    reasons = {(reason.column, reason.type): reason.counterexample for reason in snapshot.type_reasons}
    return tuple(
        TypeChange(field.name, old, field.type, reasons.get((field.name, old)))
        for field in snapshot.schema
        if (old := types.get(field_identity(field), field.type)) != field.type
    )


def members_id(fragments: Iterable[str]) -> str:
    """Return a digest of the set of a partition's fragment ids."""
    return digest_texts(sorted(fragments))


def partition_content_id(spec_id: str, fragments: Iterable[str]) -> str:
    """Return a digest of what determines a partition's profile: its profile spec and its fragments."""
    return digest_texts([spec_id, *sorted(fragments)])


def content_id(spec: ProfileSpec, partitions: Iterable[PartitionEntry]) -> str:
    """Return a digest of a version's profile spec and of the content of its partitions.

    It is a sum with one term per partition, so `updated_content_id` can add and subtract single partitions.
    """
    return f"{sum(_content_digest(spec.id, partition) for partition in partitions) % _MODULUS:064x}"


def updated_content_id(
    spec: ProfileSpec, before: str, removed_entries: Iterable[PartitionEntry], added_entries: Iterable[PartitionEntry]
) -> str:
    """Return the content id of a version after a change of some partitions.

    Args:
        spec: The profile spec before and after the change.
        before: The content id before the change.
        removed_entries: The old entries of the removed and changed partitions.
        added_entries: The new entries of the added and changed partitions.
    """
    difference = int(content_id(spec, added_entries), 16) - int(content_id(spec, removed_entries), 16)
    return f"{(int(before, 16) + difference) % _MODULUS:064x}"


def _content_digest(spec_id: str, partition: PartitionEntry) -> int:
    text = chr(0).join((spec_id, partition.key, partition.content_id))
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), "big")


def is_current_partition(
    compatibility: SpecCompatibility, entry: PartitionEntry, fragments: Sequence[FragmentEntry]
) -> bool:
    """Return whether a new merge would produce the profile that a partition already has.

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
        missing <= compatibility.missing_columns(fragment.spec_id) and not _may_store(fragment, missing)
        for fragment in fragments
    )


def _may_store(entry: FragmentEntry, columns: Set[str]) -> bool:
    """Return whether a fragment's data file may have values of a column that its profile lacks.

    Args:
        entry: The fragment. Its `unprofiled` names the columns that the file has and the profile lacks.
        columns: The columns to test, all of which the profile lacks, each by the result of `field_identity`.
    """
    return bool(columns) and (UNMAPPED_COLUMNS in entry.unprofiled or not columns.isdisjoint(entry.unprofiled))


def count_missing_outputs(
    compatibility: SpecCompatibility, stored_profiles: Iterable[FragmentEntry], profiled_ids: set[str]
) -> dict[str, dict[str, int]]:
    """Return {column: {output: number of fragments that are read because their profile lacks it}}.

    The key of a column is its path. Outputs that belong to a top-level column as a whole have its identity as the key
    (see `field_identity`).

    Args:
        compatibility: Finds the wanted outputs that a stored profile does not have.
        stored_profiles: The entries of the stored profiles.
        profiled_ids: Ids of the fragments that are read.
    """
    paths = {column.field_id: column.path for column, _ in compatibility.wanted_spec.columns}
    counts: dict[str, dict[str, int]] = {}
    for entry in {entry.id: entry for entry in stored_profiles if entry.id in profiled_ids}.values():
        for field_id, output in compatibility.missing_outputs(entry.spec_id, entry.not_enumerated):
            by_output = counts.setdefault(paths.get(field_id, field_id), {})
            by_output[output] = by_output.get(output, 0) + 1
    return counts


def usable_profiles(
    profiles: Iterable[FragmentEntry], compatibility: SpecCompatibility, locations: Mapping[str, tuple[str, str]]
) -> dict[str, FragmentEntry]:
    """Return the stored profiles that satisfy the wanted spec, by fragment id.

    A profile may lack a wanted column if its fragment can have only nulls there.

    Args:
        profiles: Stored profiles.
        compatibility: Compares specs of stored profiles with the wanted spec.
        locations: {fragment id: (partition key, path)} in the snapshot. The returned entries have this key and path. A
            profile whose fragment is missing here is not returned.
    """
    usable: dict[str, FragmentEntry] = {}
    for entry in profiles:
        location = locations.get(entry.id)
        if location is None or entry.id in usable or not compatibility.satisfies(entry.spec_id, entry.not_enumerated):
            continue
        # A column is all null in fragments that were written without it, and must be read from the others.
        missing = compatibility.missing_columns(entry.spec_id)
        if not missing & compatibility.wanted_spec.defaulted_columns and not _may_store(entry, missing):
            if (entry.partition_key, entry.path) != location:
                entry = replace(entry, partition_key=location[0], path=location[1])
            usable[entry.id] = entry
    return usable
