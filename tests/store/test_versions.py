"""Versions are published atomically by one winner and read as published.

Pending profiles are reused: a refresh saves these statistics of data files before it publishes. An entry is the record
of a data file, a partition or the like in a version. The rows of an index, and the entries of each kind, are a set of
segments. A commit adds a segment, and may merge some. The oldest segment is the base. A version is the published
statistics of a table at one snapshot.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.errors import CorruptionError, StoreError, VersionConflictError, VersionNotFoundError
from metastore_assets.store import segment_levels
from metastore_assets.store import versions as versions_module
from metastore_assets.store.documents import Documents
from metastore_assets.store.entries import FRAGMENTS, PARTITIONS, StoredEntries, StoredMetadataCache
from metastore_assets.store.entry_changes import EntryChanges, change_metadata_cache
from metastore_assets.store.merged_set import count_changed_keys, set_to_merge
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import SegmentFile, SegmentFiles
from metastore_assets.store.version import NodeEntry, RetiredFragment, ValueFilterFiles, Version
from metastore_assets.store.version_document import FORMAT_VERSION, OlderFormatError, stored_entries
from metastore_assets.store.versions import VersionStore
from tests.store.sample_versions import SCHEMA, files, fragment, version, write_small_segments


@pytest.fixture
def versions(store: ObjectStore) -> VersionStore:
    """The version store of a table without versions."""
    return VersionStore(store, "orders")


@pytest.fixture
def local_versions(local_store: ObjectStore) -> VersionStore:
    """The version store, on local disk, of a table without versions."""
    return VersionStore(local_store, "orders")


def test_the_set_with_the_most_segments_is_merged(local_versions: VersionStore) -> None:
    """A commit merges segments of one set only: the changed set with the most segments.

    If several changed sets have equally many, it is the one with the most keys outside the base.
    """
    local_versions.publish(version(1))
    latest_version = local_versions.latest()
    assert latest_version is not None
    base, delta = SegmentFile("base", 900, "a", "z"), SegmentFile("delta", 5, "a", "z")
    index = replace(latest_version, index=SegmentFiles(905, (base, delta)))
    change_counts = {"index": 9, "value_filters": 9, "partitions": 9}
    assert set_to_merge(index, change_counts) == "index"
    larger_delta = delta._replace(rows=6)
    filters = ValueFilterFiles(SegmentFiles(7, (larger_delta, larger_delta)), ("1",))
    assert set_to_merge(replace(index, value_filters=filters), change_counts) == "value_filters"
    partitions = StoredEntries(PARTITIONS, local_versions.objects, SegmentFiles(9, (delta,) * 3))
    all_sets = replace(index, value_filters=filters, partitions=partitions)
    assert set_to_merge(all_sets, change_counts) == "partitions"
    assert set_to_merge(all_sets, {**change_counts, "partitions": 0}) == "value_filters"
    assert set_to_merge(all_sets, {"index": 9}) == "index"
    assert set_to_merge(all_sets, {}) == ""
    assert set_to_merge(None, change_counts) == ""


def test_only_kinds_with_many_changed_entries_are_candidates_for_a_merge(local_versions: VersionStore) -> None:
    """A commit may merge segments of a kind of entries only if it changes many entries of this kind.

    A kind with 200 changed keys is a candidate for a merge, and one with 100 is not.
    """
    local_versions.publish(version(1))
    base = local_versions.latest()
    assert base is not None
    assert isinstance(base.fragments, StoredEntries)
    few, many = (
        EntryChanges(FRAGMENTS, base.fragments, {f"{at}": fragment(f"{at}") for at in range(count)}, {})
        for count in (100, 200)
    )
    assert count_changed_keys([few]) == {}
    assert count_changed_keys([many]) == {"fragments": 200}


def test_a_commit_without_changes_of_a_kind_merges_another_kind(
    local_versions: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The set of fragments has the most segments, and a commit changes no fragment.

    The commit merges segments of another set: that of merge nodes, which are intermediate profiles (merged statistics).
    """
    write_small_segments(monkeypatch)
    monkeypatch.setattr(segment_levels, "_MIN_CHANGED", 0)
    nodes = [NodeEntry(f"{at:04}", files(f"{at}"), "spec") for at in range(64)]
    local_versions.publish(replace(version(1, fragments=64), nodes=nodes))
    for number in range(2, 9):
        base = local_versions.latest()
        assert base is not None
        changed_fragment = fragment(f"changed-{number}")
        local_versions.publish(
            replace(base, number=number, fragments=[*base.fragments, changed_fragment]), base, may_merge=False
        )
    base = local_versions.latest()
    assert base is not None
    assert isinstance(base.fragments, StoredEntries)
    assert len(base.fragments.files.segments) > 2
    merging: list[str] = []
    write_entries = versions_module.write_entries

    def record_merging(*arguments: Any, may_merge: bool, **options: Any) -> SegmentFiles:
        merging.extend([arguments[1].kind.name] if may_merge else [])
        return write_entries(*arguments, may_merge=may_merge, **options)

    monkeypatch.setattr(versions_module, "write_entries", record_merging)
    changed_nodes = [replace(node, spec_id="other") for node in nodes]
    local_versions.publish(replace(base, number=9, nodes=changed_nodes), base)
    assert [name for name in merging if name != "metadata_cache"] == ["nodes"]


