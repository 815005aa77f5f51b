"""Compute the plan of a refresh from the newest version, the current snapshot and the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from metastore_assets.config import CardinalityMode, TableConfig
from metastore_assets.errors import ConfigError, CorruptionError, StoreError
from metastore_assets.formats import MetadataCache
from metastore_assets.formats.base import SnapshotReference, TableFormat
from metastore_assets.messages import close_names, join_names
from metastore_assets.pipeline.auto_policies import planned_resolutions, recorded_resolutions
from metastore_assets.pipeline.column_spec import check_sources, digest
from metastore_assets.pipeline.hidden_values import check_hidden_not_derived, check_hidden_not_renamed, column_paths
from metastore_assets.pipeline.plan import DEFAULT_REQUEST, Plan, PlanInputs, RefreshRequest, make_plan
from metastore_assets.pipeline.profile_spec import table_profile_spec
from metastore_assets.pipeline.profiles.states_reader import corruption_guard
from metastore_assets.store.manifest import FragmentEntry, Version
from metastore_assets.store.versions import VersionStore


@dataclass
class AttemptProfiles:
    """The profiles and files that one refresh has written so far.

    If an attempt fails, the next one uses them.
    """

    name: str = ""
    """Name under which the profiles are saved, see `attempt_name`."""
    entries: list[FragmentEntry] = field(default_factory=list)
    """Profiles that the next attempt uses, even if the request is to read their fragments again."""
    resumed: int = 0
    """Number of profiles, at the start of `entries`, that an interrupted refresh made."""
    specs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """The specs under which the profiles were made, by id."""
    unpublished_paths: set[str] = field(default_factory=set)
    """Files of versions that could not be published, because another process was first."""

    @classmethod
    def resume(cls, versions: VersionStore, request: RefreshRequest) -> AttemptProfiles:
        """Return the saved profiles of interrupted refreshes with the same request after the same version.

        If the request forces no reading, none are returned: the plan of such a request uses any saved profile.
        """
        name = attempt_name(versions, request)
        entries = versions.pending(name) if name else []
        return cls(name, entries, len(entries))

    @property
    def new_entries(self) -> Sequence[FragmentEntry]:
        """The profiles that this refresh made, without those of interrupted refreshes."""
        return self.entries[self.resumed :]

    @property
    def paths(self) -> set[str]:
        """The paths of all files that were written."""
        return {*self.unpublished_paths, *(path for entry in self.entries for path in entry.files.paths())}

    def clear(self) -> None:
        """Forget all profiles and files."""
        self.entries, self.resumed, self.specs, self.unpublished_paths = [], 0, {}, set()


def metadata_cache(versions: VersionStore, *, full: bool) -> MetadataCache:
    """Return the cached metadata of the table's files; an empty cache if all files are read again."""
    return MetadataCache(ignore_process=True) if full else MetadataCache(versions.metadata_cache)


def attempt_name(versions: VersionStore, request: RefreshRequest) -> str:
    """Return the name of a refresh attempt, under which its profiles are saved.

    The name is a digest of the request and the newest version. If the request forces no reading, the name is empty: any
    refresh may then use the profiles.

    Args:
        versions: The published versions of the table.
        request: The fragments that are read again.
    """
    requested = ["full"] if request.full else [f"partition {text}" for text in sorted(request.partitions)]
    return digest([str(versions.newest()), *requested]) if requested else ""


def is_up_to_date(table_format: TableFormat, table: TableConfig, version: Version) -> bool:
    """Return whether a version describes the table's current snapshot under the configured policies.

    Args:
        table_format: Reads the table's current snapshot.
        table: The configured policies, with the key of hidden values.
        version: The version.
    """
    current = table_format.current()
    return current == SnapshotReference(version.snapshot, version.committed_at) and matches_policies(table, version)


def matches_policies(table: TableConfig, version: Version) -> bool:
    """Return whether a version was made under the configured policies.

    Args:
        table: The configured policies, with the key of hidden values.
        version: The version.
    """
    if set(_unknown_columns(version.schema, table)) - set(version.dropped_columns):
        return False  # Planning finds out whether the name is misspelt, or of a column that was dropped.
    return table_profile_spec(version.schema, table, recorded_resolutions(version, table)).id == version.spec_id


