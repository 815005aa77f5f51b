"""Who does the work of a refresh: Spark, or, where it is little, this process and its children.

A session and its first job cost seconds, and a job some tenths of one; many commits are done in less. What is merged
here are the Metastore's own files. Files of tables may end the process that reads them: without Spark it is a child.
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
"""Profiles of columns that are merged here at once: less than a second's work."""
_SMALL_SUM = 500_000
"""Listed values that are summed here at once, likewise."""
_SMALL_BYTES = 32 << 20
_SMALL_FILES = 32
"""What is read here by `auto`: so many bytes of so many files, a few seconds' work."""


def check_refreshes_here(config: MetastoreConfig, table: TableConfig) -> None:
    """Raises ConfigError where only runs of Dagster refresh."""
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
        """That of a configuration, for work that is done here whatever does refreshes."""
        return cls(start, "auto" if config.engine == "auto" else "spark")

    @classmethod
    def of_refresh(cls, config: MetastoreConfig, table: TableConfig, start: Callable[[], SparkSession]) -> Engine:
        """That of a configuration, for a refresh. Raises ConfigError where refreshes are not done here."""
        check_refreshes_here(config, table)
        return cls.of(config, start)

    def start(self) -> SparkSession:
        """Return the session, and start it if it does not run. Raises MetastoreError without a way to start one."""
        if self._start is None:
            raise MetastoreError("there is more to read than this process does by itself: give a Spark session")
        return self._start()

    @property
    def session(self) -> SparkSession:
        """The session, started when it is not running."""
        return self.start()

    def slots(self) -> int:
        """How many tasks Spark runs at a time."""
        return self.spark_runner.parallelism

    def reading_runner(self, fragments: Sequence[Fragment]) -> TaskRunner:
        """Return the runner of tasks that read fragments: a child process where `reads_here` says so, else Spark."""
        return IsolatedRunner() if self._start is None or self.reads_here(fragments) else self.spark_runner

    def summing_runner(self, lists: int, values: int) -> TaskRunner:
        """Return the runner of tasks that sum so many lists of columns, of so many values in all."""
        return InProcessRunner() if self.sums_here(lists, values) else self.spark_runner

    def reads_here(self, fragments: Sequence[Fragment]) -> bool:
        """Return whether fragments are read without Spark.

        Where metadata claim that they are large, the storage is asked: a claim alone starts no Spark.
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

    def sums_here(self, lists: int, values: int) -> bool:
        """Whether so many lists of columns, of so many values in all, are summed without Spark."""
        return values <= _SMALL_SUM and self.merges_here(lists)

    def merges_here(self, columns: int) -> bool:
        """Whether so many profiles of columns are merged without Spark."""
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
    """The size of a fragment's data file; 0 where it cannot be found out: whoever reads the file says why."""
    if not isinstance(fragment.source, ClaimedSource):
        return fragment.bytes
    try:
        return fragment.source.stored_size()
    except (OSError, MetastoreError):
        return 0
