"""Time of exact quantiles of ten million values, against DuckDB's query of the data.

The quantiles are computed after a commit of 1,000 rows.
"""

from __future__ import annotations

import os
import shutil

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import FOLDER
from benchmarks.measure import metastore, paired, seconds, stop
from benchmarks.report import Row
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.session import get_spark_session

VALUES = int(os.environ.get("METASTORE_BENCH_RANKS", "10000000"))
CHANGED = 1000
FILES = 20
_FRACTIONS = [at / 20 for at in range(1, 20)]
_RUNS = 5


def run() -> list[Row]:
    """Measure warm quantiles after a commit that adds a file of 500 rows and removes one of 500 rows.

    The ratio is one second / the measured time. DuckDB's time is printed only for comparison.
    """
    lake = FOLDER / "quantiles"
    shutil.rmtree(lake, ignore_errors=True)
    lake.mkdir(parents=True)
    draw = np.random.default_rng(7)
    values = draw.integers(0, 2**50, VALUES)
    for number, part in enumerate(np.array_split(values, FILES)):
        pq.write_table(pa.table({"x": part}), lake / f"{number}.parquet")
    pq.write_table(pa.table({"x": draw.choice(values, CHANGED // 2)}), lake / "removed.parquet")
    spark = get_spark_session({"spark.master": "local[2]", "spark.driver.memory": "2g"})
    with metastore(lake, columns={"x": {"ranks": "on"}}) as (config, table):
        building = seconds(lambda: refresh(config, table, lambda: spark))
        (lake / "removed.parquet").unlink()
        pq.write_table(pa.table({"x": draw.integers(0, 2**50, CHANGED // 2)}), lake / "added.parquet")
        commit = seconds(lambda: refresh(config, table, lambda: spark))
        opened_table = open_table(config.root, table.name)
        cold = seconds(lambda: opened_table.quantile("x", _FRACTIONS))
        query = f"SELECT quantile_disc(x, {_FRACTIONS}) FROM read_parquet('{lake}/*.parquet')"
        quantiles = [one.value.as_py() for one in opened_table.quantile("x", _FRACTIONS) if one.value is not None]
        if quantiles != duckdb.execute(query).fetchall()[0][0]:
            raise AssertionError("the quantiles are not DuckDB's")
        measured_times, peer_times = paired(
            _RUNS, lambda: opened_table.quantile("x", _FRACTIONS), lambda: duckdb.execute(query).fetchall()
        )
    stop(spark)
    shutil.rmtree(lake)
    print(
        f"{VALUES:,} values: {building:.1f} s to build value counts, {commit:.2f} s for a commit of {CHANGED:,} rows; "
        f"{len(_FRACTIONS)} exact quantiles: {cold:.3f} s at the first query, {np.median(measured_times):.3f} s then, "
        f"{np.median(peer_times):.3f} s by DuckDB's quantile_disc over the data"
    )
    return [
        Row(
            f"{len(_FRACTIONS)} exact quantiles of {VALUES:,} values (at most 1 s)",
            measured_times,
            peer_times,
            1 / np.median(measured_times),
            1,
        ),
    ]
