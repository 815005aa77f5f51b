"""The columns of a table in Spark's session catalog, and bounds as Spark's texts and doubles."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.exports.table_properties import join_property
from metastore_assets.iso8601 import TICKS, date_text, timestamp_text
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.values.physical import physical_value

_INTEGERS = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
_SIZES = {**_INTEGERS, "float": 4, "double": 8, "boolean": 1, "date": 4, "timestamp": 8}
"""Width in bytes by type, as Spark reports it for `avgLen` and `maxLen`."""
_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""Types in the JSON of Spark's schemas, and their names in SQL."""
_DECIMAL = re.compile(r"decimal\((\d+),\s*-?\d+\)")
_YEAR = re.compile(r"\d{4}-")
_TEXT = re.compile(r"string|(var)?char(\(\d+\))?")


@dataclass(frozen=True)
class SparkColumn:
    """A top-level column as the catalog declares it."""

    name: str
    type: str
    """Spark's name of the type in lower case, such as `bigint` or `decimal(12,2)`; empty for a nested type."""

    @property
    def is_text(self) -> bool:
        """Whether the column has strings or bytes.

        Spark stores no bounds for these types.
        """
        return self.type == "binary" or _TEXT.fullmatch(self.type) is not None

    def accepts(self, type_class: str | None) -> bool:
        """Return whether statistics of a type class fit the column's type.

        False for types without statistics in Spark, such as `timestamp_ntz`.

        Args:
            type_class: The type class of the values, such as `int64` or `decimal_2`; None if unknown.
        """
        if type_class is None:
            return False
        if self.is_text:
            return type_class in ("string", "binary", "uuid")
        if _DECIMAL.fullmatch(self.type):
            return type_class.startswith("decimal_")
        if self.type == "timestamp":
            return type_class.startswith("timestamp")
        expected = {"float": "float64", "double": "float64", "boolean": "boolean", "date": "date"}
        return type_class in ("int64", "uint64") if self.type in _INTEGERS else expected.get(self.type) == type_class

    @property
    def size(self) -> int:
        """The width of a value in bytes, by Spark's default sizes.

        Raises KeyError for types such as `string`.
        """
        decimal = _DECIMAL.fullmatch(self.type)
        return _SIZES[self.type] if decimal is None else 8 if int(decimal[1]) <= 18 else 16


def spark_columns(parameters: Mapping[str, str], declared_types: Mapping[str, str]) -> list[SparkColumn]:
    """Return the top-level columns of a table, partition columns included.

    Args:
        parameters: The table's properties. If Spark created the table, one of them is Spark's schema.
        declared_types: Hive's types by column name. Used if the properties contain no schema.

    Raises:
        ValueError: The schema in the properties cannot be read.
    """
    text = join_property(parameters, "spark.sql.sources.schema")
    if not text:
        return [SparkColumn(name, type_.lower()) for name, type_ in declared_types.items()]
    try:
        fields = [(str(field["name"]), field["type"]) for field in json.loads(text)["fields"]]
    except (ValueError, KeyError, TypeError):
        raise ValueError("its schema in spark.sql.sources.schema cannot be read") from None
    # The JSON of a nested type is an object instead of a name.
    return [SparkColumn(name, _NAMES.get(type_, type_) if isinstance(type_, str) else "") for name, type_ in fields]


def find_bounds(column: SparkColumn, row: ColumnStatistics) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return (minimum, maximum) of a column, or None if Spark could not use these bounds.

    Spark can use no bound that is infinite as a double, and no date or timestamp whose year does not have four digits.
    The result is also None if one of the bounds is unknown.
    """
    if row.minimum is None or row.maximum is None:
        return None
    bounds = (row.minimum, row.maximum)
    # Spark divides by maximum - minimum.
    if not all(math.isfinite(value_as_double(column, bound)) for bound in bounds):
        return None
    is_time = column.type in ("date", "timestamp")
    return None if is_time and not all(_YEAR.match(format_value(column, bound)) for bound in bounds) else bounds


def format_value(column: SparkColumn, value: pa.Scalar) -> str:
    """Format a bound as Spark parses it.

    Timestamps are in UTC with microseconds: `2024-01-01 10:00:00.000000`.
    """
    if t.is_boolean(value.type):
        return "true" if value.as_py() else "false"
    number = physical_value(value)
    if column.type == "float":
        return str(np.float32(number))
    if t.is_date32(value.type):
        return date_text(int(number))
    if t.is_timestamp(value.type):
        return _timestamp_text(_microseconds(value))
    return f"{value.as_py():f}" if t.is_decimal(value.type) else str(number)


def value_as_double(column: SparkColumn, value: pa.Scalar) -> float:
    """Convert a value to the double that Spark compares with histogram edges.

    Dates become days and timestamps microseconds since 1970. A 32-bit float becomes the double with the same text.
    """
    if t.is_boolean(value.type):
        return float(value.as_py())
    number = physical_value(value)
    if column.type == "float":
        return float(str(np.float32(number)))
    if t.is_timestamp(value.type):
        return float(_microseconds(value))
    return float(Fraction(int(number), 10**value.type.scale)) if t.is_decimal(value.type) else float(number)


def _timestamp_text(microseconds: int) -> str:
    seconds, fraction = divmod(microseconds, 10**6)
    return f"{timestamp_text(seconds, 's', ' ')}.{fraction:06d}"


def _microseconds(value: pa.Scalar) -> int:
    return int(physical_value(value)) * 10**6 // TICKS[value.type.unit]
