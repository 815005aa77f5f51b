"""The Spark session: any settings, any master or server; a local one starts fast."""

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
from metastore_assets.spark.jvm import local_jvm_options
from metastore_assets.startup import safe_import_path
from metastore_assets.storage.temporary_folders import TemporaryFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_SUBMIT = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES_FILE = "--properties-file"
_PYTHON = "spark.pyspark.python"
_SECRET = re.compile("secret|password|token|credential|key", re.IGNORECASE)
"""In the name of a setting whose value is not for error messages."""
_LAST_WORDS = (
    "Error: Could not create the Java Virtual Machine.",
    "Error: A fatal exception has occurred. Program will exit.",
)


class SparkLog:
    """What Spark's JVM and its Python workers write to standard output and error.

    It is the file at `path`, or one without a name: nothing is left of that however the process ends, unless it is
    saved.
    """

    def __init__(self, path: Path | None = None) -> None:
        # Open as long as Spark may write.
        self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0) if path is None else path.open("a+b", buffering=0)  # noqa: SIM115
        self._saved = path

    @property
    def descriptor(self) -> int:
        """The descriptor of the file, for other processes to write to."""
        return self._file.fileno()

    def text(self) -> str:
        """Return what has been written."""
        # Where the file stands is common to all who write.
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0).decode("utf-8", "replace")

    def save(self) -> Path:
        """Write it to a file with a name, and return that."""
        if self._saved is None:
            descriptor, name = tempfile.mkstemp(prefix="metastore-spark-", suffix=".log")
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(self.text())
            self._saved = Path(name)
        return self._saved

    def close(self) -> None:
        """Close the file. Processes that write to it have descriptors of their own."""
        self._file.close()


def has_active_session() -> bool:
    """Return whether a session runs in this process. False where PySpark is not installed."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        return False
    return SparkSession.getActiveSession() is not None


def get_spark_session(settings: Mapping[str, object] | None = None, *, log: SparkLog | None = None) -> SparkSession:
    """The running session, or a new one with `settings` (Spark's own names) over the Metastore's defaults.

    With `log`, everything that Spark's JVM and its Python workers write to standard output and error goes there;
    what a program must know comes back as exceptions all the same. `spark.remote` is a server that has its own.

    Raises MetastoreError when there is no Java 17 or newer, or Spark does not start.
    """
    with extra("spark", "reading and reducing on Spark"):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    chosen = normalize_settings(settings or {})
    if _PYTHON in chosen:
        # Of a session that no spark-submit starts, PySpark heeds the variable alone.
        os.environ["PYSPARK_PYTHON"] = chosen[_PYTHON]
    remote = remote_url(chosen)
    if remote is not None:
        return connect_session(remote, chosen)
    if chosen.get("spark.master", SETTINGS["spark.master"]).startswith("local"):
        options = " ".join([local_jvm_options(), chosen.get(_JVM_OPTIONS, "")]).strip()
        merged = {**LOCAL_SETTINGS, **chosen, _JVM_OPTIONS: options}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # The workers must be this Python, with these packages, not whichever `python3` comes first on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    else:
        merged = {**SETTINGS, **chosen}
    builder = SparkSession.builder
    for key, value in merged.items():
        builder = builder.config(key, value)
    try:
        _start_jvm(merged, log)
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise MetastoreError(
            f"Spark did not start with the settings {_without_secrets(chosen)}: {_reason(error, log)}"
        ) from error


def get_submitted_session() -> SparkSession:
    """The session of a program that `spark-submit` started: with the settings, and the master, that it was given.

    Raises MetastoreError when Spark does not start.
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
    """Start the JVM and its Spark context as `getOrCreate` would, but for two things.

    Its settings, which may be secrets, are in a file that this user alone can read, and not among its arguments, which
    every user of the machine sees. Its Python workers import nothing from the working folder.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return  # It runs already, from a session that was stopped or did not start.
    conf = SparkConf().setAll(list(settings.items()))
    output = {} if log is None else {"stdout": log.descriptor, "stderr": log.descriptor}
    with TemporaryFolder("spark") as folder, _submitted_with(settings, Path(folder) / "spark.properties"):
        gateway = launch_gateway(None, output)  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)


@contextmanager
def _submitted_with(settings: Mapping[str, str], file: Path) -> Iterator[None]:
    """Have PySpark start a JVM with these settings over those of spark-defaults.conf."""
    before = os.environ.get(_SUBMIT)
    arguments = shlex.split(before or "pyspark-shell")
    given, options = _without_properties_file(arguments)
    # A properties file replaces spark-defaults.conf, and only Spark 4 has an option to read both.
    given = given or _defaults_file()
    lines = [f"{_escaped(key, is_key=True)}={_escaped(value)}" for key, value in settings.items()]
    file.touch(0o600)
    file.write_text(
        "\n".join([*(Path(own).read_text(encoding="utf-8") for own in given), *lines, ""]), encoding="utf-8"
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
    """Return the path of Spark's spark-defaults.conf, if there is one."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    path = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf") / "spark-defaults.conf"
    return [str(path)] if path.is_file() else []


def _without_properties_file(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The properties file among the arguments of spark-submit, if there is one, and the other arguments."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == _PROPERTIES_FILE and (equals or arguments[index + 1 :]):
            rest = arguments[index + (1 if equals else 2) :]
            return [value if equals else arguments[index + 1]], [*arguments[:index], *rest]
    return [], arguments


def _escaped(text: str, *, is_key: bool = False) -> str:
    """A key or a value as Java's properties files have it."""
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if is_key:
        return re.sub("[ =:#!]", r"\\\g<0>", escaped)
    return re.sub("^ ", r"\\ ", escaped)


def _reason(error: Exception, log: SparkLog | None) -> str:
    """Why Spark did not start, in one line: what Java raised, or else what a JVM that ended had written last."""
    raised = getattr(error, "java_exception", None)
    if raised is not None:
        return str(raised.toString()).splitlines()[0]
    written = log.text().splitlines() if log is not None else []
    # Lines that start with a blank are those of a Java stack trace, and Java's own last words say nothing.
    lines = [line for line in written if line.strip() and not line[0].isspace() and line not in _LAST_WORDS]
    return " ".join([*str(error).split(), *(lines[-1:])])
