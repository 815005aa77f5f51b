"""Quantiles, ranks, where a value is, and how values spread, for people."""

from __future__ import annotations

from collections.abc import Sequence

from metastore_assets.cli.output import Answer
from metastore_assets.cli.page import Column, Page, Styled
from metastore_assets.report import text
from metastore_assets.report.bars import bar

_BAR = 30


def print_quantiles(page: Page, type: str, rows: Sequence[Answer]) -> None:
    """One line per quantile."""
    lines = [
        (f"{row['q']:.10g}", text.estimate(text.typed_value(row["value"], type), row["guarantee"])) for row in rows
    ]
    page.grid([Column("q", right=True, style="bold"), Column("value")], lines)


def print_rank(page: Page, answer: Answer) -> None:
    """One line."""
    rows = text.plural(answer["row_count"], "row")
    rank = text.estimate(text.number(answer["rank"]), answer["guarantee"])
    often = answer["frequency"]
    told = "how often it occurs is not kept" if often is None else f"it occurs {text.plural(often, 'time')}"
    page.line(f"{rank} of the values in {rows} are less; {told}")


def print_where(page: Page, rows: Sequence[Answer]) -> None:
    """One line per partition."""
    if not rows:
        page.line(Styled("  no partition holds it", "dim"))
        return
    most = max(row["frequency"] for row in rows)
    columns = [Column("partition", style="bold"), Column("frequency", right=True), Column("", style="green")]
    lines = [
        (text.printable(row["partition"]), text.number(row["frequency"]), bar(row["frequency"], most, _BAR))
        for row in rows
    ]
    page.grid(columns, lines)


def print_spreads(page: Page, rows: Sequence[Answer]) -> None:
    """A line for each column of which it is known."""
    for row in rows:
        if row["entropy"] is not None:
            duplicates, singletons = row["duplicate_count"], row["singleton_count"]
            told = f"{text.number(duplicates)} of its values occur more than once, {text.number(singletons)} once"
            entropy = f"entropy {text.number(row['entropy'])} bits"
            page.line(Styled(f"  {text.printable(row['column'])}: {told}; {entropy}", "dim"))


def print_compacted(page: Page, result: Answer) -> None:
    """A line, and one for each plain file."""
    name = Styled(result["table"], "bold")
    if result["published"]:
        files = f"{text.plural(result['files_before'], 'file')} of lists"
        files += f" merged to {result['files']:,}" if result["files"] != result["files_before"] else ", merged before"
        page.line(name, Styled(f" version {result['version']}", "green"), f": {files}")
    else:
        page.line(name, Styled(f" has compact lists at version {result['version']}", "green"))
    for kind in ("frequencies", "ranks"):
        if result[kind] is not None:
            page.line(f"  {kind:<11}  {result[kind]}")
