"""ORC timestamps without zone are read as by Spark and Java, even if the writer's zone is not UTC."""

from __future__ import annotations

import base64
import random
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from metastore_assets import profile
from metastore_assets.errors import ProfileError
from metastore_assets.formats.readers.columns import open_columns
from metastore_assets.formats.readers.orc_tail import OrcTail
from metastore_assets.formats.readers.orc_zones import Clock, WriterZones, _decompress_lz4
from metastore_assets.pipeline.profiling import FailureAdvice
from metastore_assets.storage.corrupt_input import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ZONES = {
    "Asia/Shanghai": "zlib", "America/Los_Angeles": "zstd", "Europe/Dublin": "lz4", "Africa/Monrovia": "none",
    "Asia/Kolkata": "snappy", "Australia/Lord_Howe": "zlib", "PST": "snappy", "GMT+08:00": "zstd", "UTC": "zlib",
}  # fmt: skip
_FRACTIONS = [0, 1, 999, 1000, 123_456, 500_000, 999_999]


def _moments() -> list[int]:
    """Return microseconds since 1970: near 1970, near 1900, and random ones."""
    draw = random.Random(3)
    seconds = [*range(-60_000, 60_001, 1800), -86_401, -1, 1]
    seconds += [-2_208_988_800 + hour * 3600 for hour in range(-25, 26)]
    seconds += [draw.randrange(-9_000_000_000, 9_000_000_000) for _ in range(200)]
    return [second * 1_000_000 + part for second in seconds for part in draw.sample(_FRACTIONS, 3)]


