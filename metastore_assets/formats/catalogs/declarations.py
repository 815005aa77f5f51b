"""Table declarations in Glue and Hive metastores, translated to formats, locations and reader options.

Everything in a declaration that affects the rows or their values is either followed or refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.catalogs.base import CatalogEntry, ListedTable, PartitionFolder, RegisteredFolders
from metastore_assets.formats.catalogs.text_files import hive_json, hive_text, open_csv, spark_csv, spark_json

Columns = tuple[tuple[str, str], ...]
"""Names with types, as Hive writes them."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
_BINARY = ("parquet", "orc", "avro")
_SPARK_PACKAGE = "org.apache.spark.sql."
_BY_PATH = "name it by its location instead (`uri`)"


@dataclass(frozen=True)
class DeclaredTable:
    """A declared table."""

    name: str
    kind: str
    """`EXTERNAL_TABLE`, `MANAGED_TABLE`, `VIRTUAL_VIEW`, …; empty if not recorded."""
    location: str
    input_format: str
    """A Java class name; empty if not recorded."""
    serde: str
    parameters: Mapping[str, str]
    serde_parameters: Mapping[str, str]
    columns: Columns
    partition_columns: Columns

    @property
    def provider(self) -> str:
        """Spark's data source in lower case; empty for tables in Hive's format, or of other engines."""
        return self.parameters.get("spark.sql.sources.provider", "").lower()

    def is_true(self, key: str) -> bool:
        """Return whether a parameter of the table or of its serde is true."""
        return (self.parameters.get(key) or self.serde_parameters.get(key) or "").lower() == "true"


@dataclass(frozen=True)
class DeclaredPartition:
    """A declared partition."""

    values: tuple[str, ...]
    location: str
    input_format: str
    serde: str


Partitions = Callable[[], Iterable[DeclaredPartition]]
"""A function that requests the partitions of a table."""


def resolve_listed_table(table: DeclaredTable) -> ListedTable:
    """Return the listing of a table, without requesting its partitions."""
    try:
        entry = resolve_entry(table, lambda: ())
    except TableFormatError as error:
        return ListedTable(table.name, None, str(error))
    return ListedTable(table.name, entry.format)


def resolve_entry(table: DeclaredTable, partitions: Partitions) -> CatalogEntry:
    """Return the entry of a declared table of any format. Raises TableFormatError if it is not supported."""
    if "view" in table.kind.lower():
        raise TableFormatError(f"{table.name!r} is a view: name the tables that it reads")
    kind = table.parameters.get("table_type", "").lower()
    named = table.serde_parameters.get("path") or table.location
    if "iceberg" in (kind, table.provider) or "iceberg" in table.parameters.get("storage_handler", "").lower():
        location = table.parameters.get("metadata_location")
        if not location:
            raise TableFormatError(f"{table.name!r} is an Iceberg table without metadata_location; {_BY_PATH}")
        return CatalogEntry("iceberg", location)
    if "storage_handler" in table.parameters:
        handler = table.parameters["storage_handler"]
        raise TableFormatError(f"{table.name!r} is kept by {handler}, which has no reader")
    if "delta" in (kind, table.provider):
        return CatalogEntry("delta", _location(table, named))
    if table.provider in ("hudi", "org.apache.hudi") or table.input_format.startswith("org.apache.hudi."):
        _check_hudi(table)
        return CatalogEntry("hudi", _location(table, named))
    return _files(table, named, partitions)


def _check_hudi(table: DeclaredTable) -> None:
    realtime = "realtime" in table.input_format.lower()
    if table.is_true("hoodie.query.as.ro.table") or (table.name.endswith("_ro") and not realtime):
        raise TableFormatError(
            f"{table.name!r} shows a Hudi table without what its log files say; name the table itself, "
            f"{table.name.removesuffix('_ro') + '_rt'!r} or the one without a suffix"
        )


