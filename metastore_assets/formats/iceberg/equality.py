"""Equality deletes of Iceberg tables, resolved to the positions of deleted rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import SizedCache
from metastore_assets.formats.iceberg.delete_files import Positions, align_chunks
from metastore_assets.formats.iceberg.name_mapping import FallbackIds
from metastore_assets.formats.readers.columns import open_columns
from metastore_assets.formats.readers.reader import ColumnMapping, FileFragmentReader, fragment_errors
from metastore_assets.formats.schema_casting import identity
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import check_limit
from metastore_assets.storage.limits import DELETE_FILE_BYTES, DELETES_CACHE_BYTES
from metastore_assets.storage.location import Location

Codes = npt.NDArray[np.int64]
Columns = Sequence[pa.Array]


class DeleteRowCache(SizedCache[Hashable, Columns]):
    """A least-recently-used cache of the rows of delete files, limited in bytes."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes, lambda columns: sum(column.nbytes for column in columns))

    def get_or_read(self, key: Hashable, read: Callable[[], Columns]) -> Columns:
        """Return the columns that are cached under a key.

        If none are cached, call `read`, cache its result if it fits, and return it.
        """
        columns = self.get(key)
        if columns is None:
            columns = read()
            self.put(key, columns)
        return columns


DELETE_ROWS = DeleteRowCache(DELETES_CACHE_BYTES)
"""The rows of delete files that this process has read. Delete files are immutable."""
_WHAT = "bytes of rows by which rows are deleted"


@dataclass(frozen=True)
class EqualityDeletes:
    """An equality delete file.

    It deletes the rows that equal one of its rows in the columns `keys`. Null equals null.
    """

    location: Location
    path: str
    format: str
    size: int
    """Recorded size in bytes."""
    keys: tuple[pa.Field, ...]
    """The key columns, each as a top-level field that is pruned to one leaf."""


def find_deleted_positions(
    data: FileFragmentReader, path: str, deletes: Sequence[EqualityDeletes], fallback: FallbackIds
) -> Positions:
    """Return the ascending positions of the rows that equality delete files delete.

    Args:
        data: an open reader of all rows of the data file, which fills columns that the file lacks.
        path: path of the data file, for messages.
        deletes: the delete files that apply to the data file.
        fallback: assigns field ids to files without ids.

    Raises:
        FragmentError: a file cannot be read.
    """
    by_keys: dict[tuple[str, ...], list[EqualityDeletes]] = {}
    for file in deletes:
        # Arrow's fields are equal if only their field ids differ: a dropped column, and a newer one of the same name.
        by_keys.setdefault(tuple(map(_leaf_identity, file.keys)), []).append(file)
    positions = [np.empty(0, np.uint64)]
    size = 0
    for files in by_keys.values():
        keys = files[0].keys
        rows = []
        for file in files:
            with fragment_errors(path, "the equality deletes", file.location.full_path(file.path)):
                rows.append(
                    DELETE_ROWS.get_or_read((file, fallback.digest), partial(_deleted_rows, file, fallback, size))
                )
                size += sum(column.nbytes for column in rows[-1])
                check_limit(DELETE_FILE_BYTES, size, _WHAT)
        columns = [pa.concat_arrays([row[index] for row in rows]) for index in range(len(keys))]
        deleted_rows = _RowSet(columns)
        start = 0
        for pieces in align_chunks([_leaves(data, key) for key in keys]):
            positions.append(np.flatnonzero(deleted_rows.contain(pieces)).astype(np.uint64) + np.uint64(start))
            start += len(pieces[0])
    return np.unique(np.concatenate(positions))


def _deleted_rows(file: EqualityDeletes, fallback: FallbackIds, size: int) -> list[pa.Array]:
    """Return the key columns of an equality delete file: the values by which the file deletes rows.

    `size` is the number of bytes of the key columns of other delete files, which count towards the same limit. Raises
    LimitError if all key columns together exceed DELETE_FILE_BYTES, and ValueError if the file lacks a key column.
    """
    columns = open_columns(file.format, file.location.open(file.path), rebases=False)
    try:
        full_path = file.location.full_path(file.path)
        matcher = fallback.matcher(file.format, columns.fields, positions=False)
        reader = FileFragmentReader(columns, path=full_path, mapping=ColumnMapping(matcher, {}))
        for key in file.keys:
            if identity(key) not in reader.stored_columns:
                raise ValueError(f"it lacks the column {key.name!r}, by which it deletes")
        key_columns = []
        for key in file.keys:
            pieces = [_comparable(pa.nulls(0, _leaf_type(key.type)))]
            for piece in _leaves(reader, key):
                pieces.append(piece)
                size += piece.nbytes
                check_limit(DELETE_FILE_BYTES, size, _WHAT)
            key_columns.append(pa.concat_arrays(pieces))
        return key_columns
    finally:
        columns.close()


