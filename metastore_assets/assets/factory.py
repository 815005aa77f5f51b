"""The Dagster definitions of one table, made from its configuration."""

from collections.abc import Iterator
from typing import Any

from dagster import (
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

from metastore_assets.assets.names import TABLE_TAG, TableNames
from metastore_assets.assets.run import refresh_and_report
from metastore_assets.assets.specs import check_specs, profile_specs, source_spec
from metastore_assets.assets.table_info import TableInfo
from metastore_assets.assets.translator import MetastoreTranslator, names_of
from metastore_assets.config import TableConfig
from metastore_assets.report.markdown import code_markdown
from metastore_assets.resources.configuration import Configuration


class RefreshOptions(Config):
    """What can be chosen when a run is launched by hand."""

    partitions: list[str] = Field(
        default_factory=list,
        description="Partitions to read again, whatever is stored of them: keys, or patterns (`day=2024-01-*`)",
    )
    full: bool = Field(default=False, description="Read every file of the table again, whatever is stored of it")


def table_assets(
    configuration: Configuration, table: TableConfig, translator: MetastoreTranslator, info: TableInfo
) -> list[AssetSpec | AssetsDefinition]:
    """The one op that makes all profiles of a table, and the table itself where no asset of the project writes it.

    One op, because a refresh makes one version: partitions and table, all kinds of files. What of it is selected
    decides what is read again and what is a result of the run; everything that changed is reported in any case.
    What there is depends on what is known of the table.

    The op is in a pool of the table's own, because runs that people launch from an asset's page have no tag that a
    limit could go by. Two runs of one table end well, but the second is of no use while the first works.
    """
    names = names_of(table, translator)

    @multi_asset(
        name=names.op,
        specs=profile_specs(table, names, translator, info, configuration.shown().engine),
        check_specs=check_specs(table, names),
        can_subset=True,
        # A range is one run, so one Spark application and one version.
        backfill_policy=BackfillPolicy.single_run(),
        op_tags={TABLE_TAG: names.tag},
        pool=names.pool,
    )
    def profile(context: AssetExecutionContext, config: RefreshOptions) -> Iterator[Any]:
        yield from refresh_and_report(context, configuration, names, partitions=config.partitions, full=config.full)

    return [profile] if names.has_writer else [source_spec(table, translator, info), profile]


def refresh_job(table: TableConfig, names: TableNames) -> Any:
    """The job that brings one table up to its current snapshot: what the sensor runs for a commit."""
    return define_asset_job(
        names.job,
        selection=list(names.whole.values()),
        description=f"Bring the profiles of {code_markdown(table.name)} up to the table's current snapshot: in one "
        "run, whatever the number of changed partitions.",
        tags={TABLE_TAG: names.tag},
        # A run is one op: another process for it would only start Python again.
        executor_def=in_process_executor,
    )
