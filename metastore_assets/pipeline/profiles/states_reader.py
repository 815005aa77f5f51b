"""Reading profiles from states files. Each file is opened once, and row groups that profiles share are read once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError, UnsupportedTypeError
from metastore_assets.pipeline.profiles.states_writer import LISTS, MEMBERSHIP, PRINTS, SECTION
from metastore_assets.statistics.fingerprints import FingerprintCounts
from metastore_assets.statistics.frequencies import EMPTY, Frequencies
from metastore_assets.statistics.union import unpack_values
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore

if TYPE_CHECKING:
    from metastore_assets.store.parquet import ParquetObject

_OPEN_FILES = 64
_KEPT_BYTES = 64 << 20
"""Most bytes of cached row groups."""


class StatesReader:
    """Reads the states files of one store. A context manager. Methods raise CorruptionError for damaged files."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._groups: OrderedDict[tuple[str, int, tuple[str, ...]], pa.Table] = OrderedDict()
        self._bytes = 0

    def read(self, files: ProfileFiles, names: Sequence[str]) -> tuple[int, pa.Table]:
        """Return the row count of a profile, and some columns of its states."""
        with corruption_guard(self.store, files.states):
            if files.sections == 1:
                metadata = self._open(files.states).file.metadata
                pieces = [(group, 0, metadata.row_group(group).num_rows) for group in range(metadata.num_row_groups)]
            else:
                pieces = self._section(files).pieces
            parts = [
                self._group(files.states, group, (SECTION[1], *names)).slice(start, count)
                for group, start, count in pieces
            ]
            table = pa.concat_tables(parts)
            return table[SECTION[1]][0].as_py(), table.drop_columns([SECTION[1]])

    def listed(self, files: ProfileFiles) -> frozenset[str]:
        """Return the field ids of the enumerated columns of a profile in a multi-profile file."""
        with corruption_guard(self.store, files.states):
            return frozenset(self._section(files).lists)

    def read_list(self, files: ProfileFiles, field_id: str) -> Frequencies | None:
        """Return the value counts of a column of a profile in a multi-profile file; None if it is not enumerated."""
        with corruption_guard(self.store, files.states):
            place = self._section(files).lists.get(field_id)
            if place is None:
                return None
            group, at = place
            return list_at(self._group(files.states, group, LISTS), at)

    def read_fingerprints(self, files: ProfileFiles, field_id: str) -> FingerprintCounts | None:
        """Return the fingerprints of a column of a profile in a multi-profile file; None if it has none."""
        with corruption_guard(self.store, files.states):
            place = self._section(files).prints.get(field_id)
            if place is None:
                return None
            group, at = place
            columns = (self._group(files.states, group, PRINTS)[name].chunk(0) for name in PRINTS)
            prints, counts = (own.values.slice(own.offsets[at].as_py(), len(own[at])).to_numpy() for own in columns)
            return FingerprintCounts(prints, counts)

    def read_filter(self, files: ProfileFiles, field_id: str) -> tuple[str, bytes] | None:
        """Return the class of the values of a column and its value filter; None if it has none."""
        with corruption_guard(self.store, files.states):
            place = self._section(files).filters.get(field_id)
            if place is None:
                return None
            group, at = place
            table = self._group(files.states, group, (MEMBERSHIP, "type_class"))
            cls, own = table["type_class"][at].as_py(), table[MEMBERSHIP][at].as_py()
            return None if own is None or cls is None else (cls, own)

    def schema(self, path: str) -> pa.Schema:
        """Return the columns of a file."""
        with corruption_guard(self.store, path):
            return self._open(path).file.schema_arrow

    def group_tables(self, path: str) -> Iterator[pa.Table]:
        """Yield the row groups of a file."""
        with corruption_guard(self.store, path):
            file = self._open(path).file
            for group in range(file.metadata.num_row_groups):
                yield file.read_row_group(group).combine_chunks()

    def __enter__(self) -> StatesReader:
        return self

    def __exit__(self, *exception: object) -> None:
        for own in self._files.values():
            own.file.close()
        self._files.clear()
        self._groups.clear()
        self._bytes = 0

    def _section(self, files: ProfileFiles) -> _Section:
        own = self._open(files.states)
        if not own.sections:
            own.sections.update(_sections(own.file))
        return own.sections[files.section]

    def _open(self, path: str) -> _File:
        if path not in self._files:
            if len(self._files) == _OPEN_FILES:
                self._files.popitem(last=False)[1].file.close()
            self._files[path] = _File(self.store.open_parquet(path), {})
        self._files.move_to_end(path)
        return self._files[path]

    def _group(self, path: str, group: int, names: tuple[str, ...]) -> pa.Table:
        key = (path, group, names)
        if key not in self._groups:
            table = self._open(path).file.read_row_group(group, columns=list(names)).select(list(names))
            self._groups[key] = table = table.combine_chunks()
            self._bytes += table.nbytes
            while self._bytes > _KEPT_BYTES and len(self._groups) > 1:
                self._bytes -= self._groups.popitem(last=False)[1].nbytes
        self._groups.move_to_end(key)
        return self._groups[key]


