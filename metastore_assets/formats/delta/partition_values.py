"""Parsing of the partition values in a Delta log, which are texts."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa

from metastore_assets.formats.values import Constant, constant
from metastore_assets.iso8601 import parse_date, parse_timestamp

_INTEGER = re.compile(r"[+-]?\d+")


def partition_value(text: str | None, type_: pa.DataType) -> Constant:
    """Return the value of a text. Null and the empty text are null.

    A timestamp without a zone is in UTC if the type has a zone. Raises ValueError for a text that is no value of the
    type.
    """
    if text is None or text == "":
        return pa.nulls(1, type_)
    try:
        return constant(_parse(text, type_), type_)
    except (ValueError, ArithmeticError, pa.ArrowException):
        raise ValueError(f"{text!r} is no value of type {type_}") from None


def _parse(text: str, type_: pa.DataType) -> Any:
    if pa.types.is_string(type_):
        return text
    if pa.types.is_binary(type_):
        return text.encode()
    if pa.types.is_boolean(type_):
        return {"true": True, "false": False}.get(text.lower(), text)
    if pa.types.is_integer(type_):
        return int(text) if _INTEGER.fullmatch(text) else text
    if pa.types.is_floating(type_):
        return float(text)
    if pa.types.is_decimal(type_):
        return Decimal(text)
    if pa.types.is_date(type_):
        return parse_date(text)
    if pa.types.is_timestamp(type_):
        ticks, offset = parse_timestamp(text, type_.unit)
        if offset and type_.tz is None:
            raise ValueError("a time with a zone")
        return ticks
    raise ValueError("a type of no partition column")
