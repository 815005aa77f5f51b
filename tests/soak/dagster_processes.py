"""Dagster's daemon and code server as processes that can be killed, with a Spark Connect server."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from dagster import DagsterInstance, DagsterRunStatus

from tests.conftest import REPOSITORY

_SETTINGS = """telemetry: {enabled: false}
concurrency:
  pools: {granularity: run, default_limit: 1}
  runs: {tag_concurrency_limits: [{key: metastore/table, limit: 2}]}
run_monitoring: {enabled: true, poll_interval_seconds: 5}
"""


@dataclass
class DagsterProcesses:
    """The processes of one Dagster instance, for a folder with a `metastore.yaml`."""

    folder: Path
    port: int = 0
    daemon: subprocess.Popen[bytes] | None = None
    code: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        """Start the code server, which starts a process for each run, and then the daemon.

        The calling process is set to find the same Spark Connect server as the started processes. Fails if the code
        server does not listen within two minutes.
        """
        home = self.folder / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text(_SETTINGS, encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        (self.folder / "workspace.yaml").write_text(
            f"load_from: [{{grpc_server: {{host: 127.0.0.1, port: {self.port}}}}}]\n"
        )
        self.environment = {
            **os.environ,
            "METASTORE_CONFIG": str(self.folder / "metastore.yaml"),
            "DAGSTER_HOME": str(home),
            "SPARK_LOCAL_CONNECT_DISCOVERY": str(self.folder / "server" / "connect-local.json"),
            "PYTHONWARNINGS": "ignore",
        }
        os.environ["SPARK_LOCAL_CONNECT_DISCOVERY"] = self.environment["SPARK_LOCAL_CONNECT_DISCOVERY"]
        arguments = (
            "code-server",
            "start",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-m",
            "metastore_assets.definitions",
        )
        self.code = self._process("dagster", *arguments)
        ends = time.monotonic() + 120
        while not self._listens():
            assert time.monotonic() < ends, "the code server does not start"
            time.sleep(0.5)
        self.start_daemon()

    def start_daemon(self) -> None:
        self.daemon = self._process("dagster-daemon", "run", "-w", str(self.folder / "workspace.yaml"))

    def kill_daemon(self) -> None:
        """Kill the daemon and start another one, as if its machine failed and another one took over."""
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait()
        self.start_daemon()

    def kill_run(self, instance: DagsterInstance) -> bool:
        """Kill the process of a run that has started.

        Return whether there was one.
        """
        for run in instance.get_runs():
            if run.status == DagsterRunStatus.STARTED:
                text = " ".join(entry.message for entry in instance.all_logs(run.run_id))
                result = re.findall(r"\(pid: (\d+)\)", text)
                if result:
                    _kill(int(result[-1]))
                    return True
        return False

    def kill_spark(self) -> bool:
        pid = self.spark()
        if pid is not None:
            _kill(pid)
        return pid is not None

    def spark(self) -> int | None:
        """Return the process id of the Spark Connect server; None if it does not run."""
        from metastore_assets.spark.local_server import find_server

        result = find_server()
        return result.pid if result else None

    def megabytes(self) -> dict[str, float]:
        """Return the memory in megabytes of the daemon, the code server, Spark, and its Python workers.

        If Spark does not run, it and its workers are left out.
        """
        assert self.daemon is not None
        assert self.code is not None
        spark = self.spark()
        result = {"daemon": _tree({self.daemon.pid}), "code server": _tree({self.code.pid})}
        if spark is not None:
            result |= {"spark": _resident(spark), "workers of spark": _tree({spark}) - _resident(spark)}
        return result

    def stop(self) -> None:
        for process in (self.daemon, self.code):
            if process is not None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        from metastore_assets.spark.local_server import stop_server

        stop_server()

    def _process(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [Path(sysconfig.get_path("scripts")) / program, *arguments]
        with (self.folder / f"{program}.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=REPOSITORY, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def _listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _resident(pid: int) -> float:
    """Return the memory of a process in megabytes.

    Memory that several processes share is divided between them. An ended process has 0.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0.0
    result = re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)
    return int(result[1]) / 1024 if result else 0.0


def _tree(roots: Collection[int]) -> float:
    """Return the memory in megabytes of some processes and all their descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8")
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    members = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= more
    return sum(_resident(pid) for pid in members)
