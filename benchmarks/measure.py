"""Shared measuring: a refresh in a root of its own, and the task time that Spark itself records."""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from metastore_assets.config import MetastoreConfig, TableConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def paired(runs: int, *actions: Callable[[], object]) -> list[list[float]]:
    """Times of each action, taken in turns so that a slower phase of the machine hits all of them."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(runs):
        for own, action in zip(times, actions, strict=True):
            own.append(seconds(action))
    return times


def ratio(slower: list[float], faster: list[float]) -> float:
    """Median of the pairwise ratios."""
    return median(a / b for a, b in zip(slower, faster, strict=True))


@contextmanager
def metastore(
    uri: Path, name: str = "bench", columns: Mapping[str, Any] | None = None
) -> Iterator[tuple[MetastoreConfig, TableConfig]]:
    """A configuration with one table, whose columns have policies, and an empty root, removed afterwards."""
    root = tempfile.mkdtemp(prefix="metastore-bench-")
    try:
        table = TableConfig.model_validate({"name": name, "uri": str(uri), "columns": columns or {}})
        yield MetastoreConfig(root=root, tables=[table]), table
    finally:
        shutil.rmtree(root, ignore_errors=True)


class TaskTime:
    """Sums of executor run time, from the event log that the session writes to `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def settings(self) -> dict[str, str]:
        """Spark settings that make the session write the log."""
        return {"spark.eventLog.enabled": "true", "spark.eventLog.dir": self._folder.as_uri(),
                "spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false"}  # fmt: skip

    def total(self) -> float:
        """Seconds of task run time so far."""
        time.sleep(1.5)  # The listener writes behind the job.
        total = 0
        for path in self._folder.iterdir():
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    if '"SparkListenerTaskEnd"' in line:
                        total += json.loads(line)["Task Metrics"]["Executor Run Time"]
        return total / 1000


class CpuTime:
    """CPU seconds of this process and all below it, those that have ended included: `driver`, `jvm`, `workers`."""

    def __init__(self) -> None:
        self._ticks = os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _of_this() -> float:
        """A process that has ended counts as what waited for it."""
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(one.ru_utime + one.ru_stime for one in used)

    def _of_others(self) -> dict[str, float]:
        parents, used, names = {}, {}, {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal():
                continue
            try:
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue  # Ended since it was listed.
            fields = rest.split()
            pid = int(folder.name)
            names[pid], parents[pid] = name, int(fields[1])
            used[pid] = sum(map(int, fields[11:15])) / self._ticks
        total = {"jvm": 0.0, "workers": 0.0}
        for pid, seconds in used.items():
            line = [pid]
            while line[-1] in parents and line[-1] != os.getpid():
                line.append(parents[line[-1]])
            if line[-1] == os.getpid() and pid != os.getpid():
                total["jvm" if names[pid] == "java" else "workers"] += seconds
        return total

    def of(self, action: Callable[[], object]) -> dict[str, float]:
        """What an action uses, and what it leaves others to do within a second."""
        others, own = self._of_others(), self._of_this()  # in this order: to look at the others is not the action's
        action()
        time.sleep(1.0)
        driver = self._of_this() - own
        return {"driver": driver} | {kind: used - others[kind] for kind, used in self._of_others().items()}


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
