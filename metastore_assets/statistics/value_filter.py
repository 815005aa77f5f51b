"""Filters that tell which values are not among some: for columns of which bounds and lists cannot.

A filter is the set of the beginnings, of `bits` bits each, of the values' first 64-bit hashes. With n values they are
7 + ⌈log2 n⌉ bits long, so that a value that is not there is taken for one in n / 2^bits, at most 0.8 % of cases. A
value that is there is always found. It holds no values, as a Bloom filter does, but makes fewer mistakes in as many
bits (a split-block filter of 10 bits a value 1.3 %), and since it is ordered, a part of it can be read by itself.

It is kept as Elias and Fano do: the last byte of each beginning as it is, and of what is before it ("bucket") how many
there are of each, in unary: a 1 for each, and a 0 when the next bucket begins. That is 9.5 to 10 bits a value, and at
least 128 bytes.

A *cell* is what a filter has of the hashes in one of 2^slicing equal slices of all hashes. Cells of many filters are
an Arrow array each of `upper` (unary, filled up to whole bytes with zeros) and `lower` (bytes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.hashing import hash_values

Words = npt.NDArray[np.uint64]
FilterIndices = npt.NDArray[np.int64]

LEAST_BITS = 18
"""No beginning is shorter: whatever the filter, slices begin where buckets do."""
_LOWER = 8
_MISTAKES = 7
MAX_SLICE_BITS = LEAST_BITS - _LOWER
_WORD = 64


@dataclass(frozen=True)
class FilterSlice:
    """Of some filters, in their order, what they have of one slice. A filter that there is not has null."""

    bits: npt.NDArray[np.int64]
    """Length of its beginnings; 0 for one that there is not."""
    upper: pa.BinaryArray
    lower: pa.BinaryArray
    slicing: int = 0
    slice: int = 0

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Whether there is a filter."""
        return self.bits > 0

    @property
    def _buckets(self) -> npt.NDArray[np.int64]:
        """The number of the first bucket of each cell, among all of its filter."""
        return np.where(self.known, self.slice << np.maximum(self.bits - _LOWER - self.slicing, 0), 0)

    def may_hold(self, hashes: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Whether each filter may hold a value of one of the hashes, which are in the slice; True where there is no
        filter."""
        found = ~self.known
        at = np.flatnonzero(self.known)
        if not len(at):
            return found
        bits = self.bits[at].astype(np.uint64)
        data, starts = _data(self.upper)
        starts = 8 * starts[at]
        zeros = np.flatnonzero(np.unpackbits(data) == 0)
        zeros_before = np.searchsorted(zeros, starts)
        lower, offsets = _data(self.lower)
        held = np.zeros(len(at), np.bool_)
        for hash_ in hashes:
            prints = np.uint64(hash_) >> (np.uint64(_WORD) - bits)
            buckets = (prints >> np.uint64(_LOWER)).astype(np.int64) - self._buckets[at]
            first = zeros_before + buckets
            begins = np.where(buckets > 0, zeros[first - 1] + 1, starts)
            counts = zeros[first] - begins
            begins = offsets[at] + begins - starts - buckets
            wanted = (prints & np.uint64(0xFF)).astype(np.uint8)
            for number in range(int(counts.max(initial=0))):
                some = np.flatnonzero(counts > number)
                held[some] |= lower[begins[some] + number] == wanted[some]
        found[at] = held
        return found

    def prefixes(self) -> tuple[FilterIndices, Words]:
        """The place of the filter of each beginning, ascending, and the beginning as the upper end of a hash."""
        data, starts = _data(self.upper)
        ones = np.flatnonzero(np.unpackbits(data))
        places = np.searchsorted(8 * starts[1:], ones, "right")
        firsts = _data(self.lower)[1][:-1]
        buckets = ones - 8 * starts[places] - (np.arange(len(ones)) - firsts[places]) + self._buckets[places]
        prints = (buckets.astype(np.uint64) << np.uint64(_LOWER)) | _data(self.lower)[0][: len(ones)]
        return places, prints << (np.uint64(_WORD) - self.bits[places].astype(np.uint64))


def build_filter_slice(
    places: FilterIndices, prefixes: Words, bits: npt.NDArray[np.int64], slicing: int = 0, slice_: int = 0
) -> FilterSlice:
    """The cells of filters, with beginnings of those lengths, from the places of the filters and hashes in the slice,
    ascending by both."""
    shift = np.uint64(_WORD) - bits[places].astype(np.uint64)
    prints = prefixes >> shift
    new = np.ones(len(prints), np.bool_)
    new[1:] = (prints[1:] != prints[:-1]) | (places[1:] != places[:-1])
    places, prints = places[new], prints[new]
    known = bits > 0
    counts = np.bincount(places, minlength=len(bits))
    sizes = np.where(known, (1 << np.maximum(bits - _LOWER - slicing, 0)) + counts, 0)
    starts = np.concatenate([[0], np.cumsum((sizes + 7) // 8)])
    firsts = np.concatenate([[0], np.cumsum(counts)])
    cells = FilterSlice(bits, _binary(b"", starts * 0, known), _binary(b"", starts * 0, known), slicing, slice_)
    buckets = (prints >> np.uint64(_LOWER)).astype(np.int64) - cells._buckets[places]
    unary = np.zeros(8 * int(starts[-1]), np.uint8)
    unary[8 * starts[places] + buckets + np.arange(len(prints)) - firsts[places]] = 1
    upper = _binary(np.packbits(unary).tobytes(), starts, known)
    return FilterSlice(bits, upper, _binary(prints.astype(np.uint8).tobytes(), firsts, known), slicing, slice_)


def bits_for(count: int) -> int:
    """How long the beginnings are of so many hashes."""
    return max(LEAST_BITS, _MISTAKES + max(0, count - 1).bit_length())


def build_filter(hashes: Words) -> bytes:
    """The filter of the values with these hashes, in any order, as it is kept with a profile."""
    prefixes = np.unique(hashes)
    bits = bits_for(len(prefixes))
    cells = build_filter_slice(np.zeros(len(prefixes), np.int64), prefixes, np.array([bits]))
    upper, lower = cells.upper[0].as_py(), cells.lower[0].as_py()
    return bytes([bits]) + len(upper).to_bytes(8, "little") + upper + lower


def build_filter_of_frequencies(frequencies: Frequencies) -> bytes | None:
    """The filter of the values of a list; None of none."""
    return build_filter(hash_values(frequencies.values, frequencies.type_class)[0]) if len(frequencies) else None


def parse_filters(filters: list[bytes | None]) -> FilterSlice:
    """Filters as they are kept with profiles, whole. Raises ValueError for what is none."""
    bits = [0 if own is None else own[0] for own in filters]
    ends = [0 if own is None else 9 + int.from_bytes(own[1:9], "little") for own in filters]
    for own, length, end in zip(filters, bits, ends, strict=True):
        if own is not None and (not LEAST_BITS <= length <= _WORD or not 9 < end <= len(own)):
            raise ValueError("a filter of values makes no sense")
    upper = [None if own is None else own[9:end] for own, end in zip(filters, ends, strict=True)]
    lower = [None if own is None else own[end:] for own, end in zip(filters, ends, strict=True)]
    return FilterSlice(np.array(bits, np.int64), pa.array(upper, pa.binary()), pa.array(lower, pa.binary()))


def _data(cells: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], FilterIndices]:
    """The bytes of all cells, one after the other, and where each begins, and the last one ends."""
    offsets = np.frombuffer(cells.buffers()[1], np.int32, len(cells) + 1, 4 * cells.offset).astype(np.int64)
    whole = np.frombuffer(cells.buffers()[2] or b"", np.uint8)
    return whole[offsets[0] : offsets[-1]], offsets - offsets[0]


def _binary(data: bytes, offsets: FilterIndices, known: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    whole = pa.Array.from_buffers(pa.binary(), len(known), buffers)
    return whole if known.all() else _masked(whole, known)


def _masked(whole: pa.BinaryArray, known: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    mask = pa.py_buffer(np.packbits(known, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.binary(), len(whole), [mask, *whole.buffers()[1:]])
