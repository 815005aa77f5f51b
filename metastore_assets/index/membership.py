"""The filters of a version's fragments by (column, slice, fragment): a value is looked for in one slice of all of them.

    index/<unique>.membership.parquet    sections `gone`, `fragments`, and one per slice of a column

A value's hash says in which slice of a filter it would be (`statistics.membership`). So a section has what the filters
of all of a file's fragments have of one slice, in the order of its section `fragments`: whoever looks for a value reads
that, not the filters. Files come and merge as those of the index do, slice by slice: a commit adds one, with as many
slices as it is large.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.index.files import FOLDER, GONE, ROWS
from metastore_assets.index.membership_parts import MembershipPart, membership_parts, slice_section
from metastore_assets.statistics.value_filter import MAX_SLICE_BITS, FilterSlice, Words, build_filter_slice
from metastore_assets.store.entry_files import EntryFile, EntryFiles, kept_files
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sections import SectionWriter
from metastore_assets.values.types import TypeClass

_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("type_class", pa.string()),
        ("bits", pa.int64()),
        ("upper", pa.binary()),
        ("lower", pa.binary()),
    ]
)
_SLICE_BYTES = 256 << 10
"""Slices are at least that large, or a file has one."""
_CELL_BYTES = 64
"""Likewise, what one filter has of them, on average."""


@dataclass(frozen=True)
class Filters:
    """Filters of some columns of some fragments."""

    names: pa.Array
    """Of the fragments' profiles."""
    columns: Mapping[str, tuple[pa.Array, FilterSlice]]
    """By field id, for each of the fragments, in that order, the class that its values were hashed as, null where there
    is no filter; and the whole filters."""


_NOTHING = Filters(pa.array([], pa.string()), {})


