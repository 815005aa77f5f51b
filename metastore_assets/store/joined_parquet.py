"""Row groups of several Parquet files with the same columns, read as if they were in one file.

A lookup of 100 partitions in ten million fragments (data files with their deletes) reads row groups of about 90 files.
Reading the files one by one takes twice the CPU time of reading the same row groups of one file.

A reading is a generator: in each step, it yields what it needs next, and is sent the data (see `store.read_rounds`).
Besides byte ranges, it may request row groups (`RowGroups`), and is sent tables. The row groups that several readings
need in the same step are read with one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError
from metastore_assets.storage.object_store import RangedFile
from metastore_assets.store.backend import Input
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import ParquetObject, open_parquet, parquet_errors
from metastore_assets.store.parquet_footers import (
    CHUNK_NUMBERS,
    COMPRESSED,
    DATA_START,
    DividedFooter,
    Numbers,
    PackedFooter,
    encode_row_groups,
    parse_footer,
    split_parts,
)
from metastore_assets.store.prefetch import FetchedRanges
from metastore_assets.store.read_rounds import ByteRange, Reading, join_readings, run_reading

_OFFSET_BITS = 32
"""The offsets of a file with the number n begin at n << 32. Files must be smaller than that."""
_MAX_GAP_BYTES = 16 << 10
"""Maximum number of bytes between two ranges that one request fetches."""

Result = TypeVar("Result")


class _SharedParts(NamedTuple):
    """The parts that the footers of several files have in common."""

    head: bytes
    """The fields before the number of rows: version and schema."""
    chunk_heads: tuple[bytes, ...]
    """The first fields of the metadata of each column chunk."""


@dataclass(frozen=True, eq=False)
class RowGroups:
    """A request of a reading: row groups of files with the same columns.

    The reading is sent a table with their rows, in order.
    """

    paths: Mapping[int, str]
    """{number of a file: its path}. Offsets of file n begin at `n << 32`."""
    files: Sequence[int]
    """For each row group, the number of its file."""
    shared: _SharedParts
    tail: bytes
    """The fields after the row groups in the footer of a file."""
    row_counts: Numbers
    """The number of rows of each row group."""
    chunks: Numbers
    """The four numbers of each column chunk (see `encode_row_groups`)."""
    starts: Numbers
    """The offset of each column chunk, by row group and column."""
    columns: tuple[str, ...]
    """The columns to read."""

    @property
    def row_count(self) -> int:
        """The number of rows of all row groups."""
        return int(self.row_counts.sum())


class JoinedParquet:
    """Several Parquet files with the same columns, whose row groups are numbered as if in one file.

    Threads can share the object.
    """

    def __init__(self, store: ObjectStore, paths: Mapping[int, str], footers: Sequence[PackedFooter]) -> None:
        """Join files.

        Nothing is read.

        Args:
            store: The store of the files.
            paths: {number of a file, below 2**28: its path}, in the order of the rows.
            footers: The footer of each file. All footers must have the same `head`. All footers with row groups must
                have the same `chunk_heads`. This is not checked.

        Raises:
            CorruptionError: The footers are damaged.
        """
        self._store = store
        self._paths = paths
        self._tail = footers[0].tail
        self.group_counts: Numbers = np.array([footer.group_count for footer in footers], np.int64)
        """The number of row groups of each file."""
        self._first_uri = store.uri(next(iter(paths.values())))
        with parquet_errors(self._first_uri):
            heads = split_parts(next((part for footer in footers if (part := footer.chunk_heads)), b""))
            data = b"".join(footer.row_groups for footer in footers)
            width = 1 + CHUNK_NUMBERS * len(heads)
            numbers = np.frombuffer(data, "<u4").reshape(int(self.group_counts.sum()), width)
        self._shared = _SharedParts(footers[0].head, tuple(heads))
        self.row_counts: Numbers = numbers[:, 0].astype(np.int64)
        """The number of rows of each row group."""
        self._chunks = numbers[:, 1:].reshape(len(numbers), len(heads), CHUNK_NUMBERS)
        self._files = np.repeat(np.array([*paths], np.int64), self.group_counts)
        """The number of the file of each row group."""

    @lock_free_cached_property
    def columns(self) -> frozenset[str]:
        """The columns of the files.

        Raises CorruptionError if the footers are damaged.
        """
        with parquet_errors(self._first_uri):
            return frozenset(parse_footer(DividedFooter(self._shared.head, b"", self._tail, 0, 0)).schema.names)

    @lock_free_cached_property
    def _starts(self) -> Numbers:
        """The offset of each column chunk, by row group and column."""
        sizes = self._chunks[:, :, COMPRESSED].astype(np.int64)
        starts: Numbers = (np.cumsum(sizes) - sizes.ravel()).reshape(sizes.shape)
        first_groups = np.cumsum(self.group_counts) - self.group_counts
        firsts = np.repeat(first_groups, self.group_counts)
        starts += DATA_START - starts[firsts, :1] + (self._files << _OFFSET_BITS)[:, None]
        return starts

    def read_row_groups(self, groups: Sequence[int] | Numbers, columns: Sequence[str]) -> pa.Table:
        """Return the rows of `groups`, one row group after the other, with some columns.

        Row groups are numbered from 0, through all files.

        Raises CorruptionError, which names the damaged file.
        """
        return run_joined_reading(self._store, self.reading(groups, columns))

    def reading(self, groups: Sequence[int] | Numbers, columns: Sequence[str]) -> Reading[pa.Table]:
        """Return a reading that yields one request for row groups, and returns their rows.

        The arguments are those of `read_row_groups`, with at least one row group. `run_joined_reading` runs the
        reading.
        """
        at = np.asarray(groups, np.int64)
        files: list[int] = self._files[at].tolist()
        (table,) = yield [
            RowGroups(
                {number: self._paths[number] for number in files},
                files,
                self._shared,
                self._tail,
                self.row_counts[at],
                self._chunks[at],
                self._starts[at],
                tuple(columns),
            )
        ]
        return table


def run_joined_reading(store: ObjectStore, reading: Reading[Result]) -> Result:
    """Run a reading that may request row groups, and return its result.

    The row groups that it requests in one step are read together.
    """
    return run_reading(store, _read_row_groups(store, reading))


def _read_row_groups(store: ObjectStore, reading: Reading[Result]) -> Reading[Result]:
    """Return a reading that yields only byte ranges, and runs `reading`, which may request row groups.

    Both readings have the same result.
    """
    try:
        requests = next(reading)
        while True:
            groups = [request for request in requests if isinstance(request, RowGroups)]
            ranges = [request for request in requests if not isinstance(request, RowGroups)]
            data, tables = yield from join_readings([_pass_on(ranges), _read_together(store, groups)])
            answers, tables_left = iter(data), iter(tables)
            requests = reading.send(
                [next(tables_left if isinstance(request, RowGroups) else answers) for request in requests]
            )
    except StopIteration as stop:
        result: Result = stop.value
        return result


def _pass_on(ranges: Sequence[ByteRange]) -> Reading[Sequence[Any]]:
    return (yield ranges) if ranges else []


def _read_together(store: ObjectStore, requests: Sequence[RowGroups]) -> Reading[Sequence[Any]]:
    """Read the row groups of several requests, and return the table of each.

    Requests for the same columns of files with the same schema are read as those of one file. Requests in which
    the same file number means different files are read separately.
    """
    batches: list[_Batch] = []
    for at, request in enumerate(requests):
        for batch in batches:
            if batch.accepts(request):
                break
        else:
            batch = _Batch(store, request)
            batches.append(batch)
        batch.add(at, request)
    tables: dict[int, pa.Table] = {}
    for part in (yield from join_readings([batch.reading() for batch in batches])):
        tables |= part
    return [tables[at] for at in range(len(requests))]


class _Batch:
    """Requests whose row groups are read as those of one file."""

    def __init__(self, store: ObjectStore, first: RowGroups) -> None:
        self._store = store
        self._first = first
        self._paths: dict[int, str] = {}
        self._requests: dict[int, RowGroups] = {}

    def accepts(self, request: RowGroups) -> bool:
        """Return whether a request can be added to the batch.

        The request must have the columns and the schema of the first request. If a file number of the request is
        already in the batch, both must mean the same file.
        """
        first = self._first
        return (request.columns, request.shared) == (first.columns, first.shared) and all(
            self._paths.get(number, path) == path for number, path in request.paths.items()
        )

    def add(self, at: int, request: RowGroups) -> None:
        """Add a request, with `at` as the number of its table in the result of `reading`."""
        self._requests[at] = request
        self._paths.update(request.paths)

    def reading(self) -> Reading[dict[int, pa.Table]]:
        """Read the row groups of all requests, and return {number of a request: its table}."""
        first_uri = self._store.uri(next(iter(self._paths.values())))
        with parquet_errors(first_uri):
            metadata = self._join_footers()
        source = _JoinedInput(self._store, self._paths)
        opened_input = Input(pa.PythonFile(source, mode="r"), source.fetched_ranges)
        with open_parquet(opened_input, first_uri, metadata) as file:
            try:
                table = yield from file.reading(range(metadata.num_row_groups), self._first.columns)
            except CorruptionError:
                self._raise_damage(file)
                raise
        tables = {}
        start = 0
        for at, request in self._requests.items():
            tables[at] = table.slice(start, request.row_count)
            start += request.row_count
        return tables

    def _join_footers(self) -> pq.FileMetaData:
        """Return a footer with the row groups of all requests."""
        requests = self._requests.values()
        row_counts, chunks, starts = (
            np.concatenate(parts)
            for parts in zip(*((part.row_counts, part.chunks, part.starts) for part in requests), strict=True)
        )
        head, chunk_heads = self._first.shared
        row_groups = encode_row_groups(chunk_heads, row_counts, chunks.astype(np.int64), starts)
        footer = DividedFooter(head, row_groups, self._first.tail, int(row_counts.sum()), len(row_counts))
        return parse_footer(footer)

    def _raise_damage(self, file: ParquetObject) -> None:
        """Read row groups one by one, and raise CorruptionError with the path of the first damaged file.

        Nothing is raised if no file is damaged.
        """
        for group, number in enumerate(self._files()):
            try:
                file.read_row_groups([group], self._first.columns)
            except CorruptionError as error:
                with parquet_errors(self._store.uri(self._paths[number])):
                    raise error.__cause__ or error from None

    def _files(self) -> Iterator[int]:
        """Yield the number of the file of each row group, in the order of the requests."""
        for request in self._requests.values():
            yield from request.files


class _JoinedInput(RangedFile):
    """Several files that are read as if they were one.

    The bytes of the file with the number n begin at the offset `n << 32`.
    """

    def __init__(self, store: ObjectStore, paths: Mapping[int, str]) -> None:
        super().__init__((max(paths) + 1) << _OFFSET_BITS)
        self._store = store
        self._paths = paths
        self.fetched_ranges = FetchedRanges(
            self._read_range, self._locate, is_parallel=store.is_remote, max_gap_bytes=_MAX_GAP_BYTES
        )

    def fetch(self, start: int, end: int) -> bytes:
        fetched_bytes = self.fetched_ranges.find(start, end)
        return self._read_range(start, end) if fetched_bytes is None else fetched_bytes

    def _read_range(self, start: int, end: int) -> bytes:
        return self._store.read_range(*self._locate(start, end))

    def _locate(self, start: int, end: int) -> ByteRange:
        number, offset = divmod(start, 1 << _OFFSET_BITS)
        return self._paths[number], offset, offset + end - start
