"""Answers with rows are sequences of dataclass instances, Arrow tables, and readable text.

The columns of the Arrow tables have plain types. A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import LiteralError
from metastore_assets.history.history_row import HistoryRow
from metastore_assets.history.version_rows import SCHEMA
from metastore_assets.lookup import ResultSet, Table
from metastore_assets.lookup.results import AsOf, TableRows, ValueFrequency
from metastore_assets.lookup.value_count_changes import ValueChange
from metastore_assets.store.objects import ObjectStore
from tests.lookup.publishing import publish

DATA = pa.table(
    {
        "n": pa.array([3, 1, None, 3], pa.int32()),
        "d": pa.array([date(2024, 1, at) for at in (1, 2, 3, 3)]),
        "money": pa.array([Decimal("1.50"), None, Decimal("-0.25"), Decimal(10)], pa.decimal128(12, 2)),
        "f": pa.array([math.inf, 1.5, 2.5, None]),
        "text": ["a", "b", "a", "<b>&"],
        "nothing": pa.nulls(4),
    }
)
PARTS = {f"p={at}": DATA.slice(at * 2, 2) for at in range(2)}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return publish(ObjectStore(str(tmp_path_factory.mktemp("rows"))), DATA, partitions=PARTS)


def all_answers(table: Table) -> dict[str, ResultSet[Any]]:
    return {
        "statistics": table.statistics(),
        "statistics of partitions": table.statistics(["n", "text"], partition="*"),
        "top": table.top("text"),
        "top of nothing": table.top("nothing"),
        "quantile": table.quantile("d", [0, 0.5, 1]),
        "histogram": table.histogram("d"),
        "locate": table.locate("text", "a"),
        "spread": table.spread(),
        "values": table.values("text"),
        "values of numbers": table.values("d"),
        "values of nothing": table.values("nothing"),
        "eliminated fragments": table.prune("n > 100").eliminated_fragments(),
        "history": table.history(),
        "history of a statistic": table.history("n", "p50"),
        "history of the table": table.history(None, "row_count"),
        "diff": table.diff(1).columns,
        "changes": table.changes(1).columns,
        "partitions": table.partitions(),
        "clustering": table.clustering(),
        "fragments": table.prune("n > 1").fragments,
        "explanation": table.prune("n > 100").explanation,
    }


def test_an_answer_is_a_sequence_of_dataclasses_and_an_arrow_table(table: Table) -> None:
    for name, rows in all_answers(table).items():
        assert type(rows) is ResultSet, name
        arrow = rows.to_arrow()
        assert len(rows) == arrow.num_rows == len(list(rows)), name
        assert pa.table(rows).equals(arrow), name
        assert rows.to_polars().columns == arrow.column_names, name
        assert isinstance(rows.to_pandas(), pd.DataFrame), name
        assert arrow.schema.metadata[b"metastore.version"] == str(table.version.number).encode(), name
        assert rows.as_of == table.as_of, name
        assert all(is_dataclass(row) for row in rows), name
        assert not any(pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type) for field in arrow.schema)
        for row in rows if name != "diff" else ():
            assert {field.name for field in fields(row)} >= set(arrow.column_names) - {"partition", "change_count"}, (
                name
            )


@pytest.mark.parametrize(
    ("column", "type_", "total"),
    [
        ("n", pa.int64(), pa.decimal128(38, 0)),
        ("d", pa.date32(), pa.null()),
        ("money", pa.decimal128(38, 2), pa.decimal128(38, 2)),
        ("f", pa.float64(), pa.float64()),
        ("text", pa.large_string(), pa.null()),
    ],
)
def test_one_column_has_plain_types(table: Table, column: str, type_: pa.DataType, total: pa.DataType) -> None:
    arrow = table.statistics([column], partition="*").to_arrow()
    assert (arrow.schema.field("minimum").type, arrow.schema.field("maximum").type) == (type_, type_)
    assert arrow.schema.field("percentiles").type.value_type.field("value").type == type_
    assert arrow.schema.field("sum").type == total
    for at, part in enumerate(PARTS.values()):
        values = [value for value in part[column].to_pylist() if value is not None]
        assert arrow["minimum"][at].as_py() == min(values)
        assert arrow["maximum"][at].as_py() == max(values)
        assert arrow["percentiles"][at].as_py()[-1]["value"] == max(values)
        if total != pa.null():
            assert arrow["sum"][at].as_py() == sum(values)


def test_sums_are_numbers(table: Table) -> None:
    sums = {row.column: row.sum for row in table.statistics()}
    expected = {"n": 7, "money": Decimal("11.25"), "f": math.inf, "d": None, "text": None, "nothing": None}
    assert sums == expected
    assert {name: type(value) for name, value in sums.items()} == {name: type(v) for name, v in expected.items()}


def test_a_column_without_values_has_null_types(table: Table) -> None:
    arrow = table.statistics(["nothing"]).to_arrow()
    assert arrow["minimum"].null_count == arrow["sum"].null_count == 1
    assert table.top("nothing").to_arrow().num_rows == 0


def test_text_and_html_show_the_first_rows(table: Table) -> None:
    for name, rows in all_answers(table).items():
        text, html = repr(rows), rows._repr_html_()
        assert f"version {table.version.number}" in text, name
        root = ElementTree.fromstring(html)
        assert len(root.findall(".//tbody/tr")) == len(rows), name
        assert text.count("\n") == len(rows) + bool(rows), name
    assert "&lt;b&gt;&amp;" in table.top("text")._repr_html_()
    assert "<svg" in table.statistics()._repr_html_()
    many = ResultSet([ValueFrequency(pa.scalar(at), 1) for at in range(1000)], AsOf(1, "s"), pa.schema([]))
    assert "… 980 more" in repr(many)
    assert many._repr_html_().count("<tr>") == 21


def test_rows_equal_rows_and_lists(table: Table) -> None:
    top = table.top("text")
    assert top == list(top)
    assert list(top) == top
    assert top == table.top("text")
    assert top != table.top("text", 1)
    assert top != list(top)[::-1]
    assert top[1:] == list(top)[1:]
    assert [value.as_py() for value, frequency in top if frequency == 1] == ["<b>&", "b"]


def test_empty_text_does_not_look_like_null() -> None:
    rows = ResultSet(
        [ValueFrequency(pa.scalar(value, pa.string()), 1) for value in ("", None, " a")]
        + [ValueFrequency(pa.scalar(math.inf), 1)],
        AsOf(1, "1"),
        pa.schema([("value", pa.string()), ("frequency", pa.int64())]),
    )
    assert [line.split("  ")[0] for line in repr(rows).splitlines()[2:]] == ["''", "–", "' a'", "Infinity"]
    cells = [cell.text for cell in ElementTree.fromstring(rows._repr_html_()).iter("td")]
    assert cells[::3] == ["''", "–", "' a'", "Infinity"]


def test_a_missing_snapshot_is_shown_as_absent(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of a table without a snapshot is shown with a dash in place of the snapshot's id.

    An Iceberg table has no snapshot before its first commit.
    """
    rows = ResultSet([], AsOf(1, ""), pa.schema([("value", pa.string())]))
    assert repr(rows) == "0 rows, version 1 of snapshot –"
    monkeypatch.setattr(table, "_version", replace(table.version, snapshot=""))
    assert "version 1 of snapshot –, 4 rows" in repr(table)


