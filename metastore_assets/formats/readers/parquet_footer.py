"""Reading of Parquet footers in which old Java libraries gave the logical type UNKNOWN to what is no column of nulls.

They give it to the group of a map's entries, which Arrow refuses, and to intervals, which Arrow would read as nulls.
This module removes that logical type before Arrow parses the footer. No information is lost: the parent of such a group
has the type MAP, and an interval has the older converted type INTERVAL too.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

REFUSED = "Logical type Null cannot be applied to group node"
"""Part of the message with which Arrow refuses such a file."""
_MAGIC = b"PAR1"
_TAIL_BYTES = 8

# Type codes of Thrift's compact protocol, and field ids of Parquet's structs.
_STOP, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 8, 9, 10, 11, 12
_VARINT_BITS = 70
_FIXED_BYTES = {1: 0, 2: 0, 3: 1, 7: 8}
_SCHEMA = 2
_CHILDREN, _CONVERTED_TYPE, _LOGICAL_TYPE = 5, 6, 10
_UNKNOWN = 11
_INTERVAL = 21 << 1
"""The converted type INTERVAL, as Thrift encodes the number."""
_INTERVAL_BYTES = 12


def has_unknown_intervals(schema: pq.ParquetSchema) -> bool:
    """Return whether a schema has columns of the logical type UNKNOWN that may be intervals, by the width of values."""
    columns = map(schema.column, range(len(schema)))
    return any(column.length == _INTERVAL_BYTES and column.logical_type.type == "UNKNOWN" for column in columns)


def read_lenient_metadata(source: pa.NativeFile) -> pq.FileMetaData:
    """Read a footer without the invalid logical types. Raises ArrowInvalid if the footer has other errors."""
    size = source.size()
    source.seek(size - _TAIL_BYTES)
    tail = source.read(_TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > size - _TAIL_BYTES:
        raise pa.ArrowInvalid("it has no Parquet footer")
    source.seek(size - _TAIL_BYTES - length)
    try:
        footer = _without_unknown_types(source.read(length))
    except (IndexError, RecursionError) as error:
        raise pa.ArrowInvalid("its Parquet footer is broken or cut off") from error
    return pq.read_metadata(io.BytesIO(_MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC))


def _without_unknown_types(footer: bytes) -> bytes:
    parts = []
    start = 0
    for first, last in _unknown_types(_ThriftCursor(footer)):
        parts.append(footer[start:first])
        start = last
    return b"".join([*parts, footer[start:]])


def _unknown_types(footer: _ThriftCursor) -> Iterator[tuple[int, int]]:
    """Yield start and end (exclusive) of the bytes of each invalid logical type."""
    for field, kind, _ in footer.fields():
        if field != _SCHEMA:
            footer.skip(kind)
            continue
        for _ in range(footer.list_header()[0]):
            is_wrong = False
            for inner_field, inner_kind, start in footer.fields():
                # It is a group, or an interval.
                is_wrong |= inner_field == _CHILDREN or (inner_field == _CONVERTED_TYPE and footer.peek() == _INTERVAL)
                first = footer.peek() if inner_field == _LOGICAL_TYPE else 0
                footer.skip(inner_kind)
                # It must be the last field of its struct, because ids of later fields are relative to it.
                if inner_field == _LOGICAL_TYPE and is_wrong and first >> 4 == _UNKNOWN and footer.peek() == _STOP:
                    yield start, footer.position


class _ThriftCursor:
    """A cursor over bytes in Thrift's compact protocol, which skips values and reads headers."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def peek(self) -> int:
        return self._data[self.position]

    def fields(self) -> Iterator[tuple[int, int, int]]:
        """Yield id, type code and start of each field of a struct.

        The caller must read or skip each value before the next field.
        """
        field = 0
        while True:
            start = self.position
            header = self._byte()
            if header == _STOP:
                return
            delta = header >> 4
            field = field + delta if delta else self._zigzag()
            yield field, header & 15, start

    def list_header(self) -> tuple[int, int]:
        """Read the number of elements of a list, and their type code."""
        header = self._byte()
        count = header >> 4
        return (self._varint() if count == 15 else count), header & 15

    def skip(self, kind: int) -> None:
        """Skip a value of the type with the code `kind`. Raises IndexError at the end of the data."""
        if kind in _FIXED_BYTES:
            self.position += _FIXED_BYTES[kind]
        elif kind == _BINARY:
            length = self._varint()
            self.position += length
        elif kind in (_LIST, _SET):
            count, element = self.list_header()
            for _ in range(count):
                self._skip_element(element)
        elif kind == _MAP:
            if count := self._varint():
                kinds = self._byte()
                for _ in range(count):
                    self._skip_element(kinds >> 4)
                    self._skip_element(kinds & 15)
        elif kind == _STRUCT:
            for _, inner_kind, _ in self.fields():
                self.skip(inner_kind)
        else:
            self._varint()
        self._check()

    def _check(self) -> None:
        # A list may declare any number of elements of fixed size, which are skipped without being read.
        if self.position > len(self._data):
            raise IndexError("behind the end")

    def _skip_element(self, kind: int) -> None:
        # A boolean field takes no bytes after its header, but a boolean element takes one.
        if kind in (1, 2):
            self.position += 1
            self._check()
        else:
            self.skip(kind)

    def _byte(self) -> int:
        value = self._data[self.position]
        self.position += 1
        return value

    def _varint(self) -> int:
        value = 0
        for shift in range(0, _VARINT_BITS, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise IndexError("a number without end")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
