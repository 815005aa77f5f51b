"""Distinct sketches depend only on the set of values, and multiset hashes only on the multiset.

Hashes never change.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.statistics.distinct import distinct_sketch, estimate_distinct, merge_distinct_sketches
from metastore_assets.statistics.hashing import hash_values
from metastore_assets.values.types import type_class
from tests.statistics.random_columns import BYTES, KINDS, merge_statistics, profile_one, rows, share


@pytest.mark.parametrize("name", KINDS)
@share(20)
@given(data=st.data())
def test_multiset_hashes_distinguish_multisets(name: str, data: st.DataObject) -> None:
    """Hashes of equal multisets are equal in any order.

    Hashes of different multisets differ.
    """
    kind = KINDS[name]
    first, second = data.draw(rows(kind, 6)), data.draw(rows(kind, 6))
    shuffled_values = data.draw(st.permutations(first))
    profiled_statistics = [profile_one(kind.array(values)).statistics for values in (first, shuffled_values, second)]
    assert profiled_statistics[0].multiset_hash == profiled_statistics[1].multiset_hash
    assert (profiled_statistics[0].multiset_hash == profiled_statistics[2].multiset_hash) == (
        _multiset(first) == _multiset(second)
    )


def _multiset(values: list[Any]) -> Counter[Any]:
    return Counter("nan" if value != value else value for value in values)


def test_multiset_hashes_subtract() -> None:
    """The hash of all values minus the hash of removed values is the hash of the remaining values.

    Each half of the hashes is subtracted modulo 2**64.
    """
    total, part, remainder = (
        profile_one(pa.array(v)).statistics.multiset_hash for v in ([1, 2, 2, None], [2, None], [1, 2])
    )
    assert total is not None
    assert part is not None
    difference = (np.frombuffer(total, "<u8") - np.frombuffer(part, "<u8")).tobytes()
    assert difference == remainder


def hash_by_definition(value: bytes) -> int:
    """Compute the first of the two hashes of a byte string word by word in Python integers.

    The byte string has at most 128 bytes.
    """
    mask = 2**64 - 1

    def finalise(word: int) -> int:
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
        return word ^ (word >> 31)

    state = finalise((len(value) + 0x9E3779B97F4A7C15) & mask)
    for at in range(0, len(value), 8):
        word = int.from_bytes(value[at : at + 8], "little")
        state = ((state ^ word) * 0x9FB21C651E98DF25) & mask
        state ^= state >> 32
    return finalise((state + 0x9E3779B97F4A7C15) & mask)


@given(values=st.lists(st.one_of(BYTES, st.binary(max_size=128)), min_size=1, max_size=20), start=st.integers(0, 20))
def test_bytes_hash_by_definition(values: list[bytes], start: int) -> None:
    """Hashes of up to 128 bytes equal those of `hash_by_definition`, also in slices of arrays.

    Longer values are hashed with BLAKE2b, and are not compared here.
    """
    array = pa.array(values, pa.large_binary()).slice(min(start, len(values) - 1))
    result = hash_values(array, type_class(pa.binary()))[0].tolist()
    short = [(hash, value) for hash, value in zip(result, array.to_pylist(), strict=True) if len(value) <= 128]
    assert [hash for hash, _ in short] == [hash_by_definition(value) for _, value in short]


def test_bytes_hash_by_definition_in_any_number() -> None:
    """Each of 40,000 byte strings that are hashed together has the same hash as if hashed alone.

    Blocks of values are hashed together, the longest first. The test compares every seventh value, if it has at most
    128 bytes, with `hash_by_definition`.
    """
    rng = np.random.default_rng(0)
    values = [rng.bytes(length) for length in rng.integers(0, 130, 40_000).tolist()]
    result = hash_values(pa.array(values, pa.large_binary()), type_class(pa.binary()))[0].tolist()
    for at in range(0, len(values), 7):
        if len(values[at]) <= 128:
            assert result[at] == hash_by_definition(values[at])


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("boolean", [False, True], "98e5452cc5cd343d"),
        ("int64", [-1, 0, 2**62], "941e6d798626ac00"),
        ("uint64", [2**64 - 1], "fccf74129b0bbeaf"),
        ("float64", [0.0, 1.5], "c4b8ab8c4f361e11"),
        ("decimal128", [1, 10**37], "4f79b3846c9bcf5e"),
        ("string", ["", "a", "é" * 100], "484079b304220f2d"),
        ("uuid", [b"0123456789abcdef"], "9948094e179afd00"),
        ("date32", [0, 20000], "9de12f52a252dad4"),
    ],
)
def test_hashes_never_change(name: str, values: list[Any], expected: str) -> None:
    """Hashes of values equal fixed numbers.

    Stored sketches and multiset hashes must stay comparable.
    """
    result = profile_one(KINDS[name].array(values)).frequencies
    assert result is not None
    first, second = hash_values(result.values, result.type_class)
    assert f"{int((first ^ (second << np.uint64(1))).sum(dtype=np.uint64)):016x}" == expected


def test_zeros_and_nans_are_one_value_each() -> None:
    """All bit patterns of zero are one value, and all those of NaN are another.

    NaN is quiet or signaling.
    """
    words = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001], np.uint64)
    result = []
    for zero, word in zip([0, 2**63, 0, 2**63], words.tolist(), strict=True):
        array = pa.array(np.array([zero, word, zero], np.uint64).view(np.float64))
        result.append(profile_one(array).statistics)
    assert {row.nan_count for row in result} == {1}
    assert len({row.multiset_hash for row in result}) == 1
    assert len({row.distinct_sketch for row in result}) == 1
    everything = pa.array(words.view(np.float64))
    assert profile_one(everything).statistics.distinct_count == 1


@pytest.mark.parametrize("n", [0, 1, 10, 100, 1000, 1300, 1400, 5_000, 20_000, 100_000, 1_000_000])
def test_estimates_are_within_the_standard_error(n: int) -> None:
    """The error of a distinct estimate is at most 6.5 % (four standard errors) of the true number.

    Larger errors are accepted for few values: up to 1 for at most ten values, and up to 4 otherwise.
    """
    for seed in range(3):
        hashes = np.random.default_rng([n, seed]).integers(0, 2**64, n, np.uint64, endpoint=False)
        assert abs(estimate_distinct(distinct_sketch(hashes)) - n) <= max(n * 0.065, 1 if n <= 10 else 4)


@pytest.mark.parametrize("exponent", [30, 40, 50, 60, 62])
def test_large_estimates_are_within_the_standard_error(exponent: int) -> None:
    """The error of distinct estimates of up to 2**62 values is below 6.5 % (four standard errors).

    The registers of the sketch are drawn from the distribution that so many random hashes would give.
    """
    rng = np.random.default_rng([exponent])
    share = 2.0**exponent / 4096
    positions = np.arange(1, 53)
    # The maximum of `share` positions is at most k with probability (1 - 2**-k) ** share. 53 is the last position.
    at_most = np.exp(share * np.log1p(-(2.0**-positions)))
    registers = (1 + np.searchsorted(at_most, rng.random(4096))).astype(np.uint8)
    result = estimate_distinct(b"\x02" + registers.tobytes())
    assert abs(result / 2**exponent - 1) < 0.065


def test_hashes_of_regular_values_are_uniformly_distributed() -> None:
    """Distinct estimates of regular values are within four standard errors.

    The values are integers, multiples of 1,024, short strings, round floats and decimals. Few registers of their
    sketches are 0 or 1, as for random hashes.
    """
    n = 50_000
    for array in (
        pa.array(range(n)),
        pa.array(range(0, n * 1024, 1024)),
        pa.array([f"user-{at}" for at in range(n)]),
        pa.array([at / 4 for at in range(n)]),
        pa.array(range(n)).cast(pa.decimal128(38, 0)),
    ):
        halves = [profile_one(array.slice(start, n // 2)).statistics for start in (0, n // 2)]
        merged_statistics = merge_statistics(halves)
        assert merged_statistics.distinct_sketch is not None
        assert abs(estimate_distinct(merged_statistics.distinct_sketch) - n) <= 0.065 * n
        registers = np.frombuffer(merged_statistics.distinct_sketch, np.uint8, offset=1)
        assert np.bincount(registers)[:2].sum() < 40  # about 9 are expected


@given(data=st.data())
def test_sketches_depend_only_on_the_set_of_values(data: st.DataObject) -> None:
    """Distinct sketches are the same for any partition, repetition, order and grouping of the values.

    This includes sets of few values, whose sketches are sparse, and of many values, whose sketches are dense.
    """
    n = data.draw(st.sampled_from([0, 1, 5, 300, 1800, 5000]))
    values = list(range(n))
    random.Random(data.draw(st.integers(0, 99))).shuffle(values)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=4)))
    parts = [values[a:b] for a, b in zip([0, *cuts], [*cuts, n], strict=True)] + [values[: n // 3]]

    def sketch(part: list[int]) -> bytes:
        return distinct_sketch(hash_values(pa.array(part, pa.int64()), type_class(pa.int64()))[0])

    sketches = data.draw(st.permutations([sketch(part) for part in parts]))
    left, right = sketches[: len(sketches) // 2], sketches[len(sketches) // 2 :]
    grouped_sketch = merge_distinct_sketches([merge_distinct_sketches(each) for each in (left, right) if each])
    assert merge_distinct_sketches(sketches) == grouped_sketch == sketch(values)
