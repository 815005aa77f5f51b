"""`profile` accepts anything with rows, and leaves no files behind."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from metastore_assets import profile, profile_query
from metastore_assets.errors import MetastoreError, QueryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table({"a": pa.array([1, 1, None], pa.int64()), "b": ["x", "y", "y"]})


def counts_of(data: Any, **settings: Any) -> list[tuple[str, int, int | None]]:
    table = profile(data, **settings)
    assert table.count().value == 3
    return [(row.column, row.null_count, row.distinct_count) for row in table.statistics()]


def test_anything_with_rows_can_be_profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    frame = pl.from_arrow(ROWS)
    assert isinstance(frame, pl.DataFrame)
    every: list[Any] = [
        ROWS,
        ROWS.to_batches()[0],
        {"a": [1, 1, None], "b": ["x", "y", "y"]},
        ds.dataset(tmp_path / "rows.parquet"),
        frame.lazy(),
        tmp_path / "rows.parquet",
        f"file:{tmp_path / 'rows.parquet'}",
        duckdb.connect().sql(f"from '{tmp_path / 'rows.parquet'}'"),
    ]
    for data in every:
        assert counts_of(data) == [("a", 1, 1), ("b", 0, 2)], type(data)
    of_query = profile_query("select * from (values (1, 'x'), (1, 'y'), (null, 'y')) t(a, b)")
    assert [row.null_count for row in of_query.statistics()] == [1, 0]
    del of_query
    gc.collect()
    table = profile(ROWS)
    assert [(value.as_py(), count) for value, count in table.top("b")] == [("y", 2), ("x", 1)]
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    del table
    gc.collect()
    assert list((tmp_path / "temporary").iterdir()) == []
    with pytest.raises(MetastoreError, match=rf"{tmp_path}/nowhere\b"):
        profile(tmp_path / "nowhere")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_answers_can_be_read_after_the_table_is_collected() -> None:
    partitions, view, table = profile(ROWS).partitions(), profile(ROWS).filter("a = 1", read=True), profile(ROWS).at(1)
    gc.collect()
    assert [partition.row_count for partition in partitions] == [3]
    assert view.count().value == 2
    assert len(table.partitions()) == 1


def test_settings_are_those_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1;x\n1;y\n;y\n")
    result = counts_of(
        tmp_path / "rows.csv", options={"header": False, "delimiter": ";"}, columns={"default": {"frequencies": "off"}}
    )
    assert [nulls for _, nulls, _ in result] == [1, 0]


def test_types_that_parquet_does_not_support_are_profiled() -> None:
    rows = pa.table(
        {
            "dictionary": pa.array(["x", "x", "y"]).dictionary_encode(),
            "view": pa.array(["x", "x", None], pa.string_view()),
            "nulls in it": pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), ["x", None]),
            "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), ["x", None]),
            "nothing": pa.nulls(3),
            "categories": pa.DictionaryArray.from_arrays(
                pa.array([1, 0, 1], pa.int8()), pa.array(["x", None], pa.string_view())
            ),
            "nested": [{"a": [1]}, {"a": []}, None],
            "nanoseconds": pa.array([1, 2, 3], pa.timestamp("ns", "Europe/Berlin")),
        }
    )
    table = profile(rows)
    (row,) = table.statistics(["dictionary"])
    assert (row.distinct_count, row.value_count) == (2, 3)
    assert [row.null_count for row in table.statistics(["nulls in it", "runs", "nothing"])] == [2, 1, 3]
    assert [table.frequency(name, "x").value for name in ("nulls in it", "runs")] == [1, 2]
    assert table.frequency("categories", "x").value == 1
    assert profile(ROWS.slice(0, 0)).count().value == 0


def test_dates_in_milliseconds_are_days() -> None:
    """Dates in milliseconds (date64) are profiled as days.

    Days that do not fit into date32 are refused.

    Arrow's Parquet writer would store other days for them.
    """
    days = pa.array([-86_400_000, 0, 86_400_000], pa.int64()).view(pa.date64())
    table = profile(pa.table({"day": days, "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3]), days)}))
    for row in table.statistics():
        assert (str(row.minimum), str(row.maximum)) == ("1969-12-31", "1970-01-02")
    beyond = pa.array([86_400_000 * 2**31], pa.int64()).view(pa.date64())
    nested_arrays = {
        "list": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), beyond),
        "map": pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), ["x"], beyond),
        "struct": pa.StructArray.from_arrays([beyond], ["day"]),
    }
    for array in (beyond, *nested_arrays.values()):
        with pytest.raises(MetastoreError, match="date64"):
            profile(pa.table({"day": array}))


def test_categories_of_polars_are_profiled() -> None:
    categories = pl.DataFrame(
        {
            "a": ["x", None],
            "b": ["x", "y"],
            "c": [["x", "y"], None],
            "d": [{"e": "x"}, {"e": "y"}],
            "f": [["x"], ["y"]],
        },
        schema={
            "a": pl.Categorical,
            "b": pl.Enum(["x", "y"]),
            "c": pl.List(pl.Categorical),
            "d": pl.Struct({"e": pl.Categorical}),
            "f": pl.Array(pl.Enum(["x", "y"]), 1),
        },
    )
    rows = profile(categories).statistics(["a", "b", "c.element", "d.e", "f.element"])
    assert [(row.null_count, row.distinct_count) for row in rows] == [(1, 1), (0, 2), (0, 2), (0, 2), (0, 2)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, r"builtins\.int"),
        (pa.table([[1], [2]], names=["a", "a"]), r"columns.*'a'"),
        (pa.table({}), "without a column"),
        (
            pa.table({"a": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}),
            r"'a'.*month_day_nano_interval",
        ),
        ("/nowhere/at/all", "nowhere"),
        ({"a": [1, "x"]}, r"builtins\.dict.*'x'"),
        (pa.chunked_array([[1]]), r"ChunkedArray.*struct"),
    ],
)
def test_bad_input_is_an_error(data: object, message: str) -> None:
    with pytest.raises(MetastoreError, match=message):
        profile(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select nix from range(3)", r"\bnix\b"),
        ("select 1 frm x y", r"\bsyntax\b.*\bx\b"),
        ("values (1, ", r"\bsyntax\b"),
    ],
)
def test_bad_queries_are_errors(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        profile_query(text)


@pytest.mark.spark
def test_data_frames_of_spark_can_be_profiled(spark: SparkSession) -> None:
    frame = spark.sql("select * from values (1, 'x'), (1, 'y'), (null, 'y') as t(a, b)")
    assert counts_of(frame, spark=spark) == [("a", 1, 1), ("b", 0, 2)]


def test_a_filtered_view_is_one_line() -> None:
    view = profile(pa.table({"n": [1, 2, 3]}), name="numbers").filter("n > 1")
    assert repr(view) == "<FilteredView of table 'numbers', version 1: n > 1, 0 to 3 rows>"
