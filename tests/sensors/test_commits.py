"""Ticks of a table's commit sensor on a Dagster instance, without Spark.

A version is the published statistics of a table at one snapshot.
"""

import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultRunLauncher,
    RunRequest,
    asset,
    materialize,
)
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test

from metastore_assets.assets.run import log_regularly
from metastore_assets.errors import ConfigError
from metastore_assets.pipeline.column_spec import PROFILE_VERSION
from metastore_assets.sensors import commits
from tests.assets.lab import Lab, lab_in


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A project with the tables `sales` and `visits-eu`, which have no version yet."""
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    with lab_in(tmp_path) as new_lab:
        yield new_lab


def requested(tick: SensorExecutionData) -> RunRequest:
    (request,) = tick.run_requests or []
    return request


def attempt_of(request: RunRequest) -> str:
    return (request.run_key or "").rpartition(":")[2]


def tags_of(request: RunRequest) -> dict[str, str]:
    """Return the tags that Dagster gives the run of a request."""
    return {**request.tags, "dagster/run_key": request.run_key or ""}


def run_of(instance: DagsterInstance, status: DagsterRunStatus, request: RunRequest | None = None) -> str:
    """Create a run of the job that refreshes `sales`, with the tags of a request if one is given.

    Return its id.
    """
    tags = {"metastore/table": "sales", **(tags_of(request) if request else {})}
    run = create_run_for_test(instance, job_name="sales_refresh", status=status, tags=tags)
    return run.run_id


def test_a_run_request_names_its_reason(lab: Lab) -> None:
    """The run key identifies what a run is requested for.

    It has the table, the snapshot, the newest version, and the number of the attempt. It also has the version of the
    code that computes statistics, and a digest that includes the configuration.
    """
    request = requested(lab.tick("sales"))
    assert re.fullmatch(rf"sales:0:0:{PROFILE_VERSION}:[0-9a-f]{{16}}:1", request.run_key or "")
    assert request.tags == {"dagster/sensor_name": "sales_commits", "metastore/table": "sales"}


def test_a_repeated_tick_requests_the_same_run(lab: Lab) -> None:
    """If the daemon dies before it launches the run, the next tick has the same key, so there is one run."""
    assert requested(lab.tick("sales")).run_key == requested(lab.tick("sales")).run_key


def test_another_commit_requests_another_run(lab: Lab) -> None:
    first = lab.tick("sales")
    lab.append(1, seed=1)
    second = requested(lab.tick("sales", first.cursor))
    assert second.run_key != requested(first).run_key
    assert attempt_of(second) == "1"


@pytest.mark.parametrize(
    "status",
    [
        DagsterRunStatus.NOT_STARTED,
        DagsterRunStatus.STARTING,
        DagsterRunStatus.STARTED,
        DagsterRunStatus.CANCELING,
    ],
)
def test_no_run_is_requested_beside_an_unfinished_run(lab: Lab, status: DagsterRunStatus) -> None:
    """An unfinished run of the table prevents a request for this table, but not for another one."""
    run = run_of(lab.instance, status)
    tick = lab.tick("sales")
    assert tick.run_requests == []
    assert run in str(tick.skip_message)
    assert requested(lab.tick("visits-eu"))


def test_a_created_run_of_the_sensor_is_requested_again(lab: Lab) -> None:
    """If the daemon died after it created a run, the next tick repeats the request with the same key.

    By this request, Dagster launches the created run.
    """
    request = requested(lab.tick("sales"))
    run_of(lab.instance, DagsterRunStatus.NOT_STARTED, request)
    assert requested(lab.tick("sales")).run_key == request.run_key


def assert_fails_after_an_hour(lab: Lab, monkeypatch: pytest.MonkeyPatch, run: str) -> None:
    """Assert that a tick, more than an hour later, reports a run as failed and requests another one."""
    later = time.time() + 3700
    monkeypatch.setattr(commits.time, "time", lambda: later)
    assert requested(lab.tick("sales"))
    ended_run = lab.instance.get_run_by_id(run)
    assert ended_run is not None
    assert ended_run.status == DagsterRunStatus.FAILURE


def test_a_created_run_that_is_not_launched_for_an_hour_is_reported_as_failed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was created by hand and not launched for an hour is reported as failed.

    The run has no events, so the hour begins when it was created.
    """
    run = run_of(lab.instance, DagsterRunStatus.NOT_STARTED)
    assert_fails_after_an_hour(lab, monkeypatch, run)


def test_manual_runs_count_too(lab: Lab) -> None:
    """A run from an asset's page prevents a request.

    Such a run is of another job than the sensor's, and has no tag of the table yet.
    """
    keys = frozenset({AssetKey(["sales", "sales_histograms"])})
    job = lab.definitions().resolve_implicit_global_asset_job_def()
    run = lab.instance.create_run_for_job(job, asset_selection=keys, status=DagsterRunStatus.STARTING)
    assert run.tags.get("metastore/table") is None
    assert (lab.tick("sales").skip_message or "").startswith(f"run {run.run_id} is refreshing the table")
    assert requested(lab.tick("visits-eu"))


