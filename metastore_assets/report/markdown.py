"""Escape text as Markdown: Dagster renders Markdown, and the values in a table may contain any text."""

from __future__ import annotations

import re

from metastore_assets.report.text import printable, short

_LINK = re.compile(r"[^\s`|]*(?:://|www\.|@)[^\s`|]*?(?=[,;.]*(?:[\s`|]|$))", re.IGNORECASE)
"""A word that GitHub's Markdown turns into a link. A backslash does not prevent that, because links are searched after
backslashes are resolved."""
_INLINE = re.compile(r"([\\`*_\[\]<>!|~&])")
_BLOCK = re.compile(r"^(\d{0,9})([.)](?= |$)|[-+](?=[- ]|$)|#)")
"""The start of a text that may begin a heading, a list or a rule."""


def literal_markdown(text: str, limit: int) -> str:
    """Return Markdown that shows the text as it is, on one line and cut to `limit` terminal cells.

    What looks like an address of the web or of mail becomes code, which no renderer makes a link of. All other markup
    is escaped. The result can stand in a cell of a table.
    """
    shown = short(text, limit).strip(" ")
    parts, end = [], 0
    for match in _LINK.finditer(shown):
        parts += [_escaped(shown[end : match.start()]), f"`{match[0]}`"]
        end = match.end()
    return _BLOCK.sub(r"\1\\\2", "".join([*parts, _escaped(shown[end:])]))


def code_markdown(text: str) -> str:
    """Return Markdown that shows the text as code, on one line."""
    shown = printable(text)
    runs = {len(run) for run in re.findall("`+", shown)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    # Blanks at both ends of code are taken off once, unless there is nothing else.
    pad = " " if shown.strip(" ") and (shown[0] in " `" or shown[-1] in " `") else ""
    return f"{fence}{pad}{shown}{pad}{fence}" if shown else "''"


def _escaped(text: str) -> str:
    return _INLINE.sub(r"\\\1", text)
