"""Workers with two gigabytes of memory build, update and compact a stage of fifty million rows.

A stage maps the rows of source keys to rows of target keys.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROWS = 50_000_000
PROJECT = Path(__file__).parents[2]


def _large(folder: Path, limit: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.produce.large_stage_program", str(folder / limit), str(ROWS), limit]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def _expected(is_updated: bool) -> list[int]:
    """Return row count, sum of groups and sum of amounts, computed without the stage.

    With `is_updated`, they are those after the update.
    """
    groups = ((key * 7_919 + 13 * (is_updated and key % 150 == 0)) % (ROWS // 5) for key in range(ROWS))
    amounts = sum(key % 1_000 for key in range(ROWS))
    return [ROWS, sum(groups), amounts + (-(-ROWS // 150) if is_updated else 0)]


def test_fifty_million_rows_in_two_gigabytes(tmp_path: Path) -> None:
    process = _large(tmp_path, "2g")
    assert process.returncode == 0, process.stderr[-4000:]
    results = {name: value for line in process.stdout.splitlines() for name, value in json.loads(line).items()}
    assert results["built"] == _expected(is_updated=False)
    assert results["updated"] == results["compacted"] == _expected(is_updated=True)
    assert results["driver"] < 2 * 2**30


def test_less_memory_is_not_enough(tmp_path: Path) -> None:
    """Workers with 600 MB fail.

    Otherwise, the test with two gigabytes would prove nothing.
    """
    assert _large(tmp_path, "600m").returncode != 0
