"""Literals: conversion of Python values and texts to scalars of a type class, and to SQL text.

A type class is a group of column types whose values are stored as one Arrow type. Texts have the form of values in JSON
(`values.json`), so that printed values can be used in queries. Names of columns are written as SQL, too. `sql_parser`
accepts the SQL text that this module writes. sqlglot is not imported, because that takes 90 ms.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.errors import LiteralError, UnsupportedTypeError
from metastore_assets.iso8601 import EPOCH, TICKS, parse_date, parse_time, parse_timestamp
from metastore_assets.values.json import scalar_json, value_repr
from metastore_assets.values.physical import integers_array, positive_zeros
from metastore_assets.values.types import TypeClass, type_class

_EXACT = Context(prec=400, traps=[Inexact])
_PLAIN_PATH = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_RESERVED_WORDS = """
    all alter and any as between by case cast column connect_by_root create cross current_catalog current_date
    current_time current_timestamp current_user date distinct div drop else end escape except exists false fetch for
    from glob grant group having if ilike in inner insert intersect interval into is isnan isnull join lateral like
    limit localtime localtimestamp nan not notnull null on or order outer partitioned_by qualify regexp returning revoke
    rlike rollback row select session_user similar some straight_join struct table tablesample then time timestamp true
    uncache union using when where with xor
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())
_FORMS = {
    "boolean": "true or false",
    "int64": "an integer",
    "uint64": "an integer",
    "float64": "a number, such as 1.5, NaN or -Infinity",
    "string": "text",
    "binary": "hexadecimal bytes, such as 00ff",
    "uuid": "a UUID",
    "date": "a date, such as 2024-01-31",
    "time": "a time, such as 23:59:59.5",
    "decimal": "a decimal number",
    "timestamp": "a timestamp, such as 2024-01-31T23:59:59",
    "timestamptz": "a timestamp, such as 2024-01-31T23:59:59Z",
    "null": "nothing, because the column has no values",
}
"""The form of values as text, for messages, by name of the type class without its unit or scale."""
_PYTHON_TYPES = {
    "boolean": "a bool",
    "int64": "an int",
    "uint64": "an int",
    "float64": "a float",
    "binary": "bytes",
    "uuid": "a uuid.UUID",
    "date": "a datetime.date",
    "time": "a datetime.time",
    "decimal": "a decimal.Decimal",
    "timestamp": "a datetime.datetime without a time zone",
    "timestamptz": "a datetime.datetime with a time zone",
}
"""The Python type of values, for messages, by name of the type class without its unit or scale."""


def to_literal(value: object, cls: TypeClass, subject: str) -> pa.Scalar:
    """Convert a Python or numpy value, or an Arrow scalar, to a scalar of a type class.

    Supported are `int`, `float`, `Decimal`, `str`, `bytes`, `bool`, `uuid.UUID`, `date`, `time`, `datetime` and pandas'
    `Timestamp`, including its nanoseconds. A `datetime` must have a time zone if the column has one, and none if the
    column has none. Integer columns accept 2.0, but not 2.5.

    Args:
        value: The value.
        cls: The type class.
        subject: The column, for messages.

    Raises:
        LiteralError: The class has no such value.
    """
    try:
        return _scalar(_to_physical(value, cls), cls)
    except (ValueError, OverflowError, InvalidOperation, pa.ArrowException, UnsupportedTypeError) as error:
        raise LiteralError(
            f"{value_repr(value)} is no value of {subject}: {_expectation(error, cls, in_python=True)}"
        ) from error


def parse_literal(text: str, cls: TypeClass, subject: str) -> pa.Scalar:
    """Parse a text as a scalar of a type class.

    Args:
        text: The text.
        cls: The type class.
        subject: The column, for messages.

    Raises:
        LiteralError: The text is not a value of the class.
    """
    try:
        return _scalar(_parse_physical(text, cls), cls)
    except (ValueError, OverflowError, InvalidOperation) as error:
        raise LiteralError(f"{text!r} is no value of {subject}: {_expectation(error, cls)}") from error


def expected_form(cls: TypeClass) -> str:
    """Return the form of values of a type class, for messages, such as `a date, such as 2024-01-31`."""
    return _FORMS[_class_kind(cls)]


def _class_kind(cls: TypeClass) -> str:
    """Return the name of a type class without its unit or scale."""
    return cls.name if cls.name in _FORMS else cls.name.partition("_")[0]


def _expectation(error: Exception, cls: TypeClass, *, in_python: bool = False) -> str:
    reason = f" ({error})" if isinstance(error, _UnfitError) else ""
    python_type = _PYTHON_TYPES.get(_class_kind(cls)) if in_python else None
    form = expected_form(cls) if python_type is None else f"{expected_form(cls)}; in Python, {python_type}"
    return f"give {form}{reason}"


