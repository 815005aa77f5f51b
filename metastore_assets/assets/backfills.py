"""A backfill of Dagster that a run is part of: Dagster makes a run of each stretch of partitions that lie together."""

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
    """What all runs of a backfill are to do for one table, which is one piece of work."""

    id: str
    keys: frozenset[str]
    """Of the table's partitions that the backfill is for, as Dagster calls them."""
    launched: datetime
    """UTC."""


def backfill_of(instance: DagsterInstance, run: DagsterRun, names: TableNames) -> Backfill | None:
    """The backfill that a run is part of; None where there is none, or it is not for partitions of the table."""
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
    """Whether no older run of the backfill is at work, which then does what there is to do for all.

    Where nothing limits how many runs of a table work at once, the others do their own part.
    """
    at_work = RunsFilter(tags={DAGSTER_BACKFILL_TAG: backfill.id}, statuses=_AT_WORK)
    oldest = instance.get_runs(at_work, limit=1, ascending=True)
    return not oldest or oldest[0].run_id == run.run_id


def version_covering(
    versions: VersionStore, names: TableNames, backfill: Backfill | None, instance: DagsterInstance
) -> Version | None:
    """The newest version, if all that the backfill is for was computed for it, or one before, after the launch."""
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
