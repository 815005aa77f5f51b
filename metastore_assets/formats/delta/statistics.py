"""Bounds of a column in one data file, from the statistics of the file in a Delta log.

Null count, minimum and maximum each have a guarantee: `exact`, `bound` (only a limit of the values) or `absent`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import pyarrow as pa

from metastore_assets.formats.bounds import FragmentBounds
from metastore_assets.formats.delta.actions import AddedFile
from metastore_assets.formats.delta.protocol import MappingMode
from metastore_assets.formats.values import constant
from metastore_assets.iso8601 import TICKS, parse_date, parse_timestamp
from metastore_assets.statistics.declaration import Guarantee

_FOUR_DIGITS = re.compile(r"(?!0000)\d{4}-")
_YEAR_10000 = 253_402_300_800
"""Seconds from 1970 to the year 10000. Writers differ in how they write and truncate later years, so bounds in them are
not used."""
_DOUBLE_DIGITS = 15
"""Number of decimal digits that a double holds exactly. Some writers convert decimals to doubles."""
_DOUBLE_ERROR = Decimal(2) ** -52
_ENDS_OF_INT64 = (-(2**63), 2**63 - 1)
"""The least and the greatest 64-bit integer. The writer deltalake records them in place of decimals of scale 0 that do
not fit into 64 bits."""
_WIDE = Context(prec=80)
_OLD_END = "\ufffd"
_GREATEST = "\U0010ffff"
"""The greatest character."""

_Bound = tuple[Any, Guarantee]
_UNKNOWN: _Bound = (None, "absent")


@dataclass(frozen=True)
class StatisticsColumn:
    """A leaf column, with the names by which the log's statistics refer to it."""

    path: tuple[str, ...]
    """Physical names from the top-level column down."""
    type: pa.DataType
    is_widened: bool
    """Whether the column's type was widened. Older files then have a narrower type."""


def statistics_column(
    fields: list[dict[str, Any]], path: tuple[pa.Field, ...], mode: MappingMode
) -> StatisticsColumn | None:
    """Return the names that statistics use for a leaf column; None if it can have no statistics.

    Variants, and columns below lists and maps, have none.

    Args:
        fields: the fields of the schema in Delta's JSON.
        path: Arrow fields from the top-level column down to the leaf.
        mode: the column mapping of the table.
    """
    names = []
    field: dict[str, Any] = {}
    for part in path:
        matching_fields = [candidate for candidate in fields if candidate["name"] == part.name]
        if not matching_fields:
            return None
        field = matching_fields[0]
        names.append(physical_name(field, mode))
        type_ = field["type"]
        fields = type_["fields"] if isinstance(type_, dict) and type_["type"] == "struct" else []
    if not isinstance(field["type"], str) or field["type"] == "variant":
        return None
    return StatisticsColumn(tuple(names), path[-1].type, "delta.typeChanges" in (field.get("metadata") or {}))


def physical_name(field: Mapping[str, Any], mode: MappingMode) -> str:
    """Return the name by which statistics and partition values refer to a field.

    With column mapping, it is the field's physical name. Without, it is the field's name, even if the schema still has
    a physical name from another table.
    """
    name: str = field["name"]
    return name if mode == "none" else (field.get("metadata") or {}).get("delta.columnMapping.physicalName", name)


def file_bounds(add: AddedFile, column: StatisticsColumn) -> FragmentBounds:
    """Return the null count, minimum and maximum of a column in a data file.

    Without valid statistics they are absent.
    """
    statistics = add.statistics
    if isinstance(statistics, str):
        try:
            statistics = json.loads(statistics, parse_float=Decimal)
        except (ValueError, RecursionError):  # replay checked only the start of the text
            statistics = None
    if not isinstance(statistics, Mapping):
        return FragmentBounds()
    # A minimum or maximum may be the value of a deleted row.
    is_tight = add.vector is None and statistics.get("tightBounds") is not False
    minimum, maximum = (
        _bound(_nested_value(statistics.get(f"{side}Values"), column.path), column, side == "max", is_tight)
        for side in ("min", "max")
    )
    return FragmentBounds(
        _null_count(_nested_value(statistics.get("nullCount"), column.path), add, is_tight), minimum, maximum
    )


