"""What Dagster was told last: its own event log says, so nothing is kept that could disagree with it."""

from dagster import AssetMaterialization, DagsterInstance

from metastore_assets.assets.metadata import COMMITTED, SNAPSHOT, VERSION
from metastore_assets.assets.names import asset_key, source_key
from metastore_assets.errors import StoreError
from metastore_assets.store.manifest import Version
from metastore_assets.store.versions import VersionStore


def told_version(instance: DagsterInstance, table: str) -> tuple[int, str] | None:
    """Number and content id of the version that was reported last; None when none was.

    A report ends with the statistics of the table: a run that died before that has not reported its version.
    """
    materialization = _latest(instance, table)
    if materialization is None:
        return None
    number = materialization.metadata.get(VERSION)
    content = (materialization.tags or {}).get("dagster/data_version")
    if number is None or not isinstance(number.value, int) or content is None:
        return None
    return number.value, content


def read_told_version(instance: DagsterInstance, versions: VersionStore) -> Version | None:
    """The version that was reported last, if it is still there and still the same: a root may have been replaced."""
    told = told_version(instance, versions.table)
    if told is None:
        return None
    number, content = told
    try:
        version = versions.read(number)
        tuple(version.partitions)  # Read now: a version whose entries have expired is nothing to compare with.
    except StoreError:
        return None
    return version if version.content_id == content else None


def is_observed(instance: DagsterInstance, version: Version) -> bool:
    """Whether the table was last observed in the version's snapshot."""
    records = instance.fetch_observations(source_key(version.table), limit=1).records
    observation = records[0].asset_observation if records else None
    if observation is None:
        return False
    # Both, because a table that is dropped and made again may count its snapshots anew.
    snapshot, committed = (observation.metadata.get(name) for name in (SNAPSHOT, COMMITTED))
    when = version.committed_at.timestamp() if version.committed_at else None
    return (snapshot and snapshot.value, committed and committed.value) == (version.snapshot, when)


def _latest(instance: DagsterInstance, table: str) -> AssetMaterialization | None:
    event = instance.get_latest_materialization_event(asset_key(table, "table", "statistics"))
    return event.asset_materialization if event else None
