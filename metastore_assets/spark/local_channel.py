"""A gRPC channel to the Spark Connect server of this machine.

It sends the access token to no other process.

A client sends pickled functions to the server and unpickles its answers. So another process at the same port could run
code in the client. Therefore the channel checks before each call that the server's process has the listening socket.
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
"""State of a listening socket in /proc/net/tcp."""
_LSOF_SECONDS = 10


class LocalChannel(DefaultChannelBuilder):
    """A builder of channels to a local server.

    It uses the server's IP address, because `localhost` may resolve to another address.
    """

    def __init__(self, server: RunningServer, session_id: str) -> None:
        super().__init__(f"sc://{HOST}:{server.port}/;session_id={session_id}")
        self._server = server

    def toChannel(self) -> grpc.Channel:
        """Return an unencrypted channel over the loopback interface."""
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
    """Return the error message for a port that may belong to another process than the server.

    Args:
        pid: The id of the server's process.
        port: The port on which the server should listen.
    """
    return f"{HOST}:{port} is not a socket of process {pid}, the Spark Connect server, so it does not get the token"


def is_listening(pid: int, port: int) -> bool:
    """Return True if the given process, and no other, listens on a loopback port.

    False if this is uncertain.

    It is uncertain, for example, if another user runs the process.

    Args:
        pid: The id of the process.
        port: A TCP port.
    """
    if os.path.exists("/proc/net/tcp"):
        inodes = _listening_inodes(port)
        return bool(inodes) and inodes <= _socket_inodes(pid)
    try:
        command = ["lsof", "-nP", f"-iTCP@{HOST}:{port}", "-sTCP:LISTEN", "-t"]
        lsof = subprocess.run(command, capture_output=True, text=True, timeout=_LSOF_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return lsof.stdout.split() == [str(pid)]


def _listening_inodes(port: int) -> set[str]:
    """Return the inodes of the sockets that listen on a loopback port, over IPv4 or IPv4-mapped IPv6."""
    binary = (socket.inet_pton(socket.AF_INET, HOST), socket.inet_pton(socket.AF_INET6, f"::ffff:{HOST}"))
    addresses = {"".join(f"{word:08X}" for (word,) in struct.iter_unpack("=I", ip)) + f":{port:04X}" for ip in binary}
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:  # A kernel without IPv6.
            continue
        for line in lines:
            fields = line.split()
            if fields[1] in addresses and fields[3] == _LISTENING:
                inodes.add(fields[9])
    return inodes


def _socket_inodes(pid: int) -> set[str]:
    """Return the inodes of the sockets that a process has open; none for a process of another user."""
    inodes = set()
    try:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            except FileNotFoundError:
                continue  # Closed meanwhile.
            if (match := re.fullmatch(r"socket:\[(\d+)\]", target)) is not None:
                inodes.add(match[1])
    except OSError:
        return set()
    return inodes
