"""Files in folders are data, ignored, or unrecognised by the rules in docs/reference/plain-files.md.

The ignored files are those that writers and other tools leave behind, such as backups, temporary files and checksums.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.files.file_listing import is_ignored, is_ignored_folder
from tests.formats.oracle import read_columns


def _names(*lines: str) -> list[str]:
    return [name for line in lines for name in line.split("  ")]


_LEFTOVERS = _names(
    "_SUCCESS  _metadata  _common_metadata  _started_1  .DS_Store  ._x.parquet  .x.parquet.crc",
    ".part-0.inprogress.0a-1f  x.parquet.bak  x.parquet.BAK  x.bak  x.parquet.backup  x.parquet.bak1",
    "x.parquet.bak.2  x.parquet.old  x.parquet.orig  x.parquet~  x.csv~  x.parquet.~1~  x.parquet.tmp",
    "x.parquet.tmp-17  x.parquet.temp  x.parquet.temp3  x.parquet.part  x.parquet.partial  x.parquet.filepart",
    "x.parquet.crdownload  x.parquet.download  x.parquet_.gstmp  x.parquet.inprogress  part-0.inprogress.0a-1f",
    "x.parquet._COPYING_  x.parquet.swp  .x.parquet.swp  x.parquet.swo  x.parquet.crc  x.parquet.md5",
    "x.parquet.sha1  x.parquet.SHA256  x.parquet.sha512  x.parquet.lock  x.csv.bak.gz  x.tmp.zst  #x.parquet#",
    "0a1f-2b.csv.metadata  ~$x.csv  Thumbs.db  desktop.ini  Desktop.INI  day_$folder$  _temporary_$folder$",
)
_LEFTOVER_FOLDERS = _names(
    "_temporary/0/_temporary/attempt_1  .hive-staging_1/-ext-10000  .spark-staging-1  __magic  _delta_index  .git",
    ".x=1  lost+found  $RECYCLE.BIN  @eaDir  +tmp  copy.bak  copy.tmp  y.parquet.old  upload.inprogress  x._COPYING_",
    "System Volume Information  d=1/_temporary  d=1/old.bak",
)
_DATA = _names(
    "x.parquet  X.PARQUET  x.parq  x.pq  000000_0  part-00000-1a2b.c000  part-r-00000  part.0.parquet  x.bak.parquet",
    "tmp  x.tmp.parquet  x.old.pq  data.2024-01-31  1.2.3.parquet  x~1.parquet  #x.parquet  _x=1.parquet  bak  partial",
    "20240131_101112_00001_abcde_5f0c  x y.parquet  é.parquet  part.parquet  crc  x.backups  x.tmpl  x.parquet.snappy",
    "x.parquet.gzip",
)
_DATA_FOLDERS = _names(
    "_x=1  x=_1  x=a.bak  x=b.tmp  x=c~  x=.d  x=lost+found  2024  data  tmp  bak  old  temp  part  x.parquet  a.b",
    "_x=.tmp",
)
_UNCERTAIN = _names(
    "x.parquet.copy  x.parquet.1  x.parquet.disabled  x.parquet.2024-01-31  x.csv.new  x.parquet.tmp.b  x.json.v2.x",
    "README  x.orc.notes  x.txt  LICENSE.md  x.parquet.zip",
)


def _write(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": [value]}), path)


def _values(folder: Path) -> list[int]:
    snapshot = open_table_format(TableConfig(name="t", uri=str(folder), format="files")).snapshot()
    return sorted(read_columns(snapshot)["a"])


def _read_paths(folder: Path, paths: list[str]) -> set[str]:
    """Write a Parquet file of one row to each path.

    Return the paths whose rows are read.
    """
    for number, path in enumerate(paths):
        _write(folder / path, number)
    _write(folder / "a.parquet", -1)
    return {paths[number] for number in _values(folder) if number >= 0}


def test_ignored_files_are_no_data(tmp_path: Path) -> None:
    """Parquet files with an ignored name, or below a folder with an ignored name, are never read.

    Such names are ignored at any depth.
    """
    files = [folder + name for name in _LEFTOVERS for folder in ("", "d/e/", "x=1/")]
    below = [f"{name}/{path}" for name in _LEFTOVER_FOLDERS for path in ("b.parquet", "c=1/b")]
    assert _read_paths(tmp_path, files + below) == set()


def test_similar_names_are_data(tmp_path: Path) -> None:
    """Parquet files are read if their names, or the names of their folders, only resemble ignored names."""
    assert _read_paths(tmp_path, _DATA) == set(_DATA)
    for number, folder in enumerate(_DATA_FOLDERS):
        assert _read_paths(tmp_path / str(number), [f"{folder}/x.parquet"]) == {f"{folder}/x.parquet"}


def test_the_documented_rules() -> None:
    """Every name and ending in the section on ignored files of plain-files.md is ignored."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "plain-files.md").read_text(encoding="utf-8")
    section = page.partition("## Ignored files")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")][1:]
    endings = [
        name for _, message in rows for name in re.findall("`([^`]+)`", message) if message.startswith(" end in")
    ]
    names = [
        name for _, message in rows for name in re.findall("`([^`]+)`", message) if not message.startswith(" end in")
    ]
    assert {".tmp", ".orig", ".md5", "_$folder$", ".inprogress.", "+tmp"} <= set(endings)
    for ending in endings:
        assert is_ignored(ending if ending == "+tmp" else f"x.parquet{ending}"), ending
    assert {"_SUCCESS", "lost+found", "#x#"} <= set(names)
    for name in set(names) - {".", "_", "_column=value"}:
        assert is_ignored(name), name
        assert is_ignored_folder(name.rstrip("/")), name
    assert not is_ignored_folder("_column=value")


