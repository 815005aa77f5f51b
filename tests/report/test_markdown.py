"""Text is escaped so that CommonMark and GitHub's tables show it literally in Markdown."""

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from metastore_assets.report.markdown import code_markdown, literal_markdown

HOSTILE = (
    "![p](http://127.0.0.1:9999/pixel.png)",
    "[x](javascript:alert(1))",
    '<img src="http://a.example/x.png">',
    "<script>alert(1)</script>",
    "<http://a.example>",
    "http://a.example/b?c=d&e=f",
    "see https://a.example, or www.a.example; WWW.A.example",
    "somebody@a.example",
    "<a@b.example>",
    "![p][1]",
    "[1]: http://a.example/",
    "[^1]",
    "`a`@b.example`c`",
    "`http://a.example`",
    "``![p](http://a.example/x.png)",
    "\\![p](http://a.example/x.png)",
    "\\`![p](http://a.example/x.png)\\`",
    "a@b|![p](http://a.example/x.png)|c@d",
    "a@b\\|c@d",
    "x`y@z",
    "&lt;img src=x&gt; &#33;[p]&amp;",
    "**bold** __bold__ ~~no~~ a_b_c *",
    "# heading",
    "- item",
    "+ item",
    "1. item",
    "2024) item",
    "---",
    "===",
    "> quote",
    "    code",
    "~~~",
    "| a | b |",
    "a\n\n![p](http://a.example/x.png)",
    "-5",
    "+",
    "##",
    "3.",
    "- - -",
    ".5",
)
_SHOWN = {"text", "code_inline", "text_special"}
_LINKED = re.compile(r"https?://|www\.|[-.\w+]@[-\w]", re.IGNORECASE)
"""Texts that remark-gfm, with which Dagster renders Markdown, converts to links."""


def leaves(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield from leaves(token.children) if token.children is not None else [token]


def visible_text(tokens: list[Token]) -> str:
    """Return all text of a rendered document.

    Asserts that it has only text and code.
    """
    inline = [token for token in tokens if token.type == "inline"]
    result = list(leaves(inline))
    assert {token.type for token in result} <= _SHOWN
    assert not any(_LINKED.search(token.content) for token in result if token.type != "code_inline")
    return "".join(token.content for token in result)


def parse(text: str) -> list[Token]:
    """Parse Markdown into tokens.

    Unlike the library by default, allow links to any address.
    """
    markdown = MarkdownIt("commonmark").enable(["strikethrough", "table"])
    markdown.validateLink = lambda url: True  # type: ignore[method-assign]
    return markdown.parse(text)


def printed(text: str) -> str:
    return text.encode("unicode_escape").decode() if "\n" in text else text


def block_types(tokens: list[Token]) -> list[Any]:
    return [token.type for token in tokens]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_shown_literally(text: str) -> None:
    """Text alone, after words, and in a cell renders as plain text in one paragraph or cell.

    It becomes no image, link or HTML.
    """
    literal = literal_markdown(text, 200)
    alone = parse(literal)
    assert block_types(alone) == ["paragraph_open", "inline", "paragraph_close"]
    assert visible_text(alone) == printed(text).strip()
    assert visible_text(parse(f"found {literal}.")) == f"found {printed(text).strip()}."
    cells = parse(f"| a | b |\n|---|---|\n| {literal} | c |")
    assert block_types(cells).count("td_open") == 2
    assert [visible_text([token]) for token in cells if token.type == "inline"] == [
        "a",
        "b",
        printed(text).strip(),
        "c",
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_name_is_shown_as_code(text: str) -> None:
    """Any name renders as one piece of code with the same text, whatever the number of its backticks."""
    tokens = parse(f"{code_markdown(text)}: what is expected")
    assert block_types(tokens) == ["paragraph_open", "inline", "paragraph_close"]
    code, _ = leaves([token for token in tokens if token.type == "inline"])
    assert (code.type, code.content) == ("code_inline", printed(text))


def test_random_text_is_shown_literally() -> None:
    """Random texts of characters with a meaning in Markdown are rendered as plain text or as code.

    They are rendered alone, after a word, and in a cell.
    """
    draw = random.Random(7)
    pieces = [*"\\`*_[]()<>!|~&#+-=.@:/ 1a", "http://a.example", "www.", "![p](", "&lt;", "``", "  "]
    for _ in range(500):
        text = "".join(draw.choice(pieces) for _ in range(draw.randrange(1, 14))).strip()
        if text:
            literal = literal_markdown(text, 500)
            assert visible_text(parse(f"x {literal}")) == f"x {text}", text
            assert block_types(parse(literal)) == ["paragraph_open", "inline", "paragraph_close"], text
            cells = [token for token in parse(f"| a |\n|---|\n| {literal} |") if token.type == "inline"]
            assert [visible_text([token]) for token in cells] == ["a", text], text
            assert next(leaves(parse(code_markdown(text))[1:2])).content == text


def test_text_is_cut_before_it_is_escaped() -> None:
    """Long text is cut before it is escaped, so an escape sequence is never cut in two."""
    assert literal_markdown("a|b|c", 4) == "a\\|b…"
    assert literal_markdown("a@b.c, www.a.b. and 1", 50) == "`a@b.c`, `www.a.b`. and 1"
    assert literal_markdown("see http://a.example/long", 12) == "see `http://…`"
