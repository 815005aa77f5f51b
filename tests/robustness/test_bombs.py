"""Sizes that files declare or decompress to are limited.

Memory stays small, and the error names file and limit.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from metastore_assets.config import TableConfig
from tests.robustness.bombs import BOMBS, SLOW
from tests.robustness.fuzz import Reader

_MOST_PEAK = 900 << 20
"""The most bytes of memory. Interpreters and libraries of two processes take about 350 MB of them."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in SLOW else []) for name in BOMBS]
)
def test_declared_sizes_are_limited(reader: Reader, tmp_path: Path, name: str) -> None:
    """Each bomb is refused with an error that matches its pattern.

    A bomb is a table or file that claims or decompresses to far more than it contains. The refusal takes less than a
    minute and less than 900 MiB of memory.
    """
    write, pattern = BOMBS[name]
    write(tmp_path / "t")
    outcome = reader.read(TableConfig(name="t", uri=str(tmp_path / "t")))
    assert outcome.wrong(tmp_path / "t") is None, outcome
    assert outcome.refused is not None, outcome
    assert re.search(pattern, outcome.refused), outcome.refused
    assert outcome.peak < _MOST_PEAK, f"{outcome.peak:,} bytes of memory"
