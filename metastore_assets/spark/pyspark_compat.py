"""Functions that hide differences between versions of PySpark.

The oldest supported version is 3.5.
"""

from __future__ import annotations

import re
from inspect import signature
from typing import TYPE_CHECKING

import pyarrow as pa

from metastore_assets.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SPLITS = re.compile(r"splits=(?:Some\()?(\d+)")


def collect_blobs(frame: DataFrame) -> pa.Table:
    """Collect a frame with one binary column as an Arrow table.

    PySpark before 4.0 has no `DataFrame.toArrow`.
    """
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    (name,) = frame.columns
    return pa.table({name: pa.array([bytes(row[0]) for row in frame.collect()], pa.binary())})


def repartition_by_id(frame: DataFrame, partitions: int, column: str) -> DataFrame:
    """Move each row of a frame to the partition whose number is in a column, and return the frame.

    Before PySpark 4.1, only rows with the same number are certain to be together. A partition may then have rows with
    several numbers.
    """
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(partitions, column)
    return frame.repartition(partitions, column)


def count_range_splits(spark: SparkSession) -> int | None:
    """Return the number of partitions that `spark.range` has by default (the default parallelism).

    The result is None if the number is unknown. No job is run.
    """
    plan = "\n".join(str(row[0]) for row in spark.sql("EXPLAIN SELECT id FROM range(1)").collect())
    match = _SPLITS.search(plan)
    return int(match[1]) if match else None


def arrow_schema(schema: StructType) -> pa.Schema:
    """Convert a Spark schema to Arrow.

    Timestamps with a time zone get the zone UTC.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    has_zone = "timezone" in signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, timezone="UTC") if has_zone else to_arrow_schema(schema)


def require_pyspark(release: tuple[int, int], feature: str) -> None:
    """Raise ConfigError if the installed PySpark is older than a feature needs."""
    import pyspark

    installed_version = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if installed_version < release:
        raise ConfigError(
            f"{feature} needs PySpark {release[0]}.{release[1]} or newer, and {pyspark.__version__} is installed: "
            "install a newer PySpark, or leave this feature out"
        )
