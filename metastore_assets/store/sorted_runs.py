"""Sorting of more rows than fit into memory, and the difference of two such sets of rows.

Rows are collected until they fill a run, which is sorted and written to a temporary file. Runs are merged when they are
read. Memory therefore depends little on the number of rows.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import pyarrow as pa

from metastore_assets.startup import pc
from metastore_assets.storage.temporary_folders import full_folder_errors
from metastore_assets.store.segment_merge import MergeSource, merge_segments, slice_rows

_RUN_BYTES = 16 << 20
"""Size of a run in memory. Sorting it takes about three times as much."""
_BATCH_ROWS = 4096
"""Maximum number of rows that are read at a time from each run."""
_BATCH_BYTES = 256 << 10
"""Maximum size in bytes of the rows that are read at a time from each run. Hundreds of runs may be open."""
_SIZE_BYTES = 8
"""Number of bytes before each batch in the file, which contain the batch's size."""
_COMPRESSION = pa.ipc.IpcWriteOptions(compression="lz4")


class SortedRuns:
    """Rows that are sorted by their first column, the key, partly in a temporary file.

    If several rows have the same key, only the last one added is retained. The end of the context manager deletes the
    file.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Create an empty set of rows with the columns of a schema, the key first."""
        self.schema = schema
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._runs: list[tuple[int, int]] = []
        """Start (inclusive) and end (exclusive) of each run in the temporary file."""
        self._file: IO[bytes] | None = None

    def add(self, rows: pa.Table) -> None:
        """Add rows, in any order."""
        if not len(rows):
            return
        self._tables.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= _RUN_BYTES:
            self._write_run()

    def add_keys(self, keys: pa.Array) -> None:
        """Add one row for each distinct key.

        The schema must have only one column, the key. Null keys are ignored.
        """
        self.add(pa.table([pc.unique(keys).drop_null().cast(self.schema.field(0).type)], schema=self.schema))

    def sources(self) -> list[MergeSource]:
        """Return the runs as sources for `merge_segments`, oldest first."""
        return [MergeSource(run, ()) for run in self._read_runs()]

    def tombstone_sources(self) -> list[MergeSource]:
        """Return the keys of each run as a source of tombstones (keys to remove) for `merge_segments`.

        The tombstones remove the rows with these keys from all sources that precede them in the list of sources.
        """
        return [MergeSource((), run) for run in self._read_runs()]

    def stream(self) -> Iterator[pa.Table]:
        """Yield all rows by ascending key, in tables of bounded size."""
        return (rows for rows, _ in merge_segments(self.sources(), self.schema) if len(rows))

    def close(self) -> None:
        """Delete the temporary file."""
        self._tables, self._runs = [], []
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> SortedRuns:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read_runs(self) -> list[Iterable[pa.Table]]:
        runs: list[Iterable[pa.Table]] = [self._read_run(start, end) for start, end in self._runs]
        return [*runs, slice_rows(self._sorted_rows(), _BATCH_ROWS)] if self._tables else runs

    def _sorted_rows(self) -> pa.Table:
        """Sort the rows in memory by key, in place, and return them.

        If rows have equal keys, only the last of them stays.
        """
        rows = pa.concat_tables(self._tables).combine_chunks()
        rows = rows.take(pc.sort_indices(rows.column(0)))
        keys = rows.column(0).combine_chunks()
        is_last = pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1))
        if not pc.all(is_last).as_py():
            rows = rows.filter(pa.concat_arrays([is_last, pa.array([True])]))
        self._tables, self._bytes = [rows], rows.nbytes
        return rows

    def _write_run(self) -> None:
        """Sort the rows in memory, and append them to the temporary file as one run."""
        rows = self._sorted_rows()
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (`close` closes it)
            weakref.finalize(self, self._file.close)
        start = self._file.tell()
        batch_rows = max(1, min(_BATCH_ROWS, len(rows) * _BATCH_BYTES // rows.nbytes))
        for batch in rows.to_batches(batch_rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.schema, options=_COMPRESSION) as writer:
                writer.write_batch(batch)
            data = sink.getvalue()
            with full_folder_errors():
                _write_all(self._file, data.size.to_bytes(_SIZE_BYTES, "little"))
                _write_all(self._file, data)
        self._runs.append((start, self._file.tell()))
        self._tables, self._bytes = [], 0

    def _read_run(self, start: int, end: int) -> Iterator[pa.Table]:
        """Yield the batches of the run between two positions in the temporary file."""
        assert self._file is not None
        while start < end:
            size = int.from_bytes(os.pread(self._file.fileno(), _SIZE_BYTES, start), "little")
            with pa.ipc.open_stream(os.pread(self._file.fileno(), size, start + _SIZE_BYTES)) as reader:
                yield reader.read_all()
            start += _SIZE_BYTES + size


class SortedTuples:
    """Tuples sorted by their first item, a text.

    Up to 4,095 new tuples are in a list. When there are more, they move to `SortedRuns`.

    If several tuples have the same first item, only the last one added is retained.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Create an empty set of tuples.

        A tuple has one item per field of `schema`, of the field's type.
        """
        self._runs = SortedRuns(schema)
        self._new: list[Sequence[Any]] = []
        self._has_runs = False

    def add(self, items: Sequence[Any]) -> None:
        """Add one tuple, which has these items."""
        self._new.append(items)
        if len(self._new) == _BATCH_ROWS:
            self._flush()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield all tuples by ascending first item."""
        if not self._has_runs:
            by_key = {items[0]: tuple(items) for items in self._new}
            yield from (by_key[key] for key in sorted(by_key))
            return
        self._flush()
        for rows in self._runs.stream():
            yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)

    def _flush(self) -> None:
        if self._new:
            schema = self._runs.schema
            columns = zip(*self._new, strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            self._runs.add(pa.Table.from_arrays(arrays, schema=schema))
            self._new, self._has_runs = [], True


class DistinctTexts:
    """A collection of texts, in bounded memory, that tells whether they are distinct.

    Use it as a context manager.
    """

    def __init__(self) -> None:
        self._runs = SortedRuns(pa.schema([("text", pa.string())]))
        self._texts: list[str] = []
        self._count = 0

    def add(self, text: str) -> None:
        """Add a text."""
        self._texts.append(text)
        if len(self._texts) == _BATCH_ROWS:
            self._flush()

    def are_distinct(self) -> bool:
        """Return whether all added texts are distinct."""
        self._flush()
        return self._count == sum(map(len, self._runs.stream()))

    def __enter__(self) -> DistinctTexts:
        return self

    def __exit__(self, *exception: object) -> None:
        self._runs.close()

    def _flush(self) -> None:
        self._count += len(self._texts)
        self._runs.add_keys(pa.array(self._texts, pa.string()))
        self._texts = []


def subtract(rows: SortedRuns, removed_keys: SortedRuns) -> Iterator[pa.Table]:
    """Yield those of `rows` whose key (the first column) is not a key of `removed_keys`.

    The result is sorted by key, in tables of bounded size.
    """
    sources = [MergeSource(rows.stream(), ()), *removed_keys.tombstone_sources()]
    return (table for table, _ in merge_segments(sources, rows.schema) if len(table))


def _write_all(file: IO[bytes], data: bytes | pa.Buffer) -> None:
    view = memoryview(data)
    while len(view):
        view = view[file.write(view) :]
