"""Keyed hashes of hidden values.

Without the key, nobody can test whether a sketch of the hashes contains a value.

The keyed hash of a value is SipHash-2-4 (Aumasson, Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012) of its
two unkeyed hashes. The hashes are part of the stored format, so never change them.
"""

from __future__ import annotations

import hashlib

import numpy as np

from metastore_assets.statistics.hashing import Words
from metastore_assets.statistics.murmur3 import rotate_left

_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_LENGTH = np.uint64(16 << 56)
_BLOCK = 1 << 14


def column_key(key: bytes, table: str, column: str) -> bytes:
    """Derive the key of a column, so that sketches do not reveal whether two columns share values.

    Args:
        key: The secret key.
        table: The identity of the table.
        column: The identity of the column.
    """
    return hashlib.blake2b(f"{table}\0{column}".encode("utf-8", "surrogatepass"), key=key, digest_size=32).digest()


def key_id(key: bytes) -> str:
    """Return a short hash of a key, which identifies the key without revealing it."""
    return hashlib.blake2b(b"id", key=key, digest_size=8).hexdigest()


def hash_with_key(hashes: tuple[Words, Words], key: bytes) -> tuple[Words, Words]:
    """Return two hashes of each value under a secret key.

    Args:
        hashes: The two unkeyed hashes of each value.
        key: A key of 32 bytes: two SipHash keys of 16 bytes, one for each of the two returned hashes.
    """
    low, high = (np.empty_like(hashes[0]), np.empty_like(hashes[0]))
    for start in range(0, len(low), _BLOCK):  # a block fits in the processor's cache
        part = slice(start, start + _BLOCK)
        message = (hashes[0][part], hashes[1][part])
        low[part], high[part] = siphash(message, key[:16]), siphash(message, key[16:])
    return low, high


def siphash(message: tuple[Words, Words], key: bytes) -> Words:
    """Return the SipHash-2-4 of many messages of two words each, under a key of 16 bytes.

    Args:
        message: The first words and the second words of all messages.
        key: The key.
    """
    halves = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    state = [np.full(len(message[0]), start ^ halves[at % 2], np.uint64) for at, start in enumerate(_START)]
    for word in (*message, _LENGTH):
        state[3] ^= word
        _round(state)
        _round(state)
        state[0] ^= word
    state[2] ^= np.uint64(0xFF)
    for _ in range(4):
        _round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _round(v: list[Words]) -> None:
    """Apply one round of SipHash to its four state words, in place."""
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotate_left(v[1], 13) ^ v[0]
    v[3] = rotate_left(v[3], 16) ^ v[2]
    v[0] = rotate_left(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotate_left(v[1], 17) ^ v[2]
    v[3] = rotate_left(v[3], 21) ^ v[0]
    v[2] = rotate_left(v[2], 32)
