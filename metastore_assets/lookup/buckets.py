"""Buckets of hidden partitions, as Iceberg hashes values into them: in which partitions a value can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.values.physical import order_key, physical_value
from metastore_assets.values.types import TypeClass

_MASK = 0xFFFFFFFF
_NANOSECONDS = {"us": 1, "ns": 1000}
"""Ticks of a microsecond, in which times are hashed."""


def buckets_of(values: Iterable[pa.Scalar], cls: TypeClass, count: int) -> frozenset[str] | None:
    """The buckets, as partition keys have them, that hold values of a class; None for what is not known to be hashed.

    Iceberg's specification, appendix B: Murmur3 of 32 bits, seed 0, of the value's bytes.
    """
    found = set()
    for value in values:
        data = _hashed_bytes(value, cls)
        if data is None:
            return None
        found.add(str((murmur3(data) & 0x7FFFFFFF) % count))
    return frozenset(found)


def _hashed_bytes(value: pa.Scalar, cls: TypeClass) -> bytes | None:
    if cls.kind == "bytes":
        data: bytes = order_key(value)
        return data
    if cls.name in ("int64", "date"):
        return _long(int(physical_value(value)))
    if t.is_timestamp(cls.arrow) and cls.arrow.unit in _NANOSECONDS:
        return _long(int(physical_value(value)) // _NANOSECONDS[cls.arrow.unit])
    if cls.name == "time":
        return _long(int(physical_value(value)) // 1000)
    if t.is_decimal(cls.arrow):
        unscaled = int(physical_value(value))
        length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        return unscaled.to_bytes(length, "big", signed=True)
    return None


def _long(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def murmur3(data: bytes) -> int:
    """The hash of 32 bits with seed 0, unsigned."""
    state = 0
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        state ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        state = (_rotated(state, 13) * 5 + 0xE6546B64) & _MASK
    state ^= _mixed(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = ((state ^ (state >> shift)) * factor) & _MASK
    return state


def _mixed(block: int) -> int:
    return _rotated(block * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotated(number: int, by: int) -> int:
    return (number << by | number >> (32 - by)) & _MASK


def partitions_with(keys: Sequence[str], name: str, buckets: frozenset[str]) -> list[bool]:
    """For each partition key, whether it has one of the buckets, or does not say which of that name it has."""
    found = []
    prefix = f"{name}="
    for key in keys:
        own = next((item[len(prefix) :] for item in key.split("/") if item.startswith(prefix)), None)
        found.append(own is None or own in buckets)
    return found
