"""Refreshes remove old versions, and exactly the files that only these old versions reference.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metastore_assets.config import MetastoreConfig
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store import entries as entries_module
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.pipeline.file_lake import Lake, assert_same, everything
from tests.store.sample_versions import files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def pass_days(root: Path) -> None:
    """Make all files two days older."""
    for path in root.rglob("*"):
        if path.is_file():
            modified_at = path.stat().st_mtime - 2 * 86_400
            os.utime(path, (modified_at, modified_at))


def refreshed(config: MetastoreConfig, spark: SparkSession) -> VersionStore:
    refresh(config, config.tables[0], lambda: spark)
    return VersionStore(ObjectStore(config.root), "t")


def test_old_versions_are_removed_and_a_restore_reads_no_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After random commits, the newest two versions and their files are left, and no others.

    Besides, there are the history, and at most four files in `pending`, with profiles that refreshes saved.

    A data file that returns while a version with it is retained is not read again.
    """
    monkeypatch.setattr(entries_module, "_REWRITE_BELOW", 2)
    lake = Lake(tmp_path, random.Random(5))
    for partition in range(4):
        lake.append(partition)
    config = lake.config().model_copy(update={"keep_versions": 2})
    root = Path(config.root)
    for number in range(1, 6):
        versions = refreshed(config, spark)
        assert versions.numbers() == list(range(max(1, number - 1), number + 1))
        pass_days(root)
        lake.commit()
    paths = {info.path for info in versions.objects.list()} - {"versions/oldest"}
    assert sum(path.startswith("pending/") for path in paths) <= 4, "of the last two refreshes"
    paths = {path for path in paths if not path.startswith(("pending/", "history/"))}
    assert paths == {path for number in versions.numbers() for path in files_of(versions.read(number))}
    path = lake.files()[0]
    data, status = path.read_bytes(), path.stat()
    refreshed(config, spark)
    path.unlink()
    pass_days(root)
    refreshed(config, spark)
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    pass_days(root)
    assert refresh(config, config.tables[0], lambda: spark).fragments_profiled == 0
    empty = lake.config("scratch")
    refreshed(empty, spark)
    assert_same(everything(config), everything(empty))
