"""What a predicate leaves of a table, for people."""

from __future__ import annotations

from metastore_assets.cli.output import Answer
from metastore_assets.cli.page import Column, Page, Styled
from metastore_assets.report import text


def print_pruned(page: Page, answer: Answer) -> None:
    """How much is left, which files, and what has ruled out the others."""
    paths, total = answer["fragments"], answer["fragments_total"]
    left = text.share(len(paths), total) if total else ""
    page.line(
        Styled(answer["table"], "bold"),
        Styled(f" version {answer['version']}", "green"),
        f": {len(paths):,} of {text.plural(total, 'file')} to read{f' ({left})' if left else ''}, "
        f"{text.size(answer['bytes'])} of {text.size(answer['bytes_total'])}",
    )
    lower, upper = answer["rows_lower"], answer["rows_upper"]
    page.line(f"  {lower:,} to {upper:,} rows" if lower < upper else f"  exactly {text.plural(upper, 'row')}")
    if answer["explanation"]:
        columns = [
            Column("ruled out by"),
            Column("statistic"),
            Column("files", right=True),
            Column("bytes", right=True),
        ]
        lines = [
            (text.printable(own["conjunct"]), own["statistic"], f"{own['fragments']:,}", text.size(own["bytes"]))
            for own in answer["explanation"]
        ]
        page.grid(columns, lines)
    for path in paths:
        page.line(text.printable(path))
    for own in answer.get("eliminated", ()):
        told = own["statistic"] + (f" {own['value']}" if own["value"] is not None else "")
        page.line(Styled(f"- {text.printable(own['path'])}  {text.printable(own['conjunct'])}: {told}", "dim"))


def print_estimate(page: Page, answer: Answer) -> None:
    """One line."""
    if answer["guarantee"] == "exact":
        page.line(Styled(text.plural(answer["estimate"], "row"), "bold"))
        return
    assumes = "; the estimate takes conditions on different columns for independent" if answer["assumes"] else ""
    page.line(
        Styled(f"~{answer['estimate']:,} rows", "bold"),
        f", from {answer['lower']:,} to {answer['upper']:,}{assumes}",
    )


def print_count(page: Page, answer: Answer) -> None:
    """One line."""
    read = f"{answer['fragments_read']:,} of {text.plural(answer['fragments_total'], 'file')}"
    page.line(
        Styled(text.plural(answer["count"], "row"), "bold"), f"; read {read}, {text.size(answer['bytes_read'])} of them"
    )
