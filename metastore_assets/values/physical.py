"""Conversions of values between Arrow arrays of any type, the canonical type, and physical values.

A type class (`values.types`) is a group of column types that share one *canonical* Arrow type. Integers, decimals,
dates and times have an integer as *physical value*: 12.34 as decimal of scale 2 has 1234, a date the days since 1970,
a time or timestamp the number of its units. The physical value of a float is the float.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.startup import lazy_module, pc
from metastore_assets.values.columns import plain_array
from metastore_assets.values.types import DECIMAL_DIGITS, TypeClass

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazy_module("polars")

Numbers = npt.NDArray[Any]
"""Physical values: int64, uint64, float64, or object (Python integers, for decimals beyond 64 bits)."""

_EXACT = decimal.Context(prec=76)
_MILLISECONDS_OF_A_DAY = 86_400_000
_LITTLE_WORD = np.dtype("<u8")


def physical_series(array: pa.Array, cls: TypeClass) -> pl.Series:
    """Return the non-null values of an array as a polars series of physical values.

    Args:
        array: Values of any type of the class.
        cls: The type class.

    Returns:
        A series. Integers are UInt64 in the class `uint64`, and Int64 in others; dates, times and timestamps are Int64.
        Unscaled decimals are Int64, or Int128 if any exceeds 64 bits. Other values are Float64, Boolean or Binary.

    Raises:
        UnsupportedTypeError: A value is beyond the range of the class, such as a distant timestamp in seconds.
    """
    array = plain_array(array)
    try:
        if cls.kind == "bytes":
            return _bytes_series(array)
        if t.is_decimal(array.type):
            return _decimal_series(array, cls)
        if t.is_date64(array.type):
            array = canonical(array, cls)
        if t.is_temporal(array.type):
            return _drop_nulls(pl.Series(array.cast(cls.arrow).view(_integers_of(cls.arrow)))).cast(pl.Int64)
        target = {"boolean": pl.Boolean, "float": pl.Float64}.get(cls.kind)
        target = target or (pl.UInt64 if cls.name == "uint64" else pl.Int64)
        return _drop_nulls(pl.Series(array)).cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnsupportedTypeError(f"a value of {array.type} does not fit {cls.name}: {error}") from error


def canonical(array: pa.Array, cls: TypeClass) -> pa.Array:
    """Cast an array to the canonical type of its type class.

    Nulls stay null, and -0.0 becomes 0.0.

    Text is not changed, even if it is not valid UTF-8.

    Args:
        array: Values of any type of the class.
        cls: The type class.

    Raises:
        UnsupportedTypeError: A value is beyond the range of the class.
    """
    array = plain_array(array)
    if cls.kind == "float":
        return pc.add(array.cast(cls.arrow), 0.0)  # -0.0 becomes 0.0
    if array.type == cls.arrow:
        return array
    try:
        if t.is_date64(array.type):
            days = pl.Series(array.view(pa.int64())) // _MILLISECONDS_OF_A_DAY
            return _combine_chunks(days.to_arrow()).cast(pa.int32()).view(cls.arrow)
        if t.is_string(array.type):
            return array.view(pa.binary()).cast(pa.large_binary()).view(cls.arrow)
        if t.is_string_view(array.type):
            return array.view(pa.binary_view()).cast(pa.large_binary()).view(cls.arrow)
        return (array.cast(pa.binary()) if t.is_fixed_size_binary(array.type) else array).cast(cls.arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnsupportedTypeError(f"a value of {array.type} does not fit {cls.name}: {error}") from error


def canonical_array(series: pl.Series, cls: TypeClass) -> pa.Array:
    """Return a polars series of physical values as an array of the canonical type.

    This is the inverse of `physical_series`, except that each -0.0 becomes 0.0. Floats must be in ascending order,
    which is not checked. In another order, some -0.0 may remain.
    """
    if cls.kind == "null":
        return pa.nulls(len(series))
    if t.is_decimal(cls.arrow):
        return _decimals(series, cls.arrow)
    if cls.kind == "float":
        values = series.to_numpy()
        zero = int(np.searchsorted(values, 0.0))
        negative = zero < len(values) and values[zero] == 0 and np.signbit(values[zero])
        return pa.array(positive_zeros(values) if negative else values)
    array = _combine_chunks(series.to_arrow(compat_level=pl.CompatLevel.oldest()))
    if cls.name == "uuid":
        return pa.ExtensionArray.from_storage(cls.arrow, array.cast(pa.binary(16)))
    if cls.name == "date":
        return array.cast(pa.int32()).view(cls.arrow)
    return array if array.type == cls.arrow else array.view(cls.arrow)


def numbers(values: pa.Array, cls: TypeClass) -> Numbers:
    """Return the physical values of an array, such as days for dates and unscaled integers for decimals.

    Args:
        values: An array of the canonical type of the class, without nulls.
        cls: A type class of kind `integer` or `float`.
    """
    if t.is_decimal(cls.arrow):
        low, high = decimal_words(values)
        if np.array_equal(high, low.view(np.int64) >> 63):
            return low.view(np.int64)
        return (high.astype(object) << 64) | low.astype(object)
    if cls.kind == "integer" and not t.is_integer(cls.arrow):
        values = values.view(_integers_of(cls.arrow))
    return values.to_numpy(zero_copy_only=False)


def positive_zeros(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the values with 0.0 instead of -0.0."""
    with np.errstate(invalid="ignore"):  # numpy warns where a signaling NaN becomes a quiet one
        return values + 0.0


