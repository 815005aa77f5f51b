"""Time and memory of a commit sensor's tick after a commit to very many partitions.

The tables are plain files and Delta. A small version is published, then one commit writes many partitions, and a tick
requests a run. Then a version with all partitions is published, and ticks find no new commit. The ticks run in separate
processes, as in Dagster's code server. Environment variables:

- `METASTORE_BENCH_TICKS`: the number of partitions, by default 2000.
- `METASTORE_BENCH_FOLDER`: a folder on the disk to measure, by default the system's temporary folder.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from dagster import DagsterInstance, build_sensor_context
from deltalake import write_deltalake

from benchmarks.report import Row
from metastore_assets.assets.project import build_metastore_definitions
from metastore_assets.config import load_config
from metastore_assets.formats import MetadataCache, open_table_format
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ProfileFiles
from metastore_assets.store.versions import VersionStore

MOST_SECONDS, MOST_MB = 60.0, 500.0
"""Dagster's time limit of a tick, and a reasonable amount of memory for a code server with several sensors."""
_CONFIG = "root: ./metastore\nengine: auto\ntables: [{{name: t, uri: ./t, format: {}}}]\n"


@dataclass(frozen=True)
class Tick:
    """Costs and message of one tick."""

    seconds: float
    cpu: float
    """CPU seconds of the process."""
    megabytes: float
    """The peak memory of the process during the tick, minus its memory before."""
    said: str
    """The first message that the tick logged."""


def run() -> list[Row]:
    """Compare three ticks of each format with the limits: one sees the commit, two see no new commit."""
    partitions = int(os.environ.get("METASTORE_BENCH_TICKS", "2000"))
    rows = []
    for kind in ("files", "delta"):
        with tempfile.TemporaryDirectory(
            prefix="metastore-bench-", dir=os.environ.get("METASTORE_BENCH_FOLDER")
        ) as name:
            commit_tick, first_tick, quiet_tick = measure(Path(name), kind, partitions)
        for what, tick in (
            ("that sees a commit", commit_tick),
            ("first of a process", first_tick),
            ("quiet", quiet_tick),
        ):
            print(f"{kind}, {partitions} partitions, tick {what}: {tick.seconds:.2f} s, {tick.cpu:.2f} s of CPU, "
                  f"{tick.megabytes:.0f} MB")  # fmt: skip
            rows += [
                Row(f"{kind}: tick {what} (s)", [tick.seconds], [MOST_SECONDS], MOST_SECONDS / tick.seconds, 1.0),
                Row(f"{kind}: memory of it (MB)", [tick.megabytes], [MOST_MB], MOST_MB / tick.megabytes, 1.0),
            ]
    return rows


def measure(folder: Path, kind: str, partitions: int) -> tuple[Tick, Tick, Tick]:
    """Measure three ticks of a table in an empty folder.

    Args:
        folder: The empty folder.
        kind: The format, `files` or `delta`.
        partitions: The number of partitions.

    Returns:
        The tick that sees the commit. Then two ticks that see no new commit: the first of a new process, and the
        second.
    """
    (folder / "metastore.yaml").write_text(_CONFIG.format(kind), encoding="utf-8")
    _write(folder / "t", kind, [0])
    config = load_config(folder / "metastore.yaml")
    refresh(config, config.table("t"), _no_spark)
    _write(folder / "t", kind, range(1, partitions))
    (commit_tick,) = _ticks(folder, 1)
    assert "follows version 1" in commit_tick.said, commit_tick.said
    _publish(folder, partitions)
    # Version 2 was never reported to Dagster, so these ticks request a run, too. They examine the same data anyway.
    first_tick, quiet_tick = _ticks(folder, 2)
    assert {first_tick.said, quiet_tick.said} == {"version 2 was not reported yet"}, (first_tick.said, quiet_tick.said)
    return commit_tick, first_tick, quiet_tick


