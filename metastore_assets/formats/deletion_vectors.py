"""Deletion vectors of Delta tables: which rows of a data file are deleted, in every storage kind of the protocol."""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from metastore_assets.formats.location import Location
from metastore_assets.formats.relocation import Relocation

Positions = npt.NDArray[np.uint64]

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {digit: value for value, digit in enumerate(_Z85)}
_MAGIC = 1681511377
_COOKIE = 12347
_COOKIE_WITHOUT_RUNS = 12346
_NO_OFFSETS_BELOW = 4
_ARRAY_LIMIT = 4096
"""Up to so many values a container lists them; above, it is 65,536 bits."""
_MOST_CONTAINERS = _CONTAINER_VALUES = 65_536
_BITMAP_BYTES = _CONTAINER_VALUES // 8
_NAME_DIGITS = 20
"""Characters of a UUID in Base85."""
_GROUP = 5
_UNMOVED = Relocation()


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

    def file(self, table: Location, relocation: Relocation = _UNMOVED) -> tuple[Location, str] | None:
        """The file that holds it: a location and the path below; None for an inline one. Raises ValueError."""
        if self.storage == "i":
            return None
        if self.storage == "u":
            prefix, encoded = self.path_or_inline[:-_NAME_DIGITS], self.path_or_inline[-_NAME_DIGITS:]
            if len(encoded) != _NAME_DIGITS:
                raise ValueError(f"{self.path_or_inline!r} is too short for the name of its file")
            name = f"deletion_vector_{uuid.UUID(bytes=_decode_z85(encoded))}.bin"
            return table, f"{prefix}/{name}" if prefix else name
        if self.storage == "p":
            return Location.of_encoded(self.path_or_inline, dict(table.options), relocation), ""
        raise ValueError(f"it is of the storage type {self.storage!r}; there are 'u', 'p' and 'i'")

    def positions(self, table: Location, relocation: Relocation = _UNMOVED) -> Positions:
        """Ascending positions of the deleted rows. Raises ValueError when what is stored contradicts itself."""
        file = self.file(table, relocation)
        return decode_vector(self._inline() if file is None else self._stored(*file), self.cardinality, "log")

    def _inline(self) -> bytes:
        data = _decode_z85(self.path_or_inline)
        # Padded to groups of four bytes.
        if not 0 <= len(data) - self.size < 4:
            raise ValueError(f"the log says that it has {self.size} bytes, but there are {len(data)}")
        return data[: self.size]

    def _stored(self, location: Location, path: str) -> bytes:
        stored = read_part(location, path, self.offset, max(0, self.size) + 8)
        (size,) = struct.unpack_from(">i", stored)
        if size != self.size:
            raise ValueError(f"the log says that it has {self.size} bytes, its own length at {self.offset} is {size}")
        return checked(stored[4:])


def read_part(location: Location, path: str, offset: int, size: int) -> bytes:
    """Bytes of a file. Raises ValueError when not all of them are there."""
    with location.open(path) as source:
        length = source.size()
        if offset < 0 or size < 0 or offset + size > length:
            raise ValueError(f"it is said to be {size} bytes at {offset}, but the file has {length} bytes")
        source.seek(offset)
        return bytes(source.read(size))


def checked(data: bytes) -> bytes:
    """What stands before a checksum of four bytes. Raises ValueError when that is another one."""
    content, checksum = data[:-4], int.from_bytes(data[-4:], "big")
    if zlib.crc32(content) != checksum:
        raise ValueError("it does not have its checksum")
    return content


def check_within(positions: Positions, row_count: int) -> None:
    """Raise ValueError when there are deleted rows that a data file does not have: another one was meant."""
    if len(positions) and int(positions.max()) >= row_count:
        raise ValueError(f"it deletes row {int(positions.max())}, but the data file has {row_count} rows")


def decode_vector(data: bytes, cardinality: int, source: str) -> Positions:
    """Ascending positions of deleted rows. Raises ValueError unless there are as many as the `source` of it says."""
    positions = decode_bitmap_array(data)
    if len(positions) != cardinality:
        raise ValueError(f"it deletes {len(positions)} rows, the {source} says {cardinality}")
    return positions


