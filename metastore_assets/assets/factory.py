"""The Dagster definitions of one table: its assets and its job."""

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
    """The options of a run that a person launches."""

    partitions: list[str] = Field(
        default_factory=list,
        description="Partitions to read again, whatever is stored of them: keys, or patterns (`day=2024-01-*`)",
    )
    full: bool = Field(default=False, description="Read every file of the table again, whatever is stored of it")


def table_assets(
    configuration: Configuration, table: TableConfig, translator: MetastoreTranslator, info: TableInfo
) -> list[AssetSpec | AssetsDefinition]:
    """Return the op that refreshes all profiles of a table, and the table as an external asset if no asset writes it.

    It is one op because a refresh publishes one version: partitions and table, all kinds of files. The selection
    decides what is read again and what is a result of the run; the run reports every change in any case.

    The op has a pool per table, because runs launched from an asset's page have no tag for a concurrency limit. Two
    concurrent runs of one table succeed, but the second does no useful work.
    """
    names = names_of(table, translator)

    @multi_asset(
        name=names.op,
        specs=profile_specs(table, names, translator, info, configuration.shown().engine),
        check_specs=check_specs(table, names),
        can_subset=True,
        # A range is one run: one Spark application and one version.
        backfill_policy=BackfillPolicy.single_run(),
        op_tags={TABLE_TAG: names.tag},
        pool=names.pool,
    )
    def profile(context: AssetExecutionContext, config: RefreshOptions) -> Iterator[Any]:
        yield from refresh_and_report(context, configuration, names, partitions=config.partitions, full=config.full)

    return [profile] if names.has_writer else [source_spec(table, translator, info), profile]


def refresh_job(table: TableConfig, names: TableNames) -> Any:
    """Return the job that refreshes one table to its current snapshot; the commit sensor launches it."""
    return define_asset_job(
        names.job,
        selection=list(names.whole.values()),
        description=f"Bring the profiles of {code_markdown(table.name)} up to the table's current snapshot: in one "
        "run, whatever the number of changed partitions.",
        tags={TABLE_TAG: names.tag},
        # The run has one op; a process per op would only start Python once more.
        executor_def=in_process_executor,
    )
