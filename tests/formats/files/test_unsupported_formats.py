"""Tables of unsupported formats are recognised, and not read as plain files.

The tables are recognised by metadata or by file names.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import ProfileError, TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.profiling import profile
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_columns

_PAIMON_SCHEMA = {
    "version": 3,
    "id": 0,
    "fields": [{"id": 0, "name": "id", "type": "BIGINT NOT NULL"}],
    "highestFieldId": 0,
    "partitionKeys": [],
    "primaryKeys": ["id"],
    "options": {"bucket": "1"},
    "timeMillis": 1795460210107,
}

UUID = uuid.UUID(int=0x1EDA5AA23F3B4C0E9BB6F1C2A3D4E5F6)
"""A constant, because the names of parametrized tests must be the same in every process."""


def _data(path: Path, rows: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(range(rows))}), path)
    return path


def _refusal(uri: Path, **rest: Any) -> str:
    """Return the error message when a location is planned as a table.

    Asserts that it is the same without a configured format and with the format `files`. `rest` are further settings of
    the table.
    """
    messages = set()
    for format_ in (None, "files"):
        table = open_table_format(TableConfig(name="t", uri=str(uri), format=format_, **rest))
        for ask in (table.snapshot, table.current):
            with pytest.raises(TableFormatError) as error_info:
                ask()
            messages.add(str(error_info.value))
    (message,) = messages
    return message


@pytest.fixture
def paimon(tmp_path: Path) -> Path:
    """Return a partitioned Paimon table with two data files, in the layout of Paimon's writers."""
    table = tmp_path / "wh" / "db.db" / "t"
    for number in range(2):
        _data(table / "d=a" / "bucket-0" / f"data-{uuid.uuid4()}-{number}.parquet")
    for path, content in (
        ("schema/schema-0", json.dumps(_PAIMON_SCHEMA)),
        ("snapshot/snapshot-1", "{}"),
        ("snapshot/LATEST", "1"),
        (f"manifest/manifest-{UUID}-0", "Obj"),
    ):
        (table / path).parent.mkdir(exist_ok=True)
        (table / path).write_text(content)
    return table


def test_paimon_tables(paimon: Path) -> None:
    """The error names Paimon for the table's folder, and for the folders above it and in it.

    It also names Paimon for a data file, and for copies of a data file and its folders.
    """
    assert re.search(rf"{paimon} .*\bPaimon\b", _refusal(paimon))
    for above in (paimon.parent, paimon.parent.parent):
        assert re.search(rf"{above} .*\bPaimon\b.* {paimon}\b", _refusal(above))
    bucket = paimon / "d=a" / "bucket-0"
    for below in (bucket.parent, bucket, next(bucket.iterdir())):
        assert re.search(rf"{below} .*\bPaimon\b.* {paimon}\b", _refusal(below))
    copied_bucket = paimon.parent.parent.parent / "copied" / "bucket-0"
    bucket.rename(copied_bucket) if copied_bucket.parent.mkdir() is None else None
    for folder in (copied_bucket.parent, copied_bucket, next(copied_bucket.iterdir())):
        assert "Paimon" in _refusal(folder)


def test_a_paimon_table_without_rows(paimon: Path) -> None:
    """A Paimon table without data files is recognised by its metadata."""
    for path in paimon.rglob("*.parquet"):
        path.unlink()
    assert re.search(rf"{paimon} .*\bPaimon\b", _refusal(paimon))


@pytest.mark.parametrize(
    ("path", "format_"),
    [
        (f"main/t/ducklake-{UUID}.parquet", "DuckLake"),
        (f"main/t/d=1/ducklake-{UUID}-delete.parquet", "DuckLake"),
        ("base_0000005/bucket_00000", "transactional Hive"),
        ("base_0000005_v0000012/000000_0", "transactional Hive"),
        ("base_1234567/bucket_00000", "transactional Hive"),
        ("d=1/delta_0000001_0000001_0000/000000_0", "transactional Hive"),
        ("d=1/delta_1234567_1234568/bucket_00000", "transactional Hive"),
        ("delete_delta_0000002_0000002_0001/bucket_00000_0", "transactional Hive"),
        (f"d=1/bucket-3/data-{UUID}-0.parquet", "Paimon"),
        (f"bucket-postpone/changelog-{UUID}-12.parquet", "Paimon"),
    ],
)
def test_files_that_name_their_format(tmp_path: Path, path: str, format_: str) -> None:
    """The error names the file and its format for the table's folder, a folder in it, and the file."""
    file = _data(tmp_path / "t" / path)
    _data(tmp_path / "t" / "a.parquet")
    for folder in [file, *file.parents][: path.count("/") + 2]:
        message = _refusal(folder)
        assert all(part in message for part in (str(file), f"{format_} table"))
        assert "`_`" not in message, "a file that is no data could be renamed"


