"""Hudi tables are read correctly in states that writers, crashes, cleaners and clocks may leave.

A fragment is a file slice: a base file and its log files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError, FragmentError, TableFormatError, TableNotFoundError
from metastore_assets.formats import Snapshot, open_table_format
from metastore_assets.storage.location import Location
from tests.formats.hudi.random_histories import History
from tests.formats.hudi.realtables import unpacked
from tests.formats.hudi.writer import FIELDS, META, HudiWriter, block
from tests.formats.oracle import read_columns, read_rows
from tests.formats.readers.avro_container import container, recode

_A = {"key": "a", "ts": 1, "value": 1.0}
_B = {"key": "b", "ts": 1, "value": 2.0}


def _open(folder: Path, at: str | None = None, **options: Any) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(folder), at=at, **options)).snapshot()


def _rows(snapshot: Snapshot) -> list[tuple[Any, ...]]:
    return sorted(read_rows(snapshot), key=repr)


@pytest.fixture(params=[6, 9], ids=["v6", "v9"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    """A table with one file group, which has a base file of two rows.

    Tests run with both timeline layouts.
    """
    result = History(HudiWriter(tmp_path / "ta ble é", request.param))
    result.insert("x", [_A, _B])
    return result


def _group(history: History) -> Any:
    return history.slices()[0]


def _timeline_file(history: History, instant: str) -> Path:
    return next(path for path in history.writer.timeline.iterdir() if path.name.startswith(instant) and _done(path))


def _done(path: Path) -> bool:
    return path.suffix in (".commit", ".deltacommit", ".replacecommit")


@pytest.fixture
def copy_table(realtables: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A function that copies a real table, given by name, to a folder that may be changed."""

    def copy(name: str) -> Path:
        target: Path = shutil.copytree(unpacked(realtables, name), tmp_path / name)
        return target

    return copy


@pytest.mark.parametrize("name", ["cow_v6_nonpartitioned", "mor_v9_txns_nonpart_meta", "mor_v6_nonpartitioned_parquet"])
def test_uncommitted_files_are_not_read(copy_table: Callable[[str], Path], name: str) -> None:
    """Pending instants and their base files do not change the snapshot of a real table."""
    table = copy_table(name)
    before = _open(table)
    newest = max(table.glob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])
    timeline = table / ".hoodie" / ("timeline" if "v9" in name else "")
    for second, suffix in enumerate(("inflight", "commit.requested", "compaction.requested", "clustering.requested")):
        (timeline / f"2030010100000{second}000.{suffix}").write_bytes(b"")
    for second in range(4):
        shutil.copy(newest, table / f"{newest.name.rpartition('_')[0]}_2030010100000{second}000.parquet")
    after = _open(table)
    assert after.id == before.id
    assert [one.id for one in after.fragments] == [one.id for one in before.fragments]
    assert _rows(after) == _rows(before)


@pytest.mark.parametrize("codec", ["snappy", "zstandard", "xz"])
def test_commits_in_every_avro_codec_are_read(copy_table: Callable[[str], Path], codec: str) -> None:
    """Commits of a table of version 9, which are Avro files, are read in every codec."""
    table = copy_table("mor_v9_txns_nonpart_meta")
    before = _open(table)
    changed_files = [path for path in (table / ".hoodie/timeline").iterdir() if _done(path)]
    for path in changed_files:
        recode(path, codec)
    assert changed_files
    assert [one.id for one in _open(table).fragments] == [one.id for one in before.fragments]


def test_the_error_names_a_commit_without_a_record(copy_table: Callable[[str], Path]) -> None:
    table = copy_table("mor_v9_txns_nonpart_meta")
    path = next(path for path in (table / ".hoodie/timeline").iterdir() if _done(path))
    path.write_bytes(container(b'"string"', [], "null", {}))
    with pytest.raises(TableFormatError, match=f"{path.name}"):
        _open(table)


