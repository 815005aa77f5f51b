"""The report of a table is one small file that escapes all text and works in a browser."""

from __future__ import annotations

import math
import os
import random
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from metastore_assets.lookup import Table
from metastore_assets.markup import charts
from metastore_assets.report.html import report_page
from metastore_assets.store.objects import ObjectStore
from tests.lookup.publishing import publish

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = [
    "<script>window.broken = 1</script>",
    "\"><img src=x onerror='window.broken = 1'>",
    "</style><svg onload=window.broken=1>",
    "a\u202eb\x00\x1b[31m",
    "&lt;already&gt;",
    "{{name}} ${x} %s",
]
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "h1", "h2", "h4", "p", "b",
    "i", "small", "span", "div", "dl", "dt", "dd", "ol", "li", "input", "select", "option", "button", "details",
    "summary", "svg", "path", "figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td", "script",
}  # fmt: skip


class ParsedPage(HTMLParser):
    """A parsed page: its elements with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "elements are not nested correctly"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def table_of(store: ObjectStore, count: int = 300) -> Table:
    """Publish two versions of a table whose names and values contain markup and scripts.

    Return the newer one.

    `count` is the number of rows.
    """
    draw = random.Random(count)
    for shift in (0, 2):
        columns: dict[str, Any] = {
            name: [draw.choice([*HOSTILE, None]) for _ in range(count)] for name in HOSTILE if "\0" not in name
        }
        columns["price"] = [draw.gauss(10 + shift, 2) for _ in range(count)]
        columns["empty"] = pa.nulls(count, pa.int64())
        columns["list"] = [[1, 2]] * count
        columns["day"] = pa.array([draw.randrange(700) for _ in range(count)], pa.int32()).cast(pa.date32())
        rows = pa.table(columns)
        half = count // 2
        parts = {f"p={HOSTILE[0]}": rows.slice(0, half), "p=2": rows.slice(half)}
        table = publish(store, rows, partitions=parts)
    return table


def test_text_of_a_table_is_escaped(local_store: ObjectStore) -> None:
    table = table_of(local_store)
    page = report_page(table, table.at(1), is_current=False)
    parsed_page = ParsedPage(page)
    assert {tag for tag, _ in parsed_page.elements} <= ALLOWED
    assert sum(tag == "script" for tag, _ in parsed_page.elements) == 1
    for tag, attributes in parsed_page.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert not {"src", "href", "action"} & attributes.keys(), (tag, attributes)
    page_text = "".join(parsed_page.text)
    for name in HOSTILE[:3]:
        assert name in page_text
    assert "a\\u202eb\\x00\\x1b[31m" in page_text
    assert "\u202e" not in page
    assert not re.search(r"https?://|url\(|@import", page), "the page fetches a resource"


def test_bounds_with_an_equal_start_are_both_shown(local_store: ObjectStore) -> None:
    """The report shows both bounds of a column, even if they look equal when they are shortened.

    A single text means that all values are equal.
    """
    prefix = "https://example.com/a/long/path/"
    table = publish(local_store, pa.table({"url": [f"{prefix}1", f"{prefix}2"], "same": ["one", "one"]}))
    page = report_page(table, table.at(1))
    assert re.findall('<span class="range">(.*?)</span>', page) == [
        "https://example.com/a/l…<small> to </small>https://example.com/a/l…",
        "one",
    ]


def test_the_report_equals_lookups(local_store: ObjectStore) -> None:
    table = table_of(local_store)
    page = report_page(table, table.at(1), is_current=True)
    page_text = " ".join("".join(ParsedPage(page).text).split())
    (row,) = table.statistics(["price"])
    expected_texts = [
        "current",
        "Changes since version 1",
        f"{row.distinct_count:,}",
        "most frequent values",
        "over 2 versions",
    ]
    expected_texts += ["100.0%", "a list has no values itself", "partitions: 2 same", "300"]
    assert [name for name in expected_texts if name not in page_text] == []
    distances = {column.column: column.distances for column in table.diff(1).columns}
    assert distances["price"] is not None
    assert f"{distances['price'].stability_index:.3f}" in page_text
    alone = report_page(table)
    assert "Changes since" not in alone
    assert "outdated" not in alone
    empty = publish(local_store, pa.table({"a": pa.array([], pa.int64())}), name="none", partitions={})
    assert "no values" in report_page(empty)


def test_200_columns_are_less_than_a_megabyte(local_store: ObjectStore) -> None:
    draw = random.Random(1)
    columns: dict[str, Any] = {}
    for number in range(0, 200, 2):
        words = [f"some value of forty characters, number {draw.randrange(20)}" for _ in range(100)]
        columns[f"text_{number}"] = words
        columns[f"a_rather_long_name_of_column_{number}"] = [draw.gauss(0, 1) for _ in words]
    page = report_page(publish(local_store, pa.table(columns)))
    assert 100_000 < len(page.encode()) < 1_000_000
    assert page.count('class="column"') == 200


def test_the_history_of_many_versions_is_short() -> None:
    """A chart over 50 versions has less than 600 characters.

    So 200 columns with three charts each fit into a megabyte.
    """
    course = charts.line([50 + 40 * math.sin(at) for at in range(50)], "nulls over versions").html
    assert len(course) < 600
    assert charts.line([None, 1.0, math.inf, 2.0, 3.0], "x").html.count("M") == 2
    assert charts.line([None, math.nan], "x").html == ""
    assert charts.line([1e308, -1e308], "x").html.endswith('d="M0 5h0L0 5 1 95"/></svg>')


@pytest.fixture
def browser_page() -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        executable = shutil.which("chromium") or playwright.chromium.executable_path
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=executable, args=arguments)
        yield browser.new_page()
        browser.close()


@pytest.mark.browser
@pytest.mark.timeout(300)
def test_the_page_works_in_a_browser(local_store: ObjectStore, tmp_path: Path, browser_page: Page) -> None:
    """In a browser, the columns of the report can be searched, sorted and expanded.

    Scripts in the names and values of the table do not run, and the page loads nothing else. It fits a phone, in light
    and dark mode.
    """
    table = table_of(local_store)
    file = tmp_path / "report.html"
    file.write_text(report_page(table, table.at(1), is_current=True), encoding="utf-8")
    shots = Path(os.environ.get("METASTORE_SCREENSHOTS", tmp_path))
    page, complaints, requests = browser_page, [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    columns = page.locator("details.column")
    assert columns.count() == len(table.statistics())
    page.locator("#search").fill("PRI float")
    assert page.locator("#shown").inner_text() == f"0 of {columns.count()} columns"
    page.locator("#search").fill("pri dou")
    assert page.locator("details.column:visible .name b").all_inner_texts() == ["price"]
    page.locator("#search").fill("")
    page.locator("#order").select_option("nulls")
    assert columns.first.locator(".name b").inner_text() == "empty"
    page.locator("#order").select_option("shift")
    assert columns.first.locator(".name b").inner_text() == "price"
    columns.first.locator("summary").first.click()
    assert columns.first.locator("h4").all_inner_texts()[0] == "statistics"
    page.locator("#open").click()
    page.locator("#open").click()
    assert page.locator("details.column[open]").count() == columns.count()
    head = page.locator("th", has_text="version").last
    cell = page.locator("table").last.locator("tbody tr").first.locator("td").first
    assert cell.inner_text() == "2"
    head.click()
    head.click()
    assert cell.inner_text() == "1"
    backgrounds = set()
    for scheme in ("light", "dark"):
        for width in (1200, 390):
            page.set_viewport_size({"width": width, "height": 844})
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page is wider than the screen"
            page.screenshot(path=str(shots / f"report-{scheme}-{width}.png"))
            backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
    assert page.evaluate("window.broken") is None
    assert (complaints, requests) == ([], [file.as_uri()])
