"""Spark's data source `metastore`: the rows of a table that match a predicate.

The predicate is the option `where` of the source. Only files that may have matching rows are read.

Filters of a query are not pushed down to the source: Spark evaluates them itself. With pushdown in Spark 4.3, a filter
that the source rejects would also be applied to other queries of the same frame.

The root, which is the argument of `load`, is the folder with the stored statistics of all tables. A version has the
statistics of one snapshot of the table.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from metastore_assets.config import MetastoreConfig, TableConfig, load_config
from metastore_assets.databases import find_table
from metastore_assets.errors import ConfigError, UnsupportedTypeError
from metastore_assets.lookup import Table
from metastore_assets.lookup.version_references import open_version
from metastore_assets.messages import close_names
from metastore_assets.reads.scan_plan import (
    ScanPlan,
    find_column_positions,
    load_snapshot,
    plan_snapshot_scan,
    plan_tasks,
)
from metastore_assets.scan.dataframe import ScanSchema, read_scan_tasks
from metastore_assets.scan.scanner import TableScanner
from metastore_assets.scan.spark_types import to_spark_type
from metastore_assets.spark.pyspark_compat import arrow_schema
from metastore_assets.spark.runner import balance_bins, pack, prepare_task
from metastore_assets.store.objects import ObjectStore

_NAME = "metastore"
_SPLIT_BYTES = 64 << 20
_MIN_SPLITS = 8
"""Minimum number of tasks, if there are enough files. Large tables have more tasks, of about `_SPLIT_BYTES` each."""
_ROOT_PREFIX, _TABLE_PREFIX = "root.", "table."
"""Prefixes of options: `root.` for storage options of the root, `table.` for those of the table."""
_OPTIONS = ("table", "where", "columns", "version", "snapshot", "uri", "config")
_PATH_OPTION = "path"
"""The option in which Spark passes the argument of `load`."""


class MetastoreSource(DataSource):
    """The data source of `spark.read.format("metastore").option("table", "orders").load(root)`.

    Options:

    - `table`: the name of the table.
    - `where`: a predicate; the frame has only the rows that match it.
    - `version`: the number of a version, by default the newest.
    - `snapshot`: `now` (the default) for the current snapshot, `version` for the snapshot that the version describes.
    - `columns`: names of top-level columns, separated by commas.
    - `uri`: the location of the table, by default the one in its version.
    - `root.…`: storage options of the root. `table.…`: storage options of the table.
    - `config`: the path of a configuration that has the root and the table.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return _NAME

    def schema(self) -> StructType:
        """Return the requested columns in Spark's types.

        Raises UnsupportedTypeError and the errors of `plan_scan`.
        """
        table = _RequestedTable(self.options)
        return table.spark_schema(table.positions(table.columns))

    def reader(self, schema: StructType) -> MetastoreReader:
        """Return a reader of the table's rows with the columns of `schema`, for one read."""
        return MetastoreReader(dict(self.options), schema)


