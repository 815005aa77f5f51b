"""The store and the configuration decide whether a file outside of its table's folder is read.

This holds for all formats.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import CatalogConfig, TableConfig
from metastore_assets.errors import FragmentError, MetastoreError, TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.catalogs.base import CatalogEntry
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol, write_vector
from tests.formats.hudi.tables import HudiCopyOnWrite, HudiMergeOnRead
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_columns, read_rows

_FIELDS = [field("a", "long")]


def _delta(folder: Path, path: str, vector: dict[str, Any] | None = None) -> Path:
    """Write only the log of a Delta table: a data file at `path`, perhaps with a deletion vector.

    Return the folder.
    """
    add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    features = protocol("deletionVectors") if vector else protocol()
    commit(folder, features, metadata(_FIELDS), {"add": add | ({"deletionVector": vector} if vector else {})})
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the tables, with a data file `f.parquet` of three rows."""
    add_file(tmp_path / "out side", pa.table({"a": [1, 2, 3]}))
    return tmp_path / "out side"


def _delta_rows(folder: Path, **settings: Any) -> list[int]:
    return read_columns(open_table_format(TableConfig(name="t", uri=str(folder), **settings)).snapshot())["a"]


def test_delta_reads_outside_files_unless_restricted(tmp_path: Path, outside: Path) -> None:
    """A file outside of the table is read, in each spelling of its path in the log.

    The file is refused if the table is restricted to its folder. Percent-encoded paths are decoded only once.
    """
    ways = ["../out%20side/f.parquet", "%2e%2e/out%20side/f.parquet", "x/%2E./../out%20side/f.parquet"]
    ways += [
        quote(str(outside / "f.parquet")),
        (outside / "f.parquet").as_uri(),
        f"FILE:{quote(str(outside))}/f.parquet",
    ]
    for number, path in enumerate(ways):
        folder = _delta(tmp_path / f"t{number}", path)
        assert _delta_rows(folder) == [1, 2, 3], path
        with pytest.raises(TableFormatError, match=r"f\.parquet.*restrict_to_table_root"):
            _delta_rows(folder, restrict_to_table_root=True)
    once = _delta(tmp_path / "once", "%252e%252e/out%20side/f.parquet")
    with pytest.raises(FragmentError, match=r"out side/f\.parquet"):
        _delta_rows(once)


def test_delta_follows_links_unless_restricted(tmp_path: Path, outside: Path) -> None:
    """Links out of a table are followed unless it is restricted.

    Links within the table are always followed.
    """
    for number, (name, target) in enumerate([("f.parquet", outside / "f.parquet"), ("d", outside)]):
        folder = _delta(tmp_path / f"t{number}", name if name == "f.parquet" else "d/f.parquet")
        (folder / name).symlink_to(target)
        assert _delta_rows(folder) == [1, 2, 3]
        with pytest.raises(FragmentError, match="`restrict_to_table_root: true`"):
            _delta_rows(folder, restrict_to_table_root=True)
    inner = _delta(tmp_path / "in", "d/f.parquet")
    shutil.copytree(outside, inner / "real")
    (inner / "d").symlink_to("real")
    (tmp_path / "link").symlink_to(inner)
    for uri in (inner, tmp_path / "link"):
        assert _delta_rows(uri, restrict_to_table_root=True) == [1, 2, 3]
    absolute = _delta(tmp_path / "abs", (tmp_path / "abs" / "real" / "f.parquet").as_uri())
    shutil.copytree(outside, absolute / "real")
    (tmp_path / "other").symlink_to(absolute)
    for uri in (absolute, tmp_path / "other"):
        assert _delta_rows(uri, restrict_to_table_root=True) == [1, 2, 3]


