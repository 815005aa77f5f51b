"""Hudi tables in an object store are read as on disk.

A fragment is a file slice: a base file and its log files.

A difference is the fragments added and removed between two snapshots, which `changes` computes from metadata of
commits. A comparison computes them from the complete lists of fragments.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import boto3
import obstore
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats import SnapshotDiff, open_table_format
from metastore_assets.storage.object_store import open_object_store
from tests.formats.hudi.random_histories import History
from tests.formats.hudi.test_changes import Planned, assert_difference
from tests.formats.hudi.writer import HudiWriter
from tests.formats.oracle import read_rows
from tests.formats.s3_proxy import counted

pytestmark = pytest.mark.s3

_WORKER = """
import pickle, sys
sources, schema = pickle.load(sys.stdin.buffer)
for source in sources:
    with source.open() as reader:
        columns = [[v for chunk in reader.read(field) for v in chunk.to_pylist()] for field in schema]
    print(*map(repr, zip(*columns)), sep="\\n")
"""


@pytest.mark.parametrize("version", [6, 9])
def test_a_table_in_a_bucket_has_the_states_of_the_folder(
    tmp_path: Path, s3_options: dict[str, str], version: int
) -> None:
    """A table that is copied to a bucket has the same ids and states there.

    The table has a log file and a pending write. Another process reads the fragments. A missing log file is reported.
    """
    history = History(HudiWriter(tmp_path / "t", version))
    history.insert("x", [{"key": "a", "ts": 1, "value": 1.0}, {"key": "b", "ts": 1, "value": 2.0}])
    history.upsert(history.slices()[0], [{"key": "a", "ts": 2, "value": 7.0}], {"b": 3}, 3)
    history.insert("y", [{"key": "c", "ts": 1, "value": None}])
    history.fail(history.slices()[1], [{"key": "c", "ts": 5}], False)
    prefix = f"hudi/{uuid.uuid4().hex}"
    client = boto3.client(
        "s3",
        endpoint_url=s3_options["aws_endpoint"],
        region_name=s3_options["aws_region"],
        aws_access_key_id=s3_options["aws_access_key_id"],
        aws_secret_access_key=s3_options["aws_secret_access_key"],
    )
    objects = [path for path in (tmp_path / "t").rglob("*") if path.is_file()]
    for path in objects:
        key = f"{prefix}/t/{path.relative_to(tmp_path / 't')}"
        client.put_object(Bucket="metastore", Key=key, Body=path.read_bytes())
    # Object stores also have folder markers and temporary files beside the timeline.
    for key in (".hoodie/", ".hoodie/.aux/", ".hoodie/.temp/20240101000001007/x.marker", "part=x/"):
        client.put_object(Bucket="metastore", Key=f"{prefix}/t/{key}", Body=b"")

    def table(at: str | None = None) -> Any:
        uri = f"s3://metastore/{prefix}/t"
        return open_table_format(TableConfig(name="t", uri=uri, storage_options=s3_options, at=at))

    local = open_table_format(TableConfig(name="t", uri=str(tmp_path / "t"))).snapshot()
    snapshot = table().snapshot()
    assert table().snapshot_id() == snapshot.id == local.id
    assert [one.id for one in snapshot.fragments] == [one.id for one in local.fragments]
    sources = [fragment.source for fragment in snapshot.fragments]
    assert "not-a-secret" not in repr(sources)
    done = subprocess.run(
        [sys.executable, "-c", _WORKER], input=pickle.dumps((sources, snapshot.schema)), capture_output=True, check=True
    )
    assert sorted(done.stdout.decode().splitlines()) == sorted(map(repr, history.rows()))
    for instant, rows in history.states.items():
        assert sorted(read_rows(table(instant).snapshot()), key=repr) == rows
    merged_fragment = next(one for one in snapshot.fragments if one.partition_key == "part=x")
    log = next(path for path in objects if ".log." in path.name and path.parent.name == "part=x")
    client.delete_object(Bucket="metastore", Key=f"{prefix}/t/part=x/{log.name}")
    with pytest.raises(FragmentError, match=re.escape(log.name)) as error_info:
        merged_fragment.source.open()
    assert error_info.value.missing


@pytest.mark.parametrize("version", [6, 9])
def test_a_difference_lists_only_changed_file_groups(tmp_path: Path, s3_options: dict[str, str], version: int) -> None:
    """A difference after commits to two of six file groups makes at most five listings.

    One listing is of the timeline, and two are for each changed group. A difference after a commit that replaces all
    groups of a partition equals a comparison.
    """
    history = History(HudiWriter(tmp_path / "t", version))
    for part in "xxxxyz":
        history.insert(part, [{"key": "a", "ts": 1, "value": 1.0}, {"key": "b", "ts": 1, "value": 2.0}])
    prefix = f"hudi/{uuid.uuid4().hex}"
    store = open_object_store("s3://metastore", s3_options.items())
    uploaded_data: dict[Path, bytes] = {}

    def upload() -> None:
        for path in (tmp_path / "t").rglob("*"):
            if path.is_file() and uploaded_data.get(path) != path.read_bytes():
                uploaded_data[path] = path.read_bytes()
                obstore.put(store, f"{prefix}/t/{path.relative_to(tmp_path / 't')}", uploaded_data[path])

    upload()
    with counted(s3_options["aws_endpoint"]) as requests:
        options = s3_options | {"aws_endpoint": requests.endpoint}
        config = TableConfig(name="t", uri=f"s3://metastore/{prefix}/t", format="hudi", storage_options=options)
        previous = Planned.of(config)
        history.rewrite(history.slices()[4], [{"key": "a", "ts": 2, "value": 7.0}])
        history.upsert(history.slices()[5], [{"key": "a", "ts": 3}], {}, 3)
        upload()
        requests.take()
        assert isinstance(previous.changes(config)[0], SnapshotDiff)
        list_requests = [request for request in requests.take() if request.startswith("list ")]
        assert len(list_requests) <= 1 + 2 * 2
        previous = assert_difference(previous, config)
        history.replace("x", [{"key": "c", "ts": 1}])
        upload()
        previous = assert_difference(previous, config)
