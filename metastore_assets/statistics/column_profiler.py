"""Profilers, which compute all statistics of one column from blocks of its values.

A block has values with their counts. `ColumnProfiler` takes sorted or unsorted blocks. `HiddenColumnProfiler` takes
values that the policy hides, and computes only their distinct count and a hash. `profile_frequencies` computes the
statistics of a column from its value counts.

The *policy* of a column decides which of its statistics and values are stored, and whether its values are hidden.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from metastore_assets.config import ResolvedPolicy
from metastore_assets.statistics.blocks import ValueBlock, sorted_block, unsorted_block
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.current_schema import value_width
from metastore_assets.statistics.distinct import (
    EMPTY_SKETCH,
    distinct_sketch,
    estimate_distinct,
    merge_distinct_sketches,
)
from metastore_assets.statistics.fingerprints import EMPTY as NO_FINGERPRINTS
from metastore_assets.statistics.fingerprints import FingerprintCounter, FingerprintCounts
from metastore_assets.statistics.frequencies import Frequencies, count_nan
from metastore_assets.statistics.hashing import Words
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.interface import BuiltinStatistic, ColumnContext, Fold
from metastore_assets.statistics.keyed_hashing import hash_with_key
from metastore_assets.statistics.multiset_hash import add_multiset_hashes, multiset_hash, multiset_hash_of_nulls
from metastore_assets.statistics.registry import BUILTIN_STATISTICS, DISTINCT_COUNT, HISTOGRAM, QUANTILES
from metastore_assets.statistics.value_filter import build_filter
from metastore_assets.statistics.value_runs import BLOCK, ValueRun
from metastore_assets.values.columns import Column
from metastore_assets.values.types import TypeClass, class_named, type_text


class ColumnProfiler:
    """A profiler that computes all built-in statistics of a column from blocks of its values.

    Pass all values to `add`, sorted and counted, or all values to `add_unsorted`, in any order. Only `add` gives exact
    distinct counts, duplicate counts and percentiles.
    """

    def __init__(self, column: Column, cls: TypeClass, policy: ResolvedPolicy, rank_count: int = 0) -> None:
        """Start with no values.

        Args:
            column: The column.
            cls: The column's type class.
            policy: What to store of the column.
            rank_count: The number of values that will be added, without NaN. `add` computes the ranks of percentiles
                from it; `add_unsorted` ignores it.
        """
        self._cls = cls
        self._policy = policy
        context = ColumnContext(cls, policy, value_width(column.type), rank_count)
        self._states: dict[BuiltinStatistic[Any], Any] = {
            statistic: statistic.initial(context)
            for statistic in BUILTIN_STATISTICS
            if statistic.applies_to(cls, policy)
        }
        self._fingerprints: FingerprintCounter | None = None
        self._filter_hashes: list[Words] = []
        """Distinct hashes of each block, if the policy stores a value filter."""

    def add(self, frequencies: Frequencies) -> None:
        """Add the next values in ascending order, each with the number of all of its occurrences.

        Raises:
            UnsupportedTypeError: A string is not UTF-8.
        """
        self._update(sorted_block(frequencies))

    def add_unsorted(self, run: ValueRun) -> None:
        """Add some of the values in any order: one per row, or distinct values with their counts.

        Raises:
            UnsupportedTypeError: A string is not UTF-8.
        """
        if self._fingerprints is None and self._policy.frequencies == "repeated":
            self._fingerprints = FingerprintCounter()
        for start in range(0, len(run), BLOCK):
            self._update(unsorted_block(run.part(start, min(start + BLOCK, len(run))), self._cls))

    def fingerprints(self) -> FingerprintCounts:
        """Return the fingerprints (48-bit hashes) of all values that were added unsorted, with their counts.

        The result is empty unless the policy is `frequencies: repeated`.
        """
        return NO_FINGERPRINTS if self._fingerprints is None else self._fingerprints.total()

    def value_filter(self) -> bytes | None:
        """Return the encoded value filter, a set of short hashes.

        The result is None if the policy stores no filter, or if there are no values.
        """
        return build_filter(np.concatenate(self._filter_hashes)) if self._filter_hashes else None

    def histogram(self) -> Histogram | None:
        """Return the histogram.

        The result is None if the policy stores none, or if there are no finite numbers, dates or times.
        """
        state = self._states.get(HISTOGRAM)
        return None if state is None else state.histograms.total()

    def estimate_distinct(self) -> int:
        """Return the estimated number of distinct values so far."""
        return self._states[DISTINCT_COUNT].estimate()  # type: ignore[no-any-return]

    def finish(self, row: ColumnStatistics) -> ColumnStatistics:
        """Return the column's row with all statistics of the added values.

        Call it only once.

        If values were added unsorted, percentiles are missing: `restrict_to_policy` estimates them.

        Args:
            row: The row, with only the numbers of the column's values and nulls.
        """
        fields: dict[str, Any] = {}
        for statistic, state in self._states.items():
            fields |= statistic.to_fields(state, row)
        row = replace(row, **fields)
        derived_statistics: dict[str, Any] = {}
        for statistic in self._states:
            # `restrict_to_policy` would discard percentiles that are estimated here.
            if statistic is not QUANTILES:
                derived_statistics |= statistic.finalize(row)
        return replace(row, **derived_statistics)

    def _update(self, block: ValueBlock) -> None:
        for statistic, state in self._states.items():
            self._states[statistic] = statistic.update(state, block)
        if self._fingerprints is not None:
            self._fingerprints.add(block.hashes[0], block.counts)
        if self._policy.has_value_filter:
            self._filter_hashes.append(np.unique(block.hashes[0]))


class HiddenColumnProfiler:
    """A profiler of a column with hidden values, which computes only distinct count and multiset hash.

    Both are computed from hashes under a secret key, so nobody without the key can test whether a value occurs.
    """

    def __init__(self, cls: TypeClass, key: bytes) -> None:
        self._class = cls
        self._key = key
        self._sketches: Fold[bytes] = Fold(merge_distinct_sketches)
        self._hashes: Fold[bytes] = Fold(add_multiset_hashes)

    def add_unsorted(self, run: ValueRun) -> None:
        """Add some of the values in any order: one per row, or distinct values with their counts."""
        for start in range(0, len(run), BLOCK):
            block = unsorted_block(run.part(start, min(start + BLOCK, len(run))), self._class)
            hashes = hash_with_key(block.hashes, self._key)
            self._sketches.add(distinct_sketch(hashes[0]))
            self._hashes.add(multiset_hash(hashes, block.counts))

    def finish(self, row: ColumnStatistics) -> ColumnStatistics:
        """Return the column's row with the estimated distinct count and the multiset hash.

        Call it only once.

        Args:
            row: The row, with only the numbers of the column's values and nulls.
        """
        self._hashes.add(multiset_hash_of_nulls(row.null_count))
        sketch = self._sketches.total() or EMPTY_SKETCH
        return replace(
            row,
            distinct_count=max(1, min(estimate_distinct(sketch), row.value_count)) if row.value_count else 0,
            distinct_count_guarantee="estimate" if row.value_count else "exact",
            distinct_sketch=sketch,
            multiset_hash=self._hashes.total(),
        )


def profile_frequencies(
    column: Column, policy: ResolvedPolicy, type_class: str, null_count: int, frequencies: Frequencies
) -> tuple[ColumnStatistics, Histogram | None]:
    """Compute (statistics with their mergeable states, histogram) of a column from its value counts.

    The histogram is None if the policy stores none, or if there are no finite numbers, dates or times.

    Args:
        column: The column.
        policy: What to store of the column.
        type_class: Name of the column's type class.
        null_count: Number of nulls in the column.
        frequencies: All distinct values of the column with their counts.
    """
    value_count = sum(frequencies.counts.to_numpy().tolist())
    profiler = ColumnProfiler(column, class_named(type_class), policy, value_count - count_nan(frequencies))
    if len(frequencies):
        profiler.add(frequencies)
    row = ColumnStatistics(
        position=0,
        column=column.path,
        field_id=column.field_id,
        type=type_text(column.type),
        type_class=type_class,
        value_count=value_count,
        null_count=null_count,
        frequencies="enumerated",
    )
    return profiler.finish(row), profiler.histogram()
