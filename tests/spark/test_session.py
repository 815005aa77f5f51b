"""A local session uses a class archive that is built once; without it, only the start is slower."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from metastore_assets.errors import MetastoreError
from metastore_assets.spark import jvm


def archive_of(options: str) -> Path:
    return Path(options.rpartition("-XX:SharedArchiveFile=")[2])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(jvm.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_archive_is_built_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(jvm, "_build", lambda archive: (built.append(archive), archive.write_bytes(b"classes")))
    assert archive_of(jvm.local_jvm_options()) == archive_of(jvm.local_jvm_options()) == built[0]
    assert len(built) == 1
    assert built[0].parent == cache


def test_a_plain_start_up_has_no_archive(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASTORE_PLAIN_STARTUP", "1")
    assert jvm.local_jvm_options() == ""
    assert not cache.exists()


def test_a_failed_build_is_not_tried_again_the_same_day(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(jvm, "_build", lambda archive: (built.append(archive), archive.touch()))
    for _ in range(2):
        assert "SharedArchiveFile" not in jvm.local_jvm_options()
    assert len(built) == 1
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(built[0], (long_ago, long_ago))
    jvm.local_jvm_options()
    assert len(built) == 2


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(jvm.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    assert "SharedArchiveFile" not in jvm.local_jvm_options()


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
