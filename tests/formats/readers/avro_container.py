"""A writer of Avro container files in every codec; it shares no code with the reader."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

_SYNC = bytes(range(16))


def _snappy(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="snappy", asbytes=True)) + zlib.crc32(data).to_bytes(4, "big")


def _deflate(data: bytes) -> bytes:
    encoder = zlib.compressobj(wbits=-15)
    return encoder.compress(data) + encoder.flush()


def _streamed(data: bytes) -> bytes:
    """Compress as Java does with zstandard: frames do not record the length."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True)),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lz4": lambda data: len(data).to_bytes(4, "little") + bytes(pa.compress(data, codec="lz4_raw", asbytes=True)),
}
OTHER_NAMES: Mapping[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    "SNAPPY": _snappy,
    "uncompressed": lambda data: data,
    "gzip": _deflate,
    "zstd": _streamed,
}
"""Codecs by names outside of Avro's specification, as their writers mean them."""


def container(
    schema: bytes, blocks: list[tuple[int, bytes]], codec: str | None, metadata: Mapping[str, bytes]
) -> bytes:
    """Return a file of blocks, given as (number of records, encoded records).

    With `codec=None`, the header has no codec. `metadata` are further entries of the header.
    """
    compress = (CODECS | OTHER_NAMES)[codec or ""]
    entries = {"avro.schema": schema, **metadata}
    if codec is not None:
        entries["avro.codec"] = codec.encode()
    result = b"Obj\x01" + _long(len(entries))
    for key, value in entries.items():
        result += _long(len(key.encode())) + key.encode() + _long(len(value)) + value
    result += _long(0) + _SYNC
    for count, data in blocks:
        compressed_data = compress(data)
        result += _long(count) + _long(len(compressed_data)) + compressed_data + _SYNC
    return result


def recode(path: Path, codec: str | None) -> None:
    """Rewrite an Avro file with another codec, one block per record and an empty block at the end."""
    with path.open("rb") as file:
        reader: Any = fastavro.reader(file, return_record_name=True)
        records, metadata, schema = list(reader), dict(reader.metadata), reader.writer_schema
    user_metadata = {key: value.encode() for key, value in metadata.items() if key not in ("avro.schema", "avro.codec")}
    blocks = []
    for record in records:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, schema, record)
        blocks.append((1, sink.getvalue()))
    path.write_bytes(container(metadata["avro.schema"].encode(), [*blocks, (0, b"")], codec, user_metadata))


def _long(value: int) -> bytes:
    value <<= 1
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])
