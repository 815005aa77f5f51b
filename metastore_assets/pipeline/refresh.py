"""The refresh of a table: it publishes a version with the statistics of the current snapshot.

A refresh makes a plan and runs its stages. If the plan becomes outdated, for example because another refresh publishes
a version, the refresh plans again.

A fragment is a data file with its deletes, and its profile is its statistics. A version is the published statistics of
a table at one snapshot. The first version of a table with very many fragments is made in lots. A lot is a limited
number of fragments, which are profiled and stored before the next lot is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import (
    CorruptionError,
    MetastoreError,
    ObjectNotFoundError,
    TableNotFoundError,
    VersionConflictError,
    WorkerEndedError,
)
from metastore_assets.formats import MetadataCache, open_table_format
from metastore_assets.formats.base import SnapshotReference, TableFormat
from metastore_assets.pipeline.context import RefreshContext, ignore_progress
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.execution import (
    Execution,
    ImpossibleLotsError,
    RemovedFilesError,
    UnreadableFragmentsError,
    execute,
)
from metastore_assets.pipeline.hidden_values import with_hidden_key
from metastore_assets.pipeline.outcome import Progress, RefreshResult, counts_by_step
from metastore_assets.pipeline.plan import DEFAULT_REQUEST, Plan, RefreshRequest
from metastore_assets.pipeline.planning import (
    AttemptProfiles,
    current_plan,
    is_up_to_date,
    metadata_cache,
    plan_next_version,
)
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.storage.io_counters import count_io, io_step
from metastore_assets.store.entry_changes import change_metadata_cache
from metastore_assets.store.version import Version
from metastore_assets.store.versions import VersionStore, is_missing_file, versions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = 5


def plan_refresh(config: MetastoreConfig, table: TableConfig, request: RefreshRequest = DEFAULT_REQUEST) -> Plan:
    """Return the plan that `refresh` would execute now.

    Reads metadata only.

    If the table is up to date, and the request reads nothing again, the plan has no stages. Exception: it has a stage
    for export targets that lack the version.

    Args:
        config: The configuration.
        table: The table.
        request: The fragments that are read again.
    """
    versions, table = versions_of(config, table.name), with_hidden_key(config, table)
    table_format = open_table_format(table, metadata_cache(versions, full=request.full))
    return plan_next_version(versions, table_format, table, request, AttemptProfiles.resume(versions, request))


def plan_version(config: MetastoreConfig, table: TableConfig) -> Plan:
    """Return the plan of a version for the current snapshot, even if the newest version is up to date.

    The plan has all fragments of the version, even if a refresh would make the version in lots.

    Args:
        config: The configuration.
        table: The table.
    """
    versions, table = versions_of(config, table.name), with_hidden_key(config, table)
    table_format = open_table_format(table, metadata_cache(versions, full=False))
    return current_plan(versions, table_format, table, attempt=AttemptProfiles(makes_lots=False))


def is_current(config: MetastoreConfig, table: TableConfig, version: Version) -> bool:
    """Return whether a version describes the table's current snapshot under the configured policies.

    Args:
        config: The configuration.
        table: The table.
        version: A version of the table.
    """
    table_format = open_table_format(table, MetadataCache(lambda: version.metadata_cache))
    return is_up_to_date(table_format, with_hidden_key(config, table), version)


def refresh(
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], SparkSession],
    request: RefreshRequest = DEFAULT_REQUEST,
    *,
    progress: Callable[[Progress], None] = ignore_progress,
) -> RefreshResult:
    """Publish a version for the table's current snapshot.

    Reads only fragments without a stored profile, and those that `request` asks to read again.

    Nothing is published if the newest version is up to date and `request` reads nothing again. Export targets that lack
    the newest version are written. The result reports targets that fail.

    Several refreshes of a table may run at the same time. The first one publishes. Each of the others plans again, and
    reuses the profiles that it has already computed.

    Args:
        config: The configuration.
        table: The table.
        spark: Starts Spark. Called only if there is work that `config.engine` leaves to Spark.
        request: The fragments to read again. Fragments that an interrupted refresh with the same request has read since
            the newest version are not read again.
        progress: Called with the progress.

    Raises:
        ProfileError: Fragments cannot be read. The last version remains, and finished profiles are saved for the next
            attempt.
        MetastoreError: The table changed during each attempt. Or the table or a stored file cannot be read.
    """
    start_time = time.monotonic()
    refreshing = _Refresh(config, table, request)
    progress(Progress(table.name, "plan"))
    with count_io() as counter, _explain_errors(refreshing.versions, refreshing.attempt.name):
        refreshing.open(spark, progress)
        for _ in range(_ATTEMPTS):
            try:
                with io_step("plan"):
                    plan = refreshing.plan()
                execution = execute(
                    refreshing.context, plan, refreshing.attempt, start_time, refreshing.cached_metadata(plan)
                )
            except _RETRIED as error:
                refreshing.check_outdated(error)
            else:
                return replace(_result(execution), seconds=time.monotonic() - start_time, steps=counts_by_step(counter))
    raise MetastoreError(
        f"table {table.name!r} changed during each of {_ATTEMPTS} attempts to refresh it; finished profiles are saved: "
        "run the refresh again"
    )


class _PurgedError(MetastoreError):
    """Raised if a purge removed profiles of this refresh during planning."""


_RETRIED = (
    _PurgedError,
    RemovedFilesError,
    VersionConflictError,
    UnreadableFragmentsError,
    CorruptionError,
    ObjectNotFoundError,
    ImpossibleLotsError,
)


class _Refresh:
    """One refresh: the open table, and the objects that its attempts share."""

    context: RefreshContext
    cache: MetadataCache
    _format: TableFormat
    _plan: Plan
    _planned_snapshot: SnapshotReference
    """The snapshot for which the last plan was made."""

    def __init__(self, config: MetastoreConfig, table: TableConfig, request: RefreshRequest) -> None:
        """Load the saved profiles of interrupted refreshes.

        Call `open` next.
        """
        self._config = config
        self._table = table
        self._request = request
        self.versions = versions_of(config, table.name)
        self.attempt = AttemptProfiles.resume(self.versions, request)
        self._last_purge = self.versions.last_purge
        self._has_missed_file = False

    def open(self, spark: Callable[[], SparkSession], progress: Callable[[Progress], None]) -> None:
        """Open the table, and create `context`."""
        engine = Engine.of_refresh(self._config, self._table, spark)
        with io_step("plan"):
            table = with_hidden_key(self._config, self._table, create=True)
            self.cache = metadata_cache(self.versions, full=self._request.full)
            self._format = open_table_format(table, self.cache, SizedRunner(spark))
        self.context = RefreshContext(engine, self.versions, table, progress, self._config.keep_versions)

    def cached_metadata(self, plan: Plan) -> Mapping[bytes, bytes]:
        """Return the metadata cache to store in the version that the plan publishes; {} if it publishes none."""
        if not plan.publishes:
            return {}
        if plan.base is None or plan.target.changes.comparison:
            # It compared all fragments, and so read every entry that is still needed. The entries are copied, because
            # `TableFormat.find_fragments` reads the newest snapshot later, which may replace those of the planned one.
            return dict(self.cache.entries)
        return change_metadata_cache(plan.base.metadata_cache, self.cache.new_entries, self.cache.discarded)

    def plan(self) -> Plan:
        """Return the plan for the current snapshot.

        Forget the profiles of this refresh, and delete their files, if a purge happened since the last plan.

        Raises _PurgedError if a purge removed profiles of this refresh during planning.
        """
        versions, attempt, context = self.versions, self.attempt, self.context
        if attempt.paths and versions.purged() != self._last_purge:
            versions.delete_unreferenced(attempt.paths)  # A purge removes everything that was written before it.
            attempt.clear()
        context.progress(Progress(context.table.name, "plan"))
        self._plan = plan_next_version(versions, self._format, context.table, self._request, attempt)
        self._planned_snapshot = self._plan.snapshot.reference
        if not self._plan.publishes:
            return self._plan
        purged_before, self._last_purge = self._last_purge, versions.last_purge
        if attempt.entries and self._last_purge != purged_before:
            raise _PurgedError(f"table {context.table.name!r} was purged")
        attempt.specs[self._plan.spec.id] = self._plan.spec.column_specs
        return self._plan

    def check_outdated(self, error: MetastoreError) -> None:
        """Raise the error, unless another attempt may succeed.

        Another attempt may succeed if another refresh published first, if a purge, an expiry or a commit removed files,
        if the first version cannot be made in lots, or if a full refresh can ignore the damaged newest version.
        """
        if isinstance(error, RemovedFilesError):
            self._clear_removed()
        elif is_missing_file(error) and not self._has_missed_file:
            # An expiry with a short grace period may have removed files of this refresh, or of the version on which it
            # is based. If the newest version lacks the file, the next attempt misses it again.
            self._has_missed_file = True
            if self._clear_removed() or not self._request.full:
                return
        if isinstance(error, ObjectNotFoundError):
            raise error
        if isinstance(error, CorruptionError):
            if not self._request.full or self.attempt.ignores_newest:
                raise error
            # A purge also removes files that a plan needs. Then the newest version is not damaged.
            self.attempt.ignores_newest = self.versions.purged() == self._last_purge
        if isinstance(error, UnreadableFragmentsError):
            has_changed = error.is_missing and self._format.current() != self._planned_snapshot
            if not has_changed:
                raise error.reported_error from error.__cause__

    def _clear_removed(self) -> bool:
        """Forget the profiles of this refresh if files of them were removed.

        Return whether files were removed.
        """
        has_removed_files = any(self.versions.objects.info(path) is None for path in self.attempt.paths)
        if has_removed_files:
            self.versions.clear_pending()
            self.attempt.clear()
        return has_removed_files


def _result(execution: Execution) -> RefreshResult:
    """Return the result of a refresh, without duration, reads and writes."""
    plan, version = execution.plan, execution.version
    assert version is not None
    return RefreshResult(
        table=plan.table,
        version=version.number,
        snapshot=version.snapshot,
        published=plan.publishes,
        fragments_added=plan.added_count,
        fragments_removed=len(plan.removed_fragments),
        fragments_unchanged=plan.unchanged_count,
        fragments_profiled=execution.attempt.read_fragments,
        partitions_changed=plan.changed_partitions if plan.lots else execution.target.changed_partitions,
        partitions_removed=plan.removed_partitions,
        partitions_total=plan.partition_count,
        seconds=0.0,
        dropped_columns=version.dropped_columns,
        refresh_stats=version.refresh_stats if plan.publishes else None,
        type_changes=plan.type_changes,
        value_count_changes=execution.value_count_changes,
        stages=tuple(execution.executed_stages),
        exports=execution.exports,
    )


@contextmanager
def _explain_errors(versions: VersionStore, attempt: str) -> Iterator[None]:
    """Add advice to errors in the block, and clear pending profiles that may be damaged.

    Advice is added if a purge removed files, a worker crashed, or the table is missing.

    A pending profile was saved by a refresh that has not published. A corrupt file or a crashed worker may be due to a
    damaged pending profile. So all pending profiles that `versions` saved or read are cleared: later attempts ignore
    them. The profiles are not cleared if a purge explains the corrupt file.

    Args:
        versions: The versions of the table.
        attempt: The name under which the refresh saves profiles (see `attempt_name`). If it is empty, nothing is
            cleared.
    """
    table = versions.table
    try:
        yield
    except (CorruptionError, ObjectNotFoundError) as error:
        purged_before = versions.last_purge
        if purged_before is not None and versions.purged() != purged_before:
            raise MetastoreError(
                f"table {table!r} was purged while it was refreshed, which removed what the refresh had written: "
                "run the refresh again"
            ) from error
        if attempt and isinstance(error, CorruptionError):
            versions.clear_pending()
        raise
    except WorkerEndedError as error:
        if attempt:
            versions.clear_pending()
        raise WorkerEndedError(
            f"table {table!r}: {error}. The last version remains; if this happens again, a stored profile may be "
            f"damaged: `metastore refresh {table} --full` reads everything again"
        ) from error
    except TableNotFoundError as error:
        newest = versions.newest()
        if not newest:
            raise
        raise TableNotFoundError(
            f"{error}; version {newest} of table {table!r} stays readable, but the table does not exist any more: "
            "restore its files, or remove the table from the configuration"
        ) from error
