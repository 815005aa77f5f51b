"""Locations of tables in an object store, with nested tables and files in other buckets.

Logs may lie among subfolders. `current()` returns the id of a table's newest snapshot. Sensors call it at each tick, so
it takes few requests.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError
from metastore_assets.formats import TableFormat, open_table_format
from metastore_assets.storage import object_store
from metastore_assets.storage.location import Location
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol, write_vector
from tests.formats.hudi.tables import HudiCopyOnWrite, HudiMergeOnRead
from tests.formats.iceberg.tables import IcebergCopyOnWrite
from tests.formats.oracle import read_columns, read_rows
from tests.formats.s3_proxy import Requests, counted
from tests.formats.table_writers import DeltaCopyOnWrite, Table, parquet_bytes

pytestmark = pytest.mark.s3


class Bucket:
    """A new bucket.

    `options` are the storage options for reading it.
    """

    def __init__(self, client: Any, options: dict[str, str]) -> None:
        self.options = options
        self.name = f"b{uuid.uuid4().hex[:12]}"
        client.create_bucket(Bucket=self.name)
        self._client = client
        self._store = object_store.open_object_store(f"s3://{self.name}", options.items())

    def put(self, key: str, data: bytes = b"") -> None:
        if key.endswith("/"):  # Only the folder markers of S3 consoles have such names.
            self._client.put_object(Bucket=self.name, Key=key, Body=data)
        else:
            obstore.put(self._store, key, data)

    def upload(self, folder: Path, prefix: str) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    def uri(self, path: str) -> str:
        return f"s3://{self.name}/{path}".rstrip("/")

    def open(self, path: str, **settings: Any) -> TableFormat:
        return open_table_format(TableConfig(name="t", uri=self.uri(path), storage_options=self.options, **settings))


@pytest.fixture
def make_bucket(s3_options: dict[str, str]) -> Callable[[], Bucket]:
    client = boto3.client(
        "s3",
        endpoint_url=s3_options["aws_endpoint"],
        region_name=s3_options["aws_region"],
        aws_access_key_id=s3_options["aws_access_key_id"],
        aws_secret_access_key=s3_options["aws_secret_access_key"],
    )
    return lambda: Bucket(client, s3_options)


@pytest.fixture
def bucket(make_bucket: Callable[[], Bucket]) -> Bucket:
    return make_bucket()


@pytest.fixture
def requests(bucket: Bucket) -> Iterator[Requests]:
    """The requests that reads of the bucket sent to the server."""
    with counted(bucket.options["aws_endpoint"]) as request_counter:
        bucket.options = bucket.options | {"aws_endpoint": request_counter.endpoint}
        yield request_counter


_TABLES = (DeltaCopyOnWrite, IcebergCopyOnWrite, HudiCopyOnWrite, HudiMergeOnRead)
_ANYWHERE = (".tmp", "0", "0000000000000000000", "20", "_commits", "stats", "v", "~")


@pytest.mark.parametrize("kind", _TABLES, ids=lambda kind: kind.__name__)
def test_subfolders_do_not_end_the_listing_of_a_log(kind: type[Table], tmp_path: Path, bucket: Bucket) -> None:
    """A table has all its fragments and rows, although its log has subfolders.

    The subfolders sort before, between and after the log's files. They contain files and folder markers.
    """
    table = kind(tmp_path / "t")
    table.append([(number, "x", ("a", "b")[number % 2]) for number in range(4)])
    table.delete([2])
    bucket.upload(table.folder, "t")
    for folder in ("_delta_log", "metadata", ".hoodie", ".hoodie/timeline", ".hoodie/.schema"):
        if (table.folder / folder).is_dir():
            for name in _ANYWHERE:
                bucket.put(f"t/{folder}/{name}/x.json", b"{}")
            bucket.put(f"t/{folder}/")
            bucket.put(f"t/{folder}/.a/")
    snapshot = bucket.open("t").snapshot()
    assert snapshot.format == table.kind
    assert sorted(read_rows(snapshot)) == sorted(read_rows(table.snapshot()))
    assert bucket.open("t").current() == snapshot.reference
    assert [one.id for one in snapshot.fragments] == [one.id for one in table.snapshot().fragments]


def test_large_subfolders_are_skipped(bucket: Bucket, requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipping a subfolder takes two requests, whatever it contains.

    If there are many subfolders, only their names are listed.
    """

    def names(folder: str, after: str = "", before: str = "") -> tuple[list[str], int]:
        """List a folder of the table.

        Return the names of its files, and the number of requests.
        """
        requests.take()
        result = list(Location.of(bucket.uri("t"), bucket.options).names(folder, after, before))
        return result, len(requests.take())

    requests.page = 5
    monkeypatch.setattr(object_store, "_PAGE", 5)
    for number in range(30):
        bucket.put(f"t/log/.tmp/{number:03}")
    for number in range(12):
        bucket.put(f"t/log/{number:03}.json")
    assert names("log") == ([f"{number:03}.json" for number in range(12)], 2 + 3)
    assert names("log", "0", ":") == ([f"{number:03}.json" for number in range(12)], 3)
    assert names("log", "009.json") == (["010.json", "011.json"], 1)
    assert names("nothing") == ([], 1)
    for number in range(20):
        bucket.put(f"t/log/004/{number:03}")
        bucket.put(f"t/log/005_/{number:03}")
        bucket.put(f"t/log/z{number}/y")
    bucket.put("t/log/zz")
    bucket.put("t/log/\U0010ffff")
    everything = [f"{number:03}.json" for number in range(12)]
    result, count = names("log")
    assert sorted(result) == [*everything, "zz", "\U0010ffff"]
    # Two requests for each of the two skipped ones, then a page of the rest at a time: 14 files and 23 folders.
    assert count <= 2 * 2 + 1 + -(-(14 + 23) // 5)
    assert names("log", "009.json", ":") == (["010.json", "011.json"], 1)
    assert names("log", "0", ":")[0] == everything


def test_a_tick_of_a_sensor_lists_the_end_of_the_log_once(
    bucket: Bucket, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`current()` lists a log once, although large subfolders lie before, within and after the log.

    It reads only `_last_checkpoint` and the newest commit.
    """
    requests.page = 10
    monkeypatch.setattr(object_store, "_PAGE", 10)
    for number in range(18, 30):
        bucket.put(f"t/_delta_log/{number:020}.json", b'{"commitInfo": {"timestamp": 1}}')
        for folder in (".tmp", "_commits", "_sidecars"):
            bucket.put(f"t/_delta_log/{folder}/{number}")
    bucket.put(f"t/_delta_log/{25:020}.checkpoint.parquet", b"PAR1")
    bucket.put("t/_delta_log/_last_checkpoint", b'{"version": 25}')
    table = bucket.open("t", format="delta")
    requests.take()
    assert table.current().id == "29"
    tick_requests = requests.take()
    assert sorted(one.split()[0] for one in tick_requests if "_last_checkpoint" in one or one.startswith("list")) == [
        "GET",
        "list",
    ]
    assert {one.rpartition("/")[2] for one in tick_requests} == {"", "_last_checkpoint", f"{29:020}.json"}


@pytest.mark.parametrize("kind", _TABLES, ids=lambda kind: kind.__name__)
def test_tables_are_detected_above_and_below(kind: type[Table], tmp_path: Path, bucket: Bucket) -> None:
    """A folder or file inside a table cannot be opened as a table.

    A folder above the table cannot be opened as plain files, with or without a filter of partitions. The error names
    the format and location of the table, or only the format if the table's own folder is opened as plain files.
    """
    table = kind(tmp_path / "t")
    table.append([(number, "x", ("a", "b")[number % 2]) for number in range(4)])
    bucket.upload(table.folder, "lake/sales/t")
    bucket.put("lake/own.parquet", parquet_bytes(id=[1]))
    name = {"delta": "Delta", "iceberg": "Iceberg", "hudi": "Hudi"}[table.kind]
    file = next(
        path.relative_to(table.folder)
        for path in sorted(table.folder.rglob("*.parquet"))
        if not {"metadata", "_delta_log", ".hoodie"} & set(path.relative_to(table.folder).parts)
    )
    for place, format_ in ((file, None), (file.parent, "files")):
        with pytest.raises(TableFormatError, match=f"{name}.*{bucket.uri('lake/sales/t')}"):
            bucket.open(f"lake/sales/t/{place}", format=format_).current()
    for above, partitions in (("", {}), ("lake", {"day": ("a",)})):
        with pytest.raises(TableFormatError, match=f"{name}.*{bucket.uri('lake/sales/t')}"):
            bucket.open(above, format="files", partitions=partitions).snapshot()
    with pytest.raises(TableFormatError, match=f"{name}"):
        bucket.open("lake/sales/t", format="files").snapshot()


def test_plain_files_at_the_root_of_a_bucket(bucket: Bucket) -> None:
    """Files that only look like metadata, and tables beside the location, are ignored.

    The root of the bucket itself is no table of files if a Delta table is below it.
    """
    for key in ("d=1/x.parquet", "a/b/d=1/x.parquet"):
        bucket.put(key, parquet_bytes(a=[1]))
    bucket.put("a/b/_delta_log/", b"")
    bucket.put("a/.hoodie/notes", b"")
    bucket.put("a/metadata/x.metadata.json", b'{"location": "Paris"}')
    bucket.put("a/sales/_delta_log/00000000000000000000.json", b"{}")
    assert read_columns(bucket.open("a/b", format="files").snapshot()) == {"a": [1], "d": ["1"]}
    assert read_columns(bucket.open("d=1/x.parquet").snapshot()) == {"a": [1]}
    other = bucket.open("", format="files", partitions={"d": ("1",)})
    with pytest.raises(TableFormatError, match=r"\bDelta\b"):
        other.snapshot()


def test_detection_takes_few_requests_and_a_tick_one_listing(bucket: Bucket, requests: Requests) -> None:
    """The first `current()` in a process looks for tables in three folders above, with six requests each.

    Later calls only list the table's folder. A snapshot nevertheless detects a new table in a folder above.
    """
    for number in range(25):
        bucket.put(f"a/b/c/d={number}/x.parquet", parquet_bytes(a=[1]))
        bucket.put(f"a/metadata/{number}/notes.json", b"{}")
    table = bucket.open("a/b/c", format="files")
    requests.take()
    table.current()
    counted_requests = requests.take()
    assert counted_requests.count("list a/b/c/") == 1
    assert len(counted_requests) == 1 + 6 * 3
    for again in (table, bucket.open("a/b/c", format="files")):
        requests.take()
        again.current()
        assert requests.take() == ["list a/b/c/"]
    bucket.put("a/b/_delta_log/00000000000000000000.json", b"{}")
    with pytest.raises(TableFormatError, match=r"\bDelta\b"):
        table.snapshot()


def test_a_folder_above_with_a_metadata_name_is_not_listed_completely(
    bucket: Bucket, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a folder above is named `metadata`, at most five listings of it are requested.

    A table's metadata file is detected even if many other files sort before it.
    """
    requests.page = 5
    monkeypatch.setattr("metastore_assets.formats.iceberg.metadata_files._PROBED", 20)
    monkeypatch.setattr(object_store, "_PAGE", 5)
    bucket.put("a/b/x.parquet", parquet_bytes(a=[1]))
    for number in range(40):
        bucket.put(f"a/metadata/{number:03}.avro")
    requests.take()
    assert bucket.open("a/b", format="files").current().id
    assert sum(one == "list a/metadata/" for one in requests.take()) <= 5
    bucket.put("a/metadata/v7.metadata.json", json.dumps({"format-version": 1, "location": "x"}).encode())
    with pytest.raises(TableFormatError, match=r"\bIceberg\b"):
        bucket.open("a/b", format="files").snapshot()


def test_folder_markers_are_ignored(bucket: Bucket) -> None:
    """Markers of folders of any name are ignored, whichever tool wrote them."""
    bucket.put("t/sales.parquet/", b"")
    bucket.put("t/sales.parquet/d=1.csv/", b"")
    bucket.put("t/sales.parquet/d=1.csv/x.parquet", parquet_bytes(a=[1]))
    bucket.put("t/sales.parquet_$folder$", b"")
    bucket.put("t/sales.parquet/d=1.csv_$folder$", b"")
    for partitions in ({}, {"d": ("1.csv",)}):
        assert read_columns(bucket.open("t", partitions=partitions).snapshot()) == {"a": [1], "d": ["1.csv"]}


def _clone(folder: Path, path: str, bucket: Bucket, prefix: str, vector: str | None = None) -> None:
    """Write and upload a Delta table of one data file and perhaps a deletion vector.

    Args:
        folder: The local folder of the table.
        path: The folder of the data file, as the log names it.
        bucket: The bucket.
        prefix: The location of the table in the bucket.
        vector: The folder of the deletion vector, as the log names it, or None for a table without one.
    """
    add = add_file(folder, pa.table({"a": [1, 2, 3]}))["add"]
    features = protocol("deletionVectors") if vector else protocol()
    if vector:
        vector_descriptor = write_vector(folder, [1], "p")
        name = Path(vector_descriptor["pathOrInlineDv"]).name
        add |= {"deletionVector": vector_descriptor | {"pathOrInlineDv": f"{vector}/{name}"}}
    commit(folder, features, metadata([field("a", "long")]), {"add": add | {"path": f"{path}/f.parquet"}})
    bucket.upload(folder, prefix)


def test_a_clone_from_another_bucket_needs_permission(tmp_path: Path, make_bucket: Callable[[], Bucket]) -> None:
    """A table whose log names files of another bucket is refused.

    The error has the line to add to the configuration. With this line, data files and deletion vectors are read with
    the options of the table.
    """
    source, bucket = make_bucket(), make_bucket()
    _clone(tmp_path / "t", source.uri("lake/sales"), bucket, "clone", source.uri("lake/sales"))
    source.upload(tmp_path / "t", "lake/sales")
    with pytest.raises(TableFormatError) as error_info:
        bucket.open("clone").snapshot()
    line = f'allow: ["{source.uri("lake/sales")}/"]'
    assert line in str(error_info.value)
    assert source.uri("lake/sales/f.parquet") in str(error_info.value)
    for allow in (source.uri("lake/sales/"), f"s3a://{source.name}", f"S3://{source.name}/lake"):
        assert read_columns(bucket.open("clone", allow=(allow,)).snapshot()) == {"a": [1, 3]}
    for allow in (source.uri("lake/sale"), source.uri("lake/sales/f"), bucket.uri("")):
        with pytest.raises(TableFormatError, match=re.escape(source.uri("lake/sales/f.parquet"))):
            bucket.open("clone", allow=(allow,)).snapshot()
    path_mapping = {source.uri("lake"): bucket.uri("moved")}
    bucket.upload(tmp_path / "t", "moved/sales")
    assert read_columns(bucket.open("clone", path_mapping=path_mapping).snapshot()) == {"a": [1, 3]}


def test_all_spellings_of_the_tables_bucket_are_allowed(tmp_path: Path, make_bucket: Callable[[], Bucket]) -> None:
    """Locations in the table's bucket may have any spelling of the scheme, and `..`.

    Object stores do not resolve `..`, so it is resolved before a request.
    """
    bucket = make_bucket()
    for number, start in enumerate(("s3", "s3a", "s3n", "S3")):
        folder = tmp_path / f"{number}"
        _clone(folder, f"{start}://{bucket.name}/x/../src{number}", bucket, f"clone{number}")
        bucket.upload(folder, f"src{number}")
        assert read_columns(bucket.open(f"clone{number}").snapshot()) == {"a": [1, 2, 3]}
        with pytest.raises(TableFormatError, match="restrict_to_table_root"):
            bucket.open(f"clone{number}", restrict_to_table_root=True).snapshot()
        _clone(tmp_path / f"own{number}", f"{start}://{bucket.name}/own{number}/.", bucket, f"own{number}")
        assert read_columns(bucket.open(f"own{number}", restrict_to_table_root=True).snapshot()) == {"a": [1, 2, 3]}


@pytest.mark.parametrize(
    "path", ["file:///", "file:/", "/", "FILE:///", "//host/", "http://127.0.0.1:9/", "HTTPS://x/", "hdfs://n:8020/"]
)
def test_a_table_in_a_bucket_cannot_name_local_files_or_servers(tmp_path: Path, bucket: Bucket, path: str) -> None:
    """A table in a bucket is refused if its log names a file on local disk or on a server.

    A local file is refused even if it exists. The error has the line to add to the configuration, except if the path is
    in an unsupported store. If a configuration has the line for a local file, the file is read.
    """
    secret = tmp_path / "secret"
    secret.mkdir()
    pq.write_table(pa.table({"a": [7, 8, 9]}), secret / "f.parquet")
    _clone(tmp_path / "t", f"{path}{str(secret).lstrip('/')}", bucket, "t")
    with pytest.raises(TableFormatError, match="store") as error_info:
        bucket.open("t").snapshot()
    assert ("allow: [" in str(error_info.value)) == ("hdfs" not in path)
    if path.lower().startswith("file") or path == "/":
        assert f'allow: ["{secret}/"]' in str(error_info.value)
        assert read_columns(bucket.open("t", allow=(str(secret),)).snapshot()) == {"a": [7, 8, 9]}


def test_a_table_on_disk_cannot_name_a_bucket(tmp_path: Path, bucket: Bucket) -> None:
    """A table on disk is refused if its log names a file in a bucket.

    If the configuration allows the bucket, the file is read with the storage options of the table.
    """
    table = tmp_path / "t"
    _clone(table, bucket.uri("src/p=1/q=2"), bucket, "src/p=1/q=2")
    with pytest.raises(TableFormatError) as error_info:
        open_table_format(TableConfig(name="t", uri=str(table), storage_options=bucket.options)).snapshot()
    assert f'allow: ["{bucket.uri("src")}/"]' in str(error_info.value)
    config = TableConfig(name="t", uri=str(table), storage_options=bucket.options, allow=(bucket.uri("src"),))
    assert read_columns(open_table_format(config).snapshot()) == {"a": [1, 2, 3]}
