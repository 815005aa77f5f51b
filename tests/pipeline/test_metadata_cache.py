"""A published version stores the metadata of the table's files that the refresh has read.

The plan of the next refresh, in another process, reads only the metadata of new files. A version is the statistics of a
table at one snapshot. The tasks that read metadata run in child processes or on Spark, with equal outcomes.
"""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import FatalFileError, FragmentError
from metastore_assets.formats import metadata_cache, open_table_format
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import is_current, plan_refresh, plan_version, refresh
from metastore_assets.spark import runner as spark_runner
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.store.entries import StoredMetadataCache
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from metastore_assets.tasks.isolation import IsolatedRunner
from metastore_assets.tasks.runner import TaskRunner
from tests.pipeline.file_lake import latest
from tests.tasks.child_tasks import Stubborn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _config(folder: Path) -> MetastoreConfig:
    (folder / "lake").mkdir(exist_ok=True)
    return MetastoreConfig(
        root=str(folder / "root"), tables=[TableConfig(name="t", uri=str(folder / "lake"), format="files")]
    )


def _write(folder: Path, number: int, text: str = "id,name\n1,x\n2,y\n") -> int:
    (folder / "lake" / f"{number}.csv").write_text(text)
    return len(text)


def _memory_file(config: MetastoreConfig) -> Path:
    """Return the file with the cached metadata of the newest version.

    The test's few entries are in one file.
    """
    metadata_cache = latest(config).metadata_cache
    assert isinstance(metadata_cache, StoredMetadataCache)
    (path,) = metadata_cache.entries.files.paths()
    return Path(config.root, "t", path)


def test_a_plan_reads_only_new_metadata(spark: SparkSession, tmp_path: Path) -> None:
    """A plan reports the bytes to read: those of new files, or of all files with `--full`.

    A version without new metadata references the previous version's file of cached metadata.
    """
    config = _config(tmp_path)
    table = config.table("t")
    sizes = [_write(tmp_path, number) for number in range(3)]
    assert plan_refresh(config, table).to_json()["bytes_to_read"] == 2 * sum(sizes)
    refresh(config, table, lambda: spark)
    metadata_cache.clear_process_cache()
    plan = plan_refresh(config, table)
    assert plan.snapshot.bytes_read == 0
    assert plan.to_json()["bytes_to_read"] == 0
    assert is_current(config, table, latest(config))
    new = _write(tmp_path, 3)
    metadata_cache.clear_process_cache()
    assert plan_refresh(config, table).to_json()["bytes_to_read"] == 2 * new
    assert plan_refresh(config, table, request=RefreshRequest(full=True)).to_json()["bytes_to_read"] == 2 * (
        sum(sizes) + new
    )
    first = _memory_file(config)
    refresh(config, table, lambda: spark)
    second = _memory_file(config)
    assert first != second
    (tmp_path / "lake" / "3.csv").unlink()
    refresh(config, table, lambda: spark)
    assert set(latest(config).metadata_cache) < set(VersionStore(ObjectStore(config.root), "t").read(2).metadata_cache)
    third = _memory_file(config)
    refresh(config, table, lambda: spark, request=RefreshRequest(full=True))
    assert latest(config).number == 4
    assert _memory_file(config) == third


def test_missing_or_damaged_cached_metadata_are_read_again(spark: SparkSession, tmp_path: Path) -> None:
    """The file of cached metadata is removed or damaged.

    The next plan reads the metadata from the table, but profiles nothing. The next version stores the metadata again.
    """
    config = _config(tmp_path)
    table = config.table("t")
    _write(tmp_path, 0)
    refresh(config, table, lambda: spark)
    for damage in (b"", b"PAR1 no parquet PAR1", None):
        path = _memory_file(config)
        path.unlink()
        if damage is not None:
            path.write_bytes(damage)
        metadata_cache.clear_process_cache()
        assert plan_refresh(config, table).stages == ()
        plan = plan_version(config, table)
        assert plan.snapshot.bytes_read > 0
        assert plan.to_profile == ()
        _write(tmp_path, latest(config).number)
        refresh(config, table, lambda: spark)
        metadata_cache.clear_process_cache()
        assert plan_refresh(config, table).snapshot.bytes_read == 0


def test_expire_retains_files_of_retained_versions(spark: SparkSession, tmp_path: Path) -> None:
    """An expiry removes a file of cached metadata only if no retained version references it.

    This is so whichever version wrote the file.
    """
    config = _config(tmp_path)
    table = config.table("t")
    _write(tmp_path, 0)
    refresh(config, table, lambda: spark)
    old = _memory_file(config)
    _write(tmp_path, 1)
    refresh(config, table, lambda: spark)
    retained_file = _memory_file(config)
    refresh(config, table, lambda: spark, request=RefreshRequest(full=True))
    assert _memory_file(config) == retained_file
    VersionStore(ObjectStore(config.root), "t").expire(1, timedelta(0), datetime.now(UTC) + timedelta(days=1))
    assert retained_file.exists()
    assert not old.exists()


def _ends(fatal: str, path: str) -> str:
    if path == fatal:
        signal.raise_signal(signal.SIGSEGV)
    if path == "bad":
        raise FragmentError("bad is bad", path=path)
    if path == "odd":
        raise Stubborn(code=7)
    return path.upper()


def test_spark_tasks_have_the_outcomes_of_isolated_tasks(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks on Spark and in child processes have equal outcomes, in the order of the tasks.

    Errors take the place of results. A file that ends its process is named.
    """
    paths = ["a", "bad", "odd", "deadly"]
    session_requests: list[int] = []

    def session() -> SparkSession:
        session_requests.append(1)
        return spark

    def outcomes(runner: TaskRunner, fatal: str) -> list[tuple[type, str]]:
        result = runner.outcomes(partial(_ends, fatal), paths, paths=paths, costs=[1] * 4)
        return [(type(one), one.path if isinstance(one, FragmentError) else str(one)) for one in result]

    sized_runner = SizedRunner(session)
    for fatal in ("", "deadly"):
        monkeypatch.setattr(spark_runner, "SPARK_BYTES", 5)
        expected = outcomes(IsolatedRunner(threads=2), fatal)
        assert outcomes(sized_runner, fatal) == expected
        assert session_requests == []
        monkeypatch.setattr(spark_runner, "SPARK_BYTES", 4)
        assert outcomes(sized_runner, fatal) == expected
        assert session_requests == [1]
        session_requests.clear()
    assert expected[3] == (FatalFileError, "deadly")


def test_text_is_described_by_tasks(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark tasks and child processes infer the same columns from text files, even if one file is broken."""
    config = _config(tmp_path)
    for number in range(4):
        _write(tmp_path, number)
    _write(tmp_path, 4, 'id,name\n1,x\n2,"y\n')
    monkeypatch.setattr(spark_runner, "SPARK_BYTES", 0)
    by_children = open_table_format(config.table("t"), metadata_cache.MetadataCache(ignore_process=True)).snapshot()
    by_tasks = open_table_format(
        config.table("t"), metadata_cache.MetadataCache(ignore_process=True), SizedRunner(lambda: spark)
    ).snapshot()
    assert by_tasks == by_children
    assert by_tasks.bytes_read == by_children.bytes_read > 0
