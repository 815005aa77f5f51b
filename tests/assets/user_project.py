"""A user's Dagster project: an asset that writes a Delta table, and definitions of its statistics."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pyarrow as pa
from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetsDefinition,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    ExecuteInProcessResult,
    MaterializeResult,
    asset,
    build_sensor_context,
)
from deltalake import write_deltalake

from metastore_assets import MetastoreConfig, MetastoreTranslator, TableConfig, TablePartitions

DAYS = DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
RAW = AssetKey(["raw", "sales"])


def config(folder: Path, root: str = "metastore") -> MetastoreConfig:
    table = TableConfig(name="sales", uri=str(folder / "sales"))
    return MetastoreConfig(root=str(folder / root), engine="auto", tables=[table])


def write(folder: Path, day: str, rows: int, part: str = "day") -> None:
    """Replace the rows of one day.

    `part` is the name of the partition column.
    """
    days = pa.array([date.fromisoformat(day)] * rows, pa.date32())
    table = pa.table({part: days, "amount": list(range(rows))})
    write_deltalake(folder / "sales", table, mode="overwrite", partition_by=[part], predicate=f"{part} = '{day}'")


def raw_sales(folder: Path, rows: Mapping[str, int]) -> AssetsDefinition:
    """Return the asset that writes the table, one day per partition.

    Days missing in `rows` get no rows.
    """

    @asset(key=RAW, partitions_def=DAYS)
    def sales(context: AssetExecutionContext) -> MaterializeResult:  # type: ignore[type-arg]
        if rows.get(context.partition_key):
            write(folder, context.partition_key, rows[context.partition_key])
        return MaterializeResult()

    return sales


class ByDay(MetastoreTranslator):
    """A translator that gives the table the partitions of the asset that writes it."""

    def get_upstream(self, table: TableConfig) -> AssetKey:
        return RAW

    def get_partitions_def(self, table: TableConfig) -> TablePartitions:
        return TablePartitions(DAYS)


def materialize(
    definitions: Definitions, instance: DagsterInstance, *keys: AssetKey, partition: str | None = None
) -> ExecuteInProcessResult:
    job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection=set(keys))
    return job.execute_in_process(instance=instance, partition_key=partition)


def commit(definitions: Definitions, instance: DagsterInstance, name: str = "sales") -> ExecuteInProcessResult | None:
    """Evaluate a tick, and execute the run that it requests, as the daemon does after a commit.

    Return the result of the run; None if none is requested.
    """
    with build_sensor_context(instance, sensor_name=f"{name}_commits", definitions=definitions) as context:
        tick = definitions.resolve_sensor_def(f"{name}_commits").evaluate_tick(context)
    requests = tick.run_requests or []
    if not requests:
        return None
    job = definitions.resolve_job_def(f"{name}_refresh")
    return job.execute_in_process(instance=instance, tags=dict(requests[0].tags))


def reported_row_counts(
    instance: DagsterInstance, result: ExecuteInProcessResult | None, key: AssetKey
) -> dict[str | None, int]:
    """Return the row counts that a run reported for an asset, by partition.

    The count of the table has the key None.
    """
    assert result is not None
    events = [entry.dagster_event for entry in instance.all_logs(result.run_id) if entry.dagster_event]
    materializations = [
        event.step_materialization_data.materialization for event in events if event.is_step_materialization
    ]
    return {event.partition: rows_of(event) for event in materializations if event.asset_key == key}


def rows_of(event: AssetMaterialization) -> int:
    name = "dagster/row_count" if event.partition is None else "dagster/partition_row_count"
    value = event.metadata[name].value
    assert isinstance(value, int)
    return value


PARTITIONS, STATISTICS = AssetKey(["sales", "sales_partitions"]), AssetKey(["sales", "sales_statistics"])


def attached(result: MaterializeResult) -> dict[str, object]:  # type: ignore[type-arg]
    return {name: getattr(value, "value", value) for name, value in (result.metadata or {}).items()}
