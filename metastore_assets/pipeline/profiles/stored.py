"""Reading of the files of profiles: sketches, value counts, statistics and histograms.

The type class of a column names the physical type of its values, such as `int64` for int8 to int64. A profile is the
statistics of a data file, a partition or the table. States are the mergeable forms of statistics, such as sketches.
Value counts are the distinct values of a column with their frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack

import pyarrow as pa

from metastore_assets.pipeline.profiles.states_reader import StatesReader, corruption_guard
from metastore_assets.pipeline.profiles.states_writer import ROW_COUNT
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.distinct import distinct_sketch
from metastore_assets.statistics.frequencies import EMPTY, Frequencies
from metastore_assets.statistics.hashing import hash_values
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.profile_tables import (
    ValueCountRows,
    parse_frequencies,
    parse_histograms,
    parse_statistics_rows,
    parse_value_counts,
    sum_value_counts,
)
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sections import SectionReader
from metastore_assets.store.version import ProfileFiles
from metastore_assets.values.types import class_named

COUNT_COLUMNS = ("field_id", "type_class", "value_count", "distinct_count")
"""Columns with counts, in `statistics` files and states files."""


def read_sketches(
    states_reader: StatesReader, files: ProfileFiles, field_ids: Set[str]
) -> dict[str, tuple[str | None, int, bytes | None]]:
    """Read the sketches of distinct values of columns, or derive them from value counts.

    Args:
        states_reader: Reads the states files of the store.
        files: The profile.
        field_ids: Field ids of the columns.

    Returns:
        {field id: (type class, number of non-null values, sketch)}. Columns that the profile does not have are missing.
            The type class is None without values. The sketch is None if it is neither stored nor derivable.

    Raises:
        CorruptionError: A file is damaged.
    """
    path = files.states or files.statistics
    names = ["field_id", "type_class", "value_count", "frequencies", *(["distinct_sketch"] if files.states else ())]
    with corruption_guard(states_reader.store, path):
        table = states_reader.read(files, names)[1] if files.states else states_reader.store.read_parquet(path, names)
        columns = [table[name].to_pylist() for name in names]
    sketches = columns[4] if files.states else [None] * table.num_rows
    rows = [row for row in zip(*columns[:4], sketches, strict=True) if row[0] in field_ids]
    derivable = {
        field_id: class_name
        for field_id, class_name, values, state, sketch in rows
        if sketch is None and values and class_name is not None and state == "enumerated"
    }
    value_counts = read_profile_value_counts(states_reader, files, list(derivable))
    derived_sketches = {
        field_id: distinct_sketch(hash_values(frequencies.values, class_named(derivable[field_id]))[0])
        for field_id, parts in value_counts.items()
        if len(frequencies := sum_value_counts(parts))
    }
    return {
        field_id: (class_name, values, derived_sketches.get(field_id, sketch))
        for field_id, class_name, values, _, sketch in rows
    }


def read_counts(states_reader: StatesReader, files: ProfileFiles) -> dict[str, tuple[str | None, int, int | None]]:
    """Read the numbers of values of all columns of a profile.

    Args:
        states_reader: Reads the states files of the store.
        files: The profile.

    Returns:
        {field id: (type class, number of values, number of distinct values)}. The type class is None without values,
            and the last number is None if it was not computed.

    Raises:
        CorruptionError: A file is damaged.
    """
    path, store = files.states or files.statistics, states_reader.store
    with corruption_guard(store, path):
        table = states_reader.read(files, COUNT_COLUMNS)[1] if files.states else store.read_parquet(path, COUNT_COLUMNS)
        rows = zip(*(table[name].to_pylist() for name in COUNT_COLUMNS), strict=True)
        return {field_id: (class_name, values, distinct) for field_id, class_name, values, distinct in rows}


def read_profile_value_counts(
    states_reader: StatesReader, files: ProfileFiles, field_ids: Sequence[str]
) -> Mapping[str, Sequence[ValueCountRows]]:
    """Read the value counts of columns of a profile into memory.

    Return {field id: tables of values and counts}.

    A column has a table for each file that contains some of its values.

    Args:
        states_reader: Reads the states files of the store.
        files: The profile.
        field_ids: The columns. A column without value counts has either no entry in the result or empty tables.

    Raises:
        CorruptionError: A file is damaged.
    """
    if not field_ids:
        return {}
    with FrequencyReader(states_reader, files) as reader:
        return reader.read_all(field_ids)


def read_statistics(store: ObjectStore, files: ProfileFiles) -> tuple[int, dict[str, ColumnStatistics]]:
    """Return (row count, {field id: statistics of the column}) of a stored profile.

    Raises:
        CorruptionError: The file is damaged.
    """
    with corruption_guard(store, files.statistics):
        table = store.read_parquet(files.statistics)
        row_count = int((table.schema.metadata or {})[ROW_COUNT.encode()])
        return row_count, {row.field_id: row for row in parse_statistics_rows(table)}


def read_histograms(store: ObjectStore, files: ProfileFiles) -> dict[str, Histogram]:
    """Return {path of the column: histogram} of a stored profile.

    Paths are those at the time of profiling.

    Raises:
        CorruptionError: The file is damaged.
    """
    if not files.histograms:
        return {}
    with corruption_guard(store, files.histograms):
        return parse_histograms(store.read_parquet(files.histograms))


class FrequencyReader:
    """A reader of the value counts of one profile.

    It is a context manager. Methods raise CorruptionError for damaged files.
    """

    def __init__(self, states_reader: StatesReader, files: ProfileFiles) -> None:
        """Open the files with the profile's value counts.

        Args:
            states_reader: Reads the value counts if they are in a states file, not in files of their own. The caller
                closes it.
            files: The files of the profile.
        """
        self._states_reader = states_reader
        self._store = store = states_reader.store
        self._stack = ExitStack()
        self._parts: list[tuple[str, SectionReader]] = []
        """(path, reader) of each separate file with value counts; empty if the profile is in a states file."""
        self._segment = files if files.is_states_only and files.states else None
        """The profile if it is in a states file; None if it has separate files."""
        with self._stack:
            for path in files.frequencies:
                with corruption_guard(store, path):
                    self._parts.append((path, self._stack.enter_context(SectionReader(store, path))))
            self._stack = self._stack.pop_all()
        enumerated_columns = states_reader.enumerated_columns(self._segment) if self._segment else frozenset()
        self.columns = enumerated_columns.union(name for _, part in self._parts for name in part.sections)
        """Field ids of the columns with value counts."""

    def read(self, field_id: str) -> Frequencies | None:
        """Return the value counts of a column; None if the profile has none."""
        if self._segment is not None:
            return self._states_reader.read_value_counts(self._segment, field_id)
        for path, part in self._parts:
            if field_id in part.sections:
                with corruption_guard(self._store, path):
                    return parse_frequencies(part.read_section(field_id))
        return None

    def read_all(self, field_ids: Sequence[str]) -> dict[str, Sequence[ValueCountRows]]:
        """Read all value counts of some columns.

        Return {field id: tables of values and counts}.

        Args:
            field_ids: The columns. A column without value counts has either no entry in the result or empty tables.
        """
        if self._segment is not None:
            frequencies = {field_id: self.read(field_id) or EMPTY for field_id in field_ids}
            return {field_id: [(column.values, column.counts)] for field_id, column in frequencies.items()}
        tables: dict[str, list[pa.Table]] = {}
        for path, part in self._parts:
            with corruption_guard(self._store, path):
                sections = part.read_sections([field_id for field_id in field_ids if field_id in part.sections])
            for field_id, table in sections.items():
                tables.setdefault(field_id, []).append(table)
        return {field_id: list(map(parse_value_counts, parts)) for field_id, parts in tables.items()}

    def distinct_count(self, field_id: str) -> int:
        """Return how many distinct values of a column are in the profile's separate files of value counts.

        Returns 0 if they do not have the column, or if the value counts are in a states file, which is not read here.
        """
        return sum(part.sections[field_id].row_count for _, part in self._parts if field_id in part.sections)

    def __enter__(self) -> FrequencyReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
