"""One run: refresh a table, then report the changes to Dagster."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagster import AssetExecutionContext, Failure, MetadataValue

from metastore_assets.assets.backfills import Backfill, backfill_of, is_first, version_covering
from metastore_assets.assets.changes import changes_between, changes_of_run, is_partitioned, with_selected
from metastore_assets.assets.checks import check_results
from metastore_assets.assets.events import held_open, store_materializations
from metastore_assets.assets.names import TABLE_TAG, TableNames, kinds_of, partition_key_map
from metastore_assets.assets.partition_mapping import PartitionKeyMap
from metastore_assets.assets.partitions import register_partitions
from metastore_assets.assets.report import Report, source_tags
from metastore_assets.assets.reported_state import is_observed, read_reported_state
from metastore_assets.assets.secrets import hide_secrets
from metastore_assets.checks.subject import create_check_context
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.config.emr import EMR_SERVERLESS
from metastore_assets.errors import MetastoreError, PartitionNotFoundError
from metastore_assets.formats import MetadataCache, open_table_format
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.outcome import format_result, log_progress
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import is_current, refresh
from metastore_assets.resources.configuration import Configuration
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.store.versions import VersionStore, versions_of
from metastore_assets.tasks.runner import TaskRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class _Selection:
    """The partitions and the backfill that the run was launched for."""

    partitions: tuple[str, ...] = ()
    """Dagster's keys of the partitions to materialize."""
    backfill: Backfill | None = None
    """The backfill that the run belongs to."""

    @property
    def others(self) -> frozenset[str]:
        """The partitions that other runs of the backfill materialize."""
        return self.backfill.keys - set(self.partitions) if self.backfill else frozenset()


def refresh_and_report(
    context: AssetExecutionContext,
    configuration: Configuration,
    names: TableNames,
    *,
    partitions: Sequence[str],
    full: bool,
) -> Iterator[Any]:
    """Refresh the table and yield the events of the run.

    The run reads the partitions again that it was launched for, and those that `partitions` matches. A run of
    table-level assets reads only what changed. The first run of a backfill does the work of all its runs.

    It reports, in this order: an observation if the snapshot is new, materializations of partitions, materializations
    of table-level files, and check results. Events of partitions are stored directly, because they can be very many.

    Args:
        context: The context of the run.
        configuration: The configuration that has the table.
        names: The table's names in Dagster.
        partitions: Partitions to read again: keys or patterns.
        full: Whether to read every file again.

    Raises:
        Failure: The refresh failed; the message is that of the MetastoreError.
    """
    if TABLE_TAG not in context.run.tags:  # A person launched the run from an asset's page.
        context.instance.add_run_tags(context.run.run_id, {TABLE_TAG: names.tag})
    with _raise_failures(), hide_secrets():
        config = configuration.now()
        table = config.table(names.table)
        versions = versions_of(config, names.table)
        selection = _selection(context, names)
        seconds = 0.0
        covering = version_covering(versions, names, selection.backfill, context.instance)
        if covering is not None:
            key_map = _key_map(context, names, [entry.key for entry in covering.partitions])
            _table_keys(context, names, selection.partitions, key_map)
            context.log.info("version %d has what the backfill is for", covering.number)
        else:
            with configuration.session(config) as spark:
                runner = None if config.engine == EMR_SERVERLESS else SizedRunner(spark)
                wanted = _partitions_to_read(context, table, names, versions, runner, selection)
                seconds = _refresh(context, configuration, config, table, spark, full, (*wanted, *partitions))
        with held_open(context):
            yield from _report(context, config, table, names, versions, selection, seconds)


def _refresh(
    context: AssetExecutionContext,
    configuration: Configuration,
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], "SparkSession"],
    full: bool,
    partitions: tuple[str, ...],
) -> float:
    """Refresh the table, in this process or as an EMR Serverless job. Return the duration in seconds."""
    if config.engine != EMR_SERVERLESS:
        progress = log_progress(context.log.info)
        result = refresh(config, table, spark, RefreshRequest(full, partitions), progress=progress)
        context.log.info(format_result(result))
        return result.seconds
    latest = versions_of(config, table.name).latest()
    if not full and not partitions and latest is not None and is_current(config, table, latest):
        context.log.info("version %d is current: snapshot %s", latest.number, latest.snapshot)
        return 0.0
    # Imported here because it loads AWS clients.
    from metastore_assets.resources.emr import refresh_on_emr

    return refresh_on_emr(context, configuration, table, full=full, partitions=partitions).seconds


@contextmanager
def _raise_failures() -> Iterator[None]:
    """Raise a MetastoreError as Failure with its message."""
    try:
        yield
    except MetastoreError as error:
        raise Failure(description=str(error), metadata={"error": MetadataValue.text(type(error).__name__)}) from error


def _selection(context: AssetExecutionContext, names: TableNames) -> _Selection:
    if not (context.has_partition_key or context.has_partition_key_range):
        return _Selection()
    return _Selection(tuple(context.partition_keys), backfill_of(context.instance, context.run, names))


