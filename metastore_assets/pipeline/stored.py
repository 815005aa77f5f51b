"""Reading the files of profiles for merging them: states, lists of values, statistics, histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from metastore_assets.config import KeptPolicy
from metastore_assets.errors import CorruptionError
from metastore_assets.pipeline.layouts import Layout
from metastore_assets.pipeline.packed import ROW_COUNT, layout_union
from metastore_assets.pipeline.states_files import StatesFiles, sound
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.derive import derived
from metastore_assets.statistics.distinct import distinct_sketch
from metastore_assets.statistics.frequencies import EMPTY, Frequencies
from metastore_assets.statistics.hashing import hash_values
from metastore_assets.statistics.histogram import Histogram, histogram_capacity, limited
from metastore_assets.statistics.profile import all_null_statistics
from metastore_assets.statistics.states import (
    KEPT,
    OF_UNION,
    SKETCHES,
    histograms_of_states,
    one_chunk,
    state_rows,
    states_table,
)
from metastore_assets.statistics.tables import (
    frequencies_of,
    histograms_of,
    statistics_rows,
)
from metastore_assets.statistics.told import as_kept, unlisted_state
from metastore_assets.statistics.types import class_named, type_text
from metastore_assets.statistics.union import as_union
from metastore_assets.statistics.user_defined.states import keys_of, states_of_list, wanted_keys
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sections import SectionReader


def read_states(opened: StatesFiles, files: ProfileFiles, layout: Layout) -> tuple[int, pa.Table]:
    """The row count of a profile, and its states: a row for each column of the layout, in the layout's union.

    What follows from lists is derived from them; a column that the profile was made without is all null. Raises
    CorruptionError.
    """
    store, path, union = opened.store, files.states or files.statistics, layout_union(layout)
    with sound(store, path):
        row_count, table = opened.read(files, (*KEPT, *SKETCHES)) if files.states else _without_sketches(store, path)
        for at, name in enumerate(KEPT):
            if name in OF_UNION:
                table = table.set_column(at, name, as_union(table[name].combine_chunks(), union))
        table = table.cast(states_table([], [], union).schema)
        rows = {field_id: at for at, field_id in enumerate(table["field_id"].to_pylist())}
    held = [_Held(*row) for row in zip(*(table[name].to_pylist() for name in _Held._fields), strict=True)]
    wanted = [leaf.field_id for leaf, _ in layout.leaves if leaf.field_id in rows]
    policies = {leaf.field_id: policy for leaf, policy in layout.leaves}
    listed = [own for own in wanted if held[rows[own]].is_implied or held[rows[own]].lacks_states(policies[own])]
    lists = _read_lists(opened, files, listed)
    order: list[int] = []
    added: list[tuple[ColumnStatistics, Histogram | None]] = []
    for leaf, policy in layout.leaves:
        place = rows.get(leaf.field_id)
        if place is not None and not held[place].is_implied and held[place].is_kept(policy):
            order.append(place)
            continue
        order.append(table.num_rows + len(added))
        if place is None:
            added.append((all_null_statistics(leaf, row_count, policy), None))
            continue
        own = held[place]
        if own.is_implied:
            assert own.type_class is not None
            row, histogram = derived(leaf, policy, own.type_class, own.null_count, lists.get(leaf.field_id, EMPTY))
            if (row.value_count, row.distinct_count) != (own.value_count, own.distinct_count):
                raise CorruptionError(
                    f"{store.uri(path)}: the list of column {leaf.path!r} is not of its {own.value_count} values; "
                    "rebuild with `metastore refresh --full`"
                )
        else:
            (row,) = state_rows(table.slice(place, 1), [(leaf.path, type_text(leaf.type))])
            (histogram,) = histograms_of_states(table.slice(place, 1).combine_chunks())
            if own.lacks_states(policy):
                assert row.type_class is not None
                states = states_of_list(policy, row.type_class, lists.get(leaf.field_id, EMPTY))
                row = replace(row, user_states=states)
        added.append((as_kept(row, policy), _limited(histogram, policy)))
    if added:
        more = states_table([row for row, _ in added], [histogram for _, histogram in added], union)
        table = pa.concat_tables([table, more])
    if order != list(range(table.num_rows)):
        table = table.take(pa.array(order, pa.int64()))
    return row_count, one_chunk(table)


def _without_sketches(store: ObjectStore, path: str) -> tuple[int, pa.Table]:
    """As `StatesFiles.read`, from the statistics of a profile whose states follow from its lists."""
    table = store.read_parquet(path, KEPT)
    row_count = int((table.schema.metadata or {})[ROW_COUNT.encode()])
    table = one_chunk(table.select(list(KEPT)))
    for name, type_ in SKETCHES.items():
        table = table.append_column(name, pa.nulls(table.num_rows, type_))
    return row_count, table


class _Held(NamedTuple):
    """What tells of a row of states how it is to be read."""

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
            and self.frequencies == "listed"
        )

    def is_kept(self, policy: KeptPolicy) -> bool:
        """Whether a policy keeps all that there is."""
        if self.type_class is None:
            return True
        return (
            (policy.lists or self.frequencies == unlisted_state(policy))
            and (policy.quantiles != "off" or self.quantile_minimum is None)
            and (self.histogram_capacity is None or self.histogram_capacity <= _capacity(policy))
            and keys_of(self.user_states) == wanted_keys(policy, self.type_class)
        )

    def lacks_states(self, policy: KeptPolicy) -> bool:
        """Whether states of user-defined statistics are asked for that are not stored, and follow from the list."""
        if not policy.statistics or (self.frequencies != "listed" and self.value_count):
            return False
        return not wanted_keys(policy, self.type_class) <= keys_of(self.user_states)


def _capacity(policy: KeptPolicy) -> int:
    """The most bins that are kept; 0 for none."""
    return 0 if policy.histogram == "off" else histogram_capacity(policy.histogram)


def _limited(histogram: Histogram | None, policy: KeptPolicy) -> Histogram | None:
    most = _capacity(policy)
    return limited(histogram, most) if histogram is not None and most else None


def read_sketches(
    opened: StatesFiles, files: ProfileFiles, leaves: Set[str]
) -> dict[str, tuple[str | None, int, bytes | None]]:
    """By field id of some columns: class of the values, how many there are, and the sketch of the distinct ones.

    Raises CorruptionError.
    """
    path = files.states or files.statistics
    names = ["field_id", "type_class", "value_count", "frequencies", *(["distinct_sketch"] if files.states else ())]
    with sound(opened.store, path):
        table = opened.read(files, names)[1] if files.states else opened.store.read_parquet(path, names)
        columns = [table[name].to_pylist() for name in names]
    sketches = columns[4] if files.states else [None] * table.num_rows
    rows = [row for row in zip(*columns[:4], sketches, strict=True) if row[0] in leaves]
    bare = {
        field_id: cls
        for field_id, cls, values, state, sketch in rows
        if sketch is None and values and cls is not None and state == "listed"
    }
    lists = _read_lists(opened, files, list(bare))
    made = {
        field_id: distinct_sketch(hash_values(own.values, class_named(bare[field_id]))[0])
        for field_id, own in lists.items()
        if len(own)
    }
    return {field_id: (cls, values, made.get(field_id, sketch)) for field_id, cls, values, _, sketch in rows}


def _read_lists(opened: StatesFiles, files: ProfileFiles, field_ids: Sequence[str]) -> Mapping[str, Frequencies]:
    if not field_ids:
        return {}
    with FrequencyReader(opened, files) as reader:
        return reader.read_all(field_ids)


def read_statistics(store: ObjectStore, files: ProfileFiles) -> tuple[int, dict[str, ColumnStatistics]]:
    """The row count and the statistics of a profile, by field id, without states. Raises CorruptionError."""
    with sound(store, files.statistics):
        table = store.read_parquet(files.statistics)
        row_count = int((table.schema.metadata or {})[ROW_COUNT.encode()])
        return row_count, {row.field_id: row for row in statistics_rows(table)}


def read_histograms(store: ObjectStore, files: ProfileFiles) -> dict[str, Histogram]:
    """The histograms of a profile, by the column paths it was written under. Raises CorruptionError."""
    if not files.histograms:
        return {}
    with sound(store, files.histograms):
        return histograms_of(store.read_parquet(files.histograms))


class FrequencyReader:
    """The listed columns of one profile, whose `frequencies` may lie in several files. Raises CorruptionError."""

    def __init__(self, opened: StatesFiles, files: ProfileFiles) -> None:
        self._opened = opened
        self._store = store = opened.store
        self._stack = ExitStack()
        self._parts: list[tuple[str, SectionReader]] = []
        self._packed = files if files.is_packed and files.states else None
        with self._stack:
            for path in files.frequencies:
                with sound(store, path):
                    self._parts.append((path, self._stack.enter_context(SectionReader(store, path))))
            self._stack = self._stack.pop_all()
        own = opened.listed(self._packed) if self._packed else frozenset()
        self.listed = own.union(name for _, part in self._parts for name in part.sections)
        """Field ids of the columns listed."""

    def read(self, field_id: str) -> Frequencies | None:
        """All values of one column; None when it is not listed."""
        if self._packed is not None:
            return self._opened.read_list(self._packed, field_id)
        for path, part in self._parts:
            if field_id in part.sections:
                with sound(self._store, path):
                    return frequencies_of(part.read_section(field_id))
        return None

    def read_all(self, field_ids: Sequence[str]) -> dict[str, Frequencies]:
        """All values of some listed columns, read at once: for short lists."""
        if self._packed is not None:
            return {field_id: self.read(field_id) or EMPTY for field_id in field_ids}
        tables: dict[str, list[pa.Table]] = {}
        for path, part in self._parts:
            with sound(self._store, path):
                own = part.read_sections([field_id for field_id in field_ids if field_id in part.sections])
            for field_id, table in own.items():
                tables.setdefault(field_id, []).append(table)
        return {field_id: frequencies_of(pa.concat_tables(own)) for field_id, own in tables.items()}

    def row_count(self, field_id: str) -> int:
        """Number of values listed for a column, of a profile that is not packed."""
        return sum(part.sections[field_id].row_count for _, part in self._parts if field_id in part.sections)

    def __enter__(self) -> FrequencyReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
