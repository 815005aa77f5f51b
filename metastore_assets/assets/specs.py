"""The asset specs of one table, which Dagster shows before anything is computed."""

from dagster import AllPartitionMapping, AssetCheckSpec, AssetDep, AssetSpec

from metastore_assets.assets.checks import specs_of_checks
from metastore_assets.assets.names import AssetKind, TableNames, kinds_of
from metastore_assets.assets.table_info import TableInfo
from metastore_assets.assets.translator import MetastoreAsset, MetastoreTranslator
from metastore_assets.config import TableConfig


def source_spec(table: TableConfig, translator: MetastoreTranslator, info: TableInfo) -> AssetSpec:
    """Return the spec of the table itself, an external asset with one observation per snapshot."""
    return _spec(table, translator, "source", info)


def profile_specs(
    table: TableConfig, names: TableNames, translator: MetastoreTranslator, info: TableInfo, engine: str
) -> list[AssetSpec]:
    """Return the specs of the assets that a refresh materializes.

    These are the partitions, and downstream of them one asset per kind of file. With `outputs: table` it is one asset.
    A table without partitions has no asset of partitions. If that is unknown, the asset disappears when the code
    location is loaded again.
    """
    mapping = translator.get_partition_mapping(table)
    if mapping is None and names.has_writer and names.mapping is None:
        # The partition keys of the asset that writes the table are unrelated to the table's.
        mapping = AllPartitionMapping()
    source = AssetDep(names.source, partition_mapping=mapping)
    whole = [_spec(table, translator, kind, info, engine) for kind in kinds_of(table)]
    if info.partitioned is False:
        alone = AssetDep(names.source, partition_mapping=AllPartitionMapping() if names.has_writer else None)
        return [spec.replace_attributes(deps=[alone, *spec.deps]) for spec in whole]
    partitions = whole[0] if names.is_single else _spec(table, translator, "partitions", info, engine)
    partitions = partitions.replace_attributes(deps=[source, *partitions.deps], partitions_def=names.partitions_def)
    if names.is_single:
        return [partitions]
    return [
        partitions,
        *(spec.replace_attributes(deps=[names.partitions, *spec.deps]) for spec in whole),
    ]


def check_specs(table: TableConfig, names: TableNames) -> list[AssetCheckSpec]:
    """Return the specs of the checks that a run evaluates on the version it publishes."""
    return specs_of_checks(table, names.whole["statistics"])


def _spec(
    table: TableConfig, translator: MetastoreTranslator, kind: AssetKind, info: TableInfo, engine: str | None = None
) -> AssetSpec:
    format_ = info.format or table.declared_format
    return translator.get_asset_spec(MetastoreAsset(table, kind, format_, engine, info.partitioned))
