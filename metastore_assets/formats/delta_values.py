"""Values as texts of a Delta log: partition values, and the least and greatest values in statistics."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_INTEGER = re.compile(r"[+-]?\d+")
_FINER = re.compile(r"\.\d{6}(\d{1,3})")
_DAY_START = "T00:00:00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def partition_value(text: str | None, type_: pa.DataType) -> pa.Scalar:
    """The value that a log writes as this text. Null and the empty text are null.

    Timestamps without a zone where the type is one of instants are taken for UTC. Raises ValueError for a text that
    is no value of the type.
    """
    if text is None or text == "":
        return pa.scalar(None, type_)
    try:
        return pa.scalar(_parsed(text, type_), type_)
    except (ValueError, ArithmeticError, pa.ArrowException):
        raise ValueError(f"{text!r} is no value of type {type_}") from None


def _parsed(text: str, type_: pa.DataType) -> Any:
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
        moment = parse_timestamp(text)
        if type_.tz is None and moment.utcoffset():
            raise ValueError("a time of a zone")
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if type_.unit == "ns":
            return (moment - _EPOCH) // timedelta(microseconds=1) * 1000 + _below_microseconds(text)
        return moment if type_.tz is not None else moment.replace(tzinfo=None)
    raise ValueError("a type without values")


def _below_microseconds(text: str) -> int:
    """Nanoseconds that are written behind the sixth digit of a second's fraction."""
    digits = _FINER.search(text)
    return int(digits[1].ljust(3, "0")) if digits else 0


def parse_date(text: str) -> date:
    """A day as Delta writes it. Raises ValueError for anything else."""
    if not _DATE.fullmatch(text):
        raise ValueError(f"{text!r} is no date")
    return date.fromisoformat(text)


def parse_timestamp(text: str) -> datetime:
    """A time of day on a day, with or without a zone; a day alone is its start. What is finer than microseconds is cut.

    Raises ValueError for anything else.
    """
    if not _DATE.match(text):
        raise ValueError(f"{text!r} is no timestamp")
    return datetime.fromisoformat(f"{text}{_DAY_START}" if len(text) == len("2024-01-01") else text)
