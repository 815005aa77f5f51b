"""MurmurHash3 (x64, 128 bits) of many byte strings at once, as Apache DataSketches hashes them.

Only the first 64 of the 128 bits are returned. The algorithm is public domain (Austin Appleby, SMHasher). One step
processes the next 16 bytes of many strings. The end of each string is padded with zeros, which do not change its hash.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

DATASKETCHES_SEED = 9001
"""The default seed of Apache DataSketches."""
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_FACTOR, _N1, _N2 = np.uint64(5), np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
BYTE_MASKS = np.array([2 ** (8 * count) - 1 for count in range(9)], np.uint64)
"""Masks of the first 0 to 8 bytes of a word."""
_BLOCK = 16
_STRINGS_AT_ONCE = 1 << 14
"""Number of strings that are hashed together, so that their states fit in the processor's cache."""


def hash_words(words: Words, length: int, seed: int = DATASKETCHES_SEED) -> Words:
    """Return the hash of each of several byte strings of the same length, which is at most 8 bytes.

    Args:
        words: The bytes of each string as a little-endian number.
        length: The length of all strings in bytes, 1 to 8.
        seed: The seed of the hash.
    """
    result = np.empty(len(words), np.uint64)
    for start in range(0, len(words), _STRINGS_AT_ONCE):
        part = words[start : start + _STRINGS_AT_ONCE]
        state = np.full(len(part), seed, np.uint64)
        result[start : start + len(part)] = _finish(state ^ _mix_first(part), state, np.uint64(length))
    return result


def hash_strings(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], seed: int = DATASKETCHES_SEED) -> Words:
    """Return the first 64 bits of the hash of each of several byte strings, which may differ in length.

    Args:
        data: The bytes of all strings in sequence.
        offsets: The offset of each string in `data`, and the end of the last one.
        seed: The seed of the hash.
    """
    result = np.empty(len(offsets) - 1, np.uint64)
    for start in range(0, len(result), _STRINGS_AT_ONCE):
        bounds = offsets[start : start + _STRINGS_AT_ONCE + 1]
        padded_data = np.zeros(int(bounds[-1] - bounds[0]) + 2 * _BLOCK, np.uint8)
        padded_data[: bounds[-1] - bounds[0]] = data[bounds[0] : bounds[-1]]
        result[start : start + _STRINGS_AT_ONCE] = _hash_part(padded_data, bounds - bounds[0], seed)
    return result


def _hash_part(data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64], seed: int) -> Words:
    """Return the hash of each string.

    This is fast only if all the strings fit in the processor's cache.

    Args:
        data: The bytes of the strings in sequence, with at least 16 zeros after them.
        bounds: The offset of each string, and the end of the last one.
        seed: The seed of the hash.
    """
    # A number at each byte: unaligned words, which numpy reads like aligned ones.
    words = np.ndarray((len(data) - 7,), np.dtype("<u8"), data.data, strides=(1,))
    lengths = np.diff(bounds)
    # Long strings come first, so the strings with a further block are at the beginning of the arrays.
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = bounds[:-1][order], lengths[order]
    blocks = lengths // _BLOCK
    first, second = np.full((2, len(order)), seed, np.uint64)
    for block in range(int(blocks[0]) if len(blocks) else 0):
        count = int(np.searchsorted(-blocks, -block, side="left"))
        at, h1, h2 = starts[:count] + block * _BLOCK, first[:count], second[:count]
        h1 ^= _mix_first(words[at])
        h1[:] = rotate_left(h1, 27)
        h1 += h2
        h1 *= _FACTOR
        h1 += _N1
        h2 ^= _mix_second(words[at + 8])
        h2[:] = rotate_left(h2, 31)
        h2 += h1
        h2 *= _FACTOR
        h2 += _N2
    at, rest = starts + blocks * _BLOCK, lengths % _BLOCK
    first ^= _mix_first(words[at] & BYTE_MASKS[np.minimum(rest, 8)])
    second ^= _mix_second(words[at + 8] & BYTE_MASKS[np.maximum(rest - 8, 0)])
    result = np.empty_like(first)
    result[order] = _finish(first, second, lengths.astype(np.uint64))
    return result


def _mix_first(words: Words) -> Words:
    return rotate_left(words * _C1, 31) * _C2


def _mix_second(words: Words) -> Words:
    return rotate_left(words * _C2, 33) * _C1


def _finish(first: Words, second: Words, length: Words | np.uint64) -> Words:
    first, second = first ^ length, second ^ length
    first = first + second
    second = second + first
    return _scramble(first) + _scramble(second)


def _scramble(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(33))) * _F1
    words = (words ^ (words >> np.uint64(33))) * _F2
    return words ^ (words >> np.uint64(33))


def rotate_left(words: Words, bits: int) -> Words:
    """Rotate the bits of each word to the left."""
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
