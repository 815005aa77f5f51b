"""Compact footers of Parquet files, from which the footer of some row groups can be built.

A footer repeats the names, types and encodings of all columns for each row group. A compact footer has them once. For
each row group, it has only numbers and the bounds of the key. It has about a quarter of the size of a footer that is
compressed with zlib.

A compact footer is compressed with zlib, whose checksum also detects damage. Before compression, it consists of a
number of 4 bytes, a JSON document with this length, fields of the footer, and the numbers. Numbers of the same kind and
column are stored together: first the lowest bytes of all of them, and so on, last the highest bytes. Bytes in this
order compress better.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from metastore_assets.storage.thrift import ThriftCursor, encode_struct_list_header, encode_varint, encode_zigzag
from metastore_assets.store.keys import separate_keys
from metastore_assets.store.parquet_footers import (
    COLUMNS,
    META_DATA,
    ROW_COUNT,
    ROW_GROUPS,
    DividedFooter,
    join_footers,
)

MAX_COMPACT_FOOTER_BYTES = 64 << 20
"""Maximum size of a compact footer that is decompressed. Without a limit, a damaged one may expand to gigabytes."""
_MAX_BOUND = 4096
"""Maximum length of a bound. Keys have no maximum length. A row group with a longer bound gets no bounds, because a
compact footer above `MAX_COMPACT_FOOTER_BYTES` cannot be read."""
_DATA_START = len(b"PAR1")
"""Position of the first column chunk in a file."""
_NUM_VALUES = 5
"""Id of a field of `ColumnMetaData`."""
_DECOMPRESSED, _COMPRESSED = 1, 2
"""Positions of two of the four numbers of a column chunk: the size of its pages without and with compression. The first
number is that of its values. The last is the size of its dictionary page, which is 0 if there is none."""
_PREFIX = struct.Struct("<I")

Bounds: TypeAlias = tuple[Any, Any]
"""A lower and an upper bound of keys, both inclusive."""


class CompactFooterRange(NamedTuple):
    """The position of a compact footer in its file.

    The row groups end where it begins.
    """

    start: int
    size: int


@dataclass(frozen=True)
class CompactFooter:
    """The content of a compact footer: facts about a Parquet file and each of its row groups."""

    group_rows: list[int]
    """Number of rows of each row group."""
    group_bytes: list[int]
    """Decompressed size of each row group in bytes."""
    key_bounds: list[Bounds | None]
    """Bounds of the values of the first column in each row group. They may be shorter than the least and the greatest
    value. None if one of them is too long: see `_MAX_BOUND`."""
    key_value_metadata: Mapping[bytes, bytes]
    _head: bytes
    """The encoded fields of the footer before the number of rows: version and schema."""
    _chunk_heads: list[bytes]
    """For each column, the first encoded fields of its metadata in each row group: type, encodings, name, codec."""
    _chunks: npt.NDArray[np.int64]
    """The numbers of each column chunk, by row group, column, and kind of number."""
    _starts: npt.NDArray[np.int64]
    """The position in the file of each column chunk, by row group and column."""

    @classmethod
    def decode(cls, data: bytes) -> CompactFooter:
        """Return the compact footer in the bytes that `encode_compact_footer` returned.

        Raises ValueError if they are damaged.
        """
        inflater = zlib.decompressobj()
        try:
            content = inflater.decompress(data, MAX_COMPACT_FOOTER_BYTES)
            if not inflater.eof:
                raise ValueError("it is cut short")
            start = _PREFIX.size
            stop = start + _PREFIX.unpack_from(content)[0]
            document = json.loads(content[start:stop])
            parts = []
            for length in document["lengths"]:
                start, stop = stop, stop + length
                parts.append(content[start:stop])
            head, *chunk_heads = parts
            group_count, keys = document["row_groups"], document["bounds"]
            planes = np.frombuffer(content, np.uint8, offset=stop).reshape(-1, 4, group_count)
            numbers = np.ascontiguousarray(planes.transpose(2, 0, 1)).view("<u4")[:, :, 0].astype(np.int64)
            chunks = numbers[:, 1:].reshape(group_count, len(chunk_heads), 4)
            metadata = {name.encode(): value.encode() for name, value in document["metadata"].items()}
            if document["is_binary"]:
                keys = [None if key is None else key.encode("latin-1") for key in keys]
        except (zlib.error, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the compact footer: {error}") from error
        sizes = chunks[:, :, _COMPRESSED].ravel()
        starts = (_DATA_START + np.cumsum(sizes) - sizes).reshape(group_count, len(chunk_heads))
        return cls(
            numbers[:, 0].tolist(),
            chunks[:, :, _DECOMPRESSED].sum(axis=1).tolist(),
            [None if None in pair else pair for pair in zip(keys[::2], keys[1::2], strict=True)],
            metadata,
            head,
            chunk_heads,
            chunks,
            starts,
        )

    def build_footer(self, groups: Sequence[int]) -> pq.FileMetaData:
        """Return the footer of a file that has only some of the row groups, in the given order."""
        footer = DividedFooter(
            head=self._head,
            row_groups=b"".join(map(self._encode_group, groups)),
            tail=_encode_metadata(self.key_value_metadata) + b"\x00",
            row_count=sum(self.group_rows[group] for group in groups),
            group_count=len(groups),
        )
        return join_footers([footer])

    def _encode_group(self, group: int) -> bytes:
        """Return the struct `RowGroup` of a row group."""
        data = [b"\x19", encode_struct_list_header(len(self._chunk_heads))]
        starts = self._starts[group].tolist()
        for head, start, numbers in zip(self._chunk_heads, starts, self._chunks[group].tolist(), strict=True):
            value_count, decompressed_bytes, compressed_bytes, dictionary_bytes = numbers
            data += [
                b"\x26\x00\x1c",  # the unused field `file_offset`, and the start of the struct `ColumnMetaData`
                head,
                b"\x16" + encode_zigzag(value_count),
                b"\x16" + encode_zigzag(decompressed_bytes),
                b"\x16" + encode_zigzag(compressed_bytes),
                b"\x26" + encode_zigzag(start + dictionary_bytes),
            ]
            if dictionary_bytes:
                data.append(b"\x26" + encode_zigzag(start))
            data.append(b"\x00\x00")
        data += [
            b"\x16" + encode_zigzag(self.group_bytes[group]),
            b"\x16" + encode_zigzag(self.group_rows[group]),
            b"\x00",
        ]
        return b"".join(data)


def encode_compact_footer(metadata: pq.FileMetaData, footer: bytes, key_bounds: Sequence[Bounds]) -> bytes:
    """Return the compact footer of a file.

    It has shorter bounds of texts than `key_bounds`, which still separate the row groups. Bounds of a row group are
    left out if one of them remains longer than `_MAX_BOUND`.

    Args:
        metadata: The footer. The column chunks must follow each other without gaps.
        footer: The same footer as bytes, which begin with the struct `FileMetaData`.
        key_bounds: The least and the greatest value of the first column in each row group, texts or bytes.
    """
    head, chunk_heads = _split_first_group(footer)
    rows: list[list[int]] = []
    end = _DATA_START
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
    bounds = [key for pair in key_bounds for key in pair]
    is_binary = bool(bounds) and isinstance(bounds[0], bytes)
    if is_binary:
        bounds = [key.decode("latin-1") for key in bounds]
    else:
        for at in range(1, len(bounds) - 1, 2):
            bounds[at : at + 2] = separate_keys(*bounds[at : at + 2])
    for at in range(0, len(bounds), 2):
        if max(map(len, bounds[at : at + 2])) > _MAX_BOUND:
            bounds[at : at + 2] = None, None
    parts = [head, *chunk_heads]
    document = json.dumps(
        {
            "row_groups": len(rows),
            "lengths": list(map(len, parts)),
            "is_binary": is_binary,
            "metadata": {name.decode(): value.decode() for name, value in (metadata.metadata or {}).items()},
            "bounds": bounds,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    planes = np.array(rows, "<u4").view(np.uint8).reshape(len(rows), -1, 4).transpose(1, 2, 0)
    return zlib.compress(b"".join([_PREFIX.pack(len(document)), document, *parts, planes.tobytes()]), 9)


def _split_first_group(footer: bytes) -> tuple[bytes, list[bytes]]:
    """Return (the fields before the number of rows, the first fields of the metadata of each column).

    The metadata are those of the first row group. Their first fields are all fields before the number of values.
    """
    cursor = ThriftCursor(footer)
    head = b""
    heads = []
    for field, kind, start in cursor.fields():
        if field == ROW_COUNT:
            head = footer[:start]
        if field != ROW_GROUPS:
            cursor.skip(kind)
            continue
        cursor.list_header()
        for _ in cursor.select_fields(COLUMNS):
            for _ in range(cursor.list_header()[0]):
                for _ in cursor.select_fields(META_DATA):
                    first = cursor.position
                    for inner, inner_kind, inner_start in cursor.fields():
                        if inner == _NUM_VALUES:
                            heads.append(footer[first:inner_start])
                        cursor.skip(inner_kind)
        break
    return head, heads


def _encode_metadata(metadata: Mapping[bytes, bytes]) -> bytes:
    """Return the field of a footer with key-value metadata, which follows the row groups."""
    encoded_pairs = [
        b"\x18" + encode_varint(len(name)) + name + b"\x18" + encode_varint(len(value)) + value + b"\x00"
        for name, value in metadata.items()
    ]
    return b"".join([b"\x19", encode_struct_list_header(len(encoded_pairs)), *encoded_pairs])
