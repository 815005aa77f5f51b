"""Limits are documented, each with its number."""

from __future__ import annotations

import re
from pathlib import Path

from metastore_assets.storage import limits

_DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "operations.md"


def _told(name: str, number: int) -> str:
    if not name.endswith("_BYTES") and name != "XZ_MEMORY":
        return f"{number:,}"
    return f"{number >> 30} GiB" if number >= 1 << 30 else f"{number >> 20} MiB"


def test_the_docs_list_every_limit() -> None:
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \|", _DOCS.read_text(encoding="utf-8"), re.MULTILINE))
    constants = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert rows == {name: _told(name, value) for name, value in constants.items()}


def test_small_things_may_unpack_to_more_than_their_share() -> None:
    """Beyond 64 MiB, to a hundred times their size; never beyond a gigabyte."""
    assert [limits.most_unpacked(stored) for stored in (0, 1 << 10, 1 << 20, 1 << 30)] == [
        64 << 20,
        64 << 20,
        100 << 20,
        1 << 30,
    ]
