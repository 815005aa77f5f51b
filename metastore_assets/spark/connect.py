"""Spark Connect: sessions on a server that goes on running, and what differs from a session in this process."""

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
from metastore_assets.spark.local_server import local_server
from metastore_assets.spark.pyspark_compat import count_range_splits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMOTE = "spark.remote"
_OF_SERVERS = ("spark.sql.", "spark.connect.session.")
"""Settings that belong to a session. All others were given to the server as it started."""


def remote_url(settings: Mapping[str, str]) -> str | None:
    """Where the session is to run: `spark.remote`, else $SPARK_REMOTE, as PySpark itself has it; None: here."""
    return settings.get(REMOTE) or os.environ.get("SPARK_REMOTE") or None


def local_master(settings: Mapping[str, str]) -> str:
    """The master of the server on this machine. Raises ConfigError where the settings want one elsewhere."""
    url = remote_url(settings) or settings.get("spark.master", LOCAL_SETTINGS["spark.master"])
    if not url.startswith("local"):
        place = url.partition("/;")[0]
        raise ConfigError(f"`spark`: {place} is not on this machine; a server here has `{REMOTE}: local[*]`")
    return url


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect: it has no `sparkContext`, and no JVM in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def connect_session(url: str, settings: Mapping[str, str]) -> SparkSession:
    """A session on the server at `url` (`sc://host:port`), or, at `local[…]`, on that of this user and machine.

    The latter is started with `settings` when there is none yet.

    Runs share one session of the local server, because its Python workers belong to a session: they stay warm, and
    are not started, nor left behind, for every run. Raises MetastoreError when nobody answers at `url`.
    """
    _remember_token(url)
    own = {key: value for key, value in settings.items() if key.startswith(_OF_SERVERS)}
    if url.startswith("local"):
        from pyspark.sql.connect.session import SparkSession as RemoteSparkSession

        from metastore_assets.spark.local_channel import LocalChannel

        server = local_server(url, settings)
        channel = LocalChannel(server, str(uuid.uuid5(uuid.NAMESPACE_URL, server.token)))
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as PySpark does where it is given a URL
        spark = _session(RemoteSparkSession.builder.channelBuilder(channel), server.url, own)
    else:
        from pyspark.sql import SparkSession

        spark = _session(SparkSession.builder.remote(url), url.partition("/;")[0], own)
    if url.startswith("local") or "session_id=" in url:  # It is others' as well.
        spark.release_session_on_close = False  # type: ignore[attr-defined]
    return spark


def _remember_token(url: str) -> None:
    for name, value in re.findall(r"[;/]([^;=/]+)=([^;]*)", url):
        if name == "token" or "secret" in name:
            remember_secret(value, f"({name} of {REMOTE})")
            remember_secret(unquote(value), f"({name} of {REMOTE})")


def _session(builder: Any, place: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # Which PySpark says besides raising, from threads of its own too.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    spark: Any = None
    try:
        # No settings yet: they are the first requests, which are tried again for ten minutes where nobody answers.
        spark = builder.create()
        spark.client.set_retry_policies([DefaultPolicy(max_retries=3, max_backoff=1000)])
        spark.conf.get("spark.app.name", "")
        # Some ten seconds, for a network that stutters. A server that ended does not come back with the work it had.
        spark.client.set_retry_policies([DefaultPolicy(max_retries=6, max_backoff=5000)])
        for key, value in settings.items():
            spark.conf.set(key, value)
    except PySparkException as error:
        if spark is not None:  # Else it stays this process's active session.
            spark.release_session_on_close = False
            spark.stop()
        raise MetastoreError(
            f"no session of Spark Connect at {place}: {_reason(error)}; is a server running there, and is the token "
            f"its own? `{REMOTE}` says where it is, `metastore spark-server start` starts one on this machine"
        ) from error
    return spark


def _reason(error: BaseException) -> str:
    """The first line of it, and of what gRPC tells in many the one that says something."""
    told = re.search(r'details = "([^"\n]+)', str(error))
    return told[1] if told else (str(error).strip().splitlines() or [type(error).__name__])[0]


def count_remote_slots(spark: SparkSession) -> int:
    """How many tasks the server runs at a time: into so many parts it cuts a range. Starts no job."""
    with working(spark):
        given = spark.conf.get("spark.default.parallelism", None)
        splits = int(given) if given else count_range_splits(spark)
    return max(1, splits) if splits is not None else 8


@contextmanager
def working(spark: SparkSession) -> Iterator[None]:
    """What the block started on a server ends when the block is left by an exception: Ctrl-C, SIGTERM, a run's end.

    A session in this process ends with it, and a server's would work on. What others run there is left alone. Raises
    MetastoreError when the server went away.
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
                f"the Spark Connect server ended, or does not answer any more: {_reason(error)}; what was published "
                "stands, and what was read is kept: try again when the server is there"
            ) from error
        with suppress(Exception):
            spark.interruptTag(tag)
        if _status(error) == "RESOURCE_EXHAUSTED":
            raise MetastoreError(
                f"a job's tasks, or its results, are more than Spark Connect takes: {_reason(error)}; refresh this "
                f"table without `{REMOTE}`"
            ) from error
        raise
    finally:
        spark.removeTag(tag)


def _is_lost(error: BaseException) -> bool:
    """Whether a server is gone, or is another one by now, which does not know the session."""
    from pyspark.errors.exceptions.connect import SparkConnectException

    if not isinstance(error, SparkConnectException):
        return False
    return _status(error) == "UNAVAILABLE" or "[INVALID_HANDLE.SESSION" in str(error)


def _status(error: BaseException) -> str:
    """What gRPC calls it; empty where it is no error of gRPC."""
    return str(getattr(getattr(error, "_grpc_status_code", None), "name", ""))
