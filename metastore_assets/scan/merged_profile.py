"""Profiles of matching rows, merged from stored profiles and profiles of partly matching fragments.

A profile has the statistics of a set of rows. A fragment is a data file with the deletes that apply to it. Stored
profiles have short hashes of a fingerprinted column instead of its values. A state is the mergeable form of a
statistic, such as a sketch. A version has the statistics of one snapshot of the table. The policy of a column decides
which of its statistics and values are stored. Value counts are the distinct values of a column with their frequencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import TypeAlias

import pyarrow as pa

from metastore_assets.config import ResolvedPolicy
from metastore_assets.errors import CorruptionError
from metastore_assets.lookup.profiles import with_infinities
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.files import shown_histogram
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.states_writer import value_union
from metastore_assets.pipeline.profiles.stored_states import read_states_together
from metastore_assets.pipeline.value_counts.frequencies import sum_column_frequencies
from metastore_assets.scan.fingerprinted import FingerprintedValues, add_repeated_counts
from metastore_assets.scan.partial_match import ColumnSelection, FilteredProfile, PartialFragments
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.current_schema import apply_schema
from metastore_assets.statistics.finalize import apply_summary, finalize_statistics
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, sum_frequencies, summarize_frequencies
from metastore_assets.statistics.histogram import Histogram, decode_histograms
from metastore_assets.statistics.merge import merge_states
from metastore_assets.statistics.profile import profile_all_null
from metastore_assets.statistics.quantiles import Digest, decode_digest
from metastore_assets.statistics.states import read_state_rows
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ProfileFiles
from metastore_assets.values.columns import Column
from metastore_assets.values.types import type_text

FinalizeUserDefined: TypeAlias = Callable[[ColumnStatistics, ResolvedPolicy, Frequencies | None], ColumnStatistics]
"""A function (row, policy, frequencies of all values) -> row with user-defined statistics. Frequencies are None if
not all values are stored."""


@dataclass(frozen=True)
class _MergedColumn:
    """The statistics and values of one column over the matching rows."""

    row: ColumnStatistics
    histogram: Histogram | None
    frequencies: Frequencies | None
    """All values with their frequencies; None if they are not stored."""
    repeated: Frequencies | None
    """The values of a fingerprinted column that occur at least twice; None if they are unknown."""


@dataclass(frozen=True)
class MergedProfileContext:
    """The stored profiles, columns and policies of a version, shared by all its merged profiles."""

    store: ObjectStore
    """The table's folder, with the stored profiles."""
    columns: Sequence[Column]
    """The columns of the table, in its order."""
    policies: Callable[[Sequence[Column]], Sequence[ResolvedPolicy]]
    """A function that returns the policy of each column: which statistics and values stored profiles have of it."""
    finalize: FinalizeUserDefined