class MembershipReader:
    """The filters of one version. Opens each file once, on first use; safe to share. Raises CorruptionError."""

    def __init__(self, store: ObjectStore, files: EntryFiles) -> None:
        self._store = store
        self._files = files

    @lock_free_cached_property
    def names(self) -> list[str]:
        """The names of the profiles of the version's fragments."""
        found: list[str] = [name for part in self._parts for name in part.names.to_pylist()]
        if len(found) != self._files.rows:
            raise CorruptionError(
                f"{self._store.uri()}: there are filters of {len(found):,} fragments, and the version has "
                f"{self._files.rows:,}; rebuild with `metastore refresh NAME --full`"
            )
        return found

    def may_hold(self, field_id: str, cls: TypeClass, hashes: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Whether each fragment, in the order of `names`, may hold a value of the column with one of these hashes."""
        found = [part.may_hold(field_id, cls, hashes) for part in self._parts]
        return np.concatenate([np.zeros(0, np.bool_), *found])

    def prefixes(self, field_id: str) -> dict[str, tuple[str, int, Words]]:
        """By name of the profile, of the filters that there are of a column: class, bits, and the beginnings."""
        found = {}
        for part in self._parts:
            if field_id not in part.slicings:
                continue
            classes, bits, places, prefixes = part.whole(field_id)
            ends = np.searchsorted(places, np.arange(len(bits) + 1)).tolist()
            for at, (name, cls) in enumerate(zip(part.names.to_pylist(), classes.to_pylist(), strict=True)):
                if cls is not None:
                    found[name] = cls, int(bits[at]), prefixes[ends[at] : ends[at + 1]]
        return found

    @lock_free_cached_property
    def _parts(self) -> list[MembershipPart]:
        return membership_parts(self._store, self._files.files)


def next_membership(
    store: ObjectStore,
    base: EntryFiles | None,
    lots: Iterable[Filters],
    came: Collection[str],
    gone: Collection[str],
    count: int,
) -> EntryFiles:
    """The files in which the filters of some fragments are new, and those of others are gone.

    `lots` have the filters of those that `came`, by name; `gone` are names that `base` has; then there are `count`
    fragments. Nothing is changed: what `base` names stays. Raises CorruptionError.
    """
    if not count:
        return EntryFiles(0, ())
    base = base or EntryFiles(0, ())
    if not came and not gone:
        return base
    kept = kept_files(base, count, len(came) + len(gone), whole_rows=0)
    newest = membership_parts(store, base.files[len(kept) :], {*came, *gone})
    dropped = {name for part in newest for name in part.gone} | set(gone) if kept else set()
    last, written = _NOTHING, list[EntryFile]()
    for lot in lots:
        if len(last.names):  # more than one: each is put away, to be read slice by slice
            written.append(_written(store, [], last, ()))
        last = lot
    found = _written(store, [*newest, *membership_parts(store, written)], last, dropped)
    store.delete([file.path for file in written])
    return EntryFiles(count, (*kept, found))


def _written(store: ObjectStore, parts: Sequence[MembershipPart], came: Filters, gone: Collection[str]) -> EntryFile:
    """Write what counts of some files, and what came, as one file."""
    path = f"{FOLDER}/{uuid.uuid4().hex}.membership.parquet"
    names = pa.concat_arrays([*(part.names for part in parts), came.names])
    columns = sorted({own for part in parts for own in part.slicings} | came.columns.keys())
    new = sum(cells.upper.nbytes + cells.lower.nbytes for _, cells in came.columns.values())
    size = (new + sum(part.byte_count for part in parts)) // max(1, len(columns))
    slicing = _slicing(size, len(names))
    with SectionWriter(store, path, _SCHEMA, {"bits": "DELTA_BINARY_PACKED"}) as writer:
        for section, own in ((GONE, pa.array(sorted(gone), pa.string())), (ROWS, names)):
            nothing = [pa.nulls(len(own), field.type) for field in list(_SCHEMA)[1:]]
            writer.write_section(section, pa.Table.from_arrays([own, *nothing], schema=_SCHEMA))
        for field_id in columns:
            for slice_, table in enumerate(_slices(parts, came, field_id, slicing)):
                writer.write_section(slice_section(field_id, slice_), table)
    return EntryFile(path, len(names) + len(gone))


def _slices(parts: Sequence[MembershipPart], came: Filters, field_id: str, slicing: int) -> Iterator[pa.Table]:
    """What the filters of a column have of each slice, those of files and those that came."""
    heads = [part.heads(field_id) for part in parts]
    if field_id in came.columns:
        classes, own = came.columns[field_id]
        heads.append((classes.to_pylist(), own.bits))
        new = own.prefixes()
    else:
        heads.append(([None] * len(came.names), np.zeros(len(came.names), np.int64)))
        new = np.zeros(0, np.int64), np.zeros(0, np.uint64)
    told = pa.array([cls for classes, _ in heads for cls in classes], pa.string())
    bits = np.concatenate([own for _, own in heads])
    firsts = np.cumsum([0, *(len(part.names) for part in parts)]).tolist()
    for slice_ in range(1 << slicing):
        found = [
            (first, part.prefixes(field_id, slicing, slice_))
            for part, first in zip(parts, firsts, strict=False)
            if field_id in part.slicings
        ]
        mask = (new[1] >> np.uint64(64 - slicing)) == np.uint64(slice_) if slicing else slice(None)
        found.append((firsts[-1], (new[0][mask], new[1][mask])))
        places = np.concatenate([places + first for first, (places, _) in found])
        cells = build_filter_slice(places, np.concatenate([own for _, (_, own) in found]), bits, slicing, slice_)
        arrays = [pa.nulls(len(bits), pa.string()), told, pa.array(bits), cells.upper, cells.lower]
        yield pa.Table.from_arrays(arrays, schema=_SCHEMA)


def _slicing(size: int, fragments: int) -> int:
    slices = size // max(_SLICE_BYTES, _CELL_BYTES * fragments)
    return min(MAX_SLICE_BITS, max(1, slices).bit_length() - 1)