@pytest.mark.parametrize("is_writing", [False, True])
def test_the_number_of_a_removed_version_is_not_published_again(
    versions: VersionStore, monkeypatch: pytest.MonkeyPatch, *, is_writing: bool
) -> None:
    """The number of a removed version is not published again.

    After a publisher has read version 1, two others publish versions 2 and 3, and remove the versions before 3. The
    first publisher then publishes no version 2, although there is none. With `is_writing`, the others do this when the
    first publisher has written all its entries.
    """
    versions.publish(version(1))
    base = versions.latest()
    other = VersionStore.of_folder("orders", versions.objects)

    def publish_others(*_: object) -> tuple[str, ...]:
        monkeypatch.undo()
        for number in (2, 3):
            other.publish(version(number))
        assert other.expire(1, timedelta(0), now=datetime.now(UTC) + timedelta(days=1)).versions == 2
        return ()

    if is_writing:
        monkeypatch.setattr(versions_module, "garbage_paths", publish_others)
    else:
        publish_others()
    with pytest.raises(VersionConflictError, match=r"version 2\b.*version 3\b"):
        versions.publish(version(2, "late"), base)
    assert versions.numbers() == [3]


def test_a_table_without_versions_has_no_latest_version(versions: VersionStore) -> None:
    assert versions.numbers() == []
    assert versions.latest() is None
    with pytest.raises(VersionNotFoundError, match=r"'orders'.*version 1\b"):
        versions.read(1)


def test_a_version_is_read_as_published(versions: VersionStore) -> None:
    versions.publish(version(1))
    result = versions.latest()
    assert result == version(1)
    assert result is not None
    assert result.schema.equals(SCHEMA, check_metadata=True)
    assert list(result.paths()) == list(version(1).paths())
    assert versions.read(1) == result


@pytest.mark.parametrize(
    "committed_at", [None, datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5)))]
)
def test_times_are_read_as_published(local_versions: VersionStore, committed_at: datetime | None) -> None:
    local_versions.publish(replace(version(1), committed_at=committed_at))
    assert local_versions.read(1).committed_at == committed_at


def test_an_empty_version_is_read_as_published(local_versions: VersionStore) -> None:
    empty = replace(version(1, fragments=0), partitions=(), nodes=(), specs={}, partition_columns=())
    local_versions.publish(empty)
    assert local_versions.latest() == empty


