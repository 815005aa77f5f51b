"""The segments of a fragment index.

Each segment reads its own files; `Segments` determines which rows are live.

Each row of a segment is one fragment: a data file with its deletes. It is live if no newer segment removed or replaced
the fragment. A tombstone is the key of a fragment that a segment removes or replaces in older segments. A zone is a run
of rows, with bounds that cover all rows of the run.

A small segment is one file. A large segment has range files: two for each range of keys. A directory is a file that
describes up to 64 ranges. A type class is a group of types with one canonical type: int8 and int64 have the class
`int64`.

A reading is a generator: in each step, it yields the byte ranges or row groups that it needs next, and is sent the data
(see `store.read_rounds`). So the requests of several readings can be made together.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.expressions.row_bounds import ColumnBounds, RowCounts
from metastore_assets.index.bounded_rows import BoundedRows, column_bounds, side_values
from metastore_assets.index.flat_columns import (
    SIDES,
    bound_column,
    count_column,
    flat_columns,
    merge_flat_schemas,
)
from metastore_assets.index.fragment_directories import (
    RANGES,
    DirectoryPart,
    RangeFiles,
    SegmentDirectory,
    missing_section,
    open_directories,
)
from metastore_assets.index.fragment_index import (
    FRAGMENTS,
    KEY,
    NO_KEYS,
    IndexRows,
    find_position,
    join_keys,
    join_sorted,
)
from metastore_assets.index.row_ranges import Numbers, RowRanges
from metastore_assets.index.zones import summarize_zones
from metastore_assets.statistics.typed_union import select_class
from metastore_assets.storage.parallel import parallel_map
from metastore_assets.store.joined_parquet import run_joined_reading
from metastore_assets.store.keys import SegmentKeyRange
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.read_rounds import Reading, join_readings
from metastore_assets.store.sections import SectionReader
from metastore_assets.store.segments import ROWS, TOMBSTONES, SegmentFile, SegmentFiles
from metastore_assets.values.physical import one_chunk
from metastore_assets.values.types import TypeClass, class_named

if TYPE_CHECKING:
    from metastore_assets.expressions.predicates import BoundColumn

ZONES_PER_GROUP = 64
"""Number of consecutive zones in a group. A condition is evaluated on groups first, then on the zones of groups that
may match."""
_CACHED_ZONES = 16
"""Maximum number of columns whose zones are cached."""
_DIRECT_ROWS = 1 << 14
"""To find keys among at most this many rows, all of their keys are read. Among more rows, only some row groups are
read."""
_SPARSE = 16
"""For at most one in 16 rows, `row_count` and `bytes` come from files of fragments, whose row groups are small."""
_PARALLEL_ROWS = 100_000
"""The files of several segments in a remote store are decoded in parallel if more rows are read. For fewer rows,
threads take more time."""
DECODING_THREADS = min(4, os.cpu_count() or 1)
"""Maximum number of threads that decode many rows at the same time. With more threads than processors, a lookup in ten
million fragments takes 1.3 times as long, because threads wait for each other."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Zones:
    """The zones of a segment, with bounds of columns.

    A zone is a run of consecutive fragments (see `index.zones`).

    Consecutive zones form groups. Conditions are evaluated on groups first.
    """

    starts: Numbers
    """The position in the segment of the first fragment of each zone."""
    ends: Numbers
    """The position after the last fragment of each zone."""
    rows: BoundedRows
    """Bounds of each zone."""
    groups: BoundedRows
    """Bounds of each group of `ZONES_PER_GROUP` zones. The last group may have fewer zones."""


