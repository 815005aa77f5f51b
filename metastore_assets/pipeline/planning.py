"""Computation of a refresh plan from the newest version, the current snapshot and the configuration.

A fragment is a data file with its deletes, and its profile is its statistics. A profile spec says which statistics a
profile has. The first version of a table with very many fragments is made in lots. After each lot, the fragments
processed so far are stored as a staged version, which no reader sees. A version is the published statistics of a table
at one snapshot. A hidden column has the policy `values: hidden`: new versions have no values of it.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import pyarrow as pa

from metastore_assets.config import CardinalityMode, TableConfig
from metastore_assets.digests import digest_texts
from metastore_assets.errors import (
    ConfigError,
    CorruptionError,
    ObjectNotFoundError,
    StoreError,
)
from metastore_assets.exports.configured_targets import read_export_entries
from metastore_assets.exports.export_result import ExportResult
from metastore_assets.expressions.partition_patterns import match_partitions
from metastore_assets.formats import MetadataCache
from metastore_assets.formats.base import (
    Fragment,
    NoDiff,
    NoDiffError,
    Snapshot,
    SnapshotMetadata,
    SnapshotReference,
    SnapshotStream,
    TableFormat,
    UnstreamableError,
    fragment_order,
)
from metastore_assets.messages import close_names, join_names
from metastore_assets.pipeline.auto_policies import planned_resolutions
from metastore_assets.pipeline.column_spec import check_sources
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.fragment_runs import Lot, compare_stream, sort_fragments, stream_lots
from metastore_assets.pipeline.hidden_values import check_hidden_not_derived, check_hidden_not_renamed, column_paths
from metastore_assets.pipeline.plan import (
    DEFAULT_REQUEST,
    Lots,
    Plan,
    PlanInputs,
    RefreshRequest,
    Target,
    count_missing_outputs,
    make_plan,
    publishing_stages,
    usable_profiles,
    version_stages,
)
from metastore_assets.pipeline.profile_spec import ProfileSpec, SpecCompatibility, table_profile_spec
from metastore_assets.pipeline.retired_fragments import find_retired
from metastore_assets.pipeline.stages import (
    DivideIntoLots,
    MergePartitions,
    PlanStage,
    ProfileFragments,
    WriteExports,
)
from metastore_assets.pipeline.table_changes import SnapshotChanges, changes_from_diff, compare_snapshot
from metastore_assets.pipeline.version_policies import (
    describes,
    matches_policies,
    recorded_resolutions,
    unknown_columns,
)
from metastore_assets.store.entries import FRAGMENTS, StoredEntries, partition_fragment_counts
from metastore_assets.store.entry_changes import entries_of
from metastore_assets.store.staged_versions import StagedVersions, reading_staged
from metastore_assets.store.version import FragmentEntry, Version, split_fragment_key
from metastore_assets.store.version_document import OlderFormatError
from metastore_assets.store.versions import VersionStore

FRAGMENTS_PER_LOT = 10_000
"""Number of fragments in a lot. The first version of a table with more fragments is made in several lots."""


@dataclass
class AttemptProfiles:
    """The profiles and files that one refresh has written so far, and profiles that it resumed.

    A refresh may attempt several times to publish. Each attempt uses the profiles of the attempts before. Resumed
    profiles are those that an interrupted refresh saved.
    """

    name: str = ""
    """Name under which the profiles are saved, see `attempt_name`."""
    entries: list[FragmentEntry] = field(default_factory=list)
    """Profiles that the next attempt uses, even if the request is to read their fragments again."""
    resumed_count: int = 0
    """Number of resumed profiles. They are at the start of `entries`."""
    specs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """The specs under which the profiles were made, by id."""
    newest: Version | None = None
    """The newest version. If None, planning reads it."""
    ignores_newest: bool = False
    """Whether a full refresh ignores the newest version, because it is damaged."""
    unpublished_paths: set[str] = field(default_factory=set)
    """Files of versions that were not published, because another process was first."""
    makes_lots: bool = True
    """Whether the first version of a table with many fragments is made in lots, where possible."""
    lot_fragments: int = 0
    """Number of fragments that were read for lots. Their profiles are not in `entries`."""
    lot_bytes: int = 0
    """Stored size in bytes of the fragments that were read for lots."""

    @classmethod
    def resume(cls, versions: VersionStore, request: RefreshRequest) -> AttemptProfiles:
        """Load the profiles that interrupted refreshes saved for this request and the newest version.

        Profiles that were saved while an older version was the newest are not loaded. If the request reads no fragments
        again, nothing is loaded here. Planning may then use all saved profiles, whatever request they were saved for.
        """
        name = attempt_name(versions, request)
        entries = versions.pending(name) if name else []
        return cls(name, entries, len(entries))

    @property
    def new_entries(self) -> Sequence[FragmentEntry]:
        """The profiles that this refresh computed itself, without those of lots."""
        return self.entries[self.resumed_count :]

    @property
    def read_fragments(self) -> int:
        """Number of fragments that this refresh has read."""
        return self.lot_fragments + len(self.new_entries)

    @property
    def read_bytes(self) -> int:
        """Stored size in bytes of the fragments that this refresh has read."""
        return self.lot_bytes + sum(entry.bytes for entry in self.new_entries)

    @property
    def paths(self) -> set[str]:
        """The paths in `unpublished_paths`, and the paths of all files of the profiles in `entries`."""
        return {*self.unpublished_paths, *(path for entry in self.entries for path in entry.files.paths())}

    def clear(self) -> None:
        """Forget all profiles and files.

        Nothing is deleted from the store.
        """
        self.entries, self.resumed_count, self.specs, self.unpublished_paths = [], 0, {}, set()


def plan_lot(context: RefreshContext, attempt: AttemptProfiles, metadata: SnapshotMetadata, lot: Lot) -> Plan:
    """Plan the next staged version: the newest one changed by a lot, or one with only the first lot.

    Staged versions are steps to the first version of a table.

    Args:
        context: The table, with the store of its staged versions.
        attempt: The profiles that were written for this lot so far.
        metadata: The metadata of the snapshot.
        lot: The fragments to add and to remove.

    Raises:
        NoDiffError: The version cannot be made in lots, because a column has the policy `repeated`. Or columns or
            policies changed since the staged version was made.
    """
    return _PlanMaker(context.versions, context.table, DEFAULT_REQUEST, attempt).plan_lot(metadata, lot)


@dataclass(frozen=True)
class FirstVersionTotals:
    """The snapshot of a table without a version, and the numbers of fragments and bytes by partition."""

    snapshot: SnapshotMetadata
    partitions: Mapping[str, tuple[int, int]]
    """Number and stored bytes of the fragments of each partition."""
    unread: Mapping[str, tuple[int, int]]
    """Number and stored bytes of the fragments of each partition that have no saved profile, so that they are read."""


def first_version_totals(
    versions: VersionStore, table_format: TableFormat, table: TableConfig
) -> FirstVersionTotals | None:
    """Return the number and size of the fragments of each partition, for a table without a version.

    The fragments are streamed: only those that have a saved profile are kept in memory. Returns None if the table has a
    version, or if its fragments cannot be streamed.
    """
    return _Planner(versions, table_format, table, DEFAULT_REQUEST, AttemptProfiles()).first_version_totals()


def plan_first_partitions(
    versions: VersionStore, table_format: TableFormat, table: TableConfig, keys: Collection[str]
) -> Plan | None:
    """Return a plan with only the fragments of some partitions, for a table without a version.

    The fragments of all other partitions are ignored, and not kept in memory. Returns None if the table has a version,
    or if its fragments cannot be streamed.

    Args:
        versions: The versions of the table.
        table_format: Reads the table's metadata.
        table: The configuration, with the key that hashes hidden values.
        keys: The keys of the partitions.
    """
    return _Planner(versions, table_format, table, DEFAULT_REQUEST, AttemptProfiles()).plan_first_partitions(keys)


def metadata_cache(versions: VersionStore, *, full: bool) -> MetadataCache:
    """Return the stored cache of the table's metadata, or an empty cache for a full refresh."""
    return MetadataCache(ignore_process=True) if full else MetadataCache(versions.metadata_cache)


