"""The Spark session: any settings, any master; a local one starts fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from metastore_assets.errors import MetastoreError
from metastore_assets.pipeline.jvm import local_jvm_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JVM_OPTIONS = "spark.driver.extraJavaOptions"
SETTINGS = {
    "spark.master": "local[*]",
    "spark.app.name": "metastore",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
LOCAL_SETTINGS = {
    **SETTINGS,
    # The loopback address spares a look-up of the host's name, which may take seconds.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def spark_session(settings: Mapping[str, object] | None = None) -> SparkSession:
    """The running session, or a new one with `settings` (Spark's own names) over the Metastore's defaults.

    Raises MetastoreError when there is no Java 17 or newer, or Spark does not start.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    chosen = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (settings or {}).items()}
    if "spark.remote" in chosen:
        merged = chosen
    elif chosen.get("spark.master", SETTINGS["spark.master"]).startswith("local"):
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
        return builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise MetastoreError(f"Spark did not start with the settings {chosen}: {error}") from error


def parallelism(spark: SparkSession) -> int:
    """Number of tasks that the cluster runs at once, as far as Spark tells; at least 1."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return max(1, int(spark.conf.get("spark.default.parallelism", None) or 8))
    return max(1, spark.sparkContext.defaultParallelism)
