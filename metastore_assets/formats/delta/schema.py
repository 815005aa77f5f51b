"""The schema of a Delta table as Arrow: logical names and types, with column mapping's identities at every depth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.base import FIELD_ID
from metastore_assets.formats.delta.protocol import MappingMode
from metastore_assets.formats.schema_casting import VARIANT

_PRIMITIVES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp_nanos": pa.timestamp("ns", "UTC"),
    "timestamp_nanos_ntz": pa.timestamp("ns"),
    "void": pa.null(),
    "variant": VARIANT,
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_DECIMAL_DIGITS = 38
_GENERATED = "delta.generationExpression"
_WORD = re.compile(r"\w+")
_TEXT = re.compile(r"(?:var)?char\(\d+\)")


def arrow_schema(table: str, schema: dict[str, Any], mode: MappingMode) -> pa.Schema:
    """The table's schema from Delta's JSON. Every field is nullable: what writers declare, files do not always keep.

    The identity of a field is its physical name (mode `name`) or its column mapping id (mode `id`).
    Raises TableFormatError that names a type without an Arrow counterpart.
    """
    return pa.schema([_field(table, field, mode) for field in schema["fields"]])


def derived_columns(
    fields: Sequence[Mapping[str, Any]], schema: pa.Schema
) -> Iterator[tuple[pa.Field, list[pa.Field]]]:
    """Yield each generated column, with the top-level columns that its expression may be made of.

    A column counts when its name occurs in the expression, without case: that takes too many rather than too few.
    """
    for field, own in zip(fields, schema, strict=True):
        expression = (field.get("metadata") or {}).get(_GENERATED)
        if expression is None:
            continue
        text = str(expression).lower()
        words = set(_WORD.findall(text))
        yield (
            own,
            [
                other
                for other in schema
                if other is not own
                and (other.name.lower() in words or (not _WORD.fullmatch(other.name) and other.name.lower() in text))
            ],
        )


def _field(table: str, field: dict[str, Any], mode: MappingMode) -> pa.Field:
    result = pa.field(field["name"], _type(table, field["name"], field["type"], mode))
    if mode == "none":
        return result
    key = "delta.columnMapping.physicalName" if mode == "name" else "delta.columnMapping.id"
    value = field.get("metadata", {}).get(key)
    if value is None:
        raise TableFormatError(f"{table}: column {field['name']!r} has no {key}, but the table maps columns by {mode}")
    return result.with_metadata({FIELD_ID: str(value)})


def _type(table: str, column: str, type_: Any, mode: MappingMode) -> pa.DataType:
    if isinstance(type_, str):
        return _primitive(table, column, type_)
    if type_["type"] == "struct":
        return pa.struct([_field(table, field, mode) for field in type_["fields"]])
    if type_["type"] == "array":
        return pa.list_(pa.field("element", _type(table, column, type_["elementType"], mode)))
    if type_["type"] == "map":
        key = _type(table, column, type_["keyType"], mode)
        return pa.map_(key, _type(table, column, type_["valueType"], mode))
    raise TableFormatError(f"{table}: column {column!r} has type {type_['type']!r}, which has no reader")


def _primitive(table: str, column: str, name: str) -> pa.DataType:
    if name in _PRIMITIVES:
        return _PRIMITIVES[name]
    decimal = _DECIMAL.fullmatch(name)
    if decimal and 0 < int(decimal[1]) <= _DECIMAL_DIGITS >= int(decimal[2]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if _TEXT.fullmatch(name):
        return pa.string()
    raise TableFormatError(f"{table}: column {column!r} has type {name!r}, which has no reader")
