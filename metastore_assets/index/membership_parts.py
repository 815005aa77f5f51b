"""One file of filters of fragments: what of it counts, and what it says of a slice of a column."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.index.files import GONE, ROWS, live_masks, one_chunk
from metastore_assets.statistics.value_filter import FilterIndices, FilterSlice, Words
from metastore_assets.store.entry_files import EntryFile
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.sections import SectionReader
from metastore_assets.values.types import TypeClass

_CELL = ["type_class", "bits", "upper", "lower"]


class MembershipPart:
    """The rows of one file that count."""

    def __init__(self, sections: SectionReader, uri: str, live: pa.Array | None) -> None:
        self._sections = sections
        self._uri = uri
        self._live = None if live is None else live.to_numpy(zero_copy_only=False)
        self._decoded: tuple[tuple[str, int], tuple[FilterIndices, Words]] | None = None

    @lock_free_cached_property
    def names(self) -> pa.Array:
        return self._counted(_names(self._sections, ROWS, self._uri))

    @property
    def gone(self) -> set[str]:
        return set(_names(self._sections, GONE, self._uri).to_pylist())

    @property
    def byte_count(self) -> int:
        return self._sections.byte_count

    @lock_free_cached_property
    def slicings(self) -> dict[str, int]:
        """By field id, the slicing of the filters of a column."""
        slices: dict[str, int] = {}
        for name in self._sections.sections:
            if name.startswith("slice "):
                field_id = name.split(" ", 2)[2]
                slices[field_id] = slices.get(field_id, 0) + 1
        return {field_id: count.bit_length() - 1 for field_id, count in slices.items()}

    def may_hold(self, field_id: str, cls: TypeClass, hashes: Sequence[int]) -> npt.NDArray[np.bool_]:
        if field_id not in self.slicings:
            return np.ones(len(self.names), np.bool_)
        found = np.zeros(len(self.names), np.bool_)
        of_slice: dict[int, list[int]] = {}
        for hash_ in hashes:
            of_slice.setdefault(hash_ >> (64 - self.slicings[field_id]), []).append(hash_)
        for slice_, own in of_slice.items():
            classes, cells = self.cells(field_id, slice_)
            # What was hashed as values of another class says nothing.
            is_other = pc.invert(pc.equal(classes, cls.name).fill_null(False)).to_numpy(zero_copy_only=False)
            held = is_other | cells.may_hold(own)
            found |= held if self._live is None else held[self._live]
        return found

    def cells(self, field_id: str, slice_: int) -> tuple[pa.Array, FilterSlice]:
        """What the filters of all of the file's fragments have of a slice, and the classes of their values."""
        slicing = self.slicings[field_id]
        table = self._sections.read_section(slice_section(field_id, slice_), columns=_CELL)
        with parquet_errors(self._uri):
            classes, bits, upper, lower = (one_chunk(table[name]) for name in _CELL)
            return classes, FilterSlice(bits.to_numpy(), upper, lower, slicing, slice_)

    def whole(self, field_id: str) -> tuple[pa.Array, npt.NDArray[np.int64], FilterIndices, Words]:
        """Classes and bits of the filters of a column, and the place and beginning of each value."""
        slicing = self.slicings[field_id]
        held = [self.cells(field_id, own) for own in range(1 << slicing)]
        parts = [self._moved(*cells.prefixes()) for _, cells in held]
        places, prefixes = (np.concatenate(own) for own in zip(*parts, strict=True))
        order = np.argsort(places, kind="stable")
        return self._counted(held[0][0]), self._bits(held[0][1]), places[order], prefixes[order]

    def prefixes(self, field_id: str, slicing: int, slice_: int) -> tuple[FilterIndices, Words]:
        """The place among those that count, and the beginning, of each value in a slice of any size."""
        own = self.slicings[field_id]
        if own < slicing:
            places, prefixes = self._slice(field_id, slice_ >> (slicing - own))
            mask = (prefixes >> np.uint64(64 - slicing)) == np.uint64(slice_)
            return places[mask], prefixes[mask]
        parts = [self._slice(field_id, (slice_ << (own - slicing)) + at) for at in range(1 << (own - slicing))]
        places, prefixes = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(places, kind="stable")
        return places[order], prefixes[order]

    def heads(self, field_id: str) -> tuple[list[str | None], npt.NDArray[np.int64]]:
        """Classes and bits of the filters that count."""
        if field_id not in self.slicings:
            return [None] * len(self.names), np.zeros(len(self.names), np.int64)
        classes, cells = self.cells(field_id, 0)
        return self._counted(classes).to_pylist(), self._bits(cells)

    def _slice(self, field_id: str, slice_: int) -> tuple[FilterIndices, Words]:
        key = (field_id, slice_)
        kept = self._decoded
        if kept is None or kept[0] != key:
            kept = self._decoded = key, self._moved(*self.cells(field_id, slice_)[1].prefixes())
        return kept[1]

    def _moved(self, places: FilterIndices, prefixes: Words) -> tuple[FilterIndices, Words]:
        if self._live is None:
            return places, prefixes
        mask = self._live[places]
        return (np.cumsum(self._live) - 1)[places[mask]], prefixes[mask]

    def _bits(self, cells: FilterSlice) -> npt.NDArray[np.int64]:
        return cells.bits if self._live is None else cells.bits[self._live]

    def _counted(self, array: pa.Array) -> pa.Array:
        return array if self._live is None else array.filter(pa.array(self._live))


def membership_parts(
    store: ObjectStore, files: Sequence[EntryFile], changed: Collection[str] = ()
) -> list[MembershipPart]:
    """Each file, oldest first; what is `changed` after them does not count in any."""
    held = [(SectionReader(store, file.path), store.uri(file.path)) for file in files]
    keys, gone = ([_names(own, section, uri) for own, uri in held] for section in (ROWS, GONE))
    last = pa.array(sorted(changed), pa.string())
    masks = live_masks([*keys, last], [*gone, pa.array([], pa.string())])
    return [MembershipPart(own, uri, live) for (own, uri), live in zip(held, masks, strict=False)]


def slice_section(field_id: str, slice_: int) -> str:
    return f"slice {slice_} {field_id}"


def _names(sections: SectionReader, section: str, uri: str) -> pa.Array:
    try:
        own = sections.read_section(section, columns=["name"])["name"].combine_chunks()
    except KeyError as error:
        raise CorruptionError(f"{uri} has no section {error}; rebuild with `metastore refresh NAME --full`") from error
    return own if isinstance(own, pa.Array) else pa.array([], pa.string())
