"""What a refresh has to do: a pure function of the last published version and the table's snapshot."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from metastore_assets.config import KeptPolicy, TableConfig
from metastore_assets.errors import ConfigError
from metastore_assets.formats.base import FIELD_ID, INITIAL_DEFAULT, Fragment, Snapshot
from metastore_assets.formats.partition_choice import chosen_partitions
from metastore_assets.messages import close_names, listed
from metastore_assets.pipeline.signatures import Signature, digest, signature, signature_of
from metastore_assets.statistics.leaves import LeafColumn, schema_leaves
from metastore_assets.store.manifest import FragmentEntry, PartitionEntry, Version

_MERGE_VERSION = "3"
"""Raised when the same profiles would merge to another one, so that they are merged again, and nothing is read."""

Decided = Literal["listed", "estimated"]
Layouts = Mapping[str, Mapping[str, str]]
"""By layout id: the signature of each profiled top-level column, by its field id."""


@dataclass(frozen=True)
class Layout:
    """What is wanted of each column under a schema and a policy, and of which partitions."""

    id: str
    """Digest of everything below, names and order included."""
    signatures: Mapping[str, str]
    """By identity of the top-level column: its `Signature`, as text."""
    leaves: tuple[tuple[LeafColumn, KeptPolicy], ...]
    """The rows of `statistics`, in table order."""
    owners: Mapping[str, str]
    """Identity of the top-level column of each leaf, by its field id."""
    defaulted: frozenset[str] = frozenset()
    """Identities of the top-level columns that are not null in fragments written without them."""

    @property
    def valued(self) -> frozenset[str]:
        """Field ids of the leaves that have values of a class."""
        signatures = map(signature_of, self.signatures.values())
        return frozenset(leaf for own in signatures if own is not None for leaf in own.values)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Field ids of the leaves under `auto` of which it is not decided whether they are listed."""
        valued = self.valued
        return tuple(
            leaf.field_id for leaf, policy in self.leaves if policy.frequencies == "auto" and leaf.field_id in valued
        )


