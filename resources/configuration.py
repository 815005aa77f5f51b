"""The configuration of a project's definitions, at load time and in runs."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Union

from dagster import get_dagster_logger

from metastore_assets.checks.entries import load_checked_config, read_checked_config, validate_checks
from metastore_assets.config import MetastoreConfig, config_path
from metastore_assets.databases import DatabaseListing, expand_databases, list_databases
from metastore_assets.errors import ConfigError
from metastore_assets.messages import remove_secrets
from metastore_assets.resources.s3 import with_credentials
from metastore_assets.resources.spark import SparkLike, running_spark

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource
    from pyspark.sql import SparkSession

_PATIENCE = 5.0
"""Seconds to wait for a catalog. Dagster loads a code location at every start, including each run."""

ConfigLike = Union["Configuration", MetastoreConfig, str, os.PathLike[str], None]
"""A configuration, its file, or None for the file that the command takes: $METASTORE_CONFIG, or ./metastore.yaml."""


@dataclass(frozen=True)
class Configuration:
    """A configuration file or object with Dagster's resources. A run reads the file and the environment again."""

    file: Path | None = None
    config_object: MetastoreConfig | None = None
    s3: "S3Resource | None" = field(default=None, repr=False)
    """S3 access for what the configuration does not set."""
    spark: SparkLike | None = field(default=None, repr=False)
    """Provides the session of runs; None starts one with the settings under `spark`."""
    members: tuple[DatabaseListing, ...] | None = field(default=None, repr=False)
    """The tables of whole databases when the definitions were loaded; None before that."""

    @classmethod
    def of(
        cls, config: ConfigLike = None, s3: "S3Resource | None" = None, spark: SparkLike | None = None
    ) -> "Configuration":
        """Return the configuration of an object or a file. Raise ConfigError if Spark settings are set twice."""
        if isinstance(config, Configuration):
            return config
        config_object = config if isinstance(config, MetastoreConfig) else None
        configuration = cls(
            None if isinstance(config, MetastoreConfig) else config_path(config), config_object, s3, spark
        )
        if spark is not None and configuration.shown().spark:
            raise ConfigError(
                "the configuration has settings under `spark`, and the session is to come from a resource with "
                "settings of its own: leave one of them out"
            )
        return configuration

    def looked_up(self) -> "Configuration":
        """Return the configuration with the tables that its databases have now, or had at the last listing.

        A code location must load even if a catalog fails: a warning names what is missing. Raise ConfigError.
        """
        if self.members is not None:
            return self
        shown = self.shown()
        try:
            members = list_databases(self.now(), _PATIENCE) if shown.databases else ()
        except ConfigError as error:
            members = tuple(DatabaseListing(database.key, failure=str(error)) for database in shown.databases)
        for one in expand_databases(shown, members)[1]:
            get_dagster_logger("metastore").warning("%s", remove_secrets(str(one)))
        return replace(self, members=members)

    def shown(self) -> MetastoreConfig:
        """Return the configuration with `${VAR}` for values of the environment, to be displayed. Raises ConfigError."""
        if self.config_object is None:
            return self._expanded(read_checked_config(self.file).locate())
        validate_checks(self.config_object)
        return self._expanded(self.config_object.locate())

    def now(self) -> MetastoreConfig:
        """Return the configuration with the values of variables. Raises ConfigError, also if a variable is not set."""
        resolved = self.config_object.resolve() if self.config_object else load_checked_config(self.file)
        return self._expanded(with_credentials(resolved, self.s3))

    def _expanded(self, config: MetastoreConfig) -> MetastoreConfig:
        return expand_databases(config, self.members)[0] if self.members else config

    @contextmanager
    def session(self, now: MetastoreConfig) -> Iterator[Callable[[], "SparkSession"]]:
        """Yield a function that starts the run's Spark session at the first call; it stops when the block ends."""
        with running_spark(self.spark, now.spark) as session:
            yield session
