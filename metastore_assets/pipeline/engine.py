"""The decision whether the work of a refresh runs on Spark or in local processes.

Starting a Spark session takes seconds, and each job some tenths of a second. Most commits change little, so they
finish earlier without Spark.

A corrupt file of a table may crash the process that reads it. Therefore child processes or Spark tasks read the files
of tables. The process of the refresh reads and merges only files that the Metastore wrote.

A fragment is a data file with its deletes. A column profile is the statistics of one column in a fragment, a partition
or the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.config.emr import EMR_SERVERLESS
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.formats.base import Fragment, SizedSource
from metastore_assets.spark.runner import SparkRunner
from metastore_assets.tasks.isolation import IsolatedRunner
from metastore_assets.tasks.runner import InProcessRunner, TaskRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_SMALL_MERGE = 4_000
"""Maximum number of column profiles that this process merges: less than a second of work."""
_SMALL_SUM = 500_000
"""Maximum number of values whose counts this process sums: less than a second of work."""
_SMALL_BYTES = 32 << 20
_SMALL_FILES = 32
"""The engine `auto` reads up to this many files, and up to `_SMALL_BYTES`, without Spark: a few seconds of work."""


def check_refreshes_here(config: MetastoreConfig, table: TableConfig) -> None:
    """Raise ConfigError if the configured engine runs refreshes as Dagster jobs, not in this process."""
    if config.engine == EMR_SERVERLESS:
        raise ConfigError(
            f"table {table.name!r}: with `engine: {EMR_SERVERLESS}` refreshes are jobs that runs of Dagster launch: "
            f"`metastore backfill {table.name} --via dagster` has it launch one; `--engine spark` or `--engine auto` "
            "refreshes here"
        )


class Engine:
    """A runner of the tasks of a refresh, which starts Spark when it is first needed.

    The engine `spark` reads all files of tables on Spark. The engine `auto` reads them in a child process if they are
    few and small. Both do small merges in this process.
    """

    def __init__(self, start: Callable[[], SparkSession] | None, kind: Literal["spark", "auto"] = "spark") -> None:
        """Create an engine.

        Args:
            start: Returns the Spark session, and starts it at the first call. If None, child processes read all files
                of tables, and work that needs Spark raises MetastoreError.
            kind: `spark` or `auto`, see the class.
        """
        self._start = start
        self._kind = kind
        self.spark_runner: TaskRunner = SparkRunner(self.start)
        """Runs tasks on Spark, even if there is only one."""

    @classmethod
    def of(cls, config: MetastoreConfig, start: Callable[[], SparkSession]) -> Engine:
        """Create the configured engine for work that is not a refresh, such as a purge."""
        return cls(start, "auto" if config.engine == "auto" else "spark")

    @classmethod
    def of_refresh(cls, config: MetastoreConfig, table: TableConfig, start: Callable[[], SparkSession]) -> Engine:
        """Create the configured engine for a refresh.

        `start` returns the Spark session.

        Raises ConfigError with `engine: emr-serverless`, because refreshes are then jobs that Dagster launches.
        """
        check_refreshes_here(config, table)
        return cls.of(config, start)

    def start(self) -> SparkSession:
        """Return the Spark session, and start it if necessary.

        Raises MetastoreError if the engine has no Spark.
        """
        if self._start is None:
            raise MetastoreError("there is more to read than this process reads without Spark: pass a Spark session")
        return self._start()

    @property
    def session(self) -> SparkSession:
        """The Spark session, which is started if necessary.

        Raises MetastoreError if the engine has no Spark.
        """
        return self.start()

    def slots(self) -> int:
        """Return the number of tasks that Spark runs at a time."""
        return self.spark_runner.parallelism

    def reading_runner(self, fragments: Sequence[Fragment]) -> TaskRunner:
        """Return the runner of tasks that read fragments.

        If the fragments are few and small (see `reads_here`), or without Spark, child processes run all tasks. Else
        Spark runs them all.
        """
        return IsolatedRunner() if self._start is None or self.reads_here(fragments) else self.spark_runner

    def summing_runner(self, columns: int, values: int) -> TaskRunner:
        """Return the runner of tasks that sum value counts: this process for few values, else Spark.

        Args:
            columns: Number of column profiles to sum.
            values: Number of values in these profiles.
        """
        return InProcessRunner() if self.sums_here(columns, values) else self.spark_runner

    def reads_here(self, fragments: Sequence[Fragment]) -> bool:
        """Return whether fragments are read without Spark: the engine is `auto`, and they are few and small."""
        if self._kind != "auto" or len(fragments) > _SMALL_FILES:
            return False
        if sum(fragment.bytes for fragment in fragments) <= _SMALL_BYTES:
            return True
        # The sizes in the table's metadata may be wrong. Spark is started only for files that are really large.
        stored_bytes = 0
        for fragment in sorted(fragments, key=lambda fragment: -fragment.bytes):
            stored_bytes += _stored_size(fragment)
            if stored_bytes > _SMALL_BYTES:
                return False
        return True

    def sums_here(self, columns: int, values: int) -> bool:
        """Return whether this process sums value counts without Spark.

        Args:
            columns: Number of column profiles to sum.
            values: Number of values in these profiles.
        """
        return values <= _SMALL_SUM and self.merges_here(columns)

    def merges_here(self, columns: int) -> bool:
        """Return whether this process merges `columns` column profiles itself, instead of Spark."""
        return columns <= _SMALL_MERGE

    def merge(self, function: Callable[[T], R], tasks: Sequence[T], columns: Sequence[int]) -> list[R]:
        """Return `[function(task) for task in tasks]`, computed in this process or on Spark.

        Args:
            function: Reads only files that the Metastore wrote, because other files may crash this process.
            tasks: Picklable tasks.
            columns: The number of column profiles that each task merges.
        """
        runner = InProcessRunner() if self.merges_here(sum(columns)) else self.spark_runner
        return runner.map(function, tasks, costs=[float(count) for count in columns])


def _stored_size(fragment: Fragment) -> int:
    """Return the stored size of a fragment in bytes; 0 if reading the size fails.

    If the source of the fragment cannot report a size, the size in the table's metadata is returned.
    """
    if not isinstance(fragment.source, SizedSource):
        return fragment.bytes
    try:
        return fragment.source.stored_size()
    except (OSError, MetastoreError):
        return 0  # the task that reads the file reports the error
