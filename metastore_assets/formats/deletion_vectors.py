"""Deletion vectors of Delta tables: which rows of a data file are deleted, in every storage kind of the protocol."""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.formats.damage import refuse_beyond
from metastore_assets.formats.limits import DELETED_ROWS
from metastore_assets.formats.location import Location
from metastore_assets.formats.relocation import Relocation

Positions = npt.NDArray[np.uint64]

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = np.array([_Z85.find(chr(code)) for code in range(256)], np.int64)
_MAGIC = 1681511377
_COOKIE = 12347
_COOKIE_WITHOUT_RUNS = 12346
_NO_OFFSETS_BELOW = 4
_BITMAP_VALUES = 1 << 32
_CONTAINERS = _CONTAINER_VALUES = 1 << 16
_ARRAY_LIMIT = 4096
"""Up to so many values a container lists them; above, it is 65,536 bits."""
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
        """The file that holds it: a location and the path below; None for an inline one."""
        if self.storage == "i":
            return None
        if self.storage == "u":
            prefix, encoded = self.path_or_inline[:-20], self.path_or_inline[-20:]
            name = f"deletion_vector_{uuid.UUID(bytes=_decode_z85(encoded))}.bin"
            return table, f"{prefix}/{name}" if prefix else name
        if self.storage == "p":
            return Location.of_encoded(self.path_or_inline, dict(table.options), relocation), ""
        raise ValueError(f"deletion vector of unknown storage type {self.storage!r}")

    def positions(self, table: Location, rows: int, relocation: Relocation = _UNMOVED) -> Positions:
        """Ascending positions of the deleted rows of a file of so many. Raises ValueError, ArrowException or OSError.

        So it does for what contradicts itself, the log, or the file; before anything is unpacked.
        """
        return decode_bitmap_array(self._data(table, relocation), rows, self.cardinality)

    def _data(self, table: Location, relocation: Relocation) -> bytes:
        file = self.file(table, relocation)
        if file is None:
            data = _decode_z85(self.path_or_inline)
            if len(data) < self.size:
                raise ValueError(f"it is cut off: there are {len(data):,} of its {self.size:,} bytes")
            return data[: self.size]
        location, path = file
        full_path = location.full_path(path)
        with location.open(path) as source:
            stored = read_part(source, full_path, self.offset, self.size + 8)
        (size,) = struct.unpack_from(">i", stored)
        data = stored[4 : 4 + self.size]
        if size != self.size:
            raise ValueError(f"{full_path} has no deletion vector of {self.size:,} bytes at {self.offset:,}")
        if zlib.crc32(data) != struct.unpack_from(">I", stored, 4 + size)[0]:
            raise ValueError(f"{full_path}: the deletion vector at {self.offset:,} has a wrong checksum")
        return data


def read_part(source: pa.NativeFile, full_path: str, offset: int, size: int) -> bytes:
    """So many bytes of a file from there on. Raises ValueError when it does not have them."""
    if offset + size > source.size():
        raise ValueError(
            f"{full_path} has {source.size():,} bytes, and no deletion vector of {size:,} bytes at {offset:,}"
        )
    source.seek(offset)
    return bytes(source.read(size))


def decode_bitmap_array(data: bytes, rows: int, cardinality: int) -> Positions:
    """Ascending values of a RoaringBitmapArray in its portable form: as many as are said, all below `rows`.

    A run of values takes four bytes, whatever its length. What a bitmap says that it holds is compared with the two
    numbers before it is unpacked. Raises ValueError.
    """
    refuse_beyond(DELETED_ROWS, cardinality, "deleted rows of one file")
    if cardinality > rows:
        raise ValueError(f"it deletes {cardinality:,} rows of a file of {rows:,}")
    try:
        magic, count = struct.unpack_from("<Iq", data)
        if magic != _MAGIC:
            raise ValueError(f"deletion vector with unknown magic number {magic}")
        if not 0 <= count <= rows // _BITMAP_VALUES + 1:
            raise ValueError(f"it has {count:,} bitmaps for a file of {rows:,} rows")
        at = 12
        parts: list[Positions] = []
        left = cardinality
        for _ in range(count):
            (key,) = struct.unpack_from("<I", data, at)
            bitmap = _Bitmap(data, at + 4)
            bitmap.check(key, rows, left)
            left -= bitmap.cardinality
            values, at = bitmap.values()
            parts.append(values | np.uint64(key << 32))
    except (struct.error, IndexError) as error:
        raise ValueError(f"deletion vector is cut off: {error}") from error
    positions = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    if len(positions) != cardinality:
        raise ValueError(f"it deletes {len(positions):,} rows, and {cardinality:,} by the table's metadata")
    if np.any(positions[1:] <= positions[:-1]):
        raise ValueError("its positions do not ascend")
    if len(positions):
        _check_row(int(positions[-1]), rows)
    return positions


