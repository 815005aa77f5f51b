"""Partition values as text: one text for each value, readable, the same whichever way the table's metadata spell it."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def value_text(value: pa.Scalar) -> str | None:
    """Text of a partition value, distinct for distinct values of one type; None for null.

    Dates and timestamps as ISO 8601 (with a `Z` when they are instants), decimals without exponent, binary as hex.
    """
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(value.type):
        return _timestamp_text(value)
    plain = value.as_py()
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, bytes):
        return plain.hex()
    if isinstance(plain, Decimal):
        return f"{plain:f}"
    if isinstance(plain, date):
        return plain.isoformat()
    if isinstance(plain, float):
        # The shortest text that reads back as the same number of that width; zero has one text.
        return str(np.float32(plain + 0.0)) if pa.types.is_float32(value.type) else repr(plain + 0.0)
    return str(plain)


def _timestamp_text(value: pa.Scalar) -> str:
    finer = value.value % 1000 if value.type.unit == "ns" else 0
    moment: datetime = pc.floor_temporal(value, unit="microsecond").cast(pa.timestamp("us")).as_py()
    text = moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds" if finer else "auto")
    text += f"{finer:03}" if finer else ""
    return f"{text}Z" if value.type.tz else text
