"""A writer of the fragment index.

A commit, which writes the next version of the index, adds one segment, and merges a limited part of older segments.

A segment has rows of fragments, sorted by key, and tombstones: keys of fragments that it removes from older segments. A
large segment has zones: runs of fragments with common bounds. For each range of keys, it has two files: a file of
fragments with the fragments and the tombstones, and a file of columns with row counts, sizes and bounds. A directory is
a file that describes up to 64 ranges: their zones, and the footers of their files. The directory of a new range is
first in memory, and written at the end of the commit. `index.fragment_index` has more about the files.

A fragment is a data file with its deletes.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metastore_assets.batching import batched
from metastore_assets.index.flat_columns import (
    complete_columns,
    field_ids_of,
    flat_encodings,
    flatten_rows,
    merge_flat_schemas,
)
from metastore_assets.index.fragment_directories import (
    RANGE_SECTION,
    RANGES,
    ZONES,
    DirectoryPart,
    SegmentDirectory,
    WrittenDirectory,
    directory_numbers,
    open_directories,
)
from metastore_assets.index.fragment_index import (
    FOLDER,
    FRAGMENTS,
    KEY,
    NO_KEYS,
    IndexRows,
    cast_bounds,
    column_schema,
    column_section,
    join_keys,
    join_sorted,
    null_rows,
)
from metastore_assets.index.fragment_segments import SmallSegment, open_segment
from metastore_assets.index.row_ranges import Numbers
from metastore_assets.index.zones import ZONE_COLUMNS, group_sizes, run_lengths, summarize_zones, zone_sizes
from metastore_assets.statistics.typed_union import merge_unions
from metastore_assets.store.keys import SegmentKeyRange
from metastore_assets.store.objects import MinimalParquet, ObjectStore, ParquetOptions
from metastore_assets.store.parquet_footers import pack_footer
from metastore_assets.store.sections import SectionOptions, SectionWriter
from metastore_assets.store.segment_levels import SegmentMerge, SegmentUpdate
from metastore_assets.store.segment_merge import MergeSource, with_bounds
from metastore_assets.store.segments import (
    EMPTY,
    ROWS,
    TOMBSTONES,
    KeyChanges,
    SegmentFile,
    SegmentFiles,
    SegmentKind,
)
from metastore_assets.store.version import split_fragment_key
from metastore_assets.values.physical import one_chunk, pad_columns

_KIND = SegmentKind("index", FOLDER, FRAGMENTS)
_SMALL_ROWS = 8_192
"""Maximum number of rows of a file without zones: reading all of its rows takes less time than one more request."""
_FILE_ROWS = 16_384
"""A file with zones ends when it has this many fragments, because a commit may rewrite one file: about a megabyte."""
_MIN_FILE_ROWS = 4_096
_FILE_CELLS = 1 << 17
"""A file with zones also ends when it has this many bounds of columns (fragments times columns), but not with fewer
than `_MIN_FILE_ROWS` fragments."""
_GROUP_ROWS = 256
"""Maximum number of fragments in a row group of fragments. A row group has one or more complete zones.

