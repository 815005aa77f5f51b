"""Conversion of Avro schemas to Arrow types: logical types, named types, unions and field ids.

Preparing a decoded value means converting it to a Python value that `pa.array` accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metastore_assets.formats.schema_casting import PARQUET_FIELD_ID
from metastore_assets.storage.corrupt_input import (
    CORRUPTION_ERRORS,
    LimitError,
    UnsupportedError,
    check_limit,
    error_reason,
)
from metastore_assets.storage.limits import FIELDS, FIXED_BYTES

Prepare = Callable[[Any], Any]

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_PYTHON_TYPES: Mapping[str, type] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
}
_NAMED = ("record", "error", "enum", "fixed")
_MAX_DIGITS = 76
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}


@dataclass(frozen=True)
class AvroType:
    """One type of an Avro schema, and how its values are decoded and converted to Arrow."""

    written: Any
    """The schema for the decoder, without logical types, and with generated names."""
    raw: pa.DataType
    """Arrow type of the values after decoding and `prepare`, before logical types are applied."""
    arrow: pa.DataType
    """Arrow type of the values that the reader returns, with field ids at every depth."""
    children: tuple[AvroType, ...] = ()
    prepare: Prepare | None = None
    """Converts a decoded, non-null value to one that `pa.array` accepts; None if no conversion is needed."""


def resolve_record_type(schema: Any) -> AvroType:
    """Return the type of a file's records.

    Args:
        schema: schema of the file, as parsed JSON.

    Raises:
        ArrowInvalid: the schema is invalid, or Arrow has no such type.
        LimitError: the schema has too many types, or a `fixed` is too wide.
    """
    try:
        resolved_type = _Resolver().resolve(schema, "")
    except (LimitError, pa.ArrowInvalid):
        raise
    except CORRUPTION_ERRORS as error:
        raise pa.ArrowInvalid(f"its Avro schema is broken: {error_reason(error)}") from error
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        raise pa.ArrowInvalid(f"its Avro schema is no record but {resolved_type.arrow}")
    return resolved_type


class _Resolver:
    """A resolver of the types in one Avro schema."""

    def __init__(self) -> None:
        self._definitions: dict[str, tuple[dict[str, Any], str]] = {}
        self._open: list[str] = []
        self._count = 0

    def resolve(self, schema: Any, namespace: str) -> AvroType:
        """Return the type of a schema.

        `namespace` is that of the enclosing type.

        Raises:
            LimitError: The whole schema has too many types.
            UnsupportedError: A type has no reader, such as a record that contains itself.
            ArrowInvalid: A name is not defined.
            LookupError, TypeError, AttributeError: The schema is malformed, for example without `type`.
        """
        self._count += 1
        check_limit(FIELDS, self._count, "types in its Avro schema")
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            return self._reference(schema, namespace)
        kind = schema["type"]
        if not isinstance(kind, str):
            # Some writers nest a primitive type as {"type": {"type": "string"}}.
            return self.resolve(kind, namespace)
        if kind in _NAMED:
            return self._define(schema, namespace)
        if kind == "array":
            return self._array(schema, namespace)
        if kind == "map":
            return self._map(schema, namespace)
        if kind in _PRIMITIVES:
            return _leaf(kind, _PRIMITIVES[kind], schema)
        return self._reference(kind, namespace)

    def _reference(self, name: str, namespace: str) -> AvroType:
        """Return the type of this name: a primitive type, or one that the schema has already defined.

        Raises ArrowInvalid for an unknown name, and UnsupportedError for a record that contains itself.
        """
        if name in _PRIMITIVES:
            return AvroType(name, _PRIMITIVES[name], _PRIMITIVES[name])
        type_name = full_name(name, namespace)
        definition = self._definitions.get(type_name) or self._definitions.get(name)
        if definition is None:
            raise pa.ArrowInvalid(f"its Avro schema names a type {name!r} that it does not define")
        return self._named(type_name if type_name in self._definitions else name, *definition)

    def _define(self, schema: dict[str, Any], namespace: str) -> AvroType:
        type_name = full_name(schema["name"], schema.get("namespace") or namespace)
        inner_namespace = type_name.rpartition(".")[0]
        self._definitions[type_name] = (schema, inner_namespace)
        return self._named(type_name, schema, inner_namespace)

    def _named(self, type_name: str, schema: dict[str, Any], namespace: str) -> AvroType:
        """Return the type of a record, enum or fixed.

        Raises UnsupportedError if it contains itself.
        """
        if type_name in self._open:
            raise UnsupportedError(f"its Avro type {type_name!r} contains itself, which has no reader")
        # Each use becomes a separate definition with a generated name, so that names cannot collide.
        written_schema: dict[str, Any] = {"type": schema["type"], "name": f"n{self._count}"}
        if schema["type"] == "enum":
            # Existing files have symbols that the Avro specification forbids.
            return AvroType(written_schema | {"symbols": schema["symbols"]}, pa.string(), pa.string())
        if schema["type"] == "fixed":
            check_limit(FIXED_BYTES, schema["size"], "bytes in a value of fixed width")
            # Parquet, to which decoded rows are written, has no values of zero bytes.
            return _leaf(written_schema | {"size": schema["size"]}, pa.binary(schema["size"] or -1), schema)
        self._open.append(type_name)
        fields = [(field, self.resolve(field["type"], namespace)) for field in schema["fields"]]
        self._open.pop()
        written_schema |= {
            "type": "record",
            "fields": [{"name": f"f{number}", "type": type_.written} for number, (_, type_) in enumerate(fields)],
        }
        types = tuple(type_ for _, type_ in fields)
        arrow = pa.struct([_field(field["name"], type_, field.get("field-id")) for field, type_ in fields])
        return _struct(written_schema, arrow, types, _prepare_record(types))

    def _array(self, schema: dict[str, Any], namespace: str) -> AvroType:
        """Return the list type of an array, or the map type of an array of key-value records."""
        item = self.resolve(schema["items"], namespace)
        written_schema = {"type": "array", "items": item.written}
        raw = pa.list_(pa.field("element", item.raw))
        prepare = item.prepare and _prepare_list(item.prepare)
        if schema.get("logicalType") == "map" and pa.types.is_struct(item.arrow) and item.arrow.num_fields == 2:
            # Iceberg writes maps whose keys are not strings as arrays of key-value records.
            key, value = item.arrow
            return AvroType(written_schema, raw, pa.map_(key.with_nullable(False), value), (item,), prepare)
        element = _field("element", item, schema.get("element-id"))
        return AvroType(written_schema, raw, pa.list_(element), (item,), prepare)

    def _map(self, schema: dict[str, Any], namespace: str) -> AvroType:
        item = self.resolve(schema["values"], namespace)
        key = pa.field("key", pa.string(), nullable=False, metadata=_metadata(schema.get("key-id")))
        arrow = pa.map_(key, _field("value", item, schema.get("value-id")))
        written_schema = {"type": "map", "values": item.written}
        return AvroType(written_schema, pa.map_(pa.string(), item.raw), arrow, (item,), _prepare_map(item.prepare))

    def _union(self, branches: list[Any], namespace: str) -> AvroType:
        """Return the type of a union.

        With one branch besides null, it is the type of this branch. For `int` and `long`, it is the type of `long`, and
        for `float` and `double`, that of `double`, unless a branch has a logical type. Otherwise, it is a struct with a
        field for each branch besides null.
        """
        types = [self.resolve(branch, namespace) for branch in branches]
        written_schema = [type_.written for type_ in types]
        non_null_types = [type_ for type_ in types if type_.written != "null"]
        if not non_null_types:
            return AvroType(written_schema, pa.null(), pa.null())
        if len(non_null_types) == 1:
            only = non_null_types[0]
            unwrap = _prepare_named(only.prepare) if _is_named(only.written) else only.prepare
            return AvroType(written_schema, only.raw, only.arrow, only.children, unwrap)
        for wider, names in (("long", {"int", "long"}), ("double", {"float", "double"})):
            if {str(type_.written) for type_ in non_null_types} == names and all(
                type_.raw == type_.arrow for type_ in non_null_types
            ):
                return AvroType(written_schema, _PRIMITIVES[wider], _PRIMITIVES[wider])
        arrow = pa.struct([pa.field(f"member{number}", type_.arrow) for number, type_ in enumerate(non_null_types)])
        return _struct(written_schema, arrow, tuple(non_null_types), _prepare_union(non_null_types))


def _leaf(written_schema: Any, raw: pa.DataType, schema: Mapping[str, Any]) -> AvroType:
    return AvroType(written_schema, raw, _logical(raw, schema) or raw)


def _logical(raw: pa.DataType, schema: Mapping[str, Any]) -> pa.DataType | None:
    """Return the Arrow type of a schema's logical type; None without a valid logical type."""
    name = schema.get("logicalType")
    if name == "decimal" and (pa.types.is_binary(raw) or pa.types.is_fixed_size_binary(raw)):
        return _decimal(schema)
    if name == "uuid" and raw == pa.binary(16):
        return pa.uuid()
    if raw == pa.int32():
        return {"date": pa.date32(), "time-millis": pa.time32("ms")}.get(str(name))
    if raw == pa.int64() and name == "time-micros":
        return pa.time64("us")
    kind, _, unit = str(name).rpartition("-")
    if raw == pa.int64() and unit in _UNITS and kind in ("timestamp", "local-timestamp"):
        is_instant = kind == "timestamp" and schema.get("adjust-to-utc", True)
        return pa.timestamp(_UNITS[unit], "UTC" if is_instant else None)
    return None


