"""Tables in an object store have the same rows as on disk, and are read with few requests."""

from __future__ import annotations

import gzip
import lzma
import pickle
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError, TableNotFoundError
from metastore_assets.formats import TableFormat, open_table_format
from metastore_assets.storage.object_store import ObjectFile
from tests.formats.delta.log_writer import delete_rows, newest
from tests.formats.oracle import read_columns
from tests.formats.table_writers import parquet_bytes

pytestmark = pytest.mark.s3

Put = Callable[[str, bytes], None]


@pytest.fixture
def prefix() -> str:
    return f"tables/{uuid.uuid4().hex}"


@pytest.fixture
def client(s3_options: dict[str, str]) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=s3_options["aws_endpoint"],
        region_name=s3_options["aws_region"],
        aws_access_key_id=s3_options["aws_access_key_id"],
        aws_secret_access_key=s3_options["aws_secret_access_key"],
    )


@pytest.fixture
def put(client: Any, prefix: str) -> Put:
    def put(path: str, data: bytes) -> None:
        client.put_object(Bucket="metastore", Key=f"{prefix}/{path}", Body=data)

    return put


@pytest.fixture
def open_table(prefix: str, s3_options: dict[str, str]) -> Callable[[str], TableFormat]:
    def open_table(path: str) -> TableFormat:
        uri = f"s3://metastore/{prefix}/{path}"
        return open_table_format(TableConfig(name="t", uri=uri, storage_options=s3_options))

    return open_table


def test_plain_files_in_a_bucket_are_read(put: Put, open_table: Callable[[str], TableFormat]) -> None:
    """Plain files in a bucket are read, even if their names need encoding.

    Folder markers, hidden objects, and a sibling folder whose name has the same prefix are not read.
    """
    put("t/d=1/x.parquet", parquet_bytes(a=[1]))
    put("t/d=a%2Fb c%25é/y 1.parquet", parquet_bytes(a=[2]))
    put("t/d=😀 #?/z+%.parquet", parquet_bytes(a=[3]))
    for marker in ("t/", "t/d=1/", "t/_SUCCESS", "t/_tmp/q.parquet"):
        put(marker, b"")
    put("tt/d=2/x.parquet", parquet_bytes(a=[9]))
    table = open_table("t")
    snapshot = table.snapshot()
    assert table.snapshot_id() == snapshot.id
    columns = read_columns(snapshot)
    assert sorted(zip(columns["a"], columns["d"], strict=True)) == [(1, "1"), (2, "a/b c%é"), (3, "😀 #?")]
    assert {fragment.row_count for fragment in snapshot.fragments} == {1}
    single = open_table("t/d=1/x.parquet").snapshot()
    assert [fragment.partition_key for fragment in single.fragments] == ["all"]
    assert read_columns(single) == {"a": [1]}


def test_a_folder_of_spark_streaming_is_read(
    put: Put, open_table: Callable[[str], TableFormat], prefix: str, s3_options: dict[str, str]
) -> None:
    """In a folder that Spark's streaming wrote, only the files in its log are read.

    The log has locations with Hadoop's scheme `s3a`. A partition filter applies. A subfolder or a file of the folder
    cannot be opened as a table. The error has the location of the folder.
    """
    for number in range(3):
        put(f"t/d=x {number}/part-{number}.parquet", parquet_bytes(id=[number]))
    for number in range(2):
        uri = f"s3a://metastore/{prefix}/t/d=x%20{number}/part-{number}.parquet"
        put(f"t/_spark_metadata/{number}", f'v1\n{{"path":"{uri}","size":1,"action":"add"}}'.encode())
    assert sorted(read_columns(open_table("t").snapshot())["id"]) == [0, 1]
    config = TableConfig(
        name="t", uri=f"s3://metastore/{prefix}/t", storage_options=s3_options, partitions={"d": ("x 1",)}
    )
    assert read_columns(open_table_format(config).snapshot())["id"] == [1]
    for path in ("t/d=x 0", "t/d=x 0/part-0.parquet"):
        with pytest.raises(TableFormatError, match=rf"\bSpark\b.*s3://metastore/{prefix}/t\b"):
            open_table(path).snapshot()


def test_compressed_csv_is_decompressed_while_it_is_read(put: Put, open_table: Callable[[str], TableFormat]) -> None:
    """Compressed CSV files in a bucket are read; their content, not their name, shows the compression.

    A compressed file may consist of several members. A truncated member is an error.
    """
    rows = b"a,b\n" + b"1,x\n" * 1000
    put("t/1.csv.gz", gzip.compress(rows))
    put("t/2.csv", gzip.compress(rows) + gzip.compress(b"1,x"))
    put("t/3.csv.xz", lzma.compress(rows) + lzma.compress(b"1,x"))
    put("t/4.csv.bz2", rows + b"1,x")
    assert read_columns(open_table("t").snapshot()) == {"a": [1] * 4003, "b": ["x"] * 4003}
    put("t/3.csv.xz", lzma.compress(rows)[:-1])
    with pytest.raises(FragmentError, match=r"3\.csv\.xz: .*Truncated"):
        read_columns(open_table("t").snapshot())


