"""Segment sets: rows with unique keys in immutable Parquet files.

A set consists of segments. Most segments are one file:

    <folder>/<unique>.<kind>.parquet    sections `tombstones` (removed keys), `rows` (a row per key), and more

The oldest segment is the base. The newer ones are deltas, with tombstones for removed keys. If several segments contain
a key, the newest is valid. A row is *live* if no newer segment has its key, neither in a row nor as a tombstone. The
live rows of all segments are the rows of the set.

A new version of a set retains the segments of the previous version and adds one, so its cost depends on the number of
changes. If the deltas have more than half as many keys as the base, all segments are rewritten as one base. If there
are too many deltas, the newest ones are merged. Large sets are rewritten in small steps instead (see
`store.segment_levels`): their segments have several files. A step copies the rows and tombstones of a range of keys
from newer segments to an older one. The older segment has then *absorbed* them, and readers ignore them in the newer
ones. A commit is the creation of a new version of a set. A file may have a companion: a second file with more columns
of the same rows. It may also have a compact footer, a short form of its Parquet footer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.startup import pc
from metastore_assets.storage.parallel import parallel_map
from metastore_assets.store.compact_footers import CompactFooterRange
from metastore_assets.store.keys import KeySelection, position_of
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import ROW_GROUP_ROWS, parquet_errors
from metastore_assets.store.sections import (
    LARGE_SECTION_ROWS,
    RowGroupCache,
    SectionReader,
)
from metastore_assets.values.physical import one_chunk

Key = TypeVar("Key")
Item = TypeVar("Item")

TOMBSTONES = "tombstones"
"""Name of the section of the keys that a delta removes."""
ROWS = "rows"
"""Name of the section with a row for each key that a segment adds or replaces."""
_READERS = 9
_MAX_CACHED_BYTES = 32 << 20
"""Maximum size in memory of the row groups that the reader of a segment set caches."""
_MAX_FOOTERS = 32
"""Maximum number of files whose footers stay in memory after a lookup. A footer takes half a megabyte, and a lookup of
keys in hundreds of partitions may open hundreds of files."""
_PARALLEL_ROWS = 10_000
"""Minimum number of rows of segments that are read in parallel. Threads cost more than smaller local files."""


class SegmentFile(NamedTuple):
    """One file of a segment set.

    A named tuple, because large sets have thousands of files.
    """

    path: str
    rows: int
    """Number of keys in the file, tombstones included."""
    first: str | None = None
    """A text that is at most the first key in the file, and greater than all keys in the previous file. None if
    unknown. If `absorbed` is true, the file may have smaller keys. Readers ignore them.
    """
    last: str | None = None
    """The last key in the file, or a greater one that is less than `first` of the file after it; None if unknown."""
    continues: bool = False
    """Whether the file continues the segment of the previous file, with greater keys."""
    footer_bytes: int = 0
    """Number of bytes at the end of the file that a reader needs first, mostly the footer; 0 if it is unknown. If the
    file has a compact footer, the size of this."""
    absorbed: bool = False
    """Whether the file may have keys before `first`, which older segments have absorbed. Readers ignore them."""
    companion: str | None = None
    """Path of a second file, with more columns of the same rows; None if there is none."""
    compact_footer_start: int = 0
    """Position in the file of its compact footer (see `store.compact_footers`); 0 if it has none."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The path of the file, then that of its companion if it has one."""
        return (self.path,) if self.companion is None else (self.path, self.companion)

    def omit_absorbed(self, rows: RowsOrArray) -> RowsOrArray:
        """Return rows of the file, or its keys, without those that older segments have absorbed.

        Args:
            rows: A table whose first column is the key, or an array of keys; sorted by key.
        """
        first = self.first
        if not self.absorbed or first is None or not len(rows):
            return rows
        keys = rows.column(0) if isinstance(rows, pa.Table) else rows
        return rows.slice(position_of(keys, first))


