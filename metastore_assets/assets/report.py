"""The events that a run reports of a published version."""

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
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

from metastore_assets.assets.changes import NO_CONTENT, Changes, is_partitioned, paths_of, shown_files
from metastore_assets.assets.commit import commit_metadata
from metastore_assets.assets.metadata import (
    COMMITTED,
    SNAPSHOT,
    VERSION,
    Metadata,
    column_schema,
    files_metadata,
    in_order,
    lineage_metadata,
    measured_metadata,
    other_kinds_metadata,
    partition_metadata,
    profile_metadata,
)
from metastore_assets.assets.names import DATA_VERSION_TAG, Kind, TableNames
from metastore_assets.lookup import Table
from metastore_assets.pipeline.column_spec import PROFILE_VERSION
from metastore_assets.report.summary import read_summary, select_informative_columns
from metastore_assets.report.text import format_count
from metastore_assets.store.manifest import PartitionEntry, Version
from metastore_assets.store.objects import ObjectStore

TABLE_COLUMNS = 8
"""Columns in a table's picture."""
PARTITION_COLUMNS = 5
"""Columns in a partition's picture."""
MOST_PICTURES = 200
"""The most changed partitions that get a picture. A picture reads several files and takes about 20 kB of the event log,
and Dagster's SQLite stores every event twice. An event without one is below 1.9 kB, so two fit into a page of SQLite.
"""

_CHUNK = 64
_READERS = 8
_NEVER_OBSERVED = "INITIAL"
"""The data version that Dagster gives an external asset without one."""
_NO_EVENT = "NULL"


@dataclass(frozen=True)
class Report:
    """A published version with everything that its events need."""

    names: TableNames
    lookup: Table
    """The table at the reported version."""
    objects: ObjectStore
    """The table's folder in the root."""
    seconds: float
    """Duration of the refresh."""
    dagster_keys: Mapping[str, str]
    """Dagster's key of each partition, by the table's key."""
    source: Mapping[str, str]
    """Tags that name the state of the source, from `source_tags`."""
    ranked: frozenset[str] = frozenset()
    """Columns with `ranks: on`."""
    before: Version | None = None
    """The version that was reported before, if it still exists."""

    @property
    def version(self) -> Version:
        """The version that is reported."""
        return self.lookup.version

    def observation(self) -> AssetObservation:
        """Return the observation of the table in the version's snapshot.

        It has no data version: Dagster would mark all partitions as outdated whenever the table changes anywhere.
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

    def partitions(self, changes: Changes) -> Iterator[AssetMaterialization]:
        """Yield one event per changed partition."""
        yield from map(self._without_rows, changes.empty)
        if len(changes.partitions) > MOST_PICTURES:
            yield from (self._partition(entry, {}) for entry in changes.partitions)
            return
        # Threads help where reads wait for a network; local reads are limited by the interpreter lock.
        with ThreadPoolExecutor(_READERS if self.objects.is_remote else 1) as readers:
            for start in range(0, len(changes.partitions), _CHUNK):
                chunk = changes.partitions[start : start + _CHUNK]
                yield from readers.map(lambda entry: self._partition(entry, self._look(entry)), chunk)

    def tables(
        self, kinds: Collection[Kind], selected: Collection[Kind], instance: DagsterInstance
    ) -> Iterator[AssetMaterialization | MaterializeResult[object]]:
        """Yield the table-level events: results for selected kinds, plain materializations for the others."""
        version = self.version
        glance = read_summary(self.lookup, None, TABLE_COLUMNS)
        title = f"{self.names.table} · {format_count(version.row_count, 'row')} · version {version.number}"
        rows = {"dagster/row_count": MetadataValue.int(version.row_count)}
        counts = {
            "partitions": MetadataValue.int(len(version.partitions)),
            "fragments": MetadataValue.int(version.fragment_count),
            "bytes": MetadataValue.int(version.bytes),
        }
        interesting = select_informative_columns(glance.rows, TABLE_COLUMNS)
        of_statistics = {
            **measured_metadata(interesting),
            **lineage_metadata(version.schema, self.names.source),
            **commit_metadata(self.objects, self.before, self.lookup, [row.column for row in interesting]),
        }
        tags = self.source
        if is_partitioned(version) and not self.names.is_single:
            # Dagster would record the partition events from before the run, and mark the result as outdated by the
            # events of the run itself.
            records = instance.fetch_materializations(self.names.partitions, limit=1).records
            newest = str(records[0].storage_id) if records else _NO_EVENT
            tags = _tags_of_input(self.names.partitions, version.content_id, newest)
        for kind in kinds:
            key = self.names.whole[kind]
            uris = self._uris(None, kind)
            metadata = in_order(
                {
                    **rows,
                    **profile_metadata(kind, glance, title, uris, version.schema, self.ranked),
                    **(other_kinds_metadata(glance, self.ranked) if self.names.is_single else {}),
                    **(of_statistics if kind == "statistics" else {}),
                    **counts,
                    **self._common(),
                }
            )
            if kind in selected:
                yield MaterializeResult(key, metadata=metadata, data_version=DataVersion(version.content_id), tags=tags)
            else:
                yield AssetMaterialization(key, metadata=metadata, tags={**_version_tags(version.content_id), **tags})

    def _partition(self, entry: PartitionEntry, look: Metadata) -> AssetMaterialization:
        (uri,) = self._uris(entry, "statistics")
        return AssetMaterialization(
            self.names.partitions,
            partition=self.dagster_keys[entry.key],
            metadata=in_order(
                {
                    "dagster/partition_row_count": MetadataValue.int(entry.row_count),
                    **look,
                    VERSION: MetadataValue.int(self.version.number),
                    **files_metadata(uri),
                }
            ),
            # The content id covers the partition's input; the source as a whole changes far more often.
            tags=self._tags(self.dagster_keys[entry.key], entry.content_id),
        )

    def _without_rows(self, partition: str) -> AssetMaterialization:
        """Return the event of a partition that the table does not have: zero rows."""
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
        return {**_version_tags(content_id), **self.source, **(mapping.tags(partition) if mapping else {})}

    def _look(self, entry: PartitionEntry) -> Metadata:
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
        return [self.objects.uri(path) for path in paths_of(shown_files(self.version, entry), kind)]


def _version_tags(content_id: str) -> Mapping[str, str]:
    """Return the tags that Dagster itself gives a result."""
    return {
        "dagster/code_version": PROFILE_VERSION,
        DATA_VERSION_TAG: content_id,
        "dagster/data_version_is_user_provided": "true",
    }


def source_tags(instance: DagsterInstance, names: TableNames) -> Mapping[str, str]:
    """Return tags that name the input of a result: the table, or the last event of the asset that writes it."""
    records = instance.fetch_materializations(names.source, limit=1).records if names.has_writer else []
    materialization = records[0].asset_materialization if records else None
    data_version = (materialization.tags or {}).get(DATA_VERSION_TAG) if materialization else None
    if data_version is None:
        return _tags_of_input(names.source, _NEVER_OBSERVED, _NO_EVENT)
    return _tags_of_input(names.source, data_version, str(records[0].storage_id))


def _tags_of_input(key: AssetKey, data_version: str, event: str) -> Mapping[str, str]:
    name = key.to_user_string()
    return {f"dagster/input_data_version/{name}": data_version, f"dagster/input_event_pointer/{name}": event}
