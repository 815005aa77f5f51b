"""Each process reads a delete file once, for any number of data files that it applies to.

A fragment is a data file and the deletes on it.

The source of a fragment is an object that can be pickled, and that opens the files of the fragment.
"""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path

import obstore
import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.formats import open_table_format
from metastore_assets.formats.iceberg.equality import DELETE_ROWS, DeleteRowCache
from metastore_assets.storage.object_store import open_object_store
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_columns
from tests.formats.s3_proxy import counted

_UPSERTS = 12


@pytest.mark.s3
def test_upserts_read_each_file_of_deletes_once(tmp_path: Path, s3_options: dict[str, str]) -> None:
    """A process opens each delete file once, and not once for each data file that it applies to.

    Pickled sources of fragments are small: they have references to delete files, and not the rows of these files.
    """
    prefix = f"tables/{uuid.uuid4().hex}"
    writer = IcebergWriter(
        tmp_path / "t", [column(1, "id", "long"), column(2, "x", "long")], location=f"s3://metastore/{prefix}"
    )
    for number in range(_UPSERTS):
        rows = pa.table({"id": [0, number], "x": [number, number]})
        writer.commit(writer.data(rows), writer.equality_deletes(pa.table({"id": [0, number]}), "id"))
    store = open_object_store("s3://metastore", s3_options.items())
    for path in writer.folder.rglob("*"):
        if path.is_file():
            obstore.put(store, f"{prefix}/{path.relative_to(writer.folder)}", path.read_bytes())
    DELETE_ROWS.clear()
    with counted(s3_options["aws_endpoint"]) as requests:
        config = TableConfig(
            name="t", uri=writer.location, storage_options={**s3_options, "aws_endpoint": requests.endpoint}
        )
        snapshot = open_table_format(config).snapshot()
        requests.take()
        columns = read_columns(snapshot)
        delete_requests = [request for request in requests.take() if "/eq-" in request]
        assert len(set(delete_requests)) <= 2 * (_UPSERTS - 1)
        assert len([request for request in delete_requests if request.startswith("HEAD")]) == _UPSERTS - 1
        assert sorted(zip(columns["id"], columns["x"], strict=True)) == [
            (0, _UPSERTS - 1),
            *((number, number) for number in range(1, _UPSERTS)),
        ]
        assert read_columns(snapshot) == columns
        assert not [request for request in requests.take() if "/eq-" in request]
    one, all_ = (len(pickle.dumps([f.source for f in some])) for some in (snapshot.fragments[:1], snapshot.fragments))
    assert all_ < one + 1500 * len(snapshot.fragments)


def test_recently_used_rows_stay_cached() -> None:
    """The cache of deleted rows drops the rows that were not used for the longest time.

    In this test, the cache stores 80 bytes. A file whose rows need more is read each time.
    """
    read: list[str] = []

    def reader(name: str, rows: int) -> pa.Array:
        read.append(name)
        return [pa.array(range(rows), pa.int64())]

    cache_ = DeleteRowCache(80)
    for name, rows in [("a", 4), ("b", 4), ("a", 4), ("c", 4), ("a", 4), ("b", 4), ("d", 11), ("d", 11), ("b", 4)]:
        (values,) = cache_.get_or_read(name, lambda name=name, rows=rows: reader(name, rows))  # type: ignore[misc]
        assert values.to_pylist() == list(range(rows))
    assert read == ["a", "b", "c", "b", "d", "d"]
