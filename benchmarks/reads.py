"""Time to read one id, and a hundredth of all ids, from 10,000 files, where a request takes 5 ms.

`Table.read` is compared with DuckDB's `read_parquet`, which reads slow local files through fsspec. `Table.lazy` is
compared with Polars' `scan_parquet`. Polars and the package read from the same local S3 server.

The caches of the opened `Table` are filled before the measurement. Ids increase from file to file, so minimum and
maximum rule out the other files.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import convert_to_deltalake

from benchmarks.data import FOLDER
from benchmarks.folder_store import BUCKET, folder_store
from benchmarks.measure import metastore, paired, ratio
from benchmarks.report import Row
from benchmarks.slow_files import SECONDS, SlowFileSystem
from metastore_assets.config import TableConfig
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.session import get_spark_session

FILES = 10_000
ROWS = 200
RUNS = 3


def run() -> list[Row]:
    """Write and refresh the table, and compare the times of each query.

    Ratios are the peer's time / ours.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
    spark = get_spark_session({"spark.master": "local[2]"})
    try:
        write(folder / "lake")
        with metastore(folder / "lake") as (config, table):
            refresh(config, table, lambda: spark)
            spark.stop()
            return compare(config.root, table.name, folder)
    finally:
        spark.stop()
        shutil.rmtree(folder)


def write(lake: Path) -> None:
    """Write the Delta table, with ids that increase from file to file."""
    lake.mkdir()
    draw = np.random.default_rng(0)
    for at in range(FILES):
        table = pa.table(
            {
                "id": pa.array(np.arange(at * ROWS, (at + 1) * ROWS)),
                "word": pa.array(np.char.mod("word %d", draw.integers(0, 1_000, ROWS))),
                "amount": pa.array(draw.normal(100, 20, ROWS)),
            }
        )
        pq.write_table(table, lake / f"{at:05d}.parquet")
    convert_to_deltalake(str(lake))


def compare(root: str, name: str, folder: Path) -> list[Row]:
    """Measure all queries with `Table.read`, `Table.lazy`, DuckDB and Polars.

    Args:
        root: The root with the table's statistics.
        name: The name of the table.
        folder: The folder whose subfolder `lake` is the table.
    """
    rows = []
    with folder_store(folder, SECONDS) as store, duckdb.connect() as connection:
        uri = f"s3://{BUCKET}/lake"
        where = TableConfig.model_validate({"name": name, "uri": uri, "storage_options": store.options})
        lookup = open_table(root, name)
        connection.register_filesystem(SlowFileSystem())
        every = pl.scan_parquet(f"{uri}/*.parquet", storage_options=store.options)
        for what, first, last in _queries():
            condition = f"id between {first} and {last}"
            between = pl.col("id").is_between(first, last)

            def read(condition: str = condition) -> int:
                return int(lookup.read(where=condition, table=where).read_all().num_rows)

            def lazy(between: pl.Expr = between) -> int:
                return int(lookup.lazy(table=where).filter(between).collect().height)

            def by_polars(between: pl.Expr = between) -> int:
                return int(every.filter(between).collect().height)

            def by_duckdb(condition: str = condition) -> int:
                query = f"select * from read_parquet('slow://{folder}/lake/*.parquet') where {condition}"
                return len(connection.sql(query).to_arrow_table())

            actions: tuple[Callable[[], int], ...] = (read, lazy, by_polars, by_duckdb)
            assert {action() for action in actions} == {last - first + 1}
            read_times, lazy_times, polars_times, duckdb_times = paired(RUNS, *actions)
            rows += [
                Row(
                    f"{what} of {FILES:,} files: read, against DuckDB",
                    read_times,
                    duckdb_times,
                    ratio(duckdb_times, read_times),
                    10.0,
                ),
                Row(
                    f"{what} of {FILES:,} files: lazy, against Polars",
                    lazy_times,
                    polars_times,
                    ratio(polars_times, lazy_times),
                    10.0,
                ),
            ]
    return rows


def _queries() -> list[tuple[str, int, int]]:
    """Return the name, the first id and the last id (inclusive) of each query."""
    middle = FILES * ROWS // 2
    return [("one id", middle, middle), ("a hundredth", middle, middle + max(1, FILES // 100) * ROWS - 1)]
