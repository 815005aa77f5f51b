"""The events with which a run reports a published version to Dagster.

A version is the published statistics of a table at one snapshot. Its table-level files contain the profile of the whole
table: statistics, value frequencies, histograms and ranks.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    DagsterInstance,
    DataVersion,
    MaterializeResult,
    MetadataValue,
)

from metastore_assets.assets.commit import commit_metadata
from metastore_assets.assets.metadata import (
    COMMITTED,
    SNAPSHOT,
    VERSION,
    Metadata,
    TableDescription,
    column_schema,
    files_metadata,
    lineage_metadata,
    measured_metadata,
    other_kinds_metadata,
    partition_metadata,
    profile_metadata,
    sort_metadata,
)
from metastore_assets.assets.names import DATA_VERSION_TAG, Kind, TableNames
from metastore_assets.assets.partition_groups import PartitionGroup
from metastore_assets.assets.pending_events import PendingEvents, is_partitioned, paths_of, profile_files
from metastore_assets.assets.reported_state import NO_CONTENT
from metastore_assets.lookup import Table
from metastore_assets.pipeline.column_spec import PROFILE_VERSION
from metastore_assets.report.summary import read_summary, select_informative_columns
from metastore_assets.report.text import format_count
from metastore_assets.storage.parallel import parallel_map
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import PartitionEntry, Version

TABLE_COLUMNS = 8
"""The maximum number of columns in a table's picture."""
PARTITION_COLUMNS = 5
"""The maximum number of columns in a partition's picture."""
MAX_PICTURES = 200
"""The maximum number of changed partitions with pictures. If more changed, their events have none. A picture is drawn
from several files, and takes about 20 kB of the event log, which Dagster's SQLite storage stores twice. Events without
one have less than 1.9 kB, so that two fit into a page of SQLite."""

_CHANGED_KEYS = 24
"""Maximum number of changed partitions that the event of a group names: enough for the hours of a day."""
_CHUNK = 64
_READERS = 8
_NEVER_OBSERVED = "INITIAL"
"""The data version that Dagster gives an external asset without one."""
_NO_EVENT = "NULL"


