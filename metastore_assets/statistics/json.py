"""JSON of rows of statistics; `values.json` defines the JSON of single values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from metastore_assets.statistics.column import STATISTICS, ColumnStatistics
from metastore_assets.statistics.declaration import StatisticKind
from metastore_assets.statistics.frequencies import Percentiles
from metastore_assets.statistics.user_defined.results import UserResult
from metastore_assets.values.json import Json, float_json, integer_json, scalar_json, value_json


def column_to_json(row: ColumnStatistics) -> Json:
    """Return the JSON of a row: null where a statistic is unknown or not defined for the type.

    User-defined statistics are under the key `user_defined`, by name.
    """
    reported = (statistic for statistic in STATISTICS.values() if statistic.is_reported)
    fields = {each.name: _FORMATTERS[each.kind](getattr(row, each.name), row) for each in reported}
    return {**fields, "user_defined": {name: _result_json(result) for name, result in row.user_defined.items()}}


def _result_json(result: UserResult) -> Json:
    return {"value": value_json(result.value), "guarantee": result.guarantee, "reason": result.reason}


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


_FORMATTERS: Mapping[StatisticKind, Callable[[Any, ColumnStatistics], Any]] = {
    "position": lambda value, row: value,
    "count": lambda value, row: integer_json(value),
    "measure": lambda value, row: float_json(value),
    "flag": lambda value, row: value,
    "text": lambda value, row: value,
    "bytes": lambda value, row: None if value is None else value.hex(),
    "sum": _sum_json,
    "value": lambda value, row: scalar_json(value),
    "percentiles": lambda value, row: _percentiles_json(value),
}
"""By kind of statistic: a function that returns the JSON of a value, given its row."""
