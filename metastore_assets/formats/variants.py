"""Variants, which are semi-structured values, and the assembly of shredded variants.

A variant has two binary fields: `value`, and `metadata` with the names of all object fields in the value. A shredded
variant has a third field, `typed_value`. It stores values of one type, or some fields of objects, outside of `value`.
Assembly encodes the content of `typed_value` into `value` again. Parquet's specification defines both forms
(https://github.com/apache/parquet-format, VariantEncoding.md and VariantShredding.md).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa

from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import UnsupportedError

VARIANT = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
"""The stored form of a variant: two binary fields, which only together have a meaning."""
TYPED_VALUE = "typed_value"
"""The field in which a shredded variant stores the values of one type."""

_NULL = b"\x00"
_OBJECT, _ARRAY = 2, 3
_SHORT_TEXT = 64
_INTEGERS = ((0x0C, "<b", 7), (0x10, "<h", 15), (0x14, "<i", 31), (0x18, "<q", 63))
"""Header, `struct` format and bits without the sign of each integer type of variants."""
_DECIMALS = ((0x20, 4, 9), (0x24, 8, 18), (0x28, 16, 38))
"""Header, size in bytes and maximum digits of each decimal type of variants."""

_Encode = Callable[[Any], bytes]


@dataclass(frozen=True)
class _Names:
    """The names in the metadata of a variant.

    Objects refer to a name by its position.
    """

    names: tuple[str, ...]
    ids: Mapping[str, int]


def assemble_variants(array: pa.StructArray) -> pa.StructArray:
    """Return shredded variants as structs of the type `VARIANT`, with two binary fields.

    Args:
        array: structs with the fields `metadata`, `typed_value` and, unless all values are shredded, `value`.

    Raises:
        ArrowInvalid: a variant is corrupt.
        UnsupportedError: values are shredded as a type that no variant has. It is a subclass of ArrowInvalid.
    """
    metadata = array.field("metadata").cast(pa.binary())
    is_valid = array.is_valid().to_pylist()
    try:
        names = [_decode_names(data or b"") for data in metadata.to_pylist()]
        values = _values(array, names)
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise pa.ArrowInvalid(f"it has a corrupt variant: {error!r}") from error
    # A required value that is missing is a variant null.
    stored_values = [(value or _NULL) if valid else None for valid, value in zip(is_valid, values, strict=True)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([metadata, pa.array(stored_values, pa.binary())], fields=list(VARIANT), mask=mask)


@lru_cache(maxsize=64)
def _decode_names(metadata: bytes) -> _Names:
    """Return the field names in the metadata of a variant."""
    if not metadata:
        return _Names((), {})
    size = (metadata[0] >> 6) + 1
    count = _unsigned(metadata, 1, size)
    offsets = [_unsigned(metadata, 1 + size * (1 + index), size) for index in range(count + 1)]
    start = 1 + size * (count + 2)
    names = tuple(metadata[start + offsets[index] : start + offsets[index + 1]].decode() for index in range(count))
    return _Names(names, {name: index for index, name in enumerate(names)})


def _values(group: pa.StructArray, names: Sequence[_Names]) -> list[bytes | None]:
    """Return the encoded value of each row; None for a missing value.

    Args:
        group: structs with the field `value`, `typed_value`, or both.
        names: the names in the metadata of each row.

    Raises:
        ArrowInvalid: A row has both a value and a typed value that is no object.
        IndexError, KeyError: A value is corrupt.
        UnsupportedError: Values are shredded as a type that no variant has.
    """
    values = _column(group, "value")
    typed_values = _column(group, TYPED_VALUE)
    residual: list[bytes | None] = [None] * len(group) if values is None else values.to_pylist()
    if typed_values is None:
        return residual
    if pa.types.is_struct(typed_values.type):
        return _objects(residual, typed_values, names)
    encoded_values = _arrays(typed_values, names) if pa.types.is_list(typed_values.type) else _primitives(typed_values)
    if any(value is not None and other is not None for value, other in zip(residual, encoded_values, strict=True)):
        raise pa.ArrowInvalid("it has a shredded variant with two values")
    return [value if other is None else other for value, other in zip(residual, encoded_values, strict=True)]


def _column(group: pa.StructArray, name: str) -> pa.Array | None:
    index = group.type.get_field_index(name)
    # Fields of a null struct are null here, which `StructArray.field` does not promise.
    return None if index < 0 else pc.struct_field(group, [index])


def _objects(
    residual: Sequence[bytes | None], typed_values: pa.StructArray, names: Sequence[_Names]
) -> list[bytes | None]:
    """Return the encoded value of each row; None for a missing value.

    If `typed_values` is null in a row, the value is the one in `residual`. Otherwise it is an object that joins the
    shredded fields in `typed_values` and the other fields in `residual`.

    Args:
        residual: the field `value` of each row.
        typed_values: the field `typed_value` of each row.
        names: the names in the metadata of each row.
    """
    columns = [
        (field.name, _values(pc.struct_field(typed_values, [index]), names))
        for index, field in enumerate(typed_values.type)
    ]
    result: list[bytes | None] = []
    for row, is_object in enumerate(typed_values.is_valid().to_pylist()):
        residual_value = residual[row]
        if not is_object:
            result.append(residual_value)
            continue
        fields = {} if residual_value is None else _decode_object(residual_value, names[row])
        for name, values in columns:
            value = values[row]
            if value is not None:
                fields[name] = value
        result.append(_encode_object(fields, names[row]))
    return result


def _arrays(typed_values: pa.ListArray, names: Sequence[_Names]) -> list[bytes | None]:
    """Return each row's list as an encoded array; None for a null list."""
    lengths = pc.list_value_length(typed_values).to_pylist()
    inner_names = [names[row] for row, length in enumerate(lengths) for _ in range(length or 0)]
    items = iter(_values(typed_values.flatten(), inner_names))
    return [
        None if length is None else _encode_array([next(items) or _NULL for _ in range(length)]) for length in lengths
    ]


