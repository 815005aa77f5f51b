"""Parquet files made of named sections of rows, of which one can be read without the others.

A section's rows are contiguous. A large section has row groups of its own; small neighbours share one. The file's
metadata lists name, first row and row count of every section, and that is all a reader needs to know.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.startup import pc
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import (
    ROW_GROUP_ROWS,
    MinimalParquet,
    ParquetObject,
    ParquetTableWriter,
    SharedParquet,
    parquet_errors,
)

SECTIONS = "metastore.columns"
"""Metadata key of the sections: a JSON list of [name, first row, row count] in file order."""
LARGE_SECTION_ROWS = 4096
"""From this many rows on, a section shares no row group with another."""
_KEPT_BYTES = 16 << 20
_HEAD_ROWS = 4096
_HEAD_FROM = 8 * _HEAD_ROWS
"""A section of this many rows begins with a small row group: its first rows are what is asked for most."""


class Section(NamedTuple):
    """Where a section's rows are in its file."""

    first_row: int
    row_count: int


class SectionWriter:
    """Writes one file of sections. A context manager; the file is visible when the block ends well.

    Holds no more than a row group (131,072 rows) in memory, besides the table given.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        schema: pa.Schema,
        encodings: Mapping[str, str] | None = None,
        *,
        bounded: Sequence[str] | None = None,
        large: int = LARGE_SECTION_ROWS,
        row_group_rows: int = ROW_GROUP_ROWS,
    ) -> None:
        """Describe the file; entering the context opens it.

        Args:
            store: Where the file will be.
            path: Path of the file in the store.
            schema: Columns of all sections.
            encodings: Encodings of leaf columns. With them the file is a `MinimalParquet` one.
            bounded: Columns with a minimum and maximum per row group. None: no column of a lean file, and all columns
                of short values of another.
            large: From this many rows on, a section shares no row group with another.
            row_group_rows: Most rows in a row group.
        """
        self._store = store
        self._path = path
        self._schema = schema
        self._minimal = (
            None if encodings is None else MinimalParquet(encodings, stores_arrow_types=True, bounded=bounded or ())
        )
        self._bounded = bounded
        self._row_group_rows = row_group_rows
        self._large = large
        self._stack = ExitStack()
        self._writer: ParquetTableWriter
        self._sections: dict[str, int] = {}
        self._current: str | None = None
        self._shared: list[pa.Table] = []
        self._shared_rows = 0
        self._own: list[pa.Table] = []
        self._own_rows = 0
        self._own_written = False

    def write_section(self, name: str, table: pa.Table) -> None:
        """Append a section. Called again with the same name at once, it continues that section.

        Raises ValueError when a section of that name was ended by another one.
        """
        if name != self._current:
            if name in self._sections:
                raise ValueError(f"section {name!r} of {self._store.uri(self._path)} is already ended")
            self._end_section()
            self._current = name
            self._sections[name] = 0
        self._sections[name] += table.num_rows
        if not table.num_rows:
            return
        self._own.append(table)
        self._own_rows += table.num_rows
        if self._own_rows >= self._row_group_rows:
            self._write_own(keep_rest=True)

    def write_sections(self, counts: Mapping[str, int], table: pa.Table) -> None:
        """Append several sections, of so many rows each, whose rows `table` has one after the other.

        The same file as one by one, in less time where they are many and small. Raises ValueError as `write_section`.
        """
        if sum(counts.values()) != table.num_rows:
            raise ValueError("the sections do not add up to the rows")
        first = start = 0
        for name, count in counts.items():
            if count >= self._large:
                self._share(table.slice(start, first - start))
                self.write_section(name, table.slice(first, count))
                start = first + count
            else:
                if name in self._sections:
                    raise ValueError(f"section {name!r} of {self._store.uri(self._path)} is already ended")
                if self._current is not None:
                    self._end_section()
                self._current, self._sections[name] = None, count
                if first + count - start + self._shared_rows >= self._large:
                    self._share(table.slice(start, first + count - start))
                    start = first + count
            first += count
        self._share(table.slice(start, first - start))

    def __enter__(self) -> SectionWriter:
        self._writer = self._stack.enter_context(
            self._store.parquet_writer(self._path, self._schema, minimal=self._minimal, bounded=self._bounded)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if kind is not None:
                self._stack.__exit__(kind, error, trace)
                return
            self._end_section()
            self._write_shared()
            counts = list(self._sections.values())
            firsts = accumulate(counts, initial=0)
            index = [[name, first, count] for name, first, count in zip(self._sections, firsts, counts, strict=False)]
            self._writer.add_metadata({SECTIONS: json.dumps(index, ensure_ascii=False)})

    def _end_section(self) -> None:
        if self._own_written or self._own_rows >= self._large:
            self._write_own(keep_rest=False)
        else:
            own, self._own, self._own_rows = self._own, [], 0
            for table in own:
                self._share(table)
        self._own_written = False

    def _share(self, table: pa.Table) -> None:
        """Append rows of whole small sections."""
        if table.num_rows:
            self._shared.append(table)
            self._shared_rows += table.num_rows
        if self._shared_rows >= self._large:
            self._write_shared()

    def _write_shared(self) -> None:
        if self._shared:
            self._writer.write_table(pa.concat_tables(self._shared), self._row_group_rows)
        self._shared, self._shared_rows = [], 0

    def _write_own(self, *, keep_rest: bool) -> None:
        self._write_shared()
        if not self._own:
            return
        table = pa.concat_tables(self._own)
        start = 0
        if not self._own_written and table.num_rows >= _HEAD_FROM:
            start = _HEAD_ROWS
            self._writer.write_table(table.slice(0, start), self._row_group_rows)
        rows = table.num_rows - start
        stop = start + (rows // self._row_group_rows * self._row_group_rows if keep_rest else rows)
        self._writer.write_table(table.slice(start, stop - start), self._row_group_rows)
        rest = table.slice(stop)
        self._own, self._own_rows = ([rest] if rest.num_rows else []), rest.num_rows
        self._own_written = True


class SectionReader:
    """Reads single sections of one file. Opening it reads the footer; safe to share between threads."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._uri = store.uri(path)
        self._file = SharedParquet(store, path)
        metadata = self._file.metadata
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self._group_starts = list(accumulate(groups, initial=0))
        self._sections = _sections(metadata.metadata or {}, metadata.num_rows, self._uri)
        self._kept: tuple[tuple[int, list[str] | None], pa.Table] | None = None

    @property
    def sections(self) -> Mapping[str, Section]:
        """The sections by name, in file order."""
        return self._sections

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows of all sections, as written."""
        with self._file.acquire() as file:
            return file.schema_arrow.remove_metadata()

    @property
    def byte_count(self) -> int:
        """Size of all rows after decompression, in bytes."""
        metadata = self._file.metadata
        return sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))

    def read_section(self, name: str, limit: int | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a section, or its first `limit` rows; KeyError when there is no such section.

        Reads only the row groups that hold them, and of `columns` only those. A row group that small sections share is
        kept when all rows of one were read: whoever reads them in order, and the same columns, reads it once.
        """
        section = self._sections[name]
        count = section.row_count if limit is None else min(section.row_count, max(0, limit))
        first_group = bisect_right(self._group_starts, section.first_row) - 1
        last_group = bisect_right(self._group_starts, section.first_row + max(0, count - 1)) - 1
        groups = list(range(first_group, last_group + 1)) if count else []
        skipped = section.first_row - self._group_starts[first_group] if count else 0
        wanted = None if columns is None else list(columns)
        with self._file.acquire() as file, parquet_errors(self._uri):
            if limit is None and len(groups) == 1:
                table = self._read_group(file, groups[0], wanted)
            elif limit is None or not groups:
                table = file.read_row_groups(groups, columns=wanted)
            else:
                table = _read_first(file, groups, skipped + count, wanted)
        return table.slice(skipped, count)

    def read_sections(self, names: Sequence[str], columns: Sequence[str] | None = None) -> dict[str, pa.Table]:
        """The rows of several sections, by name, read at once; KeyError when there is no such section."""
        wanted = {name: self._sections[name] for name in names}
        groups: set[int] = set()
        for section in wanted.values():
            if section.row_count:
                first = bisect_right(self._group_starts, section.first_row) - 1
                last = bisect_right(self._group_starts, section.first_row + section.row_count - 1) - 1
                groups.update(range(first, last + 1))
        order = sorted(groups)
        with self._file.acquire() as file, parquet_errors(self._uri):
            table = file.read_row_groups(order, columns)
        sizes = (self._group_starts[group + 1] - self._group_starts[group] for group in order)
        starts = dict(zip(order, accumulate(sizes, initial=0), strict=False))
        found = {}
        for name, section in wanted.items():
            group = bisect_right(self._group_starts, section.first_row) - 1
            at = starts.get(group, 0) + section.first_row - self._group_starts[group]
            found[name] = table.slice(at if section.row_count else 0, section.row_count)
        return found

    def find_rows(self, keys: Sequence[Any]) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """Return the rows of all sections whose first column is one of the keys, and their positions in the file.

        Reads the row groups whose minimum and maximum of that column allow for a key. Long keys have no bounds. The row
        group that was read last is cached: neighbours are often searched one after the other.
        """
        groups = [
            group
            for group, bounds in enumerate(self._key_bounds)
            if bounds is None or any(bounds[0] <= key <= bounds[1] for key in keys)
        ]
        with self._file.acquire() as file, parquet_errors(self._uri):
            single = len(groups) == 1
            table = self._read_group(file, groups[0], None) if single else file.read_row_groups(groups)
        ranges = [np.arange(*self._group_starts[group : group + 2]) for group in groups]
        matches = pc.is_in(table.column(0), value_set=pa.array(keys, table.column(0).type))
        positions = np.concatenate([np.zeros(0, np.int64), *ranges])
        return positions[matches.to_numpy()], table.filter(matches)

    @lock_free_cached_property
    def _key_bounds(self) -> list[tuple[Any, Any] | None]:
        metadata = self._file.metadata
        statistics = [metadata.row_group(group).column(0).statistics for group in range(metadata.num_row_groups)]
        return [(one.min, one.max) if one is not None and one.has_min_max else None for one in statistics]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> SectionReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read_group(self, file: ParquetObject, group: int, columns: list[str] | None) -> pa.Table:
        kept = self._kept
        if kept is not None and kept[0] == (group, columns):
            return kept[1]
        table = file.read_row_group(group, columns)
        self._kept = ((group, columns), table) if table.nbytes <= _KEPT_BYTES else None
        return table


def _read_first(file: ParquetObject, groups: list[int], rows: int, columns: list[str] | None) -> pa.Table:
    """At least the first `rows` rows of some row groups, decoding little more than those."""
    batches = []
    for batch in file.iter_batches(min(rows, ROW_GROUP_ROWS), row_groups=groups, columns=columns):
        batches.append(batch)
        rows -= batch.num_rows
        if rows <= 0:
            break
    return pa.Table.from_batches(batches)


def _sections(metadata: Mapping[bytes, bytes], rows: int, uri: str) -> dict[str, Section]:
    try:
        index = parse_json(metadata[SECTIONS.encode()])
        sections = {name: Section(first, count) for name, first, count in index}
        if sum(section.row_count for section in sections.values()) != rows:
            raise ValueError("the sections do not add up to the rows")
    except (KeyError, ValueError, TypeError) as error:
        raise CorruptionError(
            f"{uri} lacks a valid list of its columns ({error}); rebuild with `metastore refresh NAME --full`"
        ) from error
    return sections
