"""What needs the table as well as its version: exact counts, scans, statistics of some rows, the source for Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.lookup.answers import ExactCount
from metastore_assets.scan.counting import count
from metastore_assets.scan.frames import scan
from metastore_assets.scan.scoped import scoped
from metastore_assets.spark.versions import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ExactCount", "count", "register", "scan", "scoped"]


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("metastore")` known to a session: see `scan.source.MetastoreSource` for its options.

    Raises ConfigError for PySpark before 4.0, which has no data sources in Python.
    """
    require_pyspark((4, 0), 'the data source "metastore"')
    from metastore_assets.scan.source import MetastoreSource  # which takes Spark's own modules

    spark.dataSource.register(MetastoreSource)
