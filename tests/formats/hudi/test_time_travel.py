"""Earlier states of Hudi tables are read by instant and by time, and unavailable states are refused.

A state is the content of the table after one instant, and the option `at` selects it. A fragment is a file slice: a
base file and its log files.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import SnapshotNotFoundError, TableFormatError
from metastore_assets.formats import MetadataCache, NoDiff, Snapshot, open_table_format
from tests.formats.hudi.random_histories import History
from tests.formats.hudi.writer import HudiWriter
from tests.formats.oracle import read_rows

_A = {"key": "a", "ts": 1, "value": 1.0}
_B = {"key": "b", "ts": 1, "value": 2.0}


def _open(folder: Path, at: str | None = None) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(folder), at=at)).snapshot()


def _rows(snapshot: Snapshot) -> list[tuple[Any, ...]]:
    return sorted(read_rows(snapshot), key=repr)


def _moment(instant: str) -> datetime:
    return datetime.strptime(f"{instant}000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)


@pytest.fixture(params=[6, 9], ids=["v6", "v9"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    """A history of three writes: a file group, a log file of this group, and another file group."""
    result = History(HudiWriter(tmp_path / "t", request.param))
    result.insert("x", [_A, _B])
    result.upsert(result.slices()[0], [_A | {"ts": 2, "value": 7.0}], {"b": 2}, 3)
    result.insert("y", [_B])
    return result


def test_a_state_is_selected_by_instant_or_time(history: History) -> None:
    """A state is selected by its instant, or by any instant before the next one.

    It is also selected by any time after its commit and before the next commit. With the same option `at`, `current`
    returns the reference of this state.
    """
    folder = history.writer.folder
    for instant, rows in history.states.items():
        # Layout 2 records the completion time of a write, one second after its start.
        visible = _moment(instant) + timedelta(seconds=history.writer.version >= 8)
        moment = visible + timedelta(milliseconds=500)
        elsewhere = moment.astimezone(timezone(timedelta(hours=5)))
        for at in (instant, f"{instant[:14]}999", moment.isoformat(), elsewhere.isoformat()):
            snapshot = _open(folder, at)
            assert _rows(snapshot) == rows
            assert snapshot.id == instant
            table = open_table_format(TableConfig(name="t", uri=str(folder), at=at))
            assert table.current() == snapshot.reference
        assert _open(folder, instant).committed_at == visible
    assert _open(folder).id == max(history.states)


@pytest.mark.parametrize("at", ["20230101000000000", "2023-12-31", "yesterday", "0", "x~1"])
def test_an_unknown_state_is_an_error(history: History, at: str) -> None:
    """If `at` is before the first instant, or no instant or time, the error names the first instant."""
    table = open_table_format(TableConfig(name="t", uri=str(history.writer.folder), at=at))
    for call in (table.snapshot, table.snapshot_id, table.current):
        with pytest.raises(SnapshotNotFoundError, match=next(iter(history.states))):
            call()


def test_a_state_with_a_pending_write_has_its_own_name(history: History) -> None:
    """If a write is pending, the snapshot's id also has the instant of this write.

    After the write has completed, this id selects the same rows.
    """
    writer = history.writer
    late = writer.tick()
    one = writer.new_slice("z", late)
    writer.request(late, "deltacommit")
    stat = writer.base_file(one, late, [{"key": "late", "part": "z", "ts": 1}])
    history.insert("y", [_A])
    newest = max(history.states)
    before = _open(writer.folder)
    assert before.id == f"{newest}~{late}"
    assert _rows(before) == history.rows()
    writer.complete(late, "deltacommit", [stat])
    after = _open(writer.folder)
    assert after.id == newest
    assert _rows(after) == sorted([*history.rows(), ("late", "z", 1, None)], key=repr)
    assert _rows(_open(writer.folder, before.id)) == _rows(before)


def _archive(history: History, count: int) -> None:
    """Archive the oldest writes: remove their timeline files, and leave their data files."""
    writer = history.writer
    oldest = sorted(history.states)[:count]
    completions = {}
    for path in list(writer.timeline.iterdir()):
        if path.name[:17] in oldest:
            completions.setdefault(path.name[:17], path.name[:17])
            if "_" in path.name:
                completions[path.name[:17]] = path.name.split("_")[1].split(".")[0]
            path.unlink()
    if writer.version >= 8:
        folder = writer.timeline / "history"
        table = pa.table({"instantTime": list(completions), "completionTime": list(completions.values())})
        pq.write_table(table, folder / "1_2_0.parquet")
        (folder / "manifest_3").write_text(json.dumps({"files": [{"fileName": "1_2_0.parquet", "fileLen": 9}]}))
        (folder / "_version_").write_text("3")


def test_archived_states_cannot_be_opened_but_their_files_are_read(history: History) -> None:
    _archive(history, 2)
    folder = history.writer.folder
    assert _rows(_open(folder)) == history.rows()
    with pytest.raises(SnapshotNotFoundError, match=max(history.states)):
        _open(folder, sorted(history.states)[1])


@pytest.mark.parametrize("missing", ["", "manifest_3", "1_2_0.parquet"])
def test_archived_writes_completed_after_a_compaction_apply(tmp_path: Path, missing: str) -> None:
    """A log file whose write completed after a compaction was planned applies to the compacted file.

    The write began before the plan, so only the archive shows this. If a file of the archive is missing, the state is
    refused, so that no rows are missed.
    """
    history = History(HudiWriter(tmp_path / "t", 9))
    history.insert("x", [_A, _B])
    writer, one = history.writer, history.slices()[0]
    write_instant = writer.tick()
    writer.request(write_instant, "deltacommit")
    stat = writer.log_file(one, write_instant, [_A | {"part": "x", "ts": 9, "value": 9.0}])
    history.plan_compaction(one)
    one.changes.append(("a", _A | {"part": "x", "ts": 9, "value": 9.0}, 9))
    writer.complete(write_instant, "deltacommit", [stat])
    history.states[write_instant] = []
    history.compact(one)
    history.insert("y", [_B])
    assert _rows(_open(writer.folder)) == history.rows()
    assert ("a", "x", 9, 9.0) in history.rows()
    _archive(history, 2)
    if missing:
        (writer.timeline / "history" / missing).unlink()
        with pytest.raises(TableFormatError, match=missing):
            _open(writer.folder)
    else:
        assert _rows(_open(writer.folder)) == history.rows()


def test_states_with_cleaned_files_are_refused(history: History) -> None:
    """States before a compaction are refused once their files are removed, and later states are read."""
    writer = history.writer
    one = history.slices()[0]
    history.plan_compaction(one)
    history.compact(one)
    history.insert("y", [_A])
    first, second, third, fourth = sorted(history.states)
    compacted_rows = history.rows()
    for path in (writer.folder / "part=x").iterdir():
        if path.name != one.base_name and one.file_id in path.name:
            path.unlink()
    for instant in (first, second, third):
        with pytest.raises(SnapshotNotFoundError, match=instant):
            _open(writer.folder, instant)
    assert _rows(_open(writer.folder, fourth)) == _rows(_open(writer.folder)) == compacted_rows
    # If the clean is archived, the previous commits named by later writes show that files are missing.
    _archive(history, 2)
    with pytest.raises(SnapshotNotFoundError, match=one.file_id):
        _open(writer.folder, third)
    assert _rows(_open(writer.folder)) == compacted_rows


def test_states_with_cleaned_files_of_a_replaced_group_are_refused(history: History) -> None:
    """The state before an overwrite is refused once the files that it replaced are removed.

    The state after the overwrite is read.
    """
    writer = history.writer
    one = history.slices()[0]
    history.replace("x", [_B])
    _archive(history, 2)
    third, fourth = sorted(history.states)[2:]
    for path in (writer.folder / "part=x").iterdir():
        if one.file_id in path.name:
            path.unlink()
    with pytest.raises(SnapshotNotFoundError, match=one.file_id):
        _open(writer.folder, third)
    assert _rows(_open(writer.folder, fourth)) == history.rows()


def test_concurrent_log_files_are_merged_by_ordering_values(tmp_path: Path) -> None:
    """Log files of two concurrent writes that change one record are merged by ordering values.

    If the table merges by commit time, the result would depend on the order of the writes, so it is refused.
    """
    for by_commit in (False, True):
        history = History(HudiWriter(tmp_path / str(by_commit), 9, by_commit=by_commit))
        history.insert("x", [_A])
        writer, one = history.writer, history.slices()[0]
        early, late = writer.tick(), writer.tick()
        stats = [writer.log_file(one, at, [_A | {"part": "x", "ts": 5 + (at == early)}]) for at in (early, late)]
        writer.complete(late, "deltacommit", stats[1:])
        writer.complete(early, "deltacommit", stats[:1])
        if by_commit:
            with pytest.raises(TableFormatError, match=r"\bconcurrent\b"):
                _open(writer.folder)
        else:
            assert _rows(_open(writer.folder)) == [("a", "x", 6, 1.0)]


def test_writes_after_a_retained_savepoint_are_complete(tmp_path: Path) -> None:
    """The newest state has all rows if a savepoint remains on the timeline and a later write is archived."""
    history = History(HudiWriter(tmp_path / "t", 6))
    for part in ("x", "y", "z"):
        history.insert(part, [_A])
    first, second, _ = sorted(history.states)
    (history.writer.timeline / f"{first}.savepoint").write_bytes(b"")
    for path in list(history.writer.timeline.glob(f"{second}.*")):
        path.unlink()
    assert _rows(_open(history.writer.folder)) == history.rows()


@pytest.mark.parametrize("version", [6, 9])
def test_the_state_of_a_savepoint_lacks_archived_writes_after_it(tmp_path: Path, version: int) -> None:
    """The state of a savepoint lacks the rows of a later write, even if this write is archived.

    The newest state has these rows. The state of the archived write cannot be opened. The difference from the newest
    state back to the savepoint is unknown.
    """
    history = History(HudiWriter(tmp_path / "t", version))
    for part in ("x", "y", "z"):
        history.insert(part, [_A])
    writer, (first, second, third) = history.writer, sorted(history.states)
    completion_suffix = "" if version < 8 else f"_{writer.tick()}"
    (writer.timeline / f"{first}{completion_suffix}.savepoint").write_bytes(b"")
    for path in list(writer.timeline.glob(f"{second}*")):
        path.unlink()
    cache = MetadataCache(ignore_process=True)
    newest = open_table_format(TableConfig(name="t", uri=str(writer.folder)), cache).snapshot()
    assert _rows(newest) == history.states[third]
    assert _rows(_open(writer.folder, first)) == history.states[first]
    with pytest.raises(SnapshotNotFoundError, match=second):
        _open(writer.folder, second)
    cache_entries = cache.entries
    cache = MetadataCache(lambda: cache_entries, ignore_process=True)
    at_savepoint = open_table_format(TableConfig(name="t", uri=str(writer.folder), at=first), cache)
    assert isinstance(at_savepoint.changes(newest.reference), NoDiff)


@pytest.mark.parametrize("version", [6, 9])
def test_a_time_between_a_savepoint_and_the_timeline_is_refused(tmp_path: Path, version: int) -> None:
    """A time between a savepoint and the next instant is refused if writes are archived.

    The archived writes may lie between the two, and the state of the savepoint would lack their rows.
    """
    history = History(HudiWriter(tmp_path / "t", version))
    for part in ("x", "y", "z"):
        history.insert(part, [_A])
    writer, (first, second, third) = history.writer, sorted(history.states)
    folder = writer.folder
    before_second, before_third = (str(_moment(instant) - timedelta(seconds=0.1)) for instant in (second, third))
    completion_suffix = "" if version < 8 else f"_{writer.tick()}"
    (writer.timeline / f"{first}{completion_suffix}.savepoint").write_bytes(b"")
    assert _rows(_open(folder, before_second)) == history.states[first]  # Nothing is archived.
    for path in list(writer.timeline.glob(f"{second}*")):
        path.unlink()
    archive = folder / ".hoodie" / ("archived" if version < 8 else "timeline/history")
    (archive / "archived_file").write_bytes(b"")
    with pytest.raises(SnapshotNotFoundError, match=rf"savepoint.*{first}.*{third}"):
        _open(folder, before_third)
    assert _rows(_open(folder, first)) == history.states[first]
    assert _rows(_open(folder, "2030-01-01")) == history.states[third]


def test_states_survive_a_copy(history: History, tmp_path: Path) -> None:
    """A copy of a table, with other modification times, has the same states and fragment ids."""
    shutil.copytree(history.writer.folder, tmp_path / "copy", copy_function=shutil.copyfile)
    for instant, rows in history.states.items():
        copy = _open(tmp_path / "copy", instant)
        assert _rows(copy) == rows
        assert [one.id for one in copy.fragments] == [one.id for one in _open(history.writer.folder, instant).fragments]
