"""Differences computed from the commits between two versions equal comparisons of snapshots.

If the commits do not show the difference of two snapshots, it is unknown, and `changes` returns `NoDiff`.

A fragment is a data file and the deletes on it.

A difference is the fragments added and removed between two snapshots, which `changes` computes from metadata of
commits. A comparison computes them from the complete lists of fragments.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats import (
    MetadataCache,
    NoDiff,
    Snapshot,
    SnapshotDiff,
    SnapshotReference,
    TableFormat,
    open_table_format,
)
from metastore_assets.storage.location import Location
from tests.formats.delta.log_writer import add_file, commit, log_files, mapped, metadata, protocol, write_vector
from tests.formats.delta.log_writer import field as column
from tests.formats.test_contract import assert_is_difference
from tests.formats.test_metadata_cache import assert_same, plan

_REALTABLES = sorted((Path(__file__).parents[4] / "shared" / "realtables" / "delta").glob("*"))
Cached = Mapping[bytes, bytes]


def _open(config: TableConfig, cache_entries: Cached) -> tuple[TableFormat, MetadataCache]:
    cache = MetadataCache(lambda: cache_entries, ignore_process=True)
    return open_table_format(config, cache), cache


def _changes(
    config: TableConfig, cache_entries: Cached, since: SnapshotReference
) -> tuple[SnapshotDiff | NoDiff, Cached]:
    """Return the difference since a version, computed with cached metadata, and the new cache."""
    table, cache = _open(config, cache_entries)
    return table.changes(since), cache.entries


def _difference(config: TableConfig, cache_entries: Cached, before: Snapshot) -> tuple[SnapshotDiff, Cached]:
    """Return the difference since a snapshot, and the new content of the cache.

    The difference is checked against a comparison of the two snapshots.
    """
    diff, new_entries = _changes(config, cache_entries, before.reference)
    now, scratch = plan(config, {})
    assert isinstance(diff, SnapshotDiff), diff
    assert diff.since == before.reference
    assert diff.current.schema.equals(now.schema, check_metadata=True)
    for name in ("format", "id", "committed_at", "partition_columns", "derived"):
        assert getattr(diff.current, name) == getattr(now, name), name
    assert_is_difference(diff, before, now)
    assert new_entries.keys() == scratch.keys()
    return diff, new_entries


def _reason(config: TableConfig, cache_entries: Cached, before: Snapshot) -> str:
    diff, _ = _changes(config, cache_entries, before.reference)
    assert isinstance(diff, NoDiff)
    return diff.reason


def _config(folder: Path | str, **settings: Any) -> TableConfig:
    return TableConfig(name="t", uri=str(folder), **settings)


_STEPS = st.lists(
    st.sampled_from(
        ["append"] * 4
        + ["delete", "compact", "restore", "vacuum", "checkpoint", "clean", "evolve", "again", "plan", "plan", "plan"]
    ),
    min_size=1,
    max_size=12,
)


@given(steps=_STEPS)
@settings(max_examples=max(6, settings().max_examples // 20))
def test_differences_of_random_histories_equal_comparisons(steps: list[str]) -> None:
    """After random commits by deltalake, differences between snapshots equal comparisons of them.

    A difference is unknown (`NoDiff`) if the schema changed, commits were removed, or the table was recreated.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = _config(f"{folder}/t")
        _append(config.uri, 30)
        before, cache_entries = plan(config, {})
        is_recreated = False
        for number, step in enumerate([*steps, "plan"]):
            if step == "again":
                shutil.rmtree(config.uri)
                _append(config.uri, 2)
                is_recreated = True
            elif step != "plan":
                _apply(config.uri, step, number)
                continue
            now, scratch = plan(config, {})
            diff, new_entries = _changes(config, cache_entries, before.reference)
            commits = {int(path.stem) for path in log_files(Path(config.uri))}
            has_commits = commits >= set(range(int(before.id), int(now.id) + 1))
            if now.schema == before.schema and has_commits and not is_recreated:
                assert isinstance(diff, SnapshotDiff)
                assert_is_difference(diff, before, now)
                assert diff.current.reference == now.reference
                assert not diff.possibly_removed & {(one.partition_key, one.path) for one in before.fragments}
                before, cache_entries = now, new_entries
            else:
                assert isinstance(diff, NoDiff)
                before, cache_entries = now, scratch
            is_recreated = False


