"""Update of the stored value counts of a fingerprinted column by the changes of one commit.

A fragment is a data file with its deletes. A fingerprint is a short hash of a value. For a fingerprinted column, the
number of rows with each fingerprint is stored. Values are stored only for fingerprints that occur at least twice.

Values are therefore read only for fingerprints that occur at least twice after the commit:

- Values of added fingerprints are read from the added fragments.
- If a fingerprint occurred once before and was not removed, its value is read from the unchanged fragments. The stored
  location of its row, a short hash of the partition key, says which partitions may have it.
- If a removed fingerprint has several values, it is unknown which one was removed. Its values are read from all
  fragments.

For each fingerprint, the sum of the locations of its rows is stored. If only one row has the fingerprint, the sum is
the location of this row.
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
from metastore_assets.statistics.fingerprints import EMPTY as NO_FINGERPRINTS
from metastore_assets.statistics.fingerprints import FingerprintCounts, Numbers, fingerprint_values
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, run_to_frequencies, sum_frequencies
from metastore_assets.statistics.value_runs import sum_counts
from metastore_assets.value_counts import ValueCountReader
from metastore_assets.value_counts.fingerprinted import FINGERPRINTS
from metastore_assets.values.physical import physical_series
from metastore_assets.values.types import class_named

FindLocatedValues: TypeAlias = Callable[[Numbers, Numbers], Frequencies]
"""Returns the values that have one of these ascending fingerprints, and their frequencies in some fragments.

