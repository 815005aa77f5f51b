"""Times of warm lookups against DuckDB's queries of the data, and of `metastore show`.

`metastore show` is compared with a process that imports pyarrow.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import yaml

from benchmarks.data import FOLDER, lineitem
from benchmarks.measure import paired, ratio
from benchmarks.report import Row
from metastore_assets.metastore import Metastore

RUNS = 15
_STARTS = 7
SCALE = 0.1
_COMMAND = [sys.executable, "-m", "metastore_assets"]


def run() -> list[Row]:
    """Compare the times of warm lookups and of `metastore show` with those of their peers.

    The table has 600,000 rows of TPC-H's lineitem.
    """
    lake = lineitem(SCALE, 4)
    folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
    try:
        config = {"root": "./root", "tables": [{"name": "lineitem", "uri": str(lake)}]}
        (folder / "metastore.yaml").write_text(yaml.safe_dump(config))
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        subprocess.run(
            [*_COMMAND, "refresh", "lineitem", "--json"], cwd=folder, check=True, capture_output=True, env=environment
        )
        return [*_answers(folder, lake), _show(folder)]
    finally:
        shutil.rmtree(folder)


def _answers(folder: Path, lake: Path) -> list[Row]:
    """Compare warm lookups with DuckDB, which reads the data each time."""
    table = Metastore(str(folder / "root")).table("lineitem")
    data = f"read_parquet('{lake}/*.parquet')"

    def query(text: str) -> Callable[[], object]:
        return lambda: duckdb.execute(f"select {text} from {data} {'group by all' if ',' in text else ''}").fetchall()

    queries: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "minimum and maximum": (
            lambda: table.statistics(["l_orderkey"]),
            query("struct_pack(a := min(l_orderkey), b := max(l_orderkey))"),
        ),
        "frequencies of texts": (lambda: table.top("l_shipmode"), query("l_shipmode, count(*)")),
        "a histogram of 50 bins": (
            lambda: table.histogram("l_extendedprice", bins=50),
            query("floor(l_extendedprice / 2000), count(*)"),
        ),
    }
    rows = []
    for what, actions in queries.items():
        measured_times, peer_times = paired(RUNS + 1, *actions)
        rows.append(
            Row(
                f"{what}, against DuckDB over the data",
                measured_times[1:],
                peer_times[1:],
                ratio(peer_times[1:], measured_times[1:]),
                1.0,
            )
        )
    return rows


def _show(folder: Path) -> Row:
    """Compare the CPU times of `metastore show` and of a process that only imports pyarrow.

    CPU time is compared, because other work on the machine changes it less than wall time. The first run, which
    compiles the modules, does not count.
    """

    def spent(*command: str) -> list[float]:
        times = []
        for _ in range(_STARTS + 1):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *command], cwd=folder, check=True, capture_output=True, env=environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return times[1:]

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    measured_times = spent(*_COMMAND[1:], "show", "lineitem")
    peer = spent("-c", "import numpy, pyarrow.parquet")
    print(
        f"`metastore show`: {min(measured_times):.2f} s of processor time at least, "
        f"{float(np.median(measured_times)):.2f} s in the median"
    )
    return Row(
        "`metastore show` against importing pyarrow, processor time",
        measured_times,
        peer,
        ratio(peer, measured_times),
        0.4,
    )
