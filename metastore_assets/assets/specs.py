"""The assets of one table as Dagster's specifications: what the catalog shows before anything is computed."""

from dagster import AllPartitionMapping, AssetCheckSpec, AssetDep, AssetSpec

from metastore_assets.assets.checks import specs_of_checks
from metastore_assets.assets.names import AssetKind, TableNames, kinds_of
from metastore_assets.assets.table_info import TableInfo
from metastore_assets.assets.translator import MetastoreAsset, MetastoreTranslator
from metastore_assets.config import TableConfig


def source_spec(table: TableConfig, translator: MetastoreTranslator, info: TableInfo) -> AssetSpec:
    """The table itself: observed once per snapshot, never written."""
    return _spec(table, translator, "source", info)


def profile_specs(
    table: TableConfig, names: TableNames, translator: MetastoreTranslator, info: TableInfo, engine: str
) -> list[AssetSpec]:
    """The assets that a refresh makes: one of the partitions, and below it one of each kind of files of the table; or
    one of all of these (`outputs: table`).

    A table without partitions has none for them. Where it is not known, a table that turns out to have none loses it
    when the code location is loaded again.
    """
    mapping = translator.get_partition_mapping(table)
    if mapping is None and names.has_writer and names.mapping is None:
        # The keys have nothing to do with those of the asset that writes the table, if it has partitions.
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
    """Checks that the run makes of what it published."""
    return specs_of_checks(table, names.whole["statistics"])


def _spec(
    table: TableConfig, translator: MetastoreTranslator, kind: AssetKind, info: TableInfo, engine: str | None = None
) -> AssetSpec:
    format_ = info.format or table.declared_format
    return translator.get_asset_spec(MetastoreAsset(table, kind, format_, engine, info.partitioned))