def test_a_relocated_table_is_the_same(copy_table: Callable[[str], Path], tmp_path: Path) -> None:
    """A table that was moved to another folder has the same rows and fragment ids.

    Paths in its metadata are relative.
    """
    table = copy_table("mor_v6_trips_8i1u_avro")
    before = _open(table)
    rows = _rows(before)
    table.rename(tmp_path / "moved to é")
    after = _open(tmp_path / "moved to é")
    assert [one.id for one in after.fragments] == [one.id for one in before.fragments]
    assert _rows(after) == rows


def test_a_file_of_a_task_that_was_retried_is_not_read(history: History) -> None:
    """If a retried task has left two base files, only the one that the commit names is read."""
    one = _group(history)
    history.writer.base_file(one, one.base_instant, [_A, _B, {"key": "c", "ts": 1}], token="7-7-7")
    assert _rows(_open(history.writer.folder)) == history.rows()


@pytest.mark.parametrize("suffix", [".parquet", ".log.*"])
def test_a_missing_file_is_an_error(history: History, suffix: str) -> None:
    """If the newest base file or log file of a group is missing, this is an error.

    An older file is not read instead.
    """
    one = _group(history)
    history.rewrite(one, [_A | {"ts": 2, "value": 7.0}])
    history.upsert(one, [_B | {"ts": 3}], {}, 3)
    newest = max(
        (
            path
            for path in (history.writer.folder / "part=x").iterdir()
            if one.file_id in path.name and suffix[:4] in path.name
        ),
        key=lambda path: path.name.rpartition("_")[2],
    )
    newest.unlink()
    with pytest.raises(TableFormatError, match="part=x/") as error_info:
        _open(history.writer.folder)
    assert newest.name in str(error_info.value)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [("cut off", r"\bends\b.* 0$"), ("overwritten", r"\bcorrupt\b.* 0$"), ("garbage", r"\bcorrupt\b.* {size}$")],
)
def test_a_broken_log_file_is_an_error(history: History, damage: str, reason: str) -> None:
    """A log file that is cut off, overwritten, or has garbage at its end is an error.

    The error has the byte at which the broken part begins. The base file is not read without the log file.
    """
    history.upsert(_group(history), [_B | {"ts": 3}], {}, 3)
    log = next(path for path in (history.writer.folder / "part=x").iterdir() if ".log." in path.name)
    data = log.read_bytes()
    log.write_bytes({"cut off": data[:-9], "overwritten": b"#HUXI#" + data[6:], "garbage": data + b"x" * 50}[damage])
    with pytest.raises(
        (TableFormatError, FragmentError), match=rf"part=x/{log.name}: .*{reason.format(size=len(data))}"
    ):
        read_rows(_open(history.writer.folder))


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        ({"hoodie.record.merge.mode": "CUSTOM"}, "CUSTOM"),
        ({"hoodie.compaction.payload.class": "org.apache.hudi.common.model.PartialUpdateAvroPayload"}, "PartialUpdate"),
        ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, "hoodie.table.partial.update.mode"),
        ({"hoodie.record.merge.property.hoodie.payload.delete.field": "op"}, "payload.delete.field"),
        ({"hoodie.payload.delete.field": "op", "hoodie.payload.delete.marker": "d"}, "hoodie.payload.delete"),
    ],
)
def test_unsupported_merge_rules_are_refused(history: History, properties: dict[str, str], feature: str) -> None:
    """A table with unsupported merge rules is refused only if it has log files."""
    history.writer.set_properties(**properties)
    assert _rows(_open(history.writer.folder)) == history.rows()
    history.upsert(_group(history), [_B | {"ts": 3}], {}, 3)
    with pytest.raises(TableFormatError, match=feature):
        _open(history.writer.folder)