def _append(uri: str, count: int = 1, **more: Any) -> None:
    for _ in range(1 if count < 30 else 3):
        rows = pa.table({"id": range(count), "day": [str(number) for number in range(count)], **more})
        write_deltalake(uri, rows, mode="append", partition_by=["day"], schema_mode="merge")


def _apply(uri: str, step: str, number: int) -> None:
    table = DeltaTable(uri)
    if step == "append":
        _append(uri, 1 + number % 3)
    elif step == "delete":
        table.delete(f"day = '{number % 5}'")
    elif step == "compact":
        table.optimize.compact()
    elif step == "restore":
        with suppress(DeltaError):  # The version no longer exists.
            table.restore(max(0, table.version() - 2))
    elif step == "vacuum":
        table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    elif step == "checkpoint":
        table.create_checkpoint()
    elif step == "clean":
        table.create_checkpoint()
        for path in log_files(Path(uri)):
            if int(path.stem) < table.version():
                path.unlink()
    elif step == "evolve":
        _append(uri, 1, **{f"c{number}": [1]})


_FILES = st.integers(0, 5)
_COMMIT = st.fixed_dictionaries(
    {
        "add": st.sets(_FILES),
        "return": st.sets(_FILES),
        "vector": st.sets(_FILES),
        "again": st.sets(_FILES),
        "remove": st.sets(_FILES),
        "values": st.booleans() | st.just(True),
        "metadata": st.sampled_from([None] * 5 + ["a", "b"]),
        "upgrade": st.booleans(),
        "after": st.sampled_from([None] * 3 + ["plan"] * 3 + ["checkpoint", "forget", "compact"]),
    }
)


@dataclass
class _Model:
    """A log whose commits the test writes, and the live files that the log should have.

    Each file is identified by a number.
    """

    folder: Path
    live: dict[int, dict[str, Any]] = field(default_factory=dict)
    added: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The last action that added each file."""
    named: list[tuple[int, bool]] = field(default_factory=list)
    """For each action since the last plan, the number of its file, and whether it has partition values."""

    def commit(self, step: dict[str, Any]) -> None:
        """Write one commit.

        A change that is impossible is left out, such as the removal of a file that is not live. A second change of a
        file is left out, too.

        Args:
            step: The changes of the commit. `remove`, `vector`, `again`, `return` and `add` are sets of file numbers:
                `remove` removes live files, `vector` gives live files a deletion vector, and `again` adds live files
                again with other tags. `return` adds removed files again as they were, and `add` adds new versions of
                files that are not live. `values` says whether remove actions have partition values. `metadata` names
                the column of a new schema, or is None. `upgrade` says whether to write a protocol action.
        """
        actions = []
        if step["metadata"]:
            actions.append(_schema(step["metadata"]))
        if step["upgrade"]:
            actions.append(protocol("deletionVectors", "timestampNtz"))
        busy: set[int] = set()
        for kind in ("remove", "vector", "again", "return", "add"):
            for file in sorted(step[kind] - busy):
                before = self.live.get(file)
                if (before is None) != (kind in ("add", "return")) or (kind == "return" and file not in self.added):
                    continue
                busy.add(file)
                if before is not None and kind in ("remove", "vector"):
                    del self.live[file]
                    actions.append({"remove": _remove_action(before, step["values"])})
                    self.named.append((file, step["values"]))
                if kind != "remove":
                    self.live[file] = self.added[file] = self._added(kind, file)
                    actions.append({"add": self.live[file]})
                    self.named.append((file, True))
        commit(self.folder, *actions)

    def _added(self, kind: str, file: int) -> dict[str, Any]:
        """Return the content of the add action for a change of a file.

        Args:
            kind: `add` for a new version of the file, `return` for its last add action, `vector` for that action with a
                deletion vector, or `again` for that action with other tags.
            file: The number of the file.
        """
        number = int(log_files(self.folder)[-1].stem)
        if kind == "add":
            return _add_action(file, number)
        if kind == "return":
            return self.added[file]
        if kind == "vector":
            return self.added[file] | {"deletionVector": write_vector(self.folder, [number], "i")}
        return self.added[file] | {"tags": {"number": str(number)}, "dataChange": False}

    def fragments(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the size and row count of each live file by partition key and path."""
        return {
            (f"day={file % 2}", str(self.folder / unquote(add["path"]))): (
                add["size"],
                9 - ("deletionVector" in add),
            )
            for file, add in self.live.items()
        }


