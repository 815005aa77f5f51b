"""A refresh on a Spark cluster is correct, even if a worker is killed while it runs tasks."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

import metastore_assets
from metastore_assets.pipeline import engine
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.verification.verify import verify
from metastore_assets.spark.runner import count_slots
from metastore_assets.spark.session import get_spark_session
from tests.cluster.standalone import Cluster, standalone_cluster
from tests.pipeline.file_lake import Lake, assert_same, everything, everything_on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

STATISTIC = "slow_statistics:SlowSum"


@pytest.fixture(scope="module")
def slow_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slow") / "log"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, slow_log: Path) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("spark") / "cluster", {"SLOW_LOG": str(slow_log)}) as new_cluster:
        yield new_cluster


@pytest.fixture(scope="module")
def session(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session whose workers get this package as an archive, as the documentation describes."""
    folder = tmp_path_factory.mktemp("shipped")
    command = [sys.executable, "-m", "zipfile", "-c", str(folder / "metastore_assets.zip")]
    subprocess.run([*command, *metastore_assets.__path__], check=True)
    statistics_file = Path(__file__).parent / "slow_statistics.py"
    new_session = get_spark_session(
        {
            "spark.master": cluster.url,
            "spark.submit.pyFiles": f"{folder / 'metastore_assets.zip'},{statistics_file}",
            "spark.pyspark.python": sys.executable,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
        }
    )
    yield new_session
    new_session.stop()


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table of six partitions with four files each, and a slow user-defined statistic."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    lake = Lake(tmp_path, random.Random(3), {"statistics": [STATISTIC]})
    for partition in range(6):
        for _ in range(4):
            lake.append(partition)
    return lake


def killed_at(what: str, cluster: Cluster, slow_log: Path, work: Callable[[], object]) -> str:
    """Run `work`, and kill the first worker that logs the step `what` meanwhile.

    Return the name of this worker.
    """
    slow_log.write_text("")
    killed_names: list[str] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for line in slow_log.read_text().splitlines():
                step, process, _ = line.split()
                name = cluster.worker_of(int(process)) if step == what else None
                if name is not None:
                    cluster.kill(name)
                    killed_names.append(name)
                    return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    assert killed_names, f"nothing was at {what}: {slow_log.read_text()}"
    return killed_names[0]


def both_at_work(session: SparkSession) -> None:
    ends = time.monotonic() + 60
    while count_slots(session) < 2:
        assert time.monotonic() < ends, "the executors do not come"
        time.sleep(0.5)


def test_a_worker_dies_while_it_profiles_and_one_while_it_reduces(
    cluster: Cluster, session: SparkSession, slow_log: Path, lake: Lake
) -> None:
    """A worker is killed while it computes statistics, and in the next refresh one while it merges them.

    The statistics equal those of a refresh without Spark.
    """
    both_at_work(session)
    config = lake.config()
    with everything_on_spark():
        killed_at("update", cluster, slow_log, lambda: refresh(config, lake.table, lambda: session))
    where = {line.split()[2] for line in slow_log.read_text().splitlines()}
    assert {file for file in where if "metastore_assets.zip" not in file} == set(), "the archive is what they use"
    cluster.start_worker()
    both_at_work(session)
    for partition in range(6):
        for _ in range(4):
            lake.append(partition)
    with everything_on_spark():
        killed_at("merge", cluster, slow_log, lambda: refresh(config, lake.table, lambda: session))
    cluster.start_worker()
    here = lake.config("here").model_copy(update={"engine": "auto"})
    with patch.object(engine, "_SMALL_FILES", 1000):
        refresh(here, lake.table, lambda: pytest.fail("Spark was started"))
    assert_same(everything(config), everything(here))
    assert verify(config, lake.table, lambda: session).differences == ()
