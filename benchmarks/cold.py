"""Time of `metastore refresh` after a commit of one file, against a minimal Spark script.

Each refresh and each script runs in a new process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import yaml

from benchmarks.data import FOLDER, lineitem
from benchmarks.measure import ratio, seconds
from benchmarks.report import Row

RUNS = 3
_BARE = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate().range(1).count()"


def run() -> list[Row]:
    """Compare the times of two refreshes with the time of a minimal Spark script.

    One refresh has `engine: spark`, the other `engine: auto`. The script counts one row. The table is partitioned and
    has 20 files. Before each round of the three programs, a commit adds a file of 60,000 rows.
    """
    folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
    files = sorted(lineitem(1, 100).iterdir())
    for number in range(20):
        partition = folder / "lake" / f"part={number % 10}"
        partition.mkdir(parents=True, exist_ok=True)
        shutil.copy(files[number], partition / f"{number}.parquet")
    for engine in ("spark", "auto"):
        config = {"root": f"./{engine}", "engine": engine, "tables": [{"name": "lineitem", "uri": "./lake"}]}
        (folder / f"{engine}.yaml").write_text(yaml.safe_dump(config))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}

    def refresh(engine: str) -> None:
        command = [
            sys.executable,
            "-m",
            "metastore_assets",
            "--config",
            f"{engine}.yaml",
            "refresh",
            "lineitem",
            "--json",
        ]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment)

    def count_by_spark() -> None:
        subprocess.run([sys.executable, "-c", _BARE], check=True, capture_output=True, env=environment)

    refresh("spark")
    refresh("auto")
    cold_times, auto, peer = [], [], []
    for number in range(RUNS):
        pq.write_table(pq.read_table(files[40 + number]), folder / "lake" / "part=3" / f"new-{number}.parquet")
        cold_times.append(seconds(partial(refresh, "spark")))
        auto.append(seconds(partial(refresh, "auto")))
        peer.append(seconds(count_by_spark))
    shutil.rmtree(folder)
    return [
        Row(
            "cold refresh of a one-file commit against a bare Spark count",
            cold_times,
            peer,
            ratio(peer, cold_times),
            1 / 0.85,
        ),
        Row("the same with engine: auto", auto, peer, ratio(peer, auto), 1 / 0.3),
    ]