def _check_row(position: int, rows: int) -> None:
    if position >= rows:
        raise ValueError(f"it deletes row {position:,}, counted from 0, of a file of {rows:,}")


class _Bitmap:
    """One 32-bit Roaring bitmap in the portable format of the Roaring specification."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        (cookie,) = struct.unpack_from("<I", data, at)
        if cookie & 0xFFFF == _COOKIE:
            size = (cookie >> 16) + 1
            at += 4
            bits = np.frombuffer(data, np.uint8, (size + 7) // 8, at)
            self._runs = np.unpackbits(bits, bitorder="little")[:size].astype(bool)
            at += (size + 7) // 8
            has_offsets = size >= _NO_OFFSETS_BELOW
        elif cookie == _COOKIE_WITHOUT_RUNS:
            (size,) = struct.unpack_from("<I", data, at + 4)
            if size > _CONTAINERS:
                raise ValueError(f"deletion vector with a bitmap of {size:,} containers")
            at += 8
            self._runs = np.zeros(size, bool)
            has_offsets = True
        else:
            raise ValueError(f"deletion vector with unknown bitmap format {cookie}")
        header = np.frombuffer(data, "<u2", size * 2, at).reshape(size, 2).astype(np.int64)
        self._keys, self._counts = header[:, 0], header[:, 1] + 1
        self._at = at + 4 * size + (4 * size if has_offsets else 0)
        self.cardinality = int(self._counts.sum())

    def check(self, key: int, rows: int, left: int) -> None:
        """Raise ValueError when it claims more values than are left, or some that no row of the file has."""
        if self.cardinality > left:
            raise ValueError(f"it deletes {self.cardinality - left:,} rows more than by the table's metadata")
        if len(self._keys):
            _check_row((key << 32) + (int(self._keys.max()) << 16), rows)

    def values(self) -> tuple[Positions, int]:
        """Its values, and where it ends."""
        at = self._at
        parts = []
        for key, count, is_run in zip(self._keys.tolist(), self._counts.tolist(), self._runs.tolist(), strict=True):
            values, at = _decode_container(self._data, at, count, is_run)
            parts.append(values.astype(np.uint64) | np.uint64(key << 16))
        return np.concatenate(parts) if parts else np.empty(0, np.uint64), at


def _decode_container(data: bytes, at: int, count: int, is_run: bool) -> tuple[npt.NDArray[np.uint16], int]:
    if is_run:
        (size,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", size * 2, at + 2).reshape(size, 2).astype(np.int64)
        lengths = pairs[:, 1] + 1
        if int(lengths.sum()) != count or (size and int((pairs[:, 0] + lengths).max()) > _CONTAINER_VALUES):
            raise ValueError(f"deletion vector with runs that do not hold the {count:,} values that they should")
        values = [np.arange(start, start + length) for start, length in zip(pairs[:, 0], lengths, strict=True)]
        return np.concatenate(values).astype(np.uint16), at + 2 + 4 * size
    if count <= _ARRAY_LIMIT:
        return np.frombuffer(data, "<u2", count, at), at + 2 * count
    bits = np.unpackbits(np.frombuffer(data, np.uint8, 8192, at), bitorder="little")
    return np.flatnonzero(bits).astype(np.uint16), at + 8192


def _decode_z85(text: str) -> bytes:
    try:
        digits = _DIGITS[np.frombuffer(text.encode("latin-1"), np.uint8)]
    except UnicodeEncodeError:
        digits = np.array([-1])
    if (digits < 0).any():
        wrong = next(char for char in text if char not in _Z85)
        raise ValueError(f"deletion vector with the character {wrong!r}, which Base85 does not have")
    if len(digits) % 5:
        raise ValueError(f"deletion vector of {len(digits):,} characters, which is no multiple of five")
    values = digits.reshape(-1, 5) @ np.array([85**4, 85**3, 85**2, 85, 1], np.int64)
    if len(values) and int(values.max()) >= 1 << 32:
        raise ValueError("deletion vector with five characters that are more than 32 bits")
    return values.astype(">u4").tobytes()
