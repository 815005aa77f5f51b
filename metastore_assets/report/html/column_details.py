"""The columns in the HTML report: a line for each column, which opens to its details.

A version is the published statistics of a table at one snapshot. The (population) stability index is a distance of two
distributions: here, those of a column's values in two versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from metastore_assets.errors import NotStoredError
from metastore_assets.lookup import Table
from metastore_assets.lookup.diff import ColumnDiff
from metastore_assets.markup.charts import bars, line, share_bar
from metastore_assets.markup.elements import Markup, Part, joined, tag
from metastore_assets.report import text
from metastore_assets.report.facts import distinct_text, maximum_text, minimum_text, null_share, scalar_text
from metastore_assets.statistics.column import ColumnStatistics

Top: TypeAlias = Sequence[tuple[pa.Scalar, int]]
"""The most frequent values with their frequencies, in decreasing order."""
_BINS = 48
_VALUES = 10
_VALUE_CELLS = 60
_SHIFTED, _STABLE = 0.25, 0.1
_MEASURES = (
    ("mean", "mean"),
    ("standard deviation", "standard_deviation"),
    ("skewness", "skewness"),
    ("excess kurtosis", "kurtosis"),
    ("mean length", "mean_length"),
)


def column_details(
    table: Table, row: ColumnStatistics, history: Sequence[Mapping[str, Any]], change: ColumnDiff | None
) -> Markup:
    """Return an HTML element with the line and the details of one column.

    Args:
        table: The table, opened at the version of the report.
        row: The statistics of the column.
        history: The column's rows in the history table, oldest first.
        change: The difference to the earlier version; None if the report compares with none.
    """
    rows = row.null_count + row.value_count
    top = _read_top(table, row)
    shape = _histogram(table, row) or _frequency_bars(row, top)
    shift = None if change is None or change.distances is None else change.distances.stability_index
    nulls = row.null_count / rows if rows else 0
    summary = tag(
        "summary",
        tag("span", tag("b", row.column), tag("small", text.format_type(row.type)), class_="name"),
        tag("span", shape or tag("small", _why_no_shape(row)), class_="shape"),
        tag(
            "span", tag("small", "nulls "), text.format_share(row.null_count, rows), share_bar(nulls, 1), class_="nulls"
        ),
        tag("span", tag("small", "distinct "), distinct_text(row) or text.ABSENT, class_="distinct"),
        tag("span", *_range(row), class_="range"),
        *([] if change is None else [_badge(change)]),
    )
    return tag(
        "details",
        summary,
        tag("div", *_details(row, top, history), class_="more"),
        class_="column",
        data_name=row.column.lower(),
        data_position=row.position,
        data_nulls=f"{nulls:.6f}",
        data_distinct=-1 if row.distinct_count is None else row.distinct_count,
        data_shift=f"{-1 if shift is None else shift:.6f}",
    )


def shift_text(shift: float) -> Markup:
    """Format a population stability index, with a colour that depends on its size."""
    class_ = "bad" if shift > _SHIFTED else "fair" if shift > _STABLE else "good"
    formatted_shift = "0" if not shift else "<0.001" if shift < 0.001 else f"{shift:.3f}"
    return tag("span", formatted_shift, class_=class_)


def _badge(change: ColumnDiff) -> Markup:
    """Return a label for a change: `new`, `renamed`, `other type`, or the stability index.

    It is empty if nothing changed, or if the stability index is unknown.
    """
    if change.change == "added":
        return tag("span", "new", class_="badge fair")
    if change.is_renamed or change.is_retyped:
        return tag("span", "renamed" if change.is_renamed else "other type", class_="badge fair")
    if change.change == "same" or change.distances is None:
        return Markup("")
    return tag("span", "PSI ", shift_text(change.distances.stability_index), class_="badge")


def _histogram(table: Table, row: ColumnStatistics) -> Markup | None:
    try:
        bins = table.histogram(row.column, bins=_BINS)
    except NotStoredError:
        return None
    return bars([part.frequency for part in bins], f"distribution in {len(bins)} bins") if bins else None


def _why_no_shape(row: ColumnStatistics) -> str:
    return "no values" if not row.value_count else "" if row.type_class else row.reason or ""


def _range(row: ColumnStatistics) -> list[Part]:
    bounds = minimum_text(row), maximum_text(row)
    low, high = (text.truncate(bound, 24) for bound in bounds)
    return [low] if bounds[0] == bounds[1] else [low, tag("small", " to "), high]


def _frequency_bars(row: ColumnStatistics, top: Top) -> Markup | None:
    """Return a chart of the most frequent values; None if each is less than 1 % of the column's values."""
    if not top or 100 * top[0][1] < row.value_count:
        return None
    counts = [frequency for _, frequency in top]
    return bars(counts + [0] * (_VALUES - len(counts)), f"the {len(counts)} most frequent values", "values")


def _details(row: ColumnStatistics, top: Top, history: Sequence[Mapping[str, Any]]) -> list[Part]:
    """Return the parts of a column's details.

    They are a note on why statistics are missing, the statistics, the most frequent values, the percentiles, and trends
    over versions. Parts without content are left out.
    """
    parts: list[Part] = []
    if row.reason is not None:
        parts.append(tag("p", row.reason, class_="note"))
    parts.append(_facts(row))
    if top:
        parts.append(_values(row, top))
    if row.percentiles:
        parts.append(_percentiles(row))
    trends = _trends(history)
    if trends:
        parts.append(tag("section", tag("h4", f"over {len(history):,} versions"), *trends))
    return parts


