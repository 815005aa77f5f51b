"""Records are merged by their ordering values as Hudi merges them, or the merge is refused.

hudi-rs takes the newest record, without an error, if it cannot compare ordering values.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats import open_table_format
from tests.formats.hudi.writer import FIELDS, HudiWriter
from tests.formats.oracle import read_columns

_LONG, _INT, _DOUBLE = ("long", pa.int64()), ("int", pa.int32()), ("double", pa.float64())
_MILLIS = ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC"))
_MICROS = ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"))
_LOCAL = ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us"))
_STRUCT = ({"type": "record", "name": "s", "fields": [{"name": "x", "type": "int"}]}, pa.struct([("x", pa.int32())]))
_KINDS = pytest.mark.parametrize(
    ("version", "kind"), [(6, 3), (9, 3), (9, 5)], ids=["v6-avro", "v9-avro", "v9-parquet"]
)

Version = tuple[Any, pa.DataType, Any]
"""The type of the ordering field in Avro and in Arrow, and its value in one record."""


def _write(folder: Path, version: int, kind: int, versions: list[Version], **properties: str) -> HudiWriter:
    """Write the versions of one record: the first to a base file, and each other one to a log file.

    Args:
        folder: The folder of the table.
        version: The version of the table.
        kind: The kind of blocks in log files: 3 for Avro, 5 for Parquet.
        versions: The versions of the record.
        properties: Properties of the table.
    """
    writer = HudiWriter(folder, version, fields=[FIELDS[0], FIELDS[2], FIELDS[3]])
    writer.set_properties(**properties)
    for number, (avro, arrow, ordering) in enumerate(versions):
        writer.fields[1] = {"name": "ts", "type": ["null", avro], "default": None}
        writer.types["ts"] = arrow
        instant = writer.tick()
        rows = [{"key": "a", "ts": ordering, "value": float(number)}]
        if number == 0:
            one = writer.new_slice("x", instant)
            stat = writer.base_file(one, instant, rows)
            one.base_name = stat["path"].rpartition("/")[2]
        else:
            stat = writer.log_file(one, instant, rows, kind=kind)
        writer.complete(instant, "deltacommit", [stat])
    return writer


def _read(folder: Path) -> list[float]:
    """Return the column `value`.

    `_write` numbers the versions of a record in this column, so it shows which version was read.
    """
    return read_columns(open_table_format(TableConfig(name="t", uri=str(folder))).snapshot())["value"]


@_KINDS
@pytest.mark.parametrize(
    ("avro", "arrow", "low", "high"),
    [
        (*_INT, 1, 2),
        (*_LONG, 2**53, 2**53 + 1),
        (*_DOUBLE, -0.0, 0.0),
        (*_DOUBLE, float("inf"), float("nan")),
        ("string", pa.string(), "10", "9"),
        ("boolean", pa.bool_(), False, True),
        ({"type": "int", "logicalType": "date"}, pa.date32(), date(1960, 1, 1), date(2024, 1, 1)),
        (*_MICROS, datetime(1960, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)),
        (*_LOCAL, datetime(1960, 1, 1), datetime(2024, 1, 1)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            pa.decimal128(10, 2),
            Decimal("-1.00"),
            Decimal("1.00"),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_the_record_with_the_highest_ordering_value_is_read(
    tmp_path: Path, version: int, kind: int, avro: Any, arrow: pa.DataType, low: Any, high: Any
) -> None:
    """Of three versions of a record, the one with the highest ordering value is read.

    Ordering values have the types that Hudi's writers commonly use.
    """
    for name, orderings, expected in (("a", [low, high, low], 1.0), ("b", [high, low, low], 0.0)):
        _write(tmp_path / name, version, kind, [(avro, arrow, ordering) for ordering in orderings])
        assert _read(tmp_path / name) == [expected]


@pytest.mark.parametrize(
    ("avro", "arrow", "high", "low", "ordering", "message"),
    [
        ("bytes", pa.binary(), b"b", b"a", "ts", r"'ts'.*bytes"),
        ({"type": "fixed", "size": 1, "name": "f"}, pa.binary(1), b"b", b"a", "ts", r"'ts'.*fixed"),
        (
            {"type": "long", "logicalType": "time-micros"},
            pa.time64("us"),
            time(2),
            time(1),
            "ts",
            r"'ts'.*time-micros",
        ),
        (*_STRUCT, {"x": 2}, {"x": 1}, "ts", r"'ts'.*record"),
        (*_STRUCT, {"x": 2}, {"x": 1}, "ts.x", r"'ts\.x'"),
        (*_LONG, 2, 1, "TS", r"'TS'.*'ts'"),
        (*_LONG, 2, 1, "ts,value", r"\(ts, value\)"),
    ],
)
@pytest.mark.parametrize("version", [6, 9])
def test_ordering_values_that_are_not_compared_are_refused(
    tmp_path: Path, version: int, avro: Any, arrow: pa.DataType, high: Any, low: Any, ordering: str, message: str
) -> None:
    """A log file is refused if its ordering values cannot be compared with those of the base file.

    Otherwise, a log record with a lower ordering value would win. Values of some types, of nested fields, and of
    several fields are not compared. A base file without log files is read.
    """
    properties = {"hoodie.table.precombine.field" if version < 9 else "hoodie.table.ordering.fields": ordering}
    _write(tmp_path / "base", version, 3, [(avro, arrow, high)], **properties)
    assert _read(tmp_path / "base") == [0.0]
    _write(tmp_path / "t", version, 3, [(avro, arrow, high), (avro, arrow, low)], **properties)
    with pytest.raises(TableFormatError, match=message):
        _read(tmp_path / "t")


def test_several_ordering_fields_do_not_matter_by_commit_time(tmp_path: Path) -> None:
    """If records are merged by commit time, several ordering fields are allowed and ignored."""
    properties = {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING", "hoodie.table.ordering.fields": "ts,value"}
    _write(tmp_path / "t", 9, 3, [(*_LONG, 2), (*_LONG, 1)], **properties)
    assert _read(tmp_path / "t") == [1.0]


@_KINDS
@pytest.mark.parametrize("orderings", [[5, None], [1, 5, None], [1, None, 5], [None, None]])
def test_log_records_without_an_ordering_value_are_refused(
    tmp_path: Path, version: int, kind: int, orderings: list[Any]
) -> None:
    """A log record whose ordering value is null is refused.

    hudi-rs takes the null for zero, and versions of Hudi differ.
    """
    _write(tmp_path / "t", version, kind, [(*_LONG, ordering) for ordering in orderings])
    with pytest.raises(FragmentError, match=r"null.*'ts'"):
        _read(tmp_path / "t")


@_KINDS
def test_any_log_record_replaces_a_base_record_without_an_ordering_value(
    tmp_path: Path, version: int, kind: int
) -> None:
    """A log record replaces a base record whose ordering value is null, as bulk inserts may write it.

    A log record with a negative ordering value is refused.
    """
    _write(tmp_path / "t", version, kind, [(*_LONG, None), (*_LONG, 0)])
    assert _read(tmp_path / "t") == [1.0]
    _write(tmp_path / "negative", version, kind, [(*_LONG, None), (*_LONG, -1)])
    with pytest.raises(FragmentError, match=r"null.*'ts'.*base file"):
        _read(tmp_path / "negative")


@_KINDS
def test_log_records_with_ordering_values_of_several_types_are_refused(tmp_path: Path, version: int, kind: int) -> None:
    """Log records whose ordering values differ in type or unit are refused.

    Examples are integers and floats, or milliseconds and microseconds. Integers of two widths are compared, and so are
    a base record and log records of another type.
    """
    for name, versions, expected in (
        ("widened", [(*_INT, 1), (*_INT, 5), (*_LONG, 3)], 1.0),
        ("base", [(*_LONG, 5), (*_DOUBLE, 3.0)], 0.0),
    ):
        _write(tmp_path / name, version, kind, versions)
        assert _read(tmp_path / name) == [expected]
    fifth, third = (datetime(2024, 1, day, tzinfo=UTC) for day in (5, 3))
    mixed_versions: dict[str, list[Version]] = {
        "numbers": [(*_LONG, 1), (*_LONG, 5), (*_DOUBLE, 3.0)],
        "units": [(*_MILLIS, third), (*_MILLIS, fifth), (*_MICROS, third)],
    }
    for name, versions in mixed_versions.items():
        _write(tmp_path / name, version, kind, versions)
        with pytest.raises(FragmentError, match=r"'ts'.*type"):
            _read(tmp_path / name)


def test_a_log_block_older_than_the_ordering_field_is_refused(tmp_path: Path) -> None:
    """A log block that was written before the ordering field was added is refused.

    Its records have no ordering values.
    """
    writer = HudiWriter(tmp_path / "t", 9, fields=[FIELDS[0], FIELDS[3]])
    instant = writer.tick()
    one = writer.new_slice("x", instant)
    writer.complete(instant, "deltacommit", [writer.log_file(one, instant, [{"key": "a", "value": 0.0}])])
    writer.set_properties(**{"hoodie.table.ordering.fields": "ts"})
    writer.fields.insert(1, FIELDS[2])
    instant = writer.tick()
    writer.complete(instant, "deltacommit", [writer.log_file(one, instant, [{"key": "a", "ts": -1, "value": 1.0}])])
    with pytest.raises(FragmentError, match=r"null.*'ts'"):
        _read(tmp_path / "t")


def test_concurrent_log_files_without_ordering_values_are_refused(tmp_path: Path) -> None:
    """Log files that concurrent writes add to one slice are refused without ordering values.

    The table merges by event time, and has no ordering field or one that is no column.
    """
    for name, properties in (
        ("none", {"hoodie.table.ordering.fields": ""}),
        ("absent", {"hoodie.table.ordering.fields": "no_precombine"}),
    ):
        writer = _write(tmp_path / name, 9, 3, [(*_LONG, 1)], **properties)
        (one,) = writer.slices.values() or [writer.new_slice("x", writer.tick())]
        early, late = writer.tick(), writer.tick()
        stats = [writer.log_file(one, at, [{"key": "b", "ts": 1, "value": 1.0}]) for at in (early, late)]
        writer.complete(late, "deltacommit", stats[1:])
        writer.complete(early, "deltacommit", stats[:1])
        with pytest.raises(TableFormatError, match=r"\bconcurrent\b"):
            _read(tmp_path / name)


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize(
    ("ordering", "older", "newer"),
    [
        ((*_LONG, 5), ("Int", 3), ("Long", 7)),
        ((*_DOUBLE, 5.0), ("Float", 3.0), ("Double", 7.0)),
        (("string", pa.string(), "5"), ("String", "3"), ("String", "7")),
        ((*_MILLIS, datetime(1970, 1, 2, tzinfo=UTC)), ("Long", 1), ("Long", 10**9)),
        ((*_MICROS, datetime(1970, 1, 2, tzinfo=UTC)), ("TimestampMicros", 1), ("TimestampMicros", 10**12)),
        (({"type": "int", "logicalType": "date"}, pa.date32(), date(1970, 1, 6)), ("Date", 3), ("Int", 7)),
        (
            ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2), Decimal(5)),
            ("Decimal", Decimal(3)),
            ("Decimal", Decimal(7)),
        ),
    ],
    ids=["long", "double", "string", "millis", "micros", "date", "decimal"],
)
def test_deletes_apply_by_their_ordering_values(
    tmp_path: Path, version: int, ordering: Version, older: Any, newer: Any
) -> None:
    """A delete applies unless its ordering value is lower than that of the record.

    An integer zero stands for no ordering value, so such a delete applies, too.
    """
    for name, value, expected in (("older", older, [0.0]), ("newer", newer, []), ("zero", ("Int", 0), [])):
        _write_delete(tmp_path / name, version, ordering, value)
        assert _read(tmp_path / name) == expected


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize(
    ("ordering", "value"),
    [
        ((*_MILLIS, datetime(2024, 1, 5, tzinfo=UTC)), ("TimestampMicros", 10**15)),
        ((*_LONG, 5), ("Double", 3.0)),
        ((*_DOUBLE, 5.0), ("Long", 3)),
        ((*_LONG, 5), ("String", "3")),
    ],
    ids=["microseconds", "double", "long", "string"],
)
def test_deletes_with_ordering_values_of_another_type_are_refused(
    tmp_path: Path, version: int, ordering: Version, value: Any
) -> None:
    """A delete is refused if its ordering value has another type or unit than that of the record.

    In hudi-rs, the delete would always win.
    """
    _write_delete(tmp_path / "t", version, ordering, value)
    with pytest.raises(FragmentError, match=rf"delete.*{value[0]}.*'ts'"):
        _read(tmp_path / "t")


def _write_delete(folder: Path, version: int, ordering: Version, value: Any) -> None:
    """Write a record to a base file, and a delete of it to a log file.

    Args:
        folder: The folder of the table.
        version: The version of the table.
        ordering: The type of the ordering field, and its value in the record.
        value: The Avro type of the ordering value in the delete, and the value.
    """
    avro, arrow, number = ordering
    writer = HudiWriter(folder, version, fields=[FIELDS[0], FIELDS[2] | {"type": ["null", avro]}, FIELDS[3]])
    writer.types["ts"] = arrow
    instant = writer.tick()
    one = writer.new_slice("x", instant)
    stat = writer.base_file(one, instant, [{"key": "a", "ts": number, "value": 0.0}])
    one.base_name = stat["path"].rpartition("/")[2]
    writer.complete(instant, "deltacommit", [stat])
    instant = writer.tick()
    writer.complete(instant, "deltacommit", [writer.log_file(one, instant, deletes={"a": value})])


@pytest.mark.parametrize(
    ("earlier", "later", "is_refused"),
    [
        ({"rows": [{"key": "a", "ts": 5, "value": 1.0}]}, {"rows": [{"key": "a", "ts": 5, "value": 2.0}]}, True),
        ({"rows": [{"key": "a", "ts": 5, "value": 1.0}]}, {"deletes": {"a": 5}}, True),
        ({"rows": [{"key": "a", "ts": 5, "value": 1.0}]}, {"deletes": {"a": 0}}, True),
        ({"rows": [{"key": "a", "ts": 5, "value": 1.0}]}, {"deletes": {"a": 6}}, False),
        ({"rows": [{"key": "a", "ts": 5, "value": 1.0}]}, {"rows": [{"key": "b", "ts": 5, "value": 2.0}]}, False),
    ],
)
@pytest.mark.parametrize("kind", [3, 5])
def test_concurrent_changes_with_equal_ordering_values_are_refused(
    tmp_path: Path, earlier: Any, later: Any, is_refused: bool, kind: int
) -> None:
    """Reading is an error if two concurrent writes change a record with equal ordering values.

    It is not defined which of the changes applies, even if one is a delete without an ordering value. Changes with
    different ordering values, or of different records, are merged.
    """
    writer = HudiWriter(tmp_path / "t", 9, fields=[FIELDS[0], FIELDS[2], FIELDS[3]])
    instant = writer.tick()
    one = writer.new_slice("x", instant)
    stat = writer.base_file(one, instant, [{"key": "a", "ts": 1, "value": 0.0}])
    one.base_name = stat["path"].rpartition("/")[2]
    writer.complete(instant, "deltacommit", [stat])
    first, second = writer.tick(), writer.tick()
    stats = [writer.log_file(one, at, kind=kind, **change) for at, change in ((first, earlier), (second, later))]
    writer.complete(second, "deltacommit", stats[1:])
    writer.complete(first, "deltacommit", stats[:1])
    if is_refused:
        with pytest.raises(FragmentError, match=r"concurrent.*'ts'.*'a'"):
            _read(tmp_path / "t")
    else:
        assert len(_read(tmp_path / "t")) == (0 if "deletes" in later else 2)


@pytest.mark.parametrize("kind", [3, 5])
def test_concurrent_log_files_without_keys_are_refused(tmp_path: Path, kind: int) -> None:
    """Log files of concurrent writes are refused if they lack `_hoodie_record_key`.

    Without it, it is unknown whether they change one record.
    """
    writer = HudiWriter(tmp_path / "t", 9, fields=[FIELDS[0], FIELDS[2], FIELDS[3]])
    one = writer.new_slice("x", writer.tick())
    writer.meta_columns = []
    first, second = writer.tick(), writer.tick()
    rows = [{"key": "a", "ts": 5, "value": 1.0}]
    stats = [writer.log_file(one, at, rows, kind=kind) for at in (first, second)]
    writer.complete(second, "deltacommit", stats[1:])
    writer.complete(first, "deltacommit", stats[:1])
    with pytest.raises(FragmentError, match=r"concurrent.*'_hoodie_record_key'"):
        _read(tmp_path / "t")