def decimal_words(values: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return (low 64 bits, high 64 bits) of the two's complement of each value in a decimal128 array.

    The array must have no nulls.
    """
    words = np.frombuffer(values.buffers()[1], _LITTLE_WORD, 2 * len(values), 16 * values.offset).reshape(-1, 2)
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1]).view(np.int64)


def scalar(physical: int | float, cls: TypeClass) -> pa.Scalar:
    """Return a physical value of an `integer` or `float` class as a scalar of the canonical type.

    An integer beyond the range of the class becomes the nearest value within it.
    """
    if cls.kind == "float":
        return pa.scalar(float(physical), cls.arrow)
    low, high = cls.physical_range
    return integers_array([min(max(int(physical), low), high)], cls)[0]


def physical_value(value: pa.Scalar) -> int | float:
    """Return the physical value of a scalar of an `integer` or `float` class.

    `scalar` is the inverse.
    """
    if t.is_floating(value.type):
        return float(value.as_py())
    if t.is_decimal(value.type):
        return int(value.as_py().scaleb(value.type.scale, _EXACT))
    return int(value.as_py() if t.is_integer(value.type) else value.value)


def identity_key(value: pa.Scalar) -> object:
    """Return a hashable key that is equal for equal scalars of one type class.

    All NaN have the same key.
    """
    key = order_key(value)
    return "NaN" if key != key else key


def order_key(value: pa.Scalar) -> Any:
    """Return a number or bytes by which to sort scalars of one type class.

    The key of NaN is NaN, which has no order; `sort_key` also sorts NaN.
    """
    if isinstance(value, pa.ExtensionScalar):
        value = value.value
    if t.is_boolean(value.type):
        return value.as_py()
    if t.is_large_string(value.type) or t.is_large_binary(value.type) or t.is_fixed_size_binary(value.type):
        return value.as_buffer().to_pybytes()
    return physical_value(value)


def sort_key(value: pa.Scalar) -> tuple[bool, Any]:
    """Return a key by which to sort scalars of one type class.

    NaN is the greatest value.
    """
    key = order_key(value)
    return (True, 0.0) if key != key else (False, key)


def integers_array(physical: list[int] | npt.NDArray[np.int64], cls: TypeClass) -> pa.Array:
    """Return the physical values of an `integer` class as an array of its canonical type.

    The values must be within the range of the class (`TypeClass.physical_range`). For decimals and times, this
    is not checked.
    """
    if t.is_decimal(cls.arrow):
        if isinstance(physical, np.ndarray):
            data = np.stack([physical, physical >> 63], axis=1).astype("<i8").tobytes()
        else:
            data = b"".join(value.to_bytes(16, "little", signed=True) for value in physical)
        return pa.Array.from_buffers(cls.arrow, len(physical), [None, pa.py_buffer(data)])
    array = pa.array(physical, _integers_of(cls.arrow))
    return array if array.type == cls.arrow else array.view(cls.arrow)


def storage(values: pa.Array) -> pa.Array:
    """Cast an array to large_binary: strings to their UTF-8, UUIDs to 16 bytes, binary values unchanged.

    Args:
        values: Strings, binary values or UUIDs, of the canonical type.
    """
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    return values.cast(pa.large_binary())


def _integers_of(type: pa.DataType) -> pa.DataType:
    if t.is_integer(type):
        return type
    return pa.int32() if type.bit_width == 32 else pa.int64()


def _drop_nulls(series: pl.Series) -> pl.Series:
    return series.drop_nulls() if series.null_count() else series


def _bytes_series(array: pa.Array) -> pl.Series:
    """Return the non-null strings, binary values or UUIDs of an array as a series of bytes."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if t.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    # As bytes, not text: the order is bytewise, and polars takes text on trust.
    if t.is_string(array.type):
        array = array.view(pa.binary())
    elif t.is_large_string(array.type):
        array = array.view(pa.large_binary())
    elif t.is_string_view(array.type):
        array = array.view(pa.binary_view())
    return _drop_nulls(pl.Series(array))


def _decimal_series(array: pa.Array, cls: TypeClass) -> pl.Series:
    """Return the non-null unscaled values of decimals as 64-bit integers, or as 128-bit ones.

    They are 128-bit integers if some value does not fit into 64 bits. Raises UnsupportedTypeError for a value of more
    than 38 digits.
    """
    if not t.is_decimal128(array.type):
        array = array.cast(cls.arrow)
    array = array.drop_null()
    low, high = decimal_words(array)
    if np.array_equal(high, low.view(np.int64) >> 63):
        return pl.Series(low.view(np.int64))
    least, greatest = cls.physical_range
    outer = np.flatnonzero((high <= least >> 64) | (high >= greatest >> 64))
    for at in outer.tolist():
        if not least <= (int(high[at]) << 64) + int(low[at]) <= greatest:
            raise UnsupportedTypeError(f"a value of {array.type} has more than {DECIMAL_DIGITS} digits")
    return pl.Series(array.cast(cls.arrow)).to_physical()


def _decimals(series: pl.Series, type: pa.DataType) -> pa.Array:
    """Convert unscaled integers to an array of the decimal type `type`."""
    if series.dtype == pl.Int128:
        unscaled_values = _combine_chunks(series.cast(pl.Decimal(38, 0)).to_arrow())
        return pa.Array.from_buffers(
            type, len(series), [None, unscaled_values.buffers()[1]], offset=unscaled_values.offset
        )
    low = series.to_numpy().astype(np.int64, copy=False)
    words = np.empty((len(low), 2), _LITTLE_WORD)
    words[:, 0] = low.view(np.uint64)
    words[:, 1] = (low >> 63).view(np.uint64)
    return pa.Array.from_buffers(type, len(low), [None, pa.py_buffer(words)])


def _combine_chunks(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def comparable(values: pa.Array) -> pa.Array:
    """Cast canonical values to a type of the same order for which Arrow can compute minimum and maximum."""
    if isinstance(values.type, pa.BaseExtensionType):
        return values.storage
    if t.is_boolean(values.type):
        return values.cast(pa.uint8())
    return values.view(pa.int64()) if t.is_timestamp(values.type) else values


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array, without a copy if it has one chunk."""
    if isinstance(column, pa.Array):
        return column
    if not column.num_chunks:
        return pa.nulls(0, column.type)  # Arrow cannot combine no chunks of an extension type
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def array_of(values: Sequence[pa.Scalar]) -> pa.Array:
    """Return one or more scalars of one type as an array."""
    type_ = values[0].type
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, pa.array([scalar.value for scalar in values], type_.storage_type))
    return pa.array(values, type_)


def split_lists(column: pa.ChunkedArray | pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
    """Return (offsets, elements) of a column of lists.

    List i has the elements from offset i to offset i + 1.
    """
    array = one_chunk(column)
    offsets = array.offsets.to_numpy()
    start, stop = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return offsets - start, array.values.slice(start, stop - start).to_numpy()


def build_list_array(lists: Sequence[npt.NDArray[Any] | None], dtype: type[np.generic]) -> pa.ListArray:
    """Return an Arrow array of lists.

    Args:
        lists: The elements of each list; None for null.
        dtype: The numpy type of the elements.
    """
    lengths = [0 if elements is None else len(elements) for elements in lists]
    present = [elements for elements in lists if elements is not None]
    values = np.concatenate(present).astype(dtype, copy=False) if present else np.zeros(0, dtype)
    offsets = np.cumsum([0, *lengths], dtype=np.int32)
    is_null = pa.array([elements is None for elements in lists], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=is_null)


def combine_to_one_chunk(table: pa.Table) -> pa.Table:
    """Return the table with exactly one chunk per column, even if it has no rows."""
    if table.num_rows:
        return table.combine_chunks()
    arrays = [one_chunk(column) for column in table.columns]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows.

    Unlike `Schema.empty_table`, this works with extension types.
    """
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def pad_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of a schema, in its order.

    Columns that the table lacks are null.
    """
    arrays = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type) for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