def list_at(table: pa.Table, at: int) -> Frequencies:
    """Return the value counts in a row of a table with the columns `LISTS`, each in one chunk."""
    values, counts = (table[name].chunk(0) for name in LISTS)
    start, stop = values.offsets[at].as_py(), values.offsets[at + 1].as_py()
    if start == stop:
        return EMPTY
    own = unpack_values(values.values.slice(start, stop - start))
    start, stop = counts.offsets[at].as_py(), counts.offsets[at + 1].as_py()
    return Frequencies(own, counts.values.slice(start, stop - start))


@contextmanager
def corruption_guard(store: ObjectStore, path: str) -> Iterator[None]:
    """Raise CorruptionError with the path if a referenced file is missing or cannot be decoded."""
    try:
        yield
    except ObjectNotFoundError as error:
        raise CorruptionError(f"{error}, but is still in use; rebuild with `metastore refresh NAME --full`") from error
    except (pa.ArrowException, UnsupportedTypeError, LookupError, TypeError, ValueError) as error:
        raise CorruptionError(
            f"{store.uri(path)} is damaged ({type(error).__name__}: {error}); rebuild with "
            "`metastore refresh NAME --full`"
        ) from error


@dataclass
class _Section:
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    """Row group, first row in it, number of rows."""
    lists: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By field id of enumerated columns, the row group and the row in it."""
    prints: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By field id of fingerprinted columns, the row group and the row in it."""
    filters: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By field id of columns that may have a value filter, the row group and the row in it."""


@dataclass(frozen=True)
class _File:
    file: ParquetObject
    sections: dict[str, _Section]
    """By name; filled when the first one is read."""


def _sections(file: ParquetObject) -> dict[str, _Section]:
    has_lists, has_prints = (names[0] in file.schema_arrow.names for names in (LISTS, PRINTS))
    has_filters = MEMBERSHIP in file.schema_arrow.names
    names = [SECTION[0], *(("field_id", "frequencies") if has_lists else ())]
    table = file.read(columns=names)
    own, *columns = [table[name].to_pylist() for name in names]
    found: dict[str, _Section] = {}
    first = 0
    for group in range(file.metadata.num_row_groups):
        last = first + file.metadata.row_group(group).num_rows
        for row in range(first, last):
            section = found.setdefault(own[row], _Section())
            if row > first and own[row - 1] == own[row]:
                at, start, count = section.pieces[-1]
                section.pieces[-1] = (at, start, count + 1)
            else:
                section.pieces.append((group, row - first, 1))
            if has_lists and columns[1][row] == "enumerated":
                section.lists[columns[0][row]] = (group, row - first)
            if has_prints and columns[1][row] == "repeated":
                section.prints[columns[0][row]] = (group, row - first)
            if has_filters and has_lists:
                section.filters[columns[0][row]] = (group, row - first)
        first = last
    return found
