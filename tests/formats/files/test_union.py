"""The union of the types of two files: its laws, and that no value changes."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.files.union import union_fields, wider_type
from metastore_assets.formats.schema_casting import FieldMatcher, canonical_type, cast_to_schema

_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_LEAVES: list[pa.DataType] = [
    *_INTEGERS,
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.decimal128(20, 0),
    pa.decimal128(38, 10),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.binary(16),
    pa.date32(),
    pa.timestamp("ms"),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ms", "Europe/Paris"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.null(),
    pa.uuid(),
]
_TYPES = st.recursive(
    st.sampled_from(_LEAVES),
    lambda inner: st.one_of(
        inner.map(lambda type_: pa.list_(pa.field("element", type_))),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(
            lambda d: pa.struct(list(d.items()))
        ),
        inner.map(lambda type_: pa.map_(pa.string(), type_)),
    ),
    max_leaves=4,
)


@given(_TYPES, _TYPES)
def test_a_union_is_symmetric_and_absorbs(first: pa.DataType, second: pa.DataType) -> None:
    """The order of the types matters only for the order of fields.

    The union of a type with a wider type that includes it is the wider type.
    """
    assert wider_type(first, first) == first
    union = wider_type(first, second)
    swapped_union = wider_type(second, first)
    assert (union is None) == (swapped_union is None)
    if union is not None:
        assert swapped_union is not None
        assert _sorted(union) == _sorted(swapped_union)
        assert wider_type(union, first) == union
        assert wider_type(union, second) == union
        assert canonical_type(union) == union


def _sorted(type_: pa.DataType) -> Any:
    if pa.types.is_struct(type_):
        return sorted((field.name, str(_sorted(field.type))) for field in type_)
    if pa.types.is_nested(type_):
        return [str(_sorted(type_.field(index).type)) for index in range(type_.num_fields)]
    return type_


def _extremes(type_: pa.DataType) -> list[Any]:
    """Return values at or near the limits of a type; none for types that are not tested."""
    if pa.types.is_integer(type_):
        bits, signed = type_.bit_width, pa.types.is_signed_integer(type_)
        return [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1] if signed else [0, 2**bits - 1]
    if pa.types.is_floating(type_):
        return [
            {16: 65504.0, 32: 3.4028234663852886e38, 64: 1.7976931348623157e308}[type_.bit_width],
            0.5,
            float("inf"),
        ]
    if pa.types.is_decimal(type_):
        digits = "9" * (type_.precision - type_.scale) + "." + "9" * type_.scale
        return [Decimal(digits), Decimal(f"-{digits}")]
    if pa.types.is_timestamp(type_):
        return [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999000)] if not type_.tz else []
    if pa.types.is_date(type_):
        return [date(1, 1, 1), date(9999, 12, 31)]
    if pa.types.is_string(type_):
        return ["é", ""]
    return []


@pytest.mark.parametrize("first", [type_ for type_ in _LEAVES if _extremes(type_)], ids=str)
def test_unions_hold_the_extremes_of_both_types(first: pa.DataType) -> None:
    """The extremes of a type are the same numbers and times in its union with any other type."""
    values = [*_extremes(first), None]
    unions = [union for second in _LEAVES if (union := wider_type(first, second)) is not None]
    assert first in unions
    for union in unions:
        widened_values = cast_to_schema(pa.array(values, first), union, FieldMatcher())
        assert widened_values.type == union
        assert widened_values.to_pylist() == values


@pytest.mark.parametrize(
    ("first", "second", "union"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.uint32(), pa.int8(), pa.int64()),
        (pa.uint64(), pa.int8(), pa.decimal128(20, 0)),
        (pa.int16(), pa.float32(), pa.float32()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int64(), pa.float64(), None),
        (pa.int64(), pa.decimal128(10, 2), pa.decimal128(21, 2)),
        (pa.decimal128(5, 2), pa.decimal128(5, 4), pa.decimal128(7, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal256(76, 38)),
        (pa.float64(), pa.decimal128(5, 2), None),
        (pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("us"), None),
        (pa.string(), pa.int64(), None),
        (pa.string(), pa.binary(), None),
        (pa.binary(3), pa.binary(4), pa.binary()),
        (pa.bool_(), pa.int8(), None),
        (pa.null(), pa.date32(), pa.date32()),
        (pa.struct([("a", pa.int8())]), pa.list_(pa.int8()), None),
    ],
    ids=str,
)
def test_unions_of_types(first: pa.DataType, second: pa.DataType, union: pa.DataType | None) -> None:
    """The union of two types is the expected type, in either order.

    None stands for no union.
    """
    assert wider_type(first, second) == union
    assert wider_type(second, first) == union


def test_the_message_names_types_that_files_have() -> None:
    """The error about the types of three files names types that the files have.

    The union of the first two types is a decimal, which no file has.
    """
    types = {"a": pa.int64(), "b": pa.uint64(), "c": pa.string()}
    with pytest.raises(TableFormatError, match=r"'x'.*int64 in a .*string in c\b"):
        union_fields("t", [(path, [pa.field("x", type_)]) for path, type_ in types.items()])
