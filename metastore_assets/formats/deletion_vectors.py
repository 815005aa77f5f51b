"""Deletion vectors of Delta tables: which rows of a data file are deleted, in every storage kind of the protocol."""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from metastore_assets.storage.corrupt_input import check_limit
from metastore_assets.storage.limits import DELETED_ROWS
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy

Positions = npt.NDArray[np.uint64]

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_CHARACTERS = frozenset(_Z85)
_DIGITS = np.array([_Z85.find(chr(code)) for code in range(128)], np.int64)
_MAGIC = (1681511377).to_bytes(4, "little")
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

    def file(self, location_policy: LocationPolicy) -> tuple[Location, str] | None:
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
            return location_policy.resolve_relative(location_policy.table, f"{prefix}/{name}" if prefix else name)
        if self.storage == "p":
            return location_policy.resolve(unquote(self.path_or_inline))
        raise ValueError(f"it is of the storage type {self.storage!r}; there are 'u', 'p' and 'i'")

    def positions(self, location_policy: LocationPolicy, row_count: int) -> Positions:
        """Ascending positions of the deleted rows, in a data file of so many rows.

        Raises ValueError when what is stored contradicts itself, the log, or the data file.
        """
        file = self.file(location_policy)
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
    if len(positions):
        _check_last(int(positions.max()), row_count)


def _check_last(position: int, row_count: int) -> None:
    if position >= row_count:
        raise ValueError(f"it deletes row {position}, but the data file has {row_count} rows")


def decode_vector(data: bytes, cardinality: int, source: str, row_count: int) -> Positions:
    """Ascending positions of deleted rows, of a data file of so many rows.

    A run of them takes four bytes, whatever its length: so what the vector holds is compared with that number and with
    what the `source` of the vector says, before it is unpacked. Raises ValueError.
    """
    check_limit(DELETED_ROWS, cardinality, "deleted rows of one data file")
    bitmap = decode_bitmap_array(data)
    if len(bitmap) != cardinality:
        raise ValueError(f"it deletes {len(bitmap)} rows, the {source} says {cardinality}")
    if cardinality:
        _check_last(bitmap.max(), row_count)
    return np.frombuffer(bitmap.to_array(), np.uint64)


def decode_bitmap_array(data: bytes) -> BitMap64:
    """A RoaringBitmapArray in its portable form, still packed. Raises ValueError when it breaks that form."""
    magic = int.from_bytes(data[: len(_MAGIC)], "little")
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"it does not begin with the magic number {int.from_bytes(_MAGIC, 'little')} but with {magic}")
    packed = data[len(_MAGIC) :]
    try:
        # What follows is the 64-bit format of the Roaring specification.
        bitmap: BitMap64 = BitMap64.deserialize(packed)
    except (ValueError, IndexError, OverflowError, MemoryError) as error:
        raise ValueError(f"its {len(data)} bytes are no Roaring bitmap, or not all of one: {error}") from None
    if len(packed) != (taken := len(bitmap.serialize())):
        raise ValueError(f"it has {len(data)} bytes, of which its values take {len(_MAGIC) + taken}")
    return bitmap


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
