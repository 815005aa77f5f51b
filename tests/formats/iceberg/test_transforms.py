"""Every partition transform of Iceberg gives pyiceberg's values for every type.

Unknown transforms are accepted.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError
from metastore_assets.expressions.partition_keys import decode_partition_key
from metastore_assets.formats import Snapshot, open_table_format
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_columns

_MOMENTS = [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1, 1, 1), dt.datetime(2024, 2, 29, 1)]
_VALUES: dict[PrimitiveType, list[Any]] = {
    BooleanType(): [True, False],
    IntegerType(): [-7, 0, 7, -(2**31), 2**31 - 1],
    LongType(): [-7, 0, 2**40],
    FloatType(): [-0.5, math.inf, 0.25],
    DoubleType(): [-0.5, -math.inf, 0.1],
    DecimalType(9, 2): [Decimal("-0.01"), Decimal("14.20"), Decimal("0.00")],
    DateType(): [dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(2024, 2, 29)],
    TimeType(): [dt.time(0), dt.time(22, 31, 8, 123456)],
    TimestampType(): _MOMENTS,
    TimestamptzType(): [moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS],
    StringType(): ["", "a/b=c", "é😀 and more", "null"],
    UUIDType(): [uuid.UUID(int=5).bytes, uuid.UUID(int=2**127).bytes],
    FixedType(3): [b"abc", b"\x00\xff\x00"],
    BinaryType(): [b"", b"\x00\xff\x00 and more"],
}
_WITHOUT_BUCKETS = (BooleanType(), FloatType(), DoubleType(), TimeType())
_DATES = (DateType(), TimestampType(), TimestamptzType())
_TRANSFORMS: list[tuple[Transform[Any, Any], list[PrimitiveType]]] = [
    # pyiceberg cannot write identity of UUIDs, buckets of times, and truncated binary values.
    (IdentityTransform(), [type_ for type_ in _VALUES if type_ != UUIDType()]),
    (VoidTransform(), [IntegerType(), StringType()]),
    (BucketTransform(4), [type_ for type_ in _VALUES if type_ not in _WITHOUT_BUCKETS]),
    (TruncateTransform(10), [IntegerType(), LongType(), DecimalType(9, 2), StringType()]),
    (YearTransform(), list(_DATES)),
    (MonthTransform(), list(_DATES)),
    (DayTransform(), list(_DATES)),
    (HourTransform(), list(_DATES[1:])),
]
_CASES = [(transform, type_) for transform, types in _TRANSFORMS for type_ in types]


def _snapshot(folder: Path | str, **more: Any) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(folder), **more)).snapshot()


@pytest.mark.parametrize(("transform", "type_"), _CASES, ids=[f"{a}-{b}" for a, b in _CASES])
def test_every_transform_gives_the_partitions_of_pyiceberg(
    tmp_path: Path, transform: Transform[Any, Any], type_: PrimitiveType
) -> None:
    """A table that pyiceberg wrote has the partitions and rows that pyiceberg gives.

    In partition keys, integers, texts and dates have pyiceberg's text.
    """
    catalog = InMemoryCatalog("test", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "n", IntegerType()), NestedField(2, "x", type_))
    table = catalog.create_table("db.t", schema, partition_spec=PartitionSpec(PartitionField(2, 1000, transform, "p")))
    values = [*_VALUES[type_], None]
    arrow = table.schema().as_arrow()
    table.append(
        pa.table({"n": pa.array(range(len(values)), pa.int32()), "x": pa.array(values, arrow.field("x").type)})
    )
    snapshot = _snapshot(table.location())
    files = [task.file for task in table.scan().plan_files()]
    keys = {fragment.path.removeprefix("file://"): fragment.partition_key for fragment in snapshot.fragments}
    assert len(keys) == len(files)
    result = transform.result_type(type_)
    expected = {file.file_path.removeprefix("file://"): file.partition[0] for file in files}
    if isinstance(transform, VoidTransform):
        assert set(keys.values()) == {"all"}
        return
    assert len(set(keys.values())) == len(set(expected.values())) > 1
    for path, value in expected.items():
        ((name, text),) = decode_partition_key(keys[path])
        assert name == "p"
        if value is None or isinstance(transform, BucketTransform):
            assert text == (None if value is None else str(value))
        elif isinstance(result, IntegerType | LongType | StringType | DateType):
            assert text == transform.to_human_string(type_, value)
    columns = read_columns(snapshot)
    assert sorted(zip(columns["n"], columns["x"], strict=True)) == [
        (number, uuid.UUID(bytes=value) if isinstance(type_, UUIDType) and value else value)
        for number, value in enumerate(values)
    ]


def _field(transform: str, *sources: int, **more: Any) -> dict[str, Any]:
    source_ids = {"source-id": sources[0]} if len(sources) == 1 else {"source-ids": list(sources)}
    return {"name": "p", "field-id": 1000, "transform": transform, **source_ids, **more}


_UNKNOWN: list[tuple[dict[str, Any], Any, list[Any], list[str]]] = [
    (_field("zorder[4]", 1, 2), "long", [5, -1, None], ["5", "-1", "__HIVE_DEFAULT_PARTITION__"]),
    (_field("prefix", 2), "string", ["a/b", "", "5"], ["a%2Fb", "", "5"]),
    (_field("digest", 3), {"type": "fixed", "name": "f", "size": 2}, [b"\0\xff", b"ab"], ["00ff", "6162"]),
    (_field("scaled[3]", 3), "double", [0.5, math.nan, math.nan], ["0.5", "nan", "nan"]),
    (_field("is_even", 1), "boolean", [True, False], ["true", "false"]),
    (_field("week", 4), {"type": "int", "logicalType": "date"}, [19723, -5], ["19723", "-5"]),
    (_field("bucketV2[16]", 2), "int", [3, 15], ["3", "15"]),
    (_field("bucket[16]", 1, 2), "int", [3, 15], ["3", "15"]),
    (_field("identity", 1, 2), "long", [3, None], ["3", "__HIVE_DEFAULT_PARTITION__"]),
    (_field("month", 4, 1), "int", [3], ["3"]),
    (_field("truncate", 2), "string", ["abc"], ["abc"]),
]


@pytest.mark.parametrize(("field", "avro", "raw", "texts"), _UNKNOWN, ids=[case[0]["transform"] for case in _UNKNOWN])
def test_unknown_transforms_are_accepted(
    tmp_path: Path, field: dict[str, Any], avro: Any, raw: list[Any], texts: list[str]
) -> None:
    """With an unknown transform, partition keys have the values in the manifest.

    No column gets its values from these partition values. Equality deletes apply to files with the same partition
    value, and the option `partitions` selects partitions by these values.
    """
    schema = [column(1, "n", "long"), column(2, "s", "string"), column(3, "d", "decimal(9,2)"), column(4, "t", "date")]
    writer = IcebergWriter(tmp_path / "t", schema, specs={0: [field]}, partition_types={1000: avro}, version=3)
    files = [writer.data(pa.table({"n": [index]}), partition=(value,)) for index, value in enumerate(raw)]
    writer.commit(*files)
    # Position deletes belong to one partition with any value.
    writer.commit(writer.equality_deletes(pa.table({"n": [0, 1, 2]}), "n", partition=(raw[0],)))
    snapshot = _snapshot(writer.folder)
    assert sorted(fragment.partition_key for fragment in snapshot.fragments) == sorted(f"p={text}" for text in texts)
    equal = [index for index, value in enumerate(raw) if repr(value) == repr(raw[0])]
    assert sorted(read_columns(snapshot)["n"]) == [index for index in range(len(raw)) if index not in equal]
    assert read_columns(snapshot)["s"] == [None] * (len(raw) - len(equal))
    ((_, text),) = decode_partition_key(f"p={texts[0]}")
    matching = _snapshot(writer.folder, partitions={"p": ("-nothing", text or "")}).fragments
    assert len(matching) == len(equal)


def test_names_of_transforms_ignore_case(tmp_path: Path) -> None:
    """Names such as `Identity` and `VOID` are accepted, as by Iceberg's Java library."""
    spec = [_field("Identity", 1), {**_field("BUCKET[ 4 ]", 1), "field-id": 1001, "name": "b"}]
    spec += [{**_field("Day", 1), "field-id": 1002, "name": "d"}, {**_field("VOID", 1), "field-id": 1003, "name": "v"}]
    types: dict[int, Any] = {1000: {"type": "int", "logicalType": "date"}, 1001: "int", 1002: "int", 1003: "int"}
    writer = IcebergWriter(tmp_path / "t", [column(1, "t", "date")], specs={0: spec}, partition_types=types)
    writer.commit(writer.data(pa.table({"none": [1]}), partition=(19723, 3, 19723, None)))
    snapshot = _snapshot(writer.folder)
    assert [fragment.partition_key for fragment in snapshot.fragments] == ["p=2024-01-01/b=3/d=2024-01-01"]
    assert read_columns(snapshot) == {"t": [dt.date(2024, 1, 1)]}


def test_a_partition_value_missing_in_a_manifest_is_an_error(tmp_path: Path) -> None:
    """A manifest that lacks a partition field of its spec is an error.

    The value of the field is not assumed to be null.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "n", "long")])
    writer.commit(writer.data(pa.table({"n": [1]})))
    writer.specs = {0: [_field("identity", 1)]}
    writer.write_metadata()
    with pytest.raises(TableFormatError, match=r"m0\.avro.*'p'"):
        _snapshot(writer.folder)