class Segments:
    """Readers of the segments of an index, which find out together which rows are live.

    Threads can share the object.

    `all` has the readers, those of the oldest segment first. Each small file has its own reader. Range files that one
    directory describes have one reader together (see `index.fragment_directories`).
    """

    def __init__(self, store: ObjectStore, files: SegmentFiles) -> None:
        self.store = store
        self.all: list[FragmentSegment] = []
        self._ages: list[int] = []
        """The number of the segment of each item of `all`. Rows of a smaller number are older."""
        directories = open_directories(store, files)
        for age, segment in enumerate(files.segments):
            items: dict[object, list[SegmentFile]] = {}
            for file in segment:
                items.setdefault(directories.get(file.path, file.path), []).append(file)
            for item in items.values():
                self.all.append(open_segment(store, item, directories.get(item[0].path)))
                self._ages.append(age)

    def map(self, read: Callable[[int, FragmentSegment], Result]) -> list[Result]:
        """Call `read(number, reader)` for each reader in `all`.

        Return the results in the order of `all`.

        `number` is the position of the reader in `all`. Calls run in parallel for a remote store.
        """
        return parallel_map(lambda item: read(*item), list(enumerate(self.all)), is_parallel=self.store.is_remote)

    def read(self, row_count: int, reading: Callable[[int, FragmentSegment], Reading[Result]]) -> list[Result]:
        """Run the reading `reading(number, reader)` for each reader in `all`.

        Return the results in the order of `all`. For few rows, the readings run together, so that their requests are
        made in common rounds. For many rows of a remote store, they run in parallel threads.

        Args:
            row_count: Number of rows that all readings read together.
            reading: Returns the reading for one reader. `number` is the position of the reader in `all`.
        """
        if self.store.is_remote:
            self._open_all  # noqa: B018 (a cached property)
        if row_count > _PARALLEL_ROWS:
            return parallel_map(
                lambda item: run_joined_reading(self.store, reading(*item)),
                list(enumerate(self.all)),
                DECODING_THREADS,
                is_parallel=self.store.is_remote,
            )
        return run_joined_reading(self.store, join_readings([reading(*item) for item in enumerate(self.all)]))

    @lock_free_cached_property
    def _open_all(self) -> None:
        """Open the file or the directory of each reader."""
        self.map(lambda number, segment: segment.open())

    def removed_keys(self, ranges: Sequence[RowRanges]) -> list[pa.Array]:
        """Return, for each reader in `all`, sorted keys that newer segments removed or replaced.

        The result tells which rows in `ranges` are live: those whose keys it does not have. It may lack keys of other
        rows, and may have keys that the reader does not have.

        Args:
            ranges: For each reader, the positions of the rows to decide about. A file is read only if its tombstones
                (removed keys) may be keys of these rows.
        """
        if len(set(self._ages)) < 2:  # No segment is newer than another.
            return [NO_KEYS] * len(self.all)
        spans: dict[int, list[KeySpan]] = {}
        for age, segment, part in zip(self._ages, self.all, ranges, strict=True):
            spans.setdefault(age, []).extend(segment.key_spans(part))

        for each in spans.values():
            each.sort(key=lambda span: span[0] or "")

        def read(number: int, segment: FragmentSegment) -> pa.Array:
            older = [spans[age] for age in spans if age < self._ages[number]]
            return segment.find_tombstones(older) if any(older) else NO_KEYS

        tombstones: dict[int, list[pa.Array]] = {}
        for age, keys in zip(self._ages, self.map(read), strict=True):
            tombstones.setdefault(age, []).append(keys)
        removed_by_segment: dict[int, pa.Array] = {}
        newer = NO_KEYS
        for age in sorted(tombstones, reverse=True):
            removed_by_segment[age] = newer
            newer = join_sorted([newer, *tombstones[age]])
        return [removed_by_segment[age] for age in self._ages]

    def live_ranges(self, ranges: Sequence[RowRanges]) -> list[RowRanges]:
        """Return, for each reader in `all`, the live rows among those in its item of `ranges`."""
        removed_by_segment = self.removed_keys(ranges)
        if not any(map(len, removed_by_segment)):
            return list(ranges)

        def without_removed(number: int, segment: FragmentSegment) -> RowRanges:
            keys, part = removed_by_segment[number], ranges[number]
            return part.without(segment.find_rows(keys, part)) if len(keys) and part.row_count else part

        return self.map(without_removed)


KeySpan: TypeAlias = tuple[str | None, str | None]
"""The first and the last key of a file; None if it is unknown."""


_RECENT_READS = 4
"""Number of reads of a small segment whose columns stay in memory."""


