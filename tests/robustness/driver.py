"""A refresh in a process of its own; prints what came of it as JSON. A program:

    python -m tests.robustness.driver metastore.yaml TABLE [--full] [--file-size=BYTES]

It joins the Spark of the process that started it when that says where (PYSPARK_GATEWAY_PORT, as Spark itself has it),
so that one JVM serves many drivers; else it starts one of its own. No file that it writes gets larger than BYTES.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from functools import cache
from typing import TYPE_CHECKING

from metastore_assets.config import load_config
from metastore_assets.errors import MetastoreError
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = "METASTORE_TEST_STEPS"


@cache
def joined() -> SparkSession:
    """A session of this process in the running JVM's Spark context. Its workers tell their steps too."""
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


def main(path: str, name: str, *options: str) -> dict[str, object]:
    """Refresh one table; its result, or the error by type and message."""
    config = load_config(path)
    for option in options:
        if option.startswith("--file-size="):
            limit = int(option.partition("=")[2])
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    start = joined if "PYSPARK_GATEWAY_PORT" in os.environ else lambda: spark_session(config.spark)
    try:
        return {"result": refresh(config, config.table(name), start, full="--full" in options).to_json()}
    except MetastoreError as error:
        return {"error": type(error).__name__, "message": str(error)}


if __name__ == "__main__":
    sys.stdin.read()  # until its rules are written
    print(json.dumps(main(*sys.argv[1:])), flush=True)  # noqa: T201
    # No goodbye to Spark: it is another process's.
    os._exit(0)