@pytest.mark.parametrize(
    ("kind", "headers", "feature"),
    [
        (3, {7: "true"}, "partial updates"),
        (3, {4: "20240101000000007"}, "log compaction"),
        (4, {}, "HFile"),
        (6, {}, "type 6"),
        (0, {3: "7"}, "commands"),
    ],
)
def test_unsupported_log_blocks_are_refused(history: History, kind: int, headers: dict[int, str], feature: str) -> None:
    """A log block with an unsupported feature is an error, which names the feature.

    The kind of the block or one of its headers shows the feature.
    """
    writer, instant = history.writer, history.writer.tick()
    stat = writer.raw_log_file(_group(history), instant, block(kind, {0: instant} | headers, b""))
    writer.complete(instant, "deltacommit", [stat])
    with pytest.raises((TableFormatError, FragmentError), match=feature):
        read_rows(_open(writer.folder))


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        ({"hoodie.table.version": "7"}, "version 7"),
        ({"hoodie.table.version": "10"}, "version 10"),
        ({"hoodie.timeline.layout.version": "3"}, "layout 3"),
        ({"hoodie.bootstrap.base.path": "s3://old/table"}, "bootstrapped"),
        ({"hoodie.table.format": "iceberg"}, "table format 'iceberg'"),
    ],
)
def test_unsupported_table_features_are_refused(history: History, properties: dict[str, str], feature: str) -> None:
    """The error for an unsupported feature of a table names the feature."""
    history.writer.set_properties(**properties)
    with pytest.raises(TableFormatError, match=feature):
        _open(history.writer.folder)


def test_bootstrapped_files_are_refused_without_the_property(tmp_path: Path) -> None:
    """A commit with the instant of a bootstrap is refused, even if no property tells of a bootstrap.

    Bootstrapped files may lack columns, which would be read as nulls.
    """
    writer = HudiWriter(tmp_path / "t", 6)
    instant = "00000000000001"
    stat = writer.base_file(writer.new_slice("x", instant), instant, [_A])
    writer.complete(instant, "commit", [stat])
    with pytest.raises(TableFormatError, match="bootstrapped"):
        _open(writer.folder)


def test_foreign_files_are_refused(history: History) -> None:
    """Parquet files with foreign names, and data files in a folder that is no partition, are errors.

    `_SUCCESS` and files of change data are ignored.
    """
    folder = history.writer.folder
    one = _group(history)
    shutil.copytree(folder / "part=x", folder / "part=copy")
    (folder / "part=copy" / ".hoodie_partition_metadata").unlink()
    with pytest.raises(TableFormatError, match=r"part=copy.*\.hoodie_partition_metadata"):
        _open(folder)
    shutil.rmtree(folder / "part=copy")
    shutil.copy(folder / "part=x" / one.base_name, folder / "part=x" / "part-0000.parquet")
    with pytest.raises(TableFormatError, match="bootstrap"):
        _open(folder)
    (folder / "part=x" / "part-0000.parquet").unlink()
    (folder / "part=x" / "_SUCCESS").write_bytes(b"")
    (folder / "part=x" / f".{one.file_id}_{one.base_instant}.log.1_0-0-0.cdc").write_bytes(b"changes")
    assert _rows(_open(folder)) == history.rows()


@pytest.mark.parametrize("ending", ["log.1_0-0-0.parquet", "log.1_0-0-x", "log.parquet"])
def test_log_files_with_unknown_names_are_refused(history: History, ending: str) -> None:
    """A log file with an unknown form of name is refused, because it may have rows.

    Hadoop's checksum files have none, and are not refused.
    """
    one = _group(history)
    log = f".{one.file_id}_{one.base_instant}"
    folder = history.writer.folder
    (folder / "part=x" / f".{log}.log.1_0-0-0.crc").write_bytes(b"crc")
    assert _rows(_open(folder)) == history.rows()
    (folder / "part=x" / f"{log}.{ending}").write_bytes(b"rows")
    with pytest.raises(TableFormatError, match=ending):
        _open(folder)


def test_files_registered_by_another_tool_are_read(history: History) -> None:
    """The suffix `_hudiext`, which some tools append to file names in commits, is removed.

    The file does not exist in this test, and the error has its name without the suffix.
    """
    writer, instant = history.writer, history.writer.tick()
    stat = {"fileId": "part-0", "path": f"part=x/part-0.parquet_{instant}_hudiext", "partitionPath": "part=x"}
    writer.complete(instant, "commit", [stat])
    with pytest.raises(TableFormatError, match=r"part-0\.parquet"):
        _open(writer.folder)


