"""Backfills of scattered partitions, run as Dagster's daemon runs them.

One run reads the partitions of all runs of a backfill.

A version is the published statistics of a table at one snapshot.
"""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterEvent, DagsterEventType, DagsterRun, DagsterRunStatus, RunsFilter
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._daemon.run_coordinator import QueuedRunCoordinatorDaemon

from metastore_assets.assets.backfills import backfill_of, is_oldest_run
from metastore_assets.config import CONFIG_VARIABLE
from tests.assets.lab import KINDS, Lab, ReportedEvents, key_of, kind_of
from tests.assets.test_runs import stale

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("spark"),
    # Dagster warns about its own call when it starts an in-process workspace.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:dagster"),
    pytest.mark.filterwarnings("ignore:.*AssetSelection.sources:DeprecationWarning"),
    # The lab reloads the definitions, although the workspace has imported them.
    pytest.mark.filterwarnings("ignore:.*found in sys.modules after import:RuntimeWarning"),
]

DEFINITIONS = "metastore_assets.definitions"
PARTITIONS = AssetKey(["sales", "sales_partitions"])


@pytest.fixture
def workspace(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkspaceProcessContext]:
    """The code location as a daemon sees it, with submitted runs executed in this process.

    `sales` has six days, and all of them are in its first version.
    """
    monkeypatch.setenv(CONFIG_VARIABLE, str(lab.config_file))
    lab.append(4, 5, 6)
    lab.refresh("sales")
    monkeypatch.delitem(
        sys.modules, DEFINITIONS, raising=False
    )  # Left by another test, with that test's configuration.
    origin = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name=DEFINITIONS))
    with WorkspaceProcessContext(lab.instance, InProcessWorkspaceLoadTarget(origin)) as context:
        yield context
    sys.modules.pop(DEFINITIONS, None)


def launch(lab: Lab, workspace: WorkspaceProcessContext, days: Sequence[int], assets: Sequence[AssetKey]) -> str:
    """Launch a backfill of the days for some assets, as the button in the UI does.

    Return its id.
    """
    backfill = PartitionBackfill.from_asset_partitions(
        backfill_id=f"fill{time.monotonic_ns()}",
        asset_graph=workspace.create_request_context().asset_graph,
        partition_names=[key_of(day) for day in days],
        asset_selection=assets,
        backfill_timestamp=time.time(),
        tags={},
        dynamic_partitions_store=lab.instance,
        all_partitions=False,
        title=None,
        description=None,
        run_config=None,
    )
    lab.instance.add_backfill(backfill)
    return backfill.backfill_id


def iterate(lab: Lab, workspace: WorkspaceProcessContext, backfill: str) -> BulkActionStatus:
    """Run the daemons' iterations until the backfill and its runs have ended.

    Return the backfill's final status.
    """
    for _ in range(12):
        assert not any(execute_backfill_iteration(workspace, logging.getLogger("backfill")))
        assert not any(QueuedRunCoordinatorDaemon(interval_seconds=1).run_iteration(workspace))
        record = lab.instance.get_backfill(backfill)
        assert record is not None
        if record.status != BulkActionStatus.REQUESTED:
            return record.status
    raise AssertionError("the backfill does not end")


def runs_of(lab: Lab, backfill: str) -> list[DagsterRun]:
    return list(lab.instance.get_runs(RunsFilter(tags={"dagster/backfill": backfill}), ascending=True))


def events_of_run(lab: Lab, run: DagsterRun) -> ReportedEvents:
    return {(kind_of(event.asset_key), event.partition) for event in lab.events(run.run_id)}


def test_scattered_partitions_are_read_once_and_reported_by_their_runs(
    lab: Lab, workspace: WorkspaceProcessContext
) -> None:
    """The runs of days 1, 3 to 4, and 6 publish one version, and each run reports its own partitions.

    The last run also reports the assets of the table. Then no asset is stale, and the sensor requests no run.
    """
    before = lab.latest("sales").number
    backfill = launch(lab, workspace, [1, 3, 4, 6], [PARTITIONS])
    assert iterate(lab, workspace, backfill) == BulkActionStatus.COMPLETED_SUCCESS
    runs = runs_of(lab, backfill)
    assert {run.status for run in runs} == {DagsterRunStatus.SUCCESS}
    events_by_run = [events_of_run(lab, run) for run in runs]
    assert sorted(sorted(key for asset, key in counts if asset == "partitions") for counts in events_by_run) == [
        [key_of(1)],
        [key_of(3), key_of(4)],
        [key_of(6)],
    ]
    assert [{asset for asset, _ in counts} for counts in events_by_run] == [
        {"partitions"},
        {"partitions"},
        {"partitions", *KINDS},
    ]

    version = lab.latest("sales")
    assert version.number == before + 1
    assert {entry.key for entry in version.partitions if entry.version == version.number} == {
        key_of(day) for day in (1, 3, 4, 6)
    }
    assert {run.tags["metastore/table"] for run in runs} == {"sales"}
    assert stale(lab, "sales") == set()
    assert lab.tick("sales").run_requests == []


