"""Compression of files and blocks: detection by the first bytes, and decompression with size limits.

The name of a file may be wrong, so the first bytes of the file take precedence. A truncated file raises an error.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from metastore_assets.storage.corrupt_input import LimitError, UnsupportedError
from metastore_assets.storage.limits import DECOMPRESSION_RATIO, XZ_MEMORY, max_decompressed_size

Stream: TypeAlias = "pa.NativeFile | io.RawIOBase"
"""A file that is read once, from beginning to end."""

SUFFIXES = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bz2",
    ".lz4": "lz4",
    ".xz": "xz",
    ".deflate": "deflate",
    ".snappy": "snappy",
    ".zip": "zip",
    ".br": "brotli",
    ".lzo": "lzo",
}
"""Compression by the suffix of a file name."""
HEAD_BYTES = 16
"""Number of a file's first bytes that detection needs."""

_MAGIC = [
    (re.compile(rb"\x1f\x8b"), "gzip"),
    (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), "bz2"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "zstd"),
    (re.compile(rb"\x04\x22\x4d\x18"), "lz4"),
    (re.compile(rb"\xfd7zXZ\x00"), "xz"),
    (re.compile(rb"x\x9c"), "deflate"),  # the usual level; others begin with letters
    (re.compile(rb"PK(\x03\x04|\x05\x06)"), "zip"),
    (re.compile(rb"\xff\x06\x00\x00sNaPpY"), "snappy"),
    (re.compile(rb"\x02\x21\x4c\x18"), "old lz4"),
    (re.compile(rb"\x1f\x9d"), "compress (.Z)"),
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), "7z"),
]
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
"""Matches a frame without content. Both zstd and lz4 files may begin with one."""
_PREFIXES = {
    "gzip": b"\x1f\x8b",
    "bz2": b"BZh91AY&SY",
    "xz": b"\xfd7zXZ\x00",
    "zstd": b"\x28\xb5\x2f\xfd",
    "lz4": b"\x04\x22\x4d\x18",
}
"""First bytes of files, by compression. A truncated file may contain only a part of them."""
_WITHOUT_MAGIC = ("brotli", "lzo", "deflate")
"""Compressions that are detected by the suffix, because the first bytes do not always show them."""
_ARROW = ("zstd", "lz4")
_HADOOP = ("lz4", "snappy")
_READ_BYTES = 1 << 20


