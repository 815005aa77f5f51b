"""Cases: Parquet, ORC and Avro files that readers easily get wrong."""

from __future__ import annotations

import gzip
import io
import math
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from scripts.adversarial.case import Columns, Refused, case
from scripts.adversarial.spark import get_spark_session


def _two_files(folder: Path, name: str, first: pa.Array, second: pa.Array) -> None:
    pq.write_table(pa.table({name: first}), folder / "a.parquet")
    pq.write_table(pa.table({name: second}), folder / "b.parquet")


@case("parquet/nanosecond-times", "PyArrow", "times of day in nanoseconds, in two files")
def _(folder: Path) -> Columns:
    _two_files(folder, "t", pa.array([1, 5, 999], pa.time64("ns")), pa.array([7, 1001], pa.time64("ns")))
    return {"t": [f"00:00:00.{n:09}" for n in (1, 5, 999, 7, 1001)]}


@case("parquet/nanosecond-timestamps", "pandas", "timestamps in nanoseconds, in two files")
def _(folder: Path) -> Columns:
    for name, numbers in (("a", [1, 10**18 + 7]), ("b", [-1])):
        pd.DataFrame({"t": pd.to_datetime(numbers)}).to_parquet(folder / f"{name}.parquet")
    return {"t": ["1970-01-01T00:00:00.000000001", "2001-09-09T01:46:40.000000007", "1969-12-31T23:59:59.999999999"]}


@case("parquet/far-dates", "DuckDB", "dates beyond the year 9999, in two files")
def _(folder: Path) -> Columns:
    duckdb.sql(f"copy (select date '10000-01-01' as d) to '{folder}/a.parquet'")
    duckdb.sql(f"copy (select date '12024-01-31' as d) to '{folder}/b.parquet'")
    return {"d": ["+10000-01-01", "+12024-01-31"]}


@case("parquet/null-makes-float", "pandas", "integers in one file; floats in another, because of a null")
def _(folder: Path) -> Columns:
    pd.DataFrame({"id": [1, 2], "n": [10, 20]}).to_parquet(folder / "a.parquet")
    pd.DataFrame({"id": [3, 4], "n": [30, None]}).to_parquet(folder / "b.parquet")
    return {"id": [1, 2, 3, 4], "n": [10.0, 20.0, 30.0, None]}


@case("parquet/long-and-float", "pandas", "integers beyond 2^53 in one file, floats in another")
def _(folder: Path) -> Refused:
    pd.DataFrame({"n": [2**53 + 1]}).to_parquet(folder / "a.parquet")
    pd.DataFrame({"n": [1.5]}).to_parquet(folder / "b.parquet")
    return Refused.with_words("n", "a.parquet", "schema")


@case("parquet/clash", "pandas", "numbers in one file, texts in another")
def _(folder: Path) -> Refused:
    pd.DataFrame({"n": [1]}).to_parquet(folder / "a.parquet")
    pd.DataFrame({"n": ["one"]}).to_parquet(folder / "b.parquet")
    return Refused.with_words("a.parquet", "b.parquet", "schema")


@case("parquet/polars", "Polars", "views, categories, unsigned integers, durations, lists and structs")
def _(folder: Path) -> Columns:
    columns: dict[str, Any] = {
        "s": ["a", "long enough to be no inline view", None],
        "c": ["x", "y", "x"],
        "u": [0, 2**64 - 1, None],
        "f": [math.nan, -0.0, math.inf],
        "l": [[1, None], [], None],
    }
    frame = pl.DataFrame(columns, schema_overrides={"c": pl.Categorical, "u": pl.UInt64})
    frame.write_parquet(folder / "a.parquet")
    return columns


