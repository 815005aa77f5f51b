"""A counter of the values of a column that arrives in chunks.

It needs little more memory than the values.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.startup import lazy_module
from metastore_assets.statistics.value_runs import (
    CountedRun,
    Counts,
    ValueRun,
    concatenate_series,
    copy_compact,
    count_dense,
    count_sorted,
    count_values,
    is_hashed,
    merge_in_blocks,
    merge_runs,
    sum_counts,
)
from metastore_assets.values.physical import physical_series
from metastore_assets.values.types import TypeClass

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazy_module("polars")

_PENDING_ROWS = 1 << 20
_PENDING_BYTES = 64 << 20


class ValueCounter:
    """A counter of the values of one column, which arrive in chunks.

    Buffered values that repeat become a run: distinct values with counts. Runs of similar size are merged, as in a
    log-structured merge tree, so a huge column of few values needs little memory. Values that hardly repeat are sorted,
    and merged only at the end, block by block.
    """

    def __init__(self, cls: TypeClass, consume: Callable[[ValueRun], bool] = lambda run: False) -> None:
        """Start with no values.

        Args:
            cls: The type class of the column.
            consume: A function that receives each batch before this object stores it. If the function returns True,
                the batch is not stored, and all values that were stored before are passed to the function, too. From
                then on, the function must return True for every batch; this is not checked.
        """
        self._class = cls
        self._consume = consume
        self._pending: list[pl.Series] = []
        self._rows = 0
        self._entries: list[tuple[pl.Series, Counts]] = []
        """For each dictionary array, (values, counts) of its used entries. Several arrays may have the same value."""
        self._entry_bytes = 0
        self._buffers: dict[int, int] = {}
        self._repeating: list[CountedRun] = []
        self._distinct: list[ValueRun] = []
        self.nan_count = 0

    def add(self, array: pa.Array) -> None:
        """Add the values of one chunk.

        Nulls are ignored.

        Raises UnsupportedTypeError if a value is out of range of the column's type class.
        """
        if t.is_dictionary(array.type) and 2 * len(array.dictionary) < len(array):
            self._add_entries(*_used_entries(array, self._class), array.dictionary.nbytes)
            return
        series = physical_series(array, self._class)
        if len(series) == 0:
            return
        if series.dtype == pl.Float64:
            self.nan_count += int(np.isnan(series.to_numpy()).sum())
        self._pending.append(series)
        self._rows += len(series)
        # Chunks may be slices of one large array. Shared buffers count once.
        self._buffers.update((buffer.address, buffer.size) for buffer in array.buffers() if buffer is not None)
        if self._rows >= _PENDING_ROWS or sum(self._buffers.values()) >= _PENDING_BYTES:
            self._flush()

    def blocks(self) -> Iterator[CountedRun]:
        """Yield the distinct values with their counts, in blocks of ascending values.

        No block is empty.

        If `consume` (see `__init__`) has taken the values, nothing is yielded, because none are counted here.
        """
        self._flush_entries()
        last = concatenate_series(self._take_pending()) if self._pending else None
        if last is not None and self._offer(ValueRun(last, None)):
            last = None
        runs: list[ValueRun] = [*self._distinct, *self._repeating]
        if last is not None:
            runs.append(count_values(last))
        self._distinct, self._repeating = [], []
        return merge_in_blocks(runs) if runs else iter(())

    def _add_entries(self, values: pl.Series, counts: Counts, size: int) -> None:
        """Buffer values of dictionary entries with their counts.

        If many are buffered, convert them to a run.

        Args:
            values: The values of the entries.
            counts: How often each entry occurs.
            size: The size of the dictionary in bytes.
        """
        if self._class.kind == "float":
            self.nan_count += int(counts[np.isnan(values.to_numpy())].sum())
        self._entries.append((values, counts))
        self._entry_bytes += size
        if self._entry_bytes >= _PENDING_BYTES or sum(len(values) for values, _ in self._entries) >= _PENDING_ROWS:
            self._flush_entries()

    def _flush_entries(self) -> None:
        """Convert the buffered dictionary entries to one run, with the sum of the counts of each value.

        Pass the run to `consume`. If `consume` returns False, store the run.
        """
        if not self._entries:
            return
        values, counts = (
            concatenate_series([entries for entries, _ in self._entries]),
            np.concatenate([n for _, n in self._entries]),
        )
        self._entries, self._entry_bytes = [], 0
        run = sum_counts(values, counts)
        if not self._offer(run):
            self._push(CountedRun(copy_compact(run.values), run.counts))

    def _offer(self, run: ValueRun) -> bool:
        """Pass a run to the function `consume`, and return its answer: whether it takes the run.

        If it does, the caller need not store the run. All runs that were stored before are then passed to `consume`,
        too, and removed from this object.
        """
        if not self._consume(run):
            return False
        for counted_run in (*self._distinct, *self._repeating):
            self._consume(counted_run)
        self._distinct, self._repeating = [], []
        return True

    def _flush(self) -> None:
        """Pass the buffered values to `consume`.

        If `consume` returns False, store the values as one run.

        If at most half of the values are distinct, the stored run has the distinct values with counts. Otherwise, the
        stored run has all values, sorted.
        """
        values = concatenate_series(self._take_pending())
        if self._offer(ValueRun(values, None)):
            return
        run = count_dense(values)
        ascending = None if run is not None or is_hashed(values) else values.sort()
        if run is None:
            run = count_values(values) if ascending is None else count_sorted(ascending)
        if 2 * len(run) <= len(values):
            self._push(CountedRun(copy_compact(run.values), run.counts))
        else:
            self._distinct.append(ValueRun(copy_compact(values.sort() if ascending is None else ascending), None))

    def _take_pending(self) -> list[pl.Series]:
        pending, self._pending, self._rows, self._buffers = self._pending, [], 0, {}
        return pending

    def _push(self, run: CountedRun) -> None:
        """Store a run of counted values, and merge it with stored runs that are less than twice as long."""
        if len(run) == 0:
            return
        self._repeating.append(run)
        while len(self._repeating) > 1 and len(self._repeating[-2]) < 2 * len(self._repeating[-1]):
            last, previous = self._repeating.pop(), self._repeating.pop()
            merged_run = merge_runs([previous, last])
            self._repeating.append(CountedRun(copy_compact(merged_run.values), merged_run.counts))


def _used_entries(array: pa.DictionaryArray, cls: TypeClass) -> tuple[pl.Series, Counts]:
    """Return (values, counts) of the dictionary entries that occur in the array.

    Equal entries are not combined.
    """
    indices = array.indices.drop_null().cast(pa.int64()).to_numpy()
    counts = np.bincount(indices, minlength=len(array.dictionary)).astype(np.int64)
    # Null entries and unused entries are no values.
    used_indices = np.flatnonzero((counts > 0) & array.dictionary.is_valid().to_numpy(zero_copy_only=False))
    return physical_series(pa.DictionaryArray.from_arrays(pa.array(used_indices), array.dictionary), cls), counts[
        used_indices
    ]
