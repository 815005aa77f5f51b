"""Comparing two profiles of the same rows: exact numbers have to be equal."""

from __future__ import annotations

import math
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
from metastore_assets.statistics.user_defined.results import UserResult
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.value_counts import ValueCountReader
from metastore_assets.values.types import type_text

_ROUNDED, _ALMOST_ZERO = 1e-9, 1e-12
"""Largest relative difference of floats by rounding, and largest absolute difference of higher moments, which depend on
the order of merges: the skewness of a symmetric distribution is about 0."""


@dataclass(frozen=True)
class Difference:
    """A number of a column that differs from that of the rows."""

    column: str
    statistic: str
    """A column of `statistics`; `frequencies` for value counts; `histogram`; `index` for a row of an index."""
    stored: str
    found: str
    """Both numbers as text."""


@dataclass(frozen=True)
class ProfileView:
    """A stored profile, by field id of the columns of a spec."""

    row_count: int
    rows: Mapping[str, ColumnStatistics]
    histograms: Mapping[str, Histogram]
    read_list: Callable[[str], Frequencies | None]
    read_fingerprints: Callable[[str], FingerprintCounts] | None = None
    """Reads fingerprints, if the profile is read as merges read it."""
    is_table: bool = False
    """Whether the profile is that of the table, whose value counts contain repeated values."""


@contextmanager
def opened(
    states_files: StatesReader,
    files: ProfileFiles,
    spec: ProfileSpec,
    *,
    merged: bool,
    table: ValueCountReader | None = None,
    is_table: bool = False,
) -> Iterator[ProfileView]:
    """Open a profile.

    Args:
        states_files: Reads the files of the profile's store.
        files: The files of the profile.
        spec: The spec of the version.
        merged: Whether the states are read, as merges do. Else the files for people.
        table: The table's value counts, if the profile has none itself.
        is_table: Whether the profile is that of the table.

    Raises:
        CorruptionError: A file is damaged.
    """
    with FrequencyReader(states_files, files) as lists:
        if merged:
            row_count, states = read_states(states_files, files, spec)
            labels = [(leaf.path, type_text(leaf.type)) for leaf, _ in spec.leaves]
            told_rows = zip(read_state_rows(states, labels), spec.leaves, strict=True)
            rows = {
                row.field_id: apply_schema(add_user_results(finalize_statistics(row), policy), row.position, leaf)
                for row, (leaf, policy) in told_rows
            }
            found = zip(rows, decode_histograms(states), strict=True)
            histograms = {field_id: own for field_id, own in found if own is not None}
        else:
            row_count, told = read_statistics(states_files.store, files)
            # Files of partitions have the names and types that columns had when they were written.
            rows = {
                leaf.field_id: apply_schema(told[leaf.field_id], position, leaf)
                if leaf.field_id in told
                else profile_all_null(leaf, row_count, policy)
                for position, (leaf, policy) in enumerate(spec.leaves)
            }
            by_path = read_histograms(states_files.store, files)
            histograms = {row.field_id: by_path[row.column] for row in told.values() if row.column in by_path}
        read_list = lists.read if table is None else partial(_table_list, table)
        read = partial(read_fingerprints, states_files, files) if merged else None
        yield ProfileView(row_count, rows, histograms, read_list, read, is_table)


def _table_list(lists: ValueCountReader, field_id: str) -> Frequencies | None:
    return lists.frequencies(field_id, lists.columns[field_id]) if field_id in lists.columns else None


def differences(spec: ProfileSpec, stored: ProfileView, found: ProfileView) -> Iterator[Difference]:
    """Yield differences of two profiles. Estimates are not compared, because they depend on the order of merges."""
    if stored.row_count != found.row_count:
        yield Difference("", "row_count", str(stored.row_count), str(found.row_count))
    for leaf, _ in spec.leaves:
        own, other = stored.rows[leaf.field_id], found.rows[leaf.field_id]
        for name in _compared(own, other):
            left, right = getattr(own, name), getattr(other, name)
            if not _same(left, right, _ALMOST_ZERO if name in ("skewness", "kurtosis") else 0.0):
                yield Difference(leaf.path, name, _text(left), _text(right))
        yield from _user_defined_differences(leaf.path, own, other)
        repeated = own.frequencies == other.frequencies == "repeated"
        if repeated and stored.read_fingerprints and found.read_fingerprints:
            left_prints, right_prints = stored.read_fingerprints(leaf.field_id), found.read_fingerprints(leaf.field_id)
            if not left_prints.equals(right_prints):
                yield Difference(leaf.path, "fingerprints", _prints_text(left_prints), _prints_text(right_prints))
        if own.frequencies == other.frequencies == "enumerated" or (repeated and stored.is_table and found.is_table):
            yield from _list_differences(
                leaf.path, stored.read_list(leaf.field_id) or EMPTY, found.read_list(leaf.field_id) or EMPTY
            )
        left_bins, right_bins = stored.histograms.get(leaf.field_id), found.histograms.get(leaf.field_id)
        if not _same_bins(left_bins, right_bins):
            yield Difference(leaf.path, "histogram", _bins_text(left_bins), _bins_text(right_bins))


