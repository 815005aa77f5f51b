"""Deltas of value counts: rows to add to, or subtract from, the published value counts of a table.

A fragment is a data file with its deletes, and its profile is its statistics. Deltas are read from the profiles of
added and removed fragments. Columns of the same type class, such as `string`, share one table of deltas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from metastore_assets.batching import batched
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.produce import Delta
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry, ProfileFiles
from metastore_assets.value_counts.graph import rows_of

_PROFILES_PER_DELTA = 16
_FEW_VALUES = 200_000
"""Maximum number of values that are read at once. If there are more, they are read when the deltas are applied."""


@dataclass(frozen=True)
class CountedProfile:
    """A profile whose value counts are read, with its partition key if values are counted by partition."""

    files: ProfileFiles
    partition: str | None = None


@dataclass(frozen=True)
class CountSource:
    """The columns to count, and profiles whose value counts sum to those of the table."""

    columns: Mapping[str, str]
    """The type class of each column, by field id."""
    profiles: Callable[[], Sequence[CountedProfile]]
    """Returns the profiles. Called only if a column has to be counted in all of them."""
    row_count: int
    """The number of rows of the table."""
    distinct_counts: Mapping[str, int] = field(default_factory=dict)
    """The approximate number of distinct values, by field id. A missing column counts as 0."""


@dataclass(frozen=True)
class FragmentChanges:
    """The fragments that a refresh adds to partitions and removes from partitions.

    A fragment that moves to another partition is both added and removed.
    """

    added_fragments: Sequence[FragmentEntry]
    removed_fragments: Sequence[FragmentEntry]

    @property
    def row_count(self) -> int:
        """The number of rows of all added and removed fragments."""
        return sum(entry.row_count for entry in (*self.added_fragments, *self.removed_fragments))

    def without_moves(self) -> FragmentChanges:
        """Return the changes without fragments that only moved to another partition of the table."""
        return self._select(is_moved=False)

    def moves(self) -> FragmentChanges:
        """Return only the changes of fragments that moved to another partition of the table."""
        return self._select(is_moved=True)

    def _select(self, *, is_moved: bool) -> FragmentChanges:
        added_names, removed_names = (
            {entry.files.name for entry in entries} for entries in (self.added_fragments, self.removed_fragments)
        )
        return FragmentChanges(
            [entry for entry in self.added_fragments if (entry.files.name in removed_names) == is_moved],
            [entry for entry in self.removed_fragments if (entry.files.name in added_names) == is_moved],
        )

    def counted_profiles(self, *, by_partition: bool) -> tuple[list[CountedProfile], list[CountedProfile]]:
        """Return (profiles of added fragments, profiles of removed fragments).

        With `by_partition`, each profile has its partition key.
        """
        added_profiles, removed_profiles = (
            [CountedProfile(entry.files, entry.partition_key if by_partition else None) for entry in entries]
            for entries in (self.added_fragments, self.removed_fragments)
        )
        return added_profiles, removed_profiles


def read_deltas(
    store: ObjectStore, profiles: Sequence[CountedProfile], columns: Mapping[str, str], rows: int, *, is_removed: bool
) -> dict[str, list[Delta]]:
    """Return {type class: deltas} with the value counts of columns in profiles.

    If there are few values, they are read now. Otherwise they are read when the deltas are applied.

    Args:
        store: The folder of the table.
        profiles: The profiles to read: all with partition keys, or all without. If they have partition keys, the rows
            of the deltas have a column `partition`.
        columns: The type class of each column, by field id.
        rows: The number of rows of all profiles together.
        is_removed: Whether the deltas are subtracted.

    Raises:
        CorruptionError: A profile is damaged.
    """
    if not profiles or not columns:
        return {}
    # In the order of their files. A reader has few files open, and parses all sections of a file that it opens.
    profiles = sorted(profiles, key=lambda profile: profile.files.states)
    names = sorted(set(columns.values()))
    by_class = {
        name: tuple(sorted(field_id for field_id, class_name in columns.items() if class_name == name))
        for name in names
    }
    tables = _read_if_few(store, profiles, by_class)
    if tables is not None:
        return {name: [Delta(table, removed=is_removed)] for name, table in tables.items() if table.num_rows}
    batches = list(map(tuple, batched(profiles, _PROFILES_PER_DELTA)))
    # A column has at most as many values as rows.
    return {
        name: [
            Delta(
                _LazyValueCounts(store, batch, field_ids, name),
                removed=is_removed,
                count=max(1, rows * len(field_ids) * len(batch) // len(profiles)),
            )
            for batch in batches
        ]
        for name, field_ids in by_class.items()
    }


def _read_if_few(
    store: ObjectStore, profiles: Sequence[CountedProfile], by_class: Mapping[str, tuple[str, ...]]
) -> dict[str, pa.Table] | None:
    """Return {type class: delta rows with all value counts of its columns}, or None if there are many.

    There are many if all profiles together have more than about `_FEW_VALUES` values.

    Args:
        store: The folder of the table.
        profiles: The profiles to read, at least one.
        by_class: Field ids of the columns to read, by type class.
    """
    by_partition = profiles[0].partition is not None
    tables_by_class = {name: [rows_of(name, by_partition=by_partition).schema.empty_table()] for name in by_class}
    remaining = _FEW_VALUES
    with StatesReader(store) as states_reader:
        for profile in profiles:
            with FrequencyReader(states_reader, profile.files) as reader:
                class_of_column = {column: name for name, columns in by_class.items() for column in columns}
                class_of_column = {column: name for column, name in class_of_column.items() if column in reader.columns}
                if sum(map(reader.distinct_count, class_of_column)) > remaining:
                    return None
                for column, parts in reader.read_all(list(class_of_column)).items():
                    name = class_of_column[column]
                    tables_by_class[name] += [_delta_rows(column, *values, name, profile.partition) for values in parts]
                    remaining -= sum(len(values) for values, _ in parts)
    # One batch, because the cost of a delta depends mostly on its number of batches.
    return {name: pa.concat_tables(tables).combine_chunks() for name, tables in tables_by_class.items()}


@dataclass(frozen=True)
class _LazyValueCounts:
    """A picklable function that reads value counts of columns from profiles, and yields batches of rows."""

    store: ObjectStore
    profiles: tuple[CountedProfile, ...]
    columns: tuple[str, ...]
    type_class: str

    def __call__(self) -> Iterator[pa.RecordBatch]:
        with StatesReader(self.store) as states_reader:
            for profile in self.profiles:
                with FrequencyReader(states_reader, profile.files) as reader:
                    for table in read_value_count_rows(reader, self.columns, self.type_class, profile.partition):
                        yield from table.to_batches()


def read_value_count_rows(
    reader: FrequencyReader, columns: Sequence[str], type_class: str, partition: str | None
) -> Iterator[pa.Table]:
    """Yield the value counts of columns in a profile as tables of delta rows, one per column.

    Columns without value counts are omitted.

    Args:
        reader: Reads the value counts of the profile.
        columns: Field ids of the columns.
        type_class: The type class of all these columns.
        partition: The partition key for the column `partition`; None for rows without this column.
    """
    for column in columns:
        frequencies = reader.read(column)
        if frequencies is not None and len(frequencies):
            yield _delta_rows(column, frequencies.values, frequencies.counts, type_class, partition)


def _delta_rows(column: str, values: pa.Array, counts: pa.Array, type_class: str, partition: str | None) -> pa.Table:
    rows = value_count_rows(column, values, counts, rows_of(type_class).schema)
    return rows if partition is None else rows.add_column(2, "partition", pa.repeat(pa.scalar(partition), len(values)))


def value_count_rows(column: str, values: pa.Array, counts: pa.Array, schema: pa.Schema) -> pa.Table:
    """Return the value counts of one column as a table of delta rows: `column`, `value`, `frequency`.

    Args:
        column: Field id of the column.
        values: The values.
        counts: The frequency of each value.
        schema: The Arrow schema of the three columns, which has the type of the values.
    """
    return pa.Table.from_arrays([pa.repeat(pa.scalar(column), len(values)), values, counts], schema=schema)
