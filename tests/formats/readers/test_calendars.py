"""Old days in Parquet and Avro files of old Spark versions are read as Spark reads them.

Old days are those before 15 October 1582.
"""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets import profile
from metastore_assets.config import TableConfig
from metastore_assets.errors import ProfileError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.readers.calendars import GREGORIAN_START, FileCalendar
from metastore_assets.formats.readers.columns import open_columns
from metastore_assets.storage.corrupt_input import UnsupportedError
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEGACY = {"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""}
_EPOCH = date(1970, 1, 1)


def _day(year: int, month: int, day: int) -> int:
    return (date(year, month, day) - _EPOCH).days


# The stored day, and the day that Spark reads.
_JULIAN_DAYS = {
    _day(1001, 1, 7): date(1001, 1, 1),
    _day(1000, 3, 6): date(1000, 3, 1),  # 29 February 1000, which the Gregorian calendar lacks
    _day(1000, 3, 7): date(1000, 3, 1),
    _day(1582, 10, 14): date(1582, 10, 4),
    _day(1582, 10, 15): date(1582, 10, 15),
    0: date(1970, 1, 1),
}


def _stored(days: list[int | None]) -> pa.Array:
    return pa.array(days, pa.int32()).view(pa.date32())


def _read(data: bytes, kind: str = "parquet") -> list[list[Any]]:
    columns = open_columns(kind, pa.BufferReader(data))
    return [
        [value for chunk in columns.read(index) for value in chunk.to_pylist()] for index in range(len(columns.fields))
    ]


def _plain(value: Any) -> Any:
    return value.as_py()


def _parquet(table: pa.Table, entries: dict[str, str], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(entries), sink, **options)
    return sink.getvalue()


def test_every_day_of_the_julian_calendar() -> None:
    """Every stored day before 15 October 1582 is read as its date in the Julian calendar.

    If the Gregorian calendar lacks this date, for example 29 February 1500, it is read as 1 March. The test counts the
    expected dates back day by day, to the year 1.
    """
    year, month, day = 1582, 10, 4
    days, expected = [], []
    for number in range(GREGORIAN_START - 1, -719_165, -1):
        days.append(number)
        is_missing = (month, day) == (2, 29) and year % 100 == 0 and year % 400
        expected.append(date(year, 3, 1) if is_missing else date(year, month, day))
        day -= 1
        if not day:
            month = month - 1 or 12
            year -= month == 12
            day = 28 + (year % 4 == 0) if month == 2 else 30 if month in (4, 6, 9, 11) else 31
    assert (year, month, day) == (0, 12, 31)
    assert FileCalendar(has_julian_dates=True).rebase(_stored(days)).to_pylist() == expected


@pytest.mark.parametrize(
    ("entries", "is_julian"),
    [
        ({}, False),
        ({"org.apache.spark.version": "4.0.0"}, False),
        (_LEGACY, True),
        ({"org.apache.spark.version": "2.4.8"}, True),
        ({"org.apache.spark.version": "2.4.8", "org.apache.spark.timeZone": "Asia/Tokyo"}, True),
        ({"org.apache.spark.version": "3.0.1"}, False),
        ({"org.apache.spark.version": "10.0.0"}, False),
        ({"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyINT96": ""}, False),
    ],
)
def test_dates_by_the_calendar_that_the_footer_declares(entries: dict[str, str], is_julian: bool) -> None:
    """Entries of the footer decide whether dates, at any depth, are converted from the Julian calendar."""
    days = [*_JULIAN_DAYS, None]
    flat = _stored(days)
    nested_array = pa.array(
        [{"x": [(1, day)]} for day in flat.to_pylist()], pa.struct([("x", pa.map_(pa.int8(), flat.type))])
    )
    data = _parquet(pa.table({"a": flat, "s": nested_array}), entries, row_group_size=3)
    expected = [*_JULIAN_DAYS.values(), None] if is_julian else flat.to_pylist()
    assert _read(data) == [expected, [{"x": [(1, day)]} for day in expected]]


def test_timestamps() -> None:
    """Timestamps with a zone are converted in the zone that the file names.

    Timestamps without a zone are read as stored. INT96 timestamps are converted only if Spark 3.0 wrote them, or if the
    file has the entry `legacyINT96`.
    """
    stored_times = [datetime(1001, 1, 7, 23, 59, 59, 999999), datetime(1600, 1, 1), None]
    read = [datetime(1001, 1, 1, 23, 59, 59, 999999), datetime(1600, 1, 1), None]
    instants = pa.array(stored_times, pa.timestamp("us")).view(pa.timestamp("us", "UTC"))
    table = pa.table({"a": instants, "b": pa.array(stored_times, pa.timestamp("us"))})
    utc = {"org.apache.spark.timeZone": "UTC"}
    aware = [value and value.replace(tzinfo=UTC) for value in read]
    assert _read(_parquet(table, _LEGACY | utc)) == [aware, stored_times]
    int96 = table.select(["b"])
    for version, entries in (("3.0.3", {}), ("3.5.1", {"org.apache.spark.legacyINT96": ""})):
        entries = {"org.apache.spark.version": version} | entries | utc
        assert _read(_parquet(int96, entries, use_deprecated_int96_timestamps=True)) == [read]
    assert _read(_parquet(int96, _LEGACY | utc, use_deprecated_int96_timestamps=True)) == [stored_times]


@pytest.mark.parametrize(
    ("zone", "year", "is_read"),
    [(None, 1581, False), (None, 1583, True), ("Asia/Tokyo", 1899, False), ("Asia/Tokyo", 1901, True)],
)
def test_timestamps_whose_day_depends_on_a_zone(zone: str | None, year: int, is_read: bool) -> None:
    """A timestamp whose conversion depends on an uncertain offset of its zone is refused.

    The zone of a timestamp of 1581 is unknown. For Tokyo before 1900, old Java versions had another offset. Later
    timestamps are read.
    """
    values = [datetime(year, 1, 1, tzinfo=UTC)]
    entries = _LEGACY if zone is None else _LEGACY | {"org.apache.spark.timeZone": zone}
    data = _parquet(pa.table({"a": pa.array(values, pa.timestamp("us", "UTC"))}), entries)
    if is_read:
        assert _read(data) == [values]
    else:
        with pytest.raises(UnsupportedError, match="CORRECTED"):
            _read(data)


def test_bounds_and_statistics(tmp_path: Path) -> None:
    """A day before 15 October 1582 in a footer gives no bound, and statistics have the day Spark reads."""
    lake = tmp_path / "lake"
    lake.mkdir()
    data = _parquet(pa.table({"a": _stored([_day(1001, 1, 7), 0])}), _LEGACY)
    (lake / "a.parquet").write_bytes(data)
    table = open_table_format(TableConfig(name="t", uri=str(lake)))
    assert table.bounds(table.snapshot(), "a")["minimum_guarantee"].to_pylist() == ["absent"]
    (column,) = profile(lake).statistics()
    assert (_plain(column.minimum), _plain(column.maximum)) == (date(1001, 1, 1), date(1970, 1, 1))
    (lake / "a.parquet").write_bytes(_parquet(pa.table({"a": _stored([GREGORIAN_START, 0])}), _LEGACY))
    table = open_table_format(TableConfig(name="t", uri=str(lake)))
    assert table.bounds(table.snapshot(), "a")["minimum"].to_pylist() == [date(1582, 10, 15)]


def test_files_of_a_delta_table(tmp_path: Path) -> None:
    """Julian days in data files of a Delta table are converted."""
    rows = pa.table({"a": _stored([_day(1001, 1, 7), 0])})
    add = add_file(tmp_path, rows.replace_schema_metadata(_LEGACY), "f.parquet")
    (tmp_path / "f.parquet").write_bytes(_parquet(rows, _LEGACY))
    add["add"]["size"] = (tmp_path / "f.parquet").stat().st_size
    commit(tmp_path, protocol(), metadata([field("a", "date")]), add)
    assert _plain(profile(tmp_path).statistics()[0].minimum) == date(1001, 1, 1)


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_iceberg_days_are_not_converted(kind: str) -> None:
    """With `rebases=False`, which Iceberg tables use, days are read as they are stored."""
    data = (
        _parquet(pa.table({"a": _stored([_day(1001, 1, 7)])}), _LEGACY)
        if kind == "parquet"
        else _avro([_day(1001, 1, 7)], _LEGACY)
    )
    (chunk,) = open_columns(kind, pa.BufferReader(data), rebases=False).read(0)
    assert chunk.to_pylist() == [date(1001, 1, 7)]


def _avro(days: list[int], entries: dict[str, str]) -> bytes:
    sink = io.BytesIO()
    type_ = {"type": "int", "logicalType": "date"}
    schema = {"type": "record", "name": "row", "fields": [{"name": "a", "type": type_}]}
    rows = [{"a": day} for day in days]
    fastavro.writer(sink, fastavro.parse_schema(schema), rows, metadata=entries)
    return sink.getvalue()


@pytest.mark.parametrize("entries", [_LEGACY, {"org.apache.spark.version": "2.4.8"}])
def test_avro_files(entries: dict[str, str]) -> None:
    """Julian days in an Avro file are converted if its header has the metadata entries of Spark."""
    assert _read(_avro([*_JULIAN_DAYS], entries), "avro") == [[*_JULIAN_DAYS.values()]]
    assert _read(_avro([_day(1001, 1, 7)], {}), "avro") == [[date(1001, 1, 7)]]


def test_the_error_names_the_column_and_the_first_common_day(tmp_path: Path) -> None:
    """The error for an old timestamp that cannot be converted names the column and 15 October 1582.

    From this day on, both calendars agree.
    """
    values = pa.array([datetime(1500, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    (tmp_path / "a.parquet").write_bytes(_parquet(pa.table({"a": values}), _LEGACY))
    with pytest.raises(ProfileError, match=r"'a'.*15 October 1582"):
        profile(tmp_path)


@pytest.mark.spark
def test_files_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Days and timestamps that Spark writes in legacy mode, from the year 1 on, are read as by Spark."""
    modes = {
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
        "spark.sql.session.timeZone": "UTC",
    }
    before = {key: spark.conf.get(key) for key in (*modes, "spark.sql.parquet.outputTimestampType")}
    try:
        for key, value in modes.items():
            spark.conf.set(key, value)
        for type_ in ("INT96", "TIMESTAMP_MICROS"):
            spark.conf.set("spark.sql.parquet.outputTimestampType", type_)
            folder = str(tmp_path / type_)
            spark.sql(
                "select date_add(date'0001-01-01', cast(id * 97 as int)) d, "
                "timestamp_micros(-62135596800000000 + id * 97 * 86400000000 + 12345678901) t from range(0, 8000)"
            ).coalesce(1).write.parquet(folder)
            expected = spark.read.parquet(folder).selectExpr("unix_date(d)", "unix_micros(t)").toArrow()
            columns = open_columns("parquet", pa.OSFile(str(next(Path(folder).glob("*.parquet")))))
            days, moments = (pa.concat_arrays(columns.read(index)) for index in range(2))
            assert days.view(pa.int32()).to_pylist() == expected.column(0).to_pylist()
            assert moments.view(pa.int64()).to_pylist() == expected.column(1).to_pylist()
    finally:
        for key, stored_setting in before.items():
            spark.conf.set(key, stored_setting) if stored_setting is not None else spark.conf.unset(key)
