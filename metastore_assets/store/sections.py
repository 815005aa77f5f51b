"""Parquet files that consist of named sections of rows, each of which can be read alone.

The rows of a section are contiguous. A large section has separate row groups, and small neighbouring sections share
one. The file's metadata lists name, first row and row count of every section. A file can also have a compact footer, a
short form of its Parquet footer (see `store.compact_footers`).

A reading is a generator that yields the byte ranges that it needs next, and is sent their bytes (see
`store.read_rounds`). So the requests of several readings can be made together.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import attrgetter
from types import TracebackType
from typing import Any, NamedTuple

import pyarrow as pa

from metastore_assets.caching import SizedCache, lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.store.compact_footers import Bounds, CompactFooterRange
from metastore_assets.store.json_fields import mapping, parse_json
from metastore_assets.store.keys import KeySelection, KeySet
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import (
    ROW_GROUP_ROWS,
    MinimalParquet,
    ParquetObject,
    ParquetOptions,
    ParquetTableWriter,
    SharedParquet,
    parquet_errors,
)
from metastore_assets.store.read_rounds import Reading, run_reading

SECTIONS = "metastore.sections"
"""Metadata key of the sections: a JSON list of [name, first row, row count] in file order."""
CONSTANTS = "metastore.constants"
"""Metadata key of columns that are not stored, because all rows have the same value: a JSON object {name: value}."""
CONSTANTS_CRC = "metastore.constants_crc32"
"""Metadata key of the CRC-32 of the text under `CONSTANTS`. Pages have checksums; the metadata of a file have none."""
LARGE_SECTION_ROWS = 4096
"""Minimum number of rows of a section that shares no row group with another."""
_MAX_CACHED_BYTES = 16 << 20
"""Maximum size in memory of the row group that a reader caches."""
_LARGE_GROUP_BYTES = 4 << 20
"""Minimum decompressed size of row groups whose keys are searched before the other columns are read."""
_STREAMED_BYTES = 4 << 20
"""Decompressed size of the row groups that are read at once when a section is streamed."""
_HEAD_ROWS = 4096
_MIN_ROWS_WITH_HEAD = 8 * _HEAD_ROWS
"""Minimum number of rows of a section with a small first row group. The first rows are read most often."""


class Section(NamedTuple):
    """The position of a section's rows in its file."""

    first_row: int
    row_count: int


@dataclass(frozen=True)
class SectionOptions:
    """The encodings of a file of sections, and the sizes of its row groups."""

    encodings: Mapping[str, str] | None = None
    """Encodings of leaf columns, by dotted path. If they are given, the file is written with minimal size: see
    `store.parquet.MinimalParquet`."""
    bounded_columns: Sequence[str] | None = None
    """Columns with a minimum and maximum per row group. None means all columns with short values. If `encodings` are
    given, it means no columns."""
    large_section_rows: int = LARGE_SECTION_ROWS
    """Minimum number of rows of a section that shares no row group with another."""
    row_group_rows: int = ROW_GROUP_ROWS
    """Maximum number of rows in a row group."""
    zstd_columns: Collection[str] | None = None
    """Columns that are compressed with zstd instead of LZ4; None for all. Ignored if `encodings` is None."""
    plain_columns: Collection[str] = ()
    """Leaf columns without a dictionary, by dotted path. Ignored if `encodings` are given."""
    adds_compact_footer: bool = False
    """Whether the file gets a compact footer (see `store.compact_footers`) in place of `bounded_columns`."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Columns that are not stored, because all rows have the same value: {name: value}. Values must fit into JSON."""