In ten million fragments in partitions of a hundred, Arrow takes 3.5 ms of CPU time to decode the row groups of 100
scattered partitions. With 1,024 fragments in a row group, it takes 8 ms."""
_WINDOW_ROWS = 1 << 16
"""Number of rows that are read at once. All merged sources together have about as many rows in memory."""
_MIN_SOURCE_ROWS = 1 << 11
"""Minimum number of rows in the window of a source. A row group is decoded once for each window that has rows of it."""
_COLUMN_FILE = ["row_count", "bytes"]
"""Columns of FRAGMENTS that are also in the file of columns, because predicates on all fragments need them."""
_NUMBERS = 1 << 28
"""Each new range of keys gets a random number below this one. Files are read as one only if their numbers differ."""
_DIRECTORY_FILES = 64
"""Maximum number of range files that a directory describes. A commit writes a directory again with each range file."""


def update_index(
    store: ObjectStore,
    base: SegmentFiles | None,
    batches: Iterable[IndexRows],
    changes: KeyChanges,
    replaced_keys: Collection[str] | None = None,
) -> SegmentFiles:
    """Write the fragment index of the next version; return its files.

    No existing file is changed.

    A commit writes its changes, and does a limited part of the due merges (see `store.segment_levels`). When large
    segments are merged, only a window of rows and one new file are in memory at a time.

    Args:
        store: The table's folder.
        base: The index of the previous version; None if there is none.
        batches: The index rows of the added and replaced fragments. All batches except the last one are first written
            to temporary files.
        changes: The keys (see `store.version.fragment_key`) of added, replaced and removed fragments.
        replaced_keys: The keys in `changes.added_keys` that are also in `base`; None if this is unknown.

    Raises:
        CorruptionError: A file of `base` is corrupt.
    """
    if not changes.row_count:
        return EMPTY
    base = base or EMPTY
    if not changes.added_keys and not changes.removed_keys:
        return base
    if base.files:
        # A reader finds rows that are not live by tombstones alone, so replaced keys have tombstones, too.
        replaced_keys = changes.added_keys if replaced_keys is None else replaced_keys
        changes = replace(changes, removed_keys={*changes.removed_keys, *replaced_keys})
    parts = iter(batches)
    first = next(parts, None)
    columns = len(first.columns) if first is not None else 0
    if not columns and base.files:
        segment = open_segment(store, base.files[:1], open_directories(store, base).get(base.files[0].path))
        columns = len(field_ids_of(segment.flat_schema.names))
    file_rows = min(_FILE_ROWS, max(_MIN_FILE_ROWS, _FILE_CELLS // max(1, columns)))
    update = SegmentUpdate(store, replace(_KIND, file_rows=file_rows), base, changes)
    written_directories: dict[str, SegmentDirectory] = {}
    files = update.write(
        parts if first is None else chain([first], parts),
        lambda merge: _IndexMerge(store, merge, base, written_directories).write(),
    )
    return replace(files, directories=_write_directories(store, base, files, written_directories))


class _IndexMerge:
    """A writer of one segment.

    It merges stored segments, or parts of them, and a newer batch of rows by key.
    """

    def __init__(
        self,
        store: ObjectStore,
        merge: SegmentMerge[IndexRows],
        base: SegmentFiles,
        written_directories: MutableMapping[str, SegmentDirectory],
    ) -> None:
        """Prepare a merge; `write` executes it.

        Args:
            store: The table's folder.
            merge: What is merged: parts of segments, and a batch of new rows. Some parts are from segments in `base`,
                others from segments that this commit has already written. Rows with a key in
                `merge.removed_keys` are removed only from parts in `base`.
            base: The files of the index before the commit.
            written_directories: {path of a file of fragments: the directory in memory that describes its range}, for
                the files that this commit has already written. `write` adds the files that it writes.
        """
        self._store = store
        self._merge = merge
        self._written_directories = written_directories
        files = [file for part in merge.parts for file in part.files]
        has_ranges = any(file.companion is not None for file in files)
        directories = {**open_directories(store, base), **written_directories} if has_ranges else {}
        self._segments = [open_segment(store, [file], directories.get(file.path)) for file in files]
        self._batch = None if merge.batch is None or not len(merge.batch.fragments) else _sort_rows(merge.batch)
        self._removed_keys = pa.array(sorted(merge.removed_keys), pa.large_string())
        count = sum(file.rows for file in files) + len(self._removed_keys)
        self._key_count = count + (0 if self._batch is None else len(self._batch.fragments))
        stored_paths = {*base.paths()}
        self._stored_count = sum(part.files[0].path in stored_paths for part in merge.parts)
        """The number of parts that are stored; the others are batches of the same commit."""

    def write(self) -> list[SegmentFile]:
        """Write all rows and tombstones in the order of their keys; return the files.

        Few rows from small files become one file without zones. Otherwise, each range of keys becomes two files.
        """
        small = [segment for segment in self._segments if isinstance(segment, SmallSegment)]
        if self._key_count <= min(_SMALL_ROWS, self._merge.file_rows) and len(small) == len(self._segments):
            return self._write_small(small)
        flat = None if self._batch is None else flatten_rows(self._batch)
        schemas = [segment.flat_schema for segment in self._segments]
        schema = merge_flat_schemas(schemas if flat is None else [*schemas, flat.schema])
        window_rows = max(_MIN_SOURCE_ROWS, _WINDOW_ROWS // max(1, len(self._merge.parts)))
        sources = [self._stored_source(*part, schema, window_rows) for part in self._merge.numbered_parts()]
        sources.insert(self._stored_count, MergeSource((), iter([pa.table({_KEY.name: self._removed_keys})])))
        if flat is not None:
            sources.append(MergeSource(_slices(flat, schema, window_rows), ()))
        return self._merge.write_files(sources, pa.schema([_KEY, *schema]), self._write_range, keeps_replaced=True)

    def _write_small(self, segments: Sequence[SmallSegment]) -> list[SegmentFile]:
        """Write the merged rows and tombstones to one file without zones.

        Tombstones are left out if `merge.with_tombstones` is false.

        Return a list with this file. If there are neither rows nor tombstones, no file is written, and the list is
        empty.
        """
        parts = [] if self._batch is None else [self._batch]
        removed_keys = NO_KEYS
        for number, (numbers, keys) in reversed(list(enumerate(self._merge.numbered_parts()))):
            if number == self._stored_count - 1:
                removed_keys = join_sorted([removed_keys, self._removed_keys])
            parts += [segments[at].index_rows(removed_keys, keys) for at in numbers]
            tombstones = [_within(segments[at].tombstones, keys) for at in numbers]
            removed_keys = join_sorted([removed_keys, *tombstones])
        if not self._stored_count:
            removed_keys = join_sorted([removed_keys, self._removed_keys])
        return _write_small(self._store, parts, removed_keys if self._merge.with_tombstones else NO_KEYS)

    def _stored_source(
        self, numbers: Sequence[int], keys: SegmentKeyRange | None, schema: pa.Schema, window_rows: int
    ) -> MergeSource:
        """Return the rows and tombstones of some files as a source of the merge.

        Args:
            numbers: The positions of the files in `self._segments`.
            keys: The range of keys to return; None for all.
            schema: The columns of the rows: those of FRAGMENTS, and flat columns (see `index.flat_columns`).
            window_rows: Maximum number of rows that are read at once.
        """

        def rows() -> Iterator[pa.Table]:
            for number in numbers:
                segment = self._segments[number]
                for window in segment.rows_between(keys).windows(window_rows):
                    table = complete_columns(segment.read(schema.names, window), schema)
                    yield table.add_column(0, _KEY, join_keys(table))

        def tombstones() -> Iterator[pa.Table]:
            for number in numbers:
                yield pa.table({_KEY.name: _within(self._segments[number].tombstones, keys)})

        return MergeSource(rows(), tombstones())

    def _write_range(self, rows: pa.Table, tombstones: pa.Array) -> SegmentFile:
        """Write the rows and tombstones of a range of keys as a file of fragments and a file of columns.

        Return one SegmentFile for both: the file of columns is its `companion`. The directory that describes the range
        stays in memory, in `_written_directories`.
        """
        table = rows.drop_columns([_KEY.name])
        flat = [field for field in table.schema if field.name not in FRAGMENTS.names]
        sizes = zone_sizes(run_lengths(one_chunk(table["partition_key"])))
        zone_counts = np.array(group_sizes(sizes.tolist(), _GROUP_ROWS), np.int64)
        firsts = np.cumsum(zone_counts) - zone_counts
        starts = (np.cumsum(sizes) - sizes)[firsts]
        fragment_rows = table.select(FRAGMENTS.names)
        groups = [fragment_rows.slice(start, end - start) for start, end in pairwise([*starts.tolist(), len(table)])]
        bounds = table.select([*_COLUMN_FILE, *(field.name for field in flat)])
        name = f"{FOLDER}/{uuid.uuid4().hex}"
        paths = [f"{name}.{kind}.{_KIND.name}.parquet" for kind in ("fragments", "columns")]
        number = uuid.uuid4().int % _NUMBERS
        fragments = self._write_parquet(paths[0], [*groups, pad_columns(_key_table(tombstones), FRAGMENTS)])
        columns = self._write_parquet(paths[1], [bounds])
        footers = [pack_footer(metadata) for metadata in (fragments, columns)]
        zones = _add_keys(summarize_zones(table, sizes) if len(table) else table.slice(0, 0), table, firsts, starts)
        counts = [len(table), len(tombstones), len(zones)]
        row = [paths[0], *counts, number, *(value for footer in footers for value in vars(footer).values())]
        self._written_directories[paths[0]] = WrittenDirectory(
            pa.table([[value] for value in row], schema=RANGES), zones
        )
        file = SegmentFile(paths[0], len(rows) + len(tombstones), companion=paths[1])
        return with_bounds(file, rows, tombstones)

    def _write_parquet(self, path: str, row_groups: Sequence[pa.Table]) -> pq.FileMetaData:
        """Write a file with the given row groups.

        Return its footer.
        """
        schema = row_groups[0].schema
        texts = [field.name for field in schema if not pa.types.is_primitive(field.type)]
        minimal = MinimalParquet(flat_encodings(schema.names), True, zstd_columns=texts)
        with self._store.parquet_writer(path, schema, ParquetOptions(minimal=minimal)) as writer:
            for row_group in row_groups:
                writer.write_table(row_group)
        return writer.metadata


_KEY = pa.field("key", pa.large_string())
"""Key of a fragment (see `store.version.fragment_key`), in the rows of a merge."""


def _add_keys(zones: pa.Table, table: pa.Table, firsts: Numbers, starts: Numbers) -> pa.Table:
    """Return the zones with the columns `KEY` (partition key and path) in front.

    The first zone of a row group gets the key of the first fragment in the row group. Other zones get nulls.

    Args:
        zones: A row per zone (consecutive fragments).
        table: The fragments of all zones, in the same order.
        firsts: For each row group, the position of its first zone in `zones`.
        starts: For each row group, the position of its first fragment in `table`.
    """
    at, mask = np.zeros(len(zones), np.int64), np.ones(len(zones), np.bool_)
    at[firsts], mask[firsts] = starts, False
    keys = table.select(list(KEY)).take(pa.array(at, mask=mask))
    flat = [name for name in table.column_names if name not in FRAGMENTS.names]
    columns = {name: keys[name] for name in KEY} | {
        name: zones[name] if name in zones.column_names else pa.array([], pa.int64()) for name in (*ZONE_COLUMNS, *flat)
    }
    return pa.table(columns)


def _write_directories(
    store: ObjectStore, base: SegmentFiles, files: SegmentFiles, written_directories: Mapping[str, SegmentDirectory]
) -> tuple[SegmentFile, ...]:
    """Write the directories that describe new range files.

    Return the directories of all range files of the index.

    Here, a range file is the file with the fragments of one range of keys. A directory is replaced when it has to
    describe a new range file. Until then, it may still describe range files that the index no longer has.

    Args:
        store: The table's folder.
        base: The files of the index before the commit.
        files: The files of the index after the commit.
        written_directories: {path of a range file of this commit: the directory in memory that describes it}.
    """
    stored_paths, new_paths = (
        [file.path for file in each.files if file.companion is not None] for each in (base, files)
    )
    if stored_paths == new_paths:
        return base.directories
    before = {path: base.directories[number] for path, number in directory_numbers(base).items()}
    all_directories = {**open_directories(store, base), **written_directories}
    directories = []
    for segment in files.segments:
        for members in _divide([file.path for file in segment if file.companion is not None], before):
            if all(path in before for path in members) and len({before[path].path for path in members}) == 1:
                directories.append(before[members[0]]._replace(rows=len(members)))
            else:
                directories.append(_write_directory(store, members, all_directories))
    return tuple(directories)


def _divide(paths: Sequence[str], before: Mapping[str, SegmentFile]) -> Iterator[list[str]]:
    """Divide the range files of a segment into groups that each get one directory.

    Yield the paths of each group.

    Consecutive files that were in one directory stay in one group. A new file joins the group of the previous file;
    new files at the start join the group of the first old file. A group with new files is combined with the next group
    if they have at most 32 files together. A group of more than 64 files is divided.

    Args:
        paths: The range files, by ascending key.
        before: The directory file that each old range file was in, by path.
    """
    groups: list[list[str]] = []
    current: str | None = None
    for path in paths:
        directory = before[path].path if path in before else None
        if not groups or (directory != current and directory is not None and current is not None):
            groups.append([])
            current = None
        groups[-1].append(path)
        current = directory or current
    for number, group in enumerate(groups):
        # A group that must be written again joins the next one if both are small. Large groups are divided.
        following = groups[number + 1 : number + 2]
        is_changed = any(path not in before for path in group)
        if following and is_changed and len(group) + len(following[0]) <= _DIRECTORY_FILES // 2:
            following[0][:0] = group
            continue
        count = -(-len(group) // _DIRECTORY_FILES)
        size = -(-len(group) // count)
        yield from batched(group, size)


def _write_directory(
    store: ObjectStore, paths: Sequence[str], all_directories: Mapping[str, SegmentDirectory]
) -> SegmentFile:
    """Write the directory of some range files.

    The directory is a file with the zones of the range files, and with what is needed to open them.

    Args:
        store: The table's folder.
        paths: The paths of the range files, by ascending key.
        all_directories: For each range file, by path, the directory that describes it so far: a stored one, or one in
            memory.
    """
    runs = [list(run) for _, run in groupby(paths, key=lambda path: all_directories[path])]
    parts = [DirectoryPart(all_directories[run[0]], run) for run in runs]
    zones = [part.read_zones(part.zone_schema.names) for part in parts]
    flat = list(merge_flat_schemas(table.schema for table in zones))[len(FRAGMENTS) :]
    columns = [FRAGMENTS.field(name) for name in KEY] + [pa.field(name, pa.int64()) for name in ZONE_COLUMNS] + flat
    zone_schema = pa.schema(columns)
    schema = pa.schema([*columns, *(field for field in RANGES if field.name not in zone_schema.names)])
    path = f"{FOLDER}/{uuid.uuid4().hex}.directory.{_KIND.name}.parquet"
    texts = [field.name for field in schema if not pa.types.is_primitive(field.type)]
    options = SectionOptions(flat_encodings(schema.names), (), zstd_columns=texts)
    with SectionWriter(store, path, schema, options) as writer:
        table = pa.concat_tables([complete_columns(table, zone_schema) for table in zones])
        writer.write_row_groups(ZONES, [pad_columns(table, schema)])
        ranges = pa.concat_tables([part.read_ranges(RANGES.names) for part in parts])
        writer.write_row_groups(RANGE_SECTION, [pad_columns(ranges, schema)])
    return SegmentFile(path, len(paths), footer_bytes=writer.tail_bytes)


def _write_small(store: ObjectStore, parts: Sequence[IndexRows], tombstones: pa.Array) -> list[SegmentFile]:
    """Write rows and tombstones as one file without zones.

    Return a list with this file. If there are neither rows nor tombstones, no file is written, and the list is empty.
    """
    parts = [part for part in parts if len(part.fragments)]
    if not parts and not len(tombstones):
        return []
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
    schema = pa.schema([*FRAGMENTS, *column_schema(union)])
    path = f"{FOLDER}/{uuid.uuid4().hex}.{_KIND.name}.parquet"
    with SectionWriter(store, path, schema, SectionOptions(_union_encodings(union), ())) as writer:
        writer.write_section(TOMBSTONES, pad_columns(_key_table(tombstones), schema))
        writer.write_section(ROWS, pad_columns(rows.fragments, schema))
        for field_id, table in rows.columns.items():
            writer.write_section(column_section(field_id), pad_columns(table, schema))
    file = SegmentFile(path, len(rows.fragments) + len(tombstones), footer_bytes=writer.footer_bytes)
    return [with_bounds(file, pa.table({_KEY.name: join_keys(rows.fragments)}), tombstones)]


def _slices(table: pa.Table, schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """Divide a table with one row per fragment into slices of at most `rows` rows, to merge them.

    The first column of each slice has the keys of the fragments. The columns of `schema` follow. The table must be
    sorted by key, because the merge relies on this order. This is not checked.
    """
    for start in range(0, len(table), rows):
        part = table.slice(start, rows)
        yield complete_columns(part, schema).add_column(0, _KEY, join_keys(part))


def _within(keys: pa.Array, range_: SegmentKeyRange | None) -> pa.Array:
    """Return those of the sorted `keys` that are in `range_`; all keys if `range_` is None."""
    if range_ is None:
        return keys
    start, end = range_.positions(keys)
    return keys.slice(start, end - start)


def _sort_rows(rows: IndexRows) -> IndexRows:
    """Return index rows sorted by key."""
    if len(rows.fragments) < 2:
        return rows
    order = pc.sort_indices(rows.fragments, sort_keys=[(name, "ascending") for name in KEY])
    if bool((np.diff(order.to_numpy().astype(np.int64)) > 0).all()):
        return rows
    return IndexRows(
        rows.fragments.take(order), {field_id: table.take(order) for field_id, table in rows.columns.items()}
    )


def _key_table(keys: pa.Array) -> pa.Table:
    """Return keys as a table with the columns `KEY` (partition key and path)."""
    pairs = [split_fragment_key(key) for key in keys.to_pylist()]
    columns = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table(
        [pa.array(values, FRAGMENTS.field(name).type) for name, values in zip(KEY, columns, strict=True)], KEY
    )


def _union_encodings(union: pa.StructType) -> dict[str, str]:
    """Return the Parquet encodings of the columns of a small segment.

    Example: {"minimum.int64": "DELTA_BINARY_PACKED"}. Columns that are neither integers nor floats are omitted. `union`
    is the struct type of the bounds. The names of the struct's fields are type classes.
    """
    flat = flat_encodings([f"column x.{side}.{field.name}" for side in ("minimum", "maximum") for field in union])
    counts = flat_encodings(["row_count", "bytes", "null_count", "nan_count"])
    return counts | {name.removeprefix("column x."): encoding for name, encoding in flat.items()}
