"""The JSON output is stable, valid for any value, and exact.

Every text can be converted back to its value.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.lookup import Bin, ValueFrequency
from metastore_assets.lookup.json import column_to_json, columns_json, histogram_json, scalar_json, show_json, top_json
from metastore_assets.statistics.column import ColumnStatistics, parse_sum
from metastore_assets.statistics.user_defined.results import UserResult
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.json import value_json
from tests.lookup.publishing import publish

MINIMAL = ColumnStatistics(0, "c", "c", "int64", "int64", 3, 1)
KEYS = [
    "column",
    "type",
    "value_count",
    "null_count",
    "nan_count",
    "minimum",
    "maximum",
    "minimum_exact",
    "maximum_exact",
    "distinct_count",
    "distinct_count_guarantee",
    "duplicate_count",
    "sum",
    "mean",
    "standard_deviation",
    "skewness",
    "kurtosis",
    "minimum_length",
    "maximum_length",
    "mean_length",
    "true_count",
    "total_bytes",
    "percentiles",
    "percentiles_guarantee",
    "frequencies",
    "reason",
    "user_defined",
]


def through_json(value: Any) -> Any:
    """Write a value as JSON, and return what a strict parser reads.

    NaN and infinity are errors.
    """

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(json.dumps(value, allow_nan=False), parse_constant=refuse)


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        (None, None),
        (pa.scalar(None, pa.int64()), None),
        (pa.scalar(True), True),
        (pa.scalar(-5), -5),
        (pa.scalar(2**53), 2**53),
        (pa.scalar(2**53 + 1), "9007199254740993"),
        (pa.scalar(-(2**53) - 1), "-9007199254740993"),
        (pa.scalar(2**64 - 1, pa.uint64()), "18446744073709551615"),
        (pa.scalar(1.5), 1.5),
        (pa.scalar(math.nan), "NaN"),
        (pa.scalar(math.inf), "Infinity"),
        (pa.scalar(-math.inf), "-Infinity"),
        (pa.scalar(decimal.Decimal("1.50"), pa.decimal128(38, 2)), "1.50"),
        (pa.scalar(decimal.Decimal("0E-10"), pa.decimal128(38, 10)), "0.0000000000"),
        (pa.scalar(decimal.Decimal(10**37), pa.decimal128(38, 0)), "1" + 37 * "0"),
        (pa.scalar("é\n😀", pa.large_string()), "é\n😀"),
        (pa.scalar("", pa.large_string()), ""),
        (pa.scalar(b"ab\xff\xc3", pa.large_binary()).cast(pa.large_binary()), "6162ffc3"),
        (pa.scalar(b"", pa.large_binary()), ""),
        (pa.scalar(datetime.date(2024, 2, 29)), "2024-02-29"),
        (pa.scalar(0, pa.time64("ns")), "00:00:00"),
        (pa.scalar(86_399_999_999_999, pa.time64("ns")), "23:59:59.999999999"),
        (pa.scalar(3_600_000_000_000 + 120_000_000, pa.time64("ns")), "01:00:00.120"),
        (pa.scalar(0, pa.timestamp("us")), "1970-01-01T00:00:00"),
        (pa.scalar(-1, pa.timestamp("us")), "1969-12-31T23:59:59.999999"),
        (pa.scalar(-1, pa.timestamp("ns")), "1969-12-31T23:59:59.999999999"),
        (pa.scalar(1500, pa.timestamp("ms", "UTC")), "1970-01-01T00:00:01.500Z"),
        (pa.scalar(-1, pa.timestamp("s")), "1969-12-31T23:59:59"),
        (pa.scalar(2**31 - 1, pa.date32()), "+5881580-07-11"),
        (pa.scalar(-(2**31), pa.date32()), "-5877641-06-23"),
        (pa.scalar(-719_529, pa.date32()), "-0001-12-31"),
        (pa.scalar(-719_528, pa.date32()), "0000-01-01"),
        (pa.scalar(2_932_897, pa.date32()), "+10000-01-01"),
    ],
)
def test_values(scalar: pa.Scalar | None, expected: Any) -> None:
    assert through_json(scalar_json(scalar)) == expected
    assert type(scalar_json(scalar)) is type(expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1500, -90_000, None], pa.duration("ms")), ["PT1.5S", "PT-90S", None]),
        (pa.array([0, -86_400_000], pa.date64()), ["1970-01-01", "1969-12-31"]),
        (pa.array(["é", None], pa.string_view()), ["é", None]),
        (pa.array(["a", None]).dictionary_encode("encode"), ["a", None]),
        (pa.array([["a"]]).cast(pa.list_(pa.dictionary(pa.int8(), pa.string()))), [["a"]]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([3])), [3, 3]),
        (pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]), [1, "b"]),
        (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())), [1]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values_of_queries(values: pa.Array, expected: list[Any]) -> None:
    """Values of types that only queries return are converted to JSON.

    Examples are DuckDB's enumerations and unions.
    """
    assert [value_json(value) for value in values] == expected


def test_uuids_are_canonical_text() -> None:
    value = uuid.UUID("12345678-1234-5678-1234-567812345678")
    array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([value.bytes], pa.binary(16)))
    assert scalar_json(array[0]) == "12345678-1234-5678-1234-567812345678"


def test_invalid_utf8_is_replaced() -> None:
    """Bytes that are no UTF-8 become hexadecimal escapes.

    Some writers store arbitrary bytes in text columns.
    """
    broken_texts = pa.array([b"ok \xff\xfe", b"\xc3"], pa.large_binary()).view(pa.large_string())
    assert [through_json(scalar_json(value)) for value in broken_texts] == ["ok \\xff\\xfe", "\\xc3"]


@given(st.dates())
def test_dates_are_those_of_python(value: datetime.date) -> None:
    assert scalar_json(pa.scalar(value)) == value.isoformat()


@given(st.integers(-(2**31), 2**31 - 1))
def test_dates_of_all_years_are_those_of_numpy(days: int) -> None:
    text = scalar_json(pa.scalar(days, pa.date32()))
    assert np.datetime64(text.removeprefix("+"), "D").astype(np.int64) == days
    year = text[:-6]
    assert len(year) == 4 if year.isdigit() else len(year) >= 5 and year[0] in "+-"


@given(st.datetimes(), st.sampled_from([None, "UTC"]))
def test_timestamps_are_those_of_python(value: datetime.datetime, zone: str | None) -> None:
    if zone:
        value = value.replace(tzinfo=datetime.UTC)
    text = scalar_json(pa.scalar(value, pa.timestamp("us", zone)))
    assert datetime.datetime.fromisoformat(text) == value
    assert text.endswith("Z") == (zone is not None)


@given(st.integers(-(2**63) + 1, 2**63 - 1), st.sampled_from(["ms", "us", "ns"]))
def test_timestamps_of_every_unit_are_those_of_numpy(value: int, unit: str) -> None:
    text = scalar_json(pa.scalar(value, pa.timestamp(unit)))
    if unit == "ms" and not abs(value) < 2**53:
        return  # numpy overflows when it converts to microseconds
    assert np.datetime64(text.removeprefix("+"), unit).astype(np.int64) == value


@given(st.times())
def test_times_are_those_of_python(value: datetime.time) -> None:
    text = scalar_json(pa.scalar(value, pa.time64("us")).cast(pa.time64("ns")))
    assert datetime.time.fromisoformat(text) == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**28), max_value=10**28))
def test_decimals_round_trip(value: decimal.Decimal) -> None:
    text = scalar_json(pa.scalar(value, pa.decimal128(38, 9)))
    assert decimal.Decimal(text) == value
    assert "E" not in text


@given(st.floats())
def test_floats_round_trip(value: float) -> None:
    result = through_json(scalar_json(pa.scalar(value)))
    again = float(result)
    assert again == value or (math.isnan(again) and math.isnan(value))


@given(st.text(), st.binary())
def test_text_and_bytes_round_trip(text: str, data: bytes) -> None:
    assert through_json(scalar_json(pa.scalar(data, pa.large_binary()))) == data.hex()
    if all(not 0xD800 <= ord(character) < 0xE000 for character in text):
        assert through_json(scalar_json(pa.scalar(text, pa.large_string()))) == text


def test_a_column_has_all_its_keys() -> None:
    result = through_json(column_to_json(MINIMAL))
    assert list(result) == KEYS
    assert (result["column"], result["value_count"], result["null_count"], result["nan_count"]) == ("c", 3, 1, None)
    assert (result["minimum"], result["percentiles"], result["distinct_count_guarantee"]) == (None, None, "absent")


@pytest.mark.parametrize(
    ("type_class", "total", "expected"),
    [
        ("int64", "12", 12),
        ("uint64", str(2**53 + 1), str(2**53 + 1)),
        ("int64", "-9223372036854775808000", "-9223372036854775808000"),
        ("decimal_2", "1.50", "1.50"),
        ("float64", "1.5", 1.5),
        ("float64", "-inf", "-Infinity"),
        ("float64", "nan", "NaN"),
        ("int64", None, None),
    ],
)
def test_sums_are_of_the_type_of_the_column(type_class: str, total: str | None, expected: object) -> None:
    result = through_json(
        column_to_json(replace(MINIMAL, type_class=type_class, sum=parse_sum(total, type_class)))["sum"]
    )
    assert result == expected
    assert type(result) is type(expected)


def test_percentiles_and_large_counts() -> None:
    percentiles = ((0.5, pa.scalar(2**60)), (0.9, pa.scalar(1)))
    result = through_json(column_to_json(replace(MINIMAL, percentiles=percentiles, total_bytes=2**60, mean=math.nan)))
    assert result["percentiles"] == [{"fraction": 0.5, "value": str(2**60)}, {"fraction": 0.9, "value": 1}]
    assert (result["total_bytes"], result["mean"]) == (str(2**60), "NaN")


def test_user_defined_statistics_of_any_type() -> None:
    """In JSON, a struct is an object, a list is a list, and a map is a list of [key, value].

    Nested integers that exceed JSON's exact range are texts.
    """
    nested_type = pa.list_(pa.struct([("name", pa.string()), ("many", pa.list_(pa.int64()))]))
    row = replace(
        MINIMAL,
        user_defined={
            "deep": UserResult(pa.array([[{"name": "a", "many": [1, 2**60, None]}]], nested_type), "exact"),
            "map": UserResult(pa.array([[("k", 0.5)]], pa.map_(pa.string(), pa.float64())), "estimate"),
            "time": UserResult(pa.array([1], pa.timestamp("ns")), "bound"),
            "none": UserResult(pa.nulls(1, pa.int64()), "absent", "it raised"),
        },
    )
    assert through_json(column_to_json(row))["user_defined"] == {
        "deep": {"value": [{"name": "a", "many": [1, str(2**60), None]}], "guarantee": "exact", "reason": None},
        "map": {"value": [["k", 0.5]], "guarantee": "estimate", "reason": None},
        "time": {"value": "1970-01-01T00:00:00.000000001", "guarantee": "bound", "reason": None},
        "none": {"value": None, "guarantee": "absent", "reason": "it raised"},
    }


def test_top_and_histogram() -> None:
    top = [ValueFrequency(pa.scalar("b"), 3), ValueFrequency(pa.scalar("a"), 2**54)]
    assert top_json(top) == [{"value": "b", "frequency": 3}, {"value": "a", "frequency": str(2**54)}]
    assert top_json([]) == []
    bins = [Bin(pa.scalar(0), pa.scalar(2**60), 3)]
    assert histogram_json(bins) == [{"minimum": 0, "maximum": str(2**60), "frequency": 3}]


def test_a_table_and_a_partition(local_store: ObjectStore) -> None:
    rows = pa.table({"n": pa.array([1, 2, None]), "t": pa.array([0, 1, 1], pa.timestamp("us", "Europe/Paris"))})
    table = publish(local_store, rows, partitions={"p=1": rows.slice(1)})
    document = through_json(show_json(table.version, columns_json(table.version, table.statistics()), current=True))
    head = {key: document[key] for key in document if key != "columns"}
    assert head == {"table": "orders", "version": 1, "snapshot": "snapshot 1", "current": True, "row_count": 3}
    assert list(document) == ["table", "version", "snapshot", "current", "row_count", "columns"]
    assert [column["column"] for column in document["columns"]] == ["n", "t"]
    n, t = document["columns"]
    assert (n["minimum"], n["maximum"], n["sum"], n["mean"], n["distinct_count"]) == (1, 2, 3, 1.5, 2)
    assert (t["minimum"], t["maximum"]) == ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000001Z")
    part = through_json(
        show_json(
            table.version,
            columns_json(table.version, table.statistics(partition="p=1")),
            current=False,
            row_count=table.count(partition="p=1").value,
            partition="p=1",
        )
    )
    assert (part["partition"], part["row_count"], part["current"]) == ("p=1", 2, False)
    assert part["columns"][0]["value_count"] == 1
    assert through_json(histogram_json(table.histogram("t", bins=1)))[0]["frequency"] == 3
