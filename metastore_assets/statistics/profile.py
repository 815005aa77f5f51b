"""Profiling of a top-level column: statistics, frequencies, histograms, fingerprints, value filters.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type.

The *policy* of a column decides which of its statistics and values are stored, and whether its values are hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from metastore_assets.config import FREQUENCY_LIMIT, NEAR_UNIQUE_ABOVE, ResolvedPolicy
from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.column_profiler import ColumnProfiler, HiddenColumnProfiler
from metastore_assets.statistics.counting import ValueCounter
from metastore_assets.statistics.finalize import restrict_to_policy
from metastore_assets.statistics.fingerprints import FingerprintCounts
from metastore_assets.statistics.frequencies import Frequencies, run_to_frequencies
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.user_defined.finalize import add_user_results
from metastore_assets.statistics.value_runs import ValueRun, count_dense, is_mostly_distinct
from metastore_assets.values.columns import Column, field_columns, is_list, logical_nulls, plain_type, split_columns
from metastore_assets.values.types import TypeClass, is_byte_string, is_text, type_class, type_text

HIDDEN_REASON = "its values are hidden by its policy `values: hidden`; with `shown` a refresh reads them"
"""The reason in the statistics of columns whose values are hidden."""


@dataclass(frozen=True)
class ColumnProfile:
    """Statistics, frequencies, histogram, fingerprints and value filter of a column over some rows."""

    statistics: ColumnStatistics
    frequencies: Frequencies | None
    """All values with their counts; None unless `statistics.frequencies` is "enumerated"."""
    histogram: Histogram | None
    """The histogram; None if the policy stores none, or the column has no finite number or point in time."""
    fingerprints: FingerprintCounts | None = None
    """Fingerprints (48-bit hashes) of all values with their counts; None unless `statistics.frequencies` is "repeated".
    """
    value_filter: bytes | None = None
    """The encoded value filter, a set of short hashes. None if the policy stores none, if `frequencies` replace it, or
    if there are no values."""


def profile_field(
    field: pa.Field,
    chunks: Iterable[pa.Array],
    policy: Callable[[str], ResolvedPolicy],
    *,
    columns: Sequence[Column] | None = None,
) -> list[ColumnProfile]:
    """Profile one top-level column that arrives in chunks.

    To enumerate the values of a column means to sort them, and to store each distinct value with its count. Whether
    this is done depends on the policy's `frequencies`:

    - `all` and `top(n)`: always.
    - `off` and `estimated`: never.
    - `auto`: unless the values hardly repeat, or too many are distinct.
    - `enumerated` (it replaces `auto` for a column whose values were enumerated earlier): unless too many are distinct.
    - `repeated` with `algorithm: auto`: unless the values hardly repeat. If they hardly repeat,
      fingerprints (hashes) are stored instead.
    - `repeated` with `algorithm: fingerprints`: never. Fingerprints are stored.
    - `repeated` with another `algorithm`: always.

    A column has only counts, lengths, and the reason why the rest is missing, in three cases: its type is not profiled,
    a value does not fit its type class, or its values are hidden. A text that is not UTF-8 does not fit. If the policy
    has a key for hashes, hidden values of a profiled type also give a distinct count and a multiset hash. No content of
    a column raises an error.

    Args:
        field: The top-level column.
        chunks: The values of the column, in one chunk or more.
        policy: A function that returns the policy of a column, given its path.
        columns: The top-level column and the columns that it contains, with their paths in the table. If None, the
            result of `field_columns(field)`.

    Returns:
        A profile for the top-level column and for each column that it contains, in the order of `field_columns`. The
        statistics in each profile have the `position` 0, which the caller replaces.
    """
    profilers = [
        _ChunkProfiler(column, policy(column.path)) for column in (field_columns(field) if columns is None else columns)
    ]
    for chunk in chunks:
        for profiler, array in zip(profilers, split_columns(field, chunk), strict=True):
            profiler.add(array)
    return [profiler.finish() for profiler in profilers]


def profile_all_null(column: Column, row_count: int, policy: ResolvedPolicy) -> ColumnStatistics:
    """Return the statistics of a column over rows whose files lack the column: all values are null.

    A column inside a list or a map has no values and no nulls, because the list or map is null.

    Args:
        column: The column.
        row_count: Number of rows.
        policy: What to store of the column.
    """
    profiler = _ChunkProfiler(column, policy)
    profiler.null_count = 0 if column.repeated else row_count
    return profiler.finish().statistics


class _ChunkProfiler:
    """A profiler of one column: `add` takes chunks of its values, and `finish` returns its profile."""

    def __init__(self, column: Column, policy: ResolvedPolicy) -> None:
        """Start with no values.

        The attribute `reason` says why statistics of the column are missing; None if they are not. It is set here if
        the column's type is not profiled, or if the policy hides the values.
        """
        self.column = column
        self._policy = policy
        self._unsorted: ColumnProfiler | None = None
        """The profiler of values that are not enumerated; None while values are counted."""
        self._is_decided = False
        self.value_count = self.null_count = 0
        self.reason: str | None = None
        self.type_class: TypeClass | None = None
        self._is_hidden = policy.values == "hidden"
        self._hidden: HiddenColumnProfiler | None = None
        try:
            cls = type_class(column.type)
            if self._is_hidden and policy.hash_key is not None:
                self._hidden = HiddenColumnProfiler(cls, policy.hash_key)
                self._counter = ValueCounter(cls, self._add_hidden)
            elif not self._is_hidden:
                self.type_class = cls
                self._counter = ValueCounter(cls, self._add_unsorted)
                if not policy.is_enumerated:
                    self._unsorted = ColumnProfiler(column, cls, policy)
        except UnsupportedTypeError as error:
            self.reason = str(error)
        if self._is_hidden:
            self.reason = HIDDEN_REASON
        kind = plain_type(column.type)
        self._has_lengths = t.is_map(kind) or is_list(kind) or (self._is_hidden and is_byte_string(kind))
        self._lengths: list[tuple[int, int, int]] = []
        """Minimum, maximum and sum of the lengths in each chunk."""

    def add(self, array: pa.Array) -> None:
        """Add the next chunk of values.

        Once a value was out of range of the type class, such as a decimal of more than 38 digits, the profile has no
        statistics of values. Only the numbers of values and nulls, and the lengths, are then updated.
        """
        nulls = _count_nulls(array)
        self.null_count += nulls
        self.value_count += len(array) - nulls
        if self.type_class is not None:
            try:
                self._counter.add(array)
            except UnsupportedTypeError as error:
                self.reason, self.type_class = str(error), None
            return
        if self._hidden is not None:
            try:
                self._counter.add(array)
            except UnsupportedTypeError:
                self._hidden = None
        if self._has_lengths and nulls < len(array):
            lengths = _hidden_lengths(array) if self._is_hidden else _list_lengths(array)
            self._lengths.append((int(lengths.min()), int(lengths.max()), int(lengths.sum())))

    def finish(self) -> ColumnProfile:
        """Return the profile of all added values.

        Its statistics have the `position` 0. The caller replaces it by the position of the column in its table.
        """
        column = self.column
        row = ColumnStatistics(
            position=0,
            column=column.path,
            field_id=column.field_id,
            type=type_text(column.type),
            type_class=None if self.type_class is None else self.type_class.name,
            value_count=self.value_count,
            null_count=self.null_count,
            reason=self.reason,
        )
        if self.type_class is None:
            return ColumnProfile(self._with_lengths(self._with_distinct_count(row)), None, None)
        try:
            return self._profile_values(row, self.type_class)
        except UnsupportedTypeError as error:
            return ColumnProfile(replace(row, type_class=None, reason=str(error)), None, None)

    def _with_distinct_count(self, row: ColumnStatistics) -> ColumnStatistics:
        """Return `row` with distinct count and multiset hash, if the column's values are hidden.

        A row of shown values is returned unchanged. So is a row of hidden values if the policy has no key for hashes,
        or if the type or a value cannot be hashed.
        """
        if self._hidden is None:
            return row
        try:
            for run in self._counter.blocks():
                self._hidden.add_unsorted(run)
            return self._hidden.finish(row)
        except UnsupportedTypeError:
            return row

    def _profile_values(self, row: ColumnStatistics, cls: TypeClass) -> ColumnProfile:
        """Return the profile of a column that has a type class, so that more than its counts can be computed.

        The profile has all values with their frequencies, except in two cases:

        - The values were passed unsorted to a `ColumnProfiler`, instead of being counted.
        - There are more than `FREQUENCY_LIMIT` distinct values, and `frequencies` of the policy is `auto` or
          `enumerated`.
        """
        runs = self._counter.blocks()
        profiler = self._unsorted
        blocks: list[Frequencies] | None = None
        if profiler is None:
            rank_count = self.value_count - self._counter.nan_count
            profiler, blocks = ColumnProfiler(self.column, cls, self._policy, rank_count), []
            distinct_count, is_limited = 0, self._policy.frequencies in ("auto", "enumerated")
            for run in runs:
                block = run_to_frequencies(run, cls)
                profiler.add(block)
                distinct_count += len(block)
                if is_limited and distinct_count > FREQUENCY_LIMIT:
                    blocks = None
                if blocks is not None:
                    blocks.append(block)
        row = profiler.finish(row)
        if blocks is None:
            policy = self._policy.resolve("estimated") if self._policy.is_enumerated else self._policy
            fingerprints = profiler.fingerprints() if policy.is_fingerprinted else None
            row = add_user_results(restrict_to_policy(row, policy), policy)
            return ColumnProfile(row, None, profiler.histogram(), fingerprints, profiler.value_filter())
        frequencies = _concatenate(blocks, cls)
        row = add_user_results(replace(row, frequencies="enumerated"), self._policy, frequencies)
        return ColumnProfile(row, frequencies, profiler.histogram())

    def _add_hidden(self, run: ValueRun) -> bool:
        assert self._hidden is not None
        self._hidden.add_unsorted(run)
        return True

    def _add_unsorted(self, run: ValueRun) -> bool:
        """Pass a batch to the profiler of unsorted values, or leave it to the caller, which counts values.

        The policy may prescribe one of these for all batches. Otherwise, batches are left to the caller until one batch
        decides. If it is passed on, all later batches are passed on, too; if not, none is. The deciding batch is the
        first one that meets two conditions:

        - More than `NEAR_UNIQUE_ABOVE` values have been added so far.
        - The values of the batch are not counted yet: `run.counts` is None.

        The deciding batch is passed on if it has too many distinct values: depending on the policy, more than half of
        its values, or more than `FREQUENCY_LIMIT`.

        Returns:
            True if the batch was passed on; False if its values are to be counted.
        """
        if self._unsorted is not None:
            self._unsorted.add_unsorted(run)
            return True
        cls = self.type_class
        if cls is None or (self._policy.has_all_values and self._policy.frequencies != "enumerated"):
            return False
        if self._is_decided or self.value_count <= NEAR_UNIQUE_ABOVE or run.counts is not None:
            return False
        self._is_decided = True
        if not is_mostly_distinct(run.values):
            return False
        # Counting integers that lie close together is faster than adding them unsorted.
        counted_run, profiler = count_dense(run.values), ColumnProfiler(self.column, cls, self._policy)
        if counted_run is None:
            profiler.add_unsorted(run)
        distinct_count = profiler.estimate_distinct() if counted_run is None else len(counted_run)
        hardly_repeats = self._policy.is_undecided and 2 * distinct_count > len(run)
        if not hardly_repeats and (distinct_count <= FREQUENCY_LIMIT or self._policy.frequencies == "repeated"):
            return False
        if counted_run is not None:
            profiler.add_unsorted(run)
        self._unsorted = profiler
        return True

    def _with_lengths(self, row: ColumnStatistics) -> ColumnStatistics:
        """Return the row with the statistics of lengths of lists, maps, or hidden strings or bytes.

        Any other row is returned unchanged: `LengthStatistics` computes the lengths of values that are not hidden.
        """
        if not self._has_lengths or not self._lengths:
            return replace(row, total_length=0) if self._has_lengths else row
        total = sum(each[2] for each in self._lengths)
        return replace(
            row,
            minimum_length=min(each[0] for each in self._lengths),
            maximum_length=max(each[1] for each in self._lengths),
            mean_length=total / self.value_count,
            total_length=total,
        )


def _concatenate(blocks: Sequence[Frequencies], cls: TypeClass) -> Frequencies:
    if not blocks:
        return Frequencies(pa.nulls(0, cls.arrow), pa.array([], pa.int64()))
    values, counts = [block.values for block in blocks], [block.counts for block in blocks]
    return blocks[0] if len(blocks) == 1 else Frequencies(pa.concat_arrays(values), pa.concat_arrays(counts))


def _count_nulls(array: pa.Array) -> int:
    """Return the number of nulls, including those inside a dictionary or a union."""
    if t.is_dictionary(array.type) or t.is_union(array.type):
        return int(pc.sum(logical_nulls(array)).as_py() or 0)
    return array.null_count


def _hidden_lengths(array: pa.Array) -> np.ndarray:
    """Return the lengths of a hidden column's values that are not null.

    The length of a string is in characters, that of a binary value in bytes, and that of a list or map in elements.
    """
    kind = plain_type(array.type)
    if not is_byte_string(kind):
        return _list_lengths(array)
    large = pa.large_string() if is_text(kind) else pa.large_binary()
    if t.is_dictionary(array.type):
        values = array.dictionary.cast(large).take(array.indices.drop_null()).drop_null()
    else:
        values = array.cast(large).drop_null()
    return (pc.utf8_length if is_text(kind) else pc.binary_length)(values).to_numpy()


def _list_lengths(array: pa.Array) -> np.ndarray:
    """Return the lengths of the lists or maps that are not null."""
    if t.is_map(array.type):
        ends = array.offsets.to_numpy()
        return np.diff(ends)[array.is_valid().to_numpy(zero_copy_only=False)]
    return pc.list_value_length(array).drop_null().to_numpy()
