"""Formats detect whether a table's history was continued, rolled back or replaced.

The reference of a snapshot consists of its id and its commit time.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from metastore_assets.config import TableConfig
from metastore_assets.formats import HistoryChange, MetadataCache, SnapshotReference, open_table_format
from metastore_assets.formats.base import history_change_by_number
from tests.formats.iceberg.tables import IcebergCopyOnWrite
from tests.formats.table_writers import DeltaCopyOnWrite, ParquetFiles, Table

DAY = "2024-01-01"


class History:
    """A table, its metadata cache, and the reference of the snapshot that `describe` returned last."""

    def __init__(self, kind: type[Table], folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.cache = MetadataCache()
        self.make()
        self.described = self.describe()

    def make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.table = self.kind(self.folder)
        self.append()

    def append(self) -> None:
        self.table.append([(self.table.next_id, "x", DAY)])

    def describe(self) -> SnapshotReference:
        table_format = open_table_format(TableConfig(name="t", uri=str(self.folder)), self.cache)
        self.described = table_format.snapshot().reference
        return self.described

    def history_change(self, previous: SnapshotReference | None = None) -> HistoryChange:
        """Return the change from the last described snapshot, or from `previous`, to the current one."""
        table_format = open_table_format(TableConfig(name="t", uri=str(self.folder)), self.cache)
        now = table_format.current()
        assert now != (previous or self.described)
        return table_format.history_change(previous or self.described, now)


@pytest.mark.parametrize("kind", [DeltaCopyOnWrite, IcebergCopyOnWrite, ParquetFiles], ids=lambda kind: kind.kind)
def test_further_commits_change_no_history(kind: type[Table], tmp_path: Path) -> None:
    history = History(kind, tmp_path / "t")
    history.append()
    assert history.history_change() is None
    history.append()
    history.table.delete([0])
    assert history.history_change() is None


def test_a_recreated_delta_log_is_detected_and_a_restore_is_not(tmp_path: Path) -> None:
    """If the version number of a Delta table rises, its history continues, also after a restore.

    This is so even if the new version has an earlier commit time. If the version number falls, the log was recreated if
    the commit time is later than before, and rolled back otherwise.
    """
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


def test_iceberg_history_is_detected_by_table_id_and_ancestors(tmp_path: Path) -> None:
    """A rollback is detected by the snapshot's ancestors, and a recreated table by its table id.

    New metadata for the same snapshot are also reported. If the previous snapshot has expired and the current one is
    newer, no change is reported, because the current one may be a descendant of the previous one.
    """
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
    # Whether an expired snapshot is an ancestor is unknown.
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


def test_versions_with_the_same_number_and_time_may_be_the_same() -> None:
    first, later = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
    cases = {
        (5, first, 5, first): None,
        (5, first, 5, later): "recreated",
        (5, later, 5, first): "rolled back",
        (5, None, 5, first): None,
        (5, None, 4, None): "rolled back",
        (5, first, 4, first): "rolled back",
        (5, first, 6, first): None,
    }
    for (before, then, after, now), expected in cases.items():
        references = SnapshotReference(str(before), then), SnapshotReference(str(after), now)
        assert history_change_by_number((before, after), *references) == expected, (before, then, after, now)
