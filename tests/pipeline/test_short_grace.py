"""A command repeats itself once if an expiry without a grace period removed its files."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from metastore_assets.config import MetastoreConfig
from metastore_assets.pipeline import execution
from metastore_assets.pipeline import purge as purge_module
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.merging import compaction
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.purge import purge
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.stages import (
    MergePartitions,
    MergeTable,
    PlanStage,
    Publish,
    SaveProfiles,
    UpdateValueCounts,
)
from metastore_assets.store.backend import ObjectInfo
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version
from metastore_assets.store.versions import VersionStore
from tests.pipeline.file_lake import Lake, assert_same, everything, latest
from tests.pipeline.test_refresh import no_spark


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return create_lake(tmp_path)


def create_lake(folder: Path) -> Lake:
    """Create a lake, publish a version of its statistics, and then add a file to the lake.

    Every lake has the same files.
    """
    lake = Lake(folder, random.Random(4))
    for partition in (1, 1, 2, 2, 3):
        lake.append(partition)
    refresh(config(lake), lake.table, no_spark)
    lake.append(1)
    return lake


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The statistics of the lake from a first refresh, which reads all files.

    The refresh stores them in an empty root (the folder with all stored state).
    """
    lake = create_lake(tmp_path_factory.mktemp("expected"))
    refresh(config(lake, "scratch"), lake.table, no_spark)
    return everything(config(lake, "scratch"))


def config(lake: Lake, root: str = "root") -> MetastoreConfig:
    return lake.config(root).model_copy(update={"engine": "auto"})


def versions(lake: Lake) -> VersionStore:
    return VersionStore(ObjectStore(config(lake).root), "t")


def expire(lake: Lake) -> None:
    versions(lake).expire(1, timedelta(0))


def publish_and_expire(lake: Lake) -> None:
    refresh(config(lake), lake.table, no_spark)
    expire(lake)


@pytest.mark.parametrize("full", [False, True], ids=["changes", "full"])
@pytest.mark.parametrize("intrude", [expire, publish_and_expire])
@pytest.mark.parametrize("stage", [SaveProfiles, MergePartitions, MergeTable, UpdateValueCounts])
def test_an_expiry_during_a_refresh(
    lake: Lake,
    expected: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    stage: type[PlanStage],
    intrude: Callable[[Lake], None],
    full: bool,
) -> None:
    """A refresh whose files are removed by an expiry publishes the same result as without the expiry.

    The expiry removes files of the refresh, or of the version on which the refresh is based.
    """
    run, intrusions = execution._EXECUTORS[stage], [intrude]

    def run_after_intrusion(*arguments: Any) -> Any:
        if intrusions:
            intrusions.pop()(lake)
        return run(*arguments)

    monkeypatch.setitem(execution._EXECUTORS, stage, run_after_intrusion)
    refresh(config(lake), lake.table, no_spark, RefreshRequest(full=full))
    assert not intrusions
    assert_same(everything(config(lake)), expected)


def test_a_long_refresh_of_an_object_store_lists_its_new_files(
    lake: Lake, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long refresh on an object store notices that an expiry removed a file, and starts again.

    The listing also has many files of other versions, of which only one is in memory at a time.
    """
    monkeypatch.setattr(execution, "_UNCHECKED_SECONDS", 0.0)
    stage: type[PlanStage] = Publish
    publish, scan = execution._EXECUTORS[stage], ObjectStore.scan
    attempts: list[int] = []
    peaks: list[int] = []

    def scan_many(store: ObjectStore, prefix: str = "") -> Iterator[ObjectInfo]:
        tracemalloc.start()
        try:
            yield from scan(store, prefix)
            for number in range(20_000):
                yield ObjectInfo(f"{prefix}/{number:0100}.parquet", 1, datetime(2024, 1, 1, tzinfo=UTC))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()

    def publish_after_expiry(*arguments: Any) -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            expire(lake)
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "is_remote", True)
            patch.setattr(ObjectStore, "scan", scan_many)
            return publish(*arguments)

    monkeypatch.setitem(execution._EXECUTORS, stage, publish_after_expiry)
    refresh(config(lake), lake.table, no_spark)
    assert len(attempts) == 2
    assert max(peaks) < 2_000_000
    assert_same(everything(config(lake)), expected)


@pytest.mark.parametrize("intrude", [expire, publish_and_expire])
def test_an_expiry_during_a_purge(lake: Lake, monkeypatch: pytest.MonkeyPatch, intrude: Callable[[Lake], None]) -> None:
    """A purge publishes the same statistics again, although an expiry removed files that it needed.

    The expiry removes files that the purge has written, or the version on which the purge is based.
    """
    update, intrusions = purge_module.update_indexes, [intrude]

    def update_after_intrusion(engine: Engine, *arguments: Any) -> Any:
        if intrusions:
            intrusions.pop()(lake)
        return update(engine, *arguments)

    lake.files()[0].unlink()
    refresh(config(lake), lake.table, no_spark)
    answer = everything(config(lake))
    monkeypatch.setattr(purge_module, "update_indexes", update_after_intrusion)
    purge(Engine(no_spark), versions(lake), versions(lake).newest())
    assert not intrusions
    assert everything(config(lake)) == answer


def test_all_new_files_are_checked_before_a_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a version is published, all of its files that the previous version lacks are checked.

    Some files have only profiles (statistics) of retired fragments: data files that a recent version removed. With the
    random seed of this test, a compaction during the commits copies such profiles.
    """
    monkeypatch.setattr(compaction, "DEFAULT_LIMITS", compaction.COMPACT_ALL)
    check, checked_paths = execution._check_new_files, set[str]()

    def record_paths(running: execution.Execution, version: Version) -> None:
        checked_paths.update(running.builder.new_paths(version))
        check(running, version)

    monkeypatch.setattr(execution, "_check_new_files", record_paths)
    lake = Lake(tmp_path, random.Random(5))
    for number in range(6):
        lake.append(number % 3, 5)
    settings = config(lake).model_copy(update={"keep_versions": 4})
    paths: set[str] = set()
    for _ in range(10):
        if refresh(settings, lake.table, no_spark).published:
            version = latest(settings)
            paths_before, paths = paths, {*version.paths(), *version.auxiliary_files()}
            assert not paths_before or paths - paths_before <= {*checked_paths, ""}
            checked_paths.clear()
        lake.commit()
