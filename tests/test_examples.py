"""The examples run as someone would run them, and come to what they should."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq

from metastore_assets import open_table
from metastore_assets.lookup.json import column_json

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_user_defined_statistic(tmp_path: Path) -> None:
    """From the class to its numbers, which are those of the rows after the last commit."""
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLES / "user-defined-statistic", folder)
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("METASTORE_CONFIG", None)

    done = subprocess.run("./run.sh", cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout
    assert "all laws hold" in printed
    # Looking up needs no module.
    rows = open_table(str(folder / "metastore"), "orders").statistics(partition="shop=Lyon")
    own = {row.column: column_json(row)["user_defined"] for row in rows}
    days: list[date] = []
    for file in (folder / "lake/orders/shop=Lyon").iterdir():
        days += pq.read_table(file, partitioning=None)["ordered"].to_pylist()
    assert len(days) == 400
    share = sum(day.isoweekday() > 5 for day in days) / len(days)
    assert own["ordered"] == {"weekend_share": {"value": share, "guarantee": "exact", "reason": None}}
    assert f"ordered: weekend_share {share:g}" in printed
    assert own["number"]["common_prefix"]["value"] == "ORD-Lyon-00"
    assert "number: common_prefix ORD-" in printed
    assert own["amount"]["benford_distance"]["value"] < 0.01
    assert own["amount"]["share_outside_fences"]["value"] > 0