def attempt_name(versions: VersionStore, request: RefreshRequest) -> str:
    """Return the name under which a refresh saves its profiles for the next attempt, in case it fails.

    The name is a digest of the request and the number of the newest version. For a fragment that the request reads
    again, only a profile saved under this name is reused. The name is empty if the request reads nothing again.

    Args:
        versions: The published versions of the table.
        request: The fragments that are read again.
    """
    request_texts = ["full"] if request.full else [f"partition {text}" for text in sorted(request.partitions)]
    return digest_texts([str(versions.newest()), *request_texts]) if request_texts else ""


def is_up_to_date(table_format: TableFormat, table: TableConfig, version: Version) -> bool:
    """Return whether a version describes the table's current snapshot under the configured policies.

    Args:
        table_format: Reads the table's current snapshot.
        table: The configured policies, with the key that hashes hidden values.
        version: The version.
    """
    return describes(version, table_format.current(), table)


def plan_next_version(
    versions: VersionStore,
    table_format: TableFormat,
    table: TableConfig,
    request: RefreshRequest,
    attempt: AttemptProfiles,
) -> Plan:
    """Plan a refresh.

    A dry run shows this plan, and a refresh executes it.

    If the newest version is up to date, and the request reads nothing again, the plan publishes nothing. Its only stage
    writes the version to the export targets that lack it. Without such targets, it has no stages.

    The arguments and errors are those of `current_plan`. `attempt.newest` is set to the newest version, or to None if
    the request reads fragments again.
    """
    newest = attempt.newest = None if request.forces_reading else versions.latest()
    if newest is not None and is_up_to_date(table_format, table, newest):
        return _up_to_date_plan(versions, table, newest)
    return current_plan(versions, table_format, table, request, attempt)


