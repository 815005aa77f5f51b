"""Deletion vectors of Delta tables: which rows of a data file are deleted, in every storage kind of the protocol."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from metastore_assets.formats.damage import refuse_beyond
from metastore_assets.formats.limits import DELETED_ROWS
from metastore_assets.formats.places.location import Location
from metastore_assets.formats.places.reach import Reach

Positions = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_CHARACTERS = frozenset(_Z85)
_DIGITS = np.array([_Z85.find(chr(code)) for code in range(128)], np.int64)
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
            prefix, encoded = self.path_or_inline[:-_NAME_DIGITS], self.path_or_inline[-_NAME_DIGITS:]
            if len(encoded) != _NAME_DIGITS:
                raise ValueError(f"{self.path_or_inline!r} is too short for the name of its file")
            name = f"deletion_vector_{uuid.UUID(bytes=_decode_z85(encoded))}.bin"
            return reach.below(reach.table, f"{prefix}/{name}" if prefix else name)
        if self.storage == "p":
            return reach.to(unquote(self.path_or_inline))
        raise ValueError(f"it is of the storage type {self.storage!r}; there are 'u', 'p' and 'i'")

    def positions(self, reach: Reach, row_count: int) -> Positions:
        """Ascending positions of the deleted rows, in a data file of so many rows.

        Raises ValueError when what is stored contradicts itself, the log, or the data file.
        """
        file = self.file(reach)
        data = self._inline() if file is None else self._stored(*file)
        return decode_vector(data, self.cardinality, "log", row_count)

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


def decode_vector(data: bytes, cardinality: int, source: str, row_count: int) -> Positions:
    """Ascending positions of deleted rows, of a data file of so many rows.

    A run of them takes four bytes, whatever its length: so what the vector says that it holds is compared with that
    number and with what the `source` of the vector says, before it is unpacked. Raises ValueError.
    """
    refuse_beyond(DELETED_ROWS, cardinality, "deleted rows of one data file")
    claims = _Claims(cardinality, source, row_count)
    positions = decode_bitmap_array(data, claims.check)
    claims.check_count(len(positions))
    check_within(positions, row_count)
    return positions


@dataclass
class _Claims:
    """What is known of a vector before it is read."""

    cardinality: int
    source: str
    row_count: int
    claimed: int = 0

    def check(self, first: int, keys: Numbers, counts: Numbers) -> None:
        """Check what a bitmap whose values begin at `first` says that its containers hold. Raises ValueError."""
        self.claimed += int(counts.sum())
        if self.claimed > self.cardinality:
            self.check_count(self.claimed)
        _check_ascending(keys)
        outermost = first + (int(keys.max(initial=0)) << 16)
        if outermost >= self.row_count and len(keys):
            raise ValueError(
                f"it deletes row {outermost} or one behind it, but the data file has {self.row_count} rows"
            )

    def check_count(self, count: int) -> None:
        """Raise ValueError unless it is as many as expected."""
        if count != self.cardinality:
            raise ValueError(f"it deletes {count} rows, the {self.source} says {self.cardinality}")


def decode_bitmap_array(
    data: bytes, check: Callable[[int, Numbers, Numbers], None] = lambda first, keys, counts: None
) -> Positions:
    """Ascending values of a RoaringBitmapArray in its portable form. Raises ValueError when it breaks that form.

    `check` is given the least value that each bitmap may have, the keys of its containers, and how many values each
    of these says that it holds.
    """
    try:
        magic, count = struct.unpack_from("<Iq", data)
        if magic != _MAGIC:
            raise ValueError(f"it does not begin with the magic number {_MAGIC} but with {magic}")
        at = 12
        parts = []
        for _ in range(count):
            (key,) = struct.unpack_from("<I", data, at)
            values, at = _decode_bitmap(data, at + 4, partial(check, key << 32))
            parts.append(values | np.uint64(key << 32))
    except struct.error:
        raise ValueError(f"it is cut off: there are only {len(data)} bytes of it") from None
    if at != len(data):
        raise ValueError(f"it has {len(data)} bytes, of which its values take {at}")
    positions = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    _check_ascending(positions)
    return positions


def _check_ascending(values: npt.NDArray[Any]) -> None:
    if np.any(values[1:] <= values[:-1]):
        raise ValueError("its values are not in ascending order")


def _decode_bitmap(data: bytes, at: int, check: Callable[[Numbers, Numbers], None]) -> tuple[Positions, int]:
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
    header = _numbers(data, "<u2", size * 2, at).reshape(size, 2).astype(np.int64)
    check(header[:, 0], header[:, 1] + 1)
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
    wrong = set(text) - _CHARACTERS
    if wrong:
        raise ValueError(f"it is no Base85, which does not have the character {min(wrong)!r}")
    digits = _DIGITS[np.frombuffer(text.encode("ascii"), np.uint8)].reshape(-1, _GROUP)
    values = digits @ np.array([85**power for power in reversed(range(_GROUP))], np.int64)
    if values.max(initial=0) >> 32:
        raise ValueError("it is no Base85: five of its characters are more than four bytes")
    return values.astype(">u4").tobytes()