def _key_map(context: AssetExecutionContext, names: TableNames, keys: Collection[str]) -> PartitionKeyMap:
    return partition_key_map(names, keys, context.instance)


def _partitions_to_read(
    context: AssetExecutionContext,
    table: TableConfig,
    names: TableNames,
    versions: VersionStore,
    runner: TaskRunner | None,
    selection: _Selection,
) -> tuple[str, ...]:
    """Return the table's keys of the partitions to read again: the run's, or all of its backfill."""
    if not selection.partitions or names.source in (context.run.asset_selection or ()):
        # The run itself has just written these partitions, so they are read as new.
        return ()
    snapshot = open_table_format(table, MetadataCache(versions.metadata_cache), runner).snapshot()
    key_map = _key_map(context, names, {fragment.partition_key for fragment in snapshot.fragments})
    own = _table_keys(context, names, selection.partitions, key_map)
    backfill = selection.backfill
    if backfill is None or not selection.others or not is_first(context.instance, context.run, backfill):
        return own
    context.log.info("reading all %d partitions of backfill %s", len(backfill.keys), backfill.id)
    return tuple(sorted(key_map.to_table_keys(backfill.keys)))


def _table_keys(
    context: AssetExecutionContext, names: TableNames, requested: Sequence[str], key_map: PartitionKeyMap
) -> tuple[str, ...]:
    """Return the table's keys of the requested partitions, without those that the table does not have.

    A project's partition may have no rows. If the partitions are the table's, a run only for dropped ones fails.
    """
    dropped = [key for key in requested if key not in key_map.table_keys]
    if len(dropped) == len(requested) and names.mapping is None:
        raise PartitionNotFoundError(
            f"table {names.table!r} no longer has partition {dropped[0]!r}"
            + (f" nor the {len(dropped) - 1} others asked for" if len(dropped) > 1 else "")
            + f"; materialize `{names.whole['statistics'].to_user_string()}` to see what it has"
        )
    if dropped:
        context.log.warning("not in the table: %d of %d partitions: %s", len(dropped), len(requested), dropped[:5])
    return key_map.to_table_keys(requested)


def _report(
    context: AssetExecutionContext,
    config: MetastoreConfig,
    table: TableConfig,
    names: TableNames,
    versions: VersionStore,
    selection: _Selection,
    seconds: float,
) -> Iterator[Any]:
    instance = context.instance
    # The newest version: another run may have published after this one.
    lookup = Metastore(config.root, config.storage_options).table(names.table)
    version = lookup.version
    if warning := table.dropped_columns_warning(version.dropped_columns):
        context.log.warning(warning)
    keys = [entry.key for entry in version.partitions] if is_partitioned(version) else []
    if names.mapping is None:
        # Queued runs of the backfill name ranges of keys.
        added, removed = register_partitions(
            instance, names.dynamic_partitions, keys, remove=selection.backfill is None
        )
        if added or removed:
            context.log.info("partitions: %d new, %d gone, %d in all", len(added), len(removed), len(keys))
    key_map = _key_map(context, names, keys)
    if key_map.unmapped:
        context.log.warning(
            "%d of %d partitions are none of the project's, and told of only as part of the table: %s",
            len(key_map.unmapped),
            len(keys),
            key_map.unmapped[:5],
        )
    kinds = [kind for kind in kinds_of(table) if kind in names.whole]
    reported = read_reported_state(instance, versions, names, key_map)
    selected = [kind for kind in kinds if names.whole[kind] in context.selected_asset_keys]
    # The result of a partitioned asset belongs to the run's partitions, so plain events report the table.
    results = [] if names.is_single and _has_partitions(context, names) else selected
    if names.is_single and selection.partitions:
        selected = []
    changes = with_selected(
        changes_of_run(selection.others, changes_between(reported, version, kinds, key_map), key_map),
        version,
        selection.partitions if names.partitions in context.selected_asset_keys else (),
        selected,
        key_map if names.mapping else None,
    )
    ranked = frozenset(row.column for row in lookup.statistics() if table.effective_policy(row.column).ranks == "on")
    tags = source_tags(instance, names)
    report = Report(names, lookup, versions.objects, seconds, key_map.dagster_keys, tags, ranked, reported.version)
    if not is_observed(instance, names, version):
        yield report.observation()
    if changes.partitions:
        context.log.info("telling of %d partitions", len(changes.partitions))
    store_materializations(context, report.partitions(changes))
    yield from report.tables(changes.table, results, instance)
    around = create_check_context(Metastore(config.root, config.storage_options), table, lookup)
    yield from check_results(context.selected_asset_check_keys, table, lookup, around)


def _has_partitions(context: AssetExecutionContext, names: TableNames) -> bool:
    """Return whether the asset of the partitions had partitions when the definitions were loaded."""
    return any(spec.key == names.partitions and spec.partitions_def is not None for spec in context.assets_def.specs)
