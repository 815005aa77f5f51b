"""The channel to the Spark Connect server of this machine: its token goes to the server's own process alone.

What answers a client has its pickled results loaded, and hears what tasks are made of: so before each call the owner of
the listening socket is checked.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder

from metastore_assets.spark.local_server import HOST, RunningServer

_LISTENING = "0A"
"""The state of a socket in the tables of the Linux kernel."""
_LSOF_SECONDS = 10


class LocalChannel(DefaultChannelBuilder):
    """Makes channels to a server of this machine, by the address that it listens on: `localhost` may mean another."""

    def __init__(self, server: RunningServer, session_id: str) -> None:
        super().__init__(f"sc://{HOST}:{server.port}/;session_id={session_id}")
        self._server = server

    def toChannel(self) -> grpc.Channel:
        """Return a channel without encryption, as the address is of the loopback interface."""
        token = grpc.metadata_call_credentials(_Token(self._server))
        credentials = grpc.composite_channel_credentials(grpc.local_channel_credentials(), token)
        return self._secure_channel(self.endpoint, credentials)


class _Token(grpc.AuthMetadataPlugin):  # type: ignore[misc]
    def __init__(self, server: RunningServer) -> None:
        self._server = server

    def __call__(self, context: grpc.AuthMetadataContext, callback: Any) -> None:
        if is_listening(self._server.pid, self._server.port):
            callback((("authorization", f"Bearer {self._server.token}"),), None)
        else:
            callback((), PermissionError(foreign_socket_message(self._server.pid, self._server.port)))


def foreign_socket_message(pid: int, port: int) -> str:
    """Return what is wrong where `is_listening` is false."""
    return f"{HOST}:{port} is not a socket of process {pid}, the Spark Connect server, so it does not get the token"


def is_listening(pid: int, port: int) -> bool:
    """Return whether the port of the loopback address is a listening socket of a process of this user.

    False where that cannot be found out.
    """
    if os.path.exists("/proc/net/tcp"):
        inodes = _listening_inodes(port)
        return bool(inodes) and inodes <= _inodes_of(pid)
    try:
        command = ["lsof", "-nP", "-a", "-p", str(pid), f"-iTCP@{HOST}:{port}", "-sTCP:LISTEN", "-t"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=_LSOF_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return found.stdout.split() == [str(pid)]


def _listening_inodes(port: int) -> set[str]:
    """Sockets that listen on the port of the loopback address, of IPv4 or as IPv6 writes it."""
    packed = (socket.inet_pton(socket.AF_INET, HOST), socket.inet_pton(socket.AF_INET6, f"::ffff:{HOST}"))
    wanted = {"".join(f"{word:08X}" for (word,) in struct.iter_unpack("=I", own)) + f":{port:04X}" for own in packed}
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:  # A kernel without IPv6.
            continue
        for line in lines:
            fields = line.split()
            if fields[1] in wanted and fields[3] == _LISTENING:
                found.add(fields[9])
    return found


def _inodes_of(pid: int) -> set[str]:
    """Sockets of a process; none of another user's, which cannot be looked into."""
    found = set()
    try:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            except FileNotFoundError:
                continue  # Closed meanwhile.
            if (socket_ := re.fullmatch(r"socket:\[(\d+)\]", target)) is not None:
                found.add(socket_[1])
    except OSError:
        return set()
    return found