def _primitives(typed_values: pa.Array) -> list[bytes | None]:
    """Return each row's value in encoded form; None for null."""
    if isinstance(typed_values, pa.ExtensionArray) and typed_values.type != pa.uuid():
        typed_values = typed_values.storage
    encode = _encoder(typed_values.type)
    if isinstance(typed_values, pa.ExtensionArray):
        typed_values = typed_values.storage
    elif pa.types.is_temporal(typed_values.type):
        typed_values = typed_values.view(pa.int32() if typed_values.type.bit_width == 32 else pa.int64())
    return [None if value is None else encode(value) for value in typed_values.to_pylist()]


def _encoder(type_: pa.DataType) -> _Encode:
    """Return a function that encodes one value of an Arrow type as the bytes of a variant.

    Raises UnsupportedError if variants cannot have values of this type.
    """
    if type_ == pa.bool_():
        return lambda value: b"\x04" if value else b"\x08"
    if pa.types.is_signed_integer(type_):
        return _encode_integer
    if type_ == pa.float32():
        return lambda value: b"\x38" + struct.pack("<f", value)
    if type_ == pa.float64():
        return lambda value: b"\x1c" + struct.pack("<d", value)
    if pa.types.is_decimal(type_) and type_.precision <= _DECIMALS[-1][2]:
        return _decimal_encoder(type_)
    if pa.types.is_string(type_):
        return _encode_text
    if pa.types.is_binary(type_):
        return lambda value: b"\x3c" + struct.pack("<I", len(value)) + value
    if type_ == pa.uuid():
        return lambda value: b"\x50" + value
    if type_ == pa.date32():
        return lambda value: b"\x2c" + struct.pack("<i", value)
    if type_ == pa.time64("us"):
        return lambda value: b"\x44" + struct.pack("<q", value)
    if pa.types.is_timestamp(type_) and type_.unit in ("us", "ns"):
        header = {("us", True): b"\x30", ("us", False): b"\x34", ("ns", True): b"\x48", ("ns", False): b"\x4c"}[
            type_.unit, type_.tz is not None
        ]
        return lambda value: header + struct.pack("<q", value)
    raise UnsupportedError(f"it holds a variant shredded as {type_}, which variants do not have")