@dataclass(frozen=True)
class PackedSegment:
    """The files of a segment, and the compressed list of them in a version's JSON document.

    A list of many files is stored in a packed form, which the next version copies (see `store.packed_segments`).
    """

    files: tuple[SegmentFile, ...]
    fields: Mapping[str, Any]
    """The packed form as JSON (see `store.packed_segments`)."""


@dataclass(frozen=True)
class SegmentFiles:
    """The files of a segment set in one version."""

    rows: int
    """Number of live rows in all files."""
    files: tuple[SegmentFile, ...]
    """The base, then the deltas, oldest first; empty for a set without rows. A large segment has several files."""
    directories: tuple[SegmentFile, ...] = ()
    """Files that describe files with companions, so that a lookup opens few of them. Each one describes the next `rows`
    of these files, all of one segment."""
    packed: tuple[PackedSegment, ...] = field(default=(), compare=False, repr=False)
    """The segments that the document of the version has in packed form; empty for a version that was not read."""

    def paths(self) -> tuple[str, ...]:
        """Return the paths of all files: those in `files` and `directories`, and their companions."""
        return self._paths

    @lock_free_cached_property
    def _paths(self) -> tuple[str, ...]:
        # Without a generator: a large set has a thousand files, and a commit needs their paths several times.
        files = (*self.files, *self.directories)
        companions = [file.companion for file in files if file.companion is not None]
        return (*[file.path for file in files], *companions)

    @lock_free_cached_property
    def segments(self) -> list[tuple[SegmentFile, ...]]:
        """The files of each segment: the base, then the deltas, oldest first."""
        files = self.files
        starts = [number for number, file in enumerate(files) if not file.continues or not number]
        return [files[start:end] for start, end in pairwise([*starts, len(files)])]


EMPTY = SegmentFiles(0, ())


@dataclass(frozen=True)
class SegmentKind:
    """The columns, the folder and the merge policy of one kind of segment set."""

    name: str
    """Part of the file names."""
    folder: str
    rows: pa.Schema
    """Columns of the section `rows`. The first one is the key."""
    rewrite_below: int = 0
    """Maximum number of rows of a set that is always rewritten as one base, because one file is read faster than
    two."""
    max_deltas: int = 8
    merge_below: int = 0
    """The newest deltas are merged while they have at most this many keys together."""
    large_section_rows: int = LARGE_SECTION_ROWS
    file_rows: int = 0
    """Number of keys after which a segment continues in another file, so that footers are small. 0 if a segment is
    always one file."""
    merge_budget: int = 0
    """About how many keys a commit of many keys rewrites, besides its own; 0 for twice `file_rows`."""
    row_group_rows: int | None = ROW_GROUP_ROWS
    """Maximum number of rows in a row group; None to choose it by the size of the file."""

    @property
    def key(self) -> pa.Field:
        """The key column."""
        return self.rows.field(0)


@dataclass(frozen=True)
class KeyChanges:
    """The keys that differ between two versions of a segment set."""

    added_keys: Collection[Any]
    """Keys of new rows and of changed rows."""
    removed_keys: Collection[Any]
    row_count: int
    """Number of rows after the changes."""
    may_merge: bool = field(kw_only=True)
    """Whether a commit that changes many keys merges stored segments of this set. It merges those of one set only."""

    @property
    def key_count(self) -> int:
        """Number of changed keys."""
        return len(self.added_keys) + len(self.removed_keys)

    @classmethod
    def between(cls, before: Mapping[Any, object], after: Mapping[Any, object], row_count: int) -> KeyChanges:
        """Return the difference between two versions, with `may_merge` false.

        Args:
            before: The rows that the newer version removes or replaces, by key. No row may be None.
            after: The rows of the newer version, by key. Unchanged rows may be missing, if `before` lacks them, too.
            row_count: Number of all rows of the newer version.
        """
        removed_keys = before.keys() - after.keys()
        return cls(changed_items(before, after).keys(), removed_keys, row_count, may_merge=False)


