"""The log of a Delta table: versions, times, checkpoints, compacted files, and errors.

A fragment is a data file and the deletes on it. The reference of a snapshot consists of its id and its commit time.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.config import TableConfig
from metastore_assets.errors import SnapshotNotFoundError, TableFormatError, TableNotFoundError
from metastore_assets.formats import NoDiff, Snapshot, open_table_format
from metastore_assets.formats.base import UnstreamableError
from metastore_assets.formats.delta import actions
from metastore_assets.formats.delta import log as log_module
from metastore_assets.formats.delta import table as table_module
from metastore_assets.formats.delta.log import Log
from metastore_assets.formats.delta.table import DeltaFormat
from metastore_assets.formats.readers.parquet_footer import REFUSED
from metastore_assets.storage.location import Location
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol
from tests.formats.oracle import read_rows
from tests.formats.readers.hive_groups import with_groups_of_hive


def _snapshot(table: Path, **how: Any) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(table), **how)).snapshot()


def test_a_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    """If a folder has no Delta log, `snapshot` and `snapshot_id` raise an error that names the folder."""
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path), format="delta"))
    with pytest.raises(TableNotFoundError, match=str(tmp_path)):
        table.snapshot()
    with pytest.raises(TableNotFoundError, match=str(tmp_path)):
        table.snapshot_id()


def test_the_error_for_a_broken_log_names_the_table(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"a": [1]}))
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("{")
    with pytest.raises(TableFormatError, match=str(tmp_path)):
        _snapshot(tmp_path)


def test_the_version_id_needs_no_replay_of_the_log(tmp_path: Path) -> None:
    """`snapshot_id` is the newest version among the names of log files.

    The id is right with a checkpoint, without earlier commits, and if `_last_checkpoint` is outdated or broken.
    """
    for number in range(4):
        write_deltalake(str(tmp_path), pa.table({"a": [number]}), mode="append")
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    log = tmp_path / "_delta_log"
    assert table.snapshot_id() == "3"
    DeltaTable(str(tmp_path)).create_checkpoint()
    for number in range(3):
        (log / f"{number:020}.json").unlink()
    (log / f"{3:020}.json").rename(log / "last")
    assert table.snapshot_id() == table.snapshot().id == "3"
    assert len(read_rows(table.snapshot())) == 4
    (log / "last").rename(log / f"{3:020}.json")
    write_deltalake(str(tmp_path), pa.table({"a": [9]}), mode="append")
    assert table.snapshot_id() == table.snapshot().id == "4"
    hint = log / "_last_checkpoint"
    for text in (json.dumps({"version": 1000}), "{", "[]"):
        hint.write_text(text)
        assert table.snapshot_id() == "4"


def test_the_commit_time_is_reported(tmp_path: Path) -> None:
    """The commit time of a snapshot is the timestamp in `commitInfo`, in UTC."""
    commit(tmp_path, protocol(), metadata([field("a", "long")]))
    assert _snapshot(tmp_path).committed_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize("lines", [0, 2000])
def test_the_commit_time_distinguishes_tables_of_one_version(tmp_path: Path, lines: int) -> None:
    """Two tables of version 0 have different references, because their commit times differ.

    The time is at the end of a short or a long commit file.
    """
    references = []
    for time in (1700000000000, 1700000000001):
        folder = tmp_path / str(time)
        write_deltalake(str(folder), pa.table({"a": [1]}))
        log = folder / "_delta_log" / f"{0:020}.json"
        actions = [line for line in log.read_text().splitlines() if "commitInfo" not in line]
        padding = [json.dumps({"txn": {"appId": f"{number} {'x' * 80}", "version": 1}}) for number in range(lines)]
        log.write_text("\n".join([*actions, *padding, json.dumps({"commitInfo": {"timestamp": time}})]) + "\n")
        table = open_table_format(TableConfig(name="t", uri=str(folder)))
        assert table.current() == table.snapshot().reference
        references.append(table.current())
    assert [reference.id for reference in references] == ["0", "0"]
    assert references[0] != references[1]


def _add(number: int, **more: Any) -> dict[str, Any]:
    return {"add": {"path": f"{number}", "partitionValues": {}, "size": 1, "modificationTime": 1} | more}


def _remove(number: int) -> dict[str, Any]:
    return {"remove": {"path": f"{number}", "partitionValues": {}}}


def _paths(table: Path, at: int | None = None) -> list[str]:
    live = _snapshot(table, at=at).fragments
    return sorted(fragment.path.rpartition("/")[2] for fragment in live)


def _write(table: Path, name: str, *actions: dict[str, Any]) -> None:
    text = "\n".join(json.dumps(action) for action in actions)
    (table / "_delta_log" / name).write_text(text, encoding="utf-8")


def _forget(table: Path, *versions: int) -> None:
    for version in versions:
        (table / "_delta_log" / f"{version:020}.json").unlink()


def _seven_versions(table: Path) -> list[list[str]]:
    """Write a table of seven commits, and return the files of each version."""
    commit(table, protocol(), metadata([field("a", "long")]), _add(0))
    commit(table, _add(1), _add(2))
    commit(table, _remove(0), _add(3))
    commit(table, _add(4), metadata([field("b", "long")]))
    commit(table, _remove(3), _add(0))
    commit(table, _remove(1))
    commit(table, _add(5))
    return [_paths(table, version) for version in range(7)]


def test_actions_are_reconciled_version_by_version(tmp_path: Path) -> None:
    """A version has the files that its commits added and did not remove.

    A removed file may return.
    """
    seven = _seven_versions(tmp_path)
    assert seven[:5] == [["0"], ["0", "1", "2"], ["1", "2", "3"], ["1", "2", "3", "4"], ["0", "1", "2", "4"]]
    assert seven[5:] == [["0", "2", "4"], ["0", "2", "4", "5"]]


def test_compactions_replace_deleted_commits(tmp_path: Path) -> None:
    """A version can be opened if its commit exists, or if it is the last version in a compacted file.

    The compacted file may begin before the first deleted commit.
    """
    seven = _seven_versions(tmp_path)
    schema = metadata([field("b", "long")])
    _write(tmp_path, f"{1:020}.{3:020}.compacted.json", _remove(0), _add(1), _add(2), _add(3), _add(4), schema)
    _write(tmp_path, f"{2:020}.{5:020}.compacted.json", _remove(1), _remove(3), _add(4), _add(0), schema)
    assert [_paths(tmp_path, version) for version in range(7)] == seven
    _forget(tmp_path, 2)
    assert _paths(tmp_path, 3) == seven[3]
    _forget(tmp_path, 3, 4, 5)
    assert {version: _paths(tmp_path, version) for version in (0, 1, 3, 5, 6)} == {
        version: seven[version] for version in (0, 1, 3, 5, 6)
    }
    assert _paths(tmp_path) == seven[6]
    for version in (2, 4):
        with pytest.raises(SnapshotNotFoundError, match="0, 1, 3, 5, 6"):
            _paths(tmp_path, version)
    _forget(tmp_path, 6)
    assert open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot_id() == "5"
    assert _paths(tmp_path) == seven[5]


def test_a_compaction_may_begin_before_a_checkpoint() -> None:
    """A compacted file is read even if it begins with commits that the checkpoint includes.

    The log has a checkpoint of version 2, a compacted file of the commits 2 to 5, and commit 6. All three are read,
    because data files that were added earlier are only in the checkpoint.
    """
    names = [f"{2:020}.{5:020}.compacted.json", f"{2:020}.checkpoint.parquet", f"{6:020}.json"]
    assert Log.of(names).files("t", 6) == ([names[2], names[0]], (names[1],))


def test_commits_between_two_versions_may_be_compacted() -> None:
    """A compacted file replaces missing commits if it begins after the earlier version.

    `commits_between` returns None if no such compacted file has the missing commits.
    """
    names = [f"{2:020}.{4:020}.compacted.json", f"{3:020}.{4:020}.compacted.json", *(f"{n:020}.json" for n in (2, 5))]
    log = Log.of(names)
    assert log.commits_between(2, 5) == [names[3], names[1]]
    assert log.commits_between(4, 5) == [names[3]]
    assert log.commits_between(5, 5) == []
    assert log.commits_between(3, 5) is None
    assert log.commits_between(1, 4) == [names[0]]


@pytest.mark.parametrize("name", ["checkpoint.parquet", "checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"])
@pytest.mark.parametrize("has_hint", [False, True])
def test_a_checkpoint_of_zero_bytes_is_ignored(tmp_path: Path, name: str, has_hint: bool) -> None:
    seven = _seven_versions(tmp_path)
    (tmp_path / "_delta_log" / f"{4:020}.{name}").touch()
    if has_hint:
        (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"version": 4, "size": 5}')
    assert [_paths(tmp_path, version) for version in range(7)] == seven
    assert _paths(tmp_path) == seven[6]


def test_a_compacted_file_of_zero_bytes_replaces_no_commits(tmp_path: Path) -> None:
    _seven_versions(tmp_path)
    (tmp_path / "_delta_log" / f"{2:020}.{3:020}.compacted.json").touch()
    _forget(tmp_path, 2, 3)
    with pytest.raises(TableFormatError, match=r"\b3\b"):
        _paths(tmp_path)


@pytest.fixture
def cleaned_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaFormat:
    """A table whose log is cleaned up after its first listing.

    A writer then adds a commit and a checkpoint, and removes all older files of the log.
    """

    def checkpoint() -> None:
        write_deltalake(str(tmp_path), pa.table({"a": [1]}), mode="append")
        DeltaTable(str(tmp_path)).create_checkpoint()
        for file in (tmp_path / "_delta_log").iterdir():
            if file.name < f"{DeltaTable(str(tmp_path)).version():020}":
                file.unlink()

    listings = []

    def read_log(location: Location, complete: bool = False) -> Log:
        listings.append(log := log_module.read_log(location, complete))
        if len(listings) == 1:
            checkpoint()
        return log

    checkpoint()
    checkpoint()
    monkeypatch.setattr(table_module, "read_log", read_log)
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    assert isinstance(table, DeltaFormat)
    return table


def test_a_log_that_is_cleaned_up_while_it_is_read_is_listed_again(cleaned_table: DeltaFormat) -> None:
    snapshot = cleaned_table.snapshot()
    assert (snapshot.id, len(snapshot.fragments)) == ("2", 3)


def test_partition_columns_are_read_from_a_log_that_is_cleaned_up(cleaned_table: DeltaFormat) -> None:
    assert cleaned_table.partition_columns() == ()


def test_a_stream_over_a_removed_checkpoint_can_be_replaced_by_a_snapshot(
    tmp_path: Path, cleaned_table: DeltaFormat
) -> None:
    stream = cleaned_table.stream()
    for file in (tmp_path / "_delta_log").glob("*.checkpoint.parquet"):
        file.unlink()
    with pytest.raises(UnstreamableError):
        list(stream.fragments)


def test_commits_that_are_removed_while_they_are_read_prevent_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_deltalake(str(tmp_path), pa.table({"a": [1]}))
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    before = table.snapshot()
    write_deltalake(str(tmp_path), pa.table({"a": [1]}), mode="append")

    def log_since(location: Location, version: int) -> Log:
        log = log_module.log_since(location, version)
        (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
        return log

    monkeypatch.setattr(table_module, "log_since", log_since)
    difference = table.changes(before.reference)
    assert isinstance(difference, NoDiff)
    assert difference.reason == "files of the log were removed meanwhile"


def test_a_gap_in_the_log_is_refused(tmp_path: Path) -> None:
    """If a commit is missing in the log, reading the newest version is an error that names the commit.

    Versions before the missing commit are read.
    """
    _seven_versions(tmp_path)
    _forget(tmp_path, 3)
    with pytest.raises(TableFormatError, match=r"commit 3\b"):
        _paths(tmp_path)
    assert _paths(tmp_path, 2) == ["1", "2", "3"]


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_log_without_protocol_or_metadata_is_refused(tmp_path: Path, missing: str) -> None:
    actions = [protocol(), metadata([field("a", "long")])]
    commit(tmp_path, *(action for action in actions if missing not in action))
    with pytest.raises(TableFormatError, match=missing):
        _snapshot(tmp_path)


def test_a_file_that_is_added_again_exists_once(tmp_path: Path) -> None:
    """A file that a later commit adds again is one fragment, to which the newest statistics apply.

    Writers add a file again to correct its statistics.
    """
    commit(tmp_path, protocol(), metadata([field("a", "long")]), _add(1), _add(2, stats='{"numRecords":1}'))
    commit(tmp_path, _add(2, stats='{"tightBounds":true,"numRecords":2}'))
    assert [fragment.row_count for fragment in _snapshot(tmp_path).fragments if fragment.path[-1] == "2"] == [2]
    assert _paths(tmp_path) == ["1", "2"]


def test_a_file_twice_in_one_commit_is_refused(tmp_path: Path) -> None:
    """A commit that adds a file both without and with a deletion vector is refused.

    Which of the two actions applies is unknown.
    """
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    commit(tmp_path, protocol(), metadata([field("a", "long")]), _add(1), _add(1, deletionVector=vector))
    with pytest.raises(TableFormatError, match=rf"{tmp_path}: .*\b1\b"):
        _snapshot(tmp_path)


def test_a_repeated_action_of_one_commit_counts_once(tmp_path: Path) -> None:
    """If one commit adds a file twice with equal fields, its rows are read once, as by deltalake.

    If the two actions differ, for example in the row count, the file is refused: deltalake applies the first action,
    and Spark the last.
    """
    add = add_file(tmp_path / "same", pa.table({"a": [1, 2, 3]}), "x.parquet")
    commit(tmp_path / "same", protocol(), metadata([field("a", "long")]), add, add)
    assert [fragment.row_count for fragment in _snapshot(tmp_path / "same").fragments] == [3]
    assert len(DeltaTable(tmp_path / "same").to_pyarrow_table()) == 3
    for name, changed_value in (
        ("stats", '{"numRecords":99}'),
        ("partitionValues", {"a": "2"}),
        ("modificationTime", 5),
    ):
        other = {"add": {**add["add"], name: changed_value}}
        commit(tmp_path / name, protocol(), metadata([field("a", "long")]), add, other)
        with pytest.raises(TableFormatError, match=r"0\.json.*x\.parquet"):
            _snapshot(tmp_path / name)


@pytest.mark.parametrize("is_removed_first", [False, True])
def test_a_file_added_and_removed_in_one_commit_is_refused(tmp_path: Path, is_removed_first: bool) -> None:
    """A commit that adds and removes the same file is refused, in either order of the two actions.

    Spark applies the last action, and deltalake the first.
    """
    commit(tmp_path, protocol(), metadata([field("a", "long")]), _add(1))
    actions = [_add(1), _remove(1)]
    commit(tmp_path, *(reversed(actions) if is_removed_first else actions))
    with pytest.raises(TableFormatError, match=r"1\.json.*\b1\b"):
        _snapshot(tmp_path)


def test_names_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    """A path in the log whose decoded bytes are not UTF-8 is refused.

    Otherwise, two files whose names differ only in invalid bytes would count as one.
    """
    adds = [add_file(tmp_path, pa.table({"a": [1]}), f"{name}.parquet", f"%{name}.parquet") for name in ("FE", "FF")]
    commit(tmp_path, protocol(), metadata([field("a", "long")]), *adds)
    with pytest.raises(TableFormatError, match=r"0\.json.*%FE.*UTF-8"):
        _snapshot(tmp_path)


def test_a_file_by_two_names_is_refused(tmp_path: Path) -> None:
    """A table is refused if commits add one file by a relative and by an absolute path.

    Otherwise, the rows of the file would count twice.
    """
    commit(tmp_path, protocol(), metadata([field("a", "long")]), _add(1))
    absolute = _add(1)
    absolute["add"]["path"] = str(tmp_path / "1")
    commit(tmp_path, absolute)
    with pytest.raises(TableFormatError, match=rf"{tmp_path}: .*\b1\b"):
        _snapshot(tmp_path)


@pytest.mark.parametrize("name", ["/a b/%41#h", "/x"])
def test_a_file_is_removed_under_any_spelling_of_its_name(tmp_path: Path, name: str) -> None:
    """A remove action applies to a file even if the add action spells its name differently.

    The spellings are the path, and URIs with `file:/` and `file:///`.
    """
    encoded_name = quote(name)
    for number, added_path in enumerate((encoded_name, f"file:{encoded_name}", f"file://{encoded_name}")):
        for removed_path in (encoded_name, f"file:{encoded_name}", f"file://{encoded_name}"):
            table = tmp_path / f"{number}{removed_path.count('/')}{len(removed_path)}"
            add = _add(1)
            add["add"]["path"] = added_path
            commit(table, protocol(), metadata([field("a", "long")]), add)
            commit(table, {"remove": {"path": removed_path}})
            assert _paths(table) == []


def test_row_counts_come_from_any_form_of_statistics(tmp_path: Path) -> None:
    """The row count of a file is `numRecords` in its statistics: JSON, or typed fields of a checkpoint.

    In JSON, it may follow other fields, even bounds of a column of the same name. Without it, there is no row count.
    """
    texts = ['{"numRecords":3,"x":1}', '{"minValues":{"numRecords":7},"numRecords":4}', '{"maxValues":{}}', None]
    adds = [_add(number, stats=text) for number, text in enumerate(texts)]
    commit(tmp_path, protocol(), metadata([field("a", "long")]), *adds)
    counts = {fragment.path[-1]: fragment.row_count for fragment in _snapshot(tmp_path).fragments}
    assert counts == {"0": 3, "1": 4, "2": None, "3": None}
    struct = pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("a", pa.int64())]))])
    keys = ["path", "partitionValues", "size", "modificationTime", "stats", "stats_parsed"]
    parsed_rows = [[f"{number}", [], 1, 1, None, {"numRecords": number}] for number in (5, 6)]
    types = [pa.string(), pa.map_(pa.string(), pa.string()), pa.int64(), pa.int64(), pa.string(), struct]
    rows = pa.array(
        [None, None, *(dict(zip(keys, row, strict=True)) for row in parsed_rows)],
        pa.struct(list(zip(keys, types, strict=True))),
    )
    protocols = pa.array([{"minReaderVersion": 1, "minWriterVersion": 2}, None, None, None])
    schema = metadata([field("a", "long")])["metaData"]["schemaString"]
    metadatas = pa.array([None, {"schemaString": schema, "partitionColumns": []}, None, None])
    checkpoint = pa.table({"protocol": protocols, "metaData": metadatas, "add": rows})
    pq.write_table(checkpoint, tmp_path / "_delta_log" / f"{0:020}.checkpoint.parquet")
    counts = {fragment.path[-1]: fragment.row_count for fragment in _snapshot(tmp_path).fragments}
    assert counts == {"5": 5, "6": 6}


def _checkpoint(table: Path, *adds: dict[str, Any]) -> None:
    """Write a checkpoint of version 0 with these files."""
    fields: dict[str, pa.DataType] = {
        "path": pa.string(),
        "partitionValues": pa.map_(pa.string(), pa.string()),
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "stats": pa.string(),
        "stats_parsed": pa.struct([("numRecords", pa.int64())]),
    }
    schema = metadata([field("a", "long")])["metaData"]["schemaString"]
    rows = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"schemaString": schema, "partitionColumns": []}},
        *({"add": add["add"] | {"partitionValues": []}} for add in adds),
    ]
    columns = {
        "protocol": pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
        "metaData": pa.struct([("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string()))]),
        "add": pa.struct(list(fields.items())),
    }
    (table / "_delta_log").mkdir(parents=True)
    checkpoint = pa.table({name: pa.array([row.get(name) for row in rows], type_) for name, type_ in columns.items()})
    pq.write_table(checkpoint, table / "_delta_log" / f"{0:020}.checkpoint.parquet")


def test_json_statistics_in_checkpoints_take_precedence_over_typed_ones(tmp_path: Path) -> None:
    """A row count in a checkpoint comes from JSON statistics, and not from typed ones, if both exist.

    The row count may be anywhere in the JSON text. If the JSON is invalid, the typed row count is used.
    """
    texts = {
        '{"numRecords":3,"x":1}': 3,
        '\n{ "numRecords" : 12 }': 12,
        '{"minValues":{"numRecords":7},"numRecords":4}': 4,
        '{"numRecords":9': 9,
        "no json": 9,
    }
    adds = [_add(number, stats=text, stats_parsed={"numRecords": 9}) for number, text in enumerate(texts)]
    _checkpoint(tmp_path / "t", *adds, _add(7), _add(8, stats="{}"))
    counts = {fragment.path[-1]: fragment.row_count for fragment in _snapshot(tmp_path / "t").fragments}
    assert counts == {**{str(number): count for number, count in enumerate(texts.values())}, "7": None, "8": None}


def test_different_duplicates_in_a_checkpoint_are_refused(tmp_path: Path) -> None:
    """If a checkpoint has a file twice, identical entries count once, and different ones are an error."""
    _checkpoint(tmp_path / "same", _add(1), _add(2), _add(1))
    assert _paths(tmp_path / "same") == ["1", "2"]
    _checkpoint(tmp_path / "other", _add(1), _add(1, modificationTime=2))
    with pytest.raises(TableFormatError, match=r"/other/1\b"):
        _paths(tmp_path / "other")
    _checkpoint(tmp_path / "count", _add(1, stats='{"numRecords":1}'), _add(1, stats='{"numRecords":2}'))
    with pytest.raises(TableFormatError, match=r"/count/1\b"):
        _paths(tmp_path / "count")


def test_partition_columns_need_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition columns need only the protocol and the metadata of a checkpoint, not its list of files."""
    _checkpoint(tmp_path / "t", _add(1))
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path / "t")))
    read: list[Any] = []
    original = actions._checkpoint_actions

    def noted(location: Any, name: str, columns: Any) -> Any:
        read.append(columns)
        return original(location, name, columns)

    monkeypatch.setattr(actions, "_checkpoint_actions", noted)
    assert table.partition_columns() == ()
    assert read == [("protocol", "metaData")]
    assert len(table.snapshot().fragments) == 1
    assert len(read) == 3