def _leaf_identity(key: pa.Field) -> str:
    return _leaf_identity(key.type.field(0)) if pa.types.is_struct(key.type) else identity(key)


def _leaf_type(type_: pa.DataType) -> pa.DataType:
    return _leaf_type(type_.field(0).type) if pa.types.is_struct(type_) else type_


def _leaves(reader: FileFragmentReader, key: pa.Field) -> Iterator[pa.Array]:
    """Yield the leaf values of a key column in chunks."""
    for chunk in reader.read(key):
        while pa.types.is_struct(chunk.type):
            chunk = pc.struct_field(chunk, [0])
        yield _comparable(chunk)


def _comparable(array: pa.Array) -> pa.Array:
    """Convert an array so that Arrow compares its values as Iceberg does."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_floating(array.type):
        # Compare bits, so that -0.0 differs from 0.0; all NaN values get the same bits.
        bits = pa.int32() if array.type.bit_width == 32 else pa.int64()
        nan = pa.scalar(float("nan"), array.type)
        return pc.if_else(pc.is_nan(array), nan, array).view(bits)
    return array


class _RowSet:
    """A set of rows with a vectorized membership test."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._values = [pc.unique(column) for column in columns]
        # The distinct codes of the first n columns together, ascending, for each n.
        self._distinct_codes: list[Codes] = []
        self._encode_rows(columns, np.ones(len(columns[0]), bool), self._number_codes)

    def contain(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that are in the set.

        `columns` must have the types of the set.
        """
        is_present = np.ones(len(columns[0]), bool)
        self._encode_rows(columns, is_present, self._look_up_codes)
        return is_present

    def _encode_rows(
        self,
        columns: Sequence[pa.Array],
        is_present: npt.NDArray[np.bool_],
        compress: Callable[[int, Codes, npt.NDArray[np.bool_]], Codes],
    ) -> None:
        """Encode rows as integers column by column, and pass the codes to `compress`.

        Equal rows get equal codes.

        Nothing is returned. The results are the changes of `is_present`, and what `compress` does with the codes.

        Args:
            columns: The columns of the rows, in the order of the set's columns.
            is_present: A mask of the rows, changed in place. It becomes False for a row if one of its values does not
                occur in the same column of the set.
            compress: Called after each column, with the column's index, one code per row and `is_present`. A code
                stands for the values of the row in all columns so far. The function returns smaller codes, which are
                combined with the next column.
        """
        codes = np.zeros(len(columns[0]), np.int64)
        for index, (column, values) in enumerate(zip(columns, self._values, strict=True)):
            indices = pc.index_in(column, value_set=values)
            is_present &= indices.is_valid().to_numpy(zero_copy_only=False)
            column_codes = pc.fill_null(indices, 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
            codes = compress(index, codes * max(1, len(values)) + column_codes, is_present)

    def _number_codes(self, index: int, codes: Codes, is_present: npt.NDArray[np.bool_]) -> Codes:
        """Append the ascending distinct codes to `_distinct_codes`, and return each code's index in them.

        For example, it returns [1, 0, 1] for the codes [7, 3, 7]. `index` and `is_present` are not used: they are only
        here because `_encode_rows` passes them.
        """
        distinct_codes, numbers = np.unique(codes, return_inverse=True)
        self._distinct_codes.append(distinct_codes)
        return numbers.astype(np.int64)

    def _look_up_codes(self, index: int, codes: Codes, is_present: npt.NDArray[np.bool_]) -> Codes:
        """Return the position of each row's code in `_distinct_codes[index]`, stored by `_number_codes`.

        If a row's code is not in that array, `is_present` is set to False for the row, and its position has no meaning.

        Args:
            index: The index of a column of the set.
            codes: One integer per row, which stands for the row's values in the columns up to `index`.
            is_present: A mask of the rows, changed in place.
        """
        distinct_codes = self._distinct_codes[index]
        if not len(distinct_codes):
            is_present[:] = False
            return codes
        numbers = np.minimum(np.searchsorted(distinct_codes, codes), len(distinct_codes) - 1)
        is_present &= distinct_codes[numbers] == codes
        return numbers.astype(np.int64)
