"""Footers of Parquet files, built from numbers of the row groups that are read.

A footer is a struct `FileMetaData` in Thrift's compact protocol: version, schema, number of rows, row groups, and
further fields. The description of a row group repeats the names, types and encodings of all columns. A packed footer
has them once, and has only numbers of each row group. The footer of any row groups is built from it. Row groups of
several files with the same schema become the row groups of one footer. Each file has its own range of offsets. The
start of the range is added to the offsets of the file's column chunks.

A column chunk has four numbers: the count of its values, the size of its pages without and with compression, and the
size of its dictionary page.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.storage.thrift import (
    PADDED_BYTES,
    ThriftCursor,
    encode_struct_list_header,
    encode_varint,
    encode_zigzag,
    encode_zigzags,
)

VALUE_COUNT, DECOMPRESSED, COMPRESSED, DICTIONARY = range(4)
"""Positions of the numbers of a column chunk: the number of its values, the size of its pages without and with
compression, and the size of its dictionary page, which is 0 if there is none."""
CHUNK_NUMBERS = 4
"""How many numbers a column chunk has."""
DATA_START = len(b"PAR1")
"""Position of the first column chunk in a file."""
_ROW_COUNT, _ROW_GROUPS, _COLUMNS, _META_DATA, _NUM_VALUES = 3, 4, 1, 3, 5
"""Ids of fields of `FileMetaData`, `RowGroup`, `ColumnChunk` and `ColumnMetaData`."""
_CHUNK_FIELDS = 5
"""The fields of a column chunk with numbers: those of its values and bytes, and the offsets of its data pages and its
dictionary page. The last field is left out if there is no dictionary page."""
_CACHED_TEMPLATES = 64
_LENGTH = struct.Struct("<H")

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DividedFooter:
    """A footer, divided into the fields before the row groups, the row groups, and the fields after them."""

    head: bytes
    """The fields before the number of rows: version and schema."""
    row_groups: bytes
    """The structs of all row groups."""
    tail: bytes
    """The fields after the row groups."""
    row_count: int
    group_count: int


@dataclass(frozen=True)
class PackedFooter:
    """A footer that stores only once what its row groups have in common."""

    head: bytes
    """The fields before the number of rows: version and schema."""
    chunk_heads: bytes
    """The first fields of the metadata of each column chunk (see `split_first_group`), joined by `join_parts`."""
    tail: bytes
    """The fields after the row groups: the key-value metadata."""
    row_groups: bytes
    """For each row group, its number of rows, then the four numbers of each column chunk. All have four bytes, the
    lowest byte first. Repeated bytes of neighboring row groups compress well."""
    group_count: int


def pack_footer(metadata: pq.FileMetaData) -> PackedFooter:
    """Return the packed footer of a file.

    The column chunks of the file must follow each other without gaps.
    """
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    data = sink.getvalue().to_pybytes()
    length = int.from_bytes(data[-8:-4], "little")
    head, chunk_heads = split_first_group(data[-8 - length : -8])
    numbers = np.array(group_numbers(metadata), "<u4")
    tail = encode_metadata(metadata.metadata or {}) + b"\x00"
    return PackedFooter(head, join_parts(chunk_heads), tail, numbers.tobytes(), metadata.num_row_groups)


def parse_footer(footer: DividedFooter) -> pq.FileMetaData:
    """Return a footer as Arrow's object."""
    fields = [
        footer.head,
        b"\x16",
        encode_zigzag(footer.row_count),
        b"\x19",
        encode_struct_list_header(footer.group_count),
        footer.row_groups,
        footer.tail,
    ]
    data = b"".join(fields)
    return pq.read_metadata(pa.BufferReader(b"".join([b"PAR1", data, struct.pack("<I", len(data)), b"PAR1"])))


def group_numbers(metadata: pq.FileMetaData) -> list[list[int]]:
    """Return for each row group its row count, then the four numbers of each column chunk.

    Raises ValueError if the column chunks of the file do not follow each other without gaps.
    """
    rows: list[list[int]] = []
    end = DATA_START
    for group_number in range(metadata.num_row_groups):
        group = metadata.row_group(group_number)
        numbers = [group.num_rows]
        for column in range(metadata.num_columns):
            chunk = group.column(column)
            start = chunk.data_page_offset
            dictionary = start - chunk.dictionary_page_offset if chunk.has_dictionary_page else 0
            if start - dictionary != end:
                raise ValueError("there are bytes between the column chunks")
            size = chunk.total_compressed_size
            numbers += [chunk.num_values, chunk.total_uncompressed_size, size, dictionary]
            end += size
        rows.append(numbers)
    return rows


def encode_row_groups(
    chunk_heads: Sequence[bytes], row_counts: npt.ArrayLike, chunks: Numbers, starts: Numbers
) -> bytes:
    """Return the structs `RowGroup` of row groups, one after the other.

    All row groups are encoded at once, because a hundred take 5 ms one by one.

    Args:
        chunk_heads: For each column, the first encoded fields of the metadata of its chunks.
        row_counts: The number of rows of each row group.
        chunks: The four numbers of each column chunk, by row group, column, and kind of number.
        starts: The position of each column chunk, by row group and column.
    """
    rows = np.asarray(row_counts, np.int64)
    has_dictionary = chunks[:, :, DICTIONARY] > 0
    # Row groups of a run have dictionary pages in the same columns, and so the same fields.
    breaks = np.flatnonzero((has_dictionary[1:] != has_dictionary[:-1]).any(axis=1)) + 1
    runs = pairwise([0, *breaks.tolist(), len(rows)])
    return b"".join(
        _encode_run(chunk_heads, rows[first:end], chunks[first:end], starts[first:end]) for first, end in runs
    )