def _up_to_date_plan(versions: VersionStore, table: TableConfig, newest: Version) -> Plan:
    """Return the plan of a refresh of a table whose newest version is up to date."""
    exports: tuple[ExportResult, ...] = ()
    if table.exports:
        from metastore_assets.exports.writing import read_export_states  # it imports lookups, which few refreshes need

        exports = read_export_states(table, versions.objects, newest)
    outdated_targets = tuple(export.target for export in exports if export.state != "current")
    snapshot = SnapshotMetadata(
        newest.format, newest.snapshot, newest.committed_at, newest.schema, newest.partition_columns
    )
    spec = table_profile_spec(newest.schema, table, recorded_resolutions(newest, table))
    return Plan(
        table=table.name,
        target=Target(newest.number + 1, newest, SnapshotChanges(snapshot, (), {}), spec, newest.specs, ()),
        stages=(WriteExports(outdated_targets),) if outdated_targets else (),
        to_profile=(),
        reused_profiles={},
        added_ids=(),
        removed_fragments=(),
        unchanged_count=newest.fragment_count,
        removed_partitions=(),
        dropped_columns=newest.dropped_columns,
        exports=exports,
    )


def current_plan(
    versions: VersionStore,
    table_format: TableFormat,
    table: TableConfig,
    request: RefreshRequest = DEFAULT_REQUEST,
    attempt: AttemptProfiles | None = None,
) -> Plan:
    """Plan a version of the table's current snapshot, even if the newest version is up to date.

    The plan uses the changes of the commits since the newest version if the format reports them. Otherwise all
    fragments are compared, and the plan contains the reason.

    Args:
        versions: The published versions of the table.
        table_format: Reads the table's metadata.
        table: The configuration, with the key that hashes hidden values.
        request: The fragments that are read again.
        attempt: Profiles from earlier attempts with the same request; None if there are none.

    Raises:
        ConfigError: A policy names a column that never existed, or values of a hidden column would be revealed. Or the
            source code of a user-defined statistic changed, and its declared revision did not.
        CorruptionError: The newest version is damaged.
        PartitionNotFoundError: The request names a partition that the snapshot does not have.
        VersionConflictError: Another process has published the first version.
        MetastoreError: The table cannot be read.
    """
    attempt = attempt or AttemptProfiles()
    return _retry_without_newest(
        lambda: _Planner(versions, table_format, table, request, attempt).plan_current(), request, attempt
    )


