"""The Spark session of one invocation: started when first asked for, its noise kept in a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from metastore_assets.cli.failures import interrupt_behind
from metastore_assets.cli.progress import Watcher
from metastore_assets.errors import MetastoreError
from metastore_assets.startup import unhide_pandas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LazySpark:
    """Starts Spark when it is first called. Use as a context manager.

    What Spark's processes write goes to a file, which is removed in the end, unless Spark failed in a way that only
    the file explains: then the error names it.
    """

    def __init__(self, settings: Mapping[str, object], watcher: Watcher) -> None:
        self._settings = settings
        self._watcher = watcher
        self._log: Path | None = None
        self._keep = False

    def __call__(self) -> SparkSession:
        """The session. Raises MetastoreError when Spark does not start."""
        unhide_pandas()
        from metastore_assets.spark.session import spark_session

        if self._log is None:
            descriptor, name = tempfile.mkstemp(prefix="metastore-spark-", suffix=".log")
            os.close(descriptor)
            self._log = Path(name)
            self._watcher.spark_starts()
        try:
            session = spark_session(self._settings, log=self._log)
        except MetastoreError:
            self._keep = True
            raise
        self._watcher.spark_runs(session)
        return session

    def explain(self, error: BaseException) -> None:
        """Add to an error that is not one of ours, nor of an interrupt, where Spark's own words on it are, and keep
        them."""
        if self._log is not None and interrupt_behind(error) is None and not isinstance(error, MetastoreError):
            self._keep = True
            error.add_note(f"what Spark wrote is in {self._log}")

    def __enter__(self) -> LazySpark:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.explain(error)
        if self._log is not None and not self._keep:
            self._log.unlink(missing_ok=True)