def test_a_table_shows_its_version_and_size(table: Table) -> None:
    assert repr(table) == "<Table 'orders': version 1 of snapshot snapshot 1, 4 rows, 6 columns, 2 partitions>"
    page = ElementTree.fromstring(f"<div>{table._repr_html_()}</div>")
    assert page.find("p") is not None
    assert "4 rows" in str(page.findtext("p"))
    assert page.find(".//table") is not None


def test_values_are_all_values_by_increasing_value(table: Table) -> None:
    for name in ("n", "d", "money", "f", "text"):
        values = sorted(value for value in DATA[name].to_pylist() if value is not None)
        rows = table.values(name)
        assert [(row.value.as_py(), row.frequency) for row in rows] == [
            (value, values.count(value)) for value in sorted(set(values))
        ]
        assert rows.to_arrow().to_pylist() == [{"value": row.value.as_py(), "frequency": row.frequency} for row in rows]
    (value,) = table.values("text", partition="p=0")[:1]
    assert (value.value.as_py(), value.frequency) == ("a", 1)


def test_a_spread_has_a_guarantee_and_a_version(table: Table) -> None:
    spread = table.spread("n")
    assert (spread.column, spread.guarantee, spread.as_of) == ("n", "exact", table.as_of)
    assert (spread.distinct_count, spread.duplicate_count, spread.singleton_count) == (2, 1, 1)
    assert spread in table.spread()


