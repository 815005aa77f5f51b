"""Checks of the environment: Python, installed packages, Java, Spark and Dagster."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

from metastore_assets.cli.diagnosis.finding import DoctorFinding, Status, check
from metastore_assets.extras import PACKAGES, is_installed

if TYPE_CHECKING:
    from metastore_assets.cli.spark import LazySpark
    from metastore_assets.config import MetastoreConfig

_DISTRIBUTION = "metastore-assets"
_NAMED_PACKAGES = ("pyarrow", "polars", "click", "dagster", "pyspark")
_MIN_PYTHON = (3, 11)
_MIN_JAVA = 17
_JAVA_TIMEOUT = 30.0
"""Seconds to wait for `java -version`."""
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[\w,.-]+\])?\s*([^;]*)(?:;\s*extra\s*==\s*['\"](\w+)['\"])?")
_LIMIT = re.compile(r"(>=|<)\s*([\d.]+)")


@dataclass(frozen=True)
class Requirement:
    """A package that this package needs, and the range of its supported versions."""

    package: str
    limits: tuple[tuple[str, str], ...]
    """Pairs of an operator, `>=` or `<`, and a version."""
    extra: str | None
    """The extra that installs the package; None if it is always installed."""

    @property
    def range(self) -> str:
        """The supported versions in the syntax of pip."""
        return ",".join(operator + limit for operator, limit in self.limits) or "any version"

    def allows(self, installed_version: str) -> bool:
        """Return whether a version is in the range."""
        release = parse_release(installed_version)
        return all(
            release >= parse_release(limit) if operator == ">=" else release < parse_release(limit)
            for operator, limit in self.limits
        )


def parse_release(text: str) -> tuple[int, ...]:
    """Parse the numbers at the start of a version, without zeros at the end: `2.1.0rc1` becomes (2, 1)."""
    match = re.match(r"\d+(\.\d+)*", text)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def parse_requirements(lines: Sequence[str]) -> list[Requirement]:
    """Parse requirements such as `polars<3,>=1.36`, as the metadata of installed packages contain them."""
    requirements = []
    for line in lines:
        match = _REQUIREMENT.fullmatch(line.strip())
        if match is not None and match[1] != _DISTRIBUTION:
            requirements.append(Requirement(match[1], tuple(_LIMIT.findall(match[2])), match[3]))
    return requirements


def check_python() -> DoctorFinding:
    """Check the version of Python."""
    release = platform.python_version()
    if sys.version_info >= _MIN_PYTHON:
        return DoctorFinding("Python", "ok", f"{release} on {platform.system()}")
    minimum_version = ".".join(map(str, _MIN_PYTHON))
    return DoctorFinding("Python", "failed", f"{release} is too old", f"install Python {minimum_version} or newer")


def check_packages() -> Iterator[DoctorFinding]:
    """Check the versions of the packages that this package uses, and list extras that are not installed."""
    try:
        requirements = parse_requirements(requires(_DISTRIBUTION) or ())
        release = version(_DISTRIBUTION)
    except PackageNotFoundError:
        advice = "install it with pip to have the supported versions of packages checked"
        yield DoctorFinding("packages", "skipped", f"{_DISTRIBUTION} is not installed as a package", advice)
        return
    supported_versions: dict[str, str] = {}
    for item in requirements:
        try:
            installed_version = version(item.package)
        except PackageNotFoundError:
            if item.extra is None:
                yield DoctorFinding(
                    f"package {item.package}", "failed", "not installed", f"pip install '{item.package}{item.range}'"
                )
            continue
        if item.allows(installed_version):
            supported_versions[item.package] = installed_version
        else:
            advice = f"pip install '{item.package}{item.range}'"
            message = f"version {installed_version} is not supported; supported is {item.range}"
            yield DoctorFinding(f"package {item.package}", "failed", message, advice)
    examples = ", ".join(f"{name} {supported_versions[name]}" for name in _NAMED_PACKAGES if name in supported_versions)
    count = len(supported_versions)
    message = f"{_DISTRIBUTION} {release}; {count} packages have supported versions, such as {examples}"
    yield DoctorFinding("packages", "ok", message)
    missing_extras = [name for name in PACKAGES if not is_installed(name)]
    if missing_extras:
        advice = f"pip install '{_DISTRIBUTION}[{','.join(missing_extras)}]' if you need them"
        yield DoctorFinding("extras", "skipped", f"not installed: {', '.join(missing_extras)}", advice)


def check_java(config: MetastoreConfig | None) -> DoctorFinding:
    """Check the version of the Java that Spark would use."""
    if not _starts_spark(config):
        return DoctorFinding("Java", "skipped", "not needed: this process starts no Spark")
    status, consequence = _importance(config)
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    advice = f"install Java {_MIN_JAVA} or newer, and set JAVA_HOME to its folder{consequence}"
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME={home} has no bin/java" if home else "no java on PATH, and JAVA_HOME is not set"
        return DoctorFinding("Java", status, where, advice)
    try:
        completed_process = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return DoctorFinding("Java", status, f"{java} does not run: {error}", advice)
    match = _JAVA_VERSION.search(completed_process.stderr + completed_process.stdout)
    if match is None:
        return DoctorFinding("Java", status, f"{java} does not say its version", advice)
    if int(match[1]) < _MIN_JAVA:
        return DoctorFinding("Java", status, f"{java} is Java {match[1]}", advice)
    return DoctorFinding("Java", "ok", f"{match[1]}, {java}")


def check_spark(config: MetastoreConfig | None, spark: LazySpark | None) -> DoctorFinding:
    """Check that PySpark is installed, and optionally that it works.

    Args:
        config: The configuration; None without a valid one.
        spark: Starts a session, which then runs a task; None to start none.
    """
    if not _uses_spark(config):
        return DoctorFinding("Spark", "skipped", "not needed: jobs of EMR Serverless refresh the tables")
    status, consequence = _importance(config)
    if not is_installed("spark"):
        advice = f"pip install '{_DISTRIBUTION}[spark]'{consequence}"
        return DoctorFinding("Spark", status, "PySpark is not installed", advice)
    installed_text = f"PySpark {version('pyspark')}"
    if spark is None:
        return DoctorFinding("Spark", "ok", f"{installed_text}; not started (--deep starts it)")
    lazy_spark = spark

    def run() -> str:
        from metastore_assets.pipeline.engine import Engine

        runner = Engine(lazy_spark).spark_runner
        if runner.map(parse_release, ["1.2"]) != [(1, 2)]:
            raise ValueError("a task returned a wrong result")
        return f"{installed_text} started, and ran a task in Python"

    return check("Spark", run, "see docs/how-to/spark.md; `engine: auto` refreshes small tables without Spark")


def check_dagster() -> DoctorFinding:
    """Check that Dagster's instance can be opened, and that its daemon runs."""
    if not is_installed("dagster"):
        advice = f"pip install '{_DISTRIBUTION}[dagster]' if Dagster shall refresh the tables"
        return DoctorFinding("Dagster", "skipped", "not installed", advice)
    installed_text = f"dagster {version('dagster')}"
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        advice = "set it to the folder of your instance; without it `dagster dev` forgets runs and sensor states"
        return DoctorFinding("Dagster", "skipped", f"{installed_text}; DAGSTER_HOME is not set", advice)
    age: list[float | None] = []

    def open_instance() -> str:
        from metastore_assets.assets.instance import seconds_since_heartbeat

        age.append(seconds_since_heartbeat())
        return f"{installed_text}, instance in {home}"

    advice = f"check {home}/dagster.yaml, and that this user may read and write its storage"
    finding = check("Dagster", open_instance, advice)
    if finding.status == "ok" and age[0] is None:
        message = f"{installed_text}, instance in {home}: no daemon runs, so no sensor or schedule works"
        return DoctorFinding("Dagster", "warning", message, "start it: `dagster-daemon run`, or `dagster dev`")
    return finding


def _uses_spark(config: MetastoreConfig | None) -> bool:
    return config is None or config.engine != "emr-serverless"


def _starts_spark(config: MetastoreConfig | None) -> bool:
    """Return whether refreshes start Spark in this environment.

    False without PySpark, for EMR Serverless, and for a remote Spark Connect server.
    """
    if not _uses_spark(config) or not is_installed("spark"):
        return False
    settings = {} if config is None else config.spark
    remote = str(settings.get("spark.remote") or os.environ.get("SPARK_REMOTE") or "")
    return not remote.startswith("sc://")


def _importance(config: MetastoreConfig | None) -> tuple[Status, str]:
    """Return (status of the finding that Spark cannot start, text to append to its advice).

    The status is `warning` if the engine is `auto`, or if the configuration is None, because it is missing or invalid.
    Otherwise it is `failed`.
    """
    if config is not None and config.engine == "auto":
        return "warning", "; without Spark, only small tables can be refreshed"
    if config is None:
        return "warning", ""
    return "failed", "; or write `engine: auto`, which reads small tables without Spark"
