"""The body of a Dagster run that refreshes a table and then reports the changes.

A refresh publishes a version: the statistics of the table at one snapshot, in files per partition and table-level
files.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from dagster import AssetExecutionContext, Failure, MetadataValue

from metastore_assets.assets.backfills import Backfill, backfill_of, find_version_since_launch, is_oldest_run
from metastore_assets.assets.checks import check_results, export_check_results
from metastore_assets.assets.events import hold_sqlite_open, store_materializations
from metastore_assets.assets.names import TABLE_TAG, Kind, TableNames, kinds_of, partition_key_map
from metastore_assets.assets.partition_mapping import PartitionKeyMap, register_partitions
from metastore_assets.assets.pending_events import (
    PendingEvents,
    add_selected_events,
    find_pending_events,
    remove_events_of_other_runs,
    reportable_contents,
)
from metastore_assets.assets.reported_state import is_observed, read_reported_state
from metastore_assets.assets.secrets import hide_secrets
from metastore_assets.assets.table_info import TableInfo, store_table_info
from metastore_assets.assets.version_report import VersionReport, read_source_tags
from metastore_assets.checks.subject import create_check_context
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.config.emr import EMR_SERVERLESS
from metastore_assets.errors import MetastoreError, PartitionNotFoundError
from metastore_assets.exports.export_result import ExportResult
from metastore_assets.formats import MetadataCache, open_table_format
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.outcome import format_result, log_progress
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import is_current, refresh
from metastore_assets.resources.configuration import Configuration
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.store.version import Version
from metastore_assets.store.versions import VersionStore, versions_of
from metastore_assets.tasks.runner import TaskRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refresh_and_report(
    context: AssetExecutionContext,
    configuration: Configuration,
    names: TableNames,
    *,
    partitions: Sequence[str],
    full: bool,
) -> Iterator[Any]:
    """Refresh the table and yield the events of the run.

    A run for partitions reads these partitions again, changed or not. There are two exceptions. If the run also
    materializes the asset that writes the table, it reads only what changed. If the run belongs to a backfill, and all
    partitions of this backfill have been refreshed since its launch, nothing is refreshed. The oldest active run of a
    backfill reads the partitions of all its runs.

    A run for table-level assets reads only what changed.

    The events are, in this order: an observation if the snapshot is new, materializations of table-level files, and
    check results. Materializations of partitions are not yielded. They are stored in Dagster directly, before those of
    table-level files.

    Args:
        context: The context of the run.
        configuration: The configuration that has the table.
        names: The table's names in Dagster.
        partitions: Partitions to read again besides those of the run: keys or patterns such as `day=2024-01-*`.
        full: Whether to read every file again.

    Raises:
        Failure: The refresh failed; the message is that of the MetastoreError.
    """
    if TABLE_TAG not in context.run.tags:  # A person launched the run from an asset's page.
        context.instance.add_run_tags(context.run.run_id, {TABLE_TAG: names.tag})
    with _raise_failures(), hide_secrets(), log_regularly(context.log.info):
        run = _TableRun.of(context, configuration, names)
        refresh_outcome = run.refresh_unless_done(tuple(partitions), full=full)
        with hold_sqlite_open(context):
            yield from run.report(refresh_outcome)


@contextmanager
def _raise_failures() -> Iterator[None]:
    """Convert a MetastoreError raised in the block to Dagster's `Failure` with the same message."""
    try:
        yield
    except MetastoreError as error:
        raise Failure(description=str(error), metadata={"error": MetadataValue.text(type(error).__name__)}) from error