@pytest.mark.parametrize("storage", ["p", "u"])
def test_the_policy_applies_to_deletion_vectors(tmp_path: Path, outside: Path, storage: str) -> None:
    """A vector outside of the table's folder is read, unless the table is restricted to its folder.

    The log names it by an absolute path, or by a path with `..`. A vector in another store is refused.
    """
    vector = write_vector(outside, [1], storage)
    if storage == "u":
        encoded_path = vector["pathOrInlineDv"]
        vector["pathOrInlineDv"] = f"../out side/{encoded_path[:-20]}{encoded_path[-20:]}"
    folder = _delta(tmp_path / "t", "f.parquet", vector)
    shutil.copy(outside / "f.parquet", folder)
    assert _delta_rows(folder) == [1, 3]
    with pytest.raises(TableFormatError, match=r"deletion_vector_.*\.bin.*restrict_to_table_root"):
        _delta_rows(folder, restrict_to_table_root=True)
    remote = vector | {"pathOrInlineDv": "s3://b/t/deletion_vector_1.bin", "storageType": "p"}
    other = _delta(tmp_path / "u", "f.parquet", remote)
    shutil.copy(outside / "f.parquet", other)
    with pytest.raises(TableFormatError, match=re.escape('allow: ["s3://b/t/"]')):
        _delta_rows(other)


_COLUMNS = [column(1, "a", "long")]


def _iceberg(folder: Path, part: str, place: str) -> IcebergWriter:
    """Write an Iceberg table of which one file is in another folder.

    Return the writer.

    Args:
        folder: The folder of the table.
        part: The kind of the file: `data file`, `position deletes` or `equality deletes`. With any other text, all
            files are in the table.
        place: The other folder. The file is moved there, unless the folder is on S3.
    """
    writer = IcebergWriter(folder, _COLUMNS)
    data = writer.data(pa.table({"a": [1, 2, 3]}))
    deletes = writer.position_deletes([(data["file_path"], 1)])
    equality = writer.equality_deletes(pa.table({"a": [3]}), "a")
    entry = {"data file": data, "position deletes": deletes, "equality deletes": equality}.get(part)
    if entry is not None:
        entry["file_path"] = _moved(entry["file_path"], place)
        if part == "data file":
            deletes = writer.position_deletes([(data["file_path"], 1)])
    writer.commit(data)
    writer.commit(deletes, equality)
    return writer


def _moved(path: str, place: str) -> str:
    if not place.startswith("s3:"):
        target = Path(place.removeprefix("file:")) / Path(path).name
        target.parent.mkdir(exist_ok=True)
        shutil.move(path, target)
    return f"{place}/{Path(path).name}"


def _move_manifest_list(folder: Path, place: str) -> None:
    """Move the newest snapshot's manifest list, and name the new place in the newest metadata file.

    If the new place is on S3, the list is not moved there.
    """
    (path,) = sorted((folder / "metadata").glob("*.metadata.json"))[-1:]
    text = json.loads(path.read_text())
    newest = max(text["snapshots"], key=lambda one: one["sequence-number"])
    newest["manifest-list"] = _moved(newest["manifest-list"], place)
    path.write_text(json.dumps(text))


@pytest.mark.parametrize("part", ["data file", "position deletes", "equality deletes", "manifest list"])
def test_the_policy_applies_to_every_file_of_iceberg(tmp_path: Path, part: str) -> None:
    """A file outside of the table's folder is read if it is on the same disk.

    It is refused if it is in another store, or if the table is restricted to its folder. `part` is the kind of the
    file.
    """

    def rows(folder: Path, **settings: Any) -> list[Any]:
        return read_rows(open_table_format(TableConfig(name="t", uri=str(folder), **settings)).snapshot())

    locations = [str(tmp_path / "far"), f"file:{tmp_path}/far", f"{tmp_path}/t2/../far", "s3://other/far"]
    for number, place in enumerate(locations):
        folder = tmp_path / f"t{number}"
        _iceberg(folder, part, place)
        if part == "manifest list":
            _move_manifest_list(folder, place)
        if place.startswith("s3:"):
            with pytest.raises(TableFormatError, match=re.escape('allow: ["s3://other/far/"]')):
                rows(folder)
        else:
            assert rows(folder) == [(1,)]
        with pytest.raises(TableFormatError, match="restrict_to_table_root: true"):
            rows(folder, restrict_to_table_root=True)
    plain = tmp_path / "plain"
    _iceberg(plain, "", "")
    assert rows(plain, restrict_to_table_root=True) == [(1,)]
    shutil.move(plain, tmp_path / "moved")
    assert rows(tmp_path / "moved", restrict_to_table_root=True) == [(1,)]