def test_the_latest_version_is_the_last_published_one(versions: VersionStore) -> None:
    for number in range(1, 12):
        versions.publish(version(number))
    assert versions.numbers() == list(range(1, 12))
    latest = versions.latest()
    assert latest is not None
    assert latest.number == 11
    assert versions.read(3) == version(3)
    with pytest.raises(VersionNotFoundError, match=r"version 12\b.*\b1-11"):
        versions.read(12)


@pytest.mark.s3
def test_the_newest_version_and_a_newer_one_are_requested_at_once(
    s3_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an object store, a version is requested while another request asks whether the next one exists.

    Each of the two requests waits until the other one has begun.
    """
    VersionStore(s3_store, "orders").publish(version(1))
    barrier, load, exists = threading.Barrier(2, timeout=10), versions_module.load_version, Documents.exists

    def load_at_once(documents: Documents, number: int) -> Version:
        barrier.wait()
        return load(documents, number)

    def exists_at_once(documents: Documents, number: int) -> bool:
        barrier.wait()
        return exists(documents, number)

    monkeypatch.setattr(versions_module, "load_version", load_at_once)
    monkeypatch.setattr(Documents, "exists", exists_at_once)
    assert VersionStore(s3_store, "orders").latest() == version(1)


@pytest.mark.parametrize("number", [1, 2, 4, 9])
def test_only_the_next_number_can_be_published(versions: VersionStore, number: int) -> None:
    """Version 2 is the newest, and version 1 was removed.

    Publishing 1, 2, 4 or 9 is a conflict and changes nothing.
    """
    versions.publish(version(1))
    versions.publish(version(2))
    versions.objects.delete(["versions/1.json"])
    with pytest.raises(VersionConflictError, match=rf"version {number}\b.*'orders'.*version 2\b"):
        versions.publish(version(number, "late"))
    assert versions.numbers() == [2]
    assert versions.latest() == version(2)


def test_the_loser_of_a_race_leaves_no_files(versions: VersionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another publisher's version appears after this publisher looked for the newest one.

    This publisher fails and leaves no files.
    """
    versions.publish(version(1, "winner"))
    paths = [info.path for info in versions.objects.list()]
    monkeypatch.setattr(VersionStore, "newest", lambda self: 0)
    with pytest.raises(VersionConflictError):
        versions.publish(version(1, "loser"))
    assert versions.read(1) == version(1, "winner")
    assert [info.path for info in versions.objects.list()] == paths


def test_a_conflict_is_reported_even_if_nothing_can_be_deleted(
    versions: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher meets a conflict and cannot delete its files.

    The error is the conflict, so that the publisher plans again.
    """
    versions.publish(version(1))
    base = versions.latest()
    publish = Documents.publish

    def publish_second(self: Documents, number: int, fields: dict[str, object]) -> None:
        publish(self, number, fields)
        publish(self, number, fields)

    def refuse(self: ObjectStore, paths: list[str]) -> None:
        raise StoreError("cannot delete")

    monkeypatch.setattr(Documents, "publish", publish_second)
    monkeypatch.setattr(ObjectStore, "delete", refuse)
    with pytest.raises(VersionConflictError):
        versions.publish(version(2), base)
    versions.discard(version(3), base)


def test_a_retried_put_that_finds_its_object_has_succeeded(
    versions: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each put is made twice, as by a client that lost the first response.

    The second one finds its object and is no error.
    """
    write = ObjectStore.write

    def twice(self: ObjectStore, path: str, data: bytes, *, create: bool = False) -> None:
        write(self, path, data, create=create)
        write(self, path, data, create=create)

    monkeypatch.setattr(ObjectStore, "write", twice)
    versions.publish(version(1))
    assert versions.latest() == version(1)


def test_entries_are_read_at_first_use(versions: VersionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    versions.publish(version(1))
    read_paths: list[str] = []
    open_parquet = ObjectStore.open_parquet
    monkeypatch.setattr(
        ObjectStore,
        "open_parquet",
        lambda self, path, **more: (read_paths.append(path), open_parquet(self, path, **more))[1],
    )
    result = versions.read(1)
    copy = pickle.loads(pickle.dumps(result))
    assert len(result.fragments) == 3
    assert not read_paths
    assert len(pickle.dumps(result)) < 4000
    assert copy.fragments[1].id == "fragment-1-1"
    assert next(iter(copy.fragments)).id == "fragment-1-0"
    assert [path.split(".")[-2] for path in read_paths] == ["fragments"], (
        "entries were read more than once, or others were read"
    )


def test_the_document_stays_small(local_versions: VersionStore) -> None:
    local_versions.publish(version(1, fragments=20_000))
    assert len(local_versions.objects.read("versions/1.json")) < 3000


def test_live_fragments_are_counted_without_reading_any(
    local_versions: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    published_version = version(1, fragments=5)
    local_versions.publish(replace(published_version, retired=[RetiredFragment(1, fragment("gone"))]))
    read_paths: list[str] = []
    original = ObjectStore.open_parquet
    monkeypatch.setattr(
        ObjectStore, "open_parquet", lambda self, path, **more: read_paths.append(path) or original(self, path)
    )
    assert local_versions.read(1).fragment_count == 5
    assert read_paths == []


def test_a_read_version_can_be_published_again(versions: VersionStore) -> None:
    """A version that was read from the store is published as the next version, with the same entries."""
    versions.publish(version(1))
    versions.publish(replace(versions.read(1), number=2))
    assert versions.latest() == replace(version(1), number=2)


def test_cached_metadata_are_stored_by_each_version(versions: VersionStore) -> None:
    """Each version has all metadata that planning cached.

    Publishing a version writes a file with the cached values that the previous version lacks, if there are any.
    """
    many = {b"\xff%d" % number: b"value" for number in range(2000)}
    versions.publish(replace(version(1), metadata_cache=many))
    first = versions.read(1)
    assert first.metadata_cache == many
    metadata_cache = {**many, b"new": b"\x00"}
    del metadata_cache[b"\xff7"]
    versions.publish(replace(version(2), metadata_cache=metadata_cache), first)
    second = versions.read(2)
    assert second.metadata_cache == metadata_cache
    versions.publish(replace(version(3), metadata_cache=second.metadata_cache), second)
    paths = [cache_files(versions.read(number)) for number in (1, 2, 3)]
    assert [len(paths_of_version) for paths_of_version in paths] == [1, 2, 2]
    assert paths[1] == paths[2]
    assert pickle.loads(pickle.dumps(versions.read(3).metadata_cache)) == metadata_cache
    assert versions.metadata_cache() == metadata_cache


def test_unused_cached_values_are_retained(versions: VersionStore) -> None:
    """A plan changes a few of 2,000 cached metadata values.

    The next version retains the others without reading them.
    """
    values = {b"%04d" % number: b"value" for number in range(2000)}
    versions.publish(replace(version(1), metadata_cache=values))
    first = versions.read(1)
    changed_cache = change_metadata_cache(
        first.metadata_cache, {b"new": b"x", b"0003": b"y", b"0004": b"value"}, [b"0007"]
    )
    expected = {**values, b"new": b"x", b"0003": b"y"}
    del expected[b"0007"]
    assert changed_cache == expected
    versions.publish(replace(version(2), metadata_cache=changed_cache), first)
    second = versions.read(2)
    assert second.metadata_cache == expected
    assert cache_files(second)[:1] == cache_files(first)
    assert isinstance(second.metadata_cache, StoredMetadataCache)
    assert second.metadata_cache.entries.files.files[1].rows == 3
    versions.objects.delete(cache_files(second))
    last_cache = change_metadata_cache(versions.read(2).metadata_cache, {b"new": b"z"})
    versions.publish(replace(version(3), metadata_cache=last_cache), versions.read(2))
    assert versions.read(3).metadata_cache == {b"new": b"z"}


def test_few_values_are_looked_up_one_by_one(local_versions: VersionStore) -> None:
    values = {b"%04d" % number: b"value %d" % number for number in range(100)}
    local_versions.publish(replace(version(1), metadata_cache=values))
    cache = local_versions.metadata_cache()
    assert cache.get(b"other") is None
    assert cache[b"0042"] == b"value 42"
    assert "_values" not in vars(cache)
    assert {key: cache[key] for key in values} == values


def test_a_damaged_metadata_cache_is_empty(versions: VersionStore) -> None:
    versions.publish(replace(version(1), metadata_cache={b"a": b"b"}))
    for data in (b"", None):
        result = versions.read(1)
        (path,) = cache_files(result)
        if data is None:
            versions.objects.delete([path])
        else:
            versions.objects.write(path, data)
        assert versions.metadata_cache() == {}
    versions.publish(replace(version(2), metadata_cache={b"c": b"d"}), versions.read(1))
    assert versions.metadata_cache() == {b"c": b"d"}


def cache_files(version: Version) -> tuple[str, ...]:
    return next(entries.files.paths() for entries in stored_entries(version) if entries.kind.name == "metadata_cache")


def test_a_version_of_a_newer_release_is_refused(versions: VersionStore) -> None:
    versions.publish(version(1))
    document = json.loads(versions.objects.read("versions/1.json"))
    versions.objects.write("versions/2.json", json.dumps({**document, "format_version": 99, "number": 2}).encode())
    with pytest.raises(StoreError, match=rf"2\.json: format_version.*\b99\b.*\b{FORMAT_VERSION}\b.*\bupgrade\b"):
        versions.latest()
    assert versions.read(1) == version(1)


def test_a_table_of_an_older_release_is_refused(versions: VersionStore) -> None:
    versions.publish(version(1))
    document = json.loads(versions.objects.read("versions/1.json"))
    versions.objects.write("versions/2.json", json.dumps({**document, "format_version": 1, "number": 2}).encode())
    # Not a CorruptionError: `refresh --full` publishes the next number and leaves the old files.
    uri = re.escape(versions.objects.uri())
    with pytest.raises(OlderFormatError, match=rf"2\.json: format_version.*\b1\b.* {uri} .*\brefresh\b"):
        versions.latest()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[: len(text) // 2], r".*\bline \d\d"),
        (lambda text: b"", r".*\bline 1 column 1\b"),
        (lambda text: b"null", r".*\bNone\b"),
        (lambda text: b"{}", "'format_version'"),
        (lambda text: text.replace(b'"schema": "', b'"schema": "eJy'), r".*\bpadding\b"),
        (lambda text: text.replace(b"2024-05-06", b"yesterday!"), ".*'yesterday!"),
        (lambda text: text.replace(b'"files": {', b'"files": [], "x": {'), r"files is a list\b"),
        (
            lambda text: text.replace(b'"format_version": %d' % FORMAT_VERSION, b'"format_version": "4"'),
            "format_version is '4'",
        ),
        (lambda text: b"\xff" + text, r".*\b0xff\b"),
        (lambda text: text.replace(b'"rows": 3', b'"row": 3'), "'rows'"),
    ],
)
def test_a_damaged_document_is_named(local_versions: VersionStore, damage: object, reason: str) -> None:
    """The error for a damaged version document has its path, and the field or the position of the damage."""
    local_versions.publish(version(1))
    data = local_versions.objects.read("versions/1.json")
    assert callable(damage)
    assert damage(data) != data
    local_versions.objects.write("versions/1.json", damage(data))
    with pytest.raises(CorruptionError, match=rf"versions/1\.json .*\({reason}.*\)"):
        local_versions.latest()


def many_files(number: int = 0) -> SegmentFiles:
    """Return a segment set whose first segment has so many files that their list is packed.

    Sets with different numbers share no file of the first segment.
    """
    names = [f"{20 * number + at:032x}" for at in range(20)]
    files = tuple(
        SegmentFile(
            f"index/{name}.fragments.parquet",
            10 + at,
            f"k{at:02}",
            None if at == 7 else f"k{at:02}z",
            continues=at > 0,
            footer_bytes=at,
            absorbed=at in (0, 3),
            companion=f"index/{name}.columns.parquet",
            compact_footer_start=2 * at,
        )
        for at, name in enumerate(names)
    )
    return SegmentFiles(200, (*files, SegmentFile("index/delta.parquet", 3, "k03", "k05")))


def test_a_list_of_many_files_is_read_as_published(local_versions: VersionStore) -> None:
    published_version = replace(version(1), index=many_files())
    local_versions.publish(published_version)
    files = json.loads(local_versions.objects.read("versions/1.json"))["index"]["files"]
    assert ["columns" in fields for fields in files] == [True, False]
    assert local_versions.read(1).index == many_files()


@pytest.mark.parametrize(
    "changes",
    [{"path": "index/0.fragments.parquet"}, {"companion": f"index/{0:032x}.columns.parquet"}, {"companion": None},
     {"continues": False}],
)  # fmt: skip
def test_files_of_other_forms_are_read_as_published(local_versions: VersionStore, changes: dict[str, Any]) -> None:
    """A list of files is read as published, even if one of them does not fit into its packed form.

    Version documents have long lists in a packed form, with one prefix and one suffix for all paths.
    """
    files = list(many_files().files)
    files[7] = files[7]._replace(**changes)
    index = SegmentFiles(200, tuple(files))
    local_versions.publish(replace(version(1), index=index))
    assert local_versions.read(1).index == index


def test_unchanged_segments_keep_their_packed_form(local_versions: VersionStore) -> None:
    """Two versions have the same packed list of paths if a segment has the same files in both.

    A version in which a bound of a file has changed, and one with other files, are read as published.
    """
    local_versions.publish(replace(version(1), index=many_files()))
    base = local_versions.read(1)
    assert base.index is not None
    changed_files = (base.index.files[0]._replace(first="k"), *base.index.files[1:])
    indexes = [base.index, replace(base.index, files=changed_files), many_files(1)]
    for number, index in enumerate(indexes, 2):
        local_versions.publish(replace(version(number), index=index), local_versions.read(number - 1))
        assert local_versions.read(number).index == index
    packed_names = [
        json.loads(local_versions.objects.read(f"versions/{number}.json"))["index"]["files"][0]["names"]
        for number in (1, 2, 3, 4)
    ]
    assert len(set(packed_names)) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", -1), ("rows", 1 << 63), ("rows", True), ("rows", "1"), ("footer_bytes", 0.5), ("first", 7),
        ("last", ["k"]), ("absorbed", 20), ("absorbed", -1), ("absorbed", True),
    ],
)  # fmt: skip
def test_an_invalid_file_in_a_packed_list_is_damage(local_versions: VersionStore, field: str, value: object) -> None:
    def damage(columns: dict[str, Any]) -> None:
        columns[field][1] = value

    check_packed_damage(local_versions, damage)


@pytest.mark.parametrize("field", ["rows", "first", "absorbed"])
def test_a_packed_list_without_a_column_is_damage(local_versions: VersionStore, field: str) -> None:
    check_packed_damage(local_versions, lambda columns: columns.pop(field))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path", None), ("path", "index/"), ("path", ["../", ""]), ("path", ["/", ""]),
        ("path", ["a//", ""]), ("path", ["a", "/."]), ("path", ["a\0", ""]), ("path", ["a", "b", "c"]),
        ("companion", ["a/../", ""]), ("companion", 3), ("names", "AA=="), ("names", 1), ("names", "é"),
        ("columns", "AA=="), ("columns", None),
    ],
)  # fmt: skip
def test_an_invalid_field_of_a_packed_list_is_damage(local_versions: VersionStore, field: str, value: object) -> None:
    check_packed_damage(local_versions, lambda columns: None, {field: value})


