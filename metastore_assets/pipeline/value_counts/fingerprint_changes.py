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
class FingerprintedChange:
    """The changes that a commit makes to the stored counts of one fingerprinted column."""

    fingerprints: FingerprintCounts
    """Nonzero changes to the sums of ascending fingerprints."""
    values: Frequencies
    """Nonzero changes to the frequencies of values."""
    rows: int
    """The change to the number of non-null values."""


@dataclass(frozen=True)
class ChangedFingerprints:
    """The fingerprints of a column in the fragments that a commit changed."""

    added: FingerprintCounts
    """The sums of the fingerprints in added fragments."""
    removed: FingerprintCounts
    """The sums of the fingerprints in removed fragments."""


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
    changes: ChangedFingerprints,
    published: PublishedCounts,
    find_added: FindValues,
    find_unchanged: FindValues,
) -> FingerprintedChange:
    """Return the changes to the stored counts of a column.

    Args:
        column: The column.
        changes: The added and removed fingerprints.
        published: The published counts.
        find_added: Returns the values of fingerprints in the added fragments.
        find_unchanged: Returns the values of fingerprints in the unchanged fragments.

    Raises:
        CorruptionError: Profiles, published counts and values contradict each other.
    """
    added, removed = changes.added, changes.removed
    changed = np.union1d(added.fingerprints, removed.fingerprints)
    added_counts, removed_counts = added.counts_of(changed), removed.counts_of(changed)
    old_totals = published.totals(changed)
    new_totals = old_totals + added_counts - removed_counts
    if (new_totals < 0).any():
        raise CorruptionError(
            f"column {column.path!r}: more values of a fingerprint were removed than stored: profiles "
            "contradict each other; rebuild with `metastore refresh NAME --full`"
        )
    occurs_twice = new_totals >= 2
    added_values = find_added(changed[occurs_twice & (added_counts > 0)])
    stored_values = published.values(changed[old_totals >= 2])
    # The number of stored values of each changed fingerprint.
    positions = np.searchsorted(changed, fingerprint_values(stored_values, column.bits))
    value_numbers = np.bincount(positions, minlength=len(changed))
    unknown = occurs_twice & (
        ((old_totals == 1) & (removed_counts == 0)) | ((value_numbers > 1) & (removed_counts > 0))
    )
    remaining = _subtract_removed(stored_values, positions, occurs_twice & ~unknown, removed_counts)
    values = sum_frequencies(((remaining, 1), (added_values, 1), (find_unchanged(changed[unknown]), 1)))
    check_values(column, changed[occurs_twice], new_totals[occurs_twice], values)
    return FingerprintedChange(
        _signed(changed, added_counts - removed_counts),
        _difference(values, stored_values, column.type_class),
        int((added_counts - removed_counts).sum()),
    )


@dataclass(frozen=True)
class StoredCounts:
    """The counts of a column in the published version. Reads only the row groups of requested fingerprints."""

    view: View
    reader: ValueCountReader
    column: FingerprintedColumn

    def totals(self, fingerprints: Numbers) -> Numbers:
        """Return how many rows have each of some ascending fingerprints."""
        column = pa.repeat(pa.scalar(self.column.field_id), len(fingerprints))
        rows = self.view.groups(FINGERPRINTS, pa.table({"column": column, "fingerprint": fingerprints}))
        return FingerprintCounts(rows["fingerprint"].to_numpy(), rows["frequency"].to_numpy()).counts_of(fingerprints)

    def values(self, fingerprints: Numbers) -> Frequencies:
        """Return the stored values with one of these ascending fingerprints, with their frequencies."""
        return self.reader.values_of_fingerprints(self.column.field_id, self.column.type_class, fingerprints)


class NoCounts:
    """The counts of a column that is not in the published version."""

    def totals(self, fingerprints: Numbers) -> Numbers:
        """Return how many rows have each of some ascending fingerprints."""
        return np.zeros(len(fingerprints), np.int64)

    def values(self, fingerprints: Numbers) -> Frequencies:
        """Return the stored values with one of these ascending fingerprints, with their frequencies."""
        return EMPTY


def check_values(column: FingerprintedColumn, fingerprints: Numbers, totals: Numbers, values: Frequencies) -> None:
    """Raise CorruptionError unless the frequencies of values sum to the totals of their fingerprints.

    Args:
        column: The column.
        fingerprints: Ascending fingerprints.
        totals: The number of rows with each fingerprint.
        values: The values with these fingerprints, and their frequencies.
    """
    value_totals = np.zeros(len(fingerprints), np.int64)
    np.add.at(
        value_totals, np.searchsorted(fingerprints, fingerprint_values(values, column.bits)), values.counts.to_numpy()
    )
    wrong = int((value_totals != totals).sum())
    if wrong:
        raise CorruptionError(
            f"column {column.path!r}: the values in the table's files do not have the stored fingerprints "
            f"({wrong:,} of {len(fingerprints):,} differ): a file was changed in place, or a "
            "profile is damaged; rebuild with `metastore refresh NAME --full`"
        )


def _subtract_removed(
    values: Frequencies, positions: Numbers, chosen: npt.NDArray[np.bool_], removed_counts: Numbers
) -> Frequencies:
    """Return the stored values of chosen fingerprints, with frequencies reduced by the removed occurrences.

    Args:
        values: The stored values with their frequencies.
        positions: By value, the position of its fingerprint.
        chosen: By fingerprint, whether it is chosen.
        removed_counts: By fingerprint, the number of removed occurrences. It is 0 for a chosen fingerprint that several
            values share.
    """
    if not len(values):
        return EMPTY
    counts = values.counts.to_numpy() - removed_counts[positions]
    mask = chosen[positions] & (counts > 0)
    return Frequencies(values.values.filter(pa.array(mask)), pa.array(counts[mask]))


def _difference(new_values: Frequencies, old_values: Frequencies, type_class: str) -> Frequencies:
    parts = [part for part in (new_values, old_values) if len(part)]
    if not parts:
        return EMPTY
    cls = class_named(type_class)
    signs = [1 if part is new_values else -1 for part in parts]
    counts = np.concatenate([part.counts.to_numpy() * sign for part, sign in zip(parts, signs, strict=True)])
    total = run_to_frequencies(
        sum_counts(physical_series(pa.concat_arrays([part.values for part in parts]), cls), counts), cls
    )
    changed = pa.array(total.counts.to_numpy() != 0)
    return Frequencies(total.values.filter(changed), total.counts.filter(changed))


def _signed(fingerprints: Numbers, counts: Numbers) -> FingerprintCounts:
    return FingerprintCounts(fingerprints, counts).part(counts != 0)
