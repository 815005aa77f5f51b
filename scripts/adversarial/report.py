"""The section of docs/reference/real-tables.md about adversarial tables."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.adversarial.judge import Verdict

_TITLES = {
    "csv": "CSV",
    "json": "JSON lines",
    "parquet": "Parquet",
    "orc": "ORC",
    "avro": "Avro",
    "delta": "Delta",
    "iceberg": "Iceberg",
    "places": "Places",
    "hostile": "Hostile files",
}


def section(verdicts: Sequence[Verdict]) -> str:
    """Return the section in Markdown, with a table for each group of cases."""
    lines = [
        "## Adversarial tables",
        "",
        "Tables that other libraries write, or that were damaged on purpose, each in a way that readers are easily",
        "wrong about. `refused` is expected where no answer would be right without being told more, or where a file is",
        "broken: the error names the file and says what to do. `python -m scripts.adversarial` writes and judges them.",
        "",
        f"{sum(verdict.as_expected for verdict in verdicts)} of {len(verdicts)} come out as expected.",
    ]
    for group, title in _TITLES.items():
        own = [verdict for verdict in verdicts if verdict.case.group == group]
        lines += ["", f"### {title}", "", "| case | written by | what is special | expected | outcome |"]
        lines += ["|---|---|---|---|---|", *map(_row, own)]
    return "\n".join(lines) + "\n"


def _row(verdict: Verdict) -> str:
    case = verdict.case
    outcome = verdict.outcome if verdict.as_expected else f"**{verdict.outcome}**"
    name = case.name.partition("/")[2]
    return f"| `{name}` | {case.writer} | {case.special} | {verdict.expected} | {outcome} |"
