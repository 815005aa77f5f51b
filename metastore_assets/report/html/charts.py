"""Small SVG charts in the colours of the page, light or dark."""

from __future__ import annotations

import math
from collections.abc import Sequence

from metastore_assets.report.html.markup import Markup, markup

_HEIGHT = 100
"""Height of charts that are stretched to the available width."""


def bars(counts: Sequence[int | float], label: str, class_: str = "bars") -> Markup:
    """Return vertical bars of equal width. Any positive value is visible."""
    most = max(counts, default=0)
    drawn = []
    for at, count in enumerate(counts):
        if count > 0:
            height = max(3, round(_HEIGHT * count / most))
            drawn.append(f"M{at} {_HEIGHT}v-{height}h.9v{height}z")
    return _svg(max(1, len(counts)), f'<path d="{"".join(drawn)}"/>', label, class_)


def line(values: Sequence[float | None], label: str) -> Markup:
    """Return a line chart scaled to its minimum and maximum, broken at missing values."""
    known = [own for own in values if own is not None and math.isfinite(own)]
    if not known:
        return Markup("")
    low, high = min(known), max(known)
    span = high / 2 - low / 2
    path, is_down = [], False
    for at, own in enumerate(values):
        if own is None or not math.isfinite(own):
            is_down = False
            continue
        y = 50 if not span else 95 - round(90 * ((own / 2 - low / 2) / span))
        # Draw a single point too. Points that follow a line command need no letter.
        path.append(f" {at} {y}" if is_down else f"M{at} {y}h0L{at} {y}")
        is_down = True
    return _svg(max(1, len(values) - 1), f'<path d="{"".join(path)}"/>', label, "line")


def share_bar(part: float, whole: float) -> Markup:
    """Return a horizontal bar for a share of the whole."""
    width = 0 if whole <= 0 or part <= 0 else max(1.0, 100 * part / whole)
    return Markup(f'<span class="bar"><i style="width:{width:.1f}%"></i></span>')


def _svg(width: int, inner: str, label: str, class_: str) -> Markup:
    return Markup(
        f'<svg class="{class_}" viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{markup(label)}">{inner}</svg>'
    )
