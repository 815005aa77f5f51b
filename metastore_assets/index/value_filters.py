"""The value filters of a version's fragments, stored so that a lookup reads only a small part of them.

    index/<unique>.value_filters.parquet    segments (see `store.segments`): `rows` has the fragments,
                                            `slice <number> <field id>` a slice of each of their filters

A value filter is a set of hash prefixes of a column's values in one fragment. Filters are cut into slices by the first
bits of the hashes. One section stores the same slice of all filters of a column, in the order of the fragments. The
larger the filters of a column are in a file, the more slices it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.index.fragments import FOLDER
from metastore_assets.statistics.value_filter import (
    MAX_SLICE_BITS,
    FilterIndices,
    FilterSlice,
    Words,
    build_filter_slice,
)
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.segments import (
    KeyChanges,
    Segment,
    SegmentFiles,
    SegmentKind,
    SegmentOutput,
    SegmentReader,
    SegmentUpdate,
)
from metastore_assets.values.physical import one_chunk
from metastore_assets.values.types import TypeClass

_SLICE_SCHEMA = pa.schema(
    [("type_class", pa.string()), ("bits", pa.int64()), ("upper", pa.binary()), ("lower", pa.binary())]
)
_KIND = SegmentKind("value_filters", FOLDER, pa.schema([("key", pa.large_string())]))
_MIN_SLICE_BYTES = 256 << 10
"""Minimum size in bytes of a section with a slice, unless the column has only one slice."""
_MIN_FILTER_BYTES = 64
"""Minimum average size in bytes of one filter's part of a slice."""


