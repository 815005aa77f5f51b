"""Predicates as SQL text, which parses to the same predicate."""

from __future__ import annotations

import re

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.expressions.predicates import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNaN,
    IsNull,
    Or,
    Predicate,
)
from metastore_assets.values.json import scalar_json

_PLAIN = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_RESERVED = frozenset(
    [
        "all",
        "and",
        "any",
        "as",
        "between",
        "by",
        "case",
        "cast",
        "column",
        "date",
        "distinct",
        "div",
        "else",
        "end",
        "escape",
        "exists",
        "false",
        "for",
        "from",
        "group",
        "having",
        "if",
        "ilike",
        "in",
        "interval",
        "is",
        "isnan",
        "isnull",
        "join",
        "like",
        "limit",
        "nan",
        "not",
        "notnull",
        "null",
        "on",
        "or",
        "order",
        "row",
        "select",
        "similar",
        "some",
        "struct",
        "table",
        "then",
        "time",
        "timestamp",
        "true",
        "union",
        "when",
        "where",
        "xor",
    ]
)
_MOST = 10
"""Members of `in` that are written out for people."""


def to_sql(predicate: Predicate, *, most: int | None = None) -> str:
    """SQL; with `most`, at most so many members of `in`, for people to read."""
    if isinstance(predicate, Constant):
        return "true" if predicate.value else "false"
    if isinstance(predicate, And | Or):
        parts = [to_sql(child, most=most) for child in predicate.children]
        inner = [
            f"({part})" if isinstance(child, And | Or) else part
            for child, part in zip(predicate.children, parts, strict=True)
        ]
        return (" and " if isinstance(predicate, And) else " or ").join(inner)
    name, negation = _name(predicate.column), " not" if getattr(predicate, "negated", False) else ""
    if isinstance(predicate, IsNull):
        return f"{name} is{negation} null"
    if isinstance(predicate, IsNaN):
        return f"{name} is{negation} nan"
    if isinstance(predicate, Comparison):
        return f"{name} {predicate.operator} {_literal(predicate.value)}"
    if isinstance(predicate, In):
        shown = [_literal(value) for value in predicate.values[: most or len(predicate.values)]]
        more = len(predicate.values) - len(shown)
        return f"{name}{negation} in ({', '.join(shown)}{f', … {more:,} more' if more else ''})"
    pattern = predicate.pattern
    if pattern is None:
        prefix = predicate.prefix.decode("utf-8", "surrogateescape")
        pattern = re.sub(r"([%_\\])", r"\\\1", prefix) + "%"
    return f"{name}{negation} like {_quoted(pattern)}"


def to_short_sql(predicate: Predicate) -> str:
    """For people."""
    return to_sql(predicate, most=_MOST)


def literal_to_sql(value: pa.Scalar) -> str:
    """A value as it is written in a predicate; null where there is none."""
    return _literal(value) if value.is_valid else "null"


def _name(column: Column) -> str:
    path = column.path
    if _PLAIN.fullmatch(path) and not set(path.split(".")) & _RESERVED:
        return path
    # Parts by themselves: one name with a dot in it may be that of another column.
    parts = [path] if "`" in path else path.split(".")
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _literal(value: pa.Scalar) -> str:
    told = scalar_json(value)
    if t.is_boolean(value.type):
        return "true" if told else "false"
    if t.is_large_binary(value.type):
        return f"x'{told}'"
    if t.is_integer(value.type) or t.is_decimal(value.type) or isinstance(told, float | int):
        return str(told)
    if t.is_large_string(value.type):
        told = value.as_buffer().to_pybytes().decode("utf-8", "surrogateescape")
    return _quoted(told)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
