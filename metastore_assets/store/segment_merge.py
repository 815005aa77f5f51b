"""Merging of sorted segments in bounded memory, one range of keys after the other.

A segment has rows with unique keys, and tombstones: keys that it removes from the older segments. Its Parquet files may
have a compact footer: a short form of the footer, which lookups read instead of the footer.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from math import sqrt
from typing import Any

import pyarrow as pa

from metastore_assets.startup import pc
from metastore_assets.store.keys import SegmentKeyRange, common_prefix_length, position_after, separate_keys
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import leaf_paths
from metastore_assets.store.sections import SectionOptions, SectionWriter
from metastore_assets.store.segments import (
    ROWS,
    TOMBSTONES,
    Segment,
    SegmentFile,
    SegmentKind,
    SegmentReader,
    live_masks,
    repeat_value,
)
from metastore_assets.values.physical import empty_table, one_chunk

_PIECE_ROWS = 4096
"""Maximum number of rows that are added to a file at once."""
_BATCH_ROWS = 16_384
"""Maximum number of rows in memory that are merged at once."""
_MIN_GROUP_BYTES = 4 << 10
"""Minimum size of row groups. Smaller ones compress less, and the footer has about 600 bytes for each of them. Compared
with 7 kB, files are 7 to 13 % larger, but a lookup in a hundred partitions reads up to a third less."""
_SMALL_BYTES = 1 << 16
"""Size of a file that one request reads completely, so that several row groups have no use."""
_GROUP_FOOTER_BYTES = 20
"""Size of a row group in the compact footer."""
_MAX_CONSTANT_BYTES = 1 << 10
"""Maximum size of the value of a constant column. Metadata are not compressed."""
_COMPRESSION = 4
"""Size of rows in memory divided by their size in a file."""
MAX_BOUND = 1024
"""Maximum length of a first or last key of a file that the version's document records."""


@dataclass(frozen=True)
class MergeSource:
    """One segment that is merged: its rows and its tombstones, each as tables by ascending key."""

    rows: Iterable[pa.Table]
    tombstones: Iterable[pa.Table]

    @classmethod
    def of_segments(cls, files: Sequence[Segment], columns: Sequence[str]) -> MergeSource:
        """Return the source of a stored segment, whose files are read on demand.

        Args:
            files: The files of the segment.
            columns: The columns to read, the key first.
        """

        def read(section: str, names: Sequence[str]) -> Iterator[pa.Table]:
            return (table for file in files for table in file.stream_section(section, names))

        return cls(read(ROWS, columns), read(TOMBSTONES, columns[:1]))

    @classmethod
    def of_range(cls, files: Sequence[Segment], keys: SegmentKeyRange) -> MergeSource:
        """Return a source of the rows and tombstones of one stored segment whose keys lie in a range.

        This call reads all of these rows and tombstones into memory.

        Args:
            files: The files of the segment.
            keys: The range of keys.
        """
        removed_keys, rows = zip(*(file.find(keys) for file in files), strict=True)
        return cls.of_table(pa.concat_tables(rows), pa.concat_arrays(removed_keys))

    @classmethod
    def of_table(cls, rows: pa.Table, removed_keys: pa.Array) -> MergeSource:
        """Return a source of rows and tombstones in memory.

        Args:
            rows: The rows, sorted by key. The key is the first column.
            removed_keys: The keys of the tombstones, sorted.
        """
        tombstones = pa.table({rows.schema.names[0]: removed_keys})
        return cls(slice_rows(rows, _BATCH_ROWS), slice_rows(tombstones, _BATCH_ROWS))


def stored_sources(reader: SegmentReader, columns: Sequence[str]) -> list[MergeSource]:
    """Return the segments of a reader as sources, the oldest first.

    Args:
        reader: The reader. Its files are read on demand.
        columns: The columns to read, the key first.
    """
    readers = iter(reader.segments)
    sources = [MergeSource.of_segments(list(islice(readers, len(files))), columns) for files in reader.files.segments]
    # Tombstones of the oldest segment remove nothing. Reading them would open all of its files at once.
    return [replace(source, tombstones=()) if number == 0 else source for number, source in enumerate(sources)]


