"""Timestamps of the legacy Parquet type INT96, which Arrow reads in one unit of 64 bits.

INT96 is a day and the nanosecond of that day. Arrow multiplies them out: it cuts what is finer than the unit, and wraps
around without a word where 64 bits do not suffice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.formats.readers.nested_arrays import leaves
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import UnsupportedError

_YEAR_1 = -62_135_596_800_000_000
_YEAR_10000 = 253_402_300_800_000_000
_MOST_MICROS = (1 << 63) // 1000
"""Microseconds from 1970, to either side, that are less than 64 bits of nanoseconds."""

_DAY_MILLIS = 86_400_000
_DAYS = 1 << 32
"""As many days as INT96 tells apart."""
_JULIAN_1970 = 2_440_588
"""1 January 1970, as INT96 counts days."""


def is_ordinary(array: pa.Array) -> bool:
    """Whether all timestamps in an array of microseconds, at any depth, are of the years 1 to 9999."""
    for leaf in _timestamps(array):
        extremes = pc.min_max(leaf.cast(pa.int64()))
        least, greatest = extremes["min"].as_py(), extremes["max"].as_py()
        if least is not None and not _YEAR_1 <= least <= greatest < _YEAR_10000:
            return False
    return True


def check_no_overflow(micros: pa.Array, millis: pa.Array) -> None:
    """Raise UnsupportedError when two readings of the same values differ: then the finer one has wrapped around."""
    for fine, coarse in zip(_timestamps(micros), _timestamps(millis), strict=True):
        floored = pc.floor_temporal(fine, unit="millisecond").cast(coarse.type)
        if not floored.equals(coarse):
            wrapped = pc.fill_null(pc.not_equal(floored, coarse), False)
            year = _year(coarse.filter(wrapped)[0])
            raise UnsupportedError(
                f"it holds an INT96 timestamp in the year {year:,}; the years up to 294,246 can be read. Such a value "
                "mostly is a fault of the writer, or stands for no value: write it as null, or as a day up to the year "
                "9999"
            )


def _year(millis: pa.TimestampScalar) -> int:
    days = millis.value // _DAY_MILLIS
    # Arrow takes the number of the day for one without sign.
    days -= _DAYS if days + _JULIAN_1970 >= _DAYS // 2 else 0
    return int(np.datetime64(days, "D").astype("datetime64[Y]").astype(np.int64)) + 1970


def with_nanoseconds(micros: pa.Array, nanos: pa.Array) -> Iterator[pa.Array]:
    """Yield the same INT96 values in microseconds, or in nanoseconds where they have a finer part.

    Args:
        micros: Values that are read in microseconds, none of which has wrapped around.
        nanos: The same values read in nanoseconds, of which any may have wrapped around.

    Raises:
        UnsupportedError: For values that neither unit holds.
    """
    pairs = list(zip(_timestamps(micros), _timestamps(nanos), strict=True))
    if not any(_finer(fine, finer).any() for fine, finer in pairs):
        yield micros
        return
    if all(_is_near(fine).all() for fine, _ in pairs):
        yield nanos
        return
    if pa.types.is_nested(micros.type) or _finer(micros, nanos)[~_is_near(micros)].any():
        raise UnsupportedError(
            "it holds INT96 timestamps with nanoseconds beside, or in, years before 1678 or after 2261, which no type "
            "holds; write them in microseconds"
        )
    near = _is_near(micros)
    starts = [0, *(np.flatnonzero(np.diff(near)) + 1).tolist(), len(near)]
    for start, stop in pairwise(starts):
        yield (nanos if near[start] else micros).slice(start, stop - start)


def _finer(micros: pa.Array, nanos: pa.Array) -> npt.NDArray[Any]:
    """The nanoseconds that the microseconds lack: also of values that have wrapped around. 0 for nulls."""
    fine, finer = (pc.fill_null(array.cast(pa.int64()), 0).to_numpy() for array in (micros, nanos))
    with np.errstate(over="ignore"):
        return finer - fine * 1000


def _is_near(micros: pa.Array) -> npt.NDArray[Any]:
    values = pc.fill_null(micros.cast(pa.int64()), 0).to_numpy()
    return (values > -_MOST_MICROS) & (values < _MOST_MICROS)


def _timestamps(array: pa.Array) -> Iterator[pa.Array]:
    return (leaf for leaf in leaves(array) if pa.types.is_timestamp(leaf.type))
