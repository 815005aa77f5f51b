"""Statistics of hidden values merge like those of shown values, and reveal nothing without the key.

A column with the policy `values: hidden` has no statistic that shows a value. Its values are hashed with a secret key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import ColumnPolicy
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.keyed_hashing import column_key, key_id, siphash
from tests.statistics.random_columns import KINDS, merge_statistics, profile_one, rows, share
from tests.statistics.test_merge import assert_equal_rows, merged_in_any_order, parts_of

KEY = column_key(b"k" * 32, "t", "c")
POLICY = ColumnPolicy(values="hidden").with_hash_key(KEY)
VALUE_FIELDS = (
    "minimum",
    "maximum",
    "sum",
    "mean",
    "percentiles",
    "moments",
    "quantile_sketch",
    "true_count",
    "nan_count",
)


def hidden(kind: str, values: list[Any], policy: ColumnPolicy = POLICY) -> ColumnStatistics:
    result = profile_one(KINDS[kind].array(values), policy)
    assert (result.frequencies, result.histogram) == (None, None)
    return result.statistics


def siphash_of(message: bytes, key: bytes) -> int:
    """Compute SipHash-2-4 of a message in Python integers."""
    mask = 2**64 - 1
    k = [int.from_bytes(key[at : at + 8], "little") for at in (0, 8)]
    start = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    v = [word ^ k[at % 2] for at, word in enumerate(start)]

    def rotate_left(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & mask

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, first, c, d, second in ((0, 1, 13, 2, 3, 16), (2, 1, 17, 0, 3, 21)):
                v[a] = v[a] + v[b] & mask
                v[b] = rotate_left(v[b], first) ^ v[a]
                v[c] = v[c] + v[d] & mask
                v[d] = rotate_left(v[d], second) ^ v[c]
                v[a] = rotate_left(v[a], 32)

    padded_message = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for at in range(0, len(padded_message), 8):
        word = int.from_bytes(padded_message[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_siphash_has_the_published_test_vectors() -> None:
    """SipHash has the published results.

    `siphash_of` gives the result of the example in the SipHash paper. For 16 bytes, `siphash_of` and the package's
    `siphash` give the hash that the authors published.
    """
    key = bytes(range(16))
    assert siphash_of(bytes(range(15)), key) == 0xA129CA6149BE45E5
    words = np.frombuffer(bytes(range(16)), "<u8")
    (result,) = siphash((words[:1], words[1:]), key).tolist()
    assert result == siphash_of(bytes(range(16)), key) == 0x3F2ACC7F57C29BDB


@given(st.binary(min_size=16, max_size=16), st.lists(st.binary(min_size=16, max_size=16), max_size=5))
def test_hashes_are_siphash(key: bytes, messages: list[bytes]) -> None:
    words = np.frombuffer(b"".join(messages), "<u8").reshape(-1, 2)
    low, high = np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])
    assert siphash((low, high), key).tolist() == [siphash_of(message, key) for message in messages]


@pytest.mark.parametrize("name", KINDS)
@share(6)
@given(data=st.data())
def test_merged_equals_from_scratch(name: str, data: st.DataObject) -> None:
    """The merged statistics of parts equal those of all values, except distinct count and mean length.

    Distinct sketches and multiset hashes are equal, too. The distinct count of all values is within 2 of the true
    count. The merged distinct count is between the greatest count of a part and the sum of the counts of all parts.
    """
    values = data.draw(rows(KINDS[name]), label="values")
    complete = hidden(name, values)
    parts = [hidden(name, part) for part in parts_of(data, values)]
    merged_statistics = merged_in_any_order(data, parts)
    assert_equal_rows(merged_statistics, complete, {"distinct_count", "mean_length"})
    shown_statistics = profile_one(KINDS[name].array(values)).statistics
    assert shown_statistics.distinct_count is not None
    # Up to 40 values rarely collide in 4,096 registers.
    assert abs((complete.distinct_count or 0) - shown_statistics.distinct_count) <= 2
    counts = [part.distinct_count or 0 for part in parts]
    assert max(counts) <= (merged_statistics.distinct_count or 0) <= sum(counts)
    assert all(getattr(row, field) is None for row in (complete, merged_statistics) for field in VALUE_FIELDS)


@pytest.mark.parametrize("name", ["int64", "string", "float64", "boolean"])
@share(20)
@given(data=st.data())
def test_different_rows_have_different_multiset_hashes(name: str, data: st.DataObject) -> None:
    left_values, right_values = (data.draw(rows(KINDS[name], 6)) for _ in range(2))
    shown_hashes = [
        profile_one(KINDS[name].array(values)).statistics.multiset_hash for values in (left_values, right_values)
    ]
    result = [hidden(name, values).multiset_hash for values in (left_values, right_values)]
    assert (result[0] == result[1]) == (shown_hashes[0] == shown_hashes[1])


def test_estimates_of_many_values_are_within_the_guaranteed_error() -> None:
    draw = np.random.default_rng(5)
    values = draw.integers(0, 10**12, 300_000)
    row = profile_one(pa.array(np.concatenate([values, values])), POLICY).statistics
    assert row.distinct_count_guarantee == "estimate"
    assert row.distinct_count == pytest.approx(len(np.unique(values)), rel=4 * 0.01625)


def test_hashes_reveal_no_values_without_the_key() -> None:
    """Without the key, or with another key, the same values have different sketches and hashes.

    The same values in another column or table also have different sketches and hashes.
    """
    values = ["alice@example.org", "bob@example.org"]
    row = hidden("string", values)
    others = [
        profile_one(pa.array(values)).statistics,
        hidden("string", values, POLICY.with_hash_key(column_key(b"l" * 32, "t", "c"))),
        hidden("string", values, POLICY.with_hash_key(column_key(b"k" * 32, "t", "d"))),
        hidden("string", values, POLICY.with_hash_key(column_key(b"k" * 32, "u", "c"))),
    ]
    assert hidden("string", values[::-1]) == row
    for other in others:
        assert other.distinct_sketch != row.distinct_sketch
        assert other.multiset_hash != row.multiset_hash
    assert key_id(KEY) != key_id(column_key(b"k" * 32, "t", "d"))


def test_without_a_key_there_is_no_sketch() -> None:
    row = hidden("string", ["a", "b"], ColumnPolicy(values="hidden"))
    assert (row.distinct_count, row.distinct_sketch, row.multiset_hash) == (None, None, None)
    assert (row.value_count, row.total_length) == (2, 2)


def test_merging_with_a_part_without_a_sketch_loses_the_estimate() -> None:
    with_sketch, without_sketch = hidden("string", ["a", "b"]), hidden("string", ["c"], ColumnPolicy(values="hidden"))
    merged_statistics = merge_statistics([with_sketch, without_sketch])
    assert (
        merged_statistics.distinct_count,
        merged_statistics.distinct_count_guarantee,
        merged_statistics.multiset_hash,
    ) == (None, "absent", None)
    assert merged_statistics.value_count == 3
