"""One process of the benchmark `scale`: builds a table and its first version, or measures commits.

    python -m benchmarks.scale_run FOLDER build FORMAT COUNT
    python -m benchmarks.scale_run FOLDER commit KIND
    python -m benchmarks.scale_run FOLDER commits NUMBER
    python -m benchmarks.scale_run FOLDER growth SMALLER NUMBER
COUNT is the number of files, KIND the name of a kind of commit (a key of `scale_tables.COMMITS`), and NUMBER how many
commits of one file are made.
`growth` commits by turns to the table in the folder SMALLER and to the one in FOLDER, so that other work on the machine
affects both.
`METASTORE_BENCH_PROFILE=PROFILES` writes the data of cProfile for each step into the folder PROFILES, for `pstats`.
A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import cProfile
import gc
import json
import os
import random
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from benchmarks.measure import CpuTime
from benchmarks.scale_inflation import inflate
from benchmarks.scale_profiles import SyntheticProfiles, policies
from benchmarks.scale_requests import ROOT, Requests
from benchmarks.scale_tables import COLUMNS, TABLES, SyntheticTable
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.formats.metadata_cache import clear_process_cache
from metastore_assets.pipeline import execution, refresh
from metastore_assets.resources.configuration import Configuration
from metastore_assets.sensors.table_probe import TableProbe
from metastore_assets.store import objects
from metastore_assets.store.versions import versions_of

_WARM_UP = 200
"""Files of the table that is refreshed first, so that imports are not measured."""
_KEPT_VERSIONS = 100
MAX_REFRESHED = 100_000
"""Files of the largest table whose first version a refresh of all files publishes."""


def build(folder: Path, kind: str, count: int) -> dict[str, float]:
    """Write a table and publish its first version.

    Args:
        folder: An empty folder for the table, its statistics, and the saved `SyntheticTable`.
        kind: The table's format.
        count: The number of files.

    Returns:
        The seconds of each step, and the memory of this process in megabytes.
    """
    start_time = time.perf_counter()
    table = TABLES[kind](folder / "table", count)
    # The ids of plain files are digests of their paths, so their entries cannot be copied.
    is_inflated = count > MAX_REFRESHED and kind != "files"
    table.create(complete=not is_inflated)
    publish_start = time.perf_counter()
    write_time = publish_start - start_time
    profiles = SyntheticProfiles(is_first_version=True)
    with Requests(folder).installed(), profiles.installed(), table.installed():
        config, configured_table = _config(folder, table)
        refresh.refresh(config, configured_table, _no_spark)
        if is_inflated:
            completion_start = time.perf_counter()
            table.complete()
            completion_time = time.perf_counter() - completion_start
            write_time += completion_time
            publish_start += completion_time
            inflate(versions_of(config, configured_table.name), table, profiles)
    table.save(folder / "state")
    return {"write": write_time, "publish": time.perf_counter() - publish_start, **_memory()}


def measure(folder: Path, kind: str) -> dict[str, float]:
    """Commit to a table that `build` wrote, and measure a sensor tick and the refresh.

    Args:
        folder: The folder given to `build`.
        kind: The name of a kind of commit, a key of `COMMITS`.

    Returns:
        The costs of each step, such as `plan cpu`, and what the refresh counted, such as `added`.
    """
    table = SyntheticTable.load(folder / "state")
    requests, profiles = Requests(folder), SyntheticProfiles()
    with requests.installed(), profiles.installed(), table.installed():
        _warm_up(folder / "warm-up", table.format)
        config, configured_table = _config(folder, table)
        probe = TableProbe(Configuration.of(config), configured_table.name)
        probe.probe(lambda what: None)
        table.commit(kind)
        table.save(folder / "state")
        steps = _Steps(requests)
        with steps.measured("tick"):
            assert probe.probe(lambda what: None).current is not None
        objects._backend.cache_clear()
        clear_process_cache()
        del probe
        profiles.reads.clear()
        with steps.measured_refresh():
            result = refresh.refresh(config, configured_table, _no_spark)
    assert result.published, result
    return {
        **steps.numbers,
        "added": result.fragments_added,
        "removed": result.fragments_removed,
        "unchanged": result.fragments_unchanged,
        "partitions": len(result.partitions_changed),
        "profiles": sum(profiles.reads.values()),
    }


def measure_many(folders: Sequence[Path], number: int, seed: int = 0) -> list[list[dict[str, float]]]:
    """Add a file to a random partition and refresh, many times, by turns in several tables.

    Args:
        folders: The folders of tables that `build` wrote.
        number: Number of commits to each table.
        seed: Seed of the random partitions.

    Returns:
        For each table, the measurements of each refresh.
    """
    tables, draw = [SyntheticTable.load(folder / "state") for folder in folders], random.Random(seed)
    measurements: list[list[dict[str, float]]] = [[] for _ in folders]
    for _ in range(number):
        for folder, table, measurements_of_table in zip(folders, tables, measurements, strict=True):
            table.folder = folder / "table"  # The folder may be a copy.
            # The fragments of copied partitions have other ids than the files in the table's metadata.
            days = sorted(table.touched) if table.count > MAX_REFRESHED else range(table.partitions)
            requests = Requests(folder)
            with requests.installed(), SyntheticProfiles().installed(), table.installed():
                config, configured_table = _config(folder, table)
                table.append([draw.choice(days)])
                objects._backend.cache_clear()
                clear_process_cache()
                steps = _Steps(requests)
                with steps.measured_refresh():
                    result = refresh.refresh(config, configured_table, _no_spark)
            assert result.published, result
            measurements_of_table.append(total_costs(steps.numbers))
            table.save(folder / "state")
    return measurements


def total_costs(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the costs of a measured refresh, planning and publication together.

    They are CPU seconds with those of child processes, requests, bytes, and the peak of this process's memory.
    """
    totals = {
        "cpu": ("cpu",),
        "requests": ("root requests", "table requests"),
        "read": ("root read",),
        "written": ("written",),
    }
    costs = {
        name: sum(numbers[f"{step} {part}"] for step in ("plan", "publish") for part in parts)
        for name, parts in totals.items()
    }
    return {
        **costs,
        "cpu": costs["cpu"] + numbers["children"],
        "children": numbers["children"],
        "memory": numbers["memory"],
    }


