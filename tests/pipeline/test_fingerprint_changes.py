"""Updated value counts of a fingerprinted column equal those from scratch.

This holds even if values share fingerprints. A profile of a fingerprinted column has fingerprints, which are parts of
the values' hashes, instead of values. A fragment is a data file with its deletes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError
from metastore_assets.pipeline.value_counts.fingerprint_changes import (
    NO_LOCATION,
    ChangedFingerprints,
    compute_change,
)
from metastore_assets.pipeline.value_counts.fingerprinted_values import FingerprintedColumn, is_member
from metastore_assets.statistics.fingerprints import (
    FingerprintCounts,
    Numbers,
    fingerprint_frequencies,
    fingerprint_values,
    narrow_fingerprints,
    sum_fingerprints,
)
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, sum_frequencies

BITS = 3
"""With three bits, about four of the 31 values share each fingerprint."""
COLUMN = FingerprintedColumn("x", "x", "int64", pa.field("x", pa.int64()), 0, BITS, False)
FRAGMENT = st.lists(st.integers(0, 30), max_size=8)
LOCATIONS = 3
"""The fragments of a list have the locations 0, 1, 2, 0, 1, 2, …"""


def frequencies_of(values: Sequence[int]) -> Frequencies:
    counts = sorted(Counter(values).items())
    return Frequencies(
        pa.array([value for value, _ in counts], pa.int64()), pa.array([n for _, n in counts], pa.int64())
    )


def fingerprints(fragments: Sequence[Sequence[int]]) -> FingerprintCounts:
    return sum_fingerprints(
        narrow_fingerprints(fingerprint_frequencies(frequencies_of(entry)), BITS).at(number % LOCATIONS)
        for number, entry in enumerate(fragments)
    )


def values_of_fingerprints(fragments: Sequence[Sequence[int]], requested_fingerprints: Numbers) -> Frequencies:
    return sum_frequencies(
        (COLUMN.select_values(frequencies_of(entry), requested_fingerprints), 1) for entry in fragments
    )


@dataclass
class CountsOfFragments:
    """A model of the value counts of some fragments."""

    fragments: Sequence[Sequence[int]]
    total: FingerprintCounts

    def totals(self, requested_fingerprints: Numbers) -> FingerprintCounts:
        return self.total.part(is_member(self.total.fingerprints, requested_fingerprints))

    def values(self, requested_fingerprints: Numbers) -> Frequencies:
        assert (self.totals(requested_fingerprints).counts_of(requested_fingerprints) >= 2).all()
        return COLUMN.select_values(candidates(self.fragments), requested_fingerprints)


def candidates(fragments: Sequence[Sequence[int]]) -> Frequencies:
    """Return the values to store: those whose fingerprint occurs at least twice."""
    complete, total = frequencies_of([value for entry in fragments for value in entry]), fingerprints(fragments)
    if not len(complete):
        return EMPTY
    is_repeated = pa.array(is_member(fingerprint_values(complete, BITS), total.fingerprints[total.counts >= 2]))
    return Frequencies(complete.values.filter(is_repeated), complete.counts.filter(is_repeated))


def counts_by_value(values: Frequencies) -> dict[int, int]:
    return dict(zip(values.values.to_pylist(), values.counts.to_pylist(), strict=True))


@given(st.lists(FRAGMENT, max_size=5), st.lists(FRAGMENT, max_size=3), st.lists(FRAGMENT, max_size=3))
def test_an_update_equals_counts_from_scratch(
    stay: list[list[int]], removed_fragments: list[list[int]], added_fragments: list[list[int]]
) -> None:
    before, sums = (
        candidates([*stay, *removed_fragments]),
        sum_fingerprints([fingerprints(stay), fingerprints(removed_fragments)]),
    )
    requested_values: list[int] = []

    def find_old(requested_fingerprints: Numbers, locations: Numbers) -> Frequencies:
        requested_values.extend(requested_fingerprints)
        terms = [(values_of_fingerprints(stay, requested_fingerprints[locations == NO_LOCATION]), 1)]
        for location in range(LOCATIONS):
            terms.append(
                (values_of_fingerprints(stay[location::LOCATIONS], requested_fingerprints[locations == location]), 1)
            )
        return sum_frequencies(terms)

    change = compute_change(
        COLUMN,
        ChangedFingerprints(fingerprints(added_fragments), fingerprints(removed_fragments)),
        CountsOfFragments([*stay, *removed_fragments], sums),
        partial(values_of_fingerprints, added_fragments),
        find_old,
    )
    assert counts_by_value(sum_frequencies([(before, 1), (change.values, 1)])) == counts_by_value(
        candidates([*stay, *added_fragments])
    )
    after = fingerprints([*stay, *added_fragments])
    all_fingerprints = np.arange(2**BITS)
    assert (
        sums.counts_of(all_fingerprints) + change.fingerprints.counts_of(all_fingerprints)
    ).tolist() == after.counts_of(all_fingerprints).tolist()
    locations = sums.locations_of(all_fingerprints) + change.fingerprints.locations_of(all_fingerprints)
    expected = fingerprints(stay).locations_of(all_fingerprints) + fingerprints(added_fragments).locations_of(
        all_fingerprints
    )
    assert locations.tolist() == expected.tolist()
    assert change.rows == sum(map(len, added_fragments)) - sum(map(len, removed_fragments))
    changed_locations = change.fingerprints.locations_of(change.fingerprints.fingerprints)
    assert ((change.fingerprints.counts != 0) | (changed_locations != 0)).all()
    if not added_fragments and len(set(fingerprint_values(before, BITS).tolist())) == len(before):
        assert not requested_values, "removed values with a unique fingerprint are not read"


def test_missing_values_are_an_error() -> None:
    nothing = CountsOfFragments([], fingerprints([]))
    with pytest.raises(CorruptionError, match=r"'x'.*\b1 of 1\b"):
        compute_change(
            COLUMN,
            ChangedFingerprints(fingerprints([[1, 1]]), fingerprints([])),
            nothing,
            lambda requested_fingerprints: EMPTY,
            lambda requested_fingerprints, locations: EMPTY,
        )
    changes = ChangedFingerprints(fingerprints([]), fingerprints([[1]]))
    with pytest.raises(CorruptionError, match=r"'x'.*\bmore\b.*\bfingerprint\b"):
        compute_change(
            COLUMN,
            changes,
            nothing,
            partial(values_of_fingerprints, []),
            lambda requested_fingerprints, locations: EMPTY,
        )
