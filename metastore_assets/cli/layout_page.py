"""How well columns skip, for people."""

from __future__ import annotations

from metastore_assets.cli.output import Answer
from metastore_assets.cli.page import Column, Page, Styled
from metastore_assets.report import text
from metastore_assets.report.bars import bar

_BAR = 20
_STYLES = {"clustered": "green", "partly": "yellow", "scattered": "red"}


def print_layout(page: Page, answer: Answer) -> None:
    """A line for each column of which it is known, the best first, and what to make of it."""
    total = answer["fragments"]
    page.line(
        Styled(text.printable(answer["table"]), "bold"), f" version {answer['version']}: {text.plural(total, 'file')}"
    )
    known = [own for own in answer["columns"] if own["depth"] is not None]
    known.sort(key=lambda own: (own["depth"], own["column"]))
    columns = [Column("column", style="bold"), *(Column(name, right=True) for name in ("in files", "at most", "skips"))]
    columns += [Column("", style="green"), Column("")]
    lines = []
    for own in known:
        verdict = own["verdict"] if own["verdict"] != "unknown" else "too few files to tell"
        lines.append(
            (
                text.printable(own["column"]),
                f"{own['depth']:,.1f}",
                f"{own['deepest']:,}",
                f"{own['skipped']:.0%}",
                bar(round(own["skipped"] * 1000), 1000, _BAR),
                Styled(verdict, _STYLES.get(own["verdict"], "dim")),
            )
        )
    if lines:
        page.grid(columns, lines)
    scattered = [text.printable(own["column"]) for own in known if own["verdict"] == "scattered"]
    if scattered:
        named = ", ".join(scattered[:5]) + (", …" if len(scattered) > 5 else "")
        page.line(
            Styled("  to skip files by a scattered column, order, cluster or partition the table by it: ", "dim"), named
        )
    if unknown := len(answer["columns"]) - len(known):
        page.line(Styled(f"  {text.plural(unknown, 'column')} without bounds", "dim"))