def _compared(own: ColumnStatistics, other: ColumnStatistics) -> list[str]:
    left_out: set[str] = set()
    if "estimate" in (own.distinct_count_guarantee, other.distinct_count_guarantee):
        left_out |= {"distinct_count", "duplicate_count"}
    if "estimate" in (own.percentiles_guarantee, other.percentiles_guarantee):
        left_out |= {"percentiles"}
    return [name for name, one in STATISTICS.items() if one.merge != "schema" and name not in left_out]


def _user_defined_differences(column: str, own: ColumnStatistics, other: ColumnStatistics) -> Iterator[Difference]:
    nothing = UserResult(pa.nulls(1), "absent")
    for name in sorted(own.user_defined.keys() | other.user_defined.keys()):
        left, right = (row.user_defined.get(name, nothing) for row in (own, other))
        if "estimate" not in (left.guarantee, right.guarantee) and not _same(left.value.as_py(), right.value.as_py()):
            yield Difference(column, name, _text(left.value.as_py()), _text(right.value.as_py()))


def _same(left: Any, right: Any, near_zero: float = 0.0) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        is_close = math.isclose(left, right, rel_tol=_ROUNDED, abs_tol=near_zero)
        return left == right or is_close or (left != left and right != right)
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return bool(left.equals(right)) or str(left) == str(right)
    return bool(left == right)


def _list_differences(column: str, stored: Frequencies, found: Frequencies) -> Iterator[Difference]:
    """Yield the first value whose count differs."""
    if stored.values.equals(found.values) and stored.counts.equals(found.counts):
        return
    # As texts, because NaN is not equal to itself.
    own, other = (dict(zip(map(str, each.values), each.counts.to_pylist(), strict=True)) for each in (stored, found))
    wrong = sorted(value for value in own.keys() | other.keys() if own.get(value) != other.get(value))
    if not wrong:
        return
    first = wrong[0]
    more = f" (and {len(wrong) - 1:,} more values)" if len(wrong) > 1 else ""
    yield Difference(
        column, "frequencies", f"{first}: {own.get(first, 0)}{more}", f"{first}: {other.get(first, 0)}{more}"
    )


def partition_differences(spec: ProfileSpec, stored: ValueCountReader, found: ValueCountReader) -> Iterator[Difference]:
    """Yield for each column the first value whose counts by partition differ."""
    for leaf, _ in spec.leaves:
        kept = [leaf.field_id in each.by_partition for each in (stored, found)]
        if kept[0] != kept[1]:
            yield Difference(leaf.path, "by_partition", *("kept" if each else "not kept" for each in kept))
        elif kept[0]:
            own, other = (each.table_by_partition(leaf.field_id) for each in (stored, found))
            if own.equals(other):
                continue
            left, right = _rows_by_partition(own), _rows_by_partition(other)
            wrong = sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
            if wrong:
                more = f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
                place = f"{wrong[0][0]} in {wrong[0][1]}"
                texts = (f"{place}: {each.get(wrong[0], 0)}{more}" for each in (left, right))
                yield Difference(leaf.path, "by_partition", *texts)


def _rows_by_partition(table: pa.Table) -> dict[tuple[str, str], int]:
    """Return frequencies by value and partition. Values are texts, because NaN is not equal to itself."""
    columns = (table[name].to_pylist() for name in ("partition", "frequency"))
    return {(str(value), partition): count for value, partition, count in zip(table["value"], *columns, strict=True)}


def _same_bins(left: Histogram | None, right: Histogram | None) -> bool:
    if left is None or right is None:
        return left is right
    return (left.exponent, left.first, left.counts.tolist()) == (right.exponent, right.first, right.counts.tolist())


def _prints_text(prints: FingerprintCounts) -> str:
    return f"{len(prints):,} of {prints.rows:,} values"


def _bins_text(histogram: Histogram | None) -> str:
    if histogram is None:
        return "none"
    values = int(histogram.counts.sum())
    return f"{len(histogram):,} bins of 2^{histogram.exponent} from {histogram.first}, {values:,} values"


def _text(value: Any) -> str:
    if value is None:
        return "not known"
    return value.hex() if isinstance(value, bytes) else str(value)
