"""A program that refreshes one table and prints the result or the error as JSON:

    python -m tests.robustness.refresh_program metastore.yaml TABLE [--full] [--compare] [--file-size=BYTES]
        [--meet=COUNT]

If Spark's variable PYSPARK_GATEWAY_PORT is set, the program uses the JVM of the process that started it, so that one
JVM serves many drivers. Otherwise it starts Spark itself. No file that it writes gets larger than BYTES. With
`--compare`, it compares all fragments (data files with their deletes) of a Delta table instead of using the table's
commits. With `--meet`, it waits before it publishes until COUNT drivers are about to publish.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from metastore_assets.config import load_config
from metastore_assets.errors import MetastoreError
from metastore_assets.formats.base import NoDiff
from metastore_assets.formats.delta.table import DeltaFormat
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.session import get_spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = "METASTORE_TEST_STEPS"
_WAIT_SECONDS = 60


@cache
def joined() -> SparkSession:
    """Return a session that uses the Spark context of the process that started this one.

    The Spark workers of the session log their changes of files, as this process does.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    SparkContext._ensure_initialized(gateway=gateway)
    jvm = gateway.jvm
    java_context = jvm.JavaSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    context = SparkContext(conf=SparkConf(_jconf=java_context.getConf()), gateway=gateway, jsc=java_context)
    for name in (STEPS, "PYTHONPATH"):
        if name in os.environ:
            context.environment[name] = os.environ[name]
    return SparkSession(context)


def wait_for_drivers(count: int) -> Callable[[Progress], None]:
    """Return a progress listener that waits until `count` drivers are about to publish.

    The listener waits before the first publish, at most `_WAIT_SECONDS`. It never waits if `count` is less than two.
    """
    log = Path(os.environ[STEPS], "log")
    waiting = []

    def listen(progress: Progress) -> None:
        if count < 2 or progress.stage != "publish" or waiting:
            return
        waiting.append(True)
        with log.open("a", encoding="utf-8") as file:
            file.write("publishing\n")
        end = time.monotonic() + _WAIT_SECONDS
        while log.read_text(encoding="utf-8").splitlines().count("publishing") < count and time.monotonic() < end:
            time.sleep(0.005)

    return listen


def main(path: str, name: str, *options: str) -> dict[str, object]:
    """Refresh one table.

    Return the result, or the type and the message of the error, as JSON values.
    """
    config = load_config(path)
    options_by_name = dict(option.partition("=")[::2] for option in options)
    if "--file-size" in options_by_name:
        limit = int(options_by_name["--file-size"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if "--compare" in options_by_name:
        DeltaFormat.changes = lambda *_: NoDiff("left out by the test")  # type: ignore[method-assign]
    meet = wait_for_drivers(int(options_by_name.get("--meet", 0)))
    start = joined if "PYSPARK_GATEWAY_PORT" in os.environ else lambda: get_spark_session(config.spark)
    try:
        request = RefreshRequest(full="--full" in options_by_name)
        return {"result": refresh(config, config.table(name), start, request, progress=meet).to_json()}
    except MetastoreError as error:
        return {"error": type(error).__name__, "message": str(error)}


if __name__ == "__main__":
    sys.stdin.read()  # until its rules are written
    print(json.dumps(main(*sys.argv[1:])), flush=True)  # noqa: T201
    # Spark is not stopped: it belongs to another process.
    os._exit(0)
