"""Table declarations as users register them in Glue or in a Hive metastore."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

_HIVE = "org.apache.hadoop.hive"
KINDS = {
    "parquet": (
        f"{_HIVE}.ql.io.parquet.MapredParquetInputFormat",
        f"{_HIVE}.ql.io.parquet.serde.ParquetHiveSerDe",
    ),
    "orc": (f"{_HIVE}.ql.io.orc.OrcInputFormat", f"{_HIVE}.ql.io.orc.OrcSerde"),
    "avro": (f"{_HIVE}.ql.io.avro.AvroContainerInputFormat", f"{_HIVE}.serde2.avro.AvroSerDe"),
    "json": ("org.apache.hadoop.mapred.TextInputFormat", "org.apache.hive.hcatalog.data.JsonSerDe"),
    "text": ("org.apache.hadoop.mapred.TextInputFormat", f"{_HIVE}.serde2.lazy.LazySimpleSerDe"),
    "csv": ("org.apache.hadoop.mapred.TextInputFormat", f"{_HIVE}.serde2.OpenCSVSerde"),
}
"""Input format and serde by kind of files, as Hive's `STORED AS` gives them."""
_HUDI = ("org.apache.hudi.hadoop.HoodieParquetInputFormat", KINDS["parquet"][1])


@dataclass(frozen=True)
class Declaration:
    """A table to register in a catalog."""

    name: str
    location: str
    input_format: str = ""
    serde: str = ""
    kind: str = "EXTERNAL_TABLE"
    parameters: Mapping[str, str] = field(default_factory=dict)
    serde_parameters: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[tuple[str, str]] = (("id", "bigint"),)
    partition_columns: Sequence[tuple[str, str]] = ()
    partitions: Sequence[tuple[Sequence[str], str]] = ()
    """The values and the location of each partition."""

    def replaced(self, **changes: Any) -> Declaration:
        """Return a copy with changes."""
        return replace(self, **changes)


def files(name: str, location: str, kind: str = "parquet", **more: Any) -> Declaration:
    """Declare plain files as Hive does.

    `kind` is the kind of the files, such as `parquet` or `text`. `more` are further fields of the declaration.
    """
    input_format, serde = KINDS[kind]
    return Declaration(name, location, input_format, serde, **more)


def delta(name: str, location: str) -> Declaration:
    """Declare a Delta table as Spark does in a metastore, with a placeholder as its storage location."""
    return Declaration(
        name,
        f"{location}-__PLACEHOLDER__",
        *KINDS["text"],
        parameters={"spark.sql.sources.provider": "delta", "EXTERNAL": "TRUE"},
        serde_parameters={"path": location, "serialization.format": "1"},
    )


def hudi(name: str, location: str) -> Declaration:
    """Declare a Hudi table as Hudi's sync tool does."""
    return Declaration(name, location, *_HUDI, serde_parameters={"hoodie.query.as.ro.table": "false", "path": location})


def iceberg(name: str, metadata_file: str) -> Declaration:
    """Declare an Iceberg table as Iceberg's catalogs do."""
    return Declaration(name, "", parameters={"table_type": "ICEBERG", "metadata_location": metadata_file})


def register_in_glue(client: Any, database: str, tables: Iterable[Declaration]) -> None:
    """Create tables and their partitions in a Glue database with boto3."""
    for table in tables:
        client.create_table(DatabaseName=database, TableInput=_table_input(table))
        for start in range(0, len(table.partitions), 100):
            client.batch_create_partition(
                DatabaseName=database,
                TableName=table.name,
                PartitionInputList=[
                    {"Values": list(values), "StorageDescriptor": {**_descriptor(table), "Location": location}}
                    for values, location in table.partitions[start : start + 100]
                ],
            )


def register_in_hive(uri: str, database: str, tables: Iterable[Declaration]) -> None:
    """Create tables and their partitions in a database of a Hive metastore over Thrift."""
    from hive_metastore.ttypes import Partition
    from pyiceberg.catalog import hive

    def descriptor(table: Declaration, location: str) -> hive.StorageDescriptor:
        return hive.StorageDescriptor(
            cols=[hive.FieldSchema(name, type_, "") for name, type_ in table.columns],
            location=location or None,
            inputFormat=table.input_format,
            serdeInfo=hive.SerDeInfo(serializationLib=table.serde, parameters=dict(table.serde_parameters)),
        )

    with hive.HiveCatalog("hms", uri=uri)._client as client:
        for table in tables:
            client.create_table(
                hive.HiveTable(
                    dbName=database,
                    tableName=table.name,
                    owner="somebody",
                    sd=descriptor(table, table.location),
                    partitionKeys=[hive.FieldSchema(name, type_, "") for name, type_ in table.partition_columns],
                    parameters={"EXTERNAL": "TRUE", **table.parameters},
                    tableType=table.kind,
                )
            )
            for values, location in table.partitions:
                client.add_partition(
                    Partition(
                        values=list(values), dbName=database, tableName=table.name, sd=descriptor(table, location)
                    )
                )


def _table_input(table: Declaration) -> dict[str, Any]:
    return {
        "Name": table.name,
        "TableType": table.kind,
        "Parameters": dict(table.parameters),
        "PartitionKeys": _columns(table.partition_columns),
        "StorageDescriptor": _descriptor(table),
    }


def _descriptor(table: Declaration) -> dict[str, Any]:
    serde = {"SerializationLibrary": table.serde} if table.serde else {}
    return {
        "Location": table.location,
        "InputFormat": table.input_format,
        "SerdeInfo": {**serde, "Parameters": dict(table.serde_parameters)},
        "Columns": _columns(table.columns),
    }


def _columns(columns: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"Name": name, "Type": type_} for name, type_ in columns]
