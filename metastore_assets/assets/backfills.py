"""The backfill that a run belongs to. Dagster launches one run per contiguous range of partitions."""

from dataclasses import dataclass
from datetime import UTC, datetime

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter, partition_loading_context

from metastore_assets.assets.names import DAGSTER_BACKFILL_TAG, TableNames, partition_key_map
from metastore_assets.errors import VersionNotFoundError
from metastore_assets.store.manifest import Version
from metastore_assets.store.versions import VersionStore

_AT_WORK = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]


@dataclass(frozen=True)
class Backfill:
    """The work of all runs of a backfill for one table."""

    id: str
    keys: frozenset[str]
    """Dagster's keys of the partitions that the backfill covers."""
    launched: datetime
    """When the backfill was launched, in UTC."""


def backfill_of(instance: DagsterInstance, run: DagsterRun, names: TableNames) -> Backfill | None:
    """Return the backfill of a run; None if there is none or it does not cover partitions of the table."""
    name = run.tags.get(DAGSTER_BACKFILL_TAG)
    record = instance.get_backfill(name) if name else None
    data = record.asset_backfill_data if record else None
    subset = data.target_subset.partitions_subsets_by_asset_key.get(names.partitions) if data else None
    if record is None or subset is None:
        return None
    with partition_loading_context(dynamic_partitions_store=instance):
        keys = frozenset(subset.get_partition_keys())
    return Backfill(record.backfill_id, keys, datetime.fromtimestamp(record.backfill_timestamp, UTC))


def is_first(instance: DagsterInstance, run: DagsterRun, backfill: Backfill) -> bool:
    """Return whether no older run of the backfill is active. The first run does the work of all.

    Without a limit on concurrent runs of a table, each other run does its part.
    """
    at_work = RunsFilter(tags={DAGSTER_BACKFILL_TAG: backfill.id}, statuses=_AT_WORK)
    oldest = instance.get_runs(at_work, limit=1, ascending=True)
    return not oldest or oldest[0].run_id == run.run_id


def version_covering(
    versions: VersionStore, names: TableNames, backfill: Backfill | None, instance: DagsterInstance
) -> Version | None:
    """Return the newest version if all partitions of the backfill were profiled after its launch; otherwise None."""
    newest = versions.latest() if backfill else None
    if backfill is None or newest is None or newest.published_at <= backfill.launched:
        return None
    dagster_keys = partition_key_map(names, [entry.key for entry in newest.partitions], instance).dagster_keys
    entries = [entry for entry in newest.partitions if dagster_keys.get(entry.key) in backfill.keys]
    oldest_version = min((entry.version for entry in entries), default=newest.number)
    try:
        return newest if versions.read(oldest_version).published_at > backfill.launched else None
    except VersionNotFoundError:
        return None
