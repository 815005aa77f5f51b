"""A bound of a long value is the nearest value that is short enough to be stored.

So bounds merge exactly.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.values import truncation
from metastore_assets.values.truncation import truncate_lower, truncate_upper
from metastore_assets.values.types import class_named
from tests.statistics.oracle import plain
from tests.statistics.random_columns import merge_statistics, profile_one

LETTERS = st.sampled_from(["\x00", "a", "z", "\x7f", "\x80", "é", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff"])
CHARACTERS = st.one_of(LETTERS, st.sampled_from(["\U00010000", "\U0001f600", "\U0010ffff"]))
TEXTS = st.lists(CHARACTERS, max_size=6).map("".join)
BYTES = st.lists(st.sampled_from([0, 1, 0x7F, 0xFE, 0xFF]), max_size=9).map(bytes)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the limit to 5 bytes, so that short examples exceed it."""
    monkeypatch.setattr(truncation, "MAX_BOUND_BYTES", 5)


@given(value=TEXTS, others=st.lists(TEXTS, max_size=30))
def test_no_text_lies_between_a_value_and_its_bound(value: str, others: list[str]) -> None:
    """The bounds of a text are the nearest texts of at most five bytes below and above it.

    They are valid UTF-8, and marked as exact if the text has at most five bytes.
    """
    cls = class_named("string")
    lower, lower_exact = truncate_lower(value.encode(), cls)
    upper, upper_exact = truncate_upper(value.encode(), cls)
    short = [other.encode() for other in others if len(other.encode()) <= 5]
    _check(value.encode(), lower.as_py().encode(), lower_exact, upper and upper.as_py().encode(), upper_exact, short)


@given(value=BYTES, others=st.lists(BYTES, max_size=30))
def test_no_bytes_lie_between_a_value_and_its_bound(value: bytes, others: list[bytes]) -> None:
    cls = class_named("binary")
    lower, lower_exact = truncate_lower(value, cls)
    upper, upper_exact = truncate_upper(value, cls)
    short = [other for other in others if len(other) <= 5]
    _check(value, lower.as_py(), lower_exact, upper and upper.as_py(), upper_exact, short)


def _check(
    value: bytes, lower: bytes, lower_exact: bool, upper: bytes | None, upper_exact: bool, others: list[bytes]
) -> None:
    assert lower_exact == upper_exact == (len(value) <= 5)
    assert lower <= value
    assert len(lower) <= 5
    assert not any(lower < other < value for other in others)
    if upper is not None:
        assert value <= upper
        assert len(upper) <= 5
    assert not any(value < other and (upper is None or other < upper) for other in others)


@given(values=st.lists(TEXTS, min_size=1, max_size=8), split_position=st.integers(0, 8))
def test_bounds_merge_exactly(values: list[str], split_position: int) -> None:
    """The merged bounds and their exactness are those of all values together."""
    parts = [part for part in (values[:split_position], values[split_position:]) if part]
    merged_statistics = merge_statistics([profile_one(pa.array(part)).statistics for part in parts])
    scratch = profile_one(pa.array(values)).statistics
    assert (merged_statistics.minimum, merged_statistics.minimum_exact) == (scratch.minimum, scratch.minimum_exact)
    assert (merged_statistics.maximum, merged_statistics.maximum_exact) == (scratch.maximum, scratch.maximum_exact)


def test_the_greatest_values_have_an_unknown_maximum() -> None:
    """A value has an unknown maximum if no short value is greater.

    The maximum is then None and not exact. The minimum is known.
    """
    for array in (pa.array([b"\xff" * 6]), pa.array(["\U0010ffff" * 2])):
        row = profile_one(array).statistics
        assert (row.maximum, row.maximum_exact) == (None, False)
        assert row.minimum is not None


def test_characters_are_never_cut() -> None:
    """Bounds of at most five bytes have whole characters only.

    The value has two characters of four bytes. The lower bound has the first one, and a smaller character of one byte
    after it. The upper bound is the next character after the first one.
    """
    value = "\U0001f600\U0001f601".encode()
    lower, _ = truncate_lower(value, class_named("string"))
    upper, _ = truncate_upper(value, class_named("string"))
    assert plain(lower) == "\U0001f600\x7f"
    assert plain(upper) == "\U0001f601"
