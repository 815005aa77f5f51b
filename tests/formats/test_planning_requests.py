"""The number of requests for a plan depends on new files only, not on the number of cached files.

A plan finds the schema and the files of the newest snapshot. A file is cached if an earlier plan has cached its
metadata.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import lance
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.formats import MetadataCache, SnapshotDiff, open_table_format
from metastore_assets.storage.object_store import open_object_store
from tests.formats.delta.log_writer import commit, field, metadata, protocol
from tests.formats.hudi.tables import HudiCopyOnWrite, HudiMergeOnRead
from tests.formats.iceberg.writer import _MANIFEST_FILE, IcebergWriter, column
from tests.formats.s3_proxy import Requests, counted
from tests.formats.table_writers import DAYS
from tests.formats.test_metadata_cache import plan

pytestmark = pytest.mark.s3


class Lake(ABC):
    """A table that gets one file per commit.

    If the metadata of the format list the data files, these files need not exist.
    """

    settings: ClassVar[dict[str, Any]] = {}
    bytes_per_known = 0
    """Bytes that the metadata of each commit repeat for every file of the table."""
    has_differences = False
    """Whether the test plans from the difference instead of from a complete snapshot."""
    requests_of_large_metadata = 0
    """Additional requests if a piece of metadata is too large to be read at once."""

    def __init__(self, folder: Path, uri: str) -> None:
        self.folder = folder
        self.uri = uri
        self.count = 0
        folder.mkdir()

    def grow(self) -> None:
        """Commit a file."""
        self.count += 1
        self._grow(self.count)

    @abstractmethod
    def _grow(self, number: int) -> None: ...


class HiveNamed(Lake):
    """Parquet files whose names do not show their format."""

    def _grow(self, number: int) -> None:
        folder = self.folder / f"day={number % 5}"
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": [number], "b": ["x"]}), folder / f"{number:06}_0")


class Csv(Lake):
    def _grow(self, number: int) -> None:
        (self.folder / f"{number}.csv").write_text(f"id,name\n{number},{'x' * 50}\n")


class Json(Lake):
    def _grow(self, number: int) -> None:
        (self.folder / f"{number}.jsonl").write_text(f'{{"id": {number}, "name": "{"x" * 50}"}}\n')


class Mixed(Lake):
    """A table with integers in some files and floats in others.

    The footers show whether integers are beyond the precision of floats.
    """

    def _grow(self, number: int) -> None:
        values = pa.array([number], pa.int64() if number % 2 else pa.float64())
        pq.write_table(pa.table({"a": values}), self.folder / f"{number}.parquet")


class Delta(Lake):
    has_differences = True

    def __init__(self, folder: Path, uri: str) -> None:
        super().__init__(folder, uri)
        commit(folder, protocol(), metadata([field("id", "long")]))

    def _grow(self, number: int) -> None:
        add = {"path": f"{number}", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
        commit(self.folder, {"add": add})


class DeltaAt(Delta):
    """A Delta table that is read as of a time.

    The time of each commit has to be requested.
    """

    settings: ClassVar[dict[str, Any]] = {"at": datetime(2100, 1, 1, tzinfo=UTC).isoformat()}


class Iceberg(Lake):
    """An Iceberg table, each of whose commits writes a manifest."""

    bytes_per_known = 300
    has_differences = True

    def __init__(self, folder: Path, uri: str) -> None:
        self.folder, self.uri, self.count = folder, uri, 0
        self.writer = IcebergWriter(folder, [column(1, "id", "long")], location=uri)
        self.manifests: list[dict[str, Any]] = []

    def _grow(self, number: int) -> None:
        writer = self.writer
        writer.sequence += 1
        entry = writer._entry(f"data/{number}.parquet", "parquet", 1) | {"content": 0}
        self.manifests.append(writer._manifest((0, 0), [entry], writer.sequence))
        writer._avro(f"snap-{number}.avro", _MANIFEST_FILE, self.manifests)
        snapshot = {"snapshot-id": number, "sequence-number": number, "timestamp-ms": number, "schema-id": 0}
        snapshot |= {"manifest-list": f"{self.uri}/metadata/snap-{number}.avro"}
        writer.snapshots = [*writer.snapshots[-1:], snapshot]
        writer.refs["main"] = {"snapshot-id": number, "type": "branch"}
        for old in (self.folder / "metadata").glob("*.json"):
            old.unlink()
        writer.write_metadata()


class Hudi(Lake):
    kind: ClassVar[type[HudiCopyOnWrite]] = HudiCopyOnWrite

    def __init__(self, folder: Path, uri: str) -> None:
        self.folder, self.uri, self.count = folder, uri, 0
        self.table = self.kind(folder)

    def _grow(self, number: int) -> None:
        self.table.append([(number, "x", DAYS[0])])


class HudiOfLayout2(Hudi):
    kind = HudiMergeOnRead


class Lance(Lake):
    """A Lance table.

    To find the difference between two versions, pylance reads two manifests in up to three ranges each.
    """

    bytes_per_known = 320
    has_differences = True
    requests_of_large_metadata = 4

    def __init__(self, folder: Path, uri: str) -> None:
        self.folder, self.uri, self.count = folder, uri, 0

    def _grow(self, number: int) -> None:
        lance.write_dataset(pa.table({"id": [number]}), self.folder, mode="append")


@pytest.fixture
def requests(s3_options: dict[str, str]) -> Iterator[Requests]:
    with counted(s3_options["aws_endpoint"]) as new_requests:
        yield new_requests


@pytest.mark.parametrize("sizes", [(4, 12), pytest.param((100, 1000), marks=pytest.mark.long)], ids=str)
@pytest.mark.parametrize(
    "kind",
    [HiveNamed, Csv, Json, Mixed, Delta, DeltaAt, Iceberg, Hudi, HudiOfLayout2, Lance],
    ids=lambda kind: kind.__name__,
)
def test_requests_for_a_new_file_do_not_depend_on_the_number_of_cached_files(
    kind: type[Lake], sizes: tuple[int, int], tmp_path: Path, s3_options: dict[str, str], requests: Requests
) -> None:
    """The number of requests of a plan after one commit does not depend on the size of the table.

    A plan takes at most twelve requests for the small table, not counting listings. For the large table, a plan takes
    at most `requests_of_large_metadata` more requests, and more pages of listings. It reads at most 200 bytes more, and
    `bytes_per_known` for each file that the small table does not have. A check for changes takes no more requests for
    the large table than for the small one.
    """
    costs = []
    for size in sizes:
        prefix = f"tables/{uuid.uuid4().hex}"
        lake = kind(tmp_path / str(size), f"s3://metastore/{prefix}")
        for _ in range(size):
            lake.grow()
        uploaded_files = _upload(lake, prefix, s3_options, {})
        options = {**s3_options, "aws_endpoint": requests.endpoint}
        config = TableConfig(name="t", uri=lake.uri, storage_options=options, **lake.settings)
        direct = config.model_copy(update={"storage_options": s3_options})
        before, old_cache = plan(direct, {})
        cache = MetadataCache(lambda old_cache=old_cache: old_cache, ignore_process=True)  # type: ignore[misc]
        open_table_format(config, cache).current()
        look = sum(not request.startswith("list ") for request in requests.take())
        lake.grow()
        _upload(lake, prefix, s3_options, uploaded_files)
        if lake.has_differences:
            cache = MetadataCache(lambda old_cache=old_cache: old_cache, ignore_process=True)  # type: ignore[misc]
            diff = open_table_format(config, cache).changes(before.reference)
            assert isinstance(diff, SnapshotDiff)
            planned_id, planned_fragments, new_cache = diff.current.id, size + len(diff.added), cache.entries
        else:
            planned_snapshot, new_cache = plan(config, old_cache)
            planned_id, planned_fragments = planned_snapshot.id, len(planned_snapshot.fragments)
        plan_requests = requests.take()
        list_count = sum(request.startswith("list ") for request in plan_requests)
        costs.append((len(plan_requests) - list_count, look, list_count, requests.data_bytes, size))
        assert planned_fragments == size + 1
        assert planned_id == plan(direct, {})[0].id
        assert len(new_cache) <= 3 * size + 20
    (few, few_look, few_listed, few_bytes, _), (many, many_look, many_listed, many_bytes, _) = costs
    pages = 8 * (
        sizes[1] // 1000
    )  # A listing has a request per 1,000 names, and formats with metadata have several names per file.
    assert many <= few + lake.requests_of_large_metadata
    assert few <= 12
    assert many_look <= few_look
    assert many_listed <= few_listed + pages
    assert many_bytes <= few_bytes + 200 + lake.bytes_per_known * (sizes[1] - sizes[0])


def _upload(lake: Lake, prefix: str, options: dict[str, str], before: dict[Path, bytes]) -> dict[Path, bytes]:
    """Upload changed files of the folder to the store, and delete removed ones.

    `before` are the files of the last upload by path. Return the current files.
    """
    store = open_object_store("s3://metastore", options.items())
    files = {path.relative_to(lake.folder): path.read_bytes() for path in lake.folder.rglob("*") if path.is_file()}
    for path, data in files.items():
        if before.get(path) != data:
            obstore.put(store, f"{prefix}/{path}", data)
    for path in before.keys() - files.keys():
        obstore.delete(store, f"{prefix}/{path}")
    return files