@dataclass(frozen=True)
class VersionReport:
    """A published version, and the data that its events need."""

    names: TableNames
    lookup: Table
    """The table at the reported version."""
    objects: ObjectStore
    """The folder of the table below the root of the Metastore."""
    seconds: float
    """The duration of the refresh in seconds."""
    dagster_keys: Mapping[str, str]
    """Dagster's key of each partition, by the table's key."""
    source_tags: Mapping[str, str]
    """The tags from `read_source_tags`, which identify the state of the source."""
    ranked: frozenset[str] = frozenset()
    """The columns with `ranks: on`."""
    before: Version | None = None
    """The version that was reported before; None without one, or if it no longer exists."""

    @property
    def version(self) -> Version:
        """The reported version."""
        return self.lookup.version

    def observation(self) -> AssetObservation:
        """Return the observation of the table at the version's snapshot.

        It has no data version. With one, Dagster would mark all partitions as outdated after each change of the table.
        """
        version = self.version
        metadata: dict[str, MetadataValue] = {  # type: ignore[type-arg]
            SNAPSHOT: MetadataValue.text(version.snapshot),
            VERSION: MetadataValue.int(version.number),
            "dagster/row_count": MetadataValue.int(version.row_count),
            "dagster/column_schema": MetadataValue.table_schema(column_schema(version.schema)),
            "format": MetadataValue.text(version.format),
            "partitions": MetadataValue.int(len(version.partitions)),
            "bytes": MetadataValue.int(version.bytes),
        }
        if version.committed_at is not None:
            metadata[COMMITTED] = MetadataValue.timestamp(version.committed_at)
        return AssetObservation(self.names.source, metadata=metadata)

    def partitions(self, events: PendingEvents) -> Iterator[AssetMaterialization]:
        """Yield the materializations of partitions.

        Those with zero rows come first, then the others by ascending key.
        """
        yield from map(self._empty_partition, events.empty)
        if len(events.partitions) > MAX_PICTURES:
            yield from (self._partition(entry, _group_metadata(entry, events)) for entry in events.partitions)
            return
        # Several threads help only if reads wait for a network; the interpreter lock limits local reads.
        for start in range(0, len(events.partitions), _CHUNK):
            chunk = events.partitions[start : start + _CHUNK]
            yield from parallel_map(
                lambda entry: self._partition(entry, self._read_metadata(entry, events)),
                chunk,
                _READERS,
                is_parallel=self.objects.is_remote,
            )

    def tables(
        self, kinds: Collection[Kind], selected_kinds: Collection[Kind], instance: DagsterInstance
    ) -> Iterator[AssetMaterialization | MaterializeResult[object]]:
        """Yield one event for each kind of table-level file.

        Args:
            kinds: The kinds of files.
            selected_kinds: The kinds whose asset the run was launched for. Dagster requires their events to be
                `MaterializeResult`.
            instance: The Dagster instance.
        """
        version = self.version
        summary = read_summary(self.lookup, None, TABLE_COLUMNS)
        title = f"{self.names.table} · {format_count(version.row_count, 'row')} · version {version.number}"
        rows = {"dagster/row_count": MetadataValue.int(version.row_count)}
        counts = {
            "partitions": MetadataValue.int(len(version.partitions)),
            "fragments": MetadataValue.int(version.fragment_count),
            "bytes": MetadataValue.int(version.bytes),
        }
        table = TableDescription(summary, title, version.schema, self.ranked)
        informative = select_informative_columns(summary.rows, TABLE_COLUMNS)
        statistics_metadata = {
            **measured_metadata(informative),
            **lineage_metadata(version.schema, self.names.source),
            **commit_metadata(self.objects, self.before, self.lookup, [row.column for row in informative]),
        }
        tags = self.source_tags
        if is_partitioned(version) and not self.names.is_single:
            # Without these tags, Dagster would record the partition events from before the run as inputs, and mark the
            # result as outdated after the partition events of the run.
            records = instance.fetch_materializations(self.names.partitions, limit=1).records
            newest = str(records[0].storage_id) if records else _NO_EVENT
            tags = _input_tags(self.names.partitions, version.content_id, newest)
        for kind in kinds:
            key = self.names.kind_assets[kind]
            uris = self._uris(None, kind)
            metadata = sort_metadata(
                {
                    **rows,
                    **profile_metadata(kind, table, uris),
                    **(other_kinds_metadata(table) if self.names.is_single else {}),
                    **(statistics_metadata if kind == "statistics" else {}),
                    **counts,
                    **self._common(),
                }
            )
            if kind in selected_kinds:
                yield MaterializeResult(key, metadata=metadata, data_version=DataVersion(version.content_id), tags=tags)
            else:
                yield AssetMaterialization(key, metadata=metadata, tags={**_version_tags(version.content_id), **tags})

    def _partition(self, entry: PartitionEntry, metadata: Metadata) -> AssetMaterialization:
        """Return the materialization of a partition.

        Its metadata are row count, version, path and the given metadata.
        """
        uris = self._uris(entry, "statistics")
        return AssetMaterialization(
            self.names.partitions,
            partition=self.dagster_keys[entry.key],
            metadata=sort_metadata(
                {
                    "dagster/partition_row_count": MetadataValue.int(entry.row_count),
                    **metadata,
                    VERSION: MetadataValue.int(self.version.number),
                    **(files_metadata(uris[0]) if uris else {}),
                }
            ),
            # The data version is the content id of the partition, as the source as a whole changes far more often.
            tags=self._tags(self.dagster_keys[entry.key], entry.content_id),
        )

    def _empty_partition(self, partition: str) -> AssetMaterialization:
        """Return a materialization with zero rows, for a partition that the table does not have."""
        return AssetMaterialization(
            self.names.partitions,
            partition=partition,
            metadata={
                VERSION: MetadataValue.int(self.version.number),
                "dagster/partition_row_count": MetadataValue.int(0),
            },
            tags=self._tags(partition, NO_CONTENT),
        )

    def _tags(self, partition: str, content_id: str) -> Mapping[str, str]:
        mapping = self.names.mapping
        return {**_version_tags(content_id), **self.source_tags, **(mapping.tags(partition) if mapping else {})}

    def _read_metadata(self, entry: PartitionEntry, events: PendingEvents) -> Metadata:
        """Read the metadata of a partition's event: pictures and counts.

        If `entry` is a group of partitions, its counts and its changed partitions are returned instead.
        """
        if isinstance(entry, PartitionGroup):
            return _group_metadata(entry, events)
        title = (
            f"{self.names.table} · {entry.key} · {format_count(entry.row_count, 'row')} · version {self.version.number}"
        )
        return {
            **partition_metadata(read_summary(self.lookup, entry.key, PARTITION_COLUMNS), title),
            "fragments": MetadataValue.int(entry.fragments),
            "bytes": MetadataValue.int(entry.bytes),
        }

    def _common(self) -> Metadata:
        return {
            SNAPSHOT: MetadataValue.text(self.version.snapshot),
            VERSION: MetadataValue.int(self.version.number),
            "duration_seconds": MetadataValue.float(round(self.seconds, 3)),
        }

    def _uris(self, entry: PartitionEntry | None, kind: Kind) -> list[str]:
        return [self.objects.uri(path) for path in paths_of(profile_files(self.version, entry), kind)]


