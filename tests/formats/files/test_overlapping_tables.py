"""A folder is not read as plain files if it is a table of another format, or inside or above one.

Otherwise, the rows of removed files would be counted.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.storage.location import Location
from tests.formats.hudi.tables import HudiCopyOnWrite, HudiMergeOnRead
from tests.formats.iceberg.tables import IcebergCopyOnWrite, IcebergDeletionVectors
from tests.formats.oracle import read_columns, read_rows
from tests.formats.table_writers import DeltaCopyOnWrite, DeltaDeletionVectors, Table

_KINDS = (
    DeltaCopyOnWrite,
    DeltaDeletionVectors,
    IcebergCopyOnWrite,
    IcebergDeletionVectors,
    HudiCopyOnWrite,
    HudiMergeOnRead,
)
_NAMES = {"delta": "Delta", "iceberg": "Iceberg", "hudi": "Hudi"}


@pytest.fixture(params=_KINDS, ids=lambda kind: kind.__name__)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """Return a partitioned table from which a row was deleted."""
    table: Table = request.param(tmp_path / "lake" / "sales é")
    table.append([(number, "x", ("a", "b")[number % 2]) for number in range(6)])
    table.delete([2])
    return table


def _refusal(uri: Path, **rest: object) -> str:
    """Return the error message when a location is planned as a table.

    Asserts that it names Delta, Hudi, Iceberg or Lance, and is the same without a configured format and with the format
    `files`. `rest` are further settings of the table.
    """
    messages = set()
    for format_ in (None, "files"):
        table = open_table_format(TableConfig(name="t", uri=str(uri), format=format_, **rest))  # type: ignore[arg-type]
        for ask in (table.snapshot, table.snapshot_id, table.current):
            with pytest.raises(TableFormatError, match=r"\b(Delta|Hudi|Iceberg|Lance)\b") as error_info:
                ask()
            messages.add(str(error_info.value))
    (message,) = messages
    return message


def _folders_with_data(folder: Path) -> set[Path]:
    metadata_folders = {"_delta_log", ".hoodie", "metadata"}
    files = [path for path in folder.rglob("*.parquet") if not metadata_folders & set(path.relative_to(folder).parts)]
    return {parent for file in files for parent in file.parents if parent != folder and folder in parent.parents}


def test_folders_inside_of_a_table_are_refused_with_its_location(table: Table, tmp_path: Path) -> None:
    """Each folder in a table is refused, and so is a file in such a folder.

    Links to these folders and files, and folders with such links, are refused, too.
    """
    folders = _folders_with_data(table.folder)
    assert folders
    file = next(path for path in folders.pop().rglob("*.parquet"))
    for folder in (*folders, file):
        message = _refusal(folder)
        assert all(part in message for part in (str(folder), _NAMES[table.kind], f" {table.folder}, ", "`--partition`"))
    link = tmp_path / "link"
    link.symlink_to(file.parent)
    assert str(table.folder) in _refusal(link)
    plain = tmp_path / "plain" / "d=1"
    plain.mkdir(parents=True)
    (plain / "linked.parquet").symlink_to(file)
    for where in (plain.parent, plain / "linked.parquet"):
        assert str(table.folder) in _refusal(where)
    (plain / "linked.parquet").unlink()
    (plain.parent / "d=2").symlink_to(file.parent)
    assert str(table.folder) in _refusal(plain.parent)


def test_a_folder_inside_of_a_lance_table_is_refused_without_advice_on_partitions(tmp_path: Path) -> None:
    """The error for a folder in a Lance table names the table, and does not mention partitions.

    Lance tables have no partitions.
    """
    folder = tmp_path / "lake" / "sales"
    (folder / "_versions").mkdir(parents=True)
    (folder / "_versions" / "1.manifest").write_bytes(b"")
    (folder / "plain").mkdir()
    pq.write_table(pa.table({"id": [7]}), folder / "plain" / "x.parquet")
    message = _refusal(folder / "plain")
    assert all(part in message for part in (str(folder / "plain"), "Lance", f" {folder}, "))
    assert "partition" not in message


def test_a_link_to_a_moved_partition_is_refused(table: Table, tmp_path: Path) -> None:
    """A partition's folder was moved elsewhere, and a link in the table points to it.

    Reading the link as a table of plain files is refused.
    """
    partition = next(path for path in _folders_with_data(table.folder) if list(path.glob("*.parquet")))
    shutil.move(partition, tmp_path / "elsewhere")
    partition.symlink_to(tmp_path / "elsewhere")
    assert str(table.folder) in _refusal(partition)


def test_folders_above_a_table_are_refused_with_its_location(table: Table, tmp_path: Path) -> None:
    """The two folders above a table are refused, even if only some partitions are selected."""
    pq.write_table(pa.table({"id": [7]}), tmp_path / "own.parquet")
    for above in (table.folder.parent, tmp_path):
        explanation = f"{above} holds the {_NAMES[table.kind]} table {table.folder}, "
        assert explanation in _refusal(above)
        assert explanation in _refusal(above, partitions={"day": ("a",)})


def test_a_table_cannot_be_declared_as_plain_files(table: Table) -> None:
    """`format: files` on the folder of a table is refused."""
    plain = open_table_format(TableConfig(name="t", uri=str(table.folder), format="files"))
    for ask in (plain.snapshot, plain.current):
        with pytest.raises(TableFormatError, match=f"{_NAMES[table.kind]}.*`format: files`"):
            ask()


def test_a_table_in_the_folder_of_another_table(table: Table) -> None:
    """Each of the two tables is read by its own metadata.

    A folder in the inner table is refused with the location of the inner one.
    """
    inner = DeltaCopyOnWrite(table.folder / "nested" / "inner")
    inner.append([(100, "inner", "a"), (101, "inner", "b")])
    assert sorted(read_rows(inner.snapshot()))[0][0] == 100
    assert len(read_rows(inner.snapshot())) == 2
    assert len(read_rows(table.snapshot())) == 5
    partition = next(path for path in _folders_with_data(inner.folder))
    assert re.search(rf"\bDelta\b.*{inner.folder}\b", _refusal(partition))


def test_the_tables_in_a_folder_are_named(tmp_path: Path) -> None:
    """The error about a folder with tables of other formats names up to three of the tables.

    Tables of two formats are named with their formats.
    """
    for number in range(5):
        DeltaCopyOnWrite(tmp_path / f"t{number}").append([(number, "x", "a")])
        if number == 1:
            assert re.search(rf"\bDelta\b.*{tmp_path}/t0\b.*{tmp_path}/t1\b", _refusal(tmp_path))
    message = _refusal(tmp_path)
    assert (f"{tmp_path}/t2" in message, f"{tmp_path}/t3" in message) == (True, False)
    IcebergCopyOnWrite(tmp_path / "s").append([(1, "x", "a")])
    assert f"{tmp_path}/s (Iceberg), {tmp_path}/t0 (Delta)" in _refusal(tmp_path)


def test_a_partition_of_a_hudi_table_without_its_table(tmp_path: Path) -> None:
    """A copied partition of a Hudi table is refused, because its marker file shows the format.

    Without the marker file, it is read as plain files.
    """
    table = HudiCopyOnWrite(tmp_path / "t")
    table.append([(1, "x", "a"), (2, "x", "b")])
    shutil.copytree(table.folder / "day=a", tmp_path / "out" / "day=a")
    for folder in (tmp_path / "out", tmp_path / "out" / "day=a"):
        assert re.search(rf"{tmp_path}/out/day=a\b.*\bHudi\b", _refusal(folder))
    for marker in (tmp_path / "out").rglob(".hoodie_partition_metadata*"):
        marker.unlink()
    assert len(read_rows(open_table_format(TableConfig(name="t", uri=str(tmp_path / "out"))).snapshot())) == 1


def test_similar_folders_are_no_tables(tmp_path: Path) -> None:
    """Folders and files with names such as `_delta_log` do not matter without a table's metadata.

    Such folders and files may be above the location and in it.
    """
    data = tmp_path / "a" / "b" / "data"
    data.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), data / "x.parquet")
    for folder in (tmp_path, tmp_path / "a", data):
        (folder / "_delta_log").mkdir()
        (folder / "_delta_log" / "notes.json").write_text("{}")
        (folder / ".hoodie").mkdir()
        (folder / ".hoodie" / "readme").write_text("")
    for folder in (tmp_path, tmp_path / "a"):
        (folder / "metadata").mkdir()
        (folder / "metadata" / "users.json").write_text("[]")
        (folder / "metadata" / "users.metadata.json").write_text('{"location": "Paris", "users": 3}')
        (folder / "metadata" / "v1.metadata.json").write_text('{"version": 1}')
        (folder / "metadata" / "notes.metadata.json").write_text("no JSON")
        (folder / "metadata" / "00000-gone.metadata.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a" / "b" / "_delta_log").write_text("")
    (tmp_path / "a" / "b" / "metadata").write_text("")
    for folder in (data, data / "x.parquet"):
        table = open_table_format(TableConfig(name="t", uri=str(folder), format="files"))
        assert read_columns(table.snapshot()) == {"id": [1, 2]}
        assert table.current().id == table.snapshot_id()


def test_json_files_with_the_names_of_metadata_are_data(tmp_path: Path) -> None:
    """JSON files named like Iceberg metadata, in a folder `metadata`, are read as JSON lines.

    The table is refused if one of them also has a field that marks Iceberg metadata, such as `format-version`. It is
    refused even if this file is truncated.
    """
    (tmp_path / "metadata").mkdir()
    for name in ("users", "groups"):
        (tmp_path / "metadata" / f"{name}.metadata.json").write_text(f'{{"location": "Paris", "name": "{name}"}}')
    for folder in (tmp_path, tmp_path / "metadata"):
        columns = read_columns(open_table_format(TableConfig(name="t", uri=str(folder))).snapshot())
        assert sorted(columns["name"]) == ["groups", "users"]
    damaged_file = tmp_path / "metadata" / "v2.metadata.json"
    damaged_file.write_text('{"format-version": 2, "loc')
    with pytest.raises(TableFormatError, match=r"\bIceberg\b.*`format: files`"):
        open_table_format(TableConfig(name="t", uri=str(tmp_path), format="files")).snapshot()
    damaged_file.write_text(json.dumps({"format-version": 2, "location": "/x"}))
    with pytest.raises(TableFormatError, match=r"\bIceberg\b.*`format: files`"):
        open_table_format(TableConfig(name="t", uri=str(tmp_path), format="files")).snapshot()


def test_folders_without_access_above_are_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metadata folder that cannot be listed is ignored above the location.

    Below the location, such a metadata folder may belong to a table, so the location is refused.
    """
    table = DeltaCopyOnWrite(tmp_path / "t")
    table.append([(1, "x", "a")])
    original = Location.names

    def names(self: Location, folder: str, after: str = "", before: str = "") -> object:
        if folder in ("_delta_log", "metadata", ".hoodie"):
            raise PermissionError(f"{self.full_path(folder)}: permission denied")
        return original(self, folder, after, before)

    monkeypatch.setattr(Location, "names", names)
    plain = TableConfig(name="t", uri=str(tmp_path / "t" / "day=a"), format="files")
    assert open_table_format(plain).snapshot().fragments
    with pytest.raises(TableFormatError, match=r"\bDelta\b.*/t\b"):
        open_table_format(TableConfig(name="t", uri=str(tmp_path), format="files")).snapshot()


def test_the_search_ends_at_the_root(tmp_path: Path) -> None:
    """The parents of a location, which are searched for tables, end at the root of the disk or bucket."""
    location: Location | None = Location.of(str(tmp_path))
    visited_uris = []
    while location := location.parent if location else None:
        visited_uris.append(location.uri)
    assert visited_uris == [str(parent) for parent in tmp_path.parents]
    assert visited_uris[-1] == "/"
    bucket = Location.of("s3://bucket/a/b")
    assert [folder.uri for folder in (bucket.parent, bucket.parent.parent) if folder] == [
        "s3://bucket/a",
        "s3://bucket",
    ]  # type: ignore[union-attr]
    assert Location.of("s3://bucket").parent is None


def test_a_relative_location_is_resolved_by_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaCopyOnWrite(tmp_path / "t")
    table.append([(1, "x", "a")])
    monkeypatch.chdir(tmp_path / "t" / "day=a")
    plain = open_table_format(TableConfig(name="t", uri="."))
    with pytest.raises(TableFormatError, match=rf"\bDelta\b.*{os.path.realpath(table.folder)}"):
        plain.snapshot()
