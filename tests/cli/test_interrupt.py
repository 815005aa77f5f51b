"""Ctrl-C ends a command soon, even while it waits for a server that never responds.

The server accepts connections.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metastore_assets.cli.commands import cli
from tests.cli.run_command import PROGRAM


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    # A shell's background jobs ignore Ctrl-C, and so would all their children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server
    signal.signal(signal.SIGINT, before)


_ROOT = """
changes t --since 1; check t; clustering t; compact t; count t --where id>0; diff t; doctor t; estimate t --where id>0;
histogram t price; history t; locate t state new; prune t --where id>0; purge t --before 1; quantile t price 0.5;
rank t price 1; report t -o r.html; show t; sql select(*)from(statistics); tables; top t state; versions t
"""
"""Commands that wait for the root."""
_TABLE = "backfill t --yes; refresh t; verify t"
"""Commands that wait for the table."""
_LOCATION = "init s3://bucket/t --config other.yaml; profile s3://bucket/t"
"""Commands that wait for a table that no configuration names."""
_CASES = [
    *((command.strip(), "root", signal.SIGINT) for command in _ROOT.split(";")),
    *((command.strip(), "table", signal.SIGINT) for command in _TABLE.split(";")),
    *((command.strip(), "location", signal.SIGINT) for command in _LOCATION.split(";")),
    ("expire t", "root", signal.SIGHUP),
    ("refresh t", "table", signal.SIGTERM),
]
_DEFAULT = {"profile", "prune", "refresh", "sql"}
"""Commands whose interruption the default run tests; the long run tests all."""
_NOT_WAITING = {
    "check-statistic",  # tested below
    "export",  # waits as `refresh` does
    "expire",  # SIGHUP above
    "schema",
    "spark-server",
}


def test_every_command_that_waits_is_tested() -> None:
    tested_commands = {command.split()[0] for command, _, number in _CASES if number == signal.SIGINT}
    assert set(cli.commands) - tested_commands <= _NOT_WAITING


@pytest.mark.parametrize(
    ("command", "address", "number"),
    [
        pytest.param(
            *case, marks=() if case[0].split()[0] in _DEFAULT or case[2] != signal.SIGINT else pytest.mark.long
        )
        for case in _CASES
    ],
)
def test_a_command_that_waits_for_a_store_ends_soon(
    config_file: Path, silent: socket.socket, command: str, address: str, number: signal.Signals
) -> None:
    endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
    keys = "aws_region: x, aws_access_key_id: a, aws_secret_access_key: b"
    options = f"{{aws_endpoint: '{endpoint}', aws_allow_http: 'true', {keys}}}"
    environment = dict(os.environ)
    if address == "root":
        text = f"root: s3://bucket/root\nstorage_options: {options}\ntables: [{{name: t, uri: ./orders}}]"
    else:
        text = f"root: ./root\ntables: [{{name: orders, uri: 's3://bucket/t', storage_options: {options}}}]"
        command = command.replace(" t", " orders", 1) if address == "table" else command
        secrets = {"AWS_REGION": "x", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        environment |= {"AWS_ENDPOINT": endpoint, "AWS_ALLOW_HTTP": "true", **secrets}
    config_file.write_text(text)
    with subprocess.Popen(
        [*PROGRAM, *command.split()],
        cwd=config_file.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        connection, _ = silent.accept()
        os.kill(process.pid, number)
        stdout, stderr = process.communicate(timeout=60)
        connection.close()
    message = "interrupted\n" if number == signal.SIGINT else ""
    assert (process.returncode, stdout, stderr) == (128 + number, "", message)


@pytest.mark.usefixtures("silent")
def test_a_command_that_tests_a_statistic_ends_soon(tmp_path: Path) -> None:
    """Ctrl-C ends `check-statistic` while it tests a statistic.

    The first call of the statistic creates a file, so the test knows that the command is at work.
    """
    (tmp_path / "mine.py").write_text(
        "import pathlib\nfrom tests.pipeline.user_statistics import Parities\n"
        "class Mine(Parities):\n    def update(self, state, values, counts):\n"
        "        pathlib.Path('started').touch()\n        return super().update(state, values, counts)\n"
    )
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    with subprocess.Popen(
        [*PROGRAM, "check-statistic", "mine:Mine", "--tries", "30000"],
        cwd=tmp_path,
        env=path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        end = time.monotonic() + 60
        while not (tmp_path / "started").exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (130, "", "interrupted\n")
