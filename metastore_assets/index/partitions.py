"""The statistics of a version's partitions by (column, partition): one column of all partitions is one slice of a file.

    index/<unique>.partitions.parquet    sections `gone`, `partitions`, and one per column

A small commit writes none: while only a few partitions are others than the files tell, the version's document names
these, and their own `statistics` are read. When they get more, a file has all of them, and the keys of those that went;
the newest file that has a key decides. Files merge as those of the index do; of many rows column by column, so that one
column is all that is held.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.index.files import FOLDER, GONE, live_masks, padded, section_of
from metastore_assets.index.partition_rows import (
    PARTITIONS,
    PLACE,
    PartitionRows,
    in_schema,
    joined,
    no_rows,
    placed,
    rows_schema,
)
from metastore_assets.store.entry_files import EntryFile, EntryFiles, kept_files
from metastore_assets.store.manifest import OwnStatistics, PartitionFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sections import SectionReader, SectionWriter

_KEYS = "partitions"
"""Name of the section of the partitions themselves."""
_MOST_APART = 8
"""Partitions that are read from files of their own."""
_MOST_CHANGES = 3
"""Files of changes beside a base. Each is a request for whoever asks of all partitions, as each partition apart is."""
_LARGE = 1 << 10
"""Rows of columns that share a row group, at least: these are read with the one that is asked for, and with fewer there
would be more to a footer than to them."""
_AT_ONCE = 1 << 16
"""Rows that are put in order at once; more are taken column by column."""


class PartitionReader:
    """The statistics of partitions in files by column. Opens each file once, on first use; safe to share.

    Raises CorruptionError.
    """

    def __init__(self, store: ObjectStore, files: EntryFiles) -> None:
        self._store = store
        self._files = files

    @lock_free_cached_property
    def partitions(self) -> pa.Table:
        """Keys and numbers of rows of the partitions, by key: PARTITIONS."""
        return self._all.take(pa.array(self._order))

    def column(self, field_id: str, without: Collection[str] = ()) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        """The rows of a column, file by file, and of each row the place of its partition in `partitions`. The
        statistics `without` which they go are not read.

        Partitions without a row were profiled without the column.
        """
        places = np.empty(len(self._order), np.int64)
        places[self._order] = np.arange(len(self._order))
        first = 0
        for part in self._parts:
            rows = part.column(field_id, without)
            if len(rows):
                yield places[first + rows[PLACE.name].to_numpy()], rows.drop_columns([PLACE.name])
            first += len(part.partitions)

    @lock_free_cached_property
    def _all(self) -> pa.Table:
        found = pa.concat_tables([PARTITIONS.empty_table(), *(part.partitions for part in self._parts)])
        if len(found) != self._files.rows:
            raise CorruptionError(
                f"{self._store.uri()}: the index has {len(found):,} partitions, and its version {self._files.rows:,}; "
                "rebuild with `metastore refresh NAME --full`"
            )
        return found

    @lock_free_cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        return np.argsort(np.array(self._all["_key"].to_pylist(), object), kind="stable")

    @lock_free_cached_property
    def _parts(self) -> list[_Part]:
        return _parts(self._store, self._files.files)


def next_partitions(
    store: ObjectStore,
    base: PartitionFiles | None,
    came: Mapping[str, OwnStatistics],
    gone: Collection[str],
    count: int,
    read: Callable[[Sequence[OwnStatistics]], Iterable[PartitionRows]],
) -> PartitionFiles:
    """What tells of the partitions of a version in which some, by key, are new or other than before, and some gone.

    `gone` has keys that `base` has; then there are `count` partitions. `read` tells of some, in lots of any size; it is
    asked when they are written. Nothing is changed: what `base` names stays. Raises CorruptionError.
    """
    base = base or PartitionFiles(EntryFiles(0, ()))
    apart = {own.key: own for own in base.apart if own.key not in gone}
    apart.update(came)
    dropped = (set(base.gone) | set(gone)) - came.keys()
    if len(apart) + len(dropped) <= _MOST_APART:
        return PartitionFiles(base.files, tuple(apart.values()), tuple(sorted(dropped)))
    return PartitionFiles(_next_files(store, base.files, read(list(apart.values())), dropped, apart.keys(), count))


def _next_files(
    store: ObjectStore,
    base: EntryFiles,
    lots: Iterable[PartitionRows],
    gone: Collection[str],
    came: Collection[str],
    count: int,
) -> EntryFiles:
    if not count:
        return EntryFiles(0, ())
    kept = kept_files(base, count, len(came) + len(gone), whole_rows=0, most_changes=_MOST_CHANGES)
    newest = _parts(store, base.files[len(kept) :], {*came, *gone})
    dropped = {key for part in newest for key in part.gone} | set(gone) if kept else set()
    dropped -= {*came, *(key for part in newest for key in part.partitions["_key"].to_pylist())}
    written: list[EntryFile] = []
    rows: list[_Part | PartitionRows] = []
    for lot in lots:
        if rows:  # more than one: each is put away, to be read column by column
            written += [_written(store, rows, ())]
        rows = [lot]
    if written:
        written += [_written(store, rows, ())]
        rows = [*_parts(store, written)]
    found = _written(store, [*newest, *rows], dropped)
    store.delete([file.path for file in written])
    return EntryFiles(count, (*kept, found))


@dataclass(frozen=True)
class _Part:
    """The rows of one file that count."""

    file: _File
    live: pa.Array | None

    @property
    def schema(self) -> pa.Schema:
        return self.file.schema

    @property
    def columns(self) -> list[str]:
        return self.file.columns

    @property
    def gone(self) -> set[str]:
        return set(self.file.keys(GONE).to_pylist())

    @lock_free_cached_property
    def partitions(self) -> pa.Table:
        found = self.file.partitions
        return found if self.live is None else found.filter(self.live)

    @property
    def row_count(self) -> int:
        return self.file.row_count

    @property
    def rows(self) -> pa.Table:
        return self._living(self.file.rows())

    def column(self, field_id: str, without: Collection[str] = ()) -> pa.Table:
        return self._living(self.file.column(field_id, without))

    def _living(self, rows: pa.Table) -> pa.Table:
        if self.live is None:
            return rows
        live = self.live.to_numpy(zero_copy_only=False)
        own = rows[PLACE.name].to_numpy()
        rows = rows.filter(pa.array(live[own]))
        return placed(rows, (np.cumsum(live) - 1)[own[live[own]]])


class _File:
    """One file."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._uri = store.uri(path)
        self._sections = SectionReader(store, path)

    @lock_free_cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([field for field in self._sections.schema if field.name not in PARTITIONS.names])

    @lock_free_cached_property
    def columns(self) -> list[str]:
        return [own.partition(" ")[2] for own in self._sections.sections if own not in (_KEYS, GONE)]

    @lock_free_cached_property
    def partitions(self) -> pa.Table:
        return self._section(_KEYS, PARTITIONS.names)

    def keys(self, section: str) -> pa.Array:
        own = (self.partitions if section == _KEYS else self._section(section))["_key"].combine_chunks()
        return own if isinstance(own, pa.Array) else pa.array([], pa.string())

    def column(self, field_id: str, without: Collection[str] = ()) -> pa.Table:
        name = section_of(field_id)
        if name not in self._sections.sections:
            return no_rows(self.schema)
        return self._section(name, [own for own in self.schema.names if own not in without])

    @property
    def row_count(self) -> int:
        return sum(own.row_count for own in self._sections.sections.values())

    def rows(self) -> pa.Table:
        """Of all columns, one after the other."""
        names = [section_of(own) for own in self.columns]
        found = self._sections.read_sections(names)
        tables = [found[own].select(self.schema.names) for own in names]
        return pa.concat_tables([no_rows(self.schema), *tables])

    def _section(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        try:
            return self._sections.read_section(name, columns=columns)
        except KeyError as error:
            raise CorruptionError(
                f"{self._uri} has no section {error}; rebuild with `metastore refresh NAME --full`"
            ) from error


def _parts(store: ObjectStore, files: Sequence[EntryFile], changed: Collection[str] = ()) -> list[_Part]:
    """Each file, oldest first; what is `changed` after them does not count in any."""
    held = [_File(store, file.path) for file in files]
    keys, gone = [own.keys(_KEYS) for own in held], [own.keys(GONE) for own in held]
    last = pa.array(sorted(changed), pa.string())
    masks = live_masks([*keys, last], [*gone, pa.array([], pa.string())])
    return [_Part(own, live) for own, live in zip(held, masks, strict=False)]


def _written(store: ObjectStore, parts: Sequence[_Part | PartitionRows], gone: Collection[str]) -> EntryFile:
    """Write what counts of some files, and what came, as one file."""
    parts = [part for part in parts if len(part.partitions)]
    rows = rows_schema(part.schema for part in parts)
    schema = pa.schema([*PARTITIONS, *rows])
    path = f"{FOLDER}/{uuid.uuid4().hex}.partitions.parquet"
    firsts = np.cumsum([0, *(len(part.partitions) for part in parts)]).tolist()
    dropped = pa.table({"_key": pa.array(sorted(gone), pa.string())})
    partitions = pa.concat_tables([PARTITIONS.empty_table(), *(part.partitions for part in parts)])
    with SectionWriter(store, path, schema, {}, large=_LARGE) as writer:
        if sum(part.row_count for part in parts) <= _AT_ONCE:
            whole = joined(parts)
            counts = {GONE: len(dropped), _KEYS: len(partitions)}
            counts |= {section_of(own): whole.count(own) for own in whole.columns}
            tables = [padded(own, schema) for own in (dropped, partitions, whole.ordered) if len(own)]
            writer.write_sections(counts, pa.concat_tables([no_rows(schema), *tables]))
        else:
            writer.write_section(GONE, padded(dropped, schema))
            writer.write_section(_KEYS, padded(partitions, schema))
            for own in dict.fromkeys(own for part in parts for own in part.columns):
                held = [(part, first) for part, first in zip(parts, firsts, strict=False) if own in part.columns]
                tables = [in_schema(_moved(part.column(own), first), rows) for part, first in held]
                writer.write_section(section_of(own), padded(pa.concat_tables(tables), schema))
    return EntryFile(path, firsts[-1] + len(gone))


def _moved(rows: pa.Table, first: int) -> pa.Table:
    return placed(rows, rows[PLACE.name].to_numpy() + first) if first else rows
