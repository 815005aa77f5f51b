"""Counting the distinct values of a column that arrives in chunks, in memory of the distinct values' size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from pyarrow import types as t

from metastore_assets.statistics.physical import physical_series
from metastore_assets.statistics.types import TypeClass

_PENDING_ROWS = 1 << 20
_PENDING_BYTES = 64 << 20
_SAMPLE = 2048


@dataclass(frozen=True)
class Run:
    """Distinct physical values in ascending order, without nulls, and how often each occurs."""

    values: pl.Series
    counts: npt.NDArray[np.int64]


class ValueCounter:
    """Counts the values of one column, chunk by chunk.

    Chunks wait until a million rows or 64 MB are together, then become one sorted run; runs of similar size are
    merged, as in a log-structured merge tree. So a huge column of few values stays small, and a column of distinct
    values costs O(n log n) and about three times its own size at the peak.
    """

    def __init__(self, cls: TypeClass) -> None:
        self._class = cls
        self._pending: list[pl.Series] = []
        self._rows = 0
        self._buffers: dict[int, int] = {}
        self._runs: list[Run] = []

    def add(self, array: pa.Array) -> None:
        """Count the values of one chunk. Raises UnsupportedTypeError when one has no place in its class."""
        if t.is_dictionary(array.type) and len(array.dictionary) < len(array):
            self._push(_count_dictionary(array, self._class))
            return
        series = physical_series(array, self._class)
        if len(series) == 0:
            return
        self._pending.append(series)
        self._rows += len(series)
        # Chunks may be slices of one large array: what they share is held once.
        self._buffers.update((buffer.address, buffer.size) for buffer in array.buffers() if buffer is not None)
        if self._rows >= _PENDING_ROWS or sum(self._buffers.values()) >= _PENDING_BYTES:
            self._flush()

    def finish(self) -> Run | None:
        """The counts of all values added, or None when there were none. The counter is empty afterwards."""
        pending, runs = self._take_pending(), self._runs
        self._runs = []
        if pending:
            runs.append(count(_concatenated(pending)))
        return merge_runs(runs) if runs else None

    def _flush(self) -> None:
        run = count(_concatenated(self._take_pending()))
        self._push(Run(_compact(run.values), run.counts))

    def _take_pending(self) -> list[pl.Series]:
        pending, self._pending, self._rows, self._buffers = self._pending, [], 0, {}
        return pending

    def _push(self, run: Run) -> None:
        if len(run.values) == 0:
            return
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2].values) < 2 * len(self._runs[-1].values):
            right, left = self._runs.pop(), self._runs.pop()
            self._runs.append(merge_runs([left, right]))


def count(values: pl.Series) -> Run:
    """The distinct values of a series without nulls and their counts; NaN equal to itself, -0.0 equal to 0.0."""
    if values.dtype in (pl.Binary, pl.Boolean) and not _mostly_distinct(values):
        # Hashing beats sorting as long as values repeat; for numbers polars' sort is as fast as its hashing.
        table = values.alias("v").to_frame().group_by("v").len()
        order = table["v"].arg_sort()
        return Run(table["v"].gather(order), table["len"].gather(order).cast(pl.Int64).to_numpy())
    runs = values.sort().rle().struct
    return Run(runs.field("value"), runs.field("len").cast(pl.Int64).to_numpy())


def merge_runs(runs: Sequence[Run]) -> Run:
    """One run with the counts of equal values added up. The values of each may be in any order and repeat."""
    if len(runs) == 1:
        return runs[0]
    values = _concatenated([run.values for run in runs])
    return sum_counts(values, np.concatenate([run.counts for run in runs]))


def sum_counts(values: pl.Series, counts: npt.NDArray[np.int64]) -> Run:
    """The run of values that each come with a count, of either sign. A value whose counts cancel keeps its 0."""
    if len(values) == 0:
        return Run(values, counts)
    order = values.arg_sort()
    values, counts = values.gather(order), counts[order.to_numpy()]
    lengths = values.rle().struct.field("len").cast(pl.Int64).to_numpy()
    starts = np.cumsum(lengths) - lengths
    return Run(values.gather(starts), np.add.reduceat(counts, starts))


def _count_dictionary(array: pa.DictionaryArray, cls: TypeClass) -> Run:
    indices = array.indices.drop_null().cast(pa.int64()).to_numpy()
    counts = np.bincount(indices, minlength=len(array.dictionary)).astype(np.int64)
    # Entries that are null or unused are no values; entries may repeat, which merging settles.
    used = np.flatnonzero((counts > 0) & array.dictionary.is_valid().to_numpy(zero_copy_only=False))
    positions = pa.array(used)
    values = physical_series(pa.DictionaryArray.from_arrays(positions, array.dictionary), cls)
    return sum_counts(values, counts[used])


def _concatenated(parts: Sequence[pl.Series]) -> pl.Series:
    if len(parts) == 1:
        return parts[0]
    if any(part.dtype == pl.Int128 for part in parts):
        parts = [part.cast(pl.Int128) for part in parts]
    return pl.concat([part.alias("") for part in parts])


def _mostly_distinct(values: pl.Series) -> bool:
    if values.dtype == pl.Boolean or len(values) < 2 * _SAMPLE:
        return False
    step = len(values) // _SAMPLE
    return values.gather_every(step).n_unique() > _SAMPLE // 2


def _compact(values: pl.Series) -> pl.Series:
    """The same values without hold on the buffers of the chunks they came from."""
    return pl.Series(values.to_arrow(compat_level=pl.CompatLevel.oldest())) if values.dtype == pl.Binary else values
