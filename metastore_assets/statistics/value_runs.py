"""Runs: parts of a column's values, as distinct values with counts or as one value per row.

The functions count the values of runs, and merge runs block by block. Counts of equal values are added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from metastore_assets.startup import lazy_module

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazy_module("polars")

BLOCK = 1 << 17
"""Approximate number of values in a block. A merge has one block in memory at a time."""
_SAMPLES = 4
_SHORT = 1 << 12
_UNIQUE = 1 << 14
_SAMPLE = 2048
_MAX_SPAN = 2
"""Integers are counted in an array, with an item for each integer of their range, if it has at most this many items
for each integer to count."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ValueRun:
    """Non-null values of a column: ascending distinct values with their counts, or one value per row.

    `values` has integers (for dates, times and decimals, too), doubles, booleans or bytes. Code that computes
    statistics accepts values without counts in any order. `merge_in_blocks` requires ascending values.
    """

    values: pl.Series
    counts: Counts | None
    """How often each value occurs; None if there is one value per row, so that values may repeat."""

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, stop: int) -> ValueRun:
        """Return the values from position `start` up to and excluding `stop`."""
        return ValueRun(
            self.values.slice(start, stop - start), None if self.counts is None else self.counts[start:stop]
        )


@dataclass(frozen=True)
class CountedRun(ValueRun):
    """Ascending distinct values with their counts."""

    counts: Counts


def count_values(values: pl.Series) -> CountedRun:
    """Count the values of a series without nulls.

    NaN equals itself, and -0.0 equals 0.0.
    """
    dense = count_dense(values)
    if dense is not None:
        return dense
    if is_hashed(values):
        table = values.alias("v").to_frame().group_by("v").len()
        order = table["v"].arg_sort()
        return CountedRun(table["v"][order], table["len"][order].cast(pl.Int64).to_numpy())
    return count_sorted(values.sort())


def count_dense(values: pl.Series) -> CountedRun | None:
    """Count 64-bit integers of a narrow range without sorting.

    Returns None for values of other types, for no values, and for a wide range.
    """
    if values.dtype not in (pl.Int64, pl.UInt64) or len(values) == 0:
        return None
    words = values.to_numpy()
    least = words.min()
    span = int(words.max()) - int(least) + 1
    if span > _MAX_SPAN * len(words):
        return None
    counts = np.bincount((words - least).view(np.int64), minlength=span)
    offsets = np.flatnonzero(counts != 0)  # faster than on the integers
    return CountedRun(pl.Series(offsets.astype(words.dtype) + least), counts[offsets])


def is_hashed(values: pl.Series) -> bool:
    """Return whether values are counted faster by hashing than by sorting.

    True for booleans, and for binary values unless `is_mostly_distinct` is true of them.
    """
    return values.dtype in (pl.Binary, pl.Boolean) and not is_mostly_distinct(values)


def count_sorted(values: pl.Series) -> CountedRun:
    """Count the values of an ascending series."""
    runs = values.rle().struct
    return CountedRun(runs.field("value"), runs.field("len").cast(pl.Int64).to_numpy())


def sum_counts(values: pl.Series, counts: Counts) -> CountedRun:
    """Sum the counts of equal values.

    Args:
        values: Values in any order. They may repeat.
        counts: A count for each value, which may be negative.

    Returns:
        The distinct values in ascending order, with their sums. Values with the sum 0 are included.
    """
    if len(values) == 0:
        return CountedRun(values, counts)
    order = _sort_order(values)
    # Indexing a series is a hundred times faster than `gather`, which plans a query.
    values, counts = values[order], counts[order]
    starts = _run_starts(values)
    if len(starts) == len(values):
        return CountedRun(values, counts)
    return CountedRun(values[starts], np.add.reduceat(counts, starts))


def _sort_order(values: pl.Series) -> npt.NDArray[np.intp]:
    """Return the positions of values in ascending order, NaN last: `[1, 2, 0]` for the values 9, 3, 5."""
    if len(values) <= _SHORT:
        if _is_words(values):
            return values.to_numpy().argsort(kind="stable")
        if values.dtype == pl.Binary:
            return np.array(sorted(range(len(values)), key=values.to_list().__getitem__), np.intp)
    return values.arg_sort().to_numpy()