class _GzipDecompressor:
    """A decompressor of one member of a gzip file, with the interface of `bz2.BZ2Decompressor`."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._is_full = False

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    @property
    def needs_input(self) -> bool:
        # After a full result, zlib may have more output without more input.
        return not (self._stream.eof or self._stream.unconsumed_tail or self._is_full)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        result = self._stream.decompress(self._stream.unconsumed_tail + data, max_length)
        self._is_full = len(result) == max_length
        return result


_STREAMS: dict[str, Callable[[], Any]] = {
    "gzip": _GzipDecompressor,
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY),
}
"""Decompressors of formats that Arrow does not read in all cases. Arrow fails on an empty bz2 stream, and on zeros
after the last member of a gzip file, with which archives pad files."""


def open_decompressed(source: pa.NativeFile, name: str) -> Stream:
    """Return a stream of the decompressed content of an opened file.

    A file that is not compressed is returned itself.

    Args:
        source: The file, positioned at its beginning.
        name: The name of the file. For some compressions, its suffix decides if the first bytes do not.

    Returns:
        A stream of all members of the file. Reading a truncated file raises OSError.

    Raises:
        UnsupportedError: The compression has no reader.
    """
    kind = detect_compression(source.read(HEAD_BYTES), name)
    source.seek(0)
    if kind is None:
        return source
    if kind in _ARROW:
        return pa.CompressedInputStream(source, kind)
    if kind in _STREAMS:
        return _Decompressed(source, _STREAMS[kind])
    raise UnsupportedError(
        f"it is compressed with {kind}, which has no reader; decompress it, or write it with gzip, zstd, bz2, xz or lz4"
    )


def detect_compression(head: bytes, name: str = "") -> str | None:
    """Return the name of a file's compression, or None for an uncompressed file.

    Args:
        head: The first `HEAD_BYTES` bytes of the file; all bytes of a shorter file.
        name: The name of the file. For some compressions, its suffix decides if the first bytes do not.
    """
    for pattern, kind in _MAGIC:
        if pattern.match(head):
            return kind
    by_suffix = SUFFIXES.get("." + name.lower().rpartition(".")[2], "")
    if _SKIPPABLE.match(head):
        return "lz4" if by_suffix == "lz4" else "zstd"
    if head and _PREFIXES.get(by_suffix, b"").startswith(head):
        return by_suffix
    if by_suffix in _HADOOP and head.startswith(b"\0"):
        return f"{by_suffix} in Hadoop's blocks, as Spark writes it"
    return by_suffix if by_suffix in _WITHOUT_MAGIC else None


def check_text(head: bytes, hint: str, wide: bool = False) -> None:
    """Raise an error if decompressed content is not text.

    Args:
        head: The first bytes of the content. Only these are checked.
        hint: Advice to the user, for the message about NUL bytes.
        wide: Whether NUL bytes (0x00) are allowed, because the text has an encoding such as UTF-16.

    Raises:
        UnsupportedError: The content is itself compressed. This error is a subclass of ArrowInvalid.
        ArrowInvalid: `head` has a NUL byte, and `wide` is False.
    """
    kind = detect_compression(head)
    if kind is not None:
        raise UnsupportedError(f"it is compressed twice, inside with {kind}; decompress it once")
    if not wide and b"\0" in head:
        raise pa.ArrowInvalid(f"it contains NUL bytes: it is not text, or text in UTF-16; {hint}")


class _Decompressed(io.RawIOBase):
    """A readable file with the decompressed content of another file.

    The compressed file may consist of several compressed streams, one after the other.
    """

    def __init__(self, source: pa.NativeFile, create_decompressor: Callable[[], Any]) -> None:
        super().__init__()
        self._source = source
        self._create_decompressor = create_decompressor
        self._decompressor = create_decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with decompressed bytes, and return their number; 0 at the end.

        Raises OSError for corrupt content.
        """
        content = b""
        while not content:
            data = self._next_input()
            if data is None:
                return 0
            try:
                content = self._decompressor.decompress(data, len(buffer))
            except (lzma.LZMAError, zlib.error, OSError, ValueError) as error:
                raise OSError(f"the compressed data is damaged: {error}") from error
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._source.close()
        super().close()

    def _next_input(self) -> bytes | None:
        """Return the next compressed bytes; None at the end of the file.

        The result is empty as long as the decompressor needs no further input. At the end of a stream, zeros are
        skipped, and the next stream gets a new decompressor. Raises OSError if the file ends within a stream.
        """
        if not self._decompressor.eof:
            data: bytes = self._source.read(_READ_BYTES) if self._decompressor.needs_input else b""
            if not data and self._decompressor.needs_input:
                raise OSError("Truncated compressed stream")
            return data
        # After a stream there may be zeros up to a full block, and then another stream.
        compressed_bytes: bytes = self._decompressor.unused_data.lstrip(b"\0")
        while not compressed_bytes:
            data = self._source.read(_READ_BYTES)
            if not data:
                return None
            compressed_bytes = data.lstrip(b"\0")
        self._decompressor = self._create_decompressor()
        return compressed_bytes


_GZIP = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20
_CRC_BYTES = 4
_SIZE_BYTES = 4
_LONGEST_VARINT = 5
_SNAPPY_RATIO = 64
_LZ4_RATIO = 256
"""Highest compression ratios that LZ4 and snappy can encode."""


def is_gzip(data: bytes) -> bool:
    """Return True if content is compressed with gzip."""
    return data.startswith(_GZIP)


