"""Lance tables in an object store are read as on disk.

Fragments are those of Lance: data files and the deletes on them.

A difference is the fragments added and removed between two snapshots, which `changes` computes from metadata of
commits. A comparison computes them from the complete lists of fragments.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import uuid
from typing import Any

import boto3
import lance
import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, SnapshotNotFoundError
from metastore_assets.formats import MetadataCache, SnapshotDiff, open_table_format
from tests.formats.oracle import read_rows
from tests.formats.s3_proxy import counted
from tests.formats.test_contract import assert_is_difference

pytestmark = pytest.mark.s3

_ROWS = pa.table({"id": pa.array(range(6), pa.int64()), "text": [f"t{number}" for number in range(6)]})
_WORKER = """
import pickle, sys
sources, schema = pickle.load(sys.stdin.buffer)
for source in sources:
    with source.open() as reader:
        columns = [[v for chunk in reader.read(field) for v in chunk.to_pylist()] for field in schema]
    print(*map(repr, zip(*columns)), sep="\\n")
"""


def test_a_table_in_a_bucket_is_read(s3_options: dict[str, str]) -> None:
    """The newest version, a tag and a branch of a table in a bucket have the rows of pylance.

    Another process reads the fragments. A difference equals a comparison. An unknown tag is an error, and a removed
    data file is reported as missing.
    """
    prefix = f"lance/{uuid.uuid4().hex}/ta ble é"
    uri = f"s3://metastore/{prefix}"
    cache = MetadataCache(ignore_process=True)

    def table(at: str | None = None) -> Any:
        return open_table_format(TableConfig(name="t", uri=uri, storage_options=s3_options, at=at), cache)

    dataset = lance.write_dataset(_ROWS, uri, storage_options=s3_options)
    dataset.delete("id = 1")
    first = table().snapshot()
    assert (first.format, first.id) == ("lance", "2")
    dataset.tags.create("release", 1)
    branch = dataset.create_branch("b")
    branch = lance.write_dataset(_ROWS, branch, mode="append", storage_options=s3_options)
    lance.write_dataset(_ROWS, uri, mode="append", storage_options=s3_options)
    now = table().snapshot()
    sources = [fragment.source for fragment in now.fragments]
    assert "not-a-secret" not in repr(sources)
    done = subprocess.run(
        [sys.executable, "-c", _WORKER], input=pickle.dumps((sources, now.schema)), capture_output=True, check=True
    )
    assert sorted(done.stdout.decode().splitlines()) == sorted(
        repr(tuple(row.values())) for row in lance.dataset(uri, storage_options=s3_options).to_table().to_pylist()
    )
    diff = table().changes(first.reference)
    assert isinstance(diff, SnapshotDiff)
    assert_is_difference(diff, first, now)
    assert len(read_rows(table("release").snapshot())) == 6
    assert sorted(read_rows(table("b").snapshot())) == sorted(
        tuple(row.values()) for row in branch.to_table().to_pylist()
    )
    with pytest.raises(SnapshotNotFoundError):
        table("nothing").snapshot()
    client = boto3.client(
        "s3",
        endpoint_url=s3_options["aws_endpoint"],
        region_name=s3_options["aws_region"],
        aws_access_key_id=s3_options["aws_access_key_id"],
        aws_secret_access_key=s3_options["aws_secret_access_key"],
    )
    fragment = now.fragments[0]
    client.delete_object(Bucket="metastore", Key=fragment.path.removeprefix("s3://metastore/"))
    with pytest.raises(FragmentError) as error_info:
        fragment.source.open()
    assert error_info.value.missing


def test_looking_for_changes_lists_once(s3_options: dict[str, str]) -> None:
    """If the table is unchanged, `current` lists its versions once.

    The commit time is cached.
    """
    uri = f"s3://metastore/lance/{uuid.uuid4().hex}"
    lance.write_dataset(_ROWS, uri, storage_options=s3_options)
    with counted(s3_options["aws_endpoint"]) as requests:
        options = s3_options | {"aws_endpoint": requests.endpoint}
        table = open_table_format(TableConfig(name="t", uri=uri, storage_options=options, format="lance"))
        first = table.current()
        assert requests.take()
        assert table.current() == first
        assert [request.partition(" ")[0] for request in requests.take()] == ["list"]
