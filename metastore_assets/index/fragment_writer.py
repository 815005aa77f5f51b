"""Writing of the fragment index: one more segment, merged with older segments in windows of rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.expressions.row_bounds import Mask, RowCounts
from metastore_assets.index.fragment_segments import (
    BLOCKS,
    DEAD,
    ZONES,
    Segment,
    Segments,
    count_bounds,
    zone_section,
)
from metastore_assets.index.fragments import FOLDER, FRAGMENTS, KEY, IndexRows, column_section, join_keys
from metastore_assets.statistics.union import select_class
from metastore_assets.store.blocks import BLOCK_ROWS, BlockWriter, RowRanges
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import (
    EMPTY,
    KeyChanges,
    SegmentFile,
    SegmentFiles,
    SegmentKind,
    retained_files,
)
from metastore_assets.values.physical import one_chunk
from metastore_assets.values.types import TypeClass, class_named

_KIND = SegmentKind("index", FOLDER, FRAGMENTS)
_CLASSES = {name: class_named("int64" if name in ("bytes", "row_count") else "string") for name in FRAGMENTS.names}
INTEGER, BOOLEAN = class_named("int64"), class_named("boolean")
_MIN_ZONED_ROWS = 4 * BLOCK_ROWS
"""Smaller segments have no zones: reading all rows of a column takes less time than one more request."""
_MIN_ZONE_ROWS, _MAX_ZONE_ROWS = 64, 1024
_WINDOW_ROWS = 1 << 16
"""Number of rows that are merged at once."""

Numbers = npt.NDArray[np.int64]


def update_index(
    store: ObjectStore, base: SegmentFiles | None, batches: Iterable[IndexRows], changes: KeyChanges
) -> SegmentFiles:
    """Write the fragment index of the next version; return its files. No existing file is changed.

    Reads the blocks of older segments that may have changed keys. When segments are merged, a window of rows at a time
    is in memory.

    Args:
        store: The table's folder.
        base: The index of the version before; None without one.
        batches: The index rows of the added and replaced fragments. All batches except the last one are first written
            to temporary files.
        changes: The keys (see `fragment_key`) of these fragments, and of removed fragments.

    Raises:
        CorruptionError: A file of `base` is damaged.
    """
    if not changes.row_count:
        return EMPTY
    base = base or EMPTY
    if not changes.added and not changes.removed:
        return base
    retained = retained_files(_KIND, base, changes.row_count, len(changes.added) + len(changes.removed))
    segments = Segments(store, base.files)
    changed: list[Numbers] = []
    if base.files:
        keys = pa.array(sorted({*changes.added, *changes.removed}), pa.large_string())
        changed = segments.map(lambda segment: _find_positions(segment, keys))
    temporary: list[SegmentFile] = []
    last: IndexRows | None = None
    for batch in batches:
        if last is not None:
            temporary.append(_write_segment(store, [_BatchSource(last)], {}))
        last = batch
    sources: list[_Source] = []
    dead = {file.path: [changed[number]] for number, file in enumerate(retained)}
    for number in range(len(retained), len(base.files)):
        segment = segments.all[number]
        sources.append(_StoredSource(segment, np.union1d(segments.dead[number], changed[number])))
        for path, positions in segment.dead().items():
            if path in dead:
                dead[path].append(positions)
    sources += [
        _StoredSource(Segment(store, number, file.path), np.zeros(0, np.int64)) for number, file in enumerate(temporary)
    ]
    if last is not None:
        sources.append(_BatchSource(last))
    dead_positions = {path: np.unique(np.concatenate(parts)) for path, parts in dead.items()}
    file = _write_segment(store, sources, dead_positions)
    if temporary:
        store.delete([segment.path for segment in temporary])
    return SegmentFiles(changes.row_count, (*retained, file))


def _find_positions(segment: Segment, keys: pa.Array) -> Numbers:
    """Return the ascending positions of the rows of a segment that have one of some keys.

    Args:
        segment: The segment.
        keys: Ascending keys of fragments.
    """
    blocks = segment.file.read({BLOCKS: None})[BLOCKS] if BLOCKS in segment.file.sections else None
    found = []
    ranges = _block_ranges(None if blocks is None else join_keys(blocks), keys, segment.row_count)
    for window in ranges:
        table = segment.fragments(KEY, window)
        mask = pc.is_in(join_keys(table), value_set=keys).to_numpy(zero_copy_only=False)
        found.append(window.positions()[mask])
    return np.concatenate([np.zeros(0, np.int64), *found])


def _block_ranges(first_keys: pa.Array | None, keys: pa.Array, row_count: int) -> Iterator[RowRanges]:
    """Yield the rows of the blocks that may have one of some keys, a window at a time.

    Args:
        first_keys: The key of the first row of each block; None if all blocks may have the keys.
        keys: Ascending keys.
        row_count: The number of rows of all blocks.
    """
    count = -(-row_count // BLOCK_ROWS)
    numbers = np.arange(count)
    if first_keys is not None:
        # A key is in the last block that begins at the key or before it.
        at = pc.search_sorted(first_keys, keys, side="right").to_numpy().astype(np.int64) - 1
        numbers = np.unique(at[at >= 0])
    step = _WINDOW_ROWS // BLOCK_ROWS
    for start in range(0, len(numbers), step):
        starts = numbers[start : start + step] * BLOCK_ROWS
        yield RowRanges(starts, np.minimum(starts + BLOCK_ROWS, row_count))


class _Source(Protocol):
    """Rows of a new segment, sorted by key."""

    row_count: int
    sections: dict[str, Mapping[str, TypeClass]]
    """The columns of each section with rows of fragments."""

    def read(self, section: str, start: int, stop: int) -> pa.Table: ...


class _StoredSource:
    """The rows of an older segment that are not dead."""

    def __init__(self, segment: Segment, dead: Numbers) -> None:
        self._segment = segment
        self._dead = dead
        self._before = dead - np.arange(len(dead))
        """For each dead row, the number of live rows before it."""
        self.row_count = segment.row_count - len(dead)
        self.sections: dict[str, Mapping[str, TypeClass]] = {
            name: section.columns
            for name, section in segment.file.sections.items()
            if name in FRAGMENTS.names or name.startswith("column ")
        }

    def read(self, section: str, start: int, stop: int) -> pa.Table:
        first, last = (at + int(np.searchsorted(self._before, at, "right")) for at in (start, stop - 1))
        dead = self._dead[np.searchsorted(self._dead, first) : np.searchsorted(self._dead, last)]
        ranges = RowRanges(np.array([first]), np.array([last + 1])).without(dead)
        return self._segment.file.read({section: None}, ranges)[section]


class _BatchSource:
    """Rows in memory."""

    def __init__(self, rows: IndexRows) -> None:
        order = pc.sort_indices(rows.fragments, sort_keys=[(name, "ascending") for name in KEY])
        is_sorted = bool((np.diff(order.to_numpy().astype(np.int64)) > 0).all())
        self._order = None if is_sorted else order
        self._rows = rows
        self.row_count = len(rows.fragments)
        self.sections: dict[str, Mapping[str, TypeClass]] = {name: {name: cls} for name, cls in _CLASSES.items()}
        self._tables: dict[str, pa.Table] = {}
        for field_id, table in rows.columns.items():
            flat, classes = _flatten(table)
            self._tables[column_section(field_id)] = flat
            self.sections[column_section(field_id)] = classes

    def read(self, section: str, start: int, stop: int) -> pa.Table:
        table = self._rows.fragments.select([section]) if section in FRAGMENTS.names else self._tables[section]
        if self._order is None:
            return table.slice(start, stop - start)
        return table.take(self._order.slice(start, stop - start))


def _flatten(table: pa.Table) -> tuple[pa.Table, dict[str, TypeClass]]:
    """Return bounds and counts with a column for each type class of the bounds, and the class of each column."""
    columns = {name: table[name] for name in ("null_count", "nan_count", "minimum_exact", "maximum_exact")}
    classes = {"null_count": INTEGER, "nan_count": INTEGER, "minimum_exact": BOOLEAN, "maximum_exact": BOOLEAN}
    sides = {side: one_chunk(table[side]) for side in ("minimum", "maximum")}
    for side, values in sides.items():
        for field in values.type:
            cls = class_named(field.name)
            array = select_class(values, cls)
            if array.null_count < len(array):
                columns[f"{side}.{cls.name}"] = array
                classes[f"{side}.{cls.name}"] = cls
    return pa.table(columns), classes


def _write_segment(store: ObjectStore, sources: Sequence[_Source], dead: Mapping[str, Numbers]) -> SegmentFile:
    """Write one segment with the rows of all sources.

    Args:
        store: The table's folder.
        sources: The rows. No key occurs twice.
        dead: Positions of dead rows of older segments, by path.
    """
    path = f"{FOLDER}/{uuid.uuid4().hex}.{_KIND.name}"
    with BlockWriter(store, path) as writer:
        for name, positions in dead.items():
            if len(positions):
                writer.write_section(f"{DEAD}{name}", {"position": INTEGER}, [pa.table({"position": positions})])
        _SegmentRows(writer, [source for source in sources if source.row_count]).write()
    return SegmentFile(path, sum(source.row_count for source in sources) + sum(map(len, dead.values())))


class _SegmentRows:
    """The merged rows of several sources, written section by section, a window of rows at a time."""

    def __init__(self, writer: BlockWriter, sources: Sequence[_Source]) -> None:
        self._writer = writer
        self._sources = sources
        self._row_count = sum(source.row_count for source in sources)
        self._order = _merge_order(sources) if len(sources) > 1 else None
        self._windows = [
            (start, min(start + _WINDOW_ROWS, self._row_count)) for start in range(0, self._row_count, _WINDOW_ROWS)
        ]
        self._row_counts = np.zeros(0, np.int64)

    def write(self) -> None:
        """Write all sections with rows of fragments, and the zones of a large segment."""
        runs: list[Numbers] = []
        firsts: dict[str, list[pa.Array]] = {name: [] for name in KEY}
        for name in KEY:
            tables = self._merge(name)
            self._writer.write_section(name, {name: _CLASSES[name]}, _tap(tables, name, firsts[name], runs))
        has_zones = self._row_count >= _MIN_ZONED_ROWS
        if self._row_count > BLOCK_ROWS:
            first_keys = {name: pa.concat_arrays(arrays) for name, arrays in firsts.items()}
            self._writer.write_section(BLOCKS, {name: _CLASSES[name] for name in KEY}, [pa.table(first_keys)])
        sizes = _zone_sizes(_run_lengths(runs)) if has_zones else np.zeros(0, np.int64)
        if has_zones:
            self._windows = _aligned_windows(sizes)
        counts = [table["row_count"].to_numpy() for table in self._merge("row_count")]
        self._row_counts = np.concatenate([np.zeros(0, np.int64), *counts])
        self._writer.write_section("row_count", {"row_count": INTEGER}, [pa.table({"row_count": self._row_counts})])
        if has_zones:
            sums = np.add.reduceat(self._row_counts, np.cumsum(sizes) - sizes)
            zones = pa.table({"fragments": sizes, "row_count": sums})
            self._writer.write_section(ZONES, dict.fromkeys(zones.column_names, INTEGER), [zones])
        for name in ("bytes", "id"):
            self._writer.write_section(name, {name: _CLASSES[name]}, self._merge(name))
        names = {name for source in self._sources for name in source.sections if name not in FRAGMENTS.names}
        for name in sorted(names):
            columns: dict[str, TypeClass] = {}
            for source in self._sources:
                columns |= source.sections.get(name, {})
            zone_tables: list[pa.Table] = []
            self._writer.write_section(name, columns, self._column(name, columns, sizes, zone_tables))
            if has_zones:
                bounds = {column: cls for column, cls in columns.items() if "." in column}
                counts_columns = dict.fromkeys(("null_least", "null_most", "nan_least", "nan_most"), INTEGER)
                section = zone_section(name.removeprefix("column "))
                self._writer.write_section(section, counts_columns | bounds, zone_tables)

    def _column(
        self, section: str, columns: Mapping[str, TypeClass], sizes: Numbers, zone_tables: list[pa.Table]
    ) -> Iterator[pa.Table]:
        """Yield the rows of a column's section. Append tables of its zones to `zone_tables`."""
        first_zone, ends = 0, np.cumsum(sizes)
        for (start, stop), table in zip(self._windows, self._merge(section), strict=True):
            if len(sizes):
                last_zone = int(np.searchsorted(ends, stop)) + 1
                zones = sizes[first_zone:last_zone]
                zone_tables.append(_summarize(table, columns, self._row_counts[start:stop], zones))
                first_zone = last_zone
            yield table

    def _merge(self, section: str) -> Iterator[pa.Table]:
        """Yield the rows of a section, window by window."""
        positions = [0] * len(self._sources)
        for start, stop in self._windows:
            if self._order is None:
                yield _read(self._sources[0], section, start, stop)
                continue
            order = self._order[start:stop]
            tables = []
            for number, count in enumerate(np.bincount(order, minlength=len(self._sources)).tolist()):
                if count:
                    end = positions[number] + count
                    tables.append(_read(self._sources[number], section, positions[number], end))
                    positions[number] = end
            joined = pa.concat_tables(tables, promote_options="default")
            rows = np.empty(stop - start, np.int64)
            rows[np.argsort(order, kind="stable")] = np.arange(stop - start)
            yield joined.take(pa.array(rows)).combine_chunks()


