"""JSON values as they are written, for columns of declared types: 1.50 has two decimal digits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence, Set
from typing import Any

import pyarrow as pa

from metastore_assets.formats.files.declared_types import cast_losslessly
from metastore_assets.formats.files.text_values import first_mismatch
from metastore_assets.formats.schema_casting import FieldMatcher, cast_to_schema

_INTEGER = re.compile(r"-?[0-9]+")


class Literal(str):
    """The text of a number in JSON."""

    __slots__ = ()


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises ValueError when it has a key twice, which is ambiguous."""
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("an object has a key twice")
    return result


def finite(text: str) -> float:
    """Parse a number with a fraction or an exponent. Raises ValueError when it is beyond all floats."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text} is beyond all floats")
    return value


DECODER = json.JSONDecoder(object_pairs_hook=distinct_keys, parse_float=finite)
LITERAL_DECODER = json.JSONDecoder(
    object_pairs_hook=distinct_keys, parse_float=Literal, parse_int=Literal, parse_constant=Literal
)
"""Decodes numbers as Literals."""
_PARSING = FieldMatcher(convert=cast_losslessly)
"""Casts the texts of `as_written` to values."""


def as_written(value: Any, path: str, declared: Set[str]) -> Any:
    """Return a decoded value with texts at declared paths, and numbers instead of literals elsewhere.

    Args:
        value: a value that `LITERAL_DECODER` decoded.
        path: its dotted path.
        declared: paths with declared types. Objects and arrays there become JSON without blanks.
    """
    if path in declared:
        return value if value is None or type(value) is str else _text(value)
    if isinstance(value, Literal):
        return _number(value)
    if isinstance(value, dict):
        return {key: as_written(inner, f"{path}.{key}" if path else key, declared) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_written(inner, f"{path}.element", declared) for inner in value]
    return value


def text_types(type_: pa.DataType, path: str, declared: Set[str]) -> pa.DataType:
    """Return a type with text at declared paths."""
    if path in declared:
        return pa.string()
    if pa.types.is_struct(type_):
        return pa.struct(
            [
                (field.name, text_types(field.type, f"{path}.{field.name}" if path else field.name, declared))
                for field in type_
            ]
        )
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", text_types(type_.value_type, f"{path}.element", declared)))
    return type_


def typed(array: pa.StructArray, wanted: pa.StructType, lines: Sequence[int]) -> pa.StructArray:
    """Cast rows with texts at declared paths to the declared types.

    Args:
        array: the rows.
        wanted: the declared types.
        lines: line number of each row, for messages.

    Raises:
        ArrowInvalid: a text is no value of its type.
    """
    if array.type == wanted:
        return array
    try:
        return cast_to_schema(array, wanted, _PARSING)
    except pa.ArrowInvalid:
        index = first_mismatch(array, lambda part: _are_typed(part, wanted))
    try:
        return cast_to_schema(array.slice(index, 1), wanted, _PARSING)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"line {lines[index]}: {error}") from None


def _are_typed(array: pa.StructArray, wanted: pa.StructType) -> bool:
    try:
        cast_to_schema(array, wanted, _PARSING)
    except pa.ArrowInvalid:
        return False
    return True


def _number(literal: Literal) -> int | float:
    if _INTEGER.fullmatch(literal):
        return int(literal)
    return float(literal) if literal.endswith(("NaN", "Infinity")) else finite(literal)


def _text(value: Any) -> str:
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_text(inner)}" for key, inner in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