@case("parquet/duckdb", "DuckDB", "huge integers, UUIDs, enums, maps, blobs and times with zones, but no intervals")
def _(folder: Path) -> Columns:
    query = """
        select * from (values
            (1::utinyint, uuid '00000000-0000-0000-0000-000000000001', 'a'::enum_, '\\xFF\\x00'::blob,
             1.10::decimal(38, 2), timestamptz '2024-01-31 12:00:00+02'),
            (255::utinyint, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'b'::enum_, ''::blob,
             -99999.99::decimal(38, 2), timestamptz '1969-12-31 23:59:59.999999+00'))
        as t(n, u, e, b, d, z)
    """
    with duckdb.connect() as connection:
        connection.sql("set timezone = 'UTC'; create type enum_ as enum ('a', 'b')")
        connection.sql(f"copy ({query}) to '{folder}/a.parquet'")
    return {
        "n": [1, 255],
        "u": [uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)],
        "e": ["a", "b"],
        "b": [b"\xff\x00", b""],
        "d": [Decimal("1.10"), Decimal("-99999.99")],
        "z": ["2024-01-31T10:00:00+00:00", "1969-12-31T23:59:59.999999+00:00"],
    }


@case("parquet/duckdb-partitions", "DuckDB", "folders with percent-encoded values; the column is in no file")
def _(folder: Path) -> Columns:
    query = "select * from (values (1, 'a=b', null), (2, 'c%d', 'x'), (3, 'é f', 'y')) t(id, p, q)"
    duckdb.sql(f"copy ({query}) to '{folder}' (format parquet, partition_by (p, q), overwrite_or_ignore)")
    return {"id": [1, 2, 3], "p": ["a=b", "c%d", "é f"], "q": [None, "x", "y"]}


@case("parquet/spark-partitions", "Spark", "partitions by a date, with null, and an integer")
def _(folder: Path) -> Columns:
    rows = [(1, date(2024, 1, 31), 7), (2, None, 8), (3, date(2024, 2, 1), None)]
    frame = get_spark_session().createDataFrame(rows, "id long, day date, n int")
    frame.write.mode("overwrite").partitionBy("day", "n").parquet(str(folder))
    return {"id": [1, 2, 3], "day": ["2024-01-31", None, "2024-02-01"], "n": ["7", "8", None]}


@case("parquet/spark-int96", "Spark", "INT96 timestamps")
def _(folder: Path) -> Columns:
    session = get_spark_session()
    frame = session.createDataFrame([(datetime(2024, 1, 31, 12, 30),), (datetime(1969, 7, 20),)], "t timestamp")
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        frame.coalesce(1).write.mode("overwrite").parquet(str(folder))
    finally:
        session.conf.unset("spark.sql.parquet.outputTimestampType")
    return {"t": ["2024-01-31T12:30:00+00:00", "1969-07-20T00:00:00+00:00"]}


@case("parquet/upper-case-suffix", "PyArrow", "a suffix in upper case, and a name without a suffix")
def _(folder: Path) -> Columns:
    pq.write_table(pa.table({"n": [1]}), folder / "A.PARQUET")
    pq.write_table(pa.table({"n": [2]}), folder / "part-0")
    return {"n": [1, 2]}


@case("parquet/no-bytes", "Python", "a data file of 0 bytes, from a killed writer")
def _(folder: Path) -> Refused:
    pq.write_table(pa.table({"n": [1]}), folder / "a.parquet")
    (folder / "b.parquet").write_bytes(b"")
    return Refused.with_words("b.parquet")


@case("parquet/cut-off", "Python", "a truncated data file")
def _(folder: Path) -> Refused:
    pq.write_table(pa.table({"n": [1]}), folder / "a.parquet")
    pq.write_table(pa.table({"n": list(range(1000))}), folder / "b.parquet")
    (folder / "b.parquet").write_bytes((folder / "b.parquet").read_bytes()[:-100])
    return Refused.with_words("b.parquet")


@case("parquet/evolved", "PyArrow", "columns that are added, dropped, reordered and widened")
def _(folder: Path) -> Columns:
    pq.write_table(pa.table({"a": pa.array([1], pa.int8()), "b": ["x"]}), folder / "1.parquet")
    pq.write_table(pa.table({"b": ["y"], "c": [True], "a": pa.array([2**40])}), folder / "2.parquet")
    return {"a": [1, 2**40], "b": ["x", "y"], "c": [None, True]}


@case("parquet/names-by-case", "PyArrow", "two columns whose names differ only in case")
def _(folder: Path) -> Columns:
    pq.write_table(pa.table({"id": [1, 2], "ID": ["x", None]}), folder / "a.parquet")
    return {"id": [1, 2], "ID": ["x", None]}


