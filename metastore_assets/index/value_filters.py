"""The value filters of a version's fragments, of which a lookup reads only a small part.

    index/<unique>.value_filters.parquet    segments (see `store.segments`)
        section rows                        the keys of the fragments, sorted
        section slice <number> <field id>   one slice of each fragment's filter of one column

A fragment is a data file with its deletes. A value filter is the set of hash prefixes of a column's values in one
fragment. Filters are cut into slices by the first bits of the hashes. One section stores the same slice of all filters
of a column, in the order of the fragments. A file with larger filters has more slices per column. A large segment has
several files, each with a range of keys. So a lookup of a value in some fragments reads one slice, and only from the
files that may have these fragments.

A type class is a group of column types whose values are hashed in the same way: int8 and int64 have the class `int64`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.index.fragment_index import FOLDER, find_position
from metastore_assets.statistics.value_filter import (
    MAX_SLICE_BITS,
    FilterIndices,
    FilterSlice,
    Words,
    build_filter_slice,
)
from metastore_assets.storage.parallel import parallel_map
from metastore_assets.store.keys import SegmentKeyRange
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.sections import SectionOptions, SectionReader, SectionWriter
from metastore_assets.store.segment_levels import SegmentMerge, SegmentUpdate
from metastore_assets.store.segment_merge import MergeSource, with_bounds
from metastore_assets.store.segments import (
    ROWS,
    TOMBSTONES,
    KeyChanges,
    SegmentFile,
    SegmentFiles,
    SegmentKind,
    SegmentReader,
)
from metastore_assets.values.physical import one_chunk, pad_columns
from metastore_assets.values.types import TypeClass

_SLICE_SCHEMA = pa.schema(
    [("type_class", pa.string()), ("bits", pa.int64()), ("upper", pa.binary()), ("lower", pa.binary())]
)
_KIND = SegmentKind(
    "value_filters",
    FOLDER,
    pa.schema([("key", pa.large_string())]),
    file_rows=4_096,  # A file has megabytes: a filter takes about ten bits per distinct value of a fragment.
)
_FILE_SCHEMA = pa.schema([*_KIND.rows, *_SLICE_SCHEMA])
_MERGED = pa.schema([*_KIND.rows, ("source", pa.int32()), ("row", pa.int64())])
"""Columns of a merge: the key of a fragment, the number of the file with its filters, and its position in that file."""
_GROUP_ROWS = 1_024
"""Number of fragments in a row group."""
_OPEN_FILES = 16
"""Maximum number of files that a merge has open."""
_MIN_SLICE_BYTES = 256 << 10
"""Minimum size in bytes of a section with a slice, unless the column has only one slice."""
_MIN_FILTER_BYTES = 64
"""Minimum average size in bytes of one filter's part of a slice."""


@dataclass(frozen=True)
class ValueFilters:
    """The value filters of several columns and fragments, before they are cut into slices."""

    keys: pa.Array
    """The keys of the fragments (see `store.version.fragment_key`)."""
    columns: Mapping[str, tuple[pa.Array, FilterSlice]]
    """(type classes, filters) of each column, by field id. Both have an item per fragment, in the order of `keys`. The
    type class is the one that the values were hashed with; null for a fragment without a filter."""


_NO_FILTERS = ValueFilters(pa.array([], pa.large_string()), {})


class FragmentFilter(NamedTuple):
    """The value filter of one column of one fragment."""

    type_class: str
    """Name of the type class that values were hashed with."""
    bits: int
    """Length of a hash prefix in bits."""
    prefixes: Words
    """Sorted hash prefixes. Each is in the upper bits of a 64-bit word."""


