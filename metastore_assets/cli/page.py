"""Print lines and grids of styled text: as wide as the terminal, or untruncated and plain without a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from metastore_assets.report.text import cells, cut_middle

GAP = 2
"""Number of blank cells between the columns of a grid, if there is room."""
_LEAST = 16
"""Minimum width of the last column of a grid, in cells."""
_CODES = {"bold": 1, "dim": 2, "italic": 3, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


@dataclass(frozen=True)
class Styled:
    """Printable text with a style: words of `bold dim italic red green yellow cyan`."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a grid."""

    heading: str
    right: bool = False
    """Whether the column is aligned to the right, as numbers are."""
    style: str = ""


Part = str | Styled
Rows = Sequence[Sequence[Part]]


class Page:
    """Prints to stdout or stderr, as it was when the page was created."""

    def __init__(self, *, err: bool = False) -> None:
        self._err = err
        self._encoding = (sys.stderr if err else sys.stdout).encoding or "ascii"
        terminal = (sys.stderr if err else sys.stdout).isatty()
        self.width = shutil.get_terminal_size().columns if terminal else None
        """Width of a line in cells; None for no limit."""
        self._coloured = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    def line(self, *parts: Part) -> None:
        """Print one line."""
        self._print(self._painted(parts))

    def grid(self, columns: Sequence[Column], rows: Iterable[Sequence[Part]], gap: int = GAP) -> None:
        """Print a line of headings and one line per row, in columns `gap` cells apart, without trailing blanks."""
        body = [[cell if isinstance(cell, Styled) else Styled(cell) for cell in row] for row in rows]
        widths = [
            max([cells(column.heading), *(cells(row[index].text) for row in body)])
            for index, column in enumerate(columns)
        ]
        head = [Styled(column.heading, "dim") for column in columns]
        lines = (self._aligned(columns, widths, row, gap) for row in (head, *body))
        self._print("\n".join(lines))

    def fitting_grid(self, columns: Sequence[Column], rows: Rows, less_important: Sequence[str] = ()) -> list[str]:
        """Print a grid that fits the terminal: leave out less important columns first, and return their names.

        If that is not enough, the last column is truncated in the middle, provided that it is aligned to the left.
        """
        width = self.width
        texts = [[column.heading, *(_text(row[index]) for row in rows)] for index, column in enumerate(columns)]
        widths = {column.heading: max(map(cells, own)) for column, own in zip(columns, texts, strict=True)}
        last = columns[-1]
        if not last.right:
            widths[last.heading] = min(widths[last.heading], _LEAST)
        left_out = []
        for heading in less_important:
            if width is None or sum(widths.values()) + GAP * (len(widths) - 1) <= width:
                break
            del widths[heading]
            left_out.append(heading)
        shown = [index for index, column in enumerate(columns) if column.heading in widths]
        kept = [[row[index] for index in shown] for row in rows]
        if width is not None and not last.right:
            del widths[last.heading]
            room = max(_LEAST, width - sum(widths.values()) - GAP * len(widths))
            kept = [[*row[:-1], cut_middle(_text(row[-1]), room)] for row in kept]
        self.grid([columns[index] for index in shown], kept)
        return left_out

    def _aligned(self, columns: Sequence[Column], widths: Sequence[int], row: Sequence[Styled], gap: int) -> str:
        last = max((index for index, cell in enumerate(row) if cell.text.strip()), default=-1)
        parts: list[Part] = []
        for index, cell in enumerate(row[: last + 1]):
            column = columns[index]
            blanks = " " * (widths[index] - cells(cell.text))
            before, after = (blanks, "") if column.right else ("", blanks)
            parts += [before, Styled(cell.text, cell.style or column.style)]
            if index < last:
                parts.append(after + " " * gap)
        return self._painted(parts)

    def _painted(self, parts: Iterable[Part]) -> str:
        return "".join(part if isinstance(part, str) else self._paint(part) for part in parts)

    def _paint(self, part: Styled) -> str:
        if not self._coloured or not part.style or not part.text:
            return part.text
        codes = ";".join(str(_CODES[word]) for word in part.style.split())
        return f"\x1b[{codes}m{part.text}\x1b[0m"

    def _print(self, text: str) -> None:
        # A character that the terminal cannot encode is replaced.
        click.echo(text.encode(self._encoding, "replace").decode(self._encoding), err=self._err, color=self._coloured)


def _text(part: Part) -> str:
    return part if isinstance(part, str) else part.text
