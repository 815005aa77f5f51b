"""Partitions between two values are selected by the order of the values, for any type and notation.

A fragment is the smallest unit of rows that a format adds or removes: a data file and the deletes on it.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import LiteralError, MetastoreError, PartitionNotFoundError
from metastore_assets.expressions.partition_keys import NULL_VALUE, encode_partition_key
from metastore_assets.formats import open_table_format
from metastore_assets.formats.base import Fragment, Snapshot
from metastore_assets.formats.partition_ranges import PartitionRanges
from metastore_assets.formats.values import constant, value_text

TYPES: Mapping[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (pa.uint8(), st.integers(0, 255)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "time": (pa.time64("us"), st.times()),
    "decimal": (pa.decimal128(9, 3), st.decimals(-(10**5), 10**5, places=3)),
    "float": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=4)),
    "bytes": (pa.binary(), st.binary(max_size=3)),
}


def snapshot(columns: Mapping[str, pa.DataType], rows: Sequence[Sequence[Any]], format_: str = "delta") -> Snapshot:
    """Return a snapshot with one fragment for each distinct row of partition values.

    Args:
        columns: The types of the partition columns.
        rows: Rows with a value for each partition column; None for null. In a column that is not of type string, a
            `str` is used unchanged in the partition key. Other values are formatted first.
        format_: The name of the table's format.
    """
    keys = []
    for row in rows:
        texts = [
            item if item is None or (isinstance(item, str) and not pa.types.is_string(type_))
            else value_text(constant(item, type_))
            for item, type_ in zip(row, columns.values(), strict=True)
        ]  # fmt: skip
        keys.append(encode_partition_key(list(zip(columns, texts, strict=True))))
    fragments = tuple(Fragment(key, key, key, 1, 1, None) for key in sorted(set(keys)))  # type: ignore[arg-type]
    schema = pa.schema([("id", pa.int64()), *columns.items()])
    return Snapshot(format_, "1", None, schema, tuple(columns), fragments=fragments)


def ranges_of(snapshot: Snapshot) -> PartitionRanges:
    return PartitionRanges("t", snapshot, {fragment.partition_key for fragment in snapshot.fragments})


def key(column: str, value: Any, type_: pa.DataType) -> str:
    return encode_partition_key([(column, value_text(constant(value, type_)))])


def bytewise(value: Any) -> Any:
    """Convert a text to bytes, because text columns are ordered by bytes.

    Return any other value unchanged.
    """
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
def test_ranges_equal_comparisons_in_python(kind: str, data: st.DataObject) -> None:
    """Partition keys have the order of their values, and a range has the keys between its bounds.

    The expected keys are computed by comparisons of Python values. Null comes last, and is in no range.
    """
    type_, strategy = TYPES[kind]
    values = data.draw(st.lists(strategy, min_size=1, max_size=8))
    bounds = sorted(data.draw(st.lists(strategy, min_size=2, max_size=2)), key=bytewise)
    rows = [*([value] for value in values), [None]]
    ranges = ranges_of(snapshot({"c": type_}, rows))
    sorted_keys = list(dict.fromkeys(key("c", value, type_) for value in sorted(values, key=bytewise)))
    assert list(ranges.keys) == [*sorted_keys, f"c={NULL_VALUE}"]
    first, last = (str(value_text(constant(bound, type_))) for bound in bounds)
    inside = {
        key("c", value, type_) for value in values if bytewise(bounds[0]) <= bytewise(value) <= bytewise(bounds[1])
    }
    expected_keys = [item for item in sorted_keys if item in inside]
    if kind == "text" and any("%" in item or item == NULL_VALUE for item in (first, last)):
        return  # Two notations of these are accepted.
    if expected_keys:
        assert list(ranges.between(f"c={first}", f"c={last}")) == expected_keys
    else:
        with pytest.raises(PartitionNotFoundError):
            ranges.between(f"c={first}", f"c={last}")


def test_nan_is_the_greatest_partition_value() -> None:
    ranges = ranges_of(snapshot({"c": pa.float64()}, [[math.nan], [math.inf], [-1.0]]))
    assert ranges.keys == ("c=-1.0", "c=inf", "c=nan")
    assert ranges.between("1e3", None) == ("c=inf", "c=nan")


def test_bounds_of_several_columns_are_compared_in_column_order() -> None:
    """A bound is compared column by column, in the order of the table's partition columns.

    A bound may have only some of the columns.
    """
    months = [(year, month) for year in (2023, 2024) for month in range(1, 13)]
    ranges = ranges_of(snapshot({"year": pa.int32(), "month": pa.int32()}, months))
    assert ranges.between("year=2023/month=11", "year=2024/month=2") == (
        "year=2023/month=11",
        "year=2023/month=12",
        "year=2024/month=1",
        "year=2024/month=2",
    )
    assert len(ranges.between("year=2024", None)) == 12
    assert ranges.between("month=12", None) == ("year=2023/month=12", "year=2024/month=12")
    assert len(ranges.between("year=2023/month=12", "year=2024")) == 13
    assert ranges.between("month=11/year=2023", "month=2/year=2024") == ranges.between(
        "year=2023/month=11", "year=2024/month=2"
    )


def test_values_of_folders_are_integers_or_texts() -> None:
    """Partition values of plain files are ordered as integers if all of them are integers, else as texts.

    Values in a text column of a Delta table are ordered as texts, even if all of them are integers.
    """
    numbers = snapshot({"hour": pa.string()}, [["9"], ["10"], ["08"]], "files")
    assert ranges_of(numbers).keys == ("hour=08", "hour=9", "hour=10")
    words = snapshot({"hour": pa.string()}, [["9"], ["10"], ["x"]], "files")
    assert ranges_of(words).keys == ("hour=10", "hour=9", "hour=x")
    texts = snapshot({"hour": pa.string()}, [["9"], ["10"]], "delta")
    assert ranges_of(texts).keys == ("hour=10", "hour=9")


def test_ranges_of_transformed_values() -> None:
    """Values of partition fields that are no columns are ordered: buckets as numbers, and days as texts.

    The partition fields are `id_bucket` and `at_day`.
    """
    buckets = snapshot({"id_bucket": pa.int32()}, [[3], [10]])
    columns = Snapshot(
        "iceberg", "1", None, pa.schema([("id", pa.int64())]), ("id_bucket",), fragments=buckets.fragments
    )
    assert ranges_of(columns).keys == ("id_bucket=3", "id_bucket=10")
    days = [date(2024, 1, 1) + timedelta(days=day * 9) for day in range(5)]
    built_snapshot = snapshot({"at_day": pa.date32()}, [[day] for day in days])
    columns = Snapshot(
        "iceberg", "1", None, pa.schema([("id", pa.int64())]), ("at_day",), fragments=built_snapshot.fragments
    )
    assert ranges_of(columns).between("2024-01-10", "2024-01-31") == tuple(f"at_day={d}" for d in days[1:4])


def test_partition_fields_are_ordered_by_the_types_that_the_format_reports() -> None:
    """A partition field that is no column is ordered by the type that the format reports for it.

    The type of `amount_trunc` is a decimal, so 10.00 follows 9.50.
    """
    fragments = snapshot({"amount_trunc": pa.decimal128(5, 2)}, [[Decimal("9.50")], [Decimal("10.00")]]).fragments
    schema, types = pa.schema([("id", pa.int64())]), (("amount_trunc", pa.decimal128(5, 2)),)
    truncated_snapshot = Snapshot(
        "iceberg", "1", None, schema, ("amount_trunc",), partition_types=types, fragments=fragments
    )
    assert ranges_of(truncated_snapshot).keys == ("amount_trunc=9.50", "amount_trunc=10.00")
    assert ranges_of(truncated_snapshot).between("9.6", None) == ("amount_trunc=10.00",)


def test_values_that_are_not_of_the_type_of_their_column_are_integers_or_texts() -> None:
    """Integers that the format reports as texts, for a column of dates, are ordered as integers.

    A Hudi table may have such partition values: numbers of days.
    """
    fragments = snapshot({"day": pa.string()}, [["9999"], ["10000"]]).fragments
    schema, types = pa.schema([("day", pa.date32())]), (("day", pa.string()),)
    days = Snapshot("hudi", "1", None, schema, ("day",), partition_types=types, fragments=fragments)
    assert ranges_of(days).keys == ("day=9999", "day=10000")


def test_a_partitioned_table_without_rows_has_no_partitions() -> None:
    empty = Snapshot("delta", "1", None, pa.schema([("day", pa.date32())]), ("day",), fragments=())
    with pytest.raises(PartitionNotFoundError, match=r"'t'.*partitions"):
        ranges_of(empty).between("2024-01-01", None)
    with pytest.raises(LiteralError, match=r"'soon'.*date"):
        ranges_of(empty).between("soon", None)


@pytest.mark.parametrize(
    ("type_", "values", "bounds", "message"),
    [
        (
            pa.date32(),
            [date(2024, 1, 1)],
            ("2024-13-01", None),
            "--from '2024-13-01'.*'c'",
        ),
        (pa.date32(), [date(2024, 1, 1)], (None, "soon"), "'soon'.*'c'.*'2024-01-01'"),
        (pa.int64(), [1, 2], ("2", "1"), "--from '2'.*--to '1'"),
        (pa.int64(), [1, 2], (f"c={NULL_VALUE}", None), "null.*`--partition c="),
        (
            pa.timestamp("us"),
            [datetime(2024, 1, 1)],
            ("2024-01-01T00:00:00Z", None),
            "'2024-01-01T00:00:00Z'.*timestamp",
        ),
        (pa.time64("us"), [time(1)], ("25:00", None), "'25:00'.*time"),
        (pa.decimal128(5, 2), [Decimal("1.5")], ("Infinity", None), "'Infinity'.*decimal"),
        (pa.decimal128(5, 2), [Decimal("1.5")], ("1_0", None), "'1_0'.*decimal"),
        (pa.float64(), [1.5], ("1_0", None), "'1_0'.*number"),
        (pa.bool_(), [True], ("yes", None), "'yes'.*'true'"),
    ],
)
def test_invalid_bounds_are_refused(
    type_: pa.DataType, values: list[Any], bounds: tuple[Any, Any], message: str
) -> None:
    ranges = ranges_of(snapshot({"c": type_}, [[value] for value in values]))
    with pytest.raises(LiteralError, match=message):
        ranges.between(*bounds)


def test_a_bound_of_an_unknown_column_is_refused() -> None:
    ranges = ranges_of(snapshot({"year": pa.int32(), "month": pa.int32()}, [(2024, 1)]))
    with pytest.raises(LiteralError, match=r"--from.*'2024'.*`--from year=…/month=…`"):
        ranges.between("2024", None)
    with pytest.raises(LiteralError, match="'month'"):
        ranges.between("moth=3", None)


def test_empty_ranges_and_empty_tables_have_no_partitions() -> None:
    ranges = ranges_of(snapshot({"c": pa.int32()}, [[1], [12]]))
    with pytest.raises(PartitionNotFoundError, match=r"'3'.*'9'.*'c=1'"):
        ranges.between("3", "9")
    non_null_keys = Snapshot("delta", "1", None, pa.schema([]), (), fragments=(Fragment("f", "all", "f", 1, 1, None),))  # type: ignore[arg-type]
    with pytest.raises(PartitionNotFoundError, match=r"'t'.*--from '3'"):
        ranges_of(non_null_keys).between("3", None)
    assert ranges_of(non_null_keys).keys == ("all",)


@pytest.mark.long
def test_ranges_of_real_tables_have_the_keys_in_between(realtables: Path) -> None:
    """A range of two random keys of a real table has the keys in between.

    Tables are those that are readable and have at least two partitions. Keys with null are left out.
    """
    draw, compared_count = random.Random(0), 0
    for entry in json.loads((realtables / "manifest.json").read_text()):
        path_mapping = {old: str(realtables / new) for old, new in entry.get("location_remap") or ()}
        try:
            config = TableConfig(name="t", uri=str(realtables / entry["path"]), path_mapping=path_mapping)
            current = open_table_format(config).snapshot()
        except MetastoreError:
            continue  # These tables are invalid on purpose.
        ranges = ranges_of(current)
        non_null_keys = [key for key in ranges.keys if NULL_VALUE not in key]
        if len(non_null_keys) < 2:
            continue
        first, last = sorted(draw.sample(range(len(non_null_keys)), 2))
        between = [key for key in ranges.between(non_null_keys[first], non_null_keys[last]) if NULL_VALUE not in key]
        assert between == non_null_keys[first : last + 1], entry["path"]
        compared_count += 1
    assert compared_count > 20


def test_a_bound_of_a_column_with_only_null_is_parsed_by_its_type() -> None:
    """If null is the only partition value, a bound is parsed by the type of the column.

    In a column of dates, a bound that is no date is an error. The error shows no example of a value, because there is
    none. In a text column of plain files, any text is a valid bound. The error then says that no partition is in range.
    """
    dates = ranges_of(snapshot({"d": pa.date32()}, [[None]]))
    with pytest.raises(LiteralError, match=r"'abc'.*'d'.* date$"):
        dates.between("abc", None)
    texts = ranges_of(snapshot({"d": pa.string()}, [[None]], "files"))
    with pytest.raises(PartitionNotFoundError, match="'abc'"):
        texts.between("abc", None)
