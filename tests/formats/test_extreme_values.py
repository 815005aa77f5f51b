"""Extreme values are exact or refused: nanoseconds, far years, decimals of many digits.

Python's datetime has neither nanoseconds nor years after 9999, and arithmetic of `Decimal` rounds to 28 digits by
default.

The source of a fragment (a data file and the deletes on it) is an object that can be pickled, and that opens the files
of the fragment.
"""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats import Snapshot, decode_partition_key, open_table_format
from tests.arrow_scalars import scalars_in
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_columns

YEAR_10000 = 253_402_300_800 * 10**6
MOST = 10**38 - 1


def snapshot_of(folder: Path) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(folder))).snapshot()


def physical(array: pa.Array) -> list[Any]:
    """Return the values as stored, with temporal ones as integers."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return list(array.to_pylist())


def read_elsewhere(snapshot: Snapshot, name: str) -> list[Any]:
    """Return the stored values of a column, read through pickled sources as in another process."""
    rows = []
    for fragment in snapshot.fragments:
        assert list(scalars_in(fragment)) == []
        with pickle.loads(pickle.dumps(fragment.source)).open() as reader:
            chunks = list(reader.read(snapshot.schema.field(name)))
        assert {chunk.type for chunk in chunks} == {snapshot.schema.field(name).type}
        rows += [value for chunk in chunks for value in physical(chunk)]
    return rows


ICEBERG = [
    ("date", "int", 2_932_897, "+10000-01-01"),
    ("date", "int", -719_529, "-0001-12-31"),
    ("date", "int", 2**31 - 1, "+5881580-07-11"),
    ("time", "long", 1, "00:00:00.000001"),
    ("time", "long", 86_399_999_999, "23:59:59.999999"),
    ("timestamp", "long", -62_135_596_800_000_001, "0000-12-31 23:59:59.999999"),
    ("timestamp", "long", 2**63 - 1, "+294247-01-10 04:00:54.775807"),
    ("timestamptz", "long", YEAR_10000, "+10000-01-01 00:00:00Z"),
    ("timestamp_ns", "long", 1, "1970-01-01 00:00:00.000000001"),
    ("timestamp_ns", "long", -(2**63), "1677-09-21 00:12:43.145224192"),
    ("timestamptz_ns", "long", 2**63 - 1, "2262-04-11 23:47:16.854775807Z"),
    ("decimal(38,2)", "bytes", MOST.to_bytes(16, "big"), f"{MOST // 100}.99"),
    ("uuid", {"type": "fixed", "size": 16, "name": "u"}, bytes(range(16)), str(uuid.UUID(bytes=bytes(range(16))))),
]


@pytest.mark.parametrize(("type_", "avro", "raw", "text"), ICEBERG)
def test_identity_partitions_of_iceberg_have_exact_values(
    tmp_path: Path, type_: str, avro: Any, raw: Any, text: str
) -> None:
    """Partition keys and rows have the exact partition value, even one that Python cannot represent.

    The files lack the partition column.
    """
    spec = [{"name": "p", "field-id": 1000, "source-id": 2, "transform": "identity"}]
    schema = [column(1, "id", "long"), column(2, "p", type_)]
    writer = IcebergWriter(tmp_path / "t", schema, specs={0: spec}, partition_types={1000: avro}, version=3)
    writer.commit(writer.data(pa.table({"id": [1, 2]}), partition=(raw,)))
    writer.commit(writer.data(pa.table({"id": [3]}), partition=(None,)))
    snapshot = snapshot_of(writer.folder)
    keys = [decode_partition_key(fragment.partition_key) for fragment in snapshot.fragments]
    assert sorted(keys, key=str) == sorted([(("p", text),), (("p", None),)], key=str)
    expected = Decimal(f"{MOST}e-2") if type_.startswith("decimal") else raw
    assert sorted(read_elsewhere(snapshot, "p"), key=str) == sorted([expected, expected, None], key=str)


@pytest.mark.parametrize(
    ("transform", "raw", "text"),
    [
        ("year", 8030, "+10000"),
        ("year", -1971, "-0001"),
        ("month", 12 * 8030, "+10000-01"),
        ("day", 2_932_897, "+10000-01-01"),
        ("hour", 24 * 2_932_897 + 5, "+10000-01-01-05"),
        ("hour", -1, "1969-12-31-23"),
    ],
)
def test_periods_of_far_years_have_a_signed_year(tmp_path: Path, transform: str, raw: int, text: str) -> None:
    """In partition keys by year, month, day or hour, years before 0 and after 9999 have a sign."""
    spec = [{"name": "p", "field-id": 1000, "source-id": 1, "transform": transform}]
    writer = IcebergWriter(
        tmp_path / "t", [column(1, "at", "timestamp")], specs={0: spec}, partition_types={1000: "int"}
    )
    writer.commit(writer.data(pa.table({"at": pa.array([0], pa.timestamp("us"))}), partition=(raw,)))
    (fragment,) = snapshot_of(writer.folder).fragments
    assert decode_partition_key(fragment.partition_key) == (("p", text),)


def test_bounds_of_iceberg_are_not_rounded(tmp_path: Path) -> None:
    """The bounds of a decimal of 38 digits and of a timestamp in nanoseconds equal the values."""
    schema = [column(1, "d", "decimal(38,2)"), column(2, "at", "timestamp_ns")]
    writer = IcebergWriter(tmp_path / "t", schema, version=3)
    values = pa.table(
        {"d": pa.array([Decimal(f"{MOST}e-2")], pa.decimal128(38, 2)), "at": pa.array([7], pa.timestamp("ns"))}
    )
    bounds = [
        {"key": 1, "value": MOST.to_bytes(16, "big")},
        {"key": 2, "value": (7).to_bytes(8, "little")},
    ]
    writer.commit(writer.data(values, lower_bounds=bounds, upper_bounds=bounds))
    table = open_table_format(TableConfig(name="t", uri=str(writer.folder)))
    snapshot = table.snapshot()
    reported_bounds = table.bounds(snapshot, "d")
    assert reported_bounds["minimum"].to_pylist() == reported_bounds["maximum"].to_pylist() == [Decimal(f"{MOST}e-2")]
    assert physical(table.bounds(snapshot, "at")["maximum"].combine_chunks()) == [7]


@pytest.mark.parametrize(
    ("type_", "default", "expected"),
    [
        ("date", "+10000-01-01", 2_932_897),
        ("date", "-0001-12-31", -719_529),
        ("time", "23:59:59.999999", 86_399_999_999),
        ("timestamp", "+10000-01-01T00:00:00", YEAR_10000),
        ("timestamptz", "+10000-01-01T00:00:00+00:00", YEAR_10000),
        ("timestamp_ns", "1970-01-01T00:00:00.000000001", 1),
        ("timestamptz_ns", "2262-04-11T23:47:16.854775807+00:00", 2**63 - 1),
        ("decimal(38,2)", f"{MOST // 100}.99", Decimal(f"{MOST}e-2")),
        ("uuid", "00010203-0405-0607-0809-0a0b0c0d0e0f", bytes(range(16))),
    ],
)
def test_defaults_of_iceberg_are_exact(tmp_path: Path, type_: str, default: str, expected: Any) -> None:
    """A column that the file lacks has its default.

    A field that the default of its struct does not set has the default of the field.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")], version=3)
    writer.commit(writer.data(pa.table({"id": [1]})))
    inner = [column(4, "x", type_, initial_default=default), column(5, "y", "long")]
    added_columns = [
        column(2, "new", type_, initial_default=default),
        column(3, "s", {"type": "struct", "fields": inner}, initial_default={"5": 9}),
    ]
    writer.schemas.append([column(1, "id", "long"), *added_columns])
    writer.write_metadata()
    snapshot = snapshot_of(writer.folder)
    assert read_elsewhere(snapshot, "new") == [expected]
    with snapshot.fragments[0].source.open() as reader:
        (chunk,) = reader.read(snapshot.schema.field("s"))
    assert (physical(chunk.field("x")), chunk.field("y").to_pylist()) == ([expected], [9])


