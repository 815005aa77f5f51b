"""Deletion vectors of Delta tables: which rows of a data file are deleted, in every storage kind of the protocol."""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from metastore_assets.formats.location import Location
from metastore_assets.formats.reach import Reach

Positions = npt.NDArray[np.uint64]

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {digit: value for value, digit in enumerate(_Z85)}
_MAGIC = 1681511377
_COOKIE = 12347
_COOKIE_WITHOUT_RUNS = 12346
_NO_OFFSETS_BELOW = 4
_ARRAY_LIMIT = 4096
"""Up to so many values a container lists them; above, it is 65,536 bits."""


@dataclass(frozen=True)
class DeletionVector:
    """Where one is stored, as an add action of the log says."""

    storage: str
    """`u`: a file of the table named by a UUID; `p`: an absolute path; `i`: inline."""
    path_or_inline: str
    offset: int
    size: int
    cardinality: int
    """Number of deleted rows."""

    @property
    def id(self) -> str:
        """Unique id within the table, as the protocol builds it."""
        return f"{self.storage}{self.path_or_inline}@{self.offset}"

    def file(self, reach: Reach) -> tuple[Location, str] | None:
        """The file that holds it: a location and the path below; None for an inline one.

        Raises TableFormatError when the table does not reach so far, ValueError for a name that is none.
        """
        if self.storage == "i":
            return None
        if self.storage == "u":
            prefix, encoded = self.path_or_inline[:-20], self.path_or_inline[-20:]
            name = f"deletion_vector_{uuid.UUID(bytes=_decode_z85(encoded))}.bin"
            return reach.below(reach.table, f"{prefix}/{name}" if prefix else name)
        if self.storage == "p":
            return reach.to(unquote(self.path_or_inline))
        raise ValueError(f"deletion vector of unknown storage type {self.storage!r}")

    def positions(self, reach: Reach) -> Positions:
        """Ascending positions of the deleted rows. Raises ValueError when what is stored contradicts itself."""
        positions = decode_bitmap_array(self._data(reach))
        if len(positions) != self.cardinality:
            raise ValueError(
                f"deletion vector {self.id} deletes {len(positions)} rows, the log says {self.cardinality}"
            )
        return positions

    def _data(self, reach: Reach) -> bytes:
        file = self.file(reach)
        if file is None:
            return _decode_z85(self.path_or_inline)[: self.size]
        location, path = file
        with location.open(path) as source:
            source.seek(self.offset)
            stored = source.read(self.size + 8)
        (size,) = struct.unpack_from(">i", stored)
        data = stored[4 : 4 + self.size]
        if size != self.size or len(stored) != self.size + 8:
            raise ValueError(f"{location.full_path(path)} has no deletion vector of {self.size} bytes at {self.offset}")
        if zlib.crc32(data) != struct.unpack_from(">I", stored, 4 + size)[0]:
            raise ValueError(f"{location.full_path(path)}: the deletion vector at {self.offset} has a wrong checksum")
        return data


def decode_bitmap_array(data: bytes) -> Positions:
    """Ascending values of a RoaringBitmapArray in its portable form."""
    try:
        magic, count = struct.unpack_from("<Iq", data)
        if magic != _MAGIC:
            raise ValueError(f"deletion vector with unknown magic number {magic}")
        at = 12
        parts = []
        for _ in range(count):
            (key,) = struct.unpack_from("<I", data, at)
            values, at = _decode_bitmap(data, at + 4)
            parts.append(values | np.uint64(key << 32))
    except (struct.error, IndexError) as error:
        raise ValueError(f"deletion vector is cut off: {error}") from error
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _decode_bitmap(data: bytes, at: int) -> tuple[Positions, int]:
    """One 32-bit Roaring bitmap in the portable format of the Roaring specification, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    if cookie & 0xFFFF == _COOKIE:
        size = (cookie >> 16) + 1
        at += 4
        bits = np.frombuffer(data, np.uint8, (size + 7) // 8, at)
        runs = np.unpackbits(bits, bitorder="little")[:size].astype(bool)
        at += (size + 7) // 8
        has_offsets = size >= _NO_OFFSETS_BELOW
    elif cookie == _COOKIE_WITHOUT_RUNS:
        (size,) = struct.unpack_from("<I", data, at + 4)
        at += 8
        runs = np.zeros(size, bool)
        has_offsets = True
    else:
        raise ValueError(f"deletion vector with unknown bitmap format {cookie}")
    header = np.frombuffer(data, "<u2", size * 2, at).reshape(size, 2)
    at += 4 * size + (4 * size if has_offsets else 0)
    parts = []
    for (key, count), is_run in zip(header.tolist(), runs.tolist(), strict=True):
        values, at = _decode_container(data, at, count + 1, is_run)
        parts.append(values.astype(np.uint64) | np.uint64(key << 16))
    return np.concatenate(parts) if parts else np.empty(0, np.uint64), at


def _decode_container(data: bytes, at: int, count: int, is_run: bool) -> tuple[npt.NDArray[np.uint16], int]:
    if is_run:
        (size,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", size * 2, at + 2).reshape(size, 2).astype(np.int64)
        values = [np.arange(start, start + length + 1) for start, length in pairs.tolist()]
        return np.concatenate(values).astype(np.uint16) if values else np.empty(0, np.uint16), at + 2 + 4 * size
    if count <= _ARRAY_LIMIT:
        return np.frombuffer(data, "<u2", count, at), at + 2 * count
    bits = np.unpackbits(np.frombuffer(data, np.uint8, 8192, at), bitorder="little")
    return np.flatnonzero(bits).astype(np.uint16), at + 8192


def _decode_z85(text: str) -> bytes:
    try:
        digits = [_DIGITS[char] for char in text]
    except KeyError as error:
        raise ValueError(f"deletion vector with the character {error}, which Base85 does not have") from None
    groups = [digits[start : start + 5] for start in range(0, len(digits), 5)]
    values = [((((a * 85 + b) * 85 + c) * 85 + d) * 85) + e for a, b, c, d, e in groups]
    return struct.pack(f">{len(values)}I", *values)
