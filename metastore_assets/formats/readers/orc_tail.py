"""The parts of an ORC footer that pyarrow does not return: calendar, writer, stripes and statistics.

The footer is a protobuf message. https://orc.apache.org/specification/ORCv1/ documents its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from metastore_assets.storage.corrupt_input import UnsupportedError, check_limit
from metastore_assets.storage.limits import FIELDS, NESTING, STRIPE_ROWS
from metastore_assets.storage.thrift import encode_varint

# Field numbers and enum values of ORC's protobuf messages.
_JULIAN, _PROLEPTIC = 1, 2
_CPP_WRITER = 1
_TAIL_POSTSCRIPT, _TAIL_FOOTER = 1, 2
_FOOTER_LENGTH, _COMPRESSION, _METADATA_LENGTH = 1, 2, 5
_CONTENT_LENGTH = 2
_TIMESTAMP = 9
_STRIPE_OFFSET, _STRIPE_INDEX, _STRIPE_DATA, _STRIPE_FOOTER = 1, 2, 3, 4
_FOOTER_STRIPES, _FOOTER_TYPES = 3, 4
_STRIPE_ROWS = 5
_TYPE_KIND, _TYPE_CHILDREN, _TYPE_PRECISION, _TYPE_SCALE = 1, 2, 5, 6
_DECIMAL, _DECIMAL_DIGITS = 14, 38
_FOOTER_METADATA, _FOOTER_ROWS, _FOOTER_STATISTICS, _FOOTER_WRITER, _FOOTER_CALENDAR = 5, 6, 7, 9, 11
_VARINT_BITS = 70
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Value = int | bytes


@dataclass(frozen=True)
class OrcTail:
    """Footer and postscript of an ORC file, as protobuf fields by number.

    Columns are numbered in pre-order; the root is 0.
    """

    footer: dict[int, list[Value]]
    postscript: dict[int, list[Value]]

    @classmethod
    def of(cls, serialized_tail: bytes) -> OrcTail:
        """Parse the serialized file tail that pyarrow returns.

        Raises ArrowInvalid if it is corrupt.
        """
        tail = decode_message(serialized_tail)
        footer, postscript = (
            decode_message(_bytes(tail.get(part, [b""])[0])) for part in (_TAIL_FOOTER, _TAIL_POSTSCRIPT)
        )
        result = cls(footer, postscript)
        result.check()
        return result

    def check(self) -> None:
        """Check types and stripes, because Arrow trusts them.

        Raises:
            ArrowInvalid: types are invalid, or the stripes contradict the footer.
            LimitError: there are too many types, or too many rows in a stripe.
        """
        types = self.footer.get(_FOOTER_TYPES, [])
        check_limit(FIELDS, len(types), "fields in the footer of the ORC file")
        depths = [1] * len(types)
        for column in reversed(range(len(types))):
            type_ = decode_message(_bytes(types[column]))
            if _number(type_, _TYPE_KIND) == _DECIMAL:  # Arrow crashes on too many digits.
                _check_decimal(_number(type_, _TYPE_PRECISION) or _DECIMAL_DIGITS, _number(type_, _TYPE_SCALE))
            children = [child for part in type_.get(_TYPE_CHILDREN, []) for child in _decode_integers(part)]
            if any(not column < child < len(types) for child in children):
                raise pa.ArrowInvalid("the footer of the ORC file is broken: its types are no tree")
            depths[column] += max((depths[child] for child in children), default=0)
            check_limit(NESTING, depths[column], "types inside of each other")
        # Arrow loads all rows of a stripe at once.
        stripes = [
            _number(decode_message(_bytes(stripe)), _STRIPE_ROWS) for stripe in self.footer.get(_FOOTER_STRIPES, [])
        ]
        check_limit(STRIPE_ROWS, max(stripes, default=0), "rows in one stripe of an ORC file")
        rows = _number(self.footer, _FOOTER_ROWS)
        if sum(stripes) != rows:
            raise pa.ArrowInvalid(f"the ORC file says that it has {rows:,} rows, its stripes have {sum(stripes):,}")

    @property
    def is_proleptic(self) -> bool:
        """Whether days before 15 October 1582 are certainly Gregorian, as Arrow assumes."""
        # Apache's Java reader takes a file without a declared calendar for Julian, but the C++ writer always writes
        # Gregorian days.
        calendar = self.footer.get(_FOOTER_CALENDAR)
        return calendar == [_PROLEPTIC] or (calendar is None and self.footer.get(_FOOTER_WRITER) == [_CPP_WRITER])

    @property
    def is_julian(self) -> bool:
        """Whether the file declares that days before 15 October 1582 are Julian, as Spark writes them."""
        return self.footer.get(_FOOTER_CALENDAR) == [_JULIAN]

    @property
    def has_clock_times(self) -> bool:
        """Whether the file has timestamps without a time zone, which are in the local time of the writer."""
        types = self.footer.get(_FOOTER_TYPES, [])
        return any(_number(decode_message(_bytes(type_)), _TYPE_KIND) == _TIMESTAMP for type_ in types)

    @property
    def is_java(self) -> bool:
        """Whether Apache's Java library, which Spark and Hive use, wrote the file."""
        return _number(self.footer, _FOOTER_WRITER) == 0

    @property
    def compression(self) -> int:
        """The number of the compression codec."""
        return _number(self.postscript, _COMPRESSION)

    @cached_property
    def stripes(self) -> list[Stripe]:
        """The position and lengths of each stripe, in file order."""
        return [Stripe(decode_message(_bytes(stripe))) for stripe in self.footer.get(_FOOTER_STRIPES, [])]

    def serialize(self, stripes: Sequence[Stripe], content: int, pack: Callable[[bytes], bytes]) -> bytes:
        """Return the last bytes of a new file, which has the same columns but different stripes.

        They are the footer, the postscript and the length of the postscript.

        Args:
            stripes: the stripes of the new file.
            content: number of bytes in the new file before the result.
            pack: encodes the footer in the compression of the file.
        """
        replaced_fields: dict[int, list[Value]] = {
            _FOOTER_STRIPES: [encode_message(stripe.fields) for stripe in stripes],
            _CONTENT_LENGTH: [content],
        }
        footer = pack(encode_message(self.footer | replaced_fields))
        postscript = encode_message(self.postscript | {_FOOTER_LENGTH: [len(footer)], _METADATA_LENGTH: [0]})
        return footer + postscript + bytes([len(postscript)])

    @cached_property
    def metadata_keys(self) -> frozenset[str]:
        """The keys of the user metadata."""
        items = [decode_message(_bytes(item)) for item in self.footer.get(_FOOTER_METADATA, [])]
        return frozenset(_bytes(item[1][0]).decode("utf-8", "replace") for item in items if 1 in item)

    def statistics(self, column: int) -> dict[int, list[Value]] | None:
        """Return the file statistics of a column, as protobuf fields by number; None without statistics."""
        messages = self.footer.get(_FOOTER_STATISTICS, [])
        return decode_message(_bytes(messages[column])) if column < len(messages) else None


