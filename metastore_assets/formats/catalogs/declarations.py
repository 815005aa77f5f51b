"""Translation of table declarations in Glue and Hive metastores to catalog entries.

Every setting in a declaration that affects the rows or their values is either translated or refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metastore_assets.errors import TableFormatError
from metastore_assets.expressions.partition_keys import NULL_VALUE
from metastore_assets.formats.catalogs.base import CatalogEntry, ListedTable, PartitionFolder, RegisteredFolders
from metastore_assets.formats.catalogs.text_files import hive_json, hive_text, open_csv, spark_csv, spark_json

Columns = tuple[tuple[str, str], ...]
"""Name and Hive type of each column."""

_BINARY = ("parquet", "orc", "avro")
_SPARK_PACKAGE = "org.apache.spark.sql."
_READ_OPTIMIZED = "hoodie.query.as.ro.table"
_COUNT = re.compile(r"[0-9]{1,5}")
_BY_PATH = "name it by its location instead (`uri`)"


@dataclass(frozen=True)
class DeclaredTable:
    """A table as a Glue or Hive metastore declares it."""

    name: str
    kind: str
    """`EXTERNAL_TABLE`, `MANAGED_TABLE`, `VIRTUAL_VIEW`, …; empty if not recorded."""
    location: str
    input_format: str
    """A Java class name, which shows the format of the files; empty if not recorded."""
    serde: str
    parameters: Mapping[str, str]
    serde_parameters: Mapping[str, str]
    columns: Columns
    partition_columns: Columns

    @property
    def provider(self) -> str:
        """The data source that Spark recorded when it created the table, in lower case, such as `parquet`.

        Empty if another program created the table, or if Spark created it in Hive's own format.
        """
        return self.parameters.get("spark.sql.sources.provider", "").lower()

    def is_true(self, key: str) -> bool:
        """Return True if a parameter of the table has the value `true`.

        If the table does not have the parameter, the parameters of its serde are searched.
        """
        return (self.parameters.get(key) or self.serde_parameters.get(key) or "").lower() == "true"


@dataclass(frozen=True)
class DeclaredPartition:
    """A partition as a Glue or Hive metastore declares it."""

    values: tuple[str, ...]
    location: str
    input_format: str
    serde: str


LoadPartitions = Callable[[], Iterable[DeclaredPartition]]
"""A function that requests the partitions of a table from the catalog."""


def resolve_listed_table(table: DeclaredTable) -> ListedTable:
    """Return the database listing's entry of a table: its format, or why the table cannot be read.

    The partitions of the table are not requested, so they are not checked.
    """
    try:
        entry = resolve_entry(table, lambda: ())
    except TableFormatError as error:
        return ListedTable(table.name, None, str(error))
    return ListedTable(table.name, entry.format)


def resolve_entry(table: DeclaredTable, load_partitions: LoadPartitions) -> CatalogEntry:
    """Return the catalog entry of a declared table.

    Raises TableFormatError if the table cannot be read.

    Args:
        table: the declaration.
        load_partitions: requests the declared partitions. It is called only if the table has plain files and partition
            columns, and the metastore lists its partitions.
    """
    if "view" in table.kind.lower():
        raise TableFormatError(f"{table.name!r} is a view: name the tables that it reads")
    kind = table.parameters.get("table_type", "").lower()
    recorded_location = table.serde_parameters.get("path") or table.location
    if "iceberg" in (kind, table.provider) or "iceberg" in table.parameters.get("storage_handler", "").lower():
        location = table.parameters.get("metadata_location")
        if not location:
            raise TableFormatError(f"{table.name!r} is an Iceberg table without metadata_location; {_BY_PATH}")
        return CatalogEntry("iceberg", location)
    if "storage_handler" in table.parameters:
        handler = table.parameters["storage_handler"]
        raise TableFormatError(f"{table.name!r} is stored by {handler}, which has no reader")
    if "delta" in (kind, table.provider):
        return CatalogEntry("delta", _location(table, recorded_location))
    if table.provider in ("hudi", "org.apache.hudi") or table.input_format.startswith("org.apache.hudi."):
        _check_hudi(table)
        return CatalogEntry("hudi", _location(table, recorded_location))
    return _plain_files_entry(table, recorded_location, load_partitions)


def _check_hudi(table: DeclaredTable) -> None:
    """Raise TableFormatError for a read-optimized Hudi table (`_ro`), which lacks the rows of log files."""
    recorded_flag = (table.parameters.get(_READ_OPTIMIZED) or table.serde_parameters.get(_READ_OPTIMIZED) or "").lower()
    # Old versions of Hudi do not record it.
    is_named_so = table.name.endswith("_ro") and "realtime" not in table.input_format.lower()
    if recorded_flag == "true" or (not recorded_flag and is_named_so):
        raise TableFormatError(
            f"{table.name!r} shows a Hudi table without its log files; name the table itself, "
            f"{table.name.removesuffix('_ro') + '_rt'!r} or the one without a suffix"
        )


def _plain_files_entry(table: DeclaredTable, recorded_location: str, load_partitions: LoadPartitions) -> CatalogEntry:
    """Return the entry of a table of plain files.

    Raises TableFormatError if the format `files` cannot read the table.
    """
    if table.is_true("transactional"):
        raise TableFormatError(f"{table.name!r} is a transactional Hive table, which has no reader")
    if table.is_true("projection.enabled"):
        raise TableFormatError(
            f"the partitions of {table.name!r} are projected, so that the catalog has no list of them; {_BY_PATH}"
        )
    if "symlink" in table.input_format.lower():
        raise TableFormatError(f"{table.name!r} is a list of files elsewhere (SymlinkTextInputFormat); {_BY_PATH}")
    options, types = _reader_settings(table)
    location = _location(table, recorded_location)
    if table.provider and not _tracks_partitions(table):
        return CatalogEntry("files", location, options=options, types=types)
    folders = tuple(_folder(table, partition) for partition in load_partitions()) if table.partition_columns else ()
    # Metastores store names in lower case. Spark records how it spells them.
    spark_names = {name.lower(): name for name in _spark_partition_columns(table)}
    columns = tuple((spark_names.get(name.lower(), name), type_) for name, type_ in table.partition_columns)
    return CatalogEntry("files", location, options=options, types=types, folders=RegisteredFolders(columns, folders))


def _reader_settings(table: DeclaredTable) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options and the column types to read plain files with.

    Raises TableFormatError for files that have no reader, or for an unsupported setting.
    """
    kind = table.provider.removeprefix(_SPARK_PACKAGE).split(".")[0] if table.provider else ""
    serde = table.serde.rpartition(".")[2]
    class_names = f"{table.input_format} {serde}".lower()
    try:
        binary = [name for name in _BINARY if name == kind or (not kind and name in class_names)]
        if binary:
            return {"kind": binary[0]}, {}
        if kind == "csv":
            return spark_csv(table.serde_parameters, _spark_columns(table))
        if kind == "json":
            return spark_json(table.serde_parameters, _spark_columns(table))
        if kind:
            raise ValueError(f"Spark's data source {table.provider!r} has no reader")
        settings = {**table.serde_parameters, **table.parameters}
        if serde == "OpenCSVSerde":
            return open_csv(settings, table.columns)
        if serde in ("LazySimpleSerDe", "MetadataTypedColumnsetSerDe"):
            return hive_text(settings, table.columns)
        if serde == "JsonSerDe":
            return hive_json(settings, table.columns)
    except ValueError as error:
        raise TableFormatError(f"{table.name!r}: {error}") from None
    class_name = table.serde or table.input_format
    raise TableFormatError(
        f"{table.name!r} has files without a reader: {class_name or 'neither serde nor input format is declared'}"
    )