def changed_items(before: Mapping[Key, Item], after: Mapping[Key, Item]) -> dict[Key, Item]:
    """Return the items of `after` that are new, or differ from the item of `before` with the same key.

    Args:
        before: The older items. No item may be None.
        after: The newer items. Most are usually the same objects as in `before`: these are not compared by value, which
            takes longer.
    """
    changed_by_key = {}
    for key, item in after.items():
        old = before.get(key)
        if old is not item and old != item:
            changed_by_key[key] = item
    return changed_by_key


def retained_files(
    kind: SegmentKind, files: SegmentFiles, row_count: int, changed_count: int
) -> tuple[SegmentFile, ...]:
    """Return the files that stay, oldest first, when a commit writes one more segment.

    The other files are merged into the new segment.

    Args:
        kind: The merge policy.
        files: The segments before the commit.
        row_count: Number of rows after the commit.
        changed_count: Number of keys that are added, replaced or removed.
    """
    if row_count <= kind.rewrite_below or not files.files:
        return ()
    base, *deltas = files.segments
    if changed_count + sum(map(key_count, deltas)) > key_count(base) / 2:
        return ()
    merged_count = changed_count
    while deltas and merged_count + key_count(deltas[-1]) <= kind.merge_below:
        merged_count += key_count(deltas.pop())
    if len(deltas) >= kind.max_deltas:
        merged_count += key_count(deltas.pop())
        while deltas and key_count(deltas[-1]) <= merged_count:
            merged_count += key_count(deltas.pop())
    return tuple(chain(base, *deltas))


def key_count(segment: Sequence[SegmentFile]) -> int:
    """Return the number of keys in the files of a segment, tombstones included."""
    return sum([file.rows for file in segment])


def unshared_files(one: SegmentFiles, other: SegmentFiles) -> tuple[SegmentFile, ...]:
    """Return the files whose keys may differ between two versions of a segment set.

    These are the files that only one version has, and files from which older segments have absorbed more keys in one
    version than in the other. The files of `one` precede those of `other`.

    Absorbed keys are usually also in the new files of the older segment. But if the base absorbs a key with its
    tombstone, the key is in no new file. So the file from which keys were absorbed is returned, too.
    """

    def identity(file: SegmentFile) -> tuple[str, str | None]:
        return file.path, file.first if file.absorbed else None

    files = (*one.files, *other.files)
    shared_identities = set(map(identity, one.files)) & set(map(identity, other.files))
    return tuple({file.path: file for file in files if identity(file) not in shared_identities}.values())


