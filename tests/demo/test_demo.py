"""`make demo` runs to its end, and its own comparisons succeed.

A root is the folder with all stored state.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def demo(folder: Path, *options: str) -> str:
    """Run the demo on little data in a folder, and return its output.

    Assert that it and all its runs succeed.
    """
    shutil.copy(REPOSITORY / "metastore.yaml", folder)
    done = subprocess.run(
        [sys.executable, "-m", "scripts.demo", *options, "--scale", "0.002"],
        cwd=REPOSITORY,
        env={**os.environ, "METASTORE_CONFIG": str(folder / "metastore.yaml")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 runs" in done.stdout
    return done.stdout


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_demo_runs_and_agrees_with_scans(tmp_path: Path) -> None:
    """The demo ends with status 0.

    So every refresh recomputed exactly what its commit changed, and the numbers equal those of other engines. Earlier
    content of the demo's folder is removed.
    """
    old = tmp_path / "demo" / "old"
    old.mkdir(parents=True)
    assert demo(tmp_path).count("✓") == 2
    assert not old.exists()
    assert (tmp_path / "demo" / "dagster_home" / "dagster.yaml").exists()


@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_demo_runs_in_a_bucket_and_shows_no_secret(tmp_path: Path) -> None:
    """With `--s3`, tables and root are in S3, and the demo ends with status 0.

    The status also says that no file and no object has the secret key.
    """
    assert demo(tmp_path, "--s3").count("✓") == 3


def test_the_demo_removes_only_its_folder(tmp_path: Path) -> None:
    """The demo fails and removes nothing if the configured root is outside of the demo's folder.

    A file in the demo's folder stays.
    """
    (tmp_path / "metastore.yaml").write_text("root: ./other/metastore\n", encoding="utf-8")
    user_file = tmp_path / "demo" / "kept"
    user_file.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "scripts.demo"],
        cwd=REPOSITORY,
        env={**os.environ, "METASTORE_CONFIG": str(tmp_path / "metastore.yaml")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert user_file.exists()
