"""Tables opened by name in a Hive metastore have the rows that Spark selects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.sql import SqlCatalog

from metastore_assets.config import CatalogConfig, TableConfig
from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.catalogs.client import list_tables
from tests.formats.catalogs.hive_server import hive_metastore, run_spark
from tests.formats.catalogs.table_declarations import delta, register_in_hive
from tests.formats.oracle import read_columns

pytestmark = [pytest.mark.long, pytest.mark.spark]

_ROWS = "(1, 'a', date'2024-01-01'), (2, '', date'2024-01-02'), (3, null, date'2024-01-02'), (null, 'b,\"c', null)"
_CREATE_STATEMENTS = {
    "spark_parquet": "create table {} (id bigint, name string, day date) using parquet partitioned by (day)",
    "spark_orc": "create table {} (id bigint, name string, day date) using orc",
    "spark_csv": "create table {} (id bigint, name string, day date) using csv options (header true, sep '|')",
    "spark_json": "create table {} (id bigint, name string, day date) using json partitioned by (day)",
    "hive_parquet": "create table {} (id bigint, name string) partitioned by (day date) stored as parquet",
    "hive_orc": "create table {} (id bigint, name string, day date) stored as orc",
    "hive_text": "create table {} (id bigint, name string, day date) row format delimited fields terminated by '|'",
    "hive_control_a": "create table {} (id bigint, name string, day date) stored as textfile",
}
_TABLES = {f"sales.{name}": statement for name, statement in _CREATE_STATEMENTS.items()}


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, dict[str, list[list[Any]]]]]:
    """The metastore's URI, the folder of its warehouse, and the rows that Spark selected."""
    folder = tmp_path_factory.mktemp("hive")
    with hive_metastore(folder) as uri:
        statements = ["create database sales"]
        for name, statement in _TABLES.items():
            statements += [statement.format(name), f"insert into {name} values {_ROWS}"]
        elsewhere = f"{folder}/elsewhere"
        statements += [
            "alter table sales.hive_parquet drop partition (day = date'2024-01-01')",
            "create view sales.some as select id from sales.hive_orc",
            "create table sales.out (id bigint) partitioned by (n int) stored as parquet",
            f"alter table sales.out add partition (n = 1) location 'file://{elsewhere}'",
            "insert into sales.out partition (n = 1) values (1)",
            "create table sales.within (id bigint) partitioned by (n int) stored as parquet",
            f"alter table sales.within add partition (n = 7) location 'file://{folder}/warehouse/sales.db/within/any'",
            "insert into sales.within partition (n = 7) values (1), (2)",
            *(f"select * from {name}" for name in [*_TABLES, "sales.within"]),
        ]
        yield uri, folder, run_spark(uri, folder, statements)


def _catalog(uri: str) -> CatalogConfig:
    return CatalogConfig.model_validate({"type": "hive", "name": "hms", "uri": uri})


def _rows(uri: str, name: str) -> list[tuple[Any, ...]]:
    snapshot = open_table_format(TableConfig(name="t", catalog=_catalog(uri), table=name)).snapshot()
    columns = read_columns(snapshot)
    order = [column for column in ("id", "name", "day", "n") if column in columns]
    texts = [[None if value is None else str(value) for value in columns[column]] for column in order]
    return sorted(zip(*texts, strict=True), key=repr)


@pytest.mark.parametrize("name", [*_TABLES, "sales.within"])
def test_the_rows_equal_those_of_spark(name: str, metastore: tuple[str, Path, dict[str, Any]]) -> None:
    """A table opened by name has the rows that Spark selected from it, as texts.

    Spark wrote the files, with its own writers and with those of Hive. A partition that was dropped has no rows.
    """
    uri, _, query_results = metastore
    expected_rows = sorted((tuple(row) for row in query_results[f"select * from {name}"]), key=repr)
    assert len(expected_rows) >= 2
    assert _rows(uri, name) == expected_rows


def test_tables_of_other_formats_are_read(metastore: tuple[str, Path, dict[str, Any]]) -> None:
    """Iceberg and Delta tables that are registered in a Hive metastore are read.

    pyiceberg registers the Iceberg table, and the Delta table is registered as by Spark. A listing of the database has
    the format of each table, and None for a view.
    """
    uri, folder, _ = metastore
    rows = pa.table({"id": pa.array([7, 8], pa.int64())})
    with SqlCatalog("own", uri=f"sqlite:///{folder}/own.db", warehouse=f"{folder}/own") as sql_catalog:
        sql_catalog.create_namespace("sales")
        table = sql_catalog.create_table("sales.ice", rows.schema)
        table.append(rows)
    HiveCatalog("hms", uri=uri).register_table("sales.ice", table.metadata_location)
    assert _rows(uri, "sales.ice") == [("7",), ("8",)]
    deltalake.write_deltalake(f"{folder}/delta", rows)
    register_in_hive(uri, "sales", [delta("del", f"file:{folder}/delta")])
    assert _rows(uri, "sales.del") == [("7",), ("8",)]
    formats = {one.name: one.format for one in list_tables(_catalog(uri), "sales")}
    assert formats == {
        **dict.fromkeys(_CREATE_STATEMENTS, "files"),
        "within": "files",
        "out": "files",
        "some": None,
        "ice": "iceberg",
        "del": "delta",
    }


def test_errors_name_unreadable_and_missing_tables(metastore: tuple[str, Path, dict[str, Any]]) -> None:
    """The error names the unreadable partition or view, the missing table or database, or the catalog.

    The catalog is named if its server cannot be reached.
    """
    uri = metastore[0]
    with pytest.raises(TableFormatError, match=r"partition 1\b.*file:.*/elsewhere"):
        _rows(uri, "sales.out")
    with pytest.raises(TableFormatError, match=r"'hms'.*'some'.*\bview\b"):
        _rows(uri, "sales.some")
    with pytest.raises(TableNotFoundError, match=r"'hms'.*'sales\.nope'"):
        _rows(uri, "sales.nope")
    with pytest.raises(TableNotFoundError, match=r"'hms'.*'sale'.*'sales'"):
        list_tables(_catalog(uri), "sale")
    with pytest.raises(TableFormatError, match=r"'hms'.*'a\.b'.*catalogs\.hms"):
        _rows("thrift://127.0.0.1:1", "a.b")
