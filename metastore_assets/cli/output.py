"""The output of commands: JSON for programs, and pages of lines and grids for users.

A page is as wide as the terminal. Without a terminal, a page has no colours and no fixed width. A text in a grid is
then truncated only if it is wider than 1,000 terminal cells.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from metastore_assets.cli.failures import BROKEN_PIPE, uses_colors
from metastore_assets.errors import MetastoreError
from metastore_assets.report.text import count_cells, truncate_middle

Answer = Mapping[str, Any]
"""A JSON object."""
GAP = 2
"""Blank cells between the columns of a grid."""
_MINIMUM_WIDTH = 20
"""The least width in cells to which a column of a grid is truncated. A time is not longer."""
_MINIMUM_LAST_WIDTH = 16
"""The least width in cells to which the last column of a grid is truncated."""
_MAXIMUM_WIDTH = 1_000
"""The width in cells to which a text of a grid is truncated, even without a terminal. All rows are as wide as the
widest text, so one value of 1 MB would make each row as long."""
_ANSI_CODES = {"bold": 1, "dim": 2, "italic": 3, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


@dataclass(frozen=True)
class Styled:
    """A printable text and its style.

    The style is words of `bold dim italic red green yellow cyan`, separated by blanks.
    """

    text: str
    style: str = ""


@dataclass(frozen=True)
class GridColumn:
    """The heading, alignment and default style of a column of a grid."""

    heading: str
    right: bool = False
    """Whether the column is aligned to the right, as numbers are."""
    style: str = ""


Part = str | Styled
"""A part of a line, or a cell of a grid."""
Rows = Sequence[Sequence[Part]]


class Page:
    """A writer of lines and grids to stdout or stderr, with the width and colours of the terminal."""

    def __init__(self, *, err: bool = False) -> None:
        self._err = err
        self._encoding = (sys.stderr if err else sys.stdout).encoding or "ascii"
        terminal = (sys.stderr if err else sys.stdout).isatty()
        self.width = shutil.get_terminal_size().columns if terminal else None
        """Width of a line in cells; None for no limit."""
        self._coloured = uses_colors(sys.stderr if err else sys.stdout)

    def line(self, *parts: Part) -> None:
        """Print the parts as one line."""
        self._print(self._render(parts))

    def grid(self, columns: Sequence[GridColumn], rows: Iterable[Sequence[Part]], gap: int = GAP) -> None:
        """Print a line of headings, then a line for each row.

        Lines have no trailing blanks, and may be wider than the page. A text wider than 1,000 characters is truncated
        in the middle.

        Args:
            columns: The columns.
            rows: The rows, each with one text for each column.
            gap: The number of blanks between columns.
        """
        texts = [[_truncate(cell, _MAXIMUM_WIDTH) for cell in row] for row in rows]
        body = [[cell if isinstance(cell, Styled) else Styled(cell) for cell in row] for row in texts]
        widths = [
            max([count_cells(column.heading), *(count_cells(row[index].text) for row in body)])
            for index, column in enumerate(columns)
        ]
        head = [Styled(column.heading, "dim") for column in columns]
        lines = (self._render_row(columns, widths, row, gap) for row in (head, *body))
        self._print("\n".join(lines))

    def fitting_grid(self, columns: Sequence[GridColumn], rows: Rows, less_important: Sequence[str] = ()) -> list[str]:
        """Print a grid that fits the terminal.

        Without a terminal, print it completely.

        Long texts are truncated in the middle. If the grid is still too wide, columns are hidden.

        Args:
            columns: The columns.
            rows: The rows, each with one cell for each column.
            less_important: The headings of the columns that may be hidden, in the order of hiding. After them, columns
                without a heading are hidden, the last one first.

        Returns:
            The headings of the hidden columns, in the order of `columns`.
        """
        if self.width is None:
            self.grid(columns, rows)
            return []
        widths = [
            max([count_cells(column.heading), *(count_cells(_text(row[index])) for row in rows)])
            for index, column in enumerate(columns)
        ]
        shown_indices = list(range(len(columns)))
        for heading in (*less_important, *(column.heading for column in columns if not column.heading)):
            if _minimal_width(columns, widths, shown_indices) <= self.width:
                break
            index = next((index for index in reversed(shown_indices) if columns[index].heading == heading), None)
            if index is not None:
                shown_indices.remove(index)
        limits = self._limits(columns, widths, shown_indices)
        truncated_rows = [[_truncate(row[index], limits.get(index)) for index in shown_indices] for row in rows]
        self.grid([columns[index] for index in shown_indices], truncated_rows)
        return [column.heading for index, column in enumerate(columns) if index not in shown_indices and column.heading]

    def _limits(
        self, columns: Sequence[GridColumn], widths: Sequence[int], shown_indices: Sequence[int]
    ) -> dict[int, int]:
        """Return the width in cells to which each long text column is truncated, by the column's index.

        Args:
            columns: All columns.
            widths: The width of each column without truncation.
            shown_indices: The indices of the columns that are shown.
        """
        assert self.width is not None
        minimal_widths = {index: _minimal_cells(columns, widths, shown_indices, index) for index in shown_indices}
        room = self.width - _minimal_width(columns, widths, shown_indices)
        long_indices = sorted(
            (index for index in shown_indices if minimal_widths[index] < widths[index]), key=lambda index: widths[index]
        )
        limits = {}
        for number, index in enumerate(long_indices):
            extra_width = min(widths[index] - minimal_widths[index], max(0, room) // (len(long_indices) - number))
            limits[index] = minimal_widths[index] + extra_width
            room -= extra_width
        return limits

    def _render_row(self, columns: Sequence[GridColumn], widths: Sequence[int], row: Sequence[Styled], gap: int) -> str:
        """Return a row as text, with cells padded to the widths of columns, without trailing blanks."""
        last_index = max((index for index, cell in enumerate(row) if cell.text.strip()), default=-1)
        parts: list[Part] = []
        for index, cell in enumerate(row[: last_index + 1]):
            column = columns[index]
            blanks = " " * (widths[index] - count_cells(cell.text))
            before, after = (blanks, "") if column.right else ("", blanks)
            parts += [before, Styled(cell.text, cell.style or column.style)]
            if index < last_index:
                parts.append(after + " " * gap)
        return self._render(parts)

    def _render(self, parts: Iterable[Part]) -> str:
        return "".join(part if isinstance(part, str) else self._render_part(part) for part in parts)

    def _render_part(self, part: Styled) -> str:
        if not self._coloured or not part.style or not part.text:
            return part.text
        codes = ";".join(str(_ANSI_CODES[word]) for word in part.style.split())
        return f"\x1b[{codes}m{part.text}\x1b[0m"

    def _print(self, text: str) -> None:
        # A character that the terminal cannot encode is replaced.
        write_text(text.encode(self._encoding, "replace").decode(self._encoding) + "\n", self._err, self._coloured)


def _text(part: Part) -> str:
    return part if isinstance(part, str) else part.text


def _truncate(part: Part, limit: int | None) -> Part:
    if limit is None:
        return part
    if isinstance(part, str):
        return truncate_middle(part, limit)
    return Styled(truncate_middle(part.text, limit), part.style)


def _minimal_width(columns: Sequence[GridColumn], widths: Sequence[int], shown_indices: Sequence[int]) -> int:
    """Return the width of a grid whose texts are truncated as far as possible, in terminal cells.

    Args:
        columns: All columns.
        widths: The width of each column without truncation, in terminal cells.
        shown_indices: The indices of the columns in the grid.
    """
    cells = sum(_minimal_cells(columns, widths, shown_indices, index) for index in shown_indices)
    return cells + GAP * max(0, len(shown_indices) - 1)


def _minimal_cells(
    columns: Sequence[GridColumn], widths: Sequence[int], shown_indices: Sequence[int], index: int
) -> int:
    """Return the least width in cells to which a column of a grid can be truncated.

    The result is `_MINIMUM_WIDTH`, or `_MINIMUM_LAST_WIDTH` for the last shown column. It is greater if the heading is
    wider, because headings are never truncated. A narrower column keeps its width.

    A column that is aligned to the right, or has no heading, is never truncated.

    Args:
        columns: All columns.
        widths: The width of each column without truncation.
        shown_indices: The indices of the columns that are shown.
        index: The index of the column.
    """
    column = columns[index]
    if column.right or not column.heading:
        return widths[index]
    shortest = _MINIMUM_LAST_WIDTH if index == shown_indices[-1] else _MINIMUM_WIDTH
    return min(widths[index], max(shortest, count_cells(column.heading)))


def answer(document: object, draw: Callable[[Page], None], *, as_json: bool) -> None:
    """Write the answer of a command to stdout, as JSON or as a page.

    Args:
        document: The answer as a JSON value.
        draw: Draws the same answer on a page.
        as_json: Whether to write the JSON value instead of the page.
    """
    if as_json:
        write_json(document)
    else:
        draw(Page())


def write_json(document: object) -> None:
    """Write a document to stdout as one line of JSON."""
    # If stdout is not UTF-8, characters beyond ASCII are escaped: JSON allows that, and every terminal can print it.
    is_utf8 = (sys.stdout.encoding or "ascii").lower().replace("-", "") == "utf8"
    write_text(json.dumps(document, ensure_ascii=not is_utf8, allow_nan=False) + "\n")


def write_text(text: str, err: bool = False, color: bool | None = None) -> None:
    """Write a text to stdout or stderr, and flush it.

    If the reader of a pipe has ended, exit silently with the status `BROKEN_PIPE`. Raises MetastoreError if the text
    cannot be written for another reason, such as a full disk.

    Args:
        text: The text; no line break is added.
        err: Whether to write to stderr.
        color: Whether to write the codes of colours in the text; None to write them only to a terminal.
    """
    try:
        click.echo(text, nl=False, err=err, color=color)
    except OSError as error:
        # Python flushes at its end, and would report that this fails.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if err else 1)
        if isinstance(error, BrokenPipeError):
            sys.exit(BROKEN_PIPE)
        stream = "stderr" if err else "stdout"
        raise MetastoreError(f"the output cannot be written to {stream}: {error.strerror or error}") from error