The second argument has the location of each fingerprint's rows, or NO_LOCATION if they may be anywhere.
"""
FindValues: TypeAlias = Callable[[Numbers], Frequencies]
"""Returns the values that have one of these ascending fingerprints, and their frequencies in some fragments."""
NO_LOCATION = -1
"""Stands for the location of rows that may be in any partition."""


@dataclass(frozen=True)
class FingerprintedChange:
    """The effect of a commit on the stored counts of one fingerprinted column."""

    fingerprints: FingerprintCounts
    """Changes of the number of rows of each fingerprint, and of the sum of their locations, by ascending fingerprint.
    Fingerprints without a change are omitted."""
    values: Frequencies
    """Changes of the frequency of each stored value, without zeros; negative if it decreases."""
    rows: int
    """Change of the number of non-null values."""


@dataclass(frozen=True)
class ChangedFingerprints:
    """The counts of a column's fingerprints in added fragments, and those in removed fragments.

    Both have, for each fingerprint, the sum of its rows' locations.
    """

    added_fingerprints: FingerprintCounts
    """The number of rows of each fingerprint in the added fragments."""
    removed_fingerprints: FingerprintCounts
    """The number of rows of each fingerprint in the removed fragments."""


class PublishedCounts(Protocol):
    """A reader of the counts of one column before the commit."""

    def totals(self, fingerprints: Numbers) -> FingerprintCounts:
        """Return the counts of the given fingerprints that occur, with the sums of their rows' locations.

        `fingerprints` must be ascending.
        """

    def values(self, fingerprints: Numbers) -> Frequencies:
        """Return the stored values that have one of these ascending fingerprints, with their frequencies.

        The caller passes only fingerprints that occurred at least twice before the commit. For others, no values are
        stored.
        """


def compute_change(
    column: FingerprintedColumn,
    changes: ChangedFingerprints,
    published_counts: PublishedCounts,
    find_added: FindValues,
    find_unchanged: FindLocatedValues,
) -> FingerprintedChange:
    """Return the effect of a commit on the stored counts of a column.

    Args:
        column: The column.
        changes: The fingerprints in the added and removed fragments.
        published_counts: The counts before the commit.
        find_added: Returns the values of fingerprints in the added fragments.
        find_unchanged: Returns the values of fingerprints in the unchanged fragments.

    Raises:
        CorruptionError: Profiles, published counts and values contradict each other.
    """
    added_fingerprints, removed_fingerprints = changes.added_fingerprints, changes.removed_fingerprints
    changed_fingerprints = np.union1d(added_fingerprints.fingerprints, removed_fingerprints.fingerprints)
    added_counts, removed_counts = (
        added_fingerprints.counts_of(changed_fingerprints),
        removed_fingerprints.counts_of(changed_fingerprints),
    )
    published_totals = published_counts.totals(changed_fingerprints)
    old_totals = published_totals.counts_of(changed_fingerprints)
    new_totals = old_totals + added_counts - removed_counts
    if (new_totals < 0).any():
        raise CorruptionError(
            f"column {column.path!r}: more values of a fingerprint were removed than stored: profiles "
            "contradict each other; rebuild with `metastore refresh NAME --full`"
        )
    occurs_twice = new_totals >= 2
    added_values = find_added(changed_fingerprints[occurs_twice & (added_counts > 0)])
    stored_values = published_counts.values(changed_fingerprints[old_totals >= 2])
    # The number of stored values of each changed fingerprint.
    positions = np.searchsorted(changed_fingerprints, fingerprint_values(stored_values, column.bits))
    value_numbers = np.bincount(positions, minlength=len(changed_fingerprints))
    is_single = (old_totals == 1) & (removed_counts == 0)
    unknown = occurs_twice & (is_single | ((value_numbers > 1) & (removed_counts > 0)))
    locations = np.where(is_single, published_totals.locations_of(changed_fingerprints), NO_LOCATION)
    remaining = _subtract_removed(stored_values, positions, occurs_twice & ~unknown, removed_counts)
    unchanged_values = find_unchanged(changed_fingerprints[unknown], locations[unknown])
    values = sum_frequencies(((remaining, 1), (added_values, 1), (unchanged_values, 1)))
    check_values(column, changed_fingerprints[occurs_twice], new_totals[occurs_twice], values)
    return FingerprintedChange(
        _difference_of_counts(changed_fingerprints, added_fingerprints, removed_fingerprints),
        _difference(values, stored_values, column.type_class),
        int((added_counts - removed_counts).sum()),
    )


@dataclass(frozen=True)
class StoredCounts:
    """A reader of a fingerprinted column in the published version.

    It returns the number of rows per fingerprint, and the frequencies of stored values.
    """

    view: View
    reader: ValueCountReader
    column: FingerprintedColumn

    def totals(self, fingerprints: Numbers) -> FingerprintCounts:
        """Return the counts of the given fingerprints that occur, with the sums of their rows' locations.

        A row's location is a hash of its partition key. `fingerprints` must be ascending.
        """
        column = pa.repeat(pa.scalar(self.column.field_id), len(fingerprints))
        rows = self.view.groups(FINGERPRINTS, pa.table({"column": column, "fingerprint": fingerprints}))
        return FingerprintCounts(*(rows[name].to_numpy() for name in ("fingerprint", "frequency", "location")))

    def values(self, fingerprints: Numbers) -> Frequencies:
        """Return the stored values that have one of these ascending fingerprints, with their frequencies."""
        return self.reader.values_of_fingerprints(self.column.field_id, self.column.type_class, fingerprints)


class NoCounts:
    """The counts of a column that is not in the published version: zero rows and no values."""

    def totals(self, fingerprints: Numbers) -> FingerprintCounts:
        """Return no fingerprints."""
        return NO_FINGERPRINTS

    def values(self, fingerprints: Numbers) -> Frequencies:
        """Return no values."""
        return EMPTY


def check_values(column: FingerprintedColumn, fingerprints: Numbers, totals: Numbers, values: Frequencies) -> None:
    """Raise CorruptionError if value frequencies do not add up to the totals of their fingerprints.

    Args:
        column: The column.
        fingerprints: Ascending fingerprints.
        totals: The number of rows with each fingerprint.
        values: All values that have one of these fingerprints, with their frequencies.
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
    values: Frequencies, positions: Numbers, chosen_mask: npt.NDArray[np.bool_], removed_counts: Numbers
) -> Frequencies:
    """Return the stored values of chosen fingerprints, with their frequencies after the removals.

    Values whose frequency is then 0 are omitted.

    Args:
        values: The stored values with their frequencies.
        positions: For each value, the index of its fingerprint in `chosen_mask` and in `removed_counts`.
        chosen_mask: For each fingerprint, whether its values are returned.
        removed_counts: For each fingerprint, the number of removed rows. It is subtracted from each value with this
            fingerprint. So it must be 0 if several values have a chosen fingerprint. This is not checked.
    """
    if not len(values):
        return EMPTY
    counts = values.counts.to_numpy() - removed_counts[positions]
    mask = chosen_mask[positions] & (counts > 0)
    return Frequencies(values.values.filter(pa.array(mask)), pa.array(counts[mask]))


def _difference(new_values: Frequencies, old_values: Frequencies, type_class: str) -> Frequencies:
    """Return the change of the frequency of each value, without zeros.

    A missing value has the frequency 0.
    """
    parts = [part for part in (new_values, old_values) if len(part)]
    if not parts:
        return EMPTY
    cls = class_named(type_class)
    signs = [1 if part is new_values else -1 for part in parts]
    counts = np.concatenate([part.counts.to_numpy() * sign for part, sign in zip(parts, signs, strict=True)])
    total = run_to_frequencies(
        sum_counts(physical_series(pa.concat_arrays([part.values for part in parts]), cls), counts), cls
    )
    changed_mask = pa.array(total.counts.to_numpy() != 0)
    return Frequencies(total.values.filter(changed_mask), total.counts.filter(changed_mask))


def _difference_of_counts(
    fingerprints: Numbers, added_fingerprints: FingerprintCounts, removed_fingerprints: FingerprintCounts
) -> FingerprintCounts:
    """Return the changes of each fingerprint's count and of the sum of its rows' locations.

    Fingerprints without a change are omitted.
    """
    counts = added_fingerprints.counts_of(fingerprints) - removed_fingerprints.counts_of(fingerprints)
    locations = added_fingerprints.locations_of(fingerprints) - removed_fingerprints.locations_of(fingerprints)
    return FingerprintCounts(fingerprints, counts, locations).part((counts != 0) | (locations != 0))