def _encode_integer(value: int) -> bytes:
    """Encode an integer in the narrowest type, as Spark does.

    Raises ArrowInvalid if it has more than 64 bits.
    """
    for header, struct_format, bits in _INTEGERS:
        if -(1 << bits) <= value < 1 << bits:
            return bytes([header]) + struct.pack(struct_format, value)
    raise pa.ArrowInvalid(f"it has a variant of {value}, which no type of variants holds")


def _decimal_encoder(type_: pa.DataType) -> _Encode:
    header, size = next((header, size) for header, size, digits in _DECIMALS if type_.precision <= digits)

    def encode(value: Decimal) -> bytes:
        sign, digits, _ = value.as_tuple()
        unscaled_value = int("".join(map(str, digits))) * (-1 if sign else 1)
        return bytes([header, type_.scale]) + unscaled_value.to_bytes(size, "little", signed=True)

    return encode


def _encode_text(value: str) -> bytes:
    data = value.encode()
    if len(data) < _SHORT_TEXT:
        return bytes([len(data) << 2 | 1]) + data
    return b"\x40" + struct.pack("<I", len(data)) + data


def _encode_array(items: Sequence[bytes]) -> bytes:
    size, large = _size(sum(map(len, items))), len(items) > 0xFF
    header = (large << 2 | size - 1) << 2 | _ARRAY
    return bytes([header]) + len(items).to_bytes(4 if large else 1, "little") + _offsets(items, size) + b"".join(items)


def _encode_object(fields: Mapping[str, bytes], names: _Names) -> bytes:
    """Encode an object.

    Raises KeyError if the metadata lack a name.
    """
    sorted_fields = sorted(fields.items(), key=lambda item: item[0].encode())
    ids, items = [names.ids[name] for name, _ in sorted_fields], [value for _, value in sorted_fields]
    size, id_size, large = _size(sum(map(len, items))), _size(max(ids, default=0)), len(items) > 0xFF
    header = (large << 4 | (id_size - 1) << 2 | size - 1) << 2 | _OBJECT
    return b"".join(
        [
            bytes([header]),
            len(items).to_bytes(4 if large else 1, "little"),
            *(number.to_bytes(id_size, "little") for number in ids),
            _offsets(items, size),
            *items,
        ]
    )


def _decode_object(data: bytes, names: _Names) -> dict[str, bytes]:
    """Return the encoded value of each field of an object, by name.

    Raises ArrowInvalid if `data` is no object.
    """
    if data[0] & 3 != _OBJECT:
        raise pa.ArrowInvalid("it has a shredded variant with two values, of which one is no object")
    header = data[0] >> 2
    size, id_size, count_size = (header & 3) + 1, (header >> 2 & 3) + 1, 4 if header >> 4 & 1 else 1
    count = _unsigned(data, 1, count_size)
    start = 1 + count_size
    ids = [_unsigned(data, start + id_size * index, id_size) for index in range(count)]
    start += id_size * count
    offsets = [_unsigned(data, start + size * index, size) for index in range(count + 1)]
    start += size * (count + 1)
    # Values may be in another order than the fields, so a value ends where the next greater offset begins.
    ascending = sorted(set(offsets))
    ends = dict(pairwise(ascending))
    return {
        names.names[number]: data[start + offset : start + ends[offset]]
        for number, offset in zip(ids, offsets[:-1], strict=True)
    }


def _offsets(items: Sequence[bytes], size: int) -> bytes:
    """Return the offset of each item and the end of the last one, encoded in `size` bytes each."""
    position = 0
    parts = [position.to_bytes(size, "little")]
    for item in items:
        position += len(item)
        parts.append(position.to_bytes(size, "little"))
    return b"".join(parts)


def _size(number: int) -> int:
    """Return the number of bytes, from 1 to 4, that an unsigned number takes."""
    return max(1, (number.bit_length() + 7) // 8)


def _unsigned(data: bytes, start: int, size: int) -> int:
    """Return the little-endian unsigned number in the `size` bytes from position `start` on.

    Raises IndexError if `data` has fewer bytes.
    """
    if start + size > len(data):
        raise IndexError(f"a number at {start} is beyond {len(data)} bytes")
    return int.from_bytes(data[start : start + size], "little")
