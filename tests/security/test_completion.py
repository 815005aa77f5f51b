"""Pressing Tab in a folder executes nothing from it.

Completion makes no connection and reads no environment variable.
"""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import _published_folder, config_file
from tests.cli.run_command import execute
from tests.cli.test_completion import environment, offered

__all__ = ["_published_folder", "config_file"]

SECRET = "a-password-of-this-user"
LINES = [
    ["show", ""],
    ["show", "orders", "--columns", ""],
    ["show", "orders", "--partition", ""],
    ["top", "orders", ""],
    ["refresh", ""],
]


class Listener:
    """A server that counts connections and records the data that it receives."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.heard: list[bytes] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.heard.append(b"")
            connection.settimeout(0.5)
            with connection:
                try:
                    self.heard[-1] = connection.recv(4096)
                except OSError:
                    continue


@pytest.fixture
def listener() -> Iterator[Listener]:
    listening = Listener()
    yield listening
    listening.server.close()


CONFIGURATIONS = {
    "the root": "root: s3://${MY_DB_PASSWORD}/root\nstorage_options: {ENDPOINT}\n",
    "the endpoint": "root: s3://bucket/root\nstorage_options: {aws_session_token: '${MY_DB_PASSWORD}', ENDPOINT}\n",
    "a local root by a variable": "root: ./${MY_DB_PASSWORD}\n",
    "a default": "root: s3://${NOTHING:-bucket}/root\nstorage_options: {ENDPOINT}\n",
    "a catalog": "root: ./root\ncatalogs: {c: {type: rest, uri: 'http://127.0.0.1:PORT/${MY_DB_PASSWORD}'}}\n",
    "a remote root with databases": "root: s3://bucket/root\nstorage_options: {ENDPOINT}\n"
    "catalogs: {c: {type: rest, uri: 'http://127.0.0.1:PORT/'}}\n",
}
_ENDPOINT = (
    "aws_endpoint: 'http://127.0.0.1:PORT/', aws_allow_http: 'true', aws_region: x, aws_access_key_id: a, "
    "aws_secret_access_key: '${MY_DB_PASSWORD}'"
)


@pytest.mark.parametrize("what", CONFIGURATIONS)
def test_completion_connects_nowhere_and_resolves_nothing(
    config_file: Path, listener: Listener, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(config_file.parent)
    monkeypatch.setenv("MY_DB_PASSWORD", SECRET)
    shutil.copytree(config_file.parent / "root", config_file.parent / SECRET)
    tables = "tables: [{name: orders, uri: x}" + (
        ", {catalog: c, database: d}]\n" if "catalogs" in CONFIGURATIONS[what] else "]\n"
    )
    text = (CONFIGURATIONS[what] + tables).replace("ENDPOINT", _ENDPOINT).replace("PORT", str(listener.port))
    config_file.write_text(text)
    for line in LINES:
        completions = offered(*line)
        if "root: ./root" not in text and len(line) > 2:
            assert completions == [], line
    done = execute(folder=config_file.parent, environment=environment("bash", [*LINES[1][:-1], "''"]))
    assert SECRET not in done.stdout + done.stderr
    assert listener.heard == []


def test_a_local_root_is_read_despite_variables_in_other_keys(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(config_file.parent)
    monkeypatch.delenv("NOT_SET", raising=False)
    config_file.write_text(
        "root: ./root\nstorage_options: {aws_region: '${NOT_SET}'}\nspark: {x: '${NOT_SET}'}\n"
        "tables: [{name: orders, uri: '${NOT_SET}/x'}]\n"
    )
    assert offered("show", "orders", "--partition", "") == ["half=1", "half=2"]
    assert offered("show", "") == ["orders"]