@given(st.integers(0, 20), st.slices(20), st.integers(-21, 21))
def test_rows_of_a_table_are_a_sequence(count: int, part: slice, at: int) -> None:
    expected = [ValueFrequency(pa.scalar(number), number) for number in range(count)]
    rows = TableRows(
        pa.table({"number": pa.array(range(count), pa.int64())}),
        lambda table: (ValueFrequency(value, value.as_py()) for value in table["number"]),
    )
    assert list(rows) == expected
    assert list(rows[part]) == expected[part]
    if -count <= at < count:
        assert rows[at] == expected[at]
    else:
        with pytest.raises(IndexError):
            rows[at]


def test_a_history_row_has_all_columns(table: Table) -> None:
    assert [field.name for field in fields(HistoryRow)] == SCHEMA.names
    (row,) = table.history("n")
    assert (row.version, row.column, row.minimum, row.null_count) == (1, "n", "1", 1)
    assert row.percentiles is not None
    assert row.percentiles[0.99] == "3"


def test_many_rows_of_a_table_are_read_once_each() -> None:
    numbers = list(range(10_001))
    assert list(TableRows(pa.table({"number": numbers}), lambda table: iter(table["number"].to_pylist()))) == numbers


def test_the_columns_of_a_diff_are_a_table(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    publish(store, DATA)
    changed_data = DATA.drop_columns(["money"]).set_column(
        0, DATA.schema.field("n"), pa.array([1, None, None, 9], pa.int32())
    )
    columns = publish(store, changed_data).diff(1).columns
    records = {record["column"]: record for record in columns.to_arrow().to_pylist()}
    assert {name: record["change"] for name, record in records.items()} == {row.column: row.change for row in columns}
    assert (records["n"]["null_count_before"], records["n"]["null_count_after"]) == (1, 2)
    assert (records["money"]["type_before"], records["money"]["type_after"]) == ("decimal128(12, 2)", None)
    assert records["text"]["distances"]["jensen_shannon"] == 0
    assert records["money"]["distances"] is None


def test_other_answers_are_one_line(table: Table) -> None:
    """The `repr` of a pruning, a difference or a version is one line.

    The `repr` of the list of partitions is a table with the public fields only.
    """
    assert repr(table.prune("n > 100")) == "<Pruning of table 'orders', version 1: n > 100, 0 of 2 fragments, 0 rows>"
    for answer in (table.diff(1), table.changes(1), table.changes(1).columns[0], table.version):
        assert "\n" not in repr(answer)
    assert repr(table.partitions()).splitlines()[1].split() == ["key", "row_count", "bytes", "fragments", "version"]
    assert "PSI 0.000, KS 0.000, JS 0.000" in repr(table.diff(1).columns)


def test_wrong_arguments_are_named(table: Table) -> None:
    with pytest.raises(TypeError, match=r"\['n'\]"):
        table.top(["n"])  # type: ignore[call-overload, arg-type]
    with pytest.raises(TypeError, match=r"\b1\b"):
        table.statistics([1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"\bn\b.*'3'"):
        table.top("n", n="3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"snapshot.*'now'.*'version'.*'then'"):
        table.count("n > 1", snapshot="then")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="None"):
        table.at(None)  # type: ignore[arg-type]


def test_rows_and_messages_show_dates_that_python_lacks(tmp_path: Path) -> None:
    days = pa.array([2_932_897, 2_932_897, 2_932_898, -719_163], pa.int32()).view(pa.date32())
    table = publish(ObjectStore(str(tmp_path)), pa.table({"n": [1, 2, 3, 4], "d": days}))
    rows = [table.top("d")[0], table.mode("d"), table.quantile("d", 1), table.statistics(["d"])[0]]
    rows += [table.histogram("d")[0], ValueChange("add", days[0], None, 1)]
    for row, text in zip(rows, ["+10000-01-01"] * 2 + ["+10000-01-02"] * 2 + ["", "+10000-01-01"], strict=True):
        assert text in repr(row)
    assert repr(table.top("n")[0]) == "ValueFrequency(value=<pyarrow.Int64Scalar: 1>, frequency=1)"
    assert table.statistics(["d"]).to_pandas()["maximum"].dtype == pd.ArrowDtype(pa.date32())
    assert table.top("n").to_pandas()["value"].dtype == "int64"
    for question in (lambda: table.frequency("n", days[0]), lambda: table.predicate(pc.field("n") == days[0])):
        with pytest.raises(LiteralError, match=r"\+10000-01-01.* 'n'"):
            question()