@case("parquet/dotted-names", "PyArrow", "a column named like a field of another")
def _(folder: Path) -> Columns:
    pq.write_table(pa.table({"a": [{"b": 1}, None], "c": [1, 2]}), folder / "a.parquet")
    return {"a": [{"b": 1}, None], "a.b": [1, None], "c": [1, 2]}


@case("parquet/half-floats", "PyArrow", "16-bit floats with NaN")
def _(folder: Path) -> Columns:
    values = np.array([1.5, np.nan, -65504], np.float16)
    pq.write_table(pa.table({"h": pa.array(values, pa.float16())}), folder / "a.parquet")
    return {"h": [1.5, math.nan, -65504.0]}


@case("parquet/wide-decimals", "PyArrow", "decimals of 38 digits")
def _(folder: Path) -> Columns:
    small, large, least = Decimal("-" + "9" * 36 + ".99"), Decimal("9" * 38), Decimal("-" + "9" * 38)
    pq.write_table(
        pa.table({"a": pa.array([small, Decimal("0.01")], pa.decimal128(38, 2)), "b": [large, least]}),
        folder / "a.parquet",
    )
    return {"a": [small, Decimal("0.01")], "b": [large, least]}


@case("parquet/nothing-but-nulls", "pandas", "a column with only nulls in one file, and with values in another")
def _(folder: Path) -> Columns:
    pd.DataFrame({"id": [1], "t": [None]}).to_parquet(folder / "a.parquet")
    pd.DataFrame({"id": [2], "t": ["x"]}).to_parquet(folder / "b.parquet")
    return {"id": [1, 2], "t": [None, "x"]}


@case("parquet/no-row-groups", "PyArrow", "a file with a schema and no rows")
def _(folder: Path) -> Columns:
    pq.ParquetWriter(folder / "a.parquet", pa.schema([("n", pa.int64())])).close()
    pq.write_table(pa.table({"n": [1]}), folder / "b.parquet")
    return {"n": [1]}


@case("parquet/encodings", "PyArrow", "every encoding and compression, one file each")
def _(folder: Path) -> Columns:
    columns: dict[str, list[Any]] = {"n": list(range(100)), "s": [f"value {n % 7}" for n in range(100)]}
    table = pa.table(columns)
    kinds: list[dict[str, Any]] = [
        *({"compression": one} for one in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")),
        {"use_dictionary": False, "column_encoding": {"n": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"}},
        {"use_dictionary": False, "column_encoding": {"n": "BYTE_STREAM_SPLIT", "s": "DELTA_LENGTH_BYTE_ARRAY"}},
        {"data_page_version": "2.0", "write_page_checksum": True, "store_decimal_as_integer": True},
    ]
    for number, kind in enumerate(kinds):
        pq.write_table(table, folder / f"{number}.parquet", **kind)
    return {name: values * len(kinds) for name, values in columns.items()}


@case("orc/pyarrow", "PyArrow", "all kinds of values, nanoseconds included, in two files")
def _(folder: Path) -> Columns:
    times = pa.array([1, 1_700_000_000_000_000_007], pa.timestamp("ns"))
    first = pa.table({"t": times, "s": ["a", None], "d": pa.array([Decimal("1.10"), None], pa.decimal128(10, 2))})
    orc.write_table(first, folder / "a.orc", compression="zstd")
    orc.write_table(first.slice(0, 1), folder / "b.orc", compression="snappy")
    shown_values = ["1970-01-01T00:00:00.000000001", "2023-11-14T22:13:20.000000007", "1970-01-01T00:00:00.000000001"]
    return {"t": shown_values, "s": ["a", None, "a"], "d": [Decimal("1.10"), None, Decimal("1.10")]}


@case("orc/spark", "Spark", "dates and timestamps with zone")
def _(folder: Path) -> Columns:
    rows = [(1, date(2024, 1, 31), datetime(2024, 1, 31, 12, 30)), (2, date(1969, 12, 31), None)]
    frame = get_spark_session().createDataFrame(rows, "id long, d date, t timestamp_ntz").coalesce(1)
    frame.write.mode("overwrite").orc(str(folder))
    return {"id": [1, 2], "d": [row[1] for row in rows], "t": [rows[0][2], None]}


_AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "m", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
    ],
}


@case("avro/codecs", "fastavro", "every codec, one file each")
def _(folder: Path) -> Columns:
    row = {"id": 1, "s": None, "d": Decimal("1.10"), "t": datetime(2024, 1, 31, tzinfo=UTC), "m": time(1, 2, 3, 4)}
    codecs = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")
    rows = [row | {"id": number, "e": "AB"[number % 2]} for number in range(len(codecs))]
    for one, codec in zip(rows, codecs, strict=True):
        with (folder / f"{codec}.avro").open("wb") as file:
            fastavro.writer(file, fastavro.parse_schema(_AVRO), [one], codec=codec)
    return {
        "id": [one["id"] for one in rows],
        "s": [None] * len(rows),
        "d": [Decimal("1.10")] * len(rows),
        "t": ["2024-01-31T00:00:00+00:00"] * len(rows),
        "m": ["01:02:03.000004"] * len(rows),
        "e": [one["e"] for one in rows],
    }


@case("avro/recursive", "fastavro", "a type that contains itself")
def _(folder: Path) -> Refused:
    schema = {
        "type": "record",
        "name": "n",
        "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "n"]}],
    }
    with (folder / "a.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), [{"v": 1, "next": {"v": 2, "next": None}}])
    return Refused.with_words("a.avro", "contain")


@case("avro/bomb", "fastavro", "a block of 1 KB that decompresses to 1 GB")
def _(folder: Path) -> Refused:
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "b", "type": "bytes"}]})
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, [{"b": bytes(1 << 30)}], codec="zstandard")
    (folder / "a.avro").write_bytes(buffer.getvalue())
    return Refused.with_words("a.avro")