class _UnfitError(ValueError):
    """An error about a value that the type class does not have, such as 2.5 for integers.

    Its message says why.
    """


def _scalar(physical: Any, cls: TypeClass) -> pa.Scalar:
    """Convert an integer, float, boolean or bytes to a scalar of a type class.

    A date is given in days, a time or timestamp in its unit, a decimal as its unscaled integer. Raises _UnfitError for
    an integer beyond the range of the class.
    """
    if cls.kind == "integer":
        least, greatest = cls.physical_range
        if not least <= physical <= greatest:
            raise _UnfitError(f"it is beyond the range of {cls.name.partition('_')[0]}")
        return integers_array([physical], cls)[0]
    if cls.kind == "float":
        return pa.array(positive_zeros(pa.array([physical], pa.float64()).to_numpy()))[0]
    if cls.name == "uuid":
        return pa.ExtensionArray.from_storage(cls.arrow, pa.array([physical], pa.binary(16)))[0]
    if cls.name == "string":
        return pa.array([physical], pa.large_binary()).view(cls.arrow)[0]
    return pa.scalar(physical, cls.arrow)


def _to_physical(value: object, cls: TypeClass) -> Any:
    """Convert a Python, numpy or Arrow value to an integer, float, boolean or bytes for `_scalar`.

    Raises ValueError for a value of another kind, such as text for integers, and _UnfitError if the class has no such
    value.
    """
    if isinstance(value, np.generic):
        value = pa.array(np.array([value]))[0]
    if isinstance(value, pa.Scalar):
        return _physical_of_arrow(value, cls)
    for kinds, convert in _CONVERSIONS[cls.name if cls.name in _CONVERSIONS else cls.name.partition("_")[0]].items():
        if isinstance(value, kinds) and (kinds is bool or not isinstance(value, bool)):
            return convert(value, cls)
    raise ValueError(f"a {type(value).__name__}")


