"""Conversion of Arrow columns to types that Spark has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from metastore_assets.config import TableConfig
from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.values.columns import plain_array, plain_type
from metastore_assets.values.types import is_binary, is_text


def to_spark_type(table: TableConfig, field: pa.Field) -> pa.DataType:
    """Return the Arrow type in which the values of a column are sent to Spark.

    Values are never rounded. Timestamps with nanoseconds are sent in Spark's microseconds, and `to_spark_array` raises
    an error for a timestamp that is not a whole number of microseconds.

    Raises UnsupportedTypeError if Spark has no type for the values.
    """
    try:
        return _sent_type(field.type)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(
            f"column {field.name!r} of table {table.name!r}: {error}; leave it out with `columns`"
        ) from error


def _sent_type(type: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which values of a type are sent to Spark.

    Raises UnsupportedTypeError if Spark has no such type.
    """
    plain = plain_type(type)
    for matches, transport_type in _SENT:
        if matches(plain):
            return transport_type
    if t.is_timestamp(plain):
        return pa.timestamp("us", plain.tz and "UTC")
    if t.is_decimal(plain) and plain.precision <= 38 and 0 <= plain.scale <= plain.precision:
        return pa.decimal128(plain.precision, plain.scale)
    if t.is_struct(plain):
        return pa.struct([pa.field(field.name, _sent_type(field.type)) for field in plain])
    if t.is_map(plain):
        return pa.map_(_sent_type(plain.key_type), _sent_type(plain.item_type))
    if t.is_nested(plain) and plain.num_fields == 1:
        return pa.list_(_sent_type(plain.value_type))
    raise UnsupportedTypeError(f"Spark has no type for {plain}")


_SENT: Sequence[tuple[Callable[[pa.DataType], bool], pa.DataType]] = (
    (t.is_boolean, pa.bool_()),
    (t.is_int8, pa.int8()),
    (lambda type: t.is_int16(type) or t.is_uint8(type), pa.int16()),
    (lambda type: t.is_int32(type) or t.is_uint16(type), pa.int32()),
    (lambda type: t.is_int64(type) or t.is_uint32(type), pa.int64()),
    (t.is_uint64, pa.decimal128(20, 0)),
    (lambda type: t.is_float32(type) or t.is_float16(type), pa.float32()),
    (t.is_float64, pa.float64()),
    (is_text, pa.string()),
    (lambda type: type == pa.uuid(), pa.string()),
    (is_binary, pa.binary()),
    (t.is_fixed_size_binary, pa.binary()),
    (t.is_date, pa.date32()),
    (t.is_null, pa.null()),
)


def to_spark_array(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Convert an array to a type that `to_spark_type` returned.

    Raises ArrowInvalid if a value does not fit, such as a timestamp whose nanoseconds are no multiple of 1000.
    """
    array = plain_array(array)
    if array.type == type:
        return array
    if array.type == pa.uuid():
        return pa.array([None if value is None else str(value) for value in array.to_pylist()], type)
    if not t.is_nested(array.type):
        return array.cast(type)
    # Not cast: Arrow loses elements of list views, and makes texts of the bytes of UUIDs.
    mask = array.is_null()
    if t.is_struct(array.type):
        fields = [to_spark_array(child, field.type) for child, field in zip(array.flatten(), type, strict=True)]
        return pa.StructArray.from_arrays(fields, fields=list(type), mask=mask)
    if t.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    lengths = pc.list_value_length(array).fill_null(0).to_numpy()
    offsets, elements = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32()), array.flatten()
    if t.is_map(type):
        keys, items = (elements.field(at) for at in (0, 1))
        keys, items = to_spark_array(keys, type.key_type), to_spark_array(items, type.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type, mask=mask)
    return pa.ListArray.from_arrays(offsets, to_spark_array(elements, type.value_type), type, mask=mask)
