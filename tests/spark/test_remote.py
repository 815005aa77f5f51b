"""A Spark Connect server gives the same results and errors as this process.

This includes interrupts and published versions.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PythonException

from metastore_assets.cli.running_tasks import RunningTasks
from metastore_assets.errors import ConfigError, FragmentError, MetastoreError, WorkerEndedError
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark import local_server as server
from metastore_assets.spark.connect import connect_session, local_master
from metastore_assets.spark.runner import SparkRunner, count_slots
from tests.pipeline.file_lake import Lake, assert_same, everything, everything_on_spark
from tests.spark.remote_tasks import beat, double_or_fail, end_worker, process_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED")]
REPOSITORY = Path(__file__).parents[2]
LEFT_BY_PYSPARK = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_CONNECT_AUTHENTICATE_TOKEN", "SPARK_LOCAL_CONNECT_DISCOVERY")
"""Variables with which PySpark marks sessions as remote. They are removed, because other tests have local sessions."""


@pytest.fixture(scope="module")
def discovery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        for name in LEFT_BY_PYSPARK:
            patch.delenv(name, raising=False)
        result = tmp_path_factory.mktemp("server") / "connect-local.json"
        patch.setenv("SPARK_LOCAL_CONNECT_DISCOVERY", str(result))
        # The server's workers must import the tasks' modules, wherever the package is installed.
        patch.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)
        yield result
        server.stop_server()
        for name in LEFT_BY_PYSPARK:
            os.environ.pop(name, None)


@pytest.fixture(scope="module")
def remote(discovery: Path) -> Iterator[SparkSession]:
    """A Spark session on a server with two slots for tasks."""
    session = connect_session("local[2]", {"spark.driver.memory": "512m"})
    yield session
    session.stop()


def test_a_session_reports_its_number_of_slots(remote: SparkSession) -> None:
    assert count_slots(remote) == 2


def test_every_task_runs_once(remote: SparkSession) -> None:
    numbers = [number for number in range(100) if number != 13]
    tasks = RunningTasks(remote)
    observed_counts: list[tuple[int, int]] = []
    answer = tasks._on_connect_progress

    def heard(**event: object) -> None:
        answer(**event)  # type: ignore[arg-type]
        observed_counts.append(tasks.count())

    remote.registerProgressHandler(heard)  # type: ignore[arg-type]
    assert SparkRunner(lambda: remote).map(double_or_fail, numbers) == [2 * number for number in numbers]
    remote.clearProgressHandlers()
    assert observed_counts
    assert observed_counts[-1] == (0, 0)


def test_errors_arrive_unchanged(remote: SparkSession) -> None:
    with pytest.raises(FragmentError, match="13 brings bad luck") as error_info:
        SparkRunner(lambda: remote).map(double_or_fail, range(20))
    assert (error_info.value.path, error_info.value.missing) == ("/lake/13", True)
    with pytest.raises(PythonException, match="KeyError: 'bug'") as bug:
        SparkRunner(lambda: remote).map(end_worker, ["bug"])
    assert not isinstance(bug.value, MetastoreError)


@pytest.mark.long
def test_a_terminated_worker_is_distinguished_from_a_failed_task(remote: SparkSession) -> None:
    with pytest.raises(WorkerEndedError):
        SparkRunner(lambda: remote).map(end_worker, ["kill"])


def test_the_next_run_reuses_workers_and_leaves_other_jobs(remote: SparkSession) -> None:
    before = set(SparkRunner(lambda: remote).map(process_of, range(8)))
    other = connect_session("local[2]", {})
    assert set(SparkRunner(lambda: other).map(process_of, range(8))) & before
    other.stop()
    assert SparkRunner(lambda: remote).map(double_or_fail, [1]) == [2]


@pytest.mark.long
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_job_ends_on_the_server(
    remote: SparkSession, tmp_path: Path, error: type[BaseException]
) -> None:
    def interrupt(*_: object) -> None:
        raise error

    beats = tmp_path / "beat"
    beats.touch()  # a task that never started has stopped, too
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.5)
    start = time.monotonic()
    try:
        with pytest.raises(error):
            SparkRunner(lambda: remote).map(beat, [(str(beats), 20.0)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    end = time.time()
    assert time.monotonic() - start < 15
    while time.time() < end + 15:
        last = beats.read_text()
        time.sleep(0.3)
        if beats.read_text() == last:
            return
    raise AssertionError("the task is still running")


def test_a_refresh_publishes_the_same_as_in_this_process(remote: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path, random.Random(7))
    for partition in range(4):
        lake.append(partition)
    config = lake.config()
    with everything_on_spark():
        refresh(config, lake.table, lambda: remote)
        lake.commit()
        result = refresh(config, lake.table, lambda: remote)
    assert (result.version, result.published) == (2, True)
    here = lake.config("here").model_copy(update={"engine": "auto"})
    refresh(here, lake.table, lambda: pytest.fail("Spark was started"))
    assert_same(everything(config), everything(here))


@pytest.mark.long
def test_a_terminated_server_is_named_and_the_next_session_starts_another(discovery: Path, tmp_path: Path) -> None:
    session = connect_session("local[2]", {"spark.driver.memory": "512m"})
    first = server.find_server()
    assert first is not None
    kill = threading.Timer(3, os.kill, (first.pid, signal.SIGKILL))
    kill.start()
    with pytest.raises(MetastoreError, match="Spark Connect"):
        SparkRunner(lambda: session).map(beat, [(str(tmp_path / "beat"), 30.0)])
    kill.join()
    again = connect_session("local[2]", {"spark.driver.memory": "512m"})
    assert SparkRunner(lambda: again).map(double_or_fail, [1]) == [2]
    second = server.find_server()
    assert second is not None
    assert second.pid != first.pid
    # A client of the first server gets an error instead of waiting.
    with pytest.raises(MetastoreError, match="Spark Connect"):
        SparkRunner(lambda: session).map(double_or_fail, [1])


def test_a_missing_server_is_reported_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    start = time.monotonic()
    with pytest.raises(MetastoreError, match=rf"sc://localhost:{port}\b.*refused"):
        connect_session(f"sc://localhost:{port}/;token=not-to-be-told", {})
    assert time.monotonic() - start < 60


def test_a_local_server_is_distinguished_from_a_remote_one() -> None:
    assert local_master({"spark.remote": "local[3]", "spark.master": "spark://x:1"}) == "local[3]"
    with pytest.raises(ConfigError, match="sc://far:1"):
        local_master({"spark.remote": "sc://far:1/;token=secret"})
