"""Column types that the configuration declares, as in `schema: {zip: string, amount: decimal(10,2)}`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from metastore_assets.errors import ConfigError
from metastore_assets.formats.files.text_values import first_mismatch, parse
from metastore_assets.formats.files.type_names import parse_type_name
from metastore_assets.formats.schema_casting import cast_leaf, type_kind
from metastore_assets.startup import pc
from metastore_assets.values.json import scalar_json
from metastore_assets.values.types import is_text

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig

DeclaredTypes = Mapping[str, pa.DataType]
"""Declared types by dotted path: `a`, `a.b` in a struct, `a.element` in a list, `a.key` and `a.value` in a map."""


def declared_types(table: TableConfig) -> dict[str, pa.DataType]:
    """Parse the column types in a table's configuration.

    Raises ConfigError for an unknown type.
    """
    types = {}
    for column, name in table.declared.items():
        try:
            types[column] = parse_type_name(name)
        except ValueError as error:
            raise ConfigError(f"table {table.name!r}: schema.{column} = {name!r}: {error}") from None
    return types


def check_declared_columns(
    table: str, declared_types: DeclaredTypes, schema: pa.Schema, partition_columns: Sequence[str]
) -> None:
    """Raise ConfigError if a type is declared for a partition column, or for an unknown column.

    If the schema has only partition columns, any other column is accepted: files without rows do not show their
    columns.

    Args:
        table: name of the table, for messages.
        declared_types: the declared types.
        schema: the schema of the table.
        partition_columns: names of the partition columns.
    """
    for column in declared_types:
        if column in partition_columns:
            raise ConfigError(
                f"table {table!r}: schema.{column}: {column} is a partition column, whose values are text as folders' "
                "names say them; give it a type in options.template"
            )
    if all(field.name in partition_columns for field in schema):
        return  # Files of CSV or JSON without rows do not show which columns they have.
    paths = [path for field in schema for path, _ in _paths(field.name, field.type)]
    for column in declared_types:
        if column not in paths:
            near = difflib.get_close_matches(column, paths, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"table {table!r}: schema.{column} is no column of the table; {hint}its columns are: {', '.join(paths)}"
            )


def apply_declared_types(name: str, type_: pa.DataType, declared_types: DeclaredTypes) -> pa.DataType:
    """Return the type of a column, with declared types in place of inferred ones at any depth.

    Args:
        name: dotted path of the column.
        type_: the inferred type.
        declared_types: the declared types.
    """
    if name in declared_types:
        return declared_types[name]
    if not any(path.startswith(f"{name}.") for path in declared_types):
        return type_
    if pa.types.is_struct(type_):
        return pa.struct(
            [(field.name, apply_declared_types(f"{name}.{field.name}", field.type, declared_types)) for field in type_]
        )
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", apply_declared_types(f"{name}.element", type_.value_type, declared_types)))
    if pa.types.is_map(type_):
        return pa.map_(
            apply_declared_types(f"{name}.key", type_.key_type, declared_types),
            apply_declared_types(f"{name}.value", type_.item_type, declared_types),
        )
    return type_


def cast_losslessly(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast the values of a column without children to another type.

    No value may change.

    Texts are parsed. A timestamp without a zone is taken as UTC.

    Raises:
        ArrowInvalid: the types have no values in common, or a value would change. In the second case, the message has
            the first such value.
    """
    stored_kind, target_kind = "text" if is_text(array.type) else type_kind(array.type), type_kind(target)
    convert: Callable[[pa.Array, pa.DataType], pa.Array]
    if stored_kind == "text" and target_kind != "bytes":
        array, convert = array.cast(pa.string()), parse
    elif stored_kind != "other" and (target_kind == "text" or stored_kind == target_kind):
        convert = _cast
    elif (stored_kind, target_kind) in _COMPATIBLE_KINDS:
        convert = _cast_between_kinds
    else:
        raise pa.ArrowInvalid(f"the file holds {array.type} where the table has {target}; {SCHEMA_HINT}")
    if array.null_count == len(array):
        return pa.nulls(len(array), target)
    # Arrow cannot compare floats of 16 bits.
    array = array.cast(pa.float32()) if pa.types.is_float16(array.type) else array
    try:
        return convert(array, target)
    except _REFUSALS:
        values = array.drop_null()
        index = first_mismatch(values, lambda part: _can_convert(convert, part, target))
        raise pa.ArrowInvalid(f"{_shown(values[index])!r:.100} is no {target}; {SCHEMA_HINT}") from None


def _shown(value: pa.Scalar) -> str:
    try:
        return str(value)
    except (ValueError, OverflowError):  # Python has no nanoseconds, and no years beyond 9999.
        return str(scalar_json(value))


_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
SCHEMA_HINT = "say in the table's `schema` what type the column is to have"
_COMPATIBLE_KINDS = {
    ("boolean", "number"),
    ("number", "boolean"),
    ("date", "timestamp"),
    ("timestamp", "date"),
    ("text", "bytes"),
}
"""Pairs of different kinds of types that have some values in common. Every kind converts to text, which is not listed.
"""


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast values to another type of the same kind, or to text.

    Raises ArrowInvalid if a value changes.
    """
    if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
        return _decimals(array, target)
    result = cast_leaf(array, target)
    return result if pa.types.is_string(target) or pa.types.is_binary(target) else _require_unchanged(array, result)


def _cast_between_kinds(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_binary(target):
        return array.cast(pa.string()).cast(target)
    return _require_unchanged(array, pc.cast(_naive(array), _naive_type(target)).view(target))


def _decimals(integers: pa.Array, target: pa.DataType) -> pa.Array:
    # Arrow casts integers to a decimal only if it has digits for every integer of their type.
    return pc.cast(pc.cast(integers, pa.decimal128(38, min(target.scale, 18))), target)


def _require_unchanged(array: pa.Array, result: pa.Array) -> pa.Array:
    """Return the result of a cast.

    Raises ArrowInvalid if a cast back does not give the original values.
    """
    before, after = _naive(array), _naive(result)
    is_decimal = pa.types.is_integer(after.type) and pa.types.is_decimal(before.type)
    back = _decimals(after, before.type) if is_decimal else pc.cast(after, before.type, safe=False)
    same = pc.equal(before, back)
    if pa.types.is_floating(before.type):
        same = pc.or_(same, pc.and_(pc.is_nan(before), pc.is_nan(back)))
    if pc.any(pc.invert(same)).as_py():
        raise pa.ArrowInvalid("a value would be another one")
    return result


def _naive(array: pa.Array) -> pa.Array:
    return array.view(_naive_type(array.type)) if pa.types.is_timestamp(array.type) else array


def _naive_type(type_: pa.DataType) -> pa.DataType:
    return pa.timestamp(type_.unit) if pa.types.is_timestamp(type_) else type_


def _can_convert(convert: Callable[[pa.Array, pa.DataType], pa.Array], array: pa.Array, target: pa.DataType) -> bool:
    try:
        convert(array, target)
    except _REFUSALS:
        return False
    return True


def _paths(name: str, type_: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the dotted path and the type of a column, and of all fields within it."""
    yield name, type_
    if pa.types.is_struct(type_):
        for field in type_:
            yield from _paths(f"{name}.{field.name}", field.type)
    elif pa.types.is_list(type_):
        yield from _paths(f"{name}.element", type_.value_type)
    elif pa.types.is_map(type_):
        yield from _paths(f"{name}.key", type_.key_type)
        yield from _paths(f"{name}.value", type_.item_type)
