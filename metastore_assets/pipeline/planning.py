"""What is there, and what has to be done: the plan of one table, from its newest version and its current snapshot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from metastore_assets.config import CardinalityMode, TableConfig
from metastore_assets.errors import ConfigError, CorruptionError, StoreError
from metastore_assets.formats import Memory
from metastore_assets.formats.base import DerivedColumn, Snapshot, SnapshotReference, TableFormat
from metastore_assets.messages import close_names, listed
from metastore_assets.pipeline.decisions import planned_decisions, recorded_decisions
from metastore_assets.pipeline.layouts import Layout, Layouts, field_identity, table_layout
from metastore_assets.pipeline.plan import Plan, make_plan
from metastore_assets.pipeline.profiles.states_files import sound
from metastore_assets.pipeline.signatures import check_sources, digest
from metastore_assets.store.manifest import FragmentEntry, Version
from metastore_assets.store.versions import VersionStore
from metastore_assets.values.leaves import LeafColumn, schema_leaves


def memory_of(versions: VersionStore, *, full: bool) -> Memory:
    """What planning knows of the table's files: nothing, where all is to be read again."""
    return Memory(anew=True) if full else Memory(versions.memory)


def attempt_of(versions: VersionStore, *, full: bool, partitions: Collection[str]) -> str:
    """The name of an attempt to read again what is stored: of the request and the version that it starts from.

    Empty where nothing is read again: then whatever was finished is of use, whoever asked for it.
    """
    asked = ["full"] if full else [f"partition {text}" for text in sorted(partitions)]
    return digest([str(versions.newest()), *asked]) if asked else ""


def describes_now(table_format: TableFormat, table: TableConfig, version: Version) -> bool:
    """Whether a version describes the table's current snapshot under the configured policies: see `has_layout`."""
    now = table_format.current()
    return now == SnapshotReference(version.snapshot, version.committed_at) and has_layout(table, version)


def has_layout(table: TableConfig, version: Version) -> bool:
    """Whether a version was made under the configured policies; `table` has the key of its hidden values, if any."""
    if set(_unknown_columns(version.schema, table)) - set(version.dropped_columns):
        return False  # Planning tells whether the name is misspelt, or of a column that the table no longer has.
    return table_layout(version.schema, table, recorded_decisions(version, table)).id == version.layout


def current_plan(
    versions: VersionStore,
    table_format: TableFormat,
    table: TableConfig,
    fresh: Sequence[FragmentEntry],
    *,
    full: bool,
    partitions: Collection[str],
    made: Layouts,
) -> Plan:
    """The plan as of now; see `make_plan`. `made`: under which layouts the `fresh` profiles were made.

    Raises what the table's format does, ConfigError, CorruptionError, PartitionNotFoundError.
    """
    base, number = _published(versions, full=full)
    snapshot = table_format.snapshot()
    decided: Mapping[str, CardinalityMode] = {}
    if base is not None:
        moved_on = snapshot.reference != SnapshotReference(base.snapshot, base.committed_at)
        decided = planned_decisions(base, snapshot.schema, table, versions.objects, moved_on=moved_on)
    dropped = _dropped_columns(versions, base, snapshot.schema, table)
    layout = table_layout(snapshot.schema, table, decided)
    _check_hidden(table, layout, snapshot)
    check_sources(table.name, base.layouts.values() if base else (), layout.signatures)
    layouts = {**made, **(base.layouts if base else {}), layout.id: layout.signatures}
    stored = [*(base.fragments if base else ()), *versions.pending()]
    plan = make_plan(
        table.name,
        base,
        snapshot,
        layout,
        stored=stored,
        fresh=fresh,
        layouts=layouts,
        full=full,
        partitions=partitions,
        number=number,
    )
    return replace(plan, dropped_columns=dropped)


def _unknown_columns(schema: pa.Schema, table: TableConfig) -> list[str]:
    """Return the columns that a policy names and the schema does not have."""
    return table.unknown_policy_columns(set(_column_paths(schema)))


def _column_paths(schema: pa.Schema) -> list[str]:
    return [leaf.path for leaves in schema_leaves(schema) for leaf in leaves]


