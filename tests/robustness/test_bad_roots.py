"""If a root cannot be written, the error is clear and the last version stays.

Refreshes succeed again when the root can be written. A root is the folder with all stored state. A version is the
published statistics of a table at one snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import StoreError
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.refresh import refresh
from tests.pipeline.file_lake import Lake, assert_same, everything
from tests.robustness.conftest import remount
from tests.robustness.refresh_assertions import assert_equals_scratch, find_stray_files, no_spark, refreshed, versions
from tests.robustness.refresh_processes import Drivers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def published(folder: Path, spark: SparkSession, root: Path) -> tuple[Lake, MetastoreConfig]:
    """Publish a version of a table, and then commit to the table.

    Returns the table and its configuration.
    """
    lake = Lake(folder)
    for partition in (0, 0, 1):
        lake.append(partition)
    config = lake.config(str(root))
    refreshed(config, spark)
    lake.append(0)
    return lake, config


def fill(disk: Path, free_bytes: int) -> None:
    """Fill a disk until only `free_bytes` bytes are free."""
    with open(disk / "filler", "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            file.truncate(max(0, file.tell() - free_bytes))


def free(disk: Path) -> None:
    (disk / "filler").unlink()


@pytest.mark.parametrize("stage", ["profile", "reduce", "publish"])
def test_a_disk_that_becomes_full_leaves_the_last_version(
    spark: SparkSession, tmp_path: Path, small_disk: Path, stage: str
) -> None:
    """If the disk of the root becomes full during a refresh, the error names a file and the cause.

    The last version stays. Once there is space again, the next refresh does not read the data files whose statistics
    the failed refresh had saved.
    """
    _, config = published(tmp_path, spark, small_disk / "root")
    before = everything(config)

    def listen(progress: Progress) -> None:
        if progress.stage == stage and not (small_disk / "filler").exists():
            fill(small_disk, 0)

    with pytest.raises(StoreError, match=rf"{small_disk}/root/t/.*\bno space\b"):
        refreshed(config, spark, progress=listen)
    assert versions(config).numbers() == [1]
    assert_same(everything(config), before)
    free(small_disk)
    result = refreshed(config, spark)
    assert (result.version, result.fragments_profiled) == (2, 1 if stage == "profile" else 0)
    assert_equals_scratch(config, spark, tmp_path)
    assert find_stray_files(config) == set()


@pytest.mark.long
def test_a_nearly_full_disk_leaves_the_last_version(spark: SparkSession, tmp_path: Path, small_disk: Path) -> None:
    """However little space the disk of the root has, a refresh succeeds or fails with a clear error.

    The last version stays if the refresh fails.
    """
    _, config = published(tmp_path, spark, small_disk / "root")
    before = everything(config)
    outcomes = []
    for free_bytes in range(0, 200_000, 8192):
        fill(small_disk, free_bytes)
        try:
            result = refreshed(config, spark)
        except StoreError as error:
            outcomes.append(str(error))
            assert versions(config).numbers() == [1]
            assert_same(everything(config), before)
            free(small_disk)
        else:
            assert result.version == 2
            break
    free(small_disk)
    assert all("no space left" in outcome for outcome in outcomes)
    assert len({outcome.rpartition(".")[0].split(".")[-1] for outcome in outcomes}) > 1
    assert_equals_scratch(config, spark, tmp_path)
    assert find_stray_files(config) == set()


def test_a_limit_on_the_size_of_files_is_a_clear_error(spark: SparkSession, tmp_path: Path, drivers: Drivers) -> None:
    """If a limit on file sizes (`ulimit -f`) makes a refresh fail, the error names this limit.

    The child process that reads the table cannot create its shared memory file.
    """
    _, config = published(tmp_path, spark, tmp_path / "root")
    outcome = drivers.refresh(config, "--file-size=2000")
    assert outcome.answer["error"] == "MetastoreError"
    assert re.search("reads the files of tables cannot share a file of .*ulimit -f", outcome.answer["message"])
    assert versions(config).numbers() == [1]
    refreshed(config, spark)
    assert_equals_scratch(config, spark, tmp_path)
    assert find_stray_files(config) == set()


def test_a_root_that_became_read_only_is_a_clear_error(spark: SparkSession, tmp_path: Path, small_disk: Path) -> None:
    lake, config = published(tmp_path, spark, small_disk / "root")
    before = everything(config)
    remount(small_disk, "ro")
    with pytest.raises(StoreError, match=rf"{small_disk}/root/t/.*\bread-only\b"):
        refreshed(config, spark)
    assert_same(everything(config), before)
    assert Metastore(config.root).table("t").count().value == 150
    lake.files()[-1].unlink()
    with pytest.raises(StoreError, match=r"\bread-only\b"):
        refreshed(config, spark)
    remount(small_disk, "rw")
    refreshed(config, spark)
    assert_equals_scratch(config, spark, tmp_path)


def below_a_file(folder: Path) -> Path:
    (folder / "file").touch()
    return folder / "file" / "root"


def in_proc(folder: Path) -> Path:
    return Path("/proc/metastore")


@pytest.mark.parametrize("make_root", [below_a_file, in_proc])
def test_an_unwritable_root_is_a_clear_error(
    spark: SparkSession, tmp_path: Path, make_root: Callable[[Path], Path]
) -> None:
    lake = Lake(tmp_path)
    lake.append(0)
    config = lake.config(str(make_root(tmp_path)))
    with pytest.raises(StoreError, match=f"{config.root}|/proc") as error_info:
        refresh(config, lake.table, lambda: spark)
    assert len(str(error_info.value).splitlines()) == 1


def test_a_root_of_an_unknown_scheme_is_a_clear_error(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(0)
    config = MetastoreConfig(root="ftp://somewhere/metastore", tables=[lake.table])
    with pytest.raises(StoreError, match="ftp://somewhere/metastore"):
        refresh(config, lake.table, no_spark)


def test_a_version_is_published_although_profiles_cannot_be_cleared_afterwards(tmp_path: Path) -> None:
    """A refresh publishes a version even if it cannot clear its saved profiles afterwards.

    Saved profiles are statistics of data files that a refresh stores before it publishes. Although they are still
    there, the next refresh publishes nothing.
    """
    lake = Lake(tmp_path)
    lake.append(0)
    config = lake.config().model_copy(update={"engine": "auto"})
    pending = Path(config.root) / "t" / "pending"

    def replace_folder(event: Progress) -> None:
        if event.stage == "publish":
            pending.rename(tmp_path / "moved")
            pending.touch()

    result = refresh(config, lake.table, no_spark, progress=replace_folder)
    assert (result.version, result.published) == (1, True)
    assert Metastore(config.root).table("t").version.number == 1
    pending.unlink()
    (tmp_path / "moved").rename(pending)
    assert not refresh(config, lake.table, no_spark).published
