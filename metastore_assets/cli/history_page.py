"""Statistics over versions, for people: a line each, and how they went as small charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from metastore_assets.cli.bars_page import CHART_HEIGHT
from metastore_assets.cli.page import Column, Page, Styled
from metastore_assets.report import text
from metastore_assets.report.bars import bar, chart, sparkline

if TYPE_CHECKING:
    from metastore_assets.history import HistoryPoint

Record = Mapping[str, Any]
_LISTED = 25
"""Of more versions a terminal shows the last."""
_BAR = 24
_LEVELS = 7
_SPARKS = 60


def print_versions(page: Page, name: str, records: Sequence[Record]) -> None:
    """One line per version of a table."""
    _heading(page, name, records)
    _sparks(page, {"rows": [own["row_count"] for own in records], "bytes": [own["bytes"] for own in records]})
    columns = [Column("version", right=True, style="bold"), Column("snapshot"), Column("published")]
    columns += [Column(heading, right=True) for heading in ("rows", "bytes", "partitions", "fragments")]
    lines = [
        (
            text.number(own["version"]),
            text.short(own["snapshot"], 20),
            _moment(own),
            text.number(own["row_count"]),
            text.size(own["bytes"]),
            text.number(own["partitions"]),
            text.number(own["fragments"]),
        )
        for own in _last(page, records)
    ]
    page.fitting_grid(columns, lines, ["snapshot", "fragments", "partitions"])


def print_column(page: Page, name: str, column: str, records: Sequence[Record]) -> None:
    """One line per version of a column."""
    kind = text.type_name(records[-1]["type"]) if records else ""
    _heading(page, f"{name} {column}", records, kind)
    sparks = {
        "nulls": [_share(own) for own in records],
        "distinct": [own["distinct_count"] for own in records],
        "mean": [own["mean"] for own in records],
    }
    _sparks(page, sparks)
    headings = ("rows", "nulls", "distinct", "minimum", "median", "maximum", "mean")
    columns = [Column("version", right=True, style="bold"), Column("published")]
    columns += [Column(heading, right=True) for heading in headings]
    limit = None if page.width is None else 22
    lines = []
    for own in _last(page, records):
        values = own["minimum"], _median(own), own["maximum"]
        shown = [text.typed_value(value, own["type"], limit) for value in values]
        lines.append(
            (
                text.number(own["version"]),
                _moment(own),
                text.number(own["row_count"]),
                text.share(own["null_count"], own["null_count"] + own["value_count"]),
                text.estimate(text.number(own["distinct_count"]), own["distinct_count_guarantee"]),
                text.at_least(shown[0], own["minimum_exact"] or own["minimum"] is None),
                text.estimate(shown[1], own["percentiles_guarantee"]),
                text.at_most(shown[2], own["maximum_exact"] or own["maximum"] is None),
                text.number(own["mean"]),
            )
        )
    page.fitting_grid(columns, lines, ["published", "median", "mean", "rows"])


def print_statistic(page: Page, subject: str, points: Sequence[HistoryPoint]) -> None:
    """A chart of numbers, and a line per version with a bar."""
    _heading(page, subject, [{"version": own.version} for own in points])
    numbers = [_number(own.value) for own in points]
    if page.width is not None and sum(own is not None for own in numbers) > 1:
        _chart(page, numbers, page.width)
    most = max((abs(own) for own in numbers if own is not None), default=0)
    columns = [Column("version", right=True, style="bold"), Column("published"), Column("value", right=True)]
    lines = [
        (
            text.number(own.version),
            f"{own.published_at:%Y-%m-%d %H:%M:%S}Z",
            _value(own),
            bar(abs(number or 0), most, _BAR),
        )
        for own, number in _last(page, list(zip(points, numbers, strict=True)))
    ]
    page.grid([*columns, Column("", style="green")], lines)


def _heading(page: Page, subject: str, records: Sequence[Record], kind: str = "") -> None:
    told = text.plural(len(records), "version")
    if records:
        told += f", {records[0]['version']:,} to {records[-1]['version']:,}"
    page.line(Styled(text.printable(subject), "bold"), Styled(f" {kind}" if kind else "", "cyan"), f"  {told}")


def _sparks(page: Page, series: Mapping[str, Sequence[float | None]]) -> None:
    """A line for each of the series that has numbers and moves: from its least to its greatest."""
    for name, values in series.items():
        known = [own for own in values[-_SPARKS:] if own is not None and math.isfinite(own)]
        if len(known) < 2 or min(known) == max(known):
            continue
        low, high = min(known), max(known)
        levels = [0 if own is None or not math.isfinite(own) else _level(own, low, high) for own in values[-_SPARKS:]]
        drawn = Styled(sparkline(levels), "green")
        page.line(f"  {name:<9}", drawn, Styled(f"  {text.number(low)} to {text.number(high)}", "dim"))


def _level(value: float, low: float, high: float) -> int:
    # Halves first: the difference of the greatest floats is none.
    return 1 + round(_LEVELS * ((value / 2 - low / 2) / (high / 2 - low / 2)))


def _chart(page: Page, numbers: Sequence[float | None], width: int) -> None:
    shown = list(numbers[-(width - 14) :])
    known = [own for own in shown if own is not None]
    low, high = min(known), max(known)
    base = 0.0 if low >= 0 and (high == low or low < high / 2) else low
    steps = 8 * CHART_HEIGHT
    span = high / 2 - base / 2
    levels = [
        0 if own is None else round(1 + (steps - 1) * ((own / 2 - base / 2) / span if span else 1)) for own in shown
    ]
    stretch = max(1, min(6, (width - 14) // len(shown)))
    lines = chart([own for own in levels for _ in range(stretch)] + [steps], CHART_HEIGHT)
    for row, line in enumerate(lines):
        mark = text.number(high) if row == 0 else text.number(base) if row == CHART_HEIGHT - 1 else ""
        page.line(Styled(f"{mark:>11} │", "dim"), Styled(line[:-1].rstrip(), "green"))


def _last(page: Page, records: Sequence[Any]) -> Sequence[Any]:
    if page.width is None or len(records) <= _LISTED:
        return records
    page.line(Styled(f"  the last {_LISTED} of {len(records):,} versions (all with --json)", "dim"))
    return records[-_LISTED:]


def _value(point: HistoryPoint) -> str:
    if point.value is None:
        return text.ABSENT
    shown = text.number(point.value) if isinstance(point.value, int | float) else text.value(point.value)
    return text.estimate(shown, point.guarantee)


def _number(value: Any) -> float | None:
    """A value as a number, if it is one: decimals and large integers are text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _share(record: Record) -> float | None:
    rows = record["null_count"] + record["value_count"]
    return record["null_count"] / rows if rows else None


def _median(record: Record) -> str | None:
    found: str | None = next((own["value"] for own in record["percentiles"] or () if own["fraction"] == 0.5), None)
    return found


def _moment(record: Record) -> str:
    return f"{record['published_at']:%Y-%m-%d %H:%M:%S}Z"
