"""Statistics and values as JSON: stable, valid, every value exact.

Dates, times and timestamps are ISO 8601, to the nanosecond and of any year (see `iso8601`; with a zone: UTC, ending in
`Z`); decimals, and integers beyond 2**53, are text; binary is hexadecimal; floats without a JSON number are "NaN",
"Infinity" and "-Infinity".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.iso8601 import temporal_text
from metastore_assets.statistics.column import STATISTICS, ColumnStatistics
from metastore_assets.statistics.declared import Kind
from metastore_assets.statistics.frequencies import Percentiles
from metastore_assets.statistics.user_defined.results import Result

Json = dict[str, Any]

_EXACT = 2**53
"""Integers up to this magnitude are exact in every JSON reader."""


def column_json(row: ColumnStatistics) -> Json:
    """One row of statistics. null where a statistic is not known or not defined for the type.

    User-defined statistics are under the key `user_defined`, by name.
    """
    told = {name: _FORMS[own.kind](getattr(row, name), row) for name, own in STATISTICS.items() if own.is_told}
    return {**told, "user_defined": {name: _result_json(own) for name, own in row.user_defined.items()}}


def scalar_json(value: pa.Scalar | None) -> Any:
    """One value of a column as JSON; None for None and null."""
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
    if t.is_temporal(value.type):
        return temporal_text(value.value, value.type)
    data = value.as_buffer().to_pybytes()
    if t.is_string(value.type) or t.is_large_string(value.type):
        # Parquet files may call bytes text that are none; they are shown, not refused.
        return data.decode("utf-8", "backslashreplace")
    return data.hex()


def _result_json(result: Result) -> Json:
    return {"value": value_json(result.value), "guarantee": result.guarantee, "reason": result.reason}


def value_json(value: pa.Scalar) -> Any:
    """A value of any type as JSON: lists and maps, whose entries are pairs, as lists; structs as objects."""
    if not value.is_valid:
        return None
    if t.is_struct(value.type):
        return {name: value_json(own) for name, own in value.items()}
    if t.is_map(value.type):
        return [[value_json(own) for own in entry.values()] for entry in value.values]
    if t.is_nested(value.type):
        return [value_json(own) for own in value.values]
    return scalar_json(value)


def integer_json(value: int | None) -> int | str | None:
    """An integer, as text beyond 2**53."""
    return value if value is None or abs(value) <= _EXACT else str(value)


def float_json(value: float | None) -> float | str | None:
    """A float, as text when it is not finite."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _sum_json(value: str | None, row: ColumnStatistics) -> int | float | str | None:
    if value is None or row.type_class is None:
        return value
    if row.type_class == "float64":
        return float_json(float(value))
    return integer_json(int(value)) if row.type_class in ("int64", "uint64") else value


def _percentiles_json(percentiles: Percentiles | None) -> list[Json] | None:
    if percentiles is None:
        return None
    return [{"fraction": fraction, "value": scalar_json(value)} for fraction, value in percentiles]


_FORMS: Mapping[Kind, Callable[[Any, ColumnStatistics], Any]] = {
    "place": lambda value, row: value,
    "count": lambda value, row: integer_json(value),
    "measure": lambda value, row: float_json(value),
    "flag": lambda value, row: value,
    "text": lambda value, row: value,
    "bytes": lambda value, row: None if value is None else value.hex(),
    "sum": _sum_json,
    "value": lambda value, row: scalar_json(value),
    "percentiles": lambda value, row: _percentiles_json(value),
}
"""The JSON of each kind of statistic, of a value and the row that it is in."""
