"""Chunks of bounded size, and dictionary arrays of strings and bytes as Parquet files store them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from metastore_assets.formats.schema_casting import FieldMatcher, cast_to_schema, is_text
from metastore_assets.startup import pc

CHUNK_ROWS = 131_072
"""Maximum rows of one chunk."""
CHUNK_BYTES = 32 << 20
"""Target size of one chunk in bytes."""


def split_array(array: pa.Array) -> Iterator[pa.Array]:
    """The same rows in chunks of no more than CHUNK_ROWS, and about CHUNK_BYTES by the array's average."""
    average = max(1, array.nbytes // max(1, len(array)))
    rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // average))
    for start in range(0, len(array), rows):
        yield array.slice(start, rows)


def decode_dictionary(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of a dictionary array in chunks of bounded size; yield any other array unchanged.

    Raises:
        ArrowInvalid: An index has no dictionary entry.
    """
    if not isinstance(array, pa.DictionaryArray):
        yield array
        return
    _check_indices(array)
    if not _is_bytes(array.dictionary.type):
        yield array.dictionary_decode()
        return
    sizes = pc.fill_null(pc.binary_length(array.dictionary), 0).to_numpy().astype(np.int64)
    ends = np.cumsum(pc.fill_null(pc.take(pa.array(sizes), array.indices), 0).to_numpy())
    start = taken = 0
    while start < len(array):
        stop = max(start + 1, int(np.searchsorted(ends, taken + CHUNK_BYTES, side="right")))
        yield array.slice(start, stop - start).dictionary_decode()
        start, taken = stop, int(ends[stop - 1])


def cast_dictionary(array: pa.Array, wanted: pa.DataType, matcher: FieldMatcher) -> pa.DictionaryArray | None:
    """Return a dictionary array with entries of type `wanted`.

    Entries may occur in no row, so only casts that never fail are applied to them.

    Returns:
        The array, or None when `array` is no dictionary of strings or bytes, or when its entries would need another
            cast.

    Raises:
        ArrowInvalid: An index has no dictionary entry.
    """
    if not isinstance(array, pa.DictionaryArray) or not _is_bytes(array.dictionary.type):
        return None
    if not (wanted == pa.string() and is_text(array.dictionary.type)) and wanted != array.dictionary.type:
        return None
    _check_indices(array)
    return pa.DictionaryArray.from_arrays(array.indices, cast_to_schema(array.dictionary, wanted, matcher), safe=False)


def saves_memory(array: pa.DictionaryArray) -> bool:
    """Return whether the dictionary is short enough, compared with the rows, to be worth keeping."""
    return 2 * len(array.dictionary) < len(array)


def can_concatenate(one: pa.Array, other: pa.Array) -> bool:
    """Return whether two arrays of one column can be concatenated without merging dictionaries."""
    if not isinstance(one, pa.DictionaryArray) or not isinstance(other, pa.DictionaryArray):
        return bool(one.type == other.type)
    return bool(one.type == other.type and one.dictionary.equals(other.dictionary))


def _check_indices(array: pa.DictionaryArray) -> None:
    """Raise ArrowInvalid for an index out of range. Arrow does not check the indices that a file stores."""
    extent = pc.min_max(array.indices)
    least, greatest = extent["min"].as_py(), extent["max"].as_py()
    if least is not None and not 0 <= least <= greatest < len(array.dictionary):
        raise pa.ArrowInvalid(f"an index of {least if least < 0 else greatest} into {len(array.dictionary)} entries")


def _is_bytes(type_: pa.DataType) -> bool:
    return any(
        matches(type_)
        for matches in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )
