"""JSON parsing that retains the text of each number, so that declared types lose no digits.

For example, `1.50` as a decimal has two digits after the point, which a float would lose.
"""

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
_NONZERO = re.compile(r"[-0.]*[1-9]")
_DECLARE = "declare the column as `string` in the table's `schema`"


class Literal(str):
    """The text of a JSON number as the file has it, such as `1.50`."""

    __slots__ = ()


def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict from its (key, value) pairs.

    Raises ValueError if a key occurs twice.
    """
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("an object has a key twice")
    return result


def parse_float(text: str) -> float:
    """Return the float of a JSON number with a fraction or an exponent.

    Raises ValueError if it is out of range: if the float would be infinite, or zero although the number is not.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text:.50} is beyond all floats; {_DECLARE}")
    if not value and _NONZERO.match(text):
        raise ValueError(f"the number {text:.50} is closer to zero than all floats; {_DECLARE}")
    return value


DECODER = json.JSONDecoder(object_pairs_hook=build_object, parse_float=parse_float)
LITERAL_DECODER = json.JSONDecoder(
    object_pairs_hook=build_object, parse_float=Literal, parse_int=Literal, parse_constant=Literal
)
"""Decodes JSON with a Literal in place of each number."""
_PARSING = FieldMatcher(convert=cast_losslessly)
"""Matches fields by name, and parses texts as the declared types."""


def replace_literals(value: Any, path: str, declared_paths: Set[str]) -> Any:
    """Replace each Literal in a value by its text if its path has a declared type, otherwise by a number.

    Args:
        value: what `LITERAL_DECODER` returned.
        path: dotted path of the value; empty for a row.
        declared_paths: paths with declared types. An object or array there becomes JSON text without blanks; null stays
            null.
    """
    if path in declared_paths:
        return value if value is None or type(value) is str else _json_text(value)
    if isinstance(value, Literal):
        return _parse_literal(value)
    if isinstance(value, dict):
        return {
            key: replace_literals(inner, f"{path}.{key}" if path else key, declared_paths)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [replace_literals(inner, f"{path}.element", declared_paths) for inner in value]
    return value


def text_types(type_: pa.DataType, path: str, declared_paths: Set[str]) -> pa.DataType:
    """Return `type_`, but with Arrow's type `string` for each part whose path is in `declared_paths`.

    Rows have this type before `cast_rows` parses the texts.

    Args:
        type_: The type of a row, or of a part of a row.
        path: The dotted path of the part; empty for a row.
        declared_paths: The dotted paths of the columns with declared types.
    """
    if path in declared_paths:
        return pa.string()
    if pa.types.is_struct(type_):
        return pa.struct(
            [
                (field.name, text_types(field.type, f"{path}.{field.name}" if path else field.name, declared_paths))
                for field in type_
            ]
        )
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", text_types(type_.value_type, f"{path}.element", declared_paths)))
    return type_


def cast_rows(array: pa.StructArray, target: pa.StructType, lines: Sequence[int]) -> pa.StructArray:
    """Convert rows to the type `target`.

    Texts in columns with declared types are parsed.

    Args:
        array: the rows.
        target: the type of a row, with the declared types.
        lines: line number of each row, for messages.

    Raises:
        ArrowInvalid: a text is no value of its declared type.
    """
    if array.type == target:
        return array
    try:
        return cast_to_schema(array, target, _PARSING)
    except pa.ArrowInvalid:
        index = first_mismatch(array, lambda part: _can_cast(part, target))
    try:
        return cast_to_schema(array.slice(index, 1), target, _PARSING)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"line {lines[index]}: {error}") from None


def _can_cast(array: pa.StructArray, target: pa.StructType) -> bool:
    try:
        cast_to_schema(array, target, _PARSING)
    except pa.ArrowInvalid:
        return False
    return True


def _parse_literal(literal: Literal) -> int | float:
    if _INTEGER.fullmatch(literal):
        return int(literal)
    return float(literal) if literal.endswith(("NaN", "Infinity")) else parse_float(literal)


def _json_text(value: Any) -> str:
    """Return a decoded value as JSON text without blanks.

    Numbers keep their digits.
    """
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_json_text(inner)}" for key, inner in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
