"""JSON values as they are written, for columns whose types are declared: 1.50 is a decimal of two digits, or a text."""

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
    """A number as it is written."""

    __slots__ = ()


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Raises ValueError when it has a key twice: which of the values is meant nobody can tell."""
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("an object has a key twice")
    return result


def finite(text: str) -> float:
    """A number with a fraction or an exponent. Raises ValueError when it is beyond all floats."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text} is beyond all floats")
    return value


DECODER = json.JSONDecoder(object_pairs_hook=distinct_keys, parse_float=finite)
LITERAL_DECODER = json.JSONDecoder(
    object_pairs_hook=distinct_keys, parse_float=Literal, parse_int=Literal, parse_constant=Literal
)
"""Leaves numbers as Literals."""
_PARSING = FieldMatcher(convert=cast_losslessly)
"""Makes values of the texts that `as_written` leaves."""


def as_written(value: Any, path: str, declared: Set[str]) -> Any:
    """A value decoded with literals: as text below the declared paths, elsewhere as it would be without literals.

    Objects and arrays as text have no blanks between their parts.
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
    """The type in which declared places are text."""
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
    """Rows with texts in declared places as rows of the declared types; `lines` are theirs in the file.

    Raises ArrowInvalid, naming the line, for a text that is no value of its type.
    """
    if array.type == wanted:
        return array
    try:
        return cast_to_schema(array, wanted, _PARSING)
    except pa.ArrowInvalid:
        place = first_mismatch(array, lambda part: _are_typed(part, wanted))
    try:
        return cast_to_schema(array.slice(place, 1), wanted, _PARSING)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"line {lines[place]}: {error}") from None


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
