"""An error of an object store is one line with the path of the object and the cause.

After a failed write, published versions of a table's statistics stay readable.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_assets.errors import ObjectNotFoundError, StoreError
from metastore_assets.store.local import store_error
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.store.sample_versions import fragment, version

BLOB = pa.table({"blob": pa.array([os.urandom(1 << 20) for _ in range(4)], pa.binary())})

FRAGMENTS = [fragment(os.urandom(1000).hex()) for _ in range(1000)]


def mounted(folder: Path, *arguments: str) -> Iterator[Path]:
    """Mount a file system on the folder, yield the folder, and unmount it.

    `arguments` are those of `mount`.

    Skips the test if mounting is not allowed.
    """
    process = subprocess.run(["mount", *arguments, str(folder)], capture_output=True, text=True, check=False)
    if process.returncode:
        pytest.skip(f"mounting is not allowed here: {process.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB, mounted for one test."""
    yield from mounted(tmp_path, "-t", "tmpfs", "-o", "size=2m", "none")


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """A read-only disk with one version of `orders`."""
    VersionStore(ObjectStore(str(tmp_path)), "orders").publish(version(1))
    for folder in mounted(tmp_path, "--bind", str(tmp_path)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        yield folder


def writes(store: ObjectStore) -> list[object]:
    """Return functions that write to a store, one for each kind of write."""

    def parquet() -> None:
        store.write_parquet("folder/file.parquet", BLOB)

    return [
        lambda: store.write("folder/object", b"1" * (4 << 20)),
        lambda: store.write("folder/object", b"1" * (4 << 20), create=True),
        parquet,
        lambda: VersionStore(store, "orders").publish(replace(version(2), fragments=FRAGMENTS)),
        lambda: VersionStore(store, "orders").save_pending(FRAGMENTS),
    ]


def assert_writes_fail(store: ObjectStore, message: str, kinds: range = range(5)) -> None:
    """Check that each kind of write fails with the URI of the file and the message.

    `kinds` are the positions in `writes` of those to check, and `message` is a regular expression.
    """
    for kind, write in enumerate(writes(store)):
        if kind in kinds:
            with pytest.raises(StoreError, match=rf"{store.uri()}/\S+: .*{message}"):
                write()  # type: ignore[operator]


def test_a_full_disk_leaves_no_partial_files(small_disk: Path) -> None:
    """Writes to a full disk fail and leave no files, not even hidden temporary ones.

    Smaller data can be written afterwards.
    """
    store = ObjectStore(str(small_disk))
    versions = VersionStore(store, "orders")
    versions.publish(version(1))
    before = sorted(path for path in small_disk.rglob("*") if path.is_file())
    assert_writes_fail(store, r"\bno space\b")
    assert sorted(path for path in small_disk.rglob("*") if path.is_file()) == before
    assert versions.latest() == version(1)
    versions.publish(version(2))
    assert versions.latest() == version(2)


def test_a_file_size_limit_leaves_no_partial_files(tmp_path: Path) -> None:
    """Writing a file that is larger than the process may write is an error and leaves no file.

    The test does not need the permission to mount a file system.
    """
    store = ObjectStore(str(tmp_path))
    VersionStore(store, "orders").publish(version(1))
    previous = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, previous[1]))
    try:
        assert_writes_fail(store, r"\bulimit -f\b", range(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, previous)
    assert [info.path for info in store.list("folder")] == []
    assert not list(tmp_path.rglob(".*"))
    assert VersionStore(store, "orders").latest() == version(1)


def test_writes_to_a_read_only_disk_fail(read_only_disk: Path) -> None:
    store = ObjectStore(str(read_only_disk))
    versions = VersionStore(store, "orders")
    assert_writes_fail(store, r"\bread-only\b")
    assert versions.latest() == version(1)
    with pytest.raises(StoreError, match=r"orders/versions/1\.json.*\bread-only\b"):
        store.delete(["orders/versions/1.json"])
    assert versions.latest() == version(1)


def test_an_unfinished_file_that_another_process_removes(local_store: ObjectStore) -> None:
    """The writer of a file raises an error with its path if another process removes the unfinished file.

    It is an ObjectNotFoundError, not the error for a folder that cannot be created. No file is left.
    """
    schema = pa.schema([("a", pa.int64())])

    def write_and_remove() -> None:
        with local_store.parquet_writer("folder/file", schema):
            assert local_store.remove_unfinished(datetime.now(UTC) + timedelta(days=1)) == 1

    with pytest.raises(ObjectNotFoundError, match=r"/folder/file\b"):
        write_and_remove()
    assert local_store.list() == []


def test_a_root_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    store = ObjectStore(str(tmp_path / "file" / "root"))
    message = r"\bnot a folder\b"
    assert_writes_fail(store, message, range(3))
    for read in [
        lambda: store.read("x"),
        lambda: store.open_parquet("x"),
        lambda: store.list(),
        VersionStore(store, "orders").latest,
    ]:
        with pytest.raises(StoreError, match=message):
            read()


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert_writes_fail(ObjectStore(str(tmp_path / "file")), r"\bnot a folder\b", range(3))


def test_a_folder_at_the_path_of_an_object(local_store: ObjectStore) -> None:
    local_store.write("x/y", b"1")
    with pytest.raises(StoreError, match=r"/x\b.*\bfolder\b"):
        local_store.write("x", b"1")
    with pytest.raises(StoreError, match=r"/x\b.*\bfolder\b"):
        local_store.read("x")
    assert [info.path for info in local_store.list()] == ["x/y"]


@pytest.mark.skipif(sys.platform != "linux", reason="a folder that even root cannot write to")
def test_writes_to_a_root_without_permission_fail() -> None:
    """Writes below /sys and /proc, which the kernel refuses to all users, raise an error with the path."""
    # The kernel's error for root differs from that for other users.
    with pytest.raises(StoreError, match=r"/sys/metastore/x: .*\b(not permitted|no permission)\b"):
        ObjectStore("/sys/metastore").write("x", b"1")
    with pytest.raises(StoreError, match="/proc/metastore/x"):
        ObjectStore("/proc/metastore").write("x", b"1")


def test_writes_to_a_root_of_another_user_fail() -> None:
    """Writes to a folder without permission fail.

    If the tests run as root, they switch to the user nobody for this.
    """
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        try:
            if user == 0:
                os.seteuid(65534)
            assert_writes_fail(ObjectStore(folder), r"\bno permission\b", range(3))
        finally:
            os.seteuid(user)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (errno.ENOENT, "folder cannot be created"),
        (errno.EACCES, "no permission"),
        (errno.EPERM, "not permitted"),
        (errno.EROFS, "read-only"),
        (errno.ENOSPC, "no space"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "ulimit -f"),
        (errno.ENOTDIR, "not a folder"),
        (errno.EISDIR, "folder in place"),
        (errno.ENAMETOOLONG, "too long"),
        (errno.EOPNOTSUPP, "hard links"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_errors_name_their_cause(code: int, cause: str) -> None:
    error = store_error("write", "/folder/x", OSError(code, os.strerror(code)))
    assert re.search(rf"\bwrite /folder/x: .*\b{cause}\b", str(error))


def test_a_file_system_without_hard_links(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StoreError, match=r"/x\b.*\blinks\b"):
        local_store.write("x", b"1", create=True)
    assert local_store.list() == []


def test_the_error_names_an_unreachable_endpoint(s3_options: dict[str, str]) -> None:
    with socket.socket() as unused_socket:
        unused_socket.bind(("127.0.0.1", 0))
        options = {
            **s3_options,
            "aws_endpoint": f"http://127.0.0.1:{unused_socket.getsockname()[1]}",
            "max_retries": "1",
        }
        store = ObjectStore("s3://metastore/root", options)
        assert_writes_fail(store, r"\baws_endpoint\b", range(3))
        with pytest.raises(StoreError, match="s3://metastore/root/orders/versions/newest"):
            VersionStore(store, "orders").latest()


@pytest.mark.s3
def test_the_error_names_a_missing_bucket(s3_options: dict[str, str]) -> None:
    store = ObjectStore("s3://no-such-bucket/root", s3_options)
    assert_writes_fail(store, r"\bno such bucket\b", range(3))
    for read in [lambda: store.read("x"), lambda: store.open_parquet("x"), lambda: store.list()]:
        with pytest.raises(StoreError, match=r"s3://no-such-bucket/root.*\bno such bucket\b") as error_info:
            read()
        assert not isinstance(error_info.value, ObjectNotFoundError)


@pytest.mark.s3
def test_plain_http_must_be_allowed(s3_options: dict[str, str]) -> None:
    options = {key: value for key, value in s3_options.items() if key != "aws_allow_http"}
    with pytest.raises(StoreError, match=r'`aws_allow_http: "true"`.*storage_options'):
        ObjectStore("s3://metastore/root", options).read("x")


def test_the_error_names_missing_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with socket.socket() as unused_socket:
        unused_socket.bind(("127.0.0.1", 0))
        machine = f"http://127.0.0.1:{unused_socket.getsockname()[1]}"
        options = {"aws_metadata_endpoint": machine, "aws_region": "us-east-1", "max_retries": "0"}
        with pytest.raises(StoreError, match=r"s3://metastore/root/x: .*credentials"):
            ObjectStore("s3://metastore/root", options).read("x")


@pytest.mark.parametrize("options", [{"aws_nonsense": "x"}, {"max_retries": "many"}, {"timeout": "soon"}])
def test_a_wrong_option_is_named(options: dict[str, str]) -> None:
    with pytest.raises(StoreError, match=r"s3://bucket/root.*storage_options"):
        ObjectStore("s3://bucket/root", options).read("x")


@pytest.mark.s3
def test_a_file_replaced_by_a_shorter_one_while_it_is_read_is_an_error(
    s3_store: ObjectStore, s3_options: dict[str, str]
) -> None:
    """Reading the rest of an open file that was replaced is an error, instead of returning fewer rows."""
    s3_store.write_parquet("x.parquet", pa.table({"n": pa.array(range(100_000))}))
    file = s3_store.open_parquet("x.parquet")
    s3_store.write("x.parquet", b"short")
    with pytest.raises((StoreError, OSError)):
        file.read()