def test_the_policy_applies_to_manifests_in_the_metadata_file(tmp_path: Path) -> None:
    """In format version 1, the metadata file may list manifests.

    Outside manifests are read on the same disk.

    They are refused in another store, or if the table is restricted to its folder.
    """
    for number, place in enumerate((str(tmp_path / "far"), "s3://other/far")):
        writer = IcebergWriter(tmp_path / f"t{number}", _COLUMNS)
        writer.commit(writer.data(pa.table({"a": [1]})))
        (path,) = sorted((writer.folder / "metadata").glob("*.metadata.json"))[-1:]
        (manifest,) = (writer.folder / "metadata").glob("*-m0.avro")
        text = json.loads(path.read_text())
        del text["snapshots"][0]["manifest-list"]
        text["snapshots"][0]["manifests"] = [_moved(str(manifest), place)]
        path.write_text(json.dumps(text))
        table = TableConfig(name="t", uri=str(writer.folder))
        if number == 0:
            assert read_rows(open_table_format(table).snapshot()) == [(1,)]
        else:
            with pytest.raises(TableFormatError, match=re.escape('allow: ["s3://other/far/"]')):
                open_table_format(table).snapshot()
        with pytest.raises(TableFormatError, match=r"-m0\.avro"):
            open_table_format(table.model_copy(update={"restrict_to_table_root": True})).snapshot()


def test_a_moved_iceberg_table_does_not_leave_its_folder(tmp_path: Path) -> None:
    """A recorded path that leads out of the old location by `..` leads out of the new one, too.

    The file is read, unless the table is restricted to its folder.
    """
    (tmp_path / "secret").mkdir()
    pq.write_table(pa.table({"a": [9]}), tmp_path / "secret" / "x.parquet")
    writer = IcebergWriter(tmp_path / "old", _COLUMNS, location="s3://gone/old")
    data = writer.data(pa.table({"a": [1]}))
    writer.commit(data | {"file_path": "s3://gone/old/data/../../secret/x.parquet"})
    shutil.move(tmp_path / "old", tmp_path / "new")
    table = TableConfig(name="t", uri=str(tmp_path / "new"))
    assert read_rows(open_table_format(table).snapshot()) == [(9,)]
    with pytest.raises(TableFormatError, match=r"data/\.\./\.\./secret/x\.parquet"):
        open_table_format(table.model_copy(update={"restrict_to_table_root": True})).snapshot()


def test_the_policy_applies_to_the_location_in_a_metadata_file(tmp_path: Path) -> None:
    """The URI of the table is a copied metadata file, which records the location of the original table.

    A location on the same disk is read, unless the table is restricted to its folder. A location in another store is
    refused.
    """
    writer = IcebergWriter(tmp_path / "t", _COLUMNS)
    writer.commit(writer.data(pa.table({"a": [1]})))
    (newest,) = sorted((tmp_path / "t" / "metadata").glob("*.metadata.json"))[-1:]
    far = tmp_path / "far" / newest.name
    far.parent.mkdir()
    shutil.copy(newest, far)
    assert read_rows(open_table_format(TableConfig(name="t", uri=str(far))).snapshot()) == [(1,)]
    with pytest.raises(TableFormatError, match="restrict_to_table_root: true"):
        open_table_format(TableConfig(name="t", uri=str(far), restrict_to_table_root=True)).snapshot()
    far.write_text(far.read_text().replace(str(tmp_path / "t"), "s3://other/t"))
    with pytest.raises(TableFormatError, match=re.escape('allow: ["s3://other/"]')):
        open_table_format(TableConfig(name="t", uri=str(far))).snapshot()


