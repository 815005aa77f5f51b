"""Lookups read few bytes, even fewer with cached metadata, and importing the package is light.

The policy of a column decides which of its statistics and values are stored.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from metastore_assets.lookup import Table
from metastore_assets.lookup.profiles import ProfileReader
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.profiles.files import write_statistics
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ProfileFiles
from metastore_assets.values.columns import Column
from tests.lookup.publishing import publish
from tests.statistics.random_columns import profile_one

DRAW = random.Random(3)
WIDTH = 120


def wide(rows: int) -> pa.Table:
    """Return rows of `WIDTH` columns with random 50-bit integers.

    Every third column has them as text.
    """
    columns = {}
    for i in range(WIDTH):
        numbers = [DRAW.getrandbits(50) for _ in range(rows)]
        columns[f"c{i}"] = pa.array([str(number) for number in numbers]) if i % 3 == 0 else pa.array(numbers)
    return pa.table(columns)


@pytest.mark.s3
def test_a_cold_lookup_reads_little(s3_store: ObjectStore, s3_options: dict[str, str], read_sizes: list[int]) -> None:
    """A lookup without caches reads at most 360 kB of more than 9 MB.

    It reads footers, and the row groups of the answer. The same lookup again does not read the footers.
    """
    publish(s3_store, wide(4200))
    total = sum(info.size for info in s3_store.list())
    assert total > 9_000_000
    asks: list[Callable[[Table], object]] = [
        lambda table: table.statistics(["c60"]),
        lambda table: table.top("c60"),
        lambda table: table.histogram("c61", bins=50),
    ]
    for ask, footers, data in zip(asks, (32_000, 200_000, 160_000), (150_000, 160_000, 40_000), strict=True):
        table = Metastore(s3_store.uri(), storage_options=s3_options).table("orders")
        read_sizes.clear()
        ask(table)
        assert sum(read_sizes) < footers + data
        read_sizes.clear()
        ask(table)
        assert sum(read_sizes) < data


@pytest.mark.s3
def test_a_lookup_of_one_of_thousands_of_columns_reads_little(s3_store: ObjectStore, read_sizes: list[int]) -> None:
    """A lookup of the statistics of one of 5,000 columns reads the footer and one row group.

    These are at most 300 kB, in at most three requests.
    """
    draws = [[DRAW.gauss(0, 10**i) for _ in range(50)] for i in range(10)]
    base = [profile_one(pa.array(draw)).statistics for draw in draws]
    names = [f"section_{at // 50}.column_{at}" for at in range(5000)]
    rows = [replace(base[at % 10], position=at, column=name, field_id=name) for at, name in enumerate(names)]
    files = ProfileFiles(write_statistics(s3_store, "wide.statistics.parquet", 50, rows), "", ())
    read_sizes.clear()
    columns = [Column(name, name, pa.float64()) for name in names]

    def missing(column: Column) -> ColumnStatistics:
        raise AssertionError(f"{column.path} is there")

    (row,) = ProfileReader(s3_store, files, columns, missing).statistics([names[2500]])
    assert row == replace(rows[2500], moments=None, quantile_sketch=None, distinct_sketch=None)
    assert len(read_sizes) <= 3
    assert sum(read_sizes) <= 300_000


@pytest.mark.s3
def test_locating_a_value_takes_few_requests(
    s3_store: ObjectStore, s3_options: dict[str, str], read_sizes: list[int]
) -> None:
    """With the policy `by_partition`, locating a value takes at most four requests and less than 60 kB.

    This policy stores how often each value of a column occurs in each partition. Without it, locating a value takes
    more than two requests for each partition that has the value.
    """
    many = {
        f"day={at:03}": pa.table({"word": [f"w{at * 37 + n:06}" for n in range(300)] + ["all"]}) for at in range(60)
    }
    expected_locations = {
        "all": [(key, 1) for key in many],
        "w000400": [(f"day={at:03}", 1) for at in range(3, 11)],
        "none": [],
    }
    for name, by_partition in (("with", "on"), ("without", "off")):
        columns = {"word": {"frequencies": "all", "by_partition": by_partition}}
        publish(s3_store, pa.concat_tables(many.values()), name=name, columns=columns, partitions=many)
        table = Metastore(s3_store.uri(), storage_options=s3_options).table(name)
        for value, locations in expected_locations.items():
            read_sizes.clear()
            assert [*map(tuple, table.locate("word", value))] == locations
            if name == "with":
                assert len(read_sizes) <= 4
                assert sum(read_sizes) < 60_000
            elif locations:
                assert len(read_sizes) > 2 * len(locations)


def test_the_public_names_are_loaded_on_first_use() -> None:
    program = """
import sys, metastore_assets
heavy = {"pyarrow", "numpy", "pydantic", "obstore", "polars", "pyspark", "dagster"}
assert not heavy & set(sys.modules)
assert set(metastore_assets.__all__) <= set(dir(metastore_assets))
assert metastore_assets.__version__[0].isdigit()
assert not heavy & set(sys.modules)
from metastore_assets import Metastore, open_table
assert Metastore("nowhere").table_names() == ()
assert callable(open_table)
assert not {"pyspark", "dagster", "obstore", "deltalake", "duckdb"} & set(sys.modules)
try:
    metastore_assets.nonsense
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "module 'metastore_assets' has no attribute 'nonsense'\n"


@pytest.mark.s3
def test_a_cold_prune_takes_few_requests(
    s3_store: ObjectStore, s3_options: dict[str, str], read_sizes: list[int]
) -> None:
    """Without caches, a prune takes at most four requests.

    A second prune by the same column takes at most one.
    """
    rows = pa.table({f"c{i}": range(12) for i in range(20)})
    publish(s3_store, rows, partitions={f"p={at}": rows.slice(at, 1) for at in range(12)})
    table = Metastore(s3_store.uri(), storage_options=s3_options).table("orders")
    read_sizes.clear()
    assert table.prune("c7 < 3").fragment_count == 3
    assert len(read_sizes) <= 4
    read_sizes.clear()
    assert table.prune("c7 > 9").fragment_count == 2
    assert len(read_sizes) <= 1