def _plain(nanos: int | None) -> datetime:
    assert nanos is not None
    return datetime(1970, 1, 1) + timedelta(microseconds=nanos // 1000)


def _values(columns: Any, index: int) -> list[int | None]:
    leaves = [chunk.field(0).flatten() if index == 2 else chunk for chunk in columns.read(index)]
    return [value for leaf in leaves for value in leaf.cast(pa.int64()).to_pylist()]


@pytest.mark.spark
def test_local_times_equal_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Local times of timestamps that Spark writes in several zones equal those that Spark shows.

    The files have several compressions. Timestamps in arrays in structs are equal, too.
    """
    java = spark.sparkContext._jvm.java.util.TimeZone  # type: ignore[union-attr]
    default_zone, session_zone = java.getDefault(), spark.conf.get("spark.sql.session.timeZone")
    rows = spark.createDataFrame([(moment,) for moment in _moments()], "us long").coalesce(1)
    try:
        for zone, codec in _ZONES.items():
            java.setDefault(java.getTimeZone(zone))
            spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles" if zone == "PST" else zone)
            folder = tmp_path / zone.replace("/", "_")
            rows.selectExpr(
                "us", "timestamp_micros(us) t", "named_struct('x', array(timestamp_micros(us), null)) n"
            ).write.option("compression", codec).orc(str(folder))
            text = "date_format(t, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
            expected = {
                us: datetime.fromisoformat(local_time)
                for us, local_time in spark.read.orc(str(folder)).selectExpr("us", text).collect()
            }
            columns = open_columns("orc", pa.OSFile(str(next(folder.glob("*.orc")))))
            moments, clock, nested_times = (_values(columns, index) for index in range(3))
            assert [_plain(value) for value in clock] == [
                expected[moment] for moment in moments if moment is not None
            ], zone
            assert nested_times == [value for moment in clock for value in (moment, None)]
    finally:
        java.setDefault(default_zone)
        spark.conf.set("spark.sql.session.timeZone", session_zone)


_SHANGHAI = base64.b64decode(
    "T1JDEQAACgYSBAgFUABAAADjUubiYoADIVEOFi9+if/zl725cptR4cX13dIGjAGMAAUAAP/wLQAAeAMAqUiPXQCpSDr/AKlJG/8C"
    "aye1/wsAAAAvQAAAagAA42LjYBNgkODmAtGMEspAmgFIswJpRiAtCaRZgTSHEBMHAxAzSfE6Fmcm6gdnJOalZyRmAgBDAAAKHwoE"
    "CAVQAAoXCARKDxj/n6bs1NsBIOjXuxswAVABWCYoAQDjYBboZ5Ti4mAW0JNQU7DQYFXi4OARYmSUYixR0uDgtFLhEi8uSCzK1isu"
    "zNFLTixJzKksLtErqSxIFeIsycxNLS5JzC3QUuSSyC9K10ssSEzOSNWDaChLLSrOzM8TYjXRM9YzMGC1YuFgDWCwEudg8eKX+D9/"
    "2ZsrtxkVXlzfLW3AGMAYoeYwwc+DIYIxidUIpBwACJcBEAEYgIAQIgIADCgkMAmC9AMDT1JDGA=="
)
"""A file that Spark wrote in the zone Asia/Shanghai."""
_SHOWN = ["1970-01-01 05:00:00.5", "1970-01-01 08:00:00.5", "1969-12-31 23:59:59.5", "1850-06-01 00:00:00", None]


def _read(data: bytes) -> list[datetime | None]:
    columns = open_columns("orc", pa.BufferReader(data))
    return [value for chunk in columns.read(0) for value in chunk.to_pylist()]


def test_a_file_of_shanghai() -> None:
    """Times in a file that Spark wrote in the zone Asia/Shanghai are read as Spark shows them.

    The times are near 1970 and before 1900.
    """
    assert _read(_SHANGHAI) == [text and datetime.fromisoformat(text) for text in _SHOWN]


def _in_zone(values: list[datetime | None], zone: str, codec: str, *, is_java: bool = True) -> bytes:
    """Return an ORC file of timestamps, with another zone than the GMT that Arrow writes.

    Readers then take the stored seconds since 2015 as local time of that zone. `is_java` says whether the footer names
    Java as the writer.
    """
    sink = pa.BufferOutputStream()
    orc.write_table(pa.table({"t": pa.array(values, pa.timestamp("us"))}), sink, compression=codec)
    source = pa.BufferReader(sink.getvalue())
    tail = OrcTail.of(orc.ORCFile(source).reader.serialized_file_tail())
    tail = OrcTail(tail.footer | {9: [0 if is_java else 1]}, tail.postscript)
    return WriterZones(source, tail).with_zone(zone).read()


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize(
    ("zone", "summer"), [("PST", True), ("GMT+8", False), ("Europe/Paris", True), ("Etc/UTC", False)]
)
def test_compressions_and_names_of_zones(codec: str, zone: str, summer: bool) -> None:
    """Timestamps in several zones are read in every compression, by the rules of ORC.

    Arrow writes them in GMT, and the zone in the file is replaced. Times in winter are read unchanged. In a zone with
    summer time, times in summer are read an hour later, because ORC counts seconds from 1 January 2015 in local time.
    """
    values = [datetime(2020, 1, 1, 12), datetime(2020, 7, 1, 12, 0, 0, 5), None, datetime(2150, 7, 1, 12)]
    hour = timedelta(hours=summer)
    assert _read(_in_zone(values, zone, codec)) == [values[0], values[1] + hour, None, values[3] + hour]  # type: ignore[operator]


@pytest.mark.parametrize("zone", ["Z", "GMT+00:00", "GMT-0:00", "Zulu", "GMT0", ""])
def test_every_name_of_utc_is_known(zone: str) -> None:
    """Names that Java has for UTC, and the empty name, are read as UTC."""
    values = [datetime(2020, 7, 1, 12), datetime(1969, 12, 31, 23, 0, 0, 500_000)]
    assert _read(_in_zone(values, zone, "zlib")) == values


def test_the_zone_of_the_reading_machine_is_refused() -> None:
    """The zone `localtime` is refused.

    This name would stand for the zone of the reading machine, and not for that of the writer.
    """
    with pytest.raises(UnsupportedError, match="'localtime'"):
        _read(_in_zone([datetime(2020, 1, 1)], "localtime", "zlib"))


@pytest.mark.parametrize("zone", ["GMT+24", "GMT+25:00", "GMT-1:60"])
def test_offsets_that_java_does_not_know_are_refused(zone: str) -> None:
    """A zone with an offset that Java does not know is refused, and the error names the zone.

    Java takes such a zone for GMT.
    """
    with pytest.raises(UnsupportedError, match=re.escape(repr(zone))):
        _read(_in_zone([datetime(2020, 1, 1)], zone, "zlib"))


def test_an_unknown_zone_is_refused(tmp_path: Path) -> None:
    """The error for an unknown zone names the zone, and ends with the advice for unsupported files."""
    (tmp_path / "a.orc").write_bytes(_in_zone([datetime(2020, 1, 1)], "Mars/Olympus", "zlib"))
    with pytest.raises(ProfileError, match=r"'Mars/Olympus'.*\bUTC\b") as error_info:
        profile(tmp_path)
    assert str(error_info.value).endswith(FailureAdvice.UNSUPPORTED)
    assert "TZDIR" not in str(error_info.value)


@pytest.mark.parametrize(
    ("zone", "value", "is_java", "message"),
    [
        ("Asia/Tokyo", datetime(1899, 1, 1), False, "before 1900"),
        ("Asia/Tokyo", datetime(1899, 1, 1), True, None),
        ("Europe/Amsterdam", datetime(1949, 1, 1), True, "before 1950"),
        ("Europe/Amsterdam", datetime(1951, 1, 1), True, None),
        ("Europe/Oslo", datetime(1969, 1, 1), True, "before 1970"),
        ("Europe/Oslo", datetime(1970, 1, 1), True, None),
    ],
)
def test_years_with_uncertain_offsets_are_refused(
    zone: str, value: datetime, is_java: bool, message: str | None
) -> None:
    """A timestamp is refused if it is uncertain which offset of its zone the writer used.

    This is so before a year that depends on the zone and on the library that wrote the file. Later timestamps are read.
    """
    data = _in_zone([value], zone, "zlib", is_java=is_java)
    if message is None:
        assert len(_read(data)) == 1
    else:
        with pytest.raises(UnsupportedError, match=message):
            _read(data)


def test_values_of_other_libraries() -> None:
    """If Java did not write a file, some times that Arrow returns a second too late are corrected.

    The corrected times are in 1970 in local time, but before 1970 in UTC. A time that is before 1970 in both is not
    changed.
    """
    moments = [datetime(1970, 1, 1, 5, 0, 0, 500_000), datetime(1969, 12, 31, 23, 0, 0, 500_000)]
    clock = Clock("Asia/Shanghai", is_java=False)
    # As Arrow returns them for the zone GMT.
    stored_values = [int((moment - datetime(1970, 1, 1)).total_seconds() * 10**9) for moment in moments]
    shifted_values = pa.array([stored_values[0] + 10**9, stored_values[1]], pa.int64()).view(pa.timestamp("ns"))
    assert clock.to_local(shifted_values).to_pylist() == [datetime(1970, 1, 1, 5, 0, 0, 500_000), moments[1]]


@pytest.mark.parametrize("length", [0, 3, 20, 300, 5000])
def test_blocks_of_lz4(length: int) -> None:
    """LZ4 blocks with literals and copies of any length are decompressed."""
    draw = random.Random(length)
    for data in (draw.randbytes(length), b"ab" * length, bytes(draw.choices(b"ab", k=length))):
        assert _decompress_lz4(pa.compress(data, codec="lz4_raw", asbytes=True)) == data
