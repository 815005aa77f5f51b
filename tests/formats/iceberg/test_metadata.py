"""The right metadata file, snapshot and file locations of an Iceberg table are used.

A fragment is a data file and the deletes on it. The reference of a snapshot consists of its id and its commit time.
"""

from __future__ import annotations

import gzip
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import SnapshotNotFoundError, TableFormatError, TableNotFoundError
from metastore_assets.formats import TableFormat, open_table_format
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_rows


def _open(folder: Path | str, **more: Any) -> TableFormat:
    return open_table_format(TableConfig(name="t", uri=str(folder), **more))


def _ids(folder: Path | str, **more: Any) -> list[int]:
    return sorted(row[0] for row in read_rows(_open(folder, **more).snapshot()))


@pytest.fixture
def writer(tmp_path: Path) -> IcebergWriter:
    """A table of three snapshots.

    Each adds a file with one row: 1, 2 and 3.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    for number in (1, 2, 3):
        writer.commit(writer.data(pa.table({"id": [number]})))
    return writer


def test_a_table_is_opened_by_folder_or_by_metadata_file(writer: IcebergWriter) -> None:
    """A table opened by its folder has the newest state, and by a metadata file the state in this file.

    A compressed metadata file may have either of two names.
    """
    metadata = writer.folder / "metadata"
    assert _ids(writer.folder) == [1, 2, 3]
    assert _ids(metadata / "v2.metadata.json") == [1, 2]
    for name in ("v2.gz.metadata.json", "v2.metadata.json.gz"):
        (metadata / name).write_bytes(gzip.compress((metadata / "v2.metadata.json").read_bytes()))
        assert _ids(metadata / name) == [1, 2]


@pytest.mark.parametrize("name", ["{}.gz.metadata.json", "{}.metadata.json.gz", "{}.metadata.json"])
def test_compressed_metadata_are_read(writer: IcebergWriter, name: str) -> None:
    """Metadata files that are compressed by gzip are read, whatever their names.

    The compression of a metadata file is detected by its content, and not by its name.
    """
    for path in (writer.folder / "metadata").glob("*.metadata.json"):
        content = gzip.compress(path.read_bytes()) + gzip.compress(b"\n")
        path.unlink()
        path.with_name(name.format(path.name.partition(".")[0])).write_bytes(content)
    assert _ids(writer.folder) == [1, 2, 3]


@pytest.mark.parametrize(
    ("names", "hint", "expected"),
    [
        (("v1", "v2", "v3"), None, [1, 2, 3]),
        (("v1", "v2", "v3"), "2", [1, 2, 3]),  # The hint is outdated.
        (("v1", "v10", "v9"), "", [1, 2]),
        (("00000-a", "00001-b", "00002-c"), None, [1, 2, 3]),
        (("00009-a", "00010-b", "00002-c"), None, [1, 2]),
        (("00001-a", "00002-c", "00002-b"), None, [1, 2, 3]),  # Of two, the one that was updated last,
        (("00001-a", "00002-b", "00002-c"), "00002-b", [1, 2]),  # unless one is named.
        (("00001-a", "00002-b", "00002-c"), "s3://b/t/metadata/00002-b.metadata.json\n", [1, 2]),
        (("v1", "v2", "final"), None, [1, 2, 3]),
        (("final", "v1", "v2"), None, [1, 2, 3]),
        (("v1", "v2", "e07c5a1c-55a7-4f4a-8f8c-6a4d2f1b9c3e"), None, [1, 2]),  # It was not committed.
        (("v1", "v2", "12345678-55a7-4f4a-8f8c-6a4d2f1b9c3e"), "2", [1, 2]),
        (("e07c5a1c-55a7-4f4a-8f8c-6a4d2f1b9c3e", "v1", "v2"), None, [1, 2, 3]),
    ],
)
def test_the_metadata_file_with_the_greatest_number_is_read(
    writer: IcebergWriter, names: tuple[str, ...], hint: str | None, expected: Any
) -> None:
    """A table opened by its folder has the state in the metadata file with the greatest number.

    Files named by a UUID alone were not committed. The version hint decides only between files with the greatest
    number, and files without a number.
    """
    metadata = writer.folder / "metadata"
    contents = [(metadata / f"v{number}.metadata.json").read_bytes() for number in (1, 2, 3)]
    for number in (1, 2, 3):
        (metadata / f"v{number}.metadata.json").unlink()
    for name, content in zip(names, contents, strict=True):
        (metadata / f"{name}.metadata.json").write_bytes(content)
    if hint is not None:
        (metadata / "version-hint.text").write_text(hint)
    assert _ids(writer.folder) == expected


def test_snapshots_are_selected_by_id_branch_tag_and_time(writer: IcebergWriter) -> None:
    """`at` selects a snapshot by id, by branch, by tag, or by a time in `snapshot-log`.

    An id takes precedence over a branch of the same name.
    """
    ids = [one["snapshot-id"] for one in writer.snapshots]
    writer.refs["old"] = {"snapshot-id": ids[0], "type": "tag"}
    writer.commit(writer.data(pa.table({"id": [4]})), branch="side")
    writer.refs["12"] = {"snapshot-id": ids[1], "type": "branch"}
    log = [{"snapshot-id": one, "timestamp-ms": 1_700_000_000_000 + number} for number, one in enumerate(ids)]
    writer.write_metadata(**{"snapshot-log": log})
    assert _ids(writer.folder) == _ids(writer.folder, at="main") == [1, 2, 3]
    assert _ids(writer.folder, at="side") == [1, 2, 3, 4]
    assert _ids(writer.folder, at="old") == _ids(writer.folder, at=str(ids[0])) == [1]
    assert _ids(writer.folder, at="12") == [1, 2]
    writer.refs[str(ids[0])] = {"snapshot-id": ids[1], "type": "branch"}  # An id is always that snapshot, as in Spark.
    writer.write_metadata(**{"snapshot-log": log})
    assert _ids(writer.folder, at=str(ids[0])) == [1]
    assert _ids(writer.folder, at="2023-11-14T22:13:20.001Z") == [1, 2]
    assert _ids(writer.folder, at="2023-11-14 23:13:20.000999+01:00") == [1]
    assert _ids(writer.folder, at="2030-01-01") == [1, 2, 3]
    past = _open(writer.folder, at="old")
    assert past.snapshot().reference == past.current()
    assert past.current().committed_at == datetime(2023, 11, 14, 22, 14, 20, tzinfo=UTC)
    for at in ("nothing", "17", "2023-11-14"):
        with pytest.raises(SnapshotNotFoundError, match=f"'{at}'"):
            _open(writer.folder, at=at).current()


@pytest.mark.parametrize("offsets", [(0, 0, 0), (0, 2, 1)])
def test_of_changes_at_one_time_the_last_is_selected(writer: IcebergWriter, offsets: tuple[int, ...]) -> None:
    """A time after all entries of `snapshot-log` selects the last entry, whatever their times.

    The times are equal, or do not ascend because clocks differ.
    """
    log = [
        {"snapshot-id": one["snapshot-id"], "timestamp-ms": 1_700_000_000_000 + offset}
        for one, offset in zip(writer.snapshots, offsets, strict=True)
    ]
    writer.write_metadata(**{"snapshot-log": log})
    assert _ids(writer.folder, at="2023-11-14T22:13:21Z") == [1, 2, 3]


def test_times_need_no_snapshot_log(writer: IcebergWriter) -> None:
    """If `snapshot-log` is empty, a time selects an ancestor of the current snapshot."""
    for older, newer in zip(writer.snapshots, writer.snapshots[1:], strict=False):
        newer["parent-snapshot-id"] = older["snapshot-id"]
    writer.write_metadata(**{"snapshot-log": []})
    assert _ids(writer.folder, at="2023-11-14T22:15:30Z") == [1, 2]


def test_a_table_without_snapshots_is_empty(tmp_path: Path) -> None:
    """A table without snapshots has a schema, no fragments, and an empty snapshot id."""
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    writer.write_metadata()
    table = _open(writer.folder)
    snapshot = table.snapshot()
    assert (snapshot.id, snapshot.fragments, snapshot.schema.names) == ("", (), ["id"])
    assert table.current() == snapshot.reference
    assert table.bounds(snapshot, "id").num_rows == 0
    with pytest.raises(SnapshotNotFoundError, match="'main'"):
        _open(writer.folder, at="main").snapshot()


def test_a_schema_change_is_a_new_state(writer: IcebergWriter) -> None:
    """After a schema change, the table has another reference and the same snapshot id.

    A snapshot selected by id has the schema of its time.
    """
    before = _open(writer.folder).snapshot()
    writer.schemas.append([column(1, "number", "long"), column(2, "more", "string")])
    writer.write_metadata()
    after = _open(writer.folder).snapshot()
    assert (after.id, after.fragments) == (before.id, before.fragments)
    assert after.reference != before.reference
    assert after.schema.names == ["number", "more"]
    assert _open(writer.folder, at=before.id).snapshot().schema.names == ["id"]
    assert _open(writer.folder, at="main").snapshot().schema.names == ["number", "more"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"format-version": 4}, TableFormatError, r"\bversion 4\b.*\b3\b"),
        ({"current-schema-id": 7}, TableFormatError, r"\bschema 7\b"),
        ({"snapshots": []}, SnapshotNotFoundError, "the current one"),
        ({"schemas": [{"fields": [{"id": 1, "name": "x", "type": "vector(3)"}]}]}, TableFormatError, "'x' .*vector"),
        ({"last-updated-ms": None}, TableFormatError, "no valid metadata file|cannot be read"),
        ({"partition-specs": [{"spec-id": 0, "fields": []}] * 2}, TableFormatError, "spec-id 0 occurs twice"),
    ],
)
def test_unsupported_metadata_are_refused(
    writer: IcebergWriter, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    """The error for unsupported or inconsistent metadata names the folder of the table and the fault."""
    path = writer.write_metadata(**change)
    with pytest.raises(error, match=message) as error_info:
        _open(writer.folder).snapshot()
    assert str(path.parent.parent) in str(error_info.value)


def test_errors_name_damaged_and_missing_files(writer: IcebergWriter) -> None:
    """An error names a missing or invalid metadata file, and a missing or truncated manifest.

    A data file that is encrypted or of an unknown format is an error, too.
    """
    with pytest.raises(TableNotFoundError, match=r"v9\.metadata\.json"):
        _open(writer.folder / "metadata" / "v9.metadata.json").snapshot()
    entry = writer.data(pa.table({"id": [4]}))
    for change, message in (({"key_metadata": b"x"}, "encrypted"), ({"file_format": "LANCE"}, "'lance'")):
        writer.commit(entry | change)
        with pytest.raises(TableFormatError, match=message):
            _open(writer.folder).snapshot()
        writer.live.pop()
    writer.commit()
    for manifest in (writer.folder / "metadata").glob("*-m0.avro"):
        manifest.write_bytes(manifest.read_bytes()[:-30])
    with pytest.raises(TableFormatError, match=r"-m0\.avro"):
        _open(writer.folder).snapshot()
    for manifest in (writer.folder / "metadata").glob("*-m0.avro"):
        manifest.unlink()
    with pytest.raises(TableFormatError, match=r"-m0\.avro.*path_mapping"):
        _open(writer.folder).snapshot()
    (writer.folder / "metadata" / "v99.metadata.json").write_text("[]")
    with pytest.raises(TableFormatError, match=r"v99\.metadata\.json"):
        _open(writer.folder).snapshot()


@pytest.mark.parametrize("location", ["{}", "file://{}", "hdfs://name:8020{}", "s3://bucket{}", "old/t", "./old/t"])
def test_a_relocated_table_is_read_in_its_new_folder(tmp_path: Path, location: str) -> None:
    """After a table is moved, recorded paths below its old location are read below its new folder.

    Position deletes, which name the old path of a data file, apply.
    """
    folder = tmp_path / "was" / "here"
    writer = IcebergWriter(folder, [column(1, "id", "long")], location=location.format(folder))
    data = writer.data(pa.table({"id": [1, 2]}))
    writer.commit(data, writer.position_deletes([(data["file_path"], 0)]))
    shutil.move(folder, tmp_path / "is there")
    snapshot = _open(tmp_path / "is there").snapshot()
    assert read_rows(snapshot) == [(2,)]
    assert snapshot.fragments[0].path.startswith(str(tmp_path / "is there"))
    assert _ids(tmp_path / "is there" / "metadata" / "v1.metadata.json") == [2]


def test_a_copy_is_read_and_not_its_original(writer: IcebergWriter, tmp_path: Path) -> None:
    """A copy of a table is read from the files of the copy, even if the original is removed.

    Fragment ids of both are equal.
    """
    shutil.copytree(writer.folder, tmp_path / "copy")
    original, copy = _open(writer.folder).snapshot(), _open(tmp_path / "copy").snapshot()
    assert [fragment.id for fragment in copy.fragments] == [fragment.id for fragment in original.fragments]
    assert all(fragment.path.startswith(str(tmp_path / "copy")) for fragment in copy.fragments)
    shutil.rmtree(writer.folder)
    assert _ids(tmp_path / "copy") == [1, 2, 3]


def test_copied_metadata_files_read_the_files_of_the_original(writer: IcebergWriter, tmp_path: Path) -> None:
    """If only a metadata file is copied elsewhere, the other files are read at their recorded locations."""
    (tmp_path / "elsewhere" / "metadata").mkdir(parents=True)
    shutil.copy(writer.folder / "metadata" / "v3.metadata.json", tmp_path / "elsewhere" / "metadata")
    assert _ids(tmp_path / "elsewhere") == [1, 2, 3]
    shutil.copy(writer.folder / "metadata" / "v3.metadata.json", tmp_path)
    assert _ids(tmp_path / "v3.metadata.json") == [1, 2, 3]


def test_files_outside_of_the_folder_are_relocated_by_path_mapping(writer: IcebergWriter, tmp_path: Path) -> None:
    """A data file outside of the table's folder is read at its mapped path.

    Without a path mapping, a relative location is an error.
    """
    outside = writer.data(pa.table({"id": [9]}))
    outside_path = tmp_path / "outside" / "x.parquet"
    outside_path.parent.mkdir()
    Path(outside["file_path"]).rename(outside_path)
    for recorded_path in ("s3://gone/far/x.parquet", "far/x.parquet"):
        writer.commit(outside | {"file_path": recorded_path})
        path_mapping = {recorded_path.removesuffix("/x.parquet"): str(tmp_path / "outside")}
        assert _ids(writer.folder, path_mapping=path_mapping) == [1, 2, 3, 9]
        writer.live.pop()
    writer.commit(outside | {"file_path": "far/x.parquet"})
    with pytest.raises(TableFormatError, match=r"'far/x\.parquet'.*path_mapping"):
        _open(writer.folder).snapshot()


def test_path_mapping_takes_precedence_over_the_folder(writer: IcebergWriter, tmp_path: Path) -> None:
    shutil.copytree(writer.folder, tmp_path / "copy")
    shutil.move(writer.folder, tmp_path / "other")
    snapshot = _open(tmp_path / "copy", path_mapping={str(writer.folder): str(tmp_path / "other")}).snapshot()
    assert {fragment.path.startswith(str(tmp_path / "other")) for fragment in snapshot.fragments} == {True}


def test_manifests_listed_in_the_metadata_file_are_read(writer: IcebergWriter) -> None:
    """Manifests that a snapshot lists in the metadata file, as format version 1 permits, are read.

    The snapshot then has no manifest list.
    """
    newest = writer.manifests[-1][0]["manifest_path"]
    snapshot = {"snapshot-id": 5, "timestamp-ms": 1, "manifests": [newest]}
    path = writer.write_metadata()
    old = json.loads(path.read_text())
    old |= {"format-version": 1, "schema": old["schemas"][0], "partition-spec": [], "current-snapshot-id": 5}
    for key in ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "refs", "snapshot-log"):
        del old[key]
    path.write_text(json.dumps(old | {"snapshots": [snapshot]}))
    assert _ids(writer.folder) == [1, 2, 3]
    assert _open(writer.folder).snapshot_id() == "5"


def test_the_current_snapshot_may_be_recorded_only_as_the_main_branch(writer: IcebergWriter) -> None:
    for current in (None, -1):
        writer.write_metadata(**{"current-snapshot-id": current})
        assert _ids(writer.folder) == [1, 2, 3]


def test_unsigned_snapshot_ids_are_accepted(writer: IcebergWriter) -> None:
    """A snapshot id may be any unsigned number of 64 bits, and a larger one is an error."""
    number = 2**64 - 5
    last = writer.snapshots[-1] | {"snapshot-id": number}
    snapshots = [*writer.snapshots[:-1], last]
    log = [{"snapshot-id": number, "timestamp-ms": 1_700_000_000_000}]
    changes = {"current-snapshot-id": number, "refs": {}, "snapshot-log": log}
    writer.write_metadata(snapshots=snapshots, **changes)
    assert _ids(writer.folder) == _ids(writer.folder, at=str(number)) == [1, 2, 3]
    writer.write_metadata(snapshots=[last | {"snapshot-id": 2**64}])
    with pytest.raises(TableFormatError, match=f"snapshot-id.*{2**64}"):
        _open(writer.folder).snapshot()


def test_a_snapshot_without_manifests_is_an_error(writer: IcebergWriter) -> None:
    """A snapshot with neither a manifest list nor a list of manifests is an error.

    With an empty list of manifests, the table is empty.
    """
    snapshots = [{key: value for key, value in one.items() if key != "manifest-list"} for one in writer.snapshots]
    writer.write_metadata(snapshots=snapshots)
    with pytest.raises(TableFormatError, match=r"v4\.metadata\.json.*\d{19}"):
        _open(writer.folder).snapshot()
    writer.write_metadata(snapshots=[one | {"manifests": []} for one in snapshots])
    assert _ids(writer.folder) == []


@pytest.mark.parametrize(
    ("change", "explanation"),
    [({"location": None}, "no metadata file of an Iceberg table"), ({"snapshots": [7]}, "no valid metadata file")],
)
def test_the_error_names_a_metadata_file_with_values_of_wrong_types(
    writer: IcebergWriter, change: Any, explanation: str
) -> None:
    path = writer.write_metadata(**change)
    with pytest.raises(TableFormatError, match=f"{path}.*{explanation}"):
        _open(writer.folder).snapshot()


def test_views_are_refused(tmp_path: Path) -> None:
    """The metadata file of a view is refused with an error that says that it is a view.

    The file resembles the metadata file of a table.
    """
    schema = {"schema-id": 1, "type": "struct", "fields": [{"id": 1, "name": "n", "required": False, "type": "int"}]}
    view = {
        "view-uuid": "fa6506c3-7681-40c8-86dc-e36561f83385",
        "format-version": 1,
        "location": str(tmp_path),
        "current-version-id": 1,
        "schemas": [schema],
        "versions": [{"version-id": 1, "timestamp-ms": 1573518431292, "schema-id": 1, "representations": []}],
        "version-log": [{"timestamp-ms": 1573518431292, "version-id": 1}],
    }
    path = tmp_path / "metadata" / "00000-(uuid).metadata.json"
    path.parent.mkdir()
    path.write_text(json.dumps(view))
    for place in (tmp_path, path):
        with pytest.raises(TableFormatError, match=r"\.metadata\.json.*\bview\b"):
            _open(place).snapshot()


def test_encrypted_metadata_are_refused(writer: IcebergWriter) -> None:
    """A snapshot whose metadata are encrypted, which its `key-id` shows, is refused."""
    writer.write_metadata(snapshots=[one | {"key-id": "k"} for one in writer.snapshots])
    with pytest.raises(TableFormatError, match=r"\bencrypted\b"):
        _open(writer.folder).snapshot()
