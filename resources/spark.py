"""The Spark session of a Dagster run, from a resource of dagster-pyspark or the settings in `spark`."""

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
def running_spark(resource: SparkLike | None, settings: Mapping[str, Any]) -> Iterator[Callable[[], "SparkSession"]]:
    """Yield a function that returns the Spark session of a run, and starts it at the first call.

    Args:
        resource: The resource that provides the session, and is closed at the end of the block; None for `settings`.
        settings: The settings of a new session, which stops at the end of the block. If a session already runs in this
            process, it is used instead, without these settings, and continues after the block.

    Raises:
        MetastoreError: Spark does not start.
    """
    with ExitStack() as stack:
        sessions: list[SparkSession] = []

        def session() -> "SparkSession":
            if not sessions:
                if resource is None:
                    sessions.append(_configured_session(stack, settings))
                else:
                    sessions.append(_resource_session(stack, resource))
            return sessions[0]

        yield session


def _configured_session(stack: ExitStack, settings: Mapping[str, Any]) -> "SparkSession":
    # Imported here because it loads PySpark, which the code location does not need.
    from metastore_assets.spark.session import get_spark_session, has_active_session

    is_new = not has_active_session()
    session = get_spark_session(settings)
    if is_new:
        stack.callback(session.stop)
    return session


def _resource_session(stack: ExitStack, resource: SparkLike) -> "SparkSession":
    # Workers must run this Python with its packages. The default is the first `python3` on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with safe_import_path():
        session: SparkSession = stack.enter_context(resource.process_config_and_initialize_cm()).spark_session
    return session
