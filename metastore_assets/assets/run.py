"""One run: refresh a table, then tell Dagster what changed."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dagster import AssetExecutionContext, Failure, MetadataValue

from metastore_assets.assets.changes import changes_between, with_selected
from metastore_assets.assets.checks import check_result
from metastore_assets.assets.names import KINDS, asset_key, partitions_name
from metastore_assets.assets.partitions import register_partitions
from metastore_assets.assets.report import Report
from metastore_assets.assets.told import is_observed, read_told_version
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError, PartitionNotFoundError
from metastore_assets.formats import Memory, open_table_format
from metastore_assets.lookup import Metastore
from metastore_assets.pipeline.outcome import Progress, RefreshResult
from metastore_assets.pipeline.reading import TaskReader
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store.versions import VersionStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS_BETWEEN_LOGS = 10.0


def refresh_and_report(
    context: AssetExecutionContext,
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], "SparkSession"],
    versions: VersionStore,
    *,
    full: bool,
) -> Iterator[Any]:
    """Refresh the table and yield the events of the run.

    Partitions that the run was launched for are read again; a run of the table-level assets reads what changed.
    Yields, in this order: an observation of a snapshot not observed before, materializations of partition-level
    files, of table-level files, and check results. Raises Failure with the message of what went wrong.
    """
    try:
        wanted = _wanted_partitions(context, table, versions, spark)
        result = refresh(config, table, spark, full=full, partitions=wanted, progress=_log_progress(context))
        _log_result(context, result)
        yield from _report(context, config, table, versions, result, wanted)
    except MetastoreError as error:
        raise Failure(description=str(error), metadata={"error": MetadataValue.text(type(error).__name__)}) from error


def _report(
    context: AssetExecutionContext,
    config: MetastoreConfig,
    table: TableConfig,
    versions: VersionStore,
    result: RefreshResult,
    wanted: tuple[str, ...],
) -> Iterator[Any]:
    instance = context.instance
    lookup = Metastore(config.root, config.storage_options).table(
        table.name
    )  # The newest: another run may have published since.
    version = lookup.version
    added, removed = register_partitions(
        instance, partitions_name(table.name), [entry.key for entry in version.partitions]
    )
    if added or removed:
        context.log.info("partitions: %d new, %d gone, %d in all", len(added), len(removed), len(version.partitions))
    selected = context.selected_asset_keys
    by_level = {
        level: [kind for kind in KINDS if asset_key(table.name, level, kind) in selected]
        for level in ("partition", "table")
    }
    changes = with_selected(
        changes_between(read_told_version(instance, versions), version),
        version,
        dict.fromkeys(by_level["partition"], wanted),
        by_level["table"],
    )
    report = Report(table.name, lookup, versions.objects, result.seconds)
    if not is_observed(instance, version):
        yield report.observation()
    yield from report.partitions(changes)
    yield from report.tables(changes.table, by_level["table"], instance)
    for key in context.selected_asset_check_keys:
        yield check_result(key, version, lookup.statistics())


def _wanted_partitions(
    context: AssetExecutionContext, table: TableConfig, versions: VersionStore, spark: Callable[[], "SparkSession"]
) -> tuple[str, ...]:
    """The partitions that the run was launched for and that the table still has."""
    if not (context.has_partition_key or context.has_partition_key_range):
        return ()
    asked = context.partition_keys
    snapshot = open_table_format(table, Memory(versions.memory), TaskReader(spark)).snapshot()
    there = {fragment.partition_key for fragment in snapshot.fragments}
    gone = [key for key in asked if key not in there]
    if len(gone) == len(asked):
        raise PartitionNotFoundError(
            f"table {table.name!r} no longer has partition {gone[0]!r}"
            + (f" nor the {len(gone) - 1} others asked for" if len(gone) > 1 else "")
            + f"; materialize `{'/'.join(asset_key(table.name, 'table', 'statistics').path)}` to see what it has"
        )
    if gone:
        context.log.warning("no longer in the table: %d of %d partitions: %s", len(gone), len(asked), gone[:5])
    return tuple(key for key in asked if key in there)


def _log_progress(context: AssetExecutionContext) -> Callable[[Progress], None]:
    """Each stage is logged once, and then as it goes on, but seldom: every line is a row in Dagster's database."""
    stage, logged = "", 0.0

    def log(progress: Progress) -> None:
        nonlocal stage, logged
        now = time.monotonic()
        if progress.stage == stage and now - logged < _SECONDS_BETWEEN_LOGS:
            return
        stage, logged = progress.stage, now
        if progress.total:
            context.log.info("%s: %d of %d %s", stage, progress.done, progress.total, progress.unit)
        else:
            context.log.info("%s", stage)

    return log


def _log_result(context: AssetExecutionContext, result: RefreshResult) -> None:
    if not result.published:
        context.log.info("version %d is current: snapshot %s", result.version, result.snapshot)
        return
    context.log.info(
        "version %d of snapshot %s: %d fragments added, %d removed, %d kept; %d of %d partitions computed, "
        "%d removed; %.1f s",
        result.version,
        result.snapshot,
        result.fragments_added,
        result.fragments_removed,
        result.fragments_kept,
        len(result.partitions_changed),
        result.partitions_total,
        len(result.partitions_removed),
        result.seconds,
    )
