"""The Spark session of a run."""

from typing import TYPE_CHECKING

from dagster import ConfigurableResource, InitResourceContext
from pydantic import Field, PrivateAttr

from metastore_assets.config import load_config
from metastore_assets.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResource(ConfigurableResource[object]):
    """A Spark session that starts when it is first asked for, and ends with the run that started it.

    The settings are those under `spark` in the configuration. They are read from the file, not passed on: Dagster
    shows the configuration of a resource to everyone, and settings may hold secrets.
    """

    config_file: str = Field(description="The metastore.yaml whose `spark` settings apply")
    _session: "SparkSession | None" = PrivateAttr(default=None)

    def session(self) -> "SparkSession":
        """The session, started now if need be. A session that runs in this process already is used, and outlives it.

        Raises ConfigError, or MetastoreError when Spark does not start.
        """
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            return active
        self._session = spark_session(load_config(self.config_file).spark)
        return self._session

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        """Stop the session if this resource started it."""
        if self._session is not None:
            self._session.stop()
            self._session = None
