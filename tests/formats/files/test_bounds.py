"""Bounds of plain files, from footers and folder names, never contradict the rows."""

from __future__ import annotations

import math
import tempfile
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.formats import open_table_format
from tests.formats.oracle import read_columns

_TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "l": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f": (pa.float32(), st.floats(width=32)),
    "d": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.inf])),
    "t": (pa.string(), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3)),
    "b": (pa.bool_(), st.booleans()),
    "y": (pa.date32(), st.dates(date(1583, 1, 1))),
    "m": (pa.decimal128(9, 2), st.integers(-(10**8), 10**8).map(lambda cents: Decimal(cents).scaleb(-2))),
    "s": (pa.struct([("x", pa.int32())]), st.fixed_dictionaries({"x": st.none() | st.integers(0, 9)})),
    "a": (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=2)),
    "u": (pa.timestamp("us"), st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1))),
}
_LEAVES = ["i", "l", "f", "d", "t", "b", "y", "m", "s.x", "a.element", "u"]


@st.composite
def _columns(draw: st.DrawFn) -> dict[str, pa.Array]:
    rows = draw(st.integers(1, 12))
    return {
        name: pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), type_)
        for name, (type_, values) in _TYPES.items()
    }


def _values(column: str, rows: list[Any]) -> list[Any]:
    """Return the values of a column in Python rows.

    The column may be nested, such as `tags.element`.
    """
    below = column.partition(".")[2]
    if below == "element":
        return [item for row in rows if row is not None for item in row]
    return [row and row[below] for row in rows] if below else rows


@pytest.mark.parametrize("kind", ["parquet", "parquet with numbers for decimals", "orc"])
@given(columns=_columns())
def test_bounds_never_contradict_the_rows(kind: str, columns: dict[str, pa.Array]) -> None:
    """Bounds of files with random rows contain all values, and null counts are exact.

    For elements of lists, null counts may be absent.
    """
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table(columns)
        if kind == "orc":
            orc.write_table(table, f"{folder}/a.orc")
        else:
            pq.write_table(table, f"{folder}/a.parquet", row_group_size=5, store_decimal_as_integer=len(kind) > 10)
        format_ = open_table_format(TableConfig(name="t", uri=folder))
        snapshot = format_.snapshot()
        read = read_columns(snapshot)
        for column in _LEAVES:
            bounds = format_.bounds(snapshot, column).to_pylist()[0]
            values = _values(column, read[column.partition(".")[0]])
            if bounds["null_count_guarantee"] == "exact":
                assert bounds["null_count"] == sum(value is None for value in values)
            elif "a" not in column:
                raise AssertionError(f"{column} has no null count")
            # Texts are ordered by their bytes.
            keys = [value.encode() if isinstance(value, str) else value for value in values if value is not None]
            least, greatest = (
                value.encode() if isinstance(value, str) else value for value in (bounds["minimum"], bounds["maximum"])
            )
            assert "exact" not in (bounds["minimum_guarantee"], bounds["maximum_guarantee"])
            assert least is None or not any(key < least for key in keys)
            assert greatest is None or not any(key > greatest for key in keys)


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_bounds_of_footers_and_of_folders(tmp_path: Path, kind: str) -> None:
    """Bounds have the type of the column in the table, even if a file has a narrower type.

    A partition column has the value of the folder as exact bounds. A column that a file lacks has only nulls. A broken
    file has no bounds. An unknown column is an error.
    """
    write = pq.write_table if kind == "parquet" else orc.write_table
    for name, columns in (("p=1/a", {"x": pa.array([3, None, 1], pa.int8())}), ("p=2/b", {"x": [2**40], "y": ["é"]})):
        (tmp_path / name).parent.mkdir()
        write(pa.table(columns), f"{tmp_path / name}.{kind}")
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = table.snapshot()
    x, y, p = (table.bounds(snapshot, column) for column in "xyp")
    assert x["minimum"].to_pylist() == [1, 2**40]
    assert x["maximum"].to_pylist() == [3, 2**40]
    assert x["minimum"].type == pa.int64()
    assert x["null_count"].to_pylist() == [1, 0]
    assert y["null_count"].to_pylist() == [3, 0]
    assert y["maximum"].to_pylist() == [None, "é"]
    assert p["minimum"].to_pylist() == p["maximum"].to_pylist() == ["1", "2"]
    assert p["minimum_guarantee"].to_pylist() == ["exact", "exact"]
    (tmp_path / f"p=1/a.{kind}").write_bytes(b"broken")
    bounds = table.bounds(snapshot, "x")
    assert bounds["null_count_guarantee"].to_pylist() == ["absent", "exact"]
    with pytest.raises(KeyError):
        table.bounds(snapshot, "z")


