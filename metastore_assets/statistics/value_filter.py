"""Value filters: compact sets of hashes that exclude most values that a column does not contain.

A filter has a prefix of the first 64-bit hash of each value. For n values, a prefix has 7 + ⌈log2 n⌉ bits, at least 18.
All values of the column match. Any other value matches with a probability of n / 2^bits, which is at most 0.8 %. A
Bloom filter of the same size has more false positives (a split-block one of 10 bits per value has 1.3 %). Prefixes are
in ascending order, so that the prefixes of a range of hashes can be read alone.

A filter is stored in the Elias–Fano encoding. The last byte of each prefix is stored unchanged. The other bits of the
prefix are the number of a bucket. For each bucket, the number of its prefixes is stored in unary: a 1 for each prefix,
then a 0. That takes 9.5 to 10 bits per value, and at least 128 bytes.

A *filter slice* is the part of a filter for one of 2^slice_bits equal ranges of hashes. The slices of many filters are
two Arrow arrays: `upper` (the unary numbers, padded with zeros to whole bytes) and `lower` (the last bytes).
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

MIN_BITS = 18
"""Minimum length of a prefix in bits. A filter then has at least 2^10 buckets. There are at most 2^10 slices, so each
slice has complete buckets."""
_LOWER_BITS = 8
_PRECISION_BITS = 7
MAX_SLICE_BITS = MIN_BITS - _LOWER_BITS
_HASH_BITS = 64


@dataclass(frozen=True)
class FilterSlice:
    """One slice of each of several filters, all for the same range of hashes.

    Each array has one item per filter.
    """

    bits: npt.NDArray[np.int64]
    """Length of each filter's prefixes; 0 for a missing filter."""
    upper: pa.BinaryArray
    lower: pa.BinaryArray
    """`upper` and `lower` are the two arrays that the module describes, with the stored bytes of each filter's slice;
    null for a missing filter."""
    slice_bits: int = 0
    """There are 2^slice_bits slices."""
    slice: int = 0
    """The number of this slice, from 0."""

    @property
    def exists(self) -> npt.NDArray[np.bool_]:
        """One flag per filter: false for a missing filter."""
        return self.bits > 0

    @property
    def _buckets(self) -> npt.NDArray[np.int64]:
        """For each filter, the index of the slice's first bucket among all buckets of the whole filter.

        It is 0 for a missing filter.
        """
        return np.where(self.exists, self.slice << np.maximum(self.bits - _LOWER_BITS - self.slice_bits, 0), 0)

    def may_contain(self, hashes: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return a flag for each filter: whether it may contain at least one of the hashed values.

        The flag of a missing filter is true.

        Args:
            hashes: The first 64-bit hash of each value. The slice answers only for hashes in its own range of hashes,
                so the caller passes only these.
        """
        matches = ~self.exists
        at = np.flatnonzero(self.exists)
        if not len(at):
            return matches
        bits = self.bits[at].astype(np.uint64)
        data, starts = _data(self.upper)
        starts = 8 * starts[at]
        zeros = np.flatnonzero(np.unpackbits(data) == 0)
        zeros_before = np.searchsorted(zeros, starts)
        lower, offsets = _data(self.lower)
        has_match = np.zeros(len(at), np.bool_)
        for hash_ in hashes:
            # In `upper`, the ones of a bucket lie between the zero of the bucket before and the bucket's own zero.
            prefixes = np.uint64(hash_) >> (np.uint64(_HASH_BITS) - bits)
            buckets = (prefixes >> np.uint64(_LOWER_BITS)).astype(np.int64) - self._buckets[at]
            first = zeros_before + buckets
            begins = np.where(buckets > 0, zeros[first - 1] + 1, starts)
            counts = zeros[first] - begins
            begins = offsets[at] + begins - starts - buckets
            low_bytes = (prefixes & np.uint64(0xFF)).astype(np.uint8)
            for number in range(int(counts.max(initial=0))):
                rows = np.flatnonzero(counts > number)
                has_match[rows] |= lower[begins[rows] + number] == low_bytes[rows]
        matches[at] = has_match
        return matches

    def prefixes(self) -> tuple[FilterIndices, Words]:
        """Return all stored hash prefixes as two arrays: the index of each prefix's filter, and the prefix.

        Both arrays have an item per prefix, and are sorted by filter and prefix. A prefix is in the upper bits of a
        64-bit word. The lower bits are zeros.
        """
        data, starts = _data(self.upper)
        ones = np.flatnonzero(np.unpackbits(data))
        at = np.searchsorted(8 * starts[1:], ones, "right")
        firsts = _data(self.lower)[1][:-1]
        buckets = ones - 8 * starts[at] - (np.arange(len(ones)) - firsts[at]) + self._buckets[at]
        prefixes = (buckets.astype(np.uint64) << np.uint64(_LOWER_BITS)) | _data(self.lower)[0][: len(ones)]
        return at, prefixes << (np.uint64(_HASH_BITS) - self.bits[at].astype(np.uint64))


def build_filter_slice(
    indices: FilterIndices, hashes: Words, bits: npt.NDArray[np.int64], slice_bits: int = 0, slice_: int = 0
) -> FilterSlice:
    """Build one slice of each of several filters, all for the same range of hashes.

    Args:
        indices: For each hash, the index of its filter, in ascending order.
        hashes: Hashes in the range of the slice, ascending within a filter. Only a prefix of each is stored.
        bits: For each filter, the number of bits of a prefix; 0 for a missing filter.
        slice_bits: There are 2^slice_bits slices.
        slice_: The index of this slice, from 0, in the order of the ranges of hashes.
    """
    # The distinct prefixes of each filter.
    prefixes = hashes >> (np.uint64(_HASH_BITS) - bits[indices].astype(np.uint64))
    is_new = np.ones(len(prefixes), np.bool_)
    is_new[1:] = (prefixes[1:] != prefixes[:-1]) | (indices[1:] != indices[:-1])
    indices, prefixes = indices[is_new], prefixes[is_new]
    exists = bits > 0
    counts = np.bincount(indices, minlength=len(bits))
    sizes = np.where(exists, (1 << np.maximum(bits - _LOWER_BITS - slice_bits, 0)) + counts, 0)
    starts = np.concatenate([[0], np.cumsum((sizes + 7) // 8)])
    firsts = np.concatenate([[0], np.cumsum(counts)])
    empty = _binary_array(b"", starts * 0, exists)
    buckets = (prefixes >> np.uint64(_LOWER_BITS)).astype(np.int64)
    buckets -= FilterSlice(bits, empty, empty, slice_bits, slice_)._buckets[indices]
    # The one of a prefix is after the zeros of all earlier buckets and the ones of all earlier prefixes of its filter.
    unary = np.zeros(8 * int(starts[-1]), np.uint8)
    unary[8 * starts[indices] + buckets + np.arange(len(prefixes)) - firsts[indices]] = 1
    upper = _binary_array(np.packbits(unary).tobytes(), starts, exists)
    lower = _binary_array(prefixes.astype(np.uint8).tobytes(), firsts, exists)
    return FilterSlice(bits, upper, lower, slice_bits, slice_)


def bits_for(count: int) -> int:
    """Return how many leading bits of each hash a filter of `count` hashes stores."""
    return max(MIN_BITS, _PRECISION_BITS + max(0, count - 1).bit_length())


def build_filter(hashes: Words) -> bytes:
    """Return the encoded filter of a set of values.

    Args:
        hashes: The first 64-bit hash of each value, in any order.
    """
    distinct_hashes = np.unique(hashes)
    bits = bits_for(len(distinct_hashes))
    single_slice = build_filter_slice(np.zeros(len(distinct_hashes), np.int64), distinct_hashes, np.array([bits]))
    upper, lower = single_slice.upper[0].as_py(), single_slice.lower[0].as_py()
    return bytes([bits]) + len(upper).to_bytes(8, "little") + upper + lower


def build_filter_of_frequencies(frequencies: Frequencies) -> bytes | None:
    """Return the encoded filter of the values; None if there are no values."""
    return build_filter(hash_values(frequencies.values, frequencies.type_class)[0]) if len(frequencies) else None


def parse_filters(encoded_filters: list[bytes | None]) -> FilterSlice:
    """Decode filters to a slice that covers all hashes.

    None stands for a missing filter.

    Raises ValueError for an invalid filter.
    """
    bits = [0 if data is None else data[0] for data in encoded_filters]
    ends = [0 if data is None else 9 + int.from_bytes(data[1:9], "little") for data in encoded_filters]
    for data, length, end in zip(encoded_filters, bits, ends, strict=True):
        if data is not None and (not MIN_BITS <= length <= _HASH_BITS or not 9 < end <= len(data)):
            raise ValueError(f"a value filter of {len(data)} bytes has an invalid header: {length} bits, end at {end}")
    upper = [None if data is None else data[9:end] for data, end in zip(encoded_filters, ends, strict=True)]
    lower = [None if data is None else data[end:] for data, end in zip(encoded_filters, ends, strict=True)]
    return FilterSlice(np.array(bits, np.int64), pa.array(upper, pa.binary()), pa.array(lower, pa.binary()))


def _data(array: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], FilterIndices]:
    """Return (bytes, offsets) of an array.

    The bytes are those of all elements in sequence. The offsets are the start of each element, then the end of the
    last one.
    """
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def _binary_array(data: bytes, offsets: FilterIndices, exists: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    """Return an array of `data[offsets[i]:offsets[i + 1]]`, with null where `exists[i]` is false."""
    bitmap = None if exists.all() else pa.py_buffer(np.packbits(exists, bitorder="little").tobytes())
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(exists), buffers)
