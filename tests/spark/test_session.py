"""A local session uses an archive of Java classes that is built once.

Without the archive, the session starts more slowly, and nothing else differs.
"""

from __future__ import annotations

import os
import pwd
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from metastore_assets.errors import MetastoreError
from metastore_assets.resources.spark import running_spark
from metastore_assets.spark import jvm


def archive_of(options: str) -> Path:
    return Path(options.rpartition("-XX:SharedArchiveFile=")[2].removesuffix('"'))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(jvm.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_archive_is_built_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_archives = []
    monkeypatch.setattr(
        jvm, "_build", lambda archive: (built_archives.append(archive), archive.write_bytes(b"classes"))
    )
    assert archive_of(jvm.local_jvm_options()) == archive_of(jvm.local_jvm_options()) == built_archives[0]
    assert len(built_archives) == 1
    assert built_archives[0].parent == cache


def test_sessions_that_start_together_build_the_archive_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_archives = []

    def build(archive: Path) -> None:
        built_archives.append(archive)
        time.sleep(0.2)
        archive.write_bytes(b"classes")

    monkeypatch.setattr(jvm, "_build", build)
    with ThreadPoolExecutor(4) as pool:
        options = set(pool.map(lambda _: jvm.local_jvm_options(), range(4)))
    assert [archive_of(option) for option in options] == built_archives


def test_a_plain_start_up_has_no_archive(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASTORE_PLAIN_STARTUP", "1")
    assert jvm.local_jvm_options() == ""
    assert not cache.exists()


def test_a_failed_build_is_not_tried_again_the_same_day(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_archives = []
    monkeypatch.setattr(jvm, "_build", lambda archive: (built_archives.append(archive), archive.touch()))
    for _ in range(2):
        assert "SharedArchiveFile" not in jvm.local_jvm_options()
    assert len(built_archives) == 1
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(built_archives[0], (long_ago, long_ago))
    jvm.local_jvm_options()
    assert len(built_archives) == 2


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(jvm.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    assert "SharedArchiveFile" not in jvm.local_jvm_options()


def test_a_user_without_a_home_folder_has_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a user name and a home folder, as in some containers, Spark gets no option for an archive."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for variable in (jvm.CACHE_VARIABLE, "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert "SharedArchiveFile" not in jvm.local_jvm_options()


def test_a_path_with_blanks_is_one_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path with blanks and quotes remains one option when Spark splits its options like a shell."""
    monkeypatch.setenv(jvm.CACHE_VARIABLE, str(tmp_path / 'my "cache" \\ here'))
    monkeypatch.setattr(jvm, "_build", lambda archive: archive.write_bytes(b"classes"))
    *_, option = shlex.split(jvm.local_jvm_options())
    assert Path(option.removeprefix("-XX:SharedArchiveFile=")).parent == tmp_path / 'my "cache" \\ here'


@pytest.mark.spark
def test_a_session_of_another_thread_is_used_and_continues(spark: SparkSession) -> None:
    def work() -> str:
        with running_spark(None, {"spark.sql.shuffle.partitions": "7"}) as session:
            return session().sparkContext.applicationId

    before = spark.conf.get("spark.sql.shuffle.partitions")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == spark.sparkContext.applicationId
    assert spark.range(3).count() == 3
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_missing_java_is_an_error_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MetastoreError, match=r"Java 17\b"):
        jvm.local_jvm_options()


def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MetastoreError, match=r"Java 11\b.*Java 17\b"):
        jvm.local_jvm_options()
