"""Tables of Parquet files in a Hive metastore, as Spark registers them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.hive import HiveCatalog

from tests.exports.exported_table import ExportedTable
from tests.formats.catalogs.table_declarations import KINDS

_OUTPUT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_TYPES = {
    "bool": ("boolean", "boolean"),
    "int16": ("smallint", "short"),
    "int32": ("int", "integer"),
    "int64": ("bigint", "long"),
    "float": ("float", "float"),
    "double": ("double", "double"),
    "date32[day]": ("date", "date"),
    "timestamp[us, tz=UTC]": ("timestamp", "timestamp"),
    "decimal128(15, 2)": ("decimal(15,2)", "decimal(15,2)"),
    "binary": ("binary", "binary"),
}
"""The types of Hive and of Spark's schemas by Arrow type. All others are strings."""


def connect(uri: str) -> AbstractContextManager[Any]:
    """Return a connection to a metastore."""
    return HiveCatalog("hms", uri=uri)._client


def create_database(uri: str, name: str) -> None:
    """Create a database."""
    with HiveCatalog("hms", uri=uri) as catalog:
        catalog.create_namespace(name)


def register_table(
    uri: str,
    name: str,
    folder: Path,
    schema: pa.Schema,
    partitions: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Register a folder of Parquet files as the external table `database.name`, as Spark does.

    Args:
        uri: The metastore.
        name: Database and table.
        folder: The folder.
        schema: All columns, with those of partitions last.
        partitions: The values of the partition columns for each registered partition, by the name of its folder.
    """
    from hive_metastore import ttypes

    def descriptor(location: Path) -> Any:
        input_format, serde = KINDS["parquet"]
        return ttypes.StorageDescriptor(
            cols=columns[: len(columns) - keys],
            location=f"file:{location}",
            inputFormat=input_format,
            outputFormat=_OUTPUT,
            compressed=False,
            numBuckets=-1,
            serdeInfo=ttypes.SerDeInfo(serializationLib=serde, parameters={"path": f"file:{folder}"}),
            bucketCols=[],
            sortCols=[],
            parameters={},
        )

    database, _, table = name.partition(".")
    keys = len(next(iter(partitions.values()))) if partitions else 0
    columns = [ttypes.FieldSchema(field.name.lower(), _type(field)[0], "") for field in schema]
    properties = {
        "EXTERNAL": "TRUE",
        "spark.sql.sources.provider": "parquet",
        "spark.sql.sources.schema": _spark_schema(schema),
    }
    if partitions:
        properties |= {"spark.sql.partitionProvider": "catalog", "spark.sql.sources.schema.numPartCols": str(keys)}
        for index in range(keys):
            properties[f"spark.sql.sources.schema.partCol.{index}"] = schema.names[len(schema) - keys + index]
    with connect(uri) as client:
        client.create_table(
            ttypes.Table(
                tableName=table,
                dbName=database,
                owner="somebody",
                sd=descriptor(folder),
                partitionKeys=columns[len(columns) - keys :] if keys else [],
                parameters=properties,
                tableType="EXTERNAL_TABLE",
            )
        )
        for part, values in (partitions or {}).items():
            client.add_partition(
                ttypes.Partition(
                    values=list(values), dbName=database, tableName=table, sd=descriptor(folder / part), parameters={}
                )
            )


def _type(field: pa.Field) -> tuple[str, str]:
    return _TYPES.get(str(field.type), ("string", "string"))


def _spark_schema(schema: pa.Schema) -> str:
    fields = [{"name": field.name, "type": _type(field)[1], "nullable": True, "metadata": {}} for field in schema]
    return json.dumps({"type": "struct", "fields": fields})


class HiveExportedTable(ExportedTable):
    """A table in a Hive metastore that is refreshed and exported as its configuration says."""

    def __init__(self, uri: str, name: str, folder: Path, **settings: Any) -> None:
        super().__init__({"type": "hive", "uri": uri}, name, folder, **settings)
        self.uri = uri

    def properties(self) -> dict[str, str]:
        """Return the properties of the table in the metastore."""
        database, _, name = self.name.partition(".")
        with connect(self.uri) as client:
            return dict(client.get_table(database, name).parameters)

    def change_properties(self, **changes: str) -> None:
        """Change properties as another client does."""
        database, _, name = self.name.partition(".")
        with connect(self.uri) as client:
            table = client.get_table(database, name)
            table.parameters |= changes
            client.alter_table(database, name, table)
