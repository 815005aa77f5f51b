"""Unpack what is packed, no further than to a size that is sensible for its own."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from metastore_assets.storage.corrupt_input import LimitError
from metastore_assets.storage.limits import UNPACKED_TIMES, XZ_MEMORY, most_unpacked

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20
_CRC_BYTES = 4
_SIZE_BYTES = 4
_LONGEST_VARINT = 5
_SNAPPY_TIMES = 64
_LZ4_TIMES = 256
"""A byte of these formats never stands for more."""


def is_gzip(data: bytes) -> bool:
    """Whether a file's content is packed by gzip."""
    return data.startswith(_GZIP)


def gunzipped(data: bytes) -> bytes:
    """The content of a gzip file, of all its members. Raises LimitError, EOFError, OSError or zlib.error."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        return _joined(iter(lambda: stream.read(_PIECE), b""), data)


def unpacked(codec: str, data: bytes) -> bytes:
    """A block of an Avro file in one of CODECS. Raises LimitError, ArrowException, or what `damage.DAMAGE` lists."""
    return _CODECS[codec](data)


def _joined(pieces: Iterator[bytes], data: bytes) -> bytes:
    most = most_unpacked(len(data))
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        _check(size, most, data)
    return b"".join(parts)


def _streams(data: bytes, decompressor: Callable[[], Any]) -> Iterator[bytes]:
    """Pieces of what is in streams of bzip2 or xz behind each other."""
    at = 0
    while at < len(data):
        stream = decompressor()
        while not stream.eof:
            piece = data[at : at + _PIECE] if stream.needs_input else b""
            if stream.needs_input and not piece:
                raise pa.ArrowInvalid("what is packed is broken: it ends early")
            at += len(piece)
            yield stream.decompress(piece, _PIECE)
        at -= len(stream.unused_data)


def _deflate(data: bytes) -> bytes:
    most = most_unpacked(len(data))
    stream = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    result = stream.decompress(data, most + 1)
    _check(len(result), most, data)
    if not stream.eof:
        raise pa.ArrowInvalid("what is packed is broken: it ends early")
    return result


def snappy_block(data: bytes) -> bytes:
    """A block of snappy without a frame. Raises LimitError or ArrowException."""
    size = 0
    for position, byte in enumerate(data[:_LONGEST_VARINT]):
        size |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            break
    _check_claim(size, _SNAPPY_TIMES, data)
    result: bytes = pa.decompress(data, size, codec="snappy", asbytes=True)
    return result


def _snappy(data: bytes) -> bytes:
    result = snappy_block(data[:-_CRC_BYTES])
    if zlib.crc32(result) != int.from_bytes(data[-_CRC_BYTES:], "big"):
        raise pa.ArrowInvalid("a block of the Avro file does not have its checksum")
    return result


def _lz4(data: bytes) -> bytes:
    """Of fastavro alone: the size, least significant byte first, and a block without a frame."""
    size = int.from_bytes(data[:_SIZE_BYTES], "little")
    _check_claim(size, _LZ4_TIMES, data)
    result: bytes = pa.decompress(data[_SIZE_BYTES:], size, codec="lz4_raw", asbytes=True)
    return result


def _zstandard(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return _joined(iter(lambda: bytes(stream.read(_PIECE)), b""), data)


def _check(size: int, most: int, data: bytes) -> None:
    if size > most:
        raise LimitError(
            f"{len(data):,} bytes unpack to more than {most:,}, and what is packed may unpack to at most "
            f"{UNPACKED_TIMES} times its size beyond 64 MiB"
        )


def _check_claim(size: int, times: int, data: bytes) -> None:
    if size > times * len(data):
        raise LimitError(f"{len(data):,} packed bytes claim to be {size:,}, which they cannot be")
    _check(size, most_unpacked(len(data)), data)


_CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": lambda data: _joined(_streams(data, bz2.BZ2Decompressor), data),
    "lz4": _lz4,
    "xz": lambda data: _joined(_streams(data, lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY)), data),
}
CODECS = tuple(_CODECS)
"""Those of Avro, by its names."""
