"""What it takes to tell Dagster of a version with very many changed partitions, on its own SQLite.

A small table is refreshed, and its version published once more with synthetic partitions beside it; then the table's
job runs, finds the version current, and reports it. `METASTORE_BENCH_EVENTS=20000` is the number of partitions (2,000
without it). `METASTORE_BENCH_FOLDER` is the disk to measure on, a temporary folder without it.
"""

from __future__ import annotations

import os
import runpy
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from dagster import AssetRecordsFilter, DagsterInstance

from benchmarks.report import Row
from metastore_assets.assets.translator import MetastoreTranslator, names_of
from metastore_assets.config import CONFIG_VARIABLE, load_config
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore

MOST_SECONDS, MOST_MB, SHARE = 300.0, 150.0, 20_000
_CONFIG = "root: ./metastore\nengine: auto\ntables: [{name: sales, uri: ./sales}]\n"
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def run() -> list[Row]:
    """The first report of all partitions. Goals: 5 minutes and 150 MB for 20,000 of them."""
    partitions = int(os.environ.get("METASTORE_BENCH_EVENTS", "2000"))
    with tempfile.TemporaryDirectory(prefix="metastore-bench-", dir=os.environ.get("METASTORE_BENCH_FOLDER")) as name:
        folder = Path(name)
        _publish(folder, partitions)
        home = folder / "home"
        home.mkdir()
        with (
            patch.dict(os.environ, {CONFIG_VARIABLE: str(folder / "metastore.yaml"), "DAGSTER_DISABLE_TELEMETRY": "1"}),
            DagsterInstance.local_temp(str(home)) as instance,
        ):
            definitions = runpy.run_module("metastore_assets.definitions")["defs"]
            names = names_of(load_config(folder / "metastore.yaml").table("sales"), MetastoreTranslator())
            job = definitions.resolve_job_def(names.job)
            before = _megabytes(home)
            started, cpu = time.perf_counter(), time.process_time()
            job.execute_in_process(instance=instance, run_config=_QUIET)
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
            events = instance.get_materialized_partitions(names.partitions)
            assert len(events) == len(instance.get_dynamic_partitions(names.dynamic_partitions)) == partitions
            page = instance.fetch_materializations(AssetRecordsFilter(names.partitions), limit=1)
            assert page.records[0].asset_materialization is not None
        # With the log of SQLite moved into the files.
        megabytes = _megabytes(home) - before
    print(f"{partitions} changed partitions: {seconds:.1f} s, {cpu:.1f} s of CPU, {megabytes:.1f} MB; "
          f"{partitions / seconds:.0f} events a second")  # fmt: skip
    share = partitions / SHARE
    return [
        Row(f"report of {partitions} changed partitions (s)", [seconds], [MOST_SECONDS * share],
            MOST_SECONDS * share / seconds, 1.0),
        Row("what Dagster stores of it (MB)", [megabytes], [MOST_MB * share], MOST_MB * share / megabytes, 1.0),
    ]  # fmt: skip


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
    """Files that nobody opens, with names as long as real ones."""
    name = f"partitions/{number:032x}"
    return ProfileFiles(f"{name}.statistics.parquet", f"{name}.histograms.parquet", (f"{name}.frequencies.parquet",))


def _no_spark() -> None:
    raise AssertionError("the table is small enough for this process")


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
