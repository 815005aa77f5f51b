"""The examples run as someone would run them, and come to what they should."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from metastore_assets import open_table
from metastore_assets.lookup.json import column_json

EXAMPLES = Path(__file__).parents[1] / "examples"
TWO_DAYS = """
import json
from dagster import AssetKey, DagsterInstance
from own_project.definitions import defs

definitions, told = defs(), []
partitions, statistics = (AssetKey(["metastore", "orders", name]) for name in ("partitions", "statistics"))
orders, day = AssetKey(["shop", "orders"]), "2024-01-02"
with DagsterInstance.ephemeral() as instance:
    for keys, own in (({orders}, "2024-01-01"), ({orders, partitions}, day), ({statistics}, None)):
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection=keys)
        result = job.execute_in_process(instance=instance, partition_key=own)
        told.append({check.check_name: check.passed for check in result.get_asset_check_evaluations()})
    for key, name in ((orders, "partition_row_count"), (partitions, "partition_row_count"), (statistics, "row_count")):
        event = instance.get_latest_materialization_event(key).asset_materialization
        told.append([event.partition, event.metadata[f"dagster/{name}"].value])
print(json.dumps(told))
"""


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


@pytest.fixture
def own_project(tmp_path: Path) -> Path:
    """A copy of the project."""
    ignored = shutil.ignore_patterns("__pycache__", "lake", "metastore", "dagster_home")
    return shutil.copytree(EXAMPLES / "own-project", tmp_path / "own-project", ignore=ignored)


def environment_of(project: Path) -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)
    paths = os.pathsep.join([str(project), str(EXAMPLES.parent)])
    own = {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    left = {name: value for name, value in os.environ.items() if name not in ("LAKE", "METASTORE", "DAGSTER_HOME")}
    return {**left, **own, "DAGSTER_DISABLE_TELEMETRY": "1"}


def run_in(project: Path, *command: str) -> str:
    done = subprocess.run(
        command, cwd=project, env=environment_of(project), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rows_of_day(project: Path, day: str) -> int:
    """What the table's live files hold, read without this package."""
    return int(
        DeltaTable(project / "lake" / "orders")
        .to_pyarrow_table(filters=[("day", "=", date.fromisoformat(day))])
        .num_rows
    )


def test_the_project_of_ones_own(own_project: Path) -> None:
    """Statistics hang below the asset that writes the table, day by day, and a check asks them."""
    told = json.loads(run_in(own_project, sys.executable, "-c", TWO_DAYS).splitlines()[0])
    first, second = (rows_of_day(own_project, day) for day in ("2024-01-01", "2024-01-02"))
    assert told[2] == {"consistent": True, "numbers_are_unique": True}
    assert told[3:] == [["2024-01-02", second], ["2024-01-02", second], [None, first + second]]


def test_dg_checks_the_project(own_project: Path) -> None:
    """YAML and definitions; and says what is wrong with them."""
    assert "All definitions loaded successfully" in run_in(own_project, "dg", "check", "defs")


@pytest.mark.long
def test_the_project_runs_as_its_page_says(own_project: Path) -> None:
    """The script from its first line to its last."""
    printed = run_in(own_project, "./run.sh")
    rows = sum(rows_of_day(own_project, day) for day in ("2024-01-01", "2024-01-02"))
    assert f"orders  {rows} rows, version" in printed
