"""What ticks report if a table is missing, dropped, changed or rolled back, and what follows.

A version is the published statistics of a table at one snapshot. A root is the folder with all stored state.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lance
import pyarrow as pa
import pytest
from dagster import DagsterInstance, DagsterRunStatus
from deltalake import DeltaTable, write_deltalake

from metastore_assets.sensors.table_probe import TableProbe
from tests.formats.iceberg.tables import IcebergCopyOnWrite
from tests.formats.lance.tables import LanceTable
from tests.formats.table_writers import DeltaCopyOnWrite, ParquetFiles, Table
from tests.sensors.watched_table import WatchedTable

DAY = "2024-01-01"
KINDS = [
    DeltaCopyOnWrite,
    *(pytest.param(kind, marks=pytest.mark.long) for kind in (IcebergCopyOnWrite, ParquetFiles, LanceTable)),
]
of_each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    with DagsterInstance.ephemeral() as new_instance:
        yield new_instance


def table_in(folder: Path, kind: type[Table], rows: int = 1) -> Any:
    new_table = kind(folder)
    new_table.append([(number, "x", DAY) for number in range(rows)])
    return new_table


@of_each_kind
def test_a_missing_table_is_probed_rarely(
    kind: type[Table], tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the table is missing, ticks request no run, log nothing, and return one-line messages.

    Ticks look for the table after longer and longer waits. A change of the configuration ends the wait, and the run
    of the table's first snapshot is requested.
    """
    now = 1e9
    monkeypatch.setattr("metastore_assets.sensors.commits.time", SimpleNamespace(time=lambda: now))
    looks: list[float] = []
    watched_table = WatchedTable(tmp_path, instance)
    probe = TableProbe.probe
    monkeypatch.setattr(
        TableProbe, "probe", lambda self, report_progress: (looks.append(now), probe(self, report_progress))[1]
    )
    for _ in range(121):
        message = watched_table.skips()
        assert message.startswith(f"the table does not exist yet: {tmp_path / 't'} holds no ")
        assert "\n" not in message
        now += 5
    waits = [then - before for before, then in pairwise(looks)]
    assert waits == [5, 10, 20, 40, 80, 160]
    table_in(tmp_path / "t", kind)
    assert "the sensor checks it again in" in watched_table.skips()
    watched_table.configure(sensor={"interval": 6})
    assert watched_table.catches_up() == f"snapshot {watched_table.latest.snapshot} is the first"


@of_each_kind
def test_a_dropped_table_is_reported_once_on_the_asset(
    kind: type[Table], tmp_path: Path, instance: DagsterInstance
) -> None:
    """After a table was dropped, its check `current` fails, and each tick has the same message.

    The versions stay. After the table is restored, no run is requested. After it is recreated, a run is requested.
    """
    table = table_in(tmp_path / "t", kind)
    watched_table = WatchedTable(tmp_path, instance)
    assert watched_table.catches_up() == f"snapshot {watched_table.latest.snapshot} is the first"
    (tmp_path / "t").rename(tmp_path / "away")
    for _ in range(2):
        skip_message = watched_table.skips()
        assert skip_message.startswith(
            f"version 1 remains the newest: the table no longer exists: {tmp_path / 't'} holds no "
        )
        assert watched_table.check() == (False, skip_message.removeprefix("version 1 remains the newest: "))
    (tmp_path / "away").rename(tmp_path / "t")
    assert watched_table.skips() == watched_table.is_current()
    assert watched_table.check() == (True, f"the table exists again, at snapshot {watched_table.latest.snapshot}")
    table.append([(9, "y", DAY)])
    watched_table.catches_up()
    assert watched_table.latest.row_count == 2

    shutil.rmtree(tmp_path / "t")
    watched_table.skips()
    table_in(tmp_path / "t", kind, rows=5)
    message = watched_table.catches_up()
    # A Delta log that starts over has a lower version; plain files have no history.
    rebuilt = " is of another table than version 2: the table was recreated"
    assert message.endswith(" follows version 2" if kind is ParquetFiles else rebuilt)
    assert watched_table.latest.row_count == 5
    assert watched_table.check()[0]


def test_commits_of_a_lance_table_are_seen(tmp_path: Path, instance: DagsterInstance) -> None:
    """Appends, deletes and a restore of a Lance table request a run.

    A tag and a cleanup of old versions do not.
    """
    table = table_in(tmp_path / "t", LanceTable, rows=3)
    watched_table = WatchedTable(tmp_path, instance)
    assert watched_table.catches_up() == "snapshot 1 is the first"
    table.append([(9, "y", DAY)])
    table.delete([1])
    assert watched_table.catches_up() == "snapshot 3 follows version 1"
    dataset = lance.dataset(tmp_path / "t")
    dataset.tags.create("v1", 3)
    dataset.cleanup_old_versions(older_than=timedelta(0))
    assert watched_table.skips() == watched_table.is_current()
    dataset.checkout_version("v1").restore()
    assert watched_table.catches_up() == "snapshot 4 follows version 2"
    assert watched_table.latest.row_count == 3


@pytest.mark.parametrize("key", [None, "k" * 32])
def test_a_table_with_hidden_values_is_current_under_its_key(
    key: str | None, tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the key for hashes of hidden values is the same, a tick without a commit requests no run.

    The key is in an environment variable or, without it, in the root. A change of the key requests a run.
    """
    if key is not None:
        monkeypatch.setenv("METASTORE_HIDDEN_KEY", key)
    table = table_in(tmp_path / "t", DeltaCopyOnWrite)
    watched_table = WatchedTable(tmp_path, instance, columns={"id": {"values": "hidden"}})
    watched_table.catches_up()
    table.append([(9, "y", DAY)])
    watched_table.catches_up()
    monkeypatch.setenv("METASTORE_HIDDEN_KEY", "l" * 32)
    assert watched_table.catches_up().endswith("follows version 2")


@pytest.mark.long
def test_rollback_and_cleanup_of_an_iceberg_table_are_reported(tmp_path: Path, instance: DagsterInstance) -> None:
    """After a rollback of the table, a run is requested, and the tick's log says that it was rolled back.

    After an expiry of snapshots, a run is requested, and the log says that metadata changed.
    """
    table = table_in(tmp_path / "t", IcebergCopyOnWrite)
    watched_table = WatchedTable(tmp_path, instance)
    watched_table.catches_up()
    first = watched_table.latest.snapshot
    table.append([(9, "y", DAY)])
    assert watched_table.catches_up() == f"snapshot {watched_table.latest.snapshot} follows version 1"
    second = watched_table.latest.snapshot
    table._table.manage_snapshots().rollback_to_snapshot(int(first)).commit()
    assert watched_table.catches_up() == (
        f"snapshot {first} does not follow that of version 2: the table was rolled back"
    )
    assert watched_table.latest.row_count == 1
    table._table.maintenance.expire_snapshots().by_id(int(second)).commit()
    assert watched_table.catches_up() == (
        f"snapshot {first} is that of version 3, but the table's metadata changed: its schema, its properties or its "
        "earlier snapshots"
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.kind)
def test_an_expired_snapshot_is_reported(kind: type[Table], tmp_path: Path, instance: DagsterInstance) -> None:
    """If the snapshot selected by `at` has expired, ticks and the check report this.

    The version stays. Without `at`, the next tick requests a run.
    """
    table = table_in(tmp_path / "t", kind)
    pinned_snapshot = table.snapshot().id
    watched_table = WatchedTable(tmp_path, instance, at=pinned_snapshot)
    watched_table.catches_up()
    table.append([(9, "y", DAY)])
    assert watched_table.skips() == watched_table.is_current()
    if kind is IcebergCopyOnWrite:
        table._table.maintenance.expire_snapshots().by_id(int(pinned_snapshot)).commit()
    else:
        DeltaTable(str(tmp_path / "t")).create_checkpoint()
        (tmp_path / "t" / "_delta_log" / f"{int(pinned_snapshot):020}.json").unlink()
    skip_message = watched_table.skips()
    assert skip_message.startswith("version 1 remains the newest: the snapshot that `at` selects no longer exists: ")
    assert watched_table.check() == (False, skip_message.removeprefix("version 1 remains the newest: "))
    watched_table.configure()
    assert watched_table.catches_up().endswith(" follows version 1")
    assert watched_table.latest.row_count == 2


@pytest.mark.parametrize("is_partitioned", [True, False])
def test_a_table_with_other_partitioning_than_its_loaded_asset_is_logged(
    tmp_path: Path, instance: DagsterInstance, is_partitioned: bool
) -> None:
    """The table is created again, with partitions or without, after the code location was loaded.

    The tick after the next version asks for a reload. After the reload, no tick does.
    """
    rows, partition_columns = pa.table({"id": [1], "day": [DAY]}), ([], ["day"])
    write_deltalake(tmp_path / "t", rows, partition_by=partition_columns[not is_partitioned])
    watched_table = WatchedTable(tmp_path, instance)
    watched_table.catches_up()
    watched_table.load()
    assert watched_table.tick(has_repository=True)[1] == []
    shutil.rmtree(tmp_path / "t")
    write_deltalake(tmp_path / "t", rows, partition_by=partition_columns[is_partitioned])
    watched_table.run(watched_table.reloads()[0])
    change = "now has" if is_partitioned else "no longer has"
    assert watched_table.tick(has_repository=True)[1] == [f"table 't' {change} partitions: reload the code location"]
    assert watched_table.tick(has_repository=True)[1] == []
    watched_table.load()
    assert watched_table.tick(has_repository=True)[1] == []


@of_each_kind
def test_a_burst_becomes_one_run(kind: type[Table], tmp_path: Path, instance: DagsterInstance) -> None:
    """Commits during a queued or running run request no other run.

    The next run publishes all of them.
    """
    table = table_in(tmp_path / "t", kind)
    watched_table = WatchedTable(tmp_path, instance)
    watched_table.catches_up()
    request = None
    for number in range(20):
        table.append([(100 + number, "x", DAY)])
        if request is None:
            request = watched_table.reloads()[0]
            waiting = watched_table.launched(request, DagsterRunStatus.QUEUED)
        elif number % 5 == 0:
            assert watched_table.skips() == f"run {waiting.run_id} is refreshing the table; the next tick checks again"
        if number == 9:
            instance.delete_run(waiting.run_id)
            watched_table.run(request)
            assert (watched_table.number, watched_table.latest.row_count) == (2, 11)
            # As if it had been active until the end of the burst.
            waiting = watched_table.launched(request, DagsterRunStatus.STARTED)
    instance.report_run_failed(waiting) if kind is ParquetFiles else instance.delete_run(waiting.run_id)
    watched_table.catches_up()
    assert (watched_table.number, watched_table.latest.row_count) == (3, 21)
