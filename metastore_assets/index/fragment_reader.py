"""A reader of the fragment index: it selects all fragments of a version, or those that may match.

A fragment is a data file with its deletes. A segment is a part of the index. `Segments.all` has the readers of all
segments. Each reader reads one or more files of one segment. A zone is a run of consecutive fragments of a segment,
with bounds that cover all of them. A condition is evaluated on groups of zones first, then on the zones of groups that
may match. If necessary, it is then evaluated on the fragments of zones that may match.

A type class is a group of types with one canonical type: int8 and int64 have the class `int64`.

A reading is a generator: in each step, it yields the byte ranges or row groups that it needs next, and is sent the data
(see `store.read_rounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.expressions.row_bounds import ColumnBounds, Mask, RowBounds, RowCounts
from metastore_assets.index.bounded_rows import BoundedRows, concatenate_bounds
from metastore_assets.index.fragment_index import FRAGMENTS
from metastore_assets.index.fragment_segments import (
    DECODING_THREADS,
    ZONES_PER_GROUP,
    FragmentSegment,
    KeySpan,
    Segments,
    Zones,
)
from metastore_assets.index.row_ranges import Numbers, RowRanges
from metastore_assets.storage.parallel import parallel_map
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.read_rounds import Reading
from metastore_assets.store.segments import SegmentFiles
from metastore_assets.values.types import TypeClass

if TYPE_CHECKING:
    from metastore_assets.expressions.predicates import BoundColumn

_WINDOW_ROWS = 1 << 17
"""Number of fragments whose bounds are in memory at once while a condition is evaluated."""
_CACHED_ROWS = 1 << 20
"""Columns of a selection are cached if it has at most this many fragments."""

Condition: TypeAlias = Callable[[BoundedRows], RowBounds]
"""A function that returns the least and the greatest possible number of matching rows of each fragment or zone. If both
are 0 for a zone, no row of its fragments matches. If both are its row count, all rows of its fragments match."""


class IndexReader:
    """A reader of the fragment index of one version.

    The reader opens each file once, on first use. Threads can share the reader. Corrupt files raise CorruptionError.
    """

    def __init__(self, store: ObjectStore, files: SegmentFiles) -> None:
        self._files = files
        self._segments = Segments(store, files)

    @property
    def fragment_count(self) -> int:
        """Number of fragments of the version."""
        return self._files.rows

    @lock_free_cached_property
    def all(self) -> IndexSelection:
        """All fragments of the version.

        Raises CorruptionError if their number differs from `fragment_count`.
        """
        segments = self._segments
        ranges = segments.live_ranges(segments.map(lambda number, segment: segment.all_rows))
        selection = IndexSelection(segments, ranges)
        if selection.fragment_count != self._files.rows:
            raise CorruptionError(
                f"{segments.store.uri()}: the index files have {selection.fragment_count:,} rows, and the version "
                f"{self._files.rows:,}; rebuild with `metastore refresh NAME --full`"
            )
        return selection

    def find(self, keys: Collection[str]) -> IndexSelection:
        """Return the fragments with the given keys (see `store.version.fragment_key`).

        Unknown keys are ignored.
        """
        sorted_keys = pa.array(sorted(keys), pa.large_string())

        ranges = self._segments.map(
            lambda number, segment: RowRanges.of_positions(segment.find_rows(sorted_keys, segment.all_rows))
        )
        return IndexSelection(self._segments, self._segments.live_ranges(ranges))

    def select(self, columns: Sequence[BoundColumn], condition: Condition) -> tuple[IndexSelection, BoundedRows]:
        """Return the fragments that may match a condition, and bounds of columns in them.

        In each segment, the condition is evaluated on the zones, then on the fragments of the zones that may match.
        In three cases, the fragments are not evaluated:

        - All rows match in each zone that may match. All fragments of these zones are returned, with the bounds of
          their zones.
        - The zones that may match have at most `_WINDOW_ROWS` fragments together. All of these fragments are returned,
          even if their own bounds exclude a match.
        - The segment has no zones. All of its fragments are returned, even if their own bounds exclude a match.

        Args:
            columns: The columns of the condition.
            condition: The condition.
        """
        segments = self._segments
        zones = _match_zones(segments, columns, condition)
        live = segments.live_ranges([matching.ranges for matching in zones])
        parts = segments.read(
            sum(part.row_count for part in live),
            lambda number, segment: _selection_reading(segment, zones[number], live[number], columns, condition),
        )
        selection = IndexSelection(segments, [part.ranges for part in parts], [part.fragments for part in parts])
        return selection, concatenate_bounds(columns, [part.rows for part in parts])

    def exact_row_count(self, columns: Sequence[BoundColumn], condition: Condition) -> int | None:
        """Return the exact number of rows that match a condition, if it is known.

        The result is None in these cases:

        - The bounds of a zone leave open whether all or none of its rows match. In a segment without zones, the bounds
          of a fragment leave it open.
        - A segment may remove or replace fragments of an older one.
        - A part of a segment was already merged into an older one.

        Args:
            columns: The columns of the condition.
            condition: The condition.
        """
        segments = self._segments
        removed_keys = segments.removed_keys(segments.map(lambda number, segment: segment.all_rows))
        if any(map(len, removed_keys)) or any(segment.first_row for segment in segments.all):
            return None
        candidates = _candidate_zones(segments, columns, condition)

        def reading(number: int, segment: FragmentSegment) -> Reading[BoundedRows]:
            """Return a reading of the bounds of zones, or of fragments in a segment without zones."""
            candidate = candidates[number]
            if candidate is not None:
                return candidate.rows
            return (yield from segment.bounds_reading(columns, segment.all_rows))

        rows = concatenate_bounds(columns, segments.read(0, reading))
        matching = condition(rows)
        is_certain = (matching.least == matching.most) & ((matching.most == 0) | (matching.most == rows.row_counts))
        return int(matching.most.sum()) if bool(is_certain.all()) else None


@dataclass(frozen=True)
class _MatchingZones:
    """The rows of one segment in zones that may match a condition."""

    ranges: RowRanges
    """The positions of the rows, including rows that are not live."""
    zones: Zones | None = None
    """All zones of the segment; None if it has none."""
    numbers: Numbers | None = None
    """The positions in `zones` of the zones that may match; None if the segment has no zones."""
    is_full: bool = False
    """Whether all table rows in the fragments of `ranges` match."""


def _match_zones(segments: Segments, columns: Sequence[BoundColumn], condition: Condition) -> list[_MatchingZones]:
    """Return, for each reader in `segments.all`, the zones that may match a condition, with their rows.

    If a reader has no zones, its result has all of its rows.
    """
    candidates = _candidate_zones(segments, columns, condition)
    rows = [candidate.rows for candidate in candidates if candidate is not None]
    row_bounds = iter(_evaluate(columns, rows, condition))
    results = []
    for segment, candidate in zip(segments.all, candidates, strict=True):
        if candidate is None:
            results.append(_MatchingZones(segment.all_rows))
            continue
        zones, matching = candidate.zones, next(row_bounds)
        may_match = matching.most > 0
        is_full = bool((matching.least == candidate.rows.row_counts)[may_match].all())
        numbers = candidate.numbers[may_match]
        ranges = RowRanges.join(zones.starts[numbers], zones.ends[numbers])
        if len(numbers) and (first := segment.first_row):
            ranges = ranges.within(first, segment.row_count)
        results.append(_MatchingZones(ranges, zones, numbers, is_full))
    return results


@dataclass(frozen=True)
class _CandidateZones:
    """All zones of one segment, and the positions and bounds of those that may match a condition."""

    zones: Zones
    """All zones of the segment."""
    numbers: Numbers
    """The positions of the candidates in `zones`."""
    rows: BoundedRows
    """The bounds of the candidates."""


def _candidate_zones(
    segments: Segments, columns: Sequence[BoundColumn], condition: Condition
) -> list[_CandidateZones | None]:
    """Return, for each reader in `segments.all`, its zones, and which of them may match a condition.

    The condition is evaluated only on groups of zones. If a group may match, each of its zones counts as one that may
    match. The result is None for a reader without zones.
    """
    all_zones = segments.read(0, lambda number, segment: segment.zones_reading(columns))
    groups = iter(_evaluate(columns, [zones.groups for zones in all_zones if zones is not None], condition))
    candidates: list[_CandidateZones | None] = []
    for zones in all_zones:
        if zones is None:
            candidates.append(None)
            continue
        numbers = _zones_of_groups(next(groups).most > 0, len(zones.ends))
        candidates.append(_CandidateZones(zones, numbers, _take(zones.rows, numbers)))
    return candidates


def _evaluate(columns: Sequence[BoundColumn], parts: Sequence[BoundedRows], condition: Condition) -> list[RowBounds]:
    """Return, for each part, bounds on the number of matching rows of each of its fragments or zones.

    All parts are evaluated at once, because an evaluation takes about a quarter of a millisecond, even of few rows.
    """
    if not parts:
        return []
    bounds = condition(concatenate_bounds(columns, parts))
    ends = np.cumsum([len(part.row_counts) for part in parts]).tolist()
    return [RowBounds(bounds.least[start:end], bounds.most[start:end]) for start, end in pairwise([0, *ends])]


def _selection_reading(
    segment: FragmentSegment,
    matching: _MatchingZones,
    live: RowRanges,
    columns: Sequence[BoundColumn],
    condition: Condition,
) -> Reading[_SelectedRows]:
    """Return a reading of the fragments of one segment that may match a condition.

    `IndexReader.select` says which fragments are evaluated.

    Args:
        segment: The segment.
        matching: Its zones that may match.
        live: The live rows of these zones: those that no newer segment removed or replaced.
        columns: The columns of the condition.
        condition: The condition.
    """
    if not live.row_count and matching.zones is not None:
        return _SelectedRows(live, _take(matching.zones.rows, np.zeros(0, np.int64)))
    if matching.is_full and matching.zones is not None and matching.numbers is not None:
        # Paths are requested next. One request per row group reads both.
        names = ("row_count", "path") if live.row_count <= _WINDOW_ROWS else ("row_count",)
        fragments = yield from segment.fragments_reading(names, live)
        zones = matching.zones
        zone_of_row = matching.numbers[np.searchsorted(zones.ends[matching.numbers], live.positions(), "right")]
        rows = _bounds_of_zones(zones.rows, zone_of_row, fragments["row_count"].to_numpy())
        return _SelectedRows(live, rows, fragments)
    if matching.zones is None or live.row_count <= _WINDOW_ROWS:
        return _SelectedRows(live, (yield from segment.bounds_reading(columns, live)))
    return _SelectedRows(*_filter_windows(segment, live, columns, condition))


@dataclass(frozen=True)
class _SelectedRows:
    """The selected fragments of one segment."""

    ranges: RowRanges
    """The positions of the fragments in the segment."""
    rows: BoundedRows
    """Bounds of columns in the fragments."""
    fragments: pa.Table | None = None
    """Columns of FRAGMENTS that were read; None if none were."""


class IndexSelection:
    """Selected fragments of an index.

    Columns are read on request. All results have the fragments in the same order.
    """

    def __init__(
        self, segments: Segments, ranges: Sequence[RowRanges], fragments: Sequence[pa.Table | None] | None = None
    ) -> None:
        """Select fragments by their positions in each segment.

        Args:
            segments: The segments.
            ranges: For each reader in `segments.all`, the positions of the selected fragments. They must be live: not
                removed or replaced by a newer segment. This is not checked.
            fragments: For each of these readers, a table of its selected fragments with columns of the schema
                `FRAGMENTS`; None if it was not read.
        """
        self._segments = segments
        self._ranges = ranges
        self._read = [None] * len(ranges) if fragments is None else fragments
        self._fragments: dict[tuple[str, ...], pa.Table] = {}

    @property
    def is_sorted(self) -> bool:
        """Whether the selected fragments are certainly sorted by key.

        The selection lists the fragments of one reader after the other. The fragments of one reader are sorted. So all
        are sorted if the last key in the files of each reader is less than the first key in those of the next reader.
        """
        spans = [
            spans
            for segment, part in zip(self._segments.all, self._ranges, strict=True)
            if (spans := segment.key_spans(part))
        ]
        return all(_ends_before(first[-1], second[0]) for first, second in pairwise(spans))

    @lock_free_cached_property
    def fragment_count(self) -> int:
        """Number of selected fragments."""
        return sum(part.row_count for part in self._ranges)

    def fragments(self, columns: Sequence[str] = ("bytes", "row_count")) -> pa.Table:
        """Return the named columns of the schema FRAGMENTS, with a row for each selected fragment."""
        key = tuple(columns)
        table = self._fragments.get(key)
        if table is None:
            parts = self._segments.read(
                self.fragment_count, lambda number, segment: self._fragments_reading(number, segment, key)
            )
            schema = pa.schema([FRAGMENTS.field(name) for name in key])
            table = pa.concat_tables([schema.empty_table(), *parts])
            if len(table) <= _CACHED_ROWS:
                table = self._fragments.setdefault(key, table)
        return table

    def _fragments_reading(self, number: int, segment: FragmentSegment, columns: Sequence[str]) -> Reading[pa.Table]:
        read = self._read[number]
        if read is not None and set(columns) <= set(read.column_names):
            return read.select(list(columns))
        return (yield from segment.fragments_reading(columns, self._ranges[number]))

    def column(self, field_id: str, cls: TypeClass | None) -> pa.Table:
        """Return the counts and bounds of a column, with a row per selected fragment.

        The result has the columns `null_count`, `nan_count`, `minimum` and `maximum`. Unknown values are null.

        Args:
            field_id: Field id of the column.
            cls: The type class of the bounds to return; None for a column without one, such as a struct. Bounds of
                classes that the column had before may be stored, too. They are not returned.
        """
        return pa.concat_tables(
            self._segments.read(
                self.fragment_count,
                lambda number, segment: segment.column_reading(field_id, cls, self._ranges[number]),
            )
        )

    def bounds(self, columns: Sequence[BoundColumn]) -> BoundedRows:
        """Return the row counts of the selected fragments, and bounds of columns in them."""
        parts = self._segments.read(
            self.fragment_count, lambda number, segment: segment.bounds_reading(columns, self._ranges[number])
        )
        return concatenate_bounds(columns, parts)


def _filter_windows(
    segment: FragmentSegment, ranges: RowRanges, columns: Sequence[BoundColumn], condition: Condition
) -> tuple[RowRanges, BoundedRows]:
    """Return the fragments in `ranges` that may match a condition, and bounds of `columns` in them.

    Fragments are read in windows, a few windows in parallel. So memory holds only matching fragments and a few windows.
    """

    def evaluate(window: RowRanges) -> tuple[RowRanges, BoundedRows]:
        rows = segment.bounds(columns, window)
        mask = condition(rows).most > 0
        return (window, rows) if mask.all() else (window.filter(mask), _take(rows, np.flatnonzero(mask)))

    results = parallel_map(evaluate, ranges.windows(_WINDOW_ROWS), DECODING_THREADS)
    return RowRanges.concatenate([part for part, _ in results]), concatenate_bounds(
        columns, [rows for _, rows in results]
    )


def _ends_before(first: KeySpan, second: KeySpan) -> bool:
    """Return whether the last key of one file is certainly less than the first key of another.

    Each file is given by its first and last key. The result is False if a needed key is unknown.
    """
    last, start = first[1], second[0]
    return last is not None and start is not None and last < start


def _zones_of_groups(mask: Mask, zones: int) -> Numbers:
    """Return the positions of the zones that belong to the selected groups.

    Args:
        mask: For each group, whether it is selected.
        zones: The number of zones of all groups. The last group may have fewer than `ZONES_PER_GROUP`.
    """
    numbers: Numbers = np.flatnonzero(np.repeat(mask, ZONES_PER_GROUP)[:zones])
    return numbers


def _bounds_of_zones(zones: BoundedRows, at: Numbers, row_counts: RowCounts) -> BoundedRows:
    """Return bounds of fragments, derived from the bounds of their zones.

    Args:
        zones: The zones.
        at: The position in `zones` of each fragment's zone.
        row_counts: The row count of each fragment.
    """
    columns = {}
    for field_id, bounds in zones.columns.items():
        nulls, nans = (
            _counts_of_zones(counts, zones.row_counts, at, row_counts) for counts in (bounds.nulls, bounds.nans)
        )
        minimum, maximum = bounds.minimum.take(pa.array(at)), bounds.maximum.take(pa.array(at))
        columns[field_id] = ColumnBounds(row_counts, nulls, nans, minimum, maximum)
    return BoundedRows(row_counts, columns)


def _counts_of_zones(counts: RowBounds, zone_row_counts: RowCounts, at: Numbers, row_counts: RowCounts) -> RowBounds:
    """Return bounds on the null or NaN counts of fragments, derived from those of their zones.

    Args:
        counts: Bounds on the null or NaN count of each zone.
        zone_row_counts: The row count of each zone.
        at: The position of each fragment's zone among the zones.
        row_counts: The row count of each fragment.
    """
    if not counts.most.any():
        zeros = np.zeros_like(row_counts)
        return RowBounds(zeros, zeros)
    return RowBounds(
        np.where((counts.least == zone_row_counts)[at], row_counts, 0), np.minimum(counts.most[at], row_counts)
    )


def _take(rows: BoundedRows, at: Numbers) -> BoundedRows:
    """Return the fragments or zones at the given positions, which are ascending and distinct."""
    if len(at) == len(rows.row_counts):
        return rows
    row_counts, indices = rows.row_counts[at], pa.array(at)
    columns = {
        field_id: ColumnBounds(
            row_counts,
            _take_counts(bounds.nulls, at),
            _take_counts(bounds.nans, at),
            bounds.minimum.take(indices),
            bounds.maximum.take(indices),
        )
        for field_id, bounds in rows.columns.items()
    }
    return BoundedRows(row_counts, columns)


def _take_counts(counts: RowBounds, at: Numbers) -> RowBounds:
    least = counts.least[at]
    return RowBounds(least, least if counts.most is counts.least else counts.most[at])
