"""Partition bounds in manifest lists never exclude a manifest with a value, for any field type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
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
    PrimitiveType,
    StringType,
    TimestampType,
    TimeType,
    UUIDType,
)

from metastore_assets.formats.iceberg.manifests import Manifest
from metastore_assets.formats.iceberg.metadata import PartitionField, TableMetadata
from metastore_assets.formats.iceberg.partitions import Partitions
from metastore_assets.formats.iceberg.touched_manifests import may_contain, partition_bounds

_INT, _LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_TYPES: dict[str, tuple[PrimitiveType, st.SearchStrategy[Any]]] = {
    "int": (IntegerType(), _INT),
    "long": (LongType(), _LONG),
    "float": (FloatType(), st.floats(width=32)),
    "double": (DoubleType(), st.floats()),
    "boolean": (BooleanType(), st.booleans()),
    "string": (StringType(), st.text()),
    "binary": (BinaryType(), st.binary()),
    "fixed[3]": (FixedType(3), st.binary(min_size=3, max_size=3)),
    "decimal(9, 2)": (DecimalType(9, 2), st.integers(-(10**9) + 1, 10**9 - 1)),
    "date": (DateType(), _INT),
    "time": (TimeType(), st.integers(0, 86_399_999_999)),
    "timestamp": (TimestampType(), _LONG),
    "uuid": (UUIDType(), st.uuids().map(lambda value: value.bytes)),
}
_SOUND_ONLY = ("uuid", "binary")


def _partitions(type_: str, transform: str = "identity") -> Partitions:
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "c", "required": False, "type": type_}]}
    specs = {0: (PartitionField("p", 1000, 1, transform),)}
    return Partitions("t", TableMetadata(2, "t", 0, {0: schema}, 0, specs, 0, {}, None, {}, (), {}), schema)


def _encoded(type_: PrimitiveType, value: Any) -> bytes:
    return to_bytes(type_, Decimal(value).scaleb(-2) if isinstance(type_, DecimalType) else value)


@pytest.mark.parametrize("name", _TYPES)
@given(data=st.data())
def test_every_value_is_within_the_bounds(name: str, data: st.DataObject) -> None:
    """Bounds that pyiceberg encodes from random values exclude none of these values.

    For most types, they exclude a value outside of the bounds.
    """
    type_, values_of_type = _TYPES[name]
    values = data.draw(st.lists(st.none() | values_of_type, min_size=1))
    numbers = sorted(value for value in values if value is not None and value == value)
    summary = (
        _encoded(type_, numbers[0]) if numbers else None,
        _encoded(type_, numbers[-1]) if numbers else None,
        None in values,
    )
    manifest = Manifest("m", 0, 0, 1, (summary,))
    (bounds,) = partition_bounds(_partitions(name), manifest)
    assert all(may_contain(bounds, value) for value in values)
    other = data.draw(values_of_type)
    if name in _SOUND_ONLY or not numbers or other != other:
        return
    if name == "string" and max(other + numbers[0] + numbers[-1], default="") > "\ud7ff":
        return
    if other < numbers[0] or (other > numbers[-1] and name not in ("string", "fixed[3]")):
        assert not may_contain(bounds, other)


def test_missing_and_corrupt_bounds_exclude_nothing() -> None:
    """Bounds that are missing, have an invalid length, or have too few fields exclude no value.

    Valid bounds exclude other numbers and null.
    """
    partitions = _partitions("long")
    for summaries in (None, (), ((b"abc", b"abc", False),), ((None, None, False),), ((b"\0" * 8, b"\0" * 9, False),)):
        manifest = Manifest("m", 0, 0, 1, summaries)
        assert all(may_contain(bounds, 7) for bounds in partition_bounds(partitions, manifest))
    (bounds,) = partition_bounds(partitions, Manifest("m", 0, 0, 1, ((b"\0" * 8, b"\1" + b"\0" * 7, False),)))
    assert [may_contain(bounds, value) for value in (-1, 0, 1, 2, None, "x")] == [False, True, True, False, False, True]


@pytest.mark.parametrize("transform", ["day", "month", "hour", "bucket", "year"])
def test_transformed_values_are_numbers(transform: str) -> None:
    summary = b"\5\0\0\0", b"\7\0\0\0", True
    (bounds,) = partition_bounds(_partitions("string", transform), Manifest("m", 0, 0, 1, (summary,)))
    assert [may_contain(bounds, value) for value in (4, 5, 7, 8, None)] == [False, True, True, False, True]


@pytest.mark.parametrize("transform", ["void", "unknown"])
def test_other_transforms_exclude_nothing(transform: str) -> None:
    summary = b"\5\0\0\0", b"\7\0\0\0", False
    (bounds,) = partition_bounds(_partitions("int", transform), Manifest("m", 0, 0, 1, (summary,)))
    assert may_contain(bounds, 4)
