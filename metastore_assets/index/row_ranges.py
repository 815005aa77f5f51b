"""Ranges of row positions, which select rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
_ROWS_PER_SLICE = 16
"""For at least so many rows per range, slices of a table take less time than the rows one by one."""


@dataclass(frozen=True)
class RowRanges:
    """Ascending, disjoint ranges of rows."""

    starts: Numbers
    """First row of each range."""
    ends: Numbers
    """The row after the last row of each range."""

    @classmethod
    def join(cls, starts: Numbers, ends: Numbers) -> RowRanges:
        """Join adjacent ranges: 0-3 and 3-5 become 0-5.

        The given ranges must be ascending. `ends` are exclusive.
        """
        is_break = starts[1:] != ends[:-1]
        return cls(starts[np.append(True, is_break)[: len(starts)]], ends[np.append(is_break, True)[: len(ends)]])

    @classmethod
    def of_positions(cls, positions: Numbers) -> RowRanges:
        """Return ascending positions as ranges: 1, 2, 3 and 7 become 1-4 and 7-8, with exclusive ends."""
        breaks = np.flatnonzero(np.diff(positions) > 1)
        firsts = np.concatenate([positions[:1], positions[breaks + 1]])
        return cls(firsts, np.concatenate([positions[breaks], positions[-1:]]) + 1)

    @classmethod
    def first(cls, row_count: int) -> RowRanges:
        """Return the range of the first `row_count` rows."""
        return cls(np.zeros(1, np.int64), np.array([row_count], np.int64)) if row_count else cls.concatenate([])

    @classmethod
    def concatenate(cls, parts: Sequence[RowRanges]) -> RowRanges:
        """Return the ranges of all parts, in the order of the parts.

        Each part must start at or after the end of the previous part. This is not checked.
        """
        none = np.zeros(0, np.int64)
        starts, ends = [part.starts for part in parts], [part.ends for part in parts]
        return cls(np.concatenate([none, *starts]), np.concatenate([none, *ends]))

    @property
    def row_count(self) -> int:
        """Number of rows in all ranges."""
        return int((self.ends - self.starts).sum())

    def without(self, positions: Numbers) -> RowRanges:
        """Return the ranges without the rows at some positions.

        Positions outside the ranges are ignored.
        """
        if not len(self.starts) or not len(positions):
            return self
        at = np.searchsorted(self.starts, positions, "right") - 1
        removed_positions = positions[(at >= 0) & (positions < self.ends[at])]
        starts = np.sort(np.concatenate([self.starts, removed_positions + 1]))
        ends = np.sort(np.concatenate([self.ends, removed_positions]))
        is_filled = ends > starts
        return RowRanges(starts[is_filled], ends[is_filled])

    def filter(self, mask: Mask) -> RowRanges:
        """Return the rows for which a mask is true.

        The mask has an item for each row of the ranges.
        """
        return RowRanges.of_positions(self.positions()[mask])

    def within(self, first: int, end: int) -> RowRanges:
        """Return the rows between position `first` (inclusive) and position `end` (exclusive)."""
        low, high = np.searchsorted(self.ends, first, "right"), np.searchsorted(self.starts, end, "left")
        return RowRanges(np.maximum(self.starts[low:high], first), np.minimum(self.ends[low:high], end))

    def shift(self, rows: int) -> RowRanges:
        """Return the ranges with a number added to each position."""
        return RowRanges(self.starts + rows, self.ends + rows)

    def overlaps(self, starts: Numbers, ends: Numbers) -> Mask:
        """Return whether each of the given ranges has a row in common with `self`.

        Args:
            starts: The first row of each given range, ascending.
            ends: For each given range, the row after its last one.
        """
        mask: Mask = np.searchsorted(self.ends, starts, "right") < np.searchsorted(self.starts, ends, "left")
        return mask

    def pack(self, starts: Numbers, ends: Numbers) -> RowRanges:
        """Return where the rows of `self` are in a smaller table: one with only the rows of given ranges.

        Args:
            starts: The first row of each given range, ascending.
            ends: For each given range, the row after its last one. Each row of `self` is in one of the ranges.
        """
        first, end = np.searchsorted(ends, self.starts, "right"), np.searchsorted(starts, self.ends, "left")
        # The given ranges that have rows of a range of `self`, for one range after the other.
        given = RowRanges(first, end).positions()
        part = np.repeat(np.arange(len(first)), end - first)
        sizes = ends - starts
        shifts = (starts - (np.cumsum(sizes) - sizes))[given]
        return RowRanges.join(
            np.maximum(self.starts[part], starts[given]) - shifts, np.minimum(self.ends[part], ends[given]) - shifts
        )

    def take_rows(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table at the positions of `self`."""
        if len(self.starts) * _ROWS_PER_SLICE > self.row_count:
            return table.take(pa.array(self.positions()))
        pairs = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        # Chunks are combined, because a slice keeps all rows of `table` in memory.
        return pa.concat_tables([table.slice(start, end - start) for start, end in pairs]).combine_chunks()

    def windows(self, rows: int) -> Iterator[RowRanges]:
        """Yield the rows at positions 0 to `rows` (exclusive), then `rows` to twice `rows`, and so on.

        Windows without rows are omitted.
        """
        if not len(self.starts):
            return
        spans = RowRanges(self.starts // rows, (self.ends - 1) // rows + 1).positions()
        for span in np.unique(spans).tolist():
            yield self.within(span * rows, (span + 1) * rows)

    def positions(self) -> Numbers:
        """Return the positions of all rows, ascending."""
        counts = self.ends - self.starts
        firsts = np.cumsum(counts) - counts
        return np.repeat(self.starts - firsts, counts) + np.arange(int(counts.sum()))
