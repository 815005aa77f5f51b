"""The configuration as Dagster uses it.

Runs and sensors replace each `${VAR}` in it by the value of the environment variable `VAR`. Loading the code location
does this, too, to list the tables of configured databases, and to look up the format and partitioning of tables. It
also succeeds if a variable is not set. The root of the Metastore is the folder with all stored state.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from dagster import get_dagster_logger

from metastore_assets.checks.configured_checks import (
    load_checked_config,
    read_checked_config,
    validate_checks_and_exports,
)
from metastore_assets.config import MetastoreConfig, config_path
from metastore_assets.databases import DatabaseListing, expand_databases, list_databases, load_listings
from metastore_assets.errors import ConfigError
from metastore_assets.messages import remove_secrets
from metastore_assets.resources.s3 import with_credentials
from metastore_assets.resources.spark import SparkLike, running_spark

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource
    from pyspark.sql import SparkSession

LOAD_TIMEOUT = 5.0
"""Seconds to wait for the root and for catalogs while Dagster loads the code location."""

ConfigLike = Union["Configuration", MetastoreConfig, str, os.PathLike[str], None]
"""A configuration, the path of its file, or None for the default file: $METASTORE_CONFIG, else ./metastore.yaml."""


@dataclass(frozen=True)
class StoredState:
    """The content of a Dagster component's state file: facts about databases and tables.

    A fact that the root of the Metastore also records is taken from the root.
    """

    databases: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The table names of each database, by `<catalog>.<database>`."""
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The fields of `TableInfo` by table name."""


@dataclass(frozen=True)
class Configuration:
    """A configuration, which is an object or in a file, with the Dagster resources that it uses.

    Each call of `unresolved` or `resolved` reads the file (if there is one) and the environment again.
    """

    file: Path | None = None
    """The path of the configuration file; None for a configuration object."""
    config_object: MetastoreConfig | None = None
    """The configuration object; None for a file."""
    s3: "S3Resource | None" = field(default=None, repr=False)
    """The resource with S3 settings. Settings of the configuration have priority. None without a resource."""
    spark: SparkLike | None = field(default=None, repr=False)
    """The resource that provides the Spark session of runs; None for a session with the settings under `spark`."""
    listings: tuple[DatabaseListing, ...] | None = field(default=None, repr=False)
    """The tables in each configured database; None if the databases were not listed yet."""
    state: StoredState = field(default=StoredState(), repr=False)
    """The state of the component that loads the definitions; empty without one."""

    @classmethod
    def of(
        cls, config: ConfigLike = None, s3: "S3Resource | None" = None, spark: SparkLike | None = None
    ) -> "Configuration":
        """Create a Configuration from an object or a file.

        Args:
            config: A configuration, the path of its file, or None for the default file. A `Configuration` is returned
                unchanged, and the other arguments are ignored.
            s3: The resource for S3 access.
            spark: The resource for the Spark session.

        Raises:
            ConfigError: The configuration is invalid, or has Spark settings although a resource provides the session.
        """
        if isinstance(config, Configuration):
            return config
        config_object = config if isinstance(config, MetastoreConfig) else None
        configuration = cls(
            None if isinstance(config, MetastoreConfig) else config_path(config), config_object, s3, spark
        )
        if spark is not None and configuration.unresolved().spark:
            raise ConfigError(
                "the configuration has settings under `spark`, and a resource provides the Spark session with its "
                "settings: remove one of them"
            )
        return configuration

    def with_databases(self) -> "Configuration":
        """Return a copy with the tables that the configured databases have now, as `listings`.

        If this object already has `listings`, this object is returned. Otherwise, the new listings are also stored in
        the root. If a catalog does not answer, its databases have the tables of their last stored listing, and a
        warning is logged. Raises ConfigError if the configuration is invalid.
        """
        return self._with_listings(lambda config: list_databases(config, LOAD_TIMEOUT))

    def with_loaded_listings(self) -> "Configuration":
        """Return a copy with the tables that the configured databases had when they were last listed.

        Catalogs are asked only for databases that were never listed. The tables of these are then stored in the root.
        If this object already has `listings`, this object is returned. Raises ConfigError if the configuration is
        invalid.
        """
        return self._with_listings(lambda config: load_listings(config, LOAD_TIMEOUT, self.state.databases))

    def _with_listings(self, list_all: Callable[[MetastoreConfig], tuple[DatabaseListing, ...]]) -> "Configuration":
        """Return a copy with the result of `list_all` as its listings, or this object if it has listings.

        If a variable is not set, or `list_all` raises ConfigError, the listing of each database has no tables, and its
        `failure` is the error. Log a warning for each table that is skipped.
        """
        if self.listings is not None:
            return self
        config = self.unresolved()
        try:
            listings = list_all(self.resolved()) if config.databases else ()
        except ConfigError as error:
            listings = tuple(DatabaseListing(database.key, failure=str(error)) for database in config.databases)
        for skipped_table in expand_databases(config, listings)[1]:
            get_dagster_logger("metastore").warning("%s", remove_secrets(str(skipped_table)))
        return replace(self, listings=listings)

    def unresolved(self) -> MetastoreConfig:
        """Return the configuration, in which references such as `${VAR}` are not replaced.

        Raises ConfigError if the configuration is invalid.
        """
        if self.config_object is None:
            return self._with_tables(read_checked_config(self.file).locate())
        validate_checks_and_exports(self.config_object)
        return self._with_tables(self.config_object.locate())

    def resolved(self) -> MetastoreConfig:
        """Return the configuration with the values of variables, and with the S3 access of the resource.

        Raises ConfigError if the configuration is invalid or a variable is not set.
        """
        config = self.config_object.resolve() if self.config_object else load_checked_config(self.file)
        return self._with_tables(with_credentials(config, self.s3))

    def _with_tables(self, config: MetastoreConfig) -> MetastoreConfig:
        return expand_databases(config, self.listings)[0] if self.listings else config

    @contextmanager
    def session(self, config: MetastoreConfig) -> Iterator[Callable[[], "SparkSession"]]:
        """Yield a function that returns the run's Spark session, and starts it at the first call.

        The session stops at the end of the block if the block started it.

        Args:
            config: The configuration with the values of variables.
        """
        with running_spark(self.spark, config.spark) as session:
            yield session