@pytest.mark.parametrize(
    ("type_", "default"),
    [("timestamp", "+300000-01-01T00:00:00"), ("timestamp_ns", "2300-01-01T00:00:00"), ("date", "+9999999-01-01")],
)
def test_a_default_out_of_the_range_of_its_type_is_an_error(tmp_path: Path, type_: str, default: str) -> None:
    """If a column's default is out of the range of its type, the error names the column and the default."""
    writer = IcebergWriter(tmp_path / "t", [column(1, "d", type_, initial_default=default)], version=3)
    writer.write_metadata()
    with pytest.raises(TableFormatError, match=f"{re.escape(repr(default))}.*'d'"):
        snapshot_of(writer.folder)


@pytest.mark.parametrize(
    ("type_", "logged_value", "expected", "text"),
    [
        ("date", "+10000-01-01", 2_932_897, "+10000-01-01"),
        ("date", "-0001-12-31", -719_529, "-0001-12-31"),
        ("timestamp", "+10000-01-01 00:00:00.000001", YEAR_10000 + 1, "+10000-01-01 00:00:00.000001Z"),
        ("timestamp", "2024-01-01T00:00:00.123456789+01:00", 1_704_063_600_123_456, "2023-12-31 23:00:00.123456Z"),
        ("timestamp_ntz", "0000-12-31T23:59:59.999999", -62_135_596_800_000_001, "0000-12-31 23:59:59.999999"),
        ("decimal(38,2)", f"-{MOST // 100}.99", Decimal(f"-{MOST}e-2"), f"-{MOST // 100}.99"),
    ],
)
def test_partition_values_of_delta_are_exact(
    tmp_path: Path, type_: str, logged_value: str, expected: Any, text: str
) -> None:
    """The partition key, the rows and the bounds of a Delta table have the exact partition value.

    Timestamps are truncated to microseconds.
    """
    add = add_file(tmp_path, pa.table({"a": [1, 2]}), p=logged_value)
    commit(tmp_path, protocol("timestampNtz"), metadata([field("p", type_), field("a", "long")], ["p"]), add)
    snapshot = snapshot_of(tmp_path)
    assert decode_partition_key(snapshot.fragments[0].partition_key) == (("p", text),)
    assert read_elsewhere(snapshot, "p") == [expected, expected]
    reported_bounds = open_table_format(TableConfig(name="t", uri=str(tmp_path))).bounds(snapshot, "p")
    assert (
        physical(reported_bounds["minimum"].combine_chunks())
        == physical(reported_bounds["maximum"].combine_chunks())
        == [expected]
    )


