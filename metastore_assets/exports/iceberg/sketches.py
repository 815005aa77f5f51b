"""Theta sketches of values in Iceberg's single-value serialization.

Appendix D of the table specification defines this serialization. In Iceberg, an `int` has 4 bytes and a `long` has 8,
so equal numbers have different hashes. A statistic receives 64-bit numbers for both types. Therefore there are two
statistics, one for each length.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.statistics.murmur3 import Words, hash_strings, hash_words
from metastore_assets.statistics.theta import EMPTY_SKETCH, build_sketch, estimate_sketch, merge_sketches
from metastore_assets.statistics.user_defined.interface import MergeableStatistic
from metastore_assets.values.columns import plain_type
from metastore_assets.values.physical import positive_zeros, storage

_NANOSECONDS = 1000
"""Nanoseconds in a microsecond. The sketched times of day are in nanoseconds, and Iceberg's are in microseconds."""


class ThetaSketch(MergeableStatistic):
    """The theta sketch of a column of any type except `int` and `float`, which have `NarrowThetaSketch`.

    Values of `long` and `double` are serialized with 8 bytes.
    """

    name = "iceberg_theta_sketch"
    revision = "1"
    types = ("any",)
    state = pa.binary()
    result = pa.float64()
    guarantee = "estimate"
    is_reported = False
    narrow = False
    """Whether numbers have 4 bytes instead of 8."""

    def initial(self) -> bytes:
        """Return the sketch of no values."""
        return EMPTY_SKETCH

    def update(self, state: bytes, values: pa.Array, counts: pa.Int64Array) -> bytes:
        """Return the sketch after adding values.

        Their counts are ignored, and so are repeats.
        """
        return merge_sketches([state, build_sketch(hash_single_values(values, narrow=self.narrow))])

    def merge(self, one: bytes, other: bytes) -> bytes:
        """Return the sketch of the union of two sets of values."""
        return merge_sketches([one, other])

    def finalize(self, state: bytes) -> float:
        """Return the estimated number of distinct values."""
        return estimate_sketch(state)


class NarrowThetaSketch(ThetaSketch):
    """The theta sketch of a column of type `int` or `float`: numbers are serialized with 4 bytes."""

    name = "iceberg_narrow_theta_sketch"
    narrow = True


def is_narrow(type: pa.DataType) -> bool:
    """Return whether Iceberg serializes values of a type with 4 bytes: small integers and `float`."""
    plain = plain_type(type)
    return bool(t.is_float32(plain) or (t.is_integer(plain) and plain.bit_width <= 32))


def sketch_of(arrays: Iterable[pa.Array], *, narrow: bool) -> bytes:
    """Return one theta sketch of the values of all arrays.

    Args:
        arrays: Arrays as `hash_single_values` takes them.
        narrow: Whether numbers are serialized with 4 bytes.
    """
    total = EMPTY_SKETCH
    for values in arrays:
        total = merge_sketches([total, build_sketch(hash_single_values(values, narrow=narrow))])
    return total


def hash_single_values(values: pa.Array, *, narrow: bool) -> Words:
    """Return the hash of each value that is not empty: 63 bits of MurmurHash3 with the default seed.

    DataSketches computes the same hashes, and skips empty strings, too.

    Args:
        values: Values without nulls, numbers with 64 bits. All NaNs have the same hash. 0.0 has the same hash as -0.0.
        narrow: Whether numbers are serialized with 4 bytes.
    """
    type_ = values.type
    if t.is_decimal(type_):
        hashes = hash_strings(*_minimal_decimals(values))
    elif t.is_boolean(type_):
        hashes = hash_words(values.cast(pa.uint8()).to_numpy().astype(np.uint64), 1)
    elif t.is_floating(type_):
        floats = positive_zeros(values.to_numpy())
        floats[np.isnan(floats)] = np.nan  # one bit pattern, that of Java
        words = floats.astype(np.float32).view(np.uint32) if narrow else floats.view(np.uint64)
        hashes = hash_words(words.astype(np.uint64), 4 if narrow else 8)
    elif t.is_integer(type_) or t.is_temporal(type_):
        hashes = _hash_integers(values, narrow=narrow)
    else:
        strings = storage(values)
        offsets = np.frombuffer(strings.buffers()[1], np.int64, len(strings) + 1, 8 * strings.offset)
        data = np.frombuffer(strings.buffers()[2] or b"", np.uint8)
        hashes = hash_strings(data, offsets)[np.diff(offsets) > 0]
    return hashes >> np.uint64(1)


def _hash_integers(values: pa.Array, *, narrow: bool) -> Words:
    """Return the hashes of integers, dates, times or timestamps.

    Dates are always hashed as 4 bytes. Other values are hashed as 4 bytes if `narrow`, and as 8 bytes if not.
    """
    if t.is_date(values.type):
        return hash_words(values.view(pa.int32()).to_numpy().view(np.uint32).astype(np.uint64), 4)
    integers = values.view(pa.int64()).to_numpy() if t.is_temporal(values.type) else values.to_numpy()
    if t.is_time(values.type):
        integers = integers // _NANOSECONDS
    if narrow:
        return hash_words(integers.astype(np.int32).view(np.uint32).astype(np.uint64), 4)
    return hash_words(integers.view(np.uint64), 8)


def _minimal_decimals(values: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Serialize unscaled decimals: big-endian two's complement, each with the fewest bytes.

    Returns:
        The bytes of all values without gaps, and the offset of each value, followed by the total length.
    """
    buffer, start = values.buffers()[1], 16 * values.offset
    rows = np.frombuffer(buffer, np.uint8, 16 * len(values), start).reshape(-1, 16)[:, ::-1]
    negative = rows[:, :1] >= 0x80
    # A byte can be left out if it repeats the sign, and the next byte has that sign too.
    is_sign = rows == np.where(negative, np.uint8(0xFF), np.uint8(0))
    has_sign = (rows[:, 1:] >= 0x80) == negative
    skipped_bytes = np.logical_and.accumulate(is_sign[:, :-1] & has_sign, axis=1).sum(axis=1)
    is_needed = np.arange(16) >= skipped_bytes[:, None]
    offsets = np.concatenate([[0], np.cumsum(16 - skipped_bytes)]).astype(np.int64)
    return rows[is_needed], offsets
