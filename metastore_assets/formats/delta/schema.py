"""The schema of a Delta table in Arrow, and its partition values, which the log stores as texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.delta.protocol import MappingMode
from metastore_assets.formats.metadata_json import as_object, as_objects, as_text, check_distinct
from metastore_assets.formats.values import Constant, constant
from metastore_assets.formats.variants import VARIANT
from metastore_assets.iso8601 import parse_date, parse_timestamp
from metastore_assets.storage.corrupt_input import check_limit
from metastore_assets.storage.limits import FIELDS, NESTING
from metastore_assets.values.columns import FIELD_ID

# Old versions of Spark write `null` for `void`, and `decimal` for decimals of 10 digits.
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
    "null": pa.null(),
    "decimal": pa.decimal128(10, 0),
    "variant": VARIANT,
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_DECIMAL_DIGITS = 38
_GENERATED = "delta.generationExpression"
_WORD = re.compile(r"\w+")
_INTEGER = re.compile(r"[+-]?\d+")
_TEXT = re.compile(r"(?:var)?char\(\d+\)")


def arrow_schema(table: str, schema: dict[str, Any], mode: MappingMode) -> pa.Schema:
    """Convert a schema from Delta's JSON to Arrow.

    Every field becomes nullable, because files may violate what writers declare.

    Args:
        table: URI of the table, for messages.
        schema: a valid schema; see `check_schema`.
        mode: the identity of fields: the physical name (`name`), the column mapping id (`id`), or the name in the
            schema (`none`).

    Raises:
        TableFormatError: a type is not supported, or a field lacks the physical name or id that the mode needs.
    """
    return pa.schema([_field(table, field, mode) for field in schema["fields"]])


def derived_columns(
    fields: Sequence[Mapping[str, Any]], schema: pa.Schema
) -> Iterator[tuple[pa.Field, list[pa.Field]]]:
    """Yield each generated column with the other top-level columns whose names occur in its expression.

    Args:
        fields: the top-level fields of the schema in Delta's JSON.
        schema: the same fields in Arrow.
    """
    for field, generated_column in zip(fields, schema, strict=True):
        expression = (field.get("metadata") or {}).get(_GENERATED)
        if expression is None:
            continue
        text = str(expression).replace("``", "`").lower()  # In a quoted name, two backticks stand for one.
        words = set(_WORD.findall(text))
        yield (
            generated_column,
            [
                other
                for other in schema
                if other.name != generated_column.name
                and (other.name.lower() in words or (not _WORD.fullmatch(other.name) and other.name.lower() in text))
            ],
        )


def check_schema(schema: Any, partition_columns: tuple[str, ...]) -> dict[str, Any]:
    """Check a schema in Delta's JSON, and return it as a dict.

    Args:
        schema: the parsed JSON.
        partition_columns: names of columns that the schema must have.

    Raises:
        ValueError: a part has a wrong type, fields have the same name, a partition column is missing, or limits are
            exceeded.
    """
    field_count = [0]
    _check_fields(as_object(schema, "the schema").get("fields"), field_count, 1)
    names = {field["name"] for field in schema["fields"]}
    for name in partition_columns:
        if name not in names:
            raise ValueError(f"the partition column {name!r} is not in it")
    return dict(schema)


def _check_fields(fields: Any, field_count: list[int], depth: int) -> None:
    """Raise ValueError if fields are invalid, or if two fields have the same name or column mapping.

    Args:
        fields: The fields of the schema or of a struct, as in JSON.
        field_count: The number of types that were checked, as the only item of a list. It is increased.
        depth: The number of structs, lists and maps around the fields. The schema itself is the first struct.
    """
    named_fields = as_objects(fields, "the fields of the schema")
    # Delta requires names that are unique without regard to case.
    check_distinct(
        (as_text(field.get("name"), "the name of a field").lower() for field in named_fields), "a field named"
    )
    mappings = [as_object(field.get("metadata") or {}, "the metadata of a field") for field in named_fields]
    for key in ("delta.columnMapping.physicalName", "delta.columnMapping.id"):
        check_distinct((str(mapping[key]) for mapping in mappings if mapping.get(key) is not None), f"the {key}")
    for field in named_fields:
        _check_type(field.get("type"), field_count, depth)


def _check_type(type_: Any, field_count: list[int], depth: int) -> None:
    """Raise ValueError if a type, or a type nested in it, is malformed or exceeds a limit.

    Names of primitive types are not checked.

    Args:
        type_: The type, as in JSON.
        field_count: The number of types that were checked, as the only item of a list. It is increased.
        depth: The number of structs, lists and maps around the type. The schema itself is the first struct.
    """
    field_count[0] += 1
    check_limit(FIELDS, field_count[0], "fields in a schema")
    check_limit(NESTING, depth, "types inside of each other in a schema")
    if isinstance(type_, str):
        return
    kind = as_text(as_object(type_, "the type of a field").get("type"), "the type of a field")
    if kind == "struct":
        _check_fields(type_.get("fields"), field_count, depth + 1)
    for part in {"array": ("elementType",), "map": ("keyType", "valueType"), "udt": ("sqlType",)}.get(kind, ()):
        _check_type(type_.get(part), field_count, depth + 1)


def _field(table: str, field: dict[str, Any], mode: MappingMode) -> pa.Field:
    """Convert a field from Delta's JSON to Arrow.

    Raises TableFormatError if its type is not supported, or if it lacks the name or id that the column mapping needs.
    """
    result = pa.field(field["name"], _type(table, field["name"], field["type"], mode))
    if mode == "none":
        return result
    key = "delta.columnMapping.physicalName" if mode == "name" else "delta.columnMapping.id"
    value = field.get("metadata", {}).get(key)
    if value is None:
        raise TableFormatError(f"{table}: column {field['name']!r} has no {key}, but the table maps columns by {mode}")
    return result.with_metadata({FIELD_ID: str(value)})


def _type(table: str, column: str, type_: Any, mode: MappingMode) -> pa.DataType:
    """Convert a type from Delta's JSON to Arrow.

    Raises TableFormatError if it is not supported.
    """
    if isinstance(type_, str):
        return _primitive(table, column, type_)
    if type_["type"] == "struct":
        return pa.struct([_field(table, field, mode) for field in type_["fields"]])
    if type_["type"] == "array":
        return pa.list_(pa.field("element", _type(table, column, type_["elementType"], mode)))
    if type_["type"] == "map":
        key = _type(table, column, type_["keyType"], mode)
        return pa.map_(key, _type(table, column, type_["valueType"], mode))
    if type_["type"] == "udt":
        # A user-defined type of Spark, such as a vector of MLlib. Data files store its values as `sqlType`.
        return _type(table, column, type_["sqlType"], mode)
    raise TableFormatError(f"{table}: column {column!r} has type {type_['type']!r}, which is not supported")


def _primitive(table: str, column: str, name: str) -> pa.DataType:
    """Convert the name of a primitive type to Arrow.

    Raises TableFormatError if it is not supported.
    """
    if name in _PRIMITIVES:
        return _PRIMITIVES[name]
    decimal = _DECIMAL.fullmatch(name)
    if decimal and 0 < int(decimal[1]) <= _DECIMAL_DIGITS >= int(decimal[2]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if _TEXT.fullmatch(name):
        return pa.string()
    raise TableFormatError(f"{table}: column {column!r} has type {name!r}, which is not supported")


def parse_partition_value(text: str | None, type_: pa.DataType) -> Constant:
    """Parse a partition value of the log.

    None and the empty text are null.

    If the type has a time zone, a timestamp without a zone is in UTC. Raises ValueError if the text is not a value of
    the type.
    """
    if text is None or text == "":
        return pa.nulls(1, type_)
    try:
        return constant(_parse_text(text, type_), type_)
    except (ValueError, ArithmeticError, pa.ArrowException):
        raise ValueError(f"{text!r} is no value of type {type_}") from None


def _parse_text(text: str, type_: pa.DataType) -> Any:
    """Parse a text to a value of the type, for the function `constant`.

    A timestamp becomes an integer, other values become Python objects. Invalid texts for booleans and integers, such as
    `1.5`, are returned unchanged, and `constant` rejects them. For an invalid text for another type, raises ValueError
    or ArithmeticError.
    """
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
        ticks, offset = parse_timestamp(text, type_.unit)
        if offset and type_.tz is None:
            raise ValueError("a time with a zone")
        return ticks
    raise ValueError("a type of no partition column")
