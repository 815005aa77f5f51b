"""The Spark session that writes tables of cases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def get_spark_session() -> SparkSession:
    """Return the running session or a new one, with UTC as its time zone."""
    from metastore_assets.spark.session import SparkLog
    from metastore_assets.spark.session import get_spark_session as running

    log = SparkLog(Path(os.devnull))
    try:
        session = running(log=log)
    finally:
        log.close()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session