class FragmentSegment(ABC):
    """A reader of one small file, or of all range files that one directory describes.

    All of its files belong to one segment of the index. They are opened on first use. The files also have tombstones:
    keys of fragments that the segment removes or replaces in older segments.
    """

    def __init__(self, store: ObjectStore, files: Sequence[SegmentFile]) -> None:
        self._store = store
        self._files = files

    @abstractmethod
    def open(self) -> None:
        """Open the small file, or the directory."""

    @property
    @abstractmethod
    def row_count(self) -> int:
        """Number of rows, including rows that are not live."""

    @property
    @abstractmethod
    def flat_schema(self) -> pa.Schema:
        """The columns that `read` can return: those of FRAGMENTS, and bounds and counts as flat columns.

        A flat column is, for example, `column 3.null_count` (see `index.flat_columns`).
        """

    @property
    @abstractmethod
    def tombstones(self) -> pa.Array:
        """The keys of fragments that the segment removes or replaces, sorted."""

    @abstractmethod
    def find_tombstones(self, older: Sequence[Sequence[KeySpan]]) -> pa.Array:
        """Return sorted tombstones: at least those that may be keys of older segments.

        Args:
            older: For each older segment, the (first key, last key) of its files, ascending and disjoint.
        """

    @abstractmethod
    def key_spans(self, ranges: RowRanges) -> list[KeySpan]:
        """Return the first and the last key of each file that has rows in `ranges`, ascending."""

    def find_rows(self, keys: pa.Array, ranges: RowRanges) -> Numbers:
        """Return the positions, ascending, of the rows in `ranges` that have one of the keys.

        `keys` is sorted.
        """
        mask = pc.is_in(join_keys(self.read(KEY, ranges)), value_set=keys).to_numpy(zero_copy_only=False)
        return ranges.positions()[mask]

    def read(self, names: Sequence[str], ranges: RowRanges) -> pa.Table:
        """Return columns of the rows in `ranges`.

        Columns that the segment does not have are omitted.
        """
        return run_joined_reading(self._store, self.reading(names, ranges))

    @abstractmethod
    def reading(self, names: Sequence[str], ranges: RowRanges) -> Reading[pa.Table]:
        """Return a reading of columns, which returns the same table as `read`."""

    @abstractmethod
    def zones_reading(self, columns: Sequence[BoundColumn]) -> Reading[Zones | None]:
        """Return a reading of the zones, with the bounds of `columns`.

        Its result is None if the segment has no zones.
        """

    @abstractmethod
    def position(self, key: str) -> int:
        """Return the position of the first row whose key is at least `key`.

        The position is `row_count` if there is no such row.
        """

    @lock_free_cached_property
    def first_row(self) -> int:
        """The position of the first row that is not yet merged into an older segment; 0 if none is merged.

        Rows are merged a few at a time, by ascending key (see `store.segment_levels`).
        """
        file = self._files[0]
        return self.position(file.first) if file.absorbed and file.first is not None else 0

    @property
    def all_rows(self) -> RowRanges:
        """The range of the rows that are not yet merged into an older segment, whether or not they are live."""
        return RowRanges.first(self.row_count).within(self.first_row, self.row_count)

    def rows_between(self, keys: SegmentKeyRange | None) -> RowRanges:
        """Return the positions of the rows whose keys are in a range; those of all rows if `keys` is None.

        Rows that were merged into an older segment are omitted (see `all_rows`).
        """
        if keys is None:
            return self.all_rows
        first, last = self._files[0].first, self._files[-1].last
        start, end = self.first_row, self.row_count
        if keys.start is not None and (first is None or keys.start > first):
            start = max(start, self.position(keys.start))
        if keys.end is not None and (last is None or keys.end <= last):
            end = self.position(keys.end)
        return RowRanges.first(end).within(start, end) if start < end else RowRanges.concatenate([])

    def fragments_reading(self, columns: Sequence[str], ranges: RowRanges) -> Reading[pa.Table]:
        """Return a reading of columns of `FRAGMENTS`, for the fragments in the rows `ranges`."""
        return (yield from self.reading(columns, ranges)).select(list(columns))

    def bounds(self, columns: Sequence[BoundColumn], ranges: RowRanges) -> BoundedRows:
        """Return the row counts of the fragments in `ranges`, and bounds of columns in them."""
        return run_joined_reading(self._store, self.bounds_reading(columns, ranges))

    def bounds_reading(self, columns: Sequence[BoundColumn], ranges: RowRanges) -> Reading[BoundedRows]:
        """Return a reading of bounds, which returns the same as `bounds`."""
        names = [name for column in columns for name in flat_columns(column.field_id, column.cls)]
        table = yield from self.reading(["row_count", *names], ranges)
        return BoundedRows(
            table["row_count"].to_numpy(), {column.field_id: column_bounds(table, column) for column in columns}
        )

    def column_reading(self, field_id: str, cls: TypeClass | None, ranges: RowRanges) -> Reading[pa.Table]:
        """Return a reading of a column's `null_count`, `nan_count`, `minimum` and `maximum` by fragment.

        It reads the fragments in `ranges`. Unknown values are null. `cls` is the type class of the bounds; None for a
        column without one, such as a struct.
        """
        table = yield from self.reading(["row_count", *flat_columns(field_id, cls)], ranges)
        zeros = pa.array(np.zeros(len(table), np.int64))
        has_column = count_column(field_id, "null_count") in table.column_names
        counts = [
            table[name] if name in table.column_names else default
            for name, default in (
                (count_column(field_id, "null_count"), table["row_count"]),
                (count_column(field_id, "nan_count"), pa.nulls(len(table), pa.int64()) if has_column else zeros),
            )
        ]
        sides = [side_values(table, field_id, side, cls) for side in SIDES]
        return pa.table([*counts, *sides], names=["null_count", "nan_count", *SIDES])


