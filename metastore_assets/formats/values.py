"""Constants, and the texts of their values in partition keys and fragment ids.

A constant is a value that all rows of a data file share, such as a partition value. It is stored as an Arrow array of
length one. An Arrow scalar would be pickled as a Python value, which loses nanoseconds and years after 9999.

A partition key is a text such as `day=2024-01-01`. A fragment is a data file with the deletes that apply to it; its id
is a digest of everything that determines its rows.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from metastore_assets.iso8601 import temporal_text
from metastore_assets.startup import pc

Constant: TypeAlias = pa.Array
"""One value, which may be null, as an Arrow array of length one."""

_DECIMAL_PLACES = (6, 9)
_MAX_EXPONENT = 400
"""Maximum decimal exponent. No decimal of Arrow has a larger one. Arrow would write out such a number, and millions of
digits end the process."""
_LARGE_EXPONENT = r"[eE][+-]?0*[1-9][0-9]{3,}\s*$"


def constant(value: Any, type_: pa.DataType | None = None) -> Constant:
    """Return a Python value as a constant of a type.

    Without `type_`, Arrow infers the type from the value. Raises the errors of `pa.array` if the value is not of the
    type, and ArrowInvalid for a decimal with a huge exponent.
    """
    if isinstance(value, Decimal) and abs(value.adjusted()) > _MAX_EXPONENT:
        raise pa.ArrowInvalid(f"{value} is no value of type {type_}")
    return pa.array([value], type_)


def cast_texts(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast texts to a type.

    Raises ArrowInvalid for a text that is not a value of the type.
    """
    if pa.types.is_decimal(type_) and pc.any(pc.match_substring_regex(texts, _LARGE_EXPONENT)).as_py():
        raise pa.ArrowInvalid(f"a text has an exponent that no value of type {type_} has")
    return pc.cast(texts, type_)


def unscaled_decimal(unscaled_value: int, type_: pa.DataType) -> Constant:
    """Return the constant `unscaled_value * 10**-scale` of a decimal type with this scale.

    Raises ArrowInvalid if the number has too many digits.
    """
    return constant(Decimal(f"{unscaled_value}e{-type_.scale}"), type_)


def repeat_constant(value: Constant, count: int) -> pa.Array:
    """Return an array that repeats a constant `count` times."""
    return pa.repeat(value[0], count) if not value.null_count else pa.nulls(count, value.type)


def is_nan(value: Constant) -> bool:
    """Return True if a constant is NaN."""
    return pa.types.is_floating(value.type) and bool(pc.is_nan(value)[0].as_py())


def value_text(value: Constant) -> str | None:
    """Return the text of a constant in a partition key; None for null.

    Distinct values of one type have distinct texts. Dates and times are ISO 8601; binary values are hexadecimal.
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
        # Use the shortest text that parses to the same number. Zero and minus zero have one text.
        return str(np.float32(plain + 0.0)) if pa.types.is_float32(value.type) else repr(plain + 0.0)
    return str(plain)


def dates_as_text(array: pa.Array) -> pa.Array:
    """Return an array with its dates and timestamps as texts, also those in structs.

    Other values stay unchanged.

    Unlike dates of Python, the texts have no limit at the year 9999.
    """
    if pa.types.is_struct(array.type):
        children = [dates_as_text(array.field(index)) for index in range(array.type.num_fields)]
        names = [field.name for field in array.type]
        return pa.StructArray.from_arrays(children, names, mask=array.is_null()) if names else array
    if pa.types.is_date32(array.type) or pa.types.is_timestamp(array.type):
        ticks = _ticks(array).to_pylist()
        return pa.array([None if number is None else _text(number, array.type) for number in ticks], pa.string())
    return array


def _ticks(array: pa.Array) -> pa.Array:
    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())


def _text(ticks: int, type_: pa.DataType) -> str:
    return temporal_text(ticks, type_, " ", _DECIMAL_PLACES)
