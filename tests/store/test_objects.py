"""Object stores write atomically, create only once, list, and read ranges, on local disk and on S3."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import random
import re
import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import process_time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError, ObjectExistsError, ObjectNotFoundError, StoreError
from metastore_assets.storage.listing import local_modified
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.remote import RemoteObjects

NUMBERS = pa.table({"number": pa.array(range(1000)), "text": pa.array([f"text {i}" for i in range(1000)])})


def test_written_objects_are_read_unchanged(store: ObjectStore) -> None:
    store.write("folder/object", b"first")
    store.write("folder/object", b"second")
    assert store.read("folder/object") == b"second"


@pytest.mark.s3
def test_cached_ends_of_objects_are_limited_in_bytes(s3_store: ObjectStore) -> None:
    """Of the cached ends of 20 objects, a megabyte each, the newest eight stay in the cache."""
    backend = s3_store._backend
    assert isinstance(backend, RemoteObjects)
    for number in range(20):
        backend.cache_tail(str(number), 5 << 20, bytes(1 << 20))
    cached_numbers = [number for number in range(20) if backend.cached_tail(str(number)) is not None]
    assert cached_numbers == list(range(12, 20))
    backend.cache_tail("19", 5 << 20, b"new")
    assert backend.cached_tail("19") == (5 << 20, b"new")


def test_create_happens_once(store: ObjectStore) -> None:
    store.write("object", b"first", create=True)
    with pytest.raises(ObjectExistsError, match=r"/object\b"):
        store.write("object", b"second", create=True)
    assert store.read("object") == b"first"


def test_missing_objects_are_named(store: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError, match=f"{store.uri('no/thing')}"):
        store.read("no/thing")
    with pytest.raises(ObjectNotFoundError, match="no/thing"):
        store.open_parquet("no/thing")


def test_list_compares_complete_path_segments_at_any_depth(store: ObjectStore) -> None:
    assert store.list() == []
    for path in ["a/x", "a/deep/er/y", "ab/z", "b"]:
        store.write(path, b"12")
    assert [info.path for info in store.list()] == ["a/deep/er/y", "a/x", "ab/z", "b"]
    assert [info.path for info in store.list("a")] == ["a/deep/er/y", "a/x"]
    assert store.list("nothing") == []
    assert {(info.size, info.modified.utcoffset()) for info in store.list()} == {(2, timedelta(0))}


def test_folders_are_those_directly_below(store: ObjectStore) -> None:
    assert store.folders() == ()
    for path in ["b/x", "a/deep/er/y", "a%b c/z", "object"]:
        store.write(path, b"")
    assert store.folders() == ("a", "a%b c", "b")
    assert store.child("a").folders() == ("deep",)


def test_deleting_a_folder_deletes_its_content(store: ObjectStore) -> None:
    for path in ("one/a", "one/two/b", "one-more/c"):
        store.write(path, b"x")
    store.delete_folder("one")
    store.delete_folder("never")
    assert [info.path for info in store.list()] == ["one-more/c"]
    assert store.folders() == ("one-more",)


def test_deleting_a_missing_object_is_no_error(store: ObjectStore) -> None:
    store.write("a", b"")
    store.write("b", b"")
    store.delete(["a", "never/was"])
    store.delete(["a"])
    assert [info.path for info in store.list()] == ["b"]


def test_a_child_is_a_folder(store: ObjectStore) -> None:
    child = store.child("tables").child("orders")
    child.write("x", b"1")
    assert store.read("tables/orders/x") == b"1"
    assert [info.path for info in child.list()] == ["x"]
    assert child.uri("x") == store.uri("tables/orders/x")


@pytest.mark.parametrize("path", ["k=a%2Fb/c d", "%25", "é/😀", "a,b;c?d#e&f", "a+b", "quote'\"`", "~tilde"])
def test_names_are_used_literally(store: ObjectStore, path: str) -> None:
    store.write(f"{path}/object", path.encode())
    assert [info.path for info in store.list()] == [f"{path}/object"]
    assert [info.path for info in store.list(path)] == [f"{path}/object"]
    assert store.child(path).read("object") == path.encode()
    store.delete([f"{path}/object"])
    assert store.list() == []


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/./b", "nul\0"])
def test_paths_stay_below_the_root(local_store: ObjectStore, path: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(path))):
        local_store.write(path, b"")


def test_a_store_is_a_small_value(store: ObjectStore) -> None:
    store.write("x", b"1")
    copy = pickle.loads(pickle.dumps(store))
    assert copy == store
    assert hash(copy) == hash(store)
    assert copy.read("x") == b"1"
    assert len(pickle.dumps(store)) < 1000
    assert store != store.child("x")


def test_a_store_shows_no_secrets() -> None:
    store = ObjectStore("s3://bucket/root", {"aws_secret_access_key": "hush"})
    assert repr(store) == "ObjectStore('s3://bucket/root')"


def test_local_roots_have_several_spellings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = ObjectStore(str(tmp_path / "my root"))
    spellings = [
        "my root",
        "./my root/",
        "~/my root",
        f"file://{tmp_path}/my%20root",
        f"file:{tmp_path}/my%20root",
        "x/../my root",
    ]
    assert {ObjectStore(spelling) for spelling in spellings} == {expected}
    assert ObjectStore(f"file://{tmp_path}/a#b?c").uri() == f"{tmp_path}/a#b?c", "as the URIs of tables"


@pytest.mark.slow
def test_metadata_of_more_than_100_megabytes_are_read(local_store: ObjectStore) -> None:
    """A Parquet file with 100 MB of metadata is read.

    Files of value counts may have as much, because they contain values there.
    """
    text = "x" * 100_000_001
    with local_store.parquet_writer("x.parquet", NUMBERS.schema) as writer:
        writer.write_table(NUMBERS)
        writer.add_metadata({"text": text})
    with local_store.open_parquet("x.parquet") as file:
        assert file.metadata.metadata[b"text"].decode() == text


def test_parquet_is_read_as_written(store: ObjectStore) -> None:
    with store.parquet_writer("x.parquet", NUMBERS.schema) as writer:
        writer.write_table(NUMBERS.slice(0, 600))
        writer.write_table(NUMBERS.slice(600), row_group_rows=100)
        writer.add_metadata({"key": "välue"})
    file = store.open_parquet("x.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [600, 100, 100, 100, 100]
    assert file.metadata.metadata[b"key"].decode() == "välue"
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert store.read_parquet("x.parquet").equals(NUMBERS)
    assert store.read_parquet("x.parquet", ["text"]).equals(NUMBERS.select(["text"]))


_INSIDE = {"a": 1, "b": [{"c": "x", "d.e": 2.5}]}
_TYPE = pa.table({"": [_INSIDE]}).schema.field(0).type
NESTED = pa.table(
    {"s": [_INSIDE], "s.a": [3], "t": [4], "m": pa.array([[("k", _INSIDE)]], pa.map_(pa.string(), _TYPE)), "": [5]}
)
_PLACES = [
    "s",
    "s.a",
    "s.b",
    "s.b.list",
    "s.b.list.element",
    "s.b.list.element.c",
    "s.b.list.element.d",
    "t",
    "t.x",
    "m",
]
_PLACES += [
    "s.b.list.element.d.e",
    "m.key_value",
    "m.key_value.value.a",
    "m.key_value.key",
    "",
    ".",
    "s.",
    "missing",
    "d.e",
]


@given(st.lists(st.sampled_from(_PLACES), max_size=4))
def test_columns_are_selected_by_path_as_in_arrow(tmp_path_factory: pytest.TempPathFactory, columns: list[str]) -> None:
    """Reading columns by their paths returns the same table as pyarrow's reader.

    A path of a struct, list or map selects all columns inside it. Columns are in the requested order.
    """
    folder = tmp_path_factory.getbasetemp() / "columns by path"
    file = folder / "nested.parquet"
    if not file.exists():
        folder.mkdir()
        pq.write_table(NESTED, file)
    with ObjectStore(str(folder)).open_parquet("nested.parquet") as reader, pq.ParquetFile(file) as arrows:
        assert reader.schema_arrow == NESTED.schema
        if not columns:
            assert reader.read() == arrows.read()
        expected = arrows.read_row_group(0, columns)
        assert reader.read_row_group(0, columns) == reader.read(columns) == expected
        assert pa.Table.from_batches(reader.iter_batches(10, [0], columns), expected.schema) == expected


def test_parquet_without_rows_is_read_as_written(store: ObjectStore) -> None:
    store.write_parquet("x.parquet", NUMBERS.slice(0, 0))
    assert store.read_parquet("x.parquet").equals(NUMBERS.slice(0, 0))


def test_other_readers_read_written_objects(local_store: ObjectStore) -> None:
    local_store.write_parquet("x.parquet", NUMBERS)
    assert pq.read_table(local_store.uri("x.parquet")).equals(NUMBERS)


@pytest.mark.parametrize("size", [10, 30_000_000], ids=["in one request", "in parts"])
def test_a_failed_writer_leaves_nothing(store: ObjectStore, size: int) -> None:
    """A writer fails after it has written a table, of which a part may be uploaded already.

    Readers never see an object.
    """
    noise = pa.table({"blob": pa.array([_random_bytes(size)], pa.binary())})

    def write_and_fail() -> None:
        with store.parquet_writer("x.parquet", noise.schema) as writer:
            writer.write_table(noise)
            assert store.list() == []
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_and_fail()
    assert store.list() == []
    with pytest.raises(ObjectNotFoundError):
        store.read("x.parquet")


def test_an_error_of_a_file_that_is_read_while_another_is_written_names_the_read_file(store: ObjectStore) -> None:
    def write() -> None:
        with store.parquet_writer("object.parquet", NUMBERS.schema):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/table/data.csv")

    with pytest.raises(FileNotFoundError, match=r"/table/data\.csv"):
        write()
    assert store.list() == []


def test_a_link_that_leads_to_itself_is_named(local_store: ObjectStore) -> None:
    local_store.write("object", b"1")
    os.symlink("link", local_store.uri("link"))
    with pytest.raises(StoreError, match=r"/link\b"):
        local_store.list()


def test_a_table_of_another_schema_is_refused_without_a_file(store: ObjectStore) -> None:
    with pytest.raises(ValueError, match="schema"), store.parquet_writer("x", NUMBERS.schema) as writer:
        writer.write_table(NUMBERS.select(["text"]))
    assert store.list() == []


@pytest.mark.s3
def test_large_parquet_is_written_in_parts(s3_store: ObjectStore) -> None:
    noise = pa.table({"blob": pa.array([_random_bytes(12_000_000), _random_bytes(12_000_000, 1)], pa.binary())})
    s3_store.write_parquet("x.parquet", noise)
    assert s3_store.list()[0].size > 20_000_000
    assert s3_store.read_parquet("x.parquet").equals(noise)


@pytest.mark.s3
def test_only_requested_ranges_are_read(s3_store: ObjectStore, read_sizes: list[int]) -> None:
    """Only the tail and one column chunk of a 6 MB file are read."""
    wide = pa.table(
        {f"c{i}": pa.array([_random_bytes(1000, 100 * i + j) for j in range(100)], pa.binary()) for i in range(60)}
    )
    with s3_store.parquet_writer("x.parquet", wide.schema) as writer:
        writer.write_table(wide, row_group_rows=10)
    assert s3_store.list()[0].size > 6_000_000
    file = s3_store.open_parquet("x.parquet")
    assert sum(read_sizes) <= 2**17, "the footer"
    read_sizes.clear()
    assert file.read_row_group(3, columns=["c7"]).column("c7").to_pylist() == wide.column("c7").to_pylist()[30:40]
    assert len(read_sizes) == 1
    assert sum(read_sizes) < 20_000


@given(st.binary(max_size=200))
def test_an_object_that_is_no_parquet_is_damaged(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    store = ObjectStore(str(tmp_path_factory.mktemp("root")))
    store.write("x", data)
    with pytest.raises(CorruptionError, match=r"/x\b.*`metastore refresh NAME --full`"):
        store.read_parquet("x")


def test_truncated_and_damaged_parquet_files_raise_clear_errors(store: ObjectStore) -> None:
    store.write_parquet("x", NUMBERS)
    data = store.read("x")
    for size in range(0, len(data), max(1, len(data) // 20)):
        store.write("cut", data[:size])
        with pytest.raises(CorruptionError, match=r"/cut\b"):
            store.read_parquet("cut")
    for start in range(4, len(data) - 8, len(data) // 10):
        store.write("bad", data[:start] + bytes(200) + data[start + 200 :])
        with suppress(CorruptionError):  # unused bytes are not verified
            store.read_parquet("bad")


def test_a_flipped_bit_never_changes_a_value(local_store: ObjectStore) -> None:
    """One bit of a Parquet file is flipped.

    Reading raises an error or returns the original values, as pages have checksums.
    """
    local_store.write_parquet("x", NUMBERS)
    data = local_store.read("x")
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for at in range(4, footer, 7):
        local_store.write("bad", data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with suppress(CorruptionError):
            assert local_store.read_parquet("bad") == NUMBERS, f"byte {at}"


@pytest.mark.s3
def test_s3_settings_may_come_from_the_environment(
    s3_store: ObjectStore, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_store.write("x", b"1")
    for key, value in s3_options.items():
        monkeypatch.setenv(key.upper(), value)
    assert ObjectStore(s3_store.uri()).read("x") == b"1"
    assert ObjectStore(s3_store.uri(), {"connect_timeout": "3s"}).read("x") == b"1"
    assert ObjectStore(s3_store.uri().replace("s3://", "s3a://")).read("x") == b"1"


@pytest.mark.s3
def test_a_forked_process_raises_an_error_that_advises_spawning(s3_store: ObjectStore) -> None:
    """A forked process that uses its parent's store gets an error.

    Otherwise, it would wait forever for threads that were not forked.
    """
    s3_store.write("x", b"1")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            s3_store.read("x")
        except StoreError as error:
            os.write(write_end, str(error).encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        assert re.search(r"\bforked\b.*`spawn`", pipe.read())
    assert s3_store.read("x") == b"1"


@pytest.mark.s3
def test_a_spawned_process_reads_the_same(s3_store: ObjectStore) -> None:
    s3_store.write("x", b"1")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(s3_store.read, "x").result(timeout=60) == b"1"


@pytest.mark.parametrize("uri", ["ftp://host/root", "http://host/root", "s3://", "s3:///"])
def test_other_roots_are_refused(uri: str) -> None:
    with pytest.raises(StoreError, match=uri):
        ObjectStore(uri)


def _random_bytes(size: int, seed: int = 0) -> bytes:
    """Return bytes that do not compress."""
    return random.Random(f"{size}/{seed}").randbytes(size)


def test_a_wide_file_is_read_column_by_column_in_linear_time(tmp_path: Path) -> None:
    """Reading 4,000 columns one by one takes less than two seconds.

    It would take longer if every read listed all columns.
    """
    names = [f"column {number}" for number in range(4000)]
    pq.write_table(pa.table({name: [number] for number, name in enumerate(names)}), tmp_path / "wide.parquet")
    with ObjectStore(str(tmp_path)).open_parquet("wide.parquet") as file:
        start = process_time()
        assert [file.read(columns=[name])[name][0].as_py() for name in names] == list(range(4000))
        assert process_time() - start < 2


@pytest.mark.parametrize("seconds", [-(10**10), 0, 253_402_300_799, 253_402_300_800, 4 * 10**11])
def test_times_beyond_the_year_9999_become_its_end(seconds: int) -> None:
    """Modification times after the year 9999 are returned as the end of this year.

    Python cannot represent later times.
    """
    modified_at = local_modified(os.stat_result((0, 0, 0, 0, 0, 0, 0, 0, seconds, 0)))
    assert abs(modified_at.timestamp() - min(seconds, 253_402_300_799)) <= 1


def test_names_of_files_are_durable_before_a_document_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut after the creation of a document loses no name of an earlier file.

    A folder is synced once for all its files. In the test's model of a disk, a power cut loses the new names in a
    folder that was not synced after they were created.
    """
    volatile_names: dict[str, set[str]] = {}
    lost_names: list[str] = []
    synced_folders: list[str] = []
    fsync, replace, link = os.fsync, os.replace, os.link

    def record_sync(descriptor: int) -> None:
        fsync(descriptor)
        for folder in (name for name, _, _ in os.walk(tmp_path)):
            if os.path.samestat(os.stat(folder), os.fstat(descriptor)):
                synced_folders.append(folder)
                volatile_names.pop(folder, None)

    def record_replace(source: str, target: str) -> None:
        replace(source, target)
        volatile_names.setdefault(os.path.dirname(target), set()).add(target)

    def record_link(source: str, target: str) -> None:
        link(source, target)
        lost_names.extend(name for names in volatile_names.values() for name in names)
        volatile_names.setdefault(os.path.dirname(target), set()).add(target)

    table = pa.table({"number": [1]})
    ObjectStore(str(tmp_path)).child("t").write_parquet("fragments/0.parquet", table)
    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", record_replace)
    monkeypatch.setattr(os, "link", record_link)
    for number in range(1, 20):
        # As a worker process, each has its own store.
        ObjectStore(str(tmp_path)).child("t").write_parquet(f"fragments/{number}.parquet", table)
    ObjectStore(str(tmp_path)).child("t").write_parquet("nested/folders/x.parquet", table)
    objects = ObjectStore(str(tmp_path)).child("t")
    objects.write("value_counts/state.json", b"{}")
    assert volatile_names.keys() == {str(tmp_path / "t" / "fragments")}
    objects.write("versions/1.json", b"{}", create=True)
    assert not lost_names
    assert not volatile_names
    assert synced_folders.count(str(tmp_path / "t" / "fragments")) == 1
