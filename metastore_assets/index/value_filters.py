"""The value filters of a version's fragments, cut into slices, so that looking up a value reads one slice of all
filters.

    index/<unique>.value_filters.parquet    segments (see `store.segments`): `rows` has the fragments,
                                            `slice <number> <field id>` a slice of each of their filters

The hash of a value determines its slice (`statistics.value_filter`). A section has the slices of the filters of all
fragments of the file, in their order. The larger a file is, the more slices a column has.
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
_KIND = SegmentKind("value_filters", FOLDER, pa.schema([("name", pa.string())]))
_MIN_SLICE_BYTES = 256 << 10
"""Least size in bytes of a slice section, unless the column has only one."""
_MIN_FILTER_BYTES = 64
"""Least average size in bytes of the slice of one filter."""


@dataclass(frozen=True)
class ValueFilters:
    """The value filters of some columns of some fragments, before they are cut into slices."""

    names: pa.Array
    """The names of the fragments' profiles."""
    columns: Mapping[str, tuple[pa.Array, FilterSlice]]
    """By field id: for each fragment the class with which its values were hashed, null without a filter; and the
    filters."""


_NO_FILTERS = ValueFilters(pa.array([], pa.string()), {})


class FragmentFilter(NamedTuple):
    """The value filter of one column of one fragment."""

    type_class: str
    """Name of the class with which the values were hashed."""
    bits: int
    """Length of a hash prefix."""
    prefixes: Words
    """Sorted hash prefixes, in the upper bits of 64-bit words."""