def test_the_column_hoodie_is_deleted_is_shown(history: History) -> None:
    """The column `_hoodie_is_deleted` is true in a row of a log file, which deletes the row.

    The snapshot has this column, as in Hudi's readers.
    """
    writer = history.writer
    writer.fields.append({"name": "_hoodie_is_deleted", "type": ["null", "boolean"], "default": None})
    instant = writer.tick()
    stat = writer.log_file(_group(history), instant, [_A | {"ts": 2, "_hoodie_is_deleted": True}])
    writer.complete(instant, "deltacommit", [stat])
    snapshot = _open(writer.folder)
    assert snapshot.schema.names == ["key", "part", "ts", "value", "_hoodie_is_deleted"]
    columns = read_columns(snapshot)
    assert (columns["key"], columns["_hoodie_is_deleted"]) == (["b"], [None])


def test_only_columns_that_hudi_adds_are_omitted(tmp_path: Path) -> None:
    """A snapshot has the writer's columns with the prefix `_hoodie_`, with and without log files.

    The column `_hoodie_operation` and those that Hudi adds are omitted without the option `meta_columns`.
    """
    added_columns = [("_hoodie_is_deleted", "boolean"), ("_hoodie_source", "string"), ("_hoodie_operation", "string")]
    schema_fields = [{"name": name, "type": ["null", type_], "default": None} for name, type_ in added_columns]
    history = History(HudiWriter(tmp_path / "t", 6, fields=[*FIELDS, *schema_fields]))
    row = {"_hoodie_is_deleted": False, "_hoodie_source": "mail", "_hoodie_operation": "I"}
    history.insert("x", [_A | row, _B | row])
    for expected in (["mail", "mail"], ["web", "mail"]):
        snapshot = _open(history.writer.folder)
        assert snapshot.schema.names == [*(one["name"] for one in FIELDS), "_hoodie_is_deleted", "_hoodie_source"]
        columns = read_columns(snapshot)
        assert columns["_hoodie_is_deleted"] == [False, False]
        assert dict(zip(columns["key"], columns["_hoodie_source"], strict=True)) == dict(
            zip("ab", expected, strict=True)
        )
        all_columns = read_columns(_open(history.writer.folder, options={"meta_columns": True}))
        assert set(all_columns) == {*META, *columns, "_hoodie_operation"}
        assert set(all_columns["_hoodie_operation"]) <= {"I", "U"}
        changed_values = row | {"ts": 2, "part": "x", "_hoodie_source": "web", "_hoodie_operation": "U"}
        instant = history.writer.tick()
        stat = history.writer.log_file(_group(history), instant, [_A | changed_values])
        history.writer.complete(instant, "deltacommit", [stat])


def test_rows_with_delete_operations_are_deleted(tmp_path: Path) -> None:
    """A row of a log file with the operation D in `_hoodie_operation` deletes the row of its key."""
    operation = {"name": "_hoodie_operation", "type": ["null", "string"], "default": None}
    history = History(HudiWriter(tmp_path / "t", 6, fields=[*FIELDS, operation]))
    history.insert("x", [_A | {"_hoodie_operation": "I"}, _B | {"_hoodie_operation": "I"}])
    instant = history.writer.tick()
    stat = history.writer.log_file(_group(history), instant, [_A | {"ts": 2, "_hoodie_operation": "D"}])
    history.writer.complete(instant, "deltacommit", [stat])
    assert read_columns(_open(history.writer.folder))["key"] == ["b"]