def _folder(table: DeclaredTable, partition: DeclaredPartition) -> PartitionFolder:
    """Return the folder of a declared partition.

    Raises TableFormatError if the partition has another input format or serde than the table, or if it does not have
    one value per partition column.
    """
    for table_value, partition_value, what in (
        (table.input_format, partition.input_format, "input format"),
        (table.serde, partition.serde, "serde"),
    ):
        if partition_value and table_value and partition_value != table_value:
            raise TableFormatError(
                f"the partition {_partition_text(table, partition.values)} of {table.name!r} has another {what} than "
                f"the table, {partition_value} instead of {table_value}; a table must have files of one kind"
            )
    if len(partition.values) != len(table.partition_columns):
        raise TableFormatError(
            f"a partition of {table.name!r} has {len(partition.values)} values, {', '.join(partition.values)}, and the "
            f"table {len(table.partition_columns)} partition columns"
        )
    values = tuple(None if value == NULL_VALUE else value for value in partition.values)
    return PartitionFolder(values, partition.location)


def _partition_text(table: DeclaredTable, values: Sequence[str]) -> str:
    return "/".join(f"{name}={value}" for (name, _), value in zip(table.partition_columns, values, strict=False))


def _location(table: DeclaredTable, location: str) -> str:
    if not location:
        raise TableFormatError(f"the catalog records no location of {table.name!r}")
    return location


def _tracks_partitions(table: DeclaredTable) -> bool:
    """Return whether a Spark table consists of only the partitions that its catalog registers.

    If the result is False, all partition folders below the location belong to the table. The result is True for an
    unpartitioned table.
    """
    count = _count(table, "spark.sql.sources.schema.numPartCols")
    return count == 0 or table.parameters.get("spark.sql.partitionProvider", "").lower() == "catalog"


def _spark_partition_columns(table: DeclaredTable) -> set[str]:
    """Return the names of the partition columns of a Spark table, as Spark spells them.

    The result is empty for other tables.
    """
    count = _count(table, "spark.sql.sources.schema.numPartCols") if table.provider else 0
    names = (table.parameters.get(f"spark.sql.sources.schema.partCol.{index}") for index in range(count))
    return {name for name in names if name}


def _count(table: DeclaredTable, key: str) -> int:
    """Return the number in a parameter of the table, such as the number of partition columns.

    The result is 0 without the parameter.

    Raises TableFormatError if the parameter does not consist of one to five digits.
    """
    text = table.parameters.get(key) or "0"
    if not _COUNT.fullmatch(text):
        raise TableFormatError(f"{table.name!r} has {key} = {text!r}, which is no number of columns or parts")
    return int(text)


def _spark_columns(table: DeclaredTable) -> Columns:
    """Return (name, type) of each column of a Spark table that is not a partition column.

    The type is a text, such as `date`. For a nested type, it is empty.

    Raises ValueError or TableFormatError if the schema is invalid.
    """
    parts = _count(table, "spark.sql.sources.schema.numParts")
    texts = [table.parameters.get(f"spark.sql.sources.schema.part.{part}", "") for part in range(parts)]
    text = table.parameters.get("spark.sql.sources.schema") or "".join(texts)
    if not text:
        return table.columns
    try:
        fields = [(field["name"], field["type"]) for field in json.loads(text)["fields"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("its schema in spark.sql.sources.schema cannot be read") from None
    partition_columns = _spark_partition_columns(table)
    # The JSON of a nested type is an object instead of a name.
    return tuple(
        (name, type_ if isinstance(type_, str) else "") for name, type_ in fields if name not in partition_columns
    )
