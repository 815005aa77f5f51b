"""The union of the schemas of several files: columns by name, with types that hold all values."""

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
    """Merge the schemas of the files of a table.

    Args:
        table: URI of the table, for messages.
        schemas: path and fields of each file.

    Returns:
        (columns, reasons). `columns` has the columns of all files, in the order of first occurrence. All of them are
            nullable. `reasons` says why a column does not have the type that it has in some file. For example, it is
            not int32, because another file has int64.

    Raises:
        TableFormatError: no type holds the values of two files without loss. The message has both files and types.
    """
    origins_by_name: dict[str, dict[pa.DataType, str]] = {}
    for path, fields in schemas:
        for field in fields:
            origins_by_name.setdefault(field.name, {}).setdefault(field.type, path)
    united_fields = []
    reasons: list[TypeReason] = []
    for name, origins in origins_by_name.items():
        wide = _union(table, name, origins)
        united_fields.append(pa.field(name, wide))
        for type_ in origins:
            # The reason names the first type whose values this type does not hold.
            unfit_types = (other for other in origins if _wider_column(type_, other) != type_)
            reasons += [TypeReason(name, type_, f"{other} in {origins[other]}") for other in islice(unfit_types, 1)]
    return united_fields, reasons


def _union(table: str, name: str, origins: Mapping[pa.DataType, str]) -> pa.DataType:
    """Return the type that holds the values of a column in all files.

    `origins` has one file for each type of the column, for messages.

    Raises TableFormatError if no type holds all of them.
    """
    # Floats come first. Otherwise signed and unsigned integers could merge to a decimal first, whose values floats do
    # not hold.
    sorted_types = sorted(origins, key=lambda type_: not pa.types.is_floating(type_))
    wide = sorted_types[0]
    for number, type_ in enumerate(sorted_types[1:], 1):
        wider = _wider_column(wide, type_)
        if wider is None:
            # The union of earlier types may be the type of no file.
            earlier = [wide] * (wide in origins) + sorted_types[:number]
            other = next((other for other in earlier if _wider_column(other, type_) is None), sorted_types[0])
            raise TableFormatError(
                f"{table}: column {name!r} is {other} in {origins[other]} and {type_} in {origins[type_]}; no type "
                "holds both without loss: say in the table's `schema` what type the column is to have"
            )
        wide = wider
    return wide


def _wider_column(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the type of a top-level column with values of two types; None if no type holds both.

    Integers and floats become floats, because pandas writes integers as floats if there are nulls.
    """
    if {pa.types.is_integer(first), pa.types.is_integer(second)} == {True, False}:
        other = second if pa.types.is_integer(first) else first
        if pa.types.is_floating(other):
            # `bounds.check_integers` refuses integers that the float would round.
            return wider_type(first, second) or pa.float64()
    return wider_type(first, second)


def wider_type(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the narrowest type that holds all values of two types; None if no type does.

    Both types must be results of `canonical_type`, such as `string` in place of `large_string`. This is not checked.
    """
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    for widen in (_wider_number, _wider_timestamp, _wider_time, _wider_binary, _wider_nested):
        wider = widen(first, second)
        if wider is not None:
            return wider
    return None


def _wider_number(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the narrowest number type that holds all values of two number types.

    None if there is no such type, or if a type is not a number type.
    """
    if pa.types.is_integer(first) and pa.types.is_integer(second):
        return _wider_integer(first, second)
    if pa.types.is_floating(first) and pa.types.is_floating(second):
        return max(first, second, key=lambda type_: type_.bit_width)
    if pa.types.is_floating(first) and pa.types.is_integer(second):
        first, second = second, first
    if pa.types.is_integer(first) and pa.types.is_floating(second):
        # Each float type with the bits of its significand. It holds all integers of so many bits.
        needed_bits = first.bit_width - pa.types.is_signed_integer(first)
        exact = [(pa.float16(), 11), (pa.float32(), 24), (pa.float64(), 53)]
        return next(
            (type_ for type_, bits in exact if bits >= needed_bits and type_.bit_width >= second.bit_width), None
        )
    return _wider_decimal(first, second)


def _wider_integer(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return the narrowest type that holds all values of two integer types.

    For uint64 and a signed integer, it is a decimal.
    """
    if pa.types.is_signed_integer(first) == pa.types.is_signed_integer(second):
        return max(first, second, key=lambda type_: type_.bit_width)
    signed, unsigned = (first, second) if pa.types.is_signed_integer(first) else (second, first)
    bits = max(signed.bit_width, unsigned.bit_width * 2)
    if bits > 64:
        return pa.decimal128(20, 0)
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]


def _wider_decimal(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the decimal type that holds all values of two types, of which at least one is decimal.

    None for types other than decimals and integers, or if no decimal has enough digits.
    """
    shapes = [_decimal_shape(first), _decimal_shape(second)]
    if not (pa.types.is_decimal(first) or pa.types.is_decimal(second)) or None in shapes:
        return None
    (first_digits, first_scale), (second_digits, second_scale) = (shape for shape in shapes if shape)
    scale = max(first_scale, second_scale)
    precision = max(first_digits, second_digits) + scale
    if precision <= 38:
        return pa.decimal128(precision, scale)
    return pa.decimal256(precision, scale) if precision <= 76 else None


def _decimal_shape(type_: pa.DataType) -> tuple[int, int] | None:
    """Return how many digits a decimal or integer type has at most before and after the point.

    For example, the result is (8, 2) for decimal(10, 2), and None for a float.
    """
    if pa.types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    if pa.types.is_integer(type_):
        return (20 if type_ == pa.uint64() else _INTEGER_DIGITS[type_.bit_width]), 0
    return None


def _wider_timestamp(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the common type of two timestamp types, with the finer unit.

    It is in UTC if the zones differ. Return None if a type is no timestamp, or if only one of them has a time zone.
    """
    if not (pa.types.is_timestamp(first) and pa.types.is_timestamp(second)) or bool(first.tz) != bool(second.tz):
        return None
    unit = max(first.unit, second.unit, key=_UNITS.index)
    return pa.timestamp(unit, first.tz if first.tz == second.tz else "UTC")


def _wider_time(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_time(first) and pa.types.is_time(second)):
        return None
    return pa.time64("ns") if "ns" in (first.unit, second.unit) else pa.time64("us")


def _wider_binary(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    kinds = [pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_) for type_ in (first, second)]
    return pa.binary() if all(kinds) else None


def _wider_nested(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the union of two structs, lists or maps; None for other types, or if no type holds both.

    A union of structs has the fields of both structs, matched by name.
    """
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        types = {field.name: field.type for field in first}
        for field in second:
            wider = wider_type(types[field.name], field.type) if field.name in types else field.type
            if wider is None:
                return None
            types[field.name] = wider
        return pa.struct([pa.field(name, type_) for name, type_ in types.items()])
    if pa.types.is_list(first) and pa.types.is_list(second):
        element = wider_type(first.value_type, second.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    if pa.types.is_map(first) and pa.types.is_map(second):
        key, item = wider_type(first.key_type, second.key_type), wider_type(first.item_type, second.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return None
