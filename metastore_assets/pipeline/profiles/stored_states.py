"""Reading the states of profiles, for merging them; those that were not stored are derived from the lists of values.

Profiles that are merged are read together: what several of them keep as short lists alone is derived once, from their
lists together.
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
from metastore_assets.statistics.states import (
    SKETCH_COLUMNS,
    STATE_COLUMNS,
    UNION_COLUMNS,
    build_states_schema,
    build_states_table,
    read_state_rows,
)
from metastore_assets.statistics.tables import sum_value_counts
from metastore_assets.statistics.union import cast_to_union
from metastore_assets.statistics.user_defined.states import compute_states, list_required_keys, list_state_keys
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.leaf_columns import LeafColumn
from metastore_assets.values.physical import combine_to_one_chunk
from metastore_assets.values.types import type_text

_TOGETHER = 1 << 16
"""Most distinct values, of all profiles, of a column that is derived from their lists together."""


def read_states(opened: StatesReader, files: ProfileFiles, spec: ProfileSpec) -> tuple[int, pa.Table]:
    """The row count of a profile, and its states: a row for each column of the spec, in the spec's union.

    What follows from lists is derived from them; a column that the profile was made without is all null. Raises
    CorruptionError.
    """
    row_count, (table,) = read_together(opened, [files], spec)
    return row_count, table


def read_together(opened: StatesReader, parts: Sequence[ProfileFiles], spec: ProfileSpec) -> tuple[int, list[pa.Table]]:
    """The row count of several profiles, and as many tables of states, whose merge is that of the profiles.

    Each is as of `read_states`, but for the columns that are derived once for several profiles: the first of these has
    the values of all, and the others have nothing of them but their nulls. Raises CorruptionError.
    """
    profiles = [_Profile(opened, files, spec) for files in parts]
    together = _together(profiles, spec)
    tables = []
    for at, own in enumerate(profiles):
        sources = {
            field_id: [profiles[number] for number in numbers]
            for field_id, numbers in together.items()
            if numbers[0] == at
        }
        silent = {field_id for field_id, numbers in together.items() if at in numbers[1:]}
        tables.append(own.states(spec, sources, silent))
    return sum(own.row_count for own in profiles), tables


def _together(profiles: Sequence[_Profile], spec: ProfileSpec) -> dict[str, list[int]]:
    """By field id of the columns that are derived for several profiles at once, the numbers of these profiles."""
    found = {}
    for leaf, _ in spec.leaves:
        numbers = [at for at, own in enumerate(profiles) if own.is_implied(leaf.field_id)]
        held = [profiles[at].held[leaf.field_id] for at in numbers]
        if (
            len(held) > 1
            and len({own.type_class for own in held}) == 1
            and sum(own.distinct_count or 0 for own in held) <= _TOGETHER
        ):
            found[leaf.field_id] = numbers
    return found


class _Profile:
    """The stored states of a profile, and the value counts that the others are derived from."""

    def __init__(self, opened: StatesReader, files: ProfileFiles, spec: ProfileSpec) -> None:
        self._store = store = opened.store
        self._path = path = files.states or files.statistics
        self._union = union = value_union(spec)
        with corruption_guard(store, path):
            read = (
                opened.read(files, (*STATE_COLUMNS, *SKETCH_COLUMNS))
                if files.states
                else _without_sketches(store, path)
            )
            self.row_count, table = read
            for at, name in enumerate(STATE_COLUMNS):
                if name in UNION_COLUMNS:
                    table = table.set_column(at, name, cast_to_union(table[name].combine_chunks(), union))
            schema = build_states_schema(union)
            # A cast asks Arrow's kernels for each column, also where there is nothing to do.
            self._table = table if table.schema.equals(schema) else table.cast(schema)
            held = [_Held(*row) for row in zip(*(table[name].to_pylist() for name in _Held._fields), strict=True)]
            self._places = {own.field_id: at for at, own in enumerate(held)}
        self.held = {own.field_id: own for own in held}
        policies = {leaf.field_id: policy for leaf, policy in spec.leaves}
        wanted = [own for own in held if own.field_id in policies]
        listed = [own.field_id for own in wanted if own.is_implied or own.lacks_states(policies[own.field_id])]
        self._lists = read_profile_value_counts(opened, files, listed)

    def is_implied(self, field_id: str) -> bool:
        """Whether states are derived from value counts, instead of stored."""
        return field_id in self.held and self.held[field_id].is_implied

    def states(self, spec: ProfileSpec, together: Mapping[str, Sequence[_Profile]], silent: Set[str]) -> pa.Table:
        """A row for each column of the spec: of some columns that of several profiles together, of which this is the
        first; of the `silent` ones nothing but nulls."""
        table = self._silenced(silent)
        order: list[int] = []
        added: list[tuple[ColumnStatistics, Histogram | None]] = []
        for leaf, policy in spec.leaves:
            place = self._places.get(leaf.field_id)
            if place is not None and (leaf.field_id in silent or self.held[leaf.field_id].is_whole(policy)):
                order.append(place)
                continue
            order.append(table.num_rows + len(added))
            if place is None:
                added.append((profile_all_null(leaf, self.row_count, policy), None))
                continue
            if self.held[leaf.field_id].is_implied:
                row, histogram = self._derived(leaf, policy, together.get(leaf.field_id, [self]))
            else:
                row, histogram = self._stored(leaf, policy)
            added.append((restrict_to_policy(row, policy), _limited(histogram, policy)))
        if added:
            more = build_states_table([row for row, _ in added], [histogram for _, histogram in added], self._union)
            table = pa.concat_tables([table, more])
        if order != list(range(table.num_rows)):
            table = table.take(pa.array(order, pa.int64()))
        return combine_to_one_chunk(table)

    def _silenced(self, field_ids: Set[str]) -> pa.Table:
        """Return the stored rows, some of them as if the columns had no values."""
        table = self._table
        if not field_ids:
            return table
        silent = pc.is_in(table["field_id"], pa.array(sorted(field_ids), pa.string()))
        # Nulls are a part of fingerprints.
        of_nulls = [
            multiset_hash_of_nulls(own.null_count) if own.field_id in field_ids else None for own in self.held.values()
        ]
        for name, nothing in (
            ("value_count", pa.scalar(0, pa.int64())),
            ("multiset_hash", pa.array(of_nulls, pa.binary())),
        ):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, table.schema.field(at), pc.if_else(silent, nothing, table[name]))
        return table

    def _derived(
        self, leaf: LeafColumn, policy: ResolvedPolicy, profiles: Sequence[_Profile]
    ) -> tuple[ColumnStatistics, Histogram | None]:
        """Derive statistics from the value counts of several profiles, this one first; nulls are its own."""
        held = [own.held[leaf.field_id] for own in profiles]
        assert held[0].type_class is not None
        frequencies = sum_value_counts([rows for own in profiles for rows in own._lists.get(leaf.field_id, ())])
        row, histogram = profile_frequencies(leaf, policy, held[0].type_class, held[0].null_count, frequencies)
        distinct = [own.distinct_count or 0 for own in held]
        is_sound = max(distinct) <= (row.distinct_count or 0) <= sum(distinct)
        if not is_sound or row.value_count != sum(own.value_count for own in held):
            paths = ", ".join(own._store.uri(own._path) for own in profiles)
            values = sum(own.value_count for own in held)
            raise CorruptionError(
                f"{paths}: the list of column {leaf.path!r} is not of its {values} values; "
                "rebuild with `metastore refresh NAME --full`"
            )
        if len(profiles) > 1:
            # As of all merged profiles: nobody reads them of a node.
            row = replace(row, percentiles=None, percentiles_guarantee="absent")
        return row, histogram

    def _stored(self, leaf: LeafColumn, policy: ResolvedPolicy) -> tuple[ColumnStatistics, Histogram | None]:
        """Return the stored statistics of a column, with missing user-defined states derived."""
        stored = self._table.slice(self._places[leaf.field_id], 1)
        (row,) = read_state_rows(stored, [(leaf.path, type_text(leaf.type))])
        (histogram,) = decode_histograms(stored.combine_chunks())
        if self.held[leaf.field_id].lacks_states(policy):
            assert row.type_class is not None
            states = compute_states(policy, row.type_class, sum_value_counts(self._lists.get(leaf.field_id, ())))
            row = replace(row, user_states=states)
        return row, histogram


def _without_sketches(store: ObjectStore, path: str) -> tuple[int, pa.Table]:
    """As `StatesReader.read`, from the statistics of a profile whose states follow from its lists."""
    table = store.read_parquet(path, STATE_COLUMNS)
    row_count = int((table.schema.metadata or {})[ROW_COUNT.encode()])
    table = combine_to_one_chunk(table.select(list(STATE_COLUMNS)))
    for name, type_ in SKETCH_COLUMNS.items():
        table = table.append_column(name, pa.nulls(table.num_rows, type_))
    return row_count, table


class _Held(NamedTuple):
    """The statistics of a row of states that decide how it is read."""

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
    def is_implied(self) -> bool:
        """Whether it is stored as its list of values."""
        return (
            self.distinct_sketch is None
            and self.value_count > 0
            and self.type_class is not None
            and self.frequencies == "enumerated"
        )

    def is_whole(self, policy: ResolvedPolicy) -> bool:
        """Return whether the stored row can be used as it is."""
        return not self.is_implied and self.is_kept(policy)

    def is_kept(self, policy: ResolvedPolicy) -> bool:
        """Return whether the row has no state that the policy excludes, and all user-defined states."""
        if self.type_class is None:
            return True
        return (
            (policy.is_enumerated or self.frequencies == unenumerated_state(policy))
            and (policy.quantiles != "off" or self.quantile_minimum is None)
            and (self.histogram_capacity is None or self.histogram_capacity <= _capacity(policy))
            and list_state_keys(self.user_states) == list_required_keys(policy, self.type_class)
        )

    def lacks_states(self, policy: ResolvedPolicy) -> bool:
        """Return whether user-defined states have to be derived from value counts."""
        if not policy.statistics or (self.frequencies != "enumerated" and self.value_count):
            return False
        return not list_required_keys(policy, self.type_class) <= list_state_keys(self.user_states)


def _capacity(policy: ResolvedPolicy) -> int:
    """Return the most bins of a stored histogram; 0 for none."""
    return 0 if policy.histogram == "off" else histogram_capacity(policy.histogram)


def _limited(histogram: Histogram | None, policy: ResolvedPolicy) -> Histogram | None:
    most = _capacity(policy)
    return limit_bins(histogram, most) if histogram is not None and most else None
