"""The Spark session of this process: a classic session, or a session of a Spark Connect server."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from metastore_assets.errors import MetastoreError
from metastore_assets.extras import extra
from metastore_assets.spark.connect import connect_session, remote_url
from metastore_assets.spark.default_settings import LOCAL_SETTINGS, SETTINGS, normalize_settings
from metastore_assets.spark.jvm import local_jvm_options, running_gateway
from metastore_assets.startup import safe_import_path
from metastore_assets.storage.temporary_folders import TemporaryFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_SUBMIT = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES_FILE = "--properties-file"
_PYTHON = "spark.pyspark.python"
_SECRET = re.compile("secret|password|token|credential|key", re.IGNORECASE)
"""Matches names of settings whose values error messages leave out."""
_LAST_WORDS = (
    "Error: Could not create the Java Virtual Machine.",
    "Error: A fatal exception has occurred. Program will exit.",
)


class SparkLog:
    """A file with the standard output and error of Spark's JVM and Python workers.

    Without a `path`, the file has no name, and disappears with the process unless `save` copies it.
    """

    def __init__(self, path: Path | None = None) -> None:
        # Open for as long as Spark may write.
        self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0) if path is None else path.open("a+b", buffering=0)  # noqa: SIM115
        self._saved = path

    @property
    def descriptor(self) -> int:
        """The file descriptor that other processes write to."""
        return self._file.fileno()

    def text(self) -> str:
        """Return everything that was written to the log so far."""
        # All writers share the position of the file, so this must not move it.
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0).decode("utf-8", "replace")

    def save(self) -> Path:
        """Return the path of the log.

        If the file has no name, copy it to a named file first.
        """
        if self._saved is None:
            descriptor, name = tempfile.mkstemp(prefix="metastore-spark-", suffix=".log")
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(self.text())
            self._saved = Path(name)
        return self._saved

    def close(self) -> None:
        """Close the file.

        Processes that still write to it are not affected.
        """
        self._file.close()


def has_active_session() -> bool:
    """Return whether this process has a running Spark session; False if PySpark is not installed."""
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError:
        return False
    return _running_session() is not None


def _running_session() -> SparkSession | None:
    """Return the active session, or a session on this process's running Spark context, or None."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # A session that another thread has started is not active in this thread.
    try:
        from pyspark import SparkContext
    except ImportError:  # PySpark's package of Spark Connect alone has no contexts.
        return None
    context = SparkContext._active_spark_context
    return None if context is None else SparkSession(context)


def get_spark_session(settings: Mapping[str, object] | None = None, *, log: SparkLog | None = None) -> SparkSession:
    """Return the running session of this process, or start one.

    Args:
        settings: Spark settings, which replace the Metastore's defaults. A running session does not get them.
        log: Receives the output of Spark's JVM and Python workers. A server (`spark.remote`) has its own log.

    Raises:
        MissingPackageError: PySpark is not installed.
        ConfigError: `spark.remote` is `local[…]`, and PySpark is older than 4.3.
        MetastoreError: There is no Java 17 or newer, or Spark does not start.
    """
    with extra("spark", "reading and reducing on Spark"):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

    running = _running_session()
    if running is not None:
        return running
    user_settings = normalize_settings(settings or {})
    if _PYTHON in user_settings:
        # Without spark-submit, PySpark reads only this variable.
        os.environ["PYSPARK_PYTHON"] = user_settings[_PYTHON]
    remote = remote_url(user_settings)
    if remote is not None:
        return connect_session(remote, user_settings)
    if user_settings.get("spark.master", SETTINGS["spark.master"]).startswith("local"):
        options = " ".join([local_jvm_options(), user_settings.get(_JVM_OPTIONS, "")]).strip()
        merged_settings = {**LOCAL_SETTINGS, **user_settings, _JVM_OPTIONS: options}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Workers must run this Python with its packages, rather than the first `python3` on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    else:
        merged_settings = {**SETTINGS, **user_settings}
    builder = SparkSession.builder
    for key, value in merged_settings.items():
        builder = builder.config(key, value)
    try:
        _start_jvm(merged_settings, log)
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise MetastoreError(
            f"Spark did not start with the settings {_without_secrets(user_settings)}: {_reason(error, log)}"
        ) from error


