"""Markdown for Dagster: literal text and code, images, and texts that fit into an event."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable

from metastore_assets.report.text import make_printable, shorten

_LINK = re.compile(r"[^\s`|]*(?:://|www\.|@)[^\s`|]*?(?=[,;.]*(?:[\s`|]|$))", re.IGNORECASE)
"""A word that GitHub's Markdown turns into a link. Backslashes do not prevent this, because Markdown removes them
before it looks for links."""
_INLINE = re.compile(r"([\\`*_\[\]<>!|~&])")
_BLOCK = re.compile(r"^(\d{0,9})([.)](?= |$)|[-+](?=[- ]|$)|#)")
"""The start of a text that Markdown may interpret as a heading, a list or a rule."""


def literal_markdown(text: str, limit: int) -> str:
    """Return Markdown that shows any text literally, on one line and truncated to `limit` terminal cells.

    The result can be a cell of a Markdown table.
    """
    shown_text = shorten(text, limit).strip(" ")
    parts, end = [], 0
    # Words that look like web or mail addresses become code, because renderers convert no code to links.
    for match in _LINK.finditer(shown_text):
        parts += [_escape(shown_text[end : match.start()]), f"`{match[0]}`"]
        end = match.end()
    return _BLOCK.sub(r"\1\\\2", "".join([*parts, _escape(shown_text[end:])]))


def code_markdown(text: str) -> str:
    """Return Markdown that shows any text literally as code, on one line."""
    shown_text = make_printable(text)
    runs = {len(run) for run in re.findall("`+", shown_text)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    # Markdown removes one blank at both ends of code, unless the code is blank.
    pad = " " if shown_text.strip(" ") and (shown_text[0] in " `" or shown_text[-1] in " `") else ""
    return f"{fence}{pad}{shown_text}{pad}{fence}" if shown_text else "''"


def markdown_image(svg: str, text: str) -> str:
    """Return Markdown that shows an SVG as an embedded image.

    Args:
        svg: The SVG.
        text: The alternative text of the image.
    """
    return f"![{text}](data:image/svg+xml;base64,{base64.b64encode(svg.encode('utf-8')).decode()})"


def fit_markdown(build: Callable[[int], str], count: int, limit: int) -> str:
    """Return a text with as many parts as fit into a limit.

    Args:
        build: Returns the text with the first `n` parts.
        count: The number of all parts.
        limit: The maximum number of bytes of the text as JSON.

    Returns:
        `build(n)` for the greatest `n` up to `count` whose result fits. If none does, `build(0)`.
    """
    for n in range(count, 0, -1):
        text = build(n)
        if len(json.dumps(text)) <= limit:
            return text
    return build(0)


def _escape(text: str) -> str:
    return _INLINE.sub(r"\\\1", text)