class ValueFilterReader:
    """A reader of the value filters of one version.

    The reader opens each file once, on first use. Threads can share the reader. Corrupt files raise CorruptionError.
    """

    def __init__(self, store: ObjectStore, files: SegmentFiles) -> None:
        self._store = store
        self._files = files.files
        self._reader = SegmentReader(store, _KIND, files)

    @lock_free_cached_property
    def keys(self) -> pa.Array:
        """The keys of all fragments of the version (see `fragment_key`)."""
        return one_chunk(self._reader.read_rows()["key"])

    def may_contain(
        self, field_id: str, cls: TypeClass, hashes: Sequence[int], keys: pa.Array
    ) -> npt.NDArray[np.bool_]:
        """Return for each fragment whether it may contain any of the given values.

        Fragments without a filter may contain any value. Only files that may have one of the fragments are read, and
        in them only the row groups between the first and the last of the fragments.

        Args:
            field_id: Field id of the column.
            cls: The type class that the values were hashed with.
            hashes: The 64-bit hashes of the values.
            keys: The keys of the fragments (see `fragment_key`). They must be in the version, because for a removed
                fragment, an outdated filter may be used. This is not checked.
        """
        order = pc.sort_indices(keys)
        ordered_keys = keys.take(order)
        ends = [
            (_search(ordered_keys, file.first, "left", 0), _search(ordered_keys, file.last, "right", len(keys)))
            for file in self._files
        ]

        def read(number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
            start, end = ends[number]
            at, mask = self._segments[number].may_contain(field_id, cls, hashes, ordered_keys.slice(start, end - start))
            return at + start, mask

        numbers = [number for number, (start, end) in enumerate(ends) if start < end]
        sorted_mask = np.ones(len(keys), np.bool_)
        for at, mask in parallel_map(read, numbers, is_parallel=self._store.is_remote):
            sorted_mask[at] = mask  # Files are ordered by age, so the last file with a fragment has its current filter.
        may_contain = np.empty(len(keys), np.bool_)
        may_contain[order.to_numpy()] = sorted_mask
        return may_contain

    def filters(self, field_id: str) -> dict[str, FragmentFilter]:
        """Return the filters of a column, by the key of the fragment.

        Fragments without a filter are missing.
        """
        filters = {}
        for segment, stored_segment in zip(self._segments, self._reader.segments, strict=True):
            if field_id not in segment.field_ids:
                continue
            classes, bits = segment.classes_and_bits(field_id)
            positions, prefixes = segment.prefixes(field_id, 0, 0)
            ends = np.searchsorted(positions, np.arange(len(bits) + 1)).tolist()
            live = stored_segment.live_mask
            for number, (key, cls) in enumerate(zip(stored_segment.keys.to_pylist(), classes.to_pylist(), strict=True)):
                if cls is not None and (live is None or live[number]):
                    filters[key] = FragmentFilter(cls, int(bits[number]), prefixes[ends[number] : ends[number + 1]])
        return filters

    @lock_free_cached_property
    def _segments(self) -> list[_FilterFile]:
        return [_FilterFile(self._store, file) for file in self._files]


class _FilterFile:
    """The filters in one file, including those of removed fragments."""

    def __init__(self, store: ObjectStore, file: SegmentFile) -> None:
        self._store = store
        self._file = file
        self._last_slice: tuple[tuple[str, int], tuple[FilterIndices, Words]] | None = None

    @lock_free_cached_property
    def _sections(self) -> SectionReader:
        return SectionReader(self._store, self._file.path, self._file.footer_bytes)

    @property
    def byte_count(self) -> int:
        return self._sections.byte_count

    @property
    def row_count(self) -> int:
        return self._sections.sections[ROWS].row_count

    @property
    def field_ids(self) -> Collection[str]:
        return self._slice_bits.keys()

    @lock_free_cached_property
    def _slice_bits(self) -> dict[str, int]:
        """The number of leading hash bits that select a slice, by field id.

        With n bits, a column has 2^n slices.
        """
        slices: dict[str, int] = {}
        for section in self._sections.sections:
            if section.startswith("slice "):
                field_id = section.split(" ", 2)[2]
                slices[field_id] = slices.get(field_id, 0) + 1
        return {field_id: count.bit_length() - 1 for field_id, count in slices.items()}

    def keys_and_rows(self, keys: SegmentKeyRange | None) -> pa.Table:
        """Return the fragments in a range of keys, sorted by key.

        None is the range of all keys.

        Fragments that were already merged into an older segment are omitted.

        The columns are `key`, and `row`: the position of the fragment in the file.
        """
        table = self._sections.read_section(ROWS, columns=["key"]).combine_chunks()
        table = self._file.omit_absorbed(table.append_column("row", pa.array(np.arange(len(table)))))
        return table if keys is None else keys.filter(table)

    def tombstones(self, keys: SegmentKeyRange | None) -> pa.Table:
        """Return the tombstones (keys of removed fragments) in a range of keys, sorted.

        None is the range of all keys.

        The only column is `key`. Tombstones that were already merged into an older segment are omitted.
        """
        table = self._file.omit_absorbed(self._sections.read_section(TOMBSTONES, columns=["key"]))
        return table if keys is None else keys.filter(table)

    def may_contain(
        self, field_id: str, cls: TypeClass, hashes: Sequence[int], keys: pa.Array
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return which given fragments are in the file, and whether each may contain any of the values.

        Args:
            field_id: Field id of the column.
            cls: The type class that the values were hashed with.
            hashes: The 64-bit hashes of the values.
            keys: The sorted keys of the fragments.

        Returns:
            (positions in `keys` of the fragments that are in the file, whether each of these may contain at least one
            of the values). A fragment without a filter of the column may contain any value.
        """
        rows = self._sections.rows_between(ROWS, keys[0].as_py(), keys[-1].as_py())
        by_slice: dict[int, list[int]] = {}
        for hash_ in hashes if field_id in self._slice_bits else ():
            by_slice.setdefault(hash_ >> (64 - self._slice_bits[field_id]), []).append(hash_)
        names = {slice_: _slice_section(field_id, slice_) for slice_ in by_slice}
        tables = self._sections.read_sections([ROWS, *names.values()], ["key", *_SLICE_SCHEMA.names], rows)
        with parquet_errors(self._uri):
            at = pc.index_in(one_chunk(tables[ROWS]["key"]), value_set=keys)
            may_contain = np.full(len(at), not names)
            for slice_, name in names.items():
                classes, filter_slice = self._filter_slice(field_id, slice_, tables[name])
                # A filter for another type class cannot exclude a fragment, because its hashes differ.
                is_other = pc.invert(pc.equal(classes, cls.name).fill_null(False)).to_numpy(zero_copy_only=False)
                may_contain |= is_other | filter_slice.may_contain(by_slice[slice_])
        is_selected = at.is_valid().to_numpy(zero_copy_only=False)
        return at.drop_null().to_numpy().astype(np.int64), may_contain[is_selected]

    def classes_and_bits(self, field_id: str) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """Return (type classes, lengths of hash prefixes in bits) of a column's filters.

        Both have an item per fragment. A fragment without a filter has null and 0.
        """
        if field_id not in self._slice_bits:
            return pa.nulls(self.row_count, pa.string()), np.zeros(self.row_count, np.int64)
        classes, filter_slice = self._read_slice(field_id, 0)
        return classes, filter_slice.bits

    def prefixes(self, field_id: str, slice_bits: int, slice_: int) -> tuple[FilterIndices, Words]:
        """Return (fragment positions, hash prefixes) in one slice of a column, sorted by position.

        Args:
            field_id: Field id of the column.
            slice_bits: The number of leading hash bits that select the slice. If slices are stored with another number
                of bits, they are joined or filtered.
            slice_: Number of the slice: the value of these bits.
        """
        stored_bits = self._slice_bits.get(field_id)
        if stored_bits is None:
            return np.zeros(0, np.int64), np.zeros(0, np.uint64)
        if stored_bits < slice_bits:
            positions, prefixes = self._stored_prefixes(field_id, slice_ >> (slice_bits - stored_bits))
            mask = (prefixes >> np.uint64(64 - slice_bits)) == np.uint64(slice_)
            return positions[mask], prefixes[mask]
        first, count = slice_ << (stored_bits - slice_bits), 1 << (stored_bits - slice_bits)
        return _concat_sorted([self._stored_prefixes(field_id, number) for number in range(first, first + count)])

    def _stored_prefixes(self, field_id: str, slice_: int) -> tuple[FilterIndices, Words]:
        key = (field_id, slice_)
        last = self._last_slice
        if last is None or last[0] != key:
            last = self._last_slice = key, self._read_slice(field_id, slice_)[1].prefixes()
        return last[1]

    def _read_slice(self, field_id: str, slice_: int) -> tuple[pa.Array, FilterSlice]:
        """Read one slice of a column's filters: their hashes whose first bits are the number `slice_`.

        Returns:
            (type classes, filters). Both have an item per fragment of the file.
        """
        table = self._sections.read_section(_slice_section(field_id, slice_), columns=_SLICE_SCHEMA.names)
        with parquet_errors(self._uri):
            return self._filter_slice(field_id, slice_, table)

    def _filter_slice(self, field_id: str, slice_: int, table: pa.Table) -> tuple[pa.Array, FilterSlice]:
        classes, bits, upper, lower = (one_chunk(table[name]) for name in _SLICE_SCHEMA.names)
        return classes, FilterSlice(bits.to_numpy(), upper, lower, self._slice_bits[field_id], slice_)

    @property
    def _uri(self) -> str:
        return self._store.uri(self._file.path)


class _FilterBatch:
    """New filters in memory.

    A merge reads them with the same methods as those of a `_FilterFile`.
    """

    def __init__(self, filters: ValueFilters) -> None:
        self._filters = filters
        self._prefixes = {
            field_id: column_filters.prefixes() for field_id, (_, column_filters) in filters.columns.items()
        }
        self.row_count = len(filters.keys)
        self.field_ids: Collection[str] = filters.columns.keys()
        self.byte_count = sum(each.upper.nbytes + each.lower.nbytes for _, each in filters.columns.values())

    def keys_and_rows(self) -> pa.Table:
        table = pa.table({"key": self._filters.keys, "row": np.arange(self.row_count)})
        return table.sort_by("key")

    def classes_and_bits(self, field_id: str) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        if field_id not in self.field_ids:
            return pa.nulls(self.row_count, pa.string()), np.zeros(self.row_count, np.int64)
        classes, filter_slice = self._filters.columns[field_id]
        return classes, filter_slice.bits

    def prefixes(self, field_id: str, slice_bits: int, slice_: int) -> tuple[FilterIndices, Words]:
        if field_id not in self.field_ids:
            return np.zeros(0, np.int64), np.zeros(0, np.uint64)
        positions, prefixes = self._prefixes[field_id]
        mask = (prefixes >> np.uint64(64 - slice_bits)) == np.uint64(slice_) if slice_bits else slice(None)
        return positions[mask], prefixes[mask]


def update_value_filters(
    store: ObjectStore,
    base: SegmentFiles | None,
    changes: KeyChanges,
    batches: Iterable[ValueFilters],
) -> SegmentFiles:
    """Write the value filters of the next version; return their files.

    No existing file is changed.

    Args:
        store: The table's folder.
        base: The filters of the previous version; None if it has none.
        changes: The keys of fragments that were added, replaced or removed (see `fragment_key`).
        batches: The filters of the added and replaced fragments. All batches except the last one are first written to
            temporary files.

    Raises:
        CorruptionError: A file of `base` is corrupt.
    """
    update = SegmentUpdate(store, _KIND, base, changes)
    return update.write(batches, lambda merge: _FilterMerge(store, merge).write())


class _FilterMerge:
    """A merge of stored filters and a newer batch, by key.

    Filters of the batch replace stored ones.
    """

    def __init__(self, store: ObjectStore, merge: SegmentMerge[ValueFilters]) -> None:
        self._store = store
        self._merge = merge
        self._files = [file for part in merge.parts for file in part.files]
        self._batch = _FilterBatch(merge.batch or _NO_FILTERS)
        self._open = lru_cache(_OPEN_FILES)(self._open_source)
        self._sources = [self._stored_source(numbers, part_keys) for numbers, part_keys in merge.numbered_parts()]
        keys = self._batch.keys_and_rows()
        tombstones = pa.array(sorted(merge.removed_keys), pa.large_string())
        self._sources.append(MergeSource.of_table(_numbered(keys, len(self._files)), tombstones))

    def _open_source(self, number: int) -> _FilterFile | _FilterBatch:
        return self._batch if number == len(self._files) else _FilterFile(self._store, self._files[number])

    def _stored_source(self, numbers: Iterable[int], keys: SegmentKeyRange | None) -> MergeSource:
        def files() -> Iterator[tuple[int, _FilterFile]]:
            for number in numbers:
                yield number, _FilterFile(self._store, self._files[number])

        return MergeSource(
            (_numbered(file.keys_and_rows(keys), number) for number, file in files()),
            (file.tombstones(keys) for _, file in files()),
        )

    def write(self) -> list[SegmentFile]:
        """Write all filters in ascending order of their keys.

        Return the files.
        """
        return self._merge.write_files(self._sources, _MERGED, self._write_file)

    def _write_file(self, rows: pa.Table, tombstones: pa.Array) -> SegmentFile:
        """Write the filters and tombstones of a range of keys as one file.

        All filters are cut into slices again, because their total size determines the number of slices.

        Args:
            rows: The keys of the fragments. The column `source` has the number of the file or batch with the filters
                of each fragment. The column `row` has the position of the fragment in that file or batch.
            tombstones: The keys of removed fragments.
        """
        numbers, positions = rows["source"].to_numpy(), rows["row"].to_numpy()
        sources = [(self._open(number), numbers == number) for number in np.unique(numbers).tolist()]
        field_ids = sorted({field_id for source, _ in sources for field_id in source.field_ids})
        size = sum(source.byte_count * int(mask.sum()) // max(1, source.row_count) for source, mask in sources)
        slice_bits = _choose_slice_bits(size // max(1, len(field_ids)), len(rows))
        path = f"{FOLDER}/{uuid.uuid4().hex}.{_KIND.name}.parquet"
        options = SectionOptions({"bits": "DELTA_BINARY_PACKED"}, ["key"], _GROUP_ROWS, _GROUP_ROWS)
        with SectionWriter(self._store, path, _FILE_SCHEMA, options) as writer:
            writer.write_section(TOMBSTONES, pad_columns(pa.table({"key": tombstones}), _FILE_SCHEMA))
            writer.write_section(ROWS, pad_columns(rows.select(["key"]), _FILE_SCHEMA))
            for field_id in field_ids:
                for slice_, table in enumerate(_slices(sources, positions, field_id, slice_bits)):
                    writer.write_section(_slice_section(field_id, slice_), pad_columns(table, _FILE_SCHEMA))
        file = SegmentFile(path, len(rows) + len(tombstones), footer_bytes=writer.footer_bytes)
        return with_bounds(file, rows, tombstones)


_Source: TypeAlias = tuple["_FilterFile | _FilterBatch", npt.NDArray[np.bool_]]
"""A source of filters, and a mask of the rows of the new file that come from it."""


def _slices(
    sources: Sequence[_Source], positions: npt.NDArray[np.int64], field_id: str, slice_bits: int
) -> Iterator[pa.Table]:
    """Yield the slices of a column for a new file, each as a table with a row per fragment.

    Args:
        sources: The stored files and the batch that are merged, each with a mask. The mask has an item for each
            fragment of the new file: whether the fragment's filter comes from this file or batch.
        positions: For each fragment of the new file, its position in the file or batch that has its filters.
        field_id: Field id of the column.
        slice_bits: The number of leading hash bits that select a slice.
    """
    count = len(positions)
    bits = np.zeros(count, np.int64)
    class_positions = np.zeros(count, np.int64)
    """For each row, the position of its type class in the concatenated `classes`."""
    classes: list[pa.Array] = []
    targets = []
    """For each source and each of its fragments, the row in the new file; -1 if the fragment is not in the new file."""
    for source, mask in sources:
        source_classes, source_bits = source.classes_and_bits(field_id)
        class_positions[mask] = positions[mask] + sum(map(len, classes))
        classes.append(source_classes)
        bits[mask] = source_bits[positions[mask]]
        target = np.full(source.row_count, -1, np.int64)
        target[positions[mask]] = np.flatnonzero(mask)
        targets.append(target)
    all_classes = pa.concat_arrays([pa.array([], pa.string()), *classes]).take(pa.array(class_positions))
    for slice_ in range(1 << slice_bits):
        pairs = []
        for (source, _), target in zip(sources, targets, strict=True):
            at, prefixes = source.prefixes(field_id, slice_bits, slice_)
            is_taken = target[at] >= 0
            pairs.append((target[at][is_taken], prefixes[is_taken]))
        indices, hashes = _concat_sorted(pairs)
        filter_slice = build_filter_slice(indices, hashes, bits, slice_bits, slice_)
        yield pa.Table.from_arrays(
            [all_classes, pa.array(bits), filter_slice.upper, filter_slice.lower], schema=_SLICE_SCHEMA
        )


def _numbered(table: pa.Table, source: int) -> pa.Table:
    return table.append_column("source", pa.array(np.full(len(table), source, np.int32))).select(_MERGED.names)


def _search(keys: pa.Array, key: str | None, side: Literal["left", "right"], default: int) -> int:
    """Return the position of a key among sorted keys, or `default` if the key is None.

    `side` is `left` for the position before equal keys, and `right` for the position after them.
    """
    return default if key is None else find_position(keys, key, side)


def _concat_sorted(pairs: Sequence[tuple[FilterIndices, Words]]) -> tuple[FilterIndices, Words]:
    """Concatenate pairs (positions of fragments, prefixes of hashes), and sort the result by position."""
    positions, prefixes = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    order = np.argsort(positions, kind="stable")
    return positions[order], prefixes[order]


def _choose_slice_bits(column_bytes: int, fragments: int) -> int:
    """Return the number of leading hash bits that select a slice.

    With 0 bits, each filter is one slice.

    The number applies to all columns of a file.

    Args:
        column_bytes: Total size in bytes of the filters of a column, averaged over the columns.
        fragments: Number of fragments in the file.
    """
    slices = column_bytes // max(_MIN_SLICE_BYTES, _MIN_FILTER_BYTES * fragments)
    return min(MAX_SLICE_BITS, max(1, slices).bit_length() - 1)


def _slice_section(field_id: str, slice_: int) -> str:
    return f"slice {slice_} {field_id}"
