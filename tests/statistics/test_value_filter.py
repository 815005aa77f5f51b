"""Value filters contain all their values, with few false positives and about ten bits per value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.statistics.value_filter import (
    MAX_SLICE_BITS,
    Words,
    bits_for,
    build_filter,
    build_filter_slice,
    parse_filters,
)

HASHES = st.lists(
    st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**64 - 1, 2**63, 2**63 - 1])), max_size=40
)


def words(hashes: list[int]) -> Words:
    return np.array(sorted(set(hashes)), np.uint64)


@settings(max_examples=60, deadline=None)
@given(st.lists(HASHES, min_size=1, max_size=6), st.integers(0, MAX_SLICE_BITS), st.integers(0, 2**64 - 1))
def test_a_filter_is_the_set_of_hash_prefixes(sets: list[list[int]], slicing: int, other: int) -> None:
    """A filter and each of its slices match exactly the hashes whose prefixes they contain."""
    encoded_filters = [None if number % 4 == 3 else build_filter(words(hashes)) for number, hashes in enumerate(sets)]
    lengths = [
        0 if data is None else bits_for(len(set(hashes))) for data, hashes in zip(encoded_filters, sets, strict=True)
    ]
    parsed_filters = parse_filters(encoded_filters)
    assert parsed_filters.bits.tolist() == lengths
    indices, prefixes = parsed_filters.prefixes()
    prefix_sets = [
        {hash_ >> (64 - length) for hash_ in hashes} if length else set()
        for hashes, length in zip(sets, lengths, strict=True)
    ]
    for at, length in enumerate(lengths):
        assert (
            (prefixes[indices == at] >> np.uint64(64 - length)).tolist() == sorted(prefix_sets[at]) if length else True
        )
    for hash_ in [other, *(hash_ for hashes in sets for hash_ in hashes)]:
        slice_ = hash_ >> (64 - slicing)
        mask = (prefixes >> np.uint64(64 - slicing)) == np.uint64(slice_) if slicing else slice(None)
        filter_slice = build_filter_slice(indices[mask], prefixes[mask], parsed_filters.bits, slicing, slice_)
        expected = [
            not length or hash_ >> (64 - length) in prefix_set
            for prefix_set, length in zip(prefix_sets, lengths, strict=True)
        ]
        assert parsed_filters.may_contain([hash_]).tolist() == filter_slice.may_contain([hash_]).tolist() == expected
        slice_indices, slice_prefixes = filter_slice.prefixes()
        assert slice_indices.tolist() == indices[mask].tolist()
        assert slice_prefixes.tolist() == prefixes[mask].tolist()
    tested_hashes = [other, *(hash_ for hashes in sets for hash_ in hashes[:1])]
    each = np.array([parsed_filters.may_contain([hash_]) for hash_ in tested_hashes])
    assert parsed_filters.may_contain(tested_hashes).tolist() == each.any(axis=0).tolist()


@pytest.mark.parametrize("count", [1_000, 1_024, 1_025, 40_000, 65_536])
def test_size_and_false_positive_rate_are_within_their_limits(count: int) -> None:
    draw = np.random.default_rng(count)
    encoded_filter = build_filter(draw.integers(0, 2**64, count, dtype=np.uint64))
    assert 8 * len(encoded_filter) / count <= 10.1  # the header has nine bytes
    filter_slice = parse_filters([encoded_filter])
    tested_hashes = draw.integers(0, 2**64, 4_000, dtype=np.uint64).tolist()  # 1/128, plus four standard deviations
    assert np.mean([filter_slice.may_contain([hash_])[0] for hash_ in tested_hashes]) < 0.0115


def test_an_invalid_filter_is_refused() -> None:
    encoded_filter = build_filter(np.array([1, 2, 3], np.uint64))
    for damaged_filter in (
        b"\x00" + encoded_filter[1:],
        encoded_filter[:5] + b"\xff" + encoded_filter[6:],
        bytes([70]) + encoded_filter[1:],
    ):
        with pytest.raises(ValueError, match=r"\d+ bytes"):
            parse_filters([encoded_filter, damaged_filter])
