"""What changed value by value, for people: of each column the values with the largest change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metastore_assets.cli.output import Answer
from metastore_assets.cli.page import Column, Page, Styled
from metastore_assets.report import text

_SIGNS = {"add": ("+", "green"), "delete": ("-", "red"), "update": ("~", "yellow")}
_WORDS = {"add": "added", "update": "changed", "delete": "deleted"}


def print_changes(page: Page, answer: Answer, most: int, *, chosen: bool) -> None:
    """A heading, and a table for each column that changed. Of columns that were `chosen` also why nothing is known."""
    sides = f" version {answer['before']['version']:,} → {answer['after']['version']:,}"
    page.line(Styled(text.printable(answer["table"]), "bold"), sides)
    same = unknown = 0
    for own in answer["columns"]:
        if own["changes"] is None:
            unknown += 1
            if chosen:
                page.line(Styled(f"{text.printable(own['column'])}: {text.printable(own['reason'] or '')}", "dim"))
        elif not any(own["counts"].values()):
            same += 1
        else:
            _print_column(page, own, most)
    told = [f"{text.plural(same, 'column')} the same"] if same else []
    if unknown and not chosen:
        told.append(f"{text.plural(unknown, 'column')} not listed (--columns tells why)")
    if told:
        page.line(Styled(f"  {', '.join(told)}", "dim"))


def _print_column(page: Page, own: Mapping[str, Any], most: int) -> None:
    counts = own["counts"]
    total = sum(counts.values())
    facts = ", ".join(f"{counts[kind]:,} {word}" for kind, word in _WORDS.items() if counts[kind])
    page.line(Styled(text.printable(own["column"]), "bold"), f"  {text.plural(total, 'value')}: {facts}")
    lines = []
    for row in _largest(own["changes"], most):
        sign, style = _SIGNS[row["change"]]
        before, after = (int(row[side] or 0) for side in ("before", "after"))
        value = text.cut(text.typed_value(row["value"], own["type"]), 60)
        lines.append((Styled(sign, style), value, f"{before:,}", f"{after:,}", f"{after - before:+,}"))
    columns = [Column(""), Column("value"), *(Column(name, right=True) for name in ("before", "after", "change"))]
    page.grid(columns, lines)
    if total > len(lines):
        page.line(Styled(f"  and {total - len(lines):,} more (-n, --json)", "dim"))


def _largest(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Those with the largest change, in the order of values."""
    moved = [abs(int(row["after"] or 0) - int(row["before"] or 0)) for row in rows]
    order = sorted(range(len(rows)), key=lambda at: -moved[at])[:most]
    return [rows[at] for at in sorted(order)]
