"""A Hive metastore process on Derby, and a Spark session that uses it.

The process is started from the jars in PySpark's wheel.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from metastore_assets.spark.jvm import _java, local_jvm_options

_SITE = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:;databaseName={folder}/db;create=true</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
<property><name>hive.async.log.enabled</name><value>false</value></property>
<property><name>hive.metastore.warehouse.dir</name><value>{folder}/warehouse</value></property>
</configuration>
"""
_PATIENCE = 120.0
_SPARK = """
import json, sys
from pyspark.sql import SparkSession
uri, folder, options, statements = json.load(sys.stdin)
spark = (
    SparkSession.builder.master("local[1]").appName("hive")
    .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
    .config("spark.driver.extraJavaOptions", f"{options} -Dderby.system.home={folder}")
    .config("spark.sql.warehouse.dir", f"{folder}/warehouse").config("spark.hadoop.hive.metastore.uris", uri)
    .config("spark.sql.session.timeZone", "UTC").config("spark.hadoop.hive.exec.dynamic.partition.mode", "nonstrict")
    .enableHiveSupport().getOrCreate()
)
answers = {}
for statement in statements:
    found = spark.sql(statement)
    if statement.lower().startswith(("select", "explain", "describe")):
        answers[statement] = [[None if value is None else str(value) for value in row] for row in found.collect()]
print("ANSWERS" + json.dumps(answers))
spark.stop()
"""


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """Within the block, run a Hive metastore whose database is in the folder.

    Yield its URI.
    """
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "hive-site.xml").write_text(_SITE.format(folder=folder))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    jars = Path(pyspark.__file__).parent / "jars"
    command = [
        str(_java()),
        *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", f"-Dderby.stream.error.file={folder}/derby.log"),
        *("-cp", f"{folder}/conf:{jars}/*", "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)),
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as server:
        try:
            _wait_for(server, port, folder / "log")
            yield f"thrift://127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()


def run_spark(uri: str, folder: Path, statements: Sequence[str]) -> dict[str, list[list[Any]]]:
    """Execute SQL in a Spark session that uses the metastore.

    Return the rows of each query as texts, by statement.

    Args:
        uri: The URI of the metastore.
        folder: The folder of the metastore.
        statements: The statements in SQL.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SPARK],
        input=json.dumps([uri, str(folder), local_jvm_options(), list(statements)]),
        env={**os.environ, "JAVA_HOME": str(_java().parents[1])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS")]
    assert lines, done.stderr[-4000:]
    answers: dict[str, list[list[Any]]] = json.loads(lines[0].removeprefix("ANSWERS"))
    return answers


def _wait_for(server: subprocess.Popen[Any], port: int, log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()[-4000:]
        with socket.socket() as free_socket:
            if free_socket.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(log.read_text()[-4000:])
