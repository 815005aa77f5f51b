"""Conversion of Iceberg schemas to Arrow, with field ids and initial defaults at every depth."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.base import CONVERSION, INITIAL_DEFAULT
from metastore_assets.formats.schema_casting import field_default, identity, set_default
from metastore_assets.formats.values import Constant, constant
from metastore_assets.formats.variants import VARIANT
from metastore_assets.iso8601 import parse_date, parse_time, parse_timestamp
from metastore_assets.storage.corrupt_input import with_redacted_message
from metastore_assets.storage.limits import FIXED_BYTES
from metastore_assets.values.columns import FIELD_ID, child_fields

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "uuid": pa.uuid(),
    "binary": pa.binary(),
    "unknown": pa.null(),
    "variant": VARIANT,
}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)")
_DECIMAL_DIGITS = 38
_FIXED = re.compile(r"fixed\[\s*(\d{1,9})\s*\]")
_WELL_KNOWN_BINARY = re.compile(r"(geometry|geography)(\(.*\))?")


def arrow_schema(table: str, schema: Mapping[str, Any]) -> pa.Schema:
    """Return an Iceberg schema as an Arrow schema.

    All fields are nullable, except keys of maps.

    Args:
        table: URI of the table, for messages.
        schema: a schema of the metadata file.

    Raises:
        TableFormatError: a column has an unsupported type, or an initial default that is not of its type.
    """
    return pa.schema([_mark_float_defaults(_field(table, field, "")) for field in schema["fields"]])


def field_paths(fields: Any, path: tuple[Mapping[str, Any], ...] = ()) -> Iterator[tuple[Mapping[str, Any], ...]]:
    """Yield the path of each field: the enclosing fields, outermost first, then the field itself.

    Fields inside lists and maps are omitted.
    """
    for field in fields:
        yield (*path, field)
        type_ = field["type"]
        if isinstance(type_, dict) and type_["type"] == "struct":
            yield from field_paths(type_["fields"], (*path, field))


def is_geospatial(schema: Mapping[str, Any], field_id: str) -> bool:
    """Return True if a field id is that of a `geometry` or `geography` outside of lists and maps."""
    types = {str(path[-1]["id"]): path[-1]["type"] for path in field_paths(schema["fields"])}
    type_ = types.get(field_id)
    return isinstance(type_, str) and _WELL_KNOWN_BINARY.fullmatch(type_) is not None


def arrow_field(table: str, path: tuple[Mapping[str, Any], ...]) -> pa.Field:
    """Return the top-level Arrow field that contains only the field at a path.

    For the path of `a.b`, it is the field `a`, a struct with the single field `b`.

    Args:
        table: URI of the table, for messages.
        path: the enclosing fields, outermost first, then the field itself.

    Raises:
        TableFormatError: a field has an unsupported type, or an initial default that is not of its type.
    """
    field = _field(table, path[-1], "")
    for above in reversed(path[:-1]):
        field = _with_id_and_default(table, above, pa.field(above["name"], pa.struct([field])))
    return field


def _field(table: str, field: Mapping[str, Any], above: str) -> pa.Field:
    path = f"{above}{field['name']}"
    return _with_id_and_default(table, field, pa.field(field["name"], _arrow_type(table, path, field["type"])))


def _with_id_and_default(table: str, field: Mapping[str, Any], result: pa.Field) -> pa.Field:
    """Return `result` with the id and the initial default of a field in Iceberg's JSON.

    Raises TableFormatError if the default is not of the field's type.
    """
    result = result.with_metadata({FIELD_ID: str(field["id"])})
    default = field.get("initial-default")
    if default is None:
        return result
    try:
        return set_default(result, default_value(default, result.type)[0])
    except (ValueError, TypeError, ArithmeticError, KeyError, AttributeError, pa.ArrowException) as error:
        raise with_redacted_message(
            TableFormatError(
                f"{table}: the initial default {default!r} of column {field['name']!r} is no {result.type}: {error}"
            ),
            f"{table}: the initial default of column {field['name']!r} is no {result.type}",
            error,
        ) from error


def _mark_float_defaults(field: pa.Field) -> pa.Field:
    """Return a column, marked in its metadata if it is or contains 32-bit floats with an initial default.

    The mark is the value of the metadata key CONVERSION: the ids of these floats. A column without such floats is
    returned unchanged. Defaults depend on the type: the double 0.1 is not the float 0.1.
    """
    ids = list(_float_defaults(field))
    return field.with_metadata({**field.metadata, CONVERSION: json.dumps(["float defaults", *ids])}) if ids else field


def _float_defaults(field: pa.Field) -> Iterator[str]:
    """Yield the field id of each 32-bit float with an initial default, in a field and inside of it."""
    if pa.types.is_float32(field.type) and INITIAL_DEFAULT in (field.metadata or {}):
        yield identity(field)
    for child in child_fields(field.type):
        yield from _float_defaults(child)


def _arrow_type(table: str, path: str, type_: Any) -> pa.DataType:
    if isinstance(type_, str):
        return primitive_type(table, path, type_)
    if type_["type"] == "struct":
        return pa.struct([_field(table, field, f"{path}.") for field in type_["fields"]])
    if type_["type"] == "list":
        element = pa.field("element", _arrow_type(table, f"{path}.element", type_["element"]))
        return pa.list_(_with_field_id(element, type_["element-id"]))
    if type_["type"] == "map":
        key = pa.field("key", _arrow_type(table, f"{path}.key", type_["key"]), nullable=False)
        value = pa.field("value", _arrow_type(table, f"{path}.value", type_["value"]))
        return pa.map_(_with_field_id(key, type_["key-id"]), _with_field_id(value, type_["value-id"]))
    raise TableFormatError(f"{table}: column {path!r} has type {type_['type']!r}, which has no reader")


def _with_field_id(field: pa.Field, field_id: int) -> pa.Field:
    return field.with_metadata({FIELD_ID: str(field_id)})


def primitive_type(table: str, column: str, name: str) -> pa.DataType:
    """Return the Arrow type of a primitive Iceberg type, such as `decimal(9, 2)`.

    Raises TableFormatError if it is not supported.
    """
    if name in _PRIMITIVES:
        return _PRIMITIVES[name]
    decimal_match, fixed_match = _DECIMAL.fullmatch(name), _FIXED.fullmatch(name)
    if (
        decimal_match
        and 0 < int(decimal_match[1]) <= _DECIMAL_DIGITS
        and int(decimal_match[2]) <= int(decimal_match[1])
    ):
        return pa.decimal128(int(decimal_match[1]), int(decimal_match[2]))
    if fixed_match and int(fixed_match[1]) <= FIXED_BYTES:
        return pa.binary(int(fixed_match[1]))
    if _WELL_KNOWN_BINARY.fullmatch(name):
        return pa.binary()
    raise TableFormatError(f"{table}: column {column!r} has type {name!r}, which has no reader")


def default_value(value: Any, type_: pa.DataType) -> Constant:
    """Convert a value from Iceberg's JSON single-value form to a constant of the given type.

    Raises ValueError, TypeError or another conversion error if the value does not fit the type.
    """
    if value is None:
        return pa.nulls(1, type_)
    if pa.types.is_struct(type_):
        children = [
            default_value(value[identity(field)], field.type) if identity(field) in value else field_default(field)
            for field in type_
        ]
        return pa.StructArray.from_arrays(children, fields=list(type_)) if children else pa.array([{}], type_)
    if pa.types.is_list(type_):
        items = _concat_values(value, type_.value_type)
        return pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), items, type=type_)
    if pa.types.is_map(type_):
        keys, items = _concat_values(value["keys"], type_.key_type), _concat_values(value["values"], type_.item_type)
        if len(keys) != len(items):
            raise ValueError(f"it has {len(keys)} keys and {len(items)} values")
        return pa.MapArray.from_arrays(pa.array([0, len(keys)], pa.int32()), keys, items, type=type_)
    return constant(_to_arrow_input(value, type_), type_)


def _concat_values(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    return pa.concat_arrays([pa.nulls(0, type_), *(default_value(value, type_) for value in values)])


def _to_arrow_input(value: Any, type_: pa.DataType) -> Any:
    """Convert a JSON value of a leaf type to a value that Arrow accepts."""
    if pa.types.is_decimal(type_):
        return Decimal(value)
    if type_ == pa.uuid():
        return uuid.UUID(value).bytes
    if pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return bytes.fromhex(value)
    if pa.types.is_timestamp(type_):
        return parse_timestamp(value, type_.unit)[0]
    if pa.types.is_date(type_):
        return parse_date(value)
    if pa.types.is_time(type_):
        return parse_time(value, type_.unit)
    return value