def decode_bitmap_array(data: bytes) -> Positions:
    """Ascending values of a RoaringBitmapArray in its portable form. Raises ValueError when it breaks that form."""
    try:
        magic, count = struct.unpack_from("<Iq", data)
        if magic != _MAGIC:
            raise ValueError(f"it does not begin with the magic number {_MAGIC} but with {magic}")
        at = 12
        parts = []
        for _ in range(count):
            (key,) = struct.unpack_from("<I", data, at)
            values, at = _decode_bitmap(data, at + 4)
            parts.append(values | np.uint64(key << 32))
    except struct.error:
        raise ValueError(f"it is cut off: there are only {len(data)} bytes of it") from None
    if at != len(data):
        raise ValueError(f"it has {len(data)} bytes, of which its values take {at}")
    positions = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    if np.any(positions[1:] <= positions[:-1]):
        raise ValueError("its values are not in ascending order")
    return positions


def _decode_bitmap(data: bytes, at: int) -> tuple[Positions, int]:
    """One 32-bit Roaring bitmap in the portable format of the Roaring specification, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    if cookie & 0xFFFF == _COOKIE:
        size = (cookie >> 16) + 1
        bits = _numbers(data, "u1", (size + 7) // 8, at + 4)
        runs = np.unpackbits(bits, bitorder="little")[:size].astype(bool)
        at += 4 + len(bits)
        has_offsets = size >= _NO_OFFSETS_BELOW
    elif cookie == _COOKIE_WITHOUT_RUNS:
        (size,) = struct.unpack_from("<I", data, at + 4)
        if size > _MOST_CONTAINERS:
            raise ValueError(f"one of its bitmaps has {size} containers, of which there are {_MOST_CONTAINERS} at most")
        at += 8
        runs = np.zeros(size, bool)
        has_offsets = True
    else:
        raise ValueError(f"one of its bitmaps is of the unknown format {cookie}")
    header = _numbers(data, "<u2", size * 2, at).reshape(size, 2)
    at += 4 * size + (4 * size if has_offsets else 0)
    parts = []
    for (key, count), is_run in zip(header.tolist(), runs.tolist(), strict=True):
        values, at = _decode_container(data, at, count + 1, is_run)
        parts.append(values.astype(np.uint64) | np.uint64(key << 16))
    return np.concatenate(parts) if parts else np.empty(0, np.uint64), at


def _decode_container(data: bytes, at: int, count: int, is_run: bool) -> tuple[npt.NDArray[Any], int]:
    if is_run:
        (size,) = struct.unpack_from("<H", data, at)
        pairs = _numbers(data, "<u2", size * 2, at + 2).reshape(size, 2).astype(np.int64)
        values, at = np.empty(0, np.int64), at + 2 + 4 * size
        # Runs may claim many more values than there are.
        if int(pairs[:, 1].sum()) + size == count:
            values = np.concatenate([np.arange(start, start + more + 1) for start, more in pairs.tolist()])
    elif count <= _ARRAY_LIMIT:
        values, at = _numbers(data, "<u2", count, at), at + 2 * count
    else:
        bits = np.unpackbits(_numbers(data, "u1", _BITMAP_BYTES, at), bitorder="little")
        values, at = np.flatnonzero(bits), at + _BITMAP_BYTES
    if len(values) != count or values[-1] >= _CONTAINER_VALUES:
        raise ValueError(f"one of its containers does not hold the {count} values that it says")
    return values, at


def _numbers(data: bytes, type_: str, count: int, at: int) -> npt.NDArray[Any]:
    size = np.dtype(type_).itemsize * count
    if at + size > len(data):
        raise struct.error
    return np.frombuffer(data, type_, count, at)


def _decode_z85(text: str) -> bytes:
    if len(text) % _GROUP:
        raise ValueError(f"it is no Base85: its {len(text)} characters are not in groups of {_GROUP}")
    try:
        digits = [_DIGITS[char] for char in text]
        groups = [digits[start : start + _GROUP] for start in range(0, len(digits), _GROUP)]
        values = [((((a * 85 + b) * 85 + c) * 85 + d) * 85) + e for a, b, c, d, e in groups]
        return struct.pack(f">{len(values)}I", *values)
    except KeyError as error:
        raise ValueError(f"it is no Base85, which does not have the character {error}") from None
    except struct.error:
        raise ValueError("it is no Base85: five of its characters are more than four bytes") from None
