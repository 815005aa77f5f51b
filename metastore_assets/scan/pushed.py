"""Filters that Spark pushes down, as predicates."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import datasource as ds

_COMPARISONS: dict[type[ds.Filter], str] = {
    ds.EqualTo: "=",
    ds.EqualNullSafe: "is not distinct from",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
}
_LIKE: dict[type[ds.Filter], str] = {
    ds.StringStartsWith: "{}%",
    ds.StringEndsWith: "%{}",
    ds.StringContains: "%{}%",
}


def filter_sql(filter_: ds.Filter) -> str | None:
    """A filter as the SQL that predicates are written in; None for one that has no form there."""
    if isinstance(filter_, ds.Not):
        inner = filter_sql(filter_.child)
        return None if inner is None else f"not ({inner})"
    if any({".", "`"} & set(part) for part in filter_.attribute):  # type: ignore[attr-defined]
        return None
    name = ".".join('"' + part.replace('"', '""') + '"' for part in filter_.attribute)  # type: ignore[attr-defined]
    if isinstance(filter_, ds.IsNull | ds.IsNotNull):
        return f"{name} is {'' if isinstance(filter_, ds.IsNull) else 'not '}null"
    if isinstance(filter_, ds.In):
        members = [_literal(own) for own in filter_.value]
        return f"{name} in ({', '.join(map(str, members))})" if members and None not in members else None
    kind = type(filter_)
    value = getattr(filter_, "value", None)
    if kind in _COMPARISONS:
        literal = _literal(value)
        return None if literal is None else f"{name} {_COMPARISONS[kind]} {literal}"
    if kind in _LIKE and isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return f"{name} like {_quoted(_LIKE[kind].format(escaped))}"
    return None


def _literal(value: Any) -> str | None:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"'{value}'"
    if isinstance(value, int | Decimal):
        return f"{value:f}" if isinstance(value, Decimal) else str(value)
    if isinstance(value, bytes | bytearray):
        return f"x'{bytes(value).hex()}'"
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC)
        return f"'{moment.isoformat()}'"
    if isinstance(value, date):
        return f"'{value.isoformat()}'"
    return _quoted(value) if isinstance(value, str) else None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
