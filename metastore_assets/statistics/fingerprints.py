"""Fingerprints of values, 48 bits each: a multiset of values in some four bytes a value, in which equal values meet.

Two values may have the same fingerprint; who wants to know reads the values. A fingerprint is the upper end of the
first 64-bit hash of a value, so that narrower ones are made of those there are, and keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.hashing import Words, hash_values

FINGERPRINT_BITS = 48
"""Width of the fingerprints that are stored."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FingerprintCounts:
    """Distinct fingerprints, ascending, each with how many rows have a value of it."""

    fingerprints: Numbers
    counts: Numbers

    def __len__(self) -> int:
        return len(self.fingerprints)

    def equals(self, other: FingerprintCounts) -> bool:
        """Whether they are of the same values, as far as fingerprints tell."""
        return np.array_equal(self.fingerprints, other.fingerprints) and np.array_equal(self.counts, other.counts)

    @property
    def rows(self) -> int:
        """How many values they are of."""
        return int(self.counts.sum())

    def part(self, wanted: npt.NDArray[np.bool_]) -> FingerprintCounts:
        """Some of them."""
        return FingerprintCounts(self.fingerprints[wanted], self.counts[wanted])

    def counts_of(self, prints: Numbers) -> Numbers:
        """The counts of some fingerprints, 0 of those that there are none of."""
        if not len(self):
            return np.zeros(len(prints), np.int64)
        at = np.minimum(np.searchsorted(self.fingerprints, prints), len(self) - 1)
        return np.where(self.fingerprints[at] == prints, self.counts[at], 0)


EMPTY = FingerprintCounts(np.zeros(0, np.int64), np.zeros(0, np.int64))


def fingerprint_hashes(hashes: Words, bits: int = FINGERPRINT_BITS) -> Numbers:
    """The fingerprint of each value, from the first of its hashes."""
    return (hashes >> np.uint64(64 - bits)).astype(np.int64)


def fingerprint_values(frequencies: Frequencies, bits: int = FINGERPRINT_BITS) -> Numbers:
    """The fingerprint of each value of a list."""
    if not len(frequencies):
        return EMPTY.fingerprints
    return fingerprint_hashes(hash_values(frequencies.values, frequencies.type_class)[0], bits)


def count_fingerprints(prints: Numbers, counts: Numbers | None) -> FingerprintCounts:
    """Fingerprints in any order, some of them repeatedly, with their counts: None says once each."""
    if not len(prints):
        return EMPTY
    if counts is None:
        ordered = np.sort(prints)
    else:
        order = np.argsort(prints, kind="stable")
        ordered, counts = prints[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    totals = np.diff(starts, append=len(ordered)) if counts is None else np.add.reduceat(counts, starts)
    return FingerprintCounts(ordered[starts], totals.astype(np.int64, copy=False))


def fingerprint_frequencies(frequencies: Frequencies) -> FingerprintCounts:
    """The fingerprints of the values that a list holds."""
    return count_fingerprints(fingerprint_values(frequencies), frequencies.counts.to_numpy())


def sum_fingerprints(parts: Iterable[FingerprintCounts]) -> FingerprintCounts:
    """The fingerprints of the values of all of them."""
    held = [part for part in parts if len(part)]
    if len(held) < 2:
        return held[0] if held else EMPTY
    return count_fingerprints(
        np.concatenate([own.fingerprints for own in held]), np.concatenate([own.counts for own in held])
    )


def narrow_fingerprints(prints: FingerprintCounts, bits: int) -> FingerprintCounts:
    """The same with fingerprints of fewer bits, which more values share."""
    return (
        prints
        if bits == FINGERPRINT_BITS
        else count_fingerprints(prints.fingerprints >> (FINGERPRINT_BITS - bits), prints.counts)
    )


class FingerprintCounter:
    """Takes the hashes of values as they come."""

    def __init__(self) -> None:
        self._prints: list[Numbers] = []
        self._counts: list[Numbers] = []
        self._repeat = False

    def add(self, hashes: Words, counts: Numbers) -> None:
        """Values by the first of their hashes, and how often each came."""
        self._prints.append(fingerprint_hashes(hashes))
        self._counts.append(counts)
        self._repeat = self._repeat or bool((counts != 1).any())

    def total(self) -> FingerprintCounts:
        """The fingerprints of all that was added."""
        if not self._prints:
            return EMPTY
        counts = np.concatenate(self._counts) if self._repeat else None
        return count_fingerprints(np.concatenate(self._prints), counts)