def test_queued_runs_of_a_backfill_count_too(lab: Lab) -> None:
    """A queued run of a backfill prevents a request for its table, even if a newer run has finished.

    The backfill has a queued and a newer finished run of `sales`, and a finished run of `visits-eu`. The next tick of
    `sales` requests no run, and that of `visits-eu` requests one.
    """
    location = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("location"), "repository")
    job = lab.definitions().resolve_implicit_global_asset_job_def()

    def launched(table: str, status: DagsterRunStatus) -> DagsterRun:
        return lab.instance.create_run_for_job(
            job,
            asset_selection=frozenset({AssetKey([table, f"{table}_histograms"])}),
            status=status,
            tags={"dagster/backfill": "fill"},
            remote_job_origin=RemoteJobOrigin(location, job.name),
        )

    waiting = launched("sales", DagsterRunStatus.QUEUED)
    done = launched("sales", DagsterRunStatus.SUCCESS)
    launched("visits-eu", DagsterRunStatus.SUCCESS)
    (record,) = lab.instance.get_asset_records([AssetKey(["sales", "sales_histograms"])])
    assert record.asset_entry.last_run_id == done.run_id
    assert (lab.tick("sales").skip_message or "").startswith(f"run {waiting.run_id} is refreshing the table")
    assert requested(lab.tick("visits-eu"))


def test_runs_of_other_tables_are_not_read(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick reads only the runs of its table, although another job has 20 active runs."""
    for _ in range(20):
        create_run_for_test(lab.instance, job_name="another", status=DagsterRunStatus.STARTED)
    started_run = run_of(lab.instance, DagsterRunStatus.STARTED)
    read: list[str] = []
    get_runs = lab.instance.get_runs

    def counted(*arguments: Any, **options: Any) -> Sequence[DagsterRun]:
        result = get_runs(*arguments, **options)
        read.extend(run.run_id for run in result)
        return result

    monkeypatch.setattr(lab.instance, "get_runs", counted)
    assert lab.tick("sales").run_requests == []
    assert set(read) == {started_run}


def test_a_run_without_events_for_an_hour_is_reported_as_failed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick reports a started run as failed if it has had no event for more than an hour.

    The tick then requests another run.
    """
    run = run_of(lab.instance, DagsterRunStatus.STARTED)
    lab.instance.report_engine_event("alive", lab.instance.get_run_by_id(run))
    assert lab.tick("sales").run_requests == []
    assert_fails_after_an_hour(lab, monkeypatch, run)


@pytest.mark.parametrize(("worker", "is_dead"), [("RUNNING", False), ("NOT_FOUND", True), (None, True)])
def test_a_silent_run_is_alive_if_its_launcher_says_so(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, worker: str | None, is_dead: bool
) -> None:
    """A run without events for more than an hour is reported as failed, unless its worker is running.

    The launcher checks the worker of the run. If the launcher does not find the worker, or raises an error, the run is
    reported as failed.
    """

    class Launcher(DefaultRunLauncher):
        @property
        def supports_check_run_worker_health(self) -> bool:
            return True

        def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
            if worker is None:
                raise ImportError("no client here")
            return CheckRunHealthResult(WorkerStatus[worker])

    run = run_of(lab.instance, DagsterRunStatus.STARTED)
    lab.instance.report_engine_event("alive", lab.instance.get_run_by_id(run))
    monkeypatch.setattr(type(lab.instance), "run_launcher", Launcher())
    later = time.time() + 3700
    monkeypatch.setattr(commits.time, "time", lambda: later)
    assert bool(lab.tick("sales").run_requests) == is_dead
    ended_run = lab.instance.get_run_by_id(run)
    assert ended_run is not None
    assert (ended_run.status == DagsterRunStatus.FAILURE) == is_dead


def test_a_working_run_logs_regularly(lab: Lab) -> None:
    """`log_regularly` logs lines into the log of the run until its `with` block ends.

    It logs from another thread.
    """
    message_arrived = threading.Event()

    @asset
    def slow(context: AssetExecutionContext) -> None:
        def log(text: str) -> None:
            context.log.info(text)
            message_arrived.set()

        with log_regularly(log, 0.01):
            message_arrived.wait(60)
        context.log.info("the block has ended")

    run = materialize([slow], instance=lab.instance)
    log_messages = [event.user_message for event in lab.instance.all_logs(run.run_id) if not event.is_dagster_event]
    assert len(log_messages) >= 2
    assert log_messages[-1] == "the block has ended"


def test_failures_are_counted_without_the_cursor(lab: Lab) -> None:
    """Without a cursor, a tick counts ended runs as attempts.

    After one ended run, a tick requests the second attempt. After two ended runs, a tick waits.
    """
    first = requested(lab.tick("sales"))
    run_of(lab.instance, DagsterRunStatus.FAILURE, first)
    second = requested(lab.tick("sales"))
    assert attempt_of(second) == "2"
    run_of(lab.instance, DagsterRunStatus.CANCELED, second)
    tick = lab.tick("sales")
    assert tick.run_requests == []
    assert (tick.skip_message or "").startswith("attempt 2 failed; the next one follows in")


def test_a_corrected_configuration_is_tried_at_once(lab: Lab) -> None:
    """After two failed runs, the sensor waits.

    After a change of the configuration, the next tick requests a first attempt at once.
    """
    for _ in range(2):
        run_of(lab.instance, DagsterRunStatus.FAILURE, requested(lab.tick("sales")))
    assert lab.tick("sales").run_requests == []
    text = lab.config_file.read_text(encoding="utf-8")
    lab.config_file.write_text(text.replace("uri: ./sales,", "uri: ./sales, format: delta,"), encoding="utf-8")
    assert attempt_of(requested(lab.tick("sales"))) == "1"


def test_a_table_that_is_no_longer_configured_fails_the_tick(lab: Lab) -> None:
    """If a table was renamed in the configuration, a tick of its loaded sensor fails.

    The error has the old name.
    """
    sensor = lab.definitions().resolve_sensor_def("sales_commits")
    text = lab.config_file.read_text(encoding="utf-8")
    lab.config_file.write_text(text.replace("name: sales", "name: purchases"), encoding="utf-8")
    with pytest.raises(ConfigError, match="'sales'"):
        lab.evaluate(sensor)
