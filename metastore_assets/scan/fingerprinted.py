"""Columns that are kept by fingerprints, of some rows: which of their values repeat, and so how many there are.

A fingerprint that occurs once stands for one value. One that occurs more often is of values that the table's list has,
for it occurs at least as often in the table; where that is one value, all its occurrences are of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.lookup.profiles import Profile
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.value_counts.print_values import read_prints
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.derivable import derive_frequencies
from metastore_assets.statistics.fingerprints import (
    FingerprintCounts,
    fingerprint_values,
    narrow_fingerprints,
    sum_fingerprints,
)
from metastore_assets.statistics.frequencies import EMPTY, Frequencies
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.quantiles import Digest
from metastore_assets.store.manifest import FragmentEntry
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import ListReader

MAX_FINGERPRINTED_ROWS = 20_000_000
"""Of more rows fingerprints are not read, some four bytes of each: distinct values are an estimate then."""


class FingerprintedValues:
    """The fingerprints of what is chosen of a version as a whole. Safe to share."""

    def __init__(
        self, store: ObjectStore, lists: Callable[[], ListReader], fragments: Callable[[], Sequence[FragmentEntry]]
    ) -> None:
        self._store = store
        self._lists = lists
        self._fragments = fragments

    def repeated(self, row: ColumnStatistics, cut: Sequence[FingerprintCounts]) -> Frequencies | None:
        """The values that occur at least twice, with their frequencies, ascending; `cut`: fingerprints of further rows.

        None where that is not known: of too many rows, or where values share a fingerprint and are told apart by
        reading them alone. Raises CorruptionError.
        """
        if not row.value_count:
            return EMPTY
        implied = derive_frequencies(row)
        if implied is not None:
            return _repeated(implied)
        lists = self._lists()
        if row.value_count > MAX_FINGERPRINTED_ROWS or row.type_class is None or row.field_id not in lists.columns:
            return None
        bits = lists.print_bits
        with StatesReader(self._store) as opened:
            stored = (read_prints(opened, entry.files, row.field_id) for entry in self._fragments())
            total = sum_fingerprints(narrow_fingerprints(own, bits) for own in (*stored, *cut))
        if total.rows != row.value_count:
            raise CorruptionError(
                f"{self._store.uri()}: the fingerprints of column {row.column!r} are of {total.rows} values, and its "
                f"states of {row.value_count}; rebuild with `metastore refresh NAME --full`"
            )
        several = total.part(total.counts > 1)
        if not len(several):
            return EMPTY
        listed = lists.of_prints(row.field_id, row.type_class, several.fingerprints)
        prints, often = fingerprint_values(listed, bits), listed.counts.to_numpy()
        at = np.searchsorted(several.fingerprints, prints)
        number, whole = np.bincount(at, minlength=len(several)), np.zeros(len(several), np.int64)
        np.add.at(whole, at, often)
        # Of several values with one fingerprint it is known which these are where all there are in the table are meant.
        if ((number > 1) & (whole != several.counts)).any():
            return None
        if (number == 0).any() or (whole < several.counts).any():
            raise CorruptionError(
                f"{self._store.uri()}: the table's list of column {row.column!r} lacks values that occur several "
                "times; rebuild with `metastore refresh NAME --full`"
            )
        counts = np.where(number[at] > 1, often, several.counts[at])
        return _repeated(Frequencies(listed.values, pa.array(counts, pa.int64())))


class OnePartition:
    """Answers as a `ProfileReader` does, of one whole partition: what is kept, and what fingerprints tell."""

    def __init__(self, stored: Profile, merged: Callable[[], Profile]) -> None:
        self._stored = stored
        self._make = merged

    @lock_free_cached_property
    def _merged(self) -> Profile:
        return self._make()

    def statistics(self, columns: Iterable[str] | None = None) -> list[ColumnStatistics]:
        """The rows of all columns, or of those named. KeyError for an unknown name."""
        return [self._counted(row) for row in self._stored.statistics(columns)]

    def top(self, field_id: str, n: int) -> list[tuple[pa.Scalar, int]] | None:
        """The n most frequent values with their frequencies, of those that are known; None where none are."""
        found = self._stored.top(field_id, n)
        return self._merged.top(field_id, n) if found is None else found

    def frequencies(self, field_id: str) -> Frequencies | None:
        """All values; None where they are not listed."""
        return self._stored.frequencies(field_id)

    def repeated(self, field_id: str) -> Frequencies | None:
        """The values that occur at least twice, of a column kept by fingerprints; None where that is not known."""
        return self._merged.repeated(field_id)

    def sketch(self, field_id: str) -> tuple[Digest | None, tuple[int, int]] | None:
        """As of `ProfileReader`."""
        return self._stored.sketch(field_id)

    def histogram(self, column: str) -> Histogram | None:
        """The histogram of a column; None when there is none."""
        return self._stored.histogram(column)

    def _counted(self, row: ColumnStatistics) -> ColumnStatistics:
        repeated = self._merged.repeated(row.field_id) if row.frequencies == "repeated" else None
        return row if repeated is None else with_repeated(row, repeated)


def with_repeated(row: ColumnStatistics, repeated: Frequencies) -> ColumnStatistics:
    """`row` with what follows from the values that occur at least twice: all others occur once."""
    distinct = row.value_count - sum(repeated.counts.to_pylist()) + len(repeated)
    return replace(row, distinct_count=distinct, distinct_count_guarantee="exact", duplicate_count=len(repeated))


def _repeated(own: Frequencies) -> Frequencies:
    chosen = pa.array(own.counts.to_numpy() > 1)
    return Frequencies(own.values.filter(chosen), own.counts.filter(chosen))
