"""The configuration that definitions were made of: where it comes from, and what it is when they run."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Union

from metastore_assets.config import MetastoreConfig, config_path, load_config, read_config
from metastore_assets.errors import ConfigError
from metastore_assets.resources.s3 import with_credentials
from metastore_assets.resources.spark import SparkLike, running_spark
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource
    from pyspark.sql import SparkSession

ConfigLike = Union["Configuration", MetastoreConfig, str, os.PathLike[str], None]
"""A configuration, its file, or None for the file that the command takes: $METASTORE_CONFIG, or ./metastore.yaml."""


@dataclass(frozen=True)
class Configuration:
    """A file or objects, and Dagster's resources that go with them: the same when definitions are loaded and when they
    run, but that a run reads the file and the environment anew."""

    file: Path | None = None
    given: MetastoreConfig | None = None
    s3: "S3Resource | None" = field(default=None, repr=False)
    """Access to S3, where the configuration itself has none."""
    spark: SparkLike | None = field(default=None, repr=False)
    """The session of runs; None: one with the settings under `spark`."""

    @classmethod
    def of(
        cls, config: ConfigLike = None, s3: "S3Resource | None" = None, spark: SparkLike | None = None
    ) -> "Configuration":
        """That of a configuration or a file. Raises ConfigError when Spark's settings are given twice."""
        if isinstance(config, Configuration):
            return config
        given = config if isinstance(config, MetastoreConfig) else None
        made = cls(None if isinstance(config, MetastoreConfig) else config_path(config), given, s3, spark)
        if spark is not None and made.shown().spark:
            raise ConfigError(
                "the configuration has settings under `spark`, and the session is to come from a resource with "
                "settings of its own: leave one of them out"
            )
        return made

    def shown(self) -> MetastoreConfig:
        """With `${VAR}` where it refers to the environment: for all that is shown to people. Raises ConfigError."""
        return (self.given or read_config(self.file)).located()

    def now(self) -> MetastoreConfig:
        """As it counts. Raises ConfigError, also where a variable is not set."""
        return with_credentials(self.given.resolved() if self.given else load_config(self.file), self.s3)

    @contextmanager
    def session(self, now: MetastoreConfig) -> Iterator[Callable[[], "SparkSession"]]:
        """What gives the run's Spark session, which starts when it is first asked for, and ends at the end of this."""
        with running_spark(self.spark, now.spark) as session:
            yield session


def versions_of(config: MetastoreConfig, table: str) -> VersionStore:
    """The versions of a table in the configured root."""
    return VersionStore(ObjectStore(config.root, config.storage_options), table)
