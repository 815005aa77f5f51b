"""A standalone Spark cluster on the loopback address, whose workers can be killed.

It is started from PySpark's wheel.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

HOME = Path(pyspark.__file__).parent


def _start(log: Path, kind: str, *arguments: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as sink:
        return subprocess.Popen(
            [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *arguments],
            env=environment,
            cwd=log.parent,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )


@dataclass
class Cluster:
    """A cluster of one master and several workers.

    `workers` contains the workers that were not killed.
    """

    folder: Path
    environment: dict[str, str]
    master: subprocess.Popen[bytes]
    url: str = ""
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start_worker(self) -> str:
        """Start one more worker, which runs one task at a time.

        Return its name.
        """
        name = f"worker-{len(list(self.folder.glob('worker-*.log')))}"
        arguments = ("--cores", "1", "--memory", "600m", "--webui-port", "0", "--work-dir", str(self.folder / name))
        self.workers[name] = _start(
            self.folder / f"{name}.log", "worker.Worker", *arguments, self.url, environment=self.environment
        )
        _wait_for(self.folder / f"{name}.log", "Successfully registered")
        return name

    def worker_of(self, process: int) -> str | None:
        """Return the name of the worker that started a process, directly or indirectly.

        Return None if no worker did.
        """
        by_pid = {worker.pid: name for name, worker in self.workers.items()}
        while process > 1:
            if process in by_pid:
                return by_pid[process]
            try:
                process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                return None
        return None

    def kill(self, name: str) -> None:
        """Kill a worker, its executors and their Python processes, as if its machine lost power."""
        worker = self.workers.pop(name)
        descendants = [pid for pid in _processes() if _descends(pid, worker.pid)]
        for pid in [*descendants, worker.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        worker.wait()


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _descends(process: int, ancestor: int) -> bool:
    while process > 1:
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return False
        if process == ancestor:
            return True
    return False


def _wait_for(log: Path, words: str) -> str:
    ends = time.monotonic() + 120
    while time.monotonic() < ends:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if words in line:
                return line
        time.sleep(0.2)
    raise TimeoutError(f"no {words!r} in {log}: {log.read_text(errors='replace')[-2000:]}")


@contextmanager
def standalone_cluster(folder: Path, environment: dict[str, str]) -> Iterator[Cluster]:
    """Start a master and two workers for the block.

    `environment` has additional environment variables for all of them.
    """
    folder.mkdir()
    (folder / "conf").mkdir()
    (folder / "conf" / "log4j2.properties").write_text("rootLogger.level = info\n")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "SPARK_"))}
    # Each is told to use the loopback address; the workers' own Python does not find this repository.
    variables |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_MASTER_HOST": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    variables |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_HOME": str(HOME), **environment}
    log = folder / "master.log"
    master = _start(log, "master.Master", "--port", "0", "--webui-port", "0", environment=variables)
    cluster = Cluster(folder, variables, master)
    try:
        cluster.url = "spark://" + _wait_for(log, "Starting Spark master at").rpartition("spark://")[2].strip()
        for _ in range(2):
            cluster.start_worker()
        yield cluster
    finally:
        for name in list(cluster.workers):
            cluster.kill(name)
        master.kill()
        master.wait()
