"""What a refresh has to do: a pure function of the last published version and the table's snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from metastore_assets.expressions.partition_patterns import match_partitions
from metastore_assets.formats.base import Fragment, Snapshot
from metastore_assets.pipeline.column_spec import digest
from metastore_assets.pipeline.profile_spec import ProfileSpec, ProfileSpecs, SpecCompatibility, field_identity
from metastore_assets.store.manifest import FragmentEntry, PartitionEntry, Version


@dataclass(frozen=True)
class PartitionPlan:
    """One partition of the next version."""

    key: str
    fragments: tuple[str, ...]
    """Fragment ids, sorted."""
    reused: PartitionEntry | None
    """The published partition that stays as it is, or None when it has to be computed."""


@dataclass(frozen=True)
class TypeChange:
    """A column that is of another type than in the published version."""

    column: str
    before: pa.DataType
    now: pa.DataType
    reason: str | None
    """What in which file is not of the type before, where the files' contents decide."""

    def to_json(self) -> dict[str, object]:
        """One of the `type_changes` of a refresh or its plan."""
        return {"column": self.column, "before": str(self.before), "now": str(self.now), "reason": self.reason}


@dataclass(frozen=True)
class Plan:
    """The steps from the published version to the next one. Nothing is done by making it."""

    table: str
    number: int
    """The version that this plan leads to."""
    base: Version | None
    snapshot: Snapshot
    spec: ProfileSpec
    to_profile: tuple[Fragment, ...]
    """Fragments that must be read. Everything else is merged from what is stored."""
    reused: Mapping[str, FragmentEntry]
    """Stored profiles by fragment id."""
    added: tuple[str, ...]
    """Ids of fragments of the snapshot that the published version did not have."""
    removed: tuple[FragmentEntry, ...]
    """Fragments of the published version that the snapshot does not have."""
    kept: int
    """Number of fragments in both."""
    partitions: tuple[PartitionPlan, ...]
    """Every partition of the snapshot, sorted by key."""
    removed_partitions: tuple[str, ...]
    type_changes: tuple[TypeChange, ...] = ()
    """Of columns that are in both schemas; their values are read again."""
    specs: ProfileSpecs = field(default_factory=dict)
    """What the stored profiles hold, and what those will that are made for the plan."""
    read_again: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By column, for the sake of which outputs how many known fragments are read again: what is stored lacks these."""
    dropped_columns: tuple[str, ...] = ()
    """Columns that a policy names and the table does not have, but had in an earlier version."""

    @property
    def may_read_again(self) -> dict[str, int]:
        """By column that is kept by fingerprints: of how many fragments, that stay, values may be read again.

        It is read in those that hold a value which comes to occur twice: which these are, what comes decides.
        """
        printed = [leaf.path for leaf, policy in self.spec.leaves if policy.is_fingerprinted]
        read = {fragment.id for fragment in self.to_profile}
        stay = sum(entry.id not in read for entry in self.reused.values())
        return dict.fromkeys(printed, stay) if stay and (self.added or self.removed) else {}

    @property
    def changed_partitions(self) -> tuple[str, ...]:
        """Keys of the partitions that have to be computed."""
        return tuple(partition.key for partition in self.partitions if partition.reused is None)

    def to_json(self) -> dict[str, object]:
        """The shape of `refresh --dry-run --json`."""
        return {
            "table": self.table,
            "version": self.number,
            "snapshot": self.snapshot.id,
            "dry_run": True,
            "fragments": {
                "added": len(self.added),
                "removed": len(self.removed),
                "kept": self.kept,
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
        }


def make_plan(
    table: str,
    base: Version | None,
    snapshot: Snapshot,
    spec: ProfileSpec,
    *,
    stored: Iterable[FragmentEntry] = (),
    fresh: Iterable[FragmentEntry] = (),
    specs: ProfileSpecs | None = None,
    full: bool = False,
    partitions: Collection[str] = (),
    number: int | None = None,
) -> Plan:
    """Compare a snapshot with the last published version.

    `stored` are the profiles there are: of the published version, of fragments that left the table earlier, and of
    attempts that did not publish; `specs` tells by profile spec id what each of them holds. With `full` every fragment
    is read again; `partitions` names partitions, by key or pattern (see `match_partitions`), whose fragments are read
    again whatever is stored. But none is that has a profile among the `fresh` ones: those were made for the same
    request, by a plan that could not be carried out.

    `number` is that of the version to publish where it does not follow `base`: when what is published is damaged.

    Raises PartitionNotFoundError when `partitions` names one that the snapshot does not have, and says what is near.
    """
    known = SpecCompatibility(specs or {}, spec)
    stored = list(stored)
    by_key: dict[str, list[Fragment]] = {}
    for fragment in snapshot.fragments:
        by_key.setdefault(fragment.partition_key, []).append(fragment)
    named = match_partitions(table, partitions, by_key)
    forced = set(by_key) if full else named
    done = _usable(fresh, known, snapshot, set())
    reused = {**done, **_usable(stored, known, snapshot, forced)}
    to_profile = tuple(fragment for fragment in snapshot.fragments if fragment.id not in reused)
    published = {entry.id: entry for entry in base.fragments if entry.retired is None} if base else {}
    current = {fragment.id for fragment in snapshot.fragments}
    before = {entry.key: entry for entry in base.partitions} if base else {}
    again = {fragment.partition_key for fragment in to_profile} | forced
    plans = []
    for key in sorted(by_key):
        ids = tuple(sorted(fragment.id for fragment in by_key[key]))
        entry = before.get(key)
        same = entry is not None and key not in again and holds(known, entry, [reused[own] for own in ids])
        plans.append(PartitionPlan(key, ids, entry if same else None))
    return Plan(
        table=table,
        number=number or (base.number + 1 if base else 1),
        base=base,
        snapshot=snapshot,
        spec=spec,
        to_profile=to_profile,
        reused=reused,
        added=tuple(fragment.id for fragment in snapshot.fragments if fragment.id not in published),
        removed=tuple(entry for key, entry in published.items() if key not in current),
        kept=len(current & set(published)),
        partitions=tuple(plans),
        removed_partitions=tuple(sorted(set(before) - set(by_key))),
        type_changes=_type_changes(base.schema, snapshot) if base else (),
        specs={**known.specs, spec.id: spec.column_specs},
        read_again=_read_again(known, stored, {fragment.id for fragment in to_profile}),
    )


def _type_changes(before: pa.Schema, snapshot: Snapshot) -> tuple[TypeChange, ...]:
    types = {field_identity(field): field.type for field in before}
    reasons = {(reason.column, reason.type): reason.evidence for reason in snapshot.type_reasons}
    return tuple(
        TypeChange(field.name, old, field.type, reasons.get((field.name, old)))
        for field in snapshot.schema
        if (old := types.get(field_identity(field), field.type)) != field.type
    )


def members_id(fragments: Iterable[str]) -> str:
    """Digest of which fragments a partition consists of."""
    return digest(sorted(fragments))


def partition_content_id(spec_id: str, fragments: Iterable[str]) -> str:
    """Digest of what determines a partition's profile: the profile spec that it was made under, and its fragments."""
    return digest([spec_id, *sorted(fragments)])


