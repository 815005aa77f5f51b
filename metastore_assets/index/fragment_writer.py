"""A writer of the fragment index. A commit adds one segment, or merges its rows with older segments into a new one.

A segment has rows of fragments, sorted by key, and tombstones: keys of fragments that it removes from older segments. A
large segment also has zones: runs of fragments with common bounds. `index.fragments` describes the files.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.index.flat_columns import (
    complete_columns,
    flat_encodings,
    flatten_rows,
    merge_flat_schemas,
)
from metastore_assets.index.fragment_segments import (
    NO_KEYS,
    ZONES,
    FragmentSegment,
    Segments,
    SmallSegment,
    sorted_keys,
)
from metastore_assets.index.fragments import FOLDER, FRAGMENTS, KEY, IndexRows, cast_bounds, join_keys, null_rows
from metastore_assets.index.row_ranges import Numbers
from metastore_assets.index.zones import ZONE_COLUMNS, group_sizes, run_lengths, summarize_zones, zone_sizes
from metastore_assets.statistics.union import merge_unions
from metastore_assets.store.manifest import split_fragment_key
from metastore_assets.store.objects import MinimalParquet, ObjectStore
from metastore_assets.store.parquet import ParquetTableWriter
from metastore_assets.store.sections import SectionOptions, SectionWriter
from metastore_assets.store.segments import (
    EMPTY,
    ROWS,
    TOMBSTONES,
    KeyChanges,
    SegmentFile,
    SegmentFiles,
    SegmentKind,
    retained_files,
)
from metastore_assets.values.physical import one_chunk

_KIND = SegmentKind("index", FOLDER, FRAGMENTS)
_SMALL_ROWS = 8_192
"""Maximum number of rows of a segment of one file: reading all of its rows takes less time than one more request."""
_FILE_ROWS = 500_000
"""A file of a large segment ends as soon as it has this many fragments. Its footer then has about 150 kB."""
_GROUP_ROWS = 1_024
"""Maximum number of fragments in a row group of the file of fragments. A row group has one or more complete zones."""
_COLUMN_GROUP_ROWS = 16_384
"""Number of fragments in a row group of the file of columns, which has a column chunk for each flat column."""
_WINDOW_ROWS = 1 << 14
"""Number of rows that are written at once. All merged sources together have about as many rows in memory."""
_MIN_SOURCE_ROWS = 1 << 11
"""Minimum number of rows that are read at once from each merged segment, because each read decodes complete row groups.
"""
_COLUMN_FILE = ["row_count", "bytes"]
"""Columns of FRAGMENTS that are also in the file of columns, because predicates on all fragments need them."""


def update_index(
    store: ObjectStore,
    base: SegmentFiles | None,
    batches: Iterable[IndexRows],
    changes: KeyChanges,
    replaced: Collection[str] | None = None,
) -> SegmentFiles:
    """Write the fragment index of the next version; return its files. No existing file is changed.

    When large segments are merged, only a window of rows is in memory at a time.

    Args:
        store: The table's folder.
        base: The index of the version before; None without one.
        batches: The index rows of the added and replaced fragments. All batches except the last one are first written
            to temporary files.
        changes: The keys (see `store.manifest.fragment_key`) of added, replaced and removed fragments.
        replaced: The keys in `changes.added` that are also in `base`; None if this is unknown.

    Raises:
        CorruptionError: A file of `base` is corrupt.
    """
    if not changes.row_count:
        return EMPTY
    base = base or EMPTY
    if not changes.added and not changes.removed:
        return base
    # The oldest segments stay. All newer ones are merged with the batches into one segment.
    retained = retained_files(_KIND, base, changes.row_count, len(changes.added) + len(changes.removed))
    merged = Segments(store, base.files[len(retained) :])
    removed = NO_KEYS
    if base.files:
        replaced = changes.added if replaced is None else replaced
        removed = pa.array(sorted({*changes.removed, *replaced}), pa.large_string())
    temporary: list[SegmentFile] = []
    last: IndexRows | None = None
    for batch in batches:
        if last is not None:
            temporary += _write_segment(store, [], _sort_rows(last), None)
        last = batch
    sources = [(segment, _union(merged.removed[number], removed)) for number, segment in enumerate(merged.all)] + [
        (segment, NO_KEYS) for segment in Segments(store, temporary).all
    ]
    tombstones = None
    if retained:
        tombstones = sorted_keys([removed, *merged.map(lambda number, segment: segment.tombstones)])
    files = _write_segment(store, sources, None if last is None else _sort_rows(last), tombstones)
    if temporary:
        store.delete([file.path for file in temporary])
    return SegmentFiles(changes.row_count, (*retained, *files))


_Source = tuple[FragmentSegment, pa.Array]
"""A stored segment, and the sorted keys of its rows that are not merged."""


def _write_segment(
    store: ObjectStore, sources: Sequence[_Source], batch: IndexRows | None, tombstones: pa.Array | None
) -> tuple[SegmentFile, ...]:
    """Write one segment with the rows of stored segments and of a batch; return its files.

    Args:
        store: The table's folder.
        sources: The stored segments, each with the keys of its rows that are not merged. Each remaining key occurs only
            once in all segments and the batch.
        batch: More rows, sorted by key; None without any.
        tombstones: The sorted keys of the rows of older segments that the new segment removes; None if there are no
            older segments.
    """
    removed = NO_KEYS if tombstones is None else tombstones
    row_count = sum(segment.row_count for segment, _ in sources) + (0 if batch is None else len(batch.fragments))
    small = [segment for segment, _ in sources if isinstance(segment, SmallSegment)]
    if row_count <= _SMALL_ROWS and len(small) == len(sources):
        parts = [segment.index_rows(keys) for segment, (_, keys) in zip(small, sources, strict=True)]
        return _write_small(store, [*parts, *([] if batch is None else [batch])], removed)
    flat = None if batch is None else flatten_rows(batch)
    schema = merge_flat_schemas(
        [*(segment.flat_schema for segment, _ in sources), *([] if flat is None else [flat.schema])]
    )
    window_rows = max(_MIN_SOURCE_ROWS, _WINDOW_ROWS // max(1, len(sources)))
    windows = [_windows(segment, keys, schema, window_rows) for segment, keys in sources]
    if flat is not None:
        windows.append(_slices(flat, schema, window_rows))
    merged = _regroup(merge_by_key(windows))
    first = next(merged, None)
    if first is None:
        return _write_small(store, [], removed)
    return _LargeSegmentWriter(store, schema).write(chain([first], merged), removed)


def _write_small(store: ObjectStore, parts: Sequence[IndexRows], tombstones: pa.Array) -> tuple[SegmentFile, ...]:
    parts = [part for part in parts if len(part.fragments)]
    union = merge_unions(part.union for part in parts)
    rows = IndexRows(
        pa.concat_tables([FRAGMENTS.empty_table(), *(part.fragments for part in parts)]),
        {
            field_id: pa.concat_tables(
                [
                    cast_bounds(part.columns[field_id], union)
                    if field_id in part.columns
                    else null_rows(part.fragments, union)
                    for part in parts
                ]
            )
            for field_id in sorted({field_id for part in parts for field_id in part.columns})
        },
    )
    if len(parts) > 1:
        rows = _sort_rows(rows)
    bounds = [("null_count", pa.int64()), ("nan_count", pa.int64()), ("minimum", union), ("maximum", union)]
    schema = pa.schema([*FRAGMENTS, *map(pa.field, *zip(*bounds, strict=True))])
    path = f"{FOLDER}/{uuid.uuid4().hex}.{_KIND.name}.parquet"
    with SectionWriter(store, path, schema, SectionOptions(_union_encodings(union), ())) as writer:
        writer.write_section(TOMBSTONES, _pad(_key_table(tombstones), schema))
        writer.write_section(ROWS, _pad(rows.fragments, schema))
        for field_id, table in rows.columns.items():
            writer.write_section(f"column {field_id}", _pad(table, schema))
    return (SegmentFile(path, len(rows.fragments) + len(tombstones)),)


class _LargeSegmentWriter:
    """A writer of a large segment: a file of zones; for each range of keys, a file of fragments and one of columns."""

    def __init__(self, store: ObjectStore, schema: pa.Schema) -> None:
        """Prepare the files; `write` writes them.

        Args:
            store: The table's folder.
            schema: The columns of FRAGMENTS, then flat columns.
        """
        self._store = store
        self._unique = uuid.uuid4().hex
        flat = list(schema)[len(FRAGMENTS) :]
        self._columns = pa.schema([*(FRAGMENTS.field(name) for name in _COLUMN_FILE), *flat])
        zones = [pa.field(name, pa.int64()) for name in ZONE_COLUMNS]
        self._zones = pa.schema([*(FRAGMENTS.field(name) for name in KEY), *zones, *flat])

    def write(self, windows: Iterable[pa.Table], tombstones: pa.Array) -> tuple[SegmentFile, ...]:
        """Write rows and tombstones; return the files, the file of zones first.

        Args:
            windows: The rows, sorted by key.
            tombstones: The sorted keys of the rows of older segments that the segment removes.
        """
        path = f"{FOLDER}/{self._unique}.{_KIND.name}.parquet"
        parts = _cut_zones(windows)
        files: list[SegmentFile] = []
        options = SectionOptions(flat_encodings(self._zones.names), ())
        with SectionWriter(self._store, path, self._zones, options) as writer:
            writer.write_section(TOMBSTONES, _pad(_key_table(tombstones), self._zones))
            part = next(parts, None)
            while part is not None:
                part = self._write_range(files, part, parts, writer)
            writer.write_section(ZONES, self._zones.empty_table())
        return (
            SegmentFile(path, len(tombstones), footer_bytes=writer.footer_bytes),
            *files,
        )

    def _write_range(
        self,
        files: list[SegmentFile],
        part: tuple[pa.Table, Numbers],
        following: Iterator[tuple[pa.Table, Numbers]],
        zones: SectionWriter,
    ) -> tuple[pa.Table, Numbers] | None:
        """Write the two files of one range of keys.

        Args:
            files: The list to which the two files are added.
            part: (rows, sizes of their zones) at the start of the range.
            following: The next pairs. They are taken until the files have `_FILE_ROWS` rows.
            zones: The file of zones.

        Returns:
            The first pair after the range, for the next call; None at the end.
        """
        name = f"{FOLDER}/{self._unique}-{len(files) // 2}"
        paths = [f"{name}.{kind}.{_KIND.name}.parquet" for kind in ("fragments", "columns")]
        rows = 0
        remaining: tuple[pa.Table, Numbers] | None = part
        with ExitStack() as stack:
            fragments, columns = (
                stack.enter_context(self._store.parquet_writer(path, schema, minimal=_minimal(schema)))
                for path, schema in zip(paths, (FRAGMENTS, self._columns), strict=True)
            )
            while remaining is not None and rows < _FILE_ROWS:
                table, sizes = remaining
                self._write_part(table, sizes, fragments, zones)
                columns.write_table(table.select(self._columns.names), _COLUMN_GROUP_ROWS)
                rows += len(table)
                remaining = next(following, None)
        files += [
            SegmentFile(paths[0], rows, continues=True, footer_bytes=fragments.footer_bytes),
            SegmentFile(paths[1], 0, continues=True, footer_bytes=columns.footer_bytes),
        ]
        return remaining

    def _write_part(self, table: pa.Table, sizes: Numbers, fragments: ParquetTableWriter, zones: SectionWriter) -> None:
        """Write rows to the file of fragments, and their zones to the file of zones.

        Args:
            table: The rows.
            sizes: The number of rows of each zone.
            fragments: The file of fragments.
            zones: The file of zones.
        """
        starts = np.cumsum(sizes) - sizes
        counts = group_sizes(sizes.tolist(), _GROUP_ROWS)
        firsts = np.cumsum(counts) - counts
        groups = starts[firsts]
        described = table.select(FRAGMENTS.names)
        for start, end in zip(groups.tolist(), [*groups[1:].tolist(), len(table)], strict=True):
            fragments.write_table(described.slice(start, end - start))
        # Only the first zone of a row group has a key.
        at = np.zeros(len(sizes), np.int64)
        at[firsts] = groups
        mask = np.ones(len(sizes), np.bool_)
        mask[firsts] = False
        keys = table.select(list(KEY)).take(pa.array(at, mask=mask))
        summary = summarize_zones(table, sizes)
        for name in KEY:
            summary = summary.append_column(name, keys[name])
        zones.write_section(ZONES, summary.select(self._zones.names))


def merge_by_key(sources: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Merge sources of rows that are each sorted by key; yield all rows sorted by key, as consecutive tables.

    Each table of a source has a column `key`, which the results omit. No key occurs twice.
    """
    buffers: list[pa.Table | None] = [next(source, None) for source in sources]
    while True:
        for number, source in enumerate(sources):
            buffer = buffers[number]
            while buffer is not None and not len(buffer):
                buffer = buffers[number] = next(source, None)
        filled = [(number, buffer) for number, buffer in enumerate(buffers) if buffer is not None]
        if not filled:
            return
        # Rows up to the least last key are complete: unread rows of every source have greater keys.
        upper = min(buffer["key"][-1].as_py().encode() for _, buffer in filled)
        taken = []
        for number, buffer in filled:
            count = _count_up_to(buffer["key"], upper)
            taken.append(buffer.slice(0, count))
            buffers[number] = buffer.slice(count)
        taken = [table for table in taken if len(table)]
        table = taken[0] if len(taken) == 1 else pa.concat_tables(taken)
        if len(taken) > 1:
            table = table.take(pc.sort_indices(table["key"]))
        yield table.drop_columns(["key"])


