"""Time of a full profile, against Spark's `ANALYZE TABLE` and DuckDB's `SUMMARIZE`.

The profile has the default policy.
"""

from __future__ import annotations

import shutil
import tempfile

from benchmarks.data import lineitem
from benchmarks.measure import metastore, paired, ratio, seconds
from benchmarks.report import Row
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.session import get_spark_session

RUNS = 3


def run() -> list[Row]:
    """Compare the time of a full profile with the times of `ANALYZE TABLE` and `SUMMARIZE`.

    The table is TPC-H's lineitem at scale 1 in 16 files. Spark is warm and has two cores.
    """
    import duckdb

    files = lineitem(1, 16)
    warehouse = tempfile.mkdtemp(prefix="metastore-bench-")
    spark = get_spark_session(
        {
            "spark.master": "local[2]",
            "spark.sql.warehouse.dir": warehouse,
            "spark.driver.memory": "4g",
            # Spark's own work deserves its optimizing compiler, which the Metastore's defaults trade for a fast start.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4",
            "spark.sql.catalogImplementation": "in-memory",
        }
    )
    spark.sql("CREATE DATABASE IF NOT EXISTS bench")
    spark.sql(f"CREATE TABLE bench.lineitem USING parquet LOCATION '{files}'")
    columns = ", ".join(spark.table("bench.lineitem").columns)

    def analyze() -> None:
        spark.sql(f"ANALYZE TABLE bench.lineitem COMPUTE STATISTICS FOR COLUMNS {columns}")

    def summarize() -> None:
        connection = duckdb.connect(config={"threads": 2})
        connection.sql(f"SUMMARIZE FROM read_parquet('{files}/*.parquet')").fetchall()
        connection.close()

    with metastore(files) as (config, table):

        def profile() -> None:
            refresh(config, table, lambda: spark, request=RefreshRequest(full=True))

        for action in (analyze, summarize, profile):  # warm caches, code and workers
            seconds(action)
        profile_times, spark_times, duckdb_times = paired(RUNS, profile, analyze, summarize)
    shutil.rmtree(warehouse, ignore_errors=True)
    return [
        Row(
            "full profile against Spark ANALYZE … FOR ALL COLUMNS",
            profile_times,
            spark_times,
            ratio(spark_times, profile_times),
            2.2,
        ),
        Row(
            "full profile against DuckDB SUMMARIZE, 2 threads",
            profile_times,
            duckdb_times,
            ratio(duckdb_times, profile_times),
            1.6,
        ),
    ]
