"""Concurrent refreshes and commits all end normally, and every published version is correct.

A version is the published statistics of a table at one snapshot. A fragment is a data file with the deletes that apply
to it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.errors import ProfileError, TableNotFoundError
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import refresh
from tests.pipeline.file_lake import Lake, assert_same, everything, rows
from tests.robustness.refresh_assertions import (
    assert_equals_scratch,
    differences_missing_at_random,
    find_stray_files,
    no_spark,
    refreshed,
    versions,
)
from tests.robustness.refresh_processes import Drivers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PUBLISHING = "before versions/N.json"


def once(stage: str, action: Callable[[], object]) -> Callable[[Progress], None]:
    """Return a progress listener that calls `action` when a stage begins for the first time."""
    stages: list[str] = []

    def listen(progress: Progress) -> None:
        if progress.stage == stage and not stages:
            stages.append(stage)
            action()

    return listen


def test_one_of_two_concurrent_refreshes_publishes(drivers: Drivers, spark: SparkSession, tmp_path: Path) -> None:
    """Two refreshes are about to publish the same version.

    One succeeds. The other one then publishes nothing, and returns the version of the first.
    """
    lake = Lake(tmp_path)
    for partition in (0, 1, 1):
        lake.append(partition)
    for number in (1, 2):
        outcomes = drivers.together([lake.config()] * 2, meet=PUBLISHING, count=2)
        assert [outcome.steps.count(PUBLISHING) for outcome in outcomes] == [2, 2], (
            "the drivers did not reach publishing together"
        )
        results = [outcome.answer["result"] for outcome in outcomes]
        assert [result["version"] for result in results] == [number, number]
        assert sorted(result["published"] for result in results) == [False, True]
        assert versions(lake.config()).numbers() == list(range(1, number + 1))
        lake.append(2)
    refreshed(lake.config(), spark)
    assert_equals_scratch(lake.config(), spark, tmp_path)
    assert find_stray_files(lake.config()) == set()


def test_the_loser_of_a_race_plans_again(spark: SparkSession, tmp_path: Path) -> None:
    """When a refresh is about to publish, another refresh publishes a later commit.

    The first refresh then publishes nothing, because the newest version is up to date.
    """
    lake = Lake(tmp_path)
    lake.append(0)
    refreshed(lake.config(), spark)
    lake.append(0)

    def overtake() -> None:
        lake.append(1)
        assert refreshed(lake.config(), spark).version == 2

    result = refreshed(lake.config(), spark, progress=once("publish", overtake))
    assert (result.version, result.published) == (2, False), "the newest version was current already"
    assert_equals_scratch(lake.config(), spark, tmp_path)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_rivals_may_compare_all_fragments(tmp_path: Path, seed: int) -> None:
    """A refresh loses a race to another one, plans again, and publishes a correct version.

    Some plans of both, chosen at random, compare all fragments.
    """
    lake = Lake(tmp_path)
    config = lake.config().model_copy(update={"engine": "auto"})

    def commit() -> None:
        write_deltalake(str(lake.uri), rows(lake.draw, 9), partition_by=["group"], mode="append")

    def overtake() -> None:
        DeltaTable(lake.uri).delete("\"group\" = 'a' and id % 2 = 0")
        assert refreshed(config, no_spark).version == 2  # type: ignore[arg-type]
        commit()

    commit()
    refreshed(config, no_spark)  # type: ignore[arg-type]
    commit()
    with differences_missing_at_random(seed):
        result = refreshed(config, no_spark, progress=once("publish", overtake))  # type: ignore[arg-type]
    assert (result.version, result.published) == (3, True)
    assert_equals_scratch(config, no_spark, tmp_path)  # type: ignore[arg-type]
    assert find_stray_files(config) == set()


def test_a_full_refresh_that_loses_a_race_still_reads_everything_once(spark: SparkSession, tmp_path: Path) -> None:
    """`--full` reads everything exactly once, even if another refresh publishes before it does."""
    lake = Lake(tmp_path)
    lake.append(0)
    lake.append(1)
    refreshed(lake.config(), spark)
    before = {entry.id: entry.files for entry in versions(lake.config()).read(1).fragments}

    def overtake() -> None:
        lake.append(2)
        refreshed(lake.config(), spark)

    result = refreshed(lake.config(), spark, request=RefreshRequest(full=True), progress=once("publish", overtake))
    assert (result.version, result.published, result.fragments_profiled) == (3, True, 3)
    after = {entry.id: entry.files for entry in versions(lake.config()).read(3).fragments}
    assert all(after[path] != files for path, files in before.items()), "an old profile was used"
    assert_equals_scratch(lake.config(), spark, tmp_path)


@pytest.mark.long
def test_selected_partitions_are_read_again_after_a_lost_race(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(0)
    lake.append(1)
    refreshed(lake.config(), spark)

    def overtake() -> None:
        lake.append(1)
        refreshed(lake.config(), spark)

    result = refreshed(
        lake.config(), spark, request=RefreshRequest(partitions=("part=0",)), progress=once("publish", overtake)
    )
    assert (result.version, result.published, result.fragments_profiled) == (3, True, 1)
    assert result.partitions_changed == ("part=0",)
    assert_equals_scratch(lake.config(), spark, tmp_path)


def plain_table(folder: Path) -> tuple[Lake, Callable[[], object]]:
    """Write a table of files.

    Return it, and a function that replaces a file by one with another name and fewer rows.
    """
    lake = Lake(folder)
    lake.append(0)
    lake.append(1)

    def rewrite() -> None:
        old = lake.files()[0]
        table = pq.read_table(old, partitioning=None)
        old.unlink()
        pq.write_table(table.slice(3), old.with_name("rewritten.parquet"))

    return lake, rewrite


def delta_table(folder: Path) -> tuple[Lake, Callable[[], object]]:
    """Write a Delta table.

    Return it, and a function that compacts it and removes the old files at once.
    """
    lake = Lake(folder)
    for _ in range(2):
        write_deltalake(str(lake.uri), rows(lake.draw, 30), mode="append")

    def compact() -> None:
        table = DeltaTable(lake.uri)
        table.optimize.compact()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    return lake, compact


@pytest.mark.parametrize("table", [plain_table, delta_table])
def test_a_file_removed_during_the_read_is_no_error(
    spark: SparkSession, tmp_path: Path, table: Callable[[Path], tuple[Lake, Callable[[], object]]]
) -> None:
    """A commit removes planned files, so the refresh plans again and publishes the new snapshot."""
    lake, commit = table(tmp_path)
    result = refreshed(lake.config(), spark, progress=once("profile", commit))
    assert (result.version, result.published) == (1, True)
    assert_equals_scratch(lake.config(), spark, tmp_path)


def test_a_commit_while_reading_waits_for_the_next_refresh(spark: SparkSession, tmp_path: Path) -> None:
    """A commit during a refresh is not in the version that this refresh publishes.

    This version has the planned snapshot. The next refresh publishes the commit.
    """
    lake = Lake(tmp_path)
    lake.append(0)
    first = refreshed(lake.config(), spark, progress=once("profile", lambda: lake.append(1)))
    assert (first.version, first.fragments_added, first.partitions_total) == (1, 1, 1)
    second = refreshed(lake.config(), spark)
    assert (second.version, second.fragments_added, second.fragments_profiled) == (2, 1, 1)
    assert_equals_scratch(lake.config(), spark, tmp_path)


@pytest.mark.parametrize("table", [plain_table, delta_table])
def test_a_table_deleted_while_it_is_read_is_named(
    spark: SparkSession, tmp_path: Path, table: Callable[[Path], tuple[Lake, Callable[[], object]]]
) -> None:
    """If a table is deleted during a refresh, the error names it, and the published version stays.

    A refresh that starts after the deletion has the same error.
    """
    lake, commit = table(tmp_path)
    refreshed(lake.config(), spark)
    before = everything(lake.config())
    commit()
    with pytest.raises(TableNotFoundError, match=str(lake.uri)):
        refreshed(lake.config(), spark, progress=once("profile", lambda: shutil.rmtree(lake.uri)))
    assert versions(lake.config()).numbers() == [1]
    assert_same(everything(lake.config()), before)
    with pytest.raises(TableNotFoundError, match=str(lake.uri)):
        refresh(lake.config(), lake.table, no_spark)


def test_a_vacuumed_file_of_the_snapshot_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """If a data file of the current snapshot is missing, the error names it, and nothing is published.

    When the file is back, the next refresh reads only this file.
    """
    lake, _ = delta_table(tmp_path)
    removed_file, other_file = sorted(DeltaTable(lake.uri).file_uris())
    Path(removed_file).rename(tmp_path / "away")
    with pytest.raises(ProfileError, match=f"{removed_file}"):
        refreshed(lake.config(), spark)
    assert versions(lake.config()).numbers() == []
    (tmp_path / "away").rename(removed_file)
    assert refreshed(lake.config(), spark).fragments_profiled == 1
    assert_equals_scratch(lake.config(), spark, tmp_path)
    assert Path(other_file).exists()
