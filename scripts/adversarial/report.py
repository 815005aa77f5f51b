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
    "locations": "Locations",
    "hostile": "Hostile files",
}


def section(verdicts: Sequence[Verdict]) -> str:
    """Return the section in Markdown, with a table for each group of cases."""
    lines = [
        "## Adversarial tables",
        "",
        "Tables with features that readers often get wrong, and damaged tables. `refused` is expected if a correct",
        "answer needs an option, or if a file is damaged. The error names the file and says what to do. The command",
        "`python -m scripts.adversarial` writes and checks the tables.",
        "",
        f"{sum(verdict.as_expected for verdict in verdicts)} of {len(verdicts)} have the expected result.",
    ]
    for group, title in _TITLES.items():
        of_group = [verdict for verdict in verdicts if verdict.case.group == group]
        lines += ["", f"### {title}", "", "| case | written by | what is special | expected | outcome |"]
        lines += ["|---|---|---|---|---|", *map(_row, of_group)]
    return "\n".join(lines) + "\n"


def _row(verdict: Verdict) -> str:
    case = verdict.case
    outcome = verdict.outcome if verdict.as_expected else f"**{verdict.outcome}**"
    name = case.name.partition("/")[2]
    return f"| `{name}` | {case.writer} | {case.special} | {verdict.expected} | {outcome} |"
