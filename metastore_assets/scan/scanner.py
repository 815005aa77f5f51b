"""The scanner that `open_table` gives to a `lookup.Table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from metastore_assets.config import TableConfig
from metastore_assets.expressions.predicates import Predicate
from metastore_assets.lookup import FilteredView, Table
from metastore_assets.lookup.results import ExactCount
from metastore_assets.lookup.table import ScanRequest, SnapshotChoice
from metastore_assets.scan.dataframe import scan
from metastore_assets.scan.exact_count import count
from metastore_assets.scan.filtered_view import filter_table
from metastore_assets.scan.matching_rows import StartSpark
from metastore_assets.scan.recorded_location import recorded_table_config
from metastore_assets.store.manifest import Version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TableScanner:
    """The `lookup.table.Scanner` that reads tables."""

    def filter(
        self, lookup: Table, predicate: Predicate, table: TableConfig | None, spark: StartSpark | None
    ) -> FilteredView:
        """Return the rows that match a predicate."""
        return filter_table(lookup, predicate, table, spark)

    def count(
        self,
        lookup: Table,
        table: TableConfig,
        where: str | pc.Expression,
        spark: StartSpark | None,
        snapshot: SnapshotChoice,
    ) -> ExactCount:
        """Return the exact number of matching rows."""
        return count(lookup, table, where, spark, snapshot=snapshot)

    def scan(self, lookup: Table, table: TableConfig, spark: SparkSession, request: ScanRequest) -> DataFrame:
        """Return the requested rows as a Spark DataFrame."""
        return scan(lookup, table, spark, request)

    def recorded_table(
        self, version: Version, uri: str, confirmed: Sequence[str], storage_options: Mapping[str, str]
    ) -> TableConfig:
        """Return the table's location as a version records it."""
        return recorded_table_config(version, uri, confirmed, storage_options)
