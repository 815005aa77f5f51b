"""Every command has the exit statuses of docs/reference/output.md.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from metastore_assets.cli import failures
from tests.cli.run_command import PROGRAM, all_commands, run

_ARGUMENTS = {
    "backfill": "orders --dry-run",
    "changes": "orders --since 1",
    "check": "orders",
    "check-statistic": "tests.statistics.user_defined:Nothing",
    "clustering": "orders",
    "compact": "orders",
    "count": "orders --where id=1",
    "diff": "orders",
    "estimate": "orders --where id=1",
    "expire": "orders",
    "export": "orders",
    "histogram": "orders price",
    "history": "orders",
    "init": "nowhere --force",
    "locate": "orders state new",
    "profile": "nowhere",
    "prune": "orders --where id=1",
    "purge": "orders --before 1",
    "quantile": "orders price 0.5",
    "rank": "orders price 1",
    "refresh": "gone",
    "report": "orders -o -",
    "show": "orders",
    "sql": "select",
    "tables": "",
    "top": "orders state",
    "verify": "orders",
    "versions": "orders",
}
_NO_CONFIGURATION = {"check-statistic", "init", "profile"}
_OWN_TESTS = {"spark-server", "doctor", "schema"}


def test_every_command_is_tested() -> None:
    assert set(_ARGUMENTS) == all_commands().keys() - _OWN_TESTS


@pytest.mark.parametrize("command", sorted(_ARGUMENTS))
def test_a_wrong_option_is_bad_usage(config_file: Path, command: str) -> None:
    done = run(command, *_ARGUMENTS[command].split(), "--bogus", config=config_file)
    assert (done.exit_code, done.stdout) == (failures.BAD_USAGE, "")


@pytest.mark.parametrize("command", sorted(_ARGUMENTS))
def test_an_error_is_no_failed_check(config_file: Path, command: str) -> None:
    """The exit status of an error differs from that of failed checks.

    The error is an unreadable configuration, or a missing table for commands without configuration.
    """
    if command not in _NO_CONFIGURATION:
        config_file.write_text("root: [")
    done = run(command, *_ARGUMENTS[command].split(), config=config_file)
    assert (done.exit_code, done.stdout) == (failures.ERROR, "")
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize("command", ["show orders", "show orders --json", "report orders -o -"])
def test_a_closed_pipe_is_silent(config_file: Path, command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    arguments = [*PROGRAM, "--config", str(config_file), *command.split()]
    done = subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (failures.BROKEN_PIPE, b"")


def test_a_failed_check_is_status_1(config_file: Path) -> None:
    text = config_file.read_text().replace("uri: ./orders}", "uri: ./orders, checks: [{row_count: 1000}]}", 1)
    config_file.write_text(text)
    done = run("check", "orders", "--json", config=config_file)
    assert (done.exit_code, json.loads(done.stdout)["failed"]) == (failures.CHECK_FAILED, 1)
    assert run("check", "orders", "--only", "nothing", config=config_file).exit_code == failures.ERROR


_LOOKUPS = [
    "show orders",
    "top orders state",
    "histogram orders price",
    "quantile orders big 0.9",
    "rank orders price 5",
    "locate orders state new",
    "prune orders --where id<1000",
    "estimate orders --where id<1000",
    "clustering orders",
    "check orders",
]


@pytest.mark.parametrize("command", _LOOKUPS)
def test_a_version_has_one_grammar(config_file: Path, command: str) -> None:
    """`--version` accepts a number, a snapshot or a time.

    A time selects the newest version published until then.
    """
    arguments = [*command.split(), "--json"]
    older = run(*arguments, "--version", "1", config=config_file)
    newest = run(*arguments, config=config_file)
    assert older.exit_code == newest.exit_code == 0
    assert older.stdout != newest.stdout
    for same in ("snapshot 1", "snapshot:snapshot 1"):
        assert run(*arguments, "--version", same, config=config_file).stdout == older.stdout
    for same in ("2", "snapshot 2", "2099-01-01", "2099-01-01T00:00:00Z"):
        assert run(*arguments, "--version", same, config=config_file).stdout == newest.stdout


@pytest.mark.parametrize(
    "command", ["show orders", "diff orders", "prune orders --where id=1", "count orders --where id=1"]
)
def test_a_missing_version_is_an_error(config_file: Path, command: str) -> None:
    assert run(*command.split(), "--version", "9", config=config_file).exit_code == failures.ERROR
    assert run(*command.split(), "--version", " ", config=config_file).exit_code == failures.BAD_USAGE
