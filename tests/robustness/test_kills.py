"""SIGKILL is sent before and after each write of a refresh.

The old version stays until the new one is published, and the next refresh is correct. A version is the published
statistics of a table at one snapshot. A fragment is a data file with the deletes that apply to it. A step is the moment
before or after a refresh writes a file of some kind.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.pipeline.refresh import plan_refresh
from tests.pipeline.file_lake import Lake, assert_same, everything, everything_on_spark, latest, rows
from tests.robustness.delta_tables import DeltaCopyOnWrite
from tests.robustness.histories import History
from tests.robustness.hudi_tables import HudiTables
from tests.robustness.iceberg_tables import IcebergCopyOnWrite
from tests.robustness.refresh_assertions import (
    assert_equals_scratch,
    copied,
    differences_missing_at_random,
    find_stray_files,
    from_scratch,
    refreshed,
    versions,
)
from tests.robustness.refresh_processes import Drivers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PROFILE = ("statistics", "histograms", "frequencies", "states")
WRITES = [
    *(f"fragments/*.{kind}.parquet" for kind in PROFILE),
    "pending/*.parquet",
    *(f"partitions/*.{kind}.parquet" for kind in PROFILE if kind != "states"),
    *(f"table/*.{kind}.parquet" for kind in PROFILE if kind not in ("frequencies", "states")),
    "value_counts/*.parquet",
    "value_counts/*.json",
    "index/*.index.parquet",
    *(f"entries/*.{kind}.parquet" for kind in ("fragments", "retired", "partitions", "shared_files", "metadata_cache")),
    "versions/N.json",
    "versions/newest",
    "pending/*.parquet.cleared",
]
STEPS = [f"{moment} {write}" for write in WRITES for moment in ("before", "after")]
QUICK = {
    "after pending/*.parquet",
    "after value_counts/*.json",
    "before versions/N.json",
    "after versions/N.json",
}
"""Steps at which every run of the tests kills a refresh. Tests of the other steps have the mark `long`."""


@dataclass(frozen=True)
class Prepared:
    """A table with one published version and a later commit, and both versions' expected contents."""

    lake: Lake
    before: dict[str, Any]
    after: dict[str, Any]
    to_profile: int
    """Number of fragments that the commit added."""


class DeltaLake(Lake):
    """The rows of a `Lake` in a Delta table, which is partitioned by `group`."""

    def write(self, count: int) -> None:
        write_deltalake(str(self.uri), rows(self.draw, count), partition_by=["group"], mode="append")


def prepared(lake: Lake, commit: Callable[[], int], spark: SparkSession) -> Prepared:
    refreshed(lake.config(), spark)
    before = everything(lake.config())
    to_profile = commit()
    with everything_on_spark():
        after = from_scratch(lake.config(), spark, lake.folder)
    return Prepared(lake, before, after, to_profile)


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    lake = Lake(tmp_path_factory.mktemp("plain"))
    removed_path = lake.append(1)
    for partition in (0, 0, 1, 2):
        lake.append(partition)

    def commit() -> int:
        removed_path.unlink()
        for partition in (0, 3):
            lake.append(partition)
        return 2

    return prepared(lake, commit, spark)