def _schema(name: str) -> dict[str, Any]:
    return metadata([column("day", "string"), column(name, "long")], ["day"], note=f"{name}")


def _add_action(file: int, number: int) -> dict[str, Any]:
    return {
        "path": f"day={file % 2}/f%20{file}",
        "partitionValues": {"day": str(file % 2)},
        "size": number,
        "modificationTime": number,
        "dataChange": True,
        "stats": '{"numRecords":9}',
    }


def _remove_action(add: dict[str, Any], with_values: bool) -> dict[str, Any]:
    names = ["path", "size", "deletionVector", *(["partitionValues"] if with_values else [])]
    copied_fields = {name: add[name] for name in names if name in add}
    return copied_fields | {"dataChange": True, "extendedFileMetadata": with_values, "deletionTimestamp": 1}


@given(st.lists(_COMMIT, min_size=1, max_size=12))
def test_differences_of_random_logs_equal_comparisons(steps: list[dict[str, Any]]) -> None:
    """Differences computed from the commits of a random log lead to the expected live files.

    Each difference is applied to the earlier files. Commits may be compacted into one log file, or removed after a
    checkpoint. A difference may be unknown (`NoDiff`) only if the schema changed, commits were removed, or a file is
    named only by remove actions without partition values.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commit(folder, protocol("deletionVectors"), _schema("a"))
        config, model = _config(folder), _Model(folder)
        before, cache_entries = plan(config, {})
        expected_fragments = model.fragments()
        for step in [*steps, steps[-1] | {"after": "plan"}]:
            model.commit(step)
            if step["after"] == "compact":
                _compact(folder, int(before.id))
            elif step["after"] in ("checkpoint", "forget"):
                with suppress(DeltaError):  # deltalake refuses a log whose commits are only in a compacted file.
                    DeltaTable(name).create_checkpoint()
                newest = log_files(folder)[-1]
                if step["after"] == "forget" and newest.with_suffix(".checkpoint.parquet").exists():
                    for commit_file in log_files(folder)[:-1]:
                        commit_file.unlink()
            if step["after"] != "plan":
                continue
            now, scratch = plan(config, {})
            diff, new_entries = _changes(config, cache_entries, before.reference)
            if isinstance(diff, SnapshotDiff):
                added_fragments = {(one.partition_key, one.path): (one.bytes, one.row_count) for one in diff.added}
                for path in diff.removed | diff.possibly_removed:
                    assert path not in added_fragments
                    expected_fragments.pop(path, None)
                assert expected_fragments | added_fragments == model.fragments()
                assert now.schema == before.schema
                assert diff.current.reference == now.reference
                if not any((folder / "_delta_log").glob("*.compacted.json")):
                    assert_is_difference(diff, before, now)
                assert new_entries.keys() == scratch.keys()
                cache_entries = new_entries
            else:
                without = {file for file, has_values in model.named if not has_values}
                without -= {file for file, has_values in model.named if has_values}
                is_log_incomplete = not set(range(int(before.id), int(now.id) + 1)) <= {
                    int(p.stem) for p in log_files(folder)
                }
                assert now.schema != before.schema or without or is_log_incomplete
                cache_entries = scratch
            before, expected_fragments = now, model.fragments()
            model.named.clear()


def _compact(folder: Path, since: int) -> None:
    """Replace the commits after version `since`, except the newest one, by one compacted file.

    Commits up to the last checkpoint also stay. Nothing happens if there are no commits to replace, if one of these
    commits is missing, or if they have no actions.
    """
    checkpoints = [int(path.name[:20]) for path in (folder / "_delta_log").glob("*.checkpoint.parquet")]
    replaced_files = [path for path in log_files(folder)[:-1] if int(path.stem) > max([since, *checkpoints])]
    versions = [int(path.stem) for path in replaced_files]
    if not versions or versions != list(range(versions[0], versions[-1] + 1)):
        return
    newest: dict[Any, dict[str, Any]] = {}
    for path in replaced_files:
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        # A file may be removed with one vector and added with another.
        for action in sorted(actions, key=lambda action: "add" in action):
            for kind, content in action.items():
                if kind in ("protocol", "metaData"):
                    newest[kind] = action
                elif kind in ("add", "remove"):
                    newest[content["path"], json.dumps(content.get("deletionVector"))] = action
    if not newest:
        return  # A file of zero bytes is one that an interrupted writer left behind: readers ignore it.
    name = f"{versions[0]:020}.{versions[-1]:020}.compacted.json"
    (folder / "_delta_log" / name).write_text("\n".join(map(json.dumps, newest.values())))
    for path in replaced_files:
        path.unlink()


def _table(folder: Path, count: int = 3) -> TableConfig:
    """Write a table with one file per commit, in the partitions 0 and 1.

    Return its configuration.
    """
    commit(folder, protocol("deletionVectors"), _schema("a"))
    for number in range(count):
        commit(folder, {"add": _add_action(number, number)})
    return _config(folder)


def test_only_the_commits_since_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference reads only the commits since the earlier version, and no checkpoint.

    The cache then has the current version in place of the earlier one, so that `current` reads no file.
    """
    config = _table(tmp_path, 30)
    before, cache_entries = plan(config, {})
    commit(tmp_path, {"add": _add_action(30, 30)})
    DeltaTable(str(tmp_path)).create_checkpoint()
    commit(tmp_path, {"remove": _remove_action(_add_action(3, 3), True)}, {"add": _add_action(31, 31)})
    opened_paths: list[str] = []
    for name in ("read", "open"):
        original = getattr(Location, name)

        def noted(self: Location, path: str, original: Any = original) -> Any:
            opened_paths.append(path)
            return original(self, path)

        monkeypatch.setattr(Location, name, noted)
    diff, new_entries = _changes(config, cache_entries, before.reference)
    assert isinstance(diff, SnapshotDiff)
    assert opened_paths == [f"_delta_log/{number:020}.json" for number in (32, 31, 32)]
    assert len(diff.added) == 2
    assert diff.removed == {("day=1", str(tmp_path / "day=1" / "f 3"))}
    assert len(new_entries) == len(cache_entries) == 2
    assert len(new_entries.keys() & cache_entries.keys()) == 1, "only the newest commit is cached under the same key"
    opened_paths.clear()
    table, _ = _open(config, new_entries)
    assert table.current() == diff.current.reference
    assert table.snapshot_id() == diff.current.id
    assert opened_paths == []