def test_an_object_that_changes_is_reported_as_missing(
    put: Put, client: Any, prefix: str, open_table: Callable[[str], TableFormat]
) -> None:
    """Reading an object that was overwritten or deleted after planning is an error: it is missing.

    An object that is overwritten while it is open is missing to the open reader and to new readers. The table then has
    another snapshot id.
    """
    put("t/x.parquet", parquet_bytes(a=[1], b=[2]))
    snapshot = open_table("t").snapshot()
    fragment = snapshot.fragments[0]
    with fragment.source.open() as reader:
        assert [chunk.to_pylist() for chunk in reader.read(snapshot.schema.field("a"))] == [[1]]
        put("t/x.parquet", parquet_bytes(a=[3], b=[4]))
        with pytest.raises(FragmentError, match=r"x\.parquet") as error_info:
            list(reader.read(snapshot.schema.field("b")))
        assert error_info.value.missing
    with pytest.raises(FragmentError, match=r"x\.parquet") as error_info:
        fragment.source.open()
    assert error_info.value.missing
    assert open_table("t").snapshot_id() != snapshot.id
    client.delete_object(Bucket="metastore", Key=f"{prefix}/t/x.parquet")
    with pytest.raises(FragmentError, match=r"x\.parquet") as error_info:
        fragment.source.open()
    assert error_info.value.missing
    assert error_info.value.path == fragment.path