@pytest.mark.parametrize(("version", "kind"), [(6, 3), (9, 3), (9, 5)], ids=["v6-avro", "v9-avro", "v9-parquet"])
@pytest.mark.parametrize("local", [False, True])
def test_rows_are_deleted_by_operations_that_commits_do_not_record(
    tmp_path: Path, version: int, kind: int, local: bool
) -> None:
    """Deletes in the column `_hoodie_operation` apply, even if the schema in commits lacks this column.

    The data files have the column. A later log file without the column is refused.
    """
    writer = HudiWriter(tmp_path / "t", version, by_commit=True)
    if local:
        type_ = {"type": "long", "logicalType": "local-timestamp-micros"}
        writer.fields.append({"name": "at", "type": ["null", type_], "default": None})
        writer.types["at"] = pa.timestamp("us")
    writer.meta_columns = [*META, "_hoodie_operation"]
    rows = [{"key": key, "part": "x", "ts": 1, "_hoodie_operation": "I"} for key in "abc"]
    instant = writer.tick()
    one = writer.new_slice("x", instant)
    stat = writer.base_file(one, instant, rows)
    one.base_name = stat["path"].rpartition("/")[2]
    writer.complete(instant, "deltacommit", [stat])
    changes = [
        row | {"ts": 2, "_hoodie_operation": operation} for row, operation in zip(rows, ("D", "-U", "U"), strict=True)
    ]
    instant = writer.tick()
    writer.complete(instant, "deltacommit", [writer.log_file(one, instant, changes, kind=kind)])
    columns = read_columns(_open(writer.folder))
    assert (columns["key"], columns["ts"]) == (["c"], [2])
    writer.meta_columns = META
    instant = writer.tick()
    writer.complete(instant, "deltacommit", [writer.log_file(one, instant, changes, kind=kind)])
    with pytest.raises(FragmentError, match="'_hoodie_operation'"):
        read_columns(_open(writer.folder))


def test_added_and_widened_columns_are_read(history: History) -> None:
    """Base files that are older than an added and a widened column are read, with null in the added one.

    One of these files has a log file, and the other has none.
    """
    writer = history.writer
    history.insert("y", [{"key": "c", "ts": 1}])
    first, second = history.slices()
    writer.fields[2] = {"name": "ts", "type": ["null", "double"], "default": None}
    writer.fields.append({"name": "extra", "type": ["null", "string"], "default": None})
    instant = writer.tick()
    stat = writer.log_file(first, instant, [_A | {"part": "x", "ts": 9.5, "extra": "new"}])
    writer.complete(instant, "deltacommit", [stat])
    snapshot = _open(writer.folder)
    columns = read_columns(snapshot)
    assert sorted(zip(columns["key"], columns["ts"], columns["extra"], strict=True)) == [
        ("a", 9.5, "new"),
        ("b", 1.0, None),
        ("c", 1.0, None),
    ]
    assert second.partition == "part=y"


def test_the_schema_is_that_of_the_newest_write_of_rows(history: History) -> None:
    """The schema is that of the newest commit other than a compaction.

    A compaction has the schema at the time of its plan. It is used only without other commits.
    """
    writer, one = history.writer, _group(history)
    history.plan_compaction(one)
    writer.fields.append({"name": "extra", "type": ["null", "string"], "default": None})
    history.upsert(one, [_A | {"ts": 2}], {}, 3)
    writer.fields.pop()
    history.compact(one)
    assert _open(writer.folder).schema.names == ["key", "part", "ts", "value", "extra"]
    for path in list(writer.timeline.iterdir()):
        if _done(path) and "COMPACT" not in path.read_text():
            path.unlink()
    assert _open(writer.folder).schema.names == ["key", "part", "ts", "value"]


def test_commits_of_empty_batches_do_not_define_the_schema(history: History) -> None:
    """Commits of empty batches do not define the schema.

    Hudi Streamer up to 0.10 recorded the Avro type null as their schema. Later versions record an empty text.
    """
    writer = history.writer
    for schema in ('"null"', ""):
        instant = writer.tick()
        writer.complete(instant, "commit", [])
        (path,) = writer.timeline.glob(f"{instant}*.commit")
        metadata = json.loads(path.read_text())
        path.write_text(json.dumps(metadata | {"extraMetadata": {"schema": schema}}))
        snapshot = _open(writer.folder)
        assert snapshot.id.startswith(instant)
        assert _rows(snapshot) == history.rows()


