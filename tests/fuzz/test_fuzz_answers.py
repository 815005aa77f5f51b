"""Answers about random tables under random policies equal those computed in plain Python.

A failure prints its seed, which determines the table, its commits, its policies and all questions. With the seed 1017,
`METASTORE_FUZZ_SEED=1017 METASTORE_FUZZ_TABLES=1 pytest tests/fuzz -m long` asks the same questions again.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.fuzz.session import Report, run_session

SEEDS = (23, 4, 51, 10, 13, 6)
"""Seeds of tables of all formats, including those that have found mistakes."""
PREDICATES = 25


def _assert_no_difference(report: Report) -> None:
    assert not report.findings, "\n".join(map(str, report.findings))


@pytest.mark.parametrize("seed", [*SEEDS[:2], *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[2:])])
def test_answers_about_random_tables_equal_those_of_their_rows(seed: int) -> None:
    report = Report()
    run_session(seed, report, versions=2, predicates=4)
    assert report.pairs >= 10
    _assert_no_difference(report)


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
def test_answers_about_many_random_tables_equal_those_of_their_rows() -> None:
    """Answers about tables of many random seeds equal those of their rows.

    `METASTORE_FUZZ_PAIRS` is the number of questions (default: 10,000), and `METASTORE_FUZZ_SEED` the first seed.
    `METASTORE_FUZZ_TABLES` limits the number of tables, and `METASTORE_FUZZ_SECONDS` the time. With
    `METASTORE_FUZZ_LOG`, differences and progress are written to that file.
    """
    settings = {
        name: os.environ.get(f"METASTORE_FUZZ_{name}") for name in ("PAIRS", "SEED", "TABLES", "SECONDS", "LOG")
    }
    pairs, seed = int(settings["PAIRS"] or 10_000), int(settings["SEED"] or 1000)
    tables, end = int(settings["TABLES"] or pairs), time.monotonic() + float(settings["SECONDS"] or "inf")
    report, start = Report(), time.monotonic()
    while report.pairs < pairs and report.tables < tables and time.monotonic() < end:
        findings_before = len(report.findings)
        run_session(seed, report, predicates=PREDICATES)
        seed += 1
        if settings["LOG"]:
            rate = report.pairs / (time.monotonic() - start)
            lines = [*map(str, report.findings[findings_before:])]
            lines.append(
                f"{report.pairs} pairs, {report.tables} tables, {rate:.1f}/s, {len(report.findings)} differences"
            )
            with Path(settings["LOG"]).open("a", encoding="utf-8") as log:
                log.write("\n".join(lines) + "\n")
    _assert_no_difference(report)
