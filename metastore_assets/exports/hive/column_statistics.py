"""Conversion of column statistics to objects of the Hive metastore's Thrift interface, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from metastore_assets.exports.declared_statistics import DeclaredStatistics

if TYPE_CHECKING:
    from hive_metastore.ttypes import ColumnStatisticsData, ColumnStatisticsObj

_FIELDS = {
    "binary": "binaryStats",
    "boolean": "booleanStats",
    "date": "dateStats",
    "decimal": "decimalStats",
    "double": "doubleStats",
    "long": "longStats",
    "string": "stringStats",
    "timestamp": "longStats",
}
"""The field of `ColumnStatisticsData` by kind. Hive 2 and 3 have no field for timestamps, and use that of numbers."""


def to_thrift(statistics: Iterable[DeclaredStatistics]) -> list[ColumnStatisticsObj]:
    """Convert statistics to Thrift objects, one per column.

    The optional bit vectors are not set.
    """
    from hive_metastore.ttypes import ColumnStatisticsObj

    return [ColumnStatisticsObj(column.column, column.type, _data(column)) for column in statistics]


def _data(column: DeclaredStatistics) -> ColumnStatisticsData:
    """Return a column's statistics as the object that Hive's API has for columns of this kind."""
    from hive_metastore import ttypes

    counts: dict[str, Any] = {"numNulls": column.nulls}
    lengths = {"maxColLen": column.maximum_length, "avgColLen": float(column.mean_length)}
    if column.kind == "boolean":
        value = ttypes.BooleanColumnStatsData(numTrues=column.trues, numFalses=column.falses, **counts)
    elif column.kind == "binary":
        value = ttypes.BinaryColumnStatsData(**lengths, **counts)
    else:
        counts["numDVs"] = column.distinct
        low, high = column.minimum, column.maximum
        if column.kind == "string":
            value = ttypes.StringColumnStatsData(**lengths, **counts)
        elif column.kind == "double":
            value = ttypes.DoubleColumnStatsData(lowValue=low, highValue=high, **counts)
        elif column.kind == "date":
            dates = [None if bound is None else ttypes.Date(bound) for bound in (low, high)]
            value = ttypes.DateColumnStatsData(lowValue=dates[0], highValue=dates[1], **counts)
        elif column.kind == "decimal":
            decimals = [
                None if bound is None else ttypes.Decimal(unscaled=unscaled_bytes(int(bound)), scale=column.scale)
                for bound in (low, high)
            ]
            value = ttypes.DecimalColumnStatsData(lowValue=decimals[0], highValue=decimals[1], **counts)
        else:
            value = ttypes.LongColumnStatsData(lowValue=low, highValue=high, **counts)
    return ttypes.ColumnStatisticsData(**{_FIELDS[column.kind]: value})


def unscaled_bytes(value: int) -> bytes:
    """Encode an integer as Java's `BigInteger.toByteArray` does.

    The result is big-endian two's complement with the fewest bytes.
    """
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def read_thrift(statistics: Iterable[ColumnStatisticsObj]) -> dict[str, dict[str, Any]]:
    """Convert Thrift objects to a mapping: `{"amount": {"numNulls": 3, "lowValue": 1}}`.

    Dates are days since 1970.
    """
    return {column.colName: _numbers(column.statsData) for column in statistics}


def _numbers(data: ColumnStatisticsData) -> dict[str, Any]:
    (value,) = (part for part in vars(data).values() if part is not None)
    return {name: _plain(number) for name, number in vars(value).items() if number is not None}


def _plain(number: Any) -> Any:
    if hasattr(number, "unscaled"):
        return int.from_bytes(number.unscaled, "big", signed=True) / 10**number.scale
    return getattr(number, "daysSinceEpoch", number)
