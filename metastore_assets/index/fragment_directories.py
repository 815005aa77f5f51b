"""The directories of a fragment index, with which a lookup opens few of the index's files.

A fragment is a data file with its deletes. A segment is a part of the index. A large segment has two files for each
range of keys. One has the fragments and the tombstones (keys of removed fragments). The other has flat columns: bounds
and counts. A zone is a run of fragments, with bounds that cover all of them.

A directory describes up to 64 ranges. For each range, it has the zones, and one row of the schema `RANGES` with the
Parquet footers of the two files. So lookups read the files of these ranges as if they were one file.

A reading is a generator: in each step, it yields the byte ranges or row groups that it needs next, and is sent the data
(see `store.read_rounds`). So the requests of several readings can be made together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.index.flat_columns import complete_columns
from metastore_assets.index.fragment_index import KEY, join_keys
from metastore_assets.index.row_ranges import Numbers, RowRanges
from metastore_assets.store.joined_parquet import JoinedParquet
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet_footers import PackedFooter
from metastore_assets.store.read_rounds import Reading, run_reading
from metastore_assets.store.sections import SectionReader
from metastore_assets.store.segments import SegmentFile, SegmentFiles
from metastore_assets.values.physical import one_chunk

ZONES = "zones"
"""Name of the section with the zones, in a directory. Its key columns are null except in the first zone of each row
group of fragments, which has the key of its first fragment."""
RANGE_SECTION = "ranges"
"""Name of the section with the rows of `RANGES`, in a directory."""
RANGES = pa.schema(
    [
        ("path", pa.large_string()),
        ("fragments", pa.int64()),
        ("tombstones", pa.int64()),
        ("zones", pa.int64()),
        ("number", pa.int64()),
        *(
            (f"{kind}_{name}", type_)
            for kind in ("fragments", "columns")
            for name, type_ in (
                ("head", pa.large_binary()),
                ("chunk_heads", pa.large_binary()),
                ("tail", pa.large_binary()),
                ("row_groups", pa.large_binary()),
                ("group_count", pa.int64()),
            )
        ),
    ]
)
"""Columns that describe a range of keys: the path of its file of fragments, how many fragments, tombstones and zones it
has, the `number` of its files in a `JoinedParquet`, and the footer of each of its two files (see `PackedFooter`)."""
SHARED = ("path", "fragments")
"""Columns that both `RANGES` and zones have."""


class SegmentDirectory(ABC):
    """A directory of some key ranges of a segment: their zones, and what is needed to open their files."""

    uri = "the directory of new files"
    """URI of the directory's file, for messages."""

    @property
    @abstractmethod
    def zone_schema(self) -> pa.Schema:
        """The columns of the zones."""

    @abstractmethod
    def read_ranges(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of `RANGES`, with a row for each described range, by ascending key."""

    @abstractmethod
    def read_zones(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the zones of all described ranges, by ascending key."""

    @abstractmethod
    def zones_reading(self, columns: Sequence[str]) -> Reading[pa.Table]:
        """Return a reading of zones, which returns the same table as `read_zones`."""


class StoredDirectory(SegmentDirectory):
    """A directory that is stored in a file.

    The file is opened on first use.
    """

    def __init__(self, store: ObjectStore, file: SegmentFile) -> None:
        self._store = store
        self._file = file
        self.uri = store.uri(file.path)

    @lock_free_cached_property
    def _main(self) -> SectionReader:
        return SectionReader(self._store, self._file.path, self._file.footer_bytes)

    @lock_free_cached_property
    def zone_schema(self) -> pa.Schema:
        schema = self._main.schema
        return pa.schema([field for field in schema if field.name not in RANGES.names or field.name in SHARED])

    def read_ranges(self, columns: Sequence[str]) -> pa.Table:
        return run_reading(self._store, self._reading(RANGE_SECTION, columns))

    def read_zones(self, columns: Sequence[str]) -> pa.Table:
        return run_reading(self._store, self.zones_reading(columns))

    def zones_reading(self, columns: Sequence[str]) -> Reading[pa.Table]:
        return self._reading(ZONES, columns)

    def _reading(self, section: str, columns: Sequence[str]) -> Reading[pa.Table]:
        try:
            return (yield from self._main.section_reading(section, columns)).select(list(columns))
        except KeyError as error:
            raise missing_section(self.uri, error) from error


@dataclass(frozen=True, eq=False)
class WrittenDirectory(SegmentDirectory):
    """The directory of one range whose files were just written, in memory only.

    At the end of the commit, its rows are written to a stored directory, together with those of other ranges. If the
    commit has replaced the files by then, the rows are dropped.
    """

    ranges: pa.Table
    zones: pa.Table

    @property
    def zone_schema(self) -> pa.Schema:
        return self.zones.schema

    def read_ranges(self, columns: Sequence[str]) -> pa.Table:
        return self.ranges.select(list(columns))

    def read_zones(self, columns: Sequence[str]) -> pa.Table:
        return self.zones.select(list(columns))

    def zones_reading(self, columns: Sequence[str]) -> Reading[pa.Table]:
        yield from ()
        return self.read_zones(columns)


class DirectoryPart:
    """A view of a directory that has only some of the key ranges that the directory describes.

    The reader of a segment selects the ranges that the segment still uses.
    """

    def __init__(self, directory: SegmentDirectory, paths: Sequence[str]) -> None:
        """Select some of the key ranges that a directory describes.

        Args:
            directory: The directory.
            paths: The path of the file of fragments of each selected range, by ascending key.
        """
        self._directory = directory
        self._paths = paths

    @property
    def zone_schema(self) -> pa.Schema:
        """The columns of the zones."""
        return self._directory.zone_schema

    def read_ranges(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of `RANGES`, with a row for each range that the constructor selected."""
        table = self._directory.read_ranges(columns)
        return table if self._all_zones is None else table.take(pa.array(self._numbers))

    def read_zones(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the zones, with a row for each zone of the selected ranges."""
        return self._select_zones(self._directory.read_zones(columns))

    def zones_reading(self, columns: Sequence[str]) -> Reading[pa.Table]:
        """Return a reading of zones, which returns the same table as `read_zones`."""
        return self._select_zones((yield from self._directory.zones_reading(columns)))

    def _select_zones(self, table: pa.Table) -> pa.Table:
        return table if self._all_zones is None else table.take(pa.array(self._all_zones.positions()))

    @lock_free_cached_property
    def counts(self) -> pa.Table:
        """The numbers of fragments and tombstones of each selected range, as columns of `RANGES`."""
        return self._summary.select(["fragments", "tombstones"]).take(pa.array(self._numbers))

    @lock_free_cached_property
    def _summary(self) -> pa.Table:
        """The small columns of `RANGES`, for all ranges of the directory.

        All are read at once, because each read takes half a millisecond.
        """
        return self._directory.read_ranges(["path", "fragments", "tombstones", "zones"])

    @lock_free_cached_property
    def _numbers(self) -> Numbers:
        """The position of each selected range's row in the directory's `read_ranges` table.

        Raises CorruptionError if the directory has no row for one of these ranges.
        """
        paths = one_chunk(self._summary["path"])
        numbers = pc.index_in(pa.array(self._paths, paths.type), value_set=paths)
        if numbers.null_count:
            path = self._paths[numbers.is_null().index(True).as_py()]
            raise CorruptionError(f"{self._directory.uri} lacks {path}; rebuild with `metastore refresh NAME --full`")
        return numbers.to_numpy().astype(np.int64)

    @lock_free_cached_property
    def _all_zones(self) -> RowRanges | None:
        """The positions, in the whole directory, of the zones of the selected ranges.

        None if all ranges of the directory are selected.
        """
        counts = self._summary["zones"].to_numpy()
        if np.array_equal(self._numbers, np.arange(len(counts))):
            return None
        ends = np.cumsum(counts)
        return RowRanges((ends - counts)[self._numbers], ends[self._numbers])


class RangeFiles:
    """A reader of the files of several consecutive ranges as if they were one file.

    It reads one file per range: either the files with fragments, or the files with flat columns (see `flat_columns`).
    The first fragment of the first file has position 0. A file with fragments ends with tombstones, which have no
    positions.

    Threads can share the object.
    """

    def __init__(self, store: ObjectStore, kind: str, paths: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Prepare to read the files.

        Nothing is read.

        Args:
            store: The table's folder.
            kind: Which file of each range: `fragments` or `columns`.
            paths: The path of each file.
            rows: For each range, its row of the schema `RANGES`, as a dict. No two rows may have the same `number`,
                because it identifies a file when all are read as one. This is not checked.
        """
        names = [f"{kind}_{field.name}" for field in dataclass_fields(PackedFooter)]
        footers = [PackedFooter(*(row[name] for name in names)) for row in rows]
        self._file = JoinedParquet(store, {row["number"]: path for row, path in zip(rows, paths, strict=True)}, footers)
        self._store = store
        counts = np.array([row["fragments"] for row in rows], np.int64)
        self.range_count = len(rows)
        """Number of ranges."""
        self.row_count = int(counts.sum())
        """Number of fragments."""
        sizes, group_counts = self._file.row_counts, self._file.group_counts
        self._first_groups = np.cumsum(np.append(0, group_counts))
        # The position of each row group in its file.
        starts = np.cumsum(sizes) - sizes
        starts -= np.repeat(np.append(starts, 0)[self._first_groups[:-1]], group_counts)
        self._has_fragments = starts < np.repeat(counts, group_counts)
        self._groups = np.flatnonzero(self._has_fragments)
        """The row groups with fragments, ascending."""
        self._starts = (starts + np.repeat(np.cumsum(counts) - counts, group_counts))[self._groups]
        """The position of the first fragment of each of these row groups."""
        self._ends = self._starts + sizes[self._groups]
        """The position after the last fragment of each of them."""

    def read_tombstones(self, number: int) -> pa.Array:
        """Return the sorted tombstones of one range.

        `number` is the position of this range among the ranges of this reader, from 0.
        """
        first, end = self._first_groups[number : number + 2].tolist()
        return join_keys(self._file.read_row_groups(first + np.flatnonzero(~self._has_fragments[first:end]), KEY))

    def reading(self, columns: pa.Schema, ranges: RowRanges) -> Reading[pa.Table]:
        """Return a reading of some columns of the rows in `ranges`.

        Row groups without such rows are not read. Flat columns that the files do not have are added (see
        `complete_columns`).
        """
        at = np.flatnonzero(ranges.overlaps(self._starts, self._ends))
        names = [name for name in columns.names if name in self._file.columns]
        if len(names) < len(columns):
            names = list(dict.fromkeys(["row_count", *names]))
        table = yield from self._file.reading(self._groups[at], names)
        if ranges.row_count != len(table):
            table = ranges.pack(self._starts[at], self._ends[at]).take_rows(table)
        return table if table.column_names == columns.names else complete_columns(table, columns)


def open_directories(store: ObjectStore, files: SegmentFiles) -> dict[str, SegmentDirectory]:
    """Return {path of a range's file of fragments: the directory that describes the range}.

    Raises CorruptionError if a directory is missing.
    """
    numbers = directory_numbers(files)
    if any(file.path not in numbers for file in files.files if file.companion is not None):
        raise CorruptionError(
            f"{store.uri()}: a directory of the index is missing; rebuild with `metastore refresh NAME --full`"
        )
    directories = [StoredDirectory(store, file) for file in files.directories]
    return {path: directories[number] for path, number in numbers.items()}


def directory_numbers(files: SegmentFiles) -> dict[str, int]:
    """Return {path of a range's file of fragments: position of its directory in `files.directories`}."""
    paths = iter([file.path for file in files.files if file.companion is not None])
    return {path: number for number, file in enumerate(files.directories) for path in islice(paths, file.rows)}


def missing_section(uri: str, error: KeyError) -> CorruptionError:
    """Return the error for a file that lacks a section, which is a named part of a file.

    `error` is the KeyError that the section reader raised.
    """
    return CorruptionError(f"{uri} has no section {error}; rebuild with `metastore refresh NAME --full`")
