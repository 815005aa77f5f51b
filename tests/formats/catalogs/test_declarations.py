"""What Hive metastores and Glue declare about a table is translated, or refused.

The result is the configuration entry with which the table's files are read. No server is needed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from metastore_assets.config import CatalogConfig, TableConfig
from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats.catalogs.client import load_catalog_entry
from metastore_assets.formats.catalogs.declarations import DeclaredTable, resolve_entry, resolve_listed_table

_HUDI = DeclaredTable(
    "sales_ro", "EXTERNAL_TABLE", "/x", "org.apache.hudi.hadoop.HoodieParquetInputFormat", "", {}, {}, (), ()
)
_TEXT = DeclaredTable("t", "", "/x", "", "a.LazySimpleSerDe", {}, {}, (("a", "int"), ("b", "int")), ())
_JSON = DeclaredTable("t", "", "/x", "", "org.apache.hive.hcatalog.data.JsonSerDe", {}, {}, (("a", "int"),), ())


def test_a_recorded_flag_decides_whether_a_hudi_table_is_read_optimized() -> None:
    """The flag `hoodie.query.as.ro.table` decides whether a declared Hudi table is read-optimized.

    A read-optimized table is refused. Old versions of Hudi register tables without this flag; then the suffix `_ro` of
    the name decides.
    """
    flagged_declaration = replace(_HUDI, serde_parameters={"hoodie.query.as.ro.table": "false"})
    assert resolve_entry(flagged_declaration, tuple).format == "hudi"
    for table in (_HUDI, replace(_HUDI, name="sales", parameters={"hoodie.query.as.ro.table": "TRUE"})):
        with pytest.raises(TableFormatError, match=rf"'{table.name}'.*\bHudi\b"):
            resolve_entry(table, tuple)


@pytest.mark.parametrize("key", ["skip.header.line.count", "skip.footer.line.count"])
def test_lines_that_hive_skips_in_json_are_refused(key: str) -> None:
    assert resolve_entry(replace(_JSON, parameters={key: "0"}), tuple).options == {"kind": "json"}
    with pytest.raises(TableFormatError, match=f"'t': {key} = '1'"):
        resolve_entry(replace(_JSON, parameters={key: "1"}), tuple)


@pytest.mark.parametrize(
    ("settings", "delimiter", "escape"),
    [
        ({}, "\x01", ""),
        ({"serialization.format": "1"}, "\x01", ""),
        ({"serialization.format": "44"}, ",", ""),
        ({"serialization.format": "1", "field.delim": ""}, "\x01", ""),
        ({"field.delim": "9", "escape.delim": "92"}, "\t", "\\"),
        ({"field.delim": r"\u0002", "escape.delim": ""}, "\x02", "\\"),
        ({"field.delim": ";", "escape.delim": "^"}, ";", "^"),
    ],
    ids=str,
)
def test_numbers_are_codes_of_characters_in_text_files_of_hive(
    settings: dict[str, str], delimiter: str, escape: str
) -> None:
    r"""A delimiter or escape that is a number below 128 is the character with this code, as in Hive.

    Any other single character stands for itself, even if it is written as an escape sequence such as `\u0002`. An empty
    delimiter is the character with code 1. An empty escape is a backslash; without the setting, there is no escape.
    """
    options = resolve_entry(replace(_TEXT, serde_parameters=settings), tuple).options
    assert (options["delimiter"], options["escape"]) == (delimiter, escape)


@pytest.mark.parametrize("delimiter", ["0", r"\u0000", r"\u00zz", "||", "-2", "200"])
def test_delimiters_of_hive_without_counterpart_are_refused(delimiter: str) -> None:
    with pytest.raises(TableFormatError, match=r"'t': field\.delim = "):
        resolve_entry(replace(_TEXT, serde_parameters={"field.delim": delimiter}), tuple)


@pytest.mark.parametrize("provider", ["parquet", "csv"])
def test_partition_columns_of_spark_are_spelled_as_by_spark(provider: str) -> None:
    """Partition columns are spelled as in the schema that Spark stores in properties of the table.

    The metastore itself stores these names in lower case. For CSV, the entry also has the types of the other columns.
    """
    schema = "spark.sql.sources.schema"
    parameters = {
        "spark.sql.sources.provider": provider,
        "spark.sql.partitionProvider": "catalog",
        schema: json.dumps({"fields": [{"name": name, "type": "string"} for name in ("Id", "Day", "zone")]}),
        f"{schema}.numPartCols": "2",
        f"{schema}.partCol.0": "Day",
        f"{schema}.partCol.1": "zone",
    }
    declared_columns = (("day", "string"), ("zone", "string"))
    entry = resolve_entry(replace(_TEXT, parameters=parameters, partition_columns=declared_columns), tuple)
    assert entry.folders is not None
    assert [name for name, _ in entry.folders.columns] == ["Day", "zone"]
    assert list(entry.types) == (["Id"] if provider == "csv" else [])


def test_a_damaged_declaration_does_not_hide_other_tables_of_a_database() -> None:
    csv, schema = {"spark.sql.sources.provider": "csv"}, "spark.sql.sources.schema"
    listed_table = resolve_listed_table(replace(_TEXT, parameters=csv | {f"{schema}.numPartCols": "x"}))
    assert (listed_table.format, "numPartCols = 'x'" in listed_table.reason) == (None, True)
    listed_table = resolve_listed_table(replace(_TEXT, parameters=csv | {schema: "[" * 100_000}))
    assert (listed_table.format, schema in listed_table.reason) == (None, True)


@pytest.mark.parametrize(
    "uri", ["sqlite:///{}", "sqlite:///{}?timeout=5", "sqlite+pysqlite:///{}", "sqlite:///file:{}?mode=ro&uri=true"]
)
def test_a_sqlite_file_is_never_created(tmp_path: Path, uri: str) -> None:
    """Opening a table fails without its catalog's database file, and does not create it.

    The same holds for a URI with a driver or parameters.
    """
    from pyiceberg.catalog.sql import SqlCatalog

    file = tmp_path / "c.db"
    catalog = CatalogConfig.model_validate({"type": "sql", "uri": uri.format(file)}).model_copy(update={"name": "c"})
    table = TableConfig(name="t", uri="catalog://c/a.t", catalog=catalog, table="a.t")
    with pytest.raises(TableNotFoundError, match=str(file)):
        load_catalog_entry(table)
    assert not file.exists()
    SqlCatalog("c", uri=f"sqlite:///{file}")
    with pytest.raises(TableNotFoundError, match=r"'a\.t'"):
        load_catalog_entry(table)
