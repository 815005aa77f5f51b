"""Secrets among Spark's settings are not visible to other users of the machine."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from metastore_assets.startup import python_command
from metastore_assets.storage.temporary_folders import remove_abandoned_folders

SECRET = " hush-7f3a #=:! \\ ü"
PROGRAM = """
import json, sys
from metastore_assets.spark.session import get_spark_session

key, secret = "spark.hadoop.fs.s3a.secret.key", sys.stdin.readline().rstrip("\\n")
settings = {"spark.master": "local[1]", "spark.driver.memory": "555m", key: secret, "spark.odd:key =#!": "odd"}
session = get_spark_session(settings)
properties = session._jvm.java.lang.System.getProperties()
print(json.dumps({
    "secret": [session.sparkContext.getConf().get(key), session._jsc.hadoopConfiguration().get("fs.s3a.secret.key")],
    "memory": session._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20,
    "others": [properties.get(name) for name in ("spark.odd:key =#!", "spark.of.defaults", "spark.of.arguments")],
}))
print("started", flush=True)
sys.stdin.readline()
"""


def arguments_below(process: int) -> str:
    """Return the command lines of a process and all its descendants, as one text."""
    arguments, pending = "", [process]
    while pending:
        folder = Path(f"/proc/{pending.pop()}")
        try:
            arguments += (folder / "cmdline").read_bytes().decode("utf-8", "replace")
            for task in (folder / "task").iterdir():
                pending += map(int, (task / "children").read_text().split())
        except OSError:  # It has ended meanwhile.
            continue
    return arguments


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
@pytest.mark.parametrize("secret_source", ["", pytest.param("a file", marks=pytest.mark.long)])
def test_no_process_has_secrets_among_its_arguments(tmp_path: Path, secret_source: str) -> None:
    """No process has a secret among its arguments while Spark starts and runs.

    Spark gets the secrets unchanged. They are passed in a temporary file, which is removed when Spark has started. The
    session's settings have precedence over those of spark-defaults.conf or a properties file.
    """
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.of.defaults default\nspark.driver.memory 700m\n")
    (tmp_path / "given.conf").write_text("spark.of.defaults given\nspark.driver.memory 700m\n")
    submit_arguments = "--conf spark.of.arguments=argument pyspark-shell"
    environment = {
        **os.environ,
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {tmp_path}/given.conf {submit_arguments}"
        if secret_source
        else submit_arguments,
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    output = tmp_path / "output"
    with (
        output.open("wb") as sink,
        subprocess.Popen(
            python_command("-c", PROGRAM), stdin=subprocess.PIPE, stdout=sink, stderr=sink, env=environment
        ) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(f"{SECRET}\n".encode())
        process.stdin.flush()
        observed_arguments, end = "", time.monotonic() + 120
        while "started" not in output.read_text() and process.poll() is None and time.monotonic() < end:
            observed_arguments += arguments_below(process.pid)
            time.sleep(0.1)
        observed_arguments += arguments_below(process.pid)
        pending = list(tmp_path.glob("metastore-*"))
        process.kill()
    properties = json.loads(
        next((line for line in output.read_text().splitlines() if line.startswith("{")), output.read_text())
    )
    assert "org.apache.spark.deploy.SparkSubmit" in observed_arguments
    assert "hush" not in observed_arguments
    assert pending == []
    assert properties["secret"] == [SECRET, SECRET]
    assert properties["memory"] < 600
    assert properties["others"] == ["odd", "given" if secret_source else "default", "argument"]


@pytest.mark.spark
def test_secrets_of_a_killed_start_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets of a process that was killed while it started Spark are removed by the next process.

    The secrets are in a temporary file, which other users cannot read.
    """
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        python_command("-c", PROGRAM), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdin is not None
        process.stdin.write(f"{SECRET}\n".encode())
        process.stdin.flush()
        end = time.monotonic() + 120
        while not (files := find_secrets(tmp_path)) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        process.kill()
    (file,) = files
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    end = time.monotonic() + 60
    while find_secrets(tmp_path) and time.monotonic() < end:  # A fork of the process holds the lock until it runs Java.
        remove_abandoned_folders()
        time.sleep(0.01)
    assert find_secrets(tmp_path) == []


def find_secrets(folder: Path) -> list[Path]:
    """Return the package's temporary files that contain a secret."""
    return [path for path in folder.glob("metastore-*/*") if b"hush" in path.read_bytes()]
