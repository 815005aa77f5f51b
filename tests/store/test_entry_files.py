"""A base and what has changed since say the same as everything written anew, and cost what has changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError
from metastore_assets.store import entries as entries_module
from metastore_assets.store.entries import FRAGMENTS, NODES, PARTITIONS, EntryKind, StoredEntries, write_entries
from metastore_assets.store.manifest import FragmentEntry, NodeEntry, PartitionEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import ParquetObject
from metastore_assets.store.segments import SegmentFile, SegmentFiles, retained_files
from metastore_assets.store.version_document import stored_entries
from metastore_assets.store.versions import VersionStore
from tests.store.sample_versions import files, fragment, version

KEYS = st.sampled_from(["", "a", "b", "B", "ä", "日", "🎈", "day=1", "zz"]) | st.text(
    st.characters(codec="utf-8"), max_size=3
)
"""In Python's order of strings as in the order of their bytes."""
SETS = st.dictionaries(KEYS, st.integers(0, 3), max_size=12)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets of rows are written as large ones are."""
    monkeypatch.setattr(entries_module, "_REWRITE_BELOW", 1)
    monkeypatch.setattr(entries_module, "_MAX_DELTAS", 3)
    monkeypatch.setattr(entries_module, "_ROW_GROUP_ROWS", 2)


def node(key: str, value: int) -> NodeEntry:
    return NodeEntry(key, ProfileFiles(f"s{value}", "" if value == 2 else f"h{value}", ("f",) * value))


@pytest.mark.usefixtures("small")
@settings(max_examples=40)
@given(st.lists(SETS, min_size=1, max_size=9), KEYS)
def test_whatever_is_published_one_after_another_comes_back(
    tmp_path_factory: pytest.TempPathFactory, states: list[dict[str, int]], other: str
) -> None:
    objects = ObjectStore(str(tmp_path_factory.mktemp("entries")))
    base: StoredEntries[NodeEntry] | None = None
    for number, state in enumerate(states):
        entries = [node(key, value) for key, value in state.items()]
        written = write_entries(objects, NODES, entries, base)
        expected = sorted(entries, key=lambda entry: entry.id)
        before = list(base) if base is not None else []
        assert {entry.id for entry in written.dropped} == {e.id for e in before if e not in expected}, number
        base = StoredEntries(NODES, objects, written.files)
        assert len(base) == len(expected)
        searched = StoredEntries(NODES, objects, written.files)
        for key in {*state, *(entry.id for entry in before), other}:
            for found in (searched.find(key), StoredEntries(NODES, objects, written.files).find(key)):
                assert found == (node(key, state[key]) if key in state else None)
        assert list(base) == expected


def test_two_entries_with_one_key_are_refused(local_store: ObjectStore) -> None:
    with pytest.raises(ValueError, match="'b'"):
        write_entries(local_store, NODES, [node("a", 1), node("b", 1), node("b", 2)], None)


def test_nothing_is_written_where_nothing_changed(local_store: ObjectStore) -> None:
    written = write_entries(local_store, NODES, [node("a", 1)], None)
    before = local_store.list()
    again = write_entries(local_store, NODES, [node("a", 1)], StoredEntries(NODES, local_store, written.files))
    assert (again.files, again.dropped) == (written.files, ())
    assert local_store.list() == before


@pytest.mark.parametrize("change", [1, 7, 40])
def test_each_row_is_written_a_few_times(change: int) -> None:
    """A thousand commits: the files stay few, and what is written in all is a small multiple of what has changed."""
    rows = 20_000
    found = SegmentFiles(rows, (SegmentFile("base", rows),))
    written = 0
    for _ in range(1000):
        kept = retained_files(NODES.segments, found, rows, change)
        if kept:
            new = change + sum(file.rows for file in found.files[len(kept) :])
            found = SegmentFiles(rows, (*kept, SegmentFile("changes", new)))
        else:
            new = rows
            found = SegmentFiles(rows, (SegmentFile("base", rows),))
        written += new
        assert len(found.files) <= 1 + 8
        assert sum(file.rows for file in found.files[1:]) <= rows / 2
    assert written <= 12 * 1000 * change


def names(index: int) -> ProfileFiles:
    """File names as they are: of 32 digits that say nothing."""
    draw = random.Random(index)
    return ProfileFiles(*(f"fragments/{draw.getrandbits(128):032x}.{kind}" for kind in "sh"), ())


def large(count: int) -> list[FragmentEntry]:
    draw = random.Random(0)
    return [
        FragmentEntry(
            f"{draw.getrandbits(128):032x}", f"day={i % 365}", f"s3://lake/{i}", 10**8, 10**6, "spec", (), names(i)
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> VersionStore:
    """A version of 100,000 fragments in 20,000 partitions."""
    versions = VersionStore(ObjectStore(str(tmp_path_factory.mktemp("large"))), "orders")
    partitions = [PartitionEntry(f"day={i:05}", f"{i}", 10, 10, 5, names(-i), 1) for i in range(20_000)]
    versions.publish(replace(version(1), fragments=large(100_000), partitions=partitions))
    return versions


def sizes(versions: VersionStore) -> dict[str, int]:
    return {info.path: info.size for info in versions.objects.list()}


def test_a_commit_to_a_large_table_writes_what_it_changes(published: VersionStore) -> None:
    """Commits of a fragment each, one of which removes another: some kilobytes each, and then all is there."""
    base = published.read(1)
    expected = {entry.id: entry for entry in base.fragments}
    for number in range(2, 5):
        before = sizes(published)
        expected[f"new-{number}"] = fragment(f"new-{number}")
        if number == 3:
            del expected[min(expected)]
        partitions = [
            replace(entry, version=number) if entry.key == "day=00017" else entry for entry in base.partitions
        ]
        new = replace(base, number=number, fragments=list(expected.values()), partitions=partitions)
        published.publish(new, base)
        after = sizes(published)
        assert sum(after[path] for path in after.keys() - before.keys()) < 20_000
        base = published.read(number)
        assert base == replace(new, fragments=sorted(expected.values(), key=lambda entry: entry.id))
    assert len(stored_entries(base)[0].files.files) == 4


def test_a_partition_among_many_is_found_by_reading_its_row_group(
    published: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    found = published.read(1).partitions
    assert isinstance(found, StoredEntries)
    groups = ParquetObject.read_row_groups
    monkeypatch.setattr(
        ParquetObject,
        "read_row_groups",
        lambda self, wanted, *how, **more: read.extend(wanted) or groups(self, wanted, *how, **more),
    )
    for key in ("day=00000", "day=12345", "day=19999"):
        entry = found.find(key)
        assert entry is not None
        assert entry.key == key
    assert len(read) == 3
    for key in ("", "day=00017x", "zzz", "\udc80"):
        assert found.find(key) is None
    assert len(read) <= 4, "a key that is not there is looked for where it would be"
    read.clear()
    assert [found.find(f"day={at:05}") is not None for at in range(12345, 12355)] == [True] * 10
    assert len(read) <= 2, "neighbours are found in what was read"


def kinds() -> Iterator[tuple[EntryKind[object], list[object]]]:
    yield FRAGMENTS, [fragment(f"{i}") for i in range(9)]  # type: ignore[misc]
    yield PARTITIONS, [PartitionEntry(f"{i}", "", 1, 1, 1, files("x"), 1) for i in range(9)]  # type: ignore[misc]


@pytest.mark.usefixtures("small")
def test_damage_is_told(tmp_path: Path) -> None:
    objects = ObjectStore(str(tmp_path))
    for kind, entries in kinds():
        written = write_entries(objects, kind, entries, None)
        changed = write_entries(objects, kind, entries[:8], StoredEntries(kind, objects, written.files))
        assert len(changed.files.files) == 2
        for file in changed.files.files:
            data = objects.read(file.path)
            objects.write(file.path, data[: len(data) // 2])
            with pytest.raises(CorruptionError, match=f"{file.path}"):
                list(StoredEntries(kind, objects, changed.files))
            with pytest.raises(CorruptionError, match=f"{file.path}"):
                StoredEntries(kind, objects, changed.files).find("3")
            objects.write(file.path, data)


def test_keys_too_long_for_bounds_are_found(local_store: ObjectStore) -> None:
    """Parquet keeps no bounds that are longer than a few kilobytes."""
    keys = [letter * 10_000 for letter in "abc"]
    written = write_entries(local_store, NODES, [node(key, 1) for key in keys], None)
    found = StoredEntries(NODES, local_store, written.files)
    assert all(found.find(key) == node(key, 1) for key in keys)
    assert found.find("b" * 9_999) is None


def test_no_rows_at_all(local_store: ObjectStore) -> None:
    written = write_entries(local_store, NODES, [], None)
    found = StoredEntries(NODES, local_store, written.files)
    assert (len(found), list(found), found.find("x")) == (0, [], None)
    assert local_store.list() == [], "nothing needs no file"
    again = write_entries(local_store, NODES, [node("a", 1)], found)
    assert list(StoredEntries(NODES, local_store, again.files)) == [node("a", 1)]
