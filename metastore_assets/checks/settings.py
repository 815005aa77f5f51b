"""Types of check settings that YAML lacks: durations, shares, baselines, and partition patterns."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?\s*[smhdw]\s*)+")
_COMPONENT = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_NAME = re.compile(r"[A-Za-z0-9_]{1,100}")
_MAX_EXPONENT = 400
"""The maximum absolute exponent of ten of a share. Larger ones could need more digits than fit into memory."""


def parse_duration(value: Any) -> timedelta:
    """Parse a duration with units: `90s`, `30m`, `6h`, `1d12h`, `2w`.

    A timedelta is returned unchanged.

    Raises ValueError for any other value.
    """
    if isinstance(value, timedelta):
        return value
    try:
        if isinstance(value, str) and _DURATION.fullmatch(value.strip()):
            return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in _COMPONENT.findall(value)))
    except OverflowError:
        pass
    raise ValueError("a time with its unit (s, m, h, d, w), such as 30m, 6h or 1d12h")


def parse_share(value: Any) -> Decimal:
    """Parse a share of a whole without rounding: 0.05 and `5%` are equal.

    Raises ValueError unless the value is a finite number, with or without `%`. Shares below 0 or above 1 are valid.
    """
    text = str(value).strip()
    try:
        number = Decimal(text.removesuffix("%"))
        if isinstance(value, bool) or not number.is_finite() or abs(number.adjusted()) > _MAX_EXPONENT:
            raise InvalidOperation
    except InvalidOperation:
        raise ValueError("a part of a whole, such as 0.05 or 5%") from None
    if not text.endswith("%"):
        return number
    with localcontext(prec=len(number.as_tuple().digits) + 2):  # By default, quotients are rounded to 28 digits.
        return number / 100


def _parse_unit_share(value: Any) -> Decimal:
    share = parse_share(value)
    if not 0 <= share <= 1:
        raise ValueError("a part of a whole, from 0 to 1 or from 0% to 100%")
    return share


def _parse_baseline(value: Any) -> Any:
    """Return the setting as `previous`, the number of a version, or a duration.

    Raises ValueError for anything else.
    """
    if value == "previous" or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    if isinstance(value, str | timedelta) and value != "previous":
        return parse_duration(value)
    raise ValueError("previous, the number of a version, or how long before, such as 7d")


def _parse_patterns(value: Any) -> Any:
    """Parse patterns of partition keys: `x` becomes `("x",)`, and `all` becomes `("*",)`."""
    patterns = [value] if isinstance(value, str) else value
    if (
        not isinstance(patterns, list | tuple)
        or not patterns
        or not all(isinstance(item, str) and item for item in patterns)
    ):
        raise ValueError("all, or keys of partitions and patterns of keys, such as day=2024-*")
    return tuple("*" if item == "all" else item for item in patterns)


def _parse_name(value: Any) -> Any:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("up to 100 letters, digits and _")
    return value


def _parse_literal(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str | date):
        raise ValueError("a value of the column: a number, text, a date or a time, true or false")
    return value


def _parse_limit(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("NaN is no bound: nothing is less or greater")
    return value if value is None else _parse_literal(value)


Duration: TypeAlias = Annotated[timedelta, BeforeValidator(parse_duration)]
Share: TypeAlias = Annotated[Decimal, BeforeValidator(parse_share)]
UnitShare: TypeAlias = Annotated[Decimal, BeforeValidator(_parse_unit_share)]
Count: TypeAlias = Annotated[int, Field(ge=0, strict=True)]
Name: TypeAlias = Annotated[str | None, BeforeValidator(_parse_name)]
Patterns: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_parse_patterns)]
ColumnValue: TypeAlias = Annotated[bool | int | float | str | date | datetime, BeforeValidator(_parse_literal)]
"""A value of a column as YAML reads it."""
Limit: TypeAlias = Annotated[bool | int | float | str | date | datetime | None, BeforeValidator(_parse_limit)]
"""A value of a column as YAML reads it, except NaN; None for no limit."""
Baseline: TypeAlias = Annotated[Literal["previous"] | int | timedelta, BeforeValidator(_parse_baseline)]
"""The version to compare with. `previous`: the newest one of an earlier snapshot. A number: that version. A duration:
the newest version that was published at least that long before the checked version."""
