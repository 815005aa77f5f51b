"""What a run tells Dagster of a published version, event by event."""

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

from metastore_assets.assets.changes import Changes, paths_of, shown_files
from metastore_assets.assets.metadata import COMMITTED, SNAPSHOT, VERSION, Metadata, column_schema, profile_metadata
from metastore_assets.assets.names import Kind, asset_key, source_key
from metastore_assets.lookup import TableLookup
from metastore_assets.pictures.glance import glance_at
from metastore_assets.pictures.text import plural
from metastore_assets.pipeline.signatures import PROFILE_VERSION
from metastore_assets.store.manifest import PartitionEntry, Version
from metastore_assets.store.objects import ObjectStore

TABLE_COLUMNS = 8
"""Columns in a table's picture."""
PARTITION_COLUMNS = 5
"""Columns in a partition's picture: there may be thousands of these pictures in the event log."""

_CHUNK = 64
_READERS = 8
_NEVER_OBSERVED = "INITIAL"
"""The data version that Dagster gives an external asset without one."""
_NO_EVENT = "NULL"


@dataclass(frozen=True)
class Report:
    """A published version, and how long it took."""

    table: str
    lookup: TableLookup
    """Of the version that is reported."""
    objects: ObjectStore
    """The table's folder in the root."""
    seconds: float
    """Of the refresh that the run made."""

    @property
    def version(self) -> Version:
        """The version that is reported."""
        return self.lookup.version

    def observation(self) -> AssetObservation:
        """That the table was seen in the version's snapshot.

        Has no data version: Dagster would take all partitions for outdated whenever the table changes anywhere.
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
        return AssetObservation(source_key(self.table), metadata=metadata)

    def partitions(self, changes: Changes) -> Iterator[AssetMaterialization]:
        """One event for each changed kind of file of each changed partition."""
        # Remote reads take turns waiting; local ones are held up by the interpreter's lock, not by the disk.
        with ThreadPoolExecutor(_READERS if self.objects.is_remote else 1) as readers:
            for start in range(0, len(changes.partitions), _CHUNK):
                chunk = changes.partitions[start : start + _CHUNK]
                for events in readers.map(lambda change: self._partition(*change), chunk):
                    yield from events

    def tables(
        self, kinds: Collection[Kind], selected: Collection[Kind], instance: DagsterInstance
    ) -> Iterator[AssetMaterialization | MaterializeResult[object]]:
        """The table-level events: results for kinds that the run is to materialize, plain events for the others."""
        version = self.version
        glance = glance_at(self.lookup, None, TABLE_COLUMNS)
        title = f"{self.table} · {plural(version.row_count, 'row')} · version {version.number}"
        rows = {"dagster/row_count": MetadataValue.int(version.row_count)}
        counts = {
            "partitions": MetadataValue.int(len(version.partitions)),
            "fragments": MetadataValue.int(version.fragment_count),
            "bytes": MetadataValue.int(version.bytes),
        }
        for kind in kinds:
            key = asset_key(self.table, "table", kind)
            uris = self._uris(None, kind)
            metadata = {
                **self._common(),
                **rows,
                **counts,
                **profile_metadata(kind, glance, title, uris, version.schema),
            }
            tags = _input_tags(asset_key(self.table, "partition", kind), version.content_id, instance)
            if kind in selected:
                yield MaterializeResult(key, metadata=metadata, data_version=DataVersion(version.content_id), tags=tags)
            else:
                yield AssetMaterialization(key, metadata=metadata, tags={**_version_tags(version.content_id), **tags})

    def _partition(self, entry: PartitionEntry, kinds: Collection[Kind]) -> list[AssetMaterialization]:
        glance = glance_at(self.lookup, entry.key, PARTITION_COLUMNS)
        title = f"{self.table} · {entry.key} · {plural(entry.row_count, 'row')} · version {self.version.number}"
        counts = {
            "dagster/partition_row_count": MetadataValue.int(entry.row_count),
            "fragments": MetadataValue.int(entry.fragments),
            "bytes": MetadataValue.int(entry.bytes),
        }
        # What the partition is made of is in its content id: the source as a whole changes far more often.
        tags = {**_version_tags(entry.content_id), **_tags_of_input(source_key(self.table), _NEVER_OBSERVED, _NO_EVENT)}
        return [
            AssetMaterialization(
                asset_key(self.table, "partition", kind),
                partition=entry.key,
                metadata={
                    **self._common(),
                    **counts,
                    **profile_metadata(kind, glance, title, self._uris(entry, kind), self.version.schema),
                },
                tags=tags,
            )
            for kind in kinds
        ]

    def _common(self) -> Metadata:
        return {
            SNAPSHOT: MetadataValue.text(self.version.snapshot),
            VERSION: MetadataValue.int(self.version.number),
            "duration_seconds": MetadataValue.float(round(self.seconds, 3)),
        }

    def _uris(self, entry: PartitionEntry | None, kind: Kind) -> list[str]:
        return [self.objects.uri(path) for path in paths_of(shown_files(self.version, entry), kind)]


def _version_tags(content_id: str) -> Mapping[str, str]:
    """What Dagster itself would tag a result with."""
    return {
        "dagster/code_version": PROFILE_VERSION,
        "dagster/data_version": content_id,
        "dagster/data_version_is_user_provided": "true",
    }


def _input_tags(key: AssetKey, data_version: str, instance: DagsterInstance) -> Mapping[str, str]:
    """That the newest materializations of `key` went into a result.

    Dagster would name those from before the run, and then take the result for outdated by what the run itself made.
    """
    records = instance.fetch_materializations(key, limit=1).records
    return _tags_of_input(key, data_version, str(records[0].storage_id) if records else _NO_EVENT)


def _tags_of_input(key: AssetKey, data_version: str, event: str) -> Mapping[str, str]:
    name = key.to_user_string()
    return {f"dagster/input_data_version/{name}": data_version, f"dagster/input_event_pointer/{name}": event}
