"""Values of columns whose types changed are read as Hudi reads them, or refused.

This holds with and without log files.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats import open_table_format
from tests.formats.hudi.writer import FIELDS, HudiWriter
from tests.formats.oracle import read_columns

_INT, _LONG = ("int", pa.int32()), ("long", pa.int64())
_FLOAT, _DOUBLE = ("float", pa.float32()), ("double", pa.float64())
_TEXT = ("string", pa.string())
_DATE = ({"type": "int", "logicalType": "date"}, pa.date32())
_MILLIS = ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC"))
_MICROS = ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"))
_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)

Version = tuple[Any, pa.DataType, Any]
"""The type of a column in Avro and in Arrow, and its value in one record."""


def _decimal(precision: int, scale: int) -> tuple[Any, pa.DataType]:
    type_ = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return type_, pa.decimal128(precision, scale)


def _struct(type_: str, arrow: pa.DataType) -> tuple[Any, pa.DataType]:
    fields = [{"name": "x", "type": ["null", type_], "default": None}]
    return {"type": "record", "name": "s", "fields": fields}, pa.struct([("x", arrow)])


def _read(folder: Path, table_version: int, versions: list[Version], *, logs: bool) -> list[Any]:
    """Write one record for each version, and return the values of the column in the same order.

    Each record is in a new base file. With `logs`, the first record is in a base file, and each later one is in a log
    file.
    """
    writer = HudiWriter(folder, table_version, by_commit=True, fields=[FIELDS[0], FIELDS[3]])
    writer.fields.insert(1, {})
    one = None
    for number, (avro, arrow, value) in enumerate(versions):
        writer.fields[1] = {"name": "v", "type": ["null", avro], "default": None}
        writer.types["v"] = arrow
        instant = writer.tick()
        rows = [{"key": str(number), "v": value}]
        if one is None or not logs:
            one = writer.new_slice("x", instant)
            stat = writer.base_file(one, instant, rows)
            one.base_name = stat["path"].rpartition("/")[2]
        else:
            stat = writer.log_file(one, instant, rows)
        writer.complete(instant, "deltacommit", [stat])
    columns = read_columns(open_table_format(TableConfig(name="t", uri=str(folder))).snapshot())
    return [value for _, value in sorted(zip(columns["key"], columns["v"], strict=True))]


@pytest.mark.parametrize("logs", [False, True], ids=["base", "logs"])
@pytest.mark.parametrize(
    ("stored_version", "target", "expected"),
    [
        ((*_INT, 1), (*_LONG, 2), 1),
        ((*_FLOAT, 0.1), (*_DOUBLE, 2.0), 0.1),
        ((*_FLOAT, float("-inf")), (*_DOUBLE, 2.0), float("-inf")),
        ((*_INT, 1), (*_TEXT, "2"), "1"),
        ((*_DATE, date(2024, 1, 1)), (*_TEXT, "x"), "2024-01-01"),
        ((*_MILLIS, _MOMENT), (*_MICROS, _MOMENT), _MOMENT),
        ((*_decimal(5, 2), Decimal("1.25")), (*_decimal(10, 4), Decimal("0.0000")), Decimal("1.2500")),
        ((*_struct("int", pa.int32()), {"x": 1}), (*_struct("long", pa.int64()), {"x": 2}), {"x": 1}),
    ],
)
def test_values_are_widened_as_hudi_widens_them(
    tmp_path: Path, logs: bool, stored_version: Version, target: Version, expected: Any
) -> None:
    """Values in an older file are read in the wider type that the column has now.

    A float becomes the double with the same text.
    """
    for table_version in (6, 9):
        values = _read(tmp_path / str(table_version), table_version, [stored_version, target], logs=logs)
        assert values == [expected, target[2]]


@pytest.mark.parametrize("table_version", [6, 9])
@pytest.mark.parametrize("kinds", [(0, 3), (0, 5), (3, 3), (5, 5), (5, 3)], ids=str)
def test_a_log_record_without_a_column_has_null_there(
    tmp_path: Path, table_version: int, kinds: tuple[int, int]
) -> None:
    """A log record replaces the complete record, so columns that it lacks become null.

    The earlier record has the column `b` and the field `s.y`. They return to the schema with a later write. `kinds` has
    the kinds of the two files of the record: 0 for a base file, 3 for a log file with an Avro block, 5 for one with a
    Parquet block.
    """
    writer = HudiWriter(tmp_path, table_version, by_commit=True, fields=[FIELDS[0]])
    instant = writer.tick()
    one = writer.new_slice("x", instant)

    def set_columns(number: tuple[Any, pa.DataType], fields: list[str], *, has_text: bool) -> None:
        struct = {"type": "record", "name": "s", "fields": [{"name": name, "type": ["null", "int"]} for name in fields]}
        types = {"a": number, "s": (struct, pa.struct([(name, pa.int32()) for name in fields]))}
        types |= {"b": _TEXT} if has_text else {}
        writer.fields[1:] = [
            {"name": name, "type": ["null", avro], "default": None} for name, (avro, _) in types.items()
        ]
        writer.types |= {name: arrow for name, (_, arrow) in types.items()}

    set_columns(_INT, ["x", "y"], has_text=True)
    old = {"a": 1, "b": "old", "s": {"x": 1, "y": 1}}
    rows = [{"key": "k"} | old, {"key": "same"} | old]
    if kinds[0]:
        stat = writer.log_file(one, instant, rows, None, kinds[0])
    else:
        stat = writer.base_file(one, instant, rows)
        one.base_name = stat["path"].rpartition("/")[2]
    writer.complete(instant, "deltacommit", [stat])
    set_columns(_INT, ["x"], has_text=False)
    instant = writer.tick()
    new = {"key": "k", "a": 2, "s": {"x": 2}}
    writer.complete(instant, "deltacommit", [writer.log_file(one, instant, [new], None, kinds[1])])
    set_columns(_LONG, ["x", "y"], has_text=True)
    instant = writer.tick()
    other = {"key": "z", "a": 2**40, "b": "z", "s": {"x": 3, "y": 3}}
    writer.complete(instant, "deltacommit", [writer.base_file(writer.new_slice("y", instant), instant, [other])])
    columns = read_columns(open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot())
    assert dict(zip(columns["key"], zip(*(columns[name] for name in "abs"), strict=True), strict=True)) == {
        "k": (2, None, {"x": 2, "y": None}),
        "same": (1, "old", {"x": 1, "y": 1}),
        "z": (2**40, "z", {"x": 3, "y": 3}),
    }


@pytest.mark.parametrize(("container", "kind"), [("struct", 3), ("struct", 5), ("list", 3), ("list", 5), ("map", 5)])
@pytest.mark.parametrize("names", [("xy", "yx", "xy"), ("xy", "xy", "yx"), ("xy", "zy", "zy"), ("xyz", "zx", "yxz")])
def test_fields_of_structs_match_by_name(
    tmp_path: Path, container: str, kind: int, names: tuple[str, str, str]
) -> None:
    """Fields of a struct in a base file and in a log file are matched to those of the table by name.

    They may have another order, or be missing. `names` has the fields in the base file, in the log file, and in the
    table, one letter each. `kind` is the kind of the block in the log file: 3 for Avro, 5 for Parquet.
    """
    writer = HudiWriter(tmp_path, 9, by_commit=True, fields=[FIELDS[0]])
    expected: dict[str, Any] = {}

    def row(key: str, field_names: str) -> dict[str, Any]:
        """Return a row with these fields of the struct.

        Also set the columns of the writer, and the expected value of the row.
        """
        fields = [{"name": name, "type": ["null", "string"], "default": None} for name in field_names]
        struct, arrow = (
            {"type": "record", "name": "s", "fields": fields},
            pa.struct([(n, pa.string()) for n in field_names]),
        )
        avro: Any = struct
        if container == "list":
            avro, arrow = {"type": "array", "items": ["null", struct]}, pa.list_(pa.field("array", arrow))
        elif container == "map":
            avro, arrow = {"type": "map", "values": ["null", struct]}, pa.map_(pa.string(), arrow)
        writer.fields[1:] = [{"name": "v", "type": ["null", avro], "default": None}]
        writer.types["v"] = arrow
        expected[key] = {name: f"{key} {name}" if name in field_names else None for name in names[2]}
        return {"key": key, "v": _contained({name: f"{key} {name}" for name in field_names}, container)}

    instant = writer.tick()
    one = writer.new_slice("x", instant)
    stat = writer.base_file(one, instant, [row("a", names[0]), row("b", names[0])])
    one.base_name = stat["path"].rpartition("/")[2]
    writer.complete(instant, "deltacommit", [stat])
    instant = writer.tick()
    writer.complete(instant, "deltacommit", [writer.log_file(one, instant, [row("b", names[1])], None, kind)])
    instant = writer.tick()
    stat = writer.base_file(writer.new_slice("y", instant), instant, [row("c", names[2])])
    writer.complete(instant, "deltacommit", [stat])
    columns = read_columns(open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot())
    assert dict(zip(columns["key"], columns["v"], strict=True)) == {
        key: _contained(value, container) for key, value in expected.items()
    }


def _contained(value: dict[str, Any], container: str) -> Any:
    """Return a struct, a list of it, or a map with it."""
    return {"struct": value, "list": [value], "map": [("m", value)]}[container]


@pytest.mark.parametrize(
    ("stored_version", "target"),
    [
        ((*_LONG, 2**40), (*_INT, 1)),
        ((*_DOUBLE, 0.1), (*_FLOAT, 0.5)),
        ((*_MICROS, _MOMENT), (*_MILLIS, _MOMENT)),
        ((*_decimal(10, 4), Decimal("1.2345")), (*_decimal(5, 2), Decimal("1.25"))),
        ((*_INT, 10**9), (*_decimal(10, 2), Decimal("1.25"))),
        ((*_TEXT, "no date"), (*_DATE, date(2024, 1, 1))),
        ((*_LONG, 1), (*_MICROS, _MOMENT)),
        ((*_struct("long", pa.int64()), {"x": 2**40}), (*_struct("int", pa.int32()), {"x": 2})),
    ],
)
def test_casts_that_may_lose_values_are_refused_with_log_files(
    tmp_path: Path, stored_version: Version, target: Version
) -> None:
    """A cast that may lose values is refused if the file slice has log files.

    hudi-rs would replace values by nulls, round them, or take microseconds for milliseconds.
    """
    for name, versions in (("base", [stored_version, target]), ("log", [target, stored_version, target])):
        with pytest.raises(FragmentError, match=r"'v'.*compact"):
            _read(tmp_path / name, 9, versions, logs=True)


@pytest.mark.parametrize("stored_version", [(*_FLOAT, 0.5), (*_DOUBLE, 1e10)])
def test_floats_that_became_texts_are_refused(tmp_path: Path, stored_version: Version) -> None:
    """A column that changed from float or double to text is refused.

    Java and Arrow would format the numbers differently: 1.0E10 and 1e+10.
    """
    with pytest.raises(FragmentError, match="Java"):
        _read(tmp_path / "t", 9, [stored_version, (*_TEXT, "x")], logs=False)


@pytest.mark.parametrize("keeps", [False, True])
def test_columns_whose_names_differ_in_case_are_refused_with_log_files(tmp_path: Path, keeps: bool) -> None:
    """A file slice is refused if the base file has the column `value`, and the log file has `VALUE`.

    The new column could get the values of the older one. `keeps` says whether the schema of the log file also has
    `value`.
    """
    writer = HudiWriter(tmp_path / "t", 9, by_commit=True, fields=[FIELDS[0], FIELDS[3]])
    instant = writer.tick()
    one = writer.new_slice("x", instant)
    stat = writer.base_file(one, instant, [{"key": "a", "value": 1.0}])
    one.base_name = stat["path"].rpartition("/")[2]
    writer.complete(instant, "commit", [stat])
    writer.fields = [*writer.fields[: 1 + keeps], FIELDS[3] | {"name": "VALUE"}]
    instant = writer.tick()
    stat = writer.log_file(one, instant, [{"key": "b", "VALUE": 2.0}])
    writer.complete(instant, "deltacommit", [stat])
    with pytest.raises(FragmentError, match=r"'value'.*'VALUE'"):
        read_columns(open_table_format(TableConfig(name="t", uri=str(writer.folder))).snapshot())


@pytest.mark.parametrize(("day", "is_refused"), [(date(1500, 1, 1), True), (date(1600, 1, 1), False)])
def test_old_days_of_spark_2_are_refused_with_log_files(tmp_path: Path, day: date, is_refused: bool) -> None:
    """Days before 15 October 1582 that Spark 2 wrote are refused if the file slice has log files.

    Spark 2 writes such days in the Julian calendar. In a base file alone, they are converted. Later days are read.
    """
    writer = HudiWriter(tmp_path / "t", 6, by_commit=True, fields=[FIELDS[0], FIELDS[3]])
    writer.fields.insert(1, {"name": "v", "type": ["null", _DATE[0]], "default": None})
    writer.types["v"] = _DATE[1]
    instant = writer.tick()
    one = writer.new_slice("x", instant)
    stat = writer.base_file(one, instant, [{"key": "a", "v": day}])
    one.base_name = stat["path"].rpartition("/")[2]
    path = writer.folder / stat["path"]
    table = pq.ParquetFile(path).read()
    pq.write_table(table.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}), path)
    writer.complete(instant, "commit", [stat])
    config = TableConfig(name="t", uri=str(writer.folder))
    assert read_columns(open_table_format(config).snapshot())["v"] == [date(1499, 12, 23) if is_refused else day]
    instant = writer.tick()
    writer.complete(instant, "deltacommit", [writer.log_file(one, instant, [{"key": "b", "v": day}])])
    if is_refused:
        with pytest.raises(FragmentError, match="15 October 1582"):
            read_columns(open_table_format(config).snapshot())
    else:
        assert read_columns(open_table_format(config).snapshot())["v"] == [day, day]
