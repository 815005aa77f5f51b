"""What `verify` and `check-statistic` found, in the terminal."""

from __future__ import annotations

from metastore_assets.cli.output import Answer
from metastore_assets.cli.page import Page, Styled
from metastore_assets.report import text


def print_verified(page: Page, result: Answer) -> None:
    """One line, and one for each difference."""
    name = Styled(result["table"], "bold")
    what = [text.plural(result["fragments"], "fragment"), text.plural(result["partitions"], "partition")]
    what += ["the table"] if result["whole"] else []
    left_out = f"; {text.plural(result['moved_on'], 'partition')} left out, changed since" if result["moved_on"] else ""
    wrong = len(result["differences"]) + len(result["unreadable"])
    verdict = Styled(f"{wrong:,} wrong", "red") if wrong else Styled("all as the table says", "green")
    page.line(name, f" version {result['version']}: {', '.join(what)} compared{left_out}: ", verdict)
    for row in result["differences"]:
        place = f"  {row['level']} {text.printable(row['name'])}" + (
            f", {text.printable(row['column'])}" if row["column"] else ""
        )
        numbers = f"{text.printable(row['stored'])} is stored, {text.printable(row['found'])} found"
        page.line(Styled(f"{place}: {row['statistic']}: {numbers}", "red"))
    for row in result["unreadable"]:
        page.line(Styled(f"  {text.printable(row['path'])}: {text.printable(row['message'])}", "red"))


def print_checked(page: Page, result: Answer) -> None:
    """One line, and the data on which a law does not hold."""
    name = Styled(result["statistic"], "bold")
    classes = ", ".join(result["type_classes"])
    found = result["counterexample"]
    verdict = Styled("all laws hold", "green") if found is None else Styled("a law does not hold", "red")
    page.line(name, f" {result['name']}, revision {result['revision']}, by {result['route']}: ", verdict)
    if found is None:
        page.line(Styled(f"  tried on {classes}", "dim"))
        return
    page.line(f"  {found['law']}; but of {found['type_class']}")
    for rows in found["data"]:
        page.line(f"    {text.printable(rows)}")
    page.line(f"  expected {text.printable(found['expected'])}")
    page.line(f"  found    {text.printable(found['found'])}")
