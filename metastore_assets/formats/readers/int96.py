"""Timestamps of the legacy Parquet type INT96: detection of overflows, and choice of the unit.

INT96 stores a day and the nanosecond of that day. Arrow converts both to one 64-bit integer in the unit that the reader
requests. It raises no error if this cuts off digits that are smaller than the unit, or if the integer overflows, so
that the time is wrong.
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
_MAX_MICROS = (1 << 63) // 1000
"""Greatest number of microseconds before or after 1970 that fits into 64 bits as nanoseconds."""

_DAY_MILLIS = 86_400_000
_DAYS = 1 << 32
"""Number of distinct days that INT96 can store."""
_JULIAN_1970 = 2_440_588
"""1 January 1970 as an INT96 day number."""


def has_common_years(array: pa.Array) -> bool:
    """Return True if all timestamps (in microseconds, at any depth) are in the years 1 to 9999."""
    for leaf in _timestamps(array):
        extremes = pc.min_max(leaf.cast(pa.int64()))
        minimum, maximum = extremes["min"].as_py(), extremes["max"].as_py()
        if minimum is not None and not _YEAR_1 <= minimum <= maximum < _YEAR_10000:
            return False
    return True


def check_no_overflow(micros: pa.Array, millis: pa.Array) -> None:
    """Raise UnsupportedError if values overflowed in microseconds.

    Args:
        micros: the values, read in microseconds.
        millis: the same values, read in milliseconds, which never overflow.
    """
    for fine, coarse in zip(_timestamps(micros), _timestamps(millis), strict=True):
        floored_times = pc.floor_temporal(fine, unit="millisecond").cast(coarse.type)
        if not floored_times.equals(coarse):
            is_wrapped = pc.fill_null(pc.not_equal(floored_times, coarse), False)
            year = _year(coarse.filter(is_wrapped)[0])
            raise UnsupportedError(
                f"it holds an INT96 timestamp in the year {year:,}; the years up to 294,246 can be read. Such a value "
                "mostly is a fault of the writer, or stands for no value: write it as null, or as a day up to the year "
                "9999"
            )


def _year(millis: pa.TimestampScalar) -> int:
    days = millis.value // _DAY_MILLIS
    # Arrow takes the stored day as unsigned.
    days -= _DAYS if days + _JULIAN_1970 >= _DAYS // 2 else 0
    return int(np.datetime64(days, "D").astype("datetime64[Y]").astype(np.int64)) + 1970


def merge_units(micros: pa.Array, nanos: pa.Array) -> Iterator[pa.Array]:
    """Yield INT96 values in microseconds, or in nanoseconds if microseconds would lose digits.

    If some values lose digits and others do not fit nanoseconds, a flat array is cut into slices with different units.
    A nested array has one unit.

    Args:
        micros: the values in microseconds, without overflow.
        nanos: the same values in nanoseconds, which may have overflowed.

    Raises:
        UnsupportedError: a value fits neither unit, or the values of a nested array fit no common unit.
    """
    pairs = list(zip(_timestamps(micros), _timestamps(nanos), strict=True))
    if not any(_lost_nanoseconds(fine, finer).any() for fine, finer in pairs):
        yield micros
        return
    if all(_fits_nanoseconds(fine).all() for fine, _ in pairs):
        yield nanos
        return
    if pa.types.is_nested(micros.type) or _lost_nanoseconds(micros, nanos)[~_fits_nanoseconds(micros)].any():
        raise UnsupportedError(
            "it holds INT96 timestamps with nanoseconds beside, or in, years before 1678 or after 2261, which no type "
            "holds; write them in microseconds"
        )
    near = _fits_nanoseconds(micros)
    starts = [0, *(np.flatnonzero(np.diff(near)) + 1).tolist(), len(near)]
    for start, stop in pairwise(starts):
        yield (nanos if near[start] else micros).slice(start, stop - start)


def _lost_nanoseconds(micros: pa.Array, nanos: pa.Array) -> npt.NDArray[Any]:
    """Return the number of nanoseconds (0 to 999) that each value loses in microseconds; 0 for nulls."""
    fine, finer = (pc.fill_null(array.cast(pa.int64()), 0).to_numpy() for array in (micros, nanos))
    with np.errstate(over="ignore"):
        return finer - fine * 1000


def _fits_nanoseconds(micros: pa.Array) -> npt.NDArray[Any]:
    """Return a mask of the timestamps that fit into 64-bit nanoseconds; True for nulls."""
    values = pc.fill_null(micros.cast(pa.int64()), 0).to_numpy()
    return (values > -_MAX_MICROS) & (values < _MAX_MICROS)


def _timestamps(array: pa.Array) -> Iterator[pa.Array]:
    return (leaf for leaf in leaves(array) if pa.types.is_timestamp(leaf.type))
