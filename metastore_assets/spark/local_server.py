"""The Spark Connect server of this user on this machine: it stays warm between runs.

PySpark starts it, finds it again and stops it; here is which settings it gets, and where it is looked for.
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
"""The address that the server listens on: PySpark lets it have no other."""
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_DISCOVERY = "SPARK_LOCAL_CONNECT_DISCOVERY"
_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_ENDING_SECONDS = 15.0
_ATTEMPTS = 3
_IN_USE = b"java.net.BindException"
"""What the JVM of a server says whose port another process has."""
_SETTINGS = {
    # Sessions are shared by runs, and stay.
    "spark.connect.session.manager.defaultSessionTimeout": "-1",
    # What a client began that was killed ends soon after it: as soon as it has not come back for the rest of a stream.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "20s",
    "spark.connect.execute.manager.detachedTimeout": "20s",
    "spark.connect.execute.manager.maintenanceInterval": "10s",
}


@dataclass(frozen=True)
class RunningServer:
    """A server that listens."""

    url: str
    """As other clients of Spark Connect on this machine take it."""
    port: int
    pid: int
    log: str
    """The folder with what it writes."""
    token: str = field(repr=False)


def local_server(master: str, settings: Mapping[str, str]) -> RunningServer:
    """The server that runs, or a new one of `local[…]`, with `settings` (Spark's own names) over the Metastore's.

    Whoever starts it decides about settings, environment (PYTHONPATH, credentials) and current folder of all that it
    runs until it is stopped. It listens on the loopback address, and wants a token that only this user can read.

    A new server is known to other processes only once it holds its port: PySpark chooses a free port before the server
    binds it, so another process may take it in between. Then the server starts again, on another port.

    Raises MetastoreError when there is no Java, it does not start, or another process has its port.
    """
    _require_local_server()
    from pyspark.sql.connect.local_server import Discovery, LocalConnectServer

    from metastore_assets.spark.local_channel import foreign_socket_message, is_listening

    _look_in_cache()
    # The workers must be this Python, with these packages, not whichever `python3` comes first on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Other processes wait for the lock that this holds, so they see no server that has no port yet.
    with Discovery() as discovery:
        server = LocalConnectServer(discovery)
        is_there = _is_there(server)
        for _ in range(_ATTEMPTS):
            if not is_there and not _started(server, discovery.directory, master, settings):
                server = LocalConnectServer(discovery)
                continue
            found = _running(server, discovery.directory)
            if is_listening(found.pid, found.port):
                return found
            if is_there:
                raise MetastoreError(
                    f"{foreign_socket_message(found.pid, found.port)}: end the process that listens there, then "
                    "`metastore spark-server stop`, and try again"
                )
            server.stop()
            _wait_for_end(found.pid)
            server = LocalConnectServer(discovery)
    raise MetastoreError(
        f"the Spark Connect server of this machine did not start: other processes took its port {_ATTEMPTS} times "
        "before the server could; try again"
    )


def _started(server: LocalConnectServer, folder: str, master: str, settings: Mapping[str, str]) -> bool:
    """Start the server. Returns False where it ended since another process has its port. Raises MetastoreError."""
    from pyspark.errors import PySparkException

    options = " ".join([local_jvm_options(), settings.get(_JVM_OPTIONS, "")]).strip()
    chosen = {**LOCAL_SETTINGS, **_SETTINGS, **settings, _JVM_OPTIONS: options}
    begun = time.time()
    # PySpark gives it the master and the port itself.
    try:
        with safe_import_path(), _token_stays():
            server.reuse_or_start(master, dict(chosen))
    except (PySparkException, OSError) as error:
        if _port_was_taken(folder, begun):
            return False
        raise MetastoreError(
            f"the Spark Connect server of this machine did not start: {error}; what it wrote is in "
            f"{_log(folder)}, and `metastore spark-server stop` ends one that is in the way"
        ) from error
    return True


def _port_was_taken(folder: str, since: float) -> bool:
    """Whether a server that started then says in its log that its port is in use."""
    for log in Path(_log(folder)).glob("*.out"):
        with suppress(OSError):
            if log.stat().st_mtime >= since and _IN_USE in log.read_bytes():
                return True
    return False


def _wait_for_end(pid: int) -> None:
    patience = time.monotonic() + _ENDING_SECONDS
    while _runs(pid) and time.monotonic() < patience:
        time.sleep(0.2)


def find_server() -> RunningServer | None:
    """The server that runs; None where there is none, or none that this version of Spark can use."""
    _require_local_server()
    from pyspark.sql.connect.local_server import Discovery, LocalConnectServer

    _look_in_cache()
    with Discovery() as discovery:
        server = LocalConnectServer(discovery)
        return _running(server, discovery.directory) if server.is_reusable() else None


def stop_server() -> bool:
    """Stop it, and all that runs on it. False: there was none. Raises MetastoreError when that cannot be told."""
    _require_local_server()
    from pyspark.sql.connect.local_server import stop_local_connect_server

    _look_in_cache()
    stopped = stop_local_connect_server()
    if stopped is None:
        raise MetastoreError("whether the process of the Spark Connect server is one cannot be told: try again")
    return stopped


def _require_local_server() -> None:
    """Raise ConfigError for PySpark before 4.3, which starts no Spark Connect server of its own."""
    require_pyspark((4, 3), "a warm Spark on this machine (`metastore spark-server`, `spark.remote: local[…]`)")


@contextmanager
def _token_stays() -> Iterator[None]:
    """Take out of the environment the token that PySpark puts there: the next server would get the same."""
    before = os.environ.get(_TOKEN)
    try:
        yield
    finally:
        os.environ.pop(_TOKEN, None)
        if before is not None:
            os.environ[_TOKEN] = before


def _is_there(server: LocalConnectServer) -> bool:
    """Whether it answers. One that has just been stopped or killed is waited for: it is in the way of the next."""
    patience = time.monotonic() + _ENDING_SECONDS
    while not server.is_reusable():
        if server.pid is None or not _runs(server.pid) or time.monotonic() > patience:
            return False
        time.sleep(0.2)
    return True


def _runs(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def _running(server: LocalConnectServer, folder: str) -> RunningServer:
    assert server.pid is not None
    assert server.port is not None
    assert server.token is not None
    remember_secret(server.token, "(the token of the Spark Connect server)")
    return RunningServer(server.url, server.port, server.pid, _log(folder), server.token)


def _log(folder: str) -> str:
    return str(Path(folder) / "logs")


def _look_in_cache() -> None:
    """Each Python environment has a server of its own, for the workers have its packages.

    Where PySpark's variable says which one, it is that; without a cache to write to, it is where PySpark has it.
    """
    if _DISCOVERY in os.environ:
        return
    digest = hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]
    folder = cache_folder() / f"spark-server-{digest}"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        os.environ[_DISCOVERY] = str(folder / "connect-local.json")
