"""A purge leaves no unreferenced file, and a refresh that runs meanwhile starts again or fails.

A version is the published statistics of a table at one snapshot. A root is the folder with all stored state. A purge
removes older versions and the statistics of removed rows without a grace period.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from metastore_assets.cli.commands import cli
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import CorruptionError, MetastoreError, ObjectNotFoundError
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline import execution
from metastore_assets.pipeline import refresh as refreshing
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.purge import PurgeResult
from metastore_assets.pipeline.purge import purge as purge_with
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.verification.verify import verify
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version
from metastore_assets.store.version_document import stored_entries
from metastore_assets.store.versions import VersionStore
from tests.robustness.refresh_assertions import no_spark
from tests.security.token_search import files_with

PERSON = "Zyzzyva-Person"
KILLED = """
import os, sys
from metastore_assets.store.versions import VersionStore
from metastore_assets.cli.commands import cli
def killed(*given, **named):
    os.kill(os.getpid(), 9)
VersionStore.publish = killed
cli(["refresh", "t", "--config", sys.argv[1]])
"""


def config_of_lake(folder: Path) -> MetastoreConfig:
    table = TableConfig.model_validate({"name": "t", "uri": str(folder / "lake")})
    config = MetastoreConfig(root=str(folder / "root"), engine="auto", tables=[table])
    (folder / "metastore.yaml").write_text(config.model_dump_json(exclude_unset=True), encoding="utf-8")
    return config


def write(folder: Path, start: int, name: str = "x") -> None:
    rows = pa.table({"day": ["1", "2", "3"], "name": [name] * 3, "n": [start, start + 1, start + 2]})
    write_deltalake(str(folder / "lake"), rows, mode="append", partition_by=["day"])


def version_store(config: MetastoreConfig) -> VersionStore:
    return VersionStore(ObjectStore(config.root), "t")


def purge(config: MetastoreConfig, before: int) -> PurgeResult:
    return purge_with(Engine(no_spark, "auto"), version_store(config), before)


def unreferenced_paths(config: MetastoreConfig) -> set[str]:
    """Return the stored files of the table that no version references.

    The documents of versions and the files of the history are left out.
    """
    versions = version_store(config)
    paths = {info.path for info in versions.objects.list() if not versions.documents.contains(info.path)}
    for number in versions.numbers():
        version = versions.read(number)
        paths -= {*version.paths(), *version.auxiliary_files()}
        paths -= {path for entries in stored_entries(version) for path in entries.files.paths()}
    return {path for path in paths if not path.startswith("history/")}


@pytest.fixture
def config(tmp_path: Path) -> MetastoreConfig:
    """The configuration of a table that has one version."""
    write(tmp_path, 0)
    config = config_of_lake(tmp_path)
    refresh(config, config.tables[0], no_spark)
    return config


def test_files_of_a_killed_refresh_are_purged(tmp_path: Path, config: MetastoreConfig) -> None:
    """The first purge after a killed refresh removes and counts the files that the refresh wrote.

    These files have values of rows that are deleted by now.
    """
    write(tmp_path, 10, PERSON)
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "metastore.yaml")], env=environment, check=False, timeout=300
    )
    assert done.returncode == -signal.SIGKILL
    root = tmp_path / "root"
    kill_program = files_with(root, PERSON)
    assert len(kill_program) > 3
    half_written = root / "t" / "fragments" / f".{'0' * 32}.tmp"
    half_written.write_text(PERSON)
    DeltaTable(str(tmp_path / "lake")).delete(f"name = '{PERSON}'")
    version = refresh(config, config.tables[0], no_spark).version
    assert files_with(root, PERSON)
    done = purge(config, version)
    assert files_with(root, PERSON) == []
    assert unreferenced_paths(config) == set()
    assert done.unfinished > 3
    assert purge(config, done.published).unfinished == 0
    assert verify(config, config.tables[0], no_spark).is_right


def _damage_document(versions: VersionStore) -> None:
    versions.objects.write("versions/1.json", b"{")


def _remove_document(versions: VersionStore) -> None:
    versions.objects.delete(["versions/1.json"])


def _remove_entries(versions: VersionStore) -> None:
    versions.objects.delete([path for entries in stored_entries(versions.read(1)) for path in entries.files.paths()])


@pytest.mark.parametrize("damage", [_damage_document, _remove_document, _remove_entries])
def test_a_version_that_is_purged_need_not_be_readable(
    tmp_path: Path, config: MetastoreConfig, monkeypatch: pytest.MonkeyPatch, damage: Callable[[VersionStore], None]
) -> None:
    """A purge succeeds even if a version that it removes is damaged, or removed by a refresh meanwhile.

    The values in the files of this version are purged as well.
    """
    write(tmp_path, 10, PERSON)
    refresh(config, config.tables[0], no_spark)
    DeltaTable(str(tmp_path / "lake")).delete(f"name = '{PERSON}'")
    version = refresh(config, config.tables[0], no_spark).version
    numbers = VersionStore.numbers

    def list_and_damage(self: VersionStore) -> list[int]:
        version_numbers = numbers(self)
        damage(self)
        return version_numbers

    with monkeypatch.context() as patch:
        patch.setattr(VersionStore, "numbers", list_and_damage)
        assert purge(config, version).published == 4
    assert version_store(config).numbers() == [4]
    assert files_with(tmp_path / "root", PERSON) == []
    assert unreferenced_paths(config) == set()


def test_a_purge_removes_nothing_if_a_version_that_remains_is_damaged(tmp_path: Path, config: MetastoreConfig) -> None:
    for start in (10, 20):
        write(tmp_path, start)
        refresh(config, config.tables[0], no_spark)
    versions = version_store(config)
    versions.objects.write("versions/2.json", b"{")
    paths = {info.path for info in versions.objects.list() if not info.path.startswith("pending/")}
    with pytest.raises(CorruptionError, match=r"versions/2\.json"):
        purge(config, 2)
    assert paths <= {info.path for info in versions.objects.list()}


def test_command_names_copies_that_it_cannot_purge(tmp_path: Path, config: MetastoreConfig) -> None:
    version_store(config).objects.write(f"fragments/{0:032x}.states.parquet", PERSON.encode())
    done = CliRunner().invoke(cli, ["purge", "t", "--before", "1", "--config", str(tmp_path / "metastore.yaml")])
    assert done.exit_code == 0, done.output
    assert "these include 1 file of unfinished refreshes" in done.output
    for function in ("event logs of Dagster", "reports", "backups"):
        assert function in done.output
    assert files_with(tmp_path / "root", PERSON) == []


def run_before(monkeypatch: pytest.MonkeyPatch, function: str, action: Callable[[], Any]) -> None:
    """Do `action` once, right before the first call of `function`, which is a step of a refresh."""
    todo = [action]
    owner = next(owner for owner in (VersionStore, refreshing, execution) if hasattr(owner, function))
    step = getattr(owner, function)

    def before(*arguments: Any, **options: Any) -> Any:
        if todo:
            todo.pop()()
        return step(*arguments, **options)

    monkeypatch.setattr(owner, function, before)


PLACES = ["plan_next_version", "profile_all", "resolve_auto_policies", "VersionBuilder", "publish", "save_pending"]


@pytest.mark.parametrize(
    ("function", "how"),
    [
        *((function, {}) for function in PLACES),
        *(
            (function, how)
            for function in ("profile_all", "publish")
            for how in ({"full": True}, {"partitions": ("day=1",)})
        ),
    ],
    ids=str,
)
def test_a_concurrent_refresh_starts_again(
    tmp_path: Path, config: MetastoreConfig, monkeypatch: pytest.MonkeyPatch, function: str, how: dict[str, Any]
) -> None:
    """If a purge runs during a refresh, the refresh publishes a complete version, or fails.

    Files that the refresh wrote before the purge are removed. If the refresh fails, its error does not call the root
    damaged, and the next refresh succeeds.
    """
    write(tmp_path, 10, PERSON)
    purged_versions = []

    run_before(
        monkeypatch, function, lambda: purged_versions.append(purge(config, version_store(config).newest()).published)
    )
    failure: MetastoreError | None = None
    try:
        result = refresh(config, config.tables[0], no_spark, RefreshRequest(**how))
    except MetastoreError as error:
        failure, result = error, refresh(config, config.tables[0], no_spark, RefreshRequest(**how))
    assert purged_versions
    if failure is not None:  # The removed files are its cause, but the root is not damaged.
        assert isinstance(failure.__cause__, CorruptionError | ObjectNotFoundError)
        assert not isinstance(failure, CorruptionError | ObjectNotFoundError)
    versions = version_store(config)
    newest = versions.read(result.version)
    assert newest.number > newest.purged == purged_versions[0]
    assert {path for path in newest.paths() if versions.objects.info(path) is None} == set()
    assert verify(config, config.tables[0], no_spark).is_right
    assert Metastore(config.root).table("t").count().value == 6
    assert purge(config, newest.number).published == newest.number + 1
    assert unreferenced_paths(config) == set()


def test_profiles_saved_before_a_purge_are_not_used_after_it(config: MetastoreConfig) -> None:
    """A refresh after a purge does not use profiles that were saved before the purge.

    A process that does not know of the purge yet may save profiles after it. Such profiles are not used either.
    """
    before = version_store(config)
    latest = before.latest()
    assert latest is not None
    fragments = list(latest.fragments)
    purged_version = purge(config, 1).published
    before.save_pending(fragments[:1])
    assert version_store(config).pending() == []
    after = version_store(config)
    after.latest()
    after.save_pending(fragments[:1])
    assert len(version_store(config).pending()) == 1
    assert _read(config, purged_version).purged == purged_version
    assert refresh(config, config.tables[0], no_spark, RefreshRequest(full=True)).version == purged_version + 1
    assert _read(config, purged_version + 1).purged == purged_version
    purge(config, purged_version + 1)
    assert version_store(config).pending() == []
    assert not version_store(config).objects.list("pending")


def _read(config: MetastoreConfig, number: int) -> Version:
    return version_store(config).read(number)