def _print_distribution(measurements: Sequence[Mapping[str, float]]) -> None:
    """Print the median, the 99th percentile and the maximum of each cost."""
    for name in measurements[0]:
        values = sorted(numbers[name] for numbers in measurements)
        median, high = (values[min(len(values) - 1, int(share * len(values)))] for share in (0.5, 0.99))
        print(f"{name}: median {median:,.3f}, 99th percentile {high:,.3f}, maximum {values[-1]:,.3f}")


def _config(folder: Path, table: SyntheticTable) -> tuple[MetastoreConfig, TableConfig]:
    fields = {"name": "t", "uri": str(table.folder), "format": table.format, "columns": policies(COLUMNS)}
    config = MetastoreConfig.model_validate(
        {"root": ROOT, "engine": "auto", "keep_versions": _KEPT_VERSIONS, "tables": [fields]}
    )
    return config, config.table("t")


def _warm_up(folder: Path, kind: str) -> None:
    """Refresh a small table, so that everything is imported and child processes run."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    table = TABLES[kind](folder / "table", _WARM_UP)
    table.create()
    with Requests(folder).installed():
        for _ in range(2):
            refresh.refresh(*_config(folder, table), _no_spark)
            table.append([1])


@dataclass
class _Steps:
    """The measurements of the steps after a commit: `tick`, `plan` and `publish`."""

    requests: Requests
    numbers: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measured(self, step: str) -> Iterator[None]:
        """Measure CPU seconds, seconds, requests and bytes of a block.

        They are added to `numbers`, under names that begin with the step's name, such as `plan cpu`.
        """
        gc.collect()  # A full collection of what was imported takes 0.15 s, and would hit some blocks at random.
        self.requests.reset()
        cpu, start_time = time.process_time(), time.perf_counter()
        with _profiled(step):
            yield
        step_costs = {
            "cpu": time.process_time() - cpu,
            "seconds": time.perf_counter() - start_time,
            **self.requests.counts(),
        }
        self.numbers |= {f"{step} {name}": number for name, number in step_costs.items()}

    @contextmanager
    def measured_refresh(self) -> Iterator[None]:
        """Measure a refresh in two steps, `plan` and `publish`.

        `plan` ends when the execution of the plan starts; `publish` is the rest.
        """
        execute = execution.execute
        plan = self.measured("plan")
        publish = self.measured("publish")

        def execute_measured(*arguments: Any) -> Any:
            plan.__exit__(None, None, None)
            with publish:
                return execute(*arguments)

        Path("/proc/self/clear_refs").write_text("5")  # Resets the peak of the process's memory.
        before = _memory()["resident"]
        children = _children_cpu()
        with patch.object(refresh, "execute", execute_measured):
            plan.__enter__()
            yield
        self.numbers |= {"children": _children_cpu() - children, "before": before, "memory": _memory()["peak"]}


def _children_cpu() -> float:
    """Return the CPU seconds of all child processes, both those that have ended and those that run."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime + CpuTime()._of_others()["workers"]


def _memory() -> dict[str, float]:
    """Return the resident memory of this process and its peak, in megabytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    numbers = {line.split(":")[0]: line.split()[1] for line in status if line.startswith(("VmHWM", "VmRSS"))}
    return {"resident": int(numbers["VmRSS"]) / 1024, "peak": int(numbers["VmHWM"]) / 1024}


@contextmanager
def _profiled(step: str) -> Iterator[None]:
    folder = os.environ.get("METASTORE_BENCH_PROFILE")
    if not folder:
        yield
        return
    profile = cProfile.Profile(time.process_time)
    with profile:
        yield
    profile.dump_stats(f"{folder}/{step}.{time.time_ns()}.stats")


def _no_spark() -> NoReturn:
    raise AssertionError("no step of the benchmark needs Spark")


if __name__ == "__main__":
    folder, command, *arguments = sys.argv[1:]
    if command == "build":
        gc.disable()  # Most objects live until the version is published.
    if command in ("commits", "growth"):
        *other_folders, number = arguments
        measurements = measure_many([*map(Path, other_folders), Path(folder)], int(number))
        Path(folder, f"{command}.json").write_text(json.dumps(measurements))
        for measurements_of_table in measurements:
            _print_distribution(measurements_of_table)
        if command == "growth":
            ratios = [large["cpu"] / small["cpu"] for small, large in zip(*measurements, strict=True)]
            print(f"growth of CPU: median {statistics.median(ratios):.2f}")
        sys.exit()
    numbers = (
        build(Path(folder), arguments[0], int(arguments[1]))
        if command == "build"
        else measure(Path(folder), arguments[0])
    )
    print(json.dumps(numbers))
