"""Entries stored as a base and changes equal the complete entries.

An entry is the record of a fragment, a partition or another object in a version. A set of entries with unique keys is
stored as segments. A commit writes only its changes: it adds a segment with new entries, and with tombstones of removed
keys. The oldest segment is the base. A compact footer is a short form of a Parquet file's footer. A version is the
published statistics of a table at one snapshot.
"""

from __future__ import annotations

import gc
import io
import json
import os
import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError, StoreError
from metastore_assets.storage.io_counters import count_io
from metastore_assets.store import compact_footers, local, sections, segment_levels, segments
from metastore_assets.store import entries as entries_module
from metastore_assets.store.compact_footers import CompactFooter, CompactFooterRange
from metastore_assets.store.entries import (
    FRAGMENTS,
    METADATA_CACHE,
    NODES,
    PARTITIONS,
    Entries,
    Entry,
    EntryKind,
    StoredEntries,
    diff_entries,
    encode_entries,
)
from metastore_assets.store.entry_changes import DuplicateKeyError, EntryChanges, write_entries
from metastore_assets.store.keys import KeySet
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import ParquetObject
from metastore_assets.store.sections import CONSTANTS, CONSTANTS_CRC, SECTIONS
from metastore_assets.store.segment_merge import write_segment
from metastore_assets.store.segments import SegmentFile, SegmentFiles, retained_files
from metastore_assets.store.version import FragmentEntry, MetadataCacheEntry, NodeEntry, PartitionEntry, ProfileFiles
from metastore_assets.store.version_document import stored_entries
from metastore_assets.store.versions import VersionStore
from tests.store.sample_versions import files, fragment, version, write_small_segments

KEYS = st.sampled_from(["", "a", "b", "B", "ä", "日", "🎈", "day=1", "zz"]) | st.text(
    st.characters(codec="utf-8"), max_size=3
)
"""Keys. Python's order of strings equals the order of their UTF-8 bytes."""
SETS = st.dictionaries(KEYS, st.integers(0, 3), max_size=12)
_NUMBERED = st.integers(0, 99).map("b{:02}".format)
_MANY = st.dictionaries(_NUMBERED, st.integers(0, 3), min_size=20, max_size=60)
_EDITS = st.lists(st.dictionaries(_NUMBERED | KEYS, st.none() | st.integers(0, 3), max_size=5), max_size=9)
"""Successive small changes of rows. None removes a row."""


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, int]]:
    """Draw the rows of successive versions, which are unrelated or differ in a few rows."""
    if draw(st.booleans()):
        return draw(st.lists(SETS, min_size=1, max_size=9))
    states = [draw(_MANY)]
    for edits in draw(_EDITS):
        state = {**states[-1], **edits}
        states.append({key: value for key, value in state.items() if value is not None})
    return states


@pytest.fixture
def write_small_sets_like_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_segments(monkeypatch)
    monkeypatch.setattr(segments, "_MAX_FOOTERS", 2)


def node(key: str, value: int) -> NodeEntry:
    return NodeEntry(key, ProfileFiles(f"s{value}", "" if value == 2 else f"h{value}", ("f",) * value))


def write(
    objects: ObjectStore, kind: EntryKind[Entry], entries: Iterable[Entry], base: StoredEntries[Entry] | None = None
) -> StoredEntries[Entry]:
    """Write the entries of a version, as changes if there is a `base`, and open them as a reader does."""
    files = write_entries(objects, EntryChanges.between(kind, base, list(entries)), allow_step=True, may_merge=True)
    return StoredEntries(kind, objects, files)


def check_lookups(
    result: Entries[NodeEntry], expected: dict[str, NodeEntry], keys: set[str], prefixes: set[str]
) -> None:
    """Check that lookups by `keys` and `prefixes` in `result` equal those in `expected`."""
    assert len(result) == len(expected)
    for key in keys:
        assert result.find(key) == expected.get(key)
    assert result.find_all(keys) == {key: entry for key, entry in expected.items() if key in keys}
    for requested_prefixes in (prefixes, *({prefix} for prefix in prefixes)):
        assert result.find_prefixes(requested_prefixes) == [
            expected[key] for key in sorted(expected) if key.startswith(tuple(requested_prefixes))
        ]
    assert list(result) == [expected[key] for key in sorted(expected)]


