"""The Spark session of one command, which is started at first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from metastore_assets.cli.failures import find_interrupt
from metastore_assets.cli.progress import Watcher
from metastore_assets.errors import MetastoreError
from metastore_assets.startup import allow_pandas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from metastore_assets.spark.session import SparkLog


class LazySpark:
    """A callable that returns the command's Spark session, and starts it at the first call.

    If a `with` block of this object raises an error that Spark's log may explain, the log is saved, and the error names
    its file.
    """

    def __init__(self, settings: Mapping[str, object], watcher: Watcher) -> None:
        self._settings = settings
        self._watcher = watcher
        self._log: SparkLog | None = None

    def __call__(self) -> SparkSession:
        """Return the session, and start it at the first call.

        Raises MetastoreError if Spark does not start.
        """
        allow_pandas()
        from metastore_assets.spark.session import SparkLog, get_spark_session

        if self._log is None:
            self._log = SparkLog()
            self._watcher.spark_starts()
        try:
            session = get_spark_session(self._settings, log=self._log)
        except MetastoreError as error:
            if find_interrupt(error) is not None or not self._log.text():
                raise
            raise MetastoreError(f"{error} (see Spark's log in {self._log.save()})") from error
        self._watcher.spark_runs(session)
        return session

    def explain(self, error: BaseException) -> None:
        """Save Spark's log, and add a note with its path to an error.

        Does nothing without a log, for an interrupt, and for a MetastoreError, whose message is sufficient.
        """
        if self._log is not None and find_interrupt(error) is None and not isinstance(error, MetastoreError):
            error.add_note(f"see Spark's log in {self._log.save()}")

    def __enter__(self) -> LazySpark:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.explain(error)
        if self._log is not None:
            self._log.close()