def _retry_without_newest(make: Callable[[], Plan], request: RefreshRequest, attempt: AttemptProfiles) -> Plan:
    """Return the plan that `make` computes.

    If the newest version is damaged and the request is full (all fragments are read again), `attempt.ignores_newest` is
    set, and `make` is called again. It then plans as if no version were published.

    Raises:
        CorruptionError: `make` reports damage, and is not called again: the request is not full, or
            `attempt.ignores_newest` is already set.
    """
    try:
        with _explain_missing_entries():
            return make()
    except CorruptionError:
        if not request.full or attempt.ignores_newest:
            raise
        attempt.ignores_newest = True
        return _retry_without_newest(make, request, attempt)


@contextmanager
def _explain_missing_entries() -> Iterator[None]:
    """Convert the error of a missing file of the newest version to a CorruptionError."""
    try:
        yield
    except ObjectNotFoundError as error:
        raise CorruptionError(
            f"{error}, but is still in use; rebuild with `metastore refresh NAME --full`", missing=True
        ) from error


class _PlanMaker:
    """A maker of plans from given changes of fragments.

    It also uses the published version, and the profiles that earlier refreshes saved.

    The subclass `_Planner` also determines the changes, by the format of the table.
    """

    def __init__(
        self, versions: VersionStore, table: TableConfig, request: RefreshRequest, attempt: AttemptProfiles
    ) -> None:
        self._versions = versions
        self._table = table
        self._request = request
        self._attempt = attempt
        self._base, self._number = _read_base(versions, attempt)
        self._pending = versions.pending()
        self._staged_version: Version | None = None
        """The finished lots of an interrupted first refresh, whose profiles the plan reuses."""

    def plan_lot(self, metadata: SnapshotMetadata, lot: Lot) -> Plan:
        """Return the plan that changes the newest staged version by one lot (see the module).

        Raises:
            NoDiffError: The version cannot be made in lots, or the staged version has other policies or columns.
        """
        base, reason = self._base, "no version is published"
        spec, dropped_columns = self._resolve_policies(metadata)
        if not _allows_lots(spec):
            raise NoDiffError("a column has `frequencies: repeated`")
        if base is None:
            changes = compare_snapshot(Snapshot(**vars(metadata), fragments=lot.added_fragments), None, reason)
        elif spec.id != base.spec_id:
            raise NoDiffError("columns or policies changed")
        else:
            removed_entries = entries_of(base, FRAGMENTS).find_all(lot.removed_keys) if lot.removed_keys else {}
            changes = SnapshotChanges(metadata, lot.added_fragments, removed_entries, comparison=reason)
        self._number = 1
        return self._plan(changes, spec, dropped_columns)

    def _resolve_policies(self, snapshot: SnapshotMetadata) -> tuple[ProfileSpec, tuple[str, ...]]:
        """Return (wanted profile spec, columns that a policy names but the table no longer has).

        Raises:
            ConfigError: A policy names a column that never existed, or values of a hidden column would be revealed. Or
                the source code of a user-defined statistic changed, and its declared revision did not.
        """
        base, table = self._base, self._table
        resolutions: Mapping[str, CardinalityMode] = {}
        if base is not None:
            has_new_snapshot = snapshot.reference != SnapshotReference(base.snapshot, base.committed_at)
            resolutions = planned_resolutions(
                base, snapshot.schema, table, self._versions.objects, has_new_snapshot=has_new_snapshot
            )
        dropped_columns = _dropped_columns(self._versions, base, snapshot.schema, table)
        spec = table_profile_spec(snapshot.schema, table, resolutions)
        check_hidden_not_derived(table, spec, snapshot)
        check_sources(table.name, base.specs.values() if base else (), spec.column_specs)
        return spec, dropped_columns

    def _plan(self, changes: SnapshotChanges, spec: ProfileSpec, dropped_columns: tuple[str, ...]) -> Plan:
        """Make the plan for some changes of fragments."""
        base, attempt, staged_version = self._base, self._attempt, self._staged_version
        added_ids = [fragment.id for fragment in changes.added_fragments]
        inputs = PlanInputs(
            table=self._table.name,
            base=base,
            changes=changes,
            spec=spec,
            stored_profiles=[
                *((each.fragment for each in find_retired(base, added_ids)) if base else ()),
                *(staged_version.fragments if staged_version else ()),
                *self._pending,
            ],
            attempt_profiles=attempt.entries,
            # Not one dict, so that the published specs are read only if a profile has another spec than the wanted one.
            specs=ChainMap(
                {spec.id: spec.column_specs},
                attempt.specs,
                *(version.specs for version in (base, staged_version) if version),  # type: ignore[arg-type]
            ),
            number=self._number,
            dropped_columns=dropped_columns,
            exports=tuple(entry.name for entry in read_export_entries(self._table)),
        )
        return replace(make_plan(inputs, self._request), staged_version=staged_version)


