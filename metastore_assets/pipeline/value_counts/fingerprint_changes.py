"""The update of a fingerprinted column, computed from added fingerprints, removed fingerprints and published counts.

Added and removed fingerprints determine which sums change; published sums determine the new frequencies. Values are
read only for fingerprints that now occur at least twice and whose values are not stored:

- of an added fingerprint, in the added fragments;
- of a fingerprint that occurred once before, in the unchanged fragments that hold it: its value was not stored;
- of a fingerprint that several values share and that was removed somewhere, in all fragments that hold it, because the
  removed value is unknown.

A fingerprint with one stored value that was only removed needs no reading. Values of a fingerprint that occurs less
than twice are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.errors import CorruptionError
from metastore_assets.pipeline.value_counts.fingerprinted_values import FingerprintedColumn
from metastore_assets.produce import View
from metastore_assets.statistics.fingerprints import FingerprintCounts, Numbers, fingerprint_values
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, run_to_frequencies, sum_frequencies
from metastore_assets.statistics.runs import sum_counts
from metastore_assets.value_counts import ValueCountReader
from metastore_assets.value_counts.fingerprinted import FINGERPRINTS
from metastore_assets.values.physical import physical_series
from metastore_assets.values.types import class_named

FindValues: TypeAlias = Callable[[Numbers], Frequencies]
"""Returns the values in some fragments that have one of the given ascending fingerprints."""


@dataclass(frozen=True)
class Change:
    """The changes to the stored counts of one column."""

    fingerprints: FingerprintCounts
    """Nonzero changes to the sums of ascending fingerprints."""
    values: Frequencies
    """Nonzero changes to the frequencies of values."""
    rows: int
    """The change to the number of non-null values."""


class PublishedCounts(Protocol):
    """The published counts of a column."""

    def totals(self, fingerprints: Numbers) -> Numbers:
        """Return how many rows have each of some ascending fingerprints."""

    def values(self, fingerprints: Numbers) -> Frequencies:
        """Return the stored values with one of these fingerprints, with their frequencies.

        The fingerprints ascend, and each occurs at least twice.
        """


def compute_change(
    column: FingerprintedColumn,
    more: FingerprintCounts,
    less: FingerprintCounts,
    known: PublishedCounts,
    find_new: FindValues,
    find_old: FindValues,
) -> Change:
    """Compute the changes to a column from added (`more`) and removed (`less`) fingerprints.

    Args:
        column: The column.
        more: The sums of the fingerprints in added fragments.
        less: The sums of the fingerprints in removed fragments.
        known: The published counts.
        find_new: Returns the values of fingerprints in the added fragments.
        find_old: Returns the values of fingerprints in the unchanged fragments.

    Raises:
        CorruptionError: Profiles, published counts and values contradict each other.
    """
    changed = np.union1d(more.fingerprints, less.fingerprints)
    gained, lost = more.counts_of(changed), less.counts_of(changed)
    before = known.totals(changed)
    totals = before + gained - lost
    if (totals < 0).any():
        raise CorruptionError(
            f"column {column.path!r}: more values of a fingerprint were removed than stored: profiles "
            "contradict each other; rebuild with `metastore refresh NAME --full`"
        )
    several = totals >= 2
    new = find_new(changed[several & (gained > 0)])
    listed = known.values(changed[before >= 2])
    # The number of stored values of each changed fingerprint.
    places = np.searchsorted(changed, fingerprint_values(listed, column.bits))
    shared = np.bincount(places, minlength=len(changed))
    unknown = several & (((before == 1) & (lost == 0)) | ((shared > 1) & (lost > 0)))
    kept = _kept(listed, places, several & ~unknown, lost)
    values = sum_frequencies(((kept, 1), (new, 1), (find_old(changed[unknown]), 1)))
    check_values(column, changed[several], totals[several], values)
    return Change(
        _signed(changed, gained - lost),
        _difference(values, listed, column.type_class),
        int((gained - lost).sum()),
    )


@dataclass(frozen=True)
class StoredCounts:
    """The counts of a column in the published version. Reads only the row groups of requested fingerprints."""

    view: View
    reader: ValueCountReader
    column: FingerprintedColumn

    def totals(self, fingerprints: Numbers) -> Numbers:
        """Implement `PublishedCounts.totals`."""
        column = pa.repeat(pa.scalar(self.column.field_id), len(fingerprints))
        found = self.view.groups(FINGERPRINTS, pa.table({"column": column, "fingerprint": fingerprints}))
        return FingerprintCounts(found["fingerprint"].to_numpy(), found["frequency"].to_numpy()).counts_of(fingerprints)

    def values(self, fingerprints: Numbers) -> Frequencies:
        """Implement `PublishedCounts.values`."""
        return self.reader.values_of_fingerprints(self.column.field_id, self.column.type_class, fingerprints)


class NoCounts:
    """The counts of a column that is not in the published version."""

    def totals(self, fingerprints: Numbers) -> Numbers:
        """Implement `PublishedCounts.totals`."""
        return np.zeros(len(fingerprints), np.int64)

    def values(self, fingerprints: Numbers) -> Frequencies:
        """Implement `PublishedCounts.values`."""
        return EMPTY


def check_values(column: FingerprintedColumn, fingerprints: Numbers, totals: Numbers, values: Frequencies) -> None:
    """Raise CorruptionError unless the values have the fingerprints with the given totals."""
    found = np.zeros(len(fingerprints), np.int64)
    np.add.at(found, np.searchsorted(fingerprints, fingerprint_values(values, column.bits)), values.counts.to_numpy())
    if (found != totals).any():
        raise CorruptionError(
            f"column {column.path!r}: the values in the table's files do not have the stored fingerprints "
            f"({int((found != totals).sum()):,} of {len(fingerprints):,} differ): a file was changed in place, or a "
            "profile is damaged; rebuild with `metastore refresh NAME --full`"
        )


def _kept(values: Frequencies, at: Numbers, wanted: npt.NDArray[np.bool_], lost: Numbers) -> Frequencies:
    """Return the stored values of wanted fingerprints, reduced by the removed occurrences.

    Args:
        values: The stored values with their frequencies.
        at: The number of the fingerprint of each value.
        wanted: Whether each fingerprint is wanted.
        lost: The removed occurrences of each fingerprint. A fingerprint that has any has a single value.
    """
    if not len(values):
        return EMPTY
    counts = values.counts.to_numpy() - lost[at]
    chosen = wanted[at] & (counts > 0)
    return Frequencies(values.values.filter(pa.array(chosen)), pa.array(counts[chosen]))


def _difference(now: Frequencies, before: Frequencies, type_class: str) -> Frequencies:
    parts = [own for own in (now, before) if len(own)]
    if not parts:
        return EMPTY
    cls = class_named(type_class)
    signs = [1 if own is now else -1 for own in parts]
    counts = np.concatenate([own.counts.to_numpy() * sign for own, sign in zip(parts, signs, strict=True)])
    total = run_to_frequencies(
        sum_counts(physical_series(pa.concat_arrays([own.values for own in parts]), cls), counts), cls
    )
    changed = pa.array(total.counts.to_numpy() != 0)
    return Frequencies(total.values.filter(changed), total.counts.filter(changed))


def _signed(fingerprints: Numbers, counts: Numbers) -> FingerprintCounts:
    return FingerprintCounts(fingerprints, counts).part(counts != 0)