@case("parquet/durations", "Polars", "durations, which have no type class")
def _(folder: Path) -> Columns:
    pl.DataFrame({"id": [1], "d": [timedelta(microseconds=5)]}).write_parquet(folder / "a.parquet")
    return {"id": [1], "d": [{}]}


@case("parquet/polars-types", "Polars", "enums, arrays of a fixed size, decimals, times and timestamps in nanoseconds")
def _(folder: Path) -> Columns:
    columns: dict[str, Any] = {
        "e": ["b", "a", None],
        "d": [Decimal("1.10"), None, Decimal("-0.01")],
        "t": [time(23, 59, 59, 999999), time(0), None],
        "ts": [datetime(2262, 4, 11), datetime(1677, 9, 22), None],
        "a": [[1, 2], [3, 4], None],
        "empty": [None, None, None],
    }
    schema: dict[str, Any] = {
        "e": pl.Enum(["b", "a"]),
        "d": pl.Decimal(10, 2),
        "t": pl.Time,
        "ts": pl.Datetime("ns"),
        "a": pl.Array(pl.Int64, 2),
        "empty": pl.Null,
    }
    for number in range(2):
        pl.DataFrame(columns, schema=schema).write_parquet(folder / f"{number}.parquet")
    return {name: values * 2 for name, values in columns.items()}


@case("parquet/zones", "pandas", "timestamps in two time zones, one file each: the same moments")
def _(folder: Path) -> Columns:
    times = pd.to_datetime(["2024-07-01 12:00:00.0", "1969-12-31 23:59:59.5"])
    for number, zone in enumerate(("Asia/Kolkata", "America/New_York")):
        pd.DataFrame({"t": times.tz_localize("UTC").tz_convert(zone)}).to_parquet(folder / f"{number}.parquet")
    return {"t": ["2024-07-01T12:00:00", "1969-12-31T23:59:59.5"] * 2}


@case("parquet/with-and-without-zone", "pandas", "timestamps with a zone in one file and without in another")
def _(folder: Path) -> Refused:
    times = pd.to_datetime(["2024-07-01 12:00:00"])
    pd.DataFrame({"t": times}).to_parquet(folder / "a.parquet")
    pd.DataFrame({"t": times.tz_localize("UTC")}).to_parquet(folder / "b.parquet")
    return Refused.with_words("'t'", "a.parquet", "b.parquet")


