"""The generated reference pages equal what the script renders, and explain every key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.reference.models import render_models
from scripts.reference.pages import PAGES


@pytest.mark.parametrize(("page", "render"), PAGES.items(), ids=lambda value: getattr(value, "name", ""))
def test_page_is_current(page: Path, render: Callable[[], str]) -> None:
    """The page equals what the script renders.

    If not, run `make reference` and commit the pages.
    """
    assert page.read_text(encoding="utf-8") == render()


def test_every_key_of_the_configuration_has_a_meaning() -> None:
    rows = [line for line in render_models().splitlines() if line.startswith("| `")]
    assert len(rows) > 60
    assert [row for row in rows if row.endswith("|  |")] == []
