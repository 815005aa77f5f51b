"""The Spark session of a run, as dagster-pyspark's resources give it."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Union

from metastore_assets.startup import safe_import_path

if TYPE_CHECKING:
    from dagster_pyspark import LazyPySparkResource, PySparkResource
    from pyspark.sql import SparkSession

SparkLike = Union["LazyPySparkResource", "PySparkResource"]


def spark_resource(settings: Mapping[str, Any]) -> "LazyPySparkResource":
    """dagster-pyspark's lazy resource, with the Metastore's start below `settings` (Spark's own names).

    It stops the session that it started when its run ends, and leaves one alone that ran in the process before.
    """
    # Here, for it loads PySpark: a code location is loaded without, at each start of a run.
    from dagster import InitResourceContext
    from dagster_pyspark import LazyPySparkResource
    from pydantic import PrivateAttr
    from pyspark.sql import SparkSession

    from metastore_assets.spark.session import spark_session

    class SparkResource(LazyPySparkResource):
        _started: bool = PrivateAttr(default=False)

        def _init_session(self) -> None:
            if self._spark_session is None:
                self._started = SparkSession.getActiveSession() is None
                self._spark_session = spark_session(self.spark_config)

        def teardown_after_execution(self, context: InitResourceContext) -> None:
            if self._spark_session is not None and self._started:
                self._spark_session.stop()
            self._spark_session = None

    return SparkResource(spark_config=dict(settings))


@contextmanager
def running_spark(given: SparkLike | None, settings: Mapping[str, Any]) -> Iterator[Callable[[], "SparkSession"]]:
    """What gives the session of a resource, or without one of a resource with `settings`: started when first asked for.

    The resource ends with this. Raises MetastoreError where Spark does not start.
    """
    with ExitStack() as stack:
        running: list[SparkSession] = []

        def session() -> "SparkSession":
            if not running:
                if given is not None:
                    # The workers must be this Python, with these packages, not whichever `python3` comes first on PATH.
                    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
                resource = spark_resource(settings) if given is None else given
                with safe_import_path():
                    running.append(stack.enter_context(resource.process_config_and_initialize_cm()).spark_session)
            return running[0]

        yield session