@pytest.mark.long
def test_partitions_and_table_in_one_backfill(lab: Lab, workspace: WorkspaceProcessContext) -> None:
    """A backfill of partitions and of the table's assets has only the runs of its partitions.

    They publish one version. The last run also reports the table's assets, so Dagster requests no run for them.
    """
    before = lab.latest("sales").number
    assets = [PARTITIONS, *(AssetKey(["sales", f"sales_{kind}"]) for kind in KINDS)]
    backfill = launch(lab, workspace, [2, 5], assets)
    assert iterate(lab, workspace, backfill) == BulkActionStatus.COMPLETED_SUCCESS
    assert lab.latest("sales").number == before + 1
    first, second = runs_of(lab, backfill)
    assert events_of_run(lab, first) == {("partitions", key_of(2))}
    assert events_of_run(lab, second) == {("partitions", key_of(5)), *((kind, None) for kind in KINDS)}
    assert stale(lab, "sales") == set()


def test_removed_partitions_fail_only_their_run(lab: Lab, workspace: WorkspaceProcessContext) -> None:
    """In a backfill, only the run of a partition that was removed from the table fails.

    Day 3 was removed, and the runs of days 1 and 5 succeed.
    """
    lab.delete("day = '2024-01-03'")
    backfill = launch(lab, workspace, [1, 3, 5], [PARTITIONS])
    assert iterate(lab, workspace, backfill) == BulkActionStatus.COMPLETED_FAILED
    runs = {run.tags["dagster/asset_partition_range_start"]: run for run in runs_of(lab, backfill)}
    assert {key: run.status == DagsterRunStatus.SUCCESS for key, run in runs.items()} == {
        key_of(1): True,
        key_of(3): False,
        key_of(5): True,
    }
    assert ("partitions", key_of(5)) in events_of_run(lab, runs[key_of(5)])


def test_the_oldest_active_run_of_a_backfill(lab: Lab, workspace: WorkspaceProcessContext, tmp_path: Path) -> None:
    """The older of a backfill's two active runs is its oldest active run, until it is reported as failed.

    Then the newer run is the oldest active one. The backfill, looked up by a run, has the keys of all its partitions.
    """
    backfill = launch(lab, workspace, [1, 3], [PARTITIONS])
    older, newer = (
        create_run_for_test(lab.instance, status=DagsterRunStatus.STARTED, tags={"dagster/backfill": backfill})
        for _ in range(2)
    )
    result = backfill_of(lab.instance, newer, lab.names("sales"))
    assert result is not None
    assert result.keys == {key_of(1), key_of(3)}
    assert is_oldest_run(lab.instance, older, result)
    assert not is_oldest_run(lab.instance, newer, result)
    assert backfill_of(lab.instance, newer, lab.names("visits-eu")) is None
    lab.instance.report_run_failed(older)
    assert is_oldest_run(lab.instance, newer, result)


def test_one_run_of_a_table_at_a_time(lab: Lab, workspace: WorkspaceProcessContext) -> None:
    """Under the shipped settings, only one run of a table is active, and its other runs wait.

    They wait until the active run ends or is reported as failed. The settings limit a Dagster pool, to which all runs
    of the table belong. Dagster applies the limit only to a pool that it has seen, so the test runs another backfill
    first.
    """
    iterate(lab, workspace, launch(lab, workspace, [6], [PARTITIONS]))
    backfill = launch(lab, workspace, [1, 3, 5], [PARTITIONS])
    assert not any(execute_backfill_iteration(workspace, logging.getLogger("backfill")))
    dead, *_ = runs_of(lab, backfill)
    start_event = DagsterEvent(DagsterEventType.RUN_START.value, job_name=dead.job_name)
    lab.instance.report_dagster_event(start_event, dead.run_id)

    def statuses() -> list[DagsterRunStatus]:
        assert not any(QueuedRunCoordinatorDaemon(interval_seconds=1).run_iteration(workspace))
        return [run.status for run in runs_of(lab, backfill)]

    assert statuses() == [DagsterRunStatus.STARTED, DagsterRunStatus.QUEUED, DagsterRunStatus.QUEUED]
    lab.instance.report_run_failed(dead)
    assert statuses() == [DagsterRunStatus.FAILURE, DagsterRunStatus.SUCCESS, DagsterRunStatus.QUEUED]
    assert statuses() == [DagsterRunStatus.FAILURE, DagsterRunStatus.SUCCESS, DagsterRunStatus.SUCCESS]
