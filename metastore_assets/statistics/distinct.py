"""The distinct sketch and the fingerprint: what a set, and a multiset, of values leave behind in a few bytes.

The sketch is a HyperLogLog of 4096 registers (Flajolet, Fusy, Gandouet, Meunier, AofA 2007): each distinct value's
hash picks a register by its first 12 bits, which keeps the greatest position of the first one bit in the rest. So the
sketch is a function of the set of values, however the rows were split up and merged. The estimate is the improved raw
estimator of Ertl ("New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6): relative
standard error 1.04 / 64 = 1.6 %, no bias tables, near exact for small sets.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from metastore_assets.statistics.hashing import Words, finalise

_BITS = 12
_REGISTERS = 1 << _BITS
_TAIL = 64 - _BITS
_SPARSE, _DENSE = b"\x01", b"\x02"
_MOST_SPARSE = 256
_NULL = finalise(np.array([0x6E756C6C, 0x4E554C4C], np.uint64))  # "null" and "NULL": what a null adds

Registers = npt.NDArray[np.uint8]


def distinct_sketch(hashes: Words) -> bytes:
    """The sketch of a set of values, from their 64-bit hashes in any order; repeats do not matter."""
    registers = np.zeros(_REGISTERS, np.uint8)
    tails = hashes & np.uint64((1 << _TAIL) - 1)
    # frexp's exponent is the bit length: a 52-bit integer is exact as a double.
    positions = _TAIL + 1 - np.frexp(tails.astype(np.float64))[1]
    np.maximum.at(registers, (hashes >> np.uint64(_TAIL)).astype(np.intp), positions.astype(np.uint8))
    return _encode(registers)


def merge_distinct_sketches(sketches: Sequence[bytes]) -> bytes:
    """The sketch of the union of the sets. Associative, commutative and idempotent, byte for byte."""
    registers = np.zeros(_REGISTERS, np.uint8)
    for sketch in sketches:
        if sketch[:1] == _DENSE:
            np.maximum(registers, _dense(sketch), out=registers)
        else:
            places, positions = _sparse(sketch)
            registers[places] = np.maximum(registers[places], positions)
    return _encode(registers)


def estimate_distinct(sketch: bytes) -> int:
    """The estimated number of distinct values."""
    registers = np.zeros(_REGISTERS, np.uint8)
    if sketch[:1] == _DENSE:
        registers[:] = _dense(sketch)
    else:
        places, positions = _sparse(sketch)
        registers[places] = positions
    held = np.bincount(registers, minlength=_TAIL + 2).tolist()
    z = _REGISTERS * _tau(1 - held[_TAIL + 1] / _REGISTERS)
    for count in reversed(held[1 : _TAIL + 1]):
        z = 0.5 * (z + count)
    z += _REGISTERS * _sigma(held[0] / _REGISTERS)
    return round(_REGISTERS**2 / (2 * math.log(2) * z))


def multiset_hash(hashes: tuple[Words, Words], counts: npt.NDArray[np.int64]) -> bytes:
    """An order-independent 128-bit hash of a multiset: per half, the sum of hash * count modulo 2**64.

    Equal multisets have equal fingerprints and it adds up under merging. Unequal ones differ but by accident (about
    2**-64 for data that was not made to collide).
    """
    times = counts.view(np.uint64)
    sums = [int((half * times).sum(dtype=np.uint64)) for half in hashes]
    return struct.pack("<2Q", *sums)


def multiset_hash_of_nulls(count: int) -> bytes:
    """That of so many nulls: what they add to that of the values."""
    return struct.pack("<2Q", *(null * count % 2**64 for null in _NULL.tolist()))


def add_multiset_hashes(fingerprints: Sequence[bytes]) -> bytes:
    """The fingerprint of the multisets put together."""
    halves = [struct.unpack("<2Q", each) for each in fingerprints]
    return struct.pack("<2Q", *(sum(column) % 2**64 for column in zip(*halves, strict=True)))


def _encode(registers: Registers) -> bytes:
    # One encoding per content: sparse (places, then positions) exactly while that is the shorter one when compressed.
    places = np.flatnonzero(registers)
    if len(places) <= _MOST_SPARSE:
        return _SPARSE + places.astype("<u2").tobytes() + registers[places].tobytes()
    return _DENSE + registers.tobytes()


def _dense(sketch: bytes) -> Registers:
    return np.frombuffer(sketch, np.uint8, offset=1)


def _sparse(sketch: bytes) -> tuple[npt.NDArray[np.uint16], Registers]:
    held = (len(sketch) - 1) // 3
    return np.frombuffer(sketch, "<u2", held, 1), np.frombuffer(sketch, np.uint8, held, 1 + 2 * held)


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    y, z, previous = 1.0, x, -1.0
    while z != previous:
        x *= x
        previous = z
        z += x * y
        y += y
    return z


def _tau(x: float) -> float:
    if x in (0, 1):
        return 0.0
    y, z, previous = 1.0, 1 - x, -1.0
    while z != previous:
        x = math.sqrt(x)
        previous = z
        y *= 0.5
        z -= (1 - x) ** 2 * y
    return z / 3


EMPTY_SKETCH = distinct_sketch(np.zeros(0, np.uint64))
"""That of no values."""
