"""Large listings of plain files are sorted in temporary files, and footers cached in blocks.

A fragment is one data file of a table.
"""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats import MetadataCache, open_table_format
from metastore_assets.formats.base import Snapshot
from metastore_assets.formats.files import bounds, footers
from metastore_assets.formats.files.listed_files import ListedFiles
from metastore_assets.pipeline.fragment_runs import compare_stream
from metastore_assets.pipeline.table_changes import compare_snapshot
from metastore_assets.storage.listing import StoredFile
from metastore_assets.store import sorted_runs
from metastore_assets.store.entries import StoredEntries
from tests.pipeline.test_fragment_runs import published

_PATHS = st.tuples(
    st.sampled_from(["", "day=1/", "day=10/", "day=1/deep/", "day=2/h=é/", "day-1/"]),
    st.text("a-é0", min_size=1, max_size=2),
).map("".join)
_SCHEMAS: list[dict[str, Any]] = [{"a": [1]}, {"a": [1, None], "b": ["x", "y"]}, {"b": ["z"], "c": [1.5]}]
_STEPS = st.dictionaries(_PATHS, st.sampled_from(["delete", "damage", *range(len(_SCHEMAS))]), max_size=6)


@pytest.fixture(autouse=True, scope="module")
def small_runs() -> Iterator[None]:
    """Sort few files at a time, and cache the footers of few files together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "_BATCH_ROWS", 2)
        patch.setattr(sorted_runs, "_RUN_BYTES", 300)
        patch.setattr(footers, "_BLOCK_START", tuple("01234567"))
        patch.setattr(footers, "_FILES_AT_ONCE", 3)
        patch.setattr(bounds, "_FILES_AT_ONCE", 2)
        yield


def _take(folder: Path, step: Mapping[str, Any]) -> None:
    for name, action in step.items():
        path = folder / f"{name}.parquet"
        if action == "delete":
            path.unlink(missing_ok=True)
        elif action == "damage":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"no Parquet")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(_SCHEMAS[action]), path)


def _row_counts(folder: Path) -> dict[str, int | None]:
    """Return the number of rows of each file by its path; None if the file is damaged."""
    counts: dict[str, int | None] = {}
    for path in folder.rglob("*.parquet"):
        counts[str(path)] = None if path.read_bytes() == b"no Parquet" else pq.read_metadata(path).num_rows
    return counts


@given(st.lists(_STEPS, min_size=1, max_size=4))
def test_the_changes_are_those_of_a_comparison_in_memory(steps: list[dict[str, Any]]) -> None:
    """Changes found in a streamed listing equal those between complete snapshots.

    A streamed listing is never complete in memory. It uses the cached metadata of the previous snapshot. The changes
    are random. Unreadable files are fragments, too.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "t"
        folder.mkdir()
        config = TableConfig(name="t", uri=str(folder))
        cache_entries: Mapping[bytes, bytes] = {}
        before: Snapshot | None = None
        for number, step in enumerate(steps):
            _take(folder, step)
            counts = _row_counts(folder)
            cache = MetadataCache(lambda entries=cache_entries: entries, ignore_process=True)  # type: ignore[misc]
            table = open_table_format(config, cache)
            if not any(count is not None for count in counts.values()):
                with pytest.raises((TableNotFoundError, TableFormatError)):
                    table.snapshot()
                continue
            stream = table.stream()
            snapshot = open_table_format(config, MetadataCache(ignore_process=True)).snapshot()
            assert {one.path: one.row_count for one in snapshot.fragments} == counts
            sorted_fragments = stream.sorted_fragments
            assert sorted_fragments is not None
            rows = list(sorted_fragments.rows())
            assert len(rows) == sorted_fragments.count == len(counts)
            assert [key for key, _, _ in rows] == sorted((key for key, _, _ in rows), key=str.encode)
            if before is not None:
                base = published(f"{name}/{number}", list(before.fragments))
                assert isinstance(base.fragments, StoredEntries)
                changes = compare_stream(stream, base.fragments, "a test")
                expected = compare_snapshot(snapshot, base, "a test")
                assert (changes.added_fragments, changes.removed_entries) == (
                    expected.added_fragments,
                    expected.removed_entries,
                )
            assert stream.read_all() == snapshot
            before, cache_entries = snapshot, cache.entries


@given(st.dictionaries(st.text("ab/.é", min_size=1, max_size=5), st.integers(0, 1)))
def test_files_are_ordered_by_path(sizes: dict[str, int]) -> None:
    listed_files = ListedFiles()
    for path, size in sizes.items():
        listed_files.add(StoredFile(path, size, "1"))
    assert [(file.path, file.size) for file in listed_files] == sorted(sizes.items())
    folders = {path[:end] for path in sizes for end, character in enumerate(path) if end and character == "/"}
    assert listed_files.folders == {folder for folder in folders if folder.strip("/")} or "//" in "".join(sizes)
    expected: dict[str, str] = {}
    for path in sorted(sizes, reverse=True):
        if sizes[path] or path.endswith("a"):
            expected[path.rpartition("/")[0]] = path
    assert listed_files.first_paths(lambda path: path.endswith("a")) == sorted(expected.values())


def test_a_commit_replaces_few_cached_values(tmp_path: Path) -> None:
    """After a file was added, no other footer is read, and at most two entries of the cache change.

    The other 60 files are overwritten, so that reading one of their footers would fail.
    """
    for number in range(60):
        _take(tmp_path, {f"day={number % 3}/{number:02}": number % 3})
    config = TableConfig(name="t", uri=str(tmp_path))
    cache = MetadataCache(ignore_process=True)
    open_table_format(config, cache).snapshot()
    stored_entries = dict(cache.entries)
    _take(tmp_path, {"day=1/new": 0})
    for path in tmp_path.rglob("*.parquet"):
        if path.stem != "new":
            times = path.stat()
            path.write_bytes(b"x" * times.st_size)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    cache = MetadataCache(lambda: stored_entries, ignore_process=True)
    fragments = open_table_format(config, cache).snapshot().fragments
    assert all(fragment.row_count for fragment in fragments)
    changed_keys = {key for key, value in cache.entries.items() if stored_entries.get(key) != value}
    assert 1 <= len(changed_keys) <= 2
    assert len(stored_entries) > 10


def test_many_files_are_in_a_temporary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "_BATCH_ROWS", 100)
    monkeypatch.setattr(sorted_runs, "_RUN_BYTES", 60_000)

    def peak(count: int) -> int:
        """Return the peak size in bytes of Python's objects during a listing of `count` files."""
        tracemalloc.start()
        listed_files = ListedFiles()
        for number in range(count):
            listed_files.add(StoredFile(f"day={number % 10}/{7919 * number % count:06}.parquet", 1, "1"))
        assert sum(1 for _ in listed_files) == count
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(2000)  # Modules are imported.
    assert peak(20_000) < 20 * 20_000, "a path alone has more bytes"
