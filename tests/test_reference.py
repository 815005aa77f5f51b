"""The generated reference pages equal what the script renders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.reference.pages import PAGES


@pytest.mark.parametrize(("page", "render"), PAGES.items(), ids=lambda value: getattr(value, "name", ""))
def test_page_is_current(page: Path, render: Callable[[], str]) -> None:
    """If this fails, run `make reference` and commit the pages."""
    assert page.read_text(encoding="utf-8") == render()
