"""A test project: two tables in a folder, their configuration, and an in-process Dagster instance."""

import os
import random
import runpy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from dagster import (
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    Definitions,
    ExecuteInProcessResult,
    RunRequest,
    SensorDefinition,
    build_sensor_context,
)
from dagster._core.definitions.sensor_definition import SensorExecutionData
from deltalake import DeltaTable, write_deltalake

from metastore_assets.assets.names import TableNames
from metastore_assets.assets.translator import MetastoreTranslator, names_of
from metastore_assets.config import CONFIG_VARIABLE, load_config
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version
from metastore_assets.store.versions import VersionStore

CONFIG = """
root: ./metastore
spark: {spark.master: "local[2]", spark.driver.memory: 1g}
tables:
  - {name: sales, uri: ./sales, sensor: {interval: 5}}
  - {name: visits-eu, uri: ./visits, sensor: {interval: 5}}
"""
NO_COMPUTE_LOGS = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
"""The setting without which Dagster starts four processes for each step to capture its output."""
SETTINGS = yaml.safe_load((Path(__file__).parents[2] / "dagster.yaml").read_text(encoding="utf-8")) | {
    "run_launcher": {
        "module": "dagster._core.launcher.sync_in_memory_run_launcher",
        "class": "SyncInMemoryRunLauncher",
    },
    "compute_logs": NO_COMPUTE_LOGS,
}
"""The shipped settings, except that queued runs are executed in this process and output is not captured."""
KINDS = ("frequencies", "histograms", "statistics")
ReportedEvents = set[tuple[str, str | None]]


def rows(day: int, count: int, seed: int = 0) -> pa.Table:
    """Return random rows of a day of January 2024, with times around noon.

    Ids are unique, shops repeat, prices are long-tailed, and notes are random.

    Args:
        day: The day of the month.
        count: The number of rows.
        seed: Rows with another seed have other ids and values.
    """
    draw = random.Random(f"{day} {seed}")
    start = datetime(2024, 1, day, tzinfo=UTC)
    return pa.table(
        {
            "id": pa.array(range(day * 10**6 + seed * 10**4, day * 10**6 + seed * 10**4 + count), pa.int64()),
            "shop": [draw.choice(["Berlin", "Paris", "Oslo", "", "Zürich"]) for _ in range(count)],
            "price": [None if draw.random() < 0.03 else round(draw.lognormvariate(3, 1), 2) for _ in range(count)],
            "paid": [draw.random() < 0.8 for _ in range(count)],
            "at": [start + timedelta(seconds=min(86399, max(0, draw.gauss(43200, 9000)))) for _ in range(count)],
            "note": [f"note {draw.randrange(10**9)}" for _ in range(count)],
            "day": [key_of(day).removeprefix("day=")] * count,
        }
    )


def key_of(day: int) -> str:
    return f"day=2024-01-{day:02d}"


def kind_of(key: AssetKey) -> str:
    """Return the kind of a table's asset, such as `statistics`.

    It is the last part of the asset's key without the table's name.
    """
    table, name = key.path
    return name.removeprefix(f"{table}_")