@pytest.mark.parametrize("name", _UNCERTAIN)
def test_unrecognised_files_are_named(tmp_path: Path, name: str) -> None:
    """A file that is neither data nor one to ignore is an error that names the file."""
    _write(tmp_path / "a.parquet", 1)
    (tmp_path / "d").mkdir()
    if name.rpartition(".")[2] in ("zip", "txt", "new", "notes"):
        (tmp_path / "d" / name).write_text("a\n1\n")
    else:
        _write(tmp_path / "d" / name, 2)
    if name == "README":
        (tmp_path / "d" / name).write_text("hello")
    if name == "LICENSE.md":
        (tmp_path / "d" / name).write_text("free")
    with pytest.raises(TableFormatError) as error_info:
        _values(tmp_path)
    assert str(tmp_path / "d" / name) in str(error_info.value)


def test_a_table_of_one_file_may_have_any_name(tmp_path: Path) -> None:
    """A file that the configuration names is read, even if its name is one to ignore in a folder."""
    for name in ("x.parquet.bak", "_x.parquet", "x.parquet.copy"):
        _write(tmp_path / name, 5)
        assert _values(tmp_path / name) == [5]


def test_only_ignored_files_are_no_table(tmp_path: Path) -> None:
    _write(tmp_path / "x.parquet.bak", 1)
    (tmp_path / "_SUCCESS").write_text("")
    with pytest.raises(TableNotFoundError, match=str(tmp_path)):
        _values(tmp_path)


@pytest.mark.parametrize(
    "spelling", ['{"entries":[]}', '{\n  "entries": [\n    {"url":"s3://b/x_0000_part_00"}\n  ]\n}']
)
def test_manifests_of_redshift_are_ignored(tmp_path: Path, spelling: str) -> None:
    """Manifests that Redshift writes beside Parquet or text files are ignored.

    A file with the name of a manifest and another content is not ignored.
    """
    for kind, name in (("parquet", "x_0000_part_00.parquet"), ("csv", "x_0000_part_00")):
        folder = tmp_path / kind
        _write(folder / name, 1)
        if kind == "csv":
            (folder / name).write_text("1|a\n")
        for manifest in ("manifest", "x_manifest"):
            (folder / manifest).write_text(spelling)
        options = {"kind": "csv", "delimiter": "|", "header": False} if kind == "csv" else {}
        table = open_table_format(TableConfig(name="t", uri=str(folder), options=options))
        assert next(iter(read_columns(table.snapshot()).values())) == [1]
        (folder / "x_manifest").write_text("2|b\n")
        if kind == "csv":
            assert sorted(read_columns(table.snapshot())["f0"]) == [1, 2]
        else:
            with pytest.raises(TableFormatError, match="x_manifest"):
                read_columns(table.snapshot())


def test_ignored_files_are_not_opened(tmp_path: Path) -> None:
    """With an ignored name, neither a broken link nor a link to a folder above is an error."""
    _write(tmp_path / "a.parquet", 1)
    (tmp_path / ".#lock").symlink_to("user@host.123:456")
    (tmp_path / "b.parquet.bak").symlink_to(tmp_path / "nowhere")
    (tmp_path / "_tmp").symlink_to(tmp_path)
    assert _values(tmp_path) == [1]
