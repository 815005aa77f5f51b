"""What Dagster has been told of a table: read from its event log, which is the only place where that is written."""

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
"""Events in memory at a time, and the most that Dagster gives at once."""


def reported_version(instance: DagsterInstance, names: TableNames) -> tuple[int, str] | None:
    """Number and content id of the version that was reported last as a whole; None when none was.

    A report ends with the statistics of the table: a run that died before that has not reported its version.
    """
    record = _last_report(instance, names)
    return _version_of(record) if record else None


def read_reported_state(
    instance: DagsterInstance, versions: VersionStore, names: TableNames, key_map: PartitionKeyMap
) -> ReportedState:
    """What was told of the table, up to the last event. Costs two queries, and what was told since the last report."""
    last = _last_report(instance, names)
    contents = _contents(instance, names)
    since = _versions_reported_since(instance, names, last.storage_id if last else None)
    written = _written(instance, names, last.storage_id) if last and names.mapping and names.has_writer else ()
    table_keys = key_map.table_keys
    return ReportedState(
        _read_version(versions, _version_of(last) if last else None),
        {table_keys[partition]: content for partition, content in contents.items() if partition in table_keys},
        {table_keys[partition]: number for partition, number in since.items() if partition in table_keys},
        # Keys of the table's own are removed from Dagster with their partitions.
        tuple(key for key, content in contents.items() if key not in table_keys and content != NO_CONTENT)
        if names.mapping
        else (),
        frozenset(key_map.to_table_keys(written)),
    )


def is_observed(instance: DagsterInstance, names: TableNames, version: Version) -> bool:
    """Whether the table was last observed in the version's snapshot."""
    records = instance.fetch_observations(names.source, limit=1).records
    observation = records[0].asset_observation if records else None
    if observation is None:
        return False
    # Both, because a table that is dropped and made again may count its snapshots anew.
    snapshot, committed = (observation.metadata.get(name) for name in (SNAPSHOT, COMMITTED))
    when = version.committed_at.timestamp() if version.committed_at else None
    return (snapshot and snapshot.value, committed and committed.value) == (version.snapshot, when)


def _last_report(instance: DagsterInstance, names: TableNames) -> EventLogRecord | None:
    """Return the latest materialization of the statistics of the table as a whole.

    Where one asset has the partitions too, their events come after it when a run was killed, or is part of a backfill.
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
    """The version, if it is still there and still the same: a root may have been replaced."""
    if reported is None:
        return None
    number, content = reported
    try:
        version = versions.read(number)
        tuple(version.partitions)  # Read now: a version whose entries have expired is nothing to compare with.
    except StoreError:
        return None
    return version if version.content_id == content else None


def _contents(instance: DagsterInstance, names: TableNames) -> Mapping[str, str]:
    tags = instance.event_log_storage.get_latest_tags_by_partition(
        names.partitions, DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG]
    )
    return {partition: tags_by_key[DATA_VERSION_TAG] for partition, tags_by_key in tags.items()}


def _versions_reported_since(instance: DagsterInstance, names: TableNames, last: int | None) -> Mapping[str, int]:
    """By partition, the version of its latest event after the one with that id. None of a whole report is left."""
    versions_by_partition: dict[str, int] = {}
    for event in _events(instance, names.partitions, last):
        number = event.metadata.get(VERSION)
        if event.partition and number is not None and isinstance(number.value, int):
            versions_by_partition[event.partition] = number.value
    return versions_by_partition


def _written(instance: DagsterInstance, names: TableNames, last: int) -> set[str]:
    """Partitions that the asset which writes the table told of after the event with that id."""
    return {event.partition for event in _events(instance, names.source, last) if event.partition}


def _events(instance: DagsterInstance, key: AssetKey, last: int | None) -> Iterator[AssetMaterialization]:
    """The materializations of an asset after the event with that id, in order."""
    events = AssetRecordsFilter(key, after_storage_id=last)
    cursor, more = None, True
    while more:
        page = instance.fetch_materializations(events, limit=_PAGE, cursor=cursor, ascending=True)
        for record in page.records:
            if record.asset_materialization is not None:
                yield record.asset_materialization
        cursor, more = page.cursor, page.has_more
