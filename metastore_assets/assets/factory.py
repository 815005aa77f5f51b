"""The Dagster definitions of one table: asset specs, the op that materializes assets, and the job.

A profile is the stored statistics of a table or a partition. A refresh publishes a version: the profiles of the table
and of its partitions at one snapshot.
"""

from collections.abc import Iterator
from typing import Any

from dagster import (
    AllPartitionMapping,
    AssetDep,
    AssetExecutionContext,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    Config,
    define_asset_job,
    in_process_executor,
    multi_asset,
)
from pydantic import Field

from metastore_assets.assets.checks import check_specs, export_check_specs
from metastore_assets.assets.names import TABLE_TAG, AssetKind, TableNames, kinds_of
from metastore_assets.assets.run import refresh_and_report
from metastore_assets.assets.table_info import TableInfo
from metastore_assets.assets.translator import MetastoreAsset, MetastoreTranslator, names_of
from metastore_assets.config import TableConfig
from metastore_assets.report.markdown import code_markdown
from metastore_assets.resources.configuration import Configuration


class RefreshOptions(Config):
    """The run configuration of a table's op, which a person can set in Dagster's launchpad."""

    partitions: list[str] = Field(
        default_factory=list,
        description="Partitions to read again even if they have not changed: keys, or patterns (`day=2024-01-*`)",
    )
    full: bool = Field(default=False, description="Read every file of the table again")


def table_assets(
    configuration: Configuration, table: TableConfig, translator: MetastoreTranslator, info: TableInfo
) -> list[AssetSpec | AssetsDefinition]:
    """Return the assets of a table: its profiles, and the table unless an asset of the project writes it.

    The profiles may be several assets, such as partitions, statistics and histograms. One op materializes them all,
    because a refresh publishes them in one version.

    Args:
        configuration: The configuration of the Metastore. Each run reads it again.
        table: The configuration of the table.
        translator: The project's translator from tables to assets.
        info: The format of the table, and whether it has partition columns; None for what is unknown.
    """
    names = names_of(table, translator)

    @multi_asset(
        name=names.op,
        specs=profile_specs(table, names, translator, info, configuration.unresolved().engine),
        check_specs=[
            *check_specs(table, names.kind_assets["statistics"]),
            *export_check_specs(table, names.kind_assets["statistics"]),
        ],
        can_subset=True,
        # A range of partitions is one run, with one Spark application and one version.
        backfill_policy=BackfillPolicy.single_run(),
        op_tags={TABLE_TAG: names.tag},
        # The pool can limit concurrent runs. A limit by tag would miss runs launched from an asset's page.
        pool=names.pool,
    )
    def profile(context: AssetExecutionContext, config: RefreshOptions) -> Iterator[Any]:
        yield from refresh_and_report(context, configuration, names, partitions=config.partitions, full=config.full)

    return [profile] if names.has_writer else [source_spec(table, translator, info), profile]


def refresh_job(table: TableConfig, names: TableNames) -> Any:
    """Return the job that refreshes a table to its current snapshot.

    The table's sensor launches it at each commit.
    """
    return define_asset_job(
        names.job,
        selection=list(names.kind_assets.values()),
        description=f"Refresh the profiles of {code_markdown(table.name)} to the table's current snapshot, in one run "
        "for any number of changed partitions.",
        tags={TABLE_TAG: names.tag},
        # The run has one op. A separate process for it would only start Python once more.
        executor_def=in_process_executor,
    )


def source_spec(table: TableConfig, translator: MetastoreTranslator, info: TableInfo) -> AssetSpec:
    """Return the spec of the table itself.

    It is an external asset, which gets an observation for each new snapshot.
    """
    return _spec(table, translator, "source", info)


def profile_specs(
    table: TableConfig, names: TableNames, translator: MetastoreTranslator, info: TableInfo, engine: str
) -> list[AssetSpec]:
    """Return the specs of the assets that a refresh materializes.

    The first asset is partitioned: the profiles of the table's partitions. The other assets depend on it: one for each
    kind of file with statistics of the whole table, such as `histograms`. If the table is known to have no
    partition columns, the first asset is left out, and the others depend on the table itself. With `outputs: table`,
    a single asset replaces all of these.

    Args:
        table: The configuration of the table.
        names: The names of the table's objects in Dagster.
        translator: The project's translator from tables to assets.
        info: The format of the table, and whether it has partition columns; None for what is unknown.
        engine: The configured engine, such as `spark`, which becomes a kind of the assets.
    """
    mapping = translator.get_partition_mapping(table)
    if mapping is None and names.has_writer and names.mapping is None:
        # The partition keys of the asset that writes the table are unrelated to the table's.
        mapping = AllPartitionMapping()
    source = AssetDep(names.source, partition_mapping=mapping)
    table_specs = [_spec(table, translator, kind, info, engine) for kind in kinds_of(table)]
    if info.partitioned is False:
        dependency = AssetDep(names.source, partition_mapping=AllPartitionMapping() if names.has_writer else None)
        return [spec.replace_attributes(deps=[dependency, *spec.deps]) for spec in table_specs]
    partitions = table_specs[0] if names.is_single else _spec(table, translator, "partitions", info, engine)
    partitions = partitions.replace_attributes(deps=[source, *partitions.deps], partitions_def=names.partitions_def)
    if names.is_single:
        return [partitions]
    return [
        partitions,
        *(spec.replace_attributes(deps=[names.partitions, *spec.deps]) for spec in table_specs),
    ]


def _spec(
    table: TableConfig, translator: MetastoreTranslator, kind: AssetKind, info: TableInfo, engine: str | None = None
) -> AssetSpec:
    format_ = info.format or table.declared_format
    return translator.get_asset_spec(MetastoreAsset(table, kind, format_, engine, info.partitioned))
