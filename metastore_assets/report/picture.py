"""A small SVG of columns: name and facts, histogram, and the most frequent values as bars. Pure text generation."""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from urllib.parse import quote
from xml.sax.saxutils import escape

from metastore_assets.report.text import number, share, short

MOST_BINS = 60
"""Maximum number of bins in a sparkline, about one pixel each."""
MOST_VALUES = 5
"""Maximum number of values in one panel of bars."""
MOST_CHARACTERS = 19
"""Maximum number of characters of a value beside its bar: enough for a time to the second."""

_WIDTH = 860
_ROW = 92
_HEADER = 34
_FOOTER = 6
_LEFT, _MIDDLE, _RIGHT = 16, 250, 560
_SPARK_WIDTH, _SPARK_HEIGHT = 270, 52
_LINE = 16
_STYLE = (
    "text{font:11px Inter,Helvetica,Arial,sans-serif;fill:#5b6672}"
    ".h{font-size:14px;font-weight:600;fill:#1b2530}.n{font-size:13px;font-weight:600;fill:#1b2530}"
    ".v{fill:#1b2530}.e{text-anchor:end}.b{fill:#5b7fd6}.o{fill:#8ea8e6}.t{fill:#eef1f5}.l{stroke:#dfe4ea}.p{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#9aa6b4}.h,.n,.v{fill:#e6eaf0}.b{fill:#7d9bea}.o{fill:#5f7cc4}"
    ".t{fill:#262e38}.l{stroke:#333c47}.p{fill:#161b22}}"
)
_BAR = 76
"""Width in pixels of a bar for all rows."""
_SMALL_LIMIT = 1000
"""Length of Markdown from which Dagster shows only a link."""
SMALL_COLUMNS, _SMALL_WIDTH, _SMALL_HEIGHT = 4, 72, 30
"""Number and size of columns that fit beside a metadata key in Dagster."""
_SMALL_BINS = (24, 18, 14, 10)
_GAP = 10


@dataclass(frozen=True)
class ColumnPicture:
    """The data that is drawn for one column."""

    name: str
    type: str
    facts: tuple[str, ...]
    """At most three short lines."""
    rows: int
    """Number of rows, nulls included; shares relate to it."""
    bins: tuple[int, ...] = ()
    """Frequencies of at most MOST_BINS bins of equal width; empty when the column has no histogram."""
    low: str = ""
    high: str = ""
    """Labels of the histogram's ends."""
    top: tuple[tuple[str, int], ...] = ()
    """Most frequent values and their frequencies, decreasing; up to twice MOST_VALUES if there are no bins."""
    notes: tuple[str, ...] = ()
    """Up to MOST_VALUES short lines in place of values that are not stored."""
    percentiles: tuple[tuple[str, str], ...] = ()
    """Names and values of percentiles, shown beside a histogram in place of frequent values, up to MOST_VALUES."""


def columns_picture(title: str, columns: Sequence[ColumnPicture]) -> str:
    """Return an SVG with one row per column."""
    height = _HEADER + _ROW * max(1, len(columns)) + _FOOTER
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">',
        f"<style>{_STYLE}</style>",
        f'<rect x=".5" y=".5" width="{_WIDTH - 1}" height="{height - 1}" rx="6" class="l p"/>',
        _text(_LEFT, 23, title, "h", 110),
    ]
    if not columns:
        parts.append(_text(_LEFT, _HEADER + 24, "No column has values to draw.", "", 100))
    for index, column in enumerate(columns):
        top = _HEADER + index * _ROW
        parts.append(f'<path class="l" d="M{_LEFT} {top}H{_WIDTH - _LEFT}"/>')
        parts.append(_column(column, top))
    parts.append("</svg>")
    return "".join(parts)


def small_picture(columns: Sequence[ColumnPicture], text: str) -> str:
    """Return the Markdown of an image of the first columns that have bars, short enough to be shown without a click.

    Returns an empty text if no column has bars. Names are shortened, then columns are left out, until it fits.
    """
    drawn = [column for column in columns if column.bins or column.top][:SMALL_COLUMNS]
    for count in range(len(drawn), 0, -1):
        for bins in _SMALL_BINS:
            markdown = f"![{text}](<data:image/svg+xml,{quote(_small_svg(drawn[:count], bins), safe=_UNQUOTED)}>)"
            if len(markdown) < _SMALL_LIMIT:
                return markdown
    return ""


_UNQUOTED = " !'()*+,-./:;=@_~"
"""Characters that a URL between `<` and `>` in Markdown may contain unescaped, besides letters and digits."""


def _small_svg(columns: Sequence[ColumnPicture], bins: int) -> str:
    width, height = _SMALL_WIDTH + _GAP, _SMALL_HEIGHT
    names, bars = [], []
    for index, column in enumerate(columns):
        left = index * width
        names.append(f"<tspan x='{left}'>{escape(short(column.name, 12))}</tspan>")
        counts = _merged_bins(column.bins, bins) if column.bins else [count for _, count in column.top]
        step, most = _SMALL_WIDTH // len(counts), max(*counts, 1)
        # Separate the bars of values that do not lie on an axis.
        step = min(step, _GAP) if not column.bins else step
        gap = 0 if column.bins else 2
        bars.append(f"M{left} {height}")
        for count in counts:
            top = height - max(1, round(height * count / most)) if count else height
            bars.append(f"V{top}h{step - gap}" + (f"V{height}h{gap}" if gap else ""))
        bars.append(f"V{height}")
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width * len(columns)}' height='{height + 14}'>"
        f"<path fill='#5b7fd6' d='{''.join(bars)}'/>"
        f"<text y='{height + 12}' font-family='sans-serif' font-size='11' fill='#888'>{''.join(names)}</text></svg>"
    )