def test_planning_and_reading_read_few_bytes(
    put: Put, open_table: Callable[[str], TableFormat], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan takes at most one read per file.

    Reading a small column takes at most three reads.

    These reads return less than a tenth of the file's bytes.
    """
    values = list(range(100_000))
    for number in range(5):
        put(
            f"t/{number}.parquet", parquet_bytes(a=values, b=[f"{value:032}" for value in values], n=[number] * 100_000)
        )
    reads: list[int] = []
    original = ObjectFile.read

    def read(self: ObjectFile, size: int = -1) -> bytes:
        data = original(self, size)
        reads.append(len(data))
        return data

    monkeypatch.setattr(ObjectFile, "read", read)
    snapshot = open_table("t").snapshot()
    assert len(reads) <= 5
    reads.clear()
    with snapshot.fragments[0].source.open() as reader:
        assert len(list(reader.read(snapshot.schema.field("n")))) == 1
    assert len(reads) <= 3
    assert sum(reads) < snapshot.fragments[0].bytes / 10


def test_folders_are_listed_once_and_only_where_a_filter_leads(
    put: Put, prefix: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan without a filter makes one listing, and with a filter one of each folder that may match."""
    for year in range(2020, 2025):
        for month in range(1, 4):
            put(f"t/year={year}/month={month:02}/x.parquet", parquet_bytes(a=[year * 100 + month]))
    for marker in ("t/", "t/year=2020/", "t/year=2020/_SUCCESS", "t/_tmp/year=2020/x.parquet"):
        put(marker, b"")
    listed_paths: list[str] = []
    for name in ("list", "list_with_delimiter"):
        original = getattr(obstore, name)

        def spy(store: Any, below: Any = None, _original: Any = original, **rest: Any) -> Any:
            if str(below).startswith(f"{prefix}/t"):
                listed_paths.append(str(below).removeprefix(f"{prefix}/"))
            return _original(store, below, **rest)

        monkeypatch.setattr(f"obstore.store.obs.{name}", spy)

    def plan(condition: str | None = None, **patterns: tuple[str, ...]) -> tuple[list[int], list[str]]:
        partitions = patterns if condition is None else condition
        uri = f"s3://metastore/{prefix}/t"
        table = open_table_format(
            TableConfig(name="t", uri=uri, format="files", storage_options=s3_options, partitions=partitions)
        )
        listed_paths.clear()
        snapshot = table.snapshot()
        listed_prefixes = sorted(listed_paths)
        return sorted(read_columns(snapshot)["a"]), listed_prefixes

    assert plan() == ([year * 100 + month for year in range(2020, 2025) for month in range(1, 4)], ["t"])
    below = ["t/year=2020", "t/year=2020/month=02"]
    assert plan(year=("2020",), month=("02",)) == ([202002], ["t", *below])
    assert plan(month=("03",))[0] == [year * 100 + 3 for year in range(2020, 2025)]
    assert len(plan(month=("03",))[1]) == 1 + 5 + 5
    assert plan("year = '2020' and month in ('02', '05')") == ([202002], ["t", *below])
    assert plan("year < '2020' or (year >= '2020' and month = '03')")[0] == [
        year * 100 + 3 for year in range(2020, 2025)
    ]
    assert plan("year > '2022'")[1] == plan(year=("202[34]",))[1]
    assert plan(year=("202[34]",))[1] == sorted(
        [
            "t",
            *(
                f"t/year={year}{month}"
                for year in (2023, 2024)
                for month in ("", "/month=01", "/month=02", "/month=03")
            ),
        ]
    )


@pytest.mark.parametrize("path", ["t", ""])
def test_a_missing_prefix_or_bucket_is_an_error(
    path: str, open_table: Callable[[str], TableFormat], s3_options: dict[str, str]
) -> None:
    with pytest.raises(TableNotFoundError, match="s3://metastore/tables/"):
        open_table(path).snapshot()
    with pytest.raises(TableNotFoundError, match="s3://nobucket/t"):
        open_table_format(TableConfig(name="t", uri="s3://nobucket/t", storage_options=s3_options))


def test_the_error_for_a_wrong_option_has_the_location(s3_options: dict[str, str]) -> None:
    """The error for a misspelt storage option is one line with the location and the option."""
    options = s3_options | {"aws_regoin": "x"}
    with pytest.raises(TableFormatError, match=r"s3://metastore.*aws_regoin.*storage_options") as error_info:
        open_table_format(TableConfig(name="t", uri="s3://metastore/t", storage_options=options))
    assert "\n" not in str(error_info.value)


def test_a_delta_table_in_a_bucket_is_read(
    prefix: str, s3_options: dict[str, str], open_table: Callable[[str], TableFormat]
) -> None:
    """A Delta table in a bucket is read with options in lower case, or in upper case as for deltalake.

    Partition values have special characters.
    """
    uri = f"s3://metastore/{prefix}/d"
    options = {key.upper(): value for key, value in s3_options.items()} | {"aws_s3_allow_unsafe_rename": "true"}
    for number in range(3):
        data = pa.table({"a": [number], "p": [f"{number}/é %"]})
        write_deltalake(uri, data, mode="append", partition_by=["p"], storage_options=options)
        if number == 1:
            DeltaTable(uri, storage_options=options).create_checkpoint()
    for option_set in (s3_options, options):
        table = open_table_format(TableConfig(name="t", uri=uri, storage_options=option_set))
        snapshot = table.snapshot()
        assert snapshot.id == table.snapshot_id() == "2"
        columns = read_columns(snapshot)
        assert sorted(zip(columns["a"], columns["p"], strict=True)) == [(n, f"{n}/é %") for n in range(3)]


def test_deletion_vectors_in_a_bucket_are_read_in_another_process(
    tmp_path: Path, client: Any, prefix: str, open_table: Callable[[str], TableFormat]
) -> None:
    """Another process reads the rows of a Delta table with a deletion vector from the pickled source.

    The text form of the source shows no secrets.
    """
    configuration: dict[str, str | None] = {"delta.enableDeletionVectors": "true"}
    write_deltalake(str(tmp_path), pa.table({"a": list(range(5))}), configuration=configuration)
    delete_rows(tmp_path, newest(tmp_path, "add")["path"], [1, 3])
    for file in tmp_path.rglob("*"):
        if file.is_file():
            key = f"{prefix}/d/{file.relative_to(tmp_path)}"
            client.put_object(Bucket="metastore", Key=key, Body=file.read_bytes())
    snapshot = open_table("d").snapshot()
    source = snapshot.fragments[0].source
    assert "not-a-secret" not in repr(source)
    worker = (
        "import pickle, sys\n"
        "source, field = pickle.load(sys.stdin.buffer)\n"
        "with source.open() as reader:\n"
        "    print([v for chunk in reader.read(field) for v in chunk.to_pylist()])\n"
    )
    data = pickle.dumps((source, snapshot.schema.field("a")))
    done = subprocess.run([sys.executable, "-c", worker], input=data, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[0, 2, 4]"


def test_the_version_of_a_long_log_is_read_from_its_end(
    put: Put, open_table: Callable[[str], TableFormat], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`snapshot_id` of a Delta table lists the log once, from the newest checkpoint on."""
    for number in range(30):
        put(f"d/_delta_log/{number:020}.json", b"{}")
    put(f"d/_delta_log/{25:020}.checkpoint.parquet", b"PAR1")
    put("d/_delta_log/_last_checkpoint", b'{"version": 25}')
    put("d/_delta_log/_sidecars/x.parquet", b"")
    offsets: list[str | None] = []
    original = obstore.list

    def listed(store: Any, prefix: Any = None, *, offset: Any = None, **rest: Any) -> Any:
        offsets.append(offset)
        return original(store, prefix, offset=offset, **rest)

    monkeypatch.setattr("obstore.store.obs.list", listed)
    table = open_table("d")
    offsets.clear()
    assert table.snapshot_id() == "29"
    assert len(offsets) == 1
    assert str(offsets[0]).endswith(f"{25:020}")
