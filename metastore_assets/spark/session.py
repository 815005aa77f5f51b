"""The Spark session: any settings, any master or server; a local one starts fast."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from metastore_assets.errors import MetastoreError
from metastore_assets.extras import extra
from metastore_assets.spark.jvm import local_jvm_options
from metastore_assets.spark.remote import connected, remote_url
from metastore_assets.spark.settings import LOCAL_SETTINGS, SETTINGS, chosen_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_PYTHON = "spark.pyspark.python"
_SECRET = re.compile("secret|password|token|credential|key", re.IGNORECASE)
"""In the name of a setting whose value is not for error messages."""
_LAST_WORDS = (
    "Error: Could not create the Java Virtual Machine.",
    "Error: A fatal exception has occurred. Program will exit.",
)


def spark_session(settings: Mapping[str, object] | None = None, *, log: Path | None = None) -> SparkSession:
    """The running session, or a new one with `settings` (Spark's own names) over the Metastore's defaults.

    With `log`, everything that Spark's JVM and its Python workers write to standard output and error goes to that
    file; what a program must know comes back as exceptions all the same. `spark.remote` is a server that has its own.

    Raises MetastoreError when there is no Java 17 or newer, or Spark does not start.
    """
    with extra("spark", "reading and reducing on Spark"):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    chosen = chosen_settings(settings or {})
    if _PYTHON in chosen:
        # Of a session that no spark-submit starts, PySpark heeds the variable alone.
        os.environ["PYSPARK_PYTHON"] = chosen[_PYTHON]
    remote = remote_url(chosen)
    if remote is not None:
        return connected(remote, chosen)
    if chosen.get("spark.master", SETTINGS["spark.master"]).startswith("local"):
        options = " ".join([local_jvm_options(), chosen.get(_JVM_OPTIONS, "")]).strip()
        merged = {**LOCAL_SETTINGS, **chosen, _JVM_OPTIONS: options}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # The workers must be this Python, with these packages, not whichever `python3` comes first on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    else:
        merged = {**SETTINGS, **chosen}
    builder = SparkSession.builder
    for key, value in merged.items():
        builder = builder.config(key, value)
    try:
        if log is not None:
            _start_jvm(merged, log)
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise MetastoreError(
            f"Spark did not start with the settings {_without_secrets(chosen)}: {_reason(error, log)}"
            + (f" (all that Spark wrote is in {log})" if log is not None else "")
        ) from error


def submitted_session() -> SparkSession:
    """The session of a program that `spark-submit` started: with the settings, and the master, that it was given.

    Raises MetastoreError when Spark does not start.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise MetastoreError(f"Spark did not start: {_reason(error, None)}") from error


def _without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: "…" if _SECRET.search(key) else value for key, value in settings.items()}


def _start_jvm(settings: Mapping[str, str], log: Path) -> None:
    """Start the JVM and its Spark context as `getOrCreate` would, but with the JVM's output in a file."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return  # It runs already, from a session that was stopped or did not start.
    conf = SparkConf().setAll(list(settings.items()))
    with log.open("ab") as sink:
        gateway = launch_gateway(conf, {"stdout": sink, "stderr": sink})  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)


def _reason(error: Exception, log: Path | None) -> str:
    """Why Spark did not start, in one line: what Java raised, or else what a JVM that ended had written last."""
    raised = getattr(error, "java_exception", None)
    if raised is not None:
        return str(raised.toString()).splitlines()[0]
    written = log.read_text(encoding="utf-8", errors="replace").splitlines() if log is not None else []
    # Lines that start with a blank are those of a Java stack trace, and Java's own last words say nothing.
    lines = [line for line in written if line.strip() and not line[0].isspace() and line not in _LAST_WORDS]
    return " ".join([*str(error).split(), *(lines[-1:])])
