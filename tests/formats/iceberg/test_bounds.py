"""Bounds from Iceberg manifests contain all values of a file, and null counts are right."""

from __future__ import annotations

import datetime as dt
import math
import operator
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.memory import InMemoryCatalog

from metastore_assets.config import TableConfig
from metastore_assets.formats import TableFormat, open_table_format
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_columns

_TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), st.booleans()),
    "small": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "number": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "real": (pa.float64(), st.floats()),
    "single": (pa.float32(), st.floats(width=32)),
    "price": (pa.decimal128(12, 3), st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3))),
    "day": (pa.date32(), st.dates()),
    "hour": (pa.time64("us"), st.times()),
    "moment": (pa.timestamp("us"), st.datetimes()),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=30)),
    "raw": (pa.binary(), st.binary(max_size=30)),
    "inner": (pa.struct([("x", pa.int64())]), st.fixed_dictionaries({"x": st.none() | st.integers(0, 9)})),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
}
_LEAVES = [name for name in _TYPES if name not in ("inner", "list")] + ["inner.x"]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> InMemoryCatalog:
    catalog = InMemoryCatalog("test", warehouse=str(tmp_path_factory.mktemp("warehouse")))
    catalog.create_namespace("db")
    return catalog


def _open(folder: str) -> TableFormat:
    return open_table_format(TableConfig(name="t", uri=folder))