class SmallSegment(FragmentSegment):
    """A reader of a segment that is one file.

    The file has the sections `tombstones`, `rows` and `column <field id>`. Such a segment has no zones.
    """

    @property
    def uri(self) -> str:
        """The URI of the file."""
        return self._store.uri(self._files[0].path)

    def open(self) -> None:
        _ = self.main

    @lock_free_cached_property
    def main(self) -> SectionReader:
        """The file, opened on first use."""
        return SectionReader(self._store, self._files[0].path, self._files[0].footer_bytes)

    @lock_free_cached_property
    def tombstones(self) -> pa.Array:
        try:
            keys = join_keys(self.main.read_section(TOMBSTONES, columns=list(KEY)))
        except KeyError as error:
            raise missing_section(self.uri, error) from error
        return self._files[0].omit_absorbed(keys)

    def find_tombstones(self, older: Sequence[Sequence[KeySpan]]) -> pa.Array:
        return self.tombstones

    def zones_reading(self, columns: Sequence[BoundColumn]) -> Reading[None]:
        yield from ()

    def position(self, key: str) -> int:
        return find_position(join_keys(self.read(KEY, RowRanges.first(self.row_count))), key, "left")

    def key_spans(self, ranges: RowRanges) -> list[KeySpan]:
        file = self._files[0]
        return [(file.first, file.last)] if len(ranges.starts) else []

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

    def reading(self, names: Sequence[str], ranges: RowRanges) -> Reading[pa.Table]:
        stored_names = tuple(name for name in names if name in self._stored_columns)
        table = self._recent.get(stored_names)
        if table is None:
            table = self._recent[stored_names] = yield from self._columns_reading(stored_names)
            for earliest in list(self._recent)[:-_RECENT_READS]:
                self._recent.pop(earliest, None)
        with parquet_errors(self.uri):
            return table if ranges.row_count == len(table) else table.take(pa.array(ranges.positions()))

    @lock_free_cached_property
    def _recent(self) -> dict[tuple[str, ...], pa.Table]:
        """The most recently read tables, by their column names.

        Repeated predicates mostly need the same columns.
        """
        return {}

    def _columns_reading(self, names: Sequence[str]) -> Reading[pa.Table]:
        sections = list(dict.fromkeys(self._stored_columns[name][0] for name in names))
        physical = list(dict.fromkeys(self._stored_columns[name][1] for name in names))
        try:
            tables = yield from self.main.sections_reading(sections, physical)
        except KeyError as error:
            raise missing_section(self.uri, error) from error
        with parquet_errors(self.uri):
            return pa.table(
                {
                    name: _physical_column(tables[self._stored_columns[name][0]], self._stored_columns[name][1])
                    for name in names
                }
            )

    def index_rows(self, removed_keys: pa.Array, keys: SegmentKeyRange | None) -> IndexRows:
        """Return the rows of the file whose keys are in a range and not in `removed_keys`.

        Rows that were already merged into an older segment are omitted (see `all_rows`).

        Args:
            removed_keys: The keys to omit.
            keys: The range of keys; None for all keys.
        """
        tables = self.main.read_sections(list(self.main.sections))
        ranges = self.rows_between(keys)
        with parquet_errors(self.uri):
            fragments = tables[ROWS].select(FRAGMENTS.names)
            bounds = ["null_count", "nan_count", *SIDES]
            columns = {
                section.removeprefix("column "): tables[section].select(bounds)
                for section in tables
                if section not in (ROWS, TOMBSTONES)
            }
            mask = np.zeros(len(fragments), np.bool_)
            mask[ranges.positions()] = True
            if len(removed_keys):
                mask &= ~pc.is_in(join_keys(fragments), value_set=removed_keys).to_numpy(zero_copy_only=False)
        if mask.all():
            return IndexRows(fragments, columns)
        live = pa.array(mask)
        return IndexRows(fragments.filter(live), {name: table.filter(live) for name, table in columns.items()})

    @lock_free_cached_property
    def _stored_columns(self) -> dict[str, tuple[str, str]]:
        """{flat column: (section that stores it, its name in that section)}."""
        stored_columns = {name: (ROWS, name) for name in FRAGMENTS.names}
        for name in self.flat_schema.names[len(FRAGMENTS) :]:
            parts = 1 if name.endswith("_count") else 2
            section, *path = name.rsplit(".", parts)
            stored_columns[name] = section, ".".join(path)
        return stored_columns

    def _section_rows(self, name: str) -> int:
        try:
            return self.main.sections[name].row_count
        except KeyError as error:
            raise missing_section(self.uri, error) from error


