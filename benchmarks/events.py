"""Time and storage to report a version with very many changed partitions to Dagster.

Dagster's instance is on SQLite or on PostgreSQL. A small table is refreshed, and its version is published again with
synthetic partitions. Then the table's job runs, finds that the version is current, and reports it. Environment
variables:

- `METASTORE_BENCH_EVENTS`: the number of partitions, by default 2000. The least is 201: a report of fewer partitions
  draws pictures of their profiles, and the synthetic partitions have no files.
- `METASTORE_BENCH_FOLDER`: a folder on the disk to measure, by default the system's temporary folder.
- `METASTORE_BENCH_EVENTS_ON=postgresql`: start a PostgreSQL server, and store Dagster's instance there.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import os
import runpy
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from dagster import AssetKey, AssetRecordsFilter, DagsterInstance

from benchmarks.postgres_server import database_megabytes, postgres_server
from benchmarks.report import Row
from metastore_assets.config import CONFIG_VARIABLE, load_config
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ProfileFiles
from metastore_assets.store.versions import VersionStore

MOST_SECONDS, MOST_MB, SHARE = 300.0, 150.0, 20_000
_CONFIG = "root: ./metastore\nengine: auto\ntables: [{name: sales, uri: ./sales}]\n"
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def run() -> list[Row]:
    """Compare the first report of all partitions with goals, and with Dagster's public event logging.

    The goals are 5 minutes and 150 MB for 20,000 partitions, and in proportion for other numbers.
    """
    partitions = int(os.environ.get("METASTORE_BENCH_EVENTS", "2000"))
    with ExitStack() as stack:
        name = tempfile.TemporaryDirectory(prefix="metastore-bench-", dir=os.environ.get("METASTORE_BENCH_FOLDER"))
        folder = Path(stack.enter_context(name))
        if os.environ.get("METASTORE_BENCH_EVENTS_ON") == "postgresql":
            url = stack.enter_context(postgres_server())
            report = report_events(folder, partitions, url)
        else:
            report = report_events(folder, partitions)
    print(f"{partitions} changed partitions: {report.seconds:.1f} s, {report.cpu:.1f} s of CPU, "
          f"{report.megabytes:.1f} MB; {partitions / report.seconds:.0f} events a second")  # fmt: skip
    share = partitions / SHARE
    with ExitStack() as stack, patch("metastore_assets.assets.events.HAS_EVENT_LOG", False):
        name = tempfile.TemporaryDirectory(prefix="metastore-bench-", dir=os.environ.get("METASTORE_BENCH_FOLDER"))
        folder = Path(stack.enter_context(name))
        if os.environ.get("METASTORE_BENCH_EVENTS_ON") == "postgresql":
            public = report_events(folder, partitions, stack.enter_context(postgres_server()))
        else:
            public = report_events(folder, partitions)
    return [
        Row("the same by Dagster's public event logging (s)", [report.seconds], [public.seconds],
            public.seconds / report.seconds, 1.0),
        Row(f"report of {partitions} changed partitions (s)", [report.seconds], [MOST_SECONDS * share],
            MOST_SECONDS * share / report.seconds, 1.0),
        Row("what Dagster stores of it (MB)", [report.megabytes], [MOST_MB * share],
            MOST_MB * share / report.megabytes, 1.0),
    ]  # fmt: skip


@dataclass(frozen=True)
class Report:
    """Costs of reporting a version."""

    seconds: float
    cpu: float
    """CPU seconds of this process."""
    megabytes: float
    """How much Dagster's storage has grown."""


def report_events(folder: Path, partitions: int, postgres: str | None = None) -> Report:
    """Report changed partitions to a new Dagster instance, and check that it has an event of each.

    Args:
        folder: An empty folder for the table and the instance.
        partitions: The number of changed partitions.
        postgres: The URL of the instance's database, or None for SQLite.

    Returns:
        The costs of the run that reports the partitions.
    """
    _publish(folder, partitions)
    home = folder / "home"
    home.mkdir()
    storage = {"storage": {"postgres": {"postgres_url": postgres}}} if postgres else None

    def size() -> float:
        return _megabytes(home) + (database_megabytes(postgres) if postgres else 0)

    with (
        patch.dict(os.environ, {CONFIG_VARIABLE: str(folder / "metastore.yaml"), "DAGSTER_DISABLE_TELEMETRY": "1"}),
        DagsterInstance.local_temp(str(home), overrides=storage) as instance,
    ):
        job = runpy.run_module("metastore_assets.definitions")["defs"].resolve_job_def("sales_refresh")
        before = size()
        start_time, cpu = time.perf_counter(), time.process_time()
        job.execute_in_process(instance=instance, run_config=_QUIET)
        seconds, cpu = time.perf_counter() - start_time, time.process_time() - cpu
        key = AssetKey(["sales", "sales_partitions"])
        events = instance.get_materialized_partitions(key)
        assert len(events) == len(instance.get_dynamic_partitions("sales_partitions")) == partitions
        page = instance.fetch_materializations(AssetRecordsFilter(key), limit=1)
        assert page.records[0].asset_materialization is not None
    return Report(seconds, cpu, size() - before)  # with the log of SQLite moved into the files


def _publish(folder: Path, partitions: int) -> None:
    (folder / "metastore.yaml").write_text(_CONFIG, encoding="utf-8")
    part = folder / "sales" / "day=0"
    part.mkdir(parents=True)
    pq.write_table(pa.table({"id": range(1000), "shop": ["Berlin", "Oslo"] * 500}), part / "a.parquet")
    config = load_config(folder / "metastore.yaml")
    refresh(config, config.table("sales"), _no_spark)
    versions = VersionStore(ObjectStore(config.root), "sales")
    base = versions.latest()
    assert base is not None
    entry = base.partitions[0]
    entries = [
        replace(entry, key=f"day={number:06}", content_id=f"{number:032x}", files=_files(number), version=2)
        for number in range(partitions)
    ]
    versions.publish(replace(base, number=2, partitions=entries))


def _files(number: int) -> ProfileFiles:
    """Return names for the profile files of the partition with a number.

    The names are as long as real ones. The files do not exist.
    """
    name = f"partitions/{number:032x}"
    return ProfileFiles(f"{name}.statistics.parquet", f"{name}.histograms.parquet", (f"{name}.frequencies.parquet",))


def _no_spark() -> NoReturn:
    raise AssertionError("the table is small enough for this process")


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
