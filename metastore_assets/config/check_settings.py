"""Settings of checks that YAML has no type for: times with a unit, parts of a whole, versions, patterns."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?\s*[smhdw]\s*)+")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_NAME = re.compile(r"[A-Za-z0-9_]{1,100}")
_DIGITS = 400
"""Powers of ten that parts of a whole lie within, up or down."""


def duration(value: Any) -> timedelta:
    """A time with its unit: `90s`, `30m`, `6h`, `1d12h`, `2w`. Raises ValueError."""
    if isinstance(value, timedelta):
        return value
    try:
        if isinstance(value, str) and _DURATION.fullmatch(value.strip()):
            return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value)))
    except OverflowError:
        pass
    raise ValueError("a time with its unit (s, m, h, d, w), such as 30m, 6h or 1d12h")


def share(value: Any) -> Decimal:
    """A part of a whole: 0.05 or `5%`, exactly as it is written. Raises ValueError."""
    text = str(value).strip()
    try:
        number = Decimal(text.removesuffix("%"))
        # Of exponents beyond, the digits that stand for the number might fit into no memory.
        if isinstance(value, bool) or not number.is_finite() or abs(number.adjusted()) > _DIGITS:
            raise InvalidOperation
    except InvalidOperation:
        raise ValueError("a part of a whole, such as 0.05 or 5%") from None
    return number / 100 if text.endswith("%") else number


def _part(value: Any) -> Decimal:
    found = share(value)
    if not 0 <= found <= 1:
        raise ValueError("a part of a whole, from 0 to 1 or from 0% to 100%")
    return found


def _against(value: Any) -> Any:
    if value == "previous" or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    if isinstance(value, str | timedelta) and value != "previous":
        return duration(value)
    raise ValueError("previous, the number of a version, or how long before, such as 7d")


def _patterns(value: Any) -> Any:
    """One alone stands for a list of one; `all` for all there are."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not given or not all(isinstance(own, str) and own for own in given):
        raise ValueError("all, or keys of partitions and patterns of keys, such as day=2024-*")
    return tuple("*" if own == "all" else own for own in given)


def _name(value: Any) -> Any:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("up to 100 letters, digits and _")
    return value


def _literally(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str | date):
        raise ValueError("a value of the column: a number, text, a date or a time, true or false")
    return value


def _limit(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("NaN is no bound: nothing is less or greater")
    return value if value is None else _literally(value)


Duration: TypeAlias = Annotated[timedelta, BeforeValidator(duration)]
Share: TypeAlias = Annotated[Decimal, BeforeValidator(share)]
Part: TypeAlias = Annotated[Decimal, BeforeValidator(_part)]
Count: TypeAlias = Annotated[int, Field(ge=0, strict=True)]
Name: TypeAlias = Annotated[str | None, BeforeValidator(_name)]
Patterns: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_patterns)]
Literally: TypeAlias = Annotated[bool | int | float | str | date | datetime, BeforeValidator(_literally)]
"""A value of a column as YAML has it."""
Limit: TypeAlias = Annotated[bool | int | float | str | date | datetime | None, BeforeValidator(_limit)]
"""Likewise, but not NaN; None for no limit."""
Against: TypeAlias = Annotated[Literal["previous"] | int | timedelta, BeforeValidator(_against)]
"""An earlier version: that of the snapshot before, one by its number, or the newest one published so long before."""
