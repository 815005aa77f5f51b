"""Queries that read a table's data files if stored statistics are not sufficient.

They are exact counts, scans, statistics of filtered rows, and reads by Spark's data source `metastore`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.scan.dataframe import scan
from metastore_assets.scan.exact_count import count
from metastore_assets.scan.filtered_view import filter_table
from metastore_assets.scan.scanner import TableScanner
from metastore_assets.spark.pyspark_compat import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TableScanner", "count", "filter_table", "register", "scan"]


def register(spark: SparkSession) -> None:
    """Register the data source `metastore` with a session.

    `MetastoreSource` describes its options.

    Raises ConfigError for PySpark before 4.0, which has no data sources in Python.
    """
    require_pyspark((4, 0), 'the data source "metastore"')
    from metastore_assets.scan.spark_source import MetastoreSource  # it imports pyspark

    spark.dataSource.register(MetastoreSource)