def _physical_of_arrow(value: pa.Scalar, cls: TypeClass) -> Any:
    """Convert an Arrow scalar as `_to_physical` converts a Python value, with the same errors."""
    if isinstance(value, pa.DictionaryScalar):
        value = value.value
    if not value.is_valid:
        raise _UnfitError("null is no value")
    if isinstance(value, pa.ExtensionScalar):
        if cls.name != "uuid":
            raise ValueError("a UUID")
        return value.value.as_py()
    if t.is_timestamp(value.type) and t.is_timestamp(cls.arrow):
        _check_zone(value.type.tz is not None, cls)
    value_class = type_class(value.type)
    if cls.name.partition("_")[0] != value_class.name.partition("_")[0] and not (
        cls.is_numeric and value_class.is_numeric
    ):
        raise ValueError(f"a value of {value_class.name}")
    if t.is_timestamp(value.type) or t.is_time(value.type):
        return _in_unit(value.value * (TICKS["ns"] // TICKS[value.type.unit]), cls)
    if t.is_temporal(cls.arrow):
        return value.cast(cls.arrow).value
    if cls.name == "string":
        return value.as_buffer().to_pybytes()
    return _to_physical(value.as_py(), cls)


def _integer(value: Any, cls: TypeClass) -> int:
    """Convert a number to an integer.

    For a class of decimals, the result is unscaled: 150 for 1.5 with scale 2.

    Raises _UnfitError if the result is not an integer or has more than 400 digits.
    """
    number = Decimal(value)
    if number.is_finite() and number and number.adjusted() + cls.scale >= _EXACT.prec:
        raise _UnfitError(f"it is beyond the range of {cls.name.partition('_')[0]}")
    try:
        scaled_number = number.scaleb(cls.scale, _EXACT)
        if scaled_number.is_finite() and scaled_number == scaled_number.to_integral_value(context=_EXACT):
            return int(scaled_number)
    except Inexact:
        pass
    raise _UnfitError(f"it has more than {cls.scale} digits after the point" if cls.scale else "it is no integer")


def _exact_float(value: Any, cls: TypeClass) -> float:
    return float(value)


def _date(value: Any, cls: TypeClass) -> int:
    if isinstance(value, datetime):
        raise ValueError("a datetime")
    return int(value.toordinal()) - EPOCH.toordinal()


def _time(value: Any, cls: TypeClass) -> int:
    if value.tzinfo is not None:
        raise _UnfitError("the column has no time zones")
    return (((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + int(value.microsecond)) * 1000


def _timestamp(value: Any, cls: TypeClass) -> int:
    """Convert a datetime or pandas timestamp to a number of units of the class since 1970.

    Raises _UnfitError for a fraction of the unit, for null, or if only one of value and class has a time zone.
    """
    if value != value:
        raise _UnfitError("null is no value")
    _check_zone(value.tzinfo is not None, cls)
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    # A pandas timestamp is a datetime with additional nanoseconds.
    nanoseconds = (moment - EPOCH) // timedelta(microseconds=1) * 1000 + getattr(value, "nanosecond", 0)
    return _in_unit(nanoseconds, cls)


def _in_unit(nanoseconds: int, cls: TypeClass) -> int:
    ticks, remainder = divmod(nanoseconds, TICKS["ns"] // TICKS[cls.arrow.unit])
    if remainder:
        raise _UnfitError(f"the unit of the column is {cls.arrow.unit}, and the value has a fraction of it")
    return ticks


def _check_zone(has_zone: bool, cls: TypeClass) -> None:
    if has_zone != (cls.arrow.tz is not None):
        raise _UnfitError("with a time zone" if cls.arrow.tz else "the column has no time zones")


_NUMBERS = {int: _integer, Decimal: _integer, float: _integer}
_CONVERSIONS: Mapping[str, Mapping[type, Callable[[Any, TypeClass], Any]]] = {
    "boolean": {bool: lambda value, cls: value},
    "int64": _NUMBERS,
    "uint64": _NUMBERS,
    "decimal": _NUMBERS,
    "float64": {int: _exact_float, float: _exact_float, Decimal: _exact_float},
    "string": {str: lambda value, cls: value.encode()},
    "binary": {bytes: lambda value, cls: value},
    "uuid": {uuid.UUID: lambda value, cls: value.bytes},
    "date": {date: _date},
    "time": {time: _time},
    "timestamp": {datetime: _timestamp},
    "timestamptz": {datetime: _timestamp},
    "null": {},
}
"""Converters of Python values to integers, floats, booleans or bytes: by name of the type class without its unit or
scale, then by Python type."""


def _parse_physical(text: str, cls: TypeClass) -> Any:
    """Parse a text as an integer, float, boolean or bytes, depending on the class.

    Raises ValueError or InvalidOperation if the text is not a value of the class.
    """
    if cls.name == "string":
        return text.encode("utf-8", "surrogateescape")
    text = text.strip()
    if cls.kind == "null":
        return _reject(text)
    if cls.name == "boolean":
        return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _reject(text)
    if cls.name == "binary":
        # The command line shows bytes as `0x00ff`, and predicates have them as `x'00ff'`.
        is_quoted = text[:2].lower() == "x'" and text.endswith("'")
        return bytes.fromhex(text[2:-1] if is_quoted else text.removeprefix("0x"))
    if cls.name == "uuid":
        return uuid.UUID(text).bytes
    if cls.kind == "float":
        return float(text)
    if cls.name == "date":
        return parse_date(text)
    if cls.name == "time":
        return parse_time(text, "ns")
    if t.is_timestamp(cls.arrow):
        ticks, offset = parse_timestamp(text, "ns")
        # Timestamps in answers are in UTC; a literal without a zone is in UTC as well.
        if offset is not None:
            _check_zone(True, cls)
        return _in_unit(ticks, cls)
    number = Decimal(text)
    return _integer(number, cls) if math.isfinite(number) else _reject(text)


def _reject(text: str) -> Any:
    raise ValueError(text)


def column_to_sql(path: str) -> str:
    """Return the dotted path of a column as SQL text, with double quotes around names that need them."""
    if _PLAIN_PATH.fullmatch(path) and not set(path.split(".")) & _RESERVED:
        return path
    # Each part is quoted by itself, because a quoted name with a dot may be the name of another column.
    parts = [path] if "`" in path else path.split(".")
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def literal_to_sql(value: pa.Scalar) -> str:
    """Return a scalar as an SQL literal; a null becomes `null`.

    The scalar has the Arrow type in which the values of its type class are stored.
    """
    if not value.is_valid:
        return "null"
    json_value = scalar_json(value)
    if t.is_boolean(value.type):
        return "true" if json_value else "false"
    if t.is_large_binary(value.type):
        return f"x'{json_value}'"
    if t.is_integer(value.type) or t.is_decimal(value.type) or isinstance(json_value, float | int):
        return str(json_value)
    if t.is_large_string(value.type):
        return quote_text(value.as_buffer().to_pybytes().decode("utf-8", "surrogateescape"))
    return quote_text(json_value)


def quote_text(text: str) -> str:
    """Return a text as an SQL literal in single quotes."""
    return "'" + text.replace("'", "''") + "'"