@pytest.fixture(scope="module")
def delta(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    lake = DeltaLake(tmp_path_factory.mktemp("delta"))
    lake.write(40)
    lake.write(40)

    def commit() -> int:
        before = set(DeltaTable(lake.uri).file_uris())
        DeltaTable(lake.uri).delete("\"group\" = 'a' and id % 2 = 0")
        DeltaTable(lake.uri).delete("\"group\" = 'zz'")
        write_deltalake(str(lake.uri), rows(lake.draw, 3), mode="append")
        return len(set(DeltaTable(lake.uri).file_uris()) - before)

    return prepared(lake, commit, spark)


def test_every_kind_of_write_is_killed(plain: Prepared, drivers: Drivers, tmp_path: Path) -> None:
    """A refresh has exactly the steps in `STEPS`, so the tests below kill a refresh at every step."""
    lake = copied(plain.lake, tmp_path)
    # As after an attempt that saved its profiles and was killed: then there are files to clear.
    versions(lake.config()).save_pending(latest(lake.config()).fragments[:1])
    outcome = drivers.refresh(lake.config())
    assert set(outcome.steps) == set(STEPS)
    assert_same(everything(lake.config()), plain.after)


@pytest.mark.parametrize(
    "step", [step if step in QUICK else pytest.param(step, marks=pytest.mark.long) for step in STEPS]
)
def test_a_kill_at_any_step_loses_nothing(
    plain: Prepared, drivers: Drivers, spark: SparkSession, tmp_path: Path, step: str
) -> None:
    assert_survives(plain, drivers, spark, tmp_path, step)


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_on_delta_loses_nothing(
    delta: Prepared, drivers: Drivers, spark: SparkSession, tmp_path: Path, step: str
) -> None:
    assert_survives(delta, drivers, spark, tmp_path, step)


def assert_survives(plain: Prepared, drivers: Drivers, spark: SparkSession, folder: Path, step: str) -> None:
    """Kill a refresh of a copy of the table at a step, and refresh again.

    After each of the two refreshes, the newest version must have the expected content. In the end, no file may be left
    over, except in the folder `pending` if the killed refresh published. Whether a refresh uses the table's commits, or
    compares all fragments, is random.
    """
    lake = copied(plain.lake, folder)
    config = lake.config()
    outcome = drivers.refresh(config, *random.Random(step).choice([(), ("--compare",)]), kill=step)
    assert outcome.killed
    is_published = "after versions/N.json" in outcome.steps
    is_saved = "after pending/*.parquet" in outcome.steps
    assert versions(config).numbers() == ([1, 2] if is_published else [1])
    assert_same(everything(config), plain.after if is_published else plain.before)

    with differences_missing_at_random(step):
        result = refreshed(config, spark)
    assert (result.version, result.published) == (2, not is_published)
    assert result.fragments_profiled == (0 if is_saved else plain.to_profile)
    assert_same(everything(config), plain.after)
    # A driver killed between publishing and clearing leaves its list of profiles to the next publisher.
    assert find_stray_files(config, may_stay=("pending",) if is_published else ()) == set()


@pytest.mark.parametrize("kind", [DeltaCopyOnWrite, IcebergCopyOnWrite, HudiTables])
def test_a_kill_loses_nothing_of_a_plan_from_a_difference(
    drivers: Drivers, spark: SparkSession, tmp_path: Path, kind: type[History]
) -> None:
    """A refresh is killed before it publishes, and the next one uses the saved profiles.

    Both plan from the difference of two snapshots, instead of comparing all fragments.
    """
    history = kind(tmp_path, 3)
    history.append(20)
    config = history.config().model_copy(update={"engine": "auto"})
    table = config.tables[0]
    refreshed(config, spark)
    before = everything(config)
    history.append(20)
    history.delete()
    plan = plan_refresh(config, table)
    assert plan.to_json()["full_comparison"] is None
    assert plan.removed_fragments

    assert drivers.refresh(config, kill="before versions/N.json").killed
    assert versions(config).numbers() == [1]
    assert_same(everything(config), before)

    assert plan_refresh(config, table).to_json()["full_comparison"] is None
    result = refreshed(config, spark)
    assert (result.version, result.published, result.fragments_profiled) == (2, True, 0)
    assert_equals_scratch(config, spark, tmp_path)
    assert find_stray_files(config) == set()


def test_the_next_publisher_clears_pending_files_of_a_killed_one(
    plain: Prepared, drivers: Drivers, spark: SparkSession, tmp_path: Path
) -> None:
    lake = copied(plain.lake, tmp_path)
    assert drivers.refresh(lake.config(), kill="after versions/N.json").killed
    lake.files()[0].unlink()
    refreshed(lake.config(), spark)
    assert_equals_scratch(lake.config(), spark, tmp_path)
    assert find_stray_files(lake.config()) == set()


@pytest.mark.long
def test_a_driver_killed_with_its_spark_loses_nothing(plain: Prepared, tmp_path: Path, spark: SparkSession) -> None:
    """If the driver is killed, its JVM and workers end, too, as on a real machine.

    The old version stays, and the next refresh is correct and leaves no stray file.
    """
    lake = copied(plain.lake, tmp_path / "table")
    outcome = Drivers(tmp_path, None).refresh(lake.config(), kill="before fragments/*.frequencies.parquet")
    assert outcome.killed
    assert_same(everything(lake.config()), plain.before)
    refreshed(lake.config(), spark)
    assert_same(everything(lake.config()), plain.after)
    assert find_stray_files(lake.config()) == set()
