"""Values of every type are read as written, from base files and from log files that change them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.formats import Snapshot, open_table_format
from tests.formats.hudi.writer import FIELDS, HudiWriter
from tests.formats.oracle import read_columns

_PAIR = {
    "type": "record",
    "name": "pair",
    "fields": [{"name": "x", "type": ["null", "string"]}, {"name": "y", "type": ["null", "long"]}],
}
_PAIR_TYPE = pa.struct([("x", pa.string()), ("y", pa.int64())])
_EVENT = {
    "type": "record",
    "name": "event",
    "fields": [{"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}],
}
_EVENT_TYPE = pa.struct([("at", pa.timestamp("us", "UTC"))])
_DECIMAL = {"type": "fixed", "size": 9, "name": "d", "logicalType": "decimal", "precision": 20, "scale": 4}
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
_MOMENT = datetime(1950, 1, 1, 0, 0, 0, 5000, tzinfo=UTC)
_TYPES: list[tuple[Any, pa.DataType, Any, Any]] = [
    ("boolean", pa.bool_(), True, False),
    ("float", pa.float32(), 0.5, -1.5),
    ("bytes", pa.binary(), b"\x00\xff", b""),
    ({"type": "int", "logicalType": "date"}, pa.date32(), date(1960, 2, 1), date(2024, 2, 29)),
    ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms"), time(1, 2, 3, 4000), time(0)),
    ({"type": "long", "logicalType": "time-micros"}, pa.time64("us"), time(1, 2, 3, 4), time(0)),
    (_MILLIS, pa.timestamp("ms", "UTC"), _MOMENT, datetime(2024, 1, 1, tzinfo=UTC)),
    (_MICROS, pa.timestamp("us", "UTC"), _MOMENT, datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    (_DECIMAL, pa.decimal128(20, 4), Decimal("-123456789.0001"), Decimal("0.0002")),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        pa.decimal128(10, 2),
        Decimal("1.25"),
        Decimal("-7.00"),
    ),
    ({"type": "fixed", "size": 3, "name": "f"}, pa.binary(3), b"abc", b"xyz"),
    ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32()), [1, None, 2], []),
    (
        {"type": "array", "items": ["null", _PAIR]},
        pa.list_(_PAIR_TYPE),
        [{"x": None, "y": 5}, None],
        [{"x": "a", "y": None}],
    ),
    (
        {"type": "map", "values": ["null", "double"]},
        pa.map_(pa.string(), pa.float64()),
        [("a", 1.5), ("b", None)],
        [],
    ),
    (_PAIR, _PAIR_TYPE, {"x": "a", "y": None}, {"x": None, "y": 9}),
    (_EVENT, _EVENT_TYPE, {"at": _MOMENT}, {"at": None}),
    ({"type": "array", "items": ["null", _EVENT]}, pa.list_(_EVENT_TYPE), [{"at": _MOMENT}, None], []),
    ({"type": "array", "items": _MILLIS}, pa.list_(pa.timestamp("ms", "UTC")), [_MOMENT, _MOMENT], []),
    (_LOCAL, pa.timestamp("us"), datetime(2024, 1, 1, 0, 0, 0, 5), datetime(1950, 1, 1)),
    ({"type": "array", "items": ["null", _LOCAL]}, pa.list_(pa.timestamp("us")), [datetime(2024, 1, 1), None], []),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, pa.string(), "A", "B"),
]


def _written(folder: Path, version: int, kind: int, avro: Any, arrow: pa.DataType, old: Any, new: Any) -> Snapshot:
    """Write a base file with the records a and b, and a log file that changes a and adds c and n.

    Return the snapshot.

    Args:
        folder: The folder of the table.
        version: The version of the table.
        kind: The kind of the block in the log file: 3 for Avro, 5 for Parquet.
        avro: The Avro type of the column `v`.
        arrow: Its Arrow type.
        old: Its value in b, and in a after the change.
        new: Its value in c, and in a before the change. In n, it is null.
    """
    writer = HudiWriter(folder, version, fields=[*FIELDS[:3], {"name": "v", "type": ["null", avro], "default": None}])
    writer.types["v"] = arrow
    instant = writer.tick()
    one = writer.new_slice("x", instant)
    stat = writer.base_file(one, instant, [{"key": "a", "ts": 1, "v": new}, {"key": "b", "ts": 1, "v": old}])
    one.base_name = stat["path"].rpartition("/")[2]
    writer.complete(instant, "deltacommit", [stat])
    instant = writer.tick()
    as_dict = (lambda value: dict(value)) if pa.types.is_map(arrow) and kind == 3 else (lambda value: value)
    changes = [{"key": "a", "ts": 2, "v": as_dict(old)}, {"key": "c", "ts": 2, "v": as_dict(new)}]
    changes.append({"key": "n", "ts": 2, "v": None})
    writer.complete(instant, "deltacommit", [writer.log_file(one, instant, changes, kind=kind)])
    return open_table_format(TableConfig(name="t", uri=str(folder))).snapshot()


@pytest.mark.parametrize(("version", "kind"), [(6, 3), (9, 3), (9, 5)], ids=["v6-avro", "v9-avro", "v9-parquet"])
@pytest.mark.parametrize(("avro", "arrow", "old", "new"), _TYPES, ids=[str(one[1]) for one in _TYPES])
def test_values_of_every_type_are_read_as_written(
    tmp_path: Path, version: int, kind: int, avro: Any, arrow: pa.DataType, old: Any, new: Any
) -> None:
    """Values of every type are read as written, from a base file and from a log file that changes it.

    The log file, in Avro or Parquet, changes one row and adds two, one of them with null.
    """
    columns = read_columns(_written(tmp_path / "t", version, kind, avro, arrow, old, new))
    assert dict(zip(columns["key"], columns["v"], strict=True)) == {"a": old, "b": old, "c": new, "n": None}


def test_an_added_struct_of_timestamps_is_read(tmp_path: Path) -> None:
    """A struct column that was added between two log files is read, and is null in older rows."""
    writer = HudiWriter(tmp_path / "t", 9, fields=FIELDS[:3])
    instant = writer.tick()
    one = writer.new_slice("x", instant)
    stat = writer.base_file(one, instant, [{"key": "a", "ts": 1}, {"key": "b", "ts": 1}])
    one.base_name = stat["path"].rpartition("/")[2]
    writer.complete(instant, "deltacommit", [stat])
    instant = writer.tick()
    writer.complete(instant, "deltacommit", [writer.log_file(one, instant, [{"key": "a", "ts": 2}])])
    writer.fields.append({"name": "v", "type": ["null", _EVENT], "default": None})
    instant = writer.tick()
    stat = writer.log_file(one, instant, [{"key": "b", "ts": 2, "v": {"at": _MOMENT}}], {"x": 1})
    writer.complete(instant, "deltacommit", [stat])
    columns = read_columns(open_table_format(TableConfig(name="t", uri=str(tmp_path / "t"))).snapshot())
    assert dict(zip(columns["key"], columns["ts"], strict=True)) == {"a": 2, "b": 2}
    assert dict(zip(columns["key"], columns["v"], strict=True)) == {"a": None, "b": {"at": _MOMENT}}


@pytest.mark.parametrize("version", [6, 9])
def test_numbers_written_as_texts_stay_numbers(tmp_path: Path, version: int) -> None:
    """A number that an update writes as text into a partition column of numbers is read as a number."""
    number = {"name": "at", "type": ["null", "long"], "default": None}
    text = {"name": "at", "type": ["null", "string"], "default": None}
    writer = HudiWriter(tmp_path / "t", version, fields=[*FIELDS[:3], number], partition_field="at")
    writer.set_properties(
        **{
            "hoodie.table.keygenerator.type": "TIMESTAMP",
            "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
            "hoodie.table.create.schema": json.dumps(writer.schema),
        }
    )
    instant = writer.tick()
    one = writer.new_slice("2024/01/15", instant)
    stat = writer.base_file(one, instant, [{"key": "a", "ts": 1, "at": 1705311000}, {"key": "b", "ts": 1, "at": 5}])
    one.base_name = stat["path"].rpartition("/")[2]
    writer.complete(instant, "deltacommit", [stat])
    instant = writer.tick()
    writer.fields[3] = text
    stat = writer.log_file(one, instant, [{"key": "a", "ts": 2, "at": "1705311001"}])
    writer.complete(instant, "deltacommit", [stat])
    snapshot = open_table_format(TableConfig(name="t", uri=str(tmp_path / "t"))).snapshot()
    assert [fragment.partition_key for fragment in snapshot.fragments] == ["at=2024%2F01%2F15"]
    columns = read_columns(snapshot)
    assert dict(zip(columns["key"], columns["at"], strict=True)) == {"a": 1705311001, "b": 5}
