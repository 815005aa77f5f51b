"""Reading the files of profiles: sketches, value counts, statistics, histograms."""

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
from metastore_assets.statistics.tables import (
    ValueCountRows,
    parse_frequencies,
    parse_histograms,
    parse_statistics_rows,
    parse_value_counts,
    sum_value_counts,
)
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sections import SectionReader
from metastore_assets.values.types import class_named

COUNTS = ("field_id", "type_class", "value_count", "distinct_count")
"""Columns of `statistics`, or of states, with numbers of values."""


def read_sketches(
    opened: StatesReader, files: ProfileFiles, leaves: Set[str]
) -> dict[str, tuple[str | None, int, bytes | None]]:
    """By field id of some columns: class of the values, how many there are, and the sketch of the distinct ones.

    Raises CorruptionError.
    """
    path = files.states or files.statistics
    names = ["field_id", "type_class", "value_count", "frequencies", *(["distinct_sketch"] if files.states else ())]
    with corruption_guard(opened.store, path):
        table = opened.read(files, names)[1] if files.states else opened.store.read_parquet(path, names)
        columns = [table[name].to_pylist() for name in names]
    sketches = columns[4] if files.states else [None] * table.num_rows
    rows = [row for row in zip(*columns[:4], sketches, strict=True) if row[0] in leaves]
    bare = {
        field_id: cls
        for field_id, cls, values, state, sketch in rows
        if sketch is None and values and cls is not None and state == "enumerated"
    }
    lists = {
        field_id: sum_value_counts(own)
        for field_id, own in read_profile_value_counts(opened, files, list(bare)).items()
    }
    made = {
        field_id: distinct_sketch(hash_values(own.values, class_named(bare[field_id]))[0])
        for field_id, own in lists.items()
        if len(own)
    }
    return {field_id: (cls, values, made.get(field_id, sketch)) for field_id, cls, values, _, sketch in rows}


def read_counts(opened: StatesReader, files: ProfileFiles) -> dict[str, tuple[str | None, int, int | None]]:
    """By field id of all columns: class of the values, how many there are, and how many distinct ones if known.

    Raises CorruptionError.
    """
    path = files.states or files.statistics
    with corruption_guard(opened.store, path):
        table = opened.read(files, COUNTS)[1] if files.states else opened.store.read_parquet(path, COUNTS)
        rows = zip(*(table[name].to_pylist() for name in COUNTS), strict=True)
        return {field_id: (cls, values, distinct) for field_id, cls, values, distinct in rows}


def read_profile_value_counts(
    opened: StatesReader, files: ProfileFiles, field_ids: Sequence[str]
) -> Mapping[str, Sequence[ValueCountRows]]:
    """Return the value counts of some enumerated columns with few values. Raise CorruptionError."""
    if not field_ids:
        return {}
    with FrequencyReader(opened, files) as reader:
        return reader.read_all(field_ids)


def read_statistics(store: ObjectStore, files: ProfileFiles) -> tuple[int, dict[str, ColumnStatistics]]:
    """Read the statistics of a stored profile. Raises CorruptionError if the file is corrupt."""
    with corruption_guard(store, files.statistics):
        table = store.read_parquet(files.statistics)
        row_count = int((table.schema.metadata or {})[ROW_COUNT.encode()])
        return row_count, {row.field_id: row for row in parse_statistics_rows(table)}


def read_histograms(store: ObjectStore, files: ProfileFiles) -> dict[str, Histogram]:
    """Return the histograms of a profile by the column paths of its spec. Raise CorruptionError."""
    if not files.histograms:
        return {}
    with corruption_guard(store, files.histograms):
        return parse_histograms(store.read_parquet(files.histograms))


class FrequencyReader:
    """Reads the value counts of one profile, from one or more files. Raises CorruptionError."""

    def __init__(self, opened: StatesReader, files: ProfileFiles) -> None:
        self._opened = opened
        self._store = store = opened.store
        self._stack = ExitStack()
        self._parts: list[tuple[str, SectionReader]] = []
        self._packed = files if files.is_states_only and files.states else None
        with self._stack:
            for path in files.frequencies:
                with corruption_guard(store, path):
                    self._parts.append((path, self._stack.enter_context(SectionReader(store, path))))
            self._stack = self._stack.pop_all()
        own = opened.listed(self._packed) if self._packed else frozenset()
        self.listed = own.union(name for _, part in self._parts for name in part.sections)
        """Field ids of the enumerated columns."""

    def read(self, field_id: str) -> Frequencies | None:
        """Return the value counts of a column; None if it is not enumerated."""
        if self._packed is not None:
            return self._opened.read_list(self._packed, field_id)
        for path, part in self._parts:
            if field_id in part.sections:
                with corruption_guard(self._store, path):
                    return parse_frequencies(part.read_section(field_id))
        return None

    def read_all(self, field_ids: Sequence[str]) -> dict[str, Sequence[ValueCountRows]]:
        """Return the value counts of some enumerated columns with few values, unsorted, read at once."""
        if self._packed is not None:
            lists = {field_id: self.read(field_id) or EMPTY for field_id in field_ids}
            return {field_id: [(own.values, own.counts)] for field_id, own in lists.items()}
        tables: dict[str, list[pa.Table]] = {}
        for path, part in self._parts:
            with corruption_guard(self._store, path):
                own = part.read_sections([field_id for field_id in field_ids if field_id in part.sections])
            for field_id, table in own.items():
                tables.setdefault(field_id, []).append(table)
        return {field_id: [parse_value_counts(part) for part in own] for field_id, own in tables.items()}

    def row_count(self, field_id: str) -> int:
        """Return the number of distinct values of an enumerated column, for a profile with separate files."""
        return sum(part.sections[field_id].row_count for _, part in self._parts if field_id in part.sections)

    def __enter__(self) -> FrequencyReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
