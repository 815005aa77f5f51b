"""The Spark session of a run: from one of dagster-pyspark's resources, or with the settings of the configuration."""

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


@contextmanager
def running_spark(given: SparkLike | None, settings: Mapping[str, Any]) -> Iterator[Callable[[], "SparkSession"]]:
    """Yield a function that returns the session of a run, which starts at the first call.

    Args:
        given: The resource whose session is used. It ends with this context.
        settings: Spark's own names, for a session without a resource. A session that this context started stops with
            it; one that ran in the process before is used and left alone.

    Raises:
        MetastoreError: Spark does not start.
    """
    with ExitStack() as stack:
        running: list[SparkSession] = []

        def session() -> "SparkSession":
            if not running:
                running.append(_own_session(stack, settings) if given is None else _resource_session(stack, given))
            return running[0]

        yield session


def _own_session(stack: ExitStack, settings: Mapping[str, Any]) -> "SparkSession":
    # Here, for it loads PySpark: a code location is loaded without, at each start of a run.
    from metastore_assets.spark.session import get_spark_session, has_active_session

    started = not has_active_session()
    session = get_spark_session(settings)
    if started:
        stack.callback(session.stop)
    return session


def _resource_session(stack: ExitStack, given: SparkLike) -> "SparkSession":
    # The workers must be this Python, with these packages, not whichever `python3` comes first on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with safe_import_path():
        session: SparkSession = stack.enter_context(given.process_config_and_initialize_cm()).spark_session
    return session
