"""The properties and histograms that an export to Spark writes, tested without Spark."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.exports.spark.catalog_columns import SparkColumn, format_value, spark_columns, value_as_double
from metastore_assets.exports.spark.histograms import (
    EquiHeightHistogram,
    build_histogram,
    compute_histogram,
    encode_histogram,
    find_edges,
    spread_distinct_values,
)
from metastore_assets.exports.spark.properties import column_properties, parse_column_properties
from metastore_assets.profiling import profile
from metastore_assets.statistics.frequencies import Frequencies


def _frequencies(values: Sequence[int]) -> Frequencies:
    distinct, counts = np.unique(np.array(values, np.int64), return_counts=True)
    return Frequencies(pa.array(distinct), pa.array(counts))


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=60), st.integers(1, 12), st.integers(1, 5))
def test_edges_are_the_values_at_equal_ranks(values: list[int], bins: int, size: int) -> None:
    """The edges of a histogram's bins are values of the column at equal distances of rank.

    They do not depend on the pieces in which the values are read. A bin excludes its lower edge, except for the first
    bin, and includes its upper one.
    """
    rows, frequencies = sorted(values), _frequencies(values)
    pieces = [
        Frequencies(frequencies.values[start : start + size], frequencies.counts[start : start + size])
        for start in range(0, len(frequencies.values), size)
    ]
    edges, positions = find_edges(pieces, len(rows), bins)
    assert [edge.as_py() for edge in edges] == [rows[max(0, -(-i * len(rows) // bins) - 1)] for i in range(bins + 1)]
    histogram = build_histogram([float(edge.as_py()) for edge in edges], positions, len(rows))
    assert histogram.height == len(rows) / bins
    for index, (lower, upper) in enumerate(zip(histogram.edges, histogram.edges[1:], strict=False)):
        inside = {value for value in rows if lower < value <= upper or (index == 0 and value == lower)}
        assert histogram.distinct_counts[index] == max(1, len(inside))


def test_estimated_distinct_values_fill_bins_of_different_edges() -> None:
    """The estimated distinct values are divided equally among the bins whose two edges differ.

    The results are running totals over the bins. A bin of whole numbers has at most as many distinct values as there
    are whole numbers in it.
    """
    edges = np.array([0.0, 10, 10, 12, 1000])
    assert spread_distinct_values(edges, 300, is_integer=True) == [0, 10, 10, 12, 112]
    assert spread_distinct_values(edges, 300, is_integer=False) == [0, 100, 100, 200, 300]


def test_the_text_of_a_histogram_has_the_order_of_sparks_serializer() -> None:
    """The text of a histogram is an LZ4 stream in Base64: a block with its fields, and an empty block."""
    text = encode_histogram(EquiHeightHistogram(1.5, (0.0, 2.0, 7.0), (2, 3)))
    data = base64.b64decode(text)
    method, size, original, _ = struct.unpack_from("<BIII", data, 8)
    assert (data[:8], method & 0xF0, original) == (b"LZ4Block", 0x20, 64)
    block = pa.decompress(data[21 : 21 + size], 64, codec="lz4_raw", asbytes=True)
    assert struct.unpack(">di2d2d2qi", block) == (1.5, 2, 0.0, 2.0, 2.0, 7.0, 2, 3, -1)
    assert data[21 + size :] == b"LZ4Block" + bytes([0x16, *[0] * 12])


@pytest.mark.parametrize(
    ("type_", "value", "text", "number"),
    [
        ("float", pa.scalar(0.1, pa.float32()).cast(pa.float64()), "0.1", 0.1),
        ("double", pa.scalar(1e300), "1e+300", 1e300),
        ("bigint", pa.scalar(2**63 - 1), str(2**63 - 1), 2.0**63),
        ("decimal(38,2)", pa.scalar(Decimal("-12345678901234567890.12"), pa.decimal128(38, 2)), None, None),
        ("date", pa.scalar(-1, pa.int32()).cast(pa.date32()), "1969-12-31", -1.0),
        ("timestamp", pa.scalar(-1, pa.timestamp("ns")), "1969-12-31 23:59:59.999999", -1.0),
        ("timestamp", pa.scalar(1500, pa.timestamp("ms", "UTC")), "1970-01-01 00:00:01.500000", 1_500_000.0),
        ("boolean", pa.scalar(True), "true", 1.0),
    ],
)
def test_texts_and_numbers_of_bounds(type_: str, value: pa.Scalar, text: str | None, number: float | None) -> None:
    """A bound of a column is converted to a text, which Spark parses, and to a number.

    The number is compared with the edges of bins.
    """
    column = SparkColumn("x", type_)
    assert format_value(column, value) == (text or "-12345678901234567890.12")
    assert value_as_double(column, value) == (float("-12345678901234567890.12") if number is None else number)


def _properties(tmp_path: Path, type_: str, values: Any, arrow: pa.DataType | None = None) -> dict[str, str]:
    pq.write_table(pa.table({"x": pa.array(values, arrow)}), tmp_path / "x.parquet")
    (row,) = (table := profile(str(tmp_path / "x.parquet"))).statistics()
    column = SparkColumn("x", type_)
    properties = column_properties(column, row, lambda: compute_histogram(table, column, row, 4))
    return parse_column_properties(properties).get("x", {})


def test_a_column_of_numbers(tmp_path: Path) -> None:
    properties = _properties(tmp_path, "int", [1, 2, 2, 9, None], pa.int32())
    assert properties.pop("histogram")
    assert properties == {"distinctCount": "3", "nullCount": "1", "avgLen": "4", "maxLen": "4", "min": "1", "max": "9"}


def test_a_column_of_texts_has_no_bounds(tmp_path: Path) -> None:
    properties = _properties(tmp_path, "string", ["a", "äbc", None])
    assert properties == {"distinctCount": "2", "nullCount": "1", "avgLen": "2", "maxLen": "3"}


def test_columns_that_spark_would_misread_are_left_out(tmp_path: Path) -> None:
    """A column with an infinite bound is left out completely.

    Spark divides by bounds, so an infinite bound cannot be stored. If only the bound were left out, Spark would assume
    that all values are null.
    """
    assert _properties(tmp_path, "double", [1.0, float("inf")]) == {}
    assert _properties(tmp_path, "double", [None, None], pa.float64())["distinctCount"] == "0"
    with_nan = _properties(tmp_path, "double", [1.0, 3.0, float("nan")])
    assert (with_nan["distinctCount"], with_nan["min"], with_nan["max"]) == ("2", "1.0", "3.0")


def test_types_without_statistics_in_spark_are_not_accepted() -> None:
    assert not SparkColumn("x", "timestamp_ntz").accepts("timestamp_us")
    assert not SparkColumn("x", "").accepts(None)
    assert not SparkColumn("x", "int").accepts("string")
    assert not SparkColumn("x", "string collate unicode").accepts("string")
    assert SparkColumn("x", "varchar(10)").accepts("string")
    assert SparkColumn("x", "decimal(15,2)").accepts("decimal_2")


def test_columns_come_from_the_schema_of_spark_or_else_of_hive() -> None:
    """The columns of a table are those of the schema that Spark stored in the table's properties.

    The schema is in one property, or in several if it is long. Without it, the columns of Hive are used. An invalid
    schema is an error.
    """
    text = '{"type":"struct","fields":[{"name":"Id","type":"long"},{"name":"s","type":{"type":"struct","fields":[]}}]}'
    expected = [SparkColumn("Id", "bigint"), SparkColumn("s", "")]
    assert spark_columns({"spark.sql.sources.schema": text}, {}) == expected
    parts = {f"spark.sql.sources.schema.part.{index}": text[index * 50 : index * 50 + 50] for index in range(3)}
    assert spark_columns({"spark.sql.sources.schema.numParts": "3", **parts}, {}) == expected
    assert spark_columns({}, {"id": "BIGINT"}) == [SparkColumn("id", "bigint")]
    with pytest.raises(ValueError, match=r"spark\.sql\.sources\.schema"):
        spark_columns({"spark.sql.sources.schema": "{"}, {})
