"""Profile the tables of the cases, and compare the results with the expected ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from scripts.adversarial.case import CASES, Case, Refused, Written, differences

_GROUPS = ("text_files", "typed_files", "delta_tables", "iceberg_tables", "locations", "hostile")
"""The modules that declare cases."""


@dataclass(frozen=True)
class Verdict:
    """The result of one case."""

    case: Case
    expected: str
    """`exact` or `refused`."""
    outcome: str
    """`exact`, `refused`, `wrong`, or `refused otherwise`: the error does not contain the expected words."""
    detail: str
    """The error, or the differences from the expected rows. It is empty if the outcome is `exact`."""

    @property
    def as_expected(self) -> bool:
        """Whether the outcome is the expected one."""
        return self.outcome == self.expected


def selected(text: str = "") -> list[Case]:
    """Return the cases whose name contains a text."""
    for group in _GROUPS:
        import_module(f"scripts.adversarial.{group}")
    return [case for name, case in CASES.items() if text in name]


def judge(cases: Sequence[Case], folder: Path) -> list[Verdict]:
    """Write each case into a separate folder in `folder`, profile it with the command line, and compare.

    Return the verdicts in the order of the cases.
    """
    written_cases = {case.name: case.write_into(folder / case.name) for case in cases}
    by_options: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        by_options.setdefault(written_cases[case.name].options, []).append(case)
    verdicts: dict[str, Verdict] = {}
    for options, cases_of_call in by_options.items():
        uris = [str(folder / case.name / written_cases[case.name].path).rstrip("/") for case in cases_of_call]
        for case, uri, answer in zip(cases_of_call, uris, profiles(uris, options), strict=True):
            verdicts[case.name] = verdict(case, written_cases[case.name], answer, uri)
    return [verdicts[case.name] for case in cases]


def profiles(uris: Sequence[str], options: Sequence[str]) -> list[dict[str, Any]]:
    """Return the profile of each location, from one call of `metastore profile --json`."""
    command = [sys.executable, "-m", "metastore_assets", "profile", "--json", *options]
    process = subprocess.run([*command, *uris], capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    if len(answers) != len(uris):
        raise RuntimeError(f"{len(answers)} answers for {len(uris)} tables:\n{process.stderr}")
    return answers


def verdict(case: Case, written_case: Written, answer: dict[str, Any], uri: str) -> Verdict:
    """Compare a profile with the expectation.

    Args:
        case: The case.
        written_case: The table of the case.
        answer: The profile as JSON, with the key `error` if profiling failed.
        uri: The location that was profiled. In errors, the verdict has only the last part of the location.
    """
    expected = written_case.expected
    if isinstance(expected, Refused):
        if "error" not in answer:
            return Verdict(case, "refused", "wrong", f"{answer['row_count']} rows were reported")
        missing_words = [word for word in expected.words if word not in answer["error"]]
        outcome = "refused otherwise" if missing_words else "refused"
        message = answer["error"].replace(uri, Path(uri).name)
        return Verdict(case, "refused", outcome, f"{message} (no {missing_words})" if missing_words else message)
    if "error" in answer:
        return Verdict(case, "exact", "refused", answer["error"].replace(uri, Path(uri).name))
    problems = differences(answer, expected)
    return Verdict(case, "exact", "wrong" if problems else "exact", "; ".join(problems))