def test_a_table_with_a_file_that_is_removed_meanwhile_still_exists(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a commit is archived while a table is opened, the error does not call the table missing."""
    path = _timeline_file(history, max(history.states))
    read = Location.read

    def archive_first(self: Location, name: str) -> bytes:
        if name.endswith(path.name):
            path.unlink()
        return read(self, name)

    monkeypatch.setattr(Location, "read", archive_first)
    with pytest.raises(TableFormatError, match=path.name):
        _open(history.writer.folder)


def test_an_empty_file_of_a_completed_write_is_an_error(history: History) -> None:
    """An empty timeline file of a completed write is an error.

    HDFS shows files before their content. If the file were ignored, the data files of the write would count as
    leftovers of a failed one.
    """
    history.insert("y", [{"key": "c", "ts": 1}])
    path = _timeline_file(history, max(history.states))
    content = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(TableFormatError, match=rf"{path.name}.*empty"):
        _open(history.writer.folder)
    path.write_bytes(content)
    assert _rows(_open(history.writer.folder)) == history.rows()


@pytest.mark.parametrize("file_id", [None, ""])
def test_a_write_statistic_without_files_is_ignored(history: History, file_id: str | None) -> None:
    """A write statistic without a path is ignored: its task wrote nothing.

    Such a statistic has no file id, either. A statistic with a path and no file id is an error.
    """
    path = _timeline_file(history, max(history.states))
    metadata = json.loads(path.read_text())
    (stats,) = metadata["partitionToWriteStats"].values()
    stats.append({"fileId": file_id, "path": None, "prevCommit": "null", "numWrites": 0})
    path.write_text(json.dumps(metadata))
    assert _rows(_open(history.writer.folder)) == history.rows()
    stats[1]["path"] = "part=x/a.parquet"
    path.write_text(json.dumps(metadata))
    with pytest.raises(TableFormatError, match="fileId"):
        _open(history.writer.folder)


def test_the_backup_of_properties_is_read_while_they_are_replaced(history: History) -> None:
    path = history.writer.folder / ".hoodie" / "hoodie.properties"
    path.rename(path.with_name("hoodie.properties.backup"))
    assert _rows(_open(history.writer.folder)) == history.rows()


@pytest.mark.parametrize("length", [0, 5])
def test_properties_that_are_still_being_written_are_not_read(history: History, length: int) -> None:
    """The backup of `hoodie.properties` is read if a writer has not yet replaced that file completely.

    Without a backup, an incomplete file is an error.
    """
    path = history.writer.folder / ".hoodie" / "hoodie.properties"
    text = path.read_text()
    path.write_text(text[:length])
    with pytest.raises(TableFormatError, match=r"hoodie\.table\.name"):
        _open(history.writer.folder)
    path.with_name("hoodie.properties.backup").write_text(text)
    assert _rows(_open(history.writer.folder)) == history.rows()


def _array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementId": 90, "elementOptional": True, "element": element}


def _named(name: str) -> Any:
    return {"id": 0, "name": name, "type": "string"}


def _in_arrays(name: str) -> Any:
    record = {"type": "record", "fields": [{"id": 1, "name": name, "type": "string"}]}
    return {"id": 0, "name": "list", "type": _array(_array(record))}


@pytest.mark.parametrize(
    ("field", "message"), [(_named, "'key'.*'id'"), (_in_arrays, r"'0\.key'.*'0\.id'")], ids=["top", "in arrays"]
)
def test_renamed_columns_are_refused(history: History, field: Callable[[str], Any], message: str) -> None:
    """A table is refused if a schema file with column ids renames a column.

    Schema files that rename no column are accepted.
    """
    writer = history.writer
    path = _timeline_file(history, next(iter(history.states)))
    metadata = json.loads(path.read_text())
    metadata["extraMetadata"]["latest_schema"] = "{}"
    path.write_text(json.dumps(metadata))
    folder = writer.folder / ".hoodie" / ".schema"
    folder.mkdir()
    versions = [{"fields": [field("key")]}]
    (folder / "20240101000001007.schemacommit").write_text(json.dumps({"schemas": versions}))
    assert _rows(_open(writer.folder)) == history.rows()
    versions.append({"fields": [field("id")]})
    (folder / "20240101000002007.schemacommit").write_text(json.dumps({"schemas": versions}))
    with pytest.raises(TableFormatError, match=message):
        _open(writer.folder)


def test_another_encoding_of_folder_names_changes_fragments(tmp_path: Path) -> None:
    """Another encoding of folder names changes the partition value, and so the fragment id.

    The data files do not store the partition column.
    """
    history = History(HudiWriter(tmp_path / "t", 9))
    history.insert("a%20b", [{"key": "a", "ts": 1, "value": 1.0}])
    (base,) = history.writer.folder.glob("part=*/*.parquet")
    pq.write_table(pq.ParquetFile(base).read().drop_columns(["part"]), base)
    history.writer.set_properties(**{"hoodie.datasource.write.drop.partition.columns": "true"})
    snapshots = []
    for encoding_setting, value in (("false", "a%20b"), ("true", "a b")):
        history.writer.set_properties(**{"hoodie.datasource.write.partitionpath.urlencode": encoding_setting})
        snapshots.append(open_table_format(TableConfig(name="t", uri=str(history.writer.folder))).snapshot())
        assert read_columns(snapshots[-1])["part"] == [value]
    assert snapshots[0].fragments[0].id != snapshots[1].fragments[0].id


def test_dropped_partition_columns_come_from_folder_names(history: History) -> None:
    """A partition column that a base file lacks has the value in the folder name.

    The base file is merged with a log file.
    """
    writer = history.writer
    writer.set_properties(**{"hoodie.datasource.write.drop.partition.columns": "true"})
    base = writer.folder / "part=x" / _group(history).base_name
    table = pq.ParquetFile(base).read().drop_columns(["part"])
    pq.write_table(table, base)
    history.upsert(_group(history), [{"key": "b", "ts": 5, "value": 5.0}], {}, 3)
    assert _rows(_open(writer.folder)) == history.rows()


def test_meta_columns_are_read_with_an_option(history: History) -> None:
    assert _open(history.writer.folder).schema.names == ["key", "part", "ts", "value"]
    history.upsert(_group(history), [_B | {"ts": 3}], {}, 3)
    snapshot = _open(history.writer.folder, options={"meta_columns": True})
    columns = read_columns(snapshot)
    assert columns["_hoodie_record_key"] == columns["key"]
    assert set(columns["_hoodie_commit_time"]) == set(history.states)
    for name, value in (("meta_columns", "yes"), ("header", True)):
        options = {name: value}
        with pytest.raises(ConfigError, match=rf"'t': options\.{name} = {value!r}: .*\bmeta_columns\b"):
            _open(history.writer.folder, options=options)


def test_partition_filters_use_partition_values(history: History) -> None:
    """A partition filter selects partitions by their values.

    A filter by a column that is not a partition column is an error.
    """
    history.insert("y", [{"key": "c", "ts": 1}])
    snapshot = _open(history.writer.folder, partitions={"part": ("x*",)})
    assert {fragment.partition_key for fragment in snapshot.fragments} == {"part=x"}
    assert not _open(history.writer.folder, partitions={"part": ("z",)}).fragments
    with pytest.raises(TableFormatError, match=r"'key'.*\bpart$"):
        _open(history.writer.folder, partitions={"key": ("a",)})


def test_the_current_reference_needs_only_a_listing(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """`current` and `snapshot_id` read the table's properties, but no metadata of commits."""
    read = []
    monkeypatch.setattr(
        Location, "read", lambda self, path, original=Location.read: read.append(path) or original(self, path)
    )
    monkeypatch.setattr(Location, "list", None)
    table = open_table_format(TableConfig(name="t", uri=str(history.writer.folder)))
    assert table.snapshot_id() == next(iter(history.states))
    assert table.current().id == table.snapshot_id()
    assert set(read) == {".hoodie/hoodie.properties"}


def test_a_folder_without_properties_or_commits_is_no_table(tmp_path: Path) -> None:
    (tmp_path / ".hoodie").mkdir()
    with pytest.raises(TableNotFoundError, match=r"hoodie\.properties"):
        _open(tmp_path)
    writer = HudiWriter(tmp_path / "t")
    with pytest.raises(TableFormatError, match=r"\bcommit\b.*\bParquet\b.*\bschema$"):
        _open(writer.folder)
    writer.set_properties(**{"hoodie.table.create.schema": json.dumps(writer.schema)})
    snapshot = _open(writer.folder)
    assert snapshot.id == "00000000000000"
    assert snapshot.committed_at is None
    assert not snapshot.fragments
    assert snapshot.schema.field("ts").type == pa.int64()
    assert _open(writer.folder, at=snapshot.id) == snapshot
