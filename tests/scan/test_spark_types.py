"""Conversion of Arrow arrays to types that Spark has."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.scan.spark_types import to_spark_array, to_spark_type

UUIDS = [UUID(int=0xFF << 120), None, UUID(int=7)]
UUID_ARRAY = pa.ExtensionArray.from_storage(
    pa.uuid(), pa.array([None if value is None else value.bytes for value in UUIDS], pa.binary(16))
)
UUID_TEXTS = [None if value is None else str(value) for value in UUIDS]
LISTS = [[1], None, [], [3, 4]]


def converted(array: pa.Array) -> list[Any]:
    """Return the values that Spark receives for an array, asserting that they have the converted type."""
    type_ = to_spark_type(TableConfig(name="t", uri="/t"), pa.field("c", array.type))
    result = to_spark_array(array, type_)
    result.validate(full=True)
    assert result.type == type_
    values: list[Any] = result.to_pylist()
    return values


@pytest.mark.parametrize(
    "type_", [pa.list_view(pa.uint16()), pa.large_list_view(pa.int32()), pa.large_list(pa.int8()), pa.list_(pa.uint8())]
)
@pytest.mark.parametrize("start", [0, 1, 3])
def test_lists_of_all_layouts_keep_their_elements(type_: pa.DataType, start: int) -> None:
    assert converted(pa.array(LISTS, type_).slice(start)) == LISTS[start:]
    nested_array = pa.array([{"a": value} for value in LISTS], pa.struct([("a", type_)]))
    assert converted(nested_array.slice(start)) == [{"a": value} for value in LISTS[start:]]


def test_lists_of_fixed_size_keep_their_elements() -> None:
    array = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.uint8(), 2))
    assert converted(array) == [[1, 2], None, [3, 4]]
    assert converted(array.slice(1)) == [None, [3, 4]]


@pytest.mark.parametrize("start", [0, 1])
def test_uuids_in_nested_columns_are_texts(start: int) -> None:
    offsets = [0, 1, 2, 3]
    lists = pa.ListArray.from_arrays(offsets, UUID_ARRAY)
    assert converted(lists.slice(start)) == [[text] for text in UUID_TEXTS][start:]
    structs = pa.StructArray.from_arrays([UUID_ARRAY], ["a"], mask=pa.array([False, False, True]))
    assert converted(structs.slice(start)) == [{"a": UUID_TEXTS[0]}, {"a": None}, None][start:]
    maps = pa.MapArray.from_arrays(offsets, pa.array(["x", "y", "z"]), UUID_ARRAY)
    assert converted(maps.slice(start)) == [[pair] for pair in zip("xyz", UUID_TEXTS, strict=True)][start:]
