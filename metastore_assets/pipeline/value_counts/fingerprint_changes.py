"""What a step does to a column kept by fingerprints: a function of what came, what went, and what the lists know.

What came and what went says which fingerprints changed; the published sums, how often each occurs now. Values are read
only for those that occur at least twice now, and only where they are not known:

- of a fingerprint that came, in the fragments that came;
- of one that occurred once before, and stays, in the fragments that hold it: nobody knew its value;
- of one that several values share, and that went somewhere, in all fragments that hold it: nobody knows which went.

A fingerprint with one known value that only went needs no reading. One that occurs less than twice has no values any
more.
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
"""Given ascending fingerprints, the values in some fragments that have one of them."""


@dataclass(frozen=True)
class Change:
    """What becomes of one column."""

    fingerprints: FingerprintCounts
    """Ascending, with what is to be added to the sum of each; not zero."""
    values: Frequencies
    """What is to be added to the frequency of each value; not zero."""
    rows: int
    """What is to be added to the number of values."""


class PublishedCounts(Protocol):
    """What is published of a column."""

    def totals(self, fingerprints: Numbers) -> Numbers:
        """How many rows have a value of each of some ascending fingerprints."""

    def values(self, fingerprints: Numbers) -> Frequencies:
        """The listed values of some ascending fingerprints that occur at least twice."""


def compute_change(
    column: FingerprintedColumn,
    more: FingerprintCounts,
    less: FingerprintCounts,
    known: PublishedCounts,
    find_new: FindValues,
    find_old: FindValues,
) -> Change:
    """What becomes of a column of which `more` came and `less` went.

    `find_new` looks in the fragments that came, `find_old` in those that stay. Raises CorruptionError where profiles,
    lists and values contradict each other.
    """
    changed = np.union1d(more.fingerprints, less.fingerprints)
    gained, lost = more.counts_of(changed), less.counts_of(changed)
    before = known.totals(changed)
    totals = before + gained - lost
    if (totals < 0).any():
        raise CorruptionError(
            f"column {column.path!r}: more values of a fingerprint went than there were: stored profiles "
            "contradict each other; rebuild with `metastore refresh NAME --full`"
        )
    several = totals >= 2
    new = find_new(changed[several & (gained > 0)])
    listed = known.values(changed[before >= 2])
    # How many listed values each of the changed fingerprints has.
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
    """What the published lists say of a column. Read are the row groups that have what is asked for."""

    view: View
    reader: ValueCountReader
    column: FingerprintedColumn

    def totals(self, fingerprints: Numbers) -> Numbers:
        """As of `PublishedCounts`."""
        column = pa.repeat(pa.scalar(self.column.field_id), len(fingerprints))
        found = self.view.groups(FINGERPRINTS, pa.table({"column": column, "print": fingerprints}))
        return FingerprintCounts(found["print"].to_numpy(), found["frequency"].to_numpy()).counts_of(fingerprints)

    def values(self, fingerprints: Numbers) -> Frequencies:
        """As of `PublishedCounts`."""
        return self.reader.values_of_fingerprints(self.column.field_id, self.column.type_class, fingerprints)


class NoCounts:
    """Where nothing is published."""

    def totals(self, fingerprints: Numbers) -> Numbers:
        """As of `PublishedCounts`."""
        return np.zeros(len(fingerprints), np.int64)

    def values(self, fingerprints: Numbers) -> Frequencies:
        """As of `PublishedCounts`."""
        return EMPTY


def check_values(column: FingerprintedColumn, fingerprints: Numbers, totals: Numbers, values: Frequencies) -> None:
    """Whether the values are those that the fingerprints were taken of."""
    found = np.zeros(len(fingerprints), np.int64)
    np.add.at(found, np.searchsorted(fingerprints, fingerprint_values(values, column.bits)), values.counts.to_numpy())
    if (found != totals).any():
        raise CorruptionError(
            f"column {column.path!r}: the values in the table's files do not have the stored fingerprints "
            f"({int((found != totals).sum()):,} of {len(fingerprints):,} differ): a file was changed in place, or a "
            "profile is damaged; rebuild with `metastore refresh NAME --full`"
        )


def _kept(values: Frequencies, at: Numbers, wanted: npt.NDArray[np.bool_], lost: Numbers) -> Frequencies:
    """Of the listed values those of wanted fingerprints, without what went of them: where some did, one value has it.

    `at`: for each value the number of its fingerprint.
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
