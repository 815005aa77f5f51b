"""Ctrl-C ends the command soon, also while it waits for a store that accepts connections and never answers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run_command import PROGRAM


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    # What a shell runs in the background ignores Ctrl-C, and so would all that is started from there.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("command", "address", "number"),
    [
        ("tables", "root", signal.SIGINT),
        ("show t", "root", signal.SIGINT),
        ("doctor t", "root", signal.SIGINT),
        ("purge t --before 1", "root", signal.SIGINT),
        ("expire t", "root", signal.SIGHUP),
        ("verify t", "table", signal.SIGINT),
        ("refresh t", "table", signal.SIGINT),
        ("refresh t", "table", signal.SIGTERM),
    ],
)
def test_an_end_while_a_store_is_silent(
    published: Path, silent: socket.socket, command: str, address: str, number: signal.Signals
) -> None:
    endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
    keys = "aws_region: x, aws_access_key_id: a, aws_secret_access_key: b"
    options = f"{{aws_endpoint: '{endpoint}', aws_allow_http: 'true', {keys}}}"
    if address == "root":
        text = f"root: s3://bucket/root\nstorage_options: {options}\ntables: [{{name: t, uri: ./orders}}]"
    else:
        text = f"root: ./root\ntables: [{{name: orders, uri: 's3://bucket/t', storage_options: {options}}}]"
        command = command.replace(" t", " orders", 1)
    published.write_text(text)
    with subprocess.Popen(
        [*PROGRAM, *command.split()], cwd=published.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        connection, _ = silent.accept()
        os.kill(process.pid, number)
        stdout, stderr = process.communicate(timeout=60)
        connection.close()
    said = "interrupted\n" if number == signal.SIGINT else ""
    assert (process.returncode, stdout, stderr) == (128 + number, "", said)