@given(
    files=st.lists(
        st.lists(st.fixed_dictionaries({k: st.none() | v for k, (_, v) in _TYPES.items()}), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    )
)
@settings(max_examples=max(5, settings().max_examples // 5))
def test_bounds_contain_all_values(catalog: InMemoryCatalog, files: list[list[dict[str, Any]]]) -> None:
    """For random values that pyiceberg writes, null counts are exact, and bounds contain all values."""
    schema = pa.schema([(name, type_) for name, (type_, _) in _TYPES.items()])
    if catalog.table_exists("db.t"):
        catalog.drop_table("db.t")
    table = catalog.create_table("db.t", schema)
    for rows in files:
        table.append(pa.Table.from_pylist(rows, schema))
    table_format = _open(table.location())
    snapshot = table_format.snapshot()
    contents = [read_columns(snapshot, [fragment]) for fragment in snapshot.fragments]
    for path in _LEAVES:
        rows_of_bounds = table_format.bounds(snapshot, path).to_pylist()
        assert [row["fragment_id"] for row in rows_of_bounds] == [fragment.id for fragment in snapshot.fragments]
        for row, content in zip(rows_of_bounds, contents, strict=True):
            name, _, field = path.partition(".")
            values = [value[field] if field and value is not None else value for value in content[name]]
            _check(row, values)


def _check(row: dict[str, Any], values: list[Any]) -> None:
    """Assert that `row` has the exact null count of the values, and bounds that none exceeds."""
    assert row["null_count_guarantee"] == "exact"
    assert row["null_count"] == values.count(None)
    present = [value for value in values if value is not None and not (isinstance(value, float) and math.isnan(value))]
    for name in ("minimum", "maximum"):
        assert row[f"{name}_guarantee"] == ("absent" if row[name] is None else "bound")
    keys = [value.encode() if isinstance(value, str) else value for value in present]
    for name, is_within in (("minimum", operator.le), ("maximum", operator.ge)):
        bound = row[name].encode() if isinstance(row[name], str) else row[name]
        assert bound is None or all(is_within(bound, key) for key in keys)


def test_bounds_of_short_values_are_exact(catalog: InMemoryCatalog) -> None:
    rows = pa.table({"n": [3, None, 5], "s": ["b", "a", None], "l": [[1], [2], None]})
    table = catalog.create_table("db.some", rows.schema)
    table.append(rows)
    table_format = _open(table.location())
    snapshot = table_format.snapshot()
    (row,) = table_format.bounds(snapshot, "n").to_pylist()
    assert (row["null_count"], row["minimum"], row["maximum"]) == (1, 3, 5)
    (row,) = table_format.bounds(snapshot, "s").to_pylist()
    assert (row["null_count"], row["minimum"], row["maximum"]) == (1, "a", "b")
    (row,) = table_format.bounds(snapshot, "l.element").to_pylist()
    assert {row[f"{name}_guarantee"] for name in ("null_count", "minimum", "maximum")} == {"absent"}
    with pytest.raises(KeyError, match="'l'"):
        table_format.bounds(snapshot, "l")
    table.append(rows)
    assert table_format.bounds(snapshot, "n").num_rows == 1
    assert table_format.bounds(table_format.snapshot(), "n").column("minimum").to_pylist() == [3, 3]


def test_live_rows_are_within_the_bounds(tmp_path: Path) -> None:
    """If a file has deleted rows, its null count is reported as an upper bound, and not as exact.

    The null count in the manifest includes deleted rows.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    counts = {"value_counts": [{"key": 1, "value": 3}], "null_value_counts": [{"key": 1, "value": 1}]}
    data = writer.data(pa.table({"id": pa.array([1, None, 3], pa.int64())})) | counts
    writer.commit(data, writer.position_deletes([(data["file_path"], 1)]))
    table_format = _open(str(writer.folder))
    (row,) = table_format.bounds(table_format.snapshot(), "id").to_pylist()
    assert (row["null_count"], row["null_count_guarantee"]) == (1, "bound")


@pytest.mark.parametrize(
    ("type_", "lower", "expected"),
    [
        ("long", b"\x05\x00\x00\x00", 5),  # Written before the column was widened from int.
        ("long", b"\x05\x00", None),
        ("double", b"\x00\x00\x00\x3f", 0.5),
        ("double", b"\x00\x00\x00\x00\x00\x00\xf8\x7f", None),  # NaN
        ("decimal(9,2)", b"\xff", Decimal("-0.01")),
        ("decimal(9,2)", b"\x7f" * 17, None),
        ("string", b"\xff", None),
        ("fixed[4]", b"\x01", None),
        ("uuid", b"\x01" * 16, None),
        ("boolean", b"", None),
        ("timestamp", b"\x05\x00\x00\x00", None),
    ],
)
def test_bounds_that_are_not_of_the_type_are_absent(tmp_path: Path, type_: str, lower: bytes, expected: Any) -> None:
    """A lower bound with the length of a narrower number is decoded.

    Other invalid bounds are absent.

    The null count is absent, because the manifest counts more values than the file has rows.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "x", type_)])
    statistics = {
        "lower_bounds": [{"key": 1, "value": lower}],
        "value_counts": [{"key": 1, "value": 7}],
        "null_value_counts": [{"key": 1, "value": 0}],
    }
    writer.commit(writer.data(pa.table({"y": [1]})) | statistics)
    table_format = _open(str(writer.folder))
    (row,) = table_format.bounds(table_format.snapshot(), "x").to_pylist()
    assert row["minimum"] == expected
    assert row["null_count"] is None


@pytest.mark.parametrize("type_", ["geometry", "geography(srid:4326, spherical)"])
def test_corners_of_bounding_boxes_are_no_bounds(tmp_path: Path, type_: str) -> None:
    """A column of geometries has no minimum or maximum, although the manifest has lower and upper bounds.

    The bounds in the manifest are coordinates, and the file has well-known binary. The null count is exact.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "place", type_)], version=3)
    point = struct.pack("<dd", 1, 2)
    statistics = {
        name: [{"key": 1, "value": value}]
        for name, value in {
            "value_counts": 1,
            "null_value_counts": 0,
            "lower_bounds": point,
            "upper_bounds": point,
        }.items()
    }
    writer.commit(writer.data(pa.table({"place": [b"\x01\x01\x00\x00\x00" + point]})) | statistics)
    table_format = _open(str(writer.folder))
    (row,) = table_format.bounds(table_format.snapshot(), "place").to_pylist()
    assert (row["minimum"], row["maximum"], row["null_count"], row["null_count_guarantee"]) == (None, None, 0, "exact")
