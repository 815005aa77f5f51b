"""What a refresh has to do: a pure function of the last published version and the table's snapshot."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from metastore_assets.config import ColumnPolicy, TableConfig
from metastore_assets.errors import ConfigError, UnsupportedTypeError
from metastore_assets.formats.base import FIELD_ID, INITIAL_DEFAULT, Fragment, Snapshot
from metastore_assets.formats.partition_choice import chosen_partitions
from metastore_assets.messages import close_names, listed
from metastore_assets.statistics.leaves import LeafColumn, schema_leaves
from metastore_assets.statistics.types import type_class
from metastore_assets.store.manifest import FragmentEntry, PartitionEntry, Version

PROFILE_VERSION = "2"
"""Raised when a profile of the same rows would come out differently, so that old ones are computed again."""
_MERGE_VERSION = "3"
"""Raised when the same profiles would merge to another one, so that they are merged again, and nothing is read."""


@dataclass(frozen=True)
class Layout:
    """What is profiled of each column under a schema and a policy, and of which partitions."""

    id: str
    """Digest of everything below, names and order included."""
    signatures: Mapping[str, str]
    """By identity of the top-level column: types and policies of its leaves, by their identities, without names.

    A profile made under another layout still serves a column whose signature is the same (rename, reorder)."""
    leaves: tuple[tuple[LeafColumn, ColumnPolicy], ...]
    """The rows of `statistics`, in table order."""
    defaulted: frozenset[str] = frozenset()
    """Identities of the top-level columns that are not null in fragments written without them."""


@dataclass(frozen=True)
class PartitionPlan:
    """One partition of the next version."""

    key: str
    content_id: str
    """Digest of the fragments and the layout: same id, same profile."""
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
            "bytes_to_read": sum(fragment.bytes for fragment in self.to_profile),
        }


def table_layout(schema: pa.Schema, table: TableConfig) -> Layout:
    """The layout of a table's schema under its configured policies.

    Raises ConfigError when a policy names a column that the table does not have.
    """
    leaves: list[tuple[LeafColumn, ColumnPolicy]] = []
    signatures: dict[str, str] = {}
    for field, field_leaves in zip(schema, schema_leaves(schema), strict=True):
        own = [(leaf, table.policy(leaf.path)) for leaf in field_leaves]
        described = [f"{leaf.field_id}:{_class_name(leaf)}:{policy.model_dump_json()}" for leaf, policy in own]
        signatures[field_identity(field)] = _digest([PROFILE_VERSION, *described])
        leaves += own
    columns = [leaf.path for leaf, _ in leaves]
    unknown = table.policies_of_unknown_columns(set(columns))
    if unknown:
        raise ConfigError(
            f"table {table.name!r}: columns.{unknown[0]} is a policy for a column that the table does not have; "
            f"its columns are: {listed(columns)}" + close_names(unknown[0], columns, "")
        )
    names = [f"{leaf.path}:{leaf.field_id}:{leaf.type}" for leaf, _ in leaves]
    # Profiles of fragments serve under any filter; a version is only true for its own.
    partitions = [json.dumps(table.partitions)] if table.partitions else []
    defaulted = frozenset(field_identity(field) for field in schema if INITIAL_DEFAULT in (field.metadata or {}))
    id_ = _digest([_MERGE_VERSION, *names, json.dumps(signatures), *partitions])
    return Layout(id_, signatures, tuple(leaves), defaulted)


def make_plan(
    table: str,
    base: Version | None,
    snapshot: Snapshot,
    layout: Layout,
    *,
    stored: Iterable[FragmentEntry] = (),
    fresh: Iterable[FragmentEntry] = (),
    layouts: Mapping[str, Mapping[str, str]] | None = None,
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
    by_key: dict[str, list[Fragment]] = {}
    for fragment in snapshot.fragments:
        by_key.setdefault(fragment.partition_key, []).append(fragment)
    named = chosen_partitions(table, partitions, by_key)
    forced = set(by_key) if full else named
    done = _usable(fresh, layouts or {}, snapshot, layout, set())
    reused = {**done, **_usable(stored, layouts or {}, snapshot, layout, forced)}
    to_profile = tuple(fragment for fragment in snapshot.fragments if fragment.id not in reused)
    published = {entry.id: entry for entry in base.fragments if entry.retired is None} if base else {}
    current = {fragment.id for fragment in snapshot.fragments}
    before = {entry.key: entry for entry in base.partitions} if base else {}
    again = {fragment.partition_key for fragment in to_profile} | forced
    plans = []
    for key in sorted(by_key):
        ids = tuple(sorted(fragment.id for fragment in by_key[key]))
        content_id = _digest([layout.id, *ids])
        entry = before.get(key)
        same = entry is not None and entry.content_id == content_id and key not in again
        plans.append(PartitionPlan(key, content_id, ids, entry if same else None))
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


def content_id(layout: Layout, partitions: Sequence[PartitionPlan]) -> str:
    """Digest of everything a version's numbers depend on."""
    return _digest([layout.id, *(f"{partition.key}:{partition.content_id}" for partition in partitions)])


def _usable(
    stored: Iterable[FragmentEntry],
    layouts: Mapping[str, Mapping[str, str]],
    snapshot: Snapshot,
    layout: Layout,
    again: set[str],
) -> dict[str, FragmentEntry]:
    """The stored profiles that hold every column of the layout, with key and path as the snapshot has them."""
    wanted = {fragment.id: fragment for fragment in snapshot.fragments if fragment.partition_key not in again}
    gaps: dict[str, list[str] | None] = {}
    usable: dict[str, FragmentEntry] = {}
    for entry in stored:
        fragment = wanted.get(entry.id)
        if fragment is None or entry.id in usable:
            continue
        if entry.layout not in gaps:
            # A profile of which it is not known what it holds is of no use.
            gaps[entry.layout] = _gaps(layouts[entry.layout], layout) if entry.layout in layouts else None
        gap = gaps[entry.layout]
        if gap is not None and not set(gap) & set(entry.unprofiled):
            usable[entry.id] = replace(entry, partition_key=fragment.partition_key, path=fragment.path, retired=None)
    return usable


def _gaps(held: Mapping[str, str], layout: Layout) -> list[str] | None:
    """Columns of `layout` that profiles made under `held` say nothing of; None when those profiles cannot serve.

    Such a column is all null in fragments that were written without it, and must be read from the others.
    """
    if any(held.get(column, signature) != signature for column, signature in layout.signatures.items()):
        return None
    gaps = [column for column in layout.signatures if column not in held]
    return None if layout.defaulted & set(gaps) else gaps


def _class_name(leaf: LeafColumn) -> str:
    try:
        return type_class(leaf.type).name
    except UnsupportedTypeError:
        return str(leaf.type)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
