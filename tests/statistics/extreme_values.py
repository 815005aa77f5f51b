"""Minimum, maximum and unusual values of every column type, as stored.

Dates, times and timestamps are given as the integers that store them, and UUIDs as bytes.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.statistics.random_columns import Kind

_DAY_10000, _DAY_1 = 2_932_897, -719_162
"""The first days of the years 10000 and 1, in days since 1970-01-01."""
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TEXTS = ["", "a", "é", "\U0001f600", "\uffff", "\x00", "z" * 300]
_BYTES = [b"", b"\x00", b"\xff", b"\xff" * 300, b"abc"]
_FLOATS = {
    16: [65504.0, 5.960464477539063e-08],
    32: [3.4028234663852886e38, 1.401298464324817e-45],
    64: [1.7976931348623157e308, 5e-324, 2.0**53, 0.1],
}


def extremes(kind: Kind) -> list[Any]:
    """Return distinct extreme values of a kind, unordered.

    For a dictionary type, the values are those of its entries.
    """
    type_ = kind.type.value_type if hasattr(kind.type, "value_type") else kind.type
    if pa.types.is_boolean(type_):
        return [False, True]
    if pa.types.is_floating(type_):
        odd = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.0]
        return [*odd, *(sign * value for value in _FLOATS[type_.bit_width] for sign in (1, -1))]
    if pa.types.is_decimal(type_):
        most = 10**type_.precision - 1
        return [Decimal(f"{number}e-{type_.scale}") for number in (-most, 1 - most, -1, 0, 1, 999, most - 1, most)]
    if type_ == pa.uuid():
        return [b"\x00" * 16, b"\xff" * 16, bytes(range(16))]
    if pa.types.is_fixed_size_binary(type_):
        return [bytes([first]) * type_.byte_width for first in (0, 1, 127, 128, 255)]
    if kind.type_class in ("string", "binary"):
        return _TEXTS if kind.type_class == "string" else _BYTES
    low, high = _range(type_)
    candidates = {low, low + 1, (low + high) // 2, high - 1, high, -1001, -1, 0, 1, 999, 1001}
    if kind.type_class.startswith(("date", "timestamp")):
        ticks_of_day = 86_400 * _TICKS[type_.unit] if pa.types.is_timestamp(type_) else 1
        candidates |= {day * ticks_of_day + step for day in (_DAY_1, _DAY_10000) for step in (-1, 0)}
    return sorted(value for value in candidates if low <= value <= high)


def _range(type_: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest integer that stores a value of the type."""
    if pa.types.is_time(type_):
        return 0, 86_400 * _TICKS[type_.unit] - 1
    if pa.types.is_date(type_):
        return -(2**31), 2**31 - 1  # in days, whatever the type
    if pa.types.is_timestamp(type_) and type_.unit == "s":
        return -(2**63) // 1000 + 1, 2**63 // 1000 - 1  # Parquet has milliseconds only
    bits = type_.bit_width
    return (0, 2**bits - 1) if pa.types.is_unsigned_integer(type_) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