def test_an_unchanged_table_has_an_empty_difference(tmp_path: Path) -> None:
    """Without a commit since the earlier version, a difference has no added and no removed fragments."""
    config = _table(tmp_path)
    before, cache_entries = plan(config, {})
    diff, _ = _difference(config, cache_entries, before)
    assert (diff.added, diff.removed, diff.possibly_removed) == ((), frozenset(), frozenset())


def test_a_second_attempt_has_the_same_difference(tmp_path: Path) -> None:
    """If changes are computed twice with one cache, the results and the cache entries are the same.

    Later changes can be computed since the snapshot in the result.
    """
    config = _table(tmp_path)
    before, cache_entries = plan(config, {})
    commit(tmp_path, {"add": _add_action(9, 9)})
    table, cache = _open(config, cache_entries)
    first = table.changes(before.reference)
    entries = dict(cache.entries)
    assert table.changes(before.reference) == first
    assert cache.entries == entries
    assert isinstance(first, SnapshotDiff)
    commit(tmp_path, {"add": _add_action(10, 10)})
    second = table.changes(first.current.reference)
    assert isinstance(second, SnapshotDiff)
    assert [Path(fragment.path).name for fragment in second.added] == ["f 10"]


def test_a_file_that_was_added_again_and_removed_is_possibly_removed(tmp_path: Path) -> None:
    """A file that commits add and then remove is only possibly removed.

    The commits do not show whether the earlier version had the file: a writer may have added it again to change its
    statistics. A file that commits only remove is certainly removed.
    """
    config = _table(tmp_path, 2)
    before, cache_entries = plan(config, {})
    for number in (1, 7):
        commit(tmp_path, {"add": _add_action(number, number)})
        commit(tmp_path, {"remove": _remove_action(_add_action(number, number), True)})
    commit(tmp_path, {"remove": _remove_action(_add_action(0, 0), True)})
    diff, _ = _difference(config, cache_entries, before)
    assert diff.removed == {("day=0", str(tmp_path / "day=0" / "f 0"))}
    assert diff.possibly_removed == {("day=1", str(tmp_path / "day=1" / f"f {number}")) for number in (1, 7)}


