"""Functions that run the command and parse its JSON or its one-line error.

The command runs in this process or in a new one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from metastore_assets.cli.commands import cli
from metastore_assets.cli.output_schemas import DOCUMENTS

BADLY_JOINED = re.compile(r"[\w)'`…][.,;:]\s*[.;](\s|$)|[\w)'`…][.,;:]{2}(\s|$)|[?!]\s*[.;](\s|$)|[\w)'`][.,:;]$|\.\)")
"""Matches punctuation that no message has: `..`, `.;`, `. .`, `?;`, and a full stop at the end."""
PROGRAM = [sys.executable, "-m", "metastore_assets"]


def all_commands() -> Mapping[str, click.Command]:
    """Return all commands by name."""
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in commands.items() if command is not None}


def run(*arguments: str, config: Path | None = None) -> Result:
    """Run the command in this process, without a terminal.

    With `--json`, assert that the output matches its schema.
    """
    config_option = [] if config is None else ["--config", str(config)]
    result = CliRunner().invoke(cli, [*config_option, *arguments], prog_name="metastore")
    if "--json" in arguments:
        assert_matches_schema(arguments, result.stdout)
    return result


@cache
def validator(command: str) -> Draft202012Validator:
    """Return a validator for a command's documents by the schema that `metastore schema` prints."""
    schema = json.loads(CliRunner().invoke(cli, ["schema", *command.split()]).stdout)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def assert_matches_schema(arguments: Sequence[str], stdout: str) -> None:
    """Assert that each line that a command prints with `--json` matches its schema."""
    words = list(arguments)
    while words and words[0].startswith("-"):
        del words[: 2 if words[0] == "--config" else 1]
    command = next((name for name in DOCUMENTS if words[: len(name.split())] == name.split()), None)
    for line in stdout.splitlines():
        assert command is not None, f"{arguments} has no schema"
        errors = validator(command).iter_errors(json.loads(line))
        assert not (wrong := [f"{error.json_path}: {error.message[:300]}" for error in errors]), (arguments, wrong)


def run_json(*arguments: str, config: Path | None = None) -> Any:
    """Return the JSON that a command prints; it must succeed."""
    result = run(*arguments, "--json", config=config)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def error_of(result: Result | subprocess.CompletedProcess[str], status: int = 3) -> str:
    """Return the message of a failed command that printed only the line `error: MESSAGE`.

    The line is on stderr.
    """
    exit_status = result.exit_code if isinstance(result, Result) else result.returncode
    assert exit_status == status, (exit_status, result.stdout, result.stderr)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: "), lines
    assert not BADLY_JOINED.search(lines[0]), lines
    return lines[0].removeprefix("error: ")


def execute(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a subprocess, in a folder.

    With `--json`, assert that the output matches its schema.
    """
    done = subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=250,
        check=False,
    )
    if "--json" in arguments:
        assert_matches_schema(arguments, done.stdout)
    return done


def documents(done: subprocess.CompletedProcess[str] | Result) -> list[dict[str, Any]]:
    """Return the JSON documents on stdout, one per line."""
    return [json.loads(line) for line in done.stdout.splitlines()]