class SectionWriter:
    """A context manager that writes one file of sections, with at most one row group in memory.

    The file becomes visible if the block ends without an error.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        schema: pa.Schema,
        options: SectionOptions | None = None,
    ) -> None:
        """Prepare the file; entering the context opens it.

        Args:
            store: The store of the file.
            path: Path of the file in the store.
            schema: Columns of all sections.
            options: Encodings and row groups of the file; None for the defaults of `SectionOptions`.
        """
        self._store = store
        self._path = path
        self._schema = schema
        options = options or SectionOptions()
        encodings, bounded_paths = options.encodings, options.bounded_columns
        self._minimal = (
            None if encodings is None else MinimalParquet(encodings, True, bounded_paths or (), options.zstd_columns)
        )
        self._bounded = bounded_paths
        self._row_group_rows = options.row_group_rows
        self._large = options.large_section_rows
        self._constants = options.constants
        self._plain = options.plain_columns
        self._adds_compact_footer = options.adds_compact_footer
        self._stack = ExitStack()
        self._writer: ParquetTableWriter
        self._sections: dict[str, int] = {}
        self._current: str | None = None
        self._shared_tables: list[pa.Table] = []
        self._shared_rows = 0
        self._section_tables: list[pa.Table] = []
        self._section_rows = 0
        self._section_begun = False
        self._last_start = 0
        self._row_group_bytes = 0

    @property
    def footer_bytes(self) -> int:
        """Number of bytes after the row groups, known when the `with` block has ended."""
        return self._writer.footer_bytes

    @property
    def compact_footer(self) -> CompactFooterRange | None:
        """The position of the compact footer.

        It is known when the `with` block has ended, and None if there is none.
        """
        return self._writer.compact_footer

    @property
    def tail_bytes(self) -> int:
        """The size in bytes of the section that `write_row_groups` wrote last, and of all that follows it.

        It is known when the `with` block has ended.
        """
        return self._row_group_bytes - self._last_start + self._writer.footer_bytes

    def write_section(self, name: str, table: pa.Table) -> None:
        """Append a section.

        If the last section has the same name, append the rows to it.

        Raises ValueError if an earlier section has the name.
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
        self._section_tables.append(table)
        self._section_rows += table.num_rows
        if self._section_rows >= self._row_group_rows:
            self._write_large_section(full_groups_only=True)

    def write_sections(self, counts: Mapping[str, int], table: pa.Table) -> None:
        """Append several sections at once, faster than one by one.

        Args:
            counts: The number of rows of each section, by name.
            table: The rows of all sections, one section after the other.

        Raises:
            ValueError: The counts do not add up to the rows, or a section with one of the names exists.
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

    def write_row_groups(self, name: str, tables: Iterable[pa.Table]) -> None:
        """Append a section in which tables do not share row groups.

        A table with rows becomes one row group, or several if it has more than `ROW_GROUP_ROWS` rows.

        Raises ValueError if there is a section of that name.
        """
        if name in self._sections:
            raise ValueError(f"section {name!r} of {self._store.uri(self._path)} is already ended")
        self._end_section()
        self._write_shared()
        self._current, self._sections[name] = None, 0
        self._last_start = self._writer.row_group_bytes
        for table in tables:
            self._writer.write_table(table, max(1, table.num_rows))
            self._sections[name] += table.num_rows

    def __enter__(self) -> SectionWriter:
        self._writer = self._stack.enter_context(
            self._store.parquet_writer(
                self._path,
                self._schema,
                ParquetOptions(
                    minimal=self._minimal,
                    bounded_columns=self._bounded,
                    plain_columns=self._plain,
                    adds_compact_footer=self._adds_compact_footer,
                ),
            )
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
            self._row_group_bytes = self._writer.row_group_bytes
            counts = list(self._sections.values())
            firsts = accumulate(counts, initial=0)
            index = [[name, first, count] for name, first, count in zip(self._sections, firsts, counts, strict=False)]
            self._writer.add_metadata({SECTIONS: json.dumps(index, ensure_ascii=False)})
            if self._constants:
                constants = json.dumps(self._constants, ensure_ascii=False)
                self._writer.add_metadata({CONSTANTS: constants, CONSTANTS_CRC: str(zlib.crc32(constants.encode()))})

    def _end_section(self) -> None:
        """End the current section.

        Rows of a large section that are still in memory are written, without rows of other sections in the row group.
        Rows of a small section stay in memory, until several small sections fill a row group that they share.
        """
        if self._section_begun or self._section_rows >= self._large:
            self._write_large_section(full_groups_only=False)
        else:
            tables, self._section_tables, self._section_rows = self._section_tables, [], 0
            for table in tables:
                self._share(table)
        self._section_begun = False

    def _share(self, table: pa.Table) -> None:
        """Collect rows of small sections.

        When there are as many collected rows as a large section must have, all of them are written.
        """
        if table.num_rows:
            self._shared_tables.append(table)
            self._shared_rows += table.num_rows
        if self._shared_rows >= self._large:
            self._write_shared()

    def _write_shared(self) -> None:
        if self._shared_tables:
            self._writer.write_table(pa.concat_tables(self._shared_tables), self._row_group_rows)
        self._shared_tables, self._shared_rows = [], 0

    def _write_large_section(self, *, full_groups_only: bool) -> None:
        """Write the collected rows of the current section to row groups of its own.

        With `full_groups_only`, the last rows wait until they fill a row group.
        """
        self._write_shared()
        if not self._section_tables:
            return
        table = pa.concat_tables(self._section_tables)
        start = 0
        # A large section begins with a small row group, so that reading its first rows is cheap.
        if not self._section_begun and table.num_rows >= _MIN_ROWS_WITH_HEAD:
            start = _HEAD_ROWS
            self._writer.write_table(table.slice(0, start), self._row_group_rows)
        rows = table.num_rows - start
        stop = start + (rows // self._row_group_rows * self._row_group_rows if full_groups_only else rows)
        self._writer.write_table(table.slice(start, stop - start), self._row_group_rows)
        remaining = table.slice(stop)
        self._section_tables = [remaining] if remaining.num_rows else []
        self._section_rows = remaining.num_rows
        self._section_begun = True


class RowGroupCache(SizedCache[tuple[object, ...], pa.Table]):
    """A cache of the most recently used row groups of one or more files.

    Threads can share it.
    """

    def __init__(self, max_bytes: int, max_groups: int | None = None) -> None:
        """Create a cache.

        Args:
            max_bytes: Maximum size in memory of all row groups.
            max_groups: Maximum number of row groups; None means any number.
        """
        super().__init__(max_bytes, attrgetter("nbytes"), max_groups)


class SectionReader:
    """A reader of the sections of one file.

    Opening it reads the footer. Threads can share it.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        footer_bytes: int = 0,
        cache: RowGroupCache | None = None,
        compact_footer: CompactFooterRange | None = None,
    ) -> None:
        """Open a file.

        Args:
            store: The store of the file.
            path: Path of the file in the store.
            footer_bytes: Number of bytes after the row groups; 0 if unknown. If known, one request reads the footer.
            cache: A cache of row groups that other readers may share; None to cache only the last one read.
            compact_footer: Position of the compact footer; None if there is none.
        """
        self._store = store
        self._path = path
        self._uri = store.uri(path)
        self._file = SharedParquet(store, path, footer_bytes, compact_footer)
        group_rows, self._group_bytes = self._file.group_sizes()
        """Decompressed size of each row group in bytes."""
        self._group_starts = list(accumulate(group_rows, initial=0))
        metadata = self._file.key_value_metadata
        self._sections = _sections(metadata, self._group_starts[-1], self._uri)
        self.constants = _constants(metadata, self._uri)
        """The values of columns that are not stored, because all rows have the same value, by name."""
        self._cache = cache or RowGroupCache(_MAX_CACHED_BYTES, 1)

    @property
    def sections(self) -> Mapping[str, Section]:
        """The sections by name, in file order."""
        return self._sections

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows of all sections, as written."""
        with self._file.acquire_groups([]) as (file, _):
            return file.schema_arrow.remove_metadata()

    @property
    def byte_count(self) -> int:
        """Decompressed size of all rows in bytes."""
        return sum(self._group_bytes)

    def read_section(self, name: str, limit: int | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a section.

        Raises KeyError if there is no such section.

        Args:
            name: The section.
            limit: Maximum number of rows, counted from the first row of the section; None for all rows.
            columns: The columns to read; None for all.
        """
        if limit is None:
            return run_reading(self._store, self.section_reading(name, columns))
        section = self._sections[name]
        count = min(section.row_count, max(0, limit))
        groups = self._groups_of(section._replace(row_count=count))
        skipped_rows = section.first_row - self._group_starts[groups[0]] if groups else 0
        names = None if columns is None else list(columns)
        with parquet_errors(self._uri), self._file.acquire_groups(groups) as (file, numbers):
            if not groups:
                return file.read_row_groups(numbers, columns=names)
            table = _read_first(file, numbers, skipped_rows + count, names)
        return table.slice(skipped_rows, count)

    def section_reading(self, name: str, columns: Sequence[str] | None = None) -> Reading[pa.Table]:
        """Return a reading that reads all rows of a section, as `read_section` does."""
        section = self._sections[name]
        groups = self._groups_of(section)
        skipped_rows = section.first_row - self._group_starts[groups[0]] if groups else 0
        names = None if columns is None else list(columns)
        key = (self._path, groups[0], None if names is None else tuple(names)) if len(groups) == 1 else None
        table = None if key is None else self._cache.get(key)
        with parquet_errors(self._uri):
            if table is None:
                with self._file.acquire_groups(groups) as (file, numbers):
                    table = yield from file.reading(numbers, names)
                if key is not None:
                    self._cache.put(key, table)
            return table.slice(skipped_rows, section.row_count)

    def stream_section(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of a section in parts of a few megabytes, with all columns or some.

        Raises KeyError if there is no such section.
        """
        section = self._sections[name]
        first, stop = section.first_row, section.first_row + section.row_count
        groups = deque(self._groups_of(section))
        while groups:
            batch: list[int] = []
            size = 0
            while groups and (not batch or size < _STREAMED_BYTES):
                size += self._group_bytes[groups[0]]
                batch.append(groups.popleft())
            with self._file.acquire_groups(batch) as (file, numbers), parquet_errors(self._uri):
                table = file.read_row_groups(numbers, columns)
            start, end = self._group_starts[batch[0]], self._group_starts[batch[-1] + 1]
            yield table.slice(max(first - start, 0), min(stop, end) - max(first, start))

    def rows_between(self, name: str, low: Any, high: Any) -> tuple[int, int]:
        """Return (first row, row count) of the part of a section that may have keys from `low` to `high`.

        The part consists of complete row groups. The result is (0, 0) if no row group may have such a key. Only the
        footer is read.

        Args:
            name: A section that is sorted by the first column, the key. Its first row has the number 0.
            low: The least key, inclusive.
            high: The greatest key, inclusive.
        """
        first, count = self._sections[name]
        starts = [
            (max(start, first), min(end, first + count))
            for (start, end), bounds in zip(pairwise(self._group_starts), self._key_bounds, strict=True)
            if start < first + count and end > first and (bounds is None or (bounds[0] <= high and bounds[1] >= low))
        ]
        return (starts[0][0] - first, starts[-1][1] - starts[0][0]) if starts else (0, 0)

    def read_sections(
        self, names: Sequence[str], columns: Sequence[str] | None = None, rows: tuple[int, int] | None = None
    ) -> dict[str, pa.Table]:
        """Return {name: rows} of several sections, from one read.

        Raises KeyError if a section is missing.

        Args:
            names: The sections.
            columns: The columns to read; None for all.
            rows: (first row, row count), to read the same rows of each section; None for all rows.
        """
        return run_reading(self._store, self.sections_reading(names, columns, rows))

    def sections_reading(
        self, names: Sequence[str], columns: Sequence[str] | None = None, rows: tuple[int, int] | None = None
    ) -> Reading[dict[str, pa.Table]]:
        """Return a reading that reads several sections, as `read_sections` does."""
        sections = {name: self._sections[name] for name in names}
        if rows is not None:
            sections = {name: Section(section.first_row + rows[0], rows[1]) for name, section in sections.items()}
        order = sorted({group for section in sections.values() for group in self._groups_of(section)})
        with self._file.acquire_groups(order) as (file, numbers), parquet_errors(self._uri):
            table = yield from file.reading(numbers, columns)
        sizes = (self._group_starts[group + 1] - self._group_starts[group] for group in order)
        # The first row of each row group that was read, in the table of all of them.
        starts = dict(zip(order, accumulate(sizes, initial=0), strict=False))
        tables = {}
        for name, section in sections.items():
            groups = self._groups_of(section)
            start = starts[groups[0]] + section.first_row - self._group_starts[groups[0]] if groups else 0
            tables[name] = table.slice(start, section.row_count)
        return tables

    def _groups_of(self, section: Section) -> range:
        """Return the numbers of the row groups that have rows of a section."""
        first = bisect_right(self._group_starts, section.first_row) - 1
        end = bisect_left(self._group_starts, section.first_row + section.row_count)
        return range(first, end) if section.row_count else range(0)

    def find_rows(self, selection: KeySelection, names: Sequence[str]) -> dict[str, pa.Table]:
        """Return {name: selected rows} of several sections.

        Raises KeyError if a section is missing.

        Row groups are skipped if the bounds of their keys exclude all selected keys.

        Args:
            selection: The keys to find in the first column.
            names: The sections, each sorted by the first column.
        """
        sections = {name: self._sections[name] for name in names}
        groups = [
            group for group, bounds in enumerate(self._key_bounds) if bounds is None or selection.overlaps(*bounds)
        ]
        parts: dict[str, list[pa.Table]] = {name: [] for name in names}
        with parquet_errors(self._uri):
            groups = [group for group in groups if self._may_have_key(group, selection, sections)]
            tables = self._read_groups(groups)
            for group, table in zip(groups, tables, strict=True):
                for name, first, count in self._section_parts(group, sections):
                    parts[name].append(selection.filter(table.slice(first, count)))
            empty = tables[0].slice(0, 0) if tables else self._empty
        return {name: pa.concat_tables(tables or [empty]) for name, tables in parts.items()}

    @lock_free_cached_property
    def _empty(self) -> pa.Table:
        with self._file.acquire_groups([]) as (file, _):
            return file.read_row_groups([])

    def _section_parts(self, group: int, sections: Mapping[str, Section]) -> Iterator[tuple[str, int, int]]:
        """Yield (name, first row, row count) for each section with rows in a row group.

        The first row of the row group has the number 0.
        """
        start, stop = self._group_starts[group : group + 2]
        for name, section in sections.items():
            first, end = max(start, section.first_row), min(stop, section.first_row + section.row_count)
            if first < end:
                yield name, first - start, end - first

    def _may_have_key(self, group: int, selection: KeySelection, sections: Mapping[str, Section]) -> bool:
        """Return whether a row group may have a selected key in one of the sections.

        If the row group is large and not cached, and `selection` is a KeySet, its keys are read to find this out.
        """
        if self._group_bytes[group] < _LARGE_GROUP_BYTES or not isinstance(selection, KeySet):
            return True
        if self._cache.get((self._path, group, None)) is not None:
            return True
        with self._file.acquire_groups([group]) as (file, (number,)):
            keys = file.read_row_group(number, [file.metadata.row_group(number).column(0).path_in_schema])
        # The keys are sorted within a section, not within a row group that several sections share.
        parts = self._section_parts(group, sections)
        return any(len(selection.filter(keys.slice(first, count))) for _, first, count in parts)

    @lock_free_cached_property
    def _key_bounds(self) -> Sequence[Bounds | None]:
        return self._file.key_bounds()

    @property
    def least_key(self) -> Any:
        """A lower bound of the values of the first column, from the file's metadata; None if it is unknown."""
        bounds = self._key_bounds
        return None if None in bounds else min((each[0] for each in bounds if each is not None), default=None)

    def release(self) -> None:
        """Forget the footer, except what is needed to find rows in cached row groups.

        A later read reads it again.
        """
        _ = self._key_bounds
        self._file.release()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> SectionReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read_groups(self, groups: Sequence[int]) -> list[pa.Table]:
        """Return the rows of each row group, from the cache or from one read."""
        cached_tables = [self._cache.get((self._path, group, None)) for group in groups]
        missing = [group for group, table in zip(groups, cached_tables, strict=True) if table is None]
        by_group: dict[int, pa.Table] = {}
        if missing:
            with self._file.acquire_groups(missing) as (file, numbers):
                read = file.read_row_groups(numbers)
            first = 0
            for group in missing:
                count = self._group_starts[group + 1] - self._group_starts[group]
                by_group[group] = read.slice(first, count)
                first += count
                if read.nbytes <= self._cache.max_bytes:  # A slice holds the memory of the whole read.
                    self._cache.put((self._path, group, None), by_group[group])
        return [by_group[group] if table is None else table for group, table in zip(groups, cached_tables, strict=True)]


def _read_first(file: ParquetObject, groups: list[int], rows: int, columns: list[str] | None) -> pa.Table:
    """Return at least the first `rows` rows of row groups, without decoding many more."""
    batches = []
    for batch in file.iter_batches(min(rows, ROW_GROUP_ROWS), row_groups=groups, columns=columns):
        batches.append(batch)
        rows -= batch.num_rows
        if rows <= 0:
            break
    return pa.Table.from_batches(batches)


def _sections(metadata: Mapping[bytes, bytes], rows: int, uri: str) -> dict[str, Section]:
    """Return the sections that a file's metadata lists, by name.

    Args:
        metadata: Key-value metadata of the file.
        rows: Number of rows in the file, to which the sections must add up.
        uri: URI of the file, for the message.

    Raises:
        CorruptionError: There is no valid list.
    """
    try:
        index = parse_json(metadata[SECTIONS.encode()])
        sections = {name: Section(first, count) for name, first, count in index}
        if sum(section.row_count for section in sections.values()) != rows:
            raise ValueError("the sections do not add up to the rows")
    except (KeyError, ValueError, TypeError) as error:
        raise CorruptionError(
            f"{uri} lacks a valid list of its sections ({error}); rebuild with `metastore refresh NAME --full`"
        ) from error
    return sections


def _constants(metadata: Mapping[bytes, bytes], uri: str) -> Mapping[str, Any]:
    """Return the value of each constant column of a file, by name of the column.

    A constant column has the same value in all rows. The file has this value only in its metadata.

    Args:
        metadata: Key-value metadata of the file.
        uri: URI of the file, for the message.

    Raises:
        CorruptionError: The list of these values in the metadata is invalid, or does not match its checksum.
    """
    encoded_constants = metadata.get(CONSTANTS.encode())
    if encoded_constants is None:
        return {}
    try:
        if zlib.crc32(encoded_constants) != int(metadata.get(CONSTANTS_CRC.encode(), b"")):
            raise ValueError("its checksum is another")
        return mapping(parse_json(encoded_constants), CONSTANTS)
    except ValueError as error:
        raise CorruptionError(
            f"{uri} lacks a valid list of constant columns ({error}); rebuild with `metastore refresh NAME --full`"
        ) from error