def test_what_a_compacted_file_removes_is_possibly_removed(tmp_path: Path) -> None:
    """Data files that a compacted log file removes are only possibly removed.

    A compacted log file does not show whether the same commits also added the data file. A compacted log file that
    begins at the earlier version is not used.
    """
    config = _table(tmp_path, 2)
    before, cache_entries = plan(config, {})
    for actions in (
        [{"add": _add_action(5, 5)}],
        [{"remove": _remove_action(_add_action(number, number), True)} for number in (1, 5)],
        [],
    ):
        commit(tmp_path, *actions)
    commits = {path: path.read_bytes() for path in log_files(tmp_path)[-3:-1]}
    _compact(tmp_path, 2)
    diff, _ = _difference(config, cache_entries, before)
    assert diff.removed == frozenset()
    assert diff.possibly_removed == {("day=1", str(tmp_path / "day=1" / f"f {number}")) for number in (1, 5)}
    (compacted_log,) = (tmp_path / "_delta_log").glob("*.compacted.json")
    compacted_log.rename(compacted_log.with_name(f"{2:020}.{4:020}.compacted.json"))
    assert re.search(r"\blog\b.*\b2\b.*\b5$", _reason(config, cache_entries, before))
    for path, data in commits.items():
        path.write_bytes(data)
    diff, _ = _difference(config, cache_entries, before)
    assert diff.removed == {("day=1", str(tmp_path / "day=1" / "f 1"))}


@pytest.mark.parametrize("values", [None, {}, {"other": "1"}, {"day": 1}, ["day"]])
def test_the_partition_of_a_removed_file_comes_from_its_add_action(tmp_path: Path, values: Any) -> None:
    """If a remove action lacks partition values, those of the file's add action are used.

    The file must have been added after the earlier snapshot. If it is older, the difference is unknown, whether the
    partition values of the remove action are missing or invalid.
    """
    config = _table(tmp_path, 2)
    before, cache_entries = plan(config, {})
    remove_fields = _remove_action(_add_action(5, 5), False) | {"partitionValues": values}
    commit(tmp_path, {"add": _add_action(5, 5)})
    commit(tmp_path, {"remove": remove_fields})
    if not values:
        diff, _ = _difference(config, cache_entries, before)
        assert diff.possibly_removed == {("day=1", str(tmp_path / "day=1" / "f 5"))}
    before, cache_entries = plan(config, {})
    commit(tmp_path, {"remove": remove_fields | {"path": "day=0/f%200"}})
    assert re.search(rf"\b{before.id}\b.*\bpartition\b", _reason(config, cache_entries, before))


