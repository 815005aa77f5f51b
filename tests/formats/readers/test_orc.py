"""ORC files: types, stripes, column names, calendars, and corrupt files."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.readers.columns import open_columns
from metastore_assets.formats.readers.orc import OrcColumns
from metastore_assets.formats.readers.orc_tail import OrcTail, decode_message, decode_signed
from metastore_assets.storage.corrupt_input import UnsupportedError
from tests.formats.oracle import read_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _orc(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    orc.write_table(table, sink, **options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _columns(data: bytes) -> list[list[Any]]:
    columns = open_columns("orc", pa.BufferReader(data))
    result = []
    for index, field in enumerate(columns.fields):
        chunks = list(columns.read(index))
        for chunk in chunks:
            chunk.validate(full=True)
            assert chunk.type == field.type
        result.append([value for chunk in chunks for value in chunk.to_pylist()])
        assert len(result[-1]) == columns.row_count
    columns.close()
    return result


_LIST = pa.list_(pa.field("element", pa.int64()))
_VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, None, 127]),
    (pa.int64(), [-(2**63), 2**63 - 1, None]),
    (pa.float32(), [1.5, float("-inf"), None]),
    (pa.float64(), [0.1, None]),
    (pa.bool_(), [True, None, False]),
    (pa.string(), ["", "é😀", None]),
    (pa.binary(), [b"\xff\0", None]),
    (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), None]),
    (pa.timestamp("ns"), [datetime(1969, 12, 31, 23, 59, 58, 250000), datetime(1700, 1, 1), None]),
    (pa.timestamp("ns", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC), None]),
    (_LIST, [[1, None], [], None]),
    (pa.map_(pa.string(), _LIST), [[("k", [1])], [], None]),
    (pa.struct([("x", pa.struct([("y", pa.int32())]))]), [{"x": {"y": 1}}, {"x": None}, None]),
]


@pytest.mark.parametrize(("type_", "values"), _VALUES, ids=[str(type_) for type_, _ in _VALUES])
def test_every_type(type_: pa.DataType, values: list[Any]) -> None:
    """Arrow's types and values survive a round trip through an ORC file."""
    data = _orc(pa.table({"a": pa.array(values, type_), "b": [7] * len(values)}))
    columns = open_columns("orc", pa.BufferReader(data))
    assert [field.type for field in columns.fields] == [type_, pa.int64()]
    assert _columns(data) == [values, [7] * len(values)]


def test_a_time_zone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the reader's time zone nor a daylight saving gap changes a timestamp."""
    values = [datetime(2024, 3, 31, 2, 30), datetime(2024, 10, 27, 2, 30), datetime(1900, 1, 1)]
    data = _orc(pa.table({"a": pa.array(values, pa.timestamp("ns"))}))
    for zone in ("America/Los_Angeles", "Asia/Kolkata"):
        monkeypatch.setenv("TZ", zone)
        assert _columns(data) == [values]


@pytest.mark.parametrize("names", [["a", "b"], ["a.b", "a"], ["", "x"], ["a", "A"]])
def test_stripes_and_names(names: list[str]) -> None:
    """Columns with unusual names are read completely from many stripes, in chunks of bounded size."""
    rows = 300_000
    numbers = [number * 7919 % 1_000_003 for number in range(rows)]
    table = pa.table([pa.array(numbers), pa.array([str(number) for number in numbers])], names=names)
    data = _orc(table, stripe_size=200_000, batch_size=1000)
    columns = OrcColumns(pa.BufferReader(data))
    assert orc.ORCFile(pa.BufferReader(data)).nstripes > 2
    assert [field.name for field in columns.fields] == names
    for index in range(2):
        chunks = list(columns.read(index))
        assert max(map(len, chunks)) <= 131_072
        assert pa.chunked_array(chunks).equals(table.column(index))


