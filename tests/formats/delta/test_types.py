"""Delta tables with widened types are read without loss.

Values that do not fit the declared type are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats import Snapshot, open_table_format
from tests.formats.delta.log_writer import add_file, commit, field, list_of, metadata, protocol
from tests.formats.oracle import read_columns


def _snapshot(table: Path, **how: Any) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(table), **how)).snapshot()


_WIDENED = [
    ("byte", pa.int8(), "short"),
    ("byte", pa.int8(), "double"),
    ("byte", pa.int8(), "decimal(10,0)"),
    ("short", pa.int16(), "integer"),
    ("short", pa.int16(), "decimal(12,2)"),
    ("integer", pa.int32(), "long"),
    ("integer", pa.int32(), "double"),
    ("integer", pa.int32(), "decimal(11,1)"),
    ("long", pa.int64(), "decimal(20,0)"),
    ("float", pa.float32(), "double"),
    ("decimal(5,2)", pa.decimal128(5, 2), "decimal(7,4)"),
    ("decimal(18,2)", pa.decimal128(18, 2), "decimal(38,2)"),
    ("date", pa.date32(), "timestamp_ntz"),
]


@pytest.mark.parametrize(("_old", "stored_type", "new"), _WIDENED, ids=[f"{old}-{new}" for old, _, new in _WIDENED])
def test_types_widen_without_loss(tmp_path: Path, _old: str, stored_type: pa.DataType, new: str) -> None:
    """Extreme values and null of the old type in a file are read as equal values of the new type.

    Dates become timestamps at midnight.
    """
    values: list[Any] = {
        "int8": [-128, 0, 127],
        "int16": [-(2**15), 0, 2**15 - 1],
        "int32": [-(2**31), 0, 2**31 - 1],
        "int64": [-(2**63), 0, 2**63 - 1],
        "float": [float("-inf"), 0.1, 3.4e38],
        "decimal128(5, 2)": [Decimal("-999.99"), Decimal(0), Decimal("999.99")],
        "decimal128(18, 2)": [Decimal("-9999999999999999.99"), Decimal(0), Decimal("0.01")],
        "date32[day]": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    }[str(stored_type)]
    array = pa.array([*values, None], stored_type)
    features = protocol("typeWidening", "timestampNtz")
    commit(tmp_path, features, metadata([field("a", new)]), add_file(tmp_path, pa.table({"a": array})))
    values_read = read_columns(_snapshot(tmp_path))["a"]
    if stored_type == pa.date32():
        assert values_read == [*(datetime(day.year, day.month, day.day) for day in values), None]
    else:
        assert values_read == array.to_pylist()


@pytest.mark.parametrize(
    ("stored_values", "declared_type", "reason"),
    [
        (pa.array([2**40]), "integer", rf"\b{2**40}\b"),
        (pa.array([1.5]), "long", r"\b1\.50*\b.*\bint64$"),
        (pa.array([0.1]), "float", r"\bdouble\b.*\bfloat$"),
        (pa.array(["5"]), "long", r"\bstring\b.*\bint64$"),
        (pa.array([5]), "boolean", r"\bint64\b.*\bbool$"),
        (pa.array([Decimal("1.23")]), "decimal(10,1)", r"\bDecimal\b"),
        (pa.array([{"a": 1}]), "long", r"\bstruct<.*\bint64$"),
        (pa.array([[1]]), "long", r"\blist<.*\bint64$"),
        (pa.array([1]), list_of("long"), r"\bint64\b.*\blist<"),
        (pa.array([b"\xff"]), "string", r"\bUTF8\b"),
    ],
    ids=str,
)
def test_values_that_do_not_fit_the_declared_type_are_refused(
    tmp_path: Path, stored_values: pa.Array, declared_type: Any, reason: str
) -> None:
    """The error for a stored value that does not fit the declared type has the file and the column.

    It also has the value, or the types if no value of the stored type fits.
    """
    commit(
        tmp_path, protocol(), metadata([field("a", declared_type)]), add_file(tmp_path, pa.table({"a": stored_values}))
    )
    snapshot = _snapshot(tmp_path)
    with pytest.raises(FragmentError, match=rf"f\.parquet.*'a'.*{reason}"):
        read_columns(snapshot)


@pytest.mark.parametrize(
    ("name", "stored_values"),
    [
        ("decimal", pa.array([Decimal(-5), None], pa.decimal128(10, 0))),
        ("decimal( 5 , 2 )", pa.array([Decimal("1.50"), None], pa.decimal128(5, 2))),
        ("char(3)", pa.array(["ab ", None])),
        ("varchar(9)", pa.array(["ab", None])),
    ],
)
def test_other_names_of_types_are_read(tmp_path: Path, name: str, stored_values: pa.Array) -> None:
    """Columns of the types `char` and `varchar`, and of other spellings of decimals, are read.

    Spark reads them, too. Their types are those of the stored values.
    """
    commit(tmp_path, protocol(), metadata([field("a", name)]), add_file(tmp_path, pa.table({"a": stored_values})))
    snapshot = _snapshot(tmp_path)
    assert snapshot.schema.field("a").type == stored_values.type
    assert read_columns(snapshot)["a"] == stored_values.to_pylist()


def test_the_old_name_of_void_is_read(tmp_path: Path) -> None:
    fields = [field("a", "long"), field("n", "null")]
    commit(tmp_path, protocol(), metadata(fields), add_file(tmp_path, pa.table({"a": [1]})))
    assert read_columns(_snapshot(tmp_path)) == {"a": [1], "n": [None]}


def test_user_defined_types_of_spark_are_read_as_stored(tmp_path: Path) -> None:
    """A column of a user-defined type of Spark is read as structs of its `sqlType`.

    The type is that of MLlib's vectors. The field `v.type` has no bounds, because the log has none.
    """
    stored_type = {"type": "struct", "fields": [field("type", "byte"), field("values", list_of("double"))]}
    vector = {
        "type": "udt",
        "class": "org.apache.spark.ml.linalg.VectorUDT",
        "pyClass": "pyspark.ml.linalg.VectorUDT",
        "sqlType": stored_type,
    }
    type_ = pa.struct([("type", pa.int8()), ("values", pa.list_(pa.float64()))])
    values = pa.array([{"type": 1, "values": [0.5, 2.0]}, None], type_)
    commit(tmp_path, protocol(), metadata([field("v", vector)]), add_file(tmp_path, pa.table({"v": values})))
    delta = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = delta.snapshot()
    assert read_columns(snapshot)["v"] == values.to_pylist()
    assert delta.bounds(snapshot, "v.type")["minimum_guarantee"].to_pylist() == ["absent"]


@pytest.fixture
def nanoseconds() -> Iterator[None]:
    """Enable timestamps with nanoseconds in deltalake for the whole process, until the test ends."""
    deltalake.enable_nanosecond_timestamps()
    yield
    deltalake._disable_nanosecond_timestamps()


@pytest.mark.usefixtures("nanoseconds")
@pytest.mark.parametrize("zone", ["UTC", None])
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_nanoseconds_written_by_deltalake_are_read_exactly(
    tmp_path: Path, zone: str | None, is_partitioned: bool
) -> None:
    """Timestamps that deltalake wrote have all nanoseconds in rows and in partition values.

    The maximum in the bounds is not below the greatest timestamp.
    """
    times = pa.array([1_000_000_001, -7, 1_700_000_000_123_456_700, None], pa.timestamp("ns", zone))
    rows = pa.table({"n": [0, 1, 2, 3], "at": times})
    deltalake.write_deltalake(str(tmp_path), rows, partition_by=["at"] if is_partitioned else None)
    delta = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = delta.snapshot()
    assert snapshot.schema.field("at").type == times.type
    values_read: dict[int, int] = {}
    for fragment in snapshot.fragments:
        with fragment.source.open() as reader:
            numbers, values = (pa.concat_arrays(list(reader.read(field))) for field in snapshot.schema)
            values_read |= dict(zip(numbers.to_pylist(), values.cast(pa.int64()).to_pylist(), strict=True))
    assert values_read == dict(enumerate(times.cast(pa.int64()).to_pylist()))
    keys = {fragment.partition_key for fragment in snapshot.fragments}
    assert f"at=1969-12-31 23:59:59.999999993{'Z' if zone else ''}" in keys or not is_partitioned
    assert len(keys) == (4 if is_partitioned else 1)
    greatest = delta.bounds(snapshot, "at")["maximum"].drop_null().cast(pa.int64()).to_pylist()
    assert max(greatest) >= 1_700_000_000_123_456_700