def test_an_unpartitioned_table_needs_no_partition_values(tmp_path: Path) -> None:
    config = _config(tmp_path)
    commit(tmp_path, protocol(), metadata([column("a", "long")]), {"add": _add_action(0, 0) | {"partitionValues": {}}})
    before, cache_entries = plan(config, {})
    commit(tmp_path, {"remove": _remove_action(_add_action(0, 0), False)})
    diff, _ = _difference(config, cache_entries, before)
    assert diff.removed == {("all", str(tmp_path / "day=0" / "f 0"))}


def test_only_some_changes_of_metadata_change_fragments(tmp_path: Path) -> None:
    """Changes of properties, nullability and comments leave all fragments unchanged.

    After a change of the schema, the partition columns or the column mapping, the difference is unknown.
    """
    fields = [column("day", "string"), column("a", "long"), column("b", "integer")]
    mapped_fields = [mapped("day", "string", 1, "day"), mapped("a", "long", 2, "a"), mapped("b", "integer", 3, "b")]
    renamed_fields = [*mapped_fields[:2], mapped("c", "integer", 3, "b")]
    commit(tmp_path, protocol("columnMapping"), metadata(fields, ["day"]), {"add": _add_action(0, 0)})
    config = _config(tmp_path)
    mode = "delta.columnMapping.mode"
    not_null = [*fields[:2], fields[2] | {"nullable": False}]
    commented_fields = [*fields[:2], column("b", "integer", comment="text")]
    for action, reason in (
        (metadata(fields, ["day"], note="x"), None),
        (metadata(not_null, ["day"]), None),
        (metadata(commented_fields, ["day"]), None),
        (metadata([*fields, column("c", "long")], ["day"]), "the schema changed since version 6"),
        (metadata(fields[::-1], ["day"]), "the schema"),
        (metadata([*fields[:2], column("b", "long")], ["day"]), "the schema"),
        (metadata(fields, []), "the partition columns"),
        (metadata(fields, ["day"]), "the partition columns"),
        (metadata(mapped_fields, ["day"], **{mode: "name"}), "the column mapping"),
        (metadata(renamed_fields, ["day"], **{mode: "name"}), "the schema"),
        (metadata(renamed_fields, ["day"], **{mode: "id"}), "the column mapping"),
    ):
        before, cache_entries = plan(config, {})
        commit(tmp_path, action)
        commit(tmp_path)
        if reason is None:
            _difference(config, cache_entries, before)
        else:
            assert _reason(config, cache_entries, before).startswith(reason), (
                action,
                _reason(config, cache_entries, before),
            )


def test_an_upgrade_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """If a commit requires an unknown table feature, an error names the feature.

    The error also occurs after further commits. A commit that requires only supported features gives a difference.
    """
    config = _table(tmp_path)
    before, cache_entries = plan(config, {})
    commit(tmp_path, protocol("deletionVectors", "v2Checkpoint"))
    diff, cache_entries = _difference(config, cache_entries, before)
    commit(tmp_path, protocol("unheardOf"))
    with pytest.raises(TableFormatError, match="unheardOf"):
        _changes(config, cache_entries, diff.current.reference)
    commit(tmp_path, {"add": _add_action(4, 4)})
    with pytest.raises(TableFormatError, match="unheardOf"):
        _changes(config, cache_entries, diff.current.reference)


def test_a_recreated_table_has_no_difference(tmp_path: Path) -> None:
    """The difference is unknown after a table was deleted and written again.

    The new table has the same number of commits, more or fewer. Without a new table, there is an error.
    """
    folder = tmp_path / "t"
    config = _table(folder)
    before, cache_entries = plan(config, {})
    shutil.rmtree(folder)
    assert_same(plan(_table(folder), cache_entries)[0], before)
    assert re.search(r"\brecreated\b.*\b3$", _reason(config, cache_entries, before))
    commit(folder, {"add": _add_action(8, 8)})
    assert re.search(r"\brecreated\b.*\b3$", _reason(config, cache_entries, before))
    shutil.rmtree(folder)
    _table(folder, 1)
    assert re.search(r"\b1\b.*\bolder\b.*\b3$", _reason(config, cache_entries, before))
    shutil.rmtree(folder)
    with pytest.raises(TableNotFoundError):
        _changes(config.model_copy(update={"format": "delta"}), cache_entries, before.reference)


