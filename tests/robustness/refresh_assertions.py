"""Functions that refresh the only table of a configuration, and check the published version.

A version is the published statistics of a table at one snapshot. A version *from scratch* is the first one that a
refresh publishes under an empty root. A fragment is a data file with the deletes that apply to it.

To find what changed since the last version, the plan of a refresh uses the difference of two snapshots, or compares all
fragments of both. A root is the folder with all stored state.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from metastore_assets.config import MetastoreConfig
from metastore_assets.formats.base import NoDiff, SnapshotDiff, SnapshotReference, TableFormat
from metastore_assets.formats.delta.table import DeltaFormat
from metastore_assets.formats.hudi.table import HudiFormat
from metastore_assets.formats.iceberg.table import IcebergFormat
from metastore_assets.formats.lance.table import LanceFormat
from metastore_assets.pipeline.outcome import RefreshResult
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.pipeline.file_lake import Lake, assert_same, everything
from tests.store.sample_versions import files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = timedelta(days=-1)


def no_spark() -> SparkSession:
    """Raise an error.

    Refreshes that must not start Spark get this instead of a function that starts it.
    """
    raise AssertionError("Spark was started for small work")


def versions(config: MetastoreConfig) -> VersionStore:
    """Return the version store of the only table."""
    return VersionStore(ObjectStore(config.root, config.storage_options), config.tables[0].name)


def refreshed(config: MetastoreConfig, spark: SparkSession, **how: Any) -> RefreshResult:
    """Refresh the only table.

    `how` has further arguments of `refresh`.
    """
    return refresh(config, config.tables[0], lambda: spark, **how)


@contextmanager
def differences_missing_at_random(seed: int | str) -> Iterator[None]:
    """During the block, let about every third plan compare all fragments.

    Other plans may use the difference of two snapshots. The random choice does not change the random steps of a
    history.
    """
    draw = random.Random(f"differences {seed}")
    formats: list[type[TableFormat]] = [DeltaFormat, HudiFormat, IcebergFormat, LanceFormat]
    with ExitStack() as patches:
        for table_format in formats:
            changes = table_format.changes

            def sometimes(self: TableFormat, since: SnapshotReference, changes: Any = changes) -> SnapshotDiff | NoDiff:
                result: SnapshotDiff | NoDiff = changes(self, since)
                return NoDiff("left out by the test") if draw.random() < 1 / 3 else result

            patches.enter_context(patch.object(table_format, "changes", sometimes))
        yield


def from_scratch(config: MetastoreConfig, spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Return everything that a first refresh under an empty root stores."""
    empty = config.model_copy(update={"root": str(folder / "scratch"), "storage_options": {}})
    shutil.rmtree(empty.root, ignore_errors=True)
    refreshed(empty, spark)
    return everything(empty)


def assert_equals_scratch(config: MetastoreConfig, spark: SparkSession, folder: Path) -> None:
    """Assert that the newest version equals one from scratch."""
    assert_same(everything(config), from_scratch(config, spark, folder))


def copied(lake: Lake, folder: Path) -> Lake:
    """Copy a lake with its roots, including modification times, so that fragments stay the same."""
    shutil.copytree(lake.folder, folder, dirs_exist_ok=True)
    return replace(lake, folder=folder)


def find_stray_files(config: MetastoreConfig, timeout: float = 60.0, *, may_stay: tuple[str, ...] = ()) -> set[str]:
    """Expire all versions but the newest, and return the files that the newest does not reference.

    The file `versions/oldest`, and files in the folders `may_stay`, are omitted. A task of a killed driver may still be
    writing, so the expiry is repeated until it leaves no other file, for at most `timeout` seconds.
    """
    store = versions(config)
    end = time.monotonic() + timeout
    while True:
        store.expire(keep=1, grace=_AT_ONCE)
        latest = store.latest()
        assert latest is not None
        referenced_paths = set(files_of(latest))
        optional = {"versions/oldest"}
        folder = Path(store.objects.uri())
        paths = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert referenced_paths <= paths, "expire removed a referenced file"
        stray_paths = {path for path in paths - referenced_paths - optional if path.split("/")[0] not in may_stay}
        if not stray_paths or time.monotonic() > end:
            return stray_paths
        time.sleep(0.2)
