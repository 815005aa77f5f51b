"""Equality deletes of Iceberg tables: which rows of a data file equal a deleted row, found in Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.formats.iceberg.delete_files import Positions, aligned
from metastore_assets.formats.iceberg.kept_rows import KeptRows
from metastore_assets.formats.iceberg.names import FallbackIds
from metastore_assets.formats.readers.columns import open_columns
from metastore_assets.formats.readers.reader import FileFragmentReader, explained
from metastore_assets.formats.schema_casting import identity
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import check_limit
from metastore_assets.storage.limits import DELETE_FILE_BYTES, DELETES_CACHE_BYTES
from metastore_assets.storage.location import Location

Codes = npt.NDArray[np.int64]

KEPT = KeptRows(DELETES_CACHE_BYTES)
"""What this process has read: files of deletes are never written over."""
_WHAT = "bytes of rows by which rows are deleted"


@dataclass(frozen=True)
class EqualityDeletes:
    """A file of rows: what equals one of them in the columns `keys` is deleted, null counting as equal to null."""

    location: Location
    path: str
    format: str
    size: int
    """In bytes as recorded."""
    keys: tuple[pa.Field, ...]
    """Top-level fields of the table that have the columns, each a struct of nothing but the next one down to a leaf."""


def equal_rows(
    data: FileFragmentReader, path: str, deletes: Sequence[EqualityDeletes], fallback: FallbackIds
) -> Positions:
    """Ascending positions of the rows of `data`, which has that path, that any of the files deletes.

    `data` must show all rows. Columns that the data file lacks are what readers make of them. Raises FragmentError
    when a file cannot be read.
    """
    by_keys: dict[tuple[pa.Field, ...], list[EqualityDeletes]] = {}
    for file in deletes:
        by_keys.setdefault(file.keys, []).append(file)
    found = [np.empty(0, np.uint64)]
    size = 0
    for keys, files in by_keys.items():
        rows = []
        for file in files:
            with explained(path, "the equality deletes", file.location.full_path(file.path)):
                rows.append(KEPT.get((file, fallback.digest), partial(_deleted_rows, file, fallback, size)))
                size += sum(column.nbytes for column in rows[-1])
                check_limit(DELETE_FILE_BYTES, size, _WHAT)
        columns = [pa.concat_arrays([row[index] for row in rows]) for index in range(len(keys))]
        deleted = _Rows(columns)
        start = 0
        for pieces in aligned([_leaves(data, key) for key in keys]):
            found.append(np.flatnonzero(deleted.contain(pieces)).astype(np.uint64) + np.uint64(start))
            start += len(pieces[0])
    return np.unique(np.concatenate(found))


def _deleted_rows(file: EqualityDeletes, fallback: FallbackIds, size: int) -> list[pa.Array]:
    """The columns by which a file deletes. `size` is the memory that those of other files take."""
    columns = open_columns(file.format, file.location.open(file.path), rebases=False)
    try:
        full_path = file.location.full_path(file.path)
        matcher = fallback.matcher(file.format, columns.fields, positions=False)
        reader = FileFragmentReader(columns, path=full_path, matcher=matcher, constants={})
        for key in file.keys:
            if identity(key) not in reader.stored_columns:
                raise ValueError(f"it lacks the column {key.name!r}, by which it deletes")
        found = []
        for key in file.keys:
            pieces = [_comparable(pa.nulls(0, _leaf_type(key.type)))]
            for piece in _leaves(reader, key):
                pieces.append(piece)
                size += piece.nbytes
                check_limit(DELETE_FILE_BYTES, size, _WHAT)
            found.append(pa.concat_arrays(pieces))
        return found
    finally:
        columns.close()


def _leaf_type(type_: pa.DataType) -> pa.DataType:
    return _leaf_type(type_.field(0).type) if pa.types.is_struct(type_) else type_


def _leaves(reader: FileFragmentReader, key: pa.Field) -> Iterator[pa.Array]:
    """The column that a key leads to. Below a null it is null."""
    for chunk in reader.read(key):
        while pa.types.is_struct(chunk.type):
            chunk = pc.struct_field(chunk, [0])
        yield _comparable(chunk)


def _comparable(array: pa.Array) -> pa.Array:
    """Values that Arrow finds equal when, and only when, Iceberg does."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_floating(array.type):
        # Bit by bit, so that -0.0 is not 0.0; but whatever its bits, NaN is NaN.
        bits = pa.int32() if array.type.bit_width == 32 else pa.int64()
        nan = pa.scalar(float("nan"), array.type)
        return pc.if_else(pc.is_nan(array), nan, array).view(bits)
    return array


class _Rows:
    """A set of rows, to be asked of many others whether they are in it."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._values = [pc.unique(column) for column in columns]
        # Of the codes of all columns up to one: those there are, ascending.
        self._known: list[Codes] = []
        self._codes(columns, np.ones(len(columns[0]), bool), self._learn)

    def contain(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """For each row whether it is in the set. `columns` have the types of those that the set was made of."""
        present = np.ones(len(columns[0]), bool)
        self._codes(columns, present, self._recall)
        return present

    def _codes(
        self,
        columns: Sequence[pa.Array],
        present: npt.NDArray[np.bool_],
        compress: Callable[[int, Codes, npt.NDArray[np.bool_]], Codes],
    ) -> None:
        """Number the rows, column by column, such that equal rows get equal numbers; `present` loses what is new."""
        codes = np.zeros(len(columns[0]), np.int64)
        for index, (column, values) in enumerate(zip(columns, self._values, strict=True)):
            found = pc.index_in(column, value_set=values)
            present &= found.is_valid().to_numpy(zero_copy_only=False)
            own = pc.fill_null(found, 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
            codes = compress(index, codes * max(1, len(values)) + own, present)

    def _learn(self, index: int, codes: Codes, present: npt.NDArray[np.bool_]) -> Codes:
        known, numbers = np.unique(codes, return_inverse=True)
        self._known.append(known)
        return numbers.astype(np.int64)

    def _recall(self, index: int, codes: Codes, present: npt.NDArray[np.bool_]) -> Codes:
        known = self._known[index]
        if not len(known):
            present[:] = False
            return codes
        numbers = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        present &= known[numbers] == codes
        return numbers.astype(np.int64)