def _files(table: DeclaredTable, named: str, partitions: Partitions) -> CatalogEntry:
    if table.is_true("transactional"):
        raise TableFormatError(f"{table.name!r} is a transactional Hive table, which has no reader")
    if table.is_true("projection.enabled"):
        raise TableFormatError(
            f"the partitions of {table.name!r} are projected, so that the catalog does not know them; {_BY_PATH}"
        )
    if "symlink" in table.input_format.lower():
        raise TableFormatError(f"{table.name!r} is a list of files elsewhere (SymlinkTextInputFormat); {_BY_PATH}")
    options, types = _reader(table)
    location = _location(table, named)
    if table.provider and not _tracks_partitions(table):
        return CatalogEntry("files", location, options=options, types=types)
    folders = tuple(_folder(table, partition) for partition in partitions()) if table.partition_columns else ()
    return CatalogEntry(
        "files", location, options=options, types=types, folders=RegisteredFolders(table.partition_columns, folders)
    )


def _reader(table: DeclaredTable) -> tuple[dict[str, Any], dict[str, str]]:
    """Return options and types for reading plain files. Raises TableFormatError for an unsupported kind."""
    kind = table.provider.removeprefix(_SPARK_PACKAGE).split(".")[0] if table.provider else ""
    serde = table.serde.rpartition(".")[2]
    names = f"{table.input_format} {serde}".lower()
    try:
        binary = [name for name in _BINARY if name == kind or (not kind and name in names)]
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
            return hive_json(table.serde_parameters, table.columns)
    except ValueError as error:
        raise TableFormatError(f"{table.name!r}: {error}") from None
    class_name = table.serde or table.input_format
    raise TableFormatError(
        f"{table.name!r} is of a kind without a reader: {class_name or 'neither serde nor input format is declared'}"
    )


def _folder(table: DeclaredTable, partition: DeclaredPartition) -> PartitionFolder:
    for mine, its, what in (
        (table.input_format, partition.input_format, "input format"),
        (table.serde, partition.serde, "serde"),
    ):
        if its and mine and its != mine:
            raise TableFormatError(
                f"the partition {_shown(table, partition.values)} of {table.name!r} has another {what} than the "
                f"table, {its} and not {mine}: kinds of files are not mixed"
            )
    if len(partition.values) != len(table.partition_columns):
        raise TableFormatError(
            f"a partition of {table.name!r} has {len(partition.values)} values, {', '.join(partition.values)}, and the "
            f"table {len(table.partition_columns)} partition columns"
        )
    values = tuple(None if value == _NULL else value for value in partition.values)
    return PartitionFolder(values, partition.location)


def _shown(table: DeclaredTable, values: Sequence[str]) -> str:
    return "/".join(f"{name}={value}" for (name, _), value in zip(table.partition_columns, values, strict=False))


def _location(table: DeclaredTable, location: str) -> str:
    if not location:
        raise TableFormatError(f"the catalog does not say where {table.name!r} lies")
    return location


def _tracks_partitions(table: DeclaredTable) -> bool:
    """Return whether a Spark table consists of registered partitions, rather than of those in its folders."""
    split = int(table.parameters.get("spark.sql.sources.schema.numPartCols", "0") or 0)
    return split == 0 or table.parameters.get("spark.sql.partitionProvider", "").lower() == "catalog"


def _spark_columns(table: DeclaredTable) -> Columns:
    """Return the columns of a Spark table, which Spark declares by a schema of its own."""
    parts = int(table.parameters.get("spark.sql.sources.schema.numParts", "0") or 0)
    pieces = [table.parameters.get(f"spark.sql.sources.schema.part.{part}", "") for part in range(parts)]
    text = table.parameters.get("spark.sql.sources.schema") or "".join(pieces)
    if not text:
        return table.columns
    try:
        fields = [(field["name"], field["type"]) for field in json.loads(text)["fields"]]
    except (ValueError, KeyError, TypeError):
        raise ValueError("its schema as Spark keeps it in the catalog cannot be read") from None
    split = int(table.parameters.get("spark.sql.sources.schema.numPartCols", "0") or 0)
    inside = {table.parameters.get(f"spark.sql.sources.schema.partCol.{index}") for index in range(split)}
    # A type that is no plain name is nested.
    return tuple((name, type_ if isinstance(type_, str) else "") for name, type_ in fields if name not in inside)