def test_typed_statistics_of_far_years_in_a_delta_checkpoint_are_exact_or_absent(tmp_path: Path) -> None:
    moments = {"c": pa.array([YEAR_10000], pa.timestamp("us", "UTC")), "d": pa.array([2_932_897], pa.date32())}
    add = add_file(tmp_path, pa.table({"a": [1], "d": moments["d"], "c": moments["c"]}))
    fields = [field("a", "long"), field("d", "date"), field("c", "timestamp")]
    commit(tmp_path, protocol(), metadata(fields), add)
    bounds = pa.struct([("a", pa.int64()), ("d", pa.date32()), ("c", pa.timestamp("us", "UTC"))])
    values = {"a": 1, "d": 2_932_897, "c": YEAR_10000}
    parsed_type = pa.struct([("numRecords", pa.int64()), ("minValues", bounds), ("maxValues", bounds)])
    action = {key: value for key, value in add["add"].items() if key != "stats"} | {
        "partitionValues": [],
        "stats_parsed": {"numRecords": 1, "minValues": values, "maxValues": values},
    }
    add_type = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", pa.map_(pa.string(), pa.string())),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats_parsed", parsed_type),
        ]
    )
    log = tmp_path / "_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    others = {key: value for line in first for key, value in line.items() if key in ("protocol", "metaData")}
    rows = pa.table(
        {
            "protocol": pa.array([others["protocol"], None, None]),
            "metaData": pa.array(
                [None, {key: others["metaData"][key] for key in ("id", "schemaString", "partitionColumns")}, None]
            ),
            "add": pa.array([None, None, action], add_type),
        }
    )
    pq.write_table(rows, log / f"{0:020}.checkpoint.parquet")
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = table.snapshot()
    assert table.bounds(snapshot, "a")["minimum"].to_pylist() == [1]
    for name in ("d", "c"):
        assert table.bounds(snapshot, name)["minimum_guarantee"].to_pylist() == ["absent"]
    assert read_elsewhere(snapshot, "d") == [2_932_897]


def test_nanoseconds_and_far_years_of_plain_files_are_exact(tmp_path: Path) -> None:
    """Nanoseconds and far years in plain files are read exactly, through pickled sources.

    The Parquet file has nanoseconds, times, and dates and timestamps of far years. The ORC file has nanoseconds only.
    """
    values = {
        "at": pa.array([1, 2**63 - 1, None], pa.timestamp("ns")),
        "time": pa.array([1, 86_399_999_999_999, None], pa.int64()).view(pa.time64("ns")),
        "day": pa.array([2_932_897, -719_529, None], pa.int32()).view(pa.date32()),
        "far": pa.array([YEAR_10000, -(2**63), None], pa.timestamp("us", "UTC")),
    }
    (tmp_path / "parquet").mkdir()
    (tmp_path / "orc").mkdir()
    pq.write_table(pa.table(values), tmp_path / "parquet" / "1.parquet")
    nanoseconds = {"at": pa.array([1, 10**9 + 999, None], pa.timestamp("ns"))}
    orc.write_table(pa.table(nanoseconds), tmp_path / "orc" / "1.orc")
    for folder, expected in (("parquet", values), ("orc", nanoseconds)):
        snapshot = snapshot_of(tmp_path / folder)
        for name, array in expected.items():
            assert read_elsewhere(snapshot, name) == physical(array), (folder, name)