def _encode_run(chunk_heads: Sequence[bytes], row_counts: Numbers, chunks: Numbers, starts: Numbers) -> bytes:
    """Encode row groups as `encode_row_groups` does, if they have dictionary pages in the same columns."""
    count = len(row_counts)
    if not count:
        return b""
    has_dictionary = chunks[0, :, DICTIONARY] > 0
    template, positions = _row_group_template(tuple(chunk_heads), tuple(has_dictionary.tolist()))
    fields = np.empty((count, len(chunk_heads), _CHUNK_FIELDS), np.int64)
    fields[:, :, :DICTIONARY] = chunks[:, :, :DICTIONARY]
    fields[:, :, -2] = starts + chunks[:, :, DICTIONARY]
    fields[:, :, -1] = starts
    is_stored = np.ones(fields.shape[1:], np.bool_)
    is_stored[:, -1] = has_dictionary
    sums = chunks[:, :, DECOMPRESSED].sum(axis=1)
    numbers = np.column_stack([fields.reshape(count, -1)[:, is_stored.ravel()], sums, row_counts])
    encoded = np.tile(template, (count, 1))
    encoded[:, positions] = encode_zigzags(numbers).reshape(count, -1)
    return encoded.tobytes()


@lru_cache(maxsize=_CACHED_TEMPLATES)
def _row_group_template(
    chunk_heads: tuple[bytes, ...], has_dictionary: tuple[bool, ...]
) -> tuple[npt.NDArray[np.uint8], Numbers]:
    """Return an encoded row group whose numbers are zero, and the positions of the bytes of its numbers.

    Args:
        chunk_heads: For each column, the first encoded fields of the metadata of its chunks.
        has_dictionary: For each column, whether it has a dictionary page.
    """
    # The encoded bytes before each number, and those behind the last one.
    constants = [b"\x19" + encode_struct_list_header(len(chunk_heads))]
    for head, is_dictionary in zip(chunk_heads, has_dictionary, strict=True):
        # The unused field `file_offset`, and the start of the struct `ColumnMetaData`.
        constants[-1] += b"\x26\x00\x1c" + head + b"\x16"
        constants += [b"\x16", b"\x16", b"\x26", *([b"\x26"] if is_dictionary else []), b"\x00\x00"]
    constants[-1] += b"\x16"
    constants += [b"\x16", b"\x00"]
    template = bytes(PADDED_BYTES).join(constants)
    lengths = np.array([len(constant) for constant in constants[:-1]])
    firsts = np.cumsum(lengths + PADDED_BYTES) - PADDED_BYTES
    return np.frombuffer(template, np.uint8), (firsts[:, None] + np.arange(PADDED_BYTES)).ravel()


def split_first_group(footer: bytes) -> tuple[bytes, list[bytes]]:
    """Return (the fields before the number of rows, the first fields of the metadata of each column).

    The metadata are those of the first row group. Their first fields are all fields before the number of values.
    """
    cursor = ThriftCursor(footer)
    head = b""
    heads: list[bytes] = []
    for field, kind, start in cursor.fields():
        if field == _ROW_COUNT:
            head = footer[:start]
        if field != _ROW_GROUPS:
            cursor.skip(kind)
            continue
        if not cursor.list_header()[0]:
            break
        for _ in cursor.select_fields(_COLUMNS):
            for _ in range(cursor.list_header()[0]):
                for _ in cursor.select_fields(_META_DATA):
                    first = cursor.position
                    for inner, inner_kind, inner_start in cursor.fields():
                        if inner == _NUM_VALUES:
                            heads.append(footer[first:inner_start])
                        cursor.skip(inner_kind)
        break
    return head, heads


def encode_metadata(metadata: Mapping[bytes, bytes]) -> bytes:
    """Return the field of a footer with key-value metadata, which follows the row groups."""
    encoded_pairs = [
        b"\x18" + encode_varint(len(name)) + name + b"\x18" + encode_varint(len(value)) + value + b"\x00"
        for name, value in metadata.items()
    ]
    return b"".join([b"\x19", encode_struct_list_header(len(encoded_pairs)), *encoded_pairs])


def join_parts(parts: Sequence[bytes]) -> bytes:
    """Join byte strings, each shorter than 64 KiB, to one that `split_parts` splits again."""
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def split_parts(data: bytes) -> list[bytes]:
    """Return the byte strings that `join_parts` joined.

    Raises ValueError if the data are cut short.
    """
    parts, start = [], 0
    while start < len(data):
        try:
            (length,) = _LENGTH.unpack_from(data, start)
        except struct.error as error:
            raise ValueError(str(error)) from error
        start += _LENGTH.size
        if start + length > len(data):
            raise ValueError("bytes are missing")
        parts.append(data[start : start + length])
        start += length
    return parts
