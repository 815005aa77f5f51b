"""A cursor over bytes in Thrift's compact protocol, the encoding of Parquet footers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

STOP, BINARY, LIST, SET, MAP, STRUCT = 0, 8, 9, 10, 11, 12
"""Type codes of the protocol. `STOP` ends a struct."""
_VARINTS = frozenset([4, 5, 6])
"""The type codes of integers."""
_VARINT_BITS = 70
_FIXED_BYTES = {1: 0, 2: 0, 3: 1, 7: 8}
"""The number of bytes of a field, by type code: true and false, a byte, a double."""
PADDED_BYTES = 9
"""Number of bytes of a number that `encode_zigzags` encodes."""
_SHIFTS = np.arange(0, 7 * PADDED_BYTES, 7)
_MORE_BYTES_FOLLOW = np.array([128] * (PADDED_BYTES - 1) + [0], np.uint8)
"""The highest bit of each byte of a number of nine bytes. It is 1 if another byte follows."""


class ThriftCursor:
    """A cursor over bytes, which skips values and reads headers.

    Methods raise IndexError at the end of the bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def peek(self) -> int:
        """Return the byte at the position."""
        return self._data[self.position]

    def fields(self) -> Iterator[tuple[int, int, int]]:
        """Yield (id, type code, position of the field's header) for each field of a struct.

        The cursor is then at the field's value. The caller must read or skip the value before the next field.
        """
        field = 0
        while True:
            start = self.position
            header = self._data[start]
            self.position = start + 1
            if header == STOP:
                return
            delta = header >> 4
            field = field + delta if delta else self._zigzag()
            yield field, header & 15, start

    def select_fields(self, *ids: int) -> Iterator[None]:
        """Read a struct.

        Stop at each field whose id is in `ids`, and skip the values of all others. At each yield, the cursor is
        before the field's value. The caller must read the value before it continues.
        """
        for field, kind, _ in self.fields():
            if field in ids:
                yield
            else:
                self.skip(kind)

    def list_header(self) -> tuple[int, int]:
        """Read the number of elements of a list, and their type code."""
        header = self._byte()
        count = header >> 4
        return (self.varint() if count == 15 else count), header & 15

    def skip(self, kind: int) -> None:
        """Skip the value of a field of the type with the code `kind`."""
        if kind in _VARINTS:
            self.varint()
        elif kind == BINARY:
            length = self.varint()
            self._advance(length)
        elif kind == STRUCT:
            for _, inner_kind, _ in self.fields():
                self.skip(inner_kind)
        elif kind in _FIXED_BYTES:
            self._advance(_FIXED_BYTES[kind])
        elif kind in (LIST, SET):
            count, element = self.list_header()
            for _ in range(count):
                self._skip_element(element)
        elif kind == MAP:
            if count := self.varint():
                kinds = self._byte()
                for _ in range(count):
                    self._skip_element(kinds >> 4)
                    self._skip_element(kinds & 15)
        else:
            raise IndexError(f"there is no type {kind}")

    def varint(self) -> int:
        """Read an unsigned integer of variable length."""
        value = self._data[self.position]
        self.position += 1
        if value < 128:
            return value
        value &= 127
        for shift in range(7, _VARINT_BITS, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise IndexError("a number without end")

    def _advance(self, size: int) -> None:
        # A list may declare any number of elements of fixed size, which are skipped without being read.
        self.position += size
        if self.position > len(self._data):
            raise IndexError("behind the end")

    def _skip_element(self, kind: int) -> None:
        # A boolean field takes no bytes after its header, but a boolean element takes one.
        if kind in (1, 2):
            self._advance(1)
        else:
            self.skip(kind)

    def _byte(self) -> int:
        value = self._data[self.position]
        self.position += 1
        return value

    def _zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)


def encode_varint(value: int) -> bytes:
    """Encode a non-negative integer as one of variable length."""
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def encode_zigzag(number: int) -> bytes:
    """Encode a non-negative integer in zigzag encoding, as a varint of twice its value."""
    return encode_varint(number << 1)


def encode_zigzags(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Encode non-negative integers below 2**62 as `encode_zigzag` does, with nine bytes each.

    Fewer bytes would suffice for a small number. The additional bytes contain zero digits, so the value stays the same.
    The result has one more dimension, which has the nine bytes.
    """
    return ((numbers[..., None] << 1 >> _SHIFTS) & 127).astype(np.uint8) | _MORE_BYTES_FOLLOW


def encode_struct_list_header(count: int) -> bytes:
    """Encode the header of a list of structs with this number of elements."""
    return bytes([count << 4 | STRUCT]) if count < 15 else bytes([0xF0 | STRUCT]) + encode_varint(count)
