"""Readers of the fragment index of a version: all fragments, or those that may match a condition."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.expressions.predicates import BoundColumn
from metastore_assets.expressions.row_bounds import ColumnBounds, Mask, RowBounds
from metastore_assets.index.fragment_segments import BoundedRows, Segments
from metastore_assets.index.fragments import FRAGMENTS
from metastore_assets.storage.io_counters import IoCountingThreadPool
from metastore_assets.store.blocks import BLOCK_ROWS, RowRanges
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import SegmentFiles
from metastore_assets.values.types import TypeClass

_WINDOW_ROWS = 64 * BLOCK_ROWS
"""Number of fragments whose bounds are in memory at once while a condition is evaluated."""
_CACHED_ROWS = 1 << 20
"""Maximum number of rows whose columns are cached."""
_THREADS = min(4, os.cpu_count() or 1)

Numbers = npt.NDArray[np.int64]
MayMatch: TypeAlias = Callable[[BoundedRows], Mask]
"""Returns for each set of rows whether a row of it may match a condition. If no row of a set may match, then no row of
a part of the set may match."""


class IndexReader:
    """A reader of the fragment index of one version.

    The reader opens each file once, on first use. Threads can share the reader. Corrupt files raise CorruptionError.
    """

    def __init__(self, store: ObjectStore, files: SegmentFiles) -> None:
        self._files = files
        self._segments = Segments(store, files.files)

    @property
    def fragment_count(self) -> int:
        """Number of fragments of the version."""
        return self._files.rows

    @lock_free_cached_property
    def all(self) -> IndexSelection:
        """The selection of all fragments. Raises CorruptionError if files have other fragments than the version."""
        selection = IndexSelection(self._segments, [segment.all_rows for segment in self._segments.all])
        if selection.fragment_count != self._files.rows:
            raise CorruptionError(
                f"{self._segments.store.uri()}: the index files have {selection.fragment_count:,} rows, and the "
                f"version {self._files.rows:,}; rebuild with `metastore refresh NAME --full`"
            )
        return selection

    def select(self, columns: Sequence[BoundColumn], may_match: MayMatch) -> tuple[IndexSelection, BoundedRows]:
        """Return the fragments that may match a condition, with bounds of columns.

        The condition is evaluated on zones (runs of fragments), and then on the fragments of zones that may match. If
        these are few, all of them are returned.

        Args:
            columns: The columns of the condition.
            may_match: The condition.
        """
        zones = self._segments.map(lambda segment: segment.zones(columns))
        if all(segment_zones is None for segment_zones in zones):
            selection = self.all
        else:
            ranges = [
                segment.all_rows
                if segment_zones is None
                else RowRanges.of_runs(segment_zones[0], may_match(segment_zones[1]))
                for segment, segment_zones in zip(self._segments.all, zones, strict=True)
            ]
            selection = IndexSelection(self._segments, ranges)
        if selection.fragment_count <= _WINDOW_ROWS:
            return selection, selection.bounds(columns)
        return selection.filter(columns, may_match)


class IndexSelection:
    """Some fragments of an index. Their columns are read on request, and always in the same order."""

    def __init__(self, segments: Segments, ranges: Sequence[RowRanges]) -> None:
        """Select the live rows in ranges of each segment."""
        self._segments = segments
        self._ranges = [
            part.without(positions) if len(positions) else part
            for part, positions in zip(ranges, segments.dead, strict=True)
        ]
        self._fragments: dict[tuple[str, ...], pa.Table] = {}

    @property
    def is_sorted(self) -> bool:
        """Whether the fragments are sorted by their keys. Otherwise only those of each segment are."""
        return sum(part.row_count > 0 for part in self._ranges) < 2

    @lock_free_cached_property
    def fragment_count(self) -> int:
        """Number of selected fragments."""
        return sum(part.row_count for part in self._ranges)

    def fragments(self, columns: Sequence[str] = ("bytes", "row_count")) -> pa.Table:
        """Return some of the columns of FRAGMENTS, with a row for each selected fragment."""
        key = tuple(columns)
        table = self._fragments.get(key)
        if table is None:
            parts = self._segments.map(lambda segment: segment.fragments(key, self._ranges[segment.number]))
            schema = pa.schema([FRAGMENTS.field(name) for name in key])
            table = pa.concat_tables([schema.empty_table(), *parts])
            if len(table) <= _CACHED_ROWS:
                table = self._fragments.setdefault(key, table)
        return table

    def column(self, field_id: str, cls: TypeClass | None) -> pa.Table:
        """Return `null_count`, `nan_count`, `minimum` and `maximum` of a column in each selected fragment, as stored.

        Args:
            field_id: Field id of the column.
            cls: The current type class of the column's values; None if the column has no values.
        """
        return pa.concat_tables(
            self._segments.map(lambda segment: segment.column(field_id, cls, self._ranges[segment.number]))
        )

    def bounds(self, columns: Sequence[BoundColumn]) -> BoundedRows:
        """Return the row counts of the selected fragments, and bounds of columns in them."""
        parts = self._segments.map(lambda segment: segment.bounds(columns, self._ranges[segment.number]))
        return _concatenate(columns, parts)

    def filter(self, columns: Sequence[BoundColumn], may_match: MayMatch) -> tuple[IndexSelection, BoundedRows]:
        """Return the selected fragments that may match a condition, with bounds of columns.

        A window of fragments at a time is in memory. The arguments are those of `IndexReader.select`.
        """
        windows = [
            (number, window) for number, part in enumerate(self._ranges) for window in part.windows(_WINDOW_ROWS)
        ]

        def evaluate(window: tuple[int, RowRanges]) -> tuple[RowRanges, BoundedRows]:
            number, ranges = window
            rows = self._segments.all[number].bounds(columns, ranges)
            mask = may_match(rows)
            return (ranges, rows) if mask.all() else (ranges.filter(mask), _filter(rows, mask))

        with IoCountingThreadPool(_THREADS) as threads:
            results = list(threads.map(evaluate, windows))
        ranges = [
            RowRanges.concatenate([part for (at, _), (part, _) in zip(windows, results, strict=True) if at == number])
            for number in range(len(self._ranges))
        ]
        return IndexSelection(self._segments, ranges), _concatenate(columns, [rows for _, rows in results])


def _filter(rows: BoundedRows, mask: Mask) -> BoundedRows:
    row_counts, arrow_mask = rows.row_counts[mask], pa.array(mask)
    columns = {
        field_id: replace(
            bounds,
            rows=row_counts,
            nulls=_filter_counts(bounds.nulls, mask),
            nans=_filter_counts(bounds.nans, mask),
            minimum=bounds.minimum.filter(arrow_mask),
            maximum=bounds.maximum.filter(arrow_mask),
        )
        for field_id, bounds in rows.columns.items()
    }
    return BoundedRows(row_counts, columns)


def _filter_counts(counts: RowBounds, mask: Mask) -> RowBounds:
    least = counts.least[mask]
    return RowBounds(least, least if counts.most is counts.least else counts.most[mask])


def _concatenate(columns: Sequence[BoundColumn], parts: Sequence[BoundedRows]) -> BoundedRows:
    """Return the rows of several parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    row_counts = _concatenate_counts([part.row_counts for part in parts])
    joined = {}
    for column in columns:
        bounds = [part.columns[column.field_id] for part in parts]
        nulls, nans = (
            RowBounds(
                _concatenate_counts([side.least for side in sides]), _concatenate_counts([side.most for side in sides])
            )
            for sides in ([part.nulls for part in bounds], [part.nans for part in bounds])
        )
        empty = pa.nulls(0, pa.null() if column.cls is None else column.cls.arrow)
        minimum, maximum = (
            pa.concat_arrays([empty, *sides])
            for sides in ([part.minimum for part in bounds], [part.maximum for part in bounds])
        )
        joined[column.field_id] = ColumnBounds(row_counts, nulls, nans, minimum, maximum)
    return BoundedRows(row_counts, joined)


def _concatenate_counts(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate([np.zeros(0, np.int64), *parts])
