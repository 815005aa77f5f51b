"""The token of the local Spark Connect server is sent only to the server's own process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql.connect.session import SparkSession
from pyspark.version import __version__ as spark_version

from metastore_assets.errors import MetastoreError
from metastore_assets.spark.connect import connect_session
from metastore_assets.spark.local_channel import LocalChannel, is_listening
from metastore_assets.spark.local_server import RunningServer, find_server
from metastore_assets.startup import python_command

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED"),
]
TOKEN = "token-of-this-user"
LISTENER = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc

class Listener(grpc.GenericRpcHandler):
    def service(self, details):
        with open(sys.argv[2], "a") as heard:
            heard.write(f"{details.method} {dict(details.invocation_metadata)}\\n")
        return None

server = grpc.server(ThreadPoolExecutor(2), handlers=[Listener()])
print(server.add_secure_port(sys.argv[1], grpc.local_server_credentials()), flush=True)
server.start()
sys.stdin.read()
"""


@contextmanager
def listener(address: str, received_path: Path) -> Iterator[tuple[int, int]]:
    """Run a process that speaks gRPC at an address, and records all calls in a file.

    Yields its process id and its port.
    """
    command = python_command("-c", LISTENER, address, str(received_path))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.kill()


@pytest.fixture
def write_discovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """A function that makes PySpark take a process, given its id and port, for the local server."""
    for name in ("SPARK_CONNECT_AUTHENTICATE_TOKEN", "SPARK_CONNECT_MODE_ENABLED"):
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)

    def discover(pid: int, port: int) -> None:
        path = tmp_path / "connect-local.json"
        discovery = {"host": "localhost", "port": port, "token": TOKEN, "pid": pid, "spark_version": spark_version}
        path.write_text(json.dumps(discovery))
        monkeypatch.setenv("SPARK_LOCAL_CONNECT_DISCOVERY", str(path))

    return discover


def test_the_server_gets_the_token_by_its_address(tmp_path: Path, write_discovery: Callable[[int, int], None]) -> None:
    """The token is sent to 127.0.0.1, where the server listens.

    `localhost` may be another address of this machine, on which anybody may listen.
    """
    server_folder, other = tmp_path / "own", tmp_path / "other"
    with listener("127.0.0.1:0", server_folder) as (pid, port), listener(f"[::1]:{port}", other):
        write_discovery(pid, port)
        server = find_server()
        assert server is not None
        assert LocalChannel(server, "").endpoint == f"127.0.0.1:{port}"
        with pytest.raises(MetastoreError, match=rf"sc://localhost:{port}\b"):
            connect_session("local[1]", {})
    assert TOKEN in server_folder.read_text()
    assert not other.exists()
    assert "SPARK_CONNECT_AUTHENTICATE_TOKEN" not in os.environ
    assert SparkSession.getActiveSession() is None


def test_another_process_on_the_port_gets_nothing(tmp_path: Path, write_discovery: Callable[[int, int], None]) -> None:
    with listener("127.0.0.1:0", tmp_path / "heard") as (_, port), subprocess.Popen(["sleep", "60"]) as server:
        write_discovery(server.pid, port)
        with pytest.raises(MetastoreError, match=rf"127\.0\.0\.1:{port}\b.*{server.pid}"):
            connect_session("local[1]", {})
        server.kill()
    assert not (tmp_path / "heard").exists()


def test_a_process_that_takes_the_port_of_a_server_that_ended_gets_nothing(tmp_path: Path) -> None:
    import grpc

    with listener("127.0.0.1:0", tmp_path / "own") as (pid, port):
        server = RunningServer(f"sc://localhost:{port}", port, pid, "", TOKEN)
        with LocalChannel(server, "3e1d9a52-6b8f-4f6e-9a51-0a4a6f3f7a01").toChannel() as channel:
            call = channel.unary_unary("/spark.connect.SparkConnectService/Config")
            with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
                call(b"", timeout=20)
            assert TOKEN in (tmp_path / "own").read_text()
            os.kill(pid, 9)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            with listener(f"127.0.0.1:{port}", tmp_path / "other"):
                with pytest.raises(grpc.RpcError, match=r"127\.0\.0\.1:\d+"):
                    call(b"", timeout=20, wait_for_ready=True)
                assert not (tmp_path / "other").exists()


def test_the_owner_of_a_socket_is_found() -> None:
    server_folder = os.getpid()
    with socket.create_server(("127.0.0.1", 0)) as discovery:
        port = discovery.getsockname()[1]
        assert is_listening(server_folder, port)
        assert not is_listening(os.getppid(), port)
        assert not is_listening(2**22 - 1, port)
    assert not is_listening(server_folder, port)
    with socket.socket(socket.AF_INET6) as mapped_socket:  # as in Java's processes
        mapped_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        mapped_socket.bind(("::ffff:127.0.0.1", 0))
        mapped_socket.listen()
        assert is_listening(server_folder, mapped_socket.getsockname()[1])
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as elsewhere:
        assert not is_listening(server_folder, elsewhere.getsockname()[1])
