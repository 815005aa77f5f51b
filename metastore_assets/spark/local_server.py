"""The Spark Connect server of this user on this machine, which keeps running after this process ends.

PySpark itself starts, finds and stops such a server, by a discovery file with its address. This module chooses the
server's settings and the folder of the discovery file.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from metastore_assets.errors import MetastoreError
from metastore_assets.messages import remember_secret
from metastore_assets.spark.default_settings import LOCAL_SETTINGS
from metastore_assets.spark.jvm import cache_folder, local_jvm_options
from metastore_assets.spark.pyspark_compat import require_pyspark
from metastore_assets.startup import safe_import_path

if TYPE_CHECKING:
    from pyspark.sql.connect.local_server import LocalConnectServer

HOST = "127.0.0.1"
"""The address on which the server listens."""
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_DISCOVERY = "SPARK_LOCAL_CONNECT_DISCOVERY"
_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_EXIT_SECONDS = 15.0
_ATTEMPTS = 3
_IN_USE = b"java.net.BindException"
"""Text in the log of a server that could not start because another process has its port."""
_SETTINGS = {
    # Runs share sessions, so sessions never time out.
    "spark.connect.session.manager.defaultSessionTimeout": "-1",
    # Jobs of a killed client end soon: when the client does not reattach to its stream of results.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "20s",
    "spark.connect.execute.manager.detachedTimeout": "20s",
    "spark.connect.execute.manager.maintenanceInterval": "10s",
}


@dataclass(frozen=True)
class RunningServer:
    """A running Spark Connect server on this machine."""

    url: str
    """The URL for other clients of Spark Connect on this machine."""
    port: int
    pid: int
    log: str
    """Folder of the server's log files."""
    token: str = field(repr=False)


def start_local_server(master: str, settings: Mapping[str, str]) -> RunningServer:
    """Return the running server, whatever its settings; if there is none, start one.

    A new server has the settings, environment variables and working folder of this process. It listens on the loopback
    address, and requires a token that only this user can read.

    Args:
        master: The master URL, such as `local[*]`.
        settings: Spark settings, which replace the Metastore's defaults.

    Raises:
        ConfigError: PySpark is older than 4.3.
        MetastoreError: There is no Java, the server does not start, or another process has its port.
    """
    _require_local_server()
    from pyspark.sql.connect.local_server import Discovery, LocalConnectServer

    from metastore_assets.spark.local_channel import foreign_socket_message, is_listening

    _set_discovery_file()
    # Workers must run this Python with its packages, rather than the first `python3` on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The block holds a lock: other processes do not see a server that has no port yet.
    with Discovery() as discovery:
        server = LocalConnectServer(discovery)
        is_reusable = _wait_until_reusable(server)
        # PySpark chooses a free port some time before the server binds it, so another process may take the port.
        for _ in range(_ATTEMPTS):
            if not is_reusable and not _start(server, discovery.directory, master, settings):
                server = LocalConnectServer(discovery)
                continue
            running = _running_server(server, discovery.directory)
            if is_listening(running.pid, running.port):
                return running
            if is_reusable:
                raise MetastoreError(
                    f"{foreign_socket_message(running.pid, running.port)}: end the process that listens there, then "
                    "`metastore spark-server stop`, and try again"
                )
            server.stop()
            _wait_for_exit(running.pid)
            server = LocalConnectServer(discovery)
    raise MetastoreError(
        f"the Spark Connect server of this machine did not start: other processes took its port {_ATTEMPTS} times "
        "before the server could; try again"
    )