@dataclass(frozen=True)
class _CachedZones:
    """The zones of a segment, with bounds of recently requested columns.

    `starts` and `ends` are those of `Zones`.
    """

    starts: Numbers
    ends: Numbers
    row_counts: tuple[RowCounts, RowCounts]
    """(row counts of the zones, row counts of the groups of zones)."""
    bounds: Mapping[BoundColumn, tuple[ColumnBounds, ColumnBounds]]
    """(bounds in the zones, bounds in the groups of zones) of each column."""


class LargeSegment(FragmentSegment):
    """A reader of range files of one segment, in ascending order of keys.

    One directory has the zones and the Parquet footers of all of these files (see `index.fragment_directories`).
    """

    def __init__(self, store: ObjectStore, files: Sequence[SegmentFile], directory: SegmentDirectory) -> None:
        super().__init__(store, files)
        self._directory = DirectoryPart(directory, [file.path for file in files])
        self._cached_zones: _CachedZones | None = None

    def open(self) -> None:
        _ = self._directory.zone_schema

    @lock_free_cached_property
    def flat_schema(self) -> pa.Schema:
        return merge_flat_schemas([self._directory.zone_schema])

    @property
    def row_count(self) -> int:
        return int(self._ends[-1])

    @lock_free_cached_property
    def _fragments(self) -> list[RangeFiles]:
        """Readers of the range files with fragments, by ascending key.

        Each joins the files of consecutive ranges.
        """
        return self._join_files("fragments")

    @lock_free_cached_property
    def _columns(self) -> list[RangeFiles]:
        """Readers of the files with flat columns (bounds and counts), by ascending key.

        Each key range has one such file. A reader reads the files of consecutive ranges as if they were one.
        """
        return self._join_files("columns")

    def _join_files(self, kind: str) -> list[RangeFiles]:
        """Return readers of consecutive files of one kind: `fragments` or `columns`.

        Consecutive files share a reader if their Parquet footers have the same schema, encodings and compression. Each
        file has a number in the directory, by which the reader identifies it. A file whose number the reader already
        has gets another reader.
        """
        runs: list[list[tuple[str, dict[str, Any]]]] = []
        numbers: set[int] = set()
        head, chunk_heads = b"", b""
        names = ["number", "fragments", *(name for name in RANGES.names if name.startswith(f"{kind}_"))]
        for file, row in zip(self._files, self._directory.read_ranges(names).to_pylist(), strict=True):
            # A file without row groups has no heads of column chunks.
            other_heads = row[f"{kind}_chunk_heads"]
            is_different = row[f"{kind}_head"] != head or (chunk_heads and other_heads and chunk_heads != other_heads)
            if not runs or is_different or row["number"] in numbers:
                runs.append([])
                numbers = set()
                chunk_heads = b""
            path = file.path if kind == "fragments" or file.companion is None else file.companion
            runs[-1].append((path, row))
            numbers.add(row["number"])
            head, chunk_heads = row[f"{kind}_head"], chunk_heads or other_heads
        return [RangeFiles(self._store, kind, *map(list, zip(*run, strict=True))) for run in runs]

    @lock_free_cached_property
    def _ends(self) -> Numbers:
        """The position in the segment after the last row of each range.

        The positions are 100 and 150 for ranges of 100 and 50 rows.
        """
        return np.cumsum(self._directory.counts["fragments"].to_numpy())

    @lock_free_cached_property
    def _starts(self) -> Numbers:
        return np.concatenate([[0], self._ends[:-1]])

    def zones_reading(self, columns: Sequence[BoundColumn]) -> Reading[Zones]:
        zones = self._cached_zones
        if zones is None or not all(column in zones.bounds for column in columns):
            # Replaced, not changed: threads share it.
            zones = self._cached_zones = yield from self._missing_zones_reading(columns, zones)
        rows, groups = (
            BoundedRows(row_counts, {column.field_id: zones.bounds[column][at] for column in columns})
            for at, row_counts in enumerate(zones.row_counts)
        )
        return Zones(zones.starts, zones.ends, rows, groups)

    def _missing_zones_reading(
        self, columns: Sequence[BoundColumn], cached_zones: _CachedZones | None
    ) -> Reading[_CachedZones]:
        """Return a reading of the zones with the bounds of `columns`.

        Bounds in `cached_zones` are not read again. The result also has the other columns of `cached_zones`, if the
        numbers of columns of `columns` and of `cached_zones` add up to at most `_CACHED_ZONES`.
        """
        bounds = {} if cached_zones is None else cached_zones.bounds
        if len(bounds) + len(columns) > _CACHED_ZONES:
            bounds = {column: bounds[column] for column in columns if column in bounds}
        missing = [column for column in columns if column not in bounds]
        names = [name for column in missing for name in flat_columns(column.field_id, column.cls)]
        names = [name for name in dict.fromkeys(names) if self.flat_schema.get_field_index(name) >= 0]
        table = yield from self._directory.zones_reading(["fragments", "row_count", *names])
        sizes = table["fragments"].to_numpy()
        ends = np.cumsum(sizes)
        firsts = np.arange(0, len(table), ZONES_PER_GROUP)
        groups = summarize_zones(table, np.diff(firsts, append=len(table)))
        row_counts = table["row_count"].to_numpy(), groups["row_count"].to_numpy()
        read = {column: (column_bounds(table, column), column_bounds(groups, column)) for column in missing}
        return _CachedZones(ends - sizes, ends, row_counts, {**bounds, **read})

    def position(self, key: str) -> int:
        starts, first_keys = self._groups
        if not len(starts):
            return 0
        at = max(0, find_position(first_keys, key, "right") - 1)
        start, end = np.append(starts, self.row_count)[at : at + 2].tolist()
        keys = join_keys(self.read(KEY, RowRanges.first(end).within(start, end)))
        return start + find_position(keys, key, "left")

    @lock_free_cached_property
    def tombstones(self) -> pa.Array:
        return self._read_tombstones(range(len(self._files)))

    def find_tombstones(self, older: Sequence[Sequence[KeySpan]]) -> pa.Array:
        return self._read_tombstones(
            [
                number
                for number, file in enumerate(self._files)
                if any(_overlaps(spans, file.first, file.last) for spans in older)
            ]
        )

    def _read_tombstones(self, numbers: Sequence[int]) -> pa.Array:
        """Return the sorted tombstones of some files.

        `numbers` are the positions of the files in `self._files`.
        """
        counts = self._directory.counts["tombstones"].to_pylist()

        def read(number: int) -> pa.Array:
            """Return the tombstones of the file at the position `number` in `self._files`."""
            at = number
            for part in self._fragments:
                if at < part.range_count:
                    break
                at -= part.range_count
            return self._files[number].omit_absorbed(part.read_tombstones(at))

        numbers_with_tombstones = [number for number in numbers if counts[number]]
        return join_sorted(parallel_map(read, numbers_with_tombstones, is_parallel=self._store.is_remote))

    def key_spans(self, ranges: RowRanges) -> list[KeySpan]:
        numbers = np.flatnonzero(ranges.overlaps(self._starts, self._ends)).tolist()
        return [(self._files[number].first, self._files[number].last) for number in numbers]

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
            pairs = zip(window.starts.tolist(), window.ends.tolist(), strict=True)
            part = RowRanges.concatenate([ranges.within(start, end) for start, end in pairs])
            if part.row_count:
                row_numbers.append(super().find_rows(keys, part))
        return np.concatenate(row_numbers)

    @lock_free_cached_property
    def _groups(self) -> tuple[Numbers, pa.Array]:
        """The position and the key of the first fragment of each row group of fragments: (positions, keys)."""
        table = self._directory.read_zones(["fragments", *KEY])
        is_first = table["path"].is_valid()
        sizes = table["fragments"].to_numpy()
        starts = np.cumsum(sizes) - sizes
        return starts[is_first.to_numpy()], join_keys(table.filter(is_first))

    def reading(self, names: Sequence[str], ranges: RowRanges) -> Reading[pa.Table]:
        schema = self.flat_schema
        names = [name for name in dict.fromkeys(names) if schema.get_field_index(name) >= 0]
        if not len(ranges.starts):
            # The footers of the range files are not needed.
            return pa.schema([schema.field(name) for name in names]).empty_table()
        columns: dict[str, pa.ChunkedArray] = {}
        readings: list[Reading[pa.Table]] = []
        divided_columns = self._divide_columns(names, ranges)
        for stored_columns, is_fragments in zip(divided_columns, (True, False), strict=True):
            start = 0
            for files in (self._fragments if is_fragments else self._columns) if stored_columns else ():
                part = ranges.within(start, start + files.row_count).shift(-start)
                start += files.row_count
                if len(part.starts):
                    readings.append(files.reading(pa.schema([schema.field(name) for name in stored_columns]), part))
        if len(readings) == 1:
            return (yield from readings[0])
        tables = yield from join_readings(readings)
        for stored_columns in filter(None, divided_columns):
            empty = pa.schema([schema.field(name) for name in stored_columns]).empty_table()
            table = pa.concat_tables([empty, *(part for part in tables if part.column_names == stored_columns)])
            columns |= {name: table[name] for name in stored_columns}
        return pa.table({name: columns[name] for name in names})

    def _divide_columns(self, names: Sequence[str], ranges: RowRanges) -> tuple[list[str], list[str]]:
        """Return (names to read from files of fragments, names to read from files of columns).

        Each range of keys has one file of each kind. Files of fragments have the columns of FRAGMENTS. Files of columns
        have the flat columns, and copies of `row_count` and `bytes`. These two are read as follows:

        - If `names` has another column of FRAGMENTS, such as `path`, they are read from files of fragments.
        - Otherwise, if `names` has flat columns, they are read from files of columns.
        - If `names` has nothing else, few rows are read from files of fragments, many from files of columns.

        Args:
            names: The columns to read.
            ranges: The rows to read. They are few if they are at most 1 in `_SPARSE` of all rows.
        """
        from_fragments = [name for name in names if name in FRAGMENTS.names]
        from_columns = [name for name in names if name not in FRAGMENTS.names]
        is_sparse = ranges.row_count * _SPARSE <= self.row_count
        if {"row_count", "bytes"}.issuperset(from_fragments) and (from_columns or not is_sparse):
            return [], list(names)  # Both files have these two columns.
        return from_fragments, from_columns