def _decimal(schema: Mapping[str, Any]) -> pa.DataType | None:
    """Return a decimal type; None if its precision or scale is invalid.

    Raises UnsupportedError for a scale over 76.
    """
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0):
        return None
    if scale > _MAX_DIGITS:
        raise UnsupportedError(
            f"a decimal of {scale} digits after the point has no reader; at most {_MAX_DIGITS} are read"
        )
    # BigQuery declares 77 digits for every BIGNUMERIC. A value of more than 76 is an error.
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(min(precision, _MAX_DIGITS), scale)


def _struct(
    written_schema: Any, arrow: pa.StructType, types: tuple[AvroType, ...], prepare: Prepare | None
) -> AvroType:
    raw = pa.struct([pa.field(f"f{number}", type_.raw) for number, type_ in enumerate(types)])
    return AvroType(written_schema, raw, arrow, types, prepare)


def _field(name: str, type_: AvroType, field_id: Any) -> pa.Field:
    return pa.field(name, type_.arrow, metadata=_metadata(field_id))


def _metadata(field_id: Any) -> dict[bytes, bytes] | None:
    return None if field_id is None else {PARQUET_FIELD_ID: str(field_id).encode()}


def full_name(name: str, namespace: str) -> str:
    """Return the full name of a named type.

    A name that contains a dot is already full.
    """
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _is_named(written_schema: Any) -> bool:
    return isinstance(written_schema, dict) and written_schema["type"] in _NAMED