@pytest.mark.parametrize("milliseconds", [10**15, 10**30, -(10**30)])
def test_a_commit_time_out_of_range_is_absent(tmp_path: Path, milliseconds: int) -> None:
    commit(tmp_path, protocol(), metadata([field("a", "long")]), add_file(tmp_path, pa.table({"a": [1]})))
    file = tmp_path / "_delta_log" / f"{0:020}.json"
    file.write_text(file.read_text().replace("1700000000000", str(milliseconds)))
    assert snapshot_of(tmp_path).committed_at is None


_EXPONENT = "1e-10000000"
"""A decimal with so many digits that Arrow ends the process if it parses it."""
_OPENS = """
import json, sys
from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.formats import open_table_format
for text in sys.argv[1:]:
    try:
        opened = open_table_format(TableConfig.model_validate_json(text))
        told = opened.bounds(opened.snapshot(), "d").to_pylist()
        print([own["minimum_guarantee"] for own in told])
    except MetastoreError as error:
        print(error)
import duckdb
import pyarrow as pa
from metastore_assets.formats.files.text_values import parse
try:
    parse(pa.array(["1e-10000000"]), pa.decimal128(10, 2))
except pa.ArrowInvalid as error:
    print(error)
"""


@pytest.mark.slow
def test_numbers_with_too_many_digits_are_refused(tmp_path: Path) -> None:
    """The decimal 1e-10000000 is an error as a partition value or a text, and not a crash.

    It would crash the process if Arrow parsed it. As a statistic of a Delta log, it is ignored.
    """
    rows = pa.table({"a": [1, 2]})
    for name, partition_columns in (("partition", ["d"]), ("statistics", [])):
        fields = [field("a", "long"), field("d", "decimal(10,2)")]
        added_file = add_file(tmp_path / name, rows, "f.parquet", **dict.fromkeys(partition_columns, _EXPONENT))
        least = {"numRecords": 2, "minValues": {"d": 0}, "maxValues": {"d": 0}}
        added_file["add"]["stats"] = json.dumps(least).replace(": 0}", f": {_EXPONENT}}}")
        commit(tmp_path / name, protocol(), metadata(fields, partition_columns), added_file)
    tables = [{"name": "t", "uri": str(tmp_path / name)} for name in ("partition", "statistics")]
    program = [sys.executable, "-c", _OPENS, *map(json.dumps, tables)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    partition, statistics, text = done.stdout.splitlines()
    assert f"'{_EXPONENT}' is no value of type decimal128(10, 2)" in partition
    assert statistics == "['absent']"
    assert "decimal128(10, 2)" in text


@pytest.mark.parametrize("declared_type", [None, "string", "time[ns]"])
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_time_that_is_no_time_of_a_day_is_refused(tmp_path: Path, declared_type: str | None, is_nested: bool) -> None:
    """A stored time 24:00:00 is refused with an error that names the column and the value.

    DuckDB wrote it to a Parquet file. Python and Polars read it as midnight. The time 23:59:59.999999 is read.
    """
    column = "[time '24:00:00', null]" if is_nested else "time '24:00:00'"
    duckdb.sql(f"copy (select {column} as at) to '{tmp_path}/x.parquet'")
    schema = {"at.element" if is_nested else "at": declared_type} if declared_type else {}
    snapshot = open_table_format(TableConfig(name="t", uri=str(tmp_path), schema=schema)).snapshot()
    with pytest.raises(FragmentError, match=r"x\.parquet.*'at'.*86400000000 microseconds") as error_info:
        read_columns(snapshot)
    assert error_info.value.unsupported
    duckdb.sql(f"copy (select {column.replace('24:00:00', '23:59:59.999999')} as at) to '{tmp_path}/x.parquet'")
    read_columns(open_table_format(TableConfig(name="t", uri=str(tmp_path), schema=schema)).snapshot())
