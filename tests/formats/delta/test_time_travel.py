"""Earlier versions of Delta tables are read by version and by time.

The option `at` is a version or a time.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, SnapshotNotFoundError
from metastore_assets.formats import TableFormat, open_table_format
from metastore_assets.formats.delta.commit_times import CommitTimes
from metastore_assets.formats.delta.log import Log
from metastore_assets.formats.metadata_cache import MetadataCache
from metastore_assets.storage.location import Location
from tests.formats.delta.log_writer import add_file, commit, delete_rows, field, metadata, protocol
from tests.formats.oracle import read_columns

_FOLDER = Path(__file__).parents[4] / "shared" / "realtables"
_TRUTHS = sorted((_FOLDER / "truth").glob("delta__*.json"))


def _table(folder: Path, at: str | None) -> TableFormat:
    return open_table_format(TableConfig(name="t", uri=str(folder), at=at))


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _log_commit(folder: Path, version: int, **info: int) -> Path:
    """Write a commit of a version, which adds a file of one row.

    Return its path.

    `info` has the times in its commit information. If there are none, the commit has no such information.
    """
    path = folder / "_delta_log" / f"{version:020}.json"
    path.parent.mkdir(exist_ok=True)
    actions = [{"commitInfo": info}] if info else []
    actions += [protocol(), metadata([field("a", "long")])] if version == 0 else []
    actions.append(add_file(folder, pa.table({"a": [version]}), f"{version}.parquet"))
    path.write_text("\n".join(map(json.dumps, actions)))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with the versions 0 to 3, committed 10, 20, 30 and 40 seconds after 1970-01-01.

    Each version has one more row.
    """
    for version in range(4):
        _log_commit(tmp_path, version, timestamp=10_000 * (version + 1))
    return tmp_path


def test_an_earlier_version_is_read_unchanged(table: Path) -> None:
    """Earlier versions keep their rows, ids and commit times after later commits.

    The later commits delete a row by deletion vector and change the schema.
    """
    delete_rows(table, "1.parquet", [0])
    commit(table, metadata([field("b", "long")]))
    for version in range(4):
        snapshot = _table(table, str(version)).snapshot()
        assert sorted(read_columns(snapshot)["a"]) == list(range(version + 1))
        assert (snapshot.id, snapshot.committed_at) == (str(version), _time(10_000 * (version + 1)))
        assert _table(table, str(version)).snapshot_id() == str(version)
        assert _table(table, str(version)).current() == snapshot.reference
    assert sorted(read_columns(_table(table, "4").snapshot())["a"]) == [0, 2, 3]
    assert _table(table, "5").snapshot().schema.names == ["b"]


@pytest.mark.parametrize(
    ("at", "version"),
    [
        ("1970-01-01T00:00:10", "0"),
        ("1970-01-01T00:00:10+00:00", "0"),
        ("1970-01-01T01:00:29.999999+01:00", "1"),
        ("1970-01-01 00:00:30Z", "2"),
        ("1970-01-02", "3"),
        ("2999-01-01", "3"),
    ],
)
def test_a_time_means_the_newest_version_committed_up_to_it(table: Path, at: str, version: str) -> None:
    """A time selects the newest version that was committed at or before this time.

    A time without a zone is in UTC. A time after all commits selects the newest version.
    """
    assert (
        _table(table, at).snapshot_id() == _table(table, at).snapshot().id == _table(table, at).current().id == version
    )


@pytest.mark.parametrize(
    "at", ["4", "-1", "main", "1.5", "1970-01-01T00:00:09.999999", "²", "", "9999-12-31T23:30-01:00"]
)
def test_the_error_for_an_unknown_version_lists_the_existing_ones(table: Path, at: str) -> None:
    """The error for a version that does not exist lists the existing versions.

    If `at` is a time before all commits, the error has the earliest commit time instead.
    """
    available = "1970-01-01T00:00:10" if at.startswith("1970") else "0, 1, 2, 3"
    for ask in (_table(table, at).snapshot_id, _table(table, at).current, _table(table, at).snapshot):
        with pytest.raises(SnapshotNotFoundError, match=available):
            ask()


def test_versions_that_were_cleaned_up_are_reported(table: Path) -> None:
    """The error for a version that was cleaned up names the versions that exist.

    The log has a checkpoint of version 2 and no earlier commits, so versions 2 and 3 exist. Once commit 2 is removed as
    well, version 2 has no commit time and is not selected by time.
    """
    DeltaTable(str(table), version=2).create_checkpoint()
    for version in (0, 1):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    assert sorted(read_columns(_table(table, "2").snapshot())["a"]) == [0, 1, 2]
    assert _table(table, "1970-01-01T00:00:30").snapshot_id() == "2"
    with pytest.raises(SnapshotNotFoundError, match=r"\b2, 3\b"):
        _table(table, "1").snapshot()
    (table / "_delta_log" / f"{2:020}.json").unlink()
    assert _table(table, "2").snapshot().committed_at is None
    with pytest.raises(SnapshotNotFoundError, match=r"00:00:40.*version 3"):
        _table(table, "1970-01-01T00:00:30").snapshot()


