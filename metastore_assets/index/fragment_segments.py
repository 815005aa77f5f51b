"""The segments of a fragment index: readers of their files. `Segments` determines which rows are live.

Each row of a segment is one fragment. It is live if no newer segment removed or replaced it. A zone is a run of rows
with bounds that cover all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.expressions.row_bounds import ColumnBounds, RowBounds, RowCounts
from metastore_assets.index.flat_columns import SIDES, bound_column, count_column, field_ids_of, flat_columns
from metastore_assets.index.fragments import FRAGMENTS, KEY, IndexRows, join_keys
from metastore_assets.index.row_ranges import Numbers, RowRanges
from metastore_assets.index.zones import summarize_zones
from metastore_assets.statistics.union import select_class
from metastore_assets.storage.io_counters import IoCountingThreadPool
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import SharedParquet, parquet_errors
from metastore_assets.store.sections import SectionReader
from metastore_assets.store.segments import ROWS, TOMBSTONES, SegmentFile, SegmentFiles
from metastore_assets.values.physical import one_chunk
from metastore_assets.values.types import TypeClass, class_named

if TYPE_CHECKING:
    from metastore_assets.expressions.predicates import BoundColumn

ZONES = "zones"
"""Name of the section with the zones of a large segment. Its key columns are null except in the first zone of each row
group, which has the key of its first fragment."""
ZONES_PER_GROUP = 64
"""Number of consecutive zones in a group. A condition is evaluated on groups first, then on the zones of groups that
may match."""
_CACHED_ZONES = 16
"""Maximum number of columns whose zones are cached."""
_DIRECT_ROWS = 1 << 14
"""To find keys among at most this many rows, all of their keys are read. Among more rows, only some row groups are
read."""
_SPARSE = 16
"""Row counts of at most one in 16 fragments are read from the file of fragments, whose row groups are small; those of
more from the file of columns."""
_READERS = 32
_PARALLEL_ROWS = 100_000
"""Local files are read in parallel if at least this many rows are read. For fewer rows, threads take more time."""

Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True)
class BoundedRows:
    """The row counts of fragments, or of zones of fragments, and bounds of columns in each of them."""

    row_counts: RowCounts
    """The number of rows of each fragment or zone."""
    columns: Mapping[str, ColumnBounds]
    """The bounds of the requested columns, by field id."""


@dataclass(frozen=True)
class Zones:
    """The zones of a segment, with bounds of columns. Conditions are evaluated on groups of zones first."""

    starts: Numbers
    """The position of the first fragment of each zone."""
    ends: Numbers
    """The position after the last fragment of each zone."""
    rows: BoundedRows
    """Bounds of each zone."""
    groups: BoundedRows
    """Bounds of each group of `ZONES_PER_GROUP` zones. The last group may have fewer zones."""


class Segments:
    """The segments of an index, the oldest first, and which of their rows are live. Threads can share it."""

    def __init__(self, store: ObjectStore, files: Sequence[SegmentFile]) -> None:
        self.store = store
        self.all = [open_segment(store, segment) for segment in SegmentFiles(0, tuple(files)).segments]

    def map(self, read: Callable[[int, FragmentSegment], Result]) -> list[Result]:
        """Return `read(number, segment)` for each segment. Calls run in parallel for a remote store."""
        return map_parallel(lambda item: read(*item), list(enumerate(self.all)), is_parallel=self.store.is_remote)

    @lock_free_cached_property
    def removed(self) -> list[pa.Array]:
        """For each segment, the sorted keys that newer segments removed or replaced.

        All other rows of the segment are live. Some of the keys may not occur in the segment.
        """
        if len(self.all) < 2:
            return [NO_KEYS] * len(self.all)
        tombstones = self.map(lambda number, segment: segment.tombstones if number else NO_KEYS)
        removed: list[pa.Array] = []
        newer = NO_KEYS
        for segment_tombstones in reversed(tombstones):
            removed.append(newer)
            if len(segment_tombstones):
                newer = sorted_keys([newer, segment_tombstones])
        return removed[::-1]

    def live_ranges(self, number: int, ranges: RowRanges) -> RowRanges:
        """Return the live rows of a segment among those in `ranges`."""
        removed = self.removed[number]
        return ranges.without(self.all[number].find_rows(removed, ranges)) if len(removed) else ranges


_RECENT_READS = 4
"""Number of reads of a small segment whose columns stay in memory."""


class FragmentSegment(ABC):
    """One segment of the index, whose files are opened on first use."""

    def __init__(self, store: ObjectStore, files: Sequence[SegmentFile]) -> None:
        self._store = store
        self._files = files
        self.uri = store.uri(files[0].path)

    @property
    @abstractmethod
    def row_count(self) -> int:
        """Number of rows, including rows that are not live."""

    @property
    @abstractmethod
    def flat_schema(self) -> pa.Schema:
        """The columns that `read` can return: those of FRAGMENTS, and flat columns."""

    @abstractmethod
    def read(self, names: Sequence[str], ranges: RowRanges) -> pa.Table:
        """Return columns of the rows in `ranges`. Columns that the segment does not have are omitted."""

    def zones(self, columns: Sequence[BoundColumn]) -> Zones | None:
        """Return the zones of the segment, with bounds of columns; None if the segment has no zones."""
        return None

    def find_rows(self, keys: pa.Array, ranges: RowRanges) -> Numbers:
        """Return the positions, ascending, of the rows in `ranges` that have one of the keys. `keys` is sorted."""
        table = self.read(KEY, ranges)
        mask = pc.is_in(join_keys(table), value_set=keys).to_numpy(zero_copy_only=False)
        return ranges.positions()[mask]

    @lock_free_cached_property
    def main(self) -> SectionReader:
        """The first file of the segment, opened on first use."""
        return SectionReader(self._store, self._files[0].path, self._files[0].footer_bytes)

    @lock_free_cached_property
    def tombstones(self) -> pa.Array:
        """The keys of fragments that the segment removes or replaces, sorted."""
        return join_keys(self._read_section(TOMBSTONES, KEY))

    @property
    def all_rows(self) -> RowRanges:
        """The range of all rows, including rows that are not live."""
        return RowRanges.first(self.row_count)

    @lock_free_cached_property
    def field_ids(self) -> frozenset[str]:
        """The field ids of the columns that the segment has."""
        return frozenset(field_ids_of(self.flat_schema.names))

    def fragments(self, columns: Sequence[str], ranges: RowRanges) -> pa.Table:
        """Return some columns of the schema `FRAGMENTS`, for the fragments in the rows `ranges`."""
        return self.read(columns, ranges).select(list(columns))

    def bounds(self, columns: Sequence[BoundColumn], ranges: RowRanges) -> BoundedRows:
        """Return the row counts of the fragments in `ranges`, and bounds of columns in them."""
        names = [name for column in columns for name in flat_columns(column.field_id, column.cls)]
        table = self.read(["row_count", *names], ranges)
        return BoundedRows(
            table["row_count"].to_numpy(), {column.field_id: _column_bounds(table, column) for column in columns}
        )

    def column(self, field_id: str, cls: TypeClass | None, ranges: RowRanges) -> pa.Table:
        """Return `null_count`, `nan_count`, `minimum` and `maximum` of a column in each fragment of `ranges`.

        Unknown values are null. `cls` is the type class of the bounds; None if the column has no values.
        """
        table = self.read(["row_count", *flat_columns(field_id, cls)], ranges)
        zeros = pa.array(np.zeros(len(table), np.int64))
        has_column = count_column(field_id, "null_count") in table.column_names
        counts = [
            table[name] if name in table.column_names else default
            for name, default in (
                (count_column(field_id, "null_count"), table["row_count"]),
                (count_column(field_id, "nan_count"), pa.nulls(len(table), pa.int64()) if has_column else zeros),
            )
        ]
        sides = [_side(table, field_id, side, cls) for side in SIDES]
        return pa.table([*counts, *sides], names=["null_count", "nan_count", *SIDES])

    def _read_section(self, name: str, columns: Sequence[str]) -> pa.Table:
        try:
            return self.main.read_section(name, columns=list(columns))
        except KeyError as error:
            raise self._missing(error) from error

    def _missing(self, error: KeyError) -> CorruptionError:
        return CorruptionError(f"{self.uri} has no section {error}; rebuild with `metastore refresh NAME --full`")


class SmallSegment(FragmentSegment):
    """A segment of one file with the sections `rows` and `column <field id>`."""

    @property
    def row_count(self) -> int:
        return self._section_rows(ROWS)

    @lock_free_cached_property
    def flat_schema(self) -> pa.Schema:
        fields = [*FRAGMENTS]
        classes = [class_named(field.name) for field in self.main.schema.field("minimum").type]
        for section in self.main.sections:
            if section not in (ROWS, TOMBSTONES):
                field_id = section.removeprefix("column ")
                fields += [pa.field(count_column(field_id, name), pa.int64()) for name in ("null_count", "nan_count")]
                fields += [pa.field(bound_column(field_id, side, cls), cls.arrow) for side in SIDES for cls in classes]
        return pa.schema(fields)

    def read(self, names: Sequence[str], ranges: RowRanges) -> pa.Table:
        stored = tuple(name for name in names if name in self._stored_columns)
        table = self._recent.get(stored)
        if table is None:
            table = self._recent[stored] = self._read_columns(stored)
            for earliest in list(self._recent)[:-_RECENT_READS]:
                self._recent.pop(earliest, None)
        with parquet_errors(self.uri):
            return table if ranges.row_count == len(table) else table.take(pa.array(ranges.positions()))

    @lock_free_cached_property
    def _recent(self) -> dict[tuple[str, ...], pa.Table]:
        """The last columns that were read, by their names."""
        return {}

    def _read_columns(self, names: Sequence[str]) -> pa.Table:
        sections = list(dict.fromkeys(self._stored_columns[name][0] for name in names))
        physical = list(dict.fromkeys(self._stored_columns[name][1] for name in names))
        try:
            tables = self.main.read_sections(sections, physical)
        except KeyError as error:
            raise self._missing(error) from error
        with parquet_errors(self.uri):
            return pa.table(
                {
                    name: _physical_column(tables[self._stored_columns[name][0]], self._stored_columns[name][1])
                    for name in names
                }
            )

    def index_rows(self, removed: pa.Array) -> IndexRows:
        """Return the rows whose keys are not in `removed`."""
        tables = self.main.read_sections(list(self.main.sections))
        with parquet_errors(self.uri):
            fragments = tables[ROWS].select(FRAGMENTS.names)
            mask = pc.invert(pc.is_in(join_keys(fragments), value_set=removed)) if len(removed) else None
            bounds = ["null_count", "nan_count", *SIDES]
            columns = {
                section.removeprefix("column "): tables[section].select(bounds)
                for section in tables
                if section not in (ROWS, TOMBSTONES)
            }
        if mask is None:
            return IndexRows(fragments, columns)
        return IndexRows(fragments.filter(mask), {name: table.filter(mask) for name, table in columns.items()})

    @lock_free_cached_property
    def _stored_columns(self) -> dict[str, tuple[str, str]]:
        """For each flat column, the section that stores it and its name in that section."""
        stored = {name: (ROWS, name) for name in FRAGMENTS.names}
        for name in self.flat_schema.names[len(FRAGMENTS) :]:
            parts = 1 if name.endswith("_count") else 2
            section, *path = name.rsplit(".", parts)
            stored[name] = section, ".".join(path)
        return stored

    def _section_rows(self, name: str) -> int:
        try:
            return self.main.sections[name].row_count
        except KeyError as error:
            raise self._missing(error) from error


@dataclass(frozen=True)
class _CachedZones:
    """The zones of a segment, with bounds of recently requested columns. `starts` and `ends` are those of `Zones`."""

    starts: Numbers
    ends: Numbers
    row_counts: tuple[RowCounts, RowCounts]
    """(row counts of the zones, row counts of the groups of zones)."""
    bounds: Mapping[BoundColumn, tuple[ColumnBounds, ColumnBounds]]
    """(bounds in the zones, bounds in the groups of zones) of each column."""


class LargeSegment(FragmentSegment):
    """A segment with one file of zones, and two files for each range of keys: one of fragments, one of flat columns."""

    def __init__(self, store: ObjectStore, files: Sequence[SegmentFile]) -> None:
        super().__init__(store, files)
        fragments, columns = files[1::2], files[2::2]
        if len(fragments) != len(columns):
            raise CorruptionError(
                f"{self.uri}: a file of the index is missing; rebuild with `metastore refresh --full`"
            )
        self._parts = [
            (_RangeFile(store, one), _RangeFile(store, other)) for one, other in zip(fragments, columns, strict=True)
        ]
        self._ends = np.cumsum([file.rows for file in fragments])
        self._cached_zones: _CachedZones | None = None

    @property
    def row_count(self) -> int:
        return int(self._ends[-1])

    @lock_free_cached_property
    def flat_schema(self) -> pa.Schema:
        schema = self.main.schema
        return pa.schema([*FRAGMENTS, *(field for field in schema if field.name.startswith("column "))])

    def read(self, names: Sequence[str], ranges: RowRanges) -> pa.Table:
        names = [name for name in dict.fromkeys(names) if self.flat_schema.get_field_index(name) >= 0]
        tables = map_parallel(
            lambda read: read[0].read(read[1], read[2]),
            self._plan_reads(names, ranges),
            is_parallel=self._store.is_remote or ranges.row_count >= _PARALLEL_ROWS,
        )
        chunks: dict[str, list[pa.Array]] = {name: [] for name in names}
        for table in tables:
            for name in table.column_names:
                chunks[name] += table[name].chunks
        schema = pa.schema([self.flat_schema.field(name) for name in names])
        return pa.Table.from_arrays(
            [pa.chunked_array(chunks[field.name], field.type) for field in schema], schema=schema
        )

    def _plan_reads(self, names: Sequence[str], ranges: RowRanges) -> list[tuple[_RangeFile, list[str], RowRanges]]:
        from_fragments = [name for name in names if name in FRAGMENTS.names]
        from_columns = [name for name in names if name not in FRAGMENTS.names]
        is_sparse = ranges.row_count * _SPARSE <= self.row_count
        if {"row_count", "bytes"}.issuperset(from_fragments) and (from_columns or not is_sparse):
            from_fragments, from_columns = [], list(names)  # Both files have these two columns.
        starts = np.concatenate([[0], self._ends[:-1]])
        reads = []
        for files, start, end in zip(self._parts, starts.tolist(), self._ends.tolist(), strict=True):
            part = ranges.within(start, end).shift(-start)
            if len(part.starts):
                reads += [
                    (file, stored, part)
                    for file, stored in zip(files, (from_fragments, from_columns), strict=True)
                    if stored
                ]
        return reads

    def zones(self, columns: Sequence[BoundColumn]) -> Zones | None:
        zones = self._cached_zones
        if zones is None or not all(column in zones.bounds for column in columns):
            # Replaced, not changed: threads share it.
            zones = self._cached_zones = self._read_zones(columns, zones)
        rows, groups = (
            BoundedRows(row_counts, {column.field_id: zones.bounds[column][at] for column in columns})
            for at, row_counts in enumerate(zones.row_counts)
        )
        return Zones(zones.starts, zones.ends, rows, groups)

    def _read_zones(self, columns: Sequence[BoundColumn], cached: _CachedZones | None) -> _CachedZones:
        bounds = {} if cached is None else cached.bounds
        if len(bounds) + len(columns) > _CACHED_ZONES:
            bounds = {column: bounds[column] for column in columns if column in bounds}
        missing = [column for column in columns if column not in bounds]
        names = [name for column in missing for name in flat_columns(column.field_id, column.cls)]
        names = [name for name in dict.fromkeys(names) if self.flat_schema.get_field_index(name) >= 0]
        table = self._read_section(ZONES, ["fragments", "row_count", *names])
        sizes = table["fragments"].to_numpy()
        ends = np.cumsum(sizes)
        firsts = np.arange(0, len(table), ZONES_PER_GROUP)
        groups = summarize_zones(table, np.diff(firsts, append=len(table)))
        row_counts = table["row_count"].to_numpy(), groups["row_count"].to_numpy()
        read = {column: (_column_bounds(table, column), _column_bounds(groups, column)) for column in missing}
        return _CachedZones(ends - sizes, ends, row_counts, {**bounds, **read})

    def find_rows(self, keys: pa.Array, ranges: RowRanges) -> Numbers:
        if ranges.row_count <= _DIRECT_ROWS:
            return super().find_rows(keys, ranges)
        starts, first_keys = self._groups
        # A key is in the last row group that begins at the key or before it.
        at = pc.search_sorted(first_keys, keys, side="right").to_numpy().astype(np.int64) - 1
        numbers = np.unique(at[at >= 0])
        candidates = RowRanges(starts[numbers], np.append(starts, self.row_count)[numbers + 1])
        row_numbers = [np.zeros(0, np.int64)]
        for window in candidates.windows(_DIRECT_ROWS):
            part = RowRanges.concatenate(
                [
                    ranges.within(start, end)
                    for start, end in zip(window.starts.tolist(), window.ends.tolist(), strict=True)
                ]
            )
            if part.row_count:
                row_numbers.append(super().find_rows(keys, part))
        return np.concatenate(row_numbers)

    @lock_free_cached_property
    def _groups(self) -> tuple[Numbers, pa.Array]:
        """(positions, keys) of the first row of each row group in the files of fragments."""
        table = self._read_section(ZONES, ["fragments", *KEY])
        is_first = table["path"].is_valid()
        sizes = table["fragments"].to_numpy()
        starts = np.cumsum(sizes) - sizes
        return starts[is_first.to_numpy()], join_keys(table.filter(is_first))


class _RangeFile:
    """A file of one key range of a large segment, opened on first use.

    Each range has two files: one of fragments, one of flat columns.
    """

    def __init__(self, store: ObjectStore, file: SegmentFile) -> None:
        self._store = store
        self._described = file
        self._uri = store.uri(file.path)

    @lock_free_cached_property
    def _file(self) -> SharedParquet:
        return SharedParquet(self._store, self._described.path, self._described.footer_bytes)

    @lock_free_cached_property
    def _ends(self) -> Numbers:
        """The position after the last row of each row group."""
        metadata = self._file.metadata
        return np.cumsum([metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)])

    def read(self, names: Sequence[str], ranges: RowRanges) -> pa.Table:
        """Return columns of the rows in `ranges`. Row groups without such rows are not read."""
        ends = self._ends
        starts = np.concatenate([[0], ends[:-1]])
        groups = np.flatnonzero(ranges.overlaps(starts, ends))
        with self._file.acquire() as file, parquet_errors(self._uri):
            table = file.read_row_groups(groups.tolist(), list(names))
            if ranges.row_count == len(table):
                return table
            sizes = (ends - starts)[groups]
            shifts = starts[groups] - (np.cumsum(sizes) - sizes)
            positions = ranges.positions()
            return table.take(pa.array(positions - shifts[np.searchsorted(ends[groups], positions, "right")]))


def open_segment(store: ObjectStore, files: Sequence[SegmentFile]) -> FragmentSegment:
    """Return a reader of one segment. A segment of one file is small."""
    return SmallSegment(store, files) if len(files) == 1 else LargeSegment(store, files)


def sorted_keys(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the distinct keys of several arrays, sorted."""
    keys = pc.unique(pa.concat_arrays([NO_KEYS, *parts]))
    return keys.take(pc.sort_indices(keys))


