"""Reading of profiles from states files.

States are the mergeable forms of statistics, such as sketches. A profile is the statistics of a set of rows, such as a
data file. A states file contains one or more profiles. Files stay open, and row groups are cached. The type class of a
column names the physical type of its values, such as `int64`. Value counts are the distinct values of a column with
their frequencies.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError, UnsupportedTypeError
from metastore_assets.pipeline.profiles.states_writer import (
    FINGERPRINT_COLUMNS,
    SECTION_COLUMNS,
    VALUE_COUNT_COLUMNS,
    VALUE_FILTER_COLUMN,
)
from metastore_assets.statistics.fingerprints import FingerprintCounts
from metastore_assets.statistics.frequencies import EMPTY, Frequencies
from metastore_assets.statistics.typed_union import unpack_values
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ProfileFiles

if TYPE_CHECKING:
    from metastore_assets.store.parquet import ParquetObject

_OPEN_FILES = 64
_CACHED_BYTES = 64 << 20
"""Maximum bytes of cached row groups."""


class StatesReader:
    """A reader of the states files of one store.

    It is a context manager. Methods raise CorruptionError for damaged files.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._groups: OrderedDict[tuple[str, int, tuple[str, ...]], pa.Table] = OrderedDict()
        self._bytes = 0

    def read(self, files: ProfileFiles, names: Sequence[str]) -> tuple[int, pa.Table]:
        """Return (row count of a profile, table of its states).

        Args:
            files: The files of the profile.
            names: The columns of the states file to read.
        """
        with corruption_guard(self.store, files.states):
            if files.sections == 1:
                metadata = self._open(files.states).file.metadata
                pieces = [(group, 0, metadata.row_group(group).num_rows) for group in range(metadata.num_row_groups)]
            else:
                pieces = self._section(files).pieces
            row_count = SECTION_COLUMNS[1]
            parts = [
                self._group(files.states, group, (row_count, *names)).slice(start, count)
                for group, start, count in pieces
            ]
            table = pa.concat_tables(parts)
            return table[row_count][0].as_py(), table.drop_columns([row_count])

    def enumerated_columns(self, files: ProfileFiles) -> frozenset[str]:
        """Return the field ids of the columns that have value counts in a profile."""
        with corruption_guard(self.store, files.states):
            return frozenset(self._section(files).value_counts)

    def read_value_counts(self, files: ProfileFiles, field_id: str) -> Frequencies | None:
        """Return the value counts of a column; None if the profile has none."""
        with corruption_guard(self.store, files.states):
            position = self._section(files).value_counts.get(field_id)
            if position is None:
                return None
            group, row = position
            return value_counts_at(self._group(files.states, group, VALUE_COUNT_COLUMNS), row)

    def read_fingerprints(self, files: ProfileFiles, field_id: str) -> FingerprintCounts | None:
        """Return the fingerprints (short hashes of values) of a column; None if the profile has none."""
        with corruption_guard(self.store, files.states):
            position = self._section(files).fingerprints.get(field_id)
            if position is None:
                return None
            group, row = position
            table = self._group(files.states, group, FINGERPRINT_COLUMNS)
            lists = (table[name].chunk(0) for name in FINGERPRINT_COLUMNS)
            fingerprints, counts = (
                array.values.slice(array.offsets[row].as_py(), len(array[row])).to_numpy() for array in lists
            )
            return FingerprintCounts(fingerprints, counts)

    def read_filter(self, files: ProfileFiles, field_id: str) -> tuple[str, bytes] | None:
        """Return (type class of the values, value filter) of a column in a profile, or None without a filter.

        A value filter is an encoded set of hash prefixes. It shows which values the profiled rows lack in this column.
        """
        with corruption_guard(self.store, files.states):
            position = self._section(files).value_filters.get(field_id)
            if position is None:
                return None
            group, row = position
            table = self._group(files.states, group, (VALUE_FILTER_COLUMN, "type_class"))
            class_name, value_filter = table["type_class"][row].as_py(), table[VALUE_FILTER_COLUMN][row].as_py()
            return None if value_filter is None or class_name is None else (class_name, value_filter)

    def schema(self, path: str) -> pa.Schema:
        """Return the schema of a states file."""
        with corruption_guard(self.store, path):
            return self._open(path).file.schema_arrow

    def group_tables(self, path: str) -> Iterator[pa.Table]:
        """Yield each row group of a states file as a table."""
        with corruption_guard(self.store, path):
            file = self._open(path).file
            for group in range(file.metadata.num_row_groups):
                yield file.read_row_group(group).combine_chunks()

    def __enter__(self) -> StatesReader:
        return self

    def __exit__(self, *exception: object) -> None:
        for open_file in self._files.values():
            open_file.file.close()
        self._files.clear()
        self._groups.clear()
        self._bytes = 0

    def _section(self, files: ProfileFiles) -> _Section:
        open_file = self._open(files.states)
        if not open_file.sections:
            open_file.sections.update(_sections(open_file.file))
        return open_file.sections[files.section]

    def _open(self, path: str) -> _File:
        """Open a states file, or return it if it is open."""
        if path not in self._files:
            if len(self._files) == _OPEN_FILES:
                self._files.popitem(last=False)[1].file.close()
            self._files[path] = _File(self.store.open_parquet(path), {})
        self._files.move_to_end(path)
        return self._files[path]

    def _group(self, path: str, group: int, names: tuple[str, ...]) -> pa.Table:
        """Return columns of a row group, each in one chunk, possibly from the cache."""
        key = (path, group, names)
        if key not in self._groups:
            table = self._open(path).file.read_row_group(group, columns=list(names)).select(list(names))
            self._groups[key] = table = table.combine_chunks()
            self._bytes += table.nbytes
            while self._bytes > _CACHED_BYTES and len(self._groups) > 1:
                self._bytes -= self._groups.popitem(last=False)[1].nbytes
        self._groups.move_to_end(key)
        return self._groups[key]