class _Planner(_PlanMaker):
    """A planner of one refresh.

    `plan_from_difference` uses the changes of the commits since the newest version. `plan_from_stream` and
    `plan_from_snapshot` compare all fragments. `plan_current` chooses between them.
    """

    def __init__(
        self,
        versions: VersionStore,
        table_format: TableFormat,
        table: TableConfig,
        request: RefreshRequest,
        attempt: AttemptProfiles,
    ) -> None:
        super().__init__(versions, table, request, attempt)
        self._format = table_format

    def _plan(self, changes: SnapshotChanges, spec: ProfileSpec, dropped_columns: tuple[str, ...]) -> Plan:
        return super()._plan(replace(changes, find=self._format.find_fragments), spec, dropped_columns)

    def plan_current(self) -> Plan:
        """Plan from the changes since the newest version.

        If they do not suffice, compare all fragments.

        Raises VersionConflictError if another process has published the first version.
        """
        try:
            return self.plan_from_difference()
        except NoDiffError as error:
            reason = str(error)
        if self._base is None and self._number == 1 and not self._request.forces_reading:
            self._staged_version = _read_staged(self._versions)
        with nullcontext() if self._staged_version is None else reading_staged(self._versions):
            plan_or_snapshot = self.plan_from_stream(reason)
            if isinstance(plan_or_snapshot, Plan):
                return plan_or_snapshot
            return self.plan_from_snapshot(reason, plan_or_snapshot)

    def plan_from_difference(self) -> Plan:
        """Return the plan made from the changes of the commits since the newest version.

        Raises:
            NoDiffError: The changes do not suffice to make the plan, for example because no version is published, or
                a policy changed. The next step is to compare all fragments (see `plan_from_stream`).
        """
        base = self._base
        if base is None:
            raise NoDiffError("no version is published")
        if self._request.forces_reading:
            raise NoDiffError("fragments are read again on request")
        diff = self._format.changes(SnapshotReference(base.snapshot, base.committed_at))
        if isinstance(diff, NoDiff):
            raise NoDiffError(diff.reason)
        spec, dropped_columns = self._resolve_policies(diff.current)
        if spec.id != base.spec_id:
            raise NoDiffError("columns or policies changed")
        return self._plan(changes_from_diff(diff, base), spec, dropped_columns)

    def plan_from_stream(self, reason: str) -> Plan | Snapshot | None:
        """Compare all fragments in bounded memory.

        Return the resulting plan.

        Some plans need all fragments in memory. Then no plan is made, and `plan_from_snapshot` must be called.

        Args:
            reason: Why all fragments are compared.

        Returns:
            The plan. If no plan was made: the complete snapshot, or None if the snapshot has not been read completely.
        """
        base, patterns = self._base, self._request.partitions
        if self._request.full or (base is None and patterns):
            return None
        if base is None:
            return self._plan_first(reason)
        assert isinstance(base.fragments, StoredEntries), "the version was read from a store"
        stream = self._format.stream()
        spec, dropped_columns = self._resolve_policies(stream.metadata)
        if spec.id != base.spec_id:
            try:
                return stream.read_all()
            except UnstreamableError:
                return None

        def find_requested_keys(changes: SnapshotChanges) -> set[str]:
            return match_partitions(self._table.name, patterns, changes.partition_keys(base))

        try:
            changes = compare_stream(stream, base.fragments, reason, find_requested_keys if patterns else None)
            return self._plan(changes, spec, dropped_columns)
        except (NoDiffError, UnstreamableError):
            return stream.snapshot

    def _plan_first(self, reason: str) -> Plan | Snapshot | None:
        """Plan the first version in lots if the table has more than `FRAGMENTS_PER_LOT` fragments.

        Return the complete snapshot instead if the table has no more fragments than that, or if lots are not possible.
        Return None if the format cannot stream the fragments.
        """
        stream = self._format.stream()
        try:
            first = list(islice(stream.fragments, FRAGMENTS_PER_LOT + 1))
            stream = replace(stream, fragments=chain(first, stream.fragments))
            if len(first) > FRAGMENTS_PER_LOT and self._number == 1 and self._attempt.makes_lots:
                del first
                plan = self._plan_in_lots(stream, reason)
                if plan is not None:
                    return plan
            return stream.read_all()
        except UnstreamableError:
            return None

    def _plan_in_lots(self, stream: SnapshotStream, reason: str) -> Plan | None:
        """Plan the first version in lots, from the staged version if there is one.

        Return None, and read no fragments, if lots are not possible: a column has the policy `repeated`, or the staged
        version has other policies or columns.

        Args:
            stream: The snapshot.
            reason: Why all fragments are compared.

        Raises:
            UnstreamableError: The format must read all fragments together, or two fragments have the same key.
        """
        maker: _PlanMaker = self
        staged_version = self._staged_version
        if staged_version is not None:
            if not matches_policies(self._table, staged_version):
                return None
            attempt = AttemptProfiles(newest=staged_version)
            maker = _PlanMaker(StagedVersions(self._versions), self._table, self._request, attempt)
        spec, dropped_columns = maker._resolve_policies(stream.metadata)
        if not _allows_lots(spec) or (staged_version is not None and staged_version.spec_id != spec.id):
            return None
        fragments = sort_fragments(stream)
        specs = ChainMap({spec.id: spec.column_specs}, staged_version.specs if staged_version else {})  # type: ignore[arg-type]
        compatibility = SpecCompatibility(specs, spec)
        saved_entries: dict[str, list[FragmentEntry]] = {}
        for entry in self._pending:
            saved_entries.setdefault(entry.id, []).append(entry)
        counts = Counter(partition_fragment_counts(staged_version) if staged_version else {})
        lots = profiled_count = size = 0
        merged_keys, rewritten_keys, read_again = set[str](), set[str](), set[str]()
        for lot in stream_lots(
            fragments, stored_fragments(staged_version) if staged_version else None, FRAGMENTS_PER_LOT
        ):
            lots += 1
            added_counts = Counter(fragment.partition_key for fragment in lot.added_fragments)
            removed_counts = Counter(split_fragment_key(key)[0] for key in lot.removed_keys)
            counts.update(added_counts)
            counts.subtract(removed_counts)
            merged_keys |= added_counts.keys() | removed_counts.keys()
            rewritten_keys |= added_counts.keys() & removed_counts.keys()
            locations = {
                each.id: (each.partition_key, each.path) for each in lot.added_fragments if each.id in saved_entries
            }
            candidates = chain.from_iterable(saved_entries[id_] for id_ in locations)
            reused_profiles = usable_profiles(candidates, compatibility, locations)
            read_again |= locations.keys() - reused_profiles.keys()
            profiled_count += len(lot.added_fragments) - len(reused_profiles)
            size += sum(fragment.bytes for fragment in lot.added_fragments if fragment.id not in reused_profiles)
        partition_keys = tuple(sorted(key for key, count in counts.items() if count))
        stages: tuple[PlanStage, ...] = ()
        if (
            not lots
            and staged_version
            and SnapshotReference(staged_version.snapshot, staged_version.committed_at) != stream.metadata.reference
        ):
            lots = 1  # An empty lot, so that the staged version describes the current snapshot.
        if lots:
            changed_keys = merged_keys & set(partition_keys)
            if (
                staged_version
                and len(staged_version.partitions) == 1
                and len(partition_keys) > 1
                and staged_version.value_counts is not None
            ):
                # It needs value counts of its own now, see `Target.needs_partition_value_counts`.
                changed_keys |= {entry.key for entry in staged_version.partitions if not entry.files.frequencies}
            reading = (
                ProfileFragments(profiled_count, size, fragments.count - profiled_count) if profiled_count else None
            )
            merging = MergePartitions(tuple(sorted(changed_keys)), len(partition_keys))
            stages = version_stages(spec, reading, tuple(sorted(rewritten_keys)), merging)
        exports = tuple(entry.name for entry in read_export_entries(self._table))
        changes = SnapshotChanges(stream.metadata, (), {}, comparison=reason)
        return Plan(
            table=self._table.name,
            target=Target(1, None, changes, spec, specs, ()),
            stages=(DivideIntoLots(fragments.count, lots, stages), *publishing_stages(1, 0, exports)),
            to_profile=(),
            reused_profiles={},
            added_ids=(),
            removed_fragments=(),
            unchanged_count=0,
            removed_partitions=(),
            read_again=count_missing_outputs(compatibility, self._pending, read_again),
            dropped_columns=dropped_columns,
            staged_version=staged_version,
            lots=Lots(fragments, profiled_count, size, partition_keys),
        )

    def first_version_totals(self) -> FirstVersionTotals | None:
        """Return the number and size of the fragments of each partition; see the function of this name."""
        if self._base is not None or self._number > 1:
            return None
        stream = self._format.stream()
        spec, _ = self._resolve_policies(stream.metadata)
        saved_ids = {entry.id for entry in self._pending}
        saved_fragments: dict[str, Fragment] = {}
        partitions: dict[str, tuple[int, int]] = {}
        try:
            for fragment in stream.fragments:
                count, size = partitions.get(fragment.partition_key, (0, 0))
                partitions[fragment.partition_key] = count + 1, size + fragment.bytes
                if fragment.id in saved_ids:
                    saved_fragments[fragment.id] = fragment
        except UnstreamableError:
            return None
        compatibility = SpecCompatibility({spec.id: spec.column_specs}, spec)
        locations = {id_: (fragment.partition_key, fragment.path) for id_, fragment in saved_fragments.items()}
        unread = dict(partitions)
        for id_ in usable_profiles(self._pending, compatibility, locations):
            count, size = unread[saved_fragments[id_].partition_key]
            unread[saved_fragments[id_].partition_key] = count - 1, size - saved_fragments[id_].bytes
        return FirstVersionTotals(stream.metadata, partitions, unread)

    def plan_first_partitions(self, keys: Collection[str]) -> Plan | None:
        """Plan only the fragments of some partitions, for a first version; see the function of this name."""
        if self._base is not None or self._number > 1:
            return None
        stream = self._format.stream()
        try:
            fragments = sorted(
                (fragment for fragment in stream.fragments if fragment.partition_key in keys), key=fragment_order
            )
        except UnstreamableError:
            return None
        return self.plan_from_snapshot(
            "no version is published", Snapshot(**vars(stream.metadata), fragments=tuple(fragments))
        )

    def plan_from_snapshot(self, reason: str, snapshot: Snapshot | None = None) -> Plan:
        """Compare all fragments of the snapshot with the newest version, in memory.

        Return the plan.

        Args:
            reason: Why all fragments are compared.
            snapshot: The snapshot; None if it has not been read.
        """
        snapshot = snapshot or self._format.snapshot()
        spec, dropped_columns = self._resolve_policies(snapshot)
        return self._plan(compare_snapshot(snapshot, self._base, reason), spec, dropped_columns)


