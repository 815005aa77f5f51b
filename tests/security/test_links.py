"""An attacker with write access to the root cannot redirect deletions.

Neither links nor forged lists of files to delete redirect them.

A root is the folder with all stored state. A version is the published statistics of a table at one snapshot. A JSON
document of each version lists its files.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import StoreError
from metastore_assets.history import append_versions, remove_values
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.purge import purge
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.lookup.publishing import publish

NOW = datetime.now(UTC) + timedelta(days=30)


def no_spark() -> Any:
    raise AssertionError("Spark was started for small work")


@pytest.fixture
def outside_folder(tmp_path: Path) -> Path:
    """A folder of someone else beside the root, with very old files."""
    folder = tmp_path / "victim"
    (folder / "inner").mkdir(parents=True)
    for name in ("precious.parquet", "inner/precious.txt", f".{'0' * 32}.tmp"):
        (folder / name).write_text("precious")
        os.utime(folder / name, (0, 0))
    return folder


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def forge_garbage_list(table: Path, paths: list[str], number: int, *, in_document: bool) -> None:
    """Replace the list of unreferenced files of version `number` by `paths`.

    With `in_document`, the list is in the version's document, otherwise in a file that the document names.
    """
    name = "entries/forged.garbage.parquet"
    pq.write_table(pa.table({"path": paths}), table / name)
    document = table / "versions" / f"{number}.json"
    garbage_fields = {"garbage": paths} if in_document else {"garbage": [], "garbage_manifest": name}
    document.write_text(json.dumps({**json.loads(document.read_text()), **garbage_fields}))


def write_and_refresh(config: MetastoreConfig, lake: Path, number: int) -> None:
    pq.write_table(pa.table({"x": [number]}), lake / f"{number}.parquet")
    refresh(config, config.tables[0], no_spark)


@pytest.mark.parametrize(
    ("path", "in_document"),
    [
        ("entries/link/precious.parquet", False),
        ("link/inner/precious.txt", False),
        ("../../victim/precious.parquet", False),
        ("/etc/nowhere", False),
        ("entries/link/precious.parquet", True),
        ("link/inner/precious.txt", True),
    ],
)
def test_forged_garbage_list_deletes_no_other_files(
    tmp_path: Path, outside_folder: Path, monkeypatch: pytest.MonkeyPatch, path: str, in_document: bool
) -> None:
    monkeypatch.setattr("metastore_assets.pipeline.execution.GRACE", timedelta(days=-1))
    (tmp_path / "lake").mkdir()
    table_config = TableConfig(name="t", uri=str(tmp_path / "lake"))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table_config], engine="auto", keep_versions=1)
    for number in range(2):
        write_and_refresh(config, tmp_path / "lake", number)
    table = tmp_path / "root" / "t"
    os.symlink(outside_folder, table / "entries" / "link")
    os.symlink(outside_folder, table / "link")
    for number in range(2, 5):
        newest = VersionStore(ObjectStore(config.root), "t").newest()
        forge_garbage_list(table, [path], newest, in_document=in_document)
        before = contents(outside_folder)
        write_and_refresh(config, tmp_path / "lake", number)
        assert contents(outside_folder) == before


def expire(versions: VersionStore) -> None:
    versions.expire(1, timedelta(0), NOW)


def drop(versions: VersionStore) -> None:
    versions.drop_outdated(versions.newest(), 1, timedelta(days=-1))


def purge_all(versions: VersionStore) -> None:
    purge(Engine(no_spark, "auto"), versions, versions.newest())


def append_when_due(versions: VersionStore) -> None:
    append_versions(versions)
    remove_values(versions, versions.newest())


def discard(versions: VersionStore) -> None:
    latest = versions.latest()
    assert latest is not None
    versions.discard(latest, None)


WAYS = [expire, drop, purge_all, append_when_due, discard]


@pytest.fixture(scope="module")
def published_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with three versions of a table, and a history table of the statistics of these versions."""
    root = tmp_path_factory.mktemp("published") / "root"
    store = ObjectStore(str(root))
    for _ in range(3):
        publish(store, pa.table({"x": ["a", "b"]}))
    append_versions(VersionStore(store, "orders"))
    return root


@pytest.mark.parametrize(
    "link_path", ["entries", "profiles", "value_counts", "pending", "backfills", "history", "versions", ""]
)
@pytest.mark.parametrize("way", WAYS)
def test_deletion_does_not_follow_links(
    published_root: Path, tmp_path: Path, outside_folder: Path, way: Callable[[VersionStore], None], link_path: str
) -> None:
    """No deletion follows a link that replaces a folder of a table, or the table's folder itself.

    The folder was moved elsewhere, and the link leads to it.
    """
    shutil.copytree(published_root, tmp_path / "root")
    versions = VersionStore(ObjectStore(str(tmp_path / "root")), "orders")
    folder = tmp_path / "root" / "orders" / link_path
    if folder.exists():
        folder.rename(tmp_path / "moved")
        for path in (tmp_path / "moved").rglob("*"):
            os.utime(path, (0, 0))
    else:
        (tmp_path / "moved").mkdir()
        (tmp_path / "moved" / "precious.txt").write_text("precious")
        os.utime(tmp_path / "moved" / "precious.txt", (0, 0))
    os.symlink(tmp_path / "moved", folder)
    os.symlink(outside_folder, tmp_path / "moved" / "further")
    before = contents(tmp_path / "moved"), contents(outside_folder)
    with suppress(StoreError):
        way(versions)
    assert before[0] <= contents(tmp_path / "moved")
    assert contents(outside_folder) == before[1]
    assert folder.is_symlink()


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    os.symlink(tmp_path / "disk", tmp_path / "root")
    store = ObjectStore(str(tmp_path / "root"))
    for _ in range(3):
        publish(store, pa.table({"x": ["a", "b"]}))
    versions = VersionStore(store, "orders")
    assert versions.expire(1, timedelta(0), NOW).versions == 2
    assert versions.numbers() == [3]


def test_folders_are_removed_without_following_links(tmp_path: Path, outside_folder: Path) -> None:
    store = ObjectStore(str(tmp_path / "root")).child("orders")
    store.write("run/a/file", b"1")
    os.symlink(outside_folder, tmp_path / "root" / "orders" / "run" / "link")
    os.symlink(outside_folder, tmp_path / "root" / "orders" / "other")
    before = contents(outside_folder)
    store.delete_folder("run")
    assert not (tmp_path / "root" / "orders" / "run").exists()
    for delete in (lambda: store.delete_folder("other/inner"), lambda: store.delete(["other/precious.parquet"])):
        with pytest.raises(StoreError, match=r"\bother\b.*\blink\b"):
            delete()
    store.delete(["other", "nothing/there"])
    assert not (tmp_path / "root" / "orders" / "other").is_symlink()
    assert contents(outside_folder) == before


def test_a_pickled_store_does_not_follow_links(tmp_path: Path, outside_folder: Path) -> None:
    (tmp_path / "root").mkdir()
    os.symlink(outside_folder, tmp_path / "root" / "orders")
    store = pickle.loads(pickle.dumps(ObjectStore(str(tmp_path / "root")).child("orders")))
    with pytest.raises(StoreError, match=r"\borders\b.*\blink\b"):
        store.delete(["precious.parquet"])
    with pytest.raises(StoreError, match=r"\borders\b.*\blink\b"):
        store.remove_unfinished(NOW)
    assert f".{'0' * 32}.tmp" in contents(outside_folder)
