"""HTML elements as objects.

A part of the content of an element is plain text, or a text that is already HTML (`Markup`). Only the function
`to_html` converts plain text to HTML, and it escapes the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Markup:
    """A text that is already HTML, and is therefore not escaped."""

    html: str


ABSENT = "–"
"""The text that stands for null and for a missing number."""

Part = str | Markup
"""A part of an element's content: plain text, or markup."""


def make_printable(text: str) -> str:
    """Replace line breaks, control sequences and invisible characters in a text by escapes such as `\\n`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def quote_blanks(text: str) -> str:
    """Make a text printable, and quote it if it is empty, or begins or ends with white space."""
    escaped_text = make_printable(text)
    return f"'{escaped_text}'" if not text or text != text.strip() else escaped_text


def to_html(part: Part) -> str:
    """Convert a part to HTML.

    Plain text is escaped, and its unprintable characters become visible escapes.
    """
    from html import escape  # imported here, because it builds a table of entities at its import

    return part.html if isinstance(part, Markup) else escape(make_printable(part))


def joined(parts: Iterable[Part]) -> Markup:
    """Convert parts to HTML, and concatenate them."""
    return Markup("".join(map(to_html, parts)))


def tag(name: str, *parts: Part, **attributes: str | int | float | None) -> Markup:
    """Return an HTML element.

    Args:
        name: The name of the element.
        parts: The content of the element.
        attributes: The attributes of the element. Those that are None are left out. `class_` and `data_sort` become
            `class` and `data-sort`.
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{to_html(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{attribute_text}>{joined(parts).html}</{name}>")


def table(headings: Iterable[tuple[str, bool]], rows: Iterable[Iterable[Part]], class_: str = "") -> Markup:
    """Return an HTML table in a box that scrolls sideways.

    Args:
        headings: For each column, its heading and whether it has numbers, which are aligned to the right.
        rows: The rows, each with a cell for each column.
        class_: The CSS class of the table.
    """
    columns = list(headings)
    head = tag("tr", *(tag("th", name, class_="n" if is_number else None) for name, is_number in columns))
    body = (
        tag("tr", *(tag("td", cell, class_="n" if n else None) for cell, (_, n) in zip(row, columns, strict=True)))
        for row in rows
    )
    element = tag("table", tag("thead", head), tag("tbody", *body), class_=class_ or None)
    return tag("div", element, class_="scroll")