def test_a_replaced_commit_of_the_same_version_has_no_difference(tmp_path: Path) -> None:
    """The difference is unknown if the version is the same, but its commit time differs.

    The table was then recreated. The difference is also unknown for a snapshot id that is no version number.
    """
    config = _table(tmp_path)
    _, cache_entries = plan(config, {})
    diff, _ = _changes(config, cache_entries, SnapshotReference("3", None))
    assert isinstance(diff, NoDiff)
    assert re.search(r"\brecreated\b.*\b3$", diff.reason)
    for id_ in ("main", "²", ""):
        diff, _ = _changes(config, cache_entries, SnapshotReference(id_, None))
        assert isinstance(diff, NoDiff)


def test_removed_commits_prevent_a_difference(tmp_path: Path) -> None:
    """The difference is unknown if the commit of the earlier version or a later commit was removed.

    It is also unknown without cached metadata of the earlier version.
    """
    config = _table(tmp_path)
    before, cache_entries = plan(config, {})
    commit(tmp_path, {"add": _add_action(4, 4)})
    commit(tmp_path, {"add": _add_action(5, 5)})
    assert re.search(r"\b3\b.*\bcached\b", _reason(config, {}, before))
    DeltaTable(str(tmp_path)).create_checkpoint()
    *_, third, fourth, _ = log_files(tmp_path)
    data = fourth.read_bytes()
    fourth.unlink()
    assert re.search(r"\blog\b.*\b3\b.*\b5$", _reason(config, cache_entries, before))
    fourth.write_bytes(data)
    _difference(config, cache_entries, before)
    third.unlink()
    assert re.search(r"\blog\b.*\b3$", _reason(config, cache_entries, before))


def test_differences_have_only_selected_partitions(tmp_path: Path) -> None:
    """A difference has only files of the partitions that are selected by pattern or by condition.

    If the selection changes, the difference is unknown.
    """
    _table(tmp_path, 4)
    selections: Sequence[Any] = ({"day": "1"}, "day in ('1', 'x')", {})
    plans = [plan(_config(tmp_path, partitions=selection), {}) for selection in selections]
    commit(tmp_path, {"add": _add_action(4, 4)}, {"remove": _remove_action(_add_action(0, 0), True)})
    commit(tmp_path, {"add": _add_action(5, 5)}, {"remove": _remove_action(_add_action(1, 1), True)})
    for selection, (before, cache_entries) in zip(selections, plans, strict=True):
        diff, _ = _difference(_config(tmp_path, partitions=selection), cache_entries, before)
        assert len(diff.added) == len(diff.removed) == (1 if selection else 2)
        for other in selections:
            if other != selection:
                reason = _reason(_config(tmp_path, partitions=other), cache_entries, before)
                assert re.search(r"\bpartitions\b.*\b4$", reason)


def test_removed_files_have_mapped_paths(tmp_path: Path) -> None:
    """Removed files in a difference have the paths that the path mapping gives.

    If the mapping changes, the difference is unknown.
    """
    config = _config(tmp_path / "t", path_mapping={"/old": str(tmp_path / "new")})
    adds = [_add_action(number, number) | {"path": f"/old/f%20{number}"} for number in range(2)]
    commit(tmp_path / "t", protocol(), _schema("a"), *({"add": add} for add in adds))
    before, cache_entries = plan(config, {})
    commit(tmp_path / "t", {"remove": _remove_action(adds[0], True) | {"path": "file:///old/f%200"}})
    diff, _ = _difference(config, cache_entries, before)
    assert diff.removed == {("day=0", str(tmp_path / "new" / "f 0"))}
    assert "locations" in _reason(_config(tmp_path / "t"), cache_entries, before)


