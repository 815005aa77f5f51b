"""Bars made of characters, with a resolution of an eighth of a cell."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(part: float, whole: float, width: int) -> str:
    """Return a horizontal bar of at most `width` cells. Any positive share is visible."""
    if part <= 0 or whole <= 0:
        return ""
    eighths = max(1, round(part / whole * width * 8))
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def sparkline(counts: Sequence[int]) -> str:
    """Return one cell per count; only zero is blank."""
    most = max(counts, default=0)
    return "".join(_BLOCKS[_eighths(count, most, 8)] for count in counts)


def chart(counts: Sequence[int], height: int) -> list[str]:
    """Return vertical bars, one cell wide, as `height` lines from top to bottom. Any positive value is visible."""
    most = max(counts, default=0)
    levels = [_eighths(count, most, 8 * height) for count in counts]
    return ["".join(_BLOCKS[min(8, max(0, level - 8 * row))] for level in levels) for row in range(height - 1, -1, -1)]


def _eighths(count: int, most: int, whole: int) -> int:
    return max(1, round(count / most * whole)) if count > 0 else 0
