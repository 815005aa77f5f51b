"""The Java installation that Spark uses, and a class-data archive that speeds up local sessions.

A class-data archive (CDS) contains parsed classes. It halves the time that a local session takes to start.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from metastore_assets.errors import MetastoreError
from metastore_assets.spark.default_settings import LOCAL_SETTINGS
from metastore_assets.startup import is_plain, python_command, safe_import_path

CACHE_VARIABLE = "METASTORE_CACHE"
_MINIMUM_JAVA = 17
_BUILD_SECONDS = 180
_RETRY_SECONDS = 24 * 3600
# One collector thread and one compiler tier: start-up dominates a small commit (measured: half the start time).
_FAST_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def local_jvm_options() -> str:
    """Return JVM options that make a local session start fast; empty if METASTORE_PLAIN_STARTUP is set.

    The options name a class-data archive in `cache_folder()`, which is built if it is missing. They name none if it
    cannot be built.

    Raises:
        MetastoreError: There is no Java 17 or newer.
    """
    java = _java()
    if is_plain():
        return ""
    try:
        archive = _archive(java)
    except (OSError, RuntimeError, subprocess.SubprocessError):
        archive = None
    if archive is None:
        return _FAST_START
    return f"{_FAST_START} -Xshare:auto -Xlog:disable -Xlog:all=off {_option('SharedArchiveFile', archive)}"


def cache_folder() -> Path:
    """Return `$METASTORE_CACHE`, by default `~/.cache/metastore-assets`.

    The folder may not exist.

    Raises RuntimeError for a user without a home folder, as in a container whose user id has no name.
    """
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "metastore-assets")


def _java() -> Path:
    """Return the path of the `java` that Spark will run.

    Raises MetastoreError if it is missing or too old.
    """
    home = os.environ.get("JAVA_HOME")
    path = os.path.join(home, "bin", "java") if home else shutil.which("java")
    advice = (
        f"Spark needs Java {_MINIMUM_JAVA} or newer: install one (openjdk-17-jre-headless) or set JAVA_HOME; with "
        "`engine: auto`, small tables need no Java"
    )
    if not path or not os.path.exists(path):
        raise MetastoreError(f"no Java found at {path}; {advice}" if path else f"no Java found; {advice}")
    java = Path(path).resolve()
    major = re.search(r'JAVA_VERSION="(\d+)', _release(java))
    if major and int(major.group(1)) < _MINIMUM_JAVA:
        raise MetastoreError(f"{java} is Java {major.group(1)}; {advice}")
    return java


def _release(java: Path) -> str:
    """Return the content of the file `release` of a Java installation; empty without this file."""
    release = java.parent.parent / "release"
    return release.read_text(encoding="utf-8") if release.exists() else ""


def _archive(java: Path) -> Path | None:
    """Return the path of the class-data archive, which is built if it is missing.

    The result is None if the archive cannot be built.
    """
    import pyspark

    spark = version("pyspark")
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    digest = hashlib.sha256("\n".join([str(java), _release(java), spark, home]).encode()).hexdigest()[:16]
    cache = cache_folder()
    archive = cache / f"spark-{spark}-{digest}.jsa"
    if _must_be_built(archive):
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache):
            # Another process may have built the archive while this one waited for the lock.
            if _must_be_built(archive):
                _build(archive)
    return archive if archive.stat().st_size else None


def _must_be_built(archive: Path) -> bool:
    """Return whether the archive is missing, or building it failed more than a day ago."""
    if not archive.exists():
        return True
    stat = archive.stat()
    return stat.st_size == 0 and time.time() - stat.st_mtime > _RETRY_SECONDS


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder during the block.

    On a file system without locks, this does nothing.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _build(archive: Path) -> None:
    """Build the class-data archive at a path from the classes that a small session loads.

    The session runs in a child process. If this fails, the path becomes an empty file.
    """
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        recorded_archive = Path(folder) / archive.name
        options = f"{_FAST_START} {_option('ArchiveClassesAtExit', recorded_archive)} -Xlog:disable -Xlog:all=off"
        try:
            with safe_import_path():
                subprocess.run(
                    python_command("-m", "metastore_assets.spark.jvm", options),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=_BUILD_SECONDS,
                    check=True,
                )
        except subprocess.SubprocessError:
            recorded_archive.unlink(missing_ok=True)
        if not recorded_archive.exists():
            # An empty file prevents further attempts for one day.
            recorded_archive.touch()
        os.replace(recorded_archive, archive)


def _option(name: str, path: Path) -> str:
    """Return a JVM option with a path, in quotes because the path may contain blanks."""
    escaped_path = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"-XX:{name}={escaped_path}"'


def _exercise(options: str) -> None:
    """Run a session that loads the classes of a typical job.

    The job has a frame from Arrow, Python workers, a shuffle, and results. `options` are the JVM options of the
    session.
    """
    import pyarrow as pa
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder
    for key, value in {**LOCAL_SETTINGS, "spark.driver.extraJavaOptions": options}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    tasks = spark.createDataFrame(pa.table({"task": pa.array([0, 1], pa.int32()), "blob": pa.array([b"a", b"b"])}))
    spread = tasks.repartition(2, "task").sortWithinPartitions("task")
    spread.mapInArrow(lambda batches: batches, "task int, blob binary").toArrow()
    gateway = running_gateway()
    assert gateway is not None
    process: subprocess.Popen[bytes] = gateway.proc
    spark.stop()
    gateway.shutdown()
    # The JVM exits when this pipe is closed, and writes the archive when it exits.
    assert process.stdin is not None
    process.stdin.close()
    process.wait(_BUILD_SECONDS)


def running_gateway() -> Any:
    """Return PySpark's connection to the JVM of this process; None if no JVM has been started."""
    from pyspark import SparkContext

    return SparkContext._gateway


if __name__ == "__main__":
    _exercise(sys.argv[1])
