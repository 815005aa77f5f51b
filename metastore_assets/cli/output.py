"""The output of commands: JSON for programs, drawn pages for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from metastore_assets.cli.page import Page

Answer = Mapping[str, Any]
"""A JSON object."""


def answer(document: object, draw: Callable[[Page], None], *, as_json: bool) -> None:
    """Write the answer of a command to stdout.

    Args:
        document: The answer as JSON values. People see nothing that it does not hold.
        draw: Draws the same answer on a page for people.
        as_json: Whether to write the document instead of the page.
    """
    if as_json:
        write_json(document)
    else:
        draw(Page())


def write_json(document: object) -> None:
    """Write a document to stdout as one line of JSON."""
    # Outside UTF-8, every character beyond ASCII is escaped: JSON allows that and every terminal can print it.
    is_utf8 = (sys.stdout.encoding or "ascii").lower().replace("-", "") == "utf8"
    click.echo(json.dumps(document, ensure_ascii=not is_utf8, allow_nan=False))
    sys.stdout.flush()