def decompress_gzip(data: bytes) -> bytes:
    """Return the decompressed content of all members of a gzip file.

    Raises LimitError if the content is too large; EOFError, OSError or zlib.error if the file is corrupt.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        return _join_within_limit(iter(lambda: stream.read(_CHUNK_BYTES), b""), data)


def decompress_block(codec: str, data: bytes) -> bytes:
    """Decompress a block of an Avro file.

    Args:
        codec: One of CODECS.
        data: The compressed block.

    Raises:
        LimitError: The content is too large.
        ArrowException: The block is corrupt. Any other of `corrupt_input.CORRUPTION_ERRORS` is possible, too.
    """
    return _CODECS[codec](data)


def _join_within_limit(pieces: Iterator[bytes], data: bytes) -> bytes:
    """Return the decompressed content of `data`, joined from its pieces.

    Raises LimitError if the content is larger than `max_decompressed_size` allows for the size of `data`.
    """
    limit = max_decompressed_size(len(data))
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        _check_limit(size, limit, data)
    return b"".join(parts)


def _decompress_streams(data: bytes, decompressor: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the decompressed content of consecutive bzip2 or xz streams.

    `decompressor` creates the decompressor of one stream. Raises ArrowInvalid if the data is truncated.
    """
    start = 0
    while start < len(data):
        stream = decompressor()
        while not stream.eof:
            piece = data[start : start + _CHUNK_BYTES] if stream.needs_input else b""
            if stream.needs_input and not piece:
                raise pa.ArrowInvalid("the compressed data is truncated")
            start += len(piece)
            yield stream.decompress(piece, _CHUNK_BYTES)
        start -= len(stream.unused_data)


def _decompress_raw_deflate(data: bytes) -> bytes:
    limit = max_decompressed_size(len(data))
    stream = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    result = stream.decompress(data, limit + 1)
    _check_limit(len(result), limit, data)
    if not stream.eof:
        raise pa.ArrowInvalid("the compressed data is truncated")
    return result


def decompress_snappy(data: bytes) -> bytes:
    """Decompress a snappy block without a frame.

    Raises LimitError, or ArrowException for a corrupt block.
    """
    size = 0
    for position, byte in enumerate(data[:_LONGEST_VARINT]):
        size |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            break
    _check_declared_size(size, _SNAPPY_RATIO, data)
    result: bytes = pa.decompress(data, size, codec="snappy", asbytes=True)
    return result


def _snappy(data: bytes) -> bytes:
    result = decompress_snappy(data[:-_CRC_BYTES])
    if zlib.crc32(result) != int.from_bytes(data[-_CRC_BYTES:], "big"):
        raise pa.ArrowInvalid("a block of the Avro file does not have its checksum")
    return result


def _lz4(data: bytes) -> bytes:
    """Decompress a block that fastavro wrote with LZ4: a little-endian size, then LZ4 without a frame."""
    size = int.from_bytes(data[:_SIZE_BYTES], "little")
    _check_declared_size(size, _LZ4_RATIO, data)
    result: bytes = pa.decompress(data[_SIZE_BYTES:], size, codec="lz4_raw", asbytes=True)
    return result


def _zstandard(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return _join_within_limit(iter(lambda: bytes(stream.read(_CHUNK_BYTES)), b""), data)


def _check_limit(size: int, limit: int, data: bytes) -> None:
    if size > limit:
        raise LimitError(
            f"{len(data):,} bytes decompress to more than {limit:,}; compressed data may decompress to at most "
            f"{DECOMPRESSION_RATIO} times its size beyond 64 MiB"
        )


def _check_declared_size(size: int, ratio: int, data: bytes) -> None:
    if size > ratio * len(data):
        raise LimitError(f"{len(data):,} compressed bytes declare a size of {size:,}, which is impossible")
    _check_limit(size, max_decompressed_size(len(data)), data)


_CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": _decompress_raw_deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": lambda data: _join_within_limit(_decompress_streams(data, bz2.BZ2Decompressor), data),
    "lz4": _lz4,
    "xz": lambda data: _join_within_limit(
        _decompress_streams(data, lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY)), data
    ),
}
CODECS = tuple(_CODECS)
"""Names of the codecs of Avro."""
