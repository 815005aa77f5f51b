"""`make test-matrix`: check every environment, and write the outcomes into the documentation.

The page is docs/reference/supported-versions.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from scripts.matrix.environments import (
    CACHE,
    ENVIRONMENTS,
    NAMED,
    REPOSITORY,
    Environment,
    temporary_environment,
    versions,
)

_PAGE = REPOSITORY / "docs" / "reference" / "supported-versions.md"
_BEGIN, _END = "<!-- written by make test-matrix -->", "<!-- end -->"
_CHECKS = ("imports", "Dagster", "lookups", "command line", "real tables", "Spark", "data source", "warm Spark")


def main() -> int:
    """Check the environments, and print the outcomes.

    With `--write`, also write them into the page.

    An environment whose Python version this machine lacks is skipped. A feature that is refused with a clear message is
    not a failure.

    Returns:
        The exit status: 1 if an environment cannot be installed or a check fails in it, otherwise 0.
    """
    names = [environment.name for environment in ENVIRONMENTS]
    parser = argparse.ArgumentParser(prog="make test-matrix", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="NAME", help=f"these environments only: {', '.join(names)}")
    parser.add_argument(
        "--folder", type=Path, default=REPOSITORY / ".cache" / "matrix", help="folder of the environments"
    )
    parser.add_argument("--write", action="store_true", help=f"write the outcome into {_PAGE.name}")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(names):
        parser.error(f"no environment {sorted(unknown)[0]!r}; there are: {', '.join(names)}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows, has_failed = dict[str, str](), False
    for environment in ENVIRONMENTS:
        if arguments.only and environment.name not in arguments.only:
            continue
        try:
            with temporary_environment(environment, arguments.folder) as python:
                outcomes = _outcomes(python)
                rows[environment.name] = _row(
                    environment, python, {check: outcome for check, (outcome, _) in outcomes.items()}
                )
        except LookupError as error:
            print(f"{environment.name}: not tried: {error}")
            continue
        except subprocess.CalledProcessError as error:
            print(f"{environment.name}: cannot be installed: {error.stderr.strip()}", file=sys.stderr)
            has_failed = True
            continue
        for check, (outcome, detail) in outcomes.items():
            print(f"{environment.name}: {check}: {outcome}{f': {detail}' if detail else ''}", flush=True)
        has_failed |= any(outcome == "fails" for outcome, _ in outcomes.values())
    shutil.rmtree(arguments.folder / CACHE, ignore_errors=True)
    if arguments.write:
        _write(rows)
    return int(has_failed)


def _outcomes(python: Path) -> dict[str, tuple[str, str]]:
    """Run the checks in an environment.

    Return the outcome and the detail of each check, by its name.
    """
    outcomes = dict.fromkeys(_CHECKS, ("fails", "the checks ended before it"))
    environment = {
        **os.environ,
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "METASTORE_REALTABLES": str(REPOSITORY.parent / "shared" / "realtables"),
    }
    with tempfile.TemporaryDirectory(prefix="metastore-matrix-") as folder:
        command = [str(python), "-W", "ignore", "-m", "scripts.matrix.checks", folder]
        process = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=1800
        )
    for line in process.stdout.splitlines():
        if line.startswith('{"check"'):
            result = json.loads(line)
            outcomes[result["check"]] = (result["outcome"], result["detail"])
    if any(outcome == "fails" for outcome, _ in outcomes.values()):
        print(process.stderr[-4000:], file=sys.stderr)
    return outcomes


def _row(environment: Environment, python: Path, outcomes: dict[str, str]) -> str:
    """Return the row of an environment: its versions, and the checks that do not work in it."""
    installed_versions = versions(python)
    cells = [environment.name, environment.python, *(installed_versions[name] for name in NAMED)]
    by_outcome = {outcome: [check for check in _CHECKS if outcomes[check] == outcome] for outcome in outcomes.values()}
    exceptions = [f"{outcome}: {', '.join(checks)}" for outcome, checks in by_outcome.items() if outcome != "works"]
    return f"| {' | '.join([*cells, '; '.join(exceptions)])} |"


def _write(rows: Mapping[str, str]) -> None:
    """Write rows into the table of the page, by name of the environment.

    Rows of other environments stay.
    """
    header = f"| environment | Python | {' | '.join(NAMED)} | exceptions |"
    before, _, rest = _PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    written_table, _, after = rest.partition(_END)
    lines_by_name = {line.split("|")[1].strip(): line for line in written_table.splitlines() if line.startswith("|")}
    lines_by_name |= rows
    names = [environment.name for environment in ENVIRONMENTS if environment.name in lines_by_name]
    rule = "|".join(["", *(["---"] * (3 + len(NAMED))), ""])
    table = [header, rule, *(lines_by_name[name] for name in names)]
    _PAGE.write_text("\n".join([f"{before}{_BEGIN}", "", *table, "", f"{_END}{after}"]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
