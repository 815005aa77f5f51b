"""Tools of the benchmarks: wall time, Spark's task time, CPU time of all processes, temporary roots.

A root is the folder with all stored statistics.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from metastore_assets.config import MetastoreConfig, TableConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def seconds(action: Callable[[], object]) -> float:
    """Return the wall time of one call, in seconds."""
    start_time = time.perf_counter()
    action()
    return time.perf_counter() - start_time


def paired(runs: int, *actions: Callable[[], object]) -> list[list[float]]:
    """Return the wall times of `runs` calls of each action, in seconds.

    The actions run in turns, so that a slow phase of the machine affects all of them.
    """
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(runs):
        for action_times, action in zip(times, actions, strict=True):
            action_times.append(seconds(action))
    return times


def ratio(slower: list[float], faster: list[float]) -> float:
    """Divide each time of `slower` by the time at the same position in `faster`.

    Return the median of these ratios.
    """
    return median(a / b for a, b in zip(slower, faster, strict=True))


@contextmanager
def metastore(
    uri: Path, name: str = "bench", columns: Mapping[str, Any] | None = None
) -> Iterator[tuple[MetastoreConfig, TableConfig]]:
    """Yield a configuration with one table and an empty root, and the table's configuration.

    The root is removed after the block.

    Args:
        uri: The folder of the table.
        name: The name of the table.
        columns: What to store of each column, as in the configuration.
    """
    root = tempfile.mkdtemp(prefix="metastore-bench-")
    try:
        table = TableConfig.model_validate({"name": name, "uri": str(uri), "columns": columns or {}})
        yield MetastoreConfig(root=root, tables=[table]), table
    finally:
        shutil.rmtree(root, ignore_errors=True)


class TaskTime:
    """The run time of Spark's tasks, read from the event log that the session writes to `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def settings(self) -> dict[str, str]:
        """Return Spark settings that make the session write the log."""
        return {"spark.eventLog.enabled": "true", "spark.eventLog.dir": self._folder.as_uri(),
                "spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false"}  # fmt: skip

    def total(self) -> float:
        """Return the seconds of run time of all tasks so far."""
        time.sleep(1.5)  # The listener writes the log after the job.
        total = 0
        for path in self._folder.iterdir():
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    if '"SparkListenerTaskEnd"' in line:
                        total += json.loads(line)["Task Metrics"]["Executor Run Time"]
        return total / 1000


@dataclass(frozen=True)
class Process:
    """A running process, as `/proc` describes it.

    CPU times are in seconds.
    """

    name: str
    parent: int
    started: int
    """When the process started, in clock ticks since the machine started.

    It distinguishes processes that had the same id one after the other.
    """
    cpu: float
    cpu_of_ended: float
    """CPU time of its children that have ended and that it has waited for, and of their children."""


def running_processes() -> dict[int, Process]:
    """Return all processes of this machine by id."""
    per_second = os.sysconf("SC_CLK_TCK")
    processes = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, field_text = path.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # Ended since it was listed.
        fields = field_text.split()
        cpu, cpu_of_ended = (sum(map(int, fields[at : at + 2])) / per_second for at in (11, 13))
        processes[int(path.parent.name)] = Process(name, int(fields[1]), int(fields[19]), cpu, cpu_of_ended)
    return processes


def descends_from(processes: Mapping[int, Process], pid: int, ancestors: Collection[int]) -> bool:
    """Return whether a process is one of `ancestors` or descends from one of them."""
    while pid not in ancestors and pid in processes:
        pid = processes[pid].parent
    return pid in ancestors


class CpuTime:
    """CPU time of this process and of all its descendants, including those that have ended.

    It has three parts: `driver` is this process, `jvm` are processes named `java`, and `workers` all others.
    """

    def __init__(self, excluded_ids: Collection[int] = ()) -> None:
        """Create a meter.

        Args:
            excluded_ids: Ids of child processes that are not counted, and whose descendants are not counted either.
                The processes with these ids must not end during the measurement.
        """
        self._excluded = excluded_ids

    @staticmethod
    def _of_this() -> float:
        """Return the CPU seconds of this process and of its children that have ended."""
        usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(one.ru_utime + one.ru_stime for one in usages)

    def _of_others(self) -> dict[str, float]:
        """Return the CPU seconds of descendants of this process, by `jvm` and `workers`.

        Excluded processes and their descendants do not count.
        """
        total = {"jvm": 0.0, "workers": 0.0}
        processes = running_processes()
        for pid, process in processes.items():
            is_counted = pid != os.getpid() and descends_from(processes, pid, {os.getpid()})
            if is_counted and not descends_from(processes, pid, self._excluded):
                total["jvm" if process.name == "java" else "workers"] += process.cpu + process.cpu_of_ended
        return total

    def of(self, action: Callable[[], object]) -> dict[str, float]:
        """Return the CPU seconds that an action took, for each of the three parts.

        The work of other processes in the second after the action is included.
        """
        times_before = self._of_others()
        driver_before = self._of_this()  # Read last, so that it includes the cost of `_of_others`.
        action()
        time.sleep(1.0)
        driver = self._of_this() - driver_before
        return {"driver": driver} | {
            kind: cpu_time - times_before[kind] for kind, cpu_time in self._of_others().items()
        }


def stop(spark: SparkSession) -> None:
    """End the session and its JVM, so that the next one may have other settings."""
    from pyspark import SparkContext

    spark.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        SparkContext._gateway = None
        SparkContext._jvm = None
