"""Metadata of events: which columns are drawn, how guarantees are described, and bounds on size.

A guarantee says whether a statistic is exact, a bound, an estimate or absent.
"""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from dagster import serialize_value

from metastore_assets.assets.metadata import (
    TableDescription,
    guarantee,
    measured_metadata,
    partition_metadata,
    picture_markdown,
    profile_metadata,
    statistics_markdown,
    user_defined_markdown,
)
from metastore_assets.assets.names import KINDS
from metastore_assets.report.facts import scalar_text
from metastore_assets.report.summary import ProfileSummary, is_continuous, read_summary, select_informative_columns
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.user_defined.results import UserResult
from metastore_assets.store.objects import ObjectStore
from tests.lookup.publishing import publish
from tests.report.test_markdown import HOSTILE, parse, visible_text

ROWS = 1000
_POSITION = {name: i for i, name in enumerate(["key", "flag", "price", "one", "empty", "text", "day", "code"])}


def row(name: str, type_class: str | None, distinct: int, **fields: object) -> ColumnStatistics:
    base = ColumnStatistics(
        _POSITION.get(name, 99), name, name, "t", type_class, ROWS, 0, distinct_count=distinct,
        distinct_count_guarantee="exact", percentiles_guarantee="exact", frequencies="enumerated",
    )  # fmt: skip
    return replace(base, **fields)  # type: ignore[arg-type]


COLUMNS = [
    row("key", "int64", ROWS),
    row("flag", "string", 3),
    row("price", "decimal_2", 900),
    row("one", "string", 1),
    row("empty", "string", 0, value_count=0, null_count=ROWS),
    row("text", "string", ROWS),
    row("day", "date", 300),
    row("code", "string", 40),
]


@pytest.mark.parametrize(
    ("most", "names"),
    [
        (2, ["flag", "price"]),
        (4, ["flag", "price", "day", "code"]),
        (5, ["key", "flag", "price", "day", "code"]),
        (20, ["key", "flag", "price", "one", "text", "day", "code"]),
    ],
)
def test_the_most_informative_columns_are_in_table_order(most: int, names: list[str]) -> None:
    """The most informative columns are selected, and returned in the order of the table.

    The first selected columns are those with a distribution and those with repeated values, alternately. After them,
    keys, texts and constants are selected. Columns without values are never selected.
    """
    assert [column.column for column in select_informative_columns(COLUMNS, most)] == names


def test_guarantees_name_columns_that_are_not_exact() -> None:
    """The text of a guarantee names the columns that are not exact.

    It names the first four of them, and says how many more there are.
    """
    assert guarantee("statistics", COLUMNS) == "exact"
    estimates = [replace(column, distinct_count_guarantee="estimate") for column in COLUMNS[:6]]
    assert guarantee("statistics", estimates) == (
        "exact; distinct_count is an estimate: key, flag, price, one and 2 more"
    )
    bound = row("text", "string", 9, maximum=pa.scalar("z"), maximum_exact=False)
    assert guarantee("statistics", [bound]) == "exact; minimum or maximum is a bound: text"
    states = [replace(COLUMNS[0], frequencies="estimated"), replace(COLUMNS[1], frequencies="off"), COLUMNS[2]]
    assert guarantee("frequencies", states) == (
        "exact: 1 of 3 columns are enumerated; estimated, not enumerated: key; off: flag"
    )


def test_percentiles_are_drawn_for_continuous_columns() -> None:
    """Percentiles are drawn for number columns with many distinct values, none of them frequent."""
    half = ((0.5, pa.scalar(1)),)
    price = row("price", "decimal_2", 900, percentiles=half)
    assert is_continuous(price, 50)
    assert not is_continuous(price, 51), "more than one in twenty"
    assert not is_continuous(row("price", "decimal_2", 60, percentiles=half), 1)
    assert not is_continuous(row("price", "decimal_2", 900), 1), "without percentiles"
    assert not is_continuous(row("text", "string", 900, percentiles=half), 1)


