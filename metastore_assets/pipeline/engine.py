"""The engine of a refresh: Spark, or this process and its children for little work.

A session and its first job take seconds, and a job some tenths of a second. Many commits need less than that. This
process merges the Metastore's own files only: a table's files can crash the process that reads them, so a child process
reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.config.emr import EMR_SERVERLESS
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.formats.base import ClaimedSource, Fragment
from metastore_assets.spark.runner import SparkRunner
from metastore_assets.tasks.isolation import IsolatedRunner
from metastore_assets.tasks.runner import InProcessRunner, TaskRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_SMALL_MERGE = 4_000
"""Most profiles of columns that this process merges: less than a second of work."""
_SMALL_SUM = 500_000
"""Most values whose counts this process sums: less than a second of work."""
_SMALL_BYTES = 32 << 20
_SMALL_FILES = 32
"""Most bytes and files that `auto` reads without Spark: a few seconds of work."""


def check_refreshes_here(config: MetastoreConfig, table: TableConfig) -> None:
    """Raise ConfigError if the configured engine leaves refreshes to runs of Dagster."""
    if config.engine == EMR_SERVERLESS:
        raise ConfigError(
            f"table {table.name!r}: with `engine: {EMR_SERVERLESS}` refreshes are jobs that runs of Dagster launch: "
            f"`metastore backfill {table.name} --via dagster` has it launch one; `--engine spark` or `--engine auto` "
            "refreshes here"
        )


class Engine:
    """The Spark of one refresh, started when something needs it.

    `spark` reads files of tables on Spark always; `auto` reads few and small ones in a child process.
    """

    def __init__(self, start: Callable[[], SparkSession] | None, kind: Literal["spark", "auto"] = "spark") -> None:
        """Create an engine.

        Args:
            start: Returns the session, and starts it at the first call. None: all files of tables are read in child
                processes, and work that needs Spark raises MetastoreError.
            kind: Where files of tables are read.
        """
        self._start = start
        self._kind = kind
        self.spark_runner: TaskRunner = SparkRunner(self.start)
        """Runs tasks on Spark, whatever their number."""

    @classmethod
    def of(cls, config: MetastoreConfig, start: Callable[[], SparkSession]) -> Engine:
        """Return the engine of a configuration, for work that is not a refresh."""
        return cls(start, "auto" if config.engine == "auto" else "spark")

    @classmethod
    def of_refresh(cls, config: MetastoreConfig, table: TableConfig, start: Callable[[], SparkSession]) -> Engine:
        """Return the engine of a configuration for a refresh. Raise ConfigError if refreshes run elsewhere."""
        check_refreshes_here(config, table)
        return cls.of(config, start)

    def start(self) -> SparkSession:
        """Return the session, and start it if it does not run. Raises MetastoreError without a way to start one."""
        if self._start is None:
            raise MetastoreError("there is more to read than this process reads without Spark: pass a Spark session")
        return self._start()

    @property
    def session(self) -> SparkSession:
        """The session, started when it is not running."""
        return self.start()

    def slots(self) -> int:
        """Return the number of tasks that Spark runs at a time."""
        return self.spark_runner.parallelism

    def reading_runner(self, fragments: Sequence[Fragment]) -> TaskRunner:
        """Return the runner of tasks that read fragments: a child process if `reads_here` says so, else Spark."""
        return IsolatedRunner() if self._start is None or self.reads_here(fragments) else self.spark_runner

    def summing_runner(self, columns: int, values: int) -> TaskRunner:
        """Return the runner of tasks that sum value counts: this process if `sums_here` says so, else Spark.

        Args:
            columns: Number of columns, summed over all profiles.
            values: Number of their values.
        """
        return InProcessRunner() if self.sums_here(columns, values) else self.spark_runner

    def reads_here(self, fragments: Sequence[Fragment]) -> bool:
        """Return whether fragments are read without Spark, because they are few and small.

        If metadata of the table say that they are large, the sizes are checked in the storage before Spark is started.
        """
        if self._kind != "auto" or len(fragments) > _SMALL_FILES:
            return False
        if sum(fragment.bytes for fragment in fragments) <= _SMALL_BYTES:
            return True
        stored = 0
        for fragment in sorted(fragments, key=lambda fragment: -fragment.bytes):
            stored += _stored_size(fragment)
            if stored > _SMALL_BYTES:
                return False
        return True

    def sums_here(self, columns: int, values: int) -> bool:
        """Return whether the value counts of this many columns, with this many values in all, are summed here."""
        return values <= _SMALL_SUM and self.merges_here(columns)

    def merges_here(self, columns: int) -> bool:
        """Return whether this process merges this many profiles of columns, without Spark."""
        return columns <= _SMALL_MERGE

    def merge(self, function: Callable[[T], R], tasks: Sequence[T], columns: Sequence[int]) -> list[R]:
        """Return `[function(task) for task in tasks]`, run here or on Spark.

        Args:
            function: Reads files of the Metastore alone: they crash nothing.
            tasks: Picklable tasks.
            columns: How many profiles of columns each task merges.
        """
        runner = InProcessRunner() if self.merges_here(sum(columns)) else self.spark_runner
        return runner.map(function, tasks, costs=[float(count) for count in columns])


def _stored_size(fragment: Fragment) -> int:
    """Return the size of a fragment's data file; 0 if it is not known. Reading the file then reports the error."""
    if not isinstance(fragment.source, ClaimedSource):
        return fragment.bytes
    try:
        return fragment.source.stored_size()
    except (OSError, MetastoreError):
        return 0
