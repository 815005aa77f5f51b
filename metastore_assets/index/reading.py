"""Reading the index: the fragments of a version, and of one column what is known in each, in one slice of each file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.index.files import GONE, ROWS, live_masks, section_of
from metastore_assets.index.rows import FRAGMENTS, IndexRows, column_schema
from metastore_assets.statistics.union import select_class
from metastore_assets.store.entry_files import EntryFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.sections import SectionReader
from metastore_assets.values.types import TypeClass


@dataclass(frozen=True)
class IndexColumn:
    """What is known of one column in each fragment, in the order of `IndexReader.fragments`."""

    null_count: pa.ChunkedArray
    """Null where it is not known."""
    nan_count: pa.ChunkedArray
    minimum: pa.ChunkedArray
    """No value but NaN is less; null where there is none, or it is not known."""
    maximum: pa.ChunkedArray


class IndexReader:
    """The index of one version. Opens each file once, on first use; safe to share. Raises CorruptionError."""

    def __init__(self, store: ObjectStore, files: EntryFiles) -> None:
        self._store = store
        self._files = files
        self._fragments: dict[tuple[str, ...], pa.Table] = {}

    def fragments(self, columns: Sequence[str] = ("bytes", "row_count")) -> pa.Table:
        """The fragments of the version, with some of the columns FRAGMENTS."""
        key = tuple(columns)
        kept = self._fragments.get(key)
        if kept is None:
            parts = [part.fragments(key).filter(live) if live else part.fragments(key) for part, live in self._live]
            schema = pa.schema([FRAGMENTS.field(name) for name in key])
            whole = pa.concat_tables([schema.empty_table(), *parts])
            if len(whole) != self._files.rows:
                raise CorruptionError(
                    f"{self._store.uri()}: the index has {len(whole):,} fragments, and its version "
                    f"{self._files.rows:,}; rebuild with `metastore refresh NAME --full`"
                )
            kept = self._fragments.setdefault(key, whole)
        return kept

    def column(self, field_id: str, cls: TypeClass | None) -> IndexColumn:
        """What is known of a column whose values are of that class now; None for one without values."""
        parts = [part.column(field_id, cls) for part, _ in self._live]
        tables = [own.filter(live) if live else own for own, (_, live) in zip(parts, self._live, strict=True)]
        kind = pa.null() if cls is None else cls.arrow
        if tables:
            return IndexColumn(*pa.concat_tables(tables).columns)
        counts, nothing = pa.chunked_array([], pa.int64()), pa.chunked_array([], kind)
        return IndexColumn(counts, counts, nothing, nothing)

    def rows(self, number: int) -> IndexRows:
        """All that one file has of live fragments."""
        part, live = self._live[number]
        found = part.rows()
        return found if live is None else found.filter(live)

    def gone(self, number: int) -> set[str]:
        """The names that one file says are gone."""
        return set(self._live[number][0].names(GONE).to_pylist())

    def names(self) -> set[str]:
        """The names of the fragments of the version."""
        return set(self.fragments(("name",))["name"].to_pylist())

    @lock_free_cached_property
    def _live(self) -> list[tuple[_File, pa.Array | None]]:
        """Each file, oldest first, with a mask of its fragments that no newer one has or says are gone; None: all."""
        files = [_File(self._store, file.path) for file in self._files.files]
        newer = files[1:]  # what a base has is asked for only where something may be newer
        names = [own.names(ROWS) if newer else pa.array([], pa.string()) for own in files]
        gone = [pa.array([], pa.string()), *(own.names(GONE) for own in newer)][: len(files)]
        return list(zip(files, live_masks(names, gone), strict=True))


class _File:
    """One file of the index."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._uri = store.uri(path)
        self._sections = SectionReader(store, path)

    def fragments(self, columns: Sequence[str]) -> pa.Table:
        return self._section(ROWS, columns)

    def names(self, section: str) -> pa.Array:
        own = self._section(section, ("name",))["name"].combine_chunks()
        return own if isinstance(own, pa.Array) else pa.array([], pa.string())

    def column(self, field_id: str, cls: TypeClass | None) -> pa.Table:
        """Columns as those of IndexColumn, one row for each of the file's fragments."""
        kind = pa.null() if cls is None else cls.arrow
        name = section_of(field_id)
        if name not in self._sections.sections:
            counts = self._section(ROWS, ("row_count",))["row_count"]
            nothing = pa.nulls(len(counts), kind)
            zeros = pa.array(np.zeros(len(counts), np.int64))
            return pa.table([counts, zeros, nothing, nothing], names=["null_count", "nan_count", "low", "high"])
        wanted = ["null_count", "nan_count"]
        if cls is not None:
            wanted += [f"minimum.{cls.name}", f"maximum.{cls.name}"]
        table = self._section(name, wanted)
        sides = [_side(table, side, cls) for side in ("minimum", "maximum")]
        arrays = [table["null_count"], table["nan_count"], *sides]
        return pa.table(arrays, names=["null_count", "nan_count", "low", "high"])

    def rows(self) -> IndexRows:
        tables = self._sections.read_sections(list(self._sections.sections))
        with parquet_errors(self._uri):
            union = tables[ROWS].schema.field("minimum").type
            names = column_schema(union).names
            columns = {own.partition(" ")[2]: tables[own].select(names) for own in tables if own not in (ROWS, GONE)}
            return IndexRows(tables[ROWS].select(FRAGMENTS.names), columns)

    def _section(self, name: str, columns: Sequence[str]) -> pa.Table:
        try:
            return self._sections.read_section(name, columns=list(columns))
        except KeyError as error:
            raise CorruptionError(
                f"{self._uri} has no section {error}; rebuild with `metastore refresh NAME --full`"
            ) from error


def _side(table: pa.Table, side: str, cls: TypeClass | None) -> pa.Array:
    if cls is None or side not in table.column_names:
        # No fragment of the file has values of the class.
        return pa.nulls(table.num_rows, pa.null() if cls is None else cls.arrow)
    values = table[side].combine_chunks()
    return select_class(values if isinstance(values, pa.Array) else values.chunk(0), cls)
