"""The values of a fingerprinted column that occur at least twice in the rows that match a filter.

A fragment is a data file with the deletes that apply to it. A profile has the statistics of a set of rows, such as
those of a fragment. A fingerprint is a short hash of a value. If all rows of a fragment match, the fingerprints of a
column are read from the fragment's profile. Otherwise, they are computed from the matching rows. The table's value
counts have every value whose fingerprint occurs at least twice in the table.

For each fingerprint that occurs at least twice in the matching rows, the value counts are searched for the values with
this fingerprint. If there is only one such value, all rows with the fingerprint have this value. A fingerprint that
occurs once in the matching rows belongs to a value that occurs once.
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
from metastore_assets.pipeline.value_counts.fingerprinted_values import read_fingerprints
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.fingerprints import (
    FingerprintCounts,
    fingerprint_values,
    narrow_fingerprints,
    sum_fingerprints,
)
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, derive_frequencies
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.quantiles import Digest
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry
from metastore_assets.value_counts import ValueCountReader

MAX_FINGERPRINTED_ROWS = 20_000_000
"""Fingerprints of at most this many rows are read, about four bytes each. For more rows, distinct counts are
estimates."""


class FingerprintedValues:
    """A finder of values of fingerprinted columns that occur at least twice in matching rows.

    Threads can share it.
    """

    def __init__(
        self,
        store: ObjectStore,
        value_counts: Callable[[], ValueCountReader],
        fragments: Callable[[], Sequence[FragmentEntry]],
    ) -> None:
        """Create a finder of the values that occur at least twice; nothing is read yet.

        Args:
            store: The table's folder.
            value_counts: Returns the table's value counts.
            fragments: Returns the fragments in which every row matches the filter. Fingerprints of these fragments
                are read from stored profiles.
        """
        self._store = store
        self._value_counts = value_counts
        self._fragments = fragments

    def repeated(self, row: ColumnStatistics, filtered_counts: Sequence[FingerprintCounts]) -> Frequencies | None:
        """Return a column's values that occur in at least two matching rows, ascending, with frequencies.

        Args:
            row: The statistics of the column over all matching rows.
            filtered_counts: The fingerprints of the matching rows in each fragment that matches partly.

        Returns:
            The values. None if the matching rows have more than `MAX_FINGERPRINTED_ROWS` values, or the table has no
            value counts of the column. Also None if values share a fingerprint, so that a frequency is unknown.

        Raises:
            CorruptionError: Stored fingerprints, statistics and value counts contradict each other.
        """
        if not row.value_count:
            return EMPTY
        derived_frequencies = derive_frequencies(row)
        if derived_frequencies is not None:
            return _select_repeated(derived_frequencies)
        value_counts = self._value_counts()
        if (
            row.value_count > MAX_FINGERPRINTED_ROWS
            or row.type_class is None
            or row.field_id not in value_counts.columns
        ):
            return None
        repeated_fingerprints = self._sum_fingerprints(row, filtered_counts, value_counts.fingerprint_bits)
        if not len(repeated_fingerprints):
            return EMPTY
        candidates = value_counts.values_of_fingerprints(
            row.field_id, row.type_class, repeated_fingerprints.fingerprints
        )
        return self._resolve_values(row, repeated_fingerprints, candidates, value_counts.fingerprint_bits)

    def _sum_fingerprints(
        self, row: ColumnStatistics, filtered_counts: Sequence[FingerprintCounts], bits: int
    ) -> FingerprintCounts:
        """Return the fingerprints that occur at least twice in the matching rows, with their row counts.

        Args:
            row: The statistics of the column over all matching rows.
            filtered_counts: The fingerprints of the matching rows in each fragment that matches partly.
            bits: The width of the fingerprints in the table's value counts.
        """
        with StatesReader(self._store) as reader:
            stored_counts = (read_fingerprints(reader, entry.files, row.field_id) for entry in self._fragments())
            total = sum_fingerprints(narrow_fingerprints(counts, bits) for counts in (*stored_counts, *filtered_counts))
        if total.rows != row.value_count:
            raise CorruptionError(
                f"{self._store.uri()}: column {row.column!r} has fingerprints of {total.rows} values, and states of "
                f"{row.value_count}; rebuild them with `metastore refresh NAME --full`"
            )
        return total.part(total.counts > 1)

    def _resolve_values(
        self, row: ColumnStatistics, repeated_fingerprints: FingerprintCounts, candidates: Frequencies, bits: int
    ) -> Frequencies | None:
        """Return the values that have given fingerprints and occur at least twice in the matching rows.

        Args:
            row: The statistics of the column over the matching rows.
            repeated_fingerprints: The fingerprints that occur at least twice in the matching rows.
            candidates: The table's values with these fingerprints.
            bits: The width of the fingerprints in bits.

        Returns:
            The values with their frequencies; None if some frequencies are unknown.
        """
        fingerprints, table_counts = fingerprint_values(candidates, bits), candidates.counts.to_numpy()
        positions = np.searchsorted(repeated_fingerprints.fingerprints, fingerprints)
        value_counts = np.bincount(positions, minlength=len(repeated_fingerprints))
        table_totals = np.zeros(len(repeated_fingerprints), np.int64)
        np.add.at(table_totals, positions, table_counts)
        # If several values share a fingerprint, their counts are known only if all rows of the table with them are
        # selected.
        if ((value_counts > 1) & (table_totals != repeated_fingerprints.counts)).any():
            return None
        if (value_counts == 0).any() or (table_totals < repeated_fingerprints.counts).any():
            raise CorruptionError(
                f"{self._store.uri()}: the table's value counts of column {row.column!r} lack values that occur "
                "several times; rebuild them with `metastore refresh NAME --full`"
            )
        counts = np.where(value_counts[positions] > 1, table_counts, repeated_fingerprints.counts[positions])
        return _select_repeated(Frequencies(candidates.values, pa.array(counts, pa.int64())))


class FullPartitionProfile:
    """The stored profile of a partition whose rows all match.

    For a fingerprinted column, the exact distinct count is computed from the values that occur at least twice. If these
    values are unknown, the stored distinct count is returned.
    """

    def __init__(self, stored_profile: Profile, merge: Callable[[], Profile]) -> None:
        self._stored = stored_profile
        self._merge = merge

    @lock_free_cached_property
    def _merged(self) -> Profile:
        return self._merge()

    def statistics(self, columns: Iterable[str] | None = None) -> list[ColumnStatistics]:
        """Return the statistics of the named columns, or of all columns.

        Raises KeyError for an unknown name.
        """
        return [self._with_counts(row) for row in self._stored.statistics(columns)]

    def top(self, field_id: str, n: int) -> list[tuple[pa.Scalar, int]] | None:
        """Return the n most frequent values with their frequencies; None if values are unknown."""
        top = self._stored.top(field_id, n)
        return self._merged.top(field_id, n) if top is None else top

    def frequencies(self, field_id: str) -> Frequencies | None:
        """Return all values of a column with their frequencies; None if some values are not stored."""
        return self._stored.frequencies(field_id)

    def repeated(self, field_id: str) -> Frequencies | None:
        """Return a fingerprinted column's values that occur at least twice, with their frequencies.

        The result is None if these values are unknown.
        """
        return self._merged.repeated(field_id)

    def sketch(self, field_id: str) -> tuple[Digest | None, tuple[int, int]] | None:
        """Return (quantile sketch, (number of -inf, number of +inf)); None if no sketch is stored.

        The quantile sketch is None if all values are infinite.
        """
        return self._stored.sketch(field_id)

    def histogram(self, column: str) -> Histogram | None:
        """Return the histogram of a column; None if it has none."""
        return self._stored.histogram(column)

    def _with_counts(self, row: ColumnStatistics) -> ColumnStatistics:
        repeated_frequencies = self._merged.repeated(row.field_id) if row.frequencies == "repeated" else None
        return row if repeated_frequencies is None else add_repeated_counts(row, repeated_frequencies)


def add_repeated_counts(row: ColumnStatistics, repeated_frequencies: Frequencies) -> ColumnStatistics:
    """Return statistics with exact distinct and duplicate counts, computed from the repeated values.

    Args:
        row: The statistics of a column.
        repeated_frequencies: All values of the column that occur at least twice, with their frequencies.
    """
    distinct = row.value_count - sum(repeated_frequencies.counts.to_pylist()) + len(repeated_frequencies)
    return replace(
        row, distinct_count=distinct, distinct_count_guarantee="exact", duplicate_count=len(repeated_frequencies)
    )


def _select_repeated(frequencies: Frequencies) -> Frequencies:
    is_repeated = pa.array(frequencies.counts.to_numpy() > 1)
    return Frequencies(frequencies.values.filter(is_repeated), frequencies.counts.filter(is_repeated))