@dataclass(frozen=True)
class ValueFilters:
    """The value filters of some columns and fragments, before they are cut into slices."""

    keys: pa.Array
    """The keys of the fragments (see `fragment_key`). They give the order of the fragments."""
    columns: Mapping[str, tuple[pa.Array, FilterSlice]]
    """(type classes, filters) of each column, by field id. Both have an item per fragment. The type class is the one
    that the values were hashed with; null for a fragment without a filter."""


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
        self._reader = SegmentReader(store, _KIND, files)

    @lock_free_cached_property
    def keys(self) -> pa.Array:
        """The keys of all fragments of the version (see `fragment_key`)."""
        return one_chunk(self._reader.read_rows()["key"])

    def may_hold(self, field_id: str, cls: TypeClass, hashes: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return a mask of the fragments that may contain any of some values, in the order of `keys`.

        Fragments without a filter may contain any value.

        Args:
            field_id: Field id of the column.
            cls: The type class that the values were hashed with.
            hashes: The 64-bit hashes of the values.
        """
        masks = [segment.may_hold(field_id, cls, hashes) for segment in self._segments]
        return np.concatenate([np.zeros(0, np.bool_), *masks])

    def filters(self, field_id: str) -> dict[str, FragmentFilter]:
        """Return the filters of a column, by key of the fragment.

        Fragments without a filter are missing.
        """
        filters = {}
        for segment in self._segments:
            if field_id not in segment.slicings:
                continue
            classes, bits, positions, prefixes = segment.read_filters(field_id)
            ends = np.searchsorted(positions, np.arange(len(bits) + 1)).tolist()
            for number, (key, cls) in enumerate(zip(segment.keys.to_pylist(), classes.to_pylist(), strict=True)):
                if cls is not None:
                    filters[key] = FragmentFilter(cls, int(bits[number]), prefixes[ends[number] : ends[number + 1]])
        return filters

    @lock_free_cached_property
    def _segments(self) -> list[_FilterSegment]:
        return [_FilterSegment(segment) for segment in self._reader.segments]


class _FilterSegment:
    """The filters in one segment."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._last_slice: tuple[tuple[str, int], tuple[FilterIndices, Words]] | None = None

    @lock_free_cached_property
    def keys(self) -> pa.Array:
        return one_chunk(self._segment.read_rows()["key"])

    @property
    def byte_count(self) -> int:
        return self._segment.sections.byte_count

    @lock_free_cached_property
    def slicings(self) -> dict[str, int]:
        """The number of leading hash bits that select a slice, by field id."""
        slices: dict[str, int] = {}
        for section in self._segment.sections.sections:
            if section.startswith("slice "):
                field_id = section.split(" ", 2)[2]
                slices[field_id] = slices.get(field_id, 0) + 1
        return {field_id: count.bit_length() - 1 for field_id, count in slices.items()}

    def may_hold(self, field_id: str, cls: TypeClass, hashes: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return a mask of the fragments that may contain any of some values, without removed fragments.

        The arguments are those of `ValueFilterReader.may_hold`. If the segment has no filters of the column, the mask
        is all true.
        """
        if field_id not in self.slicings:
            return np.ones(len(self.keys), np.bool_)
        may_hold = np.zeros(len(self.keys), np.bool_)
        by_slice: dict[int, list[int]] = {}
        for hash_ in hashes:
            by_slice.setdefault(hash_ >> (64 - self.slicings[field_id]), []).append(hash_)
        live = self._segment.live_mask
        for slice_, slice_hashes in by_slice.items():
            classes, cells = self.read_slice(field_id, slice_)
            # Filters of values with another type class say nothing, because their hashes differ.
            is_other = pc.invert(pc.equal(classes, cls.name).fill_null(False)).to_numpy(zero_copy_only=False)
            mask = is_other | cells.may_hold(slice_hashes)
            may_hold |= mask if live is None else mask[live]
        return may_hold

    def read_slice(self, field_id: str, slice_: int) -> tuple[pa.Array, FilterSlice]:
        """Return the type class and the slice of each fragment's filter, including removed fragments."""
        names = _SLICE_SCHEMA.names
        table = self._segment.read_section(_slice_section(field_id, slice_), names)
        with parquet_errors(self._segment.uri):
            classes, bits, upper, lower = (one_chunk(table[name]) for name in names)
            return classes, FilterSlice(bits.to_numpy(), upper, lower, self.slicings[field_id], slice_)

    def read_filters(self, field_id: str) -> tuple[pa.Array, npt.NDArray[np.int64], FilterIndices, Words]:
        """Return the filters of a column as four arrays, without removed fragments.

        Returns:
            The type class and the prefix length of each filter; then the position of the fragment and the prefix of
                each hash, sorted by position.
        """
        slices = [self.read_slice(field_id, slice_) for slice_ in range(1 << self.slicings[field_id])]
        positions, prefixes = _concat_sorted([self._live_prefixes(cells) for _, cells in slices])
        classes, first = slices[0]
        return self._segment.filter_live(classes), self._live_bits(first), positions, prefixes

    def read_prefixes(self, field_id: str, slicing: int, slice_: int) -> tuple[FilterIndices, Words]:
        """Return the hashes in one slice of a column as (fragment positions, prefixes).

        Removed fragments are left out.

        Args:
            field_id: Field id of the column.
            slicing: The number of leading hash bits that select a slice. The stored slices may use more or fewer bits.
            slice_: Number of the slice.
        """
        stored = self.slicings[field_id]
        if stored < slicing:
            positions, prefixes = self._read_stored_slice(field_id, slice_ >> (slicing - stored))
            mask = (prefixes >> np.uint64(64 - slicing)) == np.uint64(slice_)
            return positions[mask], prefixes[mask]
        first, count = slice_ << (stored - slicing), 1 << (stored - slicing)
        return _concat_sorted([self._read_stored_slice(field_id, number) for number in range(first, first + count)])

    def read_classes_and_bits(self, field_id: str) -> tuple[list[str | None], npt.NDArray[np.int64]]:
        """Return the type class and the prefix length of each fragment's filter, without removed fragments."""
        if field_id not in self.slicings:
            return [None] * len(self.keys), np.zeros(len(self.keys), np.int64)
        classes, cells = self.read_slice(field_id, 0)
        return self._segment.filter_live(classes).to_pylist(), self._live_bits(cells)

    def _read_stored_slice(self, field_id: str, slice_: int) -> tuple[FilterIndices, Words]:
        key = (field_id, slice_)
        last = self._last_slice
        if last is None or last[0] != key:
            last = self._last_slice = key, self._live_prefixes(self.read_slice(field_id, slice_)[1])
        return last[1]

    def _live_prefixes(self, cells: FilterSlice) -> tuple[FilterIndices, Words]:
        """Return (fragment positions, prefixes) of a slice, without removed fragments.

        Positions are counted among the remaining fragments.
        """
        positions, prefixes = cells.prefixes()
        live = self._segment.live_mask
        if live is None:
            return positions, prefixes
        mask = live[positions]
        return (np.cumsum(live) - 1)[positions[mask]], prefixes[mask]

    def _live_bits(self, cells: FilterSlice) -> npt.NDArray[np.int64]:
        live = self._segment.live_mask
        return cells.bits if live is None else cells.bits[live]


def update_value_filters(
    store: ObjectStore, base: SegmentFiles | None, changes: KeyChanges, batches: Iterable[ValueFilters]
) -> SegmentFiles:
    """Write the value filters of the next version; return their files. No existing file is changed.

    Args:
        store: The table's folder.
        base: The filters of the version before; None without any.
        changes: The keys of fragments that were added, replaced or removed (see `fragment_key`).
        batches: The filters of the added and replaced fragments.

    Raises:
        CorruptionError: A file of `base` is damaged.
    """
    return SegmentUpdate(store, _KIND, base, changes).write(batches, _write_segment)


def _write_segment(output: SegmentOutput, segments: Sequence[Segment], batch: ValueFilters | None) -> None:
    """Write one segment with the filters of older segments and of a batch.

    Fragments that were removed or replaced are left out. All filters are cut into slices again, because the number of
    slices depends on the total size of the filters.

    Args:
        output: The segment to write.
        segments: The older segments, which the new one replaces.
        batch: The filters of added and replaced fragments; None without any.
    """
    batch = batch or _NO_FILTERS
    parts = [_FilterSegment(segment) for segment in segments]
    keys = pa.concat_arrays([*(part.keys for part in parts), batch.keys])
    field_ids = sorted({field_id for part in parts for field_id in part.slicings} | batch.columns.keys())
    batch_bytes = sum(cells.upper.nbytes + cells.lower.nbytes for _, cells in batch.columns.values())
    column_bytes = (batch_bytes + sum(part.byte_count for part in parts)) // max(1, len(field_ids))
    slicing = _choose_slicing(column_bytes, len(keys))
    with output.open(pa.table([keys], schema=_KIND.rows), _SLICE_SCHEMA, {"bits": "DELTA_BINARY_PACKED"}):
        for field_id in field_ids:
            for slice_, table in enumerate(_slices(parts, batch, field_id, slicing)):
                output.write_section(_slice_section(field_id, slice_), table)


def _slices(parts: Sequence[_FilterSegment], batch: ValueFilters, field_id: str, slicing: int) -> Iterator[pa.Table]:
    """Yield the slices of a column as tables, with the filters of all segments, then those of the batch."""
    # Type class and prefix length of all fragments: those of the segments, then those of the batch.
    heads = [part.read_classes_and_bits(field_id) for part in parts]
    if field_id in batch.columns:
        batch_classes, batch_cells = batch.columns[field_id]
        heads.append((batch_classes.to_pylist(), batch_cells.bits))
        batch_positions, batch_prefixes = batch_cells.prefixes()
    else:
        heads.append(([None] * len(batch.keys), np.zeros(len(batch.keys), np.int64)))
        batch_positions, batch_prefixes = np.zeros(0, np.int64), np.zeros(0, np.uint64)
    classes = pa.array([cls for part_classes, _ in heads for cls in part_classes], pa.string())
    bits = np.concatenate([part_bits for _, part_bits in heads])
    # The position of the first fragment of each segment, and of the batch.
    *firsts, batch_first = np.cumsum([0, *(len(part.keys) for part in parts)]).tolist()
    for slice_ in range(1 << slicing):
        pairs = []
        for part, first in zip(parts, firsts, strict=True):
            if field_id in part.slicings:
                positions, prefixes = part.read_prefixes(field_id, slicing, slice_)
                pairs.append((positions + first, prefixes))
        mask = (batch_prefixes >> np.uint64(64 - slicing)) == np.uint64(slice_) if slicing else slice(None)
        pairs.append((batch_positions[mask] + batch_first, batch_prefixes[mask]))
        positions, prefixes = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
        cells = build_filter_slice(positions, prefixes, bits, slicing, slice_)
        yield pa.Table.from_arrays([classes, pa.array(bits), cells.upper, cells.lower], schema=_SLICE_SCHEMA)


def _concat_sorted(pairs: Sequence[tuple[FilterIndices, Words]]) -> tuple[FilterIndices, Words]:
    """Concatenate the (positions, prefixes) of several slices, and sort them by position."""
    positions, prefixes = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    order = np.argsort(positions, kind="stable")
    return positions[order], prefixes[order]


def _choose_slicing(column_bytes: int, fragments: int) -> int:
    """Return the number of leading hash bits that select a slice, for the filters of all columns of a file.

    Args:
        column_bytes: Average size in bytes of the filters of a column.
        fragments: Number of fragments.
    """
    slices = column_bytes // max(_MIN_SLICE_BYTES, _MIN_FILTER_BYTES * fragments)
    return min(MAX_SLICE_BITS, max(1, slices).bit_length() - 1)


def _slice_section(field_id: str, slice_: int) -> str:
    return f"slice {slice_} {field_id}"