class MetastoreReader(DataSourceReader):
    """One read of a table.

    Spark's driver plans the read, and Spark's tasks execute it.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return groups of the files that may have matching rows.

        The groups have about equal sizes in bytes.

        If there are no such files, the result is one group without files.
        """
        table = _RequestedTable(self._options)
        tasks = plan_tasks(table.plan(self._options.get("where") or "true"), None)
        positions = table.positions(self._schema.fieldNames())
        table.check_types(positions, self._schema)
        schema = ScanSchema(table.schema, positions, arrow_schema(self._schema))
        count = max(_MIN_SPLITS, sum(task.fragment.bytes for task in tasks) // _SPLIT_BYTES)
        bins = balance_bins([float(task.fragment.bytes + 1) for task in tasks], count)
        groups = [pack(([tasks[position] for position in group], schema)) for group in bins]
        return [InputPartition(group) for group in groups] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of one group of files.

        Raises FragmentError if a file cannot be read.
        """
        if partition.value is not None:
            prepare_task()
            yield from read_scan_tasks(*pickle.loads(partition.value))


class _RequestedTable:
    """The table, columns and snapshot that the options of the source request."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Open the version and the table that the options select, and load the selected snapshot.

        Raises VersionNotFoundError, ConfigError for invalid options, or another MetastoreError.
        """
        self._options = options
        for name in options:
            # Without the refusal, a misspelt `where` would select all rows.
            if name not in (*_OPTIONS, _PATH_OPTION) and not name.startswith((_ROOT_PREFIX, _TABLE_PREFIX)):
                names = close_names(name, _OPTIONS, "; the options are {}")
                raise ConfigError(f"Spark's source `metastore` has no option {name!r}{names}")
        choice = options.get("snapshot", "now")
        if choice not in ("now", "version"):
            raise ConfigError(f"option snapshot: 'now' or 'version', not {choice!r}")
        columns = options.get("columns")
        self.columns = None if columns is None else [name.strip() for name in columns.split(",")]
        self._lookup = self._open()
        self._loaded = load_snapshot(self._lookup, self.config, "version" if choice == "version" else "now")
        self.schema = self._loaded[1].schema

    @cached_property
    def config(self) -> TableConfig:
        """The configuration of the table, from the file in the option `config`.

        Without this option, it is made from the table's URI: the option `uri`, or the URI that the version records.
        """
        configuration = self._configuration
        if configuration is not None:
            return find_table(configuration, self._options["table"])
        return self._lookup.table_config(self._options.get("uri"), _with_prefix(self._options, _TABLE_PREFIX))

    def plan(self, where: str) -> ScanPlan:
        """Return which fragments have to be read for a predicate.

        Errors are those of `plan_scan`.
        """
        return plan_snapshot_scan(self._lookup, self.config, self._loaded, where)

    def positions(self, columns: Sequence[str] | None) -> list[int]:
        """Return the positions of top-level columns in the table's schema.

        Raises ColumnNotFoundError if a name is not that of a top-level column.

        Args:
            columns: The names of the columns; None for all.
        """
        return find_column_positions(self.config, self.schema, columns)

    def spark_schema(self, positions: Sequence[int]) -> StructType:
        """Return some top-level columns as a schema of Spark.

        Raises UnsupportedTypeError if Spark lacks a type.

        Args:
            positions: The positions of the columns in the table's schema, in the order of the result.
        """
        fields = [self.schema.field(position) for position in positions]
        arrow_fields = [pa.field(field.name, to_spark_type(self.config, field)) for field in fields]
        struct: StructType = from_arrow_schema(pa.schema(arrow_fields))
        return struct

    def check_types(self, positions: Sequence[int], schema: StructType) -> None:
        """Raise UnsupportedTypeError if a column has another type in the user's schema than in the table.

        Args:
            positions: The position in the table of each column of `schema`.
            schema: The user's schema.
        """
        for field, requested_field in zip(self.spark_schema(positions), schema, strict=True):
            type_, requested_type = field.dataType.simpleString(), requested_field.dataType.simpleString()
            if type_ != requested_type:
                raise UnsupportedTypeError(
                    f"column {field.name!r} of table {self.config.name!r} is {type_}, and the schema says "
                    f"{requested_type}: read it as {type_}, and cast it afterwards"
                )

    @cached_property
    def _configuration(self) -> MetastoreConfig | None:
        return load_config(self._options["config"]) if "config" in self._options else None

    def _open(self) -> Table:
        """Open the version that the options select.

        Raises ConfigError if an option is missing or wrong.
        """
        options, config = self._options, self._configuration
        if "table" not in options:
            raise ConfigError('option table is required, as in `.option("table", "orders")`')
        root = options.get(_PATH_OPTION) or (config.root if config else None)
        if root is None:
            raise ConfigError("the root is missing: pass it as `.load(root)`, or set option config")
        storage_options = config.storage_options if config else {}
        storage_options = {**storage_options, **_with_prefix(options, _ROOT_PREFIX)}
        version = options.get("version")
        if version is not None and not (version.isascii() and version.isdigit()):
            raise ConfigError(f"option version: a number, not {version!r}")
        number = None if version is None else int(version)
        versions, resolved_version = open_version(ObjectStore(root, storage_options), options["table"], number)
        return Table(versions.objects, resolved_version, TableScanner)


def _with_prefix(options: Mapping[str, Any], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): str(value) for key, value in options.items() if key.startswith(prefix)}
