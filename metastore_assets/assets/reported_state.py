"""The state of a table that Dagster's event log shows."""

from collections.abc import Iterator, Mapping

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
    EventLogRecord,
)

from metastore_assets.assets.changes import NO_CONTENT, ReportedState
from metastore_assets.assets.metadata import COMMITTED, SNAPSHOT, VERSION
from metastore_assets.assets.names import DATA_VERSION_TAG, TableNames
from metastore_assets.assets.partition_mapping import PartitionKeyMap
from metastore_assets.errors import StoreError
from metastore_assets.store.manifest import Version
from metastore_assets.store.versions import VersionStore

_PAGE = 1000
"""Events per query: the most that Dagster returns at once."""


def reported_version(instance: DagsterInstance, names: TableNames) -> tuple[int, str] | None:
    """Return number and content id of the last version that a run reported completely; None if there is none.

    A report ends with the statistics of the table. A run that died earlier has not reported its version.
    """
    record = _last_report(instance, names)
    return _version_of(record) if record else None


def read_reported_state(
    instance: DagsterInstance, versions: VersionStore, names: TableNames, key_map: PartitionKeyMap
) -> ReportedState:
    """Return what the event log shows of a table, up to the last event.

    It costs two queries, and one page of events per 1,000 events since the last complete report.
    """
    last = _last_report(instance, names)
    contents = _contents(instance, names)
    since = _versions_reported_since(instance, names, last.storage_id if last else None)
    written = _written(instance, names, last.storage_id) if last and names.mapping and names.has_writer else ()
    table_keys = key_map.table_keys
    return ReportedState(
        _read_version(versions, _version_of(last) if last else None),
        {table_keys[partition]: content for partition, content in contents.items() if partition in table_keys},
        {table_keys[partition]: number for partition, number in since.items() if partition in table_keys},
        # A run removes the table's dynamic partition keys from Dagster itself.
        tuple(key for key, content in contents.items() if key not in table_keys and content != NO_CONTENT)
        if names.mapping
        else (),
        frozenset(key_map.to_table_keys(written)),
    )


def is_observed(instance: DagsterInstance, names: TableNames, version: Version) -> bool:
    """Return whether the last observation of the table shows the version's snapshot."""
    records = instance.fetch_observations(names.source, limit=1).records
    observation = records[0].asset_observation if records else None
    if observation is None:
        return False
    # Compare both: a table that is dropped and recreated may restart its snapshot numbers.
    snapshot, committed = (observation.metadata.get(name) for name in (SNAPSHOT, COMMITTED))
    when = version.committed_at.timestamp() if version.committed_at else None
    return (snapshot and snapshot.value, committed and committed.value) == (version.snapshot, when)


def _last_report(instance: DagsterInstance, names: TableNames) -> EventLogRecord | None:
    """Return the latest materialization of the table-level statistics.

    If one asset also has the partitions, their events can follow it: after a killed run, or in a backfill.
    """
    cursor, more, limit = None, True, 1
    while more:
        page = instance.fetch_materializations(names.whole["statistics"], limit=limit, cursor=cursor)
        for record in page.records:
            if not (names.is_single and record.partition_key):
                return record
        cursor, more, limit = page.cursor, page.has_more, _PAGE
    return None


def _version_of(record: EventLogRecord) -> tuple[int, str] | None:
    materialization = record.asset_materialization
    if materialization is None:
        return None
    number = materialization.metadata.get(VERSION)
    content = (materialization.tags or {}).get(DATA_VERSION_TAG)
    if number is None or not isinstance(number.value, int) or content is None:
        return None
    return number.value, content


def _read_version(versions: VersionStore, reported: tuple[int, str] | None) -> Version | None:
    """Return the version if it still exists with that content id. A root may have been replaced."""
    if reported is None:
        return None
    number, content = reported
    try:
        version = versions.read(number)
        tuple(version.partitions)  # Read here: a version whose entries have expired cannot be compared.
    except StoreError:
        return None
    return version if version.content_id == content else None


def _contents(instance: DagsterInstance, names: TableNames) -> Mapping[str, str]:
    tags = instance.event_log_storage.get_latest_tags_by_partition(
        names.partitions, DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG]
    )
    return {partition: tags_by_key[DATA_VERSION_TAG] for partition, tags_by_key in tags.items()}


def _versions_reported_since(instance: DagsterInstance, names: TableNames, last: int | None) -> Mapping[str, int]:
    """Return, by partition, the version of its latest event after the event with id `last`."""
    versions_by_partition: dict[str, int] = {}
    for event in _events(instance, names.partitions, last):
        number = event.metadata.get(VERSION)
        if event.partition and number is not None and isinstance(number.value, int):
            versions_by_partition[event.partition] = number.value
    return versions_by_partition


def _written(instance: DagsterInstance, names: TableNames, last: int) -> set[str]:
    """Return partitions that the asset which writes the table materialized after the event with id `last`."""
    return {event.partition for event in _events(instance, names.source, last) if event.partition}


def _events(instance: DagsterInstance, key: AssetKey, last: int | None) -> Iterator[AssetMaterialization]:
    """Yield an asset's materializations after the event with id `last`, in order."""
    events = AssetRecordsFilter(key, after_storage_id=last)
    cursor, more = None, True
    while more:
        page = instance.fetch_materializations(events, limit=_PAGE, cursor=cursor, ascending=True)
        for record in page.records:
            if record.asset_materialization is not None:
                yield record.asset_materialization
        cursor, more = page.cursor, page.has_more
