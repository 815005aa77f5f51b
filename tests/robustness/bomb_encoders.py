"""Encoders for decompression bombs, and for Avro files with any schema and sizes.

A bomb has little data that decompresses to 870 MB or claims 4 GB.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

_SYNC = bytes(16)
_PIECE = bytes(64 << 20)
_PIECES = 13
"""Number of repeated pieces, which together have 870 MB."""


def gzipped() -> bytes:
    return gzip.compress(_PIECE) * _PIECES


def _deflate() -> bytes:
    encoder = zlib.compressobj(wbits=-15)
    piece = encoder.compress(_PIECE) + encoder.flush(zlib.Z_FULL_FLUSH)
    return piece * _PIECES + encoder.flush()


def _zstandard() -> bytes:
    return bytes(pa.compress(_PIECE, codec="zstd", asbytes=True)) * _PIECES


def _xz() -> bytes:
    return lzma.compress(_PIECE, preset=0) * _PIECES


def _bzip2() -> bytes:
    return bz2.compress(_PIECE, 1) * _PIECES


def _claimed_snappy() -> bytes:
    return varint((1 << 32) - 1) + b"\0\0" + bytes(4)


def _claimed_lz4() -> bytes:
    return struct.pack("<I", (1 << 32) - 1) + b"\0\0"


PACKED: Mapping[str, Callable[[], bytes]] = {
    "deflate": _deflate,
    "zstandard": _zstandard,
    "xz": _xz,
    "bzip2": _bzip2,
    "snappy": _claimed_snappy,
    "lz4": _claimed_lz4,
}
"""Functions that return the block of an Avro file, by codec."""


def avro(schema: Any, rows: int, data: bytes, codec: str = "null", size: int | None = None) -> bytes:
    """Return an Avro file of one block with `data`.

    The block claims `rows` rows and `size` bytes, true or not.

    Without `size`, it claims the length of `data`.
    """
    items = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    head = b"".join(text(key.encode()) + text(value) for key, value in items.items())
    block = long(rows) + long(len(data) if size is None else size) + data + _SYNC
    return b"Obj\x01" + long(len(items)) + head + long(0) + _SYNC + block


def record(*types: Any) -> dict[str, Any]:
    """Return an Avro schema of a record with a field for each type."""
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": f"f{at}", "type": field_type} for at, field_type in enumerate(types)],
    }


def varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def long(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def text(data: bytes) -> bytes:
    return long(len(data)) + data