def _read(source: _Source, section: str, start: int, stop: int) -> pa.Table:
    """Return rows of a section. If a source lacks a column of the table, the column is null in all of its rows."""
    if section in source.sections:
        return source.read(section, start, stop)
    nulls = source.read("row_count", start, stop)["row_count"]
    true, zeros = pa.repeat(pa.scalar(True), len(nulls)), pa.array(np.zeros(len(nulls), np.int64))
    return pa.table({"null_count": nulls, "nan_count": zeros, "minimum_exact": true, "maximum_exact": true})


def _tap(tables: Iterable[pa.Table], name: str, firsts: list[pa.Array], runs: list[Numbers]) -> Iterator[pa.Table]:
    """Yield tables of a key column unchanged.

    Args:
        tables: The tables.
        name: Name of the column.
        firsts: Receives the first value of each block.
        runs: Receives the positions at which another partition begins, if the column has partition keys.
    """
    first, previous = 0, None
    for table in tables:
        values = one_chunk(table[name])
        firsts.append(values.take(pa.array(np.arange(-first % BLOCK_ROWS, len(values), BLOCK_ROWS))))
        if name == KEY[0]:
            differs = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1)).to_numpy(zero_copy_only=False)
            starts = np.flatnonzero(np.concatenate([[values[0] != previous], differs]))
            runs.append(starts + first)
            previous = values[len(values) - 1]
        first += len(values)
        yield table
    if name == KEY[0]:
        runs.append(np.array([first], np.int64))


