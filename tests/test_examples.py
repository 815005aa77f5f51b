"""The examples run as a user would run them, with the expected results."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from importlib import import_module
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from dagster import AssetKey, DagsterInstance
from deltalake import DeltaTable

from metastore_assets import open_table
from metastore_assets.lookup.json import column_to_json

EXAMPLES = Path(__file__).parents[1] / "examples"
DAYS = ("2024-01-01", "2024-01-02")
TABLE = ("metastore", "orders")


def test_the_user_defined_statistic_is_that_of_the_rows(tmp_path: Path) -> None:
    """The example's `run.sh` succeeds.

    The statistic `weekend_share` of a partition equals the share that the test counts in the partition's files.
    """
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLES / "user-defined-statistic", folder)
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("METASTORE_CONFIG", None)

    process = subprocess.run("./run.sh", cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    output = process.stdout
    assert "all laws hold" in output
    # Lookups do not need the module.
    rows = open_table(str(folder / "metastore"), "orders").statistics(partition="shop=Lyon")
    user_statistics = {row.column: column_to_json(row)["user_defined"] for row in rows}
    days: list[date] = []
    for file in (folder / "lake/orders/shop=Lyon").iterdir():
        days += pq.read_table(file, partitioning=None)["ordered"].to_pylist()
    assert len(days) == 400
    share = sum(day.isoweekday() > 5 for day in days) / len(days)
    assert user_statistics["ordered"] == {"weekend_share": {"value": share, "guarantee": "exact", "reason": None}}
    assert f"ordered: weekend_share {share:g}" in output
    assert user_statistics["number"]["common_prefix"]["value"] == "ORD-Lyon-00"
    assert "number: common_prefix ORD-" in output
    assert user_statistics["amount"]["benford_distance"]["value"] < 0.01
    assert user_statistics["amount"]["share_outside_fences"]["value"] > 0


@pytest.fixture
def user_project(tmp_path: Path) -> Iterator[Path]:
    """A copy of the example `own-project`.

    After the test, its modules are no longer imported.
    """
    ignore_names = shutil.ignore_patterns("__pycache__", "lake", "metastore", "dagster_home")
    yield shutil.copytree(EXAMPLES / "own-project", tmp_path / "own-project", ignore=ignore_names)
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_project"]:
        del sys.modules[name]


def environment_of(project: Path) -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)
    paths = os.pathsep.join([str(project), str(EXAMPLES.parent)])
    user_statistics = {
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": paths,
        "PYTHONWARNINGS": "ignore",
    }
    inherited_variables = {
        name: value for name, value in os.environ.items() if name not in ("LAKE", "METASTORE", "DAGSTER_HOME")
    }
    return {**inherited_variables, **user_statistics, "DAGSTER_DISABLE_TELEMETRY": "1"}


def run_in(project: Path, *command: str) -> str:
    process = subprocess.run(
        command, cwd=project, env=environment_of(project), capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout + process.stderr


def rows_of_day(project: Path, day: str) -> int:
    """Count the rows of a day in the table's live files, without this package."""
    return int(
        DeltaTable(project / "lake" / "orders")
        .to_pyarrow_table(filters=[("day", "=", date.fromisoformat(day))])
        .num_rows
    )


def test_the_user_project_has_statistics_by_day(user_project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs succeed, and the reported row counts equal those of the table's files.

    The first run writes the orders of the first day. The second run writes the orders and the statistics of the second
    day. The third run writes the statistics of the table, and all its checks pass.
    """
    for name in ("LAKE", "METASTORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(user_project)
    definitions = import_module("own_project.definitions").defs()
    orders, partitions, statistics = (
        AssetKey(path) for path in (["shop", "orders"], [*TABLE, "orders_partitions"], [*TABLE, "orders_statistics"])
    )
    asset_keys = {
        AssetKey.from_user_string(key) for key in re.findall(r"key:([\w/]+)", (user_project / "run.sh").read_text())
    }
    assert asset_keys == {orders, partitions, statistics}
    job = definitions.resolve_implicit_global_asset_job_def()
    with DagsterInstance.ephemeral() as instance:
        for keys, day in (({orders}, DAYS[0]), ({orders, partitions}, DAYS[1]), ({statistics}, None)):
            user_statistics = job.get_subset(asset_selection=keys)
            result = user_statistics.execute_in_process(instance=instance, partition_key=day)
        checks = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
        configured_checks = ("consistent", "number_not_null", "number_unique", "amount_range")
        assert checks == dict.fromkeys((*configured_checks, "current", "no_shop_has_most"), True)
        first, second = (rows_of_day(user_project, day) for day in DAYS)
        for key, expected in (
            (orders, (DAYS[1], second)),
            (partitions, (DAYS[1], second)),
            (statistics, (None, first + second)),
        ):
            event = instance.get_latest_materialization_event(key)
            assert event is not None
            assert event.asset_materialization is not None
            materialization = event.asset_materialization
            name = "dagster/row_count" if materialization.partition is None else "dagster/partition_row_count"
            assert (materialization.partition, materialization.metadata[name].value) == expected


@pytest.mark.long
def test_dg_checks_the_project(user_project: Path) -> None:
    """`dg check defs` loads the example's definitions without an error."""
    assert "All definitions loaded successfully" in run_in(user_project, "dg", "check", "defs")


@pytest.mark.long
def test_the_project_runs_as_documented(user_project: Path) -> None:
    """`run.sh` ends without an error, and its output has the table's row count."""
    output = run_in(user_project, "./run.sh")
    rows = sum(rows_of_day(user_project, day) for day in DAYS)
    assert f"orders  {rows} rows, version" in output
