"""Exports to Spark, judged by its numbers for plans, its estimates, and its order of joins."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.spark.jvm import _java
from tests.exports.hive_tables import HiveExportedTable, create_database, register_table
from tests.exports.tpch import TABLES, generate_tables, lineitem_filters, write_commit
from tests.formats.catalogs.hive_server import run_spark

pytestmark = pytest.mark.spark

ROWS = pa.table(
    {
        "Id": pa.array([1, 2, 3, 3, None], pa.int64()),
        "price": pa.array([Decimal("-1.25"), Decimal("2.00"), None, None, Decimal("300.00")], pa.decimal128(15, 2)),
        "small": pa.array([0.1, 0.3, 0.3, 0.7, None], pa.float32()),
        "name": pa.array(["a", "", "ccc", None, "ccc"]),
        "seen": pa.array([datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4, 5)], pa.timestamp("us", "UTC")),
        "born": pa.array([date(1969, 12, 31), date(2024, 1, 1), None, None, None]),
        "ok": pa.array([True, False, False, None, True]),
        "secret": pa.array(["s1", "s2", "s3", "s4", None]),
    }
)
_FILTERS = (
    ("Id >= 2", 3),
    ("small = cast(0.3 as float)", 2),
    ("born < date'2000-01-01'", 1),
    ("seen > timestamp'2024-01-03 12:00:00'", 2),
)


def _register(uri: str, name: str, folder: Path) -> HiveExportedTable:
    folder.mkdir()
    pq.write_table(ROWS, folder / "1.parquet")
    register_table(uri, name, folder, ROWS.schema)
    return HiveExportedTable(uri, name, folder, exports=["spark"], columns={"secret": {"values": "hidden"}})


@pytest.mark.slow
def test_spark_plans_with_the_numbers(hive: str, tmp_path: Path) -> None:
    """Spark reads every exported number and bin, and its row estimates for filters are at most one off.

    If an insert by Spark drops the exported statistics, the next export writes them again. If Spark's own ANALYZE has
    replaced them, an export replaces those of Spark only with the option `replace`. A removal removes only properties
    of the export.
    """
    create_database(hive, "sp")
    table, analyzed_table = (_register(hive, f"sp.{name}", tmp_path / name) for name in ("written", "analyzed"))
    result = table.export()
    assert (result.state, result.columns, result.notes) == ("written", 8, ())
    assert analyzed_table.export().state == "written"
    describe = {column: f"describe extended sp.written {column}" for column in ROWS.column_names}
    explain = [f"explain cost select * from sp.written where {condition}" for condition, _ in _FILTERS]
    statements = ["set spark.sql.cbo.enabled=true", "explain cost select * from sp.written", *describe.values()]
    changes = [
        "insert into sp.written values (9, 1, 1, 'x', timestamp'2024-01-01', date'2024-01-01', true, 's')",
        "analyze table sp.analyzed compute statistics for columns Id",
    ]
    answers = run_spark(hive, tmp_path, [*statements, *explain, *changes])
    assert _row_count(answers[statements[1]]) == 5
    descriptions = {
        column: {str(name): value for name, value, *_ in answers[statement]} for column, statement in describe.items()
    }
    names = ("min", "max", "num_nulls", "distinct_count", "avg_col_len", "max_col_len")
    assert {column: tuple(numbers[name] for name in names) for column, numbers in descriptions.items()} == {
        "Id": ("1", "3", "1", "3", "8", "8"),
        "price": ("-1.25", "300.00", "2", "3", "8", "8"),
        "small": ("0.1", "0.7", "1", "3", "4", "4"),
        "name": ("NULL", "NULL", "1", "3", "2", "3"),
        "seen": ("2024-01-01 00:00:00.000000 +0000", "2024-01-05 00:00:00.000000 +0000", "0", "5", "8", "8"),
        "born": ("1969-12-31", "2024-01-01", "3", "2", "4", "4"),
        "ok": ("false", "true", "1", "2", "1", "1"),
        "secret": ("NULL", "NULL", "1", "NULL", "NULL", "NULL"),
    }
    assert descriptions["Id"]["histogram"] == f"height: {4 / 254}, num_of_bins: 254"
    assert descriptions["Id"]["bin_0"] == "lower_bound: 1.0, upper_bound: 1.0, distinct_count: 1"
    assert descriptions["Id"]["bin_253"] == "lower_bound: 3.0, upper_bound: 3.0, distinct_count: 1"
    for (condition, expected), statement in zip(_FILTERS, explain, strict=True):
        assert abs(_row_count(answers[statement]) - expected) <= 1, condition
    # Spark's writer drops all statistics; nobody has to set `replace`.
    assert "spark.sql.statistics.numRows" not in table.properties()
    assert table.state().state == "absent"
    assert table.write().state == "written"
    assert table.read_back()[""]["numRows"] == "5"
    assert analyzed_table.state().state == "absent"
    failed_export = analyzed_table.write()
    assert failed_export.state == "failed"
    assert "replace: true" in str(failed_export.error)
    assert analyzed_table.export(exports={"spark": {"replace": True}}).state == "written"
    before = analyzed_table.properties()
    assert analyzed_table.remove().state == "removed"
    assert {name for name in before if name not in analyzed_table.properties()} == {
        name for name in before if name.startswith(("spark.sql.statistics.", "metastore-assets."))
    }


@pytest.mark.slow
def test_a_failed_export_changes_nothing(hive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The export has only one request that writes, so a failure leaves the table as it was."""
    create_database(hive, "sf")
    table = _register(hive, "sf.t", tmp_path / "t")
    before = table.properties()
    with monkeypatch.context() as patch:
        patch.setattr("metastore_assets.exports.hive.metastore.HiveTable.change_properties", _fail)
        assert table.export().state == "failed"
    assert table.properties() == before
    assert table.export(exports={"spark": {"columns": ["Id"], "bins": 0}}).columns == 1
    assert set(table.read_back()) == {"", "Id"}
    assert "histogram" not in table.read_back()["Id"]