@dataclass(frozen=True)
class Stripe:
    """Position and lengths of one stripe, as protobuf fields by number."""

    fields: dict[int, list[Value]]

    @property
    def offset(self) -> int:
        return _number(self.fields, _STRIPE_OFFSET)

    @property
    def footer_start(self) -> int:
        """The offset of the stripe's footer in the file."""
        return self.offset + _number(self.fields, _STRIPE_INDEX) + _number(self.fields, _STRIPE_DATA)

    @property
    def footer_length(self) -> int:
        return _number(self.fields, _STRIPE_FOOTER)

    def with_position(self, offset: int, footer_length: int) -> Stripe:
        """Return the same stripe at another offset, with a footer of another length."""
        return Stripe(self.fields | {_STRIPE_OFFSET: [offset], _STRIPE_FOOTER: [footer_length]})


def encode_message(fields: Mapping[int, Sequence[Value]]) -> bytes:
    """Encode a protobuf message whose values are unsigned integers or bytes."""
    data = bytearray()
    for number, values in sorted(fields.items()):
        for value in values:
            if isinstance(value, int):
                data += encode_varint(number << 3 | _VARINT) + encode_varint(value)
            else:
                data += encode_varint(number << 3 | _BYTES) + encode_varint(len(value)) + value
    return bytes(data)


def decode_message(data: bytes) -> dict[int, list[Value]]:
    """Return the values of each field of a protobuf message, by field number, in stored order.

    Each value is an unsigned integer, or the bytes of a text, a message or a number of fixed size.

    Raises ArrowInvalid if the message is corrupt.
    """
    fields: dict[int, list[Value]] = {}
    try:
        for number, value in _fields(data):
            fields.setdefault(number, []).append(value)
    except (IndexError, ValueError) as error:
        raise pa.ArrowInvalid(f"the footer of the ORC file is broken: {error}") from error
    return fields


def decode_signed(value: Value) -> int:
    """Decode the value of a `sint` field."""
    number = decode_integer(value)
    return (number >> 1) ^ -(number & 1)


def decode_double(value: Value) -> float:
    """Decode the value of a `double` field."""
    return float(struct.unpack("<d", _bytes(value))[0])


def _number(fields: dict[int, list[Value]], field: int) -> int:
    """Return the last value of an integer field; 0 if the field is absent."""
    return decode_integer(fields[field][-1]) if field in fields else 0


def _decode_integers(value: Value) -> list[int]:
    """Return the integers in one value of a repeated field.

    A packed value has several.

    Raises ArrowInvalid for a corrupt one.
    """
    if isinstance(value, int):
        return [value]
    numbers, position = [], 0
    try:
        while position < len(value):
            number, position = _varint(value, position)
            numbers.append(number)
    except (IndexError, ValueError) as error:
        raise pa.ArrowInvalid(f"the footer of the ORC file is broken: {error}") from error
    return numbers


def _check_decimal(precision: int, scale: int) -> None:
    if precision > _DECIMAL_DIGITS or scale > precision:
        raise UnsupportedError(f"it has a decimal({precision},{scale}), which has no reader")


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the number and the value of each field of a protobuf message, in stored order.

    Raises IndexError or ValueError if the message is corrupt.
    """
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
    """Return the unsigned integer that begins at a position, and the position after it.

    Raises IndexError or ValueError if it has no end.
    """
    value = 0
    for shift in range(0, _VARINT_BITS, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("it has a number without end")


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise pa.ArrowInvalid("the footer of the ORC file is broken: a number stands where a message should")
    return value


def decode_integer(value: Value) -> int:
    """Return a value that must be an unsigned integer.

    Raises ArrowInvalid if it is bytes.
    """
    if isinstance(value, bytes):
        raise pa.ArrowInvalid("the footer of the ORC file is broken: a message stands where a number should")
    return value
