"""Reading starts fast: nothing large is imported that is not needed, and no Spark starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

LARGE = {"dagster", "deltalake", "duckdb", "pandas", "pyiceberg", "pyspark", "rich"}
_PROGRAM = """
import json, sys
from metastore_assets.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["metastore", *arguments]
    try:
        main()
    except SystemExit as end:
        print("ended", end.code, *sorted(sys.modules), file=sys.stderr)
"""


def imported(*arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> set[str]:
    """The modules, by their full names, that a command has imported when it ends well."""
    (modules,) = imported_by([arguments], folder=folder, environment=environment)
    return modules


def imported_by(
    commands: Sequence[Sequence[str]], *, folder: Path, environment: Mapping[str, str] | None = None
) -> list[set[str]]:
    """The same of each of several commands of one process: what it and those before it have imported."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(commands)],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    ends = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("ended ")]
    assert [status for status, *_ in ends] == ["0"] * len(commands), done.stderr
    return [set(modules) for _, *modules in ends]


READING = [
    ["tables"],
    ["show", "orders"],
    ["show", "orders", "--json"],
    ["show", "orders", "--partitions"],
    ["top", "orders", "state"],
    ["histogram", "orders", "id"],
    ["quantile", "orders", "day", "0.5"],
    ["rank", "orders", "state", "new"],
    ["where", "orders", "state", "new"],
    ["prune", "orders", "--where", "id < 5"],
    ["estimate", "orders", "--where", "id < 5"],
    ["compact", "orders"],
    ["check", "orders"],
    ["versions", "orders"],
    ["expire", "orders"],
    ["refresh", "fresh", "--dry-run"],
    ["backfill", "fresh", "--dry-run"],
]


def test_reading_imports_nothing_large(published: Path) -> None:
    """Not one of these commands, run one after the other in a process: the first that did would be named."""
    told = imported_by(READING, folder=published.parent)
    assert len(told) == len(READING)
    large = [(arguments, sorted(modules & LARGE)) for arguments, modules in zip(READING, told, strict=True)]
    assert [found for found in large if found[1]] == []


def test_a_look_at_statistics_does_without_what_counts_values(published: Path) -> None:
    """`show` costs little more than twice what it takes to import Arrow: what is as large is not among it."""
    unwanted = {"numpy.ma", "obstore", "polars", "pyarrow.compute", "sqlglot", "subprocess"}
    assert imported("show", "orders", folder=published.parent) & (LARGE | unwanted) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["show", "--help"], ["profile", "--help"], ["--version"]])
def test_help_imports_nothing_at_all(tmp_path: Path, arguments: list[str]) -> None:
    modules = imported(*arguments, folder=tmp_path)
    assert modules & (LARGE | {"numpy", "obstore", "polars", "pyarrow", "pydantic", "yaml"}) == set()


@pytest.mark.skipif(not Path("/proc/self/task").exists() or (os.cpu_count() or 1) < 2, reason="cannot be seen here")
def test_numpy_starts_threads_only_where_it_is_told_to() -> None:
    """Those of its BLAS, one per core but one, are a part of what each command costs."""
    program = (
        "import os; from metastore_assets.startup import start_no_threads; start_no_threads(); "
        "import numpy; print(len(os.listdir('/proc/self/task')))"
    )

    def threads(told: Mapping[str, str]) -> int:
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
        run = subprocess.run(
            [sys.executable, "-c", program], env={**environment, **told}, capture_output=True, text=True, check=True
        )
        return int(run.stdout)

    assert threads({}) == 1
    assert threads({"OPENBLAS_NUM_THREADS": "2"}) == 2
