"""Build HTML safely: text is escaped at the single place where it becomes markup."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from metastore_assets.report.text import printable


@dataclass(frozen=True)
class Markup:
    """Text that already is HTML."""

    html: str


Part = str | Markup
"""Plain text, or markup."""


def markup(part: Part) -> str:
    """Return a part as HTML. Text is escaped, and its unprintable characters are shown as escapes."""
    return part.html if isinstance(part, Markup) else escape(printable(part))


def joined(parts: Iterable[Part]) -> Markup:
    """Concatenate parts."""
    return Markup("".join(map(markup, parts)))


def tag(name: str, *parts: Part, **attributes: str | int | float | None) -> Markup:
    """Return an element without the attributes that are None. `class_` and `data_sort` mean `class` and `data-sort`."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{joined(parts).html}</{name}>")


def table(headings: Iterable[tuple[str, bool]], rows: Iterable[Iterable[Part]], class_: str = "") -> Markup:
    """Return a table in a box that scrolls sideways. Headings say whether their column holds numbers."""
    heads = list(headings)
    head = tag("tr", *(tag("th", name, class_="n" if is_number else None) for name, is_number in heads))
    body = (
        tag("tr", *(tag("td", cell, class_="n" if n else None) for cell, (_, n) in zip(row, heads, strict=True)))
        for row in rows
    )
    whole = tag("table", tag("thead", head), tag("tbody", *body), class_=class_ or None)
    return tag("div", whole, class_="scroll")
