"""Many rows, each with a key, in immutable files: a base, and files of what has changed since.

    entries/<unique>.<kind>.parquet    rows by increasing key; in a file of changes `_removed` tells which keys are gone

The newest file that has a key decides. So a version costs what it changes: it takes over the files of the version
before and adds one. When the changes come to half of the base, all is written anew; when the files get many, the newest
are merged: each row is written about as often as there are files.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.startup import pc
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.shared_parquet import SharedParquet

FOLDER = "entries"
ROW_GROUP_ROWS = 2048
"""What is read to find one row."""
_REMOVED = "_removed"
_WHOLE_ROWS = 500
"""So few rows are always written whole: one file is read sooner than two small ones."""
_MOST_CHANGES = 8
"""Files of changes beside a base."""
_READERS = 9


@dataclass(frozen=True)
class EntryFile:
    """One file."""

    path: str
    rows: int
    """Keys in the file, those that are gone included."""


@dataclass(frozen=True)
class EntryFiles:
    """The rows of one kind in one version."""

    rows: int
    """How many there are."""
    files: tuple[EntryFile, ...]
    """The base, then changes, oldest first; none where there is nothing."""

    def paths(self) -> tuple[str, ...]:
        """All files."""
        return tuple(file.path for file in self.files)


def kept_files(
    before: EntryFiles, rows: int, changed: int, whole_rows: int | None = None, most_changes: int = _MOST_CHANGES
) -> tuple[EntryFile, ...]:
    """The files that stay when `changed` keys get new rows or none, and there are then `rows` rows.

    What is not in them goes into one new file: with none, all rows; else the changed ones, and those of the files that
    do not stay. Up to `whole_rows` rows are always written whole; without it, some hundred. There are then at most
    `most_changes` files beside the base.
    """
    if rows <= (_WHOLE_ROWS if whole_rows is None else whole_rows) or not before.files:
        return ()
    base, *changes = before.files
    if changed + sum(file.rows for file in changes) > base.rows / 2:
        return ()
    merged = changed
    if len(changes) >= most_changes:
        merged += changes.pop().rows
        while changes and changes[-1].rows <= merged:
            merged += changes.pop().rows
    return (base, *changes)


def write_base(objects: ObjectStore, kind: str, table: pa.Table) -> EntryFiles:
    """Write all rows, sorted by their key, which is the first column."""
    return EntryFiles(table.num_rows, (_write(objects, kind, table),))


def write_changes(
    objects: ObjectStore, kind: str, rows: int, kept: tuple[EntryFile, ...], table: pa.Table, removed: Collection[Any]
) -> EntryFiles:
    """Write rows that are new or changed, and keys that are gone, on top of the files that stay.

    There are then `rows` rows in all.
    """
    gone = [
        pa.array(sorted(removed), table.schema[0].type),
        *(pa.nulls(len(removed), field.type) for field in list(table.schema)[1:]),
    ]
    parts = [_marked(table, gone=False), _marked(pa.Table.from_arrays(gone, schema=table.schema), gone=True)]
    changes = pa.concat_tables(parts)
    return EntryFiles(rows, (*kept, _write(objects, kind, changes.take(pc.sort_indices(changes.column(0))))))


def read_entries(objects: ObjectStore, entries: EntryFiles, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows by increasing key; of some columns, where `columns` names them: those of them that there are."""
    return _newest(_read_all(objects, entries.paths(), columns))


def keys_in(objects: ObjectStore, files: Sequence[EntryFile]) -> set[Any]:
    """The keys in some files, those that are gone included."""
    tables = _read_all(objects, [file.path for file in files], ())
    return {key for table in tables for key in table.column(0).to_pylist()}


class EntryFinder:
    """Finds rows of one kind by their keys. Opens each file once, on first use, and keeps the row group that it read
    last: who looks for one row soon looks for its neighbours. Safe to share."""

    def __init__(self, objects: ObjectStore, entries: EntryFiles) -> None:
        self._files = [_Searched(objects, path) for path in entries.paths()]

    def find(self, keys: Collection[Any]) -> pa.Table:
        """The rows with some keys, by increasing key. Reads the row groups that may have them, and no others."""
        return _newest([file.find(sorted(keys)) for file in self._files])


class _Searched:
    """One file."""

    def __init__(self, objects: ObjectStore, path: str) -> None:
        self._objects = objects
        self._path = path
        self._kept: tuple[list[int], pa.Table] | None = None

    @lock_free_cached_property
    def _file(self) -> SharedParquet:
        return SharedParquet(self._objects, self._path)

    @lock_free_cached_property
    def _bounds(self) -> list[tuple[Any, Any] | None]:
        """Least and greatest key of each row group. Long keys have no bounds."""
        metadata = self._file.metadata
        told = [metadata.row_group(number).column(0).statistics for number in range(metadata.num_row_groups)]
        return [(own.min, own.max) if own is not None and own.has_min_max else None for own in told]

    def find(self, keys: Sequence[Any]) -> pa.Table:
        with parquet_errors(self._objects.uri(self._path)):
            groups = [
                number
                for number, bounds in enumerate(self._bounds)
                if bounds is None or any(bounds[0] <= key <= bounds[1] for key in keys)
            ]
            kept = self._kept
            if kept is None or kept[0] != groups:
                with self._file.lent() as file:
                    kept = groups, file.read_row_groups(groups)
                self._kept = kept if len(groups) == 1 else None
        column = kept[1].column(0)
        return kept[1].filter(pc.is_in(column, value_set=pa.array(keys, column.type)))


def _write(objects: ObjectStore, kind: str, table: pa.Table) -> EntryFile:
    path = f"{FOLDER}/{uuid.uuid4().hex}.{kind}.parquet"
    with objects.parquet_writer(path, table.schema, bounded=table.column_names[:1]) as writer:
        writer.write_table(table, ROW_GROUP_ROWS)
    return EntryFile(path, table.num_rows)


def _marked(table: pa.Table, *, gone: bool) -> pa.Table:
    return table.append_column(_REMOVED, pa.array([gone] * table.num_rows, pa.bool_()))


def _read_all(objects: ObjectStore, paths: Sequence[str], columns: Sequence[str] | None) -> list[pa.Table]:
    if len(paths) == 1:
        return [_read(objects, paths[0], columns)]
    with ThreadPoolExecutor(_READERS) as readers:
        return list(readers.map(lambda path: _read(objects, path, columns), paths))


def _read(objects: ObjectStore, path: str, columns: Sequence[str] | None) -> pa.Table:
    """The key, `_removed` in a file of changes, and other columns."""
    with objects.open_parquet(path) as file, parquet_errors(objects.uri(path)):
        names = file.schema_arrow.names
        if columns is not None:
            names = [name for name in names if name in (names[0], _REMOVED, *columns)]
        return file.read(columns=names)


def _newest(tables: Sequence[pa.Table]) -> pa.Table:
    """Of rows with one key those in the last table that has it, unless they say that it is gone; by increasing key."""
    if len(tables) == 1 and _REMOVED not in tables[0].column_names:
        return tables[0]
    whole = pa.concat_tables(
        [table if _REMOVED in table.column_names else _marked(table, gone=False) for table in tables]
    )
    number = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    keys = whole.column(0).combine_chunks().dictionary_encode()
    places = keys.indices.to_numpy()
    last = np.zeros(len(keys.dictionary), np.int64)
    np.maximum.at(last, places, number)
    gone = whole.column(_REMOVED).to_numpy()
    alive = whole.filter(pa.array((last[places] == number) & ~gone)).drop_columns([_REMOVED])
    return alive.take(pc.sort_indices(alive.column(0)))
