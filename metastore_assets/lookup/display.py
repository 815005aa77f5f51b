"""Display of a `ResultSet` in a Python prompt and in a notebook.

Both show the first rows as a table. A notebook also shows small charts. A version has the statistics of one snapshot of
the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from metastore_assets.lookup.results import AsOf, ResultSet
from metastore_assets.markup.charts import bars, share_bar
from metastore_assets.markup.elements import ABSENT, Markup, Part, joined, quote_blanks, table, tag
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.values.json import float_json, scalar_json

MAX_ROWS = 20
"""Maximum number of rows that are shown."""
_MAX_CHARACTERS = 40
_STATISTICS = (
    "partition", "column", "type", "value_count", "null_count", "distinct_count", "minimum", "maximum", "mean",
)  # fmt: skip
"""The fields of `ColumnStatistics` that are shown."""
_STYLE = (
    ".metastore-rows td,.metastore-rows th{text-align:left;padding:2px 8px}"
    ".metastore-rows .n{text-align:right}"
    ".metastore-rows svg{width:120px;height:24px;fill:#5b7fd6}"
    ".metastore-rows .bar{display:inline-block;width:76px;height:8px;background:#8882}"
    ".metastore-rows .bar i{display:block;height:8px;background:#5b7fd6}"
)


def rows_text(rows: ResultSet[Any], shown_names: Sequence[str] | None = None) -> str:
    """Return the first rows as aligned text, after a line with the number of all rows and the version.

    Args:
        rows: The rows.
        shown_names: The names of the attributes to show. None for the default: the main fields of `ColumnStatistics`.
            For rows of another class, the default is the fields that its `repr` shows, except fields with an `AsOf`,
            the version that the row is true for.
    """
    names, cells = _cells(rows, shown_names)
    widths = [max(len(cell) for cell in column) for column in zip(names, *cells, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if _is_number(rows, name) else cell.ljust(width)
            for name, cell, width in zip(names, line, widths, strict=True)
        ).rstrip()
        for line in (names, *cells)
    ]
    return "\n".join([_caption(rows), *(lines if cells else ()), *_more(rows)])


def rows_html(rows: ResultSet[Any], shapes: Sequence[Sequence[int]], shown_names: Sequence[str] | None = None) -> str:
    """Return the first rows as an HTML table.

    Args:
        rows: The rows.
        shapes: For each of the first rows, the heights of the bars of a small chart. If `shapes` is empty and the rows
            have a field `frequency`, each row gets one bar for its frequency.
        shown_names: The names of the attributes to show. None for the default: the main fields of `ColumnStatistics`.
            For rows of another class, the default is the fields that its `repr` shows, except fields with an `AsOf`,
            the version that the row is true for.
    """
    names, cells = _cells(rows, shown_names)
    headings = [(name, _is_number(rows, name)) for name in names]
    charts = _charts(rows, shapes)
    if charts:
        headings.append(("distribution", False))
    lines: list[list[Part]] = [list(line) for line in cells]
    for line, chart in zip(lines, charts, strict=False):
        line.append(chart)
    parts = [tag("p", _caption(rows)), table(headings, lines), *(tag("p", text) for text in _more(rows))]
    return tag("div", Markup(f"<style>{_STYLE}</style>"), joined(parts), class_="metastore-rows").html


def _charts(rows: ResultSet[Any], shapes: Sequence[Sequence[int]]) -> list[Markup]:
    """Return a bar chart of each of the `shapes`.

    Without shapes, return a bar for the frequency of each of the first `MAX_ROWS` rows.

    The result is empty if there are no shapes, and the rows have no frequency.
    """
    if shapes:
        return [bars(counts, "distribution") if counts else Markup("") for counts in shapes]
    if not rows or not hasattr(rows[0], "frequency"):
        return []
    frequencies = [row.frequency for row in rows[:MAX_ROWS]]
    return [share_bar(frequency, max(frequencies)) for frequency in frequencies]


def _caption(rows: ResultSet[Any]) -> str:
    version = "" if rows.as_of is None else f", {_version(rows.as_of)}"
    return f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}{version}" + (
        "" if rows.guarantee in (None, "exact") else f", {rows.guarantee}"
    )


def _version(as_of: AsOf) -> str:
    return f"version {as_of.version} of snapshot {as_of.snapshot or ABSENT}"


def _more(rows: ResultSet[Any]) -> list[str]:
    return [f"… {len(rows) - MAX_ROWS:,} more"] if len(rows) > MAX_ROWS else []


def _names(row: Any) -> list[str]:
    if isinstance(row, ColumnStatistics):
        return [name for name in _STATISTICS if name != "partition" or row.partition is not None]
    assert is_dataclass(row)
    return [each.name for each in fields(row) if each.repr and not isinstance(getattr(row, each.name), AsOf)]


def _cells(rows: ResultSet[Any], shown_names: Sequence[str] | None) -> tuple[list[str], list[list[str]]]:
    """Return (column names, rows of texts) for display: at most `MAX_ROWS` rows.

    Both are empty if `rows` is empty.

    Args:
        rows: The rows.
        shown_names: The names of the attributes to show; None for those that `_names` returns for the first row.
    """
    if not rows:
        return [], []
    names = _names(rows[0]) if shown_names is None else list(shown_names)
    return names, [[_text(getattr(row, name)) for name in names] for row in rows[:MAX_ROWS]]


def _is_number(rows: ResultSet[Any], name: str) -> bool:
    return isinstance(getattr(rows[0], name), int | float | Decimal) if rows else False


def _text(value: Any) -> str:
    """Return a value as the text of a table cell."""
    if isinstance(value, pa.Scalar):
        value = scalar_json(value)
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, int):
        text = f"{value:,}"
    elif isinstance(value, float):
        text = f"{value:.6g}" if math.isfinite(value) else str(float_json(value))
    else:
        text = quote_blanks(str(value))
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
