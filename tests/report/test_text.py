"""Numbers, values and bars are formatted as readable text."""

from __future__ import annotations

import math
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.cli import drawing
from metastore_assets.report import text


@given(st.text())
def test_output_has_no_unprintable_characters(given_text: str) -> None:
    assert text.make_printable(given_text).isprintable()
    assert text.to_one_line(given_text).isprintable()
    assert text.format_value(given_text).isprintable()


@given(st.text(), st.integers(2, 40))
def test_a_cut_text_fits(given_text: str, limit: int) -> None:
    """A truncated text is not wider than the limit, and text is truncated only if necessary."""
    printable_text = text.make_printable(given_text)
    cut_text, middle = text.truncate(printable_text, limit), text.truncate_middle(printable_text, limit)
    assert text.count_cells(cut_text) <= limit
    assert text.count_cells(middle) <= limit
    assert (middle == printable_text) == (cut_text == printable_text)
    assert cut_text == printable_text or (
        cut_text.endswith("…") and printable_text.startswith(cut_text[:-1]) and text.count_cells(printable_text) > limit
    )


def test_wide_and_combining_characters_have_their_display_width() -> None:
    assert text.count_cells("日本") == 4
    assert text.count_cells(unicodedata.normalize("NFD", "é")) == 1
    assert text.truncate("日本語", 4) == "日…"
    assert text.truncate_middle("array_of_variants.element.value", 20) == "array_of_v…ent.value"


@pytest.mark.parametrize(
    ("given_value", "shown_text"),
    [
        (None, "–"),
        (0, "0"),
        (1234567, "1,234,567"),
        ("9223372036854775808", "9,223,372,036,854,775,808"),
        ("-0.50", "-0.50"),
        ("-1234.50", "-1,234.50"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        (1.0, "1"),
        (0.1, "0.1"),
        (1234.56789, "1,234.57"),
        (1e300, "1e+300"),
        (0.0, "0"),
        (-3.0, "-3"),
        (38255.138, "38,255.1"),
        (25.50790001, "25.5079"),
        (0.049998, "0.049998"),
        (-0.5, "-0.5"),
        (0.00012345678, "0.000123457"),
        (1234567.8, "1,234,568"),
        (99999.999, "100,000"),
        (1.2e17, "1.2e+17"),
        (3e-9, "3e-09"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_are_formatted(given_value: int | float | str | None, shown_text: str) -> None:
    assert text.format_number(given_value) == shown_text


@pytest.mark.parametrize(
    ("given_value", "shown_text"),
    [
        (None, "–"),
        (True, "true"),
        ("", "''"),
        (" a", "' a'"),
        ("a\tb", r"a\tb"),
        (0.1, "0.1"),
        (math.inf, "Infinity"),
        (-5, "-5"),
        ("é", "é"),
    ],
)
def test_values_are_formatted(given_value: object, shown_text: str) -> None:
    assert text.format_value(given_value) == shown_text


@pytest.mark.parametrize(
    ("given_value", "type_", "shown_text"),
    [
        ("2001-09-09T01:46:40Z", "timestamp[us, tz=UTC]", "2001-09-09 01:46:40Z"),
        ("00ff", "large_binary", "0x00ff"),
        ("", "fixed_size_binary[0]", "0x"),
        ("00ff", "string", "00ff"),
        (None, "binary", "–"),
    ],
)
def test_values_of_a_type(given_value: object, type_: str, shown_text: str) -> None:
    assert text.format_typed_value(given_value, type_) == shown_text


def test_inexact_numbers_are_marked() -> None:
    assert [text.mark_estimate("9", worth) for worth in ("estimate", "exact", "absent")] == ["~9", "9", "9"]
    assert (text.mark_lower_bound("a", False), text.mark_lower_bound("a", True)) == ("≥a", "a")
    assert (text.mark_upper_bound("z", False), text.mark_upper_bound("z", True)) == ("≤z", "z")


def test_long_and_unprintable_text_is_cut_to_one_line() -> None:
    assert text.shorten("a\nb", 5) == r"a\nb"
    assert text.shorten("abcdef", 5) == "abcd…"
    assert text.shorten("abcde", 5) == "abcde"


@pytest.mark.parametrize(
    ("part", "complete", "shown_text"),
    [
        (0, 10, "0.0%"),
        (10, 10, "100.0%"),
        (1, 10**6, "<0.1%"),
        (10**6 - 1, 10**6, ">99.9%"),
        (1999, 2000, ">99.9%"),
        (1, 8, "12.5%"),
        (0, 0, "–"),
    ],
)
def test_shares_are_never_rounded_to_none_or_all(part: int, complete: int, shown_text: str) -> None:
    assert text.format_share(part, complete) == shown_text


@pytest.mark.parametrize(
    ("arrow", "shown_text"),
    [
        ("decimal128(15, 2)", "decimal(15,2)"),
        ("date32[day]", "date"),
        ("time64[us]", "time[us]"),
        ("timestamp[us, tz=UTC]", "timestamp[us, UTC]"),
        ("large_string", "string"),
        ("string_view", "string"),
        ("list<element: large_binary>", "list"),
        ("large_list<item: string>", "list"),
        ("map<int32, list<element: int32>>", "map"),
        ("struct<a: int64>", "struct"),
        ("int64", "int64"),
    ],
)
def test_type_names(arrow: str, shown_text: str) -> None:
    assert text.format_type(arrow) == shown_text


@pytest.mark.parametrize(("count", "shown_text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (19_600_000, "19.6 MB")])
def test_sizes(count: int, shown_text: str) -> None:
    assert text.format_size(count) == shown_text


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), st.integers(1, 20))
def test_bars_show_all_positive_counts(counts: list[int], height: int) -> None:
    """In a sparkline and in a chart, every positive count has a bar, and a count of zero has none.

    In the chart, a greater count never has a lower bar, and the bar of the greatest count fills the height.
    """
    spark = drawing.sparkline(counts)
    lines = drawing.chart(counts, height)
    assert len(lines) == height
    assert {len(spark), *map(len, lines)} == {len(counts)}
    levels = [sum(" ▁▂▃▄▅▆▇█".index(line[index]) for line in lines) for index in range(len(counts))]
    for index, count in enumerate(counts):
        assert (spark[index] == " ") == (count == 0) == (levels[index] == 0)
        assert count != max(counts) or count == 0 or levels[index] == 8 * height
    order = sorted(range(len(counts)), key=counts.__getitem__)
    assert all(levels[a] <= levels[b] for a, b in pairwise(order))


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(1, 60))
def test_a_bar_fits(part: int, complete: int, width: int) -> None:
    bar = drawing.bar(min(part, complete), complete, width)
    assert len(bar) <= width
    assert (bar == "") == (part == 0)
