"""What is there, and what has to be done: the plan of one table, from its newest version and its current snapshot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from metastore_assets.config import CardinalityMode, TableConfig
from metastore_assets.errors import ConfigError, CorruptionError, StoreError
from metastore_assets.formats import MetadataCache
from metastore_assets.formats.base import DerivedColumn, Snapshot, SnapshotReference, TableFormat
from metastore_assets.messages import close_names, join_names
from metastore_assets.pipeline.auto_policies import planned_resolutions, recorded_resolutions
from metastore_assets.pipeline.column_spec import check_sources, digest
from metastore_assets.pipeline.plan import Plan, make_plan
from metastore_assets.pipeline.profile_spec import ProfileSpec, ProfileSpecs, field_identity, table_profile_spec
from metastore_assets.pipeline.profiles.states_reader import sound
from metastore_assets.store.manifest import FragmentEntry, Version
from metastore_assets.store.versions import VersionStore
from metastore_assets.values.leaf_columns import LeafColumn, schema_leaves


def memory_of(versions: VersionStore, *, full: bool) -> MetadataCache:
    """What planning knows of the table's files: nothing, where all is to be read again."""
    return MetadataCache(ignore_process=True) if full else MetadataCache(versions.memory)


def attempt_of(versions: VersionStore, *, full: bool, partitions: Collection[str]) -> str:
    """The name of an attempt to read again what is stored: of the request and the version that it starts from.

    Empty where nothing is read again: then whatever was finished is of use, whoever asked for it.
    """
    asked = ["full"] if full else [f"partition {text}" for text in sorted(partitions)]
    return digest([str(versions.newest()), *asked]) if asked else ""


def is_up_to_date(table_format: TableFormat, table: TableConfig, version: Version) -> bool:
    """Return whether a version describes the table's current snapshot under the configured policies."""
    now = table_format.current()
    return now == SnapshotReference(version.snapshot, version.committed_at) and matches_policies(table, version)


def matches_policies(table: TableConfig, version: Version) -> bool:
    """Whether a version was made under the configured policies; `table` has the key of its hidden values, if any."""
    if set(_unknown_columns(version.schema, table)) - set(version.dropped_columns):
        return False  # Planning tells whether the name is misspelt, or of a column that the table no longer has.
    return table_profile_spec(version.schema, table, recorded_resolutions(version, table)).id == version.spec_id


def current_plan(
    versions: VersionStore,
    table_format: TableFormat,
    table: TableConfig,
    fresh: Sequence[FragmentEntry],
    *,
    full: bool,
    partitions: Collection[str],
    made: ProfileSpecs,
) -> Plan:
    """The plan as of now; see `make_plan`. `made`: under which profile specs the `fresh` profiles were made.

    Raises what the table's format does, ConfigError, CorruptionError, PartitionNotFoundError.
    """
    base, number = _published(versions, full=full)
    snapshot = table_format.snapshot()
    resolved: Mapping[str, CardinalityMode] = {}
    if base is not None:
        moved_on = snapshot.reference != SnapshotReference(base.snapshot, base.committed_at)
        resolved = planned_resolutions(base, snapshot.schema, table, versions.objects, moved_on=moved_on)
    dropped = _dropped_columns(versions, base, snapshot.schema, table)
    spec = table_profile_spec(snapshot.schema, table, resolved)
    _check_hidden(table, spec, snapshot)
    check_sources(table.name, base.specs.values() if base else (), spec.column_specs)
    specs = {**made, **(base.specs if base else {}), spec.id: spec.column_specs}
    stored = [*(base.fragments if base else ()), *versions.pending()]
    plan = make_plan(
        table.name,
        base,
        snapshot,
        spec,
        stored=stored,
        fresh=fresh,
        specs=specs,
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
            f"its columns are: {join_names(columns)}" + close_names(name, columns, "")
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
            f"has new columns, which would show theirs: {join_names(new)}. If one of them is the same column under "
            "another name, name the policy after it; else remove the policy from the configuration"
        )


def _check_hidden(table: TableConfig, spec: ProfileSpec, snapshot: Snapshot) -> None:
    """Raise ConfigError where values of a hidden column are in partition keys, or in a column that is shown."""
    if not table.hides_values:
        return
    hidden = [leaf for leaf, policy in spec.leaves if policy.values == "hidden"]
    derived = {own.name for own in snapshot.derived if own.is_partition_field}
    named = {field_identity(field) for field in snapshot.schema if field.name in snapshot.partition_columns}
    for leaf in hidden:
        is_partition = spec.owners[leaf.field_id] in named or leaf.path in snapshot.partition_columns
        if is_partition and leaf.path not in derived:
            raise ConfigError(
                f"table {table.name!r}: columns.{leaf.path} cannot be hidden: the table is partitioned by it, so that "
                "its values are the keys of partitions, and in the names of the table's own files"
            )
    for own in snapshot.derived:
        if not own.is_partition_field and own.name in {leaf.path for leaf in hidden}:
            continue
        if (column := _hidden_source(table, spec, hidden, own)) is None:
            continue
        raise ConfigError(
            f"table {table.name!r}: columns.{column} cannot be hidden: the table is partitioned by {own.name!r} "
            f"({own.transform}), which is computed from it, so that the keys of partitions reveal its values"
            if own.is_partition_field
            else f"table {table.name!r}: columns.{column} cannot be hidden alone: the column {own.name!r} "
            f"({own.transform}) is computed from it: hide that too (columns.{own.name}.values: hidden)"
        )


def _hidden_source(
    table: TableConfig, spec: ProfileSpec, hidden: Sequence[LeafColumn], derived: DerivedColumn
) -> str | None:
    """Return the path of a hidden column that another is computed from, or may be; None where there is none."""
    if not derived.sources:
        return hidden[0].path if hidden else None
    for identity, path in derived.sources:
        found = [leaf for leaf in hidden if identity in (leaf.field_id, spec.owners[leaf.field_id])]
        if found:
            return found[0].path
        is_known = any(identity in (leaf.field_id, spec.owners[leaf.field_id]) for leaf, _ in spec.leaves)
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
            for entries in (latest.fragments, latest.partitions, latest.nodes, latest.specs):
                iter(entries)
        return latest, latest.number + 1
    except CorruptionError:
        if not full:
            raise
        return None, versions.newest() + 1
