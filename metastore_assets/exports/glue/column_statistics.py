"""Conversion of column statistics to requests of AWS Glue, and from its responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from metastore_assets.exports.declared_statistics import DeclaredStatistics, Kind
from metastore_assets.exports.hive.column_statistics import unscaled_bytes
from metastore_assets.iso8601 import EPOCH

_NAMES: dict[Kind, str] = {
    "binary": "Binary",
    "boolean": "Boolean",
    "date": "Date",
    "decimal": "Decimal",
    "double": "Double",
    "long": "Long",
    "string": "String",
    "timestamp": "Long",
}


def to_request(statistics: Iterable[DeclaredStatistics], analyzed_at: datetime) -> list[dict[str, Any]]:
    """Convert statistics to a list of Glue's type `ColumnStatistics`, with one item per column.

    Args:
        statistics: The statistics of the columns.
        analyzed_at: The time at which they were computed.
    """
    return [
        {
            "ColumnName": column.column,
            "ColumnType": column.type,
            "AnalyzedTime": analyzed_at,
            "StatisticsData": {
                "Type": _NAMES[column.kind].upper(),
                f"{_NAMES[column.kind]}ColumnStatisticsData": _numbers(column),
            },
        }
        for column in statistics
    ]


def _numbers(column: DeclaredStatistics) -> dict[str, Any]:
    """Return a column's statistics by their names in Glue's API.

    Which statistics a column has depends on its kind.
    """
    numbers: dict[str, Any] = {"NumberOfNulls": column.nulls}
    if column.kind == "boolean":
        return {**numbers, "NumberOfTrues": column.trues, "NumberOfFalses": column.falses}
    if column.kind in ("string", "binary"):
        numbers |= {"MaximumLength": column.maximum_length, "AverageLength": float(column.mean_length)}
    if column.kind != "binary":
        numbers["NumberOfDistinctValues"] = column.distinct
    for name, bound in (("MinimumValue", column.minimum), ("MaximumValue", column.maximum)):
        value = None if bound is None else _bound(column, bound)
        if value is not None:
            numbers[name] = value
    return numbers


def _bound(column: DeclaredStatistics, bound: int | float) -> Any:
    """Convert a minimum or maximum to the value that a request to Glue contains.

    A decimal becomes `{"UnscaledValue": bytes, "Scale": 2}`, and a date a `datetime`. Other bounds stay numbers. The
    result is None for a date outside the years 1 to 9999.
    """
    if column.kind == "decimal":
        return {"UnscaledValue": unscaled_bytes(int(bound)), "Scale": column.scale}
    if column.kind == "date":
        try:
            return EPOCH + timedelta(days=bound)
        except OverflowError:
            return None
    return bound


def read_response(statistics: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Convert a list of Glue's type `ColumnStatistics` to a mapping: `{"amount": {"NumberOfNulls": 3}}`."""
    result = {}
    for column in statistics:
        data = column["StatisticsData"]
        (numbers,) = (part for name, part in data.items() if name != "Type")
        result[column["ColumnName"]] = dict(numbers)
    return result