@case("parquet/index", "pandas", "an index with a name, and one without, that pandas writes as columns")
def _(folder: Path) -> Columns:
    frame = pd.DataFrame({"x": [1.5, 2.5]}, index=pd.Index(["a", "b"], name="key"))
    frame.to_parquet(folder / "a.parquet")
    return {"x": [1.5, 2.5], "key": ["a", "b"]}


@case("parquet/mixed-objects", "pandas", "booleans with nulls, nullable integers, and strings of NUL bytes")
def _(folder: Path) -> Columns:
    columns: dict[str, Any] = {"b": [True, None, False], "n": [2**62, None, -1], "s": ["\0", "a\0b", ""]}
    frame = pd.DataFrame({"b": columns["b"], "n": pd.array(columns["n"], "Int64"), "s": columns["s"]})
    frame.to_parquet(folder / "a.parquet")
    return columns


@case("parquet/written-partitions", "DuckDB", "partition columns that the files contain, too")
def _(folder: Path) -> Columns:
    query = "select * from (values (1, 'a', 7), (2, 'b', 8)) t(id, p, n)"
    settings = "format parquet, partition_by (p, n), write_partition_columns, overwrite_or_ignore"
    duckdb.sql(f"copy ({query}) to '{folder}' ({settings})")
    return {"id": [1, 2], "p": ["a", "b"], "n": ["7", "8"]}


@case("parquet/nested-nulls", "PyArrow", "null structs, null fields, empty and null lists, maps with null values")
def _(folder: Path) -> Columns:
    inner = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    columns: dict[str, Any] = {
        "s": [{"x": 1, "y": ["a", None]}, {"x": None, "y": []}, None, {"x": 2, "y": None}],
        "m": [[("k", 1), ("l", None)], [], None, [("k", 2)]],
    }
    table = pa.table(
        {"s": pa.array(columns["s"], inner), "m": pa.array(columns["m"], pa.map_(pa.string(), pa.int64()))}
    )
    pq.write_table(table, folder / "a.parquet")
    return columns | {"s.x": [1, None, None, 2]}


@case("parquet/long-texts", "PyArrow", "texts of a megabyte that differ at their ends")
def _(folder: Path) -> Columns:
    texts = ["x" * 1_000_000 + end for end in "ab"]
    pq.write_table(pa.table({"id": [1, 2, 3], "t": [*texts, "y"]}), folder / "a.parquet")
    return {"id": [1, 2, 3], "t": [{}]}


@case("parquet/not-unicode", "PyArrow", "a text column with invalid UTF-8: counted, with a reason")
def _(folder: Path) -> Columns:
    data = pa.array([b"ok", b"\xff\xfe"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(data), data.buffers())
    pq.write_table(pa.table({"t": text}), folder / "a.parquet")
    return {"t": [{}, {}]}


@case("parquet/arrow-file", "Polars", "an Arrow file beside Parquet files")
def _(folder: Path) -> Refused:
    pl.DataFrame({"n": [1]}).write_parquet(folder / "a.parquet")
    pl.DataFrame({"n": [2]}).write_ipc(folder / "b.arrow")
    return Refused.with_words("b.arrow")


@case("parquet/compressed-whole", "Python", "a Parquet file inside a gzip file")
def _(folder: Path) -> Refused:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"n": [1]}), buffer)
    (folder / "a.parquet.gz").write_bytes(gzip.compress(buffer.getvalue()))
    return Refused.with_words("a.parquet.gz", "gzip")


@case("parquet/csv-in-disguise", "Python", "a CSV file that is named .parquet, beside Parquet files")
def _(folder: Path) -> Refused:
    pq.write_table(pa.table({"n": [1]}), folder / "a.parquet")
    (folder / "b.parquet").write_text("n\n2\n3\n4\n5\n")
    return Refused.with_words("b.parquet")


@case("parquet/encrypted", "PyArrow", "a file that ends with PARE, like encrypted ones, without an encrypted footer")
def _(folder: Path) -> Refused:
    pq.write_table(pa.table({"n": [1]}), folder / "a.parquet")
    data = (folder / "a.parquet").read_bytes()
    (folder / "a.parquet").write_bytes(data[:-4] + b"PARE")
    return Refused.with_words("a.parquet")
