"""Stable 128-bit hashes of values, as two words of 64 bits.

They are the same on every machine and in every release.

Distinct sketches, fingerprints and value filters contain these hashes, so never change them. A number is one 64-bit
word, hashed by the output function of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014). A byte string is hashed word by word: each little-endian word is multiplied into a state that starts with
the length, and SplitMix64's function completes the hash. Byte strings of over 128 bytes are hashed by BLAKE2b instead.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type,
the *canonical type*.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.statistics.murmur3 import BYTE_MASKS
from metastore_assets.values.physical import Numbers, decimal_words, numbers, positive_zeros, storage
from metastore_assets.values.types import TypeClass

Words = npt.NDArray[np.uint64]

_SEEDS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_FACTOR = np.uint64(0x9FB21C651E98DF25)
_LITTLE_WORD = np.dtype("<u8")
_LONG = 128
_BLOCK = 1 << 14
_CANONICAL_NAN = np.uint64(0x7FF8000000000000)
_ONE, _THIRTY_TWO, _SIXTY_THREE = np.uint64(1), np.uint64(32), np.uint64(63)


def hash_values(values: pa.Array, cls: TypeClass) -> tuple[Words, Words]:
    """Return the two 64-bit hashes of each value, as two arrays.

    Args:
        values: An array of the canonical type of the class, without nulls.
        cls: The type class of the values.
    """
    if cls.kind == "bytes":
        return _hash_bytes(storage(values))
    if cls.kind == "boolean":
        return _hash_words(values.cast(pa.int64()).to_numpy().view(np.uint64))
    if t.is_decimal(cls.arrow):
        low, high = decimal_words(values)
        return _hash_words(low.view(np.uint64), high.view(np.uint64))
    return hash_numbers(numbers(values, cls), cls)


def hash_numbers(values: Numbers, cls: TypeClass) -> tuple[Words, Words]:
    """Return the 128-bit hashes of numbers as two arrays of 64-bit words.

    They are the same as those that `hash_values` returns for the numbers as Arrow values.

    Args:
        values: Integers or doubles; dates in days, decimals unscaled. The dtype object is not supported.
        cls: The type class of the values.
    """
    if cls.kind == "float":
        floats = positive_zeros(values)
        return _hash_words(np.where(np.isnan(floats), _CANONICAL_NAN, floats.view(np.uint64)))
    words = values.astype(np.uint64 if cls.name == "uint64" else np.int64, copy=False)
    # A decimal has two words. The upper word of a value of 64 bits repeats the sign.
    return _hash_words(words.view(np.uint64), (words >> 63).view(np.uint64) if t.is_decimal(cls.arrow) else None)


def mix_bits(words: Words) -> Words:
    """Apply SplitMix64's output function, a bijection of 64-bit words that mixes all bits."""
    result = np.empty_like(words)
    scratch = np.empty(min(len(words), _BLOCK), np.uint64)
    for start in range(0, len(words), _BLOCK):  # a block fits in the processor's cache
        part, out = words[start : start + _BLOCK], result[start : start + _BLOCK]
        shifted_part = scratch[: len(part)]
        np.bitwise_xor(part, np.right_shift(part, np.uint64(30), out=shifted_part), out=out)
        out *= np.uint64(0xBF58476D1CE4E5B9)
        out ^= np.right_shift(out, np.uint64(27), out=shifted_part)
        out *= np.uint64(0x94D049BB133111EB)
        out ^= np.right_shift(out, np.uint64(31), out=shifted_part)
    return result


def _hash_words(low: Words, high: Words | None = None) -> tuple[Words, Words]:
    state = mix_bits(low + _SEEDS[0])
    return _hash_pair(state if high is None else state ^ high)


def _hash_pair(state: Words) -> tuple[Words, Words]:
    return mix_bits(state + _SEEDS[0]), mix_bits(state + _SEEDS[1])