def merge_segments(
    sources: Sequence[MergeSource], schema: pa.Schema, *, keeps_replaced: bool = False
) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Merge segments, one range of keys after the other, in ascending order.

    Args:
        sources: The segments, the oldest first.
        schema: The columns of the rows, the key first.
        keeps_replaced: Whether to yield also tombstones of keys that have a newer row. Then a reader learns
            from the tombstones alone which rows of older segments are outdated, and need not read the newer rows.

    Yields:
        (rows, tombstones) of one range of keys: the newest row of each key that is not removed, and the removed
        keys. With `keeps_replaced`, the tombstones also contain keys of rows.
    """
    cursors = [(_TableCursor(source.rows), _TableCursor(source.tombstones)) for source in sources]
    key_type = schema.field(0).type
    while lasts := [last for pair in cursors for cursor in pair if (last := cursor.last_key) is not None]:
        # All sources have their rows up to this key in memory, so the range up to it can be merged.
        upper = min(lasts)
        rows = [pair[0].take(upper) for pair in cursors]
        removed_keys = [_keys(pair[1].take(upper), key_type) for pair in cursors]
        keys = [_keys(table, key_type) for table in rows]
        masks = live_masks(keys, removed_keys)
        live = [
            table if mask is None else table.filter(mask)
            for table, mask in zip(rows, masks, strict=True)
            if table is not None
        ]
        live = [table for table in live if len(table)]
        merged_rows = pa.concat_tables([empty_table(schema), *live])
        if len(live) > 1:
            merged_rows = merged_rows.take(pc.sort_indices(merged_rows.column(0)))
        tombstones = pc.unique(pa.concat_arrays(removed_keys))
        if len(tombstones):
            if not keeps_replaced:
                tombstones = tombstones.filter(
                    pc.invert(pc.is_in(tombstones, value_set=one_chunk(merged_rows.column(0))))
                )
            tombstones = tombstones.take(pc.sort_indices(tombstones))
        yield merged_rows, tombstones


def write_segment(
    objects: ObjectStore,
    kind: SegmentKind,
    merged_ranges: Iterable[tuple[pa.Table, pa.Array]],
    row_count: int,
    file_rows: int | None = None,
) -> tuple[SegmentFile, ...]:
    """Write the result of a merge as one segment.

    Return its files; none if the result has no keys.

    Args:
        objects: The store of the files.
        kind: The kind of the segment.
        merged_ranges: (rows, tombstones) of successive ranges of keys.
        row_count: The expected number of keys, tombstones included, which determines the size of row groups.
        file_rows: Number of keys after which a file is closed. None for `kind.file_rows`.
    """
    file_rows = file_rows or kind.file_rows
    ranges = (
        piece
        for rows, removed_keys in merged_ranges
        for piece in split_range(rows, removed_keys, min(_PIECE_ROWS, file_rows))
    )
    files: list[SegmentFile] = []
    for first in ranges:
        count = min(row_count, file_rows)
        file = _write_file(objects, kind, chain([first], ranges), count, file_rows)
        files.append(file._replace(continues=bool(files)))
    return tuple(files)


def _write_file(
    objects: ObjectStore,
    kind: SegmentKind,
    ranges: Iterator[tuple[pa.Table, pa.Array]],
    row_count: int,
    file_rows: int,
) -> SegmentFile:
    """Write ranges of keys to a new file, until it has at least `file_rows` keys or no range is left.

    Args:
        objects: The store of the file.
        kind: The kind of the segment.
        ranges: (rows, tombstones) of successive ranges. The iterator must have at least one range: otherwise,
            writing fails. Ranges that are not written remain in the iterator, for the next file.
        row_count: The expected number of keys in the file, tombstones included. It determines the size of row groups if
            the rows have binary values, which are not all kept in memory. Otherwise, the actual number does.
        file_rows: Number of keys of rows and tombstones after which the file is closed.
    """
    pieces = _take(ranges, file_rows)
    constants: dict[str, Any] = {}
    plain: list[str] = []
    if not any(pa.types.is_binary(field.type) for field in kind.rows):  # Long values stay out of memory.
        pieces = iter(all_pieces := list(pieces))
        row_count = sum(len(rows) + len(removed_keys) for rows, removed_keys in all_pieces)
        all_rows = pa.concat_tables([rows for rows, _ in all_pieces])
        constants = _constant_columns(all_rows)
        plain = _distinct_columns(all_rows.drop_columns(list(constants)))
    first_rows, first_removed = next(pieces)
    schema = pa.schema([field for field in kind.rows if field.name not in constants])
    group_rows = row_group_rows(kind, first_rows.select(schema.names), row_count)
    path = f"{kind.folder}/{uuid.uuid4().hex}.{kind.name}.parquet"
    has_groups = group_rows < row_count
    options = SectionOptions(
        None,
        [kind.key.name],
        group_rows,
        group_rows,
        plain_columns=plain,
        adds_compact_footer=has_groups,
        constants=constants,
    )
    tombstones = []
    count = 0
    low, high = _bounds(first_rows, first_removed)
    with SectionWriter(objects, path, schema, options) as writer:

        def read_pieces() -> Iterator[pa.Table]:
            nonlocal count, high
            for rows, removed_keys in chain([(first_rows, first_removed)], pieces):
                tombstones.append(removed_keys)
                count += len(rows) + len(removed_keys)
                high = _bounds(rows, removed_keys)[1]
                yield rows.select(schema.names)

        if has_groups:
            writer.write_row_groups(ROWS, cut_row_groups(read_pieces(), group_rows))
        else:
            for rows in read_pieces():
                writer.write_section(ROWS, rows)  # It may share its row group with the tombstones.
        keys = pa.concat_arrays(tombstones)
        columns = [keys, *(pa.nulls(len(keys), field.type) for field in list(schema)[1:])]
        writer.write_section(TOMBSTONES, pa.Table.from_arrays(columns, schema=schema))
    file = SegmentFile(path, count, footer_bytes=writer.footer_bytes)
    if writer.compact_footer is not None:
        file = file._replace(compact_footer_start=writer.compact_footer.start, footer_bytes=writer.compact_footer.size)
    return _record_bounds(file, low, high) if pa.types.is_string(kind.key.type) else file


def _take(ranges: Iterator[tuple[pa.Table, pa.Array]], key_count: int) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Yield ranges until they have at least `key_count` keys of rows and tombstones."""
    count = 0
    while count < key_count and (piece := next(ranges, None)) is not None:
        yield piece
        count += len(piece[0]) + len(piece[1])


