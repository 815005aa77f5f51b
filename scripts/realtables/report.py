"""The page docs/reference/real-tables.md: the outcome of each real table and of each feature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.realtables.tables import RealTable

_TITLES = {"iceberg": "Iceberg", "delta": "Delta", "hudi": "Hudi", "files": "Plain files"}
_NOTES = {
    "exact": "Row count, and every column's nulls, NaNs, distinct values, minimum and maximum are what is known.",
    "refused": "No numbers are given: the table is refused with an error that says why.",
    "wrong": "Some number differs from what is known.",
}


@dataclass(frozen=True)
class Result:
    """How the profile of one table compares with the statistics that other readers agree on."""

    table: RealTable
    outcome: str
    """A key of `_NOTES`."""
    detail: str
    """The error, or the differences from the truth."""
    relocated: bool
    """Whether the table was profiled with `--path-mapping`."""


def page(results: Sequence[Result]) -> str:
    """Return the page in Markdown."""
    lines = [
        "# What is read exactly",
        "",
        "Written by `make formats`: `metastore profile` is run over tables that Spark, Flink, Trino, Impala, Hudi,",
        "Delta, Databricks and other engines wrote, and its answers are compared with what other readers agree on.",
        "",
        *(f"- **{outcome}**: {note}" for outcome, note in _NOTES.items()),
        "",
        "| format | tables | exact | refused | wrong |",
        "|---|--:|--:|--:|--:|",
        *(_summary(title, [r for r in results if r.table.format == name]) for name, title in _TITLES.items()),
        _summary("**all**", results),
    ]
    for name, title in _TITLES.items():
        lines += ["", f"## {title}", *_section([result for result in results if result.table.format == name])]
    return "\n".join(lines) + "\n"


def _summary(title: str, results: Sequence[Result]) -> str:
    counts = Counter(result.outcome for result in results)
    return f"| {title} | {len(results)} | {' | '.join(str(counts[outcome]) for outcome in _NOTES)} |"


def _section(results: Sequence[Result]) -> list[str]:
    """Return the lines of a section in Markdown: a table of features, and a table of results."""
    lines = ["", "| feature | exact | not |", "|---|--:|---|"]
    features = sorted({feature for result in results for feature in _features(result)})
    for feature in features:
        with_feature = [result for result in results if feature in _features(result)]
        failures = [f"{result.outcome}: {_name(result)}" for result in with_feature if result.outcome != "exact"]
        if len(with_feature) > 1 or failures:
            lines.append(
                f"| {feature} | {len(with_feature) - len(failures)} of {len(with_feature)} | {', '.join(failures)} |"
            )
    lines += ["", "| table | what is special | rows | result |", "|---|---|--:|---|"]
    for result in sorted(results, key=lambda result: result.table.name):
        rows = result.table.truth.get("row_count", "")
        outcome = result.outcome if result.outcome == "exact" else f"**{result.outcome}**: {_cell(result.detail)}"
        mapping_note = " (with `--path-mapping`)" if result.relocated else ""
        lines.append(f"| `{_name(result)}` | {_cell(result.table.features)} | {rows} | {outcome}{mapping_note} |")
    return lines


def _name(result: Result) -> str:
    return result.table.name.partition("/")[2]


def _features(result: Result) -> set[str]:
    return {_cell(part.strip()) for part in result.table.features.split(";") if part.strip()}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
