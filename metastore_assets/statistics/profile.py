"""Profiling one column of some rows: everything that statistics, frequencies and histograms hold of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from metastore_assets.config import FREQUENCY_LIMIT, NEAR_UNIQUE_FROM, ResolvedPolicy
from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.column_profiler import ColumnProfiler
from metastore_assets.statistics.counting import ValueCounter
from metastore_assets.statistics.current_schema import value_width
from metastore_assets.statistics.finalize import restrict_to_policy
from metastore_assets.statistics.fingerprints import FingerprintCounts
from metastore_assets.statistics.frequencies import Frequencies, run_to_frequencies
from metastore_assets.statistics.hidden import HiddenValues
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.runs import SortedValues, count_dense, is_mostly_distinct
from metastore_assets.statistics.user_defined.finalize import add_user_results
from metastore_assets.values.leaf_columns import (
    LeafColumn,
    is_list,
    leaf_columns,
    logical_nulls,
    plain_type,
    split_leaves,
)
from metastore_assets.values.types import TypeClass, type_class, type_text

HIDDEN_REASON = "its values are hidden by its policy `values: hidden`; with `shown` a refresh reads them"
"""The reason that is given for columns of which no value may be told."""


@dataclass(frozen=True)
class ColumnProfile:
    """What is known of one leaf column over some rows.

    `frequencies` is there if and only if `statistics.frequencies == "enumerated"`, `prints` if and only if it is
    "repeated"; `histogram` unless the policy says off or the column has no finite number or point in time.
    """

    statistics: ColumnStatistics
    frequencies: Frequencies | None
    histogram: Histogram | None
    fingerprints: FingerprintCounts | None = None
    value_filter: bytes | None = None
    """The filter of the values, where the policy keeps one and they are not listed: else it follows from the list."""


def profile_field(
    field: pa.Field,
    chunks: Iterable[pa.Array],
    policy: Callable[[str], ResolvedPolicy],
    *,
    leaves: Sequence[LeafColumn] | None = None,
) -> list[ColumnProfile]:
    """Profile one top-level column that arrives in chunks: one result per leaf column, in the order of `leaf_columns`.

    `policy` is asked by leaf path. `leaves` replaces `leaf_columns(field)` where paths were made distinct in the whole
    table. Values are listed as the policy says: of `auto`, unless they hardly repeat or are too many; of `enumerated`,
    which is what `auto` was decided to be, unless they are too many for any table; of `repeated` fingerprints are taken
    where they hardly repeat, unless the policy says which. What is not listed is not sorted.

    A leaf of a type that is not profiled, with a value that has no place in its class, or whose values are hidden,
    yields its counts, its lengths if it has any, and the reason; of hidden values also, where the policy has a key, how
    many are distinct, about. Nothing of a column's content raises. `position` is 0 for all: the caller sets it.
    """
    profilers = [_LeafProfiler(leaf, policy(leaf.path)) for leaf in (leaf_columns(field) if leaves is None else leaves)]
    for chunk in chunks:
        for profiler, array in zip(profilers, split_leaves(field, chunk), strict=True):
            profiler.add(array)
    return [profiler.finish() for profiler in profilers]


def profile_all_null(leaf: LeafColumn, row_count: int, policy: ResolvedPolicy) -> ColumnStatistics:
    """The statistics of a column that rows were written without: all null; below lists and maps, no elements at all."""
    profiler = _LeafProfiler(leaf, policy)
    profiler.null_count = 0 if leaf.repeated else row_count
    return profiler.finish().statistics


class _LeafProfiler:
    """Accumulates one leaf column."""

    def __init__(self, leaf: LeafColumn, policy: ResolvedPolicy) -> None:
        self.leaf = leaf
        self._policy = policy
        self._passing: ColumnProfiler | None = None
        """Takes the values in passing, once it is decided that they are not listed."""
        self._judged = False
        self.value_count = self.null_count = 0
        self.reason: str | None = None
        self.type_class: TypeClass | None = None
        self._is_hidden = policy.values == "hidden"
        self._hidden: HiddenValues | None = None
        try:
            cls = type_class(leaf.type)
            if self._is_hidden and policy.hash_key is not None:
                self._hidden = HiddenValues(cls, policy.hash_key)
                self._counter = ValueCounter(cls, self._hidden.take)
            elif not self._is_hidden:
                self.type_class = cls
                self._counter = ValueCounter(cls, self._pass_by)
                if not policy.is_enumerated:
                    self._passing = ColumnProfiler(cls, policy)
        except UnsupportedTypeError as error:
            self.reason = str(error)
        if self._is_hidden:
            self.reason = HIDDEN_REASON
        kind = plain_type(leaf.type)
        self._has_lengths = t.is_map(kind) or is_list(kind) or (self._is_hidden and _is_bytes(kind))
        self._lengths: list[tuple[int, int, int]] = []

    def add(self, array: pa.Array) -> None:
        nulls = _null_count(array)
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
            lengths = _byte_string_lengths(array) if self._is_hidden else _list_lengths(array)
            self._lengths.append((int(lengths.min()), int(lengths.max()), int(lengths.sum())))

    def finish(self) -> ColumnProfile:
        leaf = self.leaf
        row = ColumnStatistics(
            position=0,
            column=leaf.path,
            field_id=leaf.field_id,
            type=type_text(leaf.type),
            type_class=None if self.type_class is None else self.type_class.name,
            value_count=self.value_count,
            null_count=self.null_count,
            reason=self.reason,
        )
        if self.type_class is None:
            return ColumnProfile(self._with_lengths(self._with_distinct(row)), None, None)
        try:
            return self._described(row, self.type_class)
        except UnsupportedTypeError as error:
            return ColumnProfile(replace(row, type_class=None, reason=str(error)), None, None)

    def _with_distinct(self, row: ColumnStatistics) -> ColumnStatistics:
        if self._hidden is None:
            return row
        try:
            for run in self._counter.blocks():
                self._hidden.take(run)
            return self._hidden.finish(row)
        except UnsupportedTypeError:
            return row

    def _described(self, row: ColumnStatistics, cls: TypeClass) -> ColumnProfile:
        blocks = self._counter.blocks()
        describer = self._passing
        kept: list[Frequencies] | None = None
        if describer is None:
            describer, kept = ColumnProfiler(cls, self._policy, self.value_count - self._counter.nan_count), []
            distinct, limited = 0, self._policy.frequencies in ("auto", "enumerated")
            for run in blocks:
                block = run_to_frequencies(run, cls)
                describer.add(block)
                distinct += len(block)
                if limited and distinct > FREQUENCY_LIMIT:
                    kept = None
                if kept is not None:
                    kept.append(block)
        row = describer.finish(row, value_width(self.leaf.type))
        if kept is None:
            policy = self._policy.resolve("estimated") if self._policy.is_enumerated else self._policy
            prints = describer.prints() if policy.is_fingerprinted else None
            row = add_user_results(restrict_to_policy(row, policy), policy)
            return ColumnProfile(row, None, describer.histogram(), prints, describer.membership())
        whole = _joined(kept, cls)
        row = add_user_results(replace(row, frequencies="enumerated"), self._policy, whole)
        return ColumnProfile(row, whole, describer.histogram())

    def _pass_by(self, run: SortedValues) -> bool:
        """Whether these values are not to be counted, but only passed by; then they were."""
        if self._passing is not None:
            self._passing.pass_by(run)
            return True
        cls = self.type_class
        # Of few values nothing is decided yet: what is counted now may be passed by later.
        if cls is None or (self._policy.has_all_values and self._policy.frequencies != "enumerated"):
            return False
        if self._judged or self.value_count <= NEAR_UNIQUE_FROM:
            return False
        if run.counts is not None:
            return False
        self._judged = True
        if not is_mostly_distinct(run.values):
            return False
        # Integers close together are counted sooner than passed by.
        counted, tried = count_dense(run.values), ColumnProfiler(cls, self._policy)
        if counted is None:
            tried.pass_by(run)
        distinct = tried.estimated_distinct() if counted is None else len(counted)
        hardly_repeat = self._policy.is_undecided and 2 * distinct > len(run)
        if not hardly_repeat and (distinct <= FREQUENCY_LIMIT or self._policy.frequencies == "repeated"):
            return False
        if counted is not None:
            tried.pass_by(run)
        self._passing = tried
        return True

    def _with_lengths(self, row: ColumnStatistics) -> ColumnStatistics:
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


def _joined(blocks: Sequence[Frequencies], cls: TypeClass) -> Frequencies:
    if not blocks:
        return Frequencies(pa.nulls(0, cls.arrow), pa.array([], pa.int64()))
    values, counts = [block.values for block in blocks], [block.counts for block in blocks]
    return blocks[0] if len(blocks) == 1 else Frequencies(pa.concat_arrays(values), pa.concat_arrays(counts))


def _null_count(array: pa.Array) -> int:
    """Nulls as a reader of the column sees them: also those that a dictionary, a run or a union holds."""
    if t.is_dictionary(array.type) or t.is_union(array.type):
        return int(pc.sum(logical_nulls(array)).as_py() or 0)
    return array.null_count


def _is_bytes(kind: pa.DataType) -> bool:
    return _is_text(kind) or t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind)


def _is_text(kind: pa.DataType) -> bool:
    return t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind)


def _byte_string_lengths(array: pa.Array) -> np.ndarray:
    """Characters of texts, bytes of binary values, of those that are not null; lists' elements below lists."""
    kind = plain_type(array.type)
    if not _is_bytes(kind):
        return _list_lengths(array)
    large = pa.large_string() if _is_text(kind) else pa.large_binary()
    if t.is_dictionary(array.type):
        values = array.dictionary.cast(large).take(array.indices.drop_null()).drop_null()
    else:
        values = array.cast(large).drop_null()
    return (pc.utf8_length if _is_text(kind) else pc.binary_length)(values).to_numpy()


def _list_lengths(array: pa.Array) -> np.ndarray:
    """Lengths of the lists or maps that are not null."""
    if t.is_map(array.type):
        ends = array.offsets.to_numpy()
        return np.diff(ends)[array.is_valid().to_numpy(zero_copy_only=False)]
    return pc.list_value_length(array).drop_null().to_numpy()
