"""What profiles that came or went add to a table's lists, or take away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from metastore_assets.lists.graph import rows_of
from metastore_assets.pipeline.states_files import StatesFiles
from metastore_assets.pipeline.stored import FrequencyReader
from metastore_assets.produce import Delta
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore

_PROFILES_PER_DELTA = 16
_SMALL = 200_000
"""Values of lists that are read here and now; of more, how many there are is not known before they are read."""


def deltas(
    store: ObjectStore, profiles: Sequence[ProfileFiles], columns: Mapping[str, str], rows: int, *, gone: bool
) -> dict[str, list[Delta]]:
    """By type class, what the lists of some columns in some profiles, of so many rows in all, come to.

    `columns`: by field id, the class of the values. Raises CorruptionError.
    """
    if not profiles or not columns:
        return {}
    names = sorted(set(columns.values()))
    by_class = {name: tuple(sorted(own for own, cls in columns.items() if cls == name)) for name in names}
    few = _few(store, profiles, by_class)
    if few is not None:
        return {name: [Delta(table, gone=gone)] for name, table in few.items() if table.num_rows}
    lots = [tuple(profiles[at : at + _PROFILES_PER_DELTA]) for at in range(0, len(profiles), _PROFILES_PER_DELTA)]
    # No column has more values than rows.
    return {
        name: [
            Delta(_Lists(store, lot, own, name), gone=gone, count=max(1, rows * len(own) * len(lot) // len(profiles)))
            for lot in lots
        ]
        for name, own in by_class.items()
    }


def _few(
    store: ObjectStore, profiles: Sequence[ProfileFiles], by_class: Mapping[str, tuple[str, ...]]
) -> dict[str, pa.Table] | None:
    """The lists, read at once; None where they are many."""
    found = {name: [rows_of(name).schema.empty_table()] for name in by_class}
    values = 0
    with StatesFiles(store) as opened:
        for files in profiles:
            with FrequencyReader(opened, files) as reader:
                for name, columns in by_class.items():
                    for table in _tables(reader, columns, name):
                        found[name].append(table)
                        values += table.num_rows
                        if values > _SMALL:
                            return None
    return {name: pa.concat_tables(tables) for name, tables in found.items()}


@dataclass(frozen=True)
class _Lists:
    """Reads the lists of some columns of one class in some profiles. Picklable."""

    store: ObjectStore
    files: tuple[ProfileFiles, ...]
    columns: tuple[str, ...]
    type_class: str

    def __call__(self) -> Iterator[pa.RecordBatch]:
        with StatesFiles(self.store) as opened:
            for files in self.files:
                with FrequencyReader(opened, files) as reader:
                    for table in _tables(reader, self.columns, self.type_class):
                        yield from table.to_batches()


def _tables(reader: FrequencyReader, columns: Sequence[str], type_class: str) -> Iterator[pa.Table]:
    schema = rows_of(type_class).schema
    for column in columns:
        own = reader.read(column)
        if own is not None and len(own):
            yield list_rows(column, own, schema)


def list_rows(column: str, own: Frequencies, schema: pa.Schema) -> pa.Table:
    """The list of one column as rows that come and go: `column`, `value`, `frequency`."""
    columns = [pa.repeat(pa.scalar(column), len(own)), own.values, own.counts]
    return pa.Table.from_arrays(columns, schema=schema)
