"""What checks found, for people."""

from __future__ import annotations

from collections.abc import Sequence

from metastore_assets.cli.output import Answer
from metastore_assets.cli.page import Column, Page, Part, Styled
from metastore_assets.report import text


def print_checks(page: Page, answer: Answer) -> None:
    """A heading, one line per check, and one for each partition that has not passed, and for what would tell more."""
    checks = answer["checks"]
    verdict = _verdict(answer)
    page.line(Styled(text.printable(answer["table"]), "bold"), f" version {answer['version']}: ", verdict)
    if not checks:
        note = f"no checks are configured: `metastore check {answer['table']} --suggest` prints some to begin with"
        page.line(Styled(f"  {note}", "dim"))
        return
    columns = [Column(""), Column("check", style="bold"), Column("expected"), Column("observed")]
    page.fitting_grid(columns, [_row(check) for check in checks], ["expected"])
    for check in checks:
        for own in check.get("partitions", {}).get("first", ()):
            place = f"  {check['check']}, {text.printable(own['partition'])}: "
            page.line(place, Styled(text.one_line(own["observed"]), _STYLES[own["status"]]))
        if check["status"] == "unknown" and check["advice"]:
            page.line(Styled(f"  {check['check']} would be answered by {text.one_line(check['advice'])}", "dim"))


_STYLES = {"passed": "green", "failed": "red", "unknown": "yellow"}


def _verdict(answer: Answer) -> Styled:
    counts = [f"{answer[status]:,} {status}" for status in ("passed", "failed", "unknown") if answer[status]]
    style = "red" if answer["status"] == "failed" else "yellow" if answer["failed"] or answer["unknown"] else "green"
    return Styled(", ".join(counts) or "nothing to check", style)


def _row(check: Answer) -> Sequence[Part]:
    is_warning = check["status"] == "failed" and check["severity"] == "warn"
    word = "warning" if is_warning else check["status"]
    return (
        Styled(word, "yellow" if is_warning else _STYLES[check["status"]]),
        check["check"],
        text.one_line(check["expected"]),
        text.one_line(check["observed"]),
    )


def print_suggestions(page: Page, answer: Answer) -> None:
    """The YAML, as it is to be pasted."""
    for line in answer["yaml"].splitlines():
        page.line(line)