def _hash_bytes(values: pa.LargeBinaryArray) -> tuple[Words, Words]:
    """Return the two 64-bit hashes of each byte string, as two arrays.

    Strings of over 128 bytes are hashed by BLAKE2b, all others word by word.
    """
    states = np.empty(len(values), np.uint64)
    lengths = np.diff(_offsets(values))
    long = np.flatnonzero(lengths > _LONG)
    for row in long.tolist():
        digest = hashlib.blake2b(values[row].as_buffer(), digest_size=8).digest()
        states[row] = int.from_bytes(digest, "little")
    short: npt.NDArray[np.int64] | slice = slice(None)
    if len(long):
        short = np.flatnonzero(lengths <= _LONG)
        values = values.take(pa.array(short))
    states[short] = _hash_short(values)
    return _hash_pair(states)


def _hash_short(values: pa.LargeBinaryArray) -> Words:
    """Return a 64-bit hash state of each byte string, from which `_hash_pair` computes its two hashes.

    No string may be longer than 128 bytes; `_hash_bytes` hashes longer ones by BLAKE2b.
    """
    offsets, data = _offsets(values), np.frombuffer(values.buffers()[2] or b"", np.uint8)
    states = np.empty(len(values), np.uint64)
    # An aligned copy of each block, padded so that a word can be read past the last value.
    words = np.zeros(min(len(values), _BLOCK) * _LONG // 8 + 3, _LITTLE_WORD)
    for start in range(0, len(values), _BLOCK):
        bounds = offsets[start : start + _BLOCK + 1]
        words.view(np.uint8)[: bounds[-1] - bounds[0]] = data[bounds[0] : bounds[-1]]
        states[start : start + _BLOCK] = _hash_block(words, bounds - bounds[0])
    return states


def _hash_block(words: Words, bounds: npt.NDArray[np.int64]) -> Words:
    """Return the hash state of each byte string, as `_hash_short` does, for one block of strings.

    The n-th words of all strings are hashed together, for n = 1, 2 and so on.

    Args:
        words: A buffer of 64-bit words, with the bytes of all strings one after the other. Strings begin at any byte.
        bounds: The offset of each string in the buffer in bytes, and the end of the last string.
    """
    lengths = np.diff(bounds)
    # By decreasing length: the strings that have an n-th word come first.
    shortness = (_LONG - lengths).astype(np.uint8)
    order = np.argsort(shortness, kind="stable")
    shortness, lengths, starts = shortness.take(order), lengths.take(order), bounds.take(order)
    index, shift = starts >> 3, ((starts & 7) << 3).astype(np.uint64)
    back = _SIXTY_THREE - shift
    states = mix_bits(lengths.astype(np.uint64) + _SEEDS[0])
    current, following, word, spill = words.take(index), *np.empty((3, len(states)), np.uint64)
    at_most = np.cumsum(np.bincount(shortness, minlength=_LONG + 1))[::-1]
    for done in range(0, _LONG, 8):
        active_count, full_count = int(at_most[done + 1]), int(at_most[done + 8])
        if active_count == 0:
            break
        index, shift, back = index[:active_count], shift[:active_count], back[:active_count]
        current, following, word, spill = (
            current[:active_count],
            following[:active_count],
            word[:active_count],
            spill[:active_count],
        )
        # Values start at any byte, so that a word of a value spans two words of the buffer.
        index += 1
        words.take(index, out=following, mode="clip")
        np.right_shift(current, shift, out=word)
        np.left_shift(following, _ONE, out=spill)
        spill <<= back
        word |= spill
        word[full_count:] &= BYTE_MASKS.take(lengths[full_count:active_count] - done)
        state = states[:active_count]
        state ^= word
        state *= _FACTOR
        state ^= np.right_shift(state, _THIRTY_TWO, out=spill)
        current, following = following, current
    result = np.empty_like(states)
    result[order] = states
    return result


def _offsets(values: pa.LargeBinaryArray) -> npt.NDArray[np.int64]:
    return np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, 8 * values.offset)