def _facts(row: ColumnStatistics) -> Markup:
    """Return a list of the column's statistics, each with its name.

    Absent statistics are left out.
    """
    facts = [("values", text.format_number(row.value_count)), ("nulls", text.format_number(row.null_count))]
    if row.nan_count:
        facts.append(("NaN", text.format_number(row.nan_count)))
    if row.distinct_count is not None:
        facts.append(("distinct", distinct_text(row)))
    if row.duplicate_count is not None:
        facts.append(("of them more than once", text.format_number(row.duplicate_count)))
    if row.true_count is not None:
        facts.append(("true", text.format_share(row.true_count, row.value_count)))
    facts += [(name, minimum_text(row)) for name in ["minimum"] if row.minimum is not None]
    facts += [(name, maximum_text(row)) for name in ["maximum"] if row.maximum is not None]
    facts += [
        (label, text.format_number(getattr(row, name))) for label, name in _MEASURES if getattr(row, name) is not None
    ]
    if row.minimum_length is not None and row.maximum_length is not None:
        facts.append(("lengths", f"{row.minimum_length:,} to {row.maximum_length:,}"))
    if row.total_bytes is not None:
        facts.append(("size of the values", text.format_size(row.total_bytes)))
    for name, result in row.user_defined.items():
        from metastore_assets.values.json import value_json

        statistic = {"value": value_json(result.value), "guarantee": result.guarantee, "reason": result.reason}
        facts.append((name, text.format_user_defined(statistic)))
    entries = (tag("div", tag("dt", name), tag("dd", text.truncate(fact, 80))) for name, fact in facts)
    return tag("section", tag("h4", "statistics"), tag("dl", *entries))


def _read_top(table: Table, row: ColumnStatistics) -> Top:
    """Return the most frequent values of a column.

    The list is empty if the version does not have them.
    """
    if row.frequencies not in ("enumerated", "repeated") or not row.value_count:
        return []
    try:
        return [(value, frequency) for value, frequency in table.top(row.column, _VALUES)]
    except NotStoredError:
        return []


def _values(row: ColumnStatistics, values: Top) -> Markup:
    maximum = values[0][1]
    entries = [
        tag(
            "li",
            tag("span", text.truncate(scalar_text(value), _VALUE_CELLS), class_="value"),
            share_bar(frequency, maximum),
            tag(
                "span",
                text.format_number(frequency),
                tag("small", f" {text.format_share(frequency, row.value_count)}"),
                class_="n",
            ),
        )
        for value, frequency in values
    ]
    others = row.value_count - sum(frequency for _, frequency in values)
    if others:
        count = tag(
            "span",
            text.format_number(others),
            tag("small", f" {text.format_share(others, row.value_count)}"),
            class_="n",
        )
        entries.append(tag("li", tag("span", "others", class_="value"), share_bar(0, 1), count, class_="others"))
    return tag("section", tag("h4", "most frequent values"), tag("ol", *entries, class_="top"))


def _percentiles(row: ColumnStatistics) -> Markup:
    entries = (
        tag(
            "div",
            tag("dt", f"{fraction * 100:g}%"),
            tag("dd", text.truncate(text.mark_estimate(scalar_text(value), row.percentiles_guarantee), 40)),
        )
        for fraction, value in row.percentiles or ()
    )
    return tag("section", tag("h4", "percentiles"), tag("dl", *entries))


def _trends(history: Sequence[Mapping[str, Any]]) -> list[Part]:
    """Return up to three line charts over the versions: nulls, distinct values and mean.

    A number that never changed has no chart.
    """
    if len(history) < 2:
        return []
    series: dict[str, list[float | None]] = {
        "nulls": [null_share(record) for record in history],
        "distinct": [record["distinct_count"] for record in history],
        "mean": [record["mean"] for record in history],
    }
    parts: list[Part] = []
    for name, values in series.items():
        recorded_values = [value for value in values if value is not None]
        if len(recorded_values) < 2 or min(recorded_values) == max(recorded_values):
            continue
        ends = (recorded_values[0], recorded_values[-1])
        first, last = (f"{value:.1%}" if name == "nulls" else text.format_number(value) for value in ends)
        caption = tag("figcaption", tag("small", f"{name} "), first, " → ", last)
        parts.append(tag("figure", line(values, f"{name} over versions"), caption))
    return parts


def change_rows(columns: Sequence[ColumnDiff]) -> list[list[Part]]:
    """Return a table row for each changed column, in decreasing order of the stability index."""
    changed_columns = [column for column in columns if column.change != "same"]
    changed_columns.sort(key=lambda column: -(column.distances.stability_index if column.distances else 0))
    return list(map(_change_row, changed_columns))


def _change_row(column: ColumnDiff) -> list[Part]:
    """Return the cells of a column's row in the table of changes."""
    distances = column.distances
    kind = [tag("small", f" {column.change}")] if column.change != "changed" else []
    name = joined([tag("b", column.column), *kind])
    sides = [column.before, column.after]
    nulls = [text.format_share(row.null_count, row.null_count + row.value_count) if row else "" for row in sides]
    distinct = [distinct_text(row) if row else "" for row in sides]
    counts = [before if before == after else f"{before} → {after}" for before, after in (nulls, distinct)]
    if distances is None:
        return [name, *counts, *[text.ABSENT] * 3, column.reason or ""]
    measures = [f"{distances.kolmogorov_smirnov:.3f}", f"{distances.jensen_shannon:.3f}"]
    return [name, *counts, shift_text(distances.stability_index), *measures, distances.over]
