"""Timestamps of the legacy Parquet type INT96: notice those that no 64-bit number of microseconds holds.

INT96 is a day and a time of day; Arrow multiplies them out and wraps around without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from metastore_assets.lazy import pc

_YEAR_1 = -62_135_596_800_000_000
_YEAR_10000 = 253_402_300_800_000_000


def is_ordinary(array: pa.Array) -> bool:
    """Whether all timestamps in an array of microseconds, at any depth, are of the years 1 to 9999."""
    for leaf in _timestamps(array):
        extremes = pc.min_max(leaf.cast(pa.int64()))
        least, greatest = extremes["min"].as_py(), extremes["max"].as_py()
        if least is not None and not _YEAR_1 <= least <= greatest < _YEAR_10000:
            return False
    return True


def check_no_overflow(micros: pa.Array, millis: pa.Array) -> None:
    """Raise ArrowInvalid when two readings of the same INT96 values differ: then the finer one has wrapped around."""
    for fine, coarse in zip(_timestamps(micros), _timestamps(millis), strict=True):
        floored = pc.floor_temporal(fine, unit="millisecond").cast(coarse.type)
        if not floored.equals(coarse):
            raise pa.ArrowInvalid("INT96 holds a timestamp that is too far from 1970 for 64 bits of microseconds")


def _timestamps(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_timestamp(array.type):
        yield array
    elif pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            yield from _timestamps(array.field(index))
    elif pa.types.is_map(array.type):
        yield from _timestamps(array.keys)
        yield from _timestamps(array.items)
    elif pa.types.is_nested(array.type):
        yield from _timestamps(array.flatten())
