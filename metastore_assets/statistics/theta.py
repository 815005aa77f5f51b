"""Theta sketches of sets of hashes, in the compact form of Apache DataSketches (serial version 3).

A sketch of a set with at most 4,096 hashes has all of them. A sketch of a larger set has the 4,096 least hashes, and
`theta`, the next greater one. If theta is 1 % of the range of hashes, the set has about 4,096 / 1 % elements. The bytes
of a sketch depend only on the set, and not on how it was split and merged.

DataSketches' Java library writes the same bytes for ordered compact sketches, so every DataSketches library reads them.
Numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from metastore_assets.statistics.murmur3 import DATASKETCHES_SEED, hash_words

Hashes = npt.NDArray[np.uint64]

NOMINAL_ENTRIES = 4096
"""Maximum number of hashes in a sketch, as in DataSketches' Java library: 32 KB, with a standard error of 1.6 %."""
_MAX_THETA = (1 << 63) - 1
_SERIAL_VERSION, _COMPACT_FAMILY = 3, 3
_READ_ONLY, _EMPTY, _COMPACT, _ORDERED, _SINGLE = 2, 4, 8, 16, 32
_MIN_FILTERED = 16
"""From this multiple of `NOMINAL_ENTRIES`, hashes are filtered before they are sorted."""
_SEED_HASH = int(hash_words(np.array([DATASKETCHES_SEED], np.uint64), 8, 0)[0]) & 0xFFFF
_HEADER = struct.Struct("<BBBBBBH")
_COUNT = struct.Struct("<if")
_THETA = struct.Struct("<Q")


def build_sketch(hashes: Hashes) -> bytes:
    """Return the sketch of a set of hashes.

    Args:
        hashes: First words of 128-bit MurmurHash3 hashes, shifted to the right by one bit. They may be in any order,
            and may repeat. 0 is ignored, as in DataSketches.
    """
    return _encode(hashes[hashes != 0], _MAX_THETA)


def merge_sketches(sketches: Sequence[bytes]) -> bytes:
    """Return the sketch of the union of sets.

    Order, grouping and repeats do not change its bytes.
    """
    decoded_sketches = [decode_sketch(sketch) for sketch in sketches]
    theta = min((theta for _, theta in decoded_sketches), default=_MAX_THETA)
    hashes = np.concatenate([hashes for hashes, _ in decoded_sketches]) if decoded_sketches else np.zeros(0, np.uint64)
    return _encode(hashes[hashes < np.uint64(theta)], theta)


def estimate_sketch(sketch: bytes) -> float:
    """Return the estimated size of the set; exact up to 4,096 elements."""
    hashes, theta = decode_sketch(sketch)
    return len(hashes) / (theta / _MAX_THETA)


def decode_sketch(sketch: bytes) -> tuple[Hashes, int]:
    """Return (hashes, theta) of a sketch that this module encoded.

    The hashes are ascending.
    """
    preamble_words, *_, flags, _ = _HEADER.unpack_from(sketch)
    if flags & _EMPTY:
        return np.zeros(0, np.uint64), _MAX_THETA
    if flags & _SINGLE:
        return np.frombuffer(sketch, "<u8", 1, 8), _MAX_THETA
    count, _ = _COUNT.unpack_from(sketch, 8)
    theta = _THETA.unpack_from(sketch, 16)[0] if preamble_words == 3 else _MAX_THETA
    return np.frombuffer(sketch, "<u8", count, 8 * preamble_words), theta


def _encode(hashes: Hashes, theta: int) -> bytes:
    """Return the encoded sketch of the 4,096 least distinct hashes, or of all if there are fewer.

    If there are more distinct hashes, the least one that is left out is the theta of the sketch. Otherwise, the theta
    is the argument.

    Args:
        hashes: The hashes, in any order. Repeats are allowed. All must be less than `theta`, because a sketch has only
            hashes below its theta. This is not checked.
        theta: The theta of the sketch if no hash is left out.
    """
    hashes = _distinct_least(hashes)
    if len(hashes) > NOMINAL_ENTRIES:
        theta = int(hashes[NOMINAL_ENTRIES])
        hashes = hashes[:NOMINAL_ENTRIES]
    flags, is_exact = _READ_ONLY | _COMPACT | _ORDERED, theta == _MAX_THETA
    if is_exact and len(hashes) <= 1:
        flags |= _SINGLE if len(hashes) else _EMPTY
        return _header(1, flags) + hashes.astype("<u8").tobytes()
    counts = _COUNT.pack(len(hashes), 1.0)
    header = _header(2, flags) + counts if is_exact else _header(3, flags) + counts + _THETA.pack(theta)
    return header + hashes.astype("<u8").tobytes()


def _distinct_least(hashes: Hashes) -> Hashes:
    """Return the least hashes, ascending and without duplicates.

    If there are more than 4,096 distinct hashes, the result has at least the 4,097 least of them. Otherwise, it has all
    of them.
    """
    # Sorting all hashes takes 50 times as long as computing them, so only those below a limit are sorted at first.
    if len(hashes) > _MIN_FILTERED * NOMINAL_ENTRIES:
        limit = np.uint64(4 * NOMINAL_ENTRIES * _MAX_THETA // len(hashes))
        least = np.unique(hashes[hashes < limit])
        if len(least) > NOMINAL_ENTRIES:
            return least
    return np.unique(hashes)


def _header(preamble_words: int, flags: int) -> bytes:
    return _HEADER.pack(preamble_words, _SERIAL_VERSION, _COMPACT_FAMILY, 0, 0, flags, _SEED_HASH)


EMPTY_SKETCH = build_sketch(np.zeros(0, np.uint64))
"""The sketch of the empty set."""
