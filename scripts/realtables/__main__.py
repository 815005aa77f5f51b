"""`make formats`: profile every real and adversarial table, and compare with the truth.

The truth is statistics from other readers. Without --only, the page of real tables is written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.adversarial.judge import judge as judge_adversarial
from scripts.adversarial.judge import selected
from scripts.adversarial.report import section
from scripts.realtables.compare import differences
from scripts.realtables.report import Result, page
from scripts.realtables.tables import RealTable, real_tables

_REPOSITORY = Path(__file__).parents[2]
_LEAST = 0.97
"""The least share of tables whose profile must be exact."""


def main() -> int:
    """Judge all tables, and write the page.

    With `--only`, judge some real tables and write no page.

    Returns:
        The exit status: 1 if a real table is wrong, fewer than 97 % of them are exact, or an adversarial table does
        not have its expected outcome. 2 if the folder of real tables does not exist. Otherwise 0.
    """
    parser = argparse.ArgumentParser(prog="make formats", description=__doc__)
    parser.add_argument("--tables", type=Path, default=_REPOSITORY.parent / "shared" / "realtables", metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="TEXT", help="tables whose name has this in it; writes no page")
    arguments = parser.parse_args()
    if not arguments.tables.is_dir():
        print(f"the real tables are not there: {arguments.tables}; name their folder with --tables", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as unpack_folder:
        tables = [t for t in real_tables(arguments.tables, Path(unpack_folder)) if arguments.only in t.name]
        results = judge(tables)
    for result in results:
        if result.outcome != "exact":
            print(f"{result.outcome}: {result.table.name}: {result.detail}")
    counts = {name: sum(result.outcome == name for result in results) for name in ("exact", "refused", "wrong")}
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    has_failed = counts["wrong"] > 0 or counts["exact"] < _LEAST * len(results)
    if not arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            verdicts = judge_adversarial(selected(), Path(folder))
        for verdict in verdicts:
            if not verdict.as_expected:
                print(f"{verdict.outcome}: {verdict.case.name}: {verdict.detail}")
        (_REPOSITORY / "docs" / "reference" / "real-tables.md").write_text(f"{page(results)}\n{section(verdicts)}")
        has_failed |= not all(verdict.as_expected for verdict in verdicts)
    return int(has_failed)


def judge(tables: Sequence[RealTable]) -> list[Result]:
    """Profile each table, and return the results in the order of the tables.

    The first profile has no options. If it is not exact, a table with a path mapping is profiled again with that
    mapping, and the second result counts.
    """
    results = {table.name: _result(table, answer, False) for table, answer in _profiled(tables, {})}
    relocated_tables = [table for table in tables if table.path_mapping and results[table.name].outcome != "exact"]
    path_mapping = {recorded_path: now for table in relocated_tables for recorded_path, now in table.path_mapping}
    results |= {table.name: _result(table, answer, True) for table, answer in _profiled(relocated_tables, path_mapping)}
    return [results[table.name] for table in tables]


def _profiled(tables: Sequence[RealTable], path_mapping: dict[str, str]) -> list[tuple[RealTable, dict[str, Any]]]:
    """Return each table with its profile as JSON, from one call of `metastore profile`."""
    if not tables:
        return []
    options = [
        part for recorded_path, now in path_mapping.items() for part in ("--path-mapping", f"{recorded_path}={now}")
    ]
    command = [str(Path(sys.executable).with_name("metastore")), "profile", "--json", *options]
    process = subprocess.run([*command, *(table.uri for table in tables)], capture_output=True, text=True, check=False)
    lines = process.stdout.splitlines()
    if len(lines) != len(tables):
        raise RuntimeError(f"{len(lines)} answers for {len(tables)} tables:\n{process.stderr}")
    return [(table, json.loads(line)) for table, line in zip(tables, lines, strict=True)]


def _result(table: RealTable, answer: dict[str, Any], is_relocated: bool) -> Result:
    if "error" in answer:
        agreement = "the readers agree that it cannot be read; " if "error" in table.truth else ""
        return Result(table, "refused", agreement + _without_folder(str(answer["error"]), table), is_relocated)
    problems = ["it should be refused"] if "error" in table.truth else differences(answer, table.truth)
    return Result(table, "wrong" if problems else "exact", "; ".join(problems), is_relocated)


def _without_folder(message: str, table: RealTable) -> str:
    return message.replace(table.uri, Path(table.uri).name)


if __name__ == "__main__":
    sys.exit(main())