def _start(server: LocalConnectServer, folder: str, master: str, settings: Mapping[str, str]) -> bool:
    """Start the server and return True; False if another process took its port.

    Raises MetastoreError if the start fails for another reason.
    """
    from pyspark.errors import PySparkException

    options = " ".join([local_jvm_options(), settings.get(_JVM_OPTIONS, "")]).strip()
    merged_settings = {**LOCAL_SETTINGS, **_SETTINGS, **settings, _JVM_OPTIONS: options}
    started_at = time.time()
    # PySpark sets the master and the port.
    try:
        # PySpark sets the token when it starts a server, and the next server must not inherit it.
        with safe_import_path(), _restoring_token():
            server.reuse_or_start(master, dict(merged_settings))
    except (PySparkException, OSError) as error:
        if _port_was_taken(folder, started_at):
            return False
        raise MetastoreError(
            f"the Spark Connect server of this machine did not start: {error}; what it wrote is in "
            f"{_log(folder)}, and `metastore spark-server stop` ends one that is in the way"
        ) from error
    return True


def _port_was_taken(folder: str, since: float) -> bool:
    """Return whether a log of the server reports that its port was in use.

    Args:
        folder: The folder that contains the folder of the logs.
        since: Seconds since 1970. Logs that were last written earlier are ignored.
    """
    for log in Path(_log(folder)).glob("*.out"):
        with suppress(OSError):
            if log.stat().st_mtime >= since and _IN_USE in log.read_bytes():
                return True
    return False


def _wait_for_exit(pid: int) -> None:
    """Wait until a process has ended, for at most 15 seconds."""
    deadline = time.monotonic() + _EXIT_SECONDS
    while _is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.2)


def find_server() -> RunningServer | None:
    """Return the running server; None without one, or if another version of Spark started it."""
    _require_local_server()
    from pyspark.sql.connect.local_server import Discovery, LocalConnectServer

    _set_discovery_file()
    with Discovery() as discovery:
        server = LocalConnectServer(discovery)
        return _running_server(server, discovery.directory) if server.is_reusable() else None


def stop_server() -> bool:
    """Stop the server and all its jobs.

    Return whether a server was running.

    Raises:
        MetastoreError: It is uncertain whether the process in the discovery file is the server.
    """
    _require_local_server()
    from pyspark.sql.connect.local_server import stop_local_connect_server

    _set_discovery_file()
    has_stopped = stop_local_connect_server()
    if has_stopped is None:
        raise MetastoreError(
            "it cannot be determined whether the recorded process is the Spark Connect server: try again"
        )
    return has_stopped


def _require_local_server() -> None:
    """Raise ConfigError for PySpark before 4.3, which has no local Spark Connect server."""
    require_pyspark((4, 3), "a warm Spark on this machine (`metastore spark-server`, `spark.remote: local[…]`)")


@contextmanager
def _restoring_token() -> Iterator[None]:
    """Restore the environment variable with the server's access token after the block."""
    before = os.environ.get(_TOKEN)
    try:
        yield
    finally:
        os.environ.pop(_TOKEN, None)
        if before is not None:
            os.environ[_TOKEN] = before


def _wait_until_reusable(server: LocalConnectServer) -> bool:
    """Wait up to 15 seconds until the server can be used or has ended.

    Return whether it can be used.
    """
    deadline = time.monotonic() + _EXIT_SECONDS
    while not server.is_reusable():
        # A server that is being stopped may take some seconds to end.
        if server.pid is None or not _is_running(server.pid) or time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _is_running(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def _running_server(server: LocalConnectServer, folder: str) -> RunningServer:
    assert server.pid is not None
    assert server.port is not None
    assert server.token is not None
    remember_secret(server.token, "(the token of the Spark Connect server)")
    return RunningServer(server.url, server.port, server.pid, _log(folder), server.token)


def _log(folder: str) -> str:
    return str(Path(folder) / "logs")


def _set_discovery_file() -> None:
    """Set the environment variable with the path of PySpark's discovery file, unless it is set already.

    The path is in the cache folder. The variable stays unset if a folder for the file cannot be created.
    """
    if _DISCOVERY in os.environ:
        return
    # Each Python environment has a separate server, because workers use the environment's packages.
    digest = hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]
    with suppress(OSError, RuntimeError):  # RuntimeError: this user has no home folder.
        folder = cache_folder() / f"spark-server-{digest}"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        os.environ[_DISCOVERY] = str(folder / "connect-local.json")
