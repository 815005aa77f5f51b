"""Numbers and values as people read them."""

from decimal import Decimal

import pyarrow as pa
import pytest

from metastore_assets.assets.text import number_text, scalar_text, share_text, short


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (-3.0, "-3"),
        (38255.138, "38,255"),
        (25.5079, "25.508"),
        (0.049998, "0.049998"),
        (-0.5, "-0.5"),
        (1.2e17, "1.2e+17"),
        (3e-9, "3e-09"),
        (float("inf"), "inf"),
        (99999.96, "100,000"),
    ],
)
def test_numbers(number: float, text: str) -> None:
    assert number_text(number) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 5, "0%"),
        (5, 5, "100%"),
        (1, 10**6, "<0.1%"),
        (10**6 - 1, 10**6, ">99.9%"),
        (1, 3, "33%"),
        (1, 30, "3.3%"),
        (0, 0, "0%"),
    ],
)
def test_shares(part: int, whole: int, text: str) -> None:
    """None is 0% and all is 100%, and nothing else is."""
    assert share_text(part, whole) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (pa.scalar(None, pa.int64()), "null"),
        (pa.scalar(True), "true"),
        (pa.scalar("", pa.large_string()), '""'),
        (pa.scalar("  ", pa.large_string()), '"  "'),
        (pa.scalar("a b", pa.large_string()), "a b"),
        (pa.scalar(b"\x00\xff", pa.large_binary()), "0x00ff"),
        (pa.scalar(Decimal("1.50")), "1.50"),
        (pa.scalar(2**60), str(2**60)),
        (pa.scalar(0.1), "0.1"),
        (pa.scalar(-719528, pa.date32()), "0000-01-01"),
        (pa.scalar(10**18 + 5, pa.timestamp("ns")), "2001-09-09 01:46:40.000000005"),
        (pa.scalar(0, pa.timestamp("us", "UTC")), "1970-01-01 00:00:00"),
        (pa.scalar(3_600_000_000_000, pa.time64("ns")), "01:00:00"),
    ],
)
def test_values(value: pa.Scalar, text: str) -> None:
    """Also those that Python has no object for."""
    assert scalar_text(value) == text


def test_long_and_unprintable_text_is_cut_to_one_line() -> None:
    assert short("a\nb", 5) == "a␣b"
    assert short("abcdef", 5) == "abcd…"
    assert short("abcde", 5) == "abcde"
