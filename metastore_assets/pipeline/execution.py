"""Execution of the stages of a refresh plan.

The last stages publish the version and export it.

A fragment is a data file with its deletes, and its profile is its statistics. The entry of a fragment names the files
of its profile. The first version of a table with many fragments is made in lots. A lot is a limited number of
fragments. The result of each lot is stored as a staged version, which no reader sees, before the next lot is processed.
A profile spec says which statistics a profile has. Value counts are the distinct values of a column with their
frequencies. A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from metastore_assets.config import TableConfig
from metastore_assets.errors import (
    CorruptionError,
    FragmentError,
    MetastoreError,
    ObjectNotFoundError,
    ProfileError,
    StoreError,
    VersionConflictError,
    VersionNotFoundError,
)
from metastore_assets.exports.export_result import ExportResult
from metastore_assets.history import append_when_due
from metastore_assets.pipeline.auto_policies import resolve_auto_policies
from metastore_assets.pipeline.context import RefreshContext, export_version
from metastore_assets.pipeline.merging.compaction import drop_value_counts
from metastore_assets.pipeline.next_version import VersionBuilder
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.plan import Plan, Target
from metastore_assets.pipeline.planning import AttemptProfiles
from metastore_assets.pipeline.profiling import ProfilingResult, failure_advice, profile_all, profile_error
from metastore_assets.pipeline.skip_rewrites import skip_rewrites
from metastore_assets.pipeline.stages import (
    CompactSegments,
    DivideIntoLots,
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
)
from metastore_assets.pipeline.table_location import table_location
from metastore_assets.storage.io_counters import io_step
from metastore_assets.store.staged_versions import StagedVersions
from metastore_assets.store.version import FragmentEntry, RefreshStats, Version
from metastore_assets.value_counts import ValueCountChanges, count_changes

GRACE = timedelta(days=1)
"""Minimum time between the publication of a version and the removal of its predecessor, which may still have
readers."""
_UNCHECKED_SECONDS = 3600.0
"""A refresh of a root in an object store lists its new files before it publishes if it took longer than this."""


class UnreadableFragmentsError(MetastoreError):
    """Raised by a stage if fragments cannot be read.

    `reported_error` is the error for the user.
    """

    def __init__(self, reported_error: ProfileError, *, is_missing: bool) -> None:
        """Create the error.

        Args:
            reported_error: The error for the user. It names the fragments and the reasons.
            is_missing: Whether a file is missing. The table may then have changed since planning.
        """
        super().__init__(str(reported_error))
        self.reported_error = reported_error
        self.is_missing = is_missing


class RemovedFilesError(MetastoreError):
    """Raised by the stage `Publish` if another process removed files that were written for the version."""


class ImpossibleLotsError(MetastoreError):
    """Raised by the stage `DivideIntoLots` if the first version cannot be made in lots."""


@dataclass
class Execution:
    """The inputs and results that the stages of one plan share."""

    context: RefreshContext
    plan: Plan
    attempt: AttemptProfiles
    start_time: float
    """Time of the monotonic clock when the refresh started."""
    cached_metadata: Mapping[bytes, bytes]
    """Metadata of the table's files, stored in the version for planning the next one."""
    target: Target
    """The next version as planned, then as changed by the stages."""
    fragments: dict[str, FragmentEntry]
    """The entries of all fragments of the target's partitions, by fragment id."""
    profiling_result: ProfilingResult = field(default_factory=ProfilingResult)
    executed_stages: list[PlanStage] = field(default_factory=list)
    """The stages that are finished."""
    value_count_changes: ValueCountChanges | None = None
    """Changes of the table's value counts; None before the version is published, or if they are unknown."""
    version: Version | None = None
    """The version that the stage `Publish` publishes; None until it is built. If the plan publishes nothing, the newest
    version."""
    exports: tuple[ExportResult, ...] = ()
    """One result for each target under `exports`."""
    staged_version: Version | None = None
    """The staged version with all lots, if the version is made in lots and they are finished."""
    _builder: VersionBuilder | None = None

    @property
    def builder(self) -> VersionBuilder:
        """The builder of the version, created at first use with the current `target`."""
        if self._builder is None:
            self._builder = VersionBuilder(self.context, self.target, self.fragments)
        return self._builder

    def clean_up(self) -> None:
        """Save new profiles for the next attempt, and delete written value counts, after a failure.

        Value counts are not deleted if the version is already built, because it references them. Errors of the store
        are ignored, so that the failure is reported.
        """
        with suppress(StoreError):
            self.profiling_result.save_unsaved(self.context.versions)
        if self._builder is not None and self.version is None:
            with suppress(StoreError):
                self._builder.discard()


