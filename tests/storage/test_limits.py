"""The documentation lists every limit with its number."""

from __future__ import annotations

import re
from pathlib import Path

from metastore_assets.storage import limits

_DOCS = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"


def _format_limit(name: str, number: int) -> str:
    if not name.endswith("_BYTES") and name != "XZ_MEMORY":
        return f"{number:,}"
    return f"{number >> 30} GiB" if number >= 1 << 30 else f"{number >> 20} MiB"


def test_the_docs_list_every_limit() -> None:
    documented = dict(re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \|", _DOCS.read_text(encoding="utf-8"), re.MULTILINE))
    constants = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert documented == {name: _format_limit(name, value) for name, value in constants.items()}


def test_decompression_is_limited_by_ratio_and_size() -> None:
    """Up to 64 MiB for any ratio, then 100 times the compressed size, never more than 1 GiB."""
    assert [limits.max_decompressed_size(size) for size in (0, 1 << 10, 1 << 20, 1 << 30)] == [
        64 << 20,
        64 << 20,
        100 << 20,
        1 << 30,
    ]