def _dropped_columns(
    versions: VersionStore, base: Version | None, schema: pa.Schema, table: TableConfig
) -> tuple[str, ...]:
    """Return the columns that a policy names and the table no longer has.

    Each version records them, so that they stay known when the versions that had them expire. Older versions are read
    only for a name that the newest one does not explain.

    Raises:
        ConfigError: No published version had such a column, so its name is misspelt.
    """
    unknown = _unknown_columns(schema, table)
    unexplained = set(unknown)
    if base is not None:
        _check_not_renamed(table, base.schema, schema, unknown)
        unexplained -= {*_column_paths(base.schema), *base.dropped_columns}
    for number in reversed(versions.numbers() if unexplained else []):
        try:
            version = versions.read(number)
        except StoreError:
            continue  # Damaged, expired meanwhile, or of an earlier release: it explains nothing.
        unexplained -= {*_column_paths(version.schema), *version.dropped_columns}
        if not unexplained:
            break
    if unexplained:
        columns, name = _column_paths(schema), min(unexplained)
        raise ConfigError(
            f"table {table.name!r}: columns.{name} is a policy for a column that the table does not have; "
            f"its columns are: {listed(columns)}" + close_names(name, columns, "")
        )
    return tuple(unknown)


def _check_not_renamed(table: TableConfig, before: pa.Schema, now: pa.Schema, unknown: Collection[str]) -> None:
    """Raise ConfigError where a column went whose values are hidden, and a new one is there that shows its values.

    The new one may be the same column under another name.
    """
    had = set(_column_paths(before))
    gone = [name for name in unknown if name in had and table.columns[name].values == "hidden"]
    new = [path for path in _column_paths(now) if path not in had and table.policy(path).values == "shown"]
    if gone and new:
        raise ConfigError(
            f"table {table.name!r}: columns.{gone[0]} hides the values of a column that the table no longer has, and "
            f"has new columns, which would show theirs: {listed(new)}. If one of them is the same column under another "
            "name, name the policy after it; else remove the policy from the configuration"
        )


def _check_hidden(table: TableConfig, layout: Layout, snapshot: Snapshot) -> None:
    """Raise ConfigError where values of a hidden column are in partition keys, or in a column that is shown."""
    if not table.hides_values:
        return
    hidden = [leaf for leaf, policy in layout.leaves if policy.values == "hidden"]
    derived = {own.name for own in snapshot.derived if own.partitions}
    named = {field_identity(field) for field in snapshot.schema if field.name in snapshot.partition_columns}
    for leaf in hidden:
        is_partition = layout.owners[leaf.field_id] in named or leaf.path in snapshot.partition_columns
        if is_partition and leaf.path not in derived:
            raise ConfigError(
                f"table {table.name!r}: columns.{leaf.path} cannot be hidden: the table is partitioned by it, so that "
                "its values are the keys of partitions, and in the names of the table's own files"
            )
    for own in snapshot.derived:
        if not own.partitions and own.name in {leaf.path for leaf in hidden}:
            continue
        if (column := _hidden_source(table, layout, hidden, own)) is None:
            continue
        raise ConfigError(
            f"table {table.name!r}: columns.{column} cannot be hidden: the table is partitioned by {own.name!r} "
            f"({own.how}), which is computed from it, so that the keys of partitions reveal its values"
            if own.partitions
            else f"table {table.name!r}: columns.{column} cannot be hidden alone: the column {own.name!r} "
            f"({own.how}) is computed from it: hide that too (columns.{own.name}.values: hidden)"
        )


def _hidden_source(
    table: TableConfig, layout: Layout, hidden: Sequence[LeafColumn], derived: DerivedColumn
) -> str | None:
    """Return the path of a hidden column that another is computed from, or may be; None where there is none."""
    if not derived.sources:
        return hidden[0].path if hidden else None
    for identity, path in derived.sources:
        found = [leaf for leaf in hidden if identity in (leaf.field_id, layout.owners[leaf.field_id])]
        if found:
            return found[0].path
        is_known = any(identity in (leaf.field_id, layout.owners[leaf.field_id]) for leaf, _ in layout.leaves)
        # A column that the table has no more goes by its last name.
        if not is_known and table.policy(path).values == "hidden":
            return path
    return None


def _published(versions: VersionStore, *, full: bool) -> tuple[Version | None, int]:
    """The newest version, read whole, and the number of the next one. A full refresh does without a damaged one.

    Raises CorruptionError.
    """
    try:
        latest = versions.latest()
        if latest is None:
            return None, 1
        with sound(versions.objects, versions.documents.path(latest.number)):
            for entries in (latest.fragments, latest.partitions, latest.nodes, latest.layouts):
                iter(entries)
        return latest, latest.number + 1
    except CorruptionError:
        if not full:
            raise
        return None, versions.newest() + 1
