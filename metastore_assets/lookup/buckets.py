"""Buckets of Iceberg's partition transform `bucket[N]`: the bucket numbers of given values.

A type class is a group of column types whose values are stored as one Arrow type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.values.physical import order_key, physical_value
from metastore_assets.values.types import TypeClass

_MASK = 0xFFFFFFFF
_NANOSECONDS = {"us": 1, "ns": 1000}
"""Ticks per microsecond, by unit of a timestamp. Iceberg hashes times in microseconds."""


def compute_buckets(values: Iterable[pa.Scalar], cls: TypeClass, count: int) -> frozenset[str] | None:
    """Return the bucket numbers of values as texts, or None if Iceberg does not hash their type.

    The texts are those of partition keys. The hash is that of Iceberg's specification, appendix B: 32-bit Murmur3 with
    seed 0 of the value's bytes.

    Args:
        values: Values of one type class.
        cls: The type class of the values.
        count: The number of buckets.
    """
    buckets = set()
    for value in values:
        data = _hashed_bytes(value, cls)
        if data is None:
            return None
        buckets.add(str((murmur3(data) & 0x7FFFFFFF) % count))
    return frozenset(buckets)


def _hashed_bytes(value: pa.Scalar, cls: TypeClass) -> bytes | None:
    """Return the bytes of a value that Iceberg hashes; None for a type class without hash."""
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
        unscaled_value = int(physical_value(value))
        length = (unscaled_value if unscaled_value >= 0 else ~unscaled_value).bit_length() // 8 + 1
        return unscaled_value.to_bytes(length, "big", signed=True)
    return None


def _long(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def murmur3(data: bytes) -> int:
    """Return the unsigned 32-bit Murmur3 hash of bytes, with seed 0."""
    state = 0
    aligned_length = len(data) // 4 * 4
    for at in range(0, aligned_length, 4):
        state ^= _mix(int.from_bytes(data[at : at + 4], "little"))
        state = (_rotate(state, 13) * 5 + 0xE6546B64) & _MASK
    state ^= _mix(int.from_bytes(data[aligned_length:], "little"))
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = ((state ^ (state >> shift)) * factor) & _MASK
    return state


def _mix(block: int) -> int:
    return _rotate(block * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotate(number: int, by: int) -> int:
    return (number << by | number >> (32 - by)) & _MASK


def match_buckets(keys: Sequence[str], name: str, buckets: frozenset[str]) -> list[bool]:
    """Return a mask of the partition keys whose partitions may contain rows of the given buckets.

    Args:
        keys: Partition keys.
        name: The partition column with the bucket number. A key without this column matches: its bucket is unknown.
        buckets: Bucket numbers as texts, as in partition keys.
    """
    matches = []
    prefix = f"{name}="
    for key in keys:
        bucket = next((item[len(prefix) :] for item in key.split("/") if item.startswith(prefix)), None)
        matches.append(bucket is None or bucket in buckets)
    return matches
