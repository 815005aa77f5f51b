"""Position delete files and deletion vectors of Iceberg tables.

Both contain the positions of deleted rows in data files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.formats.deletion_vectors import decode_vector, read_part, verify_checksum
from metastore_assets.formats.iceberg.locations import is_same_file
from metastore_assets.formats.readers.chunks import decode_dictionary
from metastore_assets.formats.readers.columns import open_columns
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import check_limit
from metastore_assets.storage.limits import DELETED_ROWS
from metastore_assets.storage.location import Location

Positions = npt.NDArray[np.uint64]

_LEAST_VECTOR = 12
"""Minimum size of a deletion vector in bytes: a length, a magic number and a checksum."""


@dataclass(frozen=True)
class PositionDeletes:
    """A position delete file, or a deletion vector if the format is `puffin`."""

    location: Location
    path: str
    format: str
    record_count: int
    offset: int | None = None
    """Offset of a deletion vector in its file, in bytes."""
    size: int | None = None

    def positions(self, data_path: str, row_count: int) -> Positions:
        """Return the positions of the deleted rows of a data file, in any order and possibly repeated.

        Args:
            data_path: the recorded path of the data file. Deletion vectors ignore it.
            row_count: the number of rows of the data file.

        Raises:
            ValueError, OSError, ArrowException: the file cannot be read.
        """
        if self.format == "puffin":
            return self._vector_positions(row_count)
        file = open_columns(self.format, self.location.open(self.path), rebases=False)
        try:
            names = [field.name for field in file.fields]
            paths, positions = (_column(file.read(names.index(name))) for name in ("file_path", "pos"))
            position_arrays: list[Positions] = []
            for chunk_paths, chunk_positions in align_chunks([paths, positions]):
                part = pc.filter(chunk_positions, _names_file(chunk_paths, data_path))
                if part.null_count:
                    raise ValueError("it has a row without a position")
                if len(part):
                    position_arrays.append(part.cast(pa.uint64()).to_numpy(zero_copy_only=False))
                check_limit(DELETED_ROWS, sum(map(len, position_arrays)), "deleted rows of one data file")
        finally:
            file.close()
        return np.concatenate(position_arrays) if position_arrays else np.empty(0, np.uint64)

    def _vector_positions(self, row_count: int) -> Positions:
        """Return the positions in a deletion vector.

        Raises ValueError if it is corrupt, or if the manifest describes it wrongly.
        """
        if self.offset is None or self.size is None or self.size < _LEAST_VECTOR:
            raise ValueError(
                f"the manifest does not say where it is: content_offset is {self.offset}, "
                f"content_size_in_bytes is {self.size}"
            )
        stored_bytes = read_part(self.location, self.path, self.offset, self.size)
        (length,) = struct.unpack_from(">I", stored_bytes)
        if length != self.size - 8:
            raise ValueError(
                f"the manifest records {self.size} bytes, but the length stored at {self.offset} is {length}"
            )
        return decode_vector(verify_checksum(stored_bytes[4:]), self.record_count, "manifest", row_count)


def align_chunks(columns: Sequence[Iterator[pa.Array]]) -> Iterator[tuple[pa.Array, ...]]:
    """Yield tuples of chunks of equal length, one chunk of each column.

    Raises ArrowInvalid unless all columns have the same number of rows.
    """
    remainders: list[pa.Array] = [_next(column) for column in columns]
    while length := min(map(len, remainders)):
        yield tuple(piece.slice(0, length) for piece in remainders)
        remainders = [
            piece.slice(length) if len(piece) > length else _next(column)
            for piece, column in zip(remainders, columns, strict=True)
        ]
    if any(map(len, remainders)):
        raise pa.ArrowInvalid("its columns differ in their number of rows")


def _next(column: Iterator[pa.Array]) -> pa.Array:
    """Return the next chunk that has rows; an empty array at the end."""
    return next((piece for piece in column if len(piece)), pa.nulls(0))


def _column(chunks: Iterator[pa.Array]) -> Iterator[pa.Array]:
    for chunk in chunks:
        yield from decode_dictionary(chunk)


def _names_file(paths: pa.Array, data_path: str) -> pa.Array:
    """Return a mask of the paths that name the data file."""
    encoded_paths = paths.dictionary_encode()
    matches = [path is not None and is_same_file(path, data_path) for path in encoded_paths.dictionary.to_pylist()]
    return pc.fill_null(pc.take(pa.array(matches, pa.bool_()), encoded_paths.indices), False)