def execute(
    context: RefreshContext,
    plan: Plan,
    attempt: AttemptProfiles,
    start_time: float,
    cached_metadata: Mapping[bytes, bytes],
) -> Execution:
    """Run the stages of a plan in order, and return their results.

    Args:
        context: The table, its store and engine.
        plan: The plan.
        attempt: The profiles of this refresh's attempts. New profiles are added to it.
        start_time: Time of the monotonic clock when the refresh started.
        cached_metadata: Metadata of the table's files, for planning the next version.

    Raises:
        UnreadableFragmentsError: Fragments cannot be read.
        VersionConflictError: Another process published a version first.
        RemovedFilesError: Another process removed files that were written for the version.
        CorruptionError: A stored file is damaged or missing.
        ImpossibleLotsError: The first version cannot be made in lots.
    """
    execution = Execution(context, plan, attempt, start_time, cached_metadata, plan.target, dict(plan.reused_profiles))
    if all(isinstance(stage, WriteExports) for stage in plan.stages):  # The published version is up to date.
        execution.version, execution.exports = plan.base, plan.exports
        execution.value_count_changes = ValueCountChanges()
    try:
        for stage in plan.stages:
            with io_step(stage.step), _explain_missing(context.table, stage):
                executed_stage = _EXECUTORS[type(stage)](execution, stage)
            execution.executed_stages.append(executed_stage or stage)
    except BaseException:
        execution.clean_up()
        raise
    return execution


def _divide_into_lots(execution: Execution, stage: DivideIntoLots) -> DivideIntoLots:
    """Compute the lots of the first version, and set `staged_version` and `version` of `execution`.

    Return a stage that describes the finished work: how many lots were computed, and which stages ran for them.
    """
    # Imported here, because few refreshes publish a first version in lots, and because it imports this module.
    from metastore_assets.pipeline.first_version import make_lots

    assert execution.plan.lots is not None
    staged_version, executed_stage = make_lots(
        execution.context, execution.plan, execution.plan.lots, execution.attempt
    )
    execution.staged_version = staged_version
    execution.version = replace(
        staged_version,
        number=execution.plan.number,
        published_at=datetime.now(UTC),
        metadata_cache=execution.cached_metadata,
    )
    return executed_stage


def _profile_fragments(execution: Execution, stage: ProfileFragments) -> None:
    """Profile the fragments that the plan reads, and add their entries to `execution.fragments`.

    Raises:
        UnreadableFragmentsError: Some fragments failed. The entries of the profiled ones are then added to
            `execution.attempt.entries` instead.
    """
    context, attempt = execution.context, execution.attempt
    profiling_result = execution.profiling_result = profile_all(context, execution.plan, attempt.name)
    if profiling_result.failures:
        attempt.entries += profiling_result.entries
        raise UnreadableFragmentsError(
            profile_error(context.table, profiling_result.failures, len(profiling_result.entries)),
            is_missing=any(failure.missing for failure in profiling_result.failures),
        )
    execution.fragments |= {entry.id: entry for entry in profiling_result.entries}