@pytest.mark.parametrize(
    "path",
    [
        f"data-{UUID}-0.parquet",
        "bucket-0/data-1.parquet",
        "ducklake-2024.parquet",
        "base_20240131/x.parquet",
        "base_1234567/x.parquet",
        "delta_2024_2025/x.parquet",
        "delta_20240101_20240131/x.parquet",
        "schema/schema-0.parquet",
        f"_backup/ducklake-{UUID}.parquet",
    ],
)
def test_similar_names_are_plain_files(tmp_path: Path, path: str) -> None:
    """Files whose names resemble those of an unsupported format are read as plain files."""
    _data(tmp_path / path)
    if path.startswith("_"):
        _data(tmp_path / "x.parquet")
    (tmp_path / "schema").mkdir(exist_ok=True)
    (tmp_path / "schema" / "_schema-0").write_text("{}")
    assert read_columns(open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()) == {"id": [0, 1]}


@pytest.mark.parametrize(
    ("name", "explanation"),
    [
        ("a.vortex", "a Vortex file"),
        ("a.arrow", "an Arrow IPC file"),
        ("a.FEATHER", "a Feather file"),
        ("meta.ducklake", "the catalog of a DuckLake"),
        ("a.duckdb", "a DuckDB database"),
        ("a.xlsx", "an Excel file"),
        ("config.share", "a profile of Delta Sharing"),
    ],
)
def test_files_of_other_kinds_are_named(tmp_path: Path, name: str, explanation: str) -> None:
    """The error for a file of an unsupported kind has the file and its kind.

    It is the same for the location of the file and for that of its folder.
    """
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"LANC some bytes")
    for folder in (tmp_path, path):
        assert re.search(rf"{path} .*{re.escape(explanation)}", _refusal(folder))


def test_a_file_of_a_lance_table_is_no_plain_file(tmp_path: Path) -> None:
    """The error for a file of a Lance table says to name the table's folder instead."""
    (tmp_path / "0101.lance").write_bytes(b"LANC some bytes")
    explanation = (
        f"{tmp_path / '0101.lance'} is a file of a Lance table: name the table's folder, which contains `_versions`"
    )
    assert explanation in _refusal(tmp_path)


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_delete_files_of_a_removed_table(tmp_path: Path, kind: str) -> None:
    """A copied delete file without its table is refused.

    Its columns have field ids that Iceberg reserves.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    writer.position_deletes([("x", 0)], format_=kind)
    writer.folder.rename(tmp_path / "copy")
    for path in list((tmp_path / "copy").rglob("*")):
        if path.is_file() and path.suffix != f".{kind}":
            path.unlink()
    with pytest.raises(TableFormatError, match=r"\bdelete\b.*\bIceberg\b"):
        profile(tmp_path / "copy")


@pytest.mark.parametrize("name", ["impala_v2_partitioned_position_deletes_orc", "impala_v2_delete_both_eq_and_pos"])
def test_data_folders_of_real_tables_without_metadata(realtables: Path, tmp_path: Path, name: str) -> None:
    """Copied data folders of real Iceberg tables with delete files are refused."""
    shutil.copytree(realtables / "iceberg" / name / "data", tmp_path / "data")
    with pytest.raises(ProfileError, match=r"data/.*\bdelete\b.*\bIceberg\b"):
        profile(tmp_path)


@pytest.mark.parametrize("metadata", [{}, {"delete-type": "position"}, {"delete-type": "equality"}])
def test_delete_files_of_iceberg_are_no_data(tmp_path: Path, metadata: dict[str, str]) -> None:
    """Iceberg delete files without their table's metadata, as in copied data folders, are refused.

    Reserved field ids or metadata show that a file is a delete file. A data file beside it does not matter.
    """
    numbers = (2147483546, 2147483545) if not metadata else (1, 2)
    types = (("file_path", pa.string()), ("pos", pa.int64()))
    fields = [
        pa.field(name, type_, metadata={"PARQUET:field_id": str(number)})
        for (name, type_), number in zip(types, numbers, strict=True)
    ]
    table = pa.table([["x"], [0]], schema=pa.schema(fields, metadata=metadata or None))
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "00000-deletes.parquet")
    explanation = r"\bdelete\b.*\bIceberg\b"
    with pytest.raises(TableFormatError, match=explanation):
        profile(tmp_path)
    pq.write_table(pa.table({"file_path": ["a"], "pos": [1]}), tmp_path / "data" / "00000.parquet")
    with pytest.raises(ProfileError, match=explanation):
        profile(tmp_path)