def _nested_value(values: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of nested objects; None if it is missing."""
    for name in path:
        values = values.get(name) if isinstance(values, Mapping) else None
    return values


def _null_count(count: Any, add: AddedFile, is_tight: bool) -> _Bound:
    """Return the null count of the live rows of a file, with its guarantee.

    The result is absent if `count` is invalid, or if the log does not record the row count of the file. If `count` may
    include deleted rows (`is_tight` is False), it is also absent, unless `count` is 0 or the number of all rows.
    """
    if not isinstance(count, int) or add.row_count is None or not 0 <= count <= add.row_count:
        return _UNKNOWN
    if is_tight or count == 0:
        return count, "exact"
    if count == add.row_count:
        return count - (add.vector.cardinality if add.vector else 0), "exact"
    return _UNKNOWN


def _bound(value: Any, column: StatisticsColumn, is_maximum: bool, is_tight: bool) -> _Bound:
    """Return a recorded minimum or maximum with its guarantee; `_UNKNOWN` if `value` is not usable.

    Args:
        value: The bound in JSON.
        column: The column.
        is_maximum: Whether it is a maximum.
        is_tight: False if the bound may be that of deleted rows.
    """
    try:
        decoded_value, is_value = _decode_bound(value, column, is_maximum)
        if decoded_value is None:
            return _UNKNOWN
        scalar = constant(decoded_value, column.type)[0]
    except (ValueError, ArithmeticError, pa.ArrowException):
        return _UNKNOWN
    return scalar, "exact" if is_value and is_tight else "bound"


def _decode_bound(value: Any, column: StatisticsColumn, is_maximum: bool) -> tuple[Any, bool]:
    """Return a recorded minimum or maximum as a Python value, and whether a row has exactly this value.

    The value is None if it is unusable.
    """
    type_ = column.type
    if pa.types.is_boolean(type_):
        return (value, True) if isinstance(value, bool) else (None, False)
    if pa.types.is_integer(type_):
        return (value, True) if isinstance(value, int) and not isinstance(value, bool) else (None, False)
    if pa.types.is_floating(type_):
        return _float(value, column), False
    if pa.types.is_decimal(type_):
        return _decimal(value, type_, is_maximum)
    if pa.types.is_date(type_):
        return (parse_date(value) if isinstance(value, str) and _FOUR_DIGITS.match(value) else None), True
    if pa.types.is_timestamp(type_):
        return _timestamp(value, type_, is_maximum), False
    if pa.types.is_string(type_):
        # Writers truncate long texts: a minimum becomes smaller, and they increase a maximum.
        return (_outer_text(value, is_maximum) if isinstance(value, str) else None), False
    return None, False


def _float(value: Any, column: StatisticsColumn) -> float | None:
    """Return a recorded bound of a floating-point column.

    The result is None for NaN, for a JSON value that is neither a number nor a text, and if the column's type was
    widened.
    """
    # The shortest decimal text of a single-precision number is another number in double precision.
    if column.is_widened or isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    number = float(value)
    return None if number != number else number


def _decimal(value: Any, type_: pa.Decimal128Type, is_maximum: bool) -> tuple[Decimal | None, bool]:
    """Return (bound, whether it is exact) of a decimal column; (None, False) without a usable bound.

    A bound that the writer may have rounded is widened: a maximum is increased, a minimum decreased.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None, False
    number = Decimal(value)
    if type_.precision <= _DOUBLE_DIGITS:
        return number, True
    if number in _ENDS_OF_INT64:
        return None, False
    margin = _WIDE.multiply(abs(number), _DOUBLE_ERROR)
    outer = _WIDE.add(number, margin if is_maximum else -margin)
    rounding = ROUND_CEILING if is_maximum else ROUND_FLOOR
    return outer.quantize(Decimal(1).scaleb(-type_.scale), rounding, _WIDE), False


def _outer_text(value: str, is_maximum: bool) -> str | None:
    """Return a bound that is valid for all values of a text column, from the bound `value` in the log.

    A maximum that Delta for Spark before 3.2 has truncated may be less than some values. Then a greater text is
    returned; None if even that may be less than some value. Other bounds are returned unchanged.
    """
    if not is_maximum or not value.endswith(_OLD_END):
        return value
    # Delta for Spark before 3.2 replaces the end of a long maximum by this character, which is less than all beyond
    # U+FFFF. If the end begins with the second UTF-16 unit of such a character, Spark stores a `?` for the first unit.
    return None if value[:-1].endswith("?") else value[:-1] + _GREATEST


def _timestamp(value: Any, type_: pa.TimestampType, is_maximum: bool) -> int | None:
    """Return a recorded bound of a timestamp column, in the type's unit.

    A maximum is increased by one millisecond, because writers truncate bounds to milliseconds.

    The result is None if the value has the wrong form or zone, or is after the year 9999.
    """
    if not isinstance(value, str) or not _FOUR_DIGITS.match(value):
        return None
    ticks, offset = parse_timestamp(value, type_.unit)
    if offset if type_.tz is None else offset is None:
        return None
    # Writers truncate both bounds to milliseconds, so the true maximum may be almost one millisecond later.
    outer = ticks + TICKS[type_.unit] // 1000 if is_maximum else ticks
    return outer if outer < _YEAR_10000 * TICKS[type_.unit] else None
