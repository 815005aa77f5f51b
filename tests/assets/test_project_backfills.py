"""Backfills, by a project's own partitions, of the asset that writes the table and of statistics."""

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._daemon.run_coordinator import QueuedRunCoordinatorDaemon

from metastore_assets import open_table
from tests.assets.lab import SETTINGS
from tests.assets.user_project import PARTITIONS, RAW

pytestmark = [
    pytest.mark.long,
    # Dagster warns about its own call when it starts an in-process workspace.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:dagster"),
    pytest.mark.filterwarnings("ignore:.*AssetSelection.sources:DeprecationWarning"),
]
LOCATION = """
from pathlib import Path
from dagster import Definitions
from metastore_assets import build_metastore_definitions
from tests.assets.user_project import ByDay, config, raw_sales

folder = Path(__file__).parent
rows = {f"2024-01-{day:02}": day for day in range(1, 9)}
defs = Definitions.merge(
    Definitions(assets=[raw_sales(folder, rows)]), build_metastore_definitions(config(folder), translator=ByDay())
)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[WorkspaceProcessContext]:
    """The code location as a daemon sees it, with runs executed in this process.

    The asset that writes the table writes no rows for the 9th and 10th of January.
    """
    (tmp_path / "location.py").write_text(LOCATION, encoding="utf-8")
    (tmp_path / "home").mkdir()
    origin = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file=str(tmp_path / "location.py")))
    with (
        DagsterInstance.local_temp(str(tmp_path / "home"), overrides=SETTINGS) as instance,
        WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget(origin)) as context,
    ):
        yield context


def backfill(workspace: WorkspaceProcessContext, days: Sequence[int], assets: Sequence[AssetKey]) -> BulkActionStatus:
    """Backfill the days as the button in the UI does.

    Return the backfill's final status.
    """
    instance = workspace.instance
    new_backfill = PartitionBackfill.from_asset_partitions(
        backfill_id=f"fill{time.monotonic_ns()}",
        asset_graph=workspace.create_request_context().asset_graph,
        partition_names=[f"2024-01-{day:02}" for day in days],
        asset_selection=assets,
        backfill_timestamp=time.time(),
        tags={},
        dynamic_partitions_store=instance,
        all_partitions=False,
        title=None,
        description=None,
        run_config=None,
    )
    instance.add_backfill(new_backfill)
    for _ in range(20):
        assert not any(execute_backfill_iteration(workspace, logging.getLogger("backfill")))
        assert not any(QueuedRunCoordinatorDaemon(interval_seconds=1).run_iteration(workspace))
        record = instance.get_backfill(new_backfill.backfill_id)
        assert record is not None
        if record.status != BulkActionStatus.REQUESTED:
            return record.status
    raise AssertionError("the backfill does not end")


def reported_rows(instance: DagsterInstance) -> dict[str, int]:
    """Return the last reported row count of each day."""
    records = instance.fetch_materializations(PARTITIONS, limit=1000, ascending=True).records
    events = [record.asset_materialization for record in records if record.asset_materialization]
    return {str(event.partition): int(event.metadata["dagster/partition_row_count"].value or 0) for event in events}


def test_a_backfill_of_the_writer_and_dependent_assets(workspace: WorkspaceProcessContext) -> None:
    """A backfill of the writing asset and of the statistics reports each day with its row count.

    The days are not contiguous, and one of them gets no rows.
    """
    assert backfill(workspace, [1, 3, 4, 9], [RAW, PARTITIONS]) == BulkActionStatus.COMPLETED_SUCCESS
    expected = {"2024-01-01": 1, "2024-01-03": 3, "2024-01-04": 4, "2024-01-09": 0}
    assert reported_rows(workspace.instance) == expected


def test_a_backfill_of_dependent_assets_only(workspace: WorkspaceProcessContext, tmp_path: Path) -> None:
    """A backfill of only the statistics publishes one version for all days, which are separate ranges.

    Each day is reported with its row count. A backfill of only the writing asset reports no statistics.
    """
    assert backfill(workspace, [1, 2, 3, 5, 6], [RAW]) == BulkActionStatus.COMPLETED_SUCCESS
    assert reported_rows(workspace.instance) == {}
    assert backfill(workspace, [1, 3, 6, 10], [PARTITIONS]) == BulkActionStatus.COMPLETED_SUCCESS
    reported_row_counts = reported_rows(workspace.instance)
    assert {day: reported_row_counts[f"2024-01-{day:02}"] for day in (1, 3, 6, 10)} == {1: 1, 3: 3, 6: 6, 10: 0}
    assert open_table(str(tmp_path / "metastore"), "sales").version.number == 1