def test_bounds_of_uncertain_order_are_absent(tmp_path: Path) -> None:
    """Columns whose order is uncertain have no bounds.

    These columns have unsigned numbers, INT96, decimals in bytes, or numbers that are text in the table.
    """
    columns = {
        "u": pa.array([1, 2**32 - 1], pa.uint32()),
        "i": pa.array([datetime(2024, 1, 1), None], pa.timestamp("ns")),
        "d": pa.array([Decimal("-1.5"), None], pa.decimal128(30, 1)),
        "p": pa.array([9, 10]),
    }
    (tmp_path / "p=1").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "p=1" / "a.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table(columns), tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = table.snapshot()
    for column, nulls in {"u": [0, 0], "i": [None, None], "d": [1, 1]}.items():
        bounds = table.bounds(snapshot, column)
        assert set(bounds["minimum_guarantee"].to_pylist()) == {"absent"}
        assert bounds["null_count"].to_pylist() == nulls
    assert table.bounds(snapshot, "p")["minimum"].to_pylist() == [None, "1"]


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_bounds_in_nested_structs_are_of_the_right_column(tmp_path: Path, kind: str) -> None:
    """Columns in nested structs have their own bounds.

    Each column has other values and null counts.
    """
    levels = pa.array([7, None, 9], pa.int64())
    for level in range(3):
        before, after = (pa.array(values, pa.int64()) for values in ([level] * 3, [100 + level, None, None]))
        levels = pa.StructArray.from_arrays([before, levels, after], names=["before", "in", "after"])
    table = pa.table({"first": [0, 0, 0], "top": levels, "last": [-1, -1, -1]})
    (orc.write_table if kind == "orc" else pq.write_table)(table, tmp_path / f"a.{kind}")
    format_ = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    bounds_by_column = {}
    for column in ("top.in.in.in", "top.in.in.before", "top.in.in.after", "top.in.after", "top.after"):
        (row,) = format_.bounds(format_.snapshot(), column).to_pylist()
        bounds_by_column[column] = [row["null_count"], row["minimum"], row["maximum"]]
    assert bounds_by_column == {
        "top.in.in.in": [1, 7, 9],
        "top.in.in.before": [0, 0, 0],
        "top.in.in.after": [2, 100, 100],
        "top.in.after": [2, 101, 101],
        "top.after": [2, 102, 102],
    }


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_bounds_are_absent_if_a_row_group_of_an_orc_file_begins_with_nan(tmp_path: Path, type_: pa.DataType) -> None:
    """A column has no bounds if a row group of its ORC file begins with NaN.

    The bounds in the footer then lack the other values of this row group, here -5 and 99. The null count is exact.
    """
    values = [1.0] * 10_000 + [math.nan, -5.0, 99.0]
    orc.write_table(pa.table({"x": pa.array(values, type_)}), tmp_path / "a.orc", row_index_stride=10_000)
    format_ = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    (row,) = format_.bounds(format_.snapshot(), "x").to_pylist()
    assert (row["null_count"], row["null_count_guarantee"]) == (0, "exact")
    assert (row["minimum_guarantee"], row["maximum_guarantee"]) == ("absent", "absent")