def _resolve_auto_policies(execution: Execution, stage: ResolveAutoPolicies) -> None:
    """Decide, after profiling, how columns with the policies `auto` and `repeated` are stored.

    If this changes the profile spec, `execution.target` (the next version as planned) gets the new spec and all
    partitions. `execution.fragments` then has the entries of all fragments of these partitions.
    """
    spec = resolve_auto_policies(execution.context, execution.plan, execution.fragments)
    if spec.id != execution.target.spec.id:
        target = execution.target.with_all_partitions()
        unchanged_entries = {entry.id: entry for partition in target.partitions for entry in partition.fragments_before}
        execution.fragments = {
            id_: execution.fragments.get(id_) or unchanged_entries[id_]
            for partition in target.partitions
            for id_ in partition.fragments
        }
        execution.target = target.with_spec(spec, execution.fragments)


def _drop_value_counts(execution: Execution, stage: DropValueCounts) -> None:
    execution.fragments = drop_value_counts(
        execution.context, execution.plan.spec, execution.target.spec, execution.fragments
    )


def _save_profiles(execution: Execution, stage: SaveProfiles) -> None:
    execution.profiling_result.save_rewritten(execution.context.versions, execution.fragments)
    execution.attempt.entries += execution.profiling_result.entries


def _skip_rewrites(execution: Execution, stage: SkipRewrites) -> None:
    execution.target = skip_rewrites(execution.context, stage, execution.target, execution.fragments)


def _merge_partitions(execution: Execution, stage: MergePartitions) -> None:
    context, changed_count = execution.context, len(execution.target.changed_partitions)
    context.progress(Progress(context.table.name, "reduce", 0, changed_count, "partitions", changed_count))
    with _explain_unreadable_values(context.table):
        execution.builder.merge_partitions()
    context.progress(Progress(context.table.name, "reduce", changed_count, changed_count, "partitions"))


def _merge_table(execution: Execution, stage: MergeTable) -> None:
    with _explain_unreadable_values(execution.context.table):
        execution.builder.merge_table()


def _update_value_counts(execution: Execution, stage: UpdateValueCounts) -> None:
    with _explain_unreadable_values(execution.context.table):
        execution.builder.update_value_counts()


def _compact_segments(execution: Execution, stage: CompactSegments) -> None:
    execution.builder.compact_segments()


def _write_indexes(execution: Execution, stage: WriteIndexes) -> None:
    execution.builder.write_indexes()
    execution.version = execution.builder.version(execution.cached_metadata, execution.plan.dropped_columns)


def _publish(execution: Execution, stage: Publish) -> None:
    """Compute how the table's value counts change, and publish the version.

    Then update the history, and delete outdated versions.

    Pending profiles, which were saved for a later attempt, are marked as no longer needed. If the store fails after the
    publication, the error is ignored. The next refresh does what remains.

    Raises:
        RemovedFilesError: Another process removed files that were written for this version.
        VersionConflictError: Another process published first. The value counts and indexes that were written for this
            version have been deleted, unless it was made in lots: then they stay with the staged version.
    """
    context, base, version = execution.context, execution.plan.base, execution.version
    assert version is not None
    versions, keep_versions = context.versions, context.keep_versions
    staged_version = execution.staged_version
    if staged_version is None:  # The changes of a version that was made in lots are unknown.
        with io_step("value_counts"):  # The files of the previous version are there until the new one is published.
            execution.value_count_changes = count_changes(
                context.objects, base.value_counts if base else None, version.value_counts
            )
    context.progress(Progress(context.table.name, "publish"))
    attempt = execution.attempt
    refresh_stats = RefreshStats(attempt.read_fragments, attempt.read_bytes, time.monotonic() - execution.start_time)
    version = replace(
        version, refresh_stats=refresh_stats, table_location=table_location(context.table, version.format)
    )
    if staged_version is not None:
        versions.publish(version, staged_version)
    else:
        _check_new_files(execution, version)
        try:
            versions.publish(version, base, may_merge=execution.builder.may_merge_entries)
        except VersionConflictError:
            versions.discard(version, base)
            attempt.unpublished_paths.update(execution.builder.new_paths(version))
            raise
    execution.version = version
    with suppress(StoreError):  # The next refresh, or `expire`, removes what stays, and reports the error.
        versions.clear_pending()
        if staged_version is not None:
            StagedVersions(versions).remove()
        elif execution.plan.staged_version is not None:
            StagedVersions(versions).remove_documents()  # The version may have files of any of them.
        newest_outdated = append_when_due(versions, base, version, keep_versions, GRACE)
        versions.drop_outdated(newest_outdated + keep_versions, keep_versions, GRACE)


