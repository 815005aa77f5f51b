"""What an ORC file's footer says that pyarrow does not tell: its calendar, its writer, and statistics per column.

The footer is a protobuf message; https://orc.apache.org/specification/ORCv1/ has its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

_PROLEPTIC = 2
_CPP_WRITER = 1
_TAIL_FOOTER = 2
_FOOTER_METADATA, _FOOTER_ROWS, _FOOTER_STATISTICS, _FOOTER_WRITER, _FOOTER_CALENDAR = 5, 6, 7, 9, 11
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Value = int | bytes


@dataclass(frozen=True)
class OrcTail:
    """The footer of an ORC file. Columns are numbered in pre-order, the root struct is 0."""

    footer: dict[int, list[Value]]

    @classmethod
    def of(cls, serialized: bytes) -> OrcTail:
        """From what pyarrow calls the serialized file tail. Raises ArrowInvalid when it is no such message."""
        tail = message(serialized)
        return cls(message(_bytes(tail.get(_TAIL_FOOTER, [b""])[0])))

    @property
    def is_proleptic(self) -> bool:
        """Whether days before 15 October 1582 are certain to be counted in the Gregorian calendar, as Arrow does.

        Of files that do not say so Apache's own reader supposes the Julian calendar; the C++ library knows no other
        than the Gregorian.
        """
        calendar = self.footer.get(_FOOTER_CALENDAR)
        return calendar == [_PROLEPTIC] or (calendar is None and self.footer.get(_FOOTER_WRITER) == [_CPP_WRITER])

    @cached_property
    def metadata_keys(self) -> frozenset[str]:
        """Names of the entries that writers and users added."""
        items = [message(_bytes(item)) for item in self.footer.get(_FOOTER_METADATA, [])]
        return frozenset(_bytes(item[1][0]).decode("utf-8", "replace") for item in items if 1 in item)

    def statistics(self, column: int) -> dict[int, list[Value]] | None:
        """The statistics message of one column over the whole file; None when the file has none."""
        found = self.footer.get(_FOOTER_STATISTICS, [])
        return message(_bytes(found[column])) if column < len(found) else None


def message(data: bytes) -> dict[int, list[Value]]:
    """The fields of a protobuf message by number, each with its values in order: integers unsigned, the rest bytes."""
    fields: dict[int, list[Value]] = {}
    try:
        for number, value in _fields(data):
            fields.setdefault(number, []).append(value)
    except (IndexError, ValueError) as error:
        raise pa.ArrowInvalid(f"the footer of the ORC file is broken: {error}") from error
    return fields


def signed(value: Value) -> int:
    """What a `sint` field holds."""
    number = integer(value)
    return (number >> 1) ^ -(number & 1)


def double(value: Value) -> float:
    """What a `double` field holds."""
    return float(struct.unpack("<d", _bytes(value))[0])


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        value: Value
        if kind == _VARINT:
            value, position = _varint(data, position)
        else:
            if kind == _BYTES:
                length, position = _varint(data, position)
            elif kind in (_FIXED64, _FIXED32):
                length = 8 if kind == _FIXED64 else 4
            else:
                raise ValueError(f"there is no wire type {kind}")
            if position + length > len(data):
                raise ValueError("it ends early")
            value, position = data[position : position + length], position + length
        yield key >> 3, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise pa.ArrowInvalid("the footer of the ORC file is broken: a number stands where a message should")
    return value


def integer(value: Value) -> int:
    """What an unsigned number field holds."""
    if isinstance(value, bytes):
        raise pa.ArrowInvalid("the footer of the ORC file is broken: a message stands where a number should")
    return value