def test_a_version_whose_files_were_vacuumed_cannot_be_read(tmp_path: Path) -> None:
    """Opening a file of an earlier version that VACUUM deleted is an error, which names the file."""
    write_deltalake(str(tmp_path), pa.table({"a": [1]}))
    write_deltalake(str(tmp_path), pa.table({"a": [2]}), mode="overwrite")
    DeltaTable(str(tmp_path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    (fragment,) = _table(tmp_path, "0").snapshot().fragments
    with pytest.raises(FragmentError, match=r"part-.*\.parquet") as error_info:
        fragment.source.open()
    assert error_info.value.missing


def test_in_commit_timestamps_are_used_from_their_enablement_on(tmp_path: Path) -> None:
    """Commits with an `inCommitTimestamp` have this time.

    Earlier commits have their `timestamp`, adjusted so that the times ascend.
    """
    times: list[dict[str, int]] = [
        {"timestamp": 50_000},
        {"timestamp": 20_000},
        {"timestamp": 99_000, "inCommitTimestamp": 60_000},
        {"timestamp": 1, "inCommitTimestamp": 70_000},
    ]
    for version, info in enumerate(times):
        _log_commit(tmp_path, version, **info)
    expected = {49_999: None, 50_000: "0", 50_001: "1", 59_999: "1", 60_000: "2", 69_999: "2", 70_000: "3"}
    for milliseconds, version in expected.items():
        table = _table(tmp_path, _time(milliseconds).isoformat())
        if version is None:
            with pytest.raises(SnapshotNotFoundError):
                table.snapshot_id()
        else:
            assert table.snapshot_id() == version, milliseconds
    assert _table(tmp_path, "3").current().committed_at == _time(70_000)


def test_a_commit_without_a_time_has_that_of_its_file(tmp_path: Path) -> None:
    """A time selects a commit without commit information by its file's modification time, as in Delta.

    The commit time of the snapshot is None.
    """
    for version in range(3):
        os.utime(_log_commit(tmp_path, version), (100 * version, 100 * version))
    assert _table(tmp_path, "1970-01-01T00:02:00").snapshot_id() == "1"
    assert _table(tmp_path, "1970-01-01T00:03:20").snapshot_id() == "2"
    assert _table(tmp_path, None).current().committed_at is None


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(-1, 40))
def test_times_are_read_as_delta_reads_them(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], moment: int
) -> None:
    """A time selects the newest version whose commit time, as adjusted by Delta, is not later.

    Random commit times need not ascend. Delta adjusts each to be at least a millisecond later than the one before.
    """
    folder = tmp_path_factory.mktemp("t")
    (folder / "_delta_log").mkdir()
    for version, time in enumerate(times):
        (folder / "_delta_log" / f"{version:020}.json").write_text(json.dumps({"commitInfo": {"timestamp": time}}))
    adjusted_times = list(times)
    for index in range(1, len(adjusted_times)):
        adjusted_times[index] = max(adjusted_times[index], adjusted_times[index - 1] + 1)
    expected = max((index for index, time in enumerate(adjusted_times) if time <= moment), default=None)
    log = Log.of(path.name for path in (folder / "_delta_log").iterdir())
    instant = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=moment)
    assert CommitTimes(Location.of(str(folder)), MetadataCache()).version_at(log, instant) == expected


def _versions() -> list[Any]:
    parameters = []
    for truth in map(json.loads, (path.read_text() for path in _TRUTHS)):
        counts = {name: version_truth["rows"] for name, version_truth in (truth.get("versions") or {}).items()}
        parameters.append(pytest.param(truth["path"], counts, id=truth["name"]))
    skip = pytest.mark.skip(reason="the real tables are not there: ../shared/realtables")
    return parameters or [pytest.param("", {}, marks=skip)]


@pytest.mark.parametrize(("path", "counts"), _versions())
def test_versions_of_a_real_table_have_their_recorded_rows(
    path: str, counts: dict[str, int | None], realtables: Path
) -> None:
    """Each version of a real Delta table has its recorded row count.

    A count of None marks a version with missing files.
    """
    for version, rows in counts.items():
        fragments = _table(realtables / path, version).snapshot().fragments
        if rows is None:
            assert not all(Path(fragment.path).exists() for fragment in fragments), version
            continue
        row_count = 0
        for fragment in fragments:
            with fragment.source.open() as reader:
                row_count += reader.row_count
        assert row_count == rows, version
