"""Exports of real Hudi tables to Hive and Glue have the numbers that other libraries found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from metastore_assets.config import CatalogConfig, TableConfig
from metastore_assets.expressions.partition_keys import decode_partition_key
from metastore_assets.formats import open_table_format
from metastore_assets.formats.catalogs.client import open_catalog
from scripts.realtables.tables import RealTable, real_tables
from tests.exports.exported_table import ExportedTable
from tests.exports.glue_statistics import ColumnStatisticsStore
from tests.exports.hive_tables import HiveExportedTable, connect, create_database
from tests.formats.catalogs.conftest import Glue, glue  # noqa: F401 (a fixture)
from tests.formats.catalogs.table_declarations import Declaration, hudi, register_in_hive

_TABLES = (
    "hudi/cow_v6_complexkeygen_hivestyle",
    "hudi/cow_v6_empty",
    "hudi/cow_v9_timebasedkeygen_nonhivestyle",
    "hudi/mor_v6_nonpartitioned_rollback_parquet",
    "hudi/mor_v6_simplekeygen_nonhivestyle_parquet",
    "hudi/mor_v9_txns_simple_nometa",
)
_TYPES = {
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "date32[day]": "date",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
}


@pytest.fixture
def tables(realtables: Path, tmp_path: Path) -> list[RealTable]:
    return [table for table in real_tables(realtables, tmp_path / "unpacked") if table.name in _TABLES]


@pytest.mark.spark
@pytest.mark.slow
def test_a_hive_metastore_has_the_numbers_of_hudi_tables(hive: str, tmp_path: Path, tables: list[RealTable]) -> None:
    create_database(hive, "hudi")
    for table in tables:
        declaration = _declaration(table)
        register_in_hive(hive, "hudi", [declaration])
        exported_table = HiveExportedTable(
            hive, f"hudi.{declaration.name}", tmp_path / declaration.name, exports=["hive"]
        )
        result = exported_table.export()
        assert (result.state, result.error) == ("written", None), table.name
        statistics = exported_table.read_back()
        nulls = {name: numbers["numNulls"] for name, numbers in statistics.items() if name}
        distinct = {name: numbers["numDVs"] for name, numbers in statistics.items() if "numDVs" in numbers}
        with connect(hive) as client:
            names = client.get_partition_names("hudi", declaration.name, -1)
            partitions = [
                partition.parameters for partition in client.get_partitions_by_names("hudi", declaration.name, names)
            ]
        _check(table, statistics[""]["numRows"], nulls, distinct)
        _check_partitions(table, declaration, partitions)
        assert exported_table.state().state == "current"
        assert exported_table.remove().state == "removed"
        assert set(exported_table.read_back()) == {""}


@pytest.mark.s3
def test_glue_has_the_numbers_of_hudi_tables(glue: Glue, tmp_path: Path, tables: list[RealTable]) -> None:  # noqa: F811
    catalog = {**glue.properties, "lab": glue.database}
    with open_catalog(CatalogConfig.model_validate({**catalog, "name": "hms"}), "open") as open_glue:
        store = ColumnStatisticsStore(open_glue.glue)  # type: ignore[attr-defined]
    for table in tables:
        declaration = _declaration(table)
        glue.register(declaration)
        folder = tmp_path / declaration.name
        exported_table = ExportedTable(catalog, f"{glue.database}.{declaration.name}", folder, exports=["glue"])
        result = exported_table.export()
        assert (result.state, result.error) == ("written", None), table.name
        statistics = {name: numbers for name, (_, numbers) in store.of(glue.database, declaration.name).items()}
        nulls = {name: numbers["NumberOfNulls"] for name, numbers in statistics.items()}
        distinct = {
            name: numbers["NumberOfDistinctValues"]
            for name, numbers in statistics.items()
            if "NumberOfDistinctValues" in numbers
        }
        key = {"DatabaseName": glue.database, "TableName": declaration.name}
        partitions = [each.get("Parameters", {}) for each in glue.client.get_partitions(**key)["Partitions"]]
        _check(table, exported_table.read_back()[""]["numRows"], nulls, distinct)
        _check_partitions(table, declaration, partitions)
        assert exported_table.remove().state == "removed"


def _declaration(table: RealTable) -> Declaration:
    """Return the table as Hudi's own tool registers it.

    The columns and partitions are those that this package reads.
    """
    name = table.name.removeprefix("hudi/")
    table_config = TableConfig(name="t", uri=table.uri, path_mapping=dict(table.path_mapping))
    snapshot = open_table_format(table_config).snapshot()
    types = {field.name: _TYPES.get(str(field.type), "string") for field in snapshot.schema}
    keys = [key for key in snapshot.partition_columns if key in types]
    partitions = sorted({fragment.partition_key for fragment in snapshot.fragments}) if keys else []
    return hudi(name, Path(table.uri).as_uri()).replaced(
        columns=[(column, type_) for column, type_ in types.items() if column not in keys],
        partition_columns=[(key, types[key]) for key in keys],
        partitions=[
            (["__HIVE_DEFAULT_PARTITION__" if value is None else str(value) for _, value in pairs], table.uri)
            for pairs in map(decode_partition_key, partitions)
        ],
    )


def _check(table: RealTable, rows: Any, nulls: Mapping[str, int], distinct: Mapping[str, int]) -> None:
    """Compare the exported numbers of the table with those that other libraries found."""
    assert int(rows) == table.truth["row_count"], table.name
    truth = {name.lower(): numbers for name, numbers in table.truth["columns"].items()}
    compared_names = [name for name in nulls if name.lower() in truth]
    assert len(compared_names) >= min(3, len(truth)), (table.name, sorted(nulls))
    for name in compared_names:
        assert nulls[name] == truth[name.lower()]["null_count"], (table.name, name)
        if name in distinct:
            assert distinct[name] == truth[name.lower()]["distinct_count"], (table.name, name)


def _check_partitions(table: RealTable, declaration: Declaration, partitions: Sequence[Mapping[str, str]]) -> None:
    assert len(partitions) == len(declaration.partitions)
    if partitions:
        assert sum(int(properties["numRows"]) for properties in partitions) == table.truth["row_count"], table.name
