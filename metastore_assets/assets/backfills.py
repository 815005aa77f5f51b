"""The backfill in Dagster that a run belongs to.

A backfill has one run for each contiguous range of partitions.

The oldest run of a backfill reads the partitions of all its runs and publishes one version: the statistics of the
table at one snapshot. The other runs only report their partitions. The profile of a partition is its statistics.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter, partition_loading_context

from metastore_assets.assets.names import DAGSTER_BACKFILL_TAG, TableNames, partition_key_map
from metastore_assets.errors import VersionNotFoundError
from metastore_assets.store.version import Version
from metastore_assets.store.versions import VersionStore

_ACTIVE = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]


@dataclass(frozen=True)
class Backfill:
    """A backfill in Dagster, with the partitions of one table that it covers."""

    id: str
    keys: frozenset[str]
    """Dagster's keys of the partitions that the backfill covers."""
    launched: datetime
    """When the backfill was launched, in UTC."""


def backfill_of(instance: DagsterInstance, run: DagsterRun, names: TableNames) -> Backfill | None:
    """Return the backfill that launched a run; None if no backfill launched it.

    If the backfill has no partitions of the table, the result is None, too.
    """
    name = run.tags.get(DAGSTER_BACKFILL_TAG)
    record = instance.get_backfill(name) if name else None
    data = record.asset_backfill_data if record else None
    subset = data.target_subset.partitions_subsets_by_asset_key.get(names.partitions) if data else None
    if record is None or subset is None:
        return None
    with partition_loading_context(dynamic_partitions_store=instance):
        keys = frozenset(subset.get_partition_keys())
    return Backfill(record.backfill_id, keys, datetime.fromtimestamp(record.backfill_timestamp, UTC))


def is_oldest_run(instance: DagsterInstance, run: DagsterRun, backfill: Backfill) -> bool:
    """Return whether no other active run of the backfill is older than this run."""
    active_runs = RunsFilter(tags={DAGSTER_BACKFILL_TAG: backfill.id}, statuses=_ACTIVE)
    oldest = instance.get_runs(active_runs, limit=1, ascending=True)
    return not oldest or oldest[0].run_id == run.run_id


def find_version_since_launch(
    versions: VersionStore, names: TableNames, backfill: Backfill | None, instance: DagsterInstance
) -> Version | None:
    """Return the newest version if it was published after the backfill's launch; otherwise None.

    The profiles of the backfill's partitions must be newer than the launch, too. The result is None if the version with
    the oldest of these profiles was not published after the launch, or has expired.

    Args:
        versions: The versions of the table.
        names: The table's names in Dagster.
        backfill: The backfill. Without one, the result is None.
        instance: The Dagster instance.
    """
    newest = versions.latest() if backfill else None
    if backfill is None or newest is None or newest.published_at <= backfill.launched:
        return None
    keys = partition_key_map(names, names.grouping.contents(newest), instance).to_table_keys(backfill.keys)
    entries = names.grouping.find_members(newest, keys)
    oldest_version = min((entry.version for entry in entries), default=newest.number)
    try:
        return newest if versions.read(oldest_version).published_at > backfill.launched else None
    except VersionNotFoundError:
        return None
