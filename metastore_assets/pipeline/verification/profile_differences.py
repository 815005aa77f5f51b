"""Comparison of a stored profile with a profile that was recomputed from the same rows.

A profile is the statistics of a set of rows. Exact numbers must be equal, except for rounding. Estimates are not
compared, because they depend on the order of merges. A profile spec says which statistics a profile has. A version is
the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader, read_histograms, read_statistics
from metastore_assets.pipeline.profiles.stored_states import read_states
from metastore_assets.pipeline.value_counts.fingerprinted_values import read_fingerprints
from metastore_assets.statistics.column import STATISTICS, ColumnStatistics
from metastore_assets.statistics.current_schema import apply_schema
from metastore_assets.statistics.finalize import finalize_statistics
from metastore_assets.statistics.fingerprints import FingerprintCounts
from metastore_assets.statistics.frequencies import EMPTY, Frequencies
from metastore_assets.statistics.histogram import Histogram, decode_histograms
from metastore_assets.statistics.profile import profile_all_null
from metastore_assets.statistics.states import read_state_rows
from metastore_assets.statistics.user_defined.finalize import add_user_results
from metastore_assets.statistics.user_defined.laws import equals_up_to_rounding
from metastore_assets.statistics.user_defined.results import UserResult
from metastore_assets.store.version import ProfileFiles
from metastore_assets.value_counts import ValueCountReader
from metastore_assets.values.columns import Column
from metastore_assets.values.json import scalar_text, value_json
from metastore_assets.values.types import type_text

_MOMENT_ROUNDING = 1e-12
"""Maximum absolute difference between skewnesses or kurtoses that may come from rounding. A relative limit would be too
small near 0, for example for symmetric values."""


@dataclass(frozen=True)
class Difference:
    """Stored content that differs from the recomputed content, such as a statistic of a column."""

    column: str
    """Path of the column; empty for content that belongs to no column, such as a row count."""
    statistic: str
    """What differs: the name of a statistic, `frequencies` (value counts), `histogram`, or other content of a file
    or index."""
    stored: str
    """The stored content as a short text, such as a number, `no value` or `12 bins of 2^3 from 0, 500 values`."""
    computed: str
    """The recomputed content as a text of the same kind."""


@dataclass(frozen=True)
class ProfileSource:
    """The files of one profile, and which of them are compared."""

    reader: StatesReader
    files: ProfileFiles
    level: str
    """What is compared: `fragment`, `partition`, `table` or `node`, as in `VersionDifference`."""
    compares_states: bool
    """Whether to compare the states, which merges read, instead of the files that lookups read."""
    table_counts: ValueCountReader | None = None
    """Reads the table's value counts, for the profile of the table and for profiles without value count files."""


@dataclass(frozen=True)
class ProfileView:
    """The content of a stored profile.

    The keys of mappings are field ids of columns.
    """

    row_count: int
    rows: Mapping[str, ColumnStatistics]
    histograms: Mapping[str, Histogram]
    read_value_counts: Callable[[str], Frequencies | None]
    """Returns the value counts of a column, given its field id; None if there are none."""
    read_fingerprints: Callable[[str], FingerprintCounts] | None = None
    """Returns the fingerprints (short hashes of values) of a column, given its field id; None if the profile has
    none."""
    is_table: bool = False
    """Whether it is the profile of the table. Of fingerprinted columns, only that profile has values: those that occur
    at least twice."""


@contextmanager
def open_profile(source: ProfileSource, spec: ProfileSpec) -> Iterator[ProfileView]:
    """Open a stored profile.

    Its content can be read until the context ends.

    Args:
        source: The files of the profile.
        spec: The profile spec of the version.

    Raises:
        CorruptionError: A file is damaged.
    """
    reader, files = source.reader, source.files
    is_table = source.level == "table"
    with FrequencyReader(reader, files) as frequencies:
        if source.compares_states:
            row_count, states = read_states(reader, files, spec)
            labels = [(column.path, type_text(column.type)) for column, _ in spec.columns]
            rows = {
                row.field_id: apply_schema(add_user_results(finalize_statistics(row), policy), row.position, column)
                for row, (column, policy) in zip(read_state_rows(states, labels), spec.columns, strict=True)
            }
            decoded_histograms = zip(rows, decode_histograms(states), strict=True)
            histograms = {field_id: histogram for field_id, histogram in decoded_histograms if histogram is not None}
        else:
            row_count, stored_rows = read_statistics(reader.store, files)
            # Files of partitions have the column names and types of the time when they were written.
            rows = {
                column.field_id: apply_schema(stored_rows[column.field_id], position, column)
                if column.field_id in stored_rows
                else profile_all_null(column, row_count, policy)
                for position, (column, policy) in enumerate(spec.columns)
            }
            by_path = read_histograms(reader.store, files)
            histograms = {row.field_id: by_path[row.column] for row in stored_rows.values() if row.column in by_path}
        table_counts = source.table_counts if is_table or not files.frequencies else None
        read_counts = frequencies.read if table_counts is None else _TableFrequencies(table_counts).read
        has_fingerprints = source.compares_states and source.level == "fragment"
        read_column_fingerprints = partial(read_fingerprints, reader, files) if has_fingerprints else None
        yield ProfileView(row_count, rows, histograms, read_counts, read_column_fingerprints, is_table)


