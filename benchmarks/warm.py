"""Seconds of each step from a commit to its version in Dagster's UI, with three ways to run Spark.

`dagster dev` runs with sensor, queue and webserver. After a commit to a small Delta table, the webserver is queried ten
times a second until it shows the new version. The ways are `cold` (each run starts Spark), `remote` (a running Spark
server) and `auto` (no Spark). Environment variables:

- `METASTORE_BENCH_WARM`: the ways to measure, by default `cold,remote,auto`.
- `METASTORE_BENCH_COMMITS`: the number of commits of each way, by default 3. The result is their median.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.request import Request, urlopen

import pyarrow as pa
from dagster import DagsterEventType, DagsterInstance
from deltalake import write_deltalake

from benchmarks.report import Row

GOALS = {"cold": 10.0, "remote": 5.0, "auto": 5.0}
"""The most seconds from the start of the run to the version in the UI, by way."""
_SETTINGS = {"cold": "", "remote": 'spark: {spark.remote: "local[*]"}', "auto": "engine: auto"}
_REPOSITORY = Path(__file__).parents[1]
_QUERY = """{ assetOrError(assetKey: {path: ["sales", "sales_statistics"]}) { ... on Asset {
  assetMaterializations(limit: 1) {
  metadataEntries { label ... on TextMetadataEntry { text } ... on IntMetadataEntry { intRepr } } } } } }"""
_STEPS = {
    "launched": "in the queue",
    "started": "a process, Dagster, and the definitions",
    "step": "Dagster's start of the step",
    "plan": "loading the configuration, and deciding what to do",
    "profile": "finding the changes, and a session of Spark",
    "reduce": "reading the new rows",
    "publish": "merging, and value counts",
    "version": "writing the version",
    "displayed": "reporting to Dagster",
}
"""By moment, in order of time: the work that ends at this moment, as text for the output."""


def run() -> list[Row]:
    """Compare the median of each way with its goal."""
    ways = os.environ.get("METASTORE_BENCH_WARM", "cold,remote,auto").split(",")
    commits = int(os.environ.get("METASTORE_BENCH_COMMITS", "3"))
    measurements = {way: _measure(way, commits) for way in ways}
    print(f"{'seconds':<48}" + "".join(f"{way:>10}" for way in ways))
    for step, what in _STEPS.items():
        print(f"{what:<48}" + "".join(f"{_median(measurements[way], step):>10.1f}" for way in ways))
    rows = []
    for way in ways:
        totals = [sum(seconds for step, seconds in one.items() if step != "launched") for one in measurements[way]]
        print(f"{way}: from the run's start {', '.join(f'{total:.1f}' for total in totals)}")
        share = GOALS[way] / statistics.median(totals)
        rows.append(Row(f"run's start to the UI, {way} (s)", totals, [GOALS[way]], share, 1.0))
    return rows


def _median(commits: list[dict[str, float]], step: str) -> float:
    return statistics.median(one.get(step, 0.0) for one in commits)


def _measure(way: str, commits: int) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="metastore-bench-") as name:
        folder = Path(name)
        table = "tables: [{name: sales, uri: ./sales, sensor: {interval: 2}}]"
        (folder / "metastore.yaml").write_text(f"root: ./metastore\n{_SETTINGS[way]}\n{table}\n")
        (folder / "home").mkdir()
        settings = (_REPOSITORY / "dagster.yaml").read_text()
        (folder / "home" / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\n{settings}")
        _commit(folder, 0)
        with _dagster(folder) as port, DagsterInstance.from_config(str(folder / "home")) as instance:
            _await_version(port, 1)
            # The first commit only fills caches of the operating system, and is not in the result.
            times = [_once(folder, instance, port, number) for number in range(2, commits + 3)]
        return times[1:]


def _once(folder: Path, instance: DagsterInstance, port: int, version: int) -> dict[str, float]:
    """Commit once.

    Return the seconds of each step from the creation of the run to the version on Dagster's page.

    Args:
        folder: The folder of the table.
        instance: The Dagster instance of the run.
        port: The port of the webserver.
        version: The number of the version that the commit causes.
    """
    _await_quiet(instance)
    committed_at = _commit(folder, version)
    displayed_at = _await_version(port, version)
    (record, *_) = instance.get_run_records(limit=1)
    run_id = record.dagster_run.run_id
    at = {"committed": committed_at, "displayed": displayed_at, "created": record.create_timestamp.timestamp()}
    for event in instance.all_logs(run_id):
        kind = event.dagster_event.event_type if event.dagster_event else None
        if kind == DagsterEventType.PIPELINE_STARTING:
            at["launched"] = event.timestamp
        elif kind == DagsterEventType.PIPELINE_START:
            at["started"] = event.timestamp
        elif kind == DagsterEventType.STEP_START:
            at["step"] = event.timestamp
        elif kind is None:
            stage = event.message.partition(":")[0].split()[0]
            at.setdefault(stage, event.timestamp)
    reached_steps = [name for name in ("committed", "created", *_STEPS) if name in at]
    print("  ".join(f"{name} {at[name] - committed_at:.1f}" for name in reached_steps))
    return {step: at[step] - at[before] for before, step in pairwise(reached_steps[1:])}


def _commit(folder: Path, number: int) -> float:
    """Append random rows to the table.

    Return the Unix time after the commit, in seconds.

    Commit 0 has 10,000 rows in five partitions. Each later commit has 500 rows in one partition.
    """
    draw = random.Random(number)
    count = 10_000 if number == 0 else 500
    rows = pa.table(
        {
            "day": [f"2024-01-{draw.randrange(1, 6) if number == 0 else 1 + number % 5:02}" for _ in range(count)],
            "amount": [round(draw.lognormvariate(3, 1), 2) for _ in range(count)],
            "shop": [draw.choice(["Lyon", "Oslo", "Rome"]) for _ in range(count)],
        }
    )
    write_deltalake(str(folder / "sales"), rows, mode="append", partition_by=["day"])
    return time.time()


@contextmanager
def _dagster(folder: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    environment = {
        **os.environ,
        "METASTORE_CONFIG": str(folder / "metastore.yaml"),
        "DAGSTER_HOME": str(folder / "home"),
        "SPARK_LOCAL_CONNECT_DISCOVERY": str(folder / "server" / "connect-local.json"),
        "PYTHONWARNINGS": "ignore",
    }
    command = [f"{sysconfig.get_path('scripts')}/dagster", "dev", "-w", "workspace.yaml", "-p", str(port)]
    with (folder / "dagster.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=_REPOSITORY, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield port
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
            server = [sys.executable, "-m", "metastore_assets", "spark-server", "stop"]
            subprocess.run(server, env=environment, stdout=subprocess.DEVNULL, check=True)


def _await_version(port: int, version: int) -> float:
    """Wait until the webserver shows the version.

    Return the Unix time of that moment, in seconds.

    Raises:
        TimeoutError: If the webserver does not show the version within ten minutes.
    """
    ends = time.monotonic() + 600
    while time.monotonic() < ends:
        if _read_port(port) == version:
            return time.time()
        time.sleep(0.1)
    raise TimeoutError(f"version {version} is not displayed")


def _read_port(port: int) -> int | None:
    """Return the newest version that Dagster's page shows; None if there is none, or no answer."""
    request = Request(
        f"http://127.0.0.1:{port}/graphql", json.dumps({"query": _QUERY}).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urlopen(request, timeout=10) as answer:
            materializations = json.load(answer)["data"]["assetOrError"].get("assetMaterializations")
    except OSError:
        return None
    entries = {entry["label"]: entry for entry in materializations[0]["metadataEntries"]} if materializations else {}
    version = entries.get("version", {})
    return int(version.get("text") or version["intRepr"]) if version else None


def _await_quiet(instance: DagsterInstance) -> None:
    while any(not run.is_finished for run in instance.get_runs(limit=5)):
        time.sleep(0.2)
