"""SVG pictures of columns, with name, facts, histogram, and the most frequent values as bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from urllib.parse import quote
from xml.sax.saxutils import escape

from metastore_assets.report.markdown import fit_markdown, markdown_image
from metastore_assets.report.text import format_number, format_share, shorten

MAX_BINS = 60
"""The maximum number of bins of a histogram in a picture."""
MAX_VALUES = 5
"""The maximum number of values in one panel of bars."""
MAX_CHARACTERS = 19
"""The maximum number of characters of a value beside its bar: sufficient for a time to the second."""

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
"""The full width of a bar in pixels, for a value that all rows have."""
_SMALL_LIMIT = 1000
"""The length at which Dagster shows a link in place of a Markdown text."""
SMALL_COLUMNS, _SMALL_WIDTH, _SMALL_HEIGHT = 4, 72, 30
"""The number of columns that fit beside a metadata key in Dagster, and the width and height of each in pixels."""
_SMALL_BINS = (24, 18, 14, 10)
_GAP = 10


@dataclass(frozen=True)
class ColumnPicture:
    """The data of one column for a picture."""

    name: str
    type: str
    facts: tuple[str, ...]
    """At most three short lines."""
    rows: int
    """The number of rows, nulls included. The picture shows frequencies as shares of it."""
    bins: tuple[int, ...] = ()
    """The frequencies of at most MAX_BINS bins of equal width; empty when the column has no histogram."""
    low: str = ""
    high: str = ""
    """The label at the right end of the histogram; `low` is the one at the left end."""
    top: tuple[tuple[str, int], ...] = ()
    """(value, frequency) of the most frequent values, in decreasing order: up to MAX_VALUES, or twice as many without
    bins."""
    notes: tuple[str, ...] = ()
    """Up to MAX_VALUES lines of text. They are shown if neither values of `top` nor percentiles are shown."""
    percentiles: tuple[tuple[str, str], ...] = ()
    """(name, value) of up to MAX_VALUES percentiles, which are shown beside a histogram in place of `top`."""


def columns_picture(title: str, columns: Sequence[ColumnPicture]) -> str:
    """Return an SVG with a title line and a row for each column."""
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
    """Return the Markdown of an image so small that Dagster shows it without a click.

    The image shows bars of the first columns: as many as fit, and at most `SMALL_COLUMNS`. Columns without bars are
    skipped.

    Args:
        columns: The columns in the order of their importance.
        text: The alternative text of the image.

    Returns:
        The Markdown; empty if not even one column fits, or no column has bars.
    """
    columns_with_bars = [column for column in columns if column.bins or column.top][:SMALL_COLUMNS]
    for count in range(len(columns_with_bars), 0, -1):
        for bins in _SMALL_BINS:
            markdown = (
                f"![{text}](<data:image/svg+xml,{quote(_small_svg(columns_with_bars[:count], bins), safe=_UNQUOTED)}>)"
            )
            if len(markdown) < _SMALL_LIMIT:
                return markdown
    return ""


_UNQUOTED = " !'()*+,-./:;=@_~"
"""The characters besides letters and digits that need no escape in a URL between `<` and `>` in Markdown."""


def _small_svg(columns: Sequence[ColumnPicture], bins: int) -> str:
    """Return an SVG with the names and bars of columns, side by side.

    Args:
        columns: The columns. A column without a histogram has a bar for each value in `top`.
        bins: The maximum number of bars of a histogram.
    """
    width, height = _SMALL_WIDTH + _GAP, _SMALL_HEIGHT
    names, bars = [], []
    for index, column in enumerate(columns):
        left = index * width
        names.append(f"<tspan x='{left}'>{escape(shorten(column.name, 12))}</tspan>")
        counts = _merge_bins(column.bins, bins) if column.bins else [count for _, count in column.top]
        step, maximum = _SMALL_WIDTH // len(counts), max(*counts, 1)
        # Only histograms have bars without gaps.
        step = min(step, _GAP) if not column.bins else step
        gap = 0 if column.bins else 2
        bars.append(f"M{left} {height}")
        for count in counts:
            top = height - max(1, round(height * count / maximum)) if count else height
            bars.append(f"V{top}h{step - gap}" + (f"V{height}h{gap}" if gap else ""))
        bars.append(f"V{height}")
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width * len(columns)}' height='{height + 14}'>"
        f"<path fill='#5b7fd6' d='{''.join(bars)}'/>"
        f"<text y='{height + 12}' font-family='sans-serif' font-size='11' fill='#888'>{''.join(names)}</text></svg>"
    )


def _merge_bins(bins: Sequence[int], max_bins: int) -> list[int]:
    """Replace each group of neighbouring bins by its sum, so that at most `max_bins` are left."""
    width = -(-len(bins) // max_bins)
    sums = [0, *accumulate(bins)]
    return [sums[min(start + width, len(bins))] - sums[start] for start in range(0, len(bins), width)]


def columns_markdown(title: str, columns: Sequence[ColumnPicture], text: str, limit: int) -> str:
    """Return the Markdown of an SVG with as many of the first columns as fit into a limit.

    Args:
        title: The title in the picture.
        columns: The columns in the order of their importance.
        text: The alternative text of the image.
        limit: The maximum number of bytes of the Markdown as JSON.
    """
    return fit_markdown(
        lambda count: markdown_image(columns_picture(title, columns[:count]), text), len(columns), limit
    )


def _column(column: ColumnPicture, top: int) -> str:
    """Return the SVG elements of one column's row, whose upper edge is at the height `top` in pixels."""
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
            parts.append(_values(column, column.top[:MAX_VALUES], _RIGHT, top))
    elif column.top:
        parts.append(_values(column, column.top[:MAX_VALUES], _MIDDLE, top))
        parts.append(_values(column, column.top[MAX_VALUES : 2 * MAX_VALUES], _RIGHT, top))
    if not column.top and not (column.bins and column.percentiles):
        x = _RIGHT if column.bins else _MIDDLE
        notes = column.notes[:MAX_VALUES]
        parts += [_text(x, top + 21 + _LINE * line, note, "", 48) for line, note in enumerate(notes)]
    return "".join(parts)


