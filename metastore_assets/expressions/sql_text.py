"""Names and values as SQL text.

Text is not written by sqlglot's generator: importing sqlglot takes 90 ms, and a lookup with an Arrow expression, or one
that only explains pruning, does not need it. The parser of this package accepts all that is written here.
"""

from __future__ import annotations

import re

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.values.json import scalar_json

_PLAIN_PATH = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_RESERVED_WORDS = """
    all and any as between by case cast column date distinct div else end escape exists false for from
    group having if ilike in interval is isnan isnull join like limit nan not notnull null on or order
    row select similar some struct table then time timestamp true union when where xor
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())


def column_to_sql(path: str) -> str:
    """Return a dotted path, in double quotes where it needs them."""
    if _PLAIN_PATH.fullmatch(path) and not set(path.split(".")) & _RESERVED:
        return path
    # Each part has its quotes: one name with a dot in it may be that of another column.
    parts = [path] if "`" in path else path.split(".")
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def literal_to_sql(value: pa.Scalar) -> str:
    """Return a scalar of a canonical type as a literal; `null` for a null."""
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
    """Return a text in single quotes."""
    return "'" + text.replace("'", "''") + "'"
