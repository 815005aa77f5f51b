"""Deletion vectors of Delta and Iceberg tables.

A deletion vector is a bitmap with the positions of the deleted rows of one data file.
"""

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
    """A deletion vector as a Delta log records it: its location, and the number of rows that it deletes."""

    storage: str
    """`u`: a file of the table named by a UUID; `p`: an absolute path; `i`: inline."""
    path_or_inline: str
    offset: int
    size: int
    cardinality: int
    """Number of deleted rows."""

    @property
    def id(self) -> str:
        """Id of the vector, unique within the table.

        It consists of the storage type, the path or the inline data, and the offset.
        """
        return f"{self.storage}{self.path_or_inline}@{self.offset}"

    def file(self, location_policy: LocationPolicy) -> tuple[Location, str] | None:
        """Return the file of the vector, as a location and a path below it.

        The result is None if the log itself contains the vector.

        Raises:
            TableFormatError: the location policy, which decides what files a table may refer to, forbids the file.
            ValueError: the storage type or the name of the file is invalid.
        """
        if self.storage == "i":
            return None
        if self.storage == "u":
            prefix, encoded_uuid = self.path_or_inline[:-_NAME_DIGITS], self.path_or_inline[-_NAME_DIGITS:]
            if len(encoded_uuid) != _NAME_DIGITS:
                raise ValueError(f"{self.path_or_inline!r} is too short for the name of its file")
            name = f"deletion_vector_{uuid.UUID(bytes=_decode_z85(encoded_uuid))}.bin"
            return location_policy.resolve_relative(location_policy.table_root, f"{prefix}/{name}" if prefix else name)
        if self.storage == "p":
            return location_policy.resolve(unquote(self.path_or_inline))
        raise ValueError(f"its storage type is {self.storage!r}, not 'u', 'p' or 'i'")

    def positions(self, location_policy: LocationPolicy, row_count: int) -> Positions:
        """Read the vector, and return the ascending positions of the deleted rows.

        Args:
            location_policy: decides which files the table may refer to.
            row_count: the number of rows of the data file.

        Raises:
            OSError: the vector's file cannot be read.
            TableFormatError: the location policy forbids the vector's file.
            ValueError: the vector is corrupt, or contradicts the log or the row count.
        """
        file = self.file(location_policy)
        data = self._inline() if file is None else self._stored(*file)
        return decode_vector(data, self.cardinality, "log", row_count)

    def _inline(self) -> bytes:
        data = _decode_z85(self.path_or_inline)
        # The text is padded to groups of four bytes.
        if not 0 <= len(data) - self.size < 4:
            raise ValueError(f"the log records {self.size} bytes, but it has {len(data)}")
        return data[: self.size]

    def _stored(self, location: Location, path: str) -> bytes:
        """Read the bytes of the vector from its file.

        Raises ValueError if the length or the checksum is wrong.
        """
        stored_bytes = read_part(location, path, self.offset, max(0, self.size) + 8)
        (size,) = struct.unpack_from(">i", stored_bytes)
        if size != self.size:
            raise ValueError(f"the log records {self.size} bytes, but the length stored at {self.offset} is {size}")
        return verify_checksum(stored_bytes[4:])


def read_part(location: Location, path: str, offset: int, size: int) -> bytes:
    """Return `size` bytes of a file from an offset on.

    Raises ValueError if the file does not have this range.
    """
    with location.open(path) as source:
        length = source.size()
        if offset < 0 or size < 0 or offset + size > length:
            raise ValueError(f"the metadata place it in {size} bytes at {offset}, but the file has {length} bytes")
        source.seek(offset)
        return bytes(source.read(size))


def verify_checksum(data: bytes) -> bytes:
    """Check the checksum in the last four bytes, and return the data before it.

    Raises ValueError if the checksum is wrong.
    """
    content, checksum = data[:-4], int.from_bytes(data[-4:], "big")
    if zlib.crc32(content) != checksum:
        raise ValueError("its checksum is wrong")
    return content


def check_within(positions: Positions, row_count: int) -> None:
    """Raise ValueError if a position is beyond the last row of the data file."""
    if len(positions):
        _check_last(int(positions.max()), row_count)


def _check_last(position: int, row_count: int) -> None:
    if position >= row_count:
        raise ValueError(f"it deletes row {position}, but the data file has {row_count} rows")


def decode_vector(data: bytes, cardinality: int, source: str, row_count: int) -> Positions:
    """Return the ascending positions that a serialized vector contains.

    Args:
        data: the serialized vector.
        cardinality: the number of deleted rows according to the table's metadata.
        source: the metadata that recorded the cardinality, for messages.
        row_count: the number of rows of the data file.

    Raises:
        ValueError: the vector is corrupt, has another number of positions than `cardinality`, or has a position beyond
            the last row. Or `cardinality` exceeds the limit `DELETED_ROWS`.
    """
    # A long run of positions takes few bytes: check the number before the positions are expanded.
    check_limit(DELETED_ROWS, cardinality, "deleted rows of one data file")
    bitmap = decode_bitmap_array(data)
    if len(bitmap) != cardinality:
        raise ValueError(f"it deletes {len(bitmap)} rows, but the {source} records {cardinality}")
    if cardinality:
        _check_last(bitmap.max(), row_count)
    return np.frombuffer(bitmap.to_array(), np.uint64)


def decode_bitmap_array(data: bytes) -> BitMap64:
    """Parse a Roaring bitmap array in the portable format.

    Raises ValueError if it is invalid.
    """
    magic = int.from_bytes(data[: len(_MAGIC)], "little")
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"it begins with {magic} instead of the magic number {int.from_bytes(_MAGIC, 'little')}")
    bitmap_data = data[len(_MAGIC) :]
    try:
        # The data after the magic number are a 64-bit bitmap in the portable format of the Roaring specification.
        bitmap: BitMap64 = BitMap64.deserialize(bitmap_data)
    except (ValueError, IndexError, OverflowError, MemoryError) as error:
        raise ValueError(f"its {len(data)} bytes are not a complete Roaring bitmap: {error}") from None
    if len(bitmap_data) != (bitmap_size := len(bitmap.serialize())):
        raise ValueError(f"it has {len(data)} bytes, but its bitmap takes {len(_MAGIC) + bitmap_size}")
    return bitmap


def _decode_z85(text: str) -> bytes:
    """Decode a text in Z85, a form of Base85.

    Raises ValueError if it is invalid.
    """
    if len(text) % _GROUP:
        raise ValueError(f"it is not Base85: its {len(text)} characters are not in groups of {_GROUP}")
    wrong = set(text) - _CHARACTERS
    if wrong:
        raise ValueError(f"it is not Base85: it has the character {min(wrong)!r}")
    digits = _DIGITS[np.frombuffer(text.encode("ascii"), np.uint8)].reshape(-1, _GROUP)
    values = digits @ np.array([85**power for power in reversed(range(_GROUP))], np.int64)
    if values.max(initial=0) >> 32:
        raise ValueError("it is not Base85: five of its characters exceed four bytes")
    return values.astype(">u4").tobytes()