NO_KEYS = pa.array([], pa.large_string())


def map_parallel(function: Callable[[Item], Result], items: Sequence[Item], *, is_parallel: bool) -> list[Result]:
    """Return the result of a function for each item, in order. If `is_parallel`, the calls run in threads."""
    if len(items) > 1 and is_parallel:
        with IoCountingThreadPool(min(_READERS, len(items))) as readers:
            return list(readers.map(function, items))
    return [function(item) for item in items]


def _physical_column(table: pa.Table, path: str) -> pa.Array | pa.ChunkedArray:
    side, _, cls = path.partition(".")
    return select_class(one_chunk(table[side]), class_named(cls)) if cls else table[path]


def _column_bounds(table: pa.Table, column: BoundColumn) -> ColumnBounds:
    """Return a column's bounds in each row of a table with flat columns."""
    row_counts, cls, field_id = table["row_count"].to_numpy(), column.cls, column.field_id
    sides = [_side(table, field_id, side, cls) for side in SIDES]
    zeros = np.zeros_like(row_counts)
    nans = RowBounds(zeros, zeros)
    if count_column(field_id, "null_count") not in table.column_names:
        return ColumnBounds(row_counts, RowBounds(row_counts, row_counts), nans, *sides)
    nulls = _count_bounds(table[count_column(field_id, "null_count")], row_counts)
    if cls is not None and cls.kind == "float":
        name = count_column(field_id, "nan_count")
        counts = table[name] if name in table.column_names else pa.chunked_array([pa.nulls(len(table), pa.int64())])
        nans = _count_bounds(counts, np.maximum(row_counts - nulls.least, 0))
    return ColumnBounds(row_counts, nulls, nans, *sides)


def _count_bounds(counts: pa.ChunkedArray, most: RowCounts) -> RowBounds:
    """Return the least and greatest possible value of each count. An unknown (null) count is between 0 and `most`."""
    if not counts.null_count:
        exact = counts.to_numpy()
        return RowBounds(exact, exact)
    is_exact = counts.is_valid().to_numpy()
    exact = counts.fill_null(0).to_numpy()
    return RowBounds(np.where(is_exact, exact, 0), np.where(is_exact, exact, most))


def _side(table: pa.Table, field_id: str, side: str, cls: TypeClass | None) -> pa.Array:
    """Return a column's minima or maxima; nulls if no fragment has values of the type class."""
    if cls is None or bound_column(field_id, side, cls) not in table.column_names:
        return pa.nulls(len(table), pa.null() if cls is None else cls.arrow)
    return one_chunk(table[bound_column(field_id, side, cls)])
