"""A Spark server starts even if another process takes its port just before the start."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.connect.local_server import ServerLauncher

from metastore_assets.errors import MetastoreError
from metastore_assets.spark import local_server as server
from metastore_assets.spark.local_channel import is_listening

pytestmark = pytest.mark.spark
LEFT_BY_PYSPARK = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_CONNECT_AUTHENTICATE_TOKEN", "SPARK_LOCAL_CONNECT_DISCOVERY")


@pytest.fixture
def discovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in LEFT_BY_PYSPARK:
        monkeypatch.delenv(name, raising=False)
    result = tmp_path / "connect-local.json"
    monkeypatch.setenv("SPARK_LOCAL_CONNECT_DISCOVERY", str(result))
    yield result
    server.stop_server()
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)


class TakenPorts:
    """A model of another process that takes the ports of the first `times` servers before they start.

    With `listens`, the other process accepts connections. `ports` are the taken ports.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sockets: ExitStack, times: int, *, listens: bool) -> None:
        self.ports: list[int] = []
        run_script = ServerLauncher._run_script

        def first_taken(launcher: Any, port: int, *script_arguments: Any) -> None:
            if len(self.ports) < times:
                other = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                other.bind(("127.0.0.1", port))
                if listens:
                    other.listen()
                self.ports.append(port)
            run_script(launcher, port, *script_arguments)

        monkeypatch.setattr(ServerLauncher, "_run_script", first_taken)


@pytest.mark.parametrize("listens", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_server_that_loses_its_port_starts_on_another(
    discovery: Path, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    """If another process takes the server's port, the server starts on another port.

    Later, `find_server` finds this server. `listens` is whether the process that took the first port accepts
    connections, as the server itself would.
    """
    with ExitStack() as sockets:
        taken_ports = TakenPorts(monkeypatch, sockets, 1, listens=listens)
        result = server.start_local_server("local[1]", {"spark.driver.memory": "512m"})
        assert len(taken_ports.ports) == 1
        assert result.port not in taken_ports.ports
        assert is_listening(result.pid, result.port)
        again = server.find_server()
        assert again is not None
        assert (again.pid, again.port) == (result.pid, result.port)


@pytest.mark.long
def test_a_server_that_never_gets_a_port_is_not_announced(discovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as sockets:
        taken_ports = TakenPorts(monkeypatch, sockets, 99, listens=True)
        with pytest.raises(MetastoreError, match=r"\b3 times"):
            server.start_local_server("local[1]", {"spark.driver.memory": "512m"})
        assert len(set(taken_ports.ports)) == 3
        assert server.find_server() is None