class _TableFrequencies:
    """A reader of the table's value counts, column by column.

    The type class of a column names the physical type of its values. If columns are read by ascending field id, the
    files of each type class are read once. One column is in memory at a time.
    """

    # Measured with 5,000 columns: a search of each column in its file took half of the time of `metastore verify`.

    def __init__(self, reader: ValueCountReader) -> None:
        self._reader = reader
        self._streams: dict[str, Iterator[tuple[str, Frequencies]]] = {}
        self._next: dict[str, tuple[str, Frequencies] | None] = {}
        """The first column of each stream that was not read yet, by type class; None after the last column."""
        self._last = ""
        """The field id of the last column that was read."""

    def read(self, field_id: str) -> Frequencies | None:
        """Return the value counts of a column, or None if there are none."""
        type_class = self._reader.columns.get(field_id)
        if type_class is None:
            return None
        if self._reader.is_fingerprinted(field_id) or field_id < self._last:
            return self._reader.frequencies(field_id, type_class)
        self._last = field_id
        if type_class not in self._streams:
            self._streams[type_class] = self._reader.all_frequencies(type_class)
            self._next[type_class] = next(self._streams[type_class], None)
        while (column := self._next[type_class]) is not None and column[0] < field_id:
            self._next[type_class] = next(self._streams[type_class], None)
        return column[1] if column is not None and column[0] == field_id else EMPTY


def compare_profiles(spec: ProfileSpec, stored_view: ProfileView, computed_view: ProfileView) -> Iterator[Difference]:
    """Yield the differences between two profiles, except between estimates.

    Args:
        spec: The profile spec, with the columns to compare.
        stored_view: The stored profile.
        computed_view: The profile computed from the rows.
    """
    if stored_view.row_count != computed_view.row_count:
        yield Difference("", "row_count", str(stored_view.row_count), str(computed_view.row_count))
    columns = [column for column, _ in spec.columns]
    # Value counts are stored by field id.
    differences = {
        column.field_id: list(_column_differences(column, stored_view, computed_view))
        for column in sorted(columns, key=lambda column: column.field_id)
    }
    for column in columns:
        yield from differences[column.field_id]


def _column_differences(column: Column, stored_view: ProfileView, computed_view: ProfileView) -> Iterator[Difference]:
    """Yield the differences between two profiles of a column, except between estimates."""
    field_id = column.field_id
    stored_row, computed_row = stored_view.rows[field_id], computed_view.rows[field_id]
    for name in _compared_statistics(stored_row, computed_row):
        values = getattr(stored_row, name), getattr(computed_row, name)
        if not _is_equal(*values, _MOMENT_ROUNDING if name in ("skewness", "kurtosis") else 0.0):
            yield Difference(column.path, name, *map(value_text, values))
    yield from _user_defined_differences(column.path, stored_row, computed_row)
    is_repeated = stored_row.frequencies == computed_row.frequencies == "repeated"
    if is_repeated and stored_view.read_fingerprints and computed_view.read_fingerprints:
        fingerprints = stored_view.read_fingerprints(field_id), computed_view.read_fingerprints(field_id)
        if not fingerprints[0].equals(fingerprints[1]):
            yield Difference(column.path, "fingerprints", *map(_fingerprints_text, fingerprints))
    is_enumerated = stored_row.frequencies == computed_row.frequencies == "enumerated"
    if is_enumerated or (is_repeated and stored_view.is_table and computed_view.is_table):
        stored_counts, computed_counts = (
            view.read_value_counts(field_id) or EMPTY for view in (stored_view, computed_view)
        )
        yield from _value_count_differences(column.path, stored_counts, computed_counts)
    bins = stored_view.histograms.get(field_id), computed_view.histograms.get(field_id)
    if not _has_equal_bins(*bins):
        yield Difference(column.path, "histogram", *map(_bins_text, bins))


def _compared_statistics(stored_row: ColumnStatistics, computed_row: ColumnStatistics) -> list[str]:
    """Return the names of the statistics to compare.

    Statistics that are estimates in one or both profiles are omitted. So are those that repeat the schema: names, types
    and positions of columns.
    """
    estimated_names: set[str] = set()
    if "estimate" in (stored_row.distinct_count_guarantee, computed_row.distinct_count_guarantee):
        estimated_names |= {"distinct_count", "duplicate_count"}
    if "estimate" in (stored_row.percentiles_guarantee, computed_row.percentiles_guarantee):
        estimated_names |= {"percentiles"}
    return [
        name for name, statistic in STATISTICS.items() if statistic.merge != "schema" and name not in estimated_names
    ]