def _fail(*_: Any) -> None:
    raise OSError("the server is gone")


def _row_count(plan: list[list[Any]]) -> float:
    """Return the estimated number of rows of a query, which EXPLAIN COST prints with three digits."""
    match = re.search(r"rowCount=([0-9.E+]+)", str(plan[0][0]))
    assert match is not None, plan
    return float(match[1])


_SESSION = """
import json, re, shutil, sys
from pathlib import Path
from pyspark.sql import SparkSession
uri, folder, columns, filters, join = json.load(sys.stdin)
spark = (
    SparkSession.builder.master("local[2]").appName("tpch")
    .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
    .config("spark.driver.extraJavaOptions", f"-XX:+UseSerialGC -Dderby.system.home={folder}")
    .config("spark.sql.warehouse.dir", f"{folder}/warehouse").config("spark.hadoop.hive.metastore.uris", uri)
    .config("spark.sql.cbo.enabled", "true").config("spark.sql.cbo.joinReorder.enabled", "true")
    .config("spark.sql.statistics.histogram.enabled", "true").enableHiveSupport().getOrCreate()
)
def analyze(database):
    for table, names in columns.items():
        spark.sql(f"analyze table {database}.{table} compute statistics for columns {names}")
def plan(query):
    return spark.sql(f"explain cost {query}").collect()[0][0].split("== Physical Plan ==")[0]
analyze("stale")
for table in columns:  # a commit of another writer, after which nobody analyses
    for file in Path(folder, "late", table).glob("*.parquet"):
        shutil.copy(file, Path(folder, "stale", table, file.name))
    spark.sql(f"refresh table stale.{table}")
analyze("fresh")
answers = {"rows": [spark.sql(f"select count(*) from fresh.lineitem where {one}").collect()[0][0] for one in filters]}
for database in ("ours", "fresh", "stale"):
    plans = [plan(f"select * from {database}.lineitem where {one}") for one in filters]
    estimates = [float(re.search("rowCount=([0-9.E+]+)", one)[1]) for one in plans]
    order = re.findall(r"Relation spark_catalog\\.\\w+\\.(\\w+)\\[", plan(join.format(database=database)))
    answers[database] = {"estimates": estimates, "order": order}
print("ANSWERS" + json.dumps(answers))
spark.stop()
"""
_COLUMNS = {
    "customer": "c_custkey, c_mktsegment",
    "orders": "o_orderkey, o_custkey, o_orderdate",
    "lineitem": "l_orderkey, l_quantity, l_extendedprice, l_shipdate, l_partkey, l_linenumber",
}
_JOIN = """
select count(*) from {database}.lineitem, {database}.orders, {database}.customer
where l_orderkey = o_orderkey and o_custkey = c_custkey and c_mktsegment = 'BUILDING'
  and o_orderdate < date'1995-03-15' and l_shipdate > date'1995-03-15'
"""


@pytest.mark.long
@pytest.mark.parametrize("frequencies", ["auto", "off"])
def test_estimates_and_joins_are_those_after_analyze(hive_alone: str, tmp_path: Path, frequencies: str) -> None:
    """Spark's plans with exported statistics are as good as its plans after its own ANALYZE.

    Over 50 filters of TPC-H's `lineitem`, the median q-error is not worse than after a fresh ANALYZE, and better than
    after an ANALYZE before the last commit. The three tables of query 3 are joined in the same order.
    """
    tables = generate_tables(tmp_path / "source", 0.02)
    for database in ("ours", "fresh", "stale"):
        create_database(hive_alone, database)
        for name, rows in tables.items():
            folder = tmp_path / database / name
            write_commit(rows, name, folder, 0)
            write_commit(rows, name, folder if database == "fresh" else tmp_path / "late" / name, 1)
            register_table(hive_alone, f"{database}.{name}", folder, rows.schema)
    policy = {"columns": {"default": {"frequencies": frequencies}}, "exports": ["spark"]}
    exported_tables = [
        HiveExportedTable(hive_alone, f"ours.{name}", tmp_path / "ours" / name, **policy) for name in TABLES
    ]
    for table in exported_tables:
        assert table.export().version == 1
    for table in exported_tables:
        write_commit(tables[table.folder.name], table.folder.name, table.folder, 1)
        assert table.export().version == (1 if table.folder.name == "customer" else 2)
    filters = list(lineitem_filters(tables["lineitem"], 50))
    answers = _spark([hive_alone, str(tmp_path), _COLUMNS, filters, _JOIN], tmp_path)
    errors = {
        database: statistics.median(map(_q_error, answers["rows"], answers[database]["estimates"]))
        for database in ("ours", "fresh", "stale")
    }
    assert errors["ours"] <= errors["fresh"] * 1.005  # estimates have three digits
    assert errors["ours"] < errors["stale"]
    assert answers["ours"]["order"] == answers["fresh"]["order"]
    assert sorted(answers["ours"]["order"]) == sorted(TABLES)


def _q_error(rows: float, estimate: float) -> float:
    """Return how many times an estimate is too large or too small."""
    return max(max(rows, 1) / max(estimate, 1), max(estimate, 1) / max(rows, 1))


def _spark(arguments: list[Any], folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SESSION],
        input=json.dumps(arguments),
        env={**os.environ, "JAVA_HOME": str(_java().parents[1])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS")]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[0].removeprefix("ANSWERS"))
