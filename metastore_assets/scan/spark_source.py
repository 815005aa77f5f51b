"""Tables of the Metastore as a data source of Spark, which reads only files that rows of a predicate may be in.

The predicate is an option, and no filter that Spark pushes down: Spark 4.3 keeps what a filter leaves with the frame
that was loaded, not with the query, so that another query of the same frame, or the other side of a join, gets those
rows. So sources in Python cannot take filters without wrong rows, and all filters are evaluated by Spark.
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
from metastore_assets.lookup.versions import open_version
from metastore_assets.scan.dataframe import column_positions, read_scan_tasks, scan_tasks
from metastore_assets.scan.scan_plan import ScanPlan, plan_scan_of, plan_table
from metastore_assets.scan.scanner import TableScanner
from metastore_assets.scan.spark_types import spark_arrow_type
from metastore_assets.spark.pyspark_compat import arrow_schema
from metastore_assets.spark.runner import balance_bins, pack, prepare_task
from metastore_assets.store.objects import ObjectStore

_NAME = "metastore"
_SPLIT_BYTES = 64 << 20
_FEWEST_SPLITS = 8
"""Tasks that there are at least, where there are as many files; beyond, each has about `_SPLIT_BYTES` to read."""
_OF_ROOT, _OF_TABLE = "root.", "table."
"""What options begin with that are storage options of the root, or of the table."""


class MetastoreSource(DataSource):
    """`spark.read.format("metastore").option("table", "orders").load(root)`.

    Options: `table`; `where`, a predicate, of whose rows only the frame consists; `version` (its number, by default the
    newest); `snapshot` (`now`, the default, or `version`); `columns`, of the top level, with commas between; `uri`,
    where the table is, unless its version tells; `root.…` and `table.…`, storage options of the root and of the table;
    `config`, a configuration that has all of these.
    """

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return _NAME

    def schema(self) -> StructType:
        """Of the table's snapshot, in Spark's types. Raises as `plan_scan`; UnsupportedTypeError."""
        found = _Table(self.options)
        return found.sent(found.places(found.columns))

    def reader(self, schema: StructType) -> MetastoreReader:
        """Of the columns that a schema has."""
        return MetastoreReader(dict(self.options), schema)


class MetastoreReader(DataSourceReader):
    """One read of a table, planned in a process of Spark's driver and carried out by its tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Lots of files of about the same size, without those that no row can match in."""
        table = _Table(self._options)
        work = scan_tasks(table.chosen(self._options.get("where") or "true"), None)
        places = table.places(self._schema.fieldNames())
        table.check_types(places, self._schema)
        shape = (table.schema, places, arrow_schema(self._schema))
        count = max(_FEWEST_SPLITS, sum(own.bytes for _, own in work) // _SPLIT_BYTES)
        bins = balance_bins([float(own.bytes + 1) for _, own in work], count)
        lots = [pack(([work[at] for at in group], *shape)) for group in bins]
        return [InputPartition(lot) for lot in lots] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one lot. Raises FragmentError."""
        if partition.value is not None:
            prepare_task()
            yield from read_scan_tasks(*pickle.loads(partition.value))


class _Table:
    """What options name."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        which = options.get("snapshot", "now")
        if which not in ("now", "version"):
            raise ConfigError(f"option snapshot: 'now' or 'version', not {which!r}")
        given = options.get("columns")
        self.columns = None if given is None else [name.strip() for name in given.split(",")]
        self._lookup = self._opened()
        self._planned = plan_table(self._lookup, self.config, "version" if which == "version" else "now")
        self.schema = self._planned[1].schema

    @cached_property
    def config(self) -> TableConfig:
        """Where the table is."""
        configured = self._configured
        if configured is not None:
            return find_table(configured, self._options["table"])
        return self._lookup.table_config(self._options.get("uri"), _with_prefix(self._options, _OF_TABLE))

    def chosen(self, where: str) -> ScanPlan:
        """What has to be read for a predicate."""
        return plan_scan_of(self._lookup, self.config, self._planned, where)

    def places(self, columns: Sequence[str] | None) -> list[int]:
        """Of top-level columns. Raises ColumnNotFoundError."""
        return column_positions(self.config, self.schema, columns)

    def sent(self, places: Sequence[int]) -> StructType:
        """The columns as Spark gets them. Raises UnsupportedTypeError."""
        fields = [self.schema.field(at) for at in places]
        sent = [pa.field(field.name, spark_arrow_type(self.config, field)) for field in fields]
        shown: StructType = from_arrow_schema(pa.schema(sent))
        return shown

    def check_types(self, places: Sequence[int], schema: StructType) -> None:
        """Raise UnsupportedTypeError where a schema has other types than the table."""
        for own, wanted in zip(self.sent(places), schema, strict=True):
            if own.dataType.simpleString() != wanted.dataType.simpleString():
                raise UnsupportedTypeError(
                    f"column {own.name!r} of table {self.config.name!r} is {own.dataType.simpleString()}, and the "
                    f"schema says {wanted.dataType.simpleString()}: cast it when it is read"
                )

    @cached_property
    def _configured(self) -> MetastoreConfig | None:
        return load_config(self._options["config"]) if "config" in self._options else None

    def _opened(self) -> Table:
        options, configured = self._options, self._configured
        if "table" not in options:
            raise ConfigError('option table: which one, as in `.option("table", "orders")`')
        root = options.get("path") or (configured.root if configured else None)
        if root is None:
            raise ConfigError("the root is not given: `.load(root)`, or option config")
        own = {**(configured.storage_options if configured else {}), **_with_prefix(options, _OF_ROOT)}
        version = options.get("version")
        if version is not None and not (version.isascii() and version.isdigit()):
            raise ConfigError(f"option version: a number, not {version!r}")
        number = None if version is None else int(version)
        versions, opened = open_version(ObjectStore(root, own), options["table"], number)
        return Table(versions.objects, opened, TableScanner)


def _with_prefix(options: Mapping[str, Any], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): str(value) for key, value in options.items() if key.startswith(prefix)}