def value_counts_at(table: pa.Table, row: int) -> Frequencies:
    """Return the value counts in one row of a table.

    Args:
        table: A table with `VALUE_COUNT_COLUMNS`, each in one chunk.
        row: The row.
    """
    values, counts = (table[name].chunk(0) for name in VALUE_COUNT_COLUMNS)
    start, stop = values.offsets[row].as_py(), values.offsets[row + 1].as_py()
    if start == stop:
        return EMPTY
    unpacked_values = unpack_values(values.values.slice(start, stop - start))
    start, stop = counts.offsets[row].as_py(), counts.offsets[row + 1].as_py()
    return Frequencies(unpacked_values, counts.values.slice(start, stop - start))


@contextmanager
def corruption_guard(store: ObjectStore, path: str) -> Iterator[None]:
    """Convert the error of a missing or undecodable file to CorruptionError.

    Args:
        store: The store of the file.
        path: The path of the file, which the error names.
    """
    try:
        yield
    except ObjectNotFoundError as error:
        raise CorruptionError(
            f"{error}, but is still in use; rebuild with `metastore refresh NAME --full`", missing=True
        ) from error
    except (pa.ArrowException, UnsupportedTypeError, LookupError, TypeError, ValueError) as error:
        raise CorruptionError(
            f"{store.uri(path)} is damaged ({type(error).__name__}: {error}); rebuild with "
            "`metastore refresh NAME --full`"
        ) from error


@dataclass
class _Section:
    """The positions of one profile's rows in a states file."""

    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    """(row group, first row in the row group, number of rows) of each piece."""
    value_counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(row group, row in the row group) of each enumerated column, by field id."""
    fingerprints: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(row group, row in the row group) of each fingerprinted column, by field id."""
    value_filters: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(row group, row in the row group) of each column that may have a value filter, by field id."""


@dataclass(frozen=True)
class _File:
    """An open states file and its sections."""

    file: ParquetObject
    sections: dict[str, _Section]
    """The sections by name. Empty until the first use."""


def _sections(file: ParquetObject) -> dict[str, _Section]:
    """Return the sections of a states file by name."""
    columns = file.schema_arrow.names
    has_value_counts, has_fingerprints = VALUE_COUNT_COLUMNS[0] in columns, FINGERPRINT_COLUMNS[0] in columns
    has_filters = VALUE_FILTER_COLUMN in columns and has_value_counts
    column_names = [SECTION_COLUMNS[0], *(("field_id", "frequencies") if has_value_counts else ())]
    table = file.read(columns=column_names)
    names, *details = [table[name].to_pylist() for name in column_names]
    sections: dict[str, _Section] = {}
    first = 0
    for group in range(file.metadata.num_row_groups):
        last = first + file.metadata.row_group(group).num_rows
        for row in range(first, last):
            section = sections.setdefault(names[row], _Section())
            if row > first and names[row - 1] == names[row]:
                at, start, count = section.pieces[-1]
                section.pieces[-1] = (at, start, count + 1)
            else:
                section.pieces.append((group, row - first, 1))
            if has_value_counts and details[1][row] == "enumerated":
                section.value_counts[details[0][row]] = (group, row - first)
            if has_fingerprints and details[1][row] == "repeated":
                section.fingerprints[details[0][row]] = (group, row - first)
            if has_filters:
                section.value_filters[details[0][row]] = (group, row - first)
        first = last
    return sections