def test_numbers_have_six_digits() -> None:
    """Floats in the metadata of a column are rounded to six significant digits.

    Counts have all digits.
    """
    metadata = measured_metadata([row("a", "float64", 1234567, null_count=500, mean=12345.678901234567)])
    assert {name: value.value for name, value in metadata.items()} == {
        "a/null_share": 0.333333,
        "a/distinct_count": 1234567,
        "a/mean": 12345.7,
    }


def test_a_kind_of_file_shows_only_its_columns(tmp_path: Path) -> None:
    """Each kind of profile file shows a schema of only the columns that have data in it.

    For example, the schema of histograms has the columns with a histogram, and structs with a nested column that has
    one.
    """
    data = pa.table({"id": [1, 2], "name": ["x", "y"], "at": [{"x": 1.5, "y": "a"}, {"x": 2.5, "y": "b"}]})
    table = publish(ObjectStore(str(tmp_path)), data)
    summary = read_summary(table, None, 3)
    rows = tuple(
        replace(statistics, frequencies="off" if statistics.column.startswith("at") else statistics.frequencies)
        for statistics in summary.rows
    )
    shown_headings = {
        kind: [
            column.name
            for column in profile_metadata(
                kind, TableDescription(replace(summary, rows=rows), "t", data.schema, {"name"}), []
            )["dagster/column_schema"].value.columns
        ]
        for kind in KINDS
    }
    assert shown_headings == {
        "statistics": ["id", "name", "at"],
        "frequencies": ["id", "name"],
        "histograms": ["id", "at"],
        "ranks": ["name"],
    }


def test_plotted_metadata_are_numbers() -> None:
    """The measures of columns that Dagster plots are numbers, such as the share of nulls.

    The name of each number begins with the column. Unknown values and NaN are omitted. The total size is bounded.
    """
    rows = [row("a", "float64", 3, null_count=1000, mean=float("nan")), row("b", "string", 2, distinct_count=None)]
    assert {name: value.value for name, value in measured_metadata(rows).items()} == {
        "a/null_share": 0.5,
        "a/distinct_count": 3,
        "b/null_share": 0.0,
    }
    many = measured_metadata([row("é" * 100 + str(at), "int64", 3, mean=0.1) for at in range(50)])
    assert 0 < sum(len(json.dumps(name)) + len(serialize_value(value)) for name, value in many.items()) < 2_500


@pytest.mark.parametrize(
    ("values", "ends", "labels"),
    [
        ([1, 5, 5, 999], ("00:00:00.000000001", "00:00:00.000000999"), ["…00:00:00.000000005"]),
        ([1, 10**18, 10**18], ("1970-01-01 00:00:00", "2001-09-09 01:46:40"), ["2001-09-09 01:46:40"]),
        ([1, 10**9, 10**9], ("1970-01-01 00:00:00", "1970-01-01 00:00:01"), ["…00:00:01"]),
    ],
)
def test_times_have_distinct_labels(
    tmp_path: Path, values: list[int], ends: tuple[str, str], labels: list[str]
) -> None:
    """Labels of different times differ, even if nanoseconds and day do not fit into one label.

    Such a label has only the part of the time in which the times differ.
    """
    table = publish(ObjectStore(str(tmp_path)), pa.table({"at": pa.array(values, pa.timestamp("ns"))}))
    (column,) = read_summary(table, None, 1).columns
    assert (column.low, column.high) == ends
    assert [label for label, _ in column.top][:1] == labels
    (row,) = table.statistics()
    assert scalar_text(row.minimum) in statistics_markdown([row])


def test_markdown_shows_names_literally() -> None:
    """The Markdown of statistics shows a column's name literally, even if it contains markup."""
    table = statistics_markdown([row("a|b*c<d>_\n", "string", 3)])
    assert table.splitlines()[2].startswith("| a\\|b\\*c\\<d\\>\\_\\\\n | t |")