def _constant_columns(rows: pa.Table) -> dict[str, Any]:
    """Return {name: value} of the columns that have one short value in all rows.

    The key, which is the first column, is left out. Without rows, the result has all other columns, with the value
    None.
    """
    constants = {}
    for name in rows.schema.names[1:]:
        column = rows[name]
        first = column.slice(0, 1)
        if first.nbytes > _MAX_CONSTANT_BYTES:
            continue
        values = first.to_pylist() or [None]
        repeated_values = repeat_value(values[0], column.type, len(rows))
        if column.equals(pa.chunked_array([repeated_values], column.type)):
            constants[name] = values[0]
    return constants


def _distinct_columns(rows: pa.Table) -> list[str]:
    """Return the dotted paths of the text columns in which most values are distinct.

    Such columns are larger with a dictionary than without.
    """
    leaves: list[str] = []
    for field in rows.schema:
        values = rows[field.name]
        if pa.types.is_list(field.type):
            values = pc.list_flatten(values)
        if pa.types.is_string(values.type) and 2 * pc.count_distinct(values).as_py() > len(values):
            leaves += leaf_paths(field, field.name)
    return leaves


def row_group_rows(kind: SegmentKind, rows: pa.Table, row_count: int) -> int:
    """Return the number of rows per row group: that of `kind`, or one that makes lookups cheap.

    A lookup of one key reads one row group, and the file's compact footer. The lookup reads the fewest bytes if the row
    group and the compact footer have about the same size. A small file has one row group, because one request reads
    all of it.

    Args:
        kind: The kind of the segment.
        rows: Some of the rows, from which the size of a row is estimated.
        row_count: The number of keys in the file, tombstones included.
    """
    if kind.row_group_rows is not None:
        return kind.row_group_rows
    row_bytes = max(1.0, rows.nbytes / max(1, len(rows)) / _COMPRESSION)
    least_rows = _MIN_GROUP_BYTES / row_bytes
    if row_count * row_bytes <= _SMALL_BYTES:
        return max(1, row_count, round(least_rows))
    return max(1, round(max(sqrt(row_count * _GROUP_FOOTER_BYTES / row_bytes), least_rows)))


