"""Selections of rows by key, from Arrow tables that are sorted by key.

The key is the first column.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from metastore_assets.startup import pc
from metastore_assets.values.physical import one_chunk

_MAX_CHARACTER = chr(sys.maxunicode)
_FEW_KEYS = 8
"""Number of keys up to which bisection is used. More keys need `pyarrow.compute`, whose import takes 30 ms of CPU."""


def position_of(keys: pa.Array | pa.ChunkedArray, key: Any) -> int:
    """Return the position of the first of the sorted `keys` that is at least `key`, by binary search."""
    return bisect_left(range(len(keys)), key, key=lambda at: keys[at].as_py())


def position_after(keys: pa.Array | pa.ChunkedArray, key: Any) -> int:
    """Return the position of the first of the sorted `keys` that is greater than `key`, by binary search."""
    return bisect_right(range(len(keys)), key, key=lambda at: keys[at].as_py())


class KeySelection(Protocol):
    """The keys to look up: single keys, a range of keys, or all keys with a prefix."""

    def overlaps(self, low: Any, high: Any) -> bool:
        """Return whether a selected key may be in a range of keys, both ends inclusive."""

    def find_ranges(self, firsts: Sequence[Any]) -> range:
        """Return the positions in `firsts` of the ranges of keys that may have a selected key.

        The result has no gaps. If only the ranges 1 and 4 may have a selected key, it is `range(1, 5)`.

        Args:
            firsts: The first key of each range, ascending. Each range ends where the next one starts.
        """

    def filter(self, rows: pa.Table) -> pa.Table:
        """Return the selected rows of a table that is sorted by its first column, the key."""


class KeySet:
    """A selection of single keys."""

    def __init__(self, keys: Collection[Any]) -> None:
        self._keys = sorted(keys)

    def overlaps(self, low: Any, high: Any) -> bool:
        return bisect_left(self._keys, low) < bisect_right(self._keys, high)

    def find_ranges(self, firsts: Sequence[Any]) -> range:
        if not self._keys:
            return range(0)
        return range(max(0, bisect_right(firsts, self._keys[0]) - 1), bisect_right(firsts, self._keys[-1]))

    def filter(self, rows: pa.Table) -> pa.Table:
        """Return the rows with a selected key."""
        if not len(rows):
            return rows
        keys = one_chunk(rows.column(0))
        # A lookup of many keys filters many small tables. Each one has few of the keys between its first and last key.
        selected_keys = self._keys[
            bisect_left(self._keys, keys[0].as_py()) : bisect_right(self._keys, keys[-1].as_py())
        ]
        if len(selected_keys) > _FEW_KEYS:
            return rows.filter(pc.is_in(keys, value_set=pa.array(selected_keys, keys.type)))
        parts = []
        for key in selected_keys:
            at = position_of(keys, key)
            if keys[at].as_py() == key:
                parts.append(rows.slice(at, 1))
        return pa.concat_tables(parts) if parts else rows.slice(0, 0)


class SegmentKeyRange:
    """All keys from a start (inclusive) to an end (exclusive)."""

    def __init__(self, start: Any, end: Any) -> None:
        """Create a range.

        Args:
            start: The first key of the range, inclusive; None for no lower limit.
            end: The end of the range, exclusive; None for no upper limit.
        """
        self.start = start
        self.end = end

    def overlaps(self, low: Any, high: Any) -> bool:
        return (self.start is None or high >= self.start) and (self.end is None or low < self.end)

    def find_ranges(self, firsts: Sequence[Any]) -> range:
        start = 0 if self.start is None else max(0, bisect_right(firsts, self.start) - 1)
        return range(start, len(firsts) if self.end is None else bisect_left(firsts, self.end))

    def filter(self, rows: pa.Table) -> pa.Table:
        """Return the rows with a selected key, by binary search."""
        start, end = self.positions(rows.column(0))
        return rows.slice(start, end - start)

    def positions(self, keys: pa.Array | pa.ChunkedArray) -> tuple[int, int]:
        """Return the positions of the selected keys among sorted keys: (first, after the last)."""
        start = 0 if self.start is None else position_of(keys, self.start)
        end = len(keys) if self.end is None else position_of(keys, self.end)
        return start, max(start, end)


class KeyPrefixes:
    """A selection of all keys that begin with one of several prefixes."""

    def __init__(self, prefixes: Collection[Any]) -> None:
        self._prefixes: list[Any] = []
        """The prefixes, sorted. One that begins with another is redundant, and omitted."""
        for prefix in sorted(prefixes):
            if not self._prefixes or not prefix.startswith(self._prefixes[-1]):
                self._prefixes.append(prefix)

    def overlaps(self, low: Any, high: Any) -> bool:
        at = bisect_right(self._prefixes, low)
        if at < len(self._prefixes) and self._prefixes[at] <= high:
            return True
        return at > 0 and bool(low.startswith(self._prefixes[at - 1]))

    def find_ranges(self, firsts: Sequence[Any]) -> range:
        if not self._prefixes:
            return range(0)
        stop = bisect_right(firsts, self._prefixes[-1])
        while stop < len(firsts) and firsts[stop].startswith(self._prefixes[-1]):
            stop += 1
        return range(max(0, bisect_right(firsts, self._prefixes[0]) - 1), stop)

    def filter(self, rows: pa.Table) -> pa.Table:
        """Return the rows whose key begins with one of the prefixes."""
        if not len(rows):
            return rows
        keys = one_chunk(rows.column(0))
        low = keys[0].as_py()
        first, last = bisect_right(self._prefixes, low), bisect_right(self._prefixes, keys[-1].as_py())
        if first and low.startswith(self._prefixes[first - 1]):
            first -= 1
        positions = range(len(keys))
        parts = []
        for prefix in self._prefixes[first:last]:
            start = position_of(keys, prefix)
            stop = start + bisect_left(positions[start:], True, key=partial(_is_after_prefix, keys, prefix))
            parts.append(rows.slice(start, stop - start))
        return pa.concat_tables(parts) if parts else rows.slice(0, 0)


def common_prefix_length(one: Any, other: Any) -> int:
    """Return the number of first characters or bytes that two texts or two byte strings have in common.

    A binary search compares slices: one step per character would take 25 ms for keys of 64,000 characters.
    """
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def separate_keys(last: str, first: str) -> tuple[str, str]:
    """Return short bounds that separate two neighboring ranges of keys.

    Args:
        last: The last key of the first range, or a greater text.
        first: The first key of the second range, or a smaller text.

    Returns:
        A text that is at least `last`, and one that is at most `first`. If `last` is less than `first`, the first text
        is also less than the second.
    """
    common = common_prefix_length(last, first)
    if common < min(len(last), len(first)) and last[common + 1 : common + 2] < _MAX_CHARACTER:
        last = min(last, last[: common + 1] + _MAX_CHARACTER, key=len)
    return last, first[: common + 1]


def _is_after_prefix(keys: pa.Array, prefix: Any, at: int) -> bool:
    """Return whether the key at the position `at` comes after all keys that begin with `prefix`.

    The function only tests whether the key begins with the prefix. So it must not be called for a key that is less than
    the prefix: the result would be True, although such a key precedes all keys with the prefix. This is not checked.
    """
    return not keys[at].as_py().startswith(prefix)