def _check_new_files(execution: Execution, version: Version) -> None:
    """Raise RemovedFilesError if a file that was written for a version does not exist any more.

    An expiry removes files of a running refresh that are older than the grace period of the expiry. In an object store,
    the files are checked only if the refresh took at least `_UNCHECKED_SECONDS`.
    """
    objects = execution.context.objects
    if objects.is_remote and time.monotonic() - execution.start_time < _UNCHECKED_SECONDS:
        return
    paths = execution.builder.new_paths(version) - {""}
    if objects.is_remote:
        folders = {path.rpartition("/")[0] for path in paths}
        paths.difference_update(info.path for folder in folders for info in objects.scan(folder))
    else:
        paths = {path for path in paths if objects.info(path) is None}
    if paths:
        table = execution.context.table.name
        raise RemovedFilesError(f"table {table!r}: {objects.uri(min(paths))} was removed while the table was refreshed")


def _write_exports(execution: Execution, stage: WriteExports) -> None:
    assert execution.version is not None
    execution.exports = export_version(execution.context, execution.version)


# An executor may return the stage as it ran, if that can differ from the plan.
_EXECUTORS: Mapping[type[PlanStage], Callable[[Execution, Any], PlanStage | None]] = {
    DivideIntoLots: _divide_into_lots,
    ProfileFragments: _profile_fragments,
    ResolveAutoPolicies: _resolve_auto_policies,
    DropValueCounts: _drop_value_counts,
    SaveProfiles: _save_profiles,
    SkipRewrites: _skip_rewrites,
    MergePartitions: _merge_partitions,
    MergeTable: _merge_table,
    UpdateValueCounts: _update_value_counts,
    CompactSegments: _compact_segments,
    WriteIndexes: _write_indexes,
    Publish: _publish,
    WriteExports: _write_exports,
}


@contextmanager
def _explain_missing(table: TableConfig, stage: PlanStage) -> Iterator[None]:
    """Convert the error of a missing file in the `with` block to CorruptionError.

    If the stage reads no files of the last published version, the error is raised unchanged.
    """
    try:
        yield
    except (ObjectNotFoundError, VersionNotFoundError) as error:
        if not stage.reads_stored_state:
            raise
        cause = error.__cause__ if isinstance(error.__cause__, ObjectNotFoundError) else error
        raise CorruptionError(
            f"table {table.name!r}: {cause}, although the last version references it; that version remains unchanged, "
            f"and `metastore refresh {table.name} --full` reads everything again",
            missing=True,
        ) from error


@contextmanager
def _explain_unreadable_values(table: TableConfig) -> Iterator[None]:
    """Convert a FragmentError that the block raises to UnreadableFragmentsError.

    The block reads fragments again for values of fingerprinted columns: those stored as short hashes of their values.
    It raises FragmentError if it cannot read a file.
    """
    try:
        yield
    except FragmentError as error:
        reported_error = ProfileError(
            f"table {table.name!r}: {error}: the values that occur twice could not be read from it. "
            f"{failure_advice([error.unsupported])}"
        )
        raise UnreadableFragmentsError(reported_error, is_missing=error.missing) from error