def _merged_bins(bins: Sequence[int], most: int) -> list[int]:
    """Return at most `most` bins of equal width: neighbouring ones are added up."""
    width = -(-len(bins) // most)
    sums = [0, *accumulate(bins)]
    return [sums[min(start + width, len(bins))] - sums[start] for start in range(0, len(bins), width)]


def markdown_image(svg: str, text: str) -> str:
    """Return Markdown that shows the SVG without fetching anything."""
    return f"![{text}](data:image/svg+xml;base64,{base64.b64encode(svg.encode('utf-8')).decode()})"


def fitting_picture(title: str, columns: Sequence[ColumnPicture], text: str, limit: int) -> str:
    """Return the Markdown of as many columns, starting with the first, as fit in `limit` bytes."""
    return fitting(lambda count: markdown_image(columns_picture(title, columns[:count]), text), len(columns), limit)


def fitting(build: Callable[[int], str], most: int, limit: int) -> str:
    """Return `build(n)` for the greatest `n` up to `most` whose JSON has at most `limit` bytes."""
    for count in range(most, 0, -1):
        built = build(count)
        if len(json.dumps(built)) <= limit:
            return built
    return build(0)


def _column(column: ColumnPicture, top: int) -> str:
    parts = [
        _text(_LEFT, top + 21, column.name, "n", 28),
        _text(_LEFT, top + 37, column.type, "", 34),
        *(_text(_LEFT, top + 53 + _LINE * line, fact, "", 38) for line, fact in enumerate(column.facts[:3])),
    ]
    if column.bins:
        parts.append(_histogram(column, _MIDDLE, top + 14))
        if column.percentiles:
            parts.append(_percentiles(column, _RIGHT, top))
        elif column.top:
            parts.append(_values(column, column.top[:MOST_VALUES], _RIGHT, top))
    elif column.top:
        parts.append(_values(column, column.top[:MOST_VALUES], _MIDDLE, top))
        parts.append(_values(column, column.top[MOST_VALUES : 2 * MOST_VALUES], _RIGHT, top))
    if not column.top and not (column.bins and column.percentiles):
        at = _RIGHT if column.bins else _MIDDLE
        notes = column.notes[:MOST_VALUES]
        parts += [_text(at, top + 21 + _LINE * line, note, "", 48) for line, note in enumerate(notes)]
    return "".join(parts)


def _histogram(column: ColumnPicture, left: int, top: int) -> str:
    # Bars are drawn in units of bins and per mille, then scaled together: integers keep the text short.
    most = max(*column.bins, 1)
    least = round(1000 / _SPARK_HEIGHT)  # One pixel: a rare value is still visible.
    bars = [
        f"M{index} 0V{max(least, 1000 * frequency // most)}h.85V0z"
        for index, frequency in enumerate(column.bins)
        if frequency > 0
    ]
    bottom = top + _SPARK_HEIGHT
    scale = f"{_SPARK_WIDTH / len(column.bins):.4g} {-_SPARK_HEIGHT / 1000:.4g}"
    return (
        f'<path class="b" transform="translate({left} {bottom})scale({scale})" d="{"".join(bars)}"/>'
        f'<path class="l" d="M{left} {bottom + 0.5}h{_SPARK_WIDTH}"/>'
        + _text(left, bottom + 14, column.low, "", 24)
        + _text(left + _SPARK_WIDTH, bottom + 14, column.high, "e", 24)
        # The value of a bar with full height.
        + _text(left - 4, top + 9, number(max(column.bins)), "e", 12)
    )


def _percentiles(column: ColumnPicture, left: int, top: int) -> str:
    parts = []
    for line, (label, value) in enumerate(column.percentiles[:MOST_VALUES]):
        y = top + 21 + _LINE * line
        parts += [_text(left + 118, y, label, "e", MOST_CHARACTERS), _text(left + 130, y, value, "v", 26)]
    return "".join(parts)


def _values(column: ColumnPicture, values: Sequence[tuple[str, int]], left: int, top: int) -> str:
    if not values:
        return ""
    # Bars are shares of all rows; a full bar is all rows.
    place = f"h{_BAR}v11h-{_BAR}z"
    parts = [
        '<path class="t" d="'
        + "".join(f"M{left + 124} {top + 12 + _LINE * line}{place}" for line in range(len(values)))
        + '"/>'
    ]
    for line, (label, frequency) in enumerate(values):
        y = top + 21 + _LINE * line
        length = min(_BAR, max(1.0, _BAR * frequency / max(column.rows, 1)))
        parts.append(_text(left + 118, y, label, "v e", MOST_CHARACTERS))
        parts.append(f'<rect class="o" x="{left + 124}" y="{y - 9}" width="{length:.1f}" height="11" rx="1"/>')
        told = f"{number(frequency)} · {share(frequency, column.rows)}"
        parts.append(_text(left + 130 + _BAR, y, told, "", 22))
    return "".join(parts)


def _text(x: int, y: int, text: str, style: str, length: int) -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x}" y="{y}"{kind}>{escape(short(text, length))}</text>'
