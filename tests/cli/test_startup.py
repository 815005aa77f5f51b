"""Reading starts fast: nothing large is imported that is not needed, and no Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

LARGE = {"dagster", "deltalake", "duckdb", "pandas", "pyiceberg", "pyspark", "rich"}
_PROGRAM = """
import sys
from metastore_assets.cli import main
sys.argv = ["metastore", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(end.code, *sorted(sys.modules), file=sys.stderr)
"""


def imported(*arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> set[str]:
    """The modules, by their full names, that a command has imported when it ends well."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    status, *modules = done.stderr.splitlines()[-1].split()
    assert status == "0", done.stderr
    return set(modules)


@pytest.mark.parametrize(
    "arguments",
    [
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
    ],
)
def test_reading_imports_nothing_large(published: Path, arguments: list[str]) -> None:
    assert imported(*arguments, folder=published.parent) & LARGE == set()


def test_a_look_at_statistics_does_without_what_counts_values(published: Path) -> None:
    """`show` costs what it takes to import Arrow, and half of that again: what is as large is not among it."""
    unwanted = {"numpy.ma", "obstore", "polars", "pyarrow.compute", "sqlglot", "subprocess"}
    assert imported("show", "orders", folder=published.parent) & (LARGE | unwanted) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["show", "--help"], ["profile", "--help"], ["--version"]])
def test_help_imports_nothing_at_all(tmp_path: Path, arguments: list[str]) -> None:
    modules = imported(*arguments, folder=tmp_path)
    assert modules & (LARGE | {"numpy", "obstore", "polars", "pyarrow", "pydantic", "yaml"}) == set()