def test_only_later_versions_have_a_difference(tmp_path: Path) -> None:
    """If the option `at` moves to an earlier version, the difference is unknown (`NoDiff`)."""
    _table(tmp_path, 4)
    at = {version: _config(tmp_path, at=str(version)) for version in range(5)}
    newest = _config(tmp_path)
    before, cache_entries = plan(at[1], {})
    diff, cache_entries = _difference(at[3], cache_entries, before)
    assert len(diff.added) == 2
    before, cache_entries = plan(at[3], cache_entries)
    _difference(newest, cache_entries, before)
    assert re.search(r"\b2\b.*\bolder\b.*\b3$", _reason(at[2], cache_entries, before))
    _difference(at[3], cache_entries, before)


def test_nothing_of_the_rows_is_cached(tmp_path: Path) -> None:
    """Defaults and constraints in a table's metadata may contain values of rows, so they are not cached."""
    fields = [column("day", "string"), column("a", "long", CURRENT_DEFAULT="4711")]
    action = metadata(fields, ["day"], **{"delta.constraints.c": "a <> 4711"})
    commit(tmp_path, protocol(), action)
    config = _config(tmp_path)
    before, cache_entries = plan(config, {})
    commit(tmp_path, action)
    diff, new_entries = _difference(config, cache_entries, before)
    for entries in (cache_entries, new_entries):
        table, cache = _open(config, entries)
        head = table._heads.get(int(diff.current.id if entries is new_entries else before.id))  # type: ignore[attr-defined]
        assert head is not None
        assert "4711" not in repr(head)
        assert len(cache.entries) == 1


def test_the_error_names_a_broken_commit(tmp_path: Path) -> None:
    config = _table(tmp_path)
    before, cache_entries = plan(config, {})
    commit(tmp_path)
    log_files(tmp_path)[-1].write_text("{")
    with pytest.raises(TableFormatError, match=r"4\.json"):
        _changes(config, cache_entries, before.reference)


def test_a_deletion_vector_replaces_the_fragment(tmp_path: Path) -> None:
    """If a file gets a new deletion vector, the difference has an added fragment and no removed one.

    The added fragment replaces the earlier one, which has the same path.
    """
    commit(tmp_path, protocol("deletionVectors"), metadata([column("a", "long")]))
    add = add_file(tmp_path, pa.table({"a": range(9)}))
    commit(tmp_path, add)
    config = _config(tmp_path)
    before, cache_entries = plan(config, {})
    for positions in ([1], [1, 2]):
        new = {"add": add["add"] | {"deletionVector": write_vector(tmp_path, positions, "u")}}
        commit(tmp_path, new, {"remove": _remove_action(add["add"], True)})
        add = new
        diff, _ = _difference(config, cache_entries, before)
        assert [fragment.row_count for fragment in diff.added] == [9 - len(positions)]
        assert diff.removed == diff.possibly_removed == frozenset()


@pytest.mark.parametrize("table", _REALTABLES or [None], ids=lambda table: table.name if table else "none")
def test_differences_of_real_tables_equal_comparisons(table: Path, realtables: Path) -> None:
    """Differences between versions of real tables equal comparisons of their snapshots.

    Many engines wrote the tables. Each version is the earlier one of two differences: to the next version, and to the
    newest. A difference may be unknown (`NoDiff`) only if the schema, the column mapping or the partition columns
    changed.
    """
    assert table.parent == realtables / "delta"
    versions = [int(path.stem) for path in log_files(table)]
    snapshots: dict[int, tuple[Snapshot, Cached]] = {}
    for version in versions:
        with suppress(TableFormatError):  # The log of this version has no checkpoint to start from.
            snapshots[version] = plan(_config(table, at=str(version)), {})
    for version in snapshots:
        before, cache_entries = snapshots[version]
        for newer in {version + 1, max(snapshots)} & snapshots.keys() - {version}:
            now, _ = snapshots[newer]
            diff, _ = _changes(_config(table, at=str(newer)), cache_entries, before.reference)
            if isinstance(diff, SnapshotDiff):
                assert_is_difference(diff, before, now)
                assert diff.current.reference == now.reference
            elif "schema" in diff.reason or "mapping" in diff.reason:
                assert not now.schema.equals(before.schema, check_metadata=True)
            else:
                assert re.search(rf"\bpartition columns\b.*\b{version}$", diff.reason)
                assert now.partition_columns != before.partition_columns
