"""Deltas of value counts, read from added or removed profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.produce import Delta
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.graph import rows_of

_PROFILES_PER_DELTA = 16
_SMALL = 200_000
"""Up to this many values are read at once; more become lazy deltas."""


@dataclass(frozen=True)
class CountedProfile:
    """A profile whose value counts are read, with its partition key if they are counted by partition."""

    files: ProfileFiles
    partition: str | None = None


def deltas(
    store: ObjectStore, profiles: Sequence[CountedProfile], columns: Mapping[str, str], rows: int, *, removed: bool
) -> dict[str, list[Delta]]:
    """Return the value counts of columns in profiles as deltas by type class, with partition keys if the profiles have
    them.

    Args:
        store: The folder of the table.
        profiles: The profiles to read.
        columns: The columns by field id, with the classes of their values.
        rows: The number of rows of all profiles together.
        removed: Whether the deltas are subtracted.

    Raises:
        CorruptionError: A profile is damaged.
    """
    if not profiles or not columns:
        return {}
    names = sorted(set(columns.values()))
    by_class = {name: tuple(sorted(own for own, cls in columns.items() if cls == name)) for name in names}
    few = _few(store, profiles, by_class)
    if few is not None:
        return {name: [Delta(table, removed=removed)] for name, table in few.items() if table.num_rows}
    lots = [tuple(profiles[at : at + _PROFILES_PER_DELTA]) for at in range(0, len(profiles), _PROFILES_PER_DELTA)]
    # A column has at most as many values as rows.
    return {
        name: [
            Delta(
                _Lists(store, lot, own, name),
                removed=removed,
                count=max(1, rows * len(own) * len(lot) // len(profiles)),
            )
            for lot in lots
        ]
        for name, own in by_class.items()
    }


def _few(
    store: ObjectStore, profiles: Sequence[CountedProfile], by_class: Mapping[str, tuple[str, ...]]
) -> dict[str, pa.Table] | None:
    """Read all value counts at once; return None if there are too many."""
    by_partition = profiles[0].partition is not None
    found = {name: [rows_of(name, by_partition=by_partition).schema.empty_table()] for name in by_class}
    left = _SMALL
    with StatesReader(store) as opened:
        for own in profiles:
            with FrequencyReader(opened, own.files) as reader:
                wanted = {column: name for name, columns in by_class.items() for column in columns}
                wanted = {column: name for column, name in wanted.items() if column in reader.listed}
                if sum(map(reader.row_count, wanted)) > left:
                    return None
                for column, lists in reader.read_all(list(wanted)).items():
                    name = wanted[column]
                    found[name] += [_rows(column, *values, name, own.partition) for values in lists]
                    left -= sum(len(values) for values, _ in lists)
    # One batch, because the cost of a delta depends mostly on its number of batches.
    return {name: pa.concat_tables(tables).combine_chunks() for name, tables in found.items()}


@dataclass(frozen=True)
class _Lists:
    """A callable that reads the value counts of columns of one class from profiles. Picklable."""

    store: ObjectStore
    profiles: tuple[CountedProfile, ...]
    columns: tuple[str, ...]
    type_class: str

    def __call__(self) -> Iterator[pa.RecordBatch]:
        with StatesReader(self.store) as opened:
            for own in self.profiles:
                with FrequencyReader(opened, own.files) as reader:
                    for table in read_value_count_rows(reader, self.columns, self.type_class, own.partition):
                        yield from table.to_batches()


def read_value_count_rows(
    reader: FrequencyReader, columns: Sequence[str], type_class: str, partition: str | None
) -> Iterator[pa.Table]:
    """Yield the value counts of each column of one class in a profile as delta rows."""
    for column in columns:
        own = reader.read(column)
        if own is not None and len(own):
            yield _rows(column, own.values, own.counts, type_class, partition)


def _rows(column: str, values: pa.Array, counts: pa.Array, type_class: str, partition: str | None) -> pa.Table:
    rows = value_count_rows(column, values, counts, rows_of(type_class).schema)
    return rows if partition is None else rows.add_column(2, "partition", pa.repeat(pa.scalar(partition), len(values)))


def value_count_rows(column: str, values: pa.Array, counts: pa.Array, schema: pa.Schema) -> pa.Table:
    """Return the value counts of one column as delta rows: `column`, `value`, `frequency`."""
    return pa.Table.from_arrays([pa.repeat(pa.scalar(column), len(values)), values, counts], schema=schema)
