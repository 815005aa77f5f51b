"""Cutting of arrays into chunks of bounded size, and dictionary arrays of strings and bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from metastore_assets.formats.schema_casting import FieldMatcher, cast_to_schema
from metastore_assets.startup import pc
from metastore_assets.values.types import is_text

CHUNK_ROWS = 131_072
"""Maximum rows of one chunk."""
CHUNK_BYTES = 32 << 20
"""Target size of one chunk in bytes."""


def split_array(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the array in chunks of at most CHUNK_ROWS rows and about CHUNK_BYTES bytes."""
    average = max(1, array.nbytes // max(1, len(array)))
    rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // average))
    for start in range(0, len(array), rows):
        yield array.slice(start, rows)


def decode_dictionary(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of a dictionary array; yield any other array unchanged.

    A dictionary array of strings or bytes is yielded in chunks of about CHUNK_BYTES.

    Raises:
        ArrowInvalid: an index has no dictionary entry.
    """
    if not isinstance(array, pa.DictionaryArray):
        yield array
        return
    _check_indices(array)
    if not _has_binary_length(array.dictionary.type):
        yield array.dictionary_decode()
        return
    sizes = pc.fill_null(pc.binary_length(array.dictionary), 0).to_numpy().astype(np.int64)
    ends = np.cumsum(pc.fill_null(pc.take(pa.array(sizes), array.indices), 0).to_numpy())
    start = taken_bytes = 0
    while start < len(array):
        stop = max(start + 1, int(np.searchsorted(ends, taken_bytes + CHUNK_BYTES, side="right")))
        yield array.slice(start, stop - start).dictionary_decode()
        start, taken_bytes = stop, int(ends[stop - 1])


def cast_dictionary(array: pa.Array, target: pa.DataType, matcher: FieldMatcher) -> pa.DictionaryArray | None:
    """Cast the entries of a dictionary array of strings or bytes.

    Args:
        array: values as stored.
        target: type of the entries in the result.
        matcher: casts values as the format of the table requires.

    Returns:
        The cast array. None if `array` is no dictionary array of strings or bytes, or if the cast of an entry might
            fail.

    Raises:
        ArrowInvalid: an index has no dictionary entry.
    """
    if not isinstance(array, pa.DictionaryArray) or not _has_binary_length(array.dictionary.type):
        return None
    # Other casts might fail for entries that occur in no row.
    if not (target == pa.string() and is_text(array.dictionary.type)) and target != array.dictionary.type:
        return None
    _check_indices(array)
    return pa.DictionaryArray.from_arrays(array.indices, cast_to_schema(array.dictionary, target, matcher), safe=False)


def saves_memory(array: pa.DictionaryArray) -> bool:
    """Return True if a dictionary array has fewer than half as many entries as rows."""
    return 2 * len(array.dictionary) < len(array)


def can_concatenate(first: pa.Array, second: pa.Array) -> bool:
    """Return True if two arrays can be concatenated without merging their dictionaries."""
    if not isinstance(first, pa.DictionaryArray) or not isinstance(second, pa.DictionaryArray):
        return bool(first.type == second.type)
    return bool(first.type == second.type and first.dictionary.equals(second.dictionary))


def _check_indices(array: pa.DictionaryArray) -> None:
    """Raise ArrowInvalid if an index is out of range, which Arrow does not check."""
    extent = pc.min_max(array.indices)
    minimum, maximum = extent["min"].as_py(), extent["max"].as_py()
    if minimum is not None and not 0 <= minimum <= maximum < len(array.dictionary):
        raise pa.ArrowInvalid(f"an index of {minimum if minimum < 0 else maximum} into {len(array.dictionary)} entries")


def _has_binary_length(type_: pa.DataType) -> bool:
    """Return whether Arrow computes the lengths of a type's values in bytes.

    It does not for views.
    """
    return any(
        matches(type_)
        for matches in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )
