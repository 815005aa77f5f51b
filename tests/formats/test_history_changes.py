"""How tables of each format came from one state to another, as far as their metadata tell."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from metastore_assets.config import TableConfig
from metastore_assets.formats import HistoryChange, MetadataCache, SnapshotReference, open_table_format
from tests.formats.iceberg.tables import IcebergCopyOnWrite
from tests.formats.table_writers import DeltaCopyOnWrite, ParquetFiles, Table

DAY = "2024-01-01"


class History:
    """A table, what was learnt of it, and the state that was described last."""

    def __init__(self, kind: type[Table], folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.memory = MetadataCache()
        self.make()
        self.described = self.describe()

    def make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.table = self.kind(self.folder)
        self.append()

    def append(self) -> None:
        self.table.append([(self.table.next_id, "x", DAY)])

    def describe(self) -> SnapshotReference:
        opened = open_table_format(TableConfig(name="t", uri=str(self.folder)), self.memory)
        self.described = opened.snapshot().reference
        return self.described

    def history_change(self, previous: SnapshotReference | None = None) -> HistoryChange:
        """From the state that was described, or that other one, to the state now."""
        opened = open_table_format(TableConfig(name="t", uri=str(self.folder)), self.memory)
        now = opened.current()
        assert now != (previous or self.described)
        return opened.history_change(previous or self.described, now)


@pytest.mark.parametrize("kind", [DeltaCopyOnWrite, IcebergCopyOnWrite, ParquetFiles], ids=lambda kind: kind.kind)
def test_further_commits_change_no_history(kind: type[Table], tmp_path: Path) -> None:
    history = History(kind, tmp_path / "t")
    history.append()
    assert history.history_change() is None
    history.append()
    history.table.delete([0])
    assert history.history_change() is None


def test_a_delta_log_that_begins_again(tmp_path: Path) -> None:
    """Numbers only grow in a log, whatever the clocks of those who write it say; a restored version has a new one."""
    history = History(DeltaCopyOnWrite, tmp_path / "t")
    history.append()
    first = history.describe()
    history.append()
    DeltaTable(str(tmp_path / "t")).restore(int(first.id))
    assert history.history_change() is None
    assert first.committed_at is not None
    later_reference = SnapshotReference(first.id, first.committed_at + timedelta(days=1))
    assert history.history_change(later_reference) is None
    history.describe()
    history.make()
    assert history.history_change() == "recreated"
    assert history.history_change(SnapshotReference("9", datetime(2100, 1, 1, tzinfo=UTC))) == "rolled back"
    assert history.history_change(SnapshotReference("9", None)) == "rolled back"


def test_iceberg_history_by_table_id_and_ancestors(tmp_path: Path) -> None:
    """Rolled back, also where it went on from there; the same snapshot, under other metadata; and another table."""
    history = History(IcebergCopyOnWrite, tmp_path / "t")
    table = history.table._table  # type: ignore[attr-defined]
    first = int(history.described.id)
    history.append()
    history.describe()
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert history.history_change() == "rolled back"
    history.append()
    assert history.history_change() == "rolled back"
    table.maintenance.expire_snapshots().by_id(int(history.described.id)).commit()
    # Of what is gone it is not known whether it was followed.
    assert history.history_change() is None
    history.describe()
    with table.transaction() as transaction:
        transaction.set_properties(note="x")
    assert history.history_change() == "metadata changed"
    history.append()
    assert history.history_change() is None
    history.make()
    assert history.history_change() == "recreated"


def test_a_rollback_is_detected_by_time_without_the_snapshot(tmp_path: Path) -> None:
    history = History(IcebergCopyOnWrite, tmp_path / "t")
    table = history.table._table  # type: ignore[attr-defined]
    first = int(history.described.id)
    history.append()
    history.describe()
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    table.maintenance.expire_snapshots().by_id(int(history.described.id)).commit()
    assert history.history_change() == "rolled back"