class Held:
    """What stored profiles hold, by the ids of their layouts, of what a layout wants. Each answer is found once."""

    def __init__(self, layouts: Layouts, wanted: Layout) -> None:
        self.layouts = layouts
        self.wanted = wanted
        self._signatures = {column: signature_of(text) for column, text in wanted.signatures.items()}
        self._answers: dict[tuple[str, str, tuple[str, ...]], bool] = {}
        self._missing: dict[str, frozenset[str]] = {}

    def serves(self, layout: str, unlisted: tuple[str, ...] = ()) -> bool:
        """Whether the columns that profiles of the layout have hold what is wanted of them."""
        return self._answer("serves", layout, unlisted)

    def equals(self, layout: str, unlisted: tuple[str, ...] = ()) -> bool:
        """Whether the columns that profiles of the layout have hold what is wanted of them and no more."""
        return self._answer("equals", layout, unlisted)

    def missing(self, layout: str) -> frozenset[str]:
        """Identities of the columns that are wanted and that profiles of the layout do not have."""
        if layout not in self._missing:
            self._missing[layout] = frozenset(self._signatures) - set(self.layouts.get(layout, {}))
        return self._missing[layout]

    def lacking(self, layout: str, unlisted: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        """(Field id, output) of what is wanted of the columns that a profile has, and that it does not hold."""
        return [found for held, wanted in self._pairs(layout) for found in held.lacking(wanted, unlisted)]

    def names(self, layout: str) -> dict[str, str]:
        """By column of a layout, a digest of the names and places that its files go by."""
        own = {column: signature_of(text) for column, text in self.layouts.get(layout, {}).items()}
        return {column: held.names for column, held in own.items() if held is not None}

    def _answer(self, question: str, layout: str, unlisted: tuple[str, ...]) -> bool:
        key = (question, layout, unlisted)
        if key not in self._answers:
            # A profile of which it is not known what it holds is of no use.
            own = self.layouts.get(layout)
            pairs = self._pairs(layout)
            common = 0 if own is None else len(own.keys() & self._signatures.keys())
            self._answers[key] = (
                own is not None
                and len(pairs) == common
                and all(getattr(held, question)(wanted, unlisted) for held, wanted in pairs)
            )
        return self._answers[key]

    def _pairs(self, layout: str) -> list[tuple[Signature, Signature]]:
        own = self.layouts.get(layout, {})
        found = [(signature_of(own[column]), wanted) for column, wanted in self._signatures.items() if column in own]
        return [(held, wanted) for held, wanted in found if held is not None and wanted is not None]


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
    layout: Layout
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
    layouts: Layouts = field(default_factory=dict)
    """What the stored profiles hold, and what those will that are made for the plan."""
    read_again: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By column, for the sake of which outputs how many known fragments are read again: what is stored lacks these."""

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
            "bytes_to_read": self.snapshot.bytes_read + sum(fragment.bytes for fragment in self.to_profile),
        }


def table_layout(schema: pa.Schema, table: TableConfig, decided: Mapping[str, Decided] | None = None) -> Layout:
    """The layout of a table's schema under its configured policies. `decided`: what `auto` means, by leaf's field id.

    Raises ConfigError when a policy names a column that the table does not have.
    """
    leaves: list[tuple[LeafColumn, KeptPolicy]] = []
    signatures: dict[str, str] = {}
    owners: dict[str, str] = {}
    for own_field, field_leaves in zip(schema, schema_leaves(schema), strict=True):
        own = [(leaf, _policy(table, leaf, decided or {})) for leaf in field_leaves]
        signatures[field_identity(own_field)] = signature(len(leaves), own).to_text()
        owners |= {leaf.field_id: field_identity(own_field) for leaf in field_leaves}
        leaves += own
    columns = [leaf.path for leaf, _ in leaves]
    unknown = table.policies_of_unknown_columns(set(columns))
    if unknown:
        raise ConfigError(
            f"table {table.name!r}: columns.{unknown[0]} is a policy for a column that the table does not have; "
            f"its columns are: {listed(columns)}" + close_names(unknown[0], columns, "")
        )
    # Profiles of fragments serve under any filter; a version is only true for its own.
    partitions = [json.dumps(table.partitions)] if table.partitions else []
    defaulted = frozenset(field_identity(field) for field in schema if INITIAL_DEFAULT in (field.metadata or {}))
    id_ = digest([_MERGE_VERSION, json.dumps(signatures), *partitions])
    return Layout(id_, signatures, tuple(leaves), owners, defaulted)


def _policy(table: TableConfig, leaf: LeafColumn, decided: Mapping[str, Decided]) -> KeptPolicy:
    policy = table.policy(leaf.path)
    if policy.frequencies != "auto" or leaf.field_id not in decided:
        return policy
    return policy.decided(decided[leaf.field_id])


def make_plan(
    table: str,
    base: Version | None,
    snapshot: Snapshot,
    layout: Layout,
    *,
    stored: Iterable[FragmentEntry] = (),
    fresh: Iterable[FragmentEntry] = (),
    layouts: Layouts | None = None,
    full: bool = False,
    partitions: Collection[str] = (),
    number: int | None = None,
) -> Plan:
    """Compare a snapshot with the last published version.

    `stored` are the profiles there are: of the published version, of fragments that left the table earlier, and of
    attempts that did not publish; `layouts` tells by layout id what each of them holds. With `full` every fragment
    is read again; `partitions` names partitions, by key or pattern (see `chosen_partitions`), whose fragments are read
    again whatever is stored. But none is that has a profile among the `fresh` ones: those were made for the same
    request, by a plan that could not be carried out.

    `number` is that of the version to publish where it does not follow `base`: when what is published is damaged.

    Raises PartitionNotFoundError when `partitions` names one that the snapshot does not have, and says what is near.
    """
    known = Held(layouts or {}, layout)
    stored = list(stored)
    by_key: dict[str, list[Fragment]] = {}
    for fragment in snapshot.fragments:
        by_key.setdefault(fragment.partition_key, []).append(fragment)
    named = chosen_partitions(table, partitions, by_key)
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
        layout=layout,
        to_profile=to_profile,
        reused=reused,
        added=tuple(fragment.id for fragment in snapshot.fragments if fragment.id not in published),
        removed=tuple(entry for key, entry in published.items() if key not in current),
        kept=len(current & set(published)),
        partitions=tuple(plans),
        removed_partitions=tuple(sorted(set(before) - set(by_key))),
        type_changes=_type_changes(base.schema, snapshot) if base else (),
        layouts={**known.layouts, layout.id: layout.signatures},
        read_again=_read_again(known, stored, {fragment.id for fragment in to_profile}),
    )


def _type_changes(before: pa.Schema, snapshot: Snapshot) -> tuple[TypeChange, ...]:
    types = {field_identity(field): field.type for field in before}
    reasons = {(reason.column, reason.type): reason.found for reason in snapshot.type_reasons}
    return tuple(
        TypeChange(field.name, old, field.type, reasons.get((field.name, old)))
        for field in snapshot.schema
        if (old := types.get(field_identity(field), field.type)) != field.type
    )


def field_identity(field: pa.Field) -> str:
    """The stable identity of a top-level column."""
    own: bytes | None = (field.metadata or {}).get(FIELD_ID)
    return own.decode() if own is not None else str(field.name)


def members_id(fragments: Iterable[str]) -> str:
    """Digest of which fragments a partition consists of."""
    return digest(sorted(fragments))


def partition_content_id(layout: str, fragments: Iterable[str]) -> str:
    """Digest of what determines a partition's profile: the layout that it was made under, and its fragments."""
    return digest([layout, *sorted(fragments)])


def content_id(layout: Layout, partitions: Iterable[PartitionEntry]) -> str:
    """Digest of everything a version's numbers depend on."""
    return digest([layout.id, *(f"{partition.key}:{partition.content_id}" for partition in partitions)])


def holds(known: Held, entry: PartitionEntry, fragments: Sequence[FragmentEntry]) -> bool:
    """Whether a published partition still says what its fragments, those of now, amount to under the layout wanted."""
    if entry.members != members_id(fragment.id for fragment in fragments):
        return False
    # A partition of one fragment may be that fragment's profile, which lists what its layout leaves open.
    unlisted = fragments[0].unlisted if len(fragments) == 1 and fragments[0].files == entry.files else ()
    if not known.equals(entry.layout, unlisted):
        return False
    missing = known.missing(entry.layout)
    if not missing:
        return True
    # What the partition's profile does not have must be null in all its rows.
    return all(
        missing <= known.missing(fragment.layout) and not missing & set(fragment.unprofiled) for fragment in fragments
    )


def _read_again(known: Held, stored: Iterable[FragmentEntry], read: set[str]) -> dict[str, dict[str, int]]:
    names = {leaf.field_id: leaf.path for leaf, _ in known.wanted.leaves}
    found: dict[str, dict[str, int]] = {}
    for entry in {entry.id: entry for entry in stored if entry.id in read}.values():
        for leaf, output in known.lacking(entry.layout, entry.unlisted):
            own = found.setdefault(names.get(leaf, leaf), {})
            own[output] = own.get(output, 0) + 1
    return found


def _usable(
    stored: Iterable[FragmentEntry], known: Held, snapshot: Snapshot, again: set[str]
) -> dict[str, FragmentEntry]:
    """The stored profiles that hold every column of the layout, with key and path as the snapshot has them."""
    wanted = {fragment.id: fragment for fragment in snapshot.fragments if fragment.partition_key not in again}
    usable: dict[str, FragmentEntry] = {}
    for entry in stored:
        fragment = wanted.get(entry.id)
        if fragment is None or entry.id in usable or not known.serves(entry.layout, entry.unlisted):
            continue
        # A column is all null in fragments that were written without it, and must be read from the others.
        missing = known.missing(entry.layout)
        if not missing & known.wanted.defaulted and not missing & set(entry.unprofiled):
            usable[entry.id] = replace(entry, partition_key=fragment.partition_key, path=fragment.path, retired=None)
    return usable
