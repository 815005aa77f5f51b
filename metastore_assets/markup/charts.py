"""Small SVG charts.

The stylesheet of the page sets their size and colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from metastore_assets.markup.elements import Markup, to_html

_HEIGHT = 100
"""The height of the charts in units of their view box; the stylesheet stretches them to their size on the page."""


def bars(counts: Sequence[int | float], label: str, class_: str = "bars") -> Markup:
    """Return an SVG with a vertical bar for each count.

    Even the smallest positive count is visible.

    Args:
        counts: The heights of the bars.
        label: The accessible label of the chart.
        class_: The CSS class, which sets the size and colour.
    """
    maximum = max(counts, default=0)
    path = []
    for index, count in enumerate(counts):
        if count > 0:
            height = max(3, round(_HEIGHT * count / maximum))
            path.append(f"M{index} {_HEIGHT}v-{height}h.9v{height}z")
    return _svg(max(1, len(counts)), f'<path d="{"".join(path)}"/>', label, class_)


def line(values: Sequence[float | None], label: str) -> Markup:
    """Return an SVG line chart, scaled from the least to the greatest value.

    Returns an empty text without finite values.

    Args:
        values: The values. None, infinities and NaN leave a gap in the line.
        label: The accessible label of the chart.
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return Markup("")
    low, high = min(finite), max(finite)
    span = high / 2 - low / 2
    path, is_line_open = [], False
    for index, value in enumerate(values):
        if value is None or not math.isfinite(value):
            is_line_open = False
            continue
        y = 50 if not span else 95 - round(90 * ((value / 2 - low / 2) / span))
        # The command h0 draws a point where a line starts. Further points of the line need no letter.
        path.append(f" {index} {y}" if is_line_open else f"M{index} {y}h0L{index} {y}")
        is_line_open = True
    return _svg(max(1, len(values) - 1), f'<path d="{"".join(path)}"/>', label, "line")


def share_bar(part: float, total: float) -> Markup:
    """Return a horizontal bar whose filled part is the share `part / total`."""
    width = 0 if total <= 0 or part <= 0 else max(1.0, 100 * part / total)
    return Markup(f'<span class="bar"><i style="width:{width:.1f}%"></i></span>')


def _svg(width: int, inner: str, label: str, class_: str) -> Markup:
    return Markup(
        f'<svg class="{class_}" viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{to_html(label)}">{inner}</svg>'
    )