@pytest.mark.parametrize("name", [f"{2:020}.json", f"{2:020}.checkpoint.parquet"])
def test_a_link_that_leads_nowhere_is_no_removed_file(tmp_path: Path, name: str) -> None:
    """A broken link in the log is an error.

    If the link were ignored, an older version would be taken for the newest.

    Tools for large files, such as git-annex, leave such links.
    """
    for _ in range(3):
        write_deltalake(str(tmp_path), pa.table({"a": [1]}), mode="append")
    DeltaTable(str(tmp_path)).create_checkpoint()
    (tmp_path / "_delta_log" / name).unlink()
    (tmp_path / "_delta_log" / name).symlink_to(tmp_path / "nowhere")
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    for read in (table.snapshot, table.current, table.snapshot_id):
        with pytest.raises(TableFormatError, match=re.escape(name)):
            read()


def test_folders_in_the_log_are_ignored(tmp_path: Path) -> None:
    commit(tmp_path, protocol(), metadata([field("a", "long")]), add_file(tmp_path, pa.table({"a": [1]})))
    (tmp_path / "_delta_log" / f"{7:020}.json").mkdir()
    (tmp_path / "_delta_log" / f"{9:020}.checkpoint.parquet").mkdir()
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    assert table.snapshot().id == table.snapshot_id() == "0"


