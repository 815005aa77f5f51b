"""Requests to Dagster's GraphQL interface with `dagster-graphql`, which needs no webserver."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from metastore_assets.errors import ConfigError
from metastore_assets.messages import remove_secrets

_PROGRAM = "import sys; from dagster_graphql.cli import main; sys.exit(main())"
_TIMEOUT = 300.0
"""The timeout of a request in seconds. Loading the code locations takes most of that time."""


def run_graphql(document: str) -> dict[str, Any]:
    """Run a GraphQL document in the instance of $DAGSTER_HOME.

    It runs on the code locations of the working folder.

    Args:
        document: A query or a mutation that contains its values as literals, see `graphql_string`.

    Returns:
        The `data` of the response.

    Raises:
        ConfigError: Dagster finds no code locations, refuses the document, or does not answer in time.
    """
    with tempfile.TemporaryDirectory(prefix="metastore-graphql-") as folder:
        request, response = Path(folder) / "request.graphql", Path(folder) / "response.json"
        request.write_text(document, encoding="utf-8")
        command = [sys.executable, "-P", "-W", "ignore", "-c", _PROGRAM, "--file", str(request), "-o", str(response)]
        # Only code locations, not this process, import modules from the working folder.
        environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONUTF8": "1"}
        try:
            completed_process = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ConfigError(
                f"Dagster did not answer within {_TIMEOUT:.0f} s: check that the code locations of the working folder "
                "load (`dagster definitions validate`)"
            ) from error
        text = response.read_text(encoding="utf-8") if response.exists() else ""
    if not text:
        reason = (
            _last_line(completed_process.stderr)
            or f"`dagster-graphql` ended with status {completed_process.returncode}"
        )
        raise ConfigError(
            f"Dagster cannot load the code locations of the working folder: {reason}; start the command in the folder "
            "of `workspace.yaml`, and check that `dagster definitions validate` succeeds there"
        )
    answer = json.loads(text)
    if errors := answer.get("errors"):
        raise ConfigError(f"Dagster refused a GraphQL request: {remove_secrets(str(errors[0].get('message')))}")
    data: dict[str, Any] = answer["data"]
    return data


def graphql_string(text: str) -> str:
    """Return a text as a GraphQL string literal, quoted and escaped as in JSON."""
    return json.dumps(text, ensure_ascii=False)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return remove_secrets(lines[-1]) if lines else ""
