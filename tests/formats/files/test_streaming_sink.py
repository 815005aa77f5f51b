"""Folders that Spark's structured streaming wrote: their log lists the committed files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats import Snapshot, open_table_format
from metastore_assets.formats.files import file_listing
from tests.formats.oracle import read_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Sink:
    """A folder to which files and batches are written as by Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "_spark_metadata"
        self.log.mkdir(parents=True)

    def file(self, path: str, value: int) -> str:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [value]}), target)
        return path

    def batch(
        self, name: str, added_paths: Sequence[str], deleted_paths: Sequence[str] = (), version: str = "v1"
    ) -> None:
        lines = [version]
        for action, paths in (("add", added_paths), ("delete", deleted_paths)):
            for path in paths:
                uri = f"file://{quote(f'{self.folder}/{path}')}"
                lines.append(json.dumps({"path": uri, "size": 1, "isDir": False, "action": action}))
        (self.log / name).write_text("\n".join(lines))
        (self.log / f".{name}.crc").write_bytes(b"crc")


@pytest.fixture
def sink(tmp_path: Path) -> _Sink:
    """Return a folder with two committed batches, and a file of a failed attempt."""
    result = _Sink(tmp_path / "lake" / "sïnk a%2Fb")
    result.batch("0", [result.file("part-0.parquet", 0)])
    result.batch("1", [result.file("part-1.parquet", 1)])
    result.file("part-failed.parquet", 9)
    return result


def _open(folder: Path, **rest: Any) -> Snapshot:
    table = open_table_format(TableConfig(name="t", uri=str(folder), **rest))
    snapshot = table.snapshot()
    assert table.current().id == snapshot.id
    return snapshot


def _ids(folder: Path, **rest: Any) -> list[int]:
    return sorted(read_columns(_open(folder, **rest))["id"])


def test_only_committed_files_are_read(sink: _Sink) -> None:
    """Files that are not in the log are not read, and do not change the snapshot id."""
    assert _ids(sink.folder) == [0, 1]
    before = _open(sink.folder).id
    sink.file("part-2.parquet", 2)
    assert _open(sink.folder).id == before
    sink.batch("2", ["part-2.parquet"])
    assert _ids(sink.folder) == [0, 1, 2]
    assert _ids(sink.folder, format="files") == [0, 1, 2]
    sink.batch("3", [])
    assert _ids(sink.folder) == [0, 1, 2]


def test_a_batch_that_is_committed_during_the_listing_is_read(sink: _Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is committed after the folders are listed, and before the log is read, is read."""
    read_log = file_listing.committed_paths

    def commit_first(*arguments: Any) -> list[str] | None:
        sink.batch("2", [sink.file("day=1/part-2.parquet", 2)])
        return read_log(*arguments)

    monkeypatch.setattr(file_listing, "committed_paths", commit_first)
    assert sorted(read_columns(open_table_format(TableConfig(name="t", uri=str(sink.folder))).snapshot())["id"]) == [
        0,
        1,
        2,
    ]


def test_compacted_batches(sink: _Sink) -> None:
    """A compacted batch replaces all batches before it, which may be removed.

    Later batches add and delete files.
    """
    sink.batch("2.compact", ["part-1.parquet"])
    assert _ids(sink.folder) == [1]
    for name in ("0", "1"):
        (sink.log / name).unlink()
    sink.batch("3", [sink.file("part-3.parquet", 3)])
    assert _ids(sink.folder) == [1, 3]
    sink.batch("4", [sink.file("part-4.parquet", 4)], deleted_paths=["part-1.parquet"])
    (sink.folder / "part-1.parquet").unlink()
    assert _ids(sink.folder) == [3, 4]


def test_partitions_and_filters(sink: _Sink) -> None:
    """A committed file that is missing is an error, unless its partition is excluded."""
    paths = [sink.file(f"d=x {number}%2Fy/part-{number}.parquet", number) for number in (2, 3)]
    sink.batch("2", paths)
    snapshot = _open(sink.folder)
    assert snapshot.partition_columns == ("d",)
    assert sorted(read_columns(snapshot)["id"]) == [0, 1, 2, 3]
    (sink.folder / paths[1]).unlink()
    assert _ids(sink.folder, partitions={"d": ("x 2/y",)}) == [0, 1, 2]
    with pytest.raises(TableFormatError, match=r"part-3\.parquet.*_spark_metadata"):
        _open(sink.folder)


def test_a_folder_that_was_moved(sink: _Sink, tmp_path: Path) -> None:
    """The committed files of a moved folder are read, although the log has their old absolute paths.

    Files are matched by partition folders and file names.
    """
    sink.batch("2", [sink.file("d=1/e=2/part-2.parquet", 2)])
    sink.folder.rename(tmp_path / "moved")
    assert _ids(tmp_path / "moved") == [0, 1, 2]


def test_incomplete_logs_are_refused(sink: _Sink) -> None:
    """An incomplete log is an error, because the committed files are unknown."""
    sink.batch("3", [])
    with pytest.raises(TableFormatError, match="_spark_metadata/2"):
        _open(sink.folder)
    sink.batch("2", [], version="v2")
    with pytest.raises(TableFormatError, match=r"_spark_metadata/2.*'v2'"):
        _open(sink.folder)
    for content in ("", "v1\n{", "v1\n[]", 'v1\n{"path": "/x"}', 'v1\n{"path": "/x", "action": "move"}'):
        (sink.log / "2").write_text(content)
        with pytest.raises(TableFormatError, match="_spark_metadata/2"):
            _open(sink.folder)


def test_a_log_without_batches(tmp_path: Path) -> None:
    """A log without a batch commits no files, so there is no table.

    If the folder of the log has only other files, there is no log, and the data files are read.
    """
    sink = _Sink(tmp_path / "t")
    sink.file("part-0.parquet", 0)
    with pytest.raises(TableNotFoundError, match=f"{sink.folder}.*streaming"):
        _open(sink.folder)
    (sink.log / "notes.txt").write_text("")
    assert _ids(sink.folder) == [0]


def test_folders_above_and_below(sink: _Sink) -> None:
    """The parent of a folder with a log, its subfolders, and single files in it are refused.

    The error has the path of the folder with the log.
    """
    sink.batch("2", [sink.file("d=1/part-2.parquet", 2)])
    message = "of which removed and superseded files would count if they were read as plain files; name "
    with pytest.raises(TableFormatError, match=rf"\bSpark\b.*{sink.folder}.*{message}"):
        _open(sink.folder.parent)
    for path in (sink.folder / "d=1", sink.folder / "part-0.parquet"):
        with pytest.raises(TableFormatError, match=rf"\bSpark\b.*{sink.folder}.*{message}"):
            _open(path)


def test_rows_equal_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of a folder that Spark's streaming wrote are those that Spark's reader returns.

    The folder also has copies of committed files under other names, which are not committed.
    """
    source, out = tmp_path / "source", tmp_path / "öut a=b"
    for number in range(2):
        frame = spark.createDataFrame([(number, f"x {number % 2}/é")], "id int, d string").coalesce(1)
        frame.write.mode("append").parquet(str(source))
        query = (
            spark.readStream.schema("id int, d string")
            .parquet(str(source))
            .writeStream.partitionBy("d")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out), format="parquet")
        )
        assert query.awaitTermination(60)
        committed_file = next(out.rglob("*.parquet"))
        (committed_file.parent / f"part-failed-{number}.parquet").write_bytes(committed_file.read_bytes())
        assert _ids(out) == sorted(row.id for row in spark.read.parquet(str(out)).collect())
    assert sum(1 for _ in out.rglob("*.parquet")) == 4
