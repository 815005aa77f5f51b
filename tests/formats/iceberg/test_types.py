"""Every Iceberg type is read from Parquet, ORC and Avro, alone and in structs, lists and maps."""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats import open_table_format
from tests.formats.iceberg.writer import Entry, IcebergWriter, column
from tests.formats.oracle import read_columns
from tests.formats.readers.avro_container import container
from tests.formats.readers.orc_java import JavaOrc, java_orc_writer

_UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
_DAY = dt.date(2017, 11, 16)
_NAIVE = dt.datetime(2017, 11, 16, 22, 31, 8, 123456)
_MICROS = (_NAIVE - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
_TIME = dt.time(22, 31, 8, 123456)
_TIME_MICROS = ((22 * 60 + 31) * 60 + 8) * 1_000_000 + 123456
_BYTES = b"\x00\xff\x10"


def _avro(type_: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": logical, **more}


class _Type:
    """A type: its name, its storage in each format by the specification, a value, and the stored value."""

    def __init__(
        self,
        name: str,
        value: Any,
        arrow: pa.DataType,
        avro: Any,
        orc_type: tuple[pa.DataType, str],
        stored_value: Any = None,
        /,
        **attributes: str,
    ) -> None:
        self.name = name
        self.value = value
        self.arrow = arrow
        self.avro = avro
        self.orc, self.java = orc_type
        self.stored = value if stored_value is None else stored_value
        """The value as stored in ORC files, and in Avro files without the logical type."""
        self.attributes = attributes

    def __repr__(self) -> str:
        return self.name


_LONG, _BINARY = (pa.int64(), "bigint"), (pa.binary(), "binary")
_STAMP, _INSTANT = (pa.timestamp("ns"), "timestamp"), (pa.timestamp("ns", "UTC"), "timestamp with local time zone")
_LOCAL, _UTC = {"adjust-to-utc": False}, {"adjust-to-utc": True}
_AWARE = _NAIVE.replace(tzinfo=dt.UTC)
_IN_MICROS, _IN_NANOS = {"iceberg.timestamp-unit": "MICROS"}, {"iceberg.timestamp-unit": "NANOS"}
_TYPES = [
    _Type("boolean", True, pa.bool_(), "boolean", (pa.bool_(), "boolean")),
    _Type("int", -5, pa.int32(), "int", (pa.int32(), "int")),
    _Type("long", 2**40, pa.int64(), "long", _LONG, **{"iceberg.long-type": "LONG"}),
    _Type("float", 0.5, pa.float32(), "float", (pa.float32(), "float")),
    _Type("double", 0.1, pa.float64(), "double", (pa.float64(), "double")),
    _Type(
        "decimal(9,2)",
        Decimal("-14.20"),
        pa.decimal128(9, 2),
        {"type": "fixed", "name": "d9", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2},
        (pa.decimal128(9, 2), "decimal(9,2)"),
        (-1420).to_bytes(4, "big", signed=True),
    ),
    _Type(
        "decimal(38,0)",
        Decimal(10**37),
        pa.decimal128(38, 0),
        {"type": "fixed", "name": "d38", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 0},
        (pa.decimal128(38, 0), "decimal(38,0)"),
        (10**37).to_bytes(16, "big", signed=True),
    ),
    _Type("date", _DAY, pa.date32(), _avro("int", "date"), (pa.date32(), "date"), (_DAY - dt.date(1970, 1, 1)).days),
    _Type(
        "time",
        _TIME,
        pa.time64("us"),
        _avro("long", "time-micros"),
        _LONG,
        _TIME_MICROS,
        **{"iceberg.long-type": "TIME"},
    ),
    _Type(
        "timestamp",
        _NAIVE,
        pa.timestamp("us"),
        _avro("long", "timestamp-micros", **_LOCAL),
        _STAMP,
        _MICROS,
        **_IN_MICROS,
    ),
    _Type(
        "timestamptz",
        _AWARE,
        pa.timestamp("us", "UTC"),
        _avro("long", "timestamp-micros", **_UTC),
        _INSTANT,
        _MICROS,
        **_IN_MICROS,
    ),
    _Type(
        "timestamp_ns",
        _NAIVE,
        pa.timestamp("ns"),
        _avro("long", "timestamp-nanos", **_LOCAL),
        _STAMP,
        _MICROS * 1000,
        **_IN_NANOS,
    ),
    _Type(
        "timestamptz_ns",
        _AWARE,
        pa.timestamp("ns", "UTC"),
        _avro("long", "timestamp-nanos", **_UTC),
        _INSTANT,
        _MICROS * 1000,
        **_IN_NANOS,
    ),
    _Type("string", "é😀", pa.string(), "string", (pa.string(), "string")),
    _Type(
        "uuid",
        _UUID,
        pa.uuid(),
        {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"},
        _BINARY,
        _UUID.bytes,
        **{"iceberg.binary-type": "UUID"},
    ),
    _Type(
        "fixed[3]",
        _BYTES,
        pa.binary(3),
        {"type": "fixed", "name": "f", "size": 3},
        _BINARY,
        **{"iceberg.binary-type": "FIXED", "iceberg.length": "3"},
    ),
    _Type("binary", _BYTES, pa.binary(), "bytes", _BINARY, **{"iceberg.binary-type": "BINARY"}),
]


def _columns(name: str) -> list[dict[str, Any]]:
    return [
        column(1, "a", name),
        column(2, "s", {"type": "struct", "fields": [column(3, "x", name)]}),
        column(4, "l", {"type": "list", "element-id": 5, "element": name, "element-required": False}),
        column(
            6, "m", {"type": "map", "key-id": 7, "key": name, "value-id": 8, "value": name, "value-required": False}
        ),
    ]


def _rows(value: Any) -> dict[str, list[Any]]:
    return {
        "a": [value, None],
        "s": [{"x": value}, None],
        "l": [[value, None], None],
        "m": [[(value, value)], None],
    }


def _arrow(type_: pa.DataType, rows: dict[str, list[Any]], key: str, attributes: dict[str, str]) -> pa.Table:
    def field(name: str, inner: pa.DataType, field_id: int, *, leaf: bool = True, nullable: bool = True) -> pa.Field:
        return pa.field(name, inner, nullable, metadata={key: str(field_id)} | (attributes if leaf else {}))

    schema = pa.schema(
        [
            field("a", type_, 1),
            field("s", pa.struct([field("x", type_, 3)]), 2, leaf=False),
            field("l", pa.list_(field("element", type_, 5)), 4, leaf=False),
            field("m", pa.map_(field("key", type_, 7, nullable=False), field("value", type_, 8)), 6, leaf=False),
        ]
    )
    return pa.table([pa.array(rows[inner.name], inner.type) for inner in schema], schema=schema)


def _avro_schema(type_: Any) -> dict[str, Any]:
    def optional(name: str, inner: Any, field_id: int) -> dict[str, Any]:
        return {"name": name, "type": ["null", inner], "default": None, "field-id": field_id}

    type_reference = type_["name"] if isinstance(type_, dict) and "name" in type_ else type_
    pairs = {
        "type": "record",
        "name": "k7_v8",
        "fields": [{"name": "key", "type": type_reference, "field-id": 7}, optional("value", type_reference, 8)],
    }
    return {
        "type": "record",
        "name": "table",
        "fields": [
            optional("a", type_, 1),
            optional("s", {"type": "record", "name": "r2", "fields": [optional("x", type_reference, 3)]}, 2),
            optional("l", {"type": "array", "items": ["null", type_reference], "element-id": 5}, 4),
            optional("m", {"type": "array", "items": pairs, "logicalType": "map"}, 6),
        ],
    }


def _write(path: Path, type_: _Type, format_: str, java: JavaOrc | None) -> None:
    """Write a file of two rows in a format: one with the value of `type_` everywhere, and one of nulls.

    The value is in a column, a struct, a list and a map. With `java`, the Java ORC library writes the file.
    """
    if format_ == "avro":
        rows = _rows(type_.stored) | {"m": [[{"key": type_.stored, "value": type_.stored}], None]}
        schema = _avro_schema(type_.avro)
        records = b""
        for row in zip(*rows.values(), strict=True):
            sink = io.BytesIO()
            # Stored values are written, because libraries cannot write all values of logical types.
            plain = fastavro.parse_schema(_without_logical_types(schema))
            fastavro.schemaless_writer(sink, plain, dict(zip(rows, row, strict=True)))
            records += sink.getvalue()
        path.write_bytes(container(json.dumps(schema).encode(), [(2, records)], "deflate", {}))
    elif java is not None:
        java.write(
            path,
            type_.java,
            type_.stored if type_.java in ("bigint", "binary", "date") else type_.value,
            type_.attributes,
        )
    elif format_ == "orc":
        value = type_.stored if type_.orc in (pa.int64(), pa.binary()) else type_.value
        orc.write_table(_arrow(type_.orc, _rows(value), "iceberg.id", type_.attributes), path)
    else:
        storage = pa.binary(16) if type_.arrow == pa.uuid() else type_.arrow
        value = type_.stored if type_.arrow == pa.uuid() else type_.value
        pq.write_table(_arrow(storage, _rows(value), "PARQUET:field_id", {}), path)


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return schema


def _written(folder: Path, type_: _Type, format_: str, java: JavaOrc | None = None) -> IcebergWriter:
    writer = IcebergWriter(folder, _columns(type_.name), version=3)
    entry: Entry = writer.data(pa.table({"none": pa.array([], pa.int64())}), ids=False) | {
        "file_format": format_.upper(),
        "file_path": str(folder / f"data/file.{format_}"),
        "record_count": 2,
    }
    _write(Path(entry["file_path"]), type_, format_, java)
    writer.commit(entry)
    return writer


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("type_", _TYPES, ids=repr)
def test_every_type_is_read_at_every_depth(tmp_path: Path, type_: _Type, format_: str) -> None:
    """Values of every type are read unchanged from a column, a struct, a list and a map.

    The files have the types and attributes of the specification.
    """
    writer = _written(tmp_path / "t", type_, format_)
    snapshot = open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot()
    assert snapshot.schema.field("a").type == type_.arrow
    assert read_columns(snapshot) == _rows(type_.value)


@pytest.fixture(scope="module")
def java_orc() -> Iterator[JavaOrc]:
    with java_orc_writer() as writer:
        yield writer


@pytest.mark.long
@pytest.mark.parametrize("type_", _TYPES, ids=repr)
def test_every_type_in_orc_files_of_the_java_library_is_read(tmp_path: Path, java_orc: JavaOrc, type_: _Type) -> None:
    """Values of every type are read unchanged from ORC files that the Java ORC library writes.

    Iceberg's Java library, Spark and Flink use this library.
    """
    writer = _written(tmp_path / "t", type_, "orc", java_orc)
    snapshot = open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot()
    assert read_columns(snapshot) == _rows(type_.value)


@pytest.mark.parametrize("value", [-1, 86_400_000_000, 2**62])
def test_a_long_out_of_the_range_of_times_is_an_error(tmp_path: Path, value: int) -> None:
    """The error for a stored number that is no time of day has the file, the column and the number."""
    writer = IcebergWriter(tmp_path / "t", [column(1, "at", "time")])
    writer.commit(writer.data(pa.table({"at": [0, None, value]}), format_="orc"))
    with pytest.raises(FragmentError, match=rf"\.orc.*'at'.*{value}"):
        read_columns(open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot())


@pytest.mark.parametrize("has_mapping", [True, False])
def test_longs_are_times_if_the_table_declares_it(tmp_path: Path, has_mapping: bool) -> None:
    """Longs in an ORC file without field ids and attributes are times if the table's schema says so.

    Equality deletes of times apply.
    """
    mapping = {"schema.name-mapping.default": '[{"field-id": 1, "names": ["at"]}]'} if has_mapping else {}
    writer = IcebergWriter(tmp_path / "t", [column(1, "at", "time")], properties=mapping)
    times = pa.table({"at": [_TIME_MICROS, 0, None]})
    writer.commit(writer.data(times, format_="orc", ids=False))
    writer.commit(writer.equality_deletes(times.slice(1), "at", format_="orc"))
    snapshot = open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot()
    assert read_columns(snapshot) == {"at": [_TIME]}


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    ("narrow", "wide", "arrow"),
    [
        ("int", "long", pa.int64()),
        ("float", "double", pa.float64()),
        ("decimal(9,2)", "decimal(18,2)", pa.decimal128(18, 2)),
        ("date", "timestamp", pa.timestamp("us")),
        ("date", "timestamp_ns", pa.timestamp("ns")),
    ],
)
def test_widened_types_are_read_at_every_depth(
    tmp_path: Path, narrow: str, wide: str, arrow: pa.DataType, format_: str
) -> None:
    """Values that files store in a narrower type are read in the wider type of the schema.

    This holds at every depth, including keys of maps.
    """
    type_ = next(one for one in _TYPES if one.name == narrow)
    writer = _written(tmp_path / "t", type_, format_)
    writer.schemas.append(_columns(wide))
    writer.write_metadata()
    snapshot = open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot()
    assert snapshot.schema.field("a").type == arrow
    value = dt.datetime.combine(_DAY, dt.time()) if narrow == "date" else type_.value
    assert read_columns(snapshot) == _rows(value)