def get_submitted_session() -> SparkSession:
    """Return the session of this program, which `spark-submit` started.

    The session has the settings and the master that were given to `spark-submit`.

    Raises:
        MetastoreError: Spark does not start.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise MetastoreError(f"Spark did not start: {_reason(error, None)}") from error


def _without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: "…" if _SECRET.search(key) else value for key, value in settings.items()}


def _start_jvm(settings: Mapping[str, str], log: SparkLog | None) -> None:
    """Start the JVM and its Spark context, unless a JVM already runs."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if running_gateway() is not None:
        return  # The JVM of an earlier session still runs.
    conf = SparkConf().setAll(list(settings.items()))
    output = {} if log is None else {"stdout": log.descriptor, "stderr": log.descriptor}
    # Unlike with `getOrCreate`, secrets among the settings are in a file that only this user can read, and Python
    # workers import nothing from the working folder.
    with TemporaryFolder("spark") as folder, _submitted_with(settings, Path(folder) / "spark.properties"):
        gateway = launch_gateway(None, output)  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)


@contextmanager
def _submitted_with(settings: Mapping[str, str], file: Path) -> Iterator[None]:
    """Let PySpark start JVMs with these settings during the block.

    They override spark-defaults.conf.

    Args:
        settings: The settings.
        file: The path of a file for the settings. It is created, and only this user can read it. The caller deletes it.
    """
    before = os.environ.get(_SUBMIT)
    arguments = shlex.split(before or "pyspark-shell")
    properties_files, options = _split_properties_file(arguments)
    # A properties file replaces spark-defaults.conf, and only Spark 4 has an option to read both.
    properties_files = properties_files or _defaults_file()
    lines = [f"{_escape_property(key, is_key=True)}={_escape_property(value)}" for key, value in settings.items()]
    file.touch(0o600)
    file.write_text(
        "\n".join([*(Path(path).read_text(encoding="utf-8") for path in properties_files), *lines, ""]),
        encoding="utf-8",
    )
    os.environ[_SUBMIT] = shlex.join([_PROPERTIES_FILE, str(file), *options])
    try:
        with safe_import_path():
            yield
    finally:
        os.environ.pop(_SUBMIT)
        if before is not None:
            os.environ[_SUBMIT] = before


def _defaults_file() -> list[str]:
    """Return the path of spark-defaults.conf in a list; an empty list if there is no such file."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    path = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf") / "spark-defaults.conf"
    return [str(path)] if path.is_file() else []


def _split_properties_file(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of spark-submit into the path after `--properties-file`, and all others.

    The first list has one path or none.
    """
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == _PROPERTIES_FILE and (equals or arguments[index + 1 :]):
            remaining = arguments[index + (1 if equals else 2) :]
            return [value if equals else arguments[index + 1]], [*arguments[:index], *remaining]
    return [], arguments


def _escape_property(text: str, *, is_key: bool = False) -> str:
    """Escape a key or a value for Java's properties files."""
    escaped_text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if is_key:
        return re.sub("[ =:#!]", r"\\\g<0>", escaped_text)
    return re.sub("^ ", r"\\ ", escaped_text)


def _reason(error: Exception, log: SparkLog | None) -> str:
    """Return one line about why Spark did not start.

    The line has the Java exception. Without one, it has the Python error and the last informative line that the JVM
    wrote.
    """
    java_exception = getattr(error, "java_exception", None)
    if java_exception is not None:
        return str(java_exception.toString()).splitlines()[0]
    log_lines = log.text().splitlines() if log is not None else []
    # Leave out lines of a Java stack trace, which start with a blank, and Java's uninformative last lines.
    lines = [line for line in log_lines if line.strip() and not line[0].isspace() and line not in _LAST_WORDS]
    return " ".join([*str(error).split(), *(lines[-1:])])
