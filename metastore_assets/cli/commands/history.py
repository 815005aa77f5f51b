"""`metastore history`: show statistics of all versions, including expired ones.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.completion import complete_column
from metastore_assets.cli.drawing import CHART_HEIGHT, bar, chart, draw_hidden_columns, sparkline
from metastore_assets.cli.failures import Invocation
from metastore_assets.cli.opening import load_config, open_version
from metastore_assets.cli.options import name_argument, output_options
from metastore_assets.cli.output import GridColumn, Page, Styled, answer
from metastore_assets.cli.progress import show_progress
from metastore_assets.errors import StoreError
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.history import HistoryPoint

Record = Mapping[str, Any]
"""A row of the history table as Python values."""
_LISTED_VERSIONS = 25
"""The maximum number of versions that a page on a terminal lists. If there are more, it lists the last ones."""
_BAR_WIDTH = 24
_SPARK_LEVELS = 7
_SPARK_WIDTH = 60


@click.command(short_help="Show the statistics of a table or column over its versions.")
@name_argument
@click.argument("column", metavar="[COLUMN]", required=False, shell_complete=complete_column)
@click.option(
    "--statistic",
    metavar="NAME",
    help="Show only one statistic, such as null_count, distinct_count, mean or p50 of a column; or row_count, bytes, "
    "partitions or fragments of the table.",
)
@click.option("--append", is_flag=True, help="First add missing versions to the Delta table, for its other readers.")
@output_options
@click.pass_obj
def history(
    invocation: Invocation, name: str, column: str | None, statistic: str | None, append: bool, as_json: bool
) -> None:
    """Show rows, nulls, distinct values and more in every version, the oldest first.

    The history includes expired versions. It is stored in the Delta table `<root>/NAME/history`.
    """
    from metastore_assets.history import append_versions, distinct_versions
    from metastore_assets.lookup import Table

    table: Table = open_version(load_config(invocation), name)
    if append:
        with show_progress() as watcher:
            watcher.working(name, "adding versions to the history")
            try:
                append_versions(table.versions)
            except StoreError as error:
                raise StoreError(f"{error}; without --append, this command writes nothing") from error
    if statistic is not None:
        try:
            points = table.history(column, statistic)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        subject = " ".join(filter(None, (name, column, statistic)))
        document = list(map(_point_to_json, points))
        answer(document, lambda page: _draw_statistic(page, subject, points), as_json=as_json)
        return
    rows = table.history(column).to_arrow()
    records = (distinct_versions(rows) if column is None else rows).to_pylist()

    def draw(page: Page) -> None:
        if column is None:
            _draw_versions(page, name, records)
        else:
            _draw_column(page, name, column, records)

    answer(list(map(_record_to_json, records)), draw, as_json=as_json)


def _point_to_json(point: HistoryPoint) -> dict[str, Any]:
    from metastore_assets.values.json import time_json

    return {
        "version": point.version,
        "snapshot": point.snapshot,
        "published_at": time_json(point.published_at),
        "value": _number_to_json(point.value),
        "guarantee": point.guarantee,
    }


def _record_to_json(record: Record) -> dict[str, Any]:
    from metastore_assets.values.json import time_json

    fields = {key: value for key, value in record.items() if key != "position"}
    for key in ("committed_at", "published_at"):
        fields[key] = time_json(fields[key])
    if "user_defined" in fields:
        fields["user_defined"] = json.loads(fields["user_defined"] or "{}")
    return {key: _number_to_json(value) for key, value in fields.items()}


def _number_to_json(value: Any) -> Any:
    from metastore_assets.values.json import float_json, integer_json

    if isinstance(value, float):
        return float_json(value)
    return integer_json(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _draw_versions(page: Page, name: str, records: Sequence[Record]) -> None:
    _draw_heading(page, name, [record["version"] for record in records])
    series = {"rows": [record["row_count"] for record in records], "bytes": [record["bytes"] for record in records]}
    _draw_sparklines(page, series)
    columns = [GridColumn("version", right=True, style="bold"), GridColumn("snapshot"), GridColumn("published")]
    columns += [GridColumn(heading, right=True) for heading in ("rows", "bytes", "partitions", "fragments")]
    lines = [
        (
            text.format_number(record["version"]),
            text.shorten(record["snapshot"], 20),
            _format_published(record),
            text.format_number(record["row_count"]),
            text.format_size(record["bytes"]),
            text.format_number(record["partitions"]),
            text.format_number(record["fragments"]),
        )
        for record in _last_versions(page, records)
    ]
    draw_hidden_columns(page, page.fitting_grid(columns, lines, ["snapshot", "fragments", "partitions"]))


def _draw_column(page: Page, name: str, column: str, records: Sequence[Record]) -> None:
    from metastore_assets.report.facts import null_share

    type_name = text.format_type(records[-1]["type"]) if records else ""
    _draw_heading(page, f"{name} {column}", [record["version"] for record in records], type_name)
    series = {
        "nulls": [null_share(record) for record in records],
        "distinct": [record["distinct_count"] for record in records],
        "mean": [record["mean"] for record in records],
    }
    _draw_sparklines(page, series)
    headings = ("rows", "nulls", "distinct", "minimum", "median", "maximum", "mean")
    columns = [GridColumn("version", right=True, style="bold"), GridColumn("published")]
    columns += [GridColumn(heading, right=True) for heading in headings]
    limit = None if page.width is None else 22
    lines = []
    for record in _last_versions(page, records):
        values = record["minimum"], _median(record), record["maximum"]
        minimum, median, maximum = (text.format_typed_value(value, record["type"], limit) for value in values)
        lines.append(
            (
                text.format_number(record["version"]),
                _format_published(record),
                text.format_number(record["row_count"]),
                text.format_share(record["null_count"], record["null_count"] + record["value_count"]),
                text.mark_estimate(text.format_number(record["distinct_count"]), record["distinct_count_guarantee"]),
                text.mark_lower_bound(minimum, record["minimum_exact"] or record["minimum"] is None),
                text.mark_estimate(median, record["percentiles_guarantee"]),
                text.mark_upper_bound(maximum, record["maximum_exact"] or record["maximum"] is None),
                text.format_number(record["mean"]),
            )
        )
    draw_hidden_columns(page, page.fitting_grid(columns, lines, ["published", "median", "mean", "rows"]))


def _draw_statistic(page: Page, subject: str, points: Sequence[HistoryPoint]) -> None:
    _draw_heading(page, subject, [point.version for point in points])
    numbers = [_to_number(point.value) for point in points]
    if page.width is not None:
        _draw_chart(page, numbers, page.width)
    maximum = max((abs(number) for number in numbers if number is not None), default=0)
    columns = [
        GridColumn("version", right=True, style="bold"),
        GridColumn("published"),
        GridColumn("value", right=True),
    ]
    lines = [
        (
            text.format_number(point.version),
            f"{point.published_at:%Y-%m-%d %H:%M:%S}Z",
            _format_point(point),
            bar(abs(number or 0), maximum, _BAR_WIDTH),
        )
        for point, number in _last_versions(page, list(zip(points, numbers, strict=True)))
    ]
    page.fitting_grid([*columns, GridColumn("", style="green")], lines)


def _draw_heading(page: Page, subject: str, versions: Sequence[int], type_name: str = "") -> None:
    facts = text.format_count(len(versions), "version")
    if versions:
        facts += f", {versions[0]:,} to {versions[-1]:,}"
    page.line(
        Styled(text.make_printable(subject), "bold"), Styled(f" {type_name}" if type_name else "", "cyan"), f"  {facts}"
    )


def _draw_sparklines(page: Page, series: Mapping[str, Sequence[float | None]]) -> None:
    """Draw a labelled sparkline for each series with at least two different finite numbers."""
    for label, numbers in series.items():
        values = numbers[-_SPARK_WIDTH:]
        finite_values = [value for value in values if value is not None and math.isfinite(value)]
        if len(finite_values) < 2 or min(finite_values) == max(finite_values):
            continue
        low, high = min(finite_values), max(finite_values)
        levels = [0 if value is None or not math.isfinite(value) else _level(value, low, high) for value in values]
        line = Styled(sparkline(levels), "green")
        page.line(f"  {label:<9}", line, Styled(f"  {text.format_number(low)} to {text.format_number(high)}", "dim"))


def _level(value: float, low: float, high: float) -> int:
    # Halve first, so that the difference of very large floats is finite.
    return 1 + round(_SPARK_LEVELS * ((value / 2 - low / 2) / (high / 2 - low / 2)))


def _draw_chart(page: Page, numbers: Sequence[float | None], width: int) -> None:
    """Draw a chart of the newest numbers, as many as fit on the page.

    If fewer than two of the numbers that fit are known, nothing is drawn.

    Args:
        page: The page to draw on.
        numbers: The numbers, oldest first. None is an unknown number, which is left blank.
        width: The width of the page in cells.
    """
    shown_numbers = list(numbers[-max(1, width - 14) :])
    values = [number for number in shown_numbers if number is not None]
    if len(values) < 2:
        return
    low, high = min(values), max(values)
    base = 0.0 if low >= 0 and (high == low or low < high / 2) else low
    steps = 8 * CHART_HEIGHT
    span = high / 2 - base / 2

    def level(number: float) -> int:
        return round(1 + (steps - 1) * ((number / 2 - base / 2) / span if span else 1))

    levels = [0 if number is None else level(number) for number in shown_numbers]
    stretch = max(1, min(6, (width - 14) // len(shown_numbers)))
    # The extra bar of full height scales the chart; it is cut off below.
    lines = chart([height for height in levels for _ in range(stretch)] + [steps], CHART_HEIGHT)
    for row, line in enumerate(lines):
        label = text.format_number(high) if row == 0 else text.format_number(base) if row == CHART_HEIGHT - 1 else ""
        page.line(Styled(f"{label:>11} │", "dim"), Styled(line[:-1].rstrip(), "green"))


def _last_versions(page: Page, records: Sequence[Any]) -> Sequence[Any]:
    """Return the records to draw: all or, on a terminal, the last 25.

    If records are left out, this function first draws a line that says so.
    """
    if page.width is None or len(records) <= _LISTED_VERSIONS:
        return records
    page.line(Styled(f"  the last {_LISTED_VERSIONS} of {len(records):,} versions (all with --json)", "dim"))
    return records[-_LISTED_VERSIONS:]


def _format_point(point: HistoryPoint) -> str:
    if point.value is None:
        return text.ABSENT
    value_text = (
        text.format_number(point.value) if isinstance(point.value, int | float) else text.format_value(point.value)
    )
    return text.mark_estimate(value_text, point.guarantee)


def _to_number(value: Any) -> float | None:
    """Convert a number, or the text of a decimal or large integer, to a float.

    Returns None if it is not a finite number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _median(record: Record) -> str | None:
    values = {entry["fraction"]: entry["value"] for entry in record["percentiles"] or ()}
    return values.get(0.5)


def _format_published(record: Record) -> str:
    return f"{record['published_at']:%Y-%m-%d %H:%M:%S}Z"