@dataclass
class Lab:
    """A project with two tables partitioned by day: Delta `sales` and the Parquet files `visits-eu`."""

    folder: Path
    instance: DagsterInstance

    @property
    def config_file(self) -> Path:
        return self.folder / "metastore.yaml"

    def names(self, table: str) -> TableNames:
        """Return the Dagster names (keys, job, sensor) that belong to a table."""
        return names_of(load_config(self.config_file).table(table), MetastoreTranslator())

    def append(self, *days: int, count: int = 200, seed: int = 0) -> None:
        """Append `count` rows of each of the days to `sales`, in one commit.

        `seed` varies the values.
        """
        table = pa.concat_tables([rows(day, count, seed) for day in days])
        write_deltalake(str(self.folder / "sales"), table, mode="append", partition_by=["day"])

    def delete(self, predicate: str) -> None:
        """Delete rows from `sales`, in one commit."""
        DeltaTable(str(self.folder / "sales")).delete(predicate)

    def write_file(self, day: int, count: int = 200, seed: int = 0) -> Path:
        """Write a file of a day into `visits-eu`, and return its path.

        A file of the same day and seed is replaced.
        """
        path = self.folder / "visits" / key_of(day) / f"{seed}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(day, count, seed).drop_columns(["day"]), path)
        return path

    def definitions(self) -> Definitions:
        """Return the definitions that a code server would load."""
        with patch.dict(os.environ, {CONFIG_VARIABLE: str(self.config_file)}):
            module_definitions: Definitions = runpy.run_module("metastore_assets.definitions")["defs"]
        return module_definitions

    def tick(self, table: str, cursor: str | None = None) -> SensorExecutionData:
        """Load the definitions, and evaluate the sensor of a table as the daemon would after a restart."""
        name = f"{table.replace('-', '_')}_commits"
        return self.evaluate(self.definitions().resolve_sensor_def(name), cursor)

    def evaluate(self, sensor: SensorDefinition, cursor: str | None = None) -> SensorExecutionData:
        """Evaluate one tick of a sensor."""
        with build_sensor_context(self.instance, cursor, sensor_name=sensor.name) as context:
            return sensor.evaluate_tick(context)

    def run(self, table: str, request: RunRequest, raise_on_error: bool = True) -> ExecuteInProcessResult:
        """Execute the run that a sensor requested."""
        job = self.definitions().resolve_job_def(f"{table.replace('-', '_')}_refresh")
        tags = {**request.tags, "dagster/run_key": request.run_key or ""}
        return job.execute_in_process(instance=self.instance, tags=tags, raise_on_error=raise_on_error)

    def refresh(self, table: str) -> ExecuteInProcessResult:
        """Evaluate one tick, which must request a run, and execute that run."""
        (request,) = self.tick(table).run_requests or []
        return self.run(table, request)

    def by_hand(
        self, table: str, *assets: str, first: str | None = None, last: str | None = None
    ) -> ExecuteInProcessResult:
        """Materialize assets of a table, as from the UI.

        `assets` are their kinds, such as `statistics`. The run has the partitions `first` to `last`. If `last` is None,
        the run has only the partition `first`. If `first` is None, the run has no partition.
        """
        keys = {AssetKey([table, f"{table}_{asset}"]) for asset in assets}
        job = self.definitions().resolve_implicit_global_asset_job_def().get_subset(asset_selection=keys)
        tags = {
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last or first,
        }
        return job.execute_in_process(instance=self.instance, tags={k: v for k, v in tags.items() if v})

    def events(self, run: str) -> list[AssetMaterialization]:
        """Return the materializations of a run, in order."""
        events = [entry.dagster_event for entry in self.instance.all_logs(run) if entry.dagster_event]
        return [event.step_materialization_data.materialization for event in events if event.is_step_materialization]

    def reported_events(self, result: ExecuteInProcessResult) -> ReportedEvents:
        """Return asset kind and partition of each materialization of a run; fail if one occurs twice."""
        pairs = [(kind_of(event.asset_key), event.partition) for event in self.events(result.run_id)]
        assert len(pairs) == len(set(pairs))
        return set(pairs)

    def latest(self, table: str) -> Version:
        version = VersionStore(ObjectStore(str(self.folder / "metastore")), table).latest()
        assert version is not None
        return version


@contextmanager
def lab_in(folder: Path, settings: Mapping[str, Any] = SETTINGS) -> Iterator["Lab"]:
    """Yield a lab with three days in each table and a new Dagster instance."""
    (folder / "home").mkdir()
    (folder / "metastore.yaml").write_text(CONFIG, encoding="utf-8")
    with DagsterInstance.local_temp(str(folder / "home"), overrides=settings) as instance:
        lab = Lab(folder, instance)
        lab.append(1, 2, 3)
        for day in (1, 2, 3):
            lab.write_file(day)
        yield lab


def all_of(*days: int, table: bool = True) -> ReportedEvents:
    """Return the events (kind of asset, partition) that a run must report after these days changed.

    With `table=False`, the events of the table are left out.
    """
    partitions: ReportedEvents = {("partitions", key_of(day)) for day in days}
    return partitions | ({(kind, None) for kind in KINDS} if table else set())
