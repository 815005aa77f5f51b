"""Theta sketches and their hashes equal those of the `datasketches` and `mmh3` libraries."""

from __future__ import annotations

import struct
from itertools import accumulate

import datasketches
import mmh3
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.statistics.murmur3 import hash_strings, hash_words
from metastore_assets.statistics.theta import (
    EMPTY_SKETCH,
    NOMINAL_ENTRIES,
    build_sketch,
    decode_sketch,
    estimate_sketch,
    merge_sketches,
)


def hashes_of(strings: list[bytes]) -> npt.NDArray[np.uint64]:
    offsets = np.array([0, *accumulate(map(len, strings))], np.int64)
    return hash_strings(np.frombuffer(b"".join(strings), np.uint8), offsets)


@given(st.lists(st.binary(max_size=70)))
def test_hashes_of_strings_are_those_of_mmh3(strings: list[bytes]) -> None:
    expected = [mmh3.hash64(string, 9001, signed=False)[0] for string in strings]
    assert hashes_of(strings).tolist() == expected


def test_strings_of_very_different_lengths_are_hashed_as_by_mmh3() -> None:
    """Strings of 0 to 100,001 bytes, more than are hashed in one batch, have the hashes of mmh3."""
    strings = [bytes([number % 251]) * (number % 40) for number in range(20_000)] + [b"x" * 100_001, b""]
    expected = [mmh3.hash64(string, 9001, signed=False)[0] for string in strings]
    assert hashes_of(strings).tolist() == expected


@given(st.integers(1, 8), st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_hashes_of_words_are_those_of_mmh3(length: int, numbers: list[int]) -> None:
    words = np.array(numbers, np.uint64) & np.uint64(2 ** (8 * length) - 1)
    expected = [mmh3.hash64(int(word).to_bytes(length, "little"), 9001, signed=False)[0] for word in words]
    assert hash_words(words, length).tolist() == expected


def draw(count: int, seed: int = 0) -> npt.NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(1, 2**63 - 1, count, np.uint64)


@pytest.mark.parametrize("count", [0, 1, 2, 100, NOMINAL_ENTRIES, NOMINAL_ENTRIES + 1, 50_000])
def test_datasketches_reads_a_sketch(count: int) -> None:
    """`datasketches` reads from a sketch the same hashes and estimate as this package, and can merge it."""
    hashes = draw(count)
    sketch = build_sketch(hashes)
    theta_sketch = datasketches.compact_theta_sketch.deserialize(sketch)
    assert theta_sketch.num_retained == min(count, NOMINAL_ENTRIES)
    assert theta_sketch.is_empty() == (count == 0)
    assert theta_sketch.is_estimation_mode() == (count > NOMINAL_ENTRIES)
    assert sorted(theta_sketch) == decode_sketch(sketch)[0].tolist()
    assert theta_sketch.get_estimate() == pytest.approx(estimate_sketch(sketch))
    assert estimate_sketch(sketch) == pytest.approx(count, rel=0.06)
    other = datasketches.update_theta_sketch()
    for number in range(30_000):
        other.update(number)
    union = datasketches.theta_union()
    union.update(theta_sketch)
    union.update(other)
    assert union.get_result().get_estimate() == pytest.approx(count + 30_000, rel=0.06)


def test_bytes_are_those_of_datasketches() -> None:
    """The bytes of sketches of small sets equal those of the library in C++, except for two fields.

    The two fields have the values that the library writes in Java.
    """
    for count in (0, 1, 2, 3000):
        theirs = datasketches.update_theta_sketch(lg_k=12)
        for number in range(count):
            theirs.update(number)
        words = np.arange(count, dtype=np.uint64)
        expected = bytearray(theirs.compact().serialize())
        if count == 1:
            expected[5] |= 32  # Java marks a sketch of one hash, and C++ does not.
        if count > 1:
            expected[12:16] = struct.pack("<f", 1.0)  # Java stores the sampling probability, and C++ does not.
        assert build_sketch(hash_words(words, 8) >> np.uint64(1)) == expected


@pytest.mark.parametrize("distinct", [100, 5_000, 200_000])
def test_the_least_of_many_hashes_are_retained(distinct: int) -> None:
    """A sketch of 200,000 hashes retains the least distinct ones.

    So many hashes are filtered before they are sorted.
    """
    pool = draw(distinct)
    hashes = np.random.default_rng(1).choice(pool, 200_000)
    expected = np.unique(hashes)[:NOMINAL_ENTRIES]
    assert decode_sketch(build_sketch(hashes))[0].tolist() == expected.tolist()


@given(st.lists(st.integers(0, 12_000), max_size=6), st.integers(0, 100))
def test_a_sketch_depends_only_on_the_set(counts: list[int], seed: int) -> None:
    """The merged sketch of any overlapping parts equals the sketch of their union byte for byte."""
    pool = draw(15_000, seed)
    generator = np.random.default_rng(seed)
    parts = [generator.choice(pool, count) for count in counts]
    expected_sketch = build_sketch(np.concatenate(parts) if parts else np.zeros(0, np.uint64))
    sketches = [build_sketch(part) for part in parts]
    assert merge_sketches(sketches) == expected_sketch
    assert merge_sketches([*sketches[::-1], *sketches, EMPTY_SKETCH]) == expected_sketch
    total = EMPTY_SKETCH
    for sketch in sketches:
        total = merge_sketches([total, sketch])
    assert total == expected_sketch
