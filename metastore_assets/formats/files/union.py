"""The union of several schemas: columns by name, types widened without loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.base import TypeReason

_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_UNITS = ("s", "ms", "us", "ns")


def union_fields(
    table: str, schemas: Iterable[tuple[str, Sequence[pa.Field]]]
) -> tuple[list[pa.Field], list[TypeReason]]:
    """Return the columns of all schemas, nullable and in the order of first occurrence, and why types were widened.

    Args:
        table: URI of the table, for messages.
        schemas: path and fields of each file.

    Raises:
        TableFormatError: no type holds the values of two files without loss. The message has both.
    """
    origins_by_name: dict[str, dict[pa.DataType, str]] = {}
    for path, fields in schemas:
        for field in fields:
            origins_by_name.setdefault(field.name, {}).setdefault(field.type, path)
    united = []
    reasons: list[TypeReason] = []
    for name, origins in origins_by_name.items():
        wide = _union(table, name, origins)
        united.append(pa.field(name, wide))
        for type_ in origins:
            # The reason is the first type that this one does not hold.
            others = (other for other in origins if _wider_column(type_, other) != type_)
            reasons += [TypeReason(name, type_, f"{other} in {origins[other]}") for other in islice(others, 1)]
    return united, reasons


def _union(table: str, name: str, origins: Mapping[pa.DataType, str]) -> pa.DataType:
    # Floats come first: they hold signed and unsigned integers. The union of these alone is a decimal, which floats
    # do not hold.
    ordered = sorted(origins, key=lambda type_: not pa.types.is_floating(type_))
    wide, origin = ordered[0], origins[ordered[0]]
    for type_ in ordered[1:]:
        wider = _wider_column(wide, type_)
        if wider is None:
            raise TableFormatError(
                f"{table}: column {name!r} is {wide} in {origin} and {type_} in {origins[type_]}; no type holds both "
                "without loss: say in the table's `schema` what type the column is to have"
            )
        wide, origin = wider, origins[type_] if wider == type_ else origin
    return wide


def _wider_column(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return `wider_type`, except that doubles hold 64-bit integers: those beyond 2^53 are refused when they are read.

    pandas writes a column of integers as floats when it has nulls.
    """
    if {pa.types.is_integer(left), pa.types.is_integer(right)} == {True, False}:
        other = right if pa.types.is_integer(left) else left
        if pa.types.is_floating(other):
            return wider_type(left, right) or pa.float64()
    return wider_type(left, right)


def canonical_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that readers give a column: no dictionaries, views, large offsets, or extensions except UUID."""
    if type_ == pa.bool8():
        return pa.bool_()
    if isinstance(type_, pa.BaseExtensionType):
        return type_ if type_ == pa.uuid() else canonical_type(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return canonical_type(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_decimal(type_) and type_.bit_width < 128:
        return pa.decimal128(type_.precision, type_.scale)
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, canonical_type(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(canonical_type(type_.key_type), canonical_type(type_.item_type))
    if pa.types.is_nested(type_) and type_.num_fields == 1:
        return pa.list_(pa.field("element", canonical_type(type_.field(0).type)))
    return type_


def wider_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the narrowest canonical type that holds all values of two types; None if there is none."""
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    for widen in (_wider_number, _wider_timestamp, _wider_time, _wider_binary, _wider_nested):
        wider = widen(left, right)
        if wider is not None:
            return wider
    return None


def _wider_number(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        return _wider_integer(left, right)
    if pa.types.is_floating(left) and pa.types.is_floating(right):
        return max(left, right, key=lambda type_: type_.bit_width)
    if pa.types.is_floating(left) and pa.types.is_integer(right):
        left, right = right, left
    if pa.types.is_integer(left) and pa.types.is_floating(right):
        # Bits of the significand: integers of so many bits are exact.
        needed = left.bit_width - pa.types.is_signed_integer(left)
        exact = [(pa.float16(), 11), (pa.float32(), 24), (pa.float64(), 53)]
        return next((type_ for type_, bits in exact if bits >= needed and type_.bit_width >= right.bit_width), None)
    return _wider_decimal(left, right)


def _wider_integer(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if pa.types.is_signed_integer(left) == pa.types.is_signed_integer(right):
        return max(left, right, key=lambda type_: type_.bit_width)
    signed, unsigned = (left, right) if pa.types.is_signed_integer(left) else (right, left)
    bits = max(signed.bit_width, unsigned.bit_width * 2)
    if bits > 64:
        return pa.decimal128(20, 0)
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]


def _wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    shapes = [_decimal_shape(left), _decimal_shape(right)]
    if not (pa.types.is_decimal(left) or pa.types.is_decimal(right)) or None in shapes:
        return None
    (left_whole, left_scale), (right_whole, right_scale) = (shape for shape in shapes if shape)
    scale = max(left_scale, right_scale)
    precision = max(left_whole, right_whole) + scale
    if precision <= 38:
        return pa.decimal128(precision, scale)
    return pa.decimal256(precision, scale) if precision <= 76 else None


def _decimal_shape(type_: pa.DataType) -> tuple[int, int] | None:
    """Return the digits before and after the decimal point."""
    if pa.types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    if pa.types.is_integer(type_):
        return (20 if type_ == pa.uint64() else _INTEGER_DIGITS[type_.bit_width]), 0
    return None


def _wider_timestamp(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_timestamp(left) and pa.types.is_timestamp(right)) or bool(left.tz) != bool(right.tz):
        return None
    unit = max(left.unit, right.unit, key=_UNITS.index)
    return pa.timestamp(unit, left.tz if left.tz == right.tz else "UTC")


def _wider_time(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_time(left) and pa.types.is_time(right)):
        return None
    return pa.time64("ns") if "ns" in (left.unit, right.unit) else pa.time64("us")


def _wider_binary(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    kinds = [pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_) for type_ in (left, right)]
    return pa.binary() if all(kinds) else None


def _wider_nested(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        types = {field.name: field.type for field in left}
        for field in right:
            wider = wider_type(types[field.name], field.type) if field.name in types else field.type
            if wider is None:
                return None
            types[field.name] = wider
        return pa.struct([pa.field(name, type_) for name, type_ in types.items()])
    if pa.types.is_list(left) and pa.types.is_list(right):
        element = wider_type(left.value_type, right.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    if pa.types.is_map(left) and pa.types.is_map(right):
        key, item = wider_type(left.key_type, right.key_type), wider_type(left.item_type, right.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return None