@pytest.mark.parametrize("stats", ["null", "", "{", "none", "[]", "7", "NaN", "[" * 100_000, {"numRecords": 1}])
def test_rows_are_counted_in_the_file_without_statistics(tmp_path: Path, stats: Any) -> None:
    """If statistics are missing or invalid, the fragment has no row count and no bounds.

    Reading the file returns all rows, so they can be counted there.
    """
    add = add_file(tmp_path, pa.table({"a": [1, None, 3]}), "f.parquet")
    add["add"]["stats"] = stats
    commit(tmp_path, protocol(), metadata([field("a", "long")]), add)
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = table.snapshot()
    assert [fragment.row_count for fragment in snapshot.fragments] == [None]
    assert read_rows(snapshot) == [(1,), (None,), (3,)]
    assert table.bounds(snapshot, "a")["minimum_guarantee"].to_pylist() == ["absent"]


def test_truncated_statistics_give_only_a_leading_row_count(tmp_path: Path) -> None:
    """If statistics are truncated JSON, a row count at the beginning is used, and bounds are absent."""
    add = add_file(tmp_path, pa.table({"a": [1, 3]}), "f.parquet")
    add["add"]["stats"] = '{"numRecords":2,"minValues":{"a":'
    commit(tmp_path, protocol(), metadata([field("a", "long")]), add)
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = table.snapshot()
    assert [fragment.row_count for fragment in snapshot.fragments] == [2]
    assert table.bounds(snapshot, "a")["minimum_guarantee"].to_pylist() == ["absent"]


def test_checkpoints_of_old_java_libraries_are_read(tmp_path: Path) -> None:
    """A checkpoint whose maps have the form of old Java libraries is read, although pyarrow refuses it.

    The commits are removed, so files and rows come from the checkpoint alone.
    """
    for number in range(2):
        write_deltalake(str(tmp_path), pa.table({"a": [number]}), mode="append")
    DeltaTable(str(tmp_path)).create_checkpoint()
    log = tmp_path / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    pq.write_table(pq.read_table(checkpoint), checkpoint, store_schema=False)
    assert with_groups_of_hive(checkpoint)
    with pytest.raises(OSError, match=REFUSED):
        pq.ParquetFile(checkpoint)
    for commit_file in log.glob("0*.json"):
        commit_file.unlink()
    snapshot = _snapshot(tmp_path)
    assert sorted(read_rows(snapshot)) == [(0,), (1,)]
    assert [fragment.row_count for fragment in snapshot.fragments] == [1, 1]
