"""Single values as JSON, without loss of precision.

The JSON of a value is the same in all releases.

Dates, times, timestamps and durations are ISO 8601 text, to the nanosecond and of any year (see `iso8601`); with a time
zone they are in UTC and end in `Z`. Decimals, and integers beyond 2**53, are text. Binary is hexadecimal text. Floats
without a JSON number are "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.iso8601 import TICKS, date_text, temporal_text
from metastore_assets.values.types import is_text

Json = dict[str, Any]

_MAX_EXACT = 2**53
"""The greatest magnitude up to which integers are exact in every JSON reader."""
_MILLISECONDS_OF_A_DAY = 86_400_000
_WRAPPERS = (pa.DictionaryScalar, pa.UnionScalar, pa.RunEndEncodedScalar)


def scalar_json(value: pa.Scalar | None) -> Any:
    """Return a value of a column as JSON, as the module describes; None for None and null."""
    if value is None or not value.is_valid:
        return None
    if isinstance(value, pa.ExtensionScalar):
        return str(value.as_py())
    if t.is_boolean(value.type):
        return value.as_py()
    if t.is_integer(value.type):
        return integer_json(value.as_py())
    if t.is_floating(value.type):
        return float_json(value.as_py())
    if t.is_decimal(value.type):
        return f"{value.as_py():f}"
    if t.is_interval(value.type):
        return _interval_text(*value.as_py())
    if t.is_duration(value.type):
        return _interval_text(0, 0, value.value * (TICKS["ns"] // TICKS[value.type.unit]))
    if t.is_date64(value.type):
        return date_text(value.value // _MILLISECONDS_OF_A_DAY)
    if t.is_temporal(value.type):
        return temporal_text(value.value, value.type)
    data = value.as_buffer().to_pybytes()
    if is_text(value.type):
        # Parquet files may contain invalid UTF-8 as text; its bytes are escaped.
        return data.decode("utf-8", "backslashreplace")
    return data.hex()


def scalar_text(value: pa.Scalar) -> str:
    """Return a value as text for messages, even if Python cannot represent it.

    Python cannot represent years beyond 9999 and invalid UTF-8.
    """
    is_timed = t.is_temporal(value.type) and not t.is_duration(value.type) and not t.is_interval(value.type)
    return str(scalar_json(value)) if value.is_valid and (is_timed or is_text(value.type)) else str(value)


def value_repr(value: object) -> str:
    """Return `repr(value)`, or a substitute if it fails, as for a date after the year 9999.

    The substitute of an Arrow scalar contains its `scalar_text`. The substitute of a tuple contains `value_repr` of
    each item. The substitute of any other value is `…`.
    """
    try:
        return repr(value)
    except (OverflowError, ValueError):
        if isinstance(value, tuple):
            return f"({', '.join(map(value_repr, value))})"
        return f"<pyarrow.{type(value).__name__}: {scalar_text(value)}>" if isinstance(value, pa.Scalar) else "…"


class ScalarFieldsRepr:
    """A base of dataclasses whose fields may be Arrow scalars.

    Pass `repr=False` to `dataclass`.

    The repr that `dataclass` writes fails for dates before the year 1 and after the year 9999.
    """

    def __repr__(self) -> str:
        names = [each.name for each in fields(self) if each.repr]  # type: ignore[arg-type] # Subclasses are dataclasses.
        return f"{type(self).__qualname__}({', '.join(f'{name}={value_repr(getattr(self, name))}' for name in names)})"


def value_json(value: pa.Scalar) -> Any:
    """Return a value of any type as JSON.

    A list becomes an array, a map an array of pairs, and a struct an object. A value of a dictionary, union,
    run-end-encoded or extension type becomes the JSON of the value that it encodes. Null becomes None.
    """
    if not value.is_valid:
        return None
    if isinstance(value, _WRAPPERS) or (isinstance(value, pa.ExtensionScalar) and value.type != pa.uuid()):
        return value_json(value.value)
    if t.is_struct(value.type):
        return {name: value_json(item) for name, item in value.items()}
    if t.is_map(value.type):
        return [[value_json(item) for item in entry.values()] for entry in value.values]
    if t.is_nested(value.type):
        return [value_json(item) for item in value.values]
    return scalar_json(value)


def _interval_text(months: int, days: int, nanoseconds: int) -> str:
    """Return an interval of SQL as ISO 8601 text, whose parts may have different signs: `P1M-2DT3.5S`."""
    seconds, remainder = divmod(abs(nanoseconds), TICKS["ns"])
    fraction = f".{remainder:09}".rstrip("0") if remainder else ""
    sign = "-" if nanoseconds < 0 else ""
    time = f"T{sign}{seconds}{fraction}S" if nanoseconds else ""
    dates = "".join(f"{number}{unit}" for number, unit in ((months, "M"), (days, "D")) if number)
    return f"P{dates}{time}" if dates or time else "PT0S"


def integer_json(value: int | None) -> int | str | None:
    """Return an integer as JSON: a number, or text if its magnitude exceeds 2**53."""
    return value if value is None or abs(value) <= _MAX_EXACT else str(value)


def float_json(value: float | None) -> float | str | None:
    """Return a float as JSON: a number, or text if it is not finite."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def time_json(time: datetime | None) -> str | None:
    """Return a time with a zone as ISO 8601 text in UTC, with `Z`; None for None."""
    return None if time is None else f"{time.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"