def _is_words(values: pl.Series) -> bool:
    return values.dtype in (pl.Int64, pl.UInt64, pl.Float64)


def _run_starts(values: pl.Series) -> npt.NDArray[np.intp]:
    """Return the position of the first element of each distinct value in a non-empty ascending series."""
    if _is_words(values):
        words = values.to_numpy()
        differs = words[1:] != words[:-1]
        if values.dtype == pl.Float64:
            differs &= ~np.isnan(words[:-1])  # NaN is one value, the last
        return np.concatenate([[0], np.flatnonzero(differs) + 1])
    if len(values) <= _UNIQUE and values.n_unique() == len(values):  # Hashing is less work than runs.
        return np.arange(len(values))
    lengths = values.rle().struct.field("len").cast(pl.Int64).to_numpy()
    return np.cumsum(lengths) - lengths


def merge_runs(runs: Sequence[ValueRun]) -> CountedRun:
    """Merge one or more runs into one run of distinct values."""
    if all(run.counts is None for run in runs) and sum(map(len, runs)) <= 8 * BLOCK:
        return count_values(concatenate_series([run.values for run in runs]))
    counted_runs = [_count_run(run) for run in runs if len(run)]
    if len(counted_runs) == 1:
        return counted_runs[0]
    return sum_counts(
        concatenate_series([run.values for run in counted_runs]), np.concatenate([run.counts for run in counted_runs])
    )


def merge_in_blocks(runs: Sequence[ValueRun]) -> Iterator[CountedRun]:
    """Merge runs of ascending values; yield ascending blocks, each value in one block only.

    No block is empty.

    Only one block is in memory, because one range of values is merged at a time.
    """
    if len(runs) == 1 and runs[0].counts is not None:
        for start in range(0, len(runs[0]), BLOCK):
            yield _count_run(runs[0].part(start, min(start + BLOCK, len(runs[0]))))
        return
    splitters = _choose_splitters(runs)
    cuts = [[0, *run.values.search_sorted(splitters, side="left").to_list(), len(run)] for run in runs]
    for at in range(len(splitters) + 1):
        parts = [run.part(cut[at], cut[at + 1]) for run, cut in zip(runs, cuts, strict=True) if cut[at] < cut[at + 1]]
        if parts:
            yield merge_runs(parts)


def concatenate_series(parts: Sequence[pl.Series]) -> pl.Series:
    """Concatenate series of one type class.

    If any has the dtype Int128, all series are cast to Int128 first.
    """
    if len(parts) == 1:
        return parts[0]
    if any(part.dtype == pl.Int128 for part in parts):
        parts = [part.cast(pl.Int128) for part in parts]
    return pl.concat([part.alias("") for part in parts])


def copy_compact(values: pl.Series) -> pl.Series:
    """Return a copy of binary values that shares no buffer with larger chunks.

    The chunks can then be freed. Values of other types are returned as they are.
    """
    return pl.Series(values.to_arrow(compat_level=pl.CompatLevel.oldest())) if values.dtype == pl.Binary else values


def _count_run(run: ValueRun) -> CountedRun:
    return count_sorted(run.values) if run.counts is None else CountedRun(run.values, run.counts)


def _choose_splitters(runs: Sequence[ValueRun]) -> pl.Series:
    """Return ascending values at which all runs are divided into ranges of about BLOCK values each."""
    step = BLOCK // _SAMPLES
    sample = concatenate_series([run.values.gather_every(step, offset=step - 1) for run in runs]).sort()
    return sample.gather_every(_SAMPLES, offset=_SAMPLES - 1).unique().sort()


def is_mostly_distinct(values: pl.Series) -> bool:
    """Return whether a sample of the values has more than `_SAMPLE / 2` distinct ones.

    The sample has at least `_SAMPLE` values, at equal distances in `values`, and at most 1.5 times as many. The result
    is False for booleans, and for fewer than `2 * _SAMPLE` values.
    """
    if values.dtype == pl.Boolean or len(values) < 2 * _SAMPLE:
        return False
    step = len(values) // _SAMPLE
    return values.gather_every(step).n_unique() > _SAMPLE // 2