@pytest.mark.usefixtures("write_small_sets_like_large_ones")
@settings(max_examples=max(10, settings().max_examples // 5))
@given(histories(), st.sets(KEYS, max_size=5), st.sets(KEYS, max_size=4), st.randoms())
def test_every_sequence_of_published_versions_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    states: list[dict[str, int]],
    keys: set[str],
    prefixes: set[str],
    random: random.Random,
) -> None:
    """The entries of each version equal those of a dictionary, before and after they are written.

    This is so in lookups by key and by prefix and in iterations, whether a version is written from its complete list of
    entries or from changes. Segments are merged in memory and in files.
    """
    objects = ObjectStore(str(tmp_path_factory.mktemp("entries")))
    base: StoredEntries[NodeEntry] | None = None
    before: dict[str, NodeEntry] = {}
    for state in states:
        expected = {key: node(key, value) for key, value in state.items()}
        searched_keys = keys | before.keys() | expected.keys()
        if random.random() < 0.5:
            changes = EntryChanges.between(NODES, base, list(expected.values()))
        else:
            new_entries = [
                entry for key, entry in expected.items() if before.get(key) != entry or random.random() < 0.2
            ]
            changes = EntryChanges.changed(NODES, base, new_entries, {*before.keys() - expected.keys(), "missing"})
        assert changes.put_entries == {key: entry for key, entry in expected.items() if before.get(key) != entry}
        assert changes.dropped_entries == {key: entry for key, entry in before.items() if expected.get(key) != entry}
        check_lookups(changes, expected, searched_keys, prefixes)
        files = write_entries(objects, changes, allow_step=True, may_merge=True)
        check_lookups(StoredEntries(NODES, objects, files), expected, searched_keys, prefixes)
        base = StoredEntries(NODES, objects, files)
        assert random.random() < 0.5 or base == list(changes)
        before = expected


@pytest.mark.usefixtures("write_small_sets_like_large_ones")
@settings(max_examples=max(10, settings().max_examples // 5))
@given(st.lists(SETS, min_size=1, max_size=9), st.booleans())
def test_differences_of_any_two_versions_equal_those_of_dictionaries(
    tmp_path_factory: pytest.TempPathFactory, states: list[dict[str, int]], is_cached: bool
) -> None:
    """A difference of two versions maps each key whose entries differ to the old and the new entry.

    All pairs of versions are compared, in both directions, also if segments were merged between the two versions.
    """
    objects = ObjectStore(str(tmp_path_factory.mktemp("entries")))
    written_entries: list[StoredEntries[NodeEntry] | None] = [None]
    for state in states:
        written_entries.append(write(objects, NODES, [node(*item) for item in state.items()], written_entries[-1]))
    plain = [{key: node(key, value) for key, value in state.items()} for state in states]
    entries_by_version = [
        StoredEntries(NODES, objects, entries.files) for entries in written_entries if entries is not None
    ]
    if is_cached:
        assert [dict(entries.by_key) for entries in entries_by_version] == plain
    for before, expected_before in zip(entries_by_version, plain, strict=True):
        for after, expected_after in zip(entries_by_version, plain, strict=True):
            expected = {
                key: (expected_before.get(key), expected_after.get(key))
                for key in sorted(expected_before.keys() | expected_after.keys())
                if expected_before.get(key) != expected_after.get(key)
            }
            differences = diff_entries(NODES, before, after)
            assert list(differences.items()) == list(expected.items())
        assert diff_entries(NODES, before, list(expected_after.values())) == differences


@pytest.mark.usefixtures("write_small_sets_like_large_ones")
def test_the_difference_of_two_versions_reads_only_changed_files(local_store: ObjectStore) -> None:
    """The keys that differ between two versions are determined without the files that both share.

    The second version uses all files of the first version and an additional file. The shared files are deleted, and
    the keys are read from the additional file. Reading the entries of these keys is an error.
    """
    first = write(local_store, NODES, [node(f"{at:03}", 1) for at in range(100)])
    changes = EntryChanges.changed(NODES, first, [node("005", 2), node("new", 1)], ["007"])
    second = StoredEntries(NODES, local_store, write_entries(local_store, changes, allow_step=True, may_merge=True))
    assert diff_entries(NODES, StoredEntries(NODES, local_store, first.files), second) == {
        "005": (node("005", 1), node("005", 2)),
        "007": (node("007", 1), None),
        "new": (None, node("new", 1)),
    }
    local_store.delete(first.files.paths())
    unread = [StoredEntries(NODES, local_store, second.files) for _ in range(2)]
    assert unread[0].differing_keys(StoredEntries(NODES, local_store, first.files)) == {"005", "007", "new"}
    assert diff_entries(NODES, *unread) == {}
    with pytest.raises(StoreError):
        diff_entries(NODES, StoredEntries(NODES, local_store, first.files), unread[0])


def test_the_difference_has_a_key_whose_row_and_tombstone_a_merge_has_absorbed(local_store: ObjectStore) -> None:
    """A difference of versions includes a removed key even after a merge dropped its row and tombstone.

    The newer version then has the key in no file of its own. Only a file that both versions share still contains it.
    """
    kind = NODES.segments

    def segment(new_keys: Sequence[str], removed_keys: Sequence[str] = ()) -> SegmentFile:
        rows = encode_entries(NODES, [node(key, 1) for key in new_keys])
        (file,) = write_segment(local_store, kind, [(rows, pa.array(removed_keys, pa.string()))], len(new_keys))
        return file

    newer = segment(["a", "z"])
    before = StoredEntries(NODES, local_store, SegmentFiles(4, (segment(["b", "y"]), newer)))
    # A third segment, which had only a tombstone of "a", was absorbed completely; the second one up to "m".
    merged_files = SegmentFiles(3, (segment(["b", "y"]), newer._replace(first="m", absorbed=True)))
    after = StoredEntries(NODES, local_store, merged_files)
    assert [entry.key for entry in after] == ["b", "y", "z"]
    assert diff_entries(NODES, before, after) == {"a": (node("a", 1), None)}
    assert diff_entries(NODES, after, before) == {"a": (None, node("a", 1))}


def test_two_entries_with_one_key_are_refused(local_store: ObjectStore) -> None:
    for create in (EntryChanges.between, EntryChanges.changed):
        with pytest.raises(DuplicateKeyError, match="'b'"):
            create(NODES, None, [node("a", 1), node("b", 1), node("b", 2)])


def test_the_error_for_two_fragments_with_one_path_names_them(local_store: ObjectStore) -> None:
    twice = [fragment("a"), replace(fragment("a"), id="b")]
    with pytest.raises(StoreError, match=r"'orders'.*'day=1'.*'s3://lake/a\.parquet'"):
        VersionStore(local_store, "orders").publish(replace(version(1), fragments=twice))


def test_an_unchanged_version_writes_no_entries(local_store: ObjectStore) -> None:
    written_entries = write(local_store, NODES, [node("a", 1)])
    before = local_store.list()
    again = write(local_store, NODES, [node("a", 1)], written_entries)
    assert again.files == written_entries.files
    assert local_store.list() == before


@pytest.mark.usefixtures("write_small_sets_like_large_ones")
def test_unchanged_entries_are_not_read(local_store: ObjectStore) -> None:
    """A commit of two changed keys reads no unchanged file: it succeeds after the base was deleted."""
    base = write(local_store, NODES, [node(f"{at:03}", 1) for at in range(100)])
    unread = StoredEntries(NODES, local_store, base.files)
    changes = EntryChanges.changed(NODES, unread, [node("0005", 2)], ["007"])
    assert len(changes) == 100
    local_store.delete(base.files.paths())
    files = write_entries(local_store, changes, allow_step=True, may_merge=True)
    assert files.rows == 100
    assert files.files[0] == base.files.files[0]


@pytest.mark.parametrize("change", [1, 7, 40])
def test_a_thousand_commits_write_each_row_a_few_times(change: int) -> None:
    """On average, a commit of n changed rows to a set of 20,000 rows writes at most 12 n + 1,000 rows.

    There are never more than three files. The test computes which files each of a thousand commits retains, and writes
    none.
    """
    rows = 20_000
    result = SegmentFiles(rows, (SegmentFile("base", rows),))
    written_rows = 0
    for _ in range(1000):
        files_to_retain = retained_files(NODES.segments, result, rows, change)
        if files_to_retain:
            new = change + sum(file.rows for file in result.files[len(files_to_retain) :])
            result = SegmentFiles(rows, (*files_to_retain, SegmentFile("changes", new)))
        else:
            new = rows
            result = SegmentFiles(rows, (SegmentFile("base", rows),))
        written_rows += new
        assert len(result.files) <= 1 + 2
        assert sum(file.rows for file in result.files[1:]) <= rows / 2
    assert written_rows <= 1000 * (12 * change + 1000), "changes of at most 1,000 rows are one file, which is rewritten"


def names(index: int) -> ProfileFiles:
    """Return random file names of 32 hexadecimal digits, as real ones are."""
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
    """The store of a table whose version has 40,000 fragments in 20,000 partitions."""
    versions = VersionStore(ObjectStore(str(tmp_path_factory.mktemp("large"))), "orders")
    partitions = [PartitionEntry(f"day={i:05}", f"{i}", 10, 10, 5, names(-i), 1) for i in range(20_000)]
    versions.publish(replace(version(1), fragments=large(40_000), partitions=partitions))
    return versions


def sizes(versions: VersionStore) -> dict[str, int]:
    return {info.path: info.size for info in versions.objects.list()}


def test_a_commit_to_a_large_table_writes_only_changed_entries(published: VersionStore) -> None:
    """Each of two commits adds a fragment and writes less than 20 kB.

    The second commit also removes a fragment.
    """
    base = published.read(1)
    expected = {entry.id: entry for entry in base.fragments}
    for number in (2, 3):
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
        assert base == replace(new, fragments=sorted(expected.values(), key=lambda entry: entry.key))
    assert len(stored_entries(base)[0].files.segments) == 2, "few changes are one file"


def test_a_lookup_of_one_of_many_partitions_reads_one_row_group(
    published: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_groups: list[int] = []
    result = published.read(1).partitions
    assert isinstance(result, StoredEntries)
    groups = ParquetObject.read_row_groups
    monkeypatch.setattr(
        ParquetObject,
        "read_row_groups",
        lambda self, groups_to_read, *how, **more: (
            read_groups.extend(groups_to_read) or groups(self, groups_to_read, *how, **more)
        ),
    )
    for key in ("day=00000", "day=12345", "day=19999"):
        entry = result.find(key)
        assert entry is not None
        assert entry.key == key
    assert len(read_groups) == 3
    for key in ("", "day=00017x", "zzz", "\udc80"):
        assert result.find(key) is None
    assert len(read_groups) <= 4, "a missing key is searched in the row group that would have it"
    read_groups.clear()
    assert [result.find(f"day={at:05}") is not None for at in range(12345, 12355)] == [True] * 10
    assert len(read_groups) <= 2, "neighbouring keys are in the row group that was read"


def kinds() -> Iterator[tuple[EntryKind[object], list[object]]]:
    yield FRAGMENTS, [fragment(f"{i}") for i in range(10)]  # type: ignore[misc]
    yield PARTITIONS, [PartitionEntry(f"{i}", "", 1, 1, 1, files("x"), 1) for i in range(10)]  # type: ignore[misc]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list to which the path of each opened Parquet file is added."""
    paths: list[str] = []
    original = ObjectStore.open_parquet

    def open_parquet(self: ObjectStore, path: str, *arguments: Any, **keywords: Any) -> ParquetObject:
        paths.append(path)
        return original(self, path, *arguments, **keywords)

    monkeypatch.setattr(ObjectStore, "open_parquet", open_parquet)
    return paths


@pytest.mark.s3
def test_reads_of_several_segments_count_for_the_caller(s3_store: ObjectStore, read_sizes: list[int]) -> None:
    nodes = [NodeEntry(f"{at:04}", ProfileFiles("s", "", ())) for at in range(600)]
    base = StoredEntries(
        NODES,
        s3_store,
        write_entries(s3_store, EntryChanges.changed(NODES, None, nodes), allow_step=True, may_merge=True),
    )
    changes = EntryChanges.changed(NODES, base, [replace(nodes[300], spec_id="other")])
    entries = StoredEntries(NODES, s3_store, write_entries(s3_store, changes, allow_step=True, may_merge=True))
    assert len(entries.files.files) == 2
    read_sizes.clear()
    with count_io() as counter:
        assert len(entries.find_all(["0300", "0301"])) == 2
    assert counter.counts().read.bytes == sum(read_sizes) > 0


@pytest.mark.usefixtures("write_small_sets_like_large_ones")
@pytest.mark.parametrize("limit", [10, 1000])
def test_a_lookup_in_many_files_retains_no_footers(
    local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """After a lookup in more than `limit` files, no footer of these files stays in memory.

    After a lookup in fewer files, all of their footers stay. Later lookups find the entries in both cases. The footers
    of a few hundred files take a hundred megabytes.
    """
    nodes = [node(f"a{at:03}", 1) for at in range(100)]
    entries = write(local_store, NODES, nodes)
    assert 20 < len(entries.files.files) < 1000
    monkeypatch.setattr(segments, "_MAX_FOOTERS", limit)

    def count_footers() -> int:
        gc.collect()
        return sum(type(each).__name__ == "FileMetaData" for each in gc.get_objects())

    before = count_footers()
    assert list(entries.find_all([f"a{at:03}" for at in range(0, 100, 2)]).values()) == nodes[::2]
    assert count_footers() == before + (0 if limit == 10 else len(entries.files.files))
    assert list(entries.find_all([f"a{at:03}" for at in range(100)]).values()) == nodes
    assert entries.find_prefixes(["a"]) == nodes


@pytest.mark.usefixtures("write_small_sets_like_large_ones")
def test_files_with_other_key_ranges_are_not_opened(local_store: ObjectStore, opened: list[str]) -> None:
    """A lookup of a key or a prefix opens one of more than twenty files.

    The others have other ranges of keys.
    """
    base = write(local_store, NODES, [node(f"a{at:03}", 1) for at in range(100)])
    later = write(local_store, NODES, [*base, node("z1", 1), node("z2", 1)], base)
    assert len(later.files.files) > 20
    opened.clear()
    assert StoredEntries(NODES, local_store, later.files).find("a050") == node("a050", 1)
    assert len(opened) == 1
    opened.clear()
    assert StoredEntries(NODES, local_store, later.files).find_prefixes(["z"]) == [node("z1", 1), node("z2", 1)]
    assert len(opened) == 1
    assert StoredEntries(NODES, local_store, later.files).least_key() == "a000"
    assert len(opened) == 1


def test_long_keys_are_found(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are found even if those at the ends of all row groups do not fit into a compact footer."""
    monkeypatch.setattr(compact_footers, "MAX_COMPACT_FOOTER_BYTES", 1 << 17)
    monkeypatch.setattr(entries_module, "_ROW_GROUP_ROWS", 10)
    nodes = [node(f"{'v' * 10_000}{at:03}", at % 3) for at in range(100)]
    entries = write(local_store, NODES, nodes)
    assert all(file.compact_footer_start for file in entries.files.files)
    assert list(entries) == nodes
    assert [entries.find(entry.key) for entry in nodes[::9]] == nodes[::9]
    assert entries.find_prefixes([nodes[55].key[:-1]]) == nodes[50:60]


def test_a_file_of_one_row_group_has_no_compact_footer(local_store: ObjectStore) -> None:
    fragments = [fragment("a"), fragment("b")]
    entries = write(local_store, FRAGMENTS, fragments)
    (file,) = entries.files.files
    assert not file.compact_footer_start
    assert list(StoredEntries(FRAGMENTS, local_store, entries.files).stream()) == fragments


@pytest.mark.parametrize("size", [10**15, (1 << 63) - 1])
def test_a_wrong_size_of_a_compact_footer_allocates_little_memory(
    local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """If the recorded size of a compact footer is too large, a lookup still succeeds.

    If the recorded position is wrong, too, the lookup raises an error that names the file.
    """
    monkeypatch.setattr(entries_module, "_ROW_GROUP_ROWS", 10)
    nodes = [node(f"{at:02}", 1) for at in range(50)]
    (file,) = write(local_store, NODES, nodes).files.files
    assert file.compact_footer_start
    wrong_file = file._replace(footer_bytes=size)
    assert StoredEntries(NODES, local_store, SegmentFiles(50, (wrong_file,))).find("07") == nodes[7]
    wrong_file = wrong_file._replace(compact_footer_start=file.compact_footer_start - 1)
    with pytest.raises(CorruptionError, match=f"{file.path} is damaged"):
        StoredEntries(NODES, local_store, SegmentFiles(50, (wrong_file,))).find("07")


def test_a_released_compact_footer_is_decoded_again(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries_module, "_ROW_GROUP_ROWS", 10)
    nodes = [node(f"{at:02}", 1) for at in range(50)]
    (file,) = write(local_store, NODES, nodes).files.files
    footer = CompactFooterRange(file.compact_footer_start, file.footer_bytes)

    def count_footers() -> int:
        gc.collect()
        return sum(isinstance(each, CompactFooter) for each in gc.get_objects())

    before = count_footers()
    reader = sections.SectionReader(local_store, file.path, compact_footer=footer)
    assert count_footers() == before + 1
    reader.release()
    assert count_footers() == before
    assert reader.find_rows(KeySet(["07"]), [segments.ROWS])[segments.ROWS]["key"].to_pylist() == ["07"]
    assert count_footers() == before + 1


def test_large_values_of_other_keys_are_not_read(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of large values are searched by reading only the column of keys.

    The other columns of a row group are read only if it has the key.
    """
    monkeypatch.setattr(sections, "_LARGE_GROUP_BYTES", 1000)
    monkeypatch.setattr(entries_module, "_ROW_GROUP_ROWS", 10)
    entries = [MetadataCacheEntry(b"%04d" % at, os.urandom(20_000)) for at in range(0, 100, 2)]
    stored_cache = write(local_store, METADATA_CACHE, entries)
    read_columns: list[list[str] | None] = []
    groups = ParquetObject.read_row_groups

    def read_row_groups(self: ParquetObject, groups_to_read: list[int], columns: list[str] | None = None) -> pa.Table:
        read_columns.extend([columns] * len(groups_to_read))
        return groups(self, groups_to_read, columns)

    monkeypatch.setattr(ParquetObject, "read_row_groups", read_row_groups)
    assert StoredEntries(METADATA_CACHE, local_store, stored_cache.files).find(b"0049") is None
    assert read_columns == [["key"]]
    read_columns.clear()
    assert StoredEntries(METADATA_CACHE, local_store, stored_cache.files).find(b"0052") == entries[26]
    assert read_columns == [["key"], None]


@pytest.mark.usefixtures("write_small_sets_like_large_ones")
def test_entries_are_streamed(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are streamed in the order of their keys, from all segments, at most six rows at a time.

    If the number of rows is not the recorded one, an error is raised at the end.
    """
    monkeypatch.setattr(segment_levels, "_MIN_ABSORBED", 10)
    entries = [node(f"{at:03}", 1) for at in range(50)]
    base = write(local_store, NODES, entries[:40])
    stored_nodes = write(local_store, NODES, entries[:37], base)
    assert len(stored_nodes.files.segments) > 1
    assert list(stored_nodes.stream()) == entries[:37]
    parts = list(stored_nodes.stream_rows(["statistics"]))
    assert max(map(len, parts)) <= 6
    assert {tuple(part.column_names) for part in parts} == {("key", "statistics")}
    files = replace(stored_nodes.files, rows=99)
    with pytest.raises(CorruptionError, match=r"\b37\b.*\b99\b"):
        list(StoredEntries(NODES, local_store, files).stream())


@pytest.mark.usefixtures("write_small_sets_like_large_ones")
def test_streams_close_files(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of entries has at most four files open at a time, and none at its end.

    The entries of a table of ten million files are in more files than a process may have open.
    """
    monkeypatch.setattr(local, "_SMALL", 0)

    def open_files() -> int:
        links = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
        return sum(link.startswith(os.path.realpath(local_store.uri())) for link in links)

    base = write(local_store, NODES, [node(f"{at:03}", 1) for at in range(200)])
    entries = write(local_store, NODES, [node(f"{at:03}", 1) for at in range(1, 201)], base)
    assert len(entries.files.files) > 20
    before = open_files()
    entries = StoredEntries(NODES, local_store, entries.files)
    counts = [open_files() - before for _ in entries.stream()]
    assert max(counts) <= 4
    assert open_files() == before
    assert entries.find("100") == node("100", 1)
    assert len(list(entries.stream())) == 200


@pytest.mark.usefixtures("write_small_sets_like_large_ones")
def test_streams_forget_the_footers_of_files(local_store: ObjectStore) -> None:
    """A stream holds at most two footers.

    The footers of the files of ten million entries would take 300 MB.
    """
    entries = write(local_store, NODES, [node(f"{at:03}", 1) for at in range(200)])
    assert len(entries.files.files) > 10
    entries = StoredEntries(NODES, local_store, entries.files)
    counts = [sum("sections" in vars(segment) for segment in entries._reader.segments) for _ in entries.stream()]
    assert max(counts) <= 2


@pytest.mark.usefixtures("write_small_sets_like_large_ones")
def test_errors_name_damaged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_levels, "_MIN_ABSORBED", 10)  # The tombstone stays in a separate file.
    objects = ObjectStore(str(tmp_path))
    for kind, entries in kinds():
        changed_entries = write(objects, kind, entries[:9], write(objects, kind, entries))
        assert len(changed_entries.files.files) == 4
        key = kind.key(entries[9])
        reads = [list, lambda result, key=key: result.find(key), lambda result, key=key: result.find_prefixes([key])]
        for number, file in enumerate(changed_entries.files.files):
            data = objects.read(file.path)
            # Readers of a file with a compact footer do not need what follows it.
            end = file.compact_footer_start + file.footer_bytes if file.compact_footer_start else len(data)
            objects.write(file.path, data[: end // 2])
            for read in reads if number >= 2 else reads[:1]:  # the first two files end before the key
                with pytest.raises(CorruptionError, match=f"{file.path}"):
                    read(StoredEntries(kind, objects, changed_entries.files))
            if number < 2:
                assert StoredEntries(kind, objects, changed_entries.files).find(key) is None
            objects.write(file.path, data)


def test_keys_too_long_for_bounds_are_looked_up(local_store: ObjectStore) -> None:
    """Keys of 10,000 characters, for which Parquet stores no bounds, are found by key and by prefix."""
    keys = [letter * 10_000 for letter in "abc"]
    result = StoredEntries(NODES, local_store, write(local_store, NODES, [node(key, 1) for key in keys]).files)
    assert all(result.find(key) == node(key, 1) for key in keys)
    assert result.find("b" * 9_999) is None
    assert result.find_prefixes(["b" * 9_999]) == [node(keys[1], 1)]


def test_a_version_without_entries_writes_no_files(local_store: ObjectStore) -> None:
    result = write(local_store, NODES, [])
    assert (len(result), list(result), result.find("x"), result.find_prefixes([""])) == (0, [], None, [])
    assert local_store.list() == [], "no entries need no file"
    assert list(write(local_store, NODES, [node("a", 1)], result)) == [node("a", 1)]


def test_columns_with_one_value_are_only_in_the_metadata(local_store: ObjectStore) -> None:
    """Columns in which all entries of a file are equal are stored only in the file's metadata, as JSON.

    Lookups, streams and reads of single columns return the values of these columns, too.
    """
    entries = [replace(fragment(f"f{at}"), row_count=at, bytes=7) for at in range(3)]
    stored_fragments = write(local_store, FRAGMENTS, entries)
    (file,) = stored_fragments.files.files
    metadata = pq.read_metadata(io.BytesIO(local_store.read(file.path)))
    columns = {metadata.row_group(0).column(at).path_in_schema for at in range(metadata.num_columns)}
    assert {"key", "id", "row_count"} <= columns
    constants = json.loads(metadata.metadata[b"metastore.constants"])
    assert constants["bytes"] == 7
    assert constants["unprofiled"] == ["7"]
    assert columns.isdisjoint(constants)
    assert {path.split(".")[0] for path in columns} | constants.keys() == set(FRAGMENTS.schema.names)
    assert list(stored_fragments.stream()) == entries
    assert stored_fragments.find_prefixes(["day=1"]) == entries
    assert stored_fragments.find(entries[1].key) == entries[1]
    assert stored_fragments.read_rows(["bytes"]).to_pydict() == {"bytes": [7, 7, 7]}
    assert stored_fragments.read_rows(["bytes", "row_count"]).to_pydict() == {"bytes": [7] * 3, "row_count": [0, 1, 2]}
    changed_entries = write(
        local_store, FRAGMENTS, [replace(entry, bytes=8) for entry in entries[1:]], stored_fragments
    )
    assert {entry.bytes for entry in changed_entries} == {8}
    assert len(changed_entries) == 2


@pytest.mark.parametrize("constants", [{}, {"bytes": "x"}, {"bytes": 1 << 70}, {"bytes": [1]}])
def test_a_file_without_valid_values_of_its_constant_columns_is_corrupt(
    local_store: ObjectStore, constants: dict[str, object]
) -> None:
    """Reads name the file in an error if its metadata lack a constant column or have a bad value.

    A bad value has the wrong type, or is out of the range of the column. Constant columns are stored only in the
    metadata, because all rows have the same value.
    """
    entries = write(local_store, FRAGMENTS, [fragment("a"), fragment("b")])
    (file,) = entries.files.files
    valid = json.loads(pq.read_metadata(io.BytesIO(local_store.read(file.path))).metadata[CONSTANTS.encode()])
    damaged_constants = {**valid, **constants} if constants else {}
    forge_constants(local_store, file.path, json.dumps(damaged_constants))
    damaged_entries = StoredEntries(FRAGMENTS, local_store, entries.files)
    for read in (
        lambda: damaged_entries.find("day=1\0s3://lake/a.parquet"),
        lambda: list(damaged_entries.stream()),
        lambda: damaged_entries.read_rows(["bytes"]),
    ):
        with pytest.raises(CorruptionError, match=file.path):
            read()


def test_a_constant_column_has_a_checksum(local_store: ObjectStore) -> None:
    """A changed value of a constant column is an error, as a changed page of another column is.

    The value is stored in the metadata of the file.
    """
    entries = write(local_store, FRAGMENTS, [fragment("a"), fragment("b")])
    (file,) = entries.files.files
    valid = json.loads(pq.read_metadata(io.BytesIO(local_store.read(file.path))).metadata[CONSTANTS.encode()])
    forge_constants(local_store, file.path, json.dumps({**valid, "bytes": valid["bytes"] + 1}), crc=1)
    with pytest.raises(CorruptionError, match=file.path):
        list(StoredEntries(FRAGMENTS, local_store, entries.files).stream())


def forge_constants(store: ObjectStore, path: str, constants: str, crc: int | None = None) -> None:
    """Replace the JSON of constant columns in a file's metadata.

    The checksum of the JSON is set to `crc`, or by default to the right one.
    """
    data = io.BytesIO(store.read(path))
    forged_metadata = {
        SECTIONS: pq.read_metadata(data).metadata[SECTIONS.encode()],
        CONSTANTS: constants,
        CONSTANTS_CRC: str(zlib.crc32(constants.encode()) if crc is None else crc),
    }
    store.write_parquet(path, pq.read_table(data).replace_schema_metadata(forged_metadata))


def test_a_long_value_of_the_first_row_is_no_constant(local_store: ObjectStore) -> None:
    """A long value of the first row is not copied to find out whether all rows have it.

    Such copies took gigabytes. The value is stored compressed, even if there is no other row.
    """
    ids = tuple(f"a long id of a column {number}" for number in range(5000))
    entries = [replace(fragment("a"), unprofiled=ids), *(fragment(f"b{number:05}") for number in range(4000))]
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    pa.set_memory_pool(pool)
    try:
        stored_fragments = write(local_store, FRAGMENTS, entries)
    finally:
        pa.set_memory_pool(default)
    assert pool.max_memory() < 50e6
    assert list(stored_fragments.stream()) == entries
    (file,) = write(local_store, FRAGMENTS, entries[:1]).files.files
    assert len(local_store.read(file.path)) < 60_000


def test_a_commit_that_removes_many_entries_writes_few_row_groups(local_store: ObjectStore) -> None:
    entries = write(local_store, FRAGMENTS, [fragment(f"{number:05}") for number in range(20_000)])
    changed_entries = write(
        local_store, FRAGMENTS, [fragment(f"{number:05}") for number in range(5000, 20_000)], entries
    )
    *_, file = changed_entries.files.files
    metadata = pq.read_metadata(io.BytesIO(local_store.read(file.path)))
    assert file.rows == 5000
    assert metadata.num_row_groups <= 2
    assert len(changed_entries) == 15_000


@pytest.mark.s3
def test_a_lookup_of_a_partition_reads_little_of_a_large_file(s3_store: ObjectStore, read_sizes: list[int]) -> None:
    """A lookup of a partition's fragments reads at most 40 kB of a file with 0.9 MB, in two requests.

    The file has the entries of 16,000 fragments in 160 partitions.
    """
    numbers = random.Random(0)
    entries = [
        FragmentEntry(
            f"{numbers.getrandbits(128):032x}",
            f"day={at // 100:03}",
            f"day={at // 100:03}/{numbers.getrandbits(128):032x}.parquet",
            numbers.getrandbits(20),
            numbers.getrandbits(10),
            "spec",
            (),
            ProfileFiles("", "", (), f"{at // 25:032x}", f"{numbers.getrandbits(64):016x}", 25, 100_000 + at // 25),
        )
        for at in range(16_000)
    ]
    stored_fragments = write(s3_store, FRAGMENTS, entries)
    assert len(stored_fragments.files.files) == 1
    read_sizes.clear()
    assert sorted(map(FRAGMENTS.key, entries[7000:7100])) == [
        entry.key for entry in stored_fragments.find_prefixes(["day=070\0"])
    ]
    assert len(read_sizes) == 2
    assert sum(read_sizes) <= 40_000
