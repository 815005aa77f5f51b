"""A function that adds statistics of a table to a materialization of the asset that writes it.

A version is the published statistics of a table at one snapshot.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from dagster import AssetMaterialization, AssetObservation, MaterializeResult, MetadataValue, ObserveResult, Output

from metastore_assets.assets.metadata import Metadata, fitting_schema
from metastore_assets.assets.partition_groups import PartitionGrouping
from metastore_assets.assets.secrets import hide_secrets
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, MetastoreError, PartitionNotFoundError
from metastore_assets.expressions.partition_patterns import resolve_partition
from metastore_assets.formats import MetadataCache, SnapshotReference, open_table_format
from metastore_assets.messages import remove_secrets
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import refresh as refresh_table
from metastore_assets.resources.configuration import ConfigLike, Configuration
from metastore_assets.resources.spark import SparkLike

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource

Event = TypeVar("Event", MaterializeResult[Any], ObserveResult, AssetMaterialization, AssetObservation, Output[Any])

NOTE = "metastore/statistics"
"""The metadata key of the reason why no statistics are attached."""
EXPORTS_NOTE = "metastore/exports"
"""The metadata key of the exports that failed. The next refresh repeats them."""


def fetch_column_statistics(
    result: Event,
    table: str,
    config: ConfigLike = None,
    *,
    partition: str | None = None,
    refresh: bool = False,
    s3: "S3Resource | None" = None,
    spark: SparkLike | None = None,
) -> Event:
    """Return a copy of a result with metadata of the table: columns with main statistics, and row count.

    Call it at the end of the asset that writes the table. Existing metadata of the result stays. If the table cannot be
    read, the metadata gets a note with the reason, and the asset does not fail.

    Args:
        result: The result or event of the asset.
        table: The name of the table in the configuration.
        config: As for `build_metastore_assets`.
        partition: The key of a partition, such as `day=2024-01-01`, or of a group of partitions. The row count is then
            that of the partition or group instead of the table.
        refresh: Whether to refresh the statistics to the current snapshot first, which may start Spark. By default,
            nothing is written, and statistics are added only if they describe the current snapshot.
        s3: As for `build_metastore_assets`.
        spark: As for `build_metastore_assets`.

    Raises:
        ConfigError: The configuration is invalid, or the table is not in it.
    """
    metadata: dict[str, Any] = {}
    with hide_secrets():
        configuration = Configuration.of(config, s3, spark).with_databases()
        metastore = configuration.resolved()
        table_config = metastore.table(table)
        try:
            if refresh:
                with configuration.session(metastore) as session:
                    refresh_result = refresh_table(metastore, table_config, session)
                failures = [f"{export.target}: {export.error}" for export in refresh_result.failed_exports]
                if failures:
                    metadata[EXPORTS_NOTE] = MetadataValue.text(f"failed: {'; '.join(failures)}")
            metadata.update(_read_metadata(metastore, table_config, partition))
        except ConfigError:
            raise
        except MetastoreError as error:
            metadata[NOTE] = MetadataValue.text(f"not available: {error}")
        except Exception as error:  # noqa: BLE001 (Spark and clients of object stores raise any exception)
            metadata[NOTE] = MetadataValue.text(remove_secrets(f"not available: {type(error).__name__}: {error}"))
    return _with_metadata(result, {**metadata, **(result.metadata or {})})


def _read_metadata(config: MetastoreConfig, table: TableConfig, partition: str | None) -> Metadata:
    """Return version, snapshot, row count, and the columns with their statistics, as metadata.

    The row count is that of a partition, or of the table if `partition` is None. If the table does not have the
    partition, a note replaces the row count. If the newest version does not describe the table's current snapshot, the
    result is only a note.
    """
    lookup = Metastore(config.root, storage_options=config.storage_options).table(table.name)
    version = lookup.version
    current = open_table_format(table, MetadataCache(lambda: version.metadata_cache)).current()
    if current != SnapshotReference(version.snapshot, version.committed_at):
        return {
            NOTE: MetadataValue.text(
                f"not available yet: version {version.number} describes snapshot {version.snapshot}, and the table is "
                f"at snapshot {current.id}"
            )
        }
    metadata: dict[str, MetadataValue] = {  # type: ignore[type-arg]
        "metastore/version": MetadataValue.int(version.number),
        "metastore/snapshot": MetadataValue.text(version.snapshot),
    }
    if partition is None:
        metadata["dagster/row_count"] = MetadataValue.int(version.row_count)
    else:
        try:
            grouping = PartitionGrouping(table.dagster.partition_columns)
            entry = grouping.find(version, [partition]).get(partition) or lookup.find_partition(partition)
            if entry is None:  # The text may be a pattern, or a key that is not percent-encoded.
                entries = {each.key: each for each in lookup.partitions()}
                entry = entries[resolve_partition(table.name, partition, list(entries))]
            metadata["dagster/partition_row_count"] = MetadataValue.int(entry.row_count)
        except PartitionNotFoundError as error:
            # The partition may be empty, or its name misspelt.
            metadata[NOTE] = MetadataValue.text(str(error))
    # Use the columns of the whole table even for a partition, because an asset's page shows them for the asset.
    columns = fitting_schema(version.schema, lookup.statistics())
    if columns is not None:
        metadata["dagster/column_schema"] = MetadataValue.table_schema(columns)
    return metadata


def _with_metadata(result: Event, metadata: Mapping[str, Any]) -> Event:
    """Return a copy of a result that has `metadata` instead of its own metadata."""
    if isinstance(result, MaterializeResult | ObserveResult):
        fields = ("asset_key", "check_results", "data_version", "tags")
        values = {name: getattr(result, name) for name in fields}
        if isinstance(result, MaterializeResult):
            values["value"] = result.value
        return type(result)(metadata=metadata, **values)
    return result.with_metadata(dict(metadata))
