"""Values that all rows of a data file share, and how they are spelled in partition keys and fragment ids.

Such a value is carried as an Arrow array of length one: a scalar becomes a Python value on its way to another process,
and comes back without its nanoseconds, or not at all when it is of a year after 9999.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from metastore_assets.iso8601 import temporal_text
from metastore_assets.startup import pc

Constant: TypeAlias = pa.Array
"""One value, which may be null, as an array of length one."""

_PLACES = (6, 9)
_FAR = 400
"""Powers of ten beyond which, up or down, no decimal of Arrow lies. It writes out the digits of what is further out,
and ends the process where they are millions."""
_FAR_OUT = r"[eE][+-]?0*[1-9][0-9]{3,}\s*$"


def constant(value: Any, type_: pa.DataType | None = None) -> Constant:
    """A Python value as one of that type. Raises what Arrow raises for a value that is not of the type."""
    if isinstance(value, Decimal) and abs(value.adjusted()) > _FAR:
        raise pa.ArrowInvalid(f"{value} is no value of type {type_}")
    return pa.array([value], type_)


def cast_texts(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Texts as values of a type, as Arrow casts them. Raises what that raises for a text that is no value."""
    if pa.types.is_decimal(type_) and pc.any(pc.match_substring_regex(texts, _FAR_OUT)).as_py():
        raise pa.ArrowInvalid(f"a text has an exponent that no value of type {type_} has")
    return pc.cast(texts, type_)


def unscaled_decimal(unscaled: int, type_: pa.DataType) -> Constant:
    """A decimal of that type by its digits as an integer. Raises what Arrow raises when they are too many."""
    return constant(Decimal(f"{unscaled}e{-type_.scale}"), type_)


def repeated(value: Constant, count: int) -> pa.Array:
    """The same value in so many rows."""
    return pa.repeat(value[0], count) if not value.null_count else pa.nulls(count, value.type)


def is_nan(value: Constant) -> bool:
    """Whether the value is a number that is not equal to itself."""
    return pa.types.is_floating(value.type) and bool(pc.is_nan(value)[0].as_py())


def value_text(value: Constant) -> str | None:
    """Text of a partition value, distinct for distinct values of one type; None for null.

    Dates and times as ISO 8601 (timestamps with a `Z` when they are instants), decimals without exponent, binary as
    hex.
    """
    if value.null_count:
        return None
    if pa.types.is_temporal(value.type):
        return _text(_ticks(value)[0].as_py(), value.type)
    plain = value[0].as_py()
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, bytes):
        return plain.hex()
    if isinstance(plain, Decimal):
        return f"{plain:f}"
    if isinstance(plain, float):
        # The shortest text that reads back as the same number of that width; zero has one text.
        return str(np.float32(plain + 0.0)) if pa.types.is_float32(value.type) else repr(plain + 0.0)
    return str(plain)


def dates_as_text(array: pa.Array) -> pa.Array:
    """The array with dates and timestamps, inside of structs too, as text, which Python holds whatever their year."""
    if pa.types.is_struct(array.type):
        children = [dates_as_text(array.field(index)) for index in range(array.type.num_fields)]
        names = [field.name for field in array.type]
        return pa.StructArray.from_arrays(children, names, mask=array.is_null()) if names else array
    if pa.types.is_date32(array.type) or pa.types.is_timestamp(array.type):
        ticks = _ticks(array).to_pylist()
        return pa.array([None if one is None else _text(one, array.type) for one in ticks], pa.string())
    return array


def _ticks(array: pa.Array) -> pa.Array:
    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())


def _text(ticks: int, type_: pa.DataType) -> str:
    return temporal_text(ticks, type_, " ", _PLACES)
