"""A comparison of streamed fragments with the published ones equals a comparison of both in memory.

A fragment is a data file with its deletes.
"""

from __future__ import annotations

import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.formats.base import Fragment, Snapshot, SnapshotMetadata, SnapshotStream, UnstreamableError
from metastore_assets.pipeline.fragment_runs import FragmentRuns, compare_stream
from metastore_assets.pipeline.table_changes import compare_snapshot
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy, PathMapping
from metastore_assets.store import entries, sections, sorted_runs
from metastore_assets.store.entries import StoredEntries
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry, PartitionEntry, Version
from metastore_assets.store.versions import VersionStore
from tests.store.sample_versions import files, version, write_small_segments

ROWS = st.dictionaries(
    st.tuples(st.sampled_from(["all", "day=1", "day=10", "day=2"]), st.text("a/.0é", min_size=1, max_size=3)),
    st.sampled_from(["x", "y"]),
    max_size=12,
)


def fragment(key: str, path: str, content: str) -> Fragment:
    return Fragment(f"{path}-{content}", key, path, 10, 1, source=None)  # type: ignore[arg-type]


def published(folder: str, fragments: list[Fragment]) -> Version:
    stored_fragments = [
        FragmentEntry(one.id, one.partition_key, one.path, 10, 1, "spec", (), files(f"{number}"))
        for number, one in enumerate(fragments)
    ]
    versions = VersionStore(ObjectStore(folder), "t")
    counts = Counter(one.partition_key for one in fragments)
    partitions = [
        PartitionEntry(key, "content", 1, 10 * count, count, files(f"partition {number}"), 1, "spec")
        for number, (key, count) in enumerate(counts.items())
    ]
    versions.publish(replace(version(1), fragments=stored_fragments, partitions=partitions))
    latest = versions.latest()
    assert latest is not None
    return latest


@given(ROWS, ROWS, st.integers(1, 3), st.sampled_from([1, 300, 1 << 20]))
def test_the_changes_are_those_of_a_comparison_in_memory(
    before: dict[tuple[str, str], str], now: dict[tuple[str, str], str], batch: int, run: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(sorted_runs, "_RUN_BYTES", run)
        patch.setattr(sorted_runs, "_BATCH_ROWS", batch)
        write_small_segments(patch)
        base = published(folder, [fragment(*key, content) for key, content in before.items()])
        fragments = [fragment(*key, content) for key, content in now.items()]
        sorted_fragments = tuple(sorted(fragments, key=lambda one: (one.partition_key, one.id)))
        snapshot = Snapshot("delta", "2", None, pa.schema([]), (), fragments=sorted_fragments)
        stream = replace(SnapshotStream.of(snapshot), fragments=iter(fragments))
        assert isinstance(base.fragments, StoredEntries)
        changes = compare_stream(stream, base.fragments, "a test")
        expected = compare_snapshot(snapshot, base, "a test")
        assert (changes.added_fragments, changes.removed_entries) == (
            expected.added_fragments,
            expected.removed_entries,
        )
        assert (changes.snapshot, changes.current) == (stream.metadata, None)
        assert changes.partition_keys(base) == {key for key, _ in now} == expected.partition_keys(base)
        stream = replace(stream, fragments=iter(fragments))
        requested_changes = compare_stream(stream, base.fragments, "a test", lambda changes: {"day=1", "all"})
        assert replace(requested_changes, unchanged_fragments=()) == changes
        added_ids = {one.id for one in changes.added_fragments}
        assert {one.id for one in requested_changes.unchanged_fragments} == {
            one.id for one in fragments if one.partition_key in ("day=1", "all") and one.id not in added_ids
        }


def test_fragments_with_equal_keys_are_not_streamed() -> None:
    runs = FragmentRuns([fragment("all", "a", "x"), fragment("all", "a", "y")])
    with pytest.raises(UnstreamableError):
        list(runs.rows())


URIS = st.sampled_from(["/lake/a", "s3://bucket", "s3://bucket/a/b", "sftp://me:PassWord@host/a", "memory://", "/"])


@given(st.lists(st.tuples(URIS, st.sampled_from(["SecretA", "SecretB"]), st.booleans()), max_size=6))
def test_rows_have_no_credentials(locations: list[tuple[str, str, bool]]) -> None:
    """Fragments are encoded as rows, which may be written to a temporary file.

    The rows contain no secret.

    A decoded row equals its fragment.
    """
    fragments = []
    for number, (uri, secret, confining_root) in enumerate(locations):
        location = Location(uri, (("secret_access_key", secret),), confining_root)
        policy = LocationPolicy(uri, location, PathMapping(), (), False)
        source: Any = (location, policy, Location(f"{uri.rstrip('/')}/{number}", location.options))
        fragments.append(Fragment(f"{number}", "all", f"{number}", 10, 1, source=source))
    runs = FragmentRuns(fragments)
    rows = list(runs.rows())
    assert [runs.decode(data) for _, _, data in rows] == fragments
    for _, _, data in rows:
        assert b"Secret" not in data
        assert b"PassWord" not in data


def test_memory_depends_on_the_differences_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "_RUN_BYTES", 100_000)
    monkeypatch.setattr(sorted_runs, "_BATCH_ROWS", 20)
    monkeypatch.setattr(entries, "_ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(sections, "_STREAMED_BYTES", 1)

    def peak(count: int) -> int:
        """Return the peak bytes of Python objects in a comparison of `count` fragments with the same ones."""

        def fragments() -> Iterator[Fragment]:
            return (fragment("all", f"{(7919 * number) % count:06}.parquet", "x") for number in range(count))

        base = published(str(tmp_path / str(count)), list(fragments()))
        assert isinstance(base.fragments, StoredEntries)
        stream = SnapshotStream(SnapshotMetadata("delta", "", None, pa.schema([]), ()), fragments())
        tracemalloc.start()
        changes = compare_stream(stream, base.fragments, "a test")
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (changes.added_fragments, changes.removed_entries) == ((), {})
        return size

    assert peak(8000) < 1.5 * peak(2000), "four times as many fragments"