@contextmanager
def log_regularly(log: Callable[[str], object], seconds: float = 600.0) -> Iterator[None]:
    """Log a line every few minutes while the block runs.

    The sensor that starts runs for commits would take a run that logs nothing for dead.

    Args:
        log: Writes a line to the log of the run. Another thread calls it.
        seconds: The time between two lines.
    """
    end_event = Event()

    def repeat() -> None:
        while not end_event.wait(seconds):
            log("the run is still working")

    thread = Thread(target=repeat, name="metastore-log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end_event.set()
        thread.join()


@dataclass(frozen=True)
class _Selection:
    """The partitions that the run was launched for, and the backfill that launched it."""

    partitions: tuple[str, ...] = ()
    """Dagster's keys of the partitions to materialize."""
    backfill: Backfill | None = None
    """The backfill that the run belongs to; None without one."""

    @property
    def others(self) -> frozenset[str]:
        """Dagster's keys of the partitions that other runs of the backfill materialize."""
        return self.backfill.keys - set(self.partitions) if self.backfill else frozenset()

    @classmethod
    def of(cls, context: AssetExecutionContext, names: TableNames) -> "_Selection":
        """Return the partitions and the backfill of a run.

        A run of table-level assets has neither.
        """
        if not (context.has_partition_key or context.has_partition_key_range):
            return cls()
        return cls(tuple(context.partition_keys), backfill_of(context.instance, context.run, names))


@dataclass(frozen=True)
class _RefreshOutcome:
    """The outcome of the refresh in a run.

    `_RefreshOutcome()` means that nothing was refreshed.
    """

    seconds: float = 0.0
    exports: tuple[ExportResult, ...] = ()
    """The state of each target under `exports`. Empty if another process refreshed the table."""


@dataclass(frozen=True)
class _TableRun:
    """One run of Dagster for one table."""

    context: AssetExecutionContext
    configuration: Configuration
    names: TableNames
    config: MetastoreConfig
    """The configuration with the values of its variables."""
    table: TableConfig
    versions: VersionStore
    selection: _Selection

    @classmethod
    def of(cls, context: AssetExecutionContext, configuration: Configuration, names: TableNames) -> "_TableRun":
        """Create the run from Dagster's context.

        The configuration is read now, because it may have changed since the code location was loaded.
        """
        config = configuration.resolved()
        selection = _Selection.of(context, names)
        return cls(
            context,
            configuration,
            names,
            config,
            config.table(names.table),
            versions_of(config, names.table),
            selection,
        )

    def refresh_unless_done(self, partitions: tuple[str, ...], *, full: bool) -> "_RefreshOutcome":
        """Refresh the table, and return the outcome.

        If the run belongs to a backfill whose partitions were all refreshed since its launch, nothing is refreshed. The
        outcome is then `_RefreshOutcome()`.

        Args:
            partitions: Partitions to read again besides those of the run: keys or patterns.
            full: Whether to read every file again.
        """
        context, names = self.context, self.names
        version = find_version_since_launch(self.versions, names, self.selection.backfill, context.instance)
        if version is not None:
            self._table_keys(self._key_map(self.names.grouping.contents(version)))
            context.log.info("version %d has the partitions of the backfill", version.number)
            return _RefreshOutcome()
        with self.configuration.session(self.config) as spark:
            runner = None if self.config.engine == EMR_SERVERLESS else SizedRunner(spark)
            selected_keys = self._partitions_to_read(runner)
            return self._refresh(spark, (*selected_keys, *partitions), full=full)

    def report(self, refresh_outcome: "_RefreshOutcome") -> Iterator[Any]:
        """Yield the events and check results of the newest version, which may be newer than that of this run.

        Events of partitions are stored directly and not yielded. Before that, the table's dynamic partitions in Dagster
        are updated.

        Args:
            refresh_outcome: The outcome of this run's refresh.
        """
        context, names, instance = self.context, self.names, self.context.instance
        lookup = Metastore(self.config.root, storage_options=self.config.storage_options).table(names.table)
        version = lookup.version
        store_table_info(self.config, {names.table: TableInfo.of(version)})
        if warning := self.table.dropped_columns_warning(version.dropped_columns):
            context.log.warning(warning)
        contents = reportable_contents(version, names.grouping)
        keys = list(contents)
        if names.mapping is None:
            self._register_partitions(keys)
        key_map = self._key_map(keys)
        if key_map.unmapped:
            context.log.warning(
                "%d of %d partitions are not in the project's definition, and are reported only with the table: %s",
                len(key_map.unmapped),
                len(keys),
                key_map.unmapped[:5],
            )
        reported_state = read_reported_state(instance, self.versions, names, key_map)
        pending = find_pending_events(reported_state, version, self._kinds(), key_map, contents)
        events = self._events_of_run(pending, version, key_map)
        ranked_columns = frozenset(
            row.column for row in lookup.statistics() if self.table.effective_policy(row.column).ranks == "on"
        )
        tags = read_source_tags(instance, names)
        objects = self.versions.objects
        report = VersionReport(
            names,
            lookup,
            objects,
            refresh_outcome.seconds,
            key_map.dagster_keys,
            tags,
            ranked_columns,
            reported_state.version,
        )
        if not is_observed(instance, names, version):
            yield report.observation()
        if events.partitions:
            context.log.info("reporting %d partitions", len(events.partitions))
        store_materializations(context, report.partitions(events))
        # The result of a partitioned asset belongs to the run's partitions, so the table gets plain events instead.
        results = [] if names.is_single and self._has_partitions() else self._selected_kinds()
        yield from report.tables(events.table, results, instance)
        check_context = create_check_context(
            Metastore(self.config.root, storage_options=self.config.storage_options), self.table, lookup
        )
        selected_check_keys = context.selected_asset_check_keys
        yield from check_results(selected_check_keys, self.table, lookup, check_context)
        yield from export_check_results(selected_check_keys, self.table, lookup, refresh_outcome.exports)

    def _refresh(
        self, spark: Callable[[], "SparkSession"], partitions: tuple[str, ...], *, full: bool
    ) -> "_RefreshOutcome":
        """Refresh the table in this process, or as an EMR Serverless job if that is the configured engine.

        No job is launched if the newest version is current and nothing has to be read again.

        Args:
            spark: Returns a Spark session. A job does not use it.
            partitions: The keys or patterns of partitions to read again.
            full: Whether to read every file again.
        """
        context, config, table = self.context, self.config, self.table
        if config.engine != EMR_SERVERLESS:
            progress = log_progress(context.log.info)
            result = refresh(config, table, spark, RefreshRequest(full, partitions), progress=progress)
            context.log.info(format_result(result))
            for export in result.failed_exports:
                context.log.error("export %s failed: %s", export.target, export.error)
            return _RefreshOutcome(result.seconds, result.exports)
        latest = self.versions.latest()
        if not full and not partitions and latest is not None and is_current(config, table, latest):
            context.log.info("version %d is current: snapshot %s", latest.number, latest.snapshot)
            return _RefreshOutcome()
        # Imported here because it loads AWS clients.
        from metastore_assets.resources.emr import refresh_on_emr

        answer = refresh_on_emr(context, self.configuration, table, full=full, partitions=partitions)
        return _RefreshOutcome(answer.seconds)

    def _partitions_to_read(self, runner: TaskRunner | None) -> tuple[str, ...]:
        """Return the keys, as the table has them, of the partitions to read again.

        The first case that applies decides:

        - The run has no partitions: none.
        - The run also materializes the asset `source`, which writes the table: none. A refresh finds what was written.
        - The run is the oldest active run of a backfill: the partitions of all runs of the backfill.
        - Any other run: its own partitions.

        Args:
            runner: Runs the tasks in which the table's format reads whole data files. None runs them in a child
                process.
        """
        context, names, selection = self.context, self.names, self.selection
        if not selection.partitions or names.source in (context.run.asset_selection or ()):
            # An asset of this run has just written the partitions, so a refresh reads them without a request.
            return ()
        snapshot = open_table_format(self.table, MetadataCache(self.versions.metadata_cache), runner).snapshot()
        members = names.grouping.members({fragment.partition_key for fragment in snapshot.fragments})
        key_map = self._key_map(members)
        keys = self._table_keys(key_map)
        backfill = selection.backfill
        if backfill is None or not selection.others or not is_oldest_run(context.instance, context.run, backfill):
            return tuple(key for group in keys for key in members[group])
        context.log.info("reading all %d partitions of backfill %s", len(backfill.keys), backfill.id)
        return tuple(key for group in sorted(key_map.to_table_keys(backfill.keys)) for key in members[group])

    def _table_keys(self, key_map: PartitionKeyMap) -> tuple[str, ...]:
        """Convert Dagster's keys of the run's partitions to keys in the table.

        Keys of partitions that the table lacks are omitted.

        If Dagster's partitions are groups of the table's partitions, the results are keys of groups. Raises
        PartitionNotFoundError if Dagster's partitions are dynamic, and the table has none of the run's partitions.
        """
        names, requested_keys = self.names, self.selection.partitions
        dropped_keys = [key for key in requested_keys if key not in key_map.table_keys]
        if dropped_keys and len(dropped_keys) == len(requested_keys) and names.mapping is None:
            raise PartitionNotFoundError(
                f"table {names.table!r} no longer has partition {dropped_keys[0]!r}"
                + (f" nor {len(dropped_keys) - 1} other requested partitions" if len(dropped_keys) > 1 else "")
                + f"; materialize `{names.kind_assets['statistics'].to_user_string()}` to update the partitions"
            )
        if dropped_keys:
            self.context.log.warning(
                "not in the table: %d of %d partitions: %s", len(dropped_keys), len(requested_keys), dropped_keys[:5]
            )
        return key_map.to_table_keys(requested_keys)

    def _key_map(self, keys: Collection[str]) -> PartitionKeyMap:
        return partition_key_map(self.names, keys, self.context.instance)

    def _register_partitions(self, keys: Sequence[str]) -> None:
        """Register keys as the table's dynamic partitions in Dagster.

        Unless the run belongs to a backfill, unregister the table's dynamic partitions that are not in `keys`.
        """
        # Queued runs of a backfill name ranges of keys, so its runs unregister none.
        added_keys, removed_keys = register_partitions(
            self.context.instance, self.names.dynamic_partitions, keys, remove=self.selection.backfill is None
        )
        if added_keys or removed_keys:
            self.context.log.info(
                "partitions: %d added, %d removed, %d in all", len(added_keys), len(removed_keys), len(keys)
            )

    def _events_of_run(self, pending: PendingEvents, version: Version, key_map: PartitionKeyMap) -> PendingEvents:
        """Return the events that this run stores.

        These are the pending events, and an event for everything that the run was launched for, changed or not. Pending
        events that other runs of the same backfill store are left out.
        """
        names, selection = self.names, self.selection
        selected_keys = selection.partitions if names.partitions in self.context.selected_asset_keys else ()
        if names.mapping is None:
            # Dynamic partitions that the table does not have are unregistered, and need no event.
            selected_keys = tuple(key for key in selected_keys if key in key_map.table_keys)
        return add_selected_events(
            remove_events_of_other_runs(selection.others, pending, key_map),
            version,
            selected_keys,
            [] if names.is_single and selection.partitions else self._selected_kinds(),
            key_map,
        )

    def _kinds(self) -> list[Kind]:
        """Return the kinds of table-level files that have an asset."""
        return [kind for kind in kinds_of(self.table) if kind in self.names.kind_assets]

    def _selected_kinds(self) -> list[Kind]:
        """Return the kinds of table-level files whose assets the run was launched for."""
        return [kind for kind in self._kinds() if self.names.kind_assets[kind] in self.context.selected_asset_keys]

    def _has_partitions(self) -> bool:
        """Return whether the loaded definitions have a partitioned asset for the profiles of partitions."""
        return any(
            spec.key == self.names.partitions and spec.partitions_def is not None
            for spec in self.context.assets_def.specs
        )
