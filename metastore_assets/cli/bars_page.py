"""Bars and charts for people: most frequent values, and the bins of a histogram."""

from __future__ import annotations

from collections.abc import Sequence

from metastore_assets.cli.output import Answer
from metastore_assets.cli.page import Column, Page, Part, Styled
from metastore_assets.report import text
from metastore_assets.report.bars import bar, chart

LISTED_BINS = 40
"""Up to so many bins, each has a line with its edges and its frequency; more make a chart."""
CHART_HEIGHT = 12
_BAR = 30
_BARS = Column("", style="green")


def print_top(page: Page, subject: Answer, values: Sequence[Answer]) -> None:
    """One line per value with a bar, then what is not among them."""
    total = subject["value_count"] + subject["null_count"]
    most = max((row["frequency"] for row in values), default=0)
    longest = _BAR if page.width is None else max(8, min(_BAR, page.width // 3))
    limit = None if page.width is None else max(12, page.width - longest - 30)
    lines: list[Sequence[Part]] = [
        (
            text.typed_value(row["value"], subject["type"], limit),
            text.number(row["frequency"]),
            Styled(text.share(row["frequency"], total), "dim"),
            Styled(bar(row["frequency"], most, longest), "green"),
        )
        for row in values
    ]
    others = subject["value_count"] - sum(row["frequency"] for row in values)
    lines += [
        tuple(Styled(cell, "dim italic") for cell in (name, text.number(count), text.share(count, total), ""))
        for name, count in (("other values", others), ("null", subject["null_count"]))
        if count > 0
    ]
    page.grid([Column("value"), Column("frequency", right=True), Column("share", right=True), _BARS], lines)


def print_bins(page: Page, type: str, bins: Sequence[Answer]) -> None:
    """A line per bin, or a chart where there are many."""
    if not bins:
        page.line(Styled("  no finite values", "dim"))
    elif page.width is None or len(bins) <= LISTED_BINS:
        _list_bins(page, type, bins)
    else:
        _chart(page, type, bins, page.width)


def _list_bins(page: Page, type: str, bins: Sequence[Answer]) -> None:
    most = max(row["frequency"] for row in bins)
    limit = None if page.width is None else 30
    columns = [*(Column(heading, right=True) for heading in ("from", "below", "frequency")), _BARS]
    page.grid(
        columns,
        [
            (
                text.typed_value(row["minimum"], type, limit),
                text.typed_value(row["maximum"], type, limit),
                text.number(row["frequency"]),
                bar(row["frequency"], most, _BAR),
            )
            for row in bins
        ],
    )


def _chart(page: Page, type: str, bins: Sequence[Answer], width: int) -> None:
    counts = [row["frequency"] for row in bins]
    marks = {0: text.number(max(counts)), CHART_HEIGHT // 2: text.number(max(counts) // 2)}
    axis = max(map(len, marks.values())) + 2
    stretch = max(1, (width - axis) // len(counts))
    lines = chart([count for count in counts for _ in range(stretch)], CHART_HEIGHT)
    for row, line in enumerate(lines):
        mark = f"{marks[row]:>{axis - 2}} ┤" if row in marks else f"{'│':>{axis}}"
        page.line(Styled(mark, "dim"), Styled(line.rstrip(), "green"))
    drawn = len(counts) * stretch
    page.line(Styled(f"{'0':>{axis - 2}} └{'─' * drawn}", "dim"))
    page.line(Styled(" " * axis + _scale(type, bins, drawn), "dim"))


def _scale(type: str, bins: Sequence[Answer], width: int) -> str:
    """Labels below a chart: its first edge, its middle where there is room, and its last edge."""
    first = text.typed_value(bins[0]["minimum"], type, width // 2)
    last = text.typed_value(bins[-1]["maximum"], type, width // 2)
    middle = text.typed_value(bins[len(bins) // 2]["minimum"], type)
    left = width * (len(bins) // 2) // len(bins)
    line = first
    if left > text.cells(first) + 2 and left + text.cells(middle) + 2 < width - text.cells(last):
        line += " " * (left - text.cells(first)) + middle
    return line + " " * max(2, width - text.cells(line) - text.cells(last)) + last
