"""Fixtures: a runner of refresh processes, and a small file system that tests can fill or remount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.robustness.fuzz import Reader
from tests.robustness.refresh_processes import Drivers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def drivers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Drivers:
    """A starter of refresh processes that share this process's Spark.

    All use one folder, because Spark reuses workers only if their environment is the same.
    """
    return Drivers(tmp_path_factory.mktemp("steps"), spark)


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    """A reader of tables in a child process, which the tests of a module share."""
    result = Reader()
    yield result
    result.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes, mounted for one test."""
    folder = tmp_path / "disk"
    folder.mkdir()
    is_mounted = os.geteuid() == 0 and _run("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder))
    if not is_mounted:
        pytest.skip("this user may not mount a file system")
    yield folder
    assert _run("umount", "--lazy", str(folder))


def remount(folder: Path, option: str) -> None:
    """Remount a file system, read-only (`ro`) or writable (`rw`)."""
    assert _run("mount", "-o", f"remount,{option}", str(folder))


def _run(*command: str) -> bool:
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