def cut_row_groups(pieces: Iterable[pa.Table], group_rows: int) -> Iterator[pa.Table]:
    """Regroup rows into row groups.

    A row group ends where the keys of neighboring rows have the shortest common prefix, so that it seldom has only a
    part of a partition. Then a lookup of all keys with a prefix reads fewer row groups.

    Args:
        pieces: The rows, sorted by the first column, the key: a text or bytes.
        group_rows: The number of rows of a row group. It may have a third more or less.

    Yields:
        The rows of each row group.
    """
    least, most = max(1, group_rows * 2 // 3), group_rows + group_rows // 3
    rows: pa.Table | None = None
    for piece in pieces:
        rows = piece if rows is None else pa.concat_tables([rows, piece])
        while len(rows) > most:
            end = _find_cut(rows.column(0).slice(0, most + 1).to_pylist(), least, group_rows)
            yield rows.slice(0, end)
            rows = rows.slice(end)
    if rows is not None:
        yield rows


def _find_cut(keys: Sequence[Any], least: int, wanted_position: int) -> int:
    """Return the position of the key that shares the shortest prefix with the key before it.

    A row group ends before this key.

    Args:
        keys: Keys in ascending order.
        least: The least position that may be returned, at least 1.
        wanted_position: The preferred position. If several keys share equally short prefixes, the position that is
            nearest to this one is returned.
    """
    low, high = keys[least - 1], keys[-1]
    # In sorted keys, the shortest common prefix of neighbors is that of the first and the last key.
    length = common_prefix_length(low, high) + 1
    prefixes = [key[:length] for key in keys]
    before = max(bisect_left(prefixes, prefixes[wanted_position]), bisect_right(prefixes, prefixes[least - 1]))
    after = min(bisect_right(prefixes, prefixes[wanted_position]), bisect_left(prefixes, prefixes[-1]))
    return min(before, after, key=lambda position: abs(position - wanted_position))


class _TableCursor:
    """A position in a sequence of tables that are sorted by their first column."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables = iter(tables)
        self._buffer: pa.Table | None = None

    @property
    def last_key(self) -> Any:
        """The last key of the current table; None after the last table.

        If all rows of the current table were taken, the next table is read and becomes the current one.
        """
        while self._buffer is None or not len(self._buffer):
            self._buffer = next(self._tables, None)
            if self._buffer is None:
                self._tables = iter(())
                return None
        return self._buffer.column(0)[-1].as_py()

    def take(self, upper: Any) -> pa.Table | None:
        """Remove the rows with keys up to `upper` from the current table, and return them.

        The result may be empty. Returns None if no row of the current table is left. No further table is read. So
        `upper` must be at most `last_key`, or rows of the next table would be missed. This is not checked.
        """
        table = self._buffer
        if table is None or not len(table):
            return None
        keys = table.column(0)
        position = position_after(keys, upper)
        self._buffer = table.slice(position)
        return table.slice(0, position)


def _keys(table: pa.Table | None, type: pa.DataType) -> pa.Array:
    return pa.array([], type) if table is None else one_chunk(table.column(0))


def _bounds(rows: pa.Table, removed_keys: pa.Array) -> tuple[Any, Any]:
    """Return (smallest key, largest key) among rows and removed keys, both sorted.

    One of the two may be empty.
    """
    keys = [column for column in (rows.column(0), removed_keys) if len(column)]
    return min(column[0].as_py() for column in keys), max(column[-1].as_py() for column in keys)


def split_range(
    rows: pa.Table, removed_keys: pa.Array, piece_rows: int = _PIECE_ROWS
) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Split a range of keys.

    Yield (rows, tombstones) of smaller ranges that are not empty.

    Args:
        rows: The rows of the range, sorted by key.
        removed_keys: The keys of its tombstones, sorted.
        piece_rows: Maximum number of rows of a smaller range. Tombstones have this limit only in ranges without rows.
    """
    first_tombstone = 0
    for start in range(0, len(rows), piece_rows):
        piece = rows.slice(start, piece_rows)
        end = len(removed_keys)
        if start + piece_rows < len(rows):
            last = piece.column(0)[-1].as_py()
            end = position_after(removed_keys, last)
        yield piece, removed_keys.slice(first_tombstone, end - first_tombstone)
        first_tombstone = end
    for start in range(first_tombstone, len(removed_keys), piece_rows):
        yield rows.slice(0, 0), removed_keys.slice(start, piece_rows)


def cut_files(ranges: Iterable[tuple[pa.Table, pa.Array]], file_rows: int) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Regroup ranges of keys into files.

    Yield (rows, tombstones) of each file.

    Args:
        ranges: (rows, tombstones) of successive ranges of keys.
        file_rows: Number of keys after which a file is closed.
    """
    rows: list[pa.Table] = []
    removed_keys: list[pa.Array] = []
    for part, tombstones in (piece for merged_range in ranges for piece in split_range(*merged_range, file_rows)):
        rows.append(part)
        removed_keys.append(tombstones)
        if sum(map(len, (*rows, *removed_keys))) >= file_rows:
            yield pa.concat_tables(rows).combine_chunks(), pa.concat_arrays(removed_keys)
            rows, removed_keys = [], []
    if rows:
        yield pa.concat_tables(rows).combine_chunks(), pa.concat_arrays(removed_keys)


def with_bounds(file: SegmentFile, rows: pa.Table, removed_keys: pa.Array) -> SegmentFile:
    """Return the file with its first and last key recorded.

    If one of the two keys is too long, neither is recorded.

    Args:
        file: The file.
        rows: Its rows, sorted by the first column, the key.
        removed_keys: Its tombstones, sorted.
    """
    return _record_bounds(file, *_bounds(rows, removed_keys))


def _record_bounds(file: SegmentFile, first: str, last: str) -> SegmentFile:
    return file if max(len(first), len(last)) > MAX_BOUND else file._replace(first=first, last=last)


def shorten_bounds(files: Sequence[SegmentFile], start: str | None = None, end: str | None = None) -> list[SegmentFile]:
    """Return files with shorter bounds, which still separate each file's keys from the next file's.

    Say the last key of a file is `day=2/3a07`, and the first key of the next file is `day=2/5c12`. The last key becomes
    `day=2/3` followed by the greatest character, and the first key becomes `day=2/5`. This keeps the document of a
    version small: it names thousands of files, and most of its bytes would otherwise be keys.

    Args:
        files: The files of one segment, by ascending key, with exact bounds.
        start: A lower bound of all keys, which replaces the first key of the first file; None to retain that key.
        end: A key that is greater than all keys; None to retain the last key of the last file.
    """
    shortened_files = list(files)
    if shortened_files and start is not None and shortened_files[0].first is not None:
        shortened_files[0] = shortened_files[0]._replace(first=start)
    for number, (file, following) in enumerate(zip_longest(files, files[1:])):
        last, first = file.last, end if following is None else following.first
        if last is None or first is None:
            continue
        last, first = separate_keys(last, first)
        shortened_files[number] = shortened_files[number]._replace(last=last)
        if following is not None:
            shortened_files[number + 1] = following._replace(first=first)
    return shortened_files


def slice_rows(table: pa.Table, row_count: int) -> Iterator[pa.Table]:
    """Yield a table in slices of `row_count` rows.

    The last slice may be shorter.
    """
    return (table.slice(start, row_count) for start in range(0, len(table), row_count))