def test_a_catalog_determines_the_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metadata file named by a catalog may be outside of the table's location.

    If the table is restricted to its location, such a metadata file is refused.
    """
    writer = IcebergWriter(tmp_path / "t", _COLUMNS)
    writer.commit(writer.data(pa.table({"a": [1]})))
    (newest,) = sorted((tmp_path / "t" / "metadata").glob("*.metadata.json"))[-1:]
    far = tmp_path / "far" / newest.name
    far.parent.mkdir()
    shutil.copy(newest, far)
    catalog = CatalogConfig(type="sql", name="c", uri=f"sqlite:///{tmp_path}/c.db")
    table = TableConfig(name="t", uri="catalog://c/db.t", catalog=catalog, table="db.t", format="iceberg")
    confined_table = table.model_copy(update={"restrict_to_table_root": True})
    recorded_metadata = [str(newest)]
    loader_path = "metastore_assets.formats.catalogs.table.load_catalog_entry"
    monkeypatch.setattr(loader_path, lambda table: CatalogEntry("iceberg", recorded_metadata[0]))
    for requested_table in (table, confined_table):
        assert read_rows(open_table_format(requested_table).snapshot()) == [(1,)]
    recorded_metadata[0] = f"FILE://{far}"
    assert read_rows(open_table_format(table).snapshot()) == [(1,)]
    with pytest.raises(TableFormatError, match=r"catalog://c/db\.t.*restrict_to_table_root"):
        open_table_format(confined_table).snapshot()


def test_a_hudi_table_reads_only_files_below_it(tmp_path: Path) -> None:
    """A table whose properties name a timeline outside of its folder is refused."""
    table = HudiMergeOnRead(tmp_path / "t")
    table.append([(1, "x", "a")])
    secret = HudiMergeOnRead(tmp_path / "secret")
    secret.append([(9, "secret", "a")])
    table.writer.set_properties(**{"hoodie.timeline.path": "../../secret/.hoodie/timeline"})
    with pytest.raises(MetastoreError, match=r"\.hoodie/\.\./\.\./secret"):
        table.snapshot()


def test_links_out_of_a_confined_folder_are_refused_where_it_is_listed(tmp_path: Path) -> None:
    """The listing of a restricted table of plain files or Hudi refuses links out of the folder.

    Links with ignored names, such as `_old`, are not examined. A table that is not restricted is read through its
    links.
    """
    (tmp_path / "out" / "d=2").mkdir(parents=True)
    pq.write_table(pa.table({"a": [2]}), tmp_path / "out" / "d=2" / "x.parquet")
    (tmp_path / "t" / "d=1").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t" / "d=1" / "x.parquet")
    (tmp_path / "t" / "_old").symlink_to(tmp_path / "out")
    config = TableConfig(name="t", uri=str(tmp_path / "t"), restrict_to_table_root=True)
    assert read_columns(open_table_format(config).snapshot())["a"] == [1]
    for link, target in (("d=2", tmp_path / "out" / "d=2"), ("d=1/y.parquet", tmp_path / "out" / "d=2" / "x.parquet")):
        (tmp_path / "t" / link).symlink_to(target)
        with pytest.raises(TableFormatError, match=f"{link}"):
            open_table_format(config).snapshot()
        assert len(_delta_rows(tmp_path / "t")) == 2
        (tmp_path / "t" / link).unlink()
    hudi = HudiCopyOnWrite(tmp_path / "h")
    hudi.append([(1, "x", "a")])
    shutil.move(tmp_path / "h" / "day=a", tmp_path / "moved")
    (tmp_path / "h" / "day=a").symlink_to(tmp_path / "moved")
    config = TableConfig(name="t", uri=str(tmp_path / "h"))
    assert len(read_rows(open_table_format(config).snapshot())) == 1
    with pytest.raises(TableFormatError, match=r"\blink\b"):
        open_table_format(config.model_copy(update={"restrict_to_table_root": True})).snapshot()
