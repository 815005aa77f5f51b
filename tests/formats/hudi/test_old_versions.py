"""Hudi tables of early versions do not record partition columns.

The columns are taken from folder names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import ProfileError, TableFormatError
from metastore_assets.formats import Snapshot, open_table_format
from metastore_assets.pipeline.profiling import FailureAdvice
from metastore_assets.profiling import profile
from tests.formats.hudi.random_histories import History
from tests.formats.hudi.writer import FIELDS, META, HudiWriter, Slice, block
from tests.formats.oracle import read_columns, read_rows

_DATA_FIELDS = [FIELDS[0], FIELDS[3]]
_UNRECORDED = {"hoodie.table.partition.fields": "", "hoodie.table.version": "0"}
_NULL = "__HIVE_DEFAULT_PARTITION__"


def _snapshot(folder: Path, **more: Any) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(folder), **more)).snapshot()


def _table(
    folder: Path, partitions: Mapping[str, str], fields: list[dict[str, Any]] = _DATA_FIELDS, **properties: str
) -> HudiWriter:
    """Write a table with one row per partition.

    Args:
        folder: The folder of the table.
        partitions: The path of a partition by the key of its row.
        fields: The Avro fields of the data files.
        properties: Properties of the table, by their names in `hoodie.properties`.
    """
    writer = HudiWriter(folder, 6, fields=fields, partition_field="")
    lines = (folder / ".hoodie/hoodie.properties").read_text().splitlines()
    other_lines = [line for line in lines if "hive_style" not in line]
    (folder / ".hoodie/hoodie.properties").write_text("\n".join([*other_lines, ""]))
    writer.set_properties(**(_UNRECORDED | properties))
    instant = writer.tick()
    stats = []
    for key, path in partitions.items():
        one = writer.new_slice(path, instant)
        row = {"key": key, "value": 1.0, "part": f"of {key}", "year": 7}
        stats.append(writer.base_file(one, instant, [row]))
    writer.complete(instant, "commit", stats)
    return writer


def _rows(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    columns = read_columns(snapshot)
    return {row["key"]: row for row in (dict(zip(columns, row, strict=True)) for row in read_rows(snapshot))}


@pytest.mark.parametrize("version", ["", "0", "1", "6"])
def test_columns_named_by_folders_are_partition_columns(tmp_path: Path, version: str) -> None:
    """Folders such as `year=2015` name partition columns, whose values are texts.

    Filters and partition keys use them.
    """
    paths = {"a": "year=2015/month=03/day=17", "b": "year=2016/month=03/day=15"}
    writer = _table(tmp_path / "t", paths, **{"hoodie.table.version": version or "0"})
    if not version:
        path = writer.folder / ".hoodie/hoodie.properties"
        path.write_text("\n".join(line for line in path.read_text().splitlines() if "version=" not in line))
    snapshot = _snapshot(writer.folder)
    assert snapshot.partition_columns == ("year", "month", "day")
    assert [str(field.type) for field in snapshot.schema] == ["string", "double", "string", "string", "string"]
    assert _rows(snapshot) == {
        "a": {"key": "a", "value": 1.0, "year": "2015", "month": "03", "day": "17"},
        "b": {"key": "b", "value": 1.0, "year": "2016", "month": "03", "day": "15"},
    }
    assert [one.partition_key for one in snapshot.fragments] == list(paths.values())
    some = _snapshot(writer.folder, partitions={"year": ("2016",)})
    assert [one.partition_key for one in some.fragments] == [paths["b"]]
    with pytest.raises(TableFormatError, match=r"'hour'.*year, month, day"):
        _snapshot(writer.folder, partitions={"hour": ("1",)})


@pytest.mark.parametrize(
    ("path", "properties", "values"),
    [
        ("d=A%2FB", {}, {"d": "A/B"}),
        ("d=A%2FB", {"hoodie.datasource.write.partitionpath.urlencode": "false"}, {"d": "A%2FB"}),
        ("d=A%2FB", {"hoodie.datasource.write.partitionpath.urlencode": "true"}, {"d": "A/B"}),
        (f"d={_NULL}/e=default", {}, {"d": None, "e": "default"}),
        ("d=", {}, {"d": None}),
        ("d=x=y/e= z é", {}, {"d": "x=y", "e": " z é"}),
        ("ts=2020/01/31", {}, {"ts": "2020/01/31"}),
        (
            "ts=2020/01/31/e=1",
            {"hoodie.datasource.write.hive_style_partitioning": "true"},
            {"ts": "2020/01/31", "e": "1"},
        ),
    ],
)
def test_values_in_folder_names_are_decoded(
    tmp_path: Path, path: str, properties: dict[str, str], values: dict[str, str | None]
) -> None:
    """Values in folder names are escaped as in Hive, unless a property disables it.

    One value may have slashes, and so extend over several folders: `ts=2020/01/31`.
    """
    snapshot = _snapshot(_table(tmp_path / "t", {"a": path}, **properties).folder)
    assert _rows(snapshot) == {"a": {"key": "a", "value": 1.0, **values}}


@pytest.mark.parametrize(
    "paths",
    [
        {"a": "2020/01", "b": "2020/02"},
        {"a": "d=1", "b": "2020"},
        {"a": "d=1", "b": "e=1"},
        {"a": "d=1/e=2", "b": "e=2/d=1"},
        {"a": "d=1", "b": "d=1/e=2"},
        {"a": "d=1/d=2"},
        {"a": "=1"},
        {"a": "2020/d=1"},
    ],
)
def test_folders_with_different_columns_name_no_columns(tmp_path: Path, paths: dict[str, str]) -> None:
    """If folder names give no common columns, partition keys are the paths, and no columns are added."""
    snapshot = _snapshot(_table(tmp_path / "t", paths).folder)
    assert snapshot.partition_columns == ("_hoodie_partition_path",)
    assert _rows(snapshot) == {key: {"key": key, "value": 1.0} for key in paths}
    assert len({one.partition_key for one in snapshot.fragments}) == len(paths)


def test_folders_without_hive_style_name_no_columns(tmp_path: Path) -> None:
    """The folder `d=1` gives no column `d` if the properties say that folders have no column names.

    Then `d=1` is a value.
    """
    style = {"hoodie.datasource.write.hive_style_partitioning": "false"}
    snapshot = _snapshot(_table(tmp_path / "t", {"a": "d=1"}, **style).folder)
    assert snapshot.partition_columns == ("_hoodie_partition_path",)
    assert snapshot.schema.names == ["key", "value"]


def test_partition_columns_stored_in_files_have_the_values_of_the_files(tmp_path: Path) -> None:
    """Rows have stored values of a partition column, and not the text in the folder name."""
    year = {"name": "year", "type": ["null", "long"], "default": None}
    for struct_field, name in enumerate(("year", "YEAR")):
        folder = tmp_path / str(struct_field)
        snapshot = _snapshot(_table(folder, {"a": f"{name}=2015/d=1"}, [*_DATA_FIELDS, year]).folder)
        assert snapshot.partition_columns == (name, "d")
        assert [one.partition_key for one in snapshot.fragments] == [f"{name}=2015/d=1"]
        assert _rows(snapshot) == {"a": {"key": "a", "value": 1.0, "year": 7, "d": "1"}}


@pytest.mark.parametrize("key", ["hoodie.table.partition.fields", "hoodie.table.partition.columns"])
@pytest.mark.parametrize("path", ["d=1/e=x%20y", "1/x%20y"])
def test_recorded_columns_that_no_file_stores_are_columns(tmp_path: Path, key: str, path: str) -> None:
    """Partition columns that a property names have the values of the folders if no file stores them.

    In Hudi 0.8, the property has another name.
    """
    properties = {key: "d,e", "hoodie.datasource.write.partitionpath.urlencode": "true"}
    snapshot = _snapshot(_table(tmp_path / "t", {"a": path}, **properties).folder)
    assert snapshot.partition_columns == ("d", "e")
    assert _rows(snapshot) == {"a": {"key": "a", "value": 1.0, "d": "1", "e": "x y"}}


def test_a_partition_column_inside_of_a_struct_is_not_added(tmp_path: Path) -> None:
    struct_field = {"name": "place", "type": {"type": "record", "name": "p", "fields": [FIELDS[1]]}}
    writer = _table(tmp_path / "t", {"a": "x"}, **{"hoodie.table.partition.fields": "place.part"})
    (commit,) = writer.timeline.glob("*.commit")
    document = json.loads(commit.read_text())
    document["extraMetadata"]["schema"] = json.dumps(writer.schema | {"fields": [*_DATA_FIELDS, struct_field]})
    commit.write_text(json.dumps(document))
    assert _snapshot(writer.folder).schema.names == ["key", "value", "place"]


def test_earlier_states_have_the_partition_columns(tmp_path: Path) -> None:
    """The newest and an earlier state have the values in folder names, even after updates in log files."""
    writer = _table(tmp_path / "t", {"a": "d=1", "b": "d=2"}, **{"hoodie.table.version": "6"})
    first = _snapshot(writer.folder)
    instant = writer.tick()
    one = writer.new_slice("d=2", instant)
    stat = writer.base_file(one, instant, [{"key": "c", "value": 1.0}, {"key": "d", "value": 1.0}])
    one.base_name = stat["path"].rpartition("/")[2]
    writer.complete(instant, "commit", [stat])
    instant = writer.tick()
    stat = writer.log_file(one, instant, [{"key": "c", "value": 2.0}], {"d": 0})
    writer.complete(instant, "deltacommit", [stat])
    rows = _rows(_snapshot(writer.folder))
    assert {key: (row["value"], row["d"]) for key, row in rows.items()} == {
        "a": (1.0, "1"),
        "b": (1.0, "2"),
        "c": (2.0, "2"),
    }
    assert _rows(_snapshot(writer.folder, at=first.id)) == _rows(first)


def _without_schema(writer: HudiWriter) -> None:
    for commit in writer.timeline.glob("*commit"):
        document = json.loads(commit.read_text())
        document.pop("extraMetadata", None)
        commit.write_text(json.dumps(document))


def test_commits_of_early_versions_are_read(tmp_path: Path) -> None:
    """Commits of early Hudi versions, in which some JSON fields have other names, are read."""
    writer = _table(tmp_path / "t", {"a": "d=1"})
    (commit,) = writer.timeline.glob("*.commit")
    document = json.loads(commit.read_text())
    document["extraMetadataMap"] = document.pop("extraMetadata")
    document["extraMetadataMap"]["schema"] = json.dumps(writer.schema | {"fields": [_DATA_FIELDS[1], _DATA_FIELDS[0]]})
    commit.write_text(json.dumps(document))
    assert _snapshot(writer.folder).schema.names == ["value", "key", "d"]


def test_the_schema_comes_from_files_if_commits_lack_it(tmp_path: Path) -> None:
    """If commits lack the schema, the table has the schema of its Parquet files.

    If the table also has log files, it is refused.
    """
    writer = _table(tmp_path / "t", {"a": "d=1"}, **{"hoodie.table.version": "6"})
    _without_schema(writer)
    snapshot = _snapshot(writer.folder)
    assert snapshot.schema == pa.schema([("key", pa.string()), ("value", pa.float64()), ("d", pa.string())])
    assert _rows(snapshot) == {"a": {"key": "a", "value": 1.0, "d": "1"}}
    (stored_file,) = writer.folder.rglob("*.parquet")
    assert pq.read_schema(stored_file).names == [*META, "key", "value"]
    instant = writer.tick()
    one = writer.new_slice("d=2", instant)
    writer.complete(instant, "deltacommit", [writer.log_file(one, instant, [{"key": "b", "value": 2.0}])])
    _without_schema(writer)
    with pytest.raises(TableFormatError, match=r"\bschema\b.*\bAvro\b"):
        _snapshot(writer.folder)


def _log_file(writer: HudiWriter, one: Slice, content: bytes, version: int, kind: int = 3) -> None:
    """Write a log file with one block.

    `version` is that of the block's content, and `kind` is 3 for rows or 1 for deletes.
    """
    instant = writer.tick()
    data = version.to_bytes(4, "big") + content[4:]
    stat = writer.raw_log_file(one, instant, block(kind, {0: instant, 2: json.dumps(writer.stored_schema)}, data))
    writer.complete(instant, "deltacommit", [stat])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_log_blocks_of_old_versions_are_read(tmp_path: Path, version: int) -> None:
    """Log blocks of rows in Avro are read in the block versions 1 to 3, whose content is the same."""
    history = History(HudiWriter(tmp_path / "t", 6))
    history.insert("x", [{"key": "a", "ts": 1, "value": 1.0}, {"key": "b", "ts": 1, "value": 2.0}])
    (one,) = history.slices()
    stored_row = history.writer._stored(
        one, "20240101000009007", 0, {"key": "a", "ts": 2, "value": 9.0, "part": "x"}, ""
    )
    _log_file(history.writer, one, history.writer._avro_block([stored_row]), version)
    columns = read_columns(_snapshot(history.writer.folder))
    assert dict(zip(columns["key"], columns["value"], strict=True)) == {"a": 9.0, "b": 2.0}


@pytest.mark.parametrize(
    ("version", "kind", "explanation"),
    [
        (1, 1, r".*\bversion 1\b.*\b0\.12\b"),
        (2, 1, r".*\bversion 2\b.*\b0\.12\b"),
        (4, 1, r"delete.*\bversion 4\b"),
        (4, 3, r"Avro.*\bversion 4\b"),
    ],
)
@pytest.mark.parametrize("table_version", [6, 8])
def test_the_error_names_a_log_file_with_unsupported_blocks(
    tmp_path: Path, version: int, kind: int, explanation: str, table_version: int
) -> None:
    """The error for an unsupported log block names the log file and the version of the block.

    It gives no advice for damaged files.
    """
    history = History(HudiWriter(tmp_path / "t", table_version))
    history.insert("x", [{"key": "a", "ts": 1, "value": 1.0}])
    (one,) = history.slices()
    _log_file(history.writer, one, b"\0" * 12, version, kind)
    with pytest.raises((TableFormatError, ProfileError)) as error_info:
        profile(history.writer.folder)
    message = str(error_info.value)
    log = next(path for path in (tmp_path / "t").rglob(".*.log.*"))
    assert re.search(f"{log}: {explanation}", message)
    assert FailureAdvice.DAMAGED not in message
    if table_version == 8:
        assert message.endswith(FailureAdvice.UNSUPPORTED)