def _allows_lots(spec: ProfileSpec) -> bool:
    """Return whether the first version can be made in lots.

    It cannot if a column has the policy `repeated`, which reports only values that occur at least twice. Two lots
    may have one occurrence each. So values of each lot would be looked for in the fragments of all earlier lots.
    """
    return not any(policy.is_fingerprinted or policy.frequencies == "repeated" for _, policy in spec.columns)


def _dropped_columns(
    versions: VersionStore, base: Version | None, schema: pa.Schema, table: TableConfig
) -> tuple[str, ...]:
    """Return the columns that have a policy, but are missing in the schema.

    Each was a column of an earlier version.

    Raises:
        ConfigError: A missing column was in no readable version. Or the table lacks a hidden column and has a new
            column, which may be the same one, renamed.
    """
    unknown = unknown_columns(schema, table)
    unexplained_paths = set(unknown)
    if base is not None:
        check_hidden_not_renamed(table, base.schema, schema)
        unexplained_paths -= {*column_paths(base.schema), *base.dropped_columns}
    is_checked = base is not None or not table.hides_values
    for number in reversed(versions.numbers() if unexplained_paths or not is_checked else []):
        try:
            version = versions.read(number)
        except StoreError:
            continue  # A version that is damaged, expired meanwhile, or of an earlier release explains nothing.
        if not is_checked:  # A full refresh ignores a damaged version. The newest readable one has the hidden columns.
            check_hidden_not_renamed(table, version.schema, schema)
            is_checked = True
        unexplained_paths -= {*column_paths(version.schema), *version.dropped_columns}
        if not unexplained_paths:
            break
    if unexplained_paths:
        columns, name = column_paths(schema), min(unexplained_paths)
        raise ConfigError(
            f"table {table.name!r}: columns.{name} is a policy for a column that the table does not have; "
            f"its columns are: {join_names(columns)}" + close_names(name, columns, "")
        )
    return tuple(unknown)


def _read_staged(versions: VersionStore) -> Version | None:
    """Return the staged version from which the first refresh of a table continues.

    A staged version has the fragments that an interrupted first refresh has finished. No reader sees it.

    Returns None if there is none, or if it is damaged or in the format of an earlier release.
    """
    try:
        return StagedVersions(versions).latest()
    except (CorruptionError, OlderFormatError):
        return None


def stored_fragments(version: Version) -> StoredEntries[FragmentEntry]:
    """Return the fragments of a version that was read from a store."""
    assert isinstance(version.fragments, StoredEntries), "the version was read from a store"
    return version.fragments


def _read_base(versions: VersionStore, attempt: AttemptProfiles) -> tuple[Version | None, int]:
    """Return (newest version, number of the next version).

    The first is None if there is no version, or if the attempt ignores the newest one. The second is one more than the
    number of the newest stored version, even if the attempt ignores that version.

    Raises:
        CorruptionError: The newest version is damaged.
    """
    latest = None if attempt.ignores_newest else attempt.newest or versions.latest()
    return latest, (latest.number if latest is not None else versions.newest()) + 1