def _write(folder: Path, kind: str, days: Any) -> None:
    """Write one commit with a file of one row in each of some partitions, given by their numbers.

    The files of a Delta commit are written only for partition 0. For the other partitions, only the log has them.
    """
    if kind == "delta":
        if days == [0]:
            write_deltalake(str(folder), pa.table({"id": [0], "day": ["000000"]}), partition_by=["day"])
            return
        # deltalake takes minutes for so many partitions, so the commit is written here. A tick does not read the files.
        adds = [
            {"add": {"path": f"day={day:06}/part-00000-{day:032x}-c000.snappy.parquet", "size": 577,
                     "partitionValues": {"day": f"{day:06}"}, "modificationTime": 1700000000000, "dataChange": True,
                     "stats": json.dumps({"numRecords": 1, "minValues": {"id": day}, "maxValues": {"id": day},
                                          "nullCount": {"id": 0}})}}
            for day in days
        ]  # fmt: skip
        commit = {"commitInfo": {"timestamp": round(time.time() * 1000), "operation": "WRITE"}}
        text = "".join(f"{json.dumps(action)}\n" for action in (*adds, commit))
        (folder / "_delta_log" / f"{1:020}.json").write_text(text, encoding="utf-8")
        return
    for day in days:
        part = folder / f"day={day:06}"
        part.mkdir(parents=True)
        if day == 0:
            pq.write_table(pa.table({"id": [0]}), part / "a.parquet")
        else:
            shutil.copyfile(folder / "day=000000" / "a.parquet", part / "a.parquet")


def _publish(folder: Path, partitions: int) -> None:
    """Publish version 2 with all partitions, and with the metadata cache that a plan of the table fills.

    The profile files of the version do not exist.
    """
    config = load_config(folder / "metastore.yaml")
    versions = VersionStore(ObjectStore(config.root), "t")
    base = versions.latest()
    assert base is not None
    memory = MetadataCache()
    table = open_table_format(config.table("t"), memory)
    now = table.current()
    if base.format == "delta":
        table.snapshot()
    entry, fragment = base.partitions[0], base.fragments[0]
    entries = [
        replace(entry, key=f"day={number:06}", content_id=f"{number:032x}", files=_files(number), version=2)
        for number in range(partitions)
    ]
    fragments = [
        replace(fragment, id=f"{number:032x}", partition_key=f"day={number:06}", files=_files(number))
        for number in range(partitions)
    ]
    version = replace(
        base,
        number=2,
        snapshot=now.id,
        committed_at=now.committed_at,
        partitions=entries,
        fragments=fragments,
        metadata_cache=memory.entries,
    )
    versions.publish(version)


def _files(number: int) -> ProfileFiles:
    name = f"partitions/{number:032x}"
    return ProfileFiles(f"{name}.statistics.parquet", f"{name}.histograms.parquet", (f"{name}.frequencies.parquet",))


def _no_spark() -> NoReturn:
    raise AssertionError("the table is small enough for this process")


def _ticks(folder: Path, count: int) -> list[Tick]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.ticks", str(folder), str(count)]
    environment = {**os.environ, "DAGSTER_DISABLE_TELEMETRY": "1"}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
    return [Tick(**json.loads(line)) for line in output.splitlines() if line.startswith(b"{")]


def _tick_here(folder: Path, count: int) -> None:
    with DagsterInstance.ephemeral() as instance:
        definitions = build_metastore_definitions(folder / "metastore.yaml")
        sensor = definitions.resolve_sensor_def("t_commits")
        for _ in range(count):
            Path("/proc/self/clear_refs").write_text("5")  # This resets the peak memory.
            before = _megabytes("VmRSS")
            said: list[str] = []
            with (
                build_sensor_context(instance, sensor_name=sensor.name) as context,
                patch.object(context.log, "info", said.append),
            ):
                start_time, cpu = time.perf_counter(), time.process_time()
                sensor.evaluate_tick(context)
                seconds, cpu = time.perf_counter() - start_time, time.process_time() - cpu
            megabytes = max(_megabytes("VmHWM") - before, 0.1)
            tick = Tick(seconds, cpu, megabytes, said[0])
            print(json.dumps(vars(tick)), flush=True)


def _megabytes(name: str) -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:"))) / 1024


if __name__ == "__main__":
    _tick_here(Path(sys.argv[1]), int(sys.argv[2]))
