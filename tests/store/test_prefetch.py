"""Prefetched ranges contain the requested ranges.

Only the calling thread reads Python file objects.
"""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.storage.io_counters import _CountingInput, count_io, record_read
from metastore_assets.storage.object_store import RangedFile
from metastore_assets.store.keys import KeySet
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.prefetch import FetchedRanges, merge_neighbors
from metastore_assets.store.read_rounds import ByteRange
from metastore_assets.store.sections import SectionReader, SectionWriter

_BYTES = np.random.default_rng(7).bytes(100_000)
_RANGES = st.lists(st.tuples(st.integers(0, 99_000), st.integers(1, 1_000)).map(lambda pair: (pair[0], sum(pair))))


def _locate(start: int, end: int) -> ByteRange:
    return "file", start, end


@given(_RANGES, _RANGES)
def test_fetched_ranges_contain_their_parts(
    requested_ranges: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    """After a fetch, each requested range is available without a request.

    Ranges of an earlier fetch are available only if they are within a range of the last fetch. Ranges with small gaps
    between them are fetched as one.
    """
    fetch_calls: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        fetch_calls.append((start, end))
        return _BYTES[start:end]

    fetched_ranges = FetchedRanges(fetch, _locate)
    fetched_ranges.fetch(others)
    fetch_calls.clear()
    fetched_ranges.fetch(requested_ranges)
    assert sorted(fetch_calls) == merge_neighbors(requested_ranges)
    assert all(
        later[0] - before[1] > 8192 for before, later in zip(sorted(fetch_calls), sorted(fetch_calls)[1:], strict=False)
    )
    for start, end in requested_ranges:
        assert fetched_ranges.find(start, end) == _BYTES[start:end]
    for start, end in others:
        assert fetched_ranges.find(start, end) in (None, _BYTES[start:end])
        assert (fetched_ranges.find(start, end) is None) == (
            not any(range_[0] <= start and end <= range_[1] for range_ in fetch_calls)
        )


@given(_RANGES, _RANGES)
def test_the_step_of_a_reading_fetches_all_ranges_that_are_not_in_memory(
    requested_ranges: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    in_memory = len(_BYTES) // 2

    def fetch(start: int, end: int) -> bytes:
        raise AssertionError("only the step fetches")

    def locate(start: int, end: int) -> ByteRange | None:
        return None if start >= in_memory else _locate(start, end)

    fetched_ranges = FetchedRanges(fetch, locate)
    for ranges in (others, requested_ranges):
        reading = fetched_ranges.reading(ranges)
        steps = next(reading)
        assert steps == [("file", *part) for part in merge_neighbors(ranges) if part[0] < in_memory]
        assert all(fetched_ranges.find(start, end) is None for start, end in ranges)
        with pytest.raises(StopIteration):
            reading.send([_BYTES[start:end] for _, start, end in steps])
        for start, end in ranges:
            is_fetched = any(first <= start and end <= last for _, first, last in steps)
            assert fetched_ranges.find(start, end) == (_BYTES[start:end] if is_fetched else None)


def test_large_ranges_are_not_merged() -> None:
    size = 32 << 20
    assert merge_neighbors([(size, 3 * size), (0, size), (3 * size, 3 * size + 1)]) == [
        (0, size),
        (size, 3 * size),
        (3 * size, 3 * size + 1),
    ]


def test_parallel_fetches_count_for_the_caller() -> None:
    def fetch(start: int, end: int) -> bytes:
        record_read("s3://bucket/file.parquet", end - start)
        return _BYTES[start:end]

    with count_io() as counter:
        FetchedRanges(fetch, _locate).fetch([(0, 1_000), (50_000, 51_000), (90_000, 90_500)])
    read_counts = counter.counts().read
    assert (read_counts.files, read_counts.bytes) == (1, 2_500)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The ids of the threads that read Python file objects."""
    reader_threads: set[int] = set()

    def noting(plain: Any) -> Any:
        def read(self: Any, *arguments: Any) -> Any:
            reader_threads.add(threading.get_ident())
            return plain(self, *arguments)

        return read

    for kind, name in ((_CountingInput, "read_buffer"), (_CountingInput, "read"), (RangedFile, "read")):
        monkeypatch.setattr(kind, name, noting(getattr(kind, name)))
    return reader_threads


@pytest.mark.parametrize("kind", ["local_store", pytest.param("s3_store", marks=pytest.mark.s3)])
def test_only_the_calling_thread_reads(kind: str, request: pytest.FixtureRequest, readers: set[int]) -> None:
    """All ways to read a Parquet file read Python file objects in the calling thread only.

    If an Arrow thread releases a Python object while the interpreter exits, the process aborts.
    """
    store: ObjectStore = request.getfixturevalue(kind)
    numbers = np.arange(200_000)
    table = pa.table({"a": numbers, "b": numbers % 7, "c": numbers * 3})
    store.write_parquet("wide.parquet", table)
    with count_io():
        assert store.read_parquet("wide.parquet").equals(table)
        assert store.read_parquet("wide.parquet", ["c", "a"]).select(["a", "c"]).equals(table.select(["a", "c"]))
        with store.open_parquet("wide.parquet") as file:
            groups = list(range(file.num_row_groups))
            assert file.read_row_groups(groups, ["b"]).equals(table.select(["b"]))
            assert pa.Table.from_batches(file.iter_batches(1000, groups)).equals(table)
    assert readers == {threading.get_ident()}


def test_closed_files_are_freed_without_the_garbage_collector(s3_store: ObjectStore) -> None:
    """When a reader is closed while the garbage collector is off, its inputs and footers are freed.

    Otherwise, streaming the entries of ten million files would hold hundreds of megabytes until the collector runs.
    """
    table = pa.table({"key": [f"{at:06}" for at in range(20_000)]})
    with SectionWriter(s3_store, "a.parquet", table.schema) as writer:
        writer.write_section("rows", table)

    def count_inputs_and_footers() -> int:
        return sum(type(each).__name__ in ("_RangedInput", "FileMetaData") for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = count_inputs_and_footers()
        with SectionReader(s3_store, "a.parquet") as reader:
            assert sum(map(len, reader.stream_section("rows", ["key"]))) == 20_000
            assert len(reader.find_rows(KeySet(["000007"]), ["rows"])["rows"]) == 1
            assert count_inputs_and_footers() > before
        del reader
        # A thread of a prefetch may still hold an input for a moment.
        deadline = time.monotonic() + 10
        while count_inputs_and_footers() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert count_inputs_and_footers() == before
    finally:
        gc.enable()
