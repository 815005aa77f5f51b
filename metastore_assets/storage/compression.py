"""Compressed files, told by their first bytes: a name may be wrong, and what is cut off would be missing rows."""

from __future__ import annotations

import bz2
import io
import lzma
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

from metastore_assets.storage.corrupt_input import UnsupportedError
from metastore_assets.storage.limits import XZ_MEMORY

Stream: TypeAlias = "pa.NativeFile | io.RawIOBase"
"""Bytes from a file's beginning to its end."""

SUFFIXES = {
    ".gz": "gzip",
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
"""With which the name of a compressed file ends, and what that says."""
HEAD_BYTES = 16
"""How many of a file's first bytes have to be known."""

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
"""A frame without content, with which both zstd and lz4 files may begin."""
_BEGINNINGS = {
    "gzip": b"\x1f\x8b",
    "bz2": b"BZh91AY&SY",
    "xz": b"\xfd7zXZ\x00",
    "zstd": b"\x28\xb5\x2f\xfd",
    "lz4": b"\x04\x22\x4d\x18",
}
"""Of which no more than a part may be left in a file that is cut off."""
_NOT_TOLD = ("brotli", "lzo", "deflate")
"""What first bytes do not tell."""
_ARROW = ("gzip", "zstd", "lz4")
_HADOOP = ("lz4", "snappy")
_READ_BYTES = 1 << 20


_STREAMS: dict[str, Callable[[], Any]] = {
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY),
}
"""What Arrow has no reader for; of bz2 it has one that stumbles over an empty stream."""


def decompressed(source: pa.NativeFile, name: str) -> Stream:
    """The content of an opened file from its beginning, which is the file itself where it is not compressed.

    Every member of a file of several is read. Raises UnsupportedError for a compression that has no reader; reading
    what is cut off raises OSError.
    """
    kind = compression(source.read(HEAD_BYTES), name)
    source.seek(0)
    if kind is None:
        return source
    if kind in _ARROW:
        return pa.CompressedInputStream(source, kind)
    if kind in _STREAMS:
        return _Decompressed(source, _STREAMS[kind])
    raise UnsupportedError(
        f"it is compressed with {kind}, which has no reader; unpack it, or write it with gzip, zstd, bz2, xz or lz4"
    )


def compression(head: bytes, name: str = "") -> str | None:
    """What a file that begins with these bytes is compressed with; None when it is not.

    The name is asked only where the bytes do not tell.
    """
    for pattern, kind in _MAGIC:
        if pattern.match(head):
            return kind
    named = SUFFIXES.get("." + name.lower().rpartition(".")[2], "")
    if _SKIPPABLE.match(head):
        return "lz4" if named == "lz4" else "zstd"
    if head and _BEGINNINGS.get(named, b"").startswith(head):
        return named
    if named in _HADOOP and head.startswith(b"\0"):
        return f"{named} in Hadoop's blocks, as Spark writes it"
    return named if named in _NOT_TOLD else None


def check_text(head: bytes, hint: str, wide: bool = False) -> None:
    """Raise ArrowInvalid when the first bytes of what should be text are none; `wide`: characters of several bytes."""
    kind = compression(head)
    if kind is not None:
        raise UnsupportedError(f"it is compressed twice, inside with {kind}; unpack it once")
    if not wide and b"\0" in head:
        raise pa.ArrowInvalid(f"it begins with zero bytes: it is no text, or text in UTF-16; {hint}")


class _Decompressed(io.RawIOBase):
    """Decompressed content of streams that follow each other."""

    def __init__(self, source: pa.NativeFile, make: Callable[[], Any]) -> None:
        super().__init__()
        self._source = source
        self._make = make
        self._decompressor = make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = b""
        while not content:
            data = self._next()
            if data is None:
                return 0
            try:
                content = self._decompressor.decompress(data, len(buffer))
            except (lzma.LZMAError, OSError, ValueError) as error:
                raise OSError(f"what is compressed is damaged: {error}") from error
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._source.close()
        super().close()

    def _next(self) -> bytes | None:
        """Compressed bytes to go on with; None at the end of the last stream."""
        if not self._decompressor.eof:
            data: bytes = self._source.read(_READ_BYTES) if self._decompressor.needs_input else b""
            if not data and self._decompressor.needs_input:
                raise OSError("Truncated compressed stream")
            return data
        # Behind a stream there may be zeros up to a full block, and then another stream.
        rest: bytes = self._decompressor.unused_data.lstrip(b"\0")
        while not rest:
            data = self._source.read(_READ_BYTES)
            if not data:
                return None
            rest = data.lstrip(b"\0")
        self._decompressor = self._make()
        return rest