def _group_metadata(entry: PartitionEntry, events: PendingEvents) -> Metadata:
    """Return the metadata of a group: several partitions of the table that are one partition in Dagster.

    The metadata are the numbers `partitions`, `fragments` (data files with their deletes) and `bytes`. If `events` has
    the group's changed partitions, their number is added as `partitions_changed`, and up to `_CHANGED_KEYS` of their
    keys as `changed_partitions`.

    The result is empty if `entry` is a single partition.
    """
    if not isinstance(entry, PartitionGroup):
        return {}
    metadata: dict[str, MetadataValue] = {"partitions": MetadataValue.int(entry.partitions)}  # type: ignore[type-arg]
    changed_keys = events.changed.get(entry.key)
    if changed_keys is not None:
        metadata["partitions_changed"] = MetadataValue.int(len(changed_keys))
        metadata["changed_partitions"] = MetadataValue.json(list(changed_keys[:_CHANGED_KEYS]))
    return {
        **metadata,
        "fragments": MetadataValue.int(entry.fragments),
        "bytes": MetadataValue.int(entry.bytes),
    }


def _version_tags(content_id: str) -> Mapping[str, str]:
    """Return the tags that declare the code version and the data version of an event.

    Dagster itself adds these tags only to results of a run.
    """
    return {
        "dagster/code_version": PROFILE_VERSION,
        DATA_VERSION_TAG: content_id,
        "dagster/data_version_is_user_provided": "true",
    }


def read_source_tags(instance: DagsterInstance, names: TableNames) -> Mapping[str, str]:
    """Return tags that name an input of this run.

    The input is the last materialization of the asset that writes the table. If there is none, or if it has no data
    version, the tags say that the input was never observed.
    """
    records = instance.fetch_materializations(names.source, limit=1).records if names.has_writer else []
    materialization = records[0].asset_materialization if records else None
    data_version = (materialization.tags or {}).get(DATA_VERSION_TAG) if materialization else None
    if data_version is None:
        return _input_tags(names.source, _NEVER_OBSERVED, _NO_EVENT)
    return _input_tags(names.source, data_version, str(records[0].storage_id))


def _input_tags(key: AssetKey, data_version: str, event: str) -> Mapping[str, str]:
    name = key.to_user_string()
    return {f"dagster/input_data_version/{name}": data_version, f"dagster/input_event_pointer/{name}": event}
