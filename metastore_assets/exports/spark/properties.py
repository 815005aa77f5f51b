"""Conversion of statistics to the table properties in which Spark stores them.

`ANALYZE TABLE … COMPUTE STATISTICS FOR COLUMNS` of Spark 3.5 and 4 writes the same properties. Spark's classes
`CatalogColumnStat` and `HiveExternalCatalog` define them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from metastore_assets.exports.spark.catalog_columns import SparkColumn, find_bounds, format_value
from metastore_assets.exports.spark.histograms import EquiHeightHistogram, encode_histogram
from metastore_assets.exports.table_properties import join_property, split_property
from metastore_assets.statistics.column import ColumnStatistics

PREFIX = "spark.sql.statistics."
SIZE = f"{PREFIX}totalSize"
"""The property that Spark itself updates after a write, if `spark.sql.statistics.size.autoUpdate.enabled` is set."""
_ROWS = f"{PREFIX}numRows"
_COLUMN_PREFIX = f"{PREFIX}colStats."
_STATISTICS = ("distinctCount", "nullCount", "avgLen", "maxLen", "min", "max", "histogram")
_VERSION = "2"
_MAX_KEY = 256
"""The greatest length of the key of a property in a Hive metastore."""


def table_properties(rows: int, size: int) -> dict[str, str]:
    """Return the two properties with a table's number of rows and its size in bytes."""
    return {SIZE: str(size), _ROWS: str(rows)}


def column_properties(
    column: SparkColumn, row: ColumnStatistics, histogram: Callable[[], EquiHeightHistogram | None]
) -> dict[str, str]:
    """Return the properties with the statistics of a column.

    The result is empty if Spark would misread the statistics, or if a key is too long for a Hive metastore. For
    example, if bounds or the distinct count are missing, Spark assumes that a number, date or boolean column has only
    nulls.

    Args:
        column: The column in Spark's catalog.
        row: The statistics of the column. If its values are hidden, only the numbers of values and of nulls are known.
        histogram: Called for columns with bounds. Returns the histogram, or None.
    """
    texts: dict[str, str | None] = {"version": _VERSION, "nullCount": str(row.null_count)}
    distinct = _distinct_without_nan(row)
    if distinct is not None:
        texts["distinctCount"] = str(distinct)
    if column.is_text:
        if row.mean_length is not None and row.maximum_length is not None:
            texts |= {"avgLen": str(math.ceil(row.mean_length)), "maxLen": str(row.maximum_length)}
    else:
        bounds = find_bounds(column, row)
        if distinct is None or (bounds is None and distinct > 0):
            return {}
        texts |= {"avgLen": str(column.size), "maxLen": str(column.size)}
        if bounds is not None:
            texts |= {"min": format_value(column, bounds[0]), "max": format_value(column, bounds[1])}
            bins = histogram()
            texts["histogram"] = None if bins is None else encode_histogram(bins)
    properties: dict[str, str] = {}
    for name, text in texts.items():
        if text is not None:
            properties |= split_property(f"{_COLUMN_PREFIX}{column.name}.{name}", text)
    return {} if any(len(key) > _MAX_KEY for key in properties) else properties


def _distinct_without_nan(row: ColumnStatistics) -> int | None:
    """Return the number of distinct values except NaN; None if unknown."""
    if row.distinct_count is None:
        return None
    return max(0, row.distinct_count - 1) if row.nan_count else row.distinct_count


def parse_column_properties(properties: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Convert a table's properties to `{"": {"numRows": "9"}, "id": {"nullCount": "0"}}`.

    The empty name stands for the whole table. Other properties are ignored.
    """
    result = {
        "": {name: properties[key] for name, key in (("totalSize", SIZE), ("numRows", _ROWS)) if key in properties}
    }
    for key in properties:
        if key.startswith(_COLUMN_PREFIX) and key.endswith(".version"):
            column = key.removeprefix(_COLUMN_PREFIX).removesuffix(".version")
            texts = {name: join_property(properties, f"{_COLUMN_PREFIX}{column}.{name}") for name in _STATISTICS}
            result[column] = {name: text for name, text in texts.items() if text}
    return result