class ValueFilterReader:
    """A reader of the value filters of one version. It opens each file once, on first use. Threads can share it.

    Corrupt files raise CorruptionError.
    """

    def __init__(self, store: ObjectStore, files: SegmentFiles) -> None:
        self._reader = SegmentReader(store, _KIND, files)

    @lock_free_cached_property
    def names(self) -> list[str]:
        """The profile names of the version's fragments."""
        names: list[str] = self._reader.read_rows()["name"].to_pylist()
        return names

    def may_hold(self, field_id: str, cls: TypeClass, hashes: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return a mask over the fragments, in the order of `names`: true if a fragment may contain a value.

        Args:
            field_id: Field id of the column.
            cls: The class with which the values were hashed.
            hashes: The 64-bit hashes of the values, of which the fragment must contain one.
        """
        masks = [segment.may_hold(field_id, cls, hashes) for segment in self._segments]
        return np.concatenate([np.zeros(0, np.bool_), *masks])

    def filters(self, field_id: str) -> dict[str, FragmentFilter]:
        """Return the filters of a column by profile name; fragments without a filter are missing."""
        filters = {}
        for segment in self._segments:
            if field_id not in segment.slicings:
                continue
            classes, bits, positions, prefixes = segment.read_filters(field_id)
            ends = np.searchsorted(positions, np.arange(len(bits) + 1)).tolist()
            for number, (name, cls) in enumerate(zip(segment.names.to_pylist(), classes.to_pylist(), strict=True)):
                if cls is not None:
                    filters[name] = FragmentFilter(cls, int(bits[number]), prefixes[ends[number] : ends[number + 1]])
        return filters

    @lock_free_cached_property
    def _segments(self) -> list[_FilterSegment]:
        return [_FilterSegment(segment) for segment in self._reader.segments]


class _FilterSegment:
    """The filters of the live fragments of one segment."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._last_slice: tuple[tuple[str, int], tuple[FilterIndices, Words]] | None = None

    @lock_free_cached_property
    def names(self) -> pa.Array:
        return one_chunk(self._segment.read_rows()["name"])

    @property
    def byte_count(self) -> int:
        return self._segment.sections.byte_count

    @lock_free_cached_property
    def slicings(self) -> dict[str, int]:
        """By field id, the number of hash bits that select a slice."""
        slices: dict[str, int] = {}
        for section in self._segment.sections.sections:
            if section.startswith("slice "):
                field_id = section.split(" ", 2)[2]
                slices[field_id] = slices.get(field_id, 0) + 1
        return {field_id: count.bit_length() - 1 for field_id, count in slices.items()}

    def may_hold(self, field_id: str, cls: TypeClass, hashes: Sequence[int]) -> npt.NDArray[np.bool_]:
        if field_id not in self.slicings:
            return np.ones(len(self.names), np.bool_)
        may_hold = np.zeros(len(self.names), np.bool_)
        by_slice: dict[int, list[int]] = {}
        for hash_ in hashes:
            by_slice.setdefault(hash_ >> (64 - self.slicings[field_id]), []).append(hash_)
        live = self._segment.live_mask
        for slice_, slice_hashes in by_slice.items():
            classes, cells = self.read_slice(field_id, slice_)
            # Values that were hashed as another class have other hashes.
            is_other = pc.invert(pc.equal(classes, cls.name).fill_null(False)).to_numpy(zero_copy_only=False)
            mask = is_other | cells.may_hold(slice_hashes)
            may_hold |= mask if live is None else mask[live]
        return may_hold

    def read_slice(self, field_id: str, slice_: int) -> tuple[pa.Array, FilterSlice]:
        """Return the value class and the slice of the filter of each fragment, live or not."""
        names = _SLICE_SCHEMA.names
        table = self._segment.read_section(_slice_section(field_id, slice_), names)
        with parquet_errors(self._segment.uri):
            classes, bits, upper, lower = (one_chunk(table[name]) for name in names)
            return classes, FilterSlice(bits.to_numpy(), upper, lower, self.slicings[field_id], slice_)

    def read_filters(self, field_id: str) -> tuple[pa.Array, npt.NDArray[np.int64], FilterIndices, Words]:
        """Return the filters of a column's live fragments: class and bits of each, then position and prefix of each
        hash.
        """
        slices = [self.read_slice(field_id, slice_) for slice_ in range(1 << self.slicings[field_id])]
        positions, prefixes = _concat_sorted([self._live_prefixes(cells) for _, cells in slices])
        classes, first = slices[0]
        return self._segment.filter_live(classes), self._live_bits(first), positions, prefixes

    def read_prefixes(self, field_id: str, slicing: int, slice_: int) -> tuple[FilterIndices, Words]:
        """Return the hashes in one slice of a column: the position of the live fragment, and the prefix, of each.

        Args:
            field_id: Field id of the column.
            slicing: The number of hash bits that select a slice, which may differ from that of the stored slices.
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
        """Return the value class and the prefix length of each live fragment's filter."""
        if field_id not in self.slicings:
            return [None] * len(self.names), np.zeros(len(self.names), np.int64)
        classes, cells = self.read_slice(field_id, 0)
        return self._segment.filter_live(classes).to_pylist(), self._live_bits(cells)

    def _read_stored_slice(self, field_id: str, slice_: int) -> tuple[FilterIndices, Words]:
        key = (field_id, slice_)
        last = self._last_slice
        if last is None or last[0] != key:
            last = self._last_slice = key, self._live_prefixes(self.read_slice(field_id, slice_)[1])
        return last[1]

    def _live_prefixes(self, cells: FilterSlice) -> tuple[FilterIndices, Words]:
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
    """Write the value filters of a version. No existing file is changed.

    Args:
        store: The table's folder.
        base: The filters of the version before; None without any.
        changes: The names of fragments that were added, replaced or removed.
        batches: The filters of the added fragments.

    Returns:
        The files of the filters.

    Raises:
        CorruptionError: A file of `base` is damaged.
    """
    return SegmentUpdate(store, _KIND, base, changes).write(batches, _write_segment)


def _write_segment(output: SegmentOutput, segments: Sequence[Segment], batch: ValueFilters | None) -> None:
    batch = batch or _NO_FILTERS
    parts = [_FilterSegment(segment) for segment in segments]
    names = pa.concat_arrays([*(part.names for part in parts), batch.names])
    field_ids = sorted({field_id for part in parts for field_id in part.slicings} | batch.columns.keys())
    batch_bytes = sum(cells.upper.nbytes + cells.lower.nbytes for _, cells in batch.columns.values())
    column_bytes = (batch_bytes + sum(part.byte_count for part in parts)) // max(1, len(field_ids))
    slicing = _choose_slicing(column_bytes, len(names))
    with output.open(pa.table([names], schema=_KIND.rows), _SLICE_SCHEMA, {"bits": "DELTA_BINARY_PACKED"}):
        for field_id in field_ids:
            for slice_, table in enumerate(_slices(parts, batch, field_id, slicing)):
                output.write_section(_slice_section(field_id, slice_), table)


def _slices(parts: Sequence[_FilterSegment], batch: ValueFilters, field_id: str, slicing: int) -> Iterator[pa.Table]:
    """Yield the slices of the filters of a column: those of segments, then those of the batch."""
    heads = [part.read_classes_and_bits(field_id) for part in parts]
    if field_id in batch.columns:
        batch_classes, batch_cells = batch.columns[field_id]
        heads.append((batch_classes.to_pylist(), batch_cells.bits))
        batch_positions, batch_prefixes = batch_cells.prefixes()
    else:
        heads.append(([None] * len(batch.names), np.zeros(len(batch.names), np.int64)))
        batch_positions, batch_prefixes = np.zeros(0, np.int64), np.zeros(0, np.uint64)
    classes = pa.array([cls for part_classes, _ in heads for cls in part_classes], pa.string())
    bits = np.concatenate([part_bits for _, part_bits in heads])
    *firsts, batch_first = np.cumsum([0, *(len(part.names) for part in parts)]).tolist()
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
    """Return the positions and prefixes of several slices together, sorted by position."""
    positions, prefixes = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    order = np.argsort(positions, kind="stable")
    return positions[order], prefixes[order]


def _choose_slicing(column_bytes: int, fragments: int) -> int:
    """Return the number of hash bits that select a slice of a column's filters.

    Args:
        column_bytes: Average size of the filters of a column.
        fragments: Number of fragments.
    """
    slices = column_bytes // max(_MIN_SLICE_BYTES, _MIN_FILTER_BYTES * fragments)
    return min(MAX_SLICE_BITS, max(1, slices).bit_length() - 1)


def _slice_section(field_id: str, slice_: int) -> str:
    return f"slice {slice_} {field_id}"
