"""A lakehouse of Delta, Parquet and CSV tables, and DuckDB's answers about it.

The Delta table is partitioned, and the Parquet files are in Hive-style folders.

The value counts of a column are its distinct values with the frequency of each.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

TABLES = ("events", "orders", "people")
_COUNTRIES = ("FR", "a b/c", "日本")


@dataclass(frozen=True)
class Lakehouse:
    """A folder with the three `TABLES` and the table `instants`, and the configuration of all four.

    `instants` has times, timestamps, and dates from the year 10000 on.
    """

    folder: Path

    def rows(self, table: str) -> pa.Table:
        """Return the live rows of one of `TABLES`, read by other code than the Metastore's."""
        if table == "events":
            return DeltaTable(str(self.folder / "events")).to_pyarrow_table()
        if table == "orders":
            paths = sorted((self.folder / "orders").rglob("*.parquet"))
            return pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths])
        return pacsv.read_csv(self.folder / "people" / "people.csv")

    def query_duckdb(self, table: str, query: str) -> list[tuple[Any, ...]]:
        """Return DuckDB's result of a query.

        The query refers to the table as `t`.
        """
        connection = duckdb.connect()
        connection.register("t", self.rows(table))
        return connection.sql(query).fetchall()


def build(folder: Path) -> Lakehouse:
    """Write the four tables and their configuration into a folder.

    The Delta table `events` has deleted rows, and a column without value counts.
    """
    write_deltalake(str(folder / "events"), events(0, 900), partition_by=["day"])
    DeltaTable(str(folder / "events")).delete("id % 10 = 3")
    for country, table in zip(_COUNTRIES, (_orders(0, 300), _orders(300, 50), _orders(350, 1)), strict=True):
        path = folder / "orders" / f"country={country.replace('/', '%2F').replace(' ', '%20')}"
        path.mkdir(parents=True)
        pq.write_table(table, path / "part-0.parquet")
    (folder / "people").mkdir()
    names = pa.table({"name": [f"p{n % 40}" for n in range(200)], "age": [n % 90 for n in range(200)]})
    pacsv.write_csv(names, folder / "people" / "people.csv")
    (folder / "metastore.yaml").write_text(
        "root: ./root\n"
        "spark: {spark.master: 'local[2]', spark.driver.memory: 1g}\n"
        "tables:\n"
        "  - name: events\n"
        "    uri: ./events\n"
        "    columns:\n"
        "      price: {histogram: 2000}\n"
        "      note: {frequencies: off}\n"
        "  - {name: orders, uri: ./orders}\n"
        "  - {name: people, uri: ./people}\n"
        "  - {name: instants, uri: ./instants}\n"
    )
    (folder / "instants").mkdir()
    for name, numbers in (("1", [1, 5, 999]), ("2", [7, 1001, None])):
        pq.write_table(_instants(numbers), folder / "instants" / f"{name}.parquet")
    return Lakehouse(folder)


def _instants(numbers: list[int | None]) -> pa.Table:
    """Return a table of times, timestamps, dates from the year 10000 on, and unprofiled durations.

    Each number is taken as nanoseconds since midnight, nanoseconds since 1970, days since 9999-12-31, and as a duration
    in nanoseconds.
    """
    nanoseconds = pa.array(numbers, pa.int64())
    days = pa.array([None if number is None else 2_932_896 + number for number in numbers], pa.int32())
    return pa.table(
        {
            "time": nanoseconds.view(pa.time64("ns")),
            "at": nanoseconds.view(pa.timestamp("ns")),
            "day": days.view(pa.date32()),
            "lasted": nanoseconds.view(pa.duration("ns")),
        }
    )


def events(start: int, count: int) -> pa.Table:
    """Return rows of three days, with nulls, NaN and texts of many kinds.

    The ids are the numbers from `start` on.
    """
    draw = random.Random(start)
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "price": pa.array([Decimal(draw.randrange(10**6)) / 100 for _ in numbers], pa.decimal128(12, 2)),
            "ratio": pa.array([float("nan") if n % 97 == 0 else draw.gauss(0, 10) for n in numbers]),
            "kind": pa.array([None if n % 8 == 0 else draw.choice(["a", "b\n", "é", ""]) for n in numbers]),
            "note": pa.array([f"note {n}" for n in numbers]),
            "day": pa.array([date(2024, 1, 1) + timedelta(days=n % 3) for n in numbers]),
        }
    )


def _orders(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "big": pa.array([2**60 + n * n for n in numbers], pa.int64()),
            "flag": pa.array([n % 3 == 0 for n in numbers]),
        }
    )