def _prepare_named(prepare: Prepare | None) -> Prepare:
    """Return a function that takes a pair (type name, value), and returns `prepare(value)`.

    If `prepare` is None, the function returns the value unchanged. The decoder returns such pairs for values of named
    types in a union.
    """
    if prepare is None:
        return lambda pair: pair[1]
    return lambda pair: prepare(pair[1])


def _prepare_record(types: tuple[AvroType, ...]) -> Prepare | None:
    """Return a function that converts the fields of a decoded record in place.

    The result is None if no field needs a conversion.
    """
    steps = {f"f{number}": type_.prepare for number, type_ in enumerate(types) if type_.prepare}
    if not steps:
        return None

    def prepare(record: dict[str, Any]) -> dict[str, Any]:
        for name, step in steps.items():
            if record[name] is not None:
                record[name] = step(record[name])
        return record

    return prepare


def _prepare_list(item: Prepare) -> Prepare:
    return lambda values: [None if value is None else item(value) for value in values]


def _prepare_map(item: Prepare | None) -> Prepare:
    if item is None:
        return lambda mapping: list(mapping.items())
    return lambda mapping: [(key, None if value is None else item(value)) for key, value in mapping.items()]


def _prepare_union(non_null_types: list[AvroType]) -> Prepare:
    """Return a function that converts a union's value to a dict with the field of its branch.

    Arrow makes a struct of it, in which the fields of the other branches are null. Raises UnsupportedError if values
    of two branches have the same Python type.
    """
    branch_numbers: dict[Any, int] = {}
    for number, type_ in enumerate(non_null_types):
        written_schema = type_.written
        name = written_schema["type"] if isinstance(written_schema, dict) else written_schema
        key = written_schema["name"] if _is_named(written_schema) else _PYTHON_TYPES[name]
        if key in branch_numbers:
            raise UnsupportedError(
                f"its Avro schema has a union of {', '.join(_names(non_null_types))}, which has no reader"
            )
        branch_numbers[key] = number
    steps = [type_.prepare for type_ in non_null_types]

    def prepare(value: Any) -> dict[str, Any]:
        key, inner = value if isinstance(value, tuple) else (type(value), value)
        number = branch_numbers[key]
        step = steps[number]
        return {f"f{number}": inner if step is None or inner is None else step(inner)}

    return prepare


def _names(types: list[AvroType]) -> list[str]:
    return [str(type_.arrow) for type_ in types]
