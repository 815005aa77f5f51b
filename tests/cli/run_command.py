"""Functions that run the command, in this process or a new one, and parse its JSON or its one-line error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from metastore_assets.cli.commands import cli

BADLY_JOINED = re.compile(r"[\w)'`…][.,;:]\s*[.;](\s|$)|[\w)'`…][.,;:]{2}(\s|$)|[?!]\s*[.;](\s|$)|[\w)'`][.,:;]$|\.\)")
"""What no message has: `..`, `.;`, `. .`, `?;`, and a full stop at the end, which the others do not have."""
PROGRAM = [sys.executable, "-m", "metastore_assets"]


def run(*arguments: str, config: Path | None = None) -> Result:
    """Run in this process: fast, and without a terminal."""
    config_option = [] if config is None else ["--config", str(config)]
    return CliRunner().invoke(cli, [*config_option, *arguments], prog_name="metastore")


def answer(*arguments: str, config: Path | None = None) -> Any:
    """The JSON that a command prints; it must succeed."""
    result = run(*arguments, "--json", config=config)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def error_of(result: Result | subprocess.CompletedProcess[str], status: int = 3) -> str:
    """The one line of a failure that printed nothing else."""
    ended = result.exit_code if isinstance(result, Result) else result.returncode
    assert ended == status, (ended, result.stdout, result.stderr)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: "), lines
    assert not BADLY_JOINED.search(lines[0]), lines
    return lines[0].removeprefix("error: ")


def execute(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run in a process of its own, in a folder."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=250,
        check=False,
    )


def documents(done: subprocess.CompletedProcess[str] | Result) -> list[dict[str, Any]]:
    """The JSON documents on stdout, one per line."""
    return [json.loads(line) for line in done.stdout.splitlines()]
