"""The checks of one environment.

`python -m scripts.matrix.checks FOLDER` prints a line of JSON for each.

The checks do not need pytest, so that the environment has only the packages that users install.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_CONFIG = """\
root: ./metastore
engine: {engine}
spark: {{spark.master: "local[2]", spark.driver.memory: 1g}}
tables:
  - {{name: sales, uri: ./sales, checks: [complete]}}
"""
_ONLY_WITH = {
    "metastore_assets.scan.spark_source": "pyspark.sql.datasource",
    "metastore_assets.spark.local_channel": "pyspark.sql.connect.local_server",
}
"""Modules of the package that are imported only if another module exists: older versions of PySpark lack it."""
_TABLES_PER_FORMAT = 8


class Refused(Exception):
    """Raised if a feature is refused with a clear message."""


def check_imports(folder: Path) -> None:
    """Check that every module can be imported, except programs and `definitions`.

    A module in `_ONLY_WITH` is imported only if PySpark has what the module needs.
    """
    import metastore_assets

    for module in pkgutil.walk_packages(metastore_assets.__path__, "metastore_assets."):
        needed_package = _ONLY_WITH.get(module.name)
        if module.name.endswith(("__main__", "definitions")) or (needed_package and not _exists(needed_package)):
            continue
        importlib.import_module(module.name)


def check_dagster(folder: Path) -> None:
    """Check that a sensor requests one run, and no second one, and that the run reports all partitions."""
    from dagster import DagsterInstance, build_sensor_context

    _write_sales(folder, "auto")
    os.environ["METASTORE_CONFIG"] = str(folder / "metastore.yaml")
    from metastore_assets.definitions import defs

    sensor, job = defs.resolve_sensor_def("sales_commits"), defs.resolve_job_def("sales_refresh")
    with DagsterInstance.local_temp(str(folder)) as instance:

        def requests() -> list[Any]:
            with build_sensor_context(instance, sensor_name=sensor.name) as context:
                return list(sensor.evaluate_tick(context).run_requests or ())

        (request,) = requests()
        result = job.execute_in_process(instance=instance, tags=request.tags)
        _expect(result.success, "the run failed")
        _expect(len(instance.get_dynamic_partitions("sales_partitions")) == 2, "partitions are missing")
        _expect(not requests(), "a second run is requested")


def check_lookups(folder: Path) -> None:
    """Check lookups in the table that an earlier check wrote: statistics, top values, count and prune.

    A prune returns the fragments (data files with their deletes) that may have matching rows.
    """
    from metastore_assets import open_table

    table = open_table(str(folder / "metastore"), "sales", table_locations=[str(folder / "sales")])
    amount = table.statistics(["amount"])[0]
    _expect((amount.null_count, amount.distinct_count) == (1, 3), f"statistics: {amount}")
    _expect(table.top("shop", n=1)[0].value.as_py() == "Oslo", "the most frequent value")
    _expect(table.count("amount >= 2").value == 3, "count")
    _expect(table.prune("amount > 100").fragment_count == 0, "prune")


def check_command_line(folder: Path) -> None:
    """Check that some commands succeed."""
    for arguments in (("show", "sales"), ("top", "sales", "shop"), ("sql", "select count(*) from sales.statistics")):
        _metastore(folder, *arguments, "--json")


def check_real_tables(folder: Path) -> None:
    """Profile some real tables of each format, and check that no profile is wrong."""
    source = Path(os.environ["METASTORE_REALTABLES"])
    if not source.is_dir():
        raise Refused("the real tables are not there")
    from scripts.realtables.__main__ import judge
    from scripts.realtables.tables import real_tables

    chosen_tables, counts = [], dict[str, int]()
    for table in real_tables(source, folder):
        if counts.setdefault(table.format, 0) < _TABLES_PER_FORMAT and "error" not in table.truth:
            counts[table.format] += 1
            chosen_tables.append(table)
    wrong = [f"{result.table.name}: {result.detail}" for result in judge(chosen_tables) if result.outcome == "wrong"]
    _expect(not wrong, "; ".join(wrong))


def check_spark(folder: Path) -> None:
    """Check that a local Spark session profiles a table."""
    _write_sales(folder, "spark")
    _metastore(folder, "refresh", "sales", "--json")
    check_lookups(folder)


def check_warm_spark(folder: Path) -> None:
    """Check that a local Spark Connect server starts, profiles a table, and stops, or is refused."""
    _metastore(folder, "spark-server", "start")
    try:
        _write_sales(folder, "spark", rows=5)
        text = (folder / "metastore.yaml").read_text().replace("spark.master: ", "spark.remote: ")
        (folder / "metastore.yaml").write_text(text)
        _metastore(folder, "refresh", "sales", "--json")
    finally:
        _metastore(folder, "spark-server", "stop")


def check_data_source(folder: Path) -> None:
    """Check that `spark.read.format("metastore")` reads the rows, or is refused."""
    program = (
        "from pyspark.sql import SparkSession; from metastore_assets.scan import register\n"
        "from metastore_assets.errors import MetastoreError\n"
        "spark = SparkSession.builder.master('local[1]').getOrCreate()\n"
        "try:\n    register(spark)\n"
        "except MetastoreError as error:\n    print('refused:', error)\n    raise SystemExit(0)\n"
        "frame = spark.read.format('metastore').options(config='metastore.yaml', table='sales').load()\n"
        "assert frame.count() > 0\n"
    )
    process = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    _expect(process.returncode == 0, process.stderr[-400:])
    if process.stdout.startswith("refused:"):
        raise Refused(process.stdout.partition(":")[2].strip())


CHECKS: dict[str, Callable[[Path], None]] = {
    "imports": check_imports,
    "Dagster": check_dagster,
    "lookups": check_lookups,
    "command line": check_command_line,
    "real tables": check_real_tables,
    "Spark": check_spark,
    "data source": check_data_source,
    "warm Spark": check_warm_spark,
}


def _write_sales(folder: Path, engine: str, rows: int = 4) -> None:
    (folder / "metastore.yaml").write_text(_CONFIG.format(engine=engine))
    for day in (1, 2):
        path = folder / "sales" / f"day=2024-01-0{day}"
        path.mkdir(parents=True, exist_ok=True)
        amounts = [1.5, None, 3.0, 3.0][: rows - 2 * (day - 1)]
        table = pa.table({"amount": pa.array(amounts if day == 1 else [2.25], pa.float64())})
        shops = ["Oslo"] * table.num_rows
        pq.write_table(table.append_column("shop", pa.array(shops)), path / "0.parquet")


def _metastore(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "metastore_assets", *arguments]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode:
        if "needs PySpark" in process.stderr:
            raise Refused(process.stderr.strip())
        raise AssertionError(f"metastore {' '.join(arguments)}: {process.stderr[-600:]}")
    return process.stdout


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def main() -> None:
    """Run all checks, even if some of them fail."""
    folder = Path(sys.argv[1])
    for name, check in CHECKS.items():
        outcome, detail = "works", ""
        try:
            check(folder)
        except Refused as error:
            outcome, detail = "refused", str(error)
        except Exception as error:  # noqa: BLE001 (any error is an outcome)
            outcome, detail = "fails", f"{type(error).__name__}: {error}"
            traceback.print_exc()
        print(json.dumps({"check": name, "outcome": outcome, "detail": " ".join(detail.split())[:600]}), flush=True)


if __name__ == "__main__":
    main()
