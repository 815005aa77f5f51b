"""Spark Connect: opening of sessions on a server, counting of parallel tasks, interruption of jobs."""

from __future__ import annotations

import os
import re
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.messages import remember_secret
from metastore_assets.spark.default_settings import LOCAL_SETTINGS
from metastore_assets.spark.local_server import start_local_server
from metastore_assets.spark.pyspark_compat import count_range_splits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMOTE = "spark.remote"
_SESSION_PREFIXES = ("spark.sql.", "spark.connect.session.")
"""Prefixes of settings of a session. All other settings belong to the server, and are fixed when it starts."""


def remote_url(settings: Mapping[str, str]) -> str | None:
    """Return the URL of the server, from `spark.remote` or $SPARK_REMOTE.

    The result is None for a session in this process.
    """
    return settings.get(REMOTE) or os.environ.get("SPARK_REMOTE") or None


def local_master(settings: Mapping[str, str]) -> str:
    """Return the configured master URL of a Spark Connect server on this machine, such as `local[*]`.

    It is `spark.remote`, else $SPARK_REMOTE, else `spark.master`, else the Metastore's default master. Raises
    ConfigError if the URL does not begin with `local`: `sc://host:15002` is a server that already runs, and
    `spark://host:7077` is another machine.
    """
    url = remote_url(settings) or settings.get("spark.master", LOCAL_SETTINGS["spark.master"])
    if not url.startswith("local"):
        server = url.partition("/;")[0]
        raise ConfigError(f"`spark`: {server} is not on this machine; a server here has `{REMOTE}: local[*]`")
    return url


def is_remote(spark: SparkSession) -> bool:
    """Return whether a session is on a Spark Connect server.

    Such a session has no `sparkContext`.
    """
    return type(spark).__module__.startswith("pyspark.sql.connect")


def connect_session(url: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session on a Spark Connect server.

    On the server of this machine, all processes share one session, and its Python workers stay running.

    Args:
        url: `sc://host:port`, or `local[…]` for the server of this user on this machine, which is started if it does
            not run.
        settings: Spark settings. On a server that already runs, only session settings such as `spark.sql.*` apply.

    Raises:
        ConfigError: `url` begins with `local`, and PySpark is older than 4.3.
        MetastoreError: No server answers at `url`, or the server of this machine does not start.
    """
    _remember_token(url)
    session_settings = {key: value for key, value in settings.items() if key.startswith(_SESSION_PREFIXES)}
    if url.startswith("local"):
        from pyspark.sql.connect.session import SparkSession as RemoteSparkSession

        from metastore_assets.spark.local_channel import LocalChannel

        server = start_local_server(url, settings)
        channel = LocalChannel(server, str(uuid.uuid5(uuid.NAMESPACE_URL, server.token)))
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as PySpark does where it is given a URL
        spark = _create_session(RemoteSparkSession.builder.channelBuilder(channel), server.url, session_settings)
    else:
        from pyspark.sql import SparkSession

        spark = _create_session(SparkSession.builder.remote(url), url.partition("/;")[0], session_settings)
    if url.startswith("local") or "session_id=" in url:  # Other processes use the session too.
        spark.release_session_on_close = False  # type: ignore[attr-defined]
    return spark


def _remember_token(url: str) -> None:
    for name, value in re.findall(r"[;/]([^;=/]+)=([^;]*)", url):
        if name == "token" or "secret" in name:
            remember_secret(value, f"({name} of {REMOTE})")
            remember_secret(unquote(value), f"({name} of {REMOTE})")


def _create_session(builder: Any, address: str, settings: Mapping[str, str]) -> SparkSession:
    """Create a session, and set its settings.

    Raises MetastoreError if no server answers within some seconds.

    Args:
        builder: A session builder of PySpark that knows the address.
        address: The address, for messages.
        settings: Settings of the session.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # PySpark warns in addition to raising, also in its background threads.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    spark: Any = None
    try:
        # Without settings: PySpark would send them immediately, and retry for ten minutes where no server answers.
        spark = builder.create()
        spark.client.set_retry_policies([DefaultPolicy(max_retries=3, max_backoff=1000)])
        spark.conf.get("spark.app.name", "")
        # Retry for some ten seconds, for a flaky network. A restarted server has lost its work, so more is useless.
        spark.client.set_retry_policies([DefaultPolicy(max_retries=6, max_backoff=5000)])
        for key, value in settings.items():
            spark.conf.set(key, value)
    except PySparkException as error:
        if spark is not None:  # Else it would remain the active session of this process.
            spark.release_session_on_close = False
            spark.stop()
        raise MetastoreError(
            f"no session of Spark Connect at {address}: {_error_reason(error)}; is a server running there, and is the "
            f"token right? `{REMOTE}` says where it is, `metastore spark-server start` starts one on this machine"
        ) from error
    return spark


def _error_reason(error: BaseException) -> str:
    """Return the detail of a gRPC error, or the first line of any other error."""
    detail = re.search(r'details = "([^"\n]+)', str(error))
    return detail[1] if detail else (str(error).strip().splitlines() or [type(error).__name__])[0]


def count_remote_slots(spark: SparkSession) -> int:
    """Return the number of tasks that a server runs at the same time; 8 if unknown."""
    with interrupting_jobs(spark):
        setting = spark.conf.get("spark.default.parallelism", None)
        splits = int(setting) if setting else count_range_splits(spark)
    return max(1, splits) if splits is not None else 8


@contextmanager
def interrupting_jobs(spark: SparkSession) -> Iterator[None]:
    """Interrupt the block's jobs on a Spark Connect server if the block fails or is interrupted.

    Does nothing for a classic session, whose jobs end with this process.

    Raises:
        MetastoreError: The server has ended or was restarted. Or the tasks or results of a job are too large for Spark
            Connect.
    """
    if not is_remote(spark):
        yield
        return
    tag = f"metastore-{uuid.uuid4()}"
    spark.addTag(tag)
    try:
        yield
    except BaseException as error:
        if _is_lost(error):
            raise MetastoreError(
                f"the Spark Connect server ended, or does not answer any more: {_error_reason(error)}; published "
                "versions and finished profiles are stored: start the server, and try again"
            ) from error
        with suppress(Exception):
            spark.interruptTag(tag)
        if _status(error) == "RESOURCE_EXHAUSTED":
            raise MetastoreError(
                f"the tasks or the results of a job are too large for Spark Connect: {_error_reason(error)}; refresh "
                f"this table without `{REMOTE}`"
            ) from error
        raise
    finally:
        spark.removeTag(tag)


def _is_lost(error: BaseException) -> bool:
    """Return whether an error means that the server ended, or was restarted and lacks the session."""
    from pyspark.errors.exceptions.connect import SparkConnectException

    if not isinstance(error, SparkConnectException):
        return False
    return _status(error) == "UNAVAILABLE" or "[INVALID_HANDLE.SESSION" in str(error)


def _status(error: BaseException) -> str:
    """Return the name of an error's gRPC status; empty for other errors."""
    return str(getattr(getattr(error, "_grpc_status_code", None), "name", ""))
