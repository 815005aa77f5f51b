"""Reading of the states of profiles for merging.

States that are not stored are derived from value counts.

States are the mergeable forms of statistics, such as sketches. A profile is the statistics of a set of rows. Profiles
that are merged are read together. Where several of them have only value counts, the value counts are summed, and states
are derived from the sum. The type class of a column names the physical type of its values. A profile spec says which
statistics a profile has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.config import ResolvedPolicy
from metastore_assets.errors import CorruptionError
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_reader import StatesReader, corruption_guard
from metastore_assets.pipeline.profiles.states_writer import ROW_COUNT, value_union
from metastore_assets.pipeline.profiles.stored import read_profile_value_counts
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.column_profiler import profile_frequencies
from metastore_assets.statistics.finalize import restrict_to_policy, unenumerated_state
from metastore_assets.statistics.histogram import Histogram, decode_histograms, histogram_capacity, limit_bins
from metastore_assets.statistics.multiset_hash import multiset_hash_of_nulls
from metastore_assets.statistics.profile import profile_all_null
from metastore_assets.statistics.profile_tables import sum_value_counts
from metastore_assets.statistics.states import (
    SKETCH_COLUMNS,
    STATE_COLUMNS,
    UNION_COLUMNS,
    build_states_schema,
    build_states_table,
    read_state_rows,
)
from metastore_assets.statistics.typed_union import cast_to_union
from metastore_assets.statistics.user_defined.states import compute_states, list_required_keys, list_state_keys
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ProfileFiles
from metastore_assets.values.columns import Column
from metastore_assets.values.physical import combine_to_one_chunk
from metastore_assets.values.types import type_text

_MAX_SHARED_VALUES = 1 << 16
"""Maximum number of distinct values, summed over profiles, of a column whose states are derived from summed value
counts."""


def read_states(states_reader: StatesReader, files: ProfileFiles, spec: ProfileSpec) -> tuple[int, pa.Table]:
    """Return (row count of a profile, table of states with a row for each column of the spec).

    A column that the profile does not have gets the states of a column whose values are all null.

    Args:
        states_reader: Reads the states files of the store.
        files: The profile.
        spec: The profile spec. Values in the result have the type `value_union(spec)`, which all columns share.

    Raises:
        CorruptionError: A file is damaged.
    """
    row_count, (table,) = read_states_together(states_reader, [files], spec)
    return row_count, table


def read_states_together(
    states_reader: StatesReader, parts: Sequence[ProfileFiles], spec: ProfileSpec
) -> tuple[int, list[pa.Table]]:
    """Return the total row count of some profiles, and a table of states for each of them.

    The caller merges all tables, because one table alone may not describe its profile. Example: two profiles store few
    value counts of column `a`, and no states. The value counts are summed if their values have the same physical type.
    The first table then has the states of the sum. The second table has only the null count of `a`.

    Args:
        states_reader: Reads the states files of the store.
        parts: The profiles.
        spec: The profile spec. Values in the tables have the type `value_union(spec)`, which all columns share.

    Returns:
        (total row count, tables in the order of `parts`).

    Raises:
        CorruptionError: A file is damaged.
    """
    profiles = [_StoredProfile(states_reader, files, spec) for files in parts]
    profile_numbers = _shared_derivations(profiles, spec)
    tables = []
    for at, profile in enumerate(profiles):
        sources = {
            field_id: [profiles[number] for number in numbers]
            for field_id, numbers in profile_numbers.items()
            if numbers[0] == at
        }
        emptied_columns = {field_id for field_id, numbers in profile_numbers.items() if at in numbers[1:]}
        tables.append(profile.states(spec, sources, emptied_columns))
    return sum(profile.row_count for profile in profiles), tables


def _shared_derivations(profiles: Sequence[_StoredProfile], spec: ProfileSpec) -> dict[str, list[int]]:
    """Choose the columns whose value counts are summed over several profiles.

    States are then derived from the sums. A column is chosen if at least two profiles store only its value counts, and
    no states. In all of these profiles, its values must have the same type class. The distinct counts of these profiles
    must add up to at most `_MAX_SHARED_VALUES`.

    Returns:
        {field id: positions in `profiles` of the profiles to sum}.
    """
    profile_numbers = {}
    for column, _ in spec.columns:
        numbers = [number for number, profile in enumerate(profiles) if profile.is_derived(column.field_id)]
        rows = [profiles[number].rows[column.field_id] for number in numbers]
        if (
            len(rows) > 1
            and len({row.type_class for row in rows}) == 1
            and sum(row.distinct_count or 0 for row in rows) <= _MAX_SHARED_VALUES
        ):
            profile_numbers[column.field_id] = numbers
    return profile_numbers


class _StoredProfile:
    """The stored states of a profile, and its value counts from which other states are derived."""

    def __init__(self, states_reader: StatesReader, files: ProfileFiles, spec: ProfileSpec) -> None:
        self._store = store = states_reader.store
        self._path = path = files.states or files.statistics
        self._union = union = value_union(spec)
        with corruption_guard(store, path):
            if files.states:
                self.row_count, table = states_reader.read(files, (*STATE_COLUMNS, *SKETCH_COLUMNS))
            else:
                self.row_count, table = _read_without_sketches(store, path)
            if not set(union.names).issuperset(table.schema.field("minimum").type.names):
                # Columns that the table no longer has may have values of other classes.
                field_ids = [column.field_id for column, _ in spec.columns]
                table = table.filter(pc.is_in(table["field_id"], pa.array(field_ids, pa.string())))
            for at, name in enumerate(STATE_COLUMNS):
                if name in UNION_COLUMNS:
                    table = table.set_column(at, name, cast_to_union(table[name].combine_chunks(), union))
            schema = build_states_schema(union)
            # A cast calls Arrow's kernels for each column, even if no column changes.
            self._table = table if table.schema.equals(schema) else table.cast(schema)
            columns = (table[name].to_pylist() for name in _StoredRow._fields)
            rows = [_StoredRow(*row) for row in zip(*columns, strict=True)]
            self._positions = {row.field_id: at for at, row in enumerate(rows)}
        self.rows = {row.field_id: row for row in rows}
        policies = {column.field_id: policy for column, policy in spec.columns}
        counted_columns = [
            row.field_id
            for row in rows
            if row.field_id in policies and (row.is_derived or row.lacks_user_states(policies[row.field_id]))
        ]
        self._value_counts = read_profile_value_counts(states_reader, files, counted_columns)

    def is_derived(self, field_id: str) -> bool:
        """Return whether the states of a column are not stored, but derived from value counts."""
        return field_id in self.rows and self.rows[field_id].is_derived

    def states(
        self, spec: ProfileSpec, sources: Mapping[str, Sequence[_StoredProfile]], emptied_columns: Set[str]
    ) -> pa.Table:
        """Return a table of states, with a row for each column of the spec.

        Args:
            spec: The profile spec.
            sources: {field id: profiles}, this profile first. The column's states are derived from the sum of the value
                counts of these profiles. For a column without an entry, only this profile is used.
            emptied_columns: Field ids of columns whose value counts are added to those of another profile, which has
                this one among its `sources`. For these columns, the result describes only nulls.
        """
        # Rows that cannot be used unchanged are appended to the table; `order` then selects one row for each column.
        table = self._without_values(emptied_columns)
        order: list[int] = []
        added_rows: list[tuple[ColumnStatistics, Histogram | None]] = []
        for column, policy in spec.columns:
            position = self._positions.get(column.field_id)
            if position is not None and (
                column.field_id in emptied_columns or self.rows[column.field_id].is_usable(policy)
            ):
                order.append(position)
                continue
            order.append(table.num_rows + len(added_rows))
            if position is None:
                added_rows.append((profile_all_null(column, self.row_count, policy), None))
                continue
            if self.rows[column.field_id].is_derived:
                row, histogram = self._derive(column, policy, sources.get(column.field_id, [self]))
            else:
                row, histogram = self._read_stored(column, policy)
            added_rows.append((restrict_to_policy(row, policy), _limit_histogram(histogram, policy)))
        if added_rows:
            rows, histograms = [row for row, _ in added_rows], [histogram for _, histogram in added_rows]
            table = pa.concat_tables([table, build_states_table(rows, histograms, self._union)])
        if order != list(range(table.num_rows)):
            table = table.take(pa.array(order, pa.int64()))
        return combine_to_one_chunk(table)

    def _without_values(self, field_ids: Set[str]) -> pa.Table:
        """Return the stored rows of all columns.

        The rows of the given columns are changed to describe only nulls.

        Their `value_count` becomes 0, and their `multiset_hash` the hash of the nulls. The values of these columns are
        not lost: they are added to the value counts of another profile (see `states`).
        """
        table = self._table
        if not field_ids:
            return table
        is_emptied = pc.is_in(table["field_id"], pa.array(sorted(field_ids), pa.string()))
        # The multiset hash of a column covers its nulls.
        null_hashes = [
            multiset_hash_of_nulls(row.null_count) if row.field_id in field_ids else None for row in self.rows.values()
        ]
        for name, replacement in (
            ("value_count", pa.scalar(0, pa.int64())),
            ("multiset_hash", pa.array(null_hashes, pa.binary())),
        ):
            at = table.schema.get_field_index(name)
            column = pc.if_else(is_emptied, replacement, table[name])
            table = table.set_column(at, table.schema.field(at), column)
        return table

    def _derive(
        self, column: Column, policy: ResolvedPolicy, profiles: Sequence[_StoredProfile]
    ) -> tuple[ColumnStatistics, Histogram | None]:
        """Derive (statistics, histogram) of a column from the summed value counts of profiles.

        Only nulls of the first profile are counted here. The nulls of each other profile are in its own table of states
        (see `states`). A merge of all tables therefore counts each null once.

        Raises CorruptionError if the value counts contradict the stored statistics.
        """
        rows = [profile.rows[column.field_id] for profile in profiles]
        class_name = rows[0].type_class
        assert class_name is not None
        parts = [part for profile in profiles for part in profile._value_counts.get(column.field_id, ())]
        row, histogram = profile_frequencies(column, policy, class_name, rows[0].null_count, sum_value_counts(parts))
        distinct = [stored_row.distinct_count or 0 for stored_row in rows]
        values = sum(stored_row.value_count for stored_row in rows)
        if not max(distinct) <= (row.distinct_count or 0) <= sum(distinct) or row.value_count != values:
            paths = ", ".join(profile._store.uri(profile._path) for profile in profiles)
            raise CorruptionError(
                f"{paths}: the value counts of column {column.path!r} do not sum up to its {values:,} values; "
                "rebuild with `metastore refresh NAME --full`"
            )
        if len(profiles) > 1:
            # Like all merged states, these have no percentiles: intermediate results need none.
            row = replace(row, percentiles=None, percentiles_guarantee="absent")
        return row, histogram

    def _read_stored(self, column: Column, policy: ResolvedPolicy) -> tuple[ColumnStatistics, Histogram | None]:
        """Return (statistics, histogram) of a column as stored; the histogram is None if none is stored.

        Missing states of user-defined statistics are derived from value counts.
        """
        stored_row = self._table.slice(self._positions[column.field_id], 1)
        (row,) = read_state_rows(stored_row, [(column.path, type_text(column.type))])
        (histogram,) = decode_histograms(stored_row.combine_chunks())
        if self.rows[column.field_id].lacks_user_states(policy):
            assert row.type_class is not None
            parts = self._value_counts.get(column.field_id, ())
            row = replace(row, user_states=compute_states(policy, row.type_class, sum_value_counts(parts)))
        return row, histogram


def _read_without_sketches(store: ObjectStore, path: str) -> tuple[int, pa.Table]:
    """Return (row count, states without sketches) from a `statistics` file."""
    table = store.read_parquet(path, STATE_COLUMNS)
    row_count = int((table.schema.metadata or {})[ROW_COUNT.encode()])
    table = combine_to_one_chunk(table.select(list(STATE_COLUMNS)))
    for name, type_ in SKETCH_COLUMNS.items():
        table = table.append_column(name, pa.nulls(table.num_rows, type_))
    return row_count, table


class _StoredRow(NamedTuple):
    """The stored fields of a column that decide how its states are read."""

    field_id: str
    type_class: str | None
    value_count: int
    null_count: int
    frequencies: str
    distinct_count: int | None
    distinct_sketch: bytes | None
    quantile_minimum: float | None
    histogram_capacity: int | None
    user_states: bytes | None

    @property
    def is_derived(self) -> bool:
        """Whether only value counts of the column are stored, from which its states are derived."""
        return (
            self.distinct_sketch is None
            and self.value_count > 0
            and self.type_class is not None
            and self.frequencies == "enumerated"
        )

    def is_usable(self, policy: ResolvedPolicy) -> bool:
        """Return whether states are stored, not derived, and can be used under a policy without changes."""
        return not self.is_derived and self._has_wanted_states(policy)

    def _has_wanted_states(self, policy: ResolvedPolicy) -> bool:
        """Return whether the states in this row can be used under a policy without changes.

        The row must have the states of exactly the policy's user-defined statistics, and no state that the policy
        excludes. For example, a policy with `quantiles: off` excludes quantiles, and `histogram` limits the number of
        bins. If the policy does not store the column as value counts, the row's `frequencies` must be the value that
        the policy requires, such as `estimated`. The result is always true for a column whose values are not profiled,
        such as a struct.
        """
        if self.type_class is None:
            return True
        return (
            (policy.is_enumerated or self.frequencies == unenumerated_state(policy))
            and (policy.quantiles != "off" or self.quantile_minimum is None)
            and (self.histogram_capacity is None or self.histogram_capacity <= _max_bins(policy))
            and list_state_keys(self.user_states) == list_required_keys(policy, self.type_class)
        )

    def lacks_user_states(self, policy: ResolvedPolicy) -> bool:
        """Return whether states of the policy's user-defined statistics are missing, but can be derived.

        Such states are derived from value counts: the distinct values of a column with their frequencies. So they can
        be derived if the profile has value counts of the column, or if the column has no values.
        """
        if not policy.statistics or (self.frequencies != "enumerated" and self.value_count):
            return False
        return not list_required_keys(policy, self.type_class) <= list_state_keys(self.user_states)


def _max_bins(policy: ResolvedPolicy) -> int:
    """Return the maximum number of bins of a stored histogram; 0 without a histogram."""
    return 0 if policy.histogram == "off" else histogram_capacity(policy.histogram)


def _limit_histogram(histogram: Histogram | None, policy: ResolvedPolicy) -> Histogram | None:
    max_bins = _max_bins(policy)
    return limit_bins(histogram, max_bins) if histogram is not None and max_bins else None
