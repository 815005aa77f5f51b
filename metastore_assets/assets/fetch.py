"""Attach the newest statistics of a table to the materialization of the asset that writes it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from dagster import AssetMaterialization, AssetObservation, MaterializeResult, MetadataValue, ObserveResult, Output

from metastore_assets.assets.metadata import Metadata, fitting_schema
from metastore_assets.assets.secrets import hide_secrets
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, MetastoreError, PartitionNotFoundError
from metastore_assets.expressions.partition_patterns import resolve_partition
from metastore_assets.formats import MetadataCache, SnapshotReference, open_table_format
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import refresh as bring_up_to_date
from metastore_assets.resources.configuration import ConfigLike, Configuration
from metastore_assets.resources.spark import SparkLike

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource

Event = TypeVar("Event", MaterializeResult[Any], ObserveResult, AssetMaterialization, AssetObservation, Output[Any])

NOTE = "metastore/statistics"
"""Metadata key for the reason why no statistics are attached."""


def fetch_column_statistics(
    result: Event,
    table: str,
    config: ConfigLike = None,
    *,
    partition: str | None = None,
    refresh: bool = True,
    s3: "S3Resource | None" = None,
    spark: SparkLike | None = None,
) -> Event:
    """Return the result with the Metastore's statistics: the columns with their main numbers, and the row count.

    Call it at the end of the asset that writes the table. If the table cannot be read, the asset does not fail: a note
    in the metadata gives the reason. Metadata of the result itself stays. Other arguments are those of
    `build_metastore_assets`.

    Args:
        refresh: Refresh the statistics to the current snapshot first. Otherwise they are attached only if they describe
            that snapshot.
        partition: A partition key such as `day=2024-01-01`, whose row count is attached instead of the table's.

    Raises:
        ConfigError
    """
    found: dict[str, Any] = {}
    with hide_secrets():
        configuration = Configuration.of(config, s3, spark).looked_up()
        now = configuration.now()
        own = now.table(table)
        try:
            if refresh:
                with configuration.session(now) as session:
                    bring_up_to_date(now, own, session)
            found.update(_metadata(now, own, partition))
        except ConfigError:
            raise
        except MetastoreError as error:
            found[NOTE] = MetadataValue.text(f"not known: {error}")
    return _with_metadata(result, {**found, **(result.metadata or {})})


def _metadata(config: MetastoreConfig, table: TableConfig, partition: str | None) -> Metadata:
    lookup = Metastore(config.root, config.storage_options).table(table.name)
    version = lookup.version
    at = open_table_format(table, MetadataCache(lambda: version.metadata_cache)).current()
    if at != SnapshotReference(version.snapshot, version.committed_at):
        return {
            NOTE: MetadataValue.text(
                f"not known yet: version {version.number} is of snapshot {version.snapshot}, and the table at {at.id}"
            )
        }
    found: dict[str, MetadataValue] = {  # type: ignore[type-arg]
        "metastore/version": MetadataValue.int(version.number),
        "metastore/snapshot": MetadataValue.text(version.snapshot),
    }
    if partition is None:
        found["dagster/row_count"] = MetadataValue.int(version.row_count)
    else:
        rows = {entry.key: entry.row_count for entry in lookup.partitions()}
        try:
            found["dagster/partition_row_count"] = MetadataValue.int(
                rows[resolve_partition(table.name, partition, list(rows))]
            )
        except PartitionNotFoundError as error:
            # The partition may be empty, or its name misspelt.
            found[NOTE] = MetadataValue.text(str(error))
    # Always use the whole table's columns, because an asset's page shows them as those of the asset.
    columns = fitting_schema(version.schema, lookup.statistics())
    if columns is not None:
        found["dagster/column_schema"] = MetadataValue.table_schema(columns)
    return found


def _with_metadata(result: Event, metadata: Mapping[str, Any]) -> Event:
    if isinstance(result, MaterializeResult | ObserveResult):
        fields = ("asset_key", "check_results", "data_version", "tags")
        own = {name: getattr(result, name) for name in fields}
        if isinstance(result, MaterializeResult):
            own["value"] = result.value
        return type(result)(metadata=metadata, **own)
    return result.with_metadata(dict(metadata))