def _histogram(column: ColumnPicture, left: int, top: int) -> str:
    """Return the SVG elements of a column's histogram with the labels of its ends.

    `left` and `top` are its position in pixels.
    """
    # The path has integer coordinates (bins and per mille) and is scaled as one: that makes the SVG short.
    maximum = max(*column.bins, 1)
    minimum_height = round(1000 / _SPARK_HEIGHT)  # One pixel, so that rare values are visible.
    bars = [
        f"M{index} 0V{max(minimum_height, 1000 * frequency // maximum)}h.85V0z"
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
        # The label of the full height.
        + _text(left - 4, top + 9, format_number(max(column.bins)), "e", 12)
    )


def _percentiles(column: ColumnPicture, left: int, top: int) -> str:
    parts = []
    for line, (label, value) in enumerate(column.percentiles[:MAX_VALUES]):
        y = top + 21 + _LINE * line
        parts += [_text(left + 118, y, label, "e", MAX_CHARACTERS), _text(left + 130, y, value, "v", 26)]
    return "".join(parts)


def _values(column: ColumnPicture, values: Sequence[tuple[str, int]], left: int, top: int) -> str:
    if not values:
        return ""
    # The length of a bar is the value's share of all rows.
    full_bar = f"h{_BAR}v11h-{_BAR}z"
    parts = [
        '<path class="t" d="'
        + "".join(f"M{left + 124} {top + 12 + _LINE * line}{full_bar}" for line in range(len(values)))
        + '"/>'
    ]
    for line, (label, frequency) in enumerate(values):
        y = top + 21 + _LINE * line
        length = min(_BAR, max(1.0, _BAR * frequency / max(column.rows, 1)))
        parts.append(_text(left + 118, y, label, "v e", MAX_CHARACTERS))
        parts.append(f'<rect class="o" x="{left + 124}" y="{y - 9}" width="{length:.1f}" height="11" rx="1"/>')
        frequency_text = f"{format_number(frequency)} · {format_share(frequency, column.rows)}"
        parts.append(_text(left + 130 + _BAR, y, frequency_text, "", 22))
    return "".join(parts)


def _text(x: int, y: int, text: str, style: str, length: int) -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x}" y="{y}"{kind}>{escape(shorten(text, length))}</text>'