def content_id(spec: ProfileSpec, partitions: Iterable[PartitionEntry]) -> str:
    """Digest of everything a version's numbers depend on."""
    return digest([spec.id, *(f"{partition.key}:{partition.content_id}" for partition in partitions)])


def holds(known: SpecCompatibility, entry: PartitionEntry, fragments: Sequence[FragmentEntry]) -> bool:
    """Return whether a published partition profile equals a new merge of these fragments under the wanted spec."""
    if entry.members != members_id(fragment.id for fragment in fragments):
        return False
    # A partition of one fragment may be that fragment's profile, which lists what its profile spec leaves open.
    unlisted = fragments[0].unlisted if len(fragments) == 1 and fragments[0].files == entry.files else ()
    if not known.equals(entry.spec_id, unlisted):
        return False
    missing = known.missing_columns(entry.spec_id)
    if not missing:
        return True
    if known.has_user_defined(missing):
        return False  # which have a value of no rows, too
    # What the partition's profile does not have must be null in all its rows.
    return all(
        missing <= known.missing_columns(fragment.spec_id) and not missing & set(fragment.unprofiled)
        for fragment in fragments
    )


def _read_again(known: SpecCompatibility, stored: Iterable[FragmentEntry], read: set[str]) -> dict[str, dict[str, int]]:
    names = {leaf.field_id: leaf.path for leaf, _ in known.wanted.leaves}
    found: dict[str, dict[str, int]] = {}
    for entry in {entry.id: entry for entry in stored if entry.id in read}.values():
        for leaf, output in known.missing_outputs(entry.spec_id, entry.unlisted):
            own = found.setdefault(names.get(leaf, leaf), {})
            own[output] = own.get(output, 0) + 1
    return found


def _usable(
    stored: Iterable[FragmentEntry], known: SpecCompatibility, snapshot: Snapshot, again: set[str]
) -> dict[str, FragmentEntry]:
    """The stored profiles that hold every column of the profile spec, with key and path as the snapshot has them."""
    wanted = {fragment.id: fragment for fragment in snapshot.fragments if fragment.partition_key not in again}
    usable: dict[str, FragmentEntry] = {}
    for entry in stored:
        fragment = wanted.get(entry.id)
        if fragment is None or entry.id in usable or not known.satisfies(entry.spec_id, entry.unlisted):
            continue
        # A column is all null in fragments that were written without it, and must be read from the others.
        missing = known.missing_columns(entry.spec_id)
        if not missing & known.wanted.defaulted and not missing & set(entry.unprofiled):
            if (entry.partition_key, entry.path, entry.retired) != (fragment.partition_key, fragment.path, None):
                entry = replace(entry, partition_key=fragment.partition_key, path=fragment.path, retired=None)
            usable[entry.id] = entry
    return usable