def check_packed_damage(
    versions: VersionStore, damage: Callable[[dict[str, Any]], object], fields: Mapping[str, object] | None = None
) -> None:
    """Check that a version whose packed list of files is damaged cannot be read.

    `damage` changes the columns of the packed list. `fields` replace other fields of the list.
    """
    versions.publish(replace(version(1), index=many_files()))
    document = json.loads(versions.objects.read("versions/1.json"))
    packed = document["index"]["files"][0]
    columns = json.loads(zlib.decompress(base64.b64decode(packed["columns"])))
    damage(columns)
    packed["columns"] = base64.b64encode(zlib.compress(json.dumps(columns).encode())).decode()
    packed.update(fields or {})
    versions.objects.write("versions/1.json", json.dumps(document).encode())
    with pytest.raises(CorruptionError, match=r"versions/1\.json .*\((index[ :]|'(rows|first|absorbed)' is missing)"):
        versions.latest()


def test_other_files_are_no_versions(local_versions: VersionStore) -> None:
    local_versions.publish(version(1))
    for name in ["0.json", "01.json", "2.json.bak", "x.json", "2/3.json", "-1.json", "2.JSON"]:
        local_versions.objects.write(f"versions/{name}", b"{}")
    assert local_versions.numbers() == [1]


def test_pending_profiles_are_returned_until_cleared(versions: VersionStore) -> None:
    assert versions.pending() == []
    versions.save_pending([])
    assert versions.objects.list() == []
    versions.save_pending([fragment("a"), fragment("b")])
    other = pickle.loads(pickle.dumps(versions))
    other.save_pending([fragment("c")])
    assert sorted(entry.id for entry in versions.pending()) == ["a", "b", "c"]
    other.save_pending([fragment("d")])
    versions.clear_pending()
    assert [entry.id for entry in versions.pending()] == ["d"], "profiles that were not read are not cleared"
    assert [entry.id for entry in other.pending()] == ["d"]