class MergedProfile:
    """A profile merged from stored profiles and from fragments that match partly.

    Threads can share it.

    The states of each column are merged. If all parts store all values of a column, their frequencies are added up, so
    that the distinct count and percentiles are exact. Each column is read once.
    """

    def __init__(
        self,
        context: MergedProfileContext,
        profiles: Sequence[ProfileFiles],
        partial: PartialFragments | None,
        fingerprinted_values: FingerprintedValues,
    ) -> None:
        """Prepare the merge.

        A column is read and merged when it is first requested.

        Args:
            context: The columns and policies of the version.
            profiles: The stored profiles of partitions and fragments that match entirely.
            partial: The fragments that match partly; None if there are none.
            fingerprinted_values: Finds the repeated values of a fingerprinted column: those that occur at least twice.
        """
        self._context = context
        self._store = context.store
        self._table_columns = context.columns
        self._profiles = sorted(profiles, key=lambda files: files.states)  # neighbours in one file are read together
        self._partial = partial
        self._fingerprinted = fingerprinted_values
        self._lock = RLock()
        self._cache: dict[str, _MergedColumn] = {}
        self.columns = {column.path: position for position, column in enumerate(self._table_columns)}

    def statistics(self, columns: Iterable[str] | None = None) -> list[ColumnStatistics]:
        """Return the statistics of the named columns, or of all columns.

        Raises KeyError for an unknown name.
        """
        positions = range(len(self._table_columns)) if columns is None else [self.columns[name] for name in columns]
        merged_columns = self._load([self._table_columns[position] for position in positions])
        return [
            apply_schema(column.row, position, self._table_columns[position])
            for column, position in zip(merged_columns, positions, strict=True)
        ]

    def top(self, field_id: str, n: int) -> list[tuple[pa.Scalar, int]] | None:
        """Return the n most frequent values with their frequencies, the most frequent first.

        The result is None if no values are known. If the column is fingerprinted, only values that occur at least twice
        are known and returned.
        """
        column = self._column(field_id)
        frequencies = column.repeated if column.frequencies is None else column.frequencies
        if frequencies is None:
            return None
        counts = frequencies.counts.to_numpy()
        order = (-counts).argsort(kind="stable")[:n]
        return list(zip(frequencies.values.take(pa.array(order)), counts[order].tolist(), strict=True))

    def frequencies(self, field_id: str) -> Frequencies | None:
        """Return all values with their frequencies; None if they are not stored."""
        return self._column(field_id).frequencies

    def repeated(self, field_id: str) -> Frequencies | None:
        """Return a fingerprinted column's values that occur in at least two matching rows, with frequencies.

        The result is None if these values are unknown.
        """
        return self._column(field_id).repeated

    def sketch(self, field_id: str) -> tuple[Digest | None, tuple[int, int]] | None:
        """Return (quantile sketch, (number of -inf, number of +inf)); None if no sketch is stored.

        The quantile sketch is None if all values are infinite.
        """
        row = self._column(field_id).row
        digest = None if row.quantile_sketch is None else decode_digest(row.quantile_sketch)
        return with_infinities(digest, row.moments)

    def histogram(self, column: str) -> Histogram | None:
        """Return the histogram of a column, given its dotted path; None if it has none."""
        return self._column(self._table_columns[self.columns[column]].field_id).histogram

    def _column(self, field_id: str) -> _MergedColumn:
        return self._load([column for column in self._table_columns if column.field_id == field_id])[0]

    def _load(self, columns: Sequence[Column]) -> list[_MergedColumn]:
        """Return the merged columns in the order of `columns`.

        All columns that are not cached are read together.
        """
        with self._lock:
            missing_ids = {column.field_id for column in columns} - self._cache.keys()
            if missing_ids:
                missing_columns = [column for column in self._table_columns if column.field_id in missing_ids]
                self._cache |= self._read(
                    list(zip(missing_columns, self._context.policies(missing_columns), strict=True))
                )
            return [self._cache[column.field_id] for column in columns]

    def _read(self, columns: Sequence[ColumnSelection]) -> dict[str, _MergedColumn]:
        """Return the merged statistics of columns, by their field ids."""
        spec = ProfileSpec("", {}, tuple(columns), {})
        filtered_profiles = [] if self._partial is None else self._partial.read(columns, value_union(spec))
        rows = self._merge_states(spec, filtered_profiles)
        enumerated_positions = [
            position for position, (row, _) in enumerate(rows) if row.frequencies == "enumerated" and row.value_count
        ]
        frequencies_of = self._sum_frequencies(spec, enumerated_positions, filtered_profiles)
        merged_columns = {}
        for position, ((column, policy), (row, histogram)) in enumerate(zip(columns, rows, strict=True)):
            frequencies = frequencies_of.get(position)
            if frequencies is not None:
                row = apply_summary(row, summarize_frequencies(frequencies))
                _check_total(self._store, column, row, frequencies)
            repeated_frequencies = None
            if row.frequencies == "repeated":
                fingerprints = [
                    counts for profile in filtered_profiles if (counts := profile.fingerprints[position]) is not None
                ]
                named_row = replace(row, field_id=column.field_id, column=column.path)
                repeated_frequencies = self._fingerprinted.repeated(named_row, fingerprints)
            if repeated_frequencies is not None:
                row = add_repeated_counts(row, repeated_frequencies)
            is_empty = row.frequencies == "enumerated" and not row.value_count
            row = self._context.finalize(row, policy, EMPTY if frequencies is None and is_empty else frequencies)
            histogram_to_show = None if histogram is None else shown_histogram(histogram, row)
            merged_columns[column.field_id] = _MergedColumn(row, histogram_to_show, frequencies, repeated_frequencies)
        return merged_columns

    def _merge_states(
        self, spec: ProfileSpec, filtered_profiles: Sequence[FilteredProfile]
    ) -> list[tuple[ColumnStatistics, Histogram | None]]:
        """Return (statistics, histogram) of each column of a spec, merged from mergeable states.

        Args:
            spec: The columns and their policies.
            filtered_profiles: Profiles of the matching rows of fragments that match partly.
        """
        with StatesReader(self._store) as reader:
            parts = read_states_together(reader, self._profiles, spec)[1] if self._profiles else []
        parts += [profile.states for profile in filtered_profiles]
        if not parts:
            rows = [profile_all_null(column, 0, policy) for column, policy in spec.columns]
            return [(row, None) for row in rows]
        states = merge_states(parts, [column.path for column, _ in spec.columns])
        labels = [(column.path, type_text(column.type)) for column, _ in spec.columns]
        pairs = zip(read_state_rows(states, labels), decode_histograms(states), strict=True)
        return [(finalize_statistics(row), histogram) for row, histogram in pairs]

    def _sum_frequencies(
        self, spec: ProfileSpec, positions: Sequence[int], filtered_profiles: Sequence[FilteredProfile]
    ) -> dict[int, Frequencies]:
        """Return the value counts of columns over all matching rows, by the column's position in the spec.

        The value counts of the stored profiles and of `filtered_profiles` are added up.

        Args:
            spec: The columns and their policies.
            positions: The positions in the spec of the columns whose value counts are returned.
            filtered_profiles: Profiles of the matching rows of fragments that match partly.
        """
        if not positions:
            return {}
        stored_frequencies = sum_column_frequencies(self._store, spec, positions, self._profiles)
        sums = {}
        for position in positions:
            parts = [stored_frequencies[position], *(profile.frequencies[position] for profile in filtered_profiles)]
            sums[position] = sum_frequencies([(part, 1) for part in parts if part is not None])
        return sums


def _check_total(store: ObjectStore, column: Column, row: ColumnStatistics, frequencies: Frequencies) -> None:
    total = sum(frequencies.counts.to_pylist())
    if total != row.value_count:
        raise CorruptionError(
            f"{store.uri()}: the value counts of column {column.path!r} add up to {total} values, and its states have "
            f"{row.value_count}; rebuild them with `metastore refresh NAME --full`"
        )
