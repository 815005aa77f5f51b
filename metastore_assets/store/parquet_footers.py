"""Footers of Parquet files as bytes.

Those of several files can be joined, to read the files as if they were one.

A footer is a struct `FileMetaData` in Thrift's compact protocol: version, schema, number of rows, row groups, and
further fields. Row groups of several files with the same schema become the row groups of one footer. Each file has its
own range of offsets. The start of the range is added to the offsets of the file's column chunks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.storage.thrift import ThriftCursor, encode_struct_list_header, encode_varint, encode_zigzag

ROW_COUNT, ROW_GROUPS, COLUMNS, META_DATA = 3, 4, 1, 3
"""Ids of fields of `FileMetaData`, `RowGroup` and `ColumnChunk`."""
_OFFSETS = (9, 10, 11, 14)
"""Ids of the fields of `ColumnMetaData` with offsets: data page, index page, dictionary page, Bloom filter."""


@dataclass(frozen=True)
class DividedFooter:
    """A footer, divided at its row groups."""

    head: bytes
    """The fields before the number of rows: version and schema."""
    row_groups: bytes
    """The structs of all row groups."""
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
    head, row_groups, tail = _FooterSplitter(data[-8 - length : -8], shift).split()
    return DividedFooter(head, row_groups, tail, metadata.num_rows, metadata.num_row_groups)


def join_footers(footers: Sequence[DividedFooter]) -> pq.FileMetaData:
    """Return one footer with the row groups of several footers, in their order.

    All footers must have the same `head`, because the result has the schema of the first one. This is not checked.
    """
    groups = sum(footer.group_count for footer in footers)
    rows = sum(footer.row_count for footer in footers)
    fields = [
        b"\x16",
        encode_zigzag(rows),
        b"\x19",
        encode_struct_list_header(groups),
        *(footer.row_groups for footer in footers),
        footers[0].tail,
    ]
    data = b"".join([footers[0].head, *fields])
    return pq.read_metadata(pa.BufferReader(b"".join([b"PAR1", data, struct.pack("<I", len(data)), b"PAR1"])))


class _FooterSplitter:
    """A parser that splits a footer at its row groups, and adds `shift` to the file offsets in them."""

    def __init__(self, footer: bytes, shift: int) -> None:
        self._footer = footer
        self._shift = shift
        self._cursor = ThriftCursor(footer)
        self._shifted = bytearray()
        """The row groups up to the position `_copied` of the footer, with shifted offsets."""
        self._copied = 0

    def split(self) -> tuple[bytes, bytes, bytes]:
        """Return the footer in three parts, without the number of rows and the number of row groups.

        The parts are (fields before the number of rows, row groups with shifted offsets, fields after the row groups).
        """
        head_end = groups_end = 0
        for field, kind, start in self._cursor.fields():
            if field == ROW_COUNT:
                head_end = start
            if field == ROW_GROUPS:
                count, _ = self._cursor.list_header()
                self._copied = self._cursor.position
                for _ in range(count):
                    self._shift_row_group()
                self._copy()
                groups_end = self._cursor.position
            else:
                self._cursor.skip(kind)
        return self._footer[:head_end], bytes(self._shifted), self._footer[groups_end:]

    def _shift_row_group(self) -> None:
        """Read a row group, and append its bytes with shifted offsets to `_shifted`.

        The bytes after the last offset of the row group are not appended yet: the next `_copy` does that.
        """
        for _ in self._cursor.select_fields(COLUMNS):
            columns, _ = self._cursor.list_header()
            for _ in range(columns):
                for _ in self._cursor.select_fields(META_DATA):
                    for _ in self._cursor.select_fields(*_OFFSETS):
                        self._copy()
                        # Zigzag encoding doubles the offsets, which are not negative.
                        self._shifted += encode_varint(self._cursor.varint() + (self._shift << 1))
                        self._copied = self._cursor.position

    def _copy(self) -> None:
        """Append the footer's bytes from the position `_copied` to the cursor to `_shifted`, unchanged."""
        self._shifted += self._footer[self._copied : self._cursor.position]
        self._copied = self._cursor.position
