"""Manifests and manifest lists as all kinds of writers leave them: codecs, unknown and missing fields, other orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError
from metastore_assets.formats import open_table_format
from tests.formats.avro_container import CODECS, OTHER_NAMES, recode
from tests.formats.iceberg_writer import IcebergWriter, column
from tests.formats.oracle import read_rows


def _ids(folder: Path | str) -> list[int]:
    return sorted(row[0] for row in read_rows(open_table_format(TableConfig(name="t", uri=str(folder))).snapshot()))


@pytest.fixture
def writer(tmp_path: Path) -> IcebergWriter:
    """A table of two data files, the rows 1 to 4, of which the second is deleted by position."""
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    data = writer.data(pa.table({"id": [1, 2, 3]}))
    writer.commit(data)
    writer.commit(writer.data(pa.table({"id": [4]})), writer.position_deletes([(data["file_path"], 1)]))
    return writer


@pytest.mark.parametrize("codec", [None, *CODECS, *OTHER_NAMES])
def test_every_codec(writer: IcebergWriter, codec: str | None) -> None:
    """Of Avro, of fastavro, and those that have the names of Iceberg's properties; also none at all."""
    for path in (writer.folder / "metadata").glob("*.avro"):
        recode(path, codec)
    assert _ids(writer.folder) == [1, 3, 4]


def test_a_codec_that_nobody_knows(writer: IcebergWriter) -> None:
    """The error names the table, the file, the codec, and those that there are."""
    (path,) = (writer.folder / "metadata").glob("snap-*2.avro")
    path.write_bytes(path.read_bytes().replace(b"\x0edeflate", b"\x0ebrotli!"))
    with pytest.raises(TableFormatError, match=rf"manifest list .*{path.name}.*'brotli!' has no reader; null, deflate"):
        _ids(writer.folder)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "bzip2", "null"])
@pytest.mark.parametrize("version", ["1", "2"])
def test_the_codecs_that_pyiceberg_writes(tmp_path: Path, codec: str, version: str) -> None:
    """By the table property of manifests."""
    catalog = InMemoryCatalog("test", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    properties = {"write.avro.compression-codec": codec, "format-version": version}
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]), properties=properties)
    for start in (0, 10):
        table.append(pa.table({"id": range(start, start + 2)}))
    table.delete("id = 10")
    assert _ids(table.location()) == [0, 1, 11]


@pytest.mark.parametrize("kind", ["manifest", "manifest list"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[: len(data) // 2], "ends early"),
        (lambda data: data[:-20], "ends early"),
        (lambda data: data[:-1] + b"\0", "does not end with the file's marker"),
        (lambda data: b"[]", "no Avro file"),
        (lambda data: b"", "no Avro file"),
    ],
)
def test_a_broken_file_is_named(writer: IcebergWriter, kind: str, damage: Any, said: str) -> None:
    """Whether a manifest or the list of them."""
    pattern = "snap-*2.avro" if kind == "manifest list" else "*-m0.avro"
    for path in (writer.folder / "metadata").glob(pattern):
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TableFormatError, match=rf"{writer.folder}: the {kind} .*avro cannot be read: .*{said}"):
        _ids(writer.folder)
