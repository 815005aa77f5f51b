"""Pictures of columns are small, well-formed SVG, and show the given statistics."""

import base64
import re
from dataclasses import replace
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.report.markdown import markdown_image
from metastore_assets.report.picture import (
    ColumnPicture,
    columns_markdown,
    columns_picture,
    small_picture,
)

COLUMN = ColumnPicture(
    "price", "decimal(15, 2)", ("50 distinct", "no nulls"), 100, (1, 0, 5), "1.00", "9.00", (("2.00", 60), ("1.00", 40))
)
WORST = ColumnPicture(
    "ñ" * 200, "x" * 200, ("&" * 200,) * 5, 10**15, (10**12,) * 60, "9" * 99, "9" * 99, (("<" * 99, 10**12),) * 10
)
texts = st.text(st.characters(codec=None))


def svg_of(markdown: str) -> ElementTree.Element:
    match = re.fullmatch(r"!\[.*\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert match
    return ElementTree.fromstring(base64.b64decode(match[1]))


def shown(svg: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in svg.iter("{http://www.w3.org/2000/svg}text")]


def test_a_column_shows_its_statistics_values_and_range() -> None:
    svg = svg_of(markdown_image(columns_picture("t · 100 rows", [COLUMN]), "t"))
    assert shown(svg) == [
        *("t · 100 rows", "price", "decimal(15, 2)", "50 distinct", "no nulls", "1.00", "9.00"),
        "5",  # the value of the highest bar
        *("2.00", "60 · 60.0%", "1.00", "40 · 40.0%"),
    ]


def test_percentiles_replace_values_next_to_a_histogram() -> None:
    column = replace(COLUMN, percentiles=(("median", "2.00"), ("95% up to", "~8.50")))
    assert shown(svg_of(markdown_image(columns_picture("t", [column]), "t")))[-4:] == [
        *("median", "2.00", "95% up to", "~8.50"),
    ]
    alone = replace(column, bins=())
    assert "median" not in shown(svg_of(markdown_image(columns_picture("t", [alone]), "t")))


def test_bars_are_shares_of_all_rows() -> None:
    """A bar of full length stands for all rows, including rows with null."""
    svg = columns_picture("t", [replace(COLUMN, rows=200)])
    widths = [float(width) for width in re.findall(r'class="o"[^>]* width="([^"]*)"', svg)]
    complete = float(re.findall(r'class="t" d="M\d+ \d+h(\d+)v', svg)[0])
    assert widths == pytest.approx([complete * 60 / 200, complete * 40 / 200], abs=0.05)


def test_only_empty_bins_have_no_bar() -> None:
    column = ColumnPicture("n", "int64", (), 10**6, (10**6, 0, 1), "0", "2")
    (path,) = re.findall(r'class="b"[^>]*d="([^"]*)"', columns_picture("t", [column]))
    heights = dict(re.findall(r"M(\d+) 0V(\d+)", path))
    assert heights.keys() == {"0", "2"}
    assert int(heights["2"]) > 0


@given(texts, texts, texts)
def test_any_text_makes_well_formed_xml(name: str, fact: str, value: str) -> None:
    """A picture is well-formed XML, whatever characters its names and values have.

    Markup, control characters and lone surrogates are escaped or replaced.
    """
    column = ColumnPicture(name, fact, (fact,), 1, (1,), value, value, ((value, 1),), (fact,))
    svg_of(markdown_image(columns_picture(name, [column]), "t"))


@pytest.mark.parametrize("limit", [24_000, 8_000, 2_000])
def test_a_picture_has_as_many_columns_as_fit(limit: int) -> None:
    """The Markdown for eight large columns is not longer than the limit, and its SVG is well-formed."""
    markdown = columns_markdown("t", [WORST] * 8, "t", limit)
    assert len(markdown) <= limit
    svg_of(markdown)


def test_a_picture_without_data_has_a_note() -> None:
    assert "No column has values to draw." in shown(svg_of(markdown_image(columns_picture("t", []), "t")))


def small_svg(markdown: str) -> ElementTree.Element:
    match = re.fullmatch(r"!\[t\]\(<data:image/svg\+xml,([^<>\\&\n`]*)>\)", markdown)
    assert match
    return ElementTree.fromstring(unquote(match[1]))


def test_a_small_picture_has_the_bars_of_the_first_columns() -> None:
    """A small picture shows the histogram of a column or, without one, its most frequent values as bars.

    The bars of bins are adjacent, and the bars of values are separate. Columns with neither are omitted.
    """
    text = replace(COLUMN, name="text", bins=(), top=())
    shop = replace(COLUMN, name="shop", bins=())
    svg = small_svg(small_picture([text, COLUMN, shop], "t"))
    assert [element.text for element in svg.iter("{http://www.w3.org/2000/svg}tspan")] == ["price", "shop"]
    (path,) = svg.iter("{http://www.w3.org/2000/svg}path")
    bins, values = re.findall(r"M\d+ 30([^M]*)", path.get("d") or "")
    assert re.findall(r"V(\d+)h24", bins) == ["24", "30", "0"]
    assert re.findall(r"V(\d+)h8", values) == ["0", "10"]
    assert small_picture([text], "t") == ""


@given(st.lists(st.tuples(texts, st.lists(st.integers(0, 10**12), max_size=60)), max_size=8))
def test_a_small_picture_always_fits_into_an_event(columns: list[tuple[str, list[int]]]) -> None:
    """The Markdown is shorter than 1,000 characters, whatever the names and bins of the columns.

    Dagster shows longer Markdown behind a link.
    """
    drawn_columns = [replace(COLUMN, name=name, bins=tuple(bins)) for name, bins in columns]
    markdown = small_picture(drawn_columns, "t")
    assert len(markdown) < 1000
    if columns:
        small_svg(markdown)
    assert len(small_picture([WORST] * 8, "t")) in range(1, 1000)