def test_user_defined_statistics_follow_the_others() -> None:
    """User-defined statistics have a row each, with their guarantee or the reason of their absence.

    The Markdown of user-defined statistics has a limited size. Without user-defined statistics, it is empty.
    """
    texts = {
        "share": UserResult(pa.array([0.25]), "estimate"),
        "parts": UserResult(pa.array([[{"name": "a|b", "count": 3}]]), "exact"),
        "broken": UserResult(pa.nulls(1, pa.int64()), "absent", "it raised"),
    }
    markdown = user_defined_markdown([row("flag", "string", 3, user_defined=texts), row("key", "int64", 3)])
    assert markdown.splitlines()[2:] == [
        "| flag | share | \\~0.25 |",
        "| flag | parts | a\\|b 3 |",
        "| flag | broken | – (it raised) |",
    ]
    many = [row(f"c{number}", "string", 3, user_defined=texts) for number in range(500)]
    assert len(json.dumps(user_defined_markdown(many))) <= 3000
    assert user_defined_markdown(COLUMNS) == ""
    metadata = profile_metadata("statistics", TableDescription(ProfileSummary(tuple(many), ()), "t", pa.schema([])), [])
    assert "| c0 | share |" in metadata["picture"].value


@pytest.mark.slow
def test_a_wide_table_has_some_statistics_and_a_complete_schema_or_none() -> None:
    """The metadata of a wide table are limited in size: some statistics, and a complete schema or none.

    For 2,000 columns, the Markdown ends with the number of omitted columns, and there is no schema. For 40 columns, the
    schema has all of them.
    """
    rows = [row(f"c{i}", "string", 3) for i in range(2000)]
    assert len(json.dumps(statistics_markdown(rows))) <= 7000
    assert statistics_markdown(rows).endswith(" more columns")
    summary = ProfileSummary(tuple(rows), ())
    wide = profile_metadata(
        "statistics", TableDescription(summary, "t", pa.schema([(f"c{i}", pa.string()) for i in range(2000)])), []
    )
    assert "dagster/column_schema" not in wide
    narrow = profile_metadata(
        "statistics", TableDescription(summary, "t", pa.schema([(f"c{i}", pa.string()) for i in range(40)])), []
    )
    assert len(narrow["dagster/column_schema"].value.columns) == 40
    assert max(len(serialize_value(value)) for value in (*wide.values(), *narrow.values())) < 40_000


def test_values_with_markup_are_shown_literally(tmp_path: Path) -> None:
    """The Markdown in metadata shows names and values of a table as text, whatever markup they contain.

    They become no image, link or HTML.
    """
    names = ["![n](http://127.0.0.1:9/n.png)", "<img src=x>", "http://a.example|b"]
    table = publish(
        ObjectStore(str(tmp_path)),
        pa.table({name: list(HOSTILE[at : at + 30] * 2) for at, name in enumerate(names)}),
    )
    summary = read_summary(table, None, 8)
    metadata = profile_metadata("statistics", TableDescription(summary, HOSTILE[0], table.version.schema), [])
    descriptions = [column.description or "" for column in metadata["dagster/column_schema"].value.columns]
    assert len(descriptions) == 3
    assert all(" distinct" in text and " to " in text for text in descriptions)
    assert all(" distinct" in visible_text(parse(text)) for text in descriptions)
    of_partition = partition_metadata(summary, HOSTILE[0])
    for markdown in (metadata["picture"].value, of_partition["picture"].value):
        inline = [token for token in parse(markdown) if token.type == "inline"]
        (image,) = inline[0].children or []
        assert (image.type, image.content) == ("image", "summary of statistics")
        assert str(image.attrs["src"]).startswith("data:image/svg+xml;base64,")
        assert visible_text(inline[1:]).count("![n](http://127.0.0.1:9/n.png)") == 1
    pictures = [picture_markdown(kind, summary, HOSTILE[0]) for kind in ("frequencies", "histograms")]
    assert all(len([token for token in parse(one) if token.type == "inline"]) == 1 for one in pictures)


def test_user_defined_values_with_markup_are_shown_literally() -> None:
    """Names, values and reasons of absence of user-defined statistics are shown literally."""
    for text in HOSTILE:
        texts = {
            text: UserResult(pa.array([text]), "exact"),
            "broken": UserResult(pa.nulls(1, pa.string()), "absent", text),
        }
        cells = parse(user_defined_markdown([row(text, "string", 3, user_defined=texts)]))
        assert visible_text(cells).startswith("columnstatisticvalue")
        assert sum(token.type == "td_open" for token in cells) == 6