def _run_lengths(runs: Sequence[Numbers]) -> Numbers:
    lengths: Numbers = np.diff(np.concatenate([np.zeros(0, np.int64), *runs]))
    return lengths


def _zone_sizes(runs: Numbers) -> Numbers:
    """Return the sizes of zones, given the numbers of fragments of all partitions.

    A zone has at least `_MIN_ZONE_ROWS` fragments, unless it is the last one, and at most about `_MAX_ZONE_ROWS`.
    """
    sizes: list[int] = []
    size = 0
    for run in runs.tolist():
        size += run
        if size >= _MIN_ZONE_ROWS:
            count = -(-size // _MAX_ZONE_ROWS)
            sizes += [size // count + (number < size % count) for number in range(count)]
            size = 0
    return np.array([*sizes, size] if size else sizes, np.int64)


def _aligned_windows(sizes: Numbers) -> list[tuple[int, int]]:
    """Return windows of about `_WINDOW_ROWS` rows that end at the end of a zone."""
    ends = np.cumsum(sizes)
    last = np.flatnonzero(np.diff(ends // _WINDOW_ROWS, append=-1))
    stops = ends[last].tolist()
    return list(zip([0, *stops], stops, strict=False))


def _merge_order(sources: Sequence[_Source]) -> npt.NDArray[np.uint16]:
    """Return the number of the source of each row, in the order of the keys. Reads all keys, a window at a time."""
    positions = [0] * len(sources)
    buffers: list[pa.Table] = [pa.table({name: pa.array([], pa.large_string()) for name in KEY})] * len(sources)
    order: list[npt.NDArray[np.uint16]] = []
    while True:
        for number, source in enumerate(sources):
            start = positions[number]
            if not len(buffers[number]) and start < source.row_count:
                positions[number] = stop = min(source.row_count, start + _WINDOW_ROWS)
                buffers[number] = pa.table({name: source.read(name, start, stop)[name] for name in KEY})
        open_numbers = [number for number, source in enumerate(sources) if positions[number] < source.row_count]
        # Rows up to the least last key are complete: unread rows of every source have greater keys.
        last_keys = [tuple(buffers[number][name][-1].as_py().encode() for name in KEY) for number in open_numbers]
        counts = [len(buffer) for buffer in buffers]
        if last_keys:
            counts = [_count_up_to(buffer, min(last_keys)) for buffer in buffers]
        if not any(counts):
            return np.concatenate([np.zeros(0, np.uint16), *order])
        parts = [buffer.slice(0, count) for buffer, count in zip(buffers, counts, strict=True)]
        buffers = [buffer.slice(count) for buffer, count in zip(buffers, counts, strict=True)]
        numbers = np.repeat(np.arange(len(sources), dtype=np.uint16), counts)
        indices = pc.sort_indices(pa.concat_tables(parts), sort_keys=[(name, "ascending") for name in KEY])
        order.append(numbers[indices.to_numpy()])


def _count_up_to(table: pa.Table, key: tuple[bytes, bytes]) -> int:
    """Return how many rows of a table that is sorted by key are not greater than a key."""
    low, high = 0, len(table)
    while low < high:
        middle = (low + high) // 2
        if tuple(table[name][middle].as_py().encode() for name in KEY) <= key:
            low = middle + 1
        else:
            high = middle
    return low


def _summarize(table: pa.Table, columns: Mapping[str, TypeClass], row_counts: RowCounts, zones: Numbers) -> pa.Table:
    """Return the bounds and counts of a column in each zone.

    Args:
        table: Bounds and counts of the column by fragment.
        columns: The columns of the table with their type classes; the table may lack some.
        row_counts: The row count of each fragment.
        zones: The number of fragments of each zone.
    """
    firsts = np.cumsum(zones) - zones
    nulls = count_bounds(table["null_count"], row_counts)
    nans = count_bounds(table["nan_count"], np.maximum(row_counts - nulls.least, 0))
    sums = {"null_least": nulls.least, "null_most": nulls.most, "nan_least": nans.least, "nan_most": nans.most}
    result: dict[str, pa.Array | RowCounts] = {name: np.add.reduceat(counts, firsts) for name, counts in sums.items()}
    for name, cls in columns.items():
        if "." not in name or name not in table.column_names:
            continue
        numbers = row_counts - nulls.least - (nans.least if cls.kind == "float" else 0)
        values = one_chunk(table[name])
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        # A fragment that may have values and has no bound may have any value, and so may its zone.
        is_unknown = np.logical_or.reduceat(~valid & (numbers > 0), firsts) | ~np.logical_or.reduceat(valid, firsts)
        extreme = _extremes(values, valid, firsts, zones, is_least=name.startswith("minimum"))
        result[name] = extreme.take(pa.array(np.arange(len(zones)), mask=is_unknown))
    return pa.table(result)


def _extremes(values: pa.Array, valid: Mask, firsts: Numbers, zones: Numbers, *, is_least: bool) -> pa.Array:
    """Return the least or the greatest value of each zone. Of a zone without values, the result has no meaning.

    Args:
        values: The bounds of fragments.
        valid: Which of them are not null.
        firsts: Position of the first fragment of each zone.
        zones: Number of fragments of each zone.
        is_least: Whether to return the least values.
    """
    type_ = values.type
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_temporal(type_):
        # Decoded nulls are arbitrary numbers of the buffer; replace them by the neutral element.
        if pa.types.is_temporal(type_):
            values = values.view(pa.int32() if type_.bit_width == 32 else pa.int64())
        numbers = values.fill_null(0).to_numpy()
        is_float = numbers.dtype.kind == "f"
        limits = np.finfo(numbers.dtype) if is_float else np.iinfo(numbers.dtype)
        neutral = limits.max if is_least else limits.min
        if is_float:
            neutral = np.inf if is_least else -np.inf
        reduce = np.minimum if is_least else np.maximum
        result = pa.array(reduce.reduceat(np.where(valid, numbers, neutral), firsts))
        return result if result.type == type_ else result.view(type_)
    plain = values.storage if isinstance(values, pa.ExtensionArray) else values
    if pa.types.is_boolean(plain.type):
        plain = plain.cast(pa.int8())
    zone = pa.array(np.repeat(np.arange(len(zones)), zones))
    # Nulls are the last values of a zone, which is the default.
    keys = [("zone", "ascending"), ("value", "ascending" if is_least else "descending")]
    indices = pc.sort_indices(pa.table({"zone": zone, "value": plain}), sort_keys=keys)
    return values.take(indices.take(pa.array(firsts)))
