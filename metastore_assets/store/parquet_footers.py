"""Footers of Parquet files as bytes. Those of several files can be joined, to read the files as if they were one.

A footer is a struct `FileMetaData` in Thrift's compact protocol: version, schema, number of rows, row groups, and
further fields. Row groups of several files with the same schema become the row groups of one footer. Each file has a
range of offsets of its own, which is added to the offsets of its column chunks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

_ROW_GROUPS = 4
_COLUMNS = 1
_META_DATA = 3
_OFFSETS = frozenset([9, 10, 11, 14])
"""Fields of `ColumnMetaData` with offsets: data page, index page, dictionary page, Bloom filter."""
_I64, _BINARY, _LIST, _SET, _MAP, _STRUCT = 6, 8, 9, 10, 11, 12
_VARINTS = frozenset([4, 5, 6])


@dataclass(frozen=True)
class DividedFooter:
    """The footer of one file, divided at its row groups."""

    head: bytes
    """The fields before the number of rows: version and schema."""
    row_groups: bytes
    """The structs of all row groups, with shifted offsets."""
    tail: bytes
    """The fields after the row groups."""
    row_count: int
    group_count: int


def split_footer(metadata: pq.FileMetaData, shift: int) -> DividedFooter:
    """Return the footer of a file, with `shift` added to all offsets of its row groups."""
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    data = sink.getvalue().to_pybytes()
    length = int.from_bytes(data[-8:-4], "little")
    reader = _FooterReader(data[-8 - length : -8])
    return reader.split(shift, metadata.num_rows, metadata.num_row_groups)


def join_footers(footers: Sequence[DividedFooter]) -> pq.FileMetaData:
    """Return one footer with the row groups of several footers that have the same head."""
    groups = sum(footer.group_count for footer in footers)
    rows = sum(footer.row_count for footer in footers)
    size = bytes([groups << 4 | _STRUCT]) if groups < 15 else bytes([0xF0 | _STRUCT]) + _varint(groups)
    fields = [b"\x16", _varint(rows << 1), b"\x19", size, *(footer.row_groups for footer in footers), footers[0].tail]
    data = b"".join([footers[0].head, *fields])
    return pq.read_metadata(pa.BufferReader(b"".join([b"PAR1", data, struct.pack("<I", len(data)), b"PAR1"])))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _FooterReader:
    """A reader of a footer that copies row groups and changes their offsets."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._out = bytearray()
        self._copied = 0
        self._shift = 0

    def split(self, shift: int, row_count: int, group_count: int) -> DividedFooter:
        self._shift = shift
        number, head_end, groups, end = 0, 0, b"", 0
        while (kind := self._field(number)) is not None:
            type_, start, number = kind
            if number == 3:
                head_end = start
            if number == _ROW_GROUPS:
                count = self._list_header()
                self._copied = self._at
                for _ in range(count):
                    self._row_group()
                self._flush()
                groups, end = bytes(self._out), self._at
            else:
                self._skip(type_)
        return DividedFooter(self._data[:head_end], groups, self._data[end:], row_count, group_count)

    def _field(self, number: int) -> tuple[int, int, int] | None:
        """Return (type, position of the header, id) of the next field of a struct; None at its end."""
        start = self._at
        header = self._data[start]
        self._at += 1
        if not header:
            return None
        if header >> 4:
            return header & 15, start, number + (header >> 4)
        raw = self._read_varint()
        return header & 15, start, raw >> 1 ^ -(raw & 1)

    def _list_header(self) -> int:
        header = self._data[self._at]
        self._at += 1
        return header >> 4 if header >> 4 < 15 else self._read_varint()

    def _row_group(self) -> None:
        number = 0
        while (kind := self._field(number)) is not None:
            number = kind[2]
            if number == _COLUMNS:
                for _ in range(self._list_header()):
                    self._column()
            else:
                self._skip(kind[0])

    def _column(self) -> None:
        number = 0
        while (kind := self._field(number)) is not None:
            number = kind[2]
            if number == _META_DATA:
                self._meta_data()
            else:
                self._skip(kind[0])

    def _meta_data(self) -> None:
        number = 0
        while (kind := self._field(number)) is not None:
            number = kind[2]
            if number in _OFFSETS:
                self._flush()
                raw = self._read_varint()
                self._out += _varint(raw + (self._shift << 1))  # Zigzag: offsets are not negative.
                self._copied = self._at
            else:
                self._skip(kind[0])

    def _flush(self) -> None:
        """Copy the bytes that were read since the last call."""
        self._out += self._data[self._copied : self._at]
        self._copied = self._at

    def _read_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _skip(self, type_: int) -> None:
        if type_ in _VARINTS:
            self._read_varint()
        elif type_ == 3:
            self._at += 1
        elif type_ == 7:
            self._at += 8
        elif type_ == _BINARY:
            length = self._read_varint()
            self._at += length
        elif type_ in (_LIST, _SET):
            element = self._data[self._at] & 15
            for _ in range(self._list_header()):
                self._skip(3 if element < 3 else element)
        elif type_ == _MAP:
            count = self._read_varint()
            if count:
                types = self._data[self._at]
                self._at += 1
                for _ in range(count):
                    self._skip(3 if types >> 4 < 3 else types >> 4)
                    self._skip(3 if types & 15 < 3 else types & 15)
        elif type_ == _STRUCT:
            number = 0
            while (kind := self._field(number)) is not None:
                number = kind[2]
                self._skip(kind[0])
