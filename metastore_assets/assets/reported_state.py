"""The state of a table that the events in Dagster show.

The state contains the last reported version, and what the last event of each partition says. A version is the published
statistics of a table at one snapshot. The report of a version is the series of events about it, of which the
materialization of the table's statistics is the last. A report without this event is incomplete. A content id is a
digest: equal content ids of a table or partition mean equal statistics.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
    EventLogRecord,
)

from metastore_assets.assets.metadata import COMMITTED, SNAPSHOT, VERSION
from metastore_assets.assets.names import DATA_VERSION_TAG, TableNames
from metastore_assets.assets.partition_mapping import PartitionKeyMap
from metastore_assets.errors import StoreError
from metastore_assets.store.version import Version
from metastore_assets.store.versions import VersionStore

NO_CONTENT = "no rows"
"""The content id in the event of a partition that has no rows in the table."""
_PAGE = 1000
"""The number of events in a query, which is the maximum that Dagster returns at once."""


@dataclass(frozen=True)
class ReportedState:
    """The state of a table that the events in Dagster show; empty by default."""

    version: Version | None = None
    """The version of the last complete report; None if there is none or the version no longer exists."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """The content id in the last event of each partition, by the table's partition key."""
    since: Mapping[str, int] = field(default_factory=dict)
    """The version number in the last event of each partition, by the table's partition key. It has only events after
    the last complete report, from runs that were killed or that reported only some partitions."""
    dropped: tuple[str, ...] = ()
    """Dagster's keys of partitions that Dagster shows with rows, but that the table no longer has. Always empty for
    dynamic partitions, which runs unregister instead."""
    written: frozenset[str] = frozenset()
    """The table's keys of the partitions that the project's asset has written since the last complete report. Dagster
    shows assets that depend on these partitions as outdated, even if their content is the same."""


def reported_version(instance: DagsterInstance, names: TableNames) -> tuple[int, str] | None:
    """Return (number, content id) of the version that was last reported completely.

    Returns None if there is none.
    """
    record = _last_report(instance, names)
    return _version_of(record) if record else None


def read_reported_state(
    instance: DagsterInstance, versions: VersionStore, names: TableNames, key_map: PartitionKeyMap
) -> ReportedState:
    """Read the state of a table from the events in Dagster.

    Args:
        instance: The Dagster instance.
        versions: The versions of the table.
        names: The table's names in Dagster.
        key_map: Maps the table's partition keys to Dagster's, and back.
    """
    last = _last_report(instance, names)
    contents = _latest_contents(instance, names)
    since = _versions_reported_since(instance, names, last.storage_id if last else None)
    written_partitions = (
        _written_partitions(instance, names, last.storage_id) if last and names.mapping and names.has_writer else ()
    )
    table_keys = key_map.table_keys
    return ReportedState(
        _read_version(versions, _version_of(last) if last else None),
        {table_keys[partition]: content for partition, content in contents.items() if partition in table_keys},
        {table_keys[partition]: number for partition, number in since.items() if partition in table_keys},
        # Runs unregister dynamic partitions, which removes their events from pages. Other partitions need an event.
        tuple(key for key, content in contents.items() if key not in table_keys and content != NO_CONTENT)
        if names.mapping
        else (),
        frozenset(key_map.to_table_keys(written_partitions)),
    )


def is_observed(instance: DagsterInstance, names: TableNames, version: Version) -> bool:
    """Return whether Dagster's last observation of the table shows the snapshot of a version."""
    records = instance.fetch_observations(names.source, limit=1).records
    observation = records[0].asset_observation if records else None
    if observation is None:
        return False
    # Compare the time too: a table that is dropped and recreated may reuse snapshot ids.
    snapshot_entry, committed_entry = (observation.metadata.get(name) for name in (SNAPSHOT, COMMITTED))
    committed_at = version.committed_at.timestamp() if version.committed_at else None
    return (snapshot_entry and snapshot_entry.value, committed_entry and committed_entry.value) == (
        version.snapshot,
        committed_at,
    )


def _last_report(instance: DagsterInstance, names: TableNames) -> EventLogRecord | None:
    """Return the last materialization of the table's statistics, which completes a report.

    Returns None if there is none.
    """
    cursor, has_more, limit = None, True, 1
    while has_more:
        page = instance.fetch_materializations(names.kind_assets["statistics"], limit=limit, cursor=cursor)
        for record in page.records:
            # The events of partitions are skipped if table and partitions are one asset.
            if not (names.is_single and record.partition_key):
                return record
        cursor, has_more, limit = page.cursor, page.has_more, _PAGE
    return None


def _version_of(record: EventLogRecord) -> tuple[int, str] | None:
    """Return (number, content id) of the version that an event reports.

    Returns None if the event lacks one of them.
    """
    materialization = record.asset_materialization
    if materialization is None:
        return None
    number = materialization.metadata.get(VERSION)
    content = (materialization.tags or {}).get(DATA_VERSION_TAG)
    if number is None or not isinstance(number.value, int) or content is None:
        return None
    return number.value, content


def _read_version(versions: VersionStore, version_identity: tuple[int, str] | None) -> Version | None:
    """Read the version that an event reports.

    Args:
        versions: The versions of the table.
        version_identity: The number and the content id in the event; None if the event has none.

    Returns:
        The version; None if `version_identity` is None, if the version cannot be read, or if it has another content id.
    """
    if version_identity is None:
        return None
    number, content = version_identity
    try:
        version = versions.read(number)
    except StoreError:
        return None
    # Another content id under the number means that the root was replaced.
    return version if version.content_id == content else None


def _latest_contents(instance: DagsterInstance, names: TableNames) -> Mapping[str, str]:
    tags = instance.event_log_storage.get_latest_tags_by_partition(
        names.partitions, DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG]
    )
    return {partition: tags_by_key[DATA_VERSION_TAG] for partition, tags_by_key in tags.items()}


def _versions_reported_since(instance: DagsterInstance, names: TableNames, last: int | None) -> Mapping[str, int]:
    """Return the version number in each partition's last event, by Dagster's key.

    Only events after the event with id `last` count; all events if it is None.
    """
    versions_by_partition: dict[str, int] = {}
    for event in _events(instance, names.partitions, last):
        number = event.metadata.get(VERSION)
        if event.partition and number is not None and isinstance(number.value, int):
            versions_by_partition[event.partition] = number.value
    return versions_by_partition


def _written_partitions(instance: DagsterInstance, names: TableNames, last: int) -> set[str]:
    """Return the keys of partitions in materializations of the table's own asset (`names.source`).

    They are Dagster's keys. Only materializations after the event with id `last` count.
    """
    return {event.partition for event in _events(instance, names.source, last) if event.partition}


def _events(instance: DagsterInstance, key: AssetKey, last: int | None) -> Iterator[AssetMaterialization]:
    """Yield an asset's materializations after the event with id `last`, oldest first.

    If `last` is None, all materializations are yielded.
    """
    events = AssetRecordsFilter(key, after_storage_id=last)
    cursor, has_more = None, True
    while has_more:
        page = instance.fetch_materializations(events, limit=_PAGE, cursor=cursor, ascending=True)
        for record in page.records:
            if record.asset_materialization is not None:
                yield record.asset_materialization
        cursor, has_more = page.cursor, page.has_more
