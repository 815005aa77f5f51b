"""Time and peak memory to plan tables of 50,000 files, against other readers of the formats.

A plan finds the data files of a table's current snapshot. Each measurement runs in a new process.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.data import FOLDER
from benchmarks.measure import ratio
from benchmarks.planning_tables import make_delta, make_files, make_iceberg
from benchmarks.report import Row

FILES = 50_000
RUNS = 3
SECONDS = 10.0
MEGABYTES = 1000.0

_OWN = """
from metastore_assets.config import TableConfig
from metastore_assets.formats import open_table_format
count = len(open_table_format(TableConfig(name="t", uri=uri)).snapshot().fragments)
"""
_DELTALAKE = """
from deltalake import DeltaTable
count = DeltaTable(uri).get_add_actions().num_rows
"""
_PYICEBERG = """
from pathlib import Path
from pyiceberg.table import StaticTable
metadata = max((Path(uri) / "metadata").glob("*.metadata.json"))
count = sum(1 for _ in StaticTable.from_metadata(str(metadata)).scan().plan_files())
"""
_POLARS = """
import polars
# The schema and the row count are what a plan needs; the footers have them.
count = polars.scan_parquet(uri, hive_partitioning=True).select(polars.len()).collect().item() // 10
"""
_MEASURED = """
import json, sys, time
started = time.perf_counter()
uri = sys.argv[1]
{code}
seconds = time.perf_counter() - started
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(json.dumps([count, seconds, peak / 1000]))
"""


@dataclass(frozen=True)
class Planned:
    """A kind of table to plan, and the reader to compare with."""

    name: str
    make: Callable[[Path, int], str]
    """Make a table in a folder with a number of files. Return its URI."""
    peer: str
    """The name of the other reader."""
    code: str
    """Python code of the other reader. It sets `count` to the number of files of the table at `uri`."""


TABLES = [
    Planned("Delta with a checkpoint", make_delta, "deltalake", _DELTALAKE),
    Planned("Delta without one", partial(make_delta, checkpoint=False), "deltalake", _DELTALAKE),
    Planned("Iceberg", make_iceberg, "pyiceberg", _PYICEBERG),
    Planned("files by day", make_files, "polars reading all footers", _POLARS),
]


def run() -> list[Row]:
    """Compare times with those of the peers and with a limit, and peak memory with a limit.

    There is one comparison for each kind of table.
    """
    rows = []
    for table in TABLES:
        FOLDER.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
        try:
            uri = table.make(folder / "table", FILES)
            measured_times, peer_times, peaks = [], [], []
            for _ in range(RUNS):
                seconds, peak = _measured(uri, _OWN)
                measured_times.append(seconds)
                peaks.append(peak)
                peer_times.append(_measured(uri, table.code)[0])
        finally:
            shutil.rmtree(folder)
        name = f"plan {FILES:,} files, {table.name}"
        limits = [SECONDS] * RUNS
        rows.append(
            Row(f"{name}, against {table.peer}", measured_times, peer_times, ratio(peer_times, measured_times), 0.0)
        )
        rows.append(
            Row(f"{name}, against {SECONDS:g} seconds", measured_times, limits, ratio(limits, measured_times), 1.0)
        )
        gigabytes = [peak / 1000 for peak in peaks]
        rows.append(Row(f"{name}, peak memory in GB", gigabytes, [MEGABYTES / 1000], MEGABYTES / median(peaks), 1.0))
    return rows


def _measured(uri: str, code: str) -> tuple[float, float]:
    """Plan the table at `uri` with the program `code` in a new process.

    Return the seconds of the plan, and the peak memory of the process in megabytes.

    Raises:
        AssertionError: If the plan does not have `FILES` files.
    """
    command = [sys.executable, "-c", _MEASURED.format(code=code), uri]
    count, seconds, peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if count != FILES:
        raise AssertionError(f"{count} files were planned, not {FILES}: {code}")
    return seconds, peak