@pytest.mark.parametrize("value", [1, "x", None])
def test_a_pending_file_with_other_values_is_ignored(local_versions: VersionStore, value: object) -> None:
    """A pending file whose values have wrong types is ignored.

    Another release may have written it. The profiles in other pending files are returned.
    """
    rows = pa.table({name: [value] for name in FRAGMENTS.schema.names})
    local_versions.objects.write_parquet("pending/x.parquet", rows)
    local_versions.save_pending([fragment("a")])
    assert [entry.id for entry in local_versions.pending()] == ["a"]


def test_a_publisher_clears_its_pending_profiles(local_versions: VersionStore) -> None:
    local_versions.save_pending([fragment("a")])
    local_versions.clear_pending()
    assert local_versions.pending() == []


def test_one_of_two_pending_profiles_of_a_fragment_is_returned(local_versions: VersionStore) -> None:
    first, second, other = fragment("a"), replace(fragment("a"), row_count=11), replace(fragment("a"), spec_id="other")
    local_versions.save_pending([first])
    local_versions.save_pending([second, other])
    assert len(local_versions.pending()) == 2
    assert {entry.spec_id for entry in local_versions.pending()} == {"spec", "other"}


def test_clearing_a_cleared_profile_is_no_error(local_versions: VersionStore) -> None:
    local_versions.save_pending([fragment("a")])
    twin = pickle.loads(pickle.dumps(local_versions))
    assert twin.pending() == local_versions.pending()
    local_versions.clear_pending()
    twin.clear_pending()
    assert twin.pending() == []


def test_tables_are_independent(store: ObjectStore) -> None:
    VersionStore(store, "orders").publish(version(1))
    assert VersionStore(store, "order").latest() is None
    assert VersionStore(store, "lineitem").pending() == []
