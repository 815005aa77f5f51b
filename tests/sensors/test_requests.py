"""The requests that ticks send to an object store, and ticks while the store does not respond.

A root is the folder with all stored state.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from dagster import DagsterInstance

from metastore_assets.errors import MetastoreError, StoreError
from metastore_assets.sensors import table_probe
from tests.formats.hudi.tables import HudiCopyOnWrite
from tests.formats.iceberg.tables import IcebergCopyOnWrite
from tests.formats.s3_proxy import Requests, counted
from tests.formats.table_writers import DeltaCopyOnWrite, ParquetFiles
from tests.sensors.watched_table import WatchedTable

pytestmark = pytest.mark.s3
DAY = "2024-01-01"
KINDS = [
    DeltaCopyOnWrite,
    *(pytest.param(kind, marks=pytest.mark.long) for kind in (IcebergCopyOnWrite, HudiCopyOnWrite, ParquetFiles)),
]


@dataclass
class Remote:
    """A table and a root in a bucket.

    The table's files are written locally and uploaded.
    """

    table: Any
    prefix: str
    client: Any
    requests: Requests
    watched: WatchedTable
    says: str = ""
    """The message of a tick that finds no change."""

    def append(self) -> None:
        self.table.append([(self.table.next_id, "x", DAY)])
        self.send()

    def send(self) -> None:
        for path in sorted(self.table.folder.rglob("*")):
            if path.is_file():
                key = f"{self.prefix}/{path.relative_to(self.table.folder)}"
                self.client.put_object(Bucket="metastore", Key=key, Body=path.read_bytes())

    def request(self) -> list[str]:
        """Evaluate a tick that must find no change.

        Return its requests to the store.
        """
        self.requests.take()
        assert self.watched.skips() == self.says
        return self.requests.take()


@pytest.fixture
def remote(
    request: pytest.FixtureRequest, tmp_path: Path, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Remote]:
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    prefix = tmp_path.name
    keys = {name: s3_options[name] for name in ("aws_access_key_id", "aws_secret_access_key")}
    client = boto3.client("s3", endpoint_url=s3_options["aws_endpoint"], region_name="us-east-1", **keys)
    with counted(s3_options["aws_endpoint"]) as requests, DagsterInstance.ephemeral() as instance:
        options = {**s3_options, "aws_endpoint": requests.endpoint, "max_retries": "0"}
        table = request.param(tmp_path / "t")
        uri = f"s3://metastore/{prefix}"
        watched_table = WatchedTable(
            tmp_path, instance, uri=uri, storage_options=options, path_mapping={str(tmp_path / "t"): uri}
        )
        text = yaml.safe_load(watched_table.file.read_text()) | {"root": f"{uri}-root", "storage_options": options}
        watched_table.file.write_text(yaml.safe_dump(text))
        new_remote = Remote(table, prefix, client, requests, watched_table)
        new_remote.append()
        watched_table.load()
        yield new_remote


def caught_up(remote: Remote) -> None:
    remote.watched.catches_up()
    remote.says = remote.watched.is_current()


@pytest.mark.parametrize("remote", KINDS, indirect=True, ids=lambda kind: kind.kind)
def test_a_tick_without_a_change_has_three_requests(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick without a change has three requests: two for versions, and a listing of the log or files.

    The versions are the newest one and the one after it. A Hudi table has a fourth request, for its properties. No data
    is read. Commits and a removed version are detected.
    """
    caught_up(remote)
    root, prefix = f"/metastore/{remote.prefix}-root/t/versions", remote.prefix
    kind = type(remote.table)
    listed_folders = {DeltaCopyOnWrite: "/_delta_log/", IcebergCopyOnWrite: "/metadata/", HudiCopyOnWrite: "/.hoodie/"}
    for number in (1, 2):
        quiet = [
            f"HEAD {root}/{number}.json",
            f"HEAD {root}/{number + 1}.json",
            f"list {prefix}{listed_folders.get(kind, '/')}",
        ]
        if kind is HudiCopyOnWrite:
            quiet.insert(2, f"GET /metastore/{prefix}/.hoodie/hoodie.properties")
        assert [remote.request() for _ in range(2)] == [quiet, quiet]
        remote.append()
        caught_up(remote)
    # After some minutes one more request detects the format of the table.
    monkeypatch.setattr(table_probe, "_FORMAT_CACHE_SECONDS", 0.0)
    assert len(remote.request()) > 3 or kind is DeltaCopyOnWrite
    newest = f"{remote.prefix}-root/t/versions/3.json"
    remote.client.delete_object(Bucket="metastore", Key=newest)
    assert "follows version 2" in remote.watched.reloads()[1]


@pytest.mark.parametrize("remote", KINDS[:1], indirect=True, ids=lambda kind: kind.kind)
def test_an_unreachable_table_fails_the_tick(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the object store fails or does not respond, a tick fails before Dagster's own timeout.

    If the store does not respond, the error has the URI of the root. A failed tick does not change the cursor. When the
    store responds again, the next tick requests the run. Threads do not accumulate.
    """
    caught_up(remote)
    remote.append()
    before = remote.watched.cursor, remote.watched.number
    remote.requests.broken = 503
    with pytest.raises(MetastoreError, match="503"):
        remote.watched.tick()
    monkeypatch.setenv("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS", "0.3")
    remote.requests.answers.clear()
    threads = threading.active_count()
    for _ in range(3):
        with pytest.raises(StoreError, match=rf"s3://metastore/{remote.prefix}-root\b"):
            remote.watched.tick()
    assert threading.active_count() <= threads + 2
    remote.requests.broken = 0
    remote.requests.answers.set()
    monkeypatch.delenv("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS")
    assert (remote.watched.cursor, remote.watched.number) == before
    remote.watched.catches_up()
