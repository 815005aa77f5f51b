"""Compact footers of Parquet files, from which the footer of some row groups can be built.

A footer repeats the names, types and encodings of all columns for each row group. A compact footer has them once. For
each row group, it has only numbers and the bounds of the key, which is the first column. It has about a quarter of the
size of a footer that is compressed with zlib.

A compact footer is compressed with zlib, whose checksum also detects damage. Before compression, it consists of the
length of a JSON document (4 bytes), the document, fields of the footer, and the numbers. Numbers of the same kind and
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

from metastore_assets.store.keys import separate_keys
from metastore_assets.store.parquet_footers import (
    CHUNK_NUMBERS,
    COMPRESSED,
    DATA_START,
    DECOMPRESSED,
    DividedFooter,
    encode_metadata,
    encode_row_groups,
    group_numbers,
    parse_footer,
    split_first_group,
)

MAX_COMPACT_FOOTER_BYTES = 64 << 20
"""Maximum size of a compact footer that is decompressed. Without a limit, a damaged one may expand to gigabytes."""
_MAX_BOUND = 4096
"""Maximum length of a bound. Keys have no maximum length. A row group with a longer bound gets no bounds, because a
compact footer above `MAX_COMPACT_FOOTER_BYTES` cannot be read."""
_PREFIX = struct.Struct("<I")

Bounds: TypeAlias = tuple[Any, Any]
"""A lower and an upper bound of keys, both inclusive."""


class CompactFooterRange(NamedTuple):
    """The position of a compact footer in its file.

    It is behind the last row group.
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
            chunks = numbers[:, 1:].reshape(group_count, len(chunk_heads), CHUNK_NUMBERS)
            metadata = {name.encode(): value.encode() for name, value in document["metadata"].items()}
            if document["is_binary"]:
                keys = [None if key is None else key.encode("latin-1") for key in keys]
        except (zlib.error, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the compact footer: {error}") from error
        sizes = chunks[:, :, COMPRESSED].ravel()
        starts = (DATA_START + np.cumsum(sizes) - sizes).reshape(group_count, len(chunk_heads))
        return cls(
            numbers[:, 0].tolist(),
            chunks[:, :, DECOMPRESSED].sum(axis=1).tolist(),
            [None if None in pair else pair for pair in zip(keys[::2], keys[1::2], strict=True)],
            metadata,
            head,
            chunk_heads,
            chunks,
            starts,
        )

    def build_footer(self, groups: Sequence[int]) -> pq.FileMetaData:
        """Return the footer of a file that has only some of the row groups, in the given order."""
        at = np.asarray(groups, np.int64)
        footer = DividedFooter(
            head=self._head,
            row_groups=encode_row_groups(
                self._chunk_heads, [self.group_rows[group] for group in groups], self._chunks[at], self._starts[at]
            ),
            tail=encode_metadata(self.key_value_metadata) + b"\x00",
            row_count=sum(self.group_rows[group] for group in groups),
            group_count=len(groups),
        )
        return parse_footer(footer)


def encode_compact_footer(metadata: pq.FileMetaData, footer: bytes, key_bounds: Sequence[Bounds]) -> bytes:
    """Return the compact footer of a file.

    Bounds of text keys are stored in a shorter form that still separates the row groups. Bounds of a row group are left
    out if one of them remains longer than `_MAX_BOUND`.

    Args:
        metadata: The footer. The column chunks must follow each other without gaps.
        footer: The same footer as bytes, which begin with the struct `FileMetaData`.
        key_bounds: The least and the greatest value of the first column in each row group, texts or bytes.
    """
    head, chunk_heads = split_first_group(footer)
    rows = group_numbers(metadata)
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
