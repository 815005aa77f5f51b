"""Fingerprints: 48-bit hashes of values, which are stored where the values would take too much space.

Equal values have equal fingerprints; different values rarely have equal ones. A value has two 64-bit hashes (see
`statistics.hashing`). Its fingerprint is the upper 48 bits of the first one. Shorter fingerprints can be computed, too.
They are the upper bits of the 48, so their order is that of the stored fingerprints.

A location is a number that the caller assigns to a set of rows, such as those of a partition. For each fingerprint, the
locations of its rows, if they have any, are added up. If only one row has the fingerprint, the sum is the location of
this row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.hashing import Words, hash_values

FINGERPRINT_BITS = 48
"""Width of stored fingerprints in bits."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FingerprintCounts:
    """Distinct fingerprints, ascending, each with the number of rows whose value has it."""

    fingerprints: Numbers
    counts: Numbers
    locations: Numbers | None = None
    """For each fingerprint, the sum of the locations of its rows; None if the rows have no locations."""

    def __len__(self) -> int:
        return len(self.fingerprints)

    def equals(self, other: FingerprintCounts) -> bool:
        """Return whether fingerprints, counts and locations are the same."""
        if (self.locations is None) != (other.locations is None):
            return False
        pairs = [(self.fingerprints, other.fingerprints), (self.counts, other.counts)]
        if self.locations is not None and other.locations is not None:
            pairs.append((self.locations, other.locations))
        return all(np.array_equal(left, right) for left, right in pairs)

    @property
    def rows(self) -> int:
        """The number of rows, which is the sum of the counts."""
        return int(self.counts.sum())

    def part(self, selection: npt.NDArray[np.bool_] | slice) -> FingerprintCounts:
        """Return the fingerprints that a mask or a slice selects, with their counts and locations."""
        locations = None if self.locations is None else self.locations[selection]
        return FingerprintCounts(self.fingerprints[selection], self.counts[selection], locations)

    def at(self, location: int) -> FingerprintCounts:
        """Return the same fingerprints and counts, for rows that all have the given location.

        In `locations`, each fingerprint has the sum of its rows' locations: its count times `location`.
        """
        return FingerprintCounts(self.fingerprints, self.counts, self.counts * location)

    def counts_of(self, fingerprints: Numbers) -> Numbers:
        """Return the count of each given fingerprint.

        The count is 0 if the fingerprint does not occur.
        """
        return self._numbers_of(fingerprints, self.counts)

    def locations_of(self, fingerprints: Numbers) -> Numbers:
        """Return the sum of the locations of each given fingerprint.

        The sum is 0 if the fingerprint does not occur. If this object has fingerprints, `locations` must be set.
        """
        if not len(self):
            return np.zeros(len(fingerprints), np.int64)
        assert self.locations is not None, "the rows have no locations"
        return self._numbers_of(fingerprints, self.locations)

    def _numbers_of(self, fingerprints: Numbers, numbers: Numbers) -> Numbers:
        if not len(self):
            return np.zeros(len(fingerprints), np.int64)
        at = np.minimum(np.searchsorted(self.fingerprints, fingerprints), len(self) - 1)
        return np.where(self.fingerprints[at] == fingerprints, numbers[at], 0)


EMPTY = FingerprintCounts(np.zeros(0, np.int64), np.zeros(0, np.int64))


def fingerprint_hashes(hashes: Words, bits: int = FINGERPRINT_BITS) -> Numbers:
    """Return the fingerprint of each value: the upper `bits` bits of its first 64-bit hash."""
    return (hashes >> np.uint64(64 - bits)).astype(np.int64)


def fingerprint_values(frequencies: Frequencies, bits: int = FINGERPRINT_BITS) -> Numbers:
    """Return fingerprints of `bits` bits, one for each distinct value, in the order of the values."""
    if not len(frequencies):
        return EMPTY.fingerprints
    return fingerprint_hashes(hash_values(frequencies.values, frequencies.type_class)[0], bits)


def count_fingerprints(
    fingerprints: Numbers, counts: Numbers | None, locations: Numbers | None = None
) -> FingerprintCounts:
    """Return the distinct fingerprints, each with the sums of its counts and of its locations.

    Args:
        fingerprints: Fingerprints in any order. They may repeat.
        counts: The number of rows of each element of `fingerprints`; None if each element is one row.
        locations: The sum of the locations of the rows of each element; None if the rows have no locations. If
            `locations` is given, `counts` must be given, too.
    """
    if not len(fingerprints):
        return EMPTY
    if counts is None:
        sorted_fingerprints = np.sort(fingerprints)
    else:
        order = np.argsort(fingerprints, kind="stable")
        sorted_fingerprints, counts = fingerprints[order], counts[order]
        locations = None if locations is None else locations[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_fingerprints[1:] != sorted_fingerprints[:-1]]))
    totals = np.diff(starts, append=len(sorted_fingerprints)) if counts is None else np.add.reduceat(counts, starts)
    sums = None if locations is None else np.add.reduceat(locations, starts)
    return FingerprintCounts(sorted_fingerprints[starts], totals.astype(np.int64, copy=False), sums)


def fingerprint_frequencies(frequencies: Frequencies) -> FingerprintCounts:
    """Return the distinct fingerprints of a column's values, each with the number of its rows."""
    return count_fingerprints(fingerprint_values(frequencies), frequencies.counts.to_numpy())


def sum_fingerprints(parts: Iterable[FingerprintCounts]) -> FingerprintCounts:
    """Return the distinct fingerprints of all parts, with the sums of their counts and locations.

    The result has locations if all parts that are not empty have them.
    """
    nonempty_parts = [part for part in parts if len(part)]
    if len(nonempty_parts) < 2:
        return nonempty_parts[0] if nonempty_parts else EMPTY
    location_arrays = [part.locations for part in nonempty_parts if part.locations is not None]
    return count_fingerprints(
        np.concatenate([part.fingerprints for part in nonempty_parts]),
        np.concatenate([part.counts for part in nonempty_parts]),
        np.concatenate(location_arrays) if len(location_arrays) == len(nonempty_parts) else None,
    )


def narrow_fingerprints(counts: FingerprintCounts, bits: int) -> FingerprintCounts:
    """Return shorter fingerprints.

    The counts of fingerprints that become equal are added up.

    Args:
        counts: Counts of fingerprints of 48 bits, without locations.
        bits: Width of the shorter fingerprints.
    """
    if bits == FINGERPRINT_BITS:
        return counts
    return count_fingerprints(counts.fingerprints >> (FINGERPRINT_BITS - bits), counts.counts)


class FingerprintCounter:
    """An accumulator of the fingerprints of a column's values, which are added block by block."""

    def __init__(self) -> None:
        self._fingerprints: list[Numbers] = []
        self._counts: list[Numbers] = []
        self._has_repeats = False

    def add(self, hashes: Words, counts: Numbers) -> None:
        """Add values with their counts.

        Args:
            hashes: One hash of each value: the first array that `hash_values` returns.
            counts: How often each value occurs.
        """
        self._fingerprints.append(fingerprint_hashes(hashes))
        self._counts.append(counts)
        self._has_repeats = self._has_repeats or bool((counts != 1).any())

    def total(self) -> FingerprintCounts:
        """Return the fingerprints of all values that were added."""
        if not self._fingerprints:
            return EMPTY
        counts = np.concatenate(self._counts) if self._has_repeats else None
        return count_fingerprints(np.concatenate(self._fingerprints), counts)