def test_a_corrupt_column_does_not_affect_others(tmp_path: Path) -> None:
    """If a column of a stripe is corrupt, the other columns can still be read.

    Stripes are read column by column.
    """
    random_text = random.Random(5).randbytes(4000).hex()
    path = tmp_path / "a.orc"
    path.write_bytes(_orc(pa.table({"a": list(range(100)), "b": [random_text] * 100}), compression="zlib"))
    data = bytearray(path.read_bytes())
    with path.open("r+b") as file:
        # The strings take most of the file.
        file.seek(len(data) // 3)
        file.write(b"\xff" * 200)
    snapshot = open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()
    with snapshot.fragments[0].source.open() as reader:
        assert sum(map(len, reader.read(snapshot.schema.field("a")))) == 100
        with pytest.raises(FragmentError, match="'b'"):
            list(reader.read(snapshot.schema.field("b")))


def _written_by_java(data: bytes, field: bytes = b"\x48\x00") -> bytes:
    """Return the file marked as written by Apache's Java library.

    That library may count old days in the Julian calendar. `field` is the field of the footer that replaces the number
    of the writer.
    """
    postscript = decode_message(data[-1 - data[-1] : -1])
    length = postscript[1][0]
    assert isinstance(length, int)
    start = len(data) - 1 - data[-1] - length
    footer = data[start : start + length]
    assert footer.count(b"\x48\x01") == 1
    return data[:start] + footer.replace(b"\x48\x01", field) + data[start + length :]


def test_days_that_two_calendars_count_differently_are_refused() -> None:
    """Days before 15 October 1582 are refused if Java wrote the file and declared no calendar.

    This holds for dates at any depth.
    """
    days = [date(1582, 10, 14), None]
    nested_array = pa.array([{"x": [day]} for day in days], pa.struct([("x", pa.list_(pa.date32()))]))
    table = pa.table({"a": pa.array(days), "b": nested_array})
    assert _columns(_orc(table))[0] == days
    java = OrcColumns(pa.BufferReader(_written_by_java(_orc(table))))
    for index in range(2):
        with pytest.raises(pa.ArrowInvalid, match="15 October 1582"):
            list(java.read(index))
    later = _orc(pa.table({"a": [date(1582, 10, 15)]}))
    assert _columns(_written_by_java(later)) == [[date(1582, 10, 15)]]


def test_days_in_the_declared_julian_calendar_are_converted() -> None:
    """Days of a file that declares the Julian calendar are converted, at any depth.

    Each day has the year, month and day that Java shows.
    """
    stored_days = [date(1001, 1, 7), date(1582, 10, 14), date(1582, 10, 15), None]
    days = [date(1001, 1, 1), date(1582, 10, 4), date(1582, 10, 15), None]
    type_ = pa.struct([("x", pa.list_(pa.date32()))])
    table = pa.table({"a": pa.array(stored_days), "b": pa.array([{"x": [day]} for day in stored_days], type_)})
    julian = _written_by_java(_orc(table), b"\x58\x01")
    assert _columns(julian) == [days, [{"x": [day]} for day in days]]


@pytest.mark.spark
def test_old_days_that_spark_writes_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """Days that Spark writes in the Julian calendar, and declares so, are read as the same dates."""
    days = [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(2024, 2, 29), None]
    frame = spark.createDataFrame([(day,) for day in days], "day date")
    frame.coalesce(1).write.orc(str(tmp_path / "t"))
    columns = read_columns(open_table_format(TableConfig(name="t", uri=str(tmp_path / "t"))).snapshot())
    assert columns["day"] == days


def test_timestamps_beyond_nanoseconds_are_refused() -> None:
    """A timestamp in an ORC file that 64 bits of nanoseconds cannot represent is refused.

    Arrow reads ORC timestamps only in nanoseconds. Other columns are read.
    """
    data = _orc(pa.table({"a": pa.array([datetime(9999, 12, 31)], pa.timestamp("us")), "b": [1]}))
    columns = OrcColumns(pa.BufferReader(data))
    assert [chunk.to_pylist() for chunk in columns.read(1)] == [[1]]
    with pytest.raises(pa.ArrowInvalid, match=r"\b1678\b.*\b2261\b"):
        list(columns.read(0))


def test_timestamps_are_refused_with_an_arrow_that_does_not_check_their_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timestamps, here in a list, are refused if Arrow does not check their range.

    Other columns are read.
    """
    monkeypatch.setattr("metastore_assets.formats.readers.orc._CHECKS_RANGE", False)
    nested_array = pa.array([[datetime(2020, 1, 1)]], pa.list_(pa.timestamp("us")))
    columns = OrcColumns(pa.BufferReader(_orc(pa.table({"a": nested_array, "b": [1]}))))
    assert [chunk.to_pylist() for chunk in columns.read(1)] == [[1]]
    with pytest.raises(UnsupportedError, match="pyarrow 26"):
        list(columns.read(0))


def test_field_ids_of_iceberg_are_on_every_depth(realtables: Path) -> None:
    """Field ids of an Iceberg ORC file are read at every depth, from attributes of the file's types."""
    path = next((realtables / "listing" / "orc_complextypes_iceberg").glob("*.orc"))
    columns = OrcColumns(pa.OSFile(str(path)))
    field_ids: list[int] = []

    def walk(field: pa.Field) -> None:
        field_ids.append(int(field.metadata[b"PARQUET:field_id"]))
        if pa.types.is_map(field.type):
            walk(field.type.key_field)
            walk(field.type.item_field)
        elif pa.types.is_nested(field.type):
            for index in range(field.type.num_fields):
                walk(field.type.field(index))

    for field in columns.fields:
        walk(field)
    assert len(field_ids) == len(set(field_ids)) > 20
    assert field_ids[0] == 1


def test_unions_are_structs(realtables: Path) -> None:
    """A union becomes a struct of the alternative's number and one field per alternative.

    Null unions stay null.
    """
    path = next((realtables / "listing" / "orc_TestOrcFile_testUnionAndTimestamp").glob("*.orc"))
    columns = OrcColumns(pa.OSFile(str(path)))
    type_ = pa.struct([("tag", pa.int32()), ("field0", pa.int32()), ("field1", pa.string())])
    assert columns.fields[1].type == type_
    values = [value for chunk in columns.read(1) for value in chunk.to_pylist()]
    assert values[:3] == [
        {"tag": 0, "field0": 42, "field1": None},
        {"tag": 1, "field0": None, "field1": "hello"},
        None,
    ]


@pytest.mark.parametrize("data", [b"", b"ORC", b"ORC" + b"x" * 1000, b"PAR1" * 100])
def test_a_file_that_is_not_orc_is_an_error(tmp_path: Path, data: bytes) -> None:
    """The error for a file `.orc` that is no ORC file names its path."""
    (tmp_path / "a.orc").write_bytes(data)
    with pytest.raises(TableFormatError, match=r"a\.orc"):
        open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()


def test_corrupt_bytes_never_crash_or_change_the_row_count() -> None:
    """Reading a file with a flipped bit fails, or gives as many rows as the footer says.

    Some of the files are also truncated. None crashes the process.
    """
    table = pa.table({"a": list(range(200)), "b": [str(number) for number in range(200)]})
    good = _orc(table, compression="zlib", stripe_size=1000, batch_size=50)
    draw = random.Random(3)
    failure_count = 0
    for _ in range(150):
        data = bytearray(good)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        try:
            columns = open_columns("orc", pa.BufferReader(bytes(data[: draw.choice([len(data), -1, -100])])))
            for index in range(len(columns.fields)):
                assert sum(map(len, columns.read(index))) == columns.row_count
        except (OSError, pa.ArrowException, ValueError):
            failure_count += 1
    assert failure_count > 50


def test_files_of_one_table_are_united(tmp_path: Path) -> None:
    """Schemas of several ORC files are merged by name, and types are widened.

    A file without rows is read. A conflict of types names both files.
    """
    (tmp_path / "1.orc").write_bytes(_orc(pa.table({"a": pa.array([1], pa.int8())})))
    (tmp_path / "2.orc").write_bytes(_orc(pa.table({"b": ["x"], "a": [2**40]})))
    (tmp_path / "3.orc").write_bytes(_orc(pa.table({"a": pa.array([], pa.int32())})))
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = table.snapshot()
    columns = read_columns(snapshot)
    assert sorted(zip(columns["a"], columns["b"], strict=True)) == [(1, None), (2**40, "x")]
    assert sorted(fragment.row_count or 0 for fragment in snapshot.fragments) == [0, 1, 1]
    (tmp_path / "4.orc").write_bytes(_orc(pa.table({"a": [True]})))
    with pytest.raises(TableFormatError, match=r"'a'.*int64.*2\.orc.*bool.*4\.orc"):
        table.snapshot()


def test_the_footer_is_read_as_protobuf() -> None:
    """Numbers in Protocol Buffers messages are decoded, and corrupt messages are refused.

    The footer of an ORC file, which is such a message, shows the calendar. The statistics of an unknown column
    are None.
    """
    assert decode_message(b"\x08\x96\x01\x12\x02hi\x08\x01") == {1: [150, 1], 2: [b"hi"]}
    assert [decode_signed(value) for value in (0, 1, 2, 2**64 - 1)] == [0, -1, 1, -(2**63)]
    for broken_message in (b"\x08", b"\x12\x05hi", b"\x0b"):
        with pytest.raises(pa.ArrowInvalid, match="footer"):
            decode_message(broken_message)
    data = _orc(pa.table({"a": [3, -5]}))
    tail = OrcTail.of(orc.ORCFile(pa.BufferReader(data)).reader.serialized_file_tail())
    assert tail.is_proleptic
    assert tail.statistics(9) is None


@pytest.mark.spark
def test_timestamps_without_a_zone_as_spark_writes_them(spark: SparkSession, tmp_path: Path) -> None:
    """Timestamps without a zone that Spark stores as integers are read at any depth, with bounds.

    Spark marks them with an attribute.
    """
    rows = [(datetime(2024, 1, 31, 12, 30), {"x": datetime(1, 1, 1)}, [datetime(9999, 12, 31)]), (None, None, None)]
    schema = "t timestamp_ntz, s struct<x: timestamp_ntz>, l array<timestamp_ntz>, n long"
    frame = spark.createDataFrame([(*row, number) for number, row in enumerate(rows)], schema)
    frame.coalesce(1).write.orc(str(tmp_path / "t"))
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path / "t")))
    snapshot = table.snapshot()
    columns = read_columns(snapshot)
    assert list(zip(columns["t"], columns["s"], columns["l"], strict=True)) == rows
    assert columns["n"] == [0, 1]
    bounds = table.bounds(snapshot, "t").to_pylist()[0]
    assert (bounds["minimum"], bounds["maximum"]) == (rows[0][0], rows[0][0])