def _count_up_to(keys: pa.ChunkedArray, upper: bytes) -> int:
    """Return the number of sorted keys that are less than or equal to a key."""
    return bisect_right(range(len(keys)), upper, key=lambda at: keys[at].as_py().encode())


def _regroup(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of consecutive tables, regrouped into tables of `_WINDOW_ROWS` rows; the last may have fewer."""
    collected: list[pa.Table] = []
    count = 0
    for table in tables:
        while len(table):
            part = table.slice(0, _WINDOW_ROWS - count)
            table = table.slice(len(part))
            collected.append(part)
            count += len(part)
            if count == _WINDOW_ROWS:
                yield pa.concat_tables(collected)
                collected, count = [], 0
    if collected:
        yield pa.concat_tables(collected)


def _windows(segment: FragmentSegment, removed: pa.Array, schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """Yield the rows of a stored segment whose keys are not removed, with a column `key` for `merge_by_key`.

    Args:
        segment: The segment.
        removed: The removed keys, sorted.
        schema: The columns of the result.
        rows: Number of rows that are read at once.
    """
    for window in segment.all_rows.windows(rows):
        table = segment.read(schema.names, window)
        keys = join_keys(table)
        low, high = (
            int(pc.search_sorted(removed, keys[at], side=side).as_py()) if len(removed) else 0
            for at, side in ((0, "left"), (len(keys) - 1, "right"))
        )
        if low < high:
            mask = pc.invert(pc.is_in(keys, value_set=removed.slice(low, high - low)))
            table, keys = table.filter(mask), keys.filter(mask)
        yield complete_columns(table, schema).add_column(0, "key", keys)


def _slices(table: pa.Table, schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    for start in range(0, len(table), rows):
        part = table.slice(start, rows)
        yield complete_columns(part, schema).add_column(0, "key", join_keys(part))


def _cut_zones(windows: Iterable[pa.Table]) -> Iterator[tuple[pa.Table, Numbers]]:
    """Yield (rows, sizes of their zones) for rows sorted by key. No zone is split between two results."""
    incomplete: pa.Table | None = None
    for window in windows:
        table = window if incomplete is None else pa.concat_tables([incomplete, window])
        sizes = zone_sizes(run_lengths(one_chunk(table["partition_key"])))
        # The last partition may go on in the next window.
        complete = sizes[:-1]
        end = int(complete.sum())
        if end:
            yield table.slice(0, end).combine_chunks(), complete
        incomplete = table.slice(end)
    if incomplete is not None and len(incomplete):
        incomplete = incomplete.combine_chunks()
        yield incomplete, zone_sizes(run_lengths(one_chunk(incomplete["partition_key"])))


def _sort_rows(rows: IndexRows) -> IndexRows:
    if len(rows.fragments) < 2:
        return rows
    order = pc.sort_indices(rows.fragments, sort_keys=[(name, "ascending") for name in KEY])
    if bool((np.diff(order.to_numpy().astype(np.int64)) > 0).all()):
        return rows
    return IndexRows(
        rows.fragments.take(order), {field_id: table.take(order) for field_id, table in rows.columns.items()}
    )


def _union(first: pa.Array, second: pa.Array) -> pa.Array:
    if not len(first) or not len(second):
        return first if len(first) else second
    return sorted_keys([first, second])


def _key_table(keys: pa.Array) -> pa.Table:
    pairs = [split_fragment_key(key) for key in keys.to_pylist()]
    columns = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table(
        [pa.array(values, FRAGMENTS.field(name).type) for name, values in zip(KEY, columns, strict=True)], KEY
    )


def _pad(table: pa.Table, schema: pa.Schema) -> pa.Table:
    arrays = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type) for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _minimal(schema: pa.Schema) -> MinimalParquet:
    texts = [field.name for field in schema if not pa.types.is_primitive(field.type)]
    return MinimalParquet(flat_encodings(schema.names), True, zstd_columns=texts)


def _union_encodings(union: pa.StructType) -> dict[str, str]:
    """Return the Parquet encodings of the columns of a small segment."""
    flat = flat_encodings([f"column x.{side}.{field.name}" for side in ("minimum", "maximum") for field in union])
    counts = flat_encodings(["row_count", "bytes", "null_count", "nan_count"])
    return counts | {name.removeprefix("column x."): encoding for name, encoding in flat.items()}
