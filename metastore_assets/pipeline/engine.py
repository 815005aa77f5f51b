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
from metastore_assets.spark.tasks import parallelism, run_tasks

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

    `spark` reads files of tables on Spark always; `auto` does without where they are few and small.
    """

    def __init__(self, start: Callable[[], SparkSession], kind: Literal["spark", "auto"] = "spark") -> None:
        self._start = start
        self._kind = kind

    @classmethod
    def of(cls, config: MetastoreConfig, start: Callable[[], SparkSession]) -> Engine:
        """That of a configuration, for work that is done here whatever does refreshes."""
        return cls(start, "auto" if config.engine == "auto" else "spark")

    @classmethod
    def of_refresh(cls, config: MetastoreConfig, table: TableConfig, start: Callable[[], SparkSession]) -> Engine:
        """That of a configuration, for a refresh. Raises ConfigError where refreshes are not done here."""
        check_refreshes_here(config, table)
        return cls.of(config, start)

    @property
    def session(self) -> SparkSession:
        """The session, started when it is not running."""
        return self._start()

    def slots(self) -> int:
        """How many tasks Spark runs at a time."""
        return parallelism(self.session)

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
        """`[function(task) for task in tasks]` in no particular order. `columns`: profiles of columns each task merges.

        Raises what `run_tasks` does.
        """
        if self.merges_here(sum(columns)):
            return [function(task) for task in tasks]
        return run_tasks(self.session, function, tasks, [float(count) for count in columns])


def _stored_size(fragment: Fragment) -> int:
    """The size of a fragment's data file; 0 where it cannot be found out: whoever reads the file says why."""
    if not isinstance(fragment.source, ClaimedSource):
        return fragment.bytes
    try:
        return fragment.source.stored_size()
    except (OSError, MetastoreError):
        return 0
