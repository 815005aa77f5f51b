"""Profiles of the matching rows of fragments that match only partly.

A fragment is a data file with the deletes that apply to it. The columns of the predicate are read first, to compute a
mask of the rows. Then each requested column is read, chunk by chunk. A type class is a group of column types whose
values are stored as one Arrow type. A version has the statistics of one snapshot of the table. A profile has the
statistics of a set of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.config import ResolvedPolicy, TableConfig
from metastore_assets.expressions.predicates import Predicate
from metastore_assets.expressions.row_filter import RowFilter
from metastore_assets.formats.base import Fragment, FragmentReader
from metastore_assets.formats.schema_casting import restore_default_values
from metastore_assets.lookup import Table
from metastore_assets.lookup.filtered_view import FilterMatch
from metastore_assets.reads.matching_rows import (
    StartSpark,
    compute_row_masks,
    create_scan_engine,
    map_fragments,
    open_fragment,
)
from metastore_assets.reads.scan_plan import resolve_fragments
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.statistics.fingerprints import FingerprintCounts
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.profile import profile_field
from metastore_assets.statistics.states import build_states_table
from metastore_assets.storage.io_counters import count_io
from metastore_assets.values.columns import Column, columns_by_field

ColumnSelection: TypeAlias = tuple[Column, ResolvedPolicy]
"""(column to profile, what to compute of it)."""


@dataclass(frozen=True)
class FilteredProfile:
    """The profile of the matching rows of one fragment."""

    row_count: int
    states: pa.Table
    """Mergeable statistics with one row per requested column: a result of `build_states_table`."""
    frequencies: tuple[Frequencies | None, ...]
    """All values of each requested column with their frequencies; None if its policy does not store them."""
    fingerprints: tuple[FingerprintCounts | None, ...]
    """Hashes of the values of each requested column with their frequencies; None if its policy does not store them."""


class PartialFragments:
    """The fragments of a version that match a predicate partly.

    They are read when columns are requested.
    """

    def __init__(
        self, lookup: Table, predicate: Predicate, match: FilterMatch, table: TableConfig, spark: StartSpark | None
    ) -> None:
        """Prepare to read the fragments that match partly; nothing is read yet.

        Args:
            lookup: The table as of a version.
            predicate: The predicate, bound to the table's columns.
            match: The fragments that match the predicate. Only its `partial_fragments` are read.
            table: The location of the table.
            spark: Returns a Spark session, which reads the files if they are many or large. If `spark` is None, child
                processes of this process read them.
        """
        self._schema = lookup.version.schema
        self._predicate = predicate
        self._lookup = lookup
        self._match = match
        self._table = table
        self._spark = spark
        self._fragments: list[Fragment] | None = None
        self.read_ids: frozenset[str] = frozenset()
        """Ids of the fragments that were read."""
        self.bytes_read = 0
        """Bytes of the table's data files that were read, over all requests."""

    @cached_property
    def row_count(self) -> int:
        """The number of matching rows in the fragments.

        The first access reads the fragments.
        """
        return sum(profile.row_count for profile in self.read((), pa.struct([("boolean", pa.bool_())])))

    def read(self, columns: Sequence[ColumnSelection], union: pa.StructType) -> list[FilteredProfile]:
        """Read the fragments, and return the profile of each fragment's matching rows.

        Args:
            columns: The columns to profile, in table order. The profiles have the same order.
            union: The type of values in the results: a struct with one field per type class.

        Raises:
            FragmentError: A file cannot be read.
            MetastoreError: The snapshot of the version no longer exists.
        """
        engine = create_scan_engine(self._spark)
        if self._fragments is None:
            runner = SizedRunner(engine.start)
            ids = {entry.id for entry in self._match.partial_fragments}
            self._fragments, schema = resolve_fragments(self._lookup, self._table, ids, runner)
            self._schema = pa.schema([restore_default_values(field, schema) for field in self._schema])
        row_filter = RowFilter(self._predicate, self._schema)
        task = partial(profile_matching_rows, row_filter, self._group_by_field(columns), union)
        with count_io() as meter:
            profiles: list[FilteredProfile] = map_fragments(engine, task, self._fragments)
        self.read_ids = frozenset(fragment.id for fragment in self._fragments)
        self.bytes_read += meter.counts().read.bytes
        return profiles

    def _group_by_field(self, columns: Sequence[ColumnSelection]) -> list[tuple[int, list[ColumnSelection]]]:
        """Group columns by the top-level column that contains them.

        Returns:
            (position of a top-level column in the schema, columns in it) pairs, ascending by position.
        """
        positions = {
            column.field_id: position
            for position, field_columns in enumerate(columns_by_field(self._schema))
            for column in field_columns
        }
        by_position: dict[int, list[ColumnSelection]] = {}
        for column, policy in columns:
            by_position.setdefault(positions[column.field_id], []).append((column, policy))
        return sorted(by_position.items())


def profile_matching_rows(
    row_filter: RowFilter,
    columns: Sequence[tuple[int, Sequence[ColumnSelection]]],
    union: pa.StructType,
    fragment: Fragment,
) -> FilteredProfile:
    """Read one fragment, and return the profile of its matching rows.

    Tasks call it in other processes.

    Args:
        row_filter: The filter of rows.
        columns: (position of a top-level column in `row_filter.schema`, columns in it to profile). The result has
            the columns in this order.
        union: The type of values in the result: a struct with one field per type class.
        fragment: The fragment.

    Raises:
        FragmentError: The fragment cannot be read.
    """
    with open_fragment(fragment) as reader:
        masks = list(compute_row_masks(row_filter, reader))
        row_mask = np.concatenate([np.zeros(0, np.bool_), *masks])
        profiles = {}
        for position, selections in columns:
            field, field_columns = row_filter.schema.field(position), columns_by_field(row_filter.schema)[position]
            policies = {column.path: policy for column, policy in selections}
            chunks = _read_matching(reader, field, row_mask)
            for profile in profile_field(field, chunks, _policy_lookup(policies), columns=field_columns):
                if profile.statistics.column in policies:
                    profiles[profile.statistics.field_id] = profile
    ordered_profiles = [profiles[column.field_id] for _, selections in columns for column, _ in selections]
    return FilteredProfile(
        int(row_mask.sum()),
        build_states_table(
            [profile.statistics for profile in ordered_profiles],
            [profile.histogram for profile in ordered_profiles],
            union,
        ),
        tuple(profile.frequencies for profile in ordered_profiles),
        tuple(profile.fingerprints for profile in ordered_profiles),
    )


def _policy_lookup(policies: dict[str, ResolvedPolicy]) -> Callable[[str], ResolvedPolicy]:
    minimal = ResolvedPolicy(frequencies="off", histogram="off", quantiles="off")
    return lambda path: policies.get(path, minimal)


def _read_matching(reader: FragmentReader, field: pa.Field, row_mask: npt.NDArray[np.bool_]) -> Iterator[pa.Array]:
    """Yield the values of a column in the rows that `row_mask` selects."""
    start = 0
    for chunk in reader.read(field, encoded=True):
        mask = row_mask[start : start + len(chunk)]
        start += len(chunk)
        if mask.any():
            yield chunk if mask.all() else chunk.filter(pa.array(mask))