class Segment:
    """A reader of one file of a segment set, which is opened on first use."""

    def __init__(self, reader: SegmentReader, number: int, file: SegmentFile) -> None:
        self._reader = reader
        self._number = number
        self._file = file
        self.uri = reader.objects.uri(file.path)

    @lock_free_cached_property
    def sections(self) -> SectionReader:
        """The reader of the file's sections."""
        file = self._file
        compact = (
            CompactFooterRange(file.compact_footer_start, file.footer_bytes) if file.compact_footer_start else None
        )
        return SectionReader(
            self._reader.objects, file.path, 0 if compact else file.footer_bytes, self._reader.cache, compact
        )

    def read_section(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows of a section, live or not, with all columns or some.

        Raises CorruptionError if there is no such section.
        """
        try:
            if columns is None and not self.sections.constants:
                return self.sections.read_section(name)
            names = self._reader.kind.rows.names if columns is None else columns
            return self._add_constants(self.sections.read_section(name, columns=self._stored_columns(names)), names)
        except KeyError as error:
            raise self._missing(error) from error

    def stream_section(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows of a section, live or not, in parts of a few megabytes, then close the file.

        Rows that older segments have absorbed are omitted. The first of `columns` is the key. Closing frees a file
        descriptor and the footer, which takes half a megabyte. A later read opens the file again.
        """
        sections = self.sections
        try:
            yield from (
                self._file.omit_absorbed(self._add_constants(part, columns))
                for part in sections.stream_section(name, self._stored_columns(columns))
            )
        except KeyError as error:
            raise self._missing(error) from error
        finally:
            sections.close()
            self.__dict__.pop("sections", None)

    def read_rows(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the live rows of the section `rows`, with all columns or some."""
        names = self._reader.kind.rows.names if columns is None else columns
        return self.filter_live(self.read_section(ROWS, names))

    def read_keys_and_rows(self, columns: Sequence[str]) -> tuple[pa.Array, pa.Table]:
        """Return (tombstones, rows with `columns`) of the file, from one read.

        Rows that are not live are returned, too. `columns` must contain the key: the tombstones are read from it.
        """
        try:
            tables = self.sections.read_sections([TOMBSTONES, ROWS], self._stored_columns(columns))
        except KeyError as error:
            raise self._missing(error) from error
        with parquet_errors(self.uri):
            return one_chunk(tables[TOMBSTONES][self._key]), self._add_constants(tables[ROWS], columns)

    @property
    def keys(self) -> pa.Array:
        """The keys of all rows, live or not."""
        return self._read_keys(ROWS)

    @property
    def tombstones(self) -> pa.Array:
        """The keys that the file removes."""
        return self._read_keys(TOMBSTONES)

    @property
    def live_mask(self) -> npt.NDArray[np.bool_] | None:
        """A mask that is true for each live row; None if all rows are live."""
        live = self._reader.live_masks[self._number]
        return None if live is None else live.to_numpy(zero_copy_only=False)

    def filter_live(self, rows: RowsOrArray) -> RowsOrArray:
        """Return the items that belong to live rows.

        Args:
            rows: A table or array with one item per row of the section `rows`, in the same order.
        """
        live = self._reader.live_masks[self._number]
        return rows if live is None else rows.filter(live)

    def find(self, selection: KeySelection) -> tuple[pa.Array, pa.Table]:
        """Return the file's (tombstones, rows) with a selected key.

        Rows that are not live are returned, too, except those that older segments have absorbed.
        """
        try:
            sections = self.sections.find_rows(selection, (TOMBSTONES, ROWS))
        except KeyError as error:
            raise self._missing(error) from error
        rows = self._file.omit_absorbed(self._add_constants(sections[ROWS], self._reader.kind.rows.names))
        return self._file.omit_absorbed(one_chunk(sections[TOMBSTONES][self._key])), rows

    def omit_absorbed(self, rows: pa.Table) -> pa.Table:
        """Return rows of this file without those that a merge has already copied to an older segment.

        The first column of `rows` is the key. `store.segment_levels` explains such merges.
        """
        return self._file.omit_absorbed(rows)

    @property
    def _key(self) -> str:
        return str(self._reader.kind.key.name)

    def _stored_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return those of `names` that the file stores as columns; the key if it stores none of them."""
        constants = self.sections.constants
        return [name for name in names if name not in constants] or [self._key] if constants else names

    def _add_constants(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return the columns `names` of rows that were read.

        Constant columns, whose only value is in the file's metadata, are added.

        Raises CorruptionError if a column is missing, or a value does not fit its type.
        """
        constants, schema = self.sections.constants, self._reader.kind.rows
        with parquet_errors(self.uri):
            if constants.keys().isdisjoint(names):
                return rows.select(names)
            try:
                columns = [
                    repeat_value(constants[name], schema.field(name).type, len(rows))
                    if name in constants
                    else rows.column(name)
                    for name in names
                ]
            except OverflowError as error:
                raise ValueError(f"the value of a constant column: {error}") from error
            return pa.Table.from_arrays(columns, schema=pa.schema([schema.field(name) for name in names]))

    def _read_keys(self, section: str) -> pa.Array:
        return one_chunk(self.read_section(section, [self._key])[self._key])

    def _missing(self, error: KeyError) -> CorruptionError:
        return CorruptionError(f"{self.uri} has no section {error}; rebuild with `metastore refresh NAME --full`")


RowsOrArray = TypeVar("RowsOrArray", pa.Table, pa.Array)


class SegmentReader:
    """A reader of all rows of a segment set.

    Threads can share it.

    It opens each file on first use. Corrupt files raise CorruptionError.
    """

    def __init__(self, objects: ObjectStore, kind: SegmentKind, files: SegmentFiles) -> None:
        self.objects = objects
        self.kind = kind
        self.files = files
        self.cache = RowGroupCache(_MAX_CACHED_BYTES)
        """Row groups of lookups by key, because a refresh looks up neighbouring keys several times."""
        self._opened: dict[int, Segment] = {}

    @lock_free_cached_property
    def segments(self) -> list[Segment]:
        """The readers of all files, in the order of the files."""
        return [self.segment(number) for number in range(len(self.files.files))]

    def segment(self, number: int) -> Segment:
        """Return the reader of one file.

        `number` is its position in the segment set's list of files, from 0.
        """
        segment = self._opened.get(number)
        if segment is None:
            segment = self._opened.setdefault(number, Segment(self, number, self.files.files[number]))
        return segment

    def read_rows(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all live rows, segment by segment, with all columns or some."""
        names = self.kind.rows.names if columns is None else list(columns)
        if len(self.segments) > 1 and "live_masks" not in self.__dict__:
            # `live_masks` is a cached property that would read all keys first. One read of each file gives both.
            columns = list(dict.fromkeys([self.kind.key.name, *names]))
            pairs = self._read_all(lambda segment: segment.read_keys_and_rows(columns))
            keys = [one_chunk(rows[self.kind.key.name]) for _, rows in pairs]
            masks = self.__dict__.setdefault(
                "live_masks", self._masks(keys, [removed_keys for removed_keys, _ in pairs])
            )
            tables = [
                (rows if live is None else rows.filter(live)).select(names)
                for (_, rows), live in zip(pairs, masks, strict=True)
            ]
        else:
            tables = self._read_all(lambda segment: segment.read_rows(names))
        schema = pa.schema([self.kind.rows.field(name) for name in names])
        rows = pa.concat_tables([schema.empty_table(), *tables]) if len(tables) != 1 else tables[0]
        if len(rows) != self.files.rows:
            raise CorruptionError(
                f"{self.objects.uri()}: the {self.kind.name} files have {len(rows):,} rows, and the version "
                f"{self.files.rows:,}; rebuild with `metastore refresh NAME --full`"
            )
        return rows

    def find(self, selection: KeySelection) -> pa.Table:
        """Return the live rows with a selected key, those of the oldest segment first."""
        numbers = self._find_files(selection)

        def find(number: int) -> tuple[pa.Array, pa.Table]:
            segment = self.segment(number)
            matches = segment.find(selection)
            if len(numbers) > _MAX_FOOTERS:
                segment.sections.release()
            return matches

        matches = parallel_map(find, numbers, _READERS, is_parallel=self.objects.is_remote)
        # Files of one segment have different keys. Comparing them would take quadratic time.
        starts = [first_number for first_number, _, _ in self._bounds]
        by_segment: dict[int, list[tuple[pa.Array, pa.Table]]] = {}
        for number, file_matches in zip(numbers, matches, strict=True):
            by_segment.setdefault(bisect_right(starts, number), []).append(file_matches)
        tables = [pa.concat_tables([rows for _, rows in segment]) for segment in by_segment.values()]
        removed_keys = [pa.concat_arrays([keys for keys, _ in segment]) for segment in by_segment.values()]
        masks = live_masks([one_chunk(rows.column(0)) for rows in tables], removed_keys)
        tables = [rows if live is None else rows.filter(live) for rows, live in zip(tables, masks, strict=True)]
        # There may be thousands of chunks, with one row each.
        return pa.concat_tables(tables).combine_chunks() if tables else self.kind.rows.empty_table()

    def _find_files(self, selection: KeySelection) -> list[int]:
        """Return the numbers of the files that may have a selected key, by the bounds of their keys."""
        numbers: list[int] = []
        for first_number, files, firsts in self._bounds:
            for at in range(len(files)) if firsts is None else selection.find_ranges(firsts):
                file = files[at]
                if file.first is None or file.last is None or selection.overlaps(file.first, file.last):
                    numbers.append(first_number + at)
        return numbers

    @lock_free_cached_property
    def _bounds(self) -> list[tuple[int, tuple[SegmentFile, ...], list[str] | None]]:
        """For each segment: (number of its first file, its files, the first key of each file).

        Files are numbered through all segments, from 0. The list of first keys is None if the first key of any file of
        the segment is unknown.
        """
        bounds = []
        number = 0
        for files in self.files.segments:
            firsts = [file.first for file in files if file.first is not None]
            bounds.append((number, files, firsts if len(firsts) == len(files) else None))
            number += len(files)
        return bounds

    def read_all_keys(self) -> set[Any]:
        """Return the keys of all rows and of all tombstones, live or not."""
        key = self.kind.key.name
        pairs = self._read_all(lambda segment: segment.read_keys_and_rows([key]))
        return {
            value for removed_keys, rows in pairs for keys in (removed_keys, rows[key]) for value in keys.to_pylist()
        }

    def least_key(self) -> Any:
        """Return a lower bound of all keys, from the files' metadata; None if it is unknown."""
        keys = [
            segment.sections.least_key if file.first is None else file.first
            for segment, file in zip(self.segments, self.files.files, strict=True)
        ]
        return min(keys, default=None) if None not in keys else None

    @lock_free_cached_property
    def live_masks(self) -> list[pa.Array | None]:
        """For each file, a mask that is true for live rows; None if all its rows are live."""
        if len(self.segments) < 2 and not any(file.absorbed for file in self.files.files):
            return [None] * len(self.segments)
        keys = [segment.keys for segment in self.segments]
        # The tombstones of the first segment affect no older segment.
        removed_keys = [pa.nulls(0, self.kind.key.type), *(segment.tombstones for segment in self.segments[1:])]
        return self._masks(keys, removed_keys[: len(keys)])

    def _masks(self, keys: Sequence[pa.Array], removed_keys: Sequence[pa.Array]) -> list[pa.Array | None]:
        """Return a mask of live rows for each file, as `live_masks` does.

        Absorbed rows are not live.
        """
        files = self.files.files
        remaining = [file.omit_absorbed(file_keys) for file, file_keys in zip(files, keys, strict=True)]
        masks = live_masks(
            remaining, [file.omit_absorbed(each) for file, each in zip(files, removed_keys, strict=True)]
        )
        for number, (all_keys, file_keys) in enumerate(zip(keys, remaining, strict=True)):
            if omitted_count := len(all_keys) - len(file_keys):
                live = pa.repeat(True, len(file_keys)) if masks[number] is None else masks[number]
                masks[number] = pa.concat_arrays([pa.repeat(False, omitted_count), live])
        return masks

    def _read_all(self, read: Callable[[Segment], Result]) -> list[Result]:
        is_parallel = self.objects.is_remote or sum(file.rows for file in self.files.files) >= _PARALLEL_ROWS
        return parallel_map(read, self.segments, _READERS, is_parallel=is_parallel)


def repeat_value(value: Any, type: pa.DataType, count: int) -> pa.Array:
    """Return an array with `count` times the same value, given as a Python object."""
    # `pa.repeat` refuses to make an empty array of lists.
    return pa.repeat(pa.scalar(value, type), count) if count else pa.array([], type)


def live_masks(keys: Sequence[pa.Array], removed_keys: Sequence[pa.Array]) -> list[pa.Array | None]:
    """Return a mask of live rows for each segment; None for a segment whose rows are all live.

    A row is live if no newer segment has a row or a tombstone with its key.

    Args:
        keys: For each segment, the keys of its rows, the oldest segment first.
        removed_keys: For each segment, the keys of its tombstones, in the same order.
    """
    masks: list[pa.Array | None] = []
    newer: list[pa.Array] = []
    for segment_keys, segment_removed in zip(reversed(keys), reversed(removed_keys), strict=True):
        live = None
        if newer and len(segment_keys):
            superseded_mask = pc.is_in(segment_keys, value_set=pa.concat_arrays(newer))
            live = pc.invert(superseded_mask) if pc.any(superseded_mask).as_py() else None
        masks.append(live)
        newer += [array for array in (segment_keys, segment_removed) if len(array)]
    return masks[::-1]


Result = TypeVar("Result")