def current_plan(
    versions: VersionStore,
    table_format: TableFormat,
    table: TableConfig,
    request: RefreshRequest = DEFAULT_REQUEST,
    attempt: AttemptProfiles | None = None,
) -> Plan:
    """Plan a refresh to the table's current snapshot.

    Args:
        versions: The published versions of the table.
        table_format: Reads the table's metadata.
        table: The configuration, with the key of hidden values.
        request: The fragments that are read again.
        attempt: Profiles from earlier attempts with the same request.

    Raises:
        ConfigError: A policy names a column that never existed, or a hidden column cannot be hidden.
        CorruptionError: The newest version is damaged.
        PartitionNotFoundError: The request names a partition that the snapshot does not have.
        MetastoreError: The table cannot be read.
    """
    attempt = attempt or AttemptProfiles()
    base, number = _read_base(versions, full=request.full)
    snapshot = table_format.snapshot()
    resolved: Mapping[str, CardinalityMode] = {}
    if base is not None:
        has_new_snapshot = snapshot.reference != SnapshotReference(base.snapshot, base.committed_at)
        resolved = planned_resolutions(
            base, snapshot.schema, table, versions.objects, has_new_snapshot=has_new_snapshot
        )
    dropped_columns = _dropped_columns(versions, base, snapshot.schema, table)
    spec = table_profile_spec(snapshot.schema, table, resolved)
    check_hidden_not_derived(table, spec, snapshot)
    check_sources(table.name, base.specs.values() if base else (), spec.column_specs)
    inputs = PlanInputs(
        table=table.name,
        base=base,
        snapshot=snapshot,
        spec=spec,
        stored=[
            *(base.fragments if base else ()),
            *(entry.fragment for entry in (base.retired if base else ())),
            *versions.pending(),
        ],
        attempt_profiles=attempt.entries,
        specs={**attempt.specs, **(base.specs if base else {}), spec.id: spec.column_specs},
        number=number,
        dropped_columns=dropped_columns,
    )
    return make_plan(inputs, request)


def _unknown_columns(schema: pa.Schema, table: TableConfig) -> list[str]:
    """Return the columns that a policy names and the schema does not have."""
    return table.unknown_policy_columns(set(column_paths(schema)))


def _dropped_columns(
    versions: VersionStore, base: Version | None, schema: pa.Schema, table: TableConfig
) -> tuple[str, ...]:
    """Return the columns that a policy names and the table no longer has.

    Each version records these columns, because the versions that had them expire. Older versions are read only for
    names that the newest version does not have.

    Raises:
        ConfigError: No published version had such a column, so its name is misspelt.
    """
    unknown = _unknown_columns(schema, table)
    unexplained = set(unknown)
    if base is not None:
        check_hidden_not_renamed(table, base.schema, schema, unknown)
        unexplained -= {*column_paths(base.schema), *base.dropped_columns}
    for number in reversed(versions.numbers() if unexplained else []):
        try:
            version = versions.read(number)
        except StoreError:
            continue  # A version that is damaged, expired meanwhile, or of an earlier release explains nothing.
        unexplained -= {*column_paths(version.schema), *version.dropped_columns}
        if not unexplained:
            break
    if unexplained:
        columns, name = column_paths(schema), min(unexplained)
        raise ConfigError(
            f"table {table.name!r}: columns.{name} is a policy for a column that the table does not have; "
            f"its columns are: {join_names(columns)}" + close_names(name, columns, "")
        )
    return tuple(unknown)


def _read_base(versions: VersionStore, *, full: bool) -> tuple[Version | None, int]:
    """Return the newest version with all of its entries read, and the number of the next version.

    The version is None if there is none, or if a full refresh replaces a damaged one.

    Raises:
        CorruptionError: The newest version is damaged, and the refresh is not full.
    """
    try:
        latest = versions.latest()
        if latest is None:
            return None, 1
        with corruption_guard(versions.objects, versions.documents.path(latest.number)):
            for entries in (latest.fragments, latest.retired, latest.partitions, latest.nodes, latest.specs):
                iter(entries)
        return latest, latest.number + 1
    except CorruptionError:
        if not full:
            raise
        return None, versions.newest() + 1