def _user_defined_differences(
    column: str, stored_row: ColumnStatistics, computed_row: ColumnStatistics
) -> Iterator[Difference]:
    """Yield a difference for each user-defined statistic that differs, except estimates."""
    absent = UserResult(pa.nulls(1), "absent")
    for name in sorted(stored_row.user_defined.keys() | computed_row.user_defined.keys()):
        results = [row.user_defined.get(name, absent) for row in (stored_row, computed_row)]
        values = [value_json(result.value) for result in results]
        if "estimate" not in [result.guarantee for result in results] and not _is_equal(*values):
            yield Difference(column, name, *map(value_text, values))


def _is_equal(left: Any, right: Any, near_zero: float = 0.0) -> bool:
    """Return whether two statistics are equal, except for rounding.

    NaN equals NaN, also as Arrow scalars. Two floats that differ by at most `near_zero` are equal.
    """
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return bool(left.equals(right)) or value_text(left) == value_text(right)
    return equals_up_to_rounding(left, right, near_zero)


def _value_count_differences(
    column: str, stored_frequencies: Frequencies, computed_frequencies: Frequencies
) -> Iterator[Difference]:
    """Yield at most one difference: the first value whose count differs, and how many more values differ."""
    if stored_frequencies.values.equals(computed_frequencies.values) and stored_frequencies.counts.equals(
        computed_frequencies.counts
    ):
        return
    # Values are compared as texts, because NaN is not equal to itself.
    stored_counts, computed_counts = (
        dict(zip(map(value_text, frequencies.values), frequencies.counts.to_pylist(), strict=True))
        for frequencies in (stored_frequencies, computed_frequencies)
    )
    wrong = _differing_keys(stored_counts, computed_counts)
    if wrong:
        others = f" (and {len(wrong) - 1:,} more values)" if len(wrong) > 1 else ""
        texts = (f"{wrong[0]}: {counts.get(wrong[0], 0)}{others}" for counts in (stored_counts, computed_counts))
        yield Difference(column, "frequencies", *texts)


def by_partition_differences(
    spec: ProfileSpec, stored_reader: ValueCountReader, computed_reader: ValueCountReader
) -> Iterator[Difference]:
    """Yield a difference for each column whose value counts by partition differ.

    The difference names the first value and partition with different counts. If only one reader has counts of the
    column, the difference says which one.

    Args:
        spec: The profile spec, with the columns to compare.
        stored_reader: The value counts of the version.
        computed_reader: The value counts computed from the rows.
    """
    for column, _ in spec.columns:
        has_counts = [column.field_id in reader.by_partition for reader in (stored_reader, computed_reader)]
        if has_counts[0] != has_counts[1]:
            texts = ("stored" if has else "not stored" for has in has_counts)
            yield Difference(column.path, "by_partition", *texts)
        elif has_counts[0]:
            tables = [reader.table_by_partition(column.field_id) for reader in (stored_reader, computed_reader)]
            if tables[0].equals(tables[1]):
                continue
            stored_counts, computed_counts = map(_counts_by_partition, tables)
            wrong = _differing_keys(stored_counts, computed_counts)
            if wrong:
                value, partition = wrong[0]
                others = f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
                texts = (
                    f"{value} in {partition}: {counts.get(wrong[0], 0)}{others}"
                    for counts in (stored_counts, computed_counts)
                )
                yield Difference(column.path, "by_partition", *texts)


def _counts_by_partition(table: pa.Table) -> dict[tuple[str, str], int]:
    """Return {(value as text, partition): frequency}."""
    columns = (table[name].to_pylist() for name in ("partition", "frequency"))
    return {
        (value_text(value), partition): count for value, partition, count in zip(table["value"], *columns, strict=True)
    }


def _differing_keys(stored_counts: Mapping[Any, int], computed_counts: Mapping[Any, int]) -> list[Any]:
    """Return the keys whose counts differ or are missing on one side, sorted."""
    return sorted(
        key
        for key in stored_counts.keys() | computed_counts.keys()
        if stored_counts.get(key) != computed_counts.get(key)
    )


def _has_equal_bins(left: Histogram | None, right: Histogram | None) -> bool:
    if left is None or right is None:
        return left is right
    return (left.exponent, left.first, left.counts.tolist()) == (right.exponent, right.first, right.counts.tolist())


def _fingerprints_text(fingerprints: FingerprintCounts) -> str:
    return f"{len(fingerprints):,} of {fingerprints.rows:,} values"


def _bins_text(histogram: Histogram | None) -> str:
    if histogram is None:
        return "none"
    values = int(histogram.counts.sum())
    return f"{len(histogram):,} bins of 2^{histogram.exponent} from {histogram.first}, {values:,} values"


def value_text(value: Any) -> str:
    """Return a statistic as text for a difference, such as a count, a minimum or a list of values.

    A missing statistic becomes `no value`.
    """
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        return "no value"
    if isinstance(value, pa.Scalar):
        return scalar_text(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(value_text, value))}]"
    return value.hex() if isinstance(value, bytes) else str(value)