def open_segment(
    store: ObjectStore, files: Sequence[SegmentFile], directory: SegmentDirectory | None
) -> FragmentSegment:
    """Return a reader of files of one segment.

    Args:
        store: The store of the files.
        files: The range files that `directory` describes, or one small file.
        directory: A directory that describes these range files; None for a small file.
    """
    if directory is None:
        return SmallSegment(store, files)
    return LargeSegment(store, files, directory)


def _overlaps(spans: Sequence[KeySpan], first: str | None, last: str | None) -> bool:
    """Return whether the keys from `first` to `last` may overlap one of the ascending, disjoint spans.

    A span is (first key, last key). None as a first or last key means that it is unknown: such a range or span may
    contain any key. Without spans, the result is False.
    """
    if not spans or first is None or last is None:
        return bool(spans)
    # Of the spans that begin at `last` or before it, the last one also ends last. A span without keys may be anywhere.
    if any(None in span for span in spans):
        return True
    at = bisect_right(spans, last, key=lambda span: span[0] or "") - 1
    return at >= 0 and (spans[at][1] or "") >= first


def _physical_column(table: pa.Table, path: str) -> pa.Array | pa.ChunkedArray:
    """Return a column of a table, or the values of one type class of a column.

    The path `null_count` means that column. `minimum.int64` means the int64 values of the column `minimum`.
    """
    side, _, cls = path.partition(".")
    return select_class(one_chunk(table[side]), class_named(cls)) if cls else table[path]
